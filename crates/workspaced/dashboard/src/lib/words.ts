/** What the service names by codes, in the words of a reviewer. */

import type { Approval } from "./types.ts";

const RULES = new Map([
  ["touchesLockfile", "changes a lock file"], ["touchesBuildFile", "changes a build file"], ["touchesSecuritySensitivePath", "touches automation or access control"],
  ["deletesFile", "deletes a file"], ["changesPublicApi", "changes the public API"], ["deletesTest", "deletes a test"], ["weakensTest", "weakens a test"],
]);
const KINDS = new Map([
  ["LOCKFILE", "a lock file"], ["GENERATED", "a generated file"], ["VENDORED", "a vendored file"], ["BINARY", "a binary file"], ["SECRET_LIKE", "a file that may hold secrets"],
  ["TEXT_SOURCE", "source"], ["TEXT_CONFIG", "configuration"], ["TEXT_DOC", "documentation"], ["UNKNOWN", "a file of unknown kind"],
]);
const VERDICTS = new Map([["REQUIRE_APPROVAL", "approval"], ["REQUIRE_EVIDENCE", "evidence of a check"], ["REDACT", "hidden"], ["DENY", "blocked"]]);
/** The kinds of files by what a policy does with them, in words: `lock files: approval`. */
export function kindsInWords(kinds: Record<string, string>): string[] {
  return Object.entries(kinds).filter(([, verdict]) => verdict !== "ALLOW").map(([kind, verdict]) => `${kindInWords(kind).replace(/(?<=file|link|folder|submodule)$/, "s")}: ${VERDICTS.get(verdict) ?? verdict}`);
}
const OTHER_KINDS = new Map([["DIRECTORY", "a folder"], ["GIT_INTERNAL", "what git keeps"], ["SUBMODULE", "a submodule"], ["SYMLINK", "a link"], ["SPECIAL", "what is no file"]]);
/** The kind of a file in words. */
export const kindInWords = (kind: string): string => (KINDS.get(kind) ?? OTHER_KINDS.get(kind) ?? kind).replace(/^an? (?=\w+ file$|folder$|link$|submodule$)/, "").replace(/^a file that /, "");
/** A name of the API in words: `maxFilesTouched` as `files touched`. */
export const nameInWords = (name: string): string => name.replace(/^max(?=[A-Z])/, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).trim();
const DECISIONS = new Map([["ALLOW", "allowed by policy"], ["REQUIRE_APPROVAL", "needs approval"], ["DENY", "blocked by policy"]]);
export const decisionInWords = (decision: string): string => DECISIONS.get(decision) ?? decision;
const COUNTS = new Map([["denied", "blocked or denied"], ["refused", "not done"], ["failed", "service errors"]]);
/** A count of a report in words: `6 not done`. */
export function countInWords(name: string, number: number): string {
  const words = COUNTS.get(name) ?? nameInWords(name);
  return number === 1 ? words.replace(/s\b/, "") : words;
}
const LIMITS = new Map([["maxFilesTouched", "many files"], ["maxInsertions", "many added lines"], ["maxDeletions", "many removed lines"], ["maxFilesDeleted", "many deleted files"], ["maxBytes", "many bytes"]]);

/** Returns a rule in words; a rule without words as it is. */
export function ruleInWords(rule: string): string {
  const [kind, ...rest] = rule.split(":");
  const name = rest.join(":");
  if (kind === "requireApprovalIf") return RULES.get(name) ?? rule;
  if (kind === "kind") return `changes ${KINDS.get(name) ?? OTHER_KINDS.get(name) ?? name}`;
  if (kind === "fileBudget" || kind === "budget" || kind === "runBudget") return LIMITS.has(name) ? `has ${LIMITS.get(name)}` : rule;
  if (kind === "evidence") return `has ${name === "missing" ? "no" : name} evidence of a check`;
  if (rule === "approval:denied") return "a reviewer denied it";
  if (kind === "ask") return `changes ${name}`;
  if (rule === "ignored") return "changes a file that git ignores";
  if (kind === "commands") return name.startsWith("ask:") ? `runs \`${name.slice(4)}\`` : "runs a command that no rule permits";
  return rule;
}

/** Returns the rules in words, each once: the kind of a file and the property of a change often say the same. */
export const rulesInWords = (rules: string[]): [words: string, rule: string][] => {
  const found = new Map<string, string>();
  for (const rule of rules) found.set(ruleInWords(rule), found.has(ruleInWords(rule)) ? `${found.get(ruleInWords(rule))}, ${rule}` : rule);
  return [...found];
};

/** The paths of an approval. An entry that is damaged is shown as that by the table of versions, and takes nothing else with it. */
export const pathsOf = ({ files }: Approval): string[] => files.flatMap((file: Approval["files"][number] | null) => (file ? [file.path] : []));

/** The files that a change which waits is about, without those that have changed since: that was another change. */
export const ownPaths = (approval: Approval): string[] =>
  approval.state === "pending" ? pathsOf(approval).filter((path) => !approval.present?.some((now) => now.path === path && now.isExpected === false)) : [];

const VERBS = new Map([["create", "Create"], ["replace", "Change"], ["delete", "Delete"], ["move", "Move"]]);

/** Returns what an approval would do, in two words before the path: `Change`, `Delete`, `Run`. */
export function verbOf({ tool, files }: Approval): string {
  if (tool === "run_command") return "Run a command";
  const operations = new Set(files.map(({ operation }) => operation));
  const verb = operations.size === 1 ? (VERBS.get([...operations][0]) ?? "Change") : "Change";
  return files.length > 1 ? `${verb} ${files.length} files` : verb;
}

/** Whether the run ended before an approval was decided. */
export const hasEndedUndecided = ({ state, decidedBy }: Pick<Approval, "state" | "decidedBy">): boolean => state === "failed" && !decidedBy;

/** Returns how an approval ended, without its note. */
export function resolutionOf({ state, resolution, note, decidedBy }: Approval): string {
  if (hasEndedUndecided({ state, decidedBy })) return "not decided: the run ended";
  if (resolution === "failed: RUN_CLOSED") return "not applied: the run ended";
  const text = resolution ?? state;
  return note && text.endsWith(`: ${note}`) ? text.slice(0, -note.length - 2) : text;
}

/** Returns how an approval ended, as a sentence: why it cannot be decided any more. */
export function endInWords({ state, decidedBy, onBehalfOf, approvedBy }: Approval): string {
  if (hasEndedUndecided({ state, decidedBy })) return approvedBy?.length ? "The run ended before enough persons had approved." : "The run ended before anybody decided.";
  if (state === "expired") return "Nobody decided in time.";
  return `${onBehalfOf ?? decidedBy ?? "Somebody"} has already ${state === "denied" ? "denied" : "approved"} it.`;
}

/** The names under which orchestrators label what a run is for. */
const TASK = ["ticket", "issue", "task", "pr"];
const named = (labels: Record<string, string>, names: string[]): string | undefined => names.map((name) => (Object.hasOwn(labels, name) ? labels[name] : undefined)).find(Boolean);

export const taskOf = (labels: Record<string, string>): string | undefined => named(labels, TASK);
/** The agent and its model: `refund-bot · sonnet-x`. */
export const agentOf = ({ agent, model }: Record<string, string>): string | undefined => [agent, model].filter(Boolean).join(" · ") || undefined;
export const repositoryOf = (labels: Record<string, string>): string | undefined => named(labels, ["repository", "repo"]);
