/** The steps of a run: its records in order, grouped by what the agent says it was about. */

import { endOf, isDeniedByPerson } from "./acts.ts";
import { commandOf, isFailed } from "./command.ts";
import { type Approval, type AuditRecord, madeBy } from "./types.ts";

export interface Step {
  name: string;
  /** The number of its first record, which identifies it. */
  first: number;
  reads: number; changes: number; waiting: number; commands: number;
  /** Calls that did not succeed; of these, those that policy blocked and that people denied. */
  refused: number; blocked: number; denied: number;
  /** Whether its last command or test has failed; undefined without one. */
  isFailed?: boolean;
  /** Changes since then, of anybody, until the next command of the run. */
  changedSince: number;
  /** How many records it has. */
  records: number;
  startedAt: string; endedAt: string;
}
export type Item = { step: Step } | { seq: number };

/** What runners do for a call that has a record of its own: they fetch the files, and report how its command ended. */
const isOfRunner = (record: AuditRecord): boolean => record.tool === "archive" || commandOf(record)?.toolCallId !== undefined;

/** Whether a record is that of a person who looked at something: reading a run leaves such records. */
export const isReadOfPerson = (record: Pick<AuditRecord, "outcome" | "mutates" | "by" | "actor" | "tool">): boolean =>
  record.outcome === "ok" && !record.mutates && madeBy(record) === "operator" && !record.tool.includes(".");

/** Whether a person has changed files by a call of their own. It belongs to no step of the agent. */
export const isEditOfPerson = (record: AuditRecord): boolean => record.outcome === "ok" && record.mutates && madeBy(record) === "operator" && !record.tool.includes(".");

/** Whether a record is not part of the story: what a person looked at, what runners do, and uploads, which the event that names them shows. */
export const isAside = (record: AuditRecord): boolean =>
  isReadOfPerson(record) || (record.outcome === "ok" && !record.mutates && (record.tool === "artifact.upload" || isOfRunner(record)));

const count = (step: Step, record: AuditRecord, stateOf: StateOf): void => {
  step.endedAt = record.timestamp;
  step.records += 1;
  const command = commandOf(record);
  const state = stateOf(record) ?? "pending";
  if (command && record.outcome !== "pending") [step.commands, step.isFailed] = [step.commands + 1, isFailed(command)];
  else if (record.outcome === "pending" && state === "pending") step.waiting += 1;
  else if (record.outcome === "pending" && state === "approved") step.changes += 1;
  else if (record.outcome !== "ok") {
    step.refused += 1;
    if (state === "denied" || isDeniedByPerson(record)) step.denied += 1;
    else if (endOf(record).state === "blocked") step.blocked += 1;
  }
  else if (record.mutates) step.changes += 1;
  else if (!record.tool.includes(".")) step.reads += 1;
};

/** What became of a call that waited, once that is known. */
type StateOf = (record: AuditRecord) => Approval["state"] | undefined;

/** Groups consecutive records of one step. A record without a step stands by itself, and ends none. */
export function itemsOf(records: AuditRecord[], folded: Set<number>, stateOf: StateOf = () => undefined): Item[] {
  const items: Item[] = [];
  let step: Step | undefined;
  let tested: Step | undefined;
  for (const record of records) {
    const isOwn = isEditOfPerson(record);
    if (!isOwn && record.stepId !== undefined && record.stepId !== null && record.stepId !== step?.name) {
      step = { name: record.stepId, first: record.seq, reads: 0, changes: 0, refused: 0, blocked: 0, denied: 0, waiting: 0, commands: 0, changedSince: 0, records: 0, startedAt: record.timestamp, endedAt: record.timestamp };
      items.push({ step });
    }
    const isOfStep = step !== undefined && !isOwn && record.stepId === step.name;
    if (isOfStep) count(step!, record, stateOf);
    if (commandOf(record) && record.outcome !== "pending") {
      tested = isOfStep ? step : undefined;
      if (tested) tested.changedSince = 0;
    } else if (tested && record.mutates && record.outcome === "ok") tested.changedSince += 1;
    if (!isOfStep || !folded.has(step!.first)) items.push({ seq: record.seq });
  }
  return items;
}
