import { useEffect, useRef, useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { get, runPath } from "../lib/api.ts";
import { bytes, count, short } from "../lib/format.ts";
import { useLoad } from "../lib/hooks.ts";
import { runHref, useRoute } from "../lib/route.ts";
import type { Run } from "../lib/types.ts";
import { VERIFY_AT_ONCE, verifyRun, type Verdict } from "../lib/verify.ts";
import { Boundary } from "../ui/boundary.tsx";
import { Badge, Failed, Loading, Time } from "../ui/parts.tsx";
import { Changes } from "./run/changes.tsx";
import { Files } from "./run/files.tsx";
import { ReportTab } from "./run/report.tsx";
import { Side } from "./run/side.tsx";
import { Timeline } from "./run/timeline.tsx";

const TABS: [id: string, text: string, needsAudit: boolean][] = [["", "Timeline", true], ["changes", "Changes", false], ["files", "Files", true], ["report", "Report", true]];

interface Props { run: string; seq?: number; rights: Rights }

/** One run: what happened, what changed, and whether the record of it can be believed. */
export function RunPage({ run, seq, rights }: Props) {
  const { params } = useRoute();
  const load = useLoad(`run ${run}`, (signal) => get<Run>(runPath(run), signal), 5000);
  const proof = useProof(run, load.data?.headSeq, rights.audit);
  if (!load.data) return load.error ? <Failed error={load.error} what={`Reading the run ${run}`} retry={load.reload} /> : <Loading what="the run" />;
  const tabs = TABS.filter(([, , needsAudit]) => rights.audit || !needsAudit);
  const wanted = params.get("tab") ?? "";
  const tab = tabs.some(([id]) => id === wanted) ? wanted : tabs[0][0];
  const verdict = proof.verdict;
  return (
    <div class={`run-page ${verdict?.state === "broken" ? "broken" : ""}`}>
      <header class="run-header">
        <h1 class="cut">{run}</h1> <Badge state={load.data.state} />
        <span class="quiet"><Time at={load.data.createdAt} /></span>
        <span class="quiet">base <code>{short(load.data.baseCommit ?? "none")}</code></span>
        <span class="quiet">{load.data.policy.profile}</span>
        <span class="quiet">{bytes(load.data.disk.bytes)}</span>
        <ProofLine verdict={verdict} head={load.data.headSeq} />
      </header>
      {load.error && <Failed error={load.error} what="Refreshing the run" retry={load.reload} />}
      <nav class="tabs" aria-label="Views of the run">
        {tabs.map(([id, text]) => <a key={id} href={`${runHref(run)}${id ? `?tab=${id}` : ""}`} aria-current={id === tab ? "page" : undefined}>{text}</a>)}
      </nav>
      <div class={`run-body ${tab === "" ? "with-side" : ""}`}>
        <div class="run-main">
          <Boundary key={tab} what={tabs.find(([id]) => id === tab)![1]}>
            {tab === "" && <Timeline run={run} seq={seq} rights={rights} brokenSeq={verdict?.brokenSeq} />}
            {tab === "changes" && <Changes run={load.data} rights={rights} />}
            {tab === "files" && <Files run={load.data} />}
            {tab === "report" && <ReportTab run={run} head={load.data.headSeq} />}
          </Boundary>
        </div>
        {tab === "" && seq === undefined && <Boundary what="the policy and the budgets"><Side run={load.data} verdict={verdict} verify={proof.verify} rights={rights} /></Boundary>}
      </div>
    </div>
  );
}

function ProofLine({ verdict, head }: { verdict?: Verdict; head: number }) {
  if (!verdict) return null;
  if (verdict.state === "checking") return <span class="proof quiet" role="status">checking {count(verdict.checked)} of {count(head)}</span>;
  if (verdict.state === "broken") return <strong class="proof tone-bad" role="alert">✕ {verdict.isHistoryBroken ? "key history refused" : "chain broken"}{verdict.brokenSeq ? ` at record ${verdict.brokenSeq}` : ""}</strong>;
  if (verdict.state === "incomplete") return <span class="proof tone-wait">◐ {count(verdict.checked)} records checked, not signed</span>;
  return <span class="proof tone-good">✓ {count(verdict.checked)} records checked, {count(verdict.signed)} signed</span>;
}

/** Verifies the run in the browser: at once if it is short, else on request. */
function useProof(run: string, head: number | undefined, mayAudit: boolean) {
  const [verdict, setVerdict] = useState<Verdict>();
  const [turn, setTurn] = useState(0);
  // Decided once: a verification goes on while the run grows beyond the limit.
  const isShort = useRef<boolean | undefined>(undefined);
  if (head !== undefined) isShort.current ??= head <= VERIFY_AT_ONCE;
  const isWanted = mayAudit && (turn > 0 || isShort.current === true);
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
