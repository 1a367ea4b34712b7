/** What the service says against a change: in a list in two words, above its diff in a sentence with the line. */

import { labelOf } from "../lib/reasons.ts";
import { visible } from "../lib/format.ts";
import type { Warning } from "../lib/types.ts";
import { Foreign, Path } from "../ui/parts.tsx";

/** The marks of a row: a danger in red, a doubt in amber. What is merely good to know has none. */
export function Marks({ warnings }: { warnings: Warning[] }) {
  return <>{warnings.filter(({ severity }) => severity !== "info").slice(0, 4).map((warning, index) => <span key={index} class={`tag ${warning.severity === "danger" ? "mark" : "rule"}`} title={visible(warning.text)}>{warning.severity === "danger" ? "✕" : "!"} {labelOf(warning)}</span>)}</>;
}

interface Props {
  warnings: Warning[];
  /** Shows a line of the diff. */
  cite: (line: { path: string; line: number }) => void;
}

/** The warnings of a change, by severity. Those of several files name them. */
export function Warnings({ warnings, cite }: Props) {
  const of = (severity: Warning["severity"]) => warnings.filter((warning) => warning.severity === severity);
  const list = (some: Warning[], symbol: string) => <ul class="warnings">{some.map(({ path, line, text, approvalId, note }, index) => (
    <li key={index}>{symbol} <Foreign text={text} />
      {path !== undefined && line !== undefined ? <> <button type="button" class="link" onClick={() => cite({ path, line })}><Path path={path} />:{line}</button></> : path !== undefined && !text.includes(path) && <> <Path path={path} /></>}
      {approvalId && <> <a href={`/approvals?id=${approvalId}&view=all`}>The denied change</a></>}{note && !text.includes(note) && <blockquote><Foreign text={note} /></blockquote>}
    </li>
  ))}</ul>;
  const [dangers, doubts] = [of("danger"), of("doubt")];
  // That no test has run with it is said beside the checks.
  const infos = of("info").filter(({ code }) => code !== "TESTS_NOT_ON_THIS_TREE");
  return (
    <>
      {dangers.length > 0 && <div class="note bad" role="alert">{list(dangers, "✕")}</div>}
      {doubts.length > 0 && <div class="note wait">{list(doubts, "!")}</div>}
      {infos.length > 0 && <div class="note">{list(infos, "·")}</div>}
    </>
  );
}
