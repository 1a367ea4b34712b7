import { useEffect, useRef, useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { get, runPath } from "../lib/api.ts";
import { count, duration, short, visible } from "../lib/format.ts";
import { type Loaded, useLoad } from "../lib/hooks.ts";
import { callHref, runHref, useRoute } from "../lib/route.ts";
import { readStop, stopInWords } from "../lib/stops.ts";
import { type AuditRecord, changesOf, type Report, type Run } from "../lib/types.ts";
import { VERIFY_AT_ONCE, verifyRun, type Verdict } from "../lib/verify.ts";
import { Boundary } from "../ui/boundary.tsx";
import { agentOf, repositoryOf, taskOf } from "../lib/words.ts";
import { Badge, Counts, Failed, Foreign, Loading, Time } from "../ui/parts.tsx";
import { Changes } from "./run/changes.tsx";
import { Files } from "./run/files.tsx";
import { Forks, hasFamily } from "./run/forks.tsx";
import { ReportTab } from "./run/report.tsx";
import { Side } from "./run/side.tsx";
import { RunMenu } from "./run/menu.tsx";
import { Timeline } from "./run/timeline.tsx";

const TABS: [id: string, text: string, needsAudit: boolean][] = [["", "Timeline", false], ["changes", "Changes", false], ["files", "Files", true], ["forks", "Forks", false], ["report", "Report", false]];

/** How often the header asks whether the agent was stopped. */
const STOP_MILLIS = 15000;

interface Props { run: string; seq?: number; rights: Rights }

/** One run: what happened, what changed, and whether the record of it can be believed. */
export function RunPage({ run, seq, rights }: Props) {
  const { params } = useRoute();
  const load = useLoad(`run ${run}`, (signal) => get<Run>(runPath(run), signal), 5000);
  const proof = useProof(run, load.data?.headSeq);
  const report = useReport(load.data);
  const stop = useLoad(`stop ${run}`, async (signal) => ({ record: await readStop(run, signal) }), STOP_MILLIS);
  if (!load.data) return load.error ? <><Failed error={load.error} what={`Reading the run ${run}`} retry={load.reload} /><p><a href="/runs">All runs</a></p></> : <Loading what="the run" />;
  const tabs = TABS.filter(([id, , needsAudit]) => (rights.audit || !needsAudit) && (id !== "forks" || hasFamily(load.data!)));
  const wanted = params.get("tab") ?? "";
  const tab = tabs.some(([id]) => id === wanted) ? wanted : tabs[0][0];
  const verdict = proof.verdict;
  return (
    <div class={`run-page ${verdict?.state === "broken" ? "broken" : ""}`}>
      <Boundary what="the run's header"><RunHeader run={load.data} report={report.load.data} verdict={verdict} stop={stop.data?.record} rights={rights} changed={() => { load.reload(); stop.reload(); }} /></Boundary>
      {load.error && <Failed error={load.error} what="Refreshing the run" retry={load.reload} />}
      <nav class="tabs" aria-label="Views of the run">
        {tabs.map(([id, text]) => <a key={id} href={`${runHref(run)}${id ? `?tab=${id}` : ""}`} aria-current={id === tab ? "page" : undefined}>{text}</a>)}
      </nav>
      <div class={`run-body ${tab === "" && seq === undefined ? "with-side" : ""}`}>
        <div class="run-main">
          <Boundary key={tab} what={tabs.find(([id]) => id === tab)![1]}>
            {tab === "" && <Timeline run={run} seq={seq} rights={rights} brokenSeq={verdict?.brokenSeq} />}
            {tab === "changes" && <Changes run={load.data} rights={rights} />}
            {tab === "files" && <Files run={load.data} />}
            {tab === "forks" && <Forks run={load.data} rights={rights} changed={load.reload} />}
            {tab === "report" && <ReportTab run={run} head={load.data.headSeq} />}
          </Boundary>
        </div>
        {tab === "" && seq === undefined && <Boundary what="the policy and the budgets"><Side run={load.data} verdict={verdict} verify={proof.verify} report={report} /></Boundary>}
      </div>
    </div>
  );
}

interface HeaderProps { run: Run; report?: Report; verdict?: Verdict; stop?: AuditRecord; rights: Rights; changed: () => void }

/** What the run is, what it was asked to do, and what came of it. */
function RunHeader({ run, report, verdict, stop, rights, changed }: HeaderProps) {
  const origin = run.parent?.source ?? run.source;
  const [repository, task, agent] = [repositoryOf(run.labels) ?? origin.url ?? origin.path, taskOf(run.labels), agentOf(run.labels)];
  const others = Object.entries(run.labels).filter(([name, value]) => value !== repository && value !== task && name !== "agent" && name !== "model");
  const last = report?.lastAt;
  return (
    <header class="run-header">
      <div class="run-title">
        <h1 class="cut">{run.runId}</h1> <Badge state={run.state} pill />
        {report?.diff && <a href={`${runHref(run.runId)}?tab=changes`}>{count(report.diff.filesChanged)} {report.diff.filesChanged === 1 ? "file" : "files"} <Counts plus={report.diff.insertions} minus={report.diff.deletions} /></a>}
        <ProofLine verdict={verdict} head={run.headSeq} />
        <RunMenu run={run} rights={rights} changed={changed} />
      </div>
      {stop && <p class="note bad"><Foreign text={stopInWords(stop)} /> <a href={callHref(run.runId, stop.seq)}><Time at={stop.timestamp} /></a></p>}
      {run.prompt && <p class="run-prompt"><Foreign text={run.prompt} /></p>}
      <div class="run-facts">
        {repository && <b><Foreign text={repository} /></b>}
        {task && <b><Foreign text={task} /></b>}
        {agent && <span>by <Foreign text={agent} /></span>}
        <span>started <Time at={run.createdAt} />{(run.closedAt ?? last) && <> · lasted {duration(1000 * (Date.parse((run.closedAt ?? last)!) - Date.parse(run.createdAt)))}</>}</span>
        <span>{count(run.counts.calls)} calls{run.counts.denied > 0 && <>, <span class="tone-bad">{count(run.counts.denied)} blocked or denied</span></>}</span>
        {others.slice(0, 4).map(([name, value]) => <span key={name} class="cut">{visible(name)}:{visible(value)}</span>)}
        {run.parent && <span>fork of <a href={runHref(run.parent.runId)}>{visible(run.parent.runId)}</a> at record {count(run.parent.seq)}</span>}
        <span>base <code>{short(run.baseCommit ?? "none")}</code></span>
      </div>
    </header>
  );
}

function ProofLine({ verdict, head }: { verdict?: Verdict; head: number }) {
  if (!verdict) return <span class="proof" />;
  if (verdict.state === "checking") return <span class="proof quiet" role="status">checking {count(verdict.checked)} of {count(Math.max(head, verdict.checked))}</span>;
  if (verdict.state === "broken") return <strong class="proof tone-bad" role="alert">✕ {verdict.isHistoryBroken ? "key history refused" : "chain broken"}{verdict.brokenSeq ? ` at record ${verdict.brokenSeq}` : ""}</strong>;
  // Whoever looks at the run adds reads to it: they are checked like the others, and are not counted among what happened.
  const upTo = (last: number) => count(last - (verdict.reads ?? []).filter((seq) => seq <= last).length);
  const aside = verdict.reads?.length ? <span class="quiet reads">{" "}· {count(verdict.reads.length)} {verdict.reads.length === 1 ? "view" : "views"} by people hidden</span> : null;
  if (verdict.state === "incomplete") return <span class="proof tone-wait">◐ {upTo(verdict.checked)} records checked, not signed{aside}</span>;
  return <span class="proof tone-good">✓ {upTo(verdict.checked)} records checked, {upTo(verdict.signed)} signed{aside}</span>;
}

export interface RunReport { load: Loaded<Report>; isLong: boolean; isWanted: boolean; read: () => void }

/** The budgets and counts of a run. They need every record, so that those of a long run are read on request only. */
function useReport(run: Run | undefined): RunReport {
  const [readAt, setReadAt] = useState(0);
  const isLong = run !== undefined && run.headSeq > VERIFY_AT_ONCE;
  const isWanted = run !== undefined && (readAt > 0 || !isLong);
  const load = useLoad(isWanted ? `budgets ${run.runId}` : "", (signal) => get<Report>(`${runPath(run!.runId)}/report?format=json&verify=false`, signal), 0, readAt || !run ? `at ${readAt}` : `${changesOf(run)} ${run.state}`);
  return { load, isLong, isWanted, read: () => setReadAt(run?.headSeq ?? 0) };
}

/** Verifies the run in the browser: at once if it is short, else on request. */
function useProof(run: string, head: number | undefined) {
  const [verdict, setVerdict] = useState<Verdict>();
  const [turn, setTurn] = useState(0);
  // Decided once: a verification goes on while the run grows beyond the limit.
  const isShort = useRef<boolean | undefined>(undefined);
  if (head !== undefined) isShort.current ??= head <= VERIFY_AT_ONCE;
  const isWanted = turn > 0 || isShort.current === true;
  useEffect(() => {
    if (!isWanted) return;
    const controller = new AbortController();
    setVerdict({ state: "checking", checked: 0, signed: 0 });
    const progress = (checked: number) => controller.signal.aborted || setVerdict({ state: "checking", checked, signed: 0 });
    verifyRun(run, controller.signal, progress).then(
      (found) => controller.signal.aborted || setVerdict(found),
      (error: Error) => controller.signal.aborted || setVerdict({ state: "incomplete", checked: 0, signed: 0, problem: error.message }),
    );
    return () => controller.abort();
  }, [run, turn, isWanted]);
  return { verdict, verify: () => setTurn((count) => count + 1) };
}
