import type { Rights } from "../app.tsx";
import { get, getText } from "../lib/api.ts";
import { bytes, count } from "../lib/format.ts";
import { useLoad } from "../lib/hooks.ts";
import { splitStatements } from "../lib/key_history.ts";
import { Failed, Loading } from "../ui/parts.tsx";

type Limits = Record<string, Record<string, number | null>>;

/** What serves this page: version, health, the key of its checkpoints, and its limits. */
export function About({ rights }: { rights: Rights }) {
  const version = useLoad("version", async (signal) => (await get<{ info: { version: string } }>("/openapi.json", signal)).info.version);
  const ready = useLoad("ready", (signal) => get<{ ok: boolean }>("/readyz", signal), 10000);
  const key = useLoad(rights.audit ? "key" : "", (signal) => getText("/v1/checkpoint/key", signal));
  const changes = useLoad(rights.audit ? "key changes" : "", async (signal) => splitStatements(await getText("/v1/checkpoint/key/changes", signal)).length);
  const note = useLoad(rights.audit ? "note" : "", (signal) => getText("/v1/checkpoint", signal), 10000);
  const limits = useLoad(rights.orchestrate ? "limits" : "", (signal) => get<Limits>("/v1/limits", signal));
  return (
    <>
      <h1>About</h1>
      <dl>
        <dt>Version</dt><dd>{version.error ? <span class="tone-bad">✕ {version.error.message}</span> : version.data ?? "…"}</dd>
        <dt>Health</dt><dd>{ready.error ? <span class="tone-bad">✕ {ready.error.message}</span> : ready.data ? <span class="tone-good">✓ ready</span> : "…"}</dd>
        <dt>Checkpoint key</dt><dd class="wrap">{key.error ? <span class="tone-bad">✕ {key.error.message}</span> : <code>{key.data?.trim() ?? (rights.audit ? "…" : "needs the scope audit")}</code>}</dd>
        {changes.data ? <><dt>Replaced keys</dt><dd>{count(changes.data)}, with a signed statement about each; the page of a run verifies them</dd></> : undefined}
        <dt>API</dt><dd><a href="/docs" data-outside>/docs</a>, <a href="/openapi.json" data-outside>/openapi.json</a>, <a href="/problems" data-outside>codes of refusals</a></dd>
      </dl>
      {rights.audit && <p class="quiet">Store this key outside the service. Proofs are checked against it.</p>}
      <h2>Newest checkpoint</h2>
      {note.error ? <p class="quiet">{note.error.message}</p> : <pre>{note.data ?? (rights.audit ? "…" : "needs the scope audit")}</pre>}
      <h2>Limits</h2>
      {limits.error && <Failed error={limits.error} what="Reading the limits" retry={limits.reload} />}
      {!rights.orchestrate && <p class="quiet">Your scopes do not include the limits.</p>}
      {rights.orchestrate && !limits.data && !limits.error && <Loading what="the limits" />}
      <div class="columns">{Object.entries(limits.data ?? {}).map(([group, members]) => (
        <section key={group} aria-label={group}><h3>{group}</h3><table><tbody>{Object.entries(members).map(([name, value]) => <tr key={name}><th scope="row">{name}</th><td class="number">{typeof value === "number" ? (/Bytes$/.test(name) ? bytes(value) : count(value)) : "no limit"}</td></tr>)}</tbody></table></section>
      ))}</div>
    </>
  );
}
