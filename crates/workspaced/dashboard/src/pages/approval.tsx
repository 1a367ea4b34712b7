import type { Rights } from "../app.tsx";
import { get, query, runPath } from "../lib/api.ts";
import { useLoad } from "../lib/hooks.ts";
import { exactTime, visible } from "../lib/format.ts";
import { callHref, runHref, setParams } from "../lib/route.ts";
import type { Approval, ChangeList } from "../lib/types.ts";
import { DiffView } from "../ui/diff_view.tsx";
import { Boundary } from "../ui/boundary.tsx";
import { Badge, Failed, Foreign, Hash, Loading, Time } from "../ui/parts.tsx";
import { Decide } from "./decide.tsx";

interface Props { approval: Approval; rights: Rights; error?: Error; changed: () => void }

/** The versions of files that differ from those that an approval was asked for, by path. */
async function readDrift(approval: Approval, signal: AbortSignal): Promise<Map<string, string | undefined>> {
  const current = new Map<string, string | undefined>();
  let since = 0;
  for (;;) {
    const page = await get<ChangeList>(`${runPath(approval.runId)}/changes${query({ since, limit: 1000 })}`, signal);
    for (const change of page.items) for (const file of change.files) current.set(file.path, file.newSha256 ?? undefined);
    if (!page.more) break;
    since = page.nextSince;
  }
  // A path that no call has changed is as it was at the base, and so it was when the approval was asked for.
  return new Map(approval.files.filter(({ path, oldSha256 }) => current.has(path) && current.get(path) !== (oldSha256 ?? undefined)).map(({ path }) => [path, current.get(path)]));
}

/** One approval: what would be applied, upon which versions, who asked and why. */
export function ApprovalView({ approval, rights, error, changed }: Props) {
  const isPending = approval.state === "pending";
  const drift = useLoad(isPending && rights.audit ? `drift ${approval.approvalId}` : "", (signal) => readDrift(approval, signal), 5000);
  const mayDecide = rights.decide && isPending;
  return (
    <section class="call" aria-label="Approval">
      <header>
        <h2><code>{approval.tool}</code></h2> <Badge state={approval.state} text={approval.resolution} /> <a href={runHref(approval.runId)}>{approval.runId}</a>
        <button type="button" class="plain end" aria-label="Close the approval" onClick={() => setParams({ id: "" })}>✕</button>
      </header>
      {error && <Failed error={error} what="Refreshing the approval" />}
      <blockquote><Foreign text={approval.reason} /></blockquote>
      <dl>
        <dt>Rules</dt><dd class="wrap">{approval.reasons.map((reason) => <code key={reason}>{visible(reason)} </code>)}</dd>
        <dt>Asked by</dt><dd class="wrap"><Foreign text={approval.actor} />, <Time at={approval.createdAt} /></dd>
        <dt>{isPending ? "Expires" : "Expiry"}</dt><dd title={exactTime(approval.expiresAt)}><Time at={approval.expiresAt} /></dd>
        {(approval.approvers > 1 || approval.notCreator) && <><dt>Needs</dt><dd>{approval.approvers} {approval.approvers === 1 ? "approval" : "approvals"}{approval.approvers > 1 && " of different persons"}{approval.notCreator && ", not by the run's creator or the caller"}{approval.votes.length > 0 && `; approved by ${approval.votes.map(({ operator, onBehalfOf }) => (onBehalfOf ? `${operator} for ${visible(onBehalfOf)}` : operator)).join(", ")}`}</dd></>}
        {approval.decidedBy && <><dt>Decided by</dt><dd><Foreign text={approval.decidedBy} />{approval.onBehalfOf && <> for <Foreign text={approval.onBehalfOf} /></>}</dd></>}
        {approval.note && <><dt>Note</dt><dd><Foreign text={approval.note} /></dd></>}
      </dl>
      {approval.state === "failed" && <p class="tone-bad">It was approved, but could not be applied: the files had changed since. Nothing was changed.</p>}
      {approval.state === "expired" && <p>Nobody decided in time. Nothing was changed; the agent can ask again.</p>}
      <Boundary what="the versions of the files"><Versions approval={approval} drift={drift.data} /></Boundary>
      {drift.error && <Failed error={drift.error} what="Comparing with the current files" retry={drift.reload} />}
      {isPending && rights.audit && !drift.data && !drift.error && <Loading what="the current versions" />}
      {isPending && !rights.audit && <p class="quiet">Your scopes do not include the current versions. The service compares them when you approve.</p>}
      {mayDecide && <Decide approval={approval} isReady={!rights.audit || drift.data !== undefined || drift.error !== undefined} drift={drift.data?.size ?? 0} changed={changed} />}
      {approval.tool === "run_command" ? <pre class="command" aria-label="Command"><Foreign text={approval.diff ?? ""} /></pre> : <DiffView text={approval.diff ?? ""} scope={approval.approvalId} />}
      {rights.audit && <p><a href={`${runHref(approval.runId)}?kind=changes`}>What else the run did</a>{approval.seq && <> · <a href={callHref(approval.runId, approval.seq)}>its record</a></>}</p>}
    </section>
  );
}

function Versions({ approval, drift }: { approval: Approval; drift?: Map<string, string | undefined> }) {
  return (
    <div class="scroll" role="region" aria-label="Versions of the files" tabIndex={0}><table class="versions">
      <thead><tr><th scope="col">Path</th><th scope="col">Operation</th><th scope="col">Applies to</th><th scope="col">Result</th><th scope="col">Now</th></tr></thead>
      <tbody>{approval.files.map(({ path, operation, oldSha256, newSha256 }) => (
        <tr key={path}><td class="wrap"><Foreign text={path} /></td><td>{operation}</td><td data-label="Applies to"><Hash value={oldSha256} /></td><td data-label="Result"><Hash value={newSha256} /></td>
          <td data-label="Now">{drift?.has(path) ? <span class="tone-bad">✕ changed: <Hash value={drift.get(path)} /></span> : drift ? <span class="tone-good">✓ same</span> : <span class="quiet">–</span>}</td></tr>
      ))}</tbody>
    </table></div>
  );
}
