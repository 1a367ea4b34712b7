import { useMemo, useState } from "preact/hooks";
import type { Rights } from "../../app.tsx";
import { callTool, get, getAll, query, runPath, send } from "../../lib/api.ts";
import { readComments, sendComment } from "../../lib/comments.ts";
import { type FileDiff, inReadingOrder, parseDiff } from "../../lib/diff.ts";
import { lineReader } from "../../lib/files.ts";
import { count, visiblePath } from "../../lib/format.ts";
import { useLoad } from "../../lib/hooks.ts";
import { knownPerson, needsPerson, rememberPerson } from "../../lib/person.ts";
import { treeRows } from "../../lib/tree.ts";
import { type Approval, type ChangeList, changesOf, type Run, type WorkspaceDiff } from "../../lib/types.ts";
import { useViewed, type Viewed } from "../../lib/viewed.ts";
import { Boundary } from "../../ui/boundary.tsx";
import { FilesDiff, type TreeProps } from "../../ui/diff_view.tsx";
import { Badge, Dialog, Failed, Field, Loading, Path } from "../../ui/parts.tsx";
import { ROW_HEIGHT, Windowed } from "../../ui/window.tsx";

/** The most text of a diff that the service returns at once. */
const MAX_BYTES = 1_048_576;
const OUTSIDE = "workspace.outside_change";

const readDiff = (run: string, signal?: AbortSignal, path?: string) => callTool<WorkspaceDiff>(run, "diff_workspace", { maxBytes: MAX_BYTES, ...(path === undefined ? {} : { path }) }, signal);

/** The paths that something else than a call has changed. */
async function readOutside(run: string, signal: AbortSignal): Promise<Set<string>> {
  const found = new Set<string>();
  let since = 0;
  for (;;) {
    const page = await get<ChangeList>(`${runPath(run)}/changes${query({ since, limit: 1000 })}`, signal);
    for (const change of page.items) if (change.tool === OUTSIDE) for (const { path } of change.files) found.add(path);
    if (!page.more) return found;
    since = page.nextSince;
  }
}

/** Says of a file whose text ends before its diff that it does, and counts all of it. */
function whole(file: FileDiff | undefined, insertions: number, deletions: number): FileDiff | undefined {
  if (!file || (file.insertions === insertions && file.deletions === deletions)) return file;
  return { ...file, insertions, deletions, notes: [...file.notes, `The diff is too long to be shown whole: it has +${count(file.insertions)} −${count(file.deletions)} of +${count(insertions)} −${count(deletions)} lines. The patch of the run has all of it.`] };
}

/** Every file that differs: with its diff where that was read, without it where the text was cut before. */
function filesOf({ diff, files, truncated, nextPath }: WorkspaceDiff, read: Map<string, FileDiff>): FileDiff[] {
  const known = new Map(parseDiff(diff).map((file) => [file.path, file]));
  if (truncated && nextPath !== undefined) known.delete(nextPath);
  const listed = files.map(({ path, status, insertions, deletions }): FileDiff => whole(read.get(path) ?? known.get(path), insertions, deletions)
    ?? { path, status: status === "created" ? "added" : status === "deleted" ? "deleted" : "modified", binary: false, insertions, deletions, hunks: [], notes: [], isUnread: true });
  const paths = new Set(files.map(({ path }) => path));
  return inReadingOrder([...listed, ...[...known.values()].filter(({ path }) => !paths.has(path))]);
}

/** What the run has changed since its base, and what waits to be changed. */
export function Changes({ run, rights }: { run: Run; rights: Rights }) {
  // Reading the diff is recorded itself, so it is read again only after a change.
  const version = changesOf(run);
  const load = useLoad(`diff ${run.runId}`, async (signal) => ({ ...(await readDiff(run.runId, signal)), version }), 0, version);
  const outside = useLoad(`outside ${run.runId}`, (signal) => readOutside(run.runId, signal), 0, version);
  const pending = useLoad(`pending ${run.runId}`, (signal) => getAll<Approval>("/v1/approvals", { run: run.runId, state: "pending" }, 200, signal), 10000);
  const [more, setMore] = useState({ version, read: new Map<string, FileDiff>(), error: undefined as Error | undefined });
  const [image, setImage] = useState<FileDiff>();
  const comments = useLoad(`comments ${run.runId}`, (signal) => readComments(run.runId, signal), 0, run.headSeq);
  const [draft, setDraft] = useState<{ path: string; line?: number }>();
  const viewed = useViewed(rights, run.runId);
  const read = more.version === load.data?.version ? more.read : undefined;
  const files = useMemo(() => (load.data ? filesOf(load.data, read ?? new Map()) : []), [load.data, read]);
  if (!load.data) return load.error ? <Failed error={load.error} what="Reading the changes" retry={load.reload} /> : <Loading what="the changes" />;
  const { data } = load;
  const readFile = (path: string) => void readDiff(run.runId, undefined, path).then(
    ({ diff }) => setMore((before) => ({ version: data.version, error: undefined, read: new Map([...(before.version === data.version ? before.read : []), ...parseDiff(diff).map((file): [string, FileDiff] => [file.path, file])]) })),
    (error: Error) => setMore((before) => ({ ...before, error })),
  );
  const waiting = pending.data?.items ?? [];
  return (
    <>
      {load.error && <Failed error={load.error} what="Reading the changes again" retry={load.reload} />}
      {pending.error && <Failed error={pending.error} what="Reading what waits" retry={pending.reload} />}
      {outside.error && <Failed error={outside.error} what="Reading the changes from outside" retry={outside.reload} />}
      {comments.error && <Failed error={comments.error} what="Reading the comments" retry={comments.reload} />}
      {more.error && <Failed error={more.error} what="Reading the diff of a file" />}
      {!data.filesChanged ? <><p class="state">The files are as they were at the base.</p><Waiting approvals={waiting} /></>
        : <Boundary what="the changes"><FilesDiff key={data.version} files={files} viewed={viewed} readFile={readFile} readLines={rights.audit ? lineReader(run.runId, undefined) : undefined} show={rights.audit ? setImage : undefined}
            comments={comments.data} comment={rights.decide ? (path, line) => setDraft({ path, line }) : undefined}
            tree={(tree) => <Tree {...tree} viewed={viewed} outside={outside.data ?? new Set()} waiting={waiting} />} /></Boundary>}
      {draft && <CommentDialog run={run.runId} about={draft} rights={rights} close={() => setDraft(undefined)} sent={() => { setDraft(undefined); comments.reload(); }} />}
      {image && <Images run={run.runId} file={image} close={() => setImage(undefined)} />}
    </>
  );
}

/** What waits for a person is not in the tree yet. */
function Waiting({ approvals }: { approvals: Approval[] }) {
  if (!approvals.length) return null;
  return (
    <section aria-label="Waiting for approval"><h3><Badge state="pending" /></h3>
      <ul class="rows">{approvals.map((approval) => <li key={approval.approvalId}><a href={`/approvals?id=${approval.approvalId}`}>{approval.files.length ? <Path path={approval.files[0].path} /> : <code>{approval.tool}</code>}{approval.files.length > 1 && ` and ${approval.files.length - 1} more`}</a></li>)}</ul>
    </section>
  );
}

const STATUS = { added: ["A", "good", "added"], deleted: ["D", "bad", "deleted"], renamed: ["R", "wait", "renamed"], modified: ["M", "quiet", "modified"] } as const;

interface Props extends TreeProps { viewed: Viewed; outside: Set<string>; waiting: Approval[] }

/** The changed files as a tree, source first. */
function Tree({ files, hidden, current, jump, filter, setFilter, viewed, outside, waiting }: Props) {
  const [closed, setClosed] = useState(() => new Set<string>());
  const rows = useMemo(() => treeRows(files.flatMap(({ path }, index): [string, number][] => (hidden.has(index) ? [] : [[path, index]])), closed), [files, hidden, closed]);
  const toggle = (path: string) => setClosed((before) => {
    const next = new Set(before);
    if (!next.delete(path)) next.add(path);
    return next;
  });
  return (
    <div class="tree">
      <Waiting approvals={waiting} />
      <Field label={`Filter ${count(files.length)} ${files.length === 1 ? "file" : "files"}`} search value={filter} placeholder="path" onChange={setFilter} />
      {!rows.length && <p class="state">No file matches.</p>}
      {rows.length > 0 && <Windowed count={rows.length} rowHeight={ROW_HEIGHT} label="Changed files" render={(index) => {
        const { depth, name, path, file } = rows[index];
        const indent = { paddingLeft: `${8 + depth * 12}px` };
        if (file === undefined) return <button type="button" class="plain tree-row" style={indent} aria-expanded={!closed.has(path)} onClick={() => toggle(path)}><span aria-hidden="true">{closed.has(path) ? "▸" : "▾"}</span> <bdi class="cut quiet">{visiblePath(name)}</bdi></button>;
        const [letter, tone, status] = STATUS[files[file].status];
        return (
          <button type="button" class={`plain tree-row ${file === current ? "focused" : ""}`} style={indent} title={visiblePath(path)} onClick={() => jump(file)}>
            <span class={`tone-${tone}`} title={status}>{letter}</span> <bdi class={`cut ${viewed.has(files[file]) ? "quiet" : ""}`}>{visiblePath(name)}</bdi>
            {outside.has(path) && <span class="tone-bad" title="Something else than a call has changed it">outside</span>}
            <span class="number quiet small">{viewed.has(files[file]) ? "✓ viewed" : `+${count(files[file].insertions)} −${count(files[file].deletions)}`}</span>
          </button>
        );
      }} />}
    </div>
  );
}

interface CommentProps { run: string; about: { path: string; line?: number }; rights: Rights; close: () => void; sent: () => void }

function CommentDialog({ run, about: { path, line }, rights, close, sent }: CommentProps) {
  const [text, setText] = useState("");
  const [person, setPerson] = useState(knownPerson);
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await sendComment(run, { text: text.trim(), path, line, onBehalfOf: rememberPerson(person) });
      sent();
    } catch (failure) {
      setError(failure as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Comment" onClose={close}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        <p><Path path={path} />{line !== undefined && `, line ${line}`}. The agent is told with its next call.</p>
        <label class="field"><span>Comment</span><textarea rows={4} required maxLength={MAX_COMMENT} value={text} onInput={(event) => setText(event.currentTarget.value)} autofocus /></label>
        {needsPerson(rights) && <label class="field"><span>Your name</span><input required value={person} maxLength={128} onInput={(event) => setPerson(event.currentTarget.value)} /></label>}
        <button type="submit" class="primary" disabled={isBusy || !text.trim()}>{isBusy ? "Sending…" : "Comment"}</button>
        {error && <Failed error={error} what="Commenting" />}
      </form>
    </Dialog>
  );
}

/** Characters of a comment, as the service takes them. */
const MAX_COMMENT = 2000;

/** Images up to this size are shown. */
const MAX_IMAGE = 5_000_000;

/** Returns the image as an address that holds it: the policy of these pages permits no other. At a record it is as it was then. */
async function readImage(run: string, path: string, signal: AbortSignal, atSeq?: number): Promise<string> {
  const response = await send(`${runPath(run)}/files/${path.split("/").map(encodeURIComponent).join("/")}${query({ atSeq })}`, { signal });
  if (Number(response.headers.get("content-length") ?? 0) > MAX_IMAGE) {
    await response.body?.cancel();
    throw new Error(`The image has more than ${count(MAX_IMAGE)} bytes.`);
  }
  const extension = path.slice(path.lastIndexOf(".") + 1).toLowerCase();
  const data = new Blob([await response.arrayBuffer()], { type: `image/${extension === "jpg" ? "jpeg" : extension}` });
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error ?? new Error("The image cannot be read."));
    reader.readAsDataURL(data);
  });
}

/** The record at which a run's files are as it began. */
const START = 0;

function Images({ run, file, close }: { run: string; file: FileDiff; close: () => void }) {
  return (
    <Dialog title={visiblePath(file.path)} onClose={close}>
      <div class="images">
        {file.status !== "added" && <Image run={run} path={file.oldPath ?? file.path} atSeq={START} caption="at the start of the run" />}
        {file.status !== "deleted" && <Image run={run} path={file.path} caption="as it is now" />}
      </div>
    </Dialog>
  );
}

function Image({ run, path, atSeq, caption }: { run: string; path: string; atSeq?: number; caption: string }) {
  const load = useLoad(`image ${path}`, (signal) => readImage(run, path, signal, atSeq));
  const [size, setSize] = useState("");
  if (!load.data) return load.error ? <Failed error={load.error} what={`Reading the image ${caption}`} retry={load.reload} /> : <Loading what={`the image ${caption}`} />;
  return (
    <figure class="image">
      <img src={load.data} alt={`${visiblePath(path)}, ${caption}`} onLoad={({ currentTarget: { naturalWidth, naturalHeight } }) => setSize(`${count(naturalWidth)} × ${count(naturalHeight)}`)} />
      <figcaption class="quiet">{caption} <span class="figure">{size}</span></figcaption>
    </figure>
  );
}
