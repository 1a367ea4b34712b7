// The catalogue as tools of agent frameworks, and what executes the calls that a model asks for.

import type { Run, TextAnswer } from "./run.js";

type Members = { [member: string]: unknown };

/** A tool as a function with its name, description and JSON Schema. Answers the text for the model, also of refusals. */
export interface ToolFunction {
  name: string;
  description: string;
  schema: Members;
  call(input: object): Promise<string>;
}

/**
 * Executes a model's call and returns the text that the model reads.
 *
 * The ID of the call is new each time: the IDs that models invent may repeat.
 */
export async function dispatch(run: Run, name: string, input: unknown): Promise<TextAnswer> {
  let parsed: unknown;
  try {
    parsed = typeof input === "string" ? JSON.parse(input || "{}") : input;
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) throw new Error("they are not an object");
  } catch (error) {
    const text = `INVALID_REQUEST: the arguments of \`${name}\` are not a JSON object: ${(error as Error).message}\nSend one JSON object.\n`;
    return { text, ok: false, status: 400, callId: null, seq: null, sha256: null };
  }
  const { toolCallId: _, ...rest } = parsed as Members;
  return run.text(name, rest);
}

/** Returns each tool as a function. */
export async function functions(run: Run): Promise<ToolFunction[]> {
  return (await run.tools("workspaced", "model")).map((tool) => ({
    name: tool["name"] as string,
    description: tool["description"] as string,
    schema: tool["inputSchema"] as Members,
    call: async (input) => (await dispatch(run, tool["name"] as string, input)).text,
  }));
}
