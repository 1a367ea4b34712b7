/** Who did what: a record in the words of an audit. */

import { visiblePath } from "./format.ts";
import { type AuditRecord, madeBy } from "./types.ts";
import { decisionInWords } from "./words.ts";

/** The operator that the first token names. */
const FIRST = "orchestrate";

/** Who made a call: the person where one is named, else the operator, the agent or the service. */
export function whoOf(record: AuditRecord): string {
  const person = record.reasons.find((reason) => reason.startsWith("onBehalfOf:"))?.slice("onBehalfOf:".length);
  if (person) return person;
  if (record.actor.startsWith("operator:")) return record.actor === `operator:${FIRST}` ? "operator" : record.actor.slice("operator:".length);
  return madeBy(record) === "agent" ? "agent" : "service";
}

/** Whether a record is the denial of a person, and not that of a policy. */
export const isDeniedByPerson = ({ decision, reasons }: AuditRecord): boolean => decision === "DENY" && reasons.some((reason) => /^approval:[^:]+:denied$/.test(reason));

/** Rules that ask a person. What is done although one of them applies was approved. */
const ASKS = /^((ask|kind|evidence|requireApprovalIf|fileBudget|budget|runBudget):|ignored$|symbolicLink)/;
/** What the service says of the changes that a person made with an approval. */
const EDIT_REASON = "changed by the person who approved";

/** What a record says of a person's decision about a call; nothing if it records none. */
export function verdictOf(record: AuditRecord): "approved" | "denied" | undefined {
  const { outcome, mutates, reason, reasons } = record;
  if (isDeniedByPerson(record)) return "denied";
  if (madeBy(record) !== "operator") return undefined;
  if (reasons.some((rule) => /^approval:[^:]+:approved/.test(rule))) return "approved";
  const isDone = outcome === "ok" && mutates && reason !== EDIT_REASON && !reasons.includes("dryRun");
  return isDone && reasons.some((rule) => ASKS.test(rule)) ? "approved" : undefined;
}

/** How a call ended, and in the words of a reader: `blocked` by policy, `denied` by a person, `asked a person`, or as the service names it. What became of a call that has asked is in its approval. */
export function endOf(record: AuditRecord): { state: string; text?: string } {
  if (record.outcome === "ok") return { state: "ok" };
  if (isDeniedByPerson(record)) return { state: "denied", text: `denied by ${whoOf(record)}` };
  const [, end, number, of] = record.reasons.map((rule) => /^approval:[^:]+:(?:(failed|expired)|approved:(\d+)of(\d+))$/.exec(rule)).find(Boolean) ?? [];
  if (end) return end === "expired" ? { state: "expired" } : { state: "failed", text: "the run ended" };
  if (record.outcome === "pending") return { state: "pending", text: number ? `approved, ${number} of ${of}` : "asked a person" };
  if (record.outcome === "refused") return { state: record.decision === "DENY" ? "blocked" : "failed" };
  return { state: record.outcome };
}

/** Refusals of requests that policy did not judge. */
const INVALID = new Set(["INVALID_REQUEST", "PATCH_INVALID", "TOOL_NOT_FOUND"]);

/** Who decided about a call and how, in words. */
export function verdictInWords(record: AuditRecord): string {
  const { decision, outcome, code } = record;
  if (isDeniedByPerson(record)) return "denied by a person";
  if (outcome === "refused" && INVALID.has(code ?? "")) return "not decided: the request was invalid";
  const { text, state } = endOf(record);
  if (outcome === "refused" && (state === "expired" || (state === "failed" && text))) return state === "expired" ? "not decided: nobody decided in time" : "not decided: the run ended";
  return decisionInWords(decision);
}

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : typeof value === "number" ? String(value) : Array.isArray(value) && value.length ? value.map(String).join(", ") : undefined);
/** Names that are shown of a list. */
const MOST = 3;

/** Returns what a read looked for, as a sentence after its tool: `"refund" in src`, `refunds.py:1–40`. Nothing where its record has no input. */
export function lookedFor({ input, tool, mutates, outcome }: AuditRecord): string | undefined {
  if (!input || mutates || tool.includes(".") || tool === "run_command") return undefined;
  const [path, query, glob, from, lines, depth, at] = [input.path, input.query, input.glob, input.startLine, input.maxLines, input.maxDepth, input.atSeq].map(text);
  const paths = Array.isArray(input.paths) ? input.paths.map(String) : [];
  const start = Number(from ?? 1);
  const range = from === undefined && lines === undefined ? "" : `:${start}–${lines === undefined ? "" : start + Number(lines) - 1}`;
  const place = path === undefined || path === "." ? undefined : visiblePath(path);
  const only = [text(input.includeGlob), text(input.excludeGlob) && `not ${text(input.excludeGlob)}`].filter(Boolean).join(", ");
  const what = query !== undefined ? (input.mode === "regex" ? `/${query}/` : `"${query}"`) : glob !== undefined ? visiblePath(glob)
    : paths.length ? paths.slice(0, MOST).map(visiblePath).join(", ") + (paths.length > MOST ? ` and ${paths.length - MOST} more` : "")
    : `${place ?? (outcome === "ok" || path === "." ? "." : "")}${range}`;
  const isSearch = query !== undefined || glob !== undefined;
  return [what, isSearch && place && `in ${place}`, only && `(${only})`, depth && `depth ${depth}`, at && `at record ${at}`].filter(Boolean).join(" ") || undefined;
}

/** What a record is about, in a few words. */
export function subject(record: AuditRecord): string {
  if (record.input?.summary) return record.input.summary;
  if (record.runId === "_service" && typeof record.input?.name === "string") return record.input.name;
  const looked = lookedFor(record);
  if (looked) return looked;
  if (record.tool === "move_file" && record.files.length === 2) {
    const [from, to] = record.files[0].newSha256 ? [record.files[1], record.files[0]] : record.files;
    return `${visiblePath(from.path)} → ${visiblePath(to.path)}`;
  }
  const read = record.pathsRead.filter((path, _, all) => path !== "." || all.length === 1);
  const paths = record.pathsWritten.length ? record.pathsWritten : read.length ? read : record.files.map(({ path }) => path);
  // A refused path is named among the reasons.
  if (!paths.length) return record.reasons.find((reason) => reason.startsWith("path: "))?.slice(6) ?? "";
  const names = paths.slice(0, MOST).map(visiblePath).join(", ");
  return paths.length > MOST ? `${names} and ${paths.length - MOST} more` : names;
}
