/** What the dashboard reads of the API: the shapes of `openapi/workspaced.json`, as far as they are shown. */

export type Scope = "orchestrate" | "approve" | "audit" | "metrics";
export interface Operator { name: string; scopes: Scope[] }
export interface Node { nodeId: string; incarnation: number; url: string; startedAt: string; isAlive: boolean; isThis: boolean; ownedRuns: number }
export interface Page<T> { items: T[]; nextCursor?: string }

export type RunState = "preparing" | "open" | "awaiting_approval" | "closed" | "deleted";
export interface Policy {
  profile: string; read: string[]; write: string[]; deny: string[]; ask?: string[]; kinds: Record<string, string>;
  budget: Record<string, number>; runBudget?: Record<string, number> | null; quota?: Record<string, number>;
  requireApprovalIf: string[]; approval?: { approvers?: number; notCreator?: boolean };
}
export interface Source { type: string; url?: string; ref?: string; path?: string; runId?: string; atSeq?: number }
export interface Run {
  runId: string; state: RunState; createdAt: string; createdBy?: string; closedAt?: string; expiresAt?: string;
  baseCommit?: string; source: Source; policy: Policy;
  parent?: { runId: string; seq: number; hash: string; source: Source; mergedSeq?: number };
  /** Lists of runs have none. */
  forks?: { runId: string; atSeq: number; state: RunState; mergedSeq?: number }[]; moreForks?: boolean;
  labels: Record<string, string>; disk: { bytes: number; files: number };
  counts: { calls: number; mutations: number; denied: number; pendingApprovals: number; insertions: number; deletions: number };
  archivedAt?: string; lastActivityAt?: string; repository?: string; prompt?: string;
  people: { calls: number; mutations: number };
  headSeq: number; headHash: string;
}

/** The answer to a merge: what it applies, or that a person must approve it. */
export interface Merged { code?: string; detail?: string; approvalId?: string; applied?: string[]; merged?: string[]; insertions?: number; deletions?: number }

/** A version of a file in one of two runs that are compared. */
export interface ComparedVersion { sha256: string; mode: string }
export interface ComparedFile { path: string; status: "same" | "different" | "onlyFirst" | "onlySecond" | "neither"; first?: ComparedVersion; second?: ComparedVersion }
export interface Comparison { files: ComparedFile[]; nextAfter?: string }

/** The number of a run's changes: what depends on its files is read again when it grows. */
export const changesOf = ({ counts, people }: Run): number => counts.mutations + people.mutations;

export interface RecordFile { path: string; kind: string; oldSha256?: string; newSha256?: string }
export type Outcome = "ok" | "refused" | "pending" | "failed";
export interface AuditRecord {
  runId: string; seq: number; toolCallId: string; stepId?: string; tool: string; format?: string; timestamp: string; actor: string; by?: "agent" | "operator" | "service";
  mutates: boolean; reason?: string; reasons: string[]; pathsRead: string[]; pathsWritten: string[]; files: RecordFile[];
  decision: "ALLOW" | "REQUIRE_APPROVAL" | "DENY"; outcome: Outcome; code?: string; durationMicros: number;
  artifactUris: string[]; diffSha256?: string; requestId?: string; traceId?: string; prevHash: string; hash: string;
  input?: { summary?: string; data?: unknown; [member: string]: unknown };
  evidence?: { eventId: string };
}

/** Whose call a record is, also one of an earlier version. */
export const madeBy = ({ by, actor }: Pick<AuditRecord, "by" | "actor">): string => by ?? (actor.startsWith("run-token:") ? "agent" : actor.startsWith("operator:") ? "operator" : "service");

/** What the record of a command says of it. */
export interface CommandData {
  command?: string; argv?: string[]; cwd?: string; outputRefused?: string; exitCode?: number; signal?: number; timedOut?: boolean; output?: string; outputSha256?: string;
  eventSeq?: number; changeSeq?: number; changeCode?: string; outputOf?: string;
  /** The call that a runner ran it for. */
  toolCallId?: string;
}

/** What speaks against a change, as the service tells it. */
export interface Warning {
  code: string; severity: "info" | "doubt" | "danger"; path?: string; line?: number; text: string;
  /** The earlier approval and its note, where the same change was denied before. */
  approvalId?: string; note?: string;
}

export interface Approval {
  approvalId: string; runId: string; toolCallId: string; tool: string; reason: string; actor: string;
  state: "pending" | "approved" | "denied" | "expired" | "failed"; reasons: string[];
  /** Lists have no diffs. */
  diff?: string;
  files: { path: string; operation: string; oldSha256?: string; newSha256?: string; insertions: number; deletions: number }[];
  /** The most severe first. */
  warnings: Warning[];
  /** Of a single approval that waits: false if a file has changed and the change cannot follow. */
  canApply?: boolean;
  createdAt: string; expiresAt: string; decidedBy?: string; onBehalfOf?: string; note?: string;
  resolution?: string; votes: { operator: string; onBehalfOf?: string }[];
  approvers: number; approvedBy: string[]; notCreator: boolean; decidedSeq?: number;
  /** The files as they are now, of a single approval that waits. */
  present?: { path: string; exists: boolean; sha256?: string; isExpected?: boolean | null }[];
  /** The record of the reviewer's own change upon it. */
  editedSeq?: number;
}

/** Numbers of records; each is counted in `records` and in one of the members up to `failed`. */
export interface StatsCounts { records: number; reads: number; changes: number; commands: number; other: number; refused: number; pending: number; failed: number; denied: number; deniedByPerson: number }
export interface Stats { total: StatsCounts; hours: ({ hour: string } & StatsCounts)[]; reasons: { outcome: string; reason: string; records: number }[] }

export interface RunChange {
  seq: number; toolCallId: string; tool: string; timestamp: string;
  files: { path: string; change: string; kind: string; oldSha256?: string; newSha256?: string }[];
}
export interface ChangeList { items: RunChange[]; more: boolean; nextSince: number }

export interface WorkspaceDiff {
  baseCommit: string; filesChanged: number; insertions: number; deletions: number; diff: string; truncated: boolean;
  nextPath?: string; files: { path: string; status: string; insertions: number; deletions: number }[];
}
export interface TreeEntry { path: string; type: string; kind?: string; sizeBytes?: number; readable: boolean; reason?: string }
export interface FileText { content: string; totalLines: number; endLine: number; truncated: boolean; nextStartLine?: number; sha256: string }

export interface Report {
  counts: Record<string, number>;
  budgets: { name: string; used: number; limit?: number }[];
  diff?: { filesChanged: number; insertions: number; deletions: number; diffSha256: string; files: { path: string; status: string; insertions: number; deletions: number }[]; moreFiles: number };
  files: { path: string; kind?: string; reads: number; writes: number; refused: number; lastSeq: number }[];
  moreFiles: number;
  verification?: { intact: boolean; verifiedSeq: number; checkpointedSeq: number };
  commands: { seq: number; tool: string; summary: string; exitCode?: number; isCurrent: boolean; notAppliedSeq?: number; isAttested: boolean; treeSha256?: string }[];
  moreCommands: number;
  approvals: { approvalId: string; tool: string; state: Approval["state"]; reason?: string; paths: string[]; decidedBy?: string; onBehalfOf?: string; editedSeq?: number; note?: string }[];
  lastAt?: string;
}
