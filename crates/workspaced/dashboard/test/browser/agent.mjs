// A scripted agent and its operator, over the API.

export class Client {
  constructor(base, token) {
    this.base = base;
    this.token = token;
  }

  async request(method, path, body) {
    const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json" };
    const response = await fetch(this.base + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    return { status: response.status, body: text && JSON.parse(text) };
  }

  async create(path, body) {
    const { status, body: answer } = await this.request("POST", path, body);
    if (status >= 300) throw new Error(`${path}: ${JSON.stringify(answer)}`);
    return answer;
  }
}

/** Creates a run and returns a function that calls tools with its token. */
export async function startRun(operator, runId, extra = {}) {
  const { token } = await operator.create("/v1/runs", { runId, source: { type: "empty" }, labels: { issue: "42" }, ...extra });
  const agent = new Client(operator.base, token.token);
  return async (tool, input) => (await agent.request("POST", `/v1/runs/${runId}/tools/${tool}`, input)).body;
}

const BEFORE = "fn greet(name: &str) -> String {\n    // The name is trusted.\n    format!(\"hello {name}\")\n}\n\nfn main() {\n" +
  Array.from({ length: 40 }, (_, line) => `    println!("{}", greet("${line}"));\n`).join("") + "}\n";

/** What an agent does in a small task: reads, changes, refusals, a call that waits. Returns the approval's ID. */
export async function work(call) {
  await call("list_dir", { stepId: "look" });
  await call("write_file", { path: "src/main.rs", content: BEFORE, reason: "start the program", stepId: "write" });
  await call("read_file", { path: "src/main.rs", stepId: "write" });
  await call("edit_file", { path: "src/main.rs", oldString: "    format!(\"hello {name}\")", newString: "    let name = name.trim();\n    format!(\"good day {name}\")", expectedSha256: "seen", reason: "trim the name before greeting", stepId: "write" });
  await call("edit_file", { path: "src/main.rs", oldString: "greet(\"39\")", newString: "greet(\"thirty-nine\")", expectedSha256: "seen", reason: "spell the last number", stepId: "write" });
  await call("read_file", { path: ".env", stepId: "check" });
  await call("search_text", { query: "greet", stepId: "check" });
  const waiting = await call("write_file", { path: "Cargo.lock", content: "version = 4\n", reason: "lock the dependencies", stepId: "check" });
  return waiting.approvalId;
}

/** Waits until the page says what became of a change, once that was sent: where it is open, or above the next one. */
export const becomes = (page, path, text) => page.locator(".last-decision.sent, .approval-head").filter({ hasText: path }).filter({ hasText: text }).first().waitFor();

/** Waits until the change that is open may be decided. */
export const armed = (page) => page.locator(".decide.armed").waitFor();
