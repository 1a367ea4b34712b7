// Runs the conformance suite of the Model Context Protocol against a run of the service. The suite sends no token, so that its
// requests pass through a proxy on loopback that adds one and changes nothing else.
//
//     node mcp_conformance.mjs NODE_MODULES URL TOKEN EXPECTED_FAILURES
import { spawn } from "node:child_process";
import { createServer, request } from "node:http";
import { join } from "node:path";

const [modules, base, token, expected] = process.argv.slice(2);
const target = new URL(base);

const proxy = createServer((incoming, outgoing) => {
  const { method, url, headers } = incoming;
  const forwarded = { ...headers, authorization: `Bearer ${token}` };
  const to = request({ host: target.hostname, port: target.port, method, path: url, headers: forwarded }, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  to.on("error", (error) => outgoing.destroy(error));
  incoming.pipe(to);
});
await new Promise((done) => proxy.listen(0, "127.0.0.1", done));

const suite = join(modules, "@modelcontextprotocol/conformance/dist/index.js");
const url = `http://127.0.0.1:${proxy.address().port}/mcp`;
const child = spawn(process.execPath, [suite, "server", "--url", url, "--expected-failures", expected], { stdio: "inherit" });
const code = await new Promise((done) => child.on("close", done));
proxy.closeAllConnections();
proxy.close();
if (code === 0) console.log("done");
process.exitCode = code ?? 1;
