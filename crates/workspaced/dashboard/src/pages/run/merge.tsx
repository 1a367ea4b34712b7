import { useState } from "preact/hooks";
import { post, runPath } from "../../lib/api.ts";
import { count, visible } from "../../lib/format.ts";
import { useLoad } from "../../lib/hooks.ts";
import type { Merged, Run } from "../../lib/types.ts";
import { Counts, Dialog, Failed, Loading, Path } from "../../ui/parts.tsx";

interface Props { run: Run; from: string; onClose: () => void; changed: () => void }

/** Merges a fork into the run that it was made from. Shows first what would change, by a dry run. */
export function Merge({ run, from, onClose, changed }: Props) {
  const [onConflict, setOnConflict] = useState<"refuse" | "merge">("refuse");
  const [reason, setReason] = useState("");
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const [result, setResult] = useState<Merged>();
  const ask = (body: { reason: string; dryRun: boolean }, signal?: AbortSignal) => post<Merged>(`${runPath(run.runId)}/merge`, { from, onConflict, ...body }, signal);
  const preview = useLoad(`merge ${run.runId} ${from} ${onConflict}`, (signal) => ask({ reason: "preview", dryRun: true }, signal));
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      setResult(await ask({ reason: reason.trim(), dryRun: false }));
      changed();
    } catch (failure) {
      setError(failure as Error);
      preview.reload();
    }
    setBusy(false);
  };
  return (
    <Dialog title={`Merge ${visible(from)}`} onClose={onClose}>
      {result ? <p role="status">{result.approvalId ? <>The merge <a href={`/approvals?id=${encodeURIComponent(result.approvalId)}&view=all`}>waits for approval</a>.</> : `Merged ${files(pathsOf(result).length)}.`}</p> : (
        <form class="stack" onSubmit={submit}>
          <label><input type="checkbox" checked={onConflict === "merge"} onChange={(event) => setOnConflict(event.currentTarget.checked ? "merge" : "refuse")} /> Merge changes of different lines where both runs changed a file</label>
          {preview.error ? <Failed error={preview.error} what="Merging" retry={preview.reload} /> : preview.data ? <Preview merged={preview.data} /> : <Loading what="what would change" />}
          <label class="field"><span>Reason (recorded)</span><input required maxLength={2000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} autofocus /></label>
          <button type="submit" class="primary" disabled={isBusy || !preview.data || !reason.trim()}>Merge</button>
          {error && <Failed error={error} what="Merging" />}
        </form>
      )}
    </Dialog>
  );
}

const pathsOf = ({ applied = [], merged = [] }: Merged): string[] => [...applied, ...merged].sort();
const files = (number: number): string => `${count(number)} ${number === 1 ? "file" : "files"}`;

/** What the merge would change. A refusal that asks for approval does not list it: the fork's row of differences does. */
function Preview({ merged: answer }: { merged: Merged }) {
  const [{ code, detail, merged = [], insertions = 0, deletions = 0 }, paths] = [answer, pathsOf(answer)];
  if (code) return <p role="status">Needs approval: {visible(detail ?? code)}</p>;
  if (!paths.length) return <p role="status">Nothing to merge.</p>;
  return (
    <section aria-label="What would change">
      <p>{files(paths.length)} <Counts plus={insertions} minus={deletions} /></p>
      <ul class="scroll">{paths.map((path) => <li key={path}><Path path={path} />{merged.includes(path) && <span class="tone-wait"> merged line by line</span>}</li>)}</ul>
    </section>
  );
}
