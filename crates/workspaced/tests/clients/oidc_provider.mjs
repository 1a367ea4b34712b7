// A provider of OpenID Connect on loopback (oidc-provider), and a browser that signs in there. Argument: the folder of the packages.
//
// Prints the address of the issuer. Then each line of its input, `SERVICE LOGIN PAGE`, signs the person LOGIN in to the service, and is
// answered with one line of JSON: the status, address and cookies of the service's last answer, and its text.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const say = (line) => process.stdout.write(`${line}\n`);
// What the provider prints is no answer.
console.log = console.info = console.error;
const require = createRequire(pathToFileURL(path.join(process.argv[2], "package.json")));
const { Provider } = await import(pathToFileURL(require.resolve("oidc-provider")));

const GROUPS = { ada: ["reviewers", "others"], bob: ["reviewers", "auditors"], eve: ["others"], mallory: ["reviewers"] };
let groups = GROUPS;
const server = createServer();
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [{
    client_id: "workspaced", client_secret: "a secret: of the client", application_type: "native",
    redirect_uris: ["http://127.0.0.1/sign-in/callback"], grant_types: ["authorization_code"], response_types: ["code"],
  }],
  claims: { openid: ["sub"], email: ["email", "email_verified", "groups"] },
  // The ID token has the claims of the scopes, as with most providers.
  conformIdTokenClaims: false,
  cookies: { keys: ["of this test"] },
  findAccount: (_context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id[0].toUpperCase()}${id.slice(1)}@example.org`, email_verified: id !== "mallory", groups: groups[id] ?? [] }),
  }),
});
server.on("request", provider.callback());
say(issuer);

const cookies = new Map();
function keep(origin, response) {
  const jar = cookies.get(origin) ?? new Map();
  for (const line of response.headers.getSetCookie()) {
    const [pair] = line.split(";");
    const at = pair.indexOf("=");
    jar.set(pair.slice(0, at), pair.slice(at + 1));
  }
  cookies.set(origin, jar);
}

async function visit(address, form) {
  const origin = new URL(address).origin;
  const cookie = [...(cookies.get(origin) ?? [])].map(([name, value]) => `${name}=${value}`).join("; ");
  const response = await fetch(address, {
    redirect: "manual", method: form ? "POST" : "GET", headers: { cookie, accept: "text/html" },
    body: form && new URLSearchParams(form),
  });
  keep(origin, response);
  return response;
}

async function signIn(service, login, page) {
  cookies.clear();
  let address = `${service}/sign-in?to=${encodeURIComponent(page)}`;
  let response = await visit(address);
  for (let step = 0; step < 20; step += 1) {
    const to = response.headers.get("location");
    if (to && (address.startsWith(`${service}/sign-in/callback`) === false)) {
      address = new URL(to, address).href;
      response = await visit(address);
      continue;
    }
    if (!address.startsWith(issuer)) break;
    const text = await response.text();
    const prompt = /name="prompt" value="(\w+)"/.exec(text)?.[1];
    if (!prompt) throw new Error(`no form at ${address}: ${text}`);
    response = await visit(address, prompt === "login" ? { prompt, login, password: "any" } : { prompt });
  }
  return { status: response.status, address, location: response.headers.get("location"), cookies: response.headers.getSetCookie(), text: await response.text() };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [service, login, page] = line.split(" ");
  if (service === "groups") {
    groups = { ...GROUPS, [login]: page.split(",") };
    say("{}");
    continue;
  }
  try {
    say(JSON.stringify(await signIn(service, login, page)));
  } catch (error) {
    say(JSON.stringify({ error: String(error) }));
  }
}
process.exit(0);
