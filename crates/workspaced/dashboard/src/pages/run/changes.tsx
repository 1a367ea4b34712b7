import type { Rights } from "../../app.tsx";
import { callTool } from "../../lib/api.ts";
import { useLoad } from "../../lib/hooks.ts";
import { lineReader } from "../../lib/files.ts";
import type { Run, WorkspaceDiff } from "../../lib/types.ts";
import { DiffView } from "../../ui/diff_view.tsx";
import { Failed, Loading } from "../../ui/parts.tsx";

/** The size up to which the whole diff is shown. */
const MAX_BYTES = 4_000_000;

/** What the run has changed since its base. */
export function Changes({ run, rights }: { run: Run; rights: Rights }) {
  // Reading the diff is recorded itself, so it is read again only after a change.
  const load = useLoad(`diff ${run.runId} ${run.counts.mutations}`, (signal) => callTool<WorkspaceDiff>(run.runId, "diff_workspace", { maxBytes: MAX_BYTES }, signal));
  if (load.error) return <Failed error={load.error} what="Reading the changes" retry={load.reload} />;
  if (!load.data) return <Loading what="the changes" />;
  const { data } = load;
  if (!data.filesChanged) return <p class="state">The files are as they were at the base.</p>;
  return (
    <>
      {data.truncated && <p class="tone-wait">The diff is cut{data.nextPath && <> before <code>{data.nextPath}</code></>}. The whole diff is in the patch of the run.</p>}
      <DiffView key={data.diff.length} text={data.diff} scope={`${run.runId}:${run.counts.mutations}`} readLines={rights.audit ? lineReader(run.runId, undefined) : undefined} />
    </>
  );
}
