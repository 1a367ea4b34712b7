import { useState } from "preact/hooks";
import { callTool, get, runPath } from "../lib/api.ts";
import { count } from "../lib/format.ts";
import { type Loaded, useLoad } from "../lib/hooks.ts";
import { runHref } from "../lib/route.ts";
import type { Approval, Report, Run, WorkspaceDiff } from "../lib/types.ts";
import { VERIFY_AT_ONCE } from "../lib/verify.ts";
import { ownPaths } from "../lib/words.ts";
import { DiffView } from "../ui/diff_view.tsx";
import { Counts, Failed, Loading, Path } from "../ui/parts.tsx";
import { showAtTop } from "../ui/window.tsx";

type Changed = NonNullable<Report["diff"]>;
interface State { load: Loaded<Changed>; isOpen: boolean; setOpen: (isOpen: boolean) => void; isPending: boolean }

/** What else the run of an approval has changed: read at once if the run is short, and of a long one when somebody asks. */
export function useBesides(approval: Approval, run: Run | undefined): State {
  const { runId, state, decidedSeq } = approval;
  const [isOpen, setOpen] = useState(false);
  const own = ownPaths(approval);
  const isShort = run !== undefined && run.headSeq <= VERIFY_AT_ONCE;
  // The report makes no record, unlike a diff that is read as a tool.
  const load = useLoad(isShort || isOpen ? `besides ${runId} ${decidedSeq}` : "", async (signal) => {
    const { diff } = await get<Report>(`${runPath(runId)}/report?format=json&verify=false`, signal);
    return without(diff ?? { filesChanged: 0, insertions: 0, deletions: 0, diffSha256: "", files: [], moreFiles: 0 }, own);
  }, 0, own.join("\n"));
  return { load, isOpen, setOpen, isPending: state === "pending" };
}

/** Leaves out the files that the change itself is about. */
function without(changed: Changed, paths: string[]): Changed {
  const own = changed.files.filter(({ path }) => paths.includes(path));
  const sum = (of: "insertions" | "deletions") => changed[of] - own.reduce((all, file) => all + file[of], 0);
  return { ...changed, filesChanged: changed.filesChanged - own.length, insertions: sum("insertions"), deletions: sum("deletions"), files: changed.files.filter((file) => !own.includes(file)) };
}

/** How many files that are, which opens the list of them. */
export function BesidesLink({ state: { load: { data }, setOpen, isPending } }: { state: State }) {
  const show = () => {
    setOpen(true);
    requestAnimationFrame(() => {
      const list = document.getElementById("besides");
      if (list) showAtTop(list);
    });
  };
  if (data && !data.filesChanged) return <span class="quiet">{isPending ? "no other files changed in this run" : "no changes in this run"}</span>;
  return <button type="button" class="link" onClick={show}>{isPending ? "Other changes in this run" : "Changes in this run"}{data && <> ({count(data.filesChanged)}) <Counts plus={data.insertions} minus={data.deletions} /></>}</button>;
}

/** The files that the run has changed besides, each with its diff when that is opened. */
export function Besides({ runId, state: { load, isOpen, setOpen, isPending } }: { runId: string; state: State }) {
  const { data } = load;
  // How many they are is told with the task, which opens this.
  if (!isOpen || (data && !data.filesChanged)) return null;
  return (
    <details class="fold besides" id="besides" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{isPending ? "Other changes in this run" : "Changes in this run"}{data && <> ({count(data.filesChanged)}) <Counts plus={data.insertions} minus={data.deletions} /></>}</summary>
      {data ? <>
        <ul class="files-changed" aria-label="Changed files">{data.files.map((file) => <ChangedFile key={file.path} runId={runId} file={file} />)}</ul>
        {data.moreFiles > 0 && <p class="quiet">{count(data.moreFiles)} more files are not listed. <a href={`${runHref(runId)}?tab=changes`}>All changes of the run</a></p>}
      </> : load.error ? <Failed error={load.error} what="Reading what the run changed" retry={load.reload} /> : <Loading what="what the run changed" />}
    </details>
  );
}

/** The most text of a diff that is read. */
const MAX_BYTES = 1_048_576;

function ChangedFile({ runId, file: { path, status, insertions, deletions } }: { runId: string; file: Changed["files"][number] }) {
  const [isOpen, setOpen] = useState(false);
  const load = useLoad(isOpen ? `diff ${runId} ${path}` : "", (signal) => callTool<WorkspaceDiff>(runId, "diff_workspace", { path, maxBytes: MAX_BYTES }, signal));
  return (
    <li>
      <button type="button" class="plain changed-file" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> <Path path={path} /> <Counts plus={insertions} minus={deletions} /> <span class="quiet">{status === "modified" ? "" : status}</span>
      </button>
      {isOpen && (load.data ? <>{load.data.truncated && <p class="tone-wait">The diff is cut: the Changes of the run have more of it.</p>}<DiffView text={load.data.diff} isWhole isBare /></> : load.error ? <Failed error={load.error} what="Reading the diff" retry={load.reload} /> : <Loading what="the diff" />)}
    </li>
  );
}
