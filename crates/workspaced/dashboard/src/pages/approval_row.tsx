import type { ComponentChildren } from "preact";
import { visible, visiblePath } from "../lib/format.ts";
import type { Approval, Run } from "../lib/types.ts";
import { resolutionOf, rulesInWords, taskOf } from "../lib/words.ts";
import { Badge, Counts, Foreign, Path, Time } from "../ui/parts.tsx";
import { Marks } from "./warnings.tsx";

/** The file of an approval in a narrow place, and how many more there are. */
export const Files = ({ approval: { files, tool } }: { approval: Approval }) =>
  files.length ? <span class="files-of"><Path path={files[0].path} fit />{files.length > 1 && <span> and {files.length - 1} more</span>}</span> : <code>{tool}</code>;

interface Props { approval: Approval; run?: Run; href: string; isOpen?: boolean; note?: ComponentChildren; decidedAt?: string }

/** An approval in a list: its file, what the agent says of it, what is to be noticed, and where it comes from. */
export function ApprovalRow({ approval, run, href, isOpen, note, decidedAt }: Props) {
  const { files, state, reasons } = approval;
  const changed = files.reduce((sum, file) => ({ insertions: sum.insertions + file.insertions, deletions: sum.deletions + file.deletions }), { insertions: 0, deletions: 0 });
  const isPending = state === "pending";
  const task = run && taskOf(run.labels);
  return (
    <a href={href} aria-current={isOpen ? "true" : undefined}>
      <span class="first">
        {!isPending && <Badge state={state} short />}
        <span class="title strong">{files.length > 1 ? <span class="cut">{files.length} files: {files.slice(0, 5).map(({ path, operation }, index) => <bdi key={path} class="path">{index > 0 && ", "}{operation === "delete" && "− "}{visiblePath(path.slice(path.lastIndexOf("/") + 1))}</bdi>)}</span> : files.length ? <Path path={files[0].path} fit /> : <code class="cut">{approval.tool}</code>}</span>
        {changed.insertions + changed.deletions > 0 && <span class="small"><Counts plus={changed.insertions} minus={changed.deletions} /></span>}
        <span class="quiet small">{!isPending && decidedAt === undefined && "requested "}<Time at={decidedAt ?? approval.createdAt} /></span>
      </span>
      <Foreign class="two-lines" text={approval.reason} />
      <span class="cut quiet small"><span class="sentence">{rulesInWords(reasons).map(([words]) => visible(words)).join(", ")}</span> · <bdi>{approval.runId}</bdi>{task && <> · <Foreign text={task} /></>}{note}</span>
      {isPending && <span class="marks-row"><Marks warnings={approval.warnings} /></span>}
      {!isPending && approval.resolution && <span class="two-lines quiet small"><Foreign text={state === "failed" ? resolutionOf(approval) : approval.resolution} /></span>}
    </a>
  );
}
