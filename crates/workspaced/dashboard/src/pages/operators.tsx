import { useState } from "preact/hooks";
import { get, getAll, post, query, send } from "../lib/api.ts";
import { visible } from "../lib/format.ts";
import { useLoad } from "../lib/hooks.ts";
import { setParams, useRoute } from "../lib/route.ts";
import type { AuditRecord, Page, Scope } from "../lib/types.ts";
import { Boundary } from "../ui/boundary.tsx";
import { Badge, Dialog, Empty, Failed, Field, Loading, Time } from "../ui/parts.tsx";

interface KnownOperator { name: string; scopes: Scope[]; createdAt?: string; createdBy?: string; expiresAt?: string; revokedAt?: string }
interface KnownToken { tokenId: string; permissions: string[]; issuedAt?: string; expiresAt?: string; revokedAt?: string; lastUsedAt?: string }

const ROLES: [name: string, scopes: Scope[], may: string][] = [
  ["Reviewer", ["approve"], "Decides about changes and sees what their runs did."], ["Auditor", ["audit"], "Reads every run, file and record; changes nothing."],
  ["Reviewer and auditor", ["approve", "audit"], "Both of these."], ["Admin", ["orchestrate"], "Does everything: creates and stops runs, decides, manages access."], ["Metrics", ["metrics"], "Reads the metrics, for monitoring."],
];
/** Scopes as the role that has them. */
const roleOf = (scopes: Scope[]): string => ROLES.find(([, own]) => own.length === scopes.length && own.every((scope) => scopes.includes(scope)))?.[0] ?? scopes.join(", ");
const MOST = 1000;

/** Who may use the service: operators and, of one run, its tokens. */
export function Operators({ self }: { self: string }) {
  const list = useLoad("operators", (signal) => getAll<KnownOperator>("/v1/operators", {}, MOST, signal));
  const [token, setToken] = useState<{ of: string; text: string }>();
  return (
    <>
      <h1>Operators and tokens</h1>
      <section aria-labelledby="create"><h2 id="create">Add a person or service</h2>
        <Create onCreated={(of, text) => { setToken({ of, text }); list.reload(); }} />
      </section>
      <section aria-labelledby="operators"><h2 id="operators">Operators</h2>
        {list.error && <Failed error={list.error} what="Reading the operators" retry={list.reload} />}
        {!list.data && !list.error && <Loading what="the operators" />}
        {list.data && <List operators={list.data.items} self={self} onChange={list.reload} onToken={(of, text) => { setToken({ of, text }); list.reload(); }} />}
      </section>
      <section aria-labelledby="run-tokens"><h2 id="run-tokens">Tokens of a run</h2><Boundary what="the tokens of the run"><RunTokens onToken={(of, text) => setToken({ of, text })} /></Boundary></section>
      {token && <Dialog title={`Token of ${token.of}`} onClose={() => setToken(undefined)}>
        <p>Copy this token now; it won't be shown again. Share it over a private channel.</p>
        <pre class="wrap" tabIndex={0}>{token.text}</pre>
        <p><button type="button" class="primary" onClick={() => void navigator.clipboard.writeText(token.text)}>Copy</button></p>
      </Dialog>}
    </>
  );
}

function Create({ onCreated }: { onCreated: (name: string, token: string) => void }) {
  const [error, setError] = useState<Error>();
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const fields = new FormData(form);
    const day = String(fields.get("expires"));
    try {
      const created = await post<KnownOperator & { token: string }>("/v1/operators", {
        name: String(fields.get("name")).trim(), scopes: ROLES.find(([role]) => role === fields.get("role"))?.[1] ?? [], ...(day ? { expiresAt: new Date(`${day}T00:00:00`).toISOString() } : {}),
      });
      setError(undefined);
      form.reset();
      onCreated(created.name, created.token);
    } catch (failure) {
      setError(failure as Error);
    }
  };
  return (
    <form class="toolbar" onSubmit={(event) => void submit(event)}>
      <label class="field"><span>Name</span><input name="name" required maxLength={64} placeholder="ada@example.org" autocomplete="off" /></label>
      <fieldset class="roles"><legend class="sr-only">Role</legend>{ROLES.map(([role, , may]) => <label key={role}><input type="radio" name="role" value={role} required /> {role} <span class="quiet">{may}</span></label>)}</fieldset>
      <label class="field"><span>Expires</span><input name="expires" type="date" /></label>
      <button type="submit" class="primary">Create</button>
      {error && <Failed error={error} what="Adding" />}
    </form>
  );
}

interface ListProps { operators: KnownOperator[]; self: string; onChange: () => void; onToken: (name: string, token: string) => void }

/** Whether an operator's token is refused. A replaced one is valid until it expires. */
const isOver = ({ revokedAt, expiresAt }: { revokedAt?: string; expiresAt?: string }): boolean => (revokedAt !== undefined && revokedAt !== expiresAt) || (expiresAt !== undefined && Date.parse(expiresAt) <= Date.now());

function List({ operators, self, onChange, onToken }: ListProps) {
  const [isAll, setAll] = useState(false);
  const shown = isAll ? operators : operators.filter((operator) => !isOver(operator));
  return (
    <>
      <div class="scroll" role="region" aria-label="List of operators" tabIndex={0}><table class="versions stacked">
        <thead><tr><th scope="col">Name</th><th scope="col">Role</th><th scope="col">Created</th><th scope="col">Expires</th><th scope="col">Last used</th><th scope="col"><span class="sr-only">Actions</span></th></tr></thead>
        <tbody>{shown.map((operator, index) => <Operator key={`${operator.name} ${operator.createdAt ?? index}`} operator={operator} isSelf={operator.name === self} onChange={onChange} onToken={onToken} />)}</tbody>
      </table></div>
      {operators.length > shown.length && <p><button type="button" onClick={() => setAll(true)}>Show {operators.length - shown.length} that are revoked or expired</button></p>}
    </>
  );
}

function Operator({ operator, isSelf, onChange, onToken }: { operator: KnownOperator; isSelf: boolean; onChange: () => void; onToken: (name: string, token: string) => void }) {
  const { name, scopes, createdAt, createdBy, expiresAt } = operator;
  const [wanted, setWanted] = useState<"rotate" | "revoke">();
  const [error, setError] = useState<Error>();
  const last = useLoad(`last ${name}`, (signal) => get<Page<AuditRecord>>(`/v1/audit${query({ actor: name === "operator" ? "operator:orchestrate" : `operator:${name}`, order: "desc", limit: 1 })}`, signal));
  const path = `/v1/operators/${encodeURIComponent(name)}`;
  const act = async () => {
    try {
      if (wanted === "rotate") onToken(name, (await post<{ token: string }>(`${path}/tokens`, {})).token);
      else {
        await send(path, { method: "DELETE" });
        onChange();
      }
      setWanted(undefined);
    } catch (failure) {
      setError(failure as Error);
    }
  };
  const used = last.data?.items[0];
  return (
    <tr>
      <th scope="row" class="wrap"><bdi>{name}</bdi>{isSelf && <span class="quiet"> (you)</span>}</th>
      <td data-label="Role" title={scopes.join(", ")}>{roleOf(scopes)}</td>
      <td data-label="Created">{createdAt ? <><Time at={createdAt} />{createdBy && createdBy !== name && <span class="quiet"> by {visible(createdBy)}</span>}{createdBy === name && <span class="quiet"> by signing in</span>}</> : <span class="quiet">configuration</span>}</td>
      <td data-label="Expires">{isOver(operator) ? <Badge state="ended" text="ended" /> : expiresAt ? <Time at={expiresAt} /> : <span class="quiet">never</span>}</td>
      <td data-label="Last used">{last.error ? <button type="button" class="plain" onClick={last.reload}>not read, retry</button> : used ? <a href={`/audit?actor=operator:${encodeURIComponent(name)}&by=all`}><Time at={used.timestamp} /></a> : <span class="quiet">{last.data ? "never" : "…"}</span>}</td>
      <td>
        {createdAt && !isOver(operator) && !wanted && <span class="inline"><button type="button" aria-label={`Rotate the token of ${name}`} onClick={() => setWanted("rotate")}>Rotate</button> <button type="button" aria-label={`Revoke ${name}`} onClick={() => setWanted("revoke")}>Revoke</button></span>}
        {wanted && <span class="inline">{wanted === "rotate" ? "The current token works for one more hour." : "Takes effect immediately."} <button type="button" class="primary" onClick={() => void act()}>{wanted === "rotate" ? "Rotate" : "Revoke"}</button> <button type="button" onClick={() => setWanted(undefined)}>Cancel</button></span>}
        {error && <Failed error={error} what={wanted === "rotate" ? "Rotating the token" : "Revoking"} />}
      </td>
    </tr>
  );
}

function RunTokens({ onToken }: { onToken: (of: string, token: string) => void }) {
  const { params } = useRoute();
  const run = params.get("run") ?? "";
  const path = `/v1/runs/${encodeURIComponent(run)}/tokens`;
  const list = useLoad(run ? `tokens ${run}` : "", (signal) => getAll<KnownToken>(path, {}, MOST, signal));
  const [error, setError] = useState<Error>();
  const act = async (work: () => Promise<void>) => {
    try {
      await work();
      setError(undefined);
      list.reload();
    } catch (failure) {
      setError(failure as Error);
    }
  };
  return (
    <>
      <div class="toolbar">
        <Field label="Run" value={run} placeholder="run ID" onChange={(text) => setParams({ run: text })} />
        {list.data && <button type="button" onClick={() => void act(async () => onToken(run, (await post<{ token: string }>(path, {})).token))}>Issue a token</button>}
      </div>
      {error && <Failed error={error} what="Changing the tokens" />}
      {!run && <Empty><p>Enter a run ID to list its tokens.</p></Empty>}
      {run && list.error && <Failed error={list.error} what="Reading the tokens" retry={list.reload} />}
      {run && !list.data && !list.error && <Loading what="the tokens" />}
      {list.data && <div class="scroll" role="region" aria-label="List of tokens" tabIndex={0}><table class="versions stacked">
        <thead><tr><th scope="col">Token</th><th scope="col">Permissions</th><th scope="col">Expires</th><th scope="col">Last used</th><th scope="col"><span class="sr-only">Actions</span></th></tr></thead>
        <tbody>{list.data.items.map((token) => (
          <tr key={token.tokenId}>
            <th scope="row" class="wrap"><code>{token.tokenId}</code></th>
            <td class="quiet" data-label="Permissions">{token.permissions.join(", ")}</td>
            <td data-label="Expires">{isOver(token) ? <Badge state="ended" text={token.revokedAt ? "revoked" : "expired"} /> : token.expiresAt ? <Time at={token.expiresAt} /> : <span class="quiet">never</span>}</td>
            <td data-label="Last used">{token.lastUsedAt ? <Time at={token.lastUsedAt} /> : <span class="quiet">not recently</span>}</td>
            <td>{!isOver(token) && <button type="button" aria-label={`Revoke ${token.tokenId}`} onClick={() => void act(async () => { await send(`${path}/${token.tokenId}`, { method: "DELETE" }); })}>Revoke</button>}</td>
          </tr>
        ))}</tbody>
      </table></div>}
    </>
  );
}
