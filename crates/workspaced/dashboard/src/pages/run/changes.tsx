import type { Rights } from "../../app.tsx";
import { callTool } from "../../lib/api.ts";
import { useLoad } from "../../lib/hooks.ts";
import { lineReader } from "../../lib/files.ts";
import { changesOf, type Run, type WorkspaceDiff } from "../../lib/types.ts";
import { DiffView } from "../../ui/diff_view.tsx";
import { Failed, Loading } from "../../ui/parts.tsx";

/** The size up to which the whole diff is shown. */
const MAX_BYTES = 4_000_000;

/** What the run has changed since its base. */
export function Changes({ run, rights }: { run: Run; rights: Rights }) {
  // Reading the diff is recorded itself, so it is read again only after a change.
  const version = changesOf(run);
  const load = useLoad(`diff ${run.runId}`, async (signal) => ({ ...(await callTool<WorkspaceDiff>(run.runId, "diff_workspace", { maxBytes: MAX_BYTES }, signal)), version }), 0, version);
  if (!load.data) return load.error ? <Failed error={load.error} what="Reading the changes" retry={load.reload} /> : <Loading what="the changes" />;
  const { data } = load;
  const failure = load.error && <Failed error={load.error} what="Reading the changes again" retry={load.reload} />;
  if (!data.filesChanged) return <>{failure}<p class="state">The files are as they were at the base.</p></>;
  return (
    <>
      {failure}
      {data.truncated && <p class="tone-wait">The diff is cut{data.nextPath && <> before <code>{data.nextPath}</code></>}. The whole diff is in the patch of the run.</p>}
      <DiffView key={data.version} text={data.diff} scope={`${run.runId}:${data.version}`} readLines={rights.audit ? lineReader(run.runId, undefined) : undefined} />
    </>
  );
}
