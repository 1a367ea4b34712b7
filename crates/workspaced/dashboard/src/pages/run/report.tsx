import { useEffect, useState } from "preact/hooks";
import { get, getText, runPath } from "../../lib/api.ts";
import { count, visible } from "../../lib/format.ts";
import { useLoad } from "../../lib/hooks.ts";
import { callHref, runHref } from "../../lib/route.ts";
import type { Report } from "../../lib/types.ts";
import { VERIFY_AT_ONCE } from "../../lib/verify.ts";
import { countInWords, hasEndedUndecided, kindInWords } from "../../lib/words.ts";
import { Badge, Counts, Failed, Foreign, Loading, Path } from "../../ui/parts.tsx";

/** The whole account of a run, as the service gives it. */
export function ReportTab({ run, head }: { run: string; head: number }) {
  // Verifying the chain takes most of the time of a long run's report, and this page can do it.
  const [isLong] = useState(head > VERIFY_AT_ONCE);
  const load = useLoad(`report ${run}`, (signal) => get<Report>(`${runPath(run)}/report?format=json${isLong ? "&verify=false" : ""}`, signal));
  // Each format is a report of its own, which reads every record.
  const [isBodyWanted, setBodyWanted] = useState(false);
  const body = useLoad(isBodyWanted ? `markdown ${run}` : "", async (signal) => `${await getText(`${runPath(run)}/report?format=markdown`, signal)}\n[The run, with each change and its proof](${location.origin}${runHref(run)})\n`);
  const [copied, setCopied] = useState<"wanted" | "done" | Error>();
  useEffect(() => {
    if (copied === "wanted" && body.data !== undefined) void navigator.clipboard.writeText(body.data).then(() => setCopied("done"), setCopied);
  }, [copied, body.data]);
  const copy = () => {
    setBodyWanted(true);
    setCopied("wanted");
    if (body.error) body.reload();
  };
  if (load.error) return <Failed error={load.error} what="Reading the report" retry={load.reload} />;
  if (!load.data) return <Loading what="the report" />;
  const report = load.data;
  return (
    <article class="report" aria-label="Report">
      <p class="inline figures">
        {/* The number of records is in the header, without what people looked at. */}
        {Object.entries(report.counts).filter(([name, number]) => name !== "records" && number > 0).map(([name, number]) => <span key={name}><strong class="figure">{count(number)}</strong> {countInWords(name, number)}</span>)}
        {report.diff && <span>{count(report.diff.filesChanged)} {report.diff.filesChanged === 1 ? "file" : "files"} changed <Counts plus={report.diff.insertions} minus={report.diff.deletions} /></span>}
      </p>
      <p class="inline">
        <button type="button" class="primary" disabled={copied === "wanted" && !body.error} onClick={copy}>{copied === "done" ? "✓ Copied" : copied === "wanted" && !body.error ? "Copying…" : "Copy for a pull request"}</button>
        <button type="button" aria-expanded={isBodyWanted} onClick={() => setBodyWanted(!isBodyWanted)}>{isBodyWanted ? "Hide the preview" : "Preview"}</button>
      </p>
      {copied instanceof Error && <p role="alert" class="tone-bad">The browser did not copy: {visible(copied.message)}. Select the text below instead.</p>}
      {isBodyWanted && (body.data !== undefined ? <pre class="preview" role="region" aria-label="Body of a pull request" tabIndex={0}>{visible(body.data)}</pre>
        : body.error ? <Failed error={body.error} what="Reading the report as Markdown" retry={body.reload} /> : <Loading what="the body of a pull request" />)}
      {report.verification && <p class="quiet">The service says: chain {report.verification.intact ? "intact" : "broken"}, verified to record {count(report.verification.verifiedSeq)}, signed to {count(report.verification.checkpointedSeq)}. The header of this page says what this browser checked.</p>}
      {report.diff && report.diff.files.length > 0 && <>
        <h2>Changes</h2>
        <ul class="rows">{report.diff.files.map((file) => <li key={file.path}><a href={`${runHref(run)}?tab=changes`}><Path path={file.path} /></a> <span class="quiet">{file.status === "modified" ? "" : file.status}</span> <span class="end"><Counts plus={file.insertions} minus={file.deletions} /></span></li>)}</ul>
        {report.diff.moreFiles > 0 && <p class="quiet">{count(report.diff.moreFiles)} more files are not listed.</p>}
      </>}
      <h2>Approvals</h2>
      {report.approvals.length ? <ul class="rows" aria-label="Approvals">{report.approvals.map((approval) => <ApprovalLine key={approval.approvalId} run={run} approval={approval} />)}</ul> : <p class="quiet">None.</p>}
      {report.commands.length > 0 && <>
        <h2>Commands and tests</h2>
        <ul class="rows">{report.commands.map((command) => <li key={command.seq}><a href={callHref(run, command.seq)}>#{command.seq} <Foreign text={command.summary} /></a> <Badge state={command.exitCode === 0 ? "exit" : "exit failed"} text={command.exitCode === undefined ? "failed" : `exit ${command.exitCode}`} /> <span class="quiet">{command.notAppliedSeq !== undefined ? `with changes of its own that are not in the run (#${command.notAppliedSeq})` : command.isCurrent ? "on the present files" : "before later changes"}{!command.isAttested && ", not attested"}</span></li>)}</ul>
        {report.moreCommands > 0 && <p class="quiet">{count(report.moreCommands)} earlier ones are not listed.</p>}
      </>}
      <h2>Files</h2>
      <div class="scroll" role="region" aria-label="Files" tabIndex={0}><table class="counted">
        <thead><tr><th scope="col">Path</th><th scope="col">Kind</th><th scope="col" class="number">Reads</th><th scope="col" class="number">Writes</th><th scope="col" class="number">Not done</th><th scope="col" class="number">Last</th></tr></thead>
        <tbody>{report.files.map((file) => <tr key={file.path}><td class="wrap"><Foreign text={file.path} /></td><td class="quiet" title={file.kind}>{kindInWords(file.kind ?? "")}</td><td class="number">{count(file.reads)}</td><td class="number">{count(file.writes)}</td><td class="number">{count(file.refused)}</td><td class="number"><a href={callHref(run, file.lastSeq)}>#{file.lastSeq}</a></td></tr>)}</tbody>
      </table></div>
      {report.moreFiles > 0 && <p class="quiet">{count(report.moreFiles)} more files are not listed.</p>}
    </article>
  );
}

/** An approval: what it was about, who decided, with which changes and why. */
function ApprovalLine({ run, approval: { approvalId, tool, state, reason, paths, decidedBy, onBehalfOf, editedSeq, note } }: { run: string; approval: Report["approvals"][number] }) {
  const person = onBehalfOf ?? decidedBy;
  const decision = hasEndedUndecided({ state, decidedBy }) ? "not decided: the run ended" : `${state}${editedSeq === undefined ? "" : " with changes"}${person ? ` by ${person}` : ""}`;
  return (
    <li class="decided">
      <a href={`/approvals?id=${approvalId}&state=${state}`}>{paths.length ? <Path path={paths[0]} /> : <code>{tool}</code>}{paths.length > 1 && ` and ${paths.length - 1} more`}</a> <Foreign class="quiet" text={reason ?? ""} />
      <span class="decision"><Badge state={state} text={state === "pending" ? undefined : decision} />{editedSeq !== undefined && <> (<a href={callHref(run, editedSeq)}>record {editedSeq}</a>)</>}{note && <>: <Foreign text={note} /></>}</span>
    </li>
  );
}
