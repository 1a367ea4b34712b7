import { useState } from "preact/hooks";
import type { Rights } from "../../app.tsx";
import { get, query, runPath } from "../../lib/api.ts";
import { count, short, visible } from "../../lib/format.ts";
import { useLoad } from "../../lib/hooks.ts";
import { runHref } from "../../lib/route.ts";
import type { ComparedFile, Comparison, Run } from "../../lib/types.ts";
import { Badge, Failed, Hash, Loading, Path } from "../../ui/parts.tsx";
import { Merge } from "./merge.tsx";

/** How many runs are compared with this one. */
const MAX_COMPARED = 5;
/** The most files that are shown. */
const MAX_FILES = 1000;

/** Whether a run was made from another one, or another one from it. */
export const hasFamily = (run: Run): boolean => run.parent !== undefined || (run.forks?.length ?? 0) > 0;

/** The run that this one was made from, its forks, and where their files differ. */
export function Forks({ run, rights, changed }: { run: Run; rights: Rights; changed: () => void }) {
  const [merging, setMerging] = useState("");
  const canMerge = rights.orchestrate && (run.state === "open" || run.state === "awaiting_approval");
  const { parent, forks = [], moreForks } = run;
  const others = [...(parent ? [parent.runId] : []), ...forks.filter(({ state }) => state !== "deleted").map(({ runId }) => runId)].slice(0, MAX_COMPARED);
  return (
    <>
      {parent && <p>Made from <a href={runHref(parent.runId)}>{visible(parent.runId)}</a> at record {count(parent.seq)}{parent.mergedSeq ? `; its changes up to record ${count(parent.mergedSeq)} are merged there` : "; nothing of it is merged there yet"}.</p>}
      {forks.length > 0 && (
        <table aria-label="Forks">
          <thead><tr><th scope="col">Fork</th><th scope="col">State</th><th scope="col">Made at record</th><th scope="col">Merged into this run</th></tr></thead>
          <tbody>{forks.map(({ runId, state, atSeq, mergedSeq }) => (
            <tr key={runId}><td class="wrap"><a href={runHref(runId)}>{visible(runId)}</a></td><td><Badge state={state} /></td><td>{count(atSeq)}</td><td>{mergedSeq ? `up to its record ${count(mergedSeq)}` : <span class="quiet">not yet</span>}{canMerge && state !== "deleted" && state !== "preparing" && <> <button type="button" aria-label={`Merge ${visible(runId)}`} onClick={() => setMerging(runId)}>Merge…</button></>}</td></tr>
          ))}</tbody>
        </table>
      )}
      {merging && <Merge run={run} from={merging} onClose={() => setMerging("")} changed={changed} />}
      {moreForks && <p class="quiet">Older forks are not shown.</p>}
      {others.length > 0 && <Files run={run} others={others} isPart={others.length === MAX_COMPARED} />}
    </>
  );
}

/** The files of several runs: which version each has. */
function Files({ run, others, isPart }: { run: Run; others: string[]; isPart: boolean }) {
  // Not again with each record: a comparison reads the whole history of both runs. One may be deleted meanwhile, or be on another node.
  const load = useLoad(`compare ${run.runId}`, (signal) => Promise.allSettled(others.map((other) => get<Comparison>(`${runPath(run.runId)}/compare/${encodeURIComponent(other)}${query({ limit: MAX_FILES })}`, signal))), 0, others.join(" "));
  const answers = load.data?.map((answer) => (answer.status === "fulfilled" ? answer.value : undefined));
  const refused = load.data?.find((answer) => answer.status === "rejected");
  if (refused && !answers?.some(Boolean)) return <Failed error={refused.reason as Error} what="Comparing the runs" retry={load.reload} />;
  if (!answers) return <Loading what="the comparison" />;
  const rows = new Map<string, (ComparedFile | undefined)[]>();
  answers.forEach((answer, index) => answer?.files.forEach((file) => {
    const row = rows.get(file.path) ?? others.map(() => undefined);
    row[index] = file;
    rows.set(file.path, row);
  }));
  const differing = [...rows].filter(([, files]) => files.some((file) => file && file.status !== "same" && file.status !== "neither")).sort(([one], [other]) => (one < other ? -1 : 1));
  const isCut = answers.some((answer) => answer?.nextAfter !== undefined);
  if (!differing.length && !refused) return <p class="state">The files of these runs are the same.</p>;
  return (
    <section aria-label="Differences">
      <h2>{count(differing.length)} {differing.length === 1 ? "file differs" : "files differ"}</h2>
      <div class="scroll">
        <table>
          <thead><tr><th scope="col">File</th><th scope="col">this run</th>{others.map((other) => <th key={other} scope="col"><a href={runHref(other)}>{visible(other)}</a></th>)}</tr></thead>
          <tbody>{differing.map(([path, files]) => (
            <tr key={path}><th scope="row" class="wrap"><Path path={path} /></th><td><Hash value={files.find(Boolean)?.first?.sha256} /></td>
              {files.map((file, index) => <td key={others[index]}>{answers[index] ? <Version file={file} /> : <span class="quiet">not compared</span>}</td>)}</tr>
          ))}</tbody>
        </table>
      </div>
      {refused && <Failed error={refused.reason as Error} what="Comparing some of the runs" retry={load.reload} />}
      {isPart && <p class="quiet">At most {MAX_COMPARED} runs are compared.</p>}
      {isCut && <p class="quiet">Only the first {count(MAX_FILES)} files of each comparison are shown.</p>}
    </section>
  );
}

/** The version of a file in another run, as against this one. */
function Version({ file }: { file?: ComparedFile }) {
  if (!file || file.status === "same" || file.status === "neither") return <span class="quiet">same</span>;
  if (!file.second) return <span class="tone-bad">none</span>;
  const isMode = file.first?.sha256 === file.second.sha256;
  return <span class="tone-wait" title={file.second.sha256}>{isMode ? `mode ${file.second.mode}` : <code class="hash">{short(file.second.sha256)}</code>}</span>;
}
