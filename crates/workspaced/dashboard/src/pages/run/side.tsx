import { bytes, count, visible } from "../../lib/format.ts";
import type { Run } from "../../lib/types.ts";
import { trustPresentKey, type Verdict } from "../../lib/verify.ts";
import { Failed, Time } from "../../ui/parts.tsx";
import { kindsInWords, nameInWords, ruleInWords } from "../../lib/words.ts";
import type { RunReport } from "../run.tsx";

interface Props { run: Run; verdict?: Verdict; verify: () => void; report: RunReport }

/** Proof, budgets and policy of a run. */
export function Side({ run, verdict, verify, report: { load: report, isLong, isWanted, read } }: Props) {
  return (
    <aside class="side" aria-label="Proof, budgets and policy" tabIndex={0}>
      <section class="proof-facts"><h2>Proof</h2><Proof verdict={verdict} verify={verify} head={run.headSeq} /></section>
      <section><h2>Policy</h2><PolicyTable run={run} /></section>
      <section><h2>Run</h2>
        <dl>
          <dt>Created by</dt><dd>{run.createdBy ?? "unknown"}, <Time at={run.createdAt} /></dd>
          <dt>Source</dt><dd class="cut">{run.source.type} {visible(run.source.url ?? run.source.path ?? run.source.runId ?? "")}</dd>
          {run.expiresAt && <><dt>Expires</dt><dd><Time at={run.expiresAt} /></dd></>}
          {Object.entries(run.labels).map(([name, value]) => <><dt key={name}>{visible(name)}</dt><dd>{visible(value)}</dd></>)}
        </dl>
      </section>
      {/* It is read last, and moves nothing that is above it. */}
      <section><h2>Budgets</h2>
        {report.error && <Failed error={report.error} what="Reading the budgets" retry={report.reload} />}
        {isLong && <p><button type="button" disabled={isWanted && report.isLoading} onClick={read}>{isWanted && report.isLoading ? "Reading…" : "Read the budgets"}</button></p>}
        <table><tbody>{report.data?.budgets.map(({ name, used, limit }) => (
          <tr key={name}><th scope="row">{nameInWords(name)}</th><td class="number">{name === "maxBytes" ? bytes(used) : count(used)}{limit ? ` of ${name === "maxBytes" ? bytes(limit) : count(limit)}` : ""}</td>
            <td>{limit ? <meter min={0} max={limit} high={limit * 0.8} value={used} aria-label={name} /> : <span class="quiet">no limit</span>}</td></tr>
        ))}</tbody></table>
      </section>
    </aside>
  );
}

function Proof({ verdict, verify, head }: { verdict?: Verdict; verify: () => void; head: number }) {
  if (!verdict) return <p><button type="button" onClick={verify}>Verify {count(head)} records here</button></p>;
  const isDone = verdict.state !== "checking";
  return (
    <>
      {verdict.problem && <p class={verdict.state === "broken" ? "tone-bad" : "tone-wait"} role={verdict.state === "broken" ? "alert" : undefined}>{visible(verdict.problem)}</p>}
      <ul class="facts">
        <li>{isDone ? "Checked" : "Checking"} in this browser: the hash and the order of {count(verdict.checked)} records{verdict.reads?.length ? `, ${count(verdict.reads.length)} of them ${verdict.reads.length === 1 ? "a view" : "views"} by people` : ""}.</li>
        {verdict.signed > 0 && <li>A checkpoint over {count(verdict.treeSize ?? 0)} leaves covers records 1 to {count(verdict.signed)}; its inclusion proof and Ed25519 signature are valid.</li>}
        {verdict.signed > 0 && verdict.checked > verdict.signed && <li>{count(verdict.checked - verdict.signed)} newer records are in the chain, and not signed yet.</li>}
        {verdict.key && <li>Key: <code class="wrap">{verdict.key}</code>, {verdict.isKeyNew ? "which is new to this browser." : verdict.isKeyReplaced ? "to which signed statements lead from the one that this browser trusted. It is trusted from now on." : "the one that this browser trusts."}</li>}
        {verdict.changes ? <li>The key was replaced {verdict.changes === 1 ? "once" : `${count(verdict.changes)} times`}; the old and the new key have signed each statement about it.</li> : undefined}
        <li class="quiet">Not checked: contents of files, and whether the service showed this browser the same log as others.</li>
      </ul>
      <p class="inline">
        {isDone && <button type="button" onClick={verify}>Verify again</button>}
        {verdict.isKeyNew && <button type="button" onClick={() => { trustPresentKey(); verify(); }}>Trust the new key</button>}
      </p>
    </>
  );
}

function PolicyTable({ run: { policy } }: { run: Run }) {
  const rows: [string, string][] = [
    ["Profile", policy.profile.toLowerCase().replaceAll("_", " ")],
    ["Write", policy.write.join(", ") || "nothing"],
    ["Denied paths", policy.deny.join(", ") || "none"],
    ["Needs approval", [...(policy.ask ?? []), ...policy.requireApprovalIf.map((rule) => ruleInWords(`requireApprovalIf:${rule}`).replace(/^requireApprovalIf:/, ""))].join(", ") || "nothing"],
    ["Approvers", `${policy.approval?.approvers ?? 1}${policy.approval?.notCreator ? ", not the creator" : ""}`],
    ["Kinds of files", kindsInWords(policy.kinds).join(", ")],
  ];
  return <dl>{rows.map(([name, value]) => <><dt key={name}>{name}</dt><dd class="wrap">{visible(value)}</dd></>)}</dl>;
}
