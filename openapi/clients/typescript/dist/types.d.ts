export type Accept = "tree" | "ledger";
export interface AppendEventRequest {
    data?: unknown;
    durationMicros?: number | null;
    eventId?: string | null;
    kind: EventKind;
    startedAt?: string | null;
    stepId?: string | null;
    summary: string;
}
export interface AppendEventsRequest {
    events: Array<AppendEventRequest>;
}
export interface AppendedEvent {
    eventId: ToolCallId;
    headHash: Sha256;
    ok: boolean;
    seq: number;
}
export interface AppendedEvents {
    events: Array<AppendedEvent>;
    ok: boolean;
}
export interface AppliedChangeset {
    applied: Array<LogicalPath>;
    deletions: number;
    eventSeq?: number | null;
    insertions: number;
    left: Array<LeftFile>;
    merged: Array<LogicalPath>;
    mergedSeq?: number | null;
    notTaken: {
        [name: string]: number;
    };
}
export interface ApplyChangesetRequest {
    basedOnSeq: number;
    changesetId?: string | null;
    command?: CommandReport | null;
    dryRun?: boolean;
    onConflict?: OnConflict;
    onDenied?: OnDenied;
    reason: string;
    stepId?: string | null;
}
export interface ApplyPatchInput {
    dryRun?: boolean;
    encoding?: string | null;
    evidence?: ApplyPatchInputEvidence;
    expectedBaseCommit?: string | null;
    expectedSha256?: {
        [name: string]: ExpectedVersion;
    };
    patch: string;
    reason: string;
    stepId?: string;
    toolCallId?: string;
}
export interface ApplyPatchInputEvidence {
    eventId: string;
}
export interface ApplyPatchOutput {
    applied: boolean;
    artifactUris: Array<string>;
    deletions: number;
    dryRun: boolean;
    files: Array<PatchedFile>;
    filesTouched: Array<LogicalPath>;
    headHash: string;
    insertions: number;
    newWorkspaceDiffSha256?: Sha256 | null;
    notices?: Array<string>;
    ok: true;
    seq: number;
    summary: string;
    toolCallId: string;
    warnings: Array<string>;
}
export interface Approval {
    actor: string;
    approvalId: ApprovalId;
    approvedBy: Array<OperatorName>;
    approvers: number;
    createdAt: string;
    decidedBy?: string | null;
    decidedSeq?: number | null;
    diff?: string | null;
    editedSeq?: number | null;
    expiresAt: string;
    files: Array<ApprovalFile>;
    notCreator: boolean;
    note?: string | null;
    onBehalfOf?: string | null;
    reason: string;
    reasons: Array<string>;
    resolution?: string | null;
    runId: RunId;
    state: ApprovalState;
    tool: string;
    toolCallId: ToolCallId;
    votes: Array<ApprovalVote>;
    warnings: Array<ApprovalWarning>;
}
export interface ApprovalDecision {
    decidedBy?: string | null;
    edits?: Array<ApprovalEdit>;
    note?: string | null;
    onBehalfOf?: string | null;
}
export interface ApprovalEdit {
    newString: string;
    oldString: string;
    path: string;
}
export interface ApprovalFile {
    deletions: number;
    insertions: number;
    newSha256?: Sha256 | null;
    oldSha256?: Sha256 | null;
    operation: string;
    path: LogicalPath;
}
export interface ApprovalFileLines {
    atSeq: number;
    content: string;
    endLine: number;
    nextStartLine?: number | null;
    ok: boolean;
    path: string;
    startLine: number;
    toolCallId: string;
    totalLines: number;
    truncated: boolean;
}
export type ApprovalId = string;
export interface ApprovalResult {
    actor: string;
    approvalId: ApprovalId;
    approvedBy: Array<OperatorName>;
    approvers: number;
    createdAt: string;
    decidedBy?: string | null;
    decidedSeq?: number | null;
    diff?: string | null;
    editedSeq?: number | null;
    expiresAt: string;
    files: Array<ApprovalFile>;
    notCreator: boolean;
    note?: string | null;
    onBehalfOf?: string | null;
    reason: string;
    reasons: Array<string>;
    resolution?: string | null;
    runId: RunId;
    state: ApprovalState;
    tool: string;
    toolCallId: ToolCallId;
    votes: Array<ApprovalVote>;
    warnings: Array<ApprovalWarning>;
    headHash?: Sha256 | null;
    seq?: number | null;
}
export interface ApprovalRule {
    approvers?: number;
    notCreator?: boolean;
}
export interface ApprovalRuleOverrides {
    approvers?: number | null;
    notCreator?: boolean | null;
}
export type ApprovalState = "pending" | "approved" | "denied" | "expired" | "failed";
export interface ApprovalVote {
    onBehalfOf?: string | null;
    operator: OperatorName;
}
export interface ApprovalWarning {
    approvalId?: ApprovalId | null;
    code: WarningCode;
    line?: number | null;
    note?: string | null;
    path?: LogicalPath | null;
    severity: Severity;
    text: string;
}
export type ArtifactId = string;
export interface AuditRecord {
    actor: string;
    artifactUris: Array<string>;
    by?: By | null;
    code?: Code | null;
    decision: Verdict;
    diffSha256?: Sha256 | null;
    durationMicros: number;
    evidence?: Evidence | null;
    files: Array<RecordFile>;
    format?: string | null;
    hash?: Sha256;
    input?: {
        [name: string]: unknown;
    } | null;
    left?: Array<LeftEntry>;
    leftCount?: number | null;
    mutates: boolean;
    outcome: Outcome;
    pathsRead: Array<LogicalPath>;
    pathsWritten: Array<LogicalPath>;
    prevHash: Sha256;
    reason?: string | null;
    reasons: Array<string>;
    requestId?: string | null;
    runId: string;
    seq: number;
    stepId?: string | null;
    timestamp: string;
    tool: string;
    toolCallId: ToolCallId;
    traceId?: string | null;
}
export interface AuditVerification {
    archivedRecords?: number;
    discontinuity?: ChainBreak | null;
    firstBreak?: ChainBreak | null;
    headHash: Sha256;
    headSeq: number;
    intact: boolean;
    missingDiffs?: number;
    records: number;
    runId: RunId;
    checkpointedSeq: number;
}
export interface BatchCall {
    input?: {
        [name: string]: unknown;
    };
    tool: string;
}
export interface BatchRequest {
    atomic?: boolean;
    calls: Array<BatchCall>;
    stopOnError?: boolean;
}
export interface BatchResponse {
    failedCall?: number | null;
    ok: boolean;
    results: Array<BatchResult>;
    skipped: number;
}
export interface BatchResult {
    answer: {
        [name: string]: unknown;
    };
    status: number;
    tool: string;
}
export interface Budget {
    maxBytes?: number;
    maxDeletions?: number;
    maxFilesDeleted?: number;
    maxFilesTouched?: number;
    maxInsertions?: number;
}
export interface BudgetAmounts {
    bytes?: number | null;
    deletions?: number | null;
    filesDeleted?: number | null;
    filesTouched?: number | null;
    insertions?: number | null;
}
export interface BudgetOverrides {
    maxBytes?: number | null;
    maxDeletions?: number | null;
    maxFilesDeleted?: number | null;
    maxFilesTouched?: number | null;
    maxInsertions?: number | null;
}
export interface BundleLimits {
    maxAuthorCharacters: number;
    maxMessageBytes: number;
}
export type By = "agent" | "operator" | "service";
export interface ChainBreak {
    problem: string;
    seq: number;
}
export interface ChainReport {
    archivedRecords?: number;
    discontinuity?: ChainBreak | null;
    firstBreak?: ChainBreak | null;
    headHash: Sha256;
    headSeq: number;
    intact: boolean;
    missingDiffs?: number;
    records: number;
    runId: RunId;
}
export interface ChangeList {
    items: Array<RunChange>;
    more: boolean;
    nextSince: number;
}
export interface ChangedFile {
    change: string;
    kind: FileKind;
    newSha256?: Sha256 | null;
    oldSha256?: Sha256 | null;
    path: LogicalPath;
}
export interface ChangesetAnswer {
    applied: Array<LogicalPath>;
    deletions: number;
    eventSeq?: number | null;
    insertions: number;
    left: Array<LeftFile>;
    merged: Array<LogicalPath>;
    mergedSeq?: number | null;
    notTaken: {
        [name: string]: number;
    };
    artifactUris: Array<string>;
    headHash: string;
    ok: boolean;
    seq: number;
    summary: string;
    toolCallId: string;
    warnings: Array<string>;
}
export interface ChangesetParts {
    changeset: string;
    layer: string;
}
export interface CheckpointLeaf {
    headHash: Sha256;
    headSeq: number;
    runId: string;
}
export type Code = "BODY_TOO_LARGE" | "UNAUTHENTICATED" | "FORBIDDEN" | "RATE_LIMITED" | "RUN_NOT_FOUND" | "TOOL_NOT_FOUND" | "INVALID_REQUEST" | "PATCH_INVALID" | "PRECONDITION_REQUIRED" | "TOOL_CALL_ID_REUSED" | "IDEMPOTENCY_KEY_REUSED" | "PATH_REJECTED" | "RUN_CLOSED" | "RUN_NEEDS_REPAIR" | "BASE_COMMIT_MISMATCH" | "POLICY_DENIED_SECRET" | "POLICY_DENIED" | "NOT_FOUND" | "ALREADY_EXISTS" | "NOT_A_DIRECTORY" | "NOT_A_FILE" | "FILE_TOO_LARGE" | "UNSUPPORTED_BINARY" | "WRITE_CONFLICT" | "PATCH_CONFLICT" | "EDIT_NOT_FOUND" | "EDIT_NOT_UNIQUE" | "REVERT_CONFLICT" | "CHANGED_OUTSIDE" | "PATCH_BUDGET_EXCEEDED" | "QUOTA_EXCEEDED" | "APPROVAL_REQUIRED" | "BATCH_NOT_DONE" | "UNAVAILABLE" | "INTERNAL";
export interface CommandChanges {
    applied?: Array<string>;
    approvalId?: string | null;
    code?: Code | null;
    deletions?: number;
    insertions?: number;
    left?: Array<LeftFile>;
    leftOut?: Array<LeftOutEntry>;
    leftOutCount?: number;
    merged?: Array<string>;
    message?: string | null;
    notTaken?: {
        [name: string]: number;
    };
    seq?: number | null;
    toolCallId?: string | null;
}
export interface CommandOrder {
    command: string;
    commandId: string;
    cwd: string;
    reason?: string | null;
    shell?: CommandShell;
    timeoutSeconds: number;
}
export interface CommandOverrides {
    allow?: Array<string> | null;
    ask?: Array<string> | null;
    deny?: Array<string> | null;
    maxCalls?: number | null;
    others?: Verdict | null;
    timeoutSeconds?: number | null;
}
export interface CommandPolicy {
    allow?: Array<string>;
    ask?: Array<string>;
    deny?: Array<string>;
    maxCalls: number;
    others: Verdict;
    timeoutSeconds: number;
}
export interface CommandReport {
    argv: Array<string>;
    cwd?: string | null;
    differs?: Array<string>;
    differsCount?: number | null;
    durationMicros?: number | null;
    environment?: {
        [name: string]: unknown;
    };
    exitCode?: number | null;
    outputRefused?: string | null;
    outputSha256?: Sha256 | null;
    startedAt?: string | null;
}
export interface CommandResultAnswer {
    changes?: CommandChanges | null;
    eventSeq?: number | null;
    ok: boolean;
    rejected?: Array<string>;
}
export interface CommandResultParts {
    layer?: string | null;
    result: string;
}
export interface CommandResultRequest {
    basedOnSeq?: number | null;
    differs?: Array<string>;
    differsCount?: number;
    durationMicros?: number;
    environment?: {
        [name: string]: unknown;
    };
    error?: string | null;
    exitCode?: number | null;
    leftOut?: Array<LeftOutEntry>;
    leftOutCount?: number;
    noFolder?: boolean;
    notSent?: string | null;
    onConflict?: OnConflict;
    onDenied?: OnDenied;
    output?: string;
    outputLines?: number;
    outputSha256?: Sha256 | null;
    outputStartCut?: boolean;
    putAside?: Array<string>;
    putAsideCount?: number;
    runner: string;
    signal?: number | null;
    startedAt?: string | null;
    timedOut?: boolean;
    warning?: string | null;
}
export type CommandShell = "sh" | "bash";
export interface CommentRequest {
    line?: number | null;
    onBehalfOf?: string | null;
    path?: string | null;
    text: string;
}
export interface ComparedFile {
    first?: ComparedVersion | null;
    path: LogicalPath;
    second?: ComparedVersion | null;
    status: ComparedStatus;
}
export interface ComparedRun {
    baseCommit?: string | null;
    budgets: Array<ReportBudget>;
    counts: RunCounts;
    headHash: Sha256;
    headSeq: number;
    runId: RunId;
    state: RunState;
    tests: Array<ReportCommand>;
}
export type ComparedStatus = "same" | "different" | "onlyFirst" | "onlySecond" | "neither";
export interface ComparedVersion {
    mode: string;
    sha256: Sha256;
}
export interface Conflict {
    appliesAt?: Array<number>;
    expected: string;
    found: string;
    hunk: number;
    line: number;
    path: string;
    reason: string;
}
export interface ConflictRegion {
    base: string;
    current: string;
    line: number;
    new: string;
}
export interface ConsistencyProof {
    from: number;
    proof: Array<Sha256>;
    to: number;
}
export interface CreateOperatorRequest {
    expiresAt?: string | null;
    name: string;
    scopes: Array<Scope>;
}
export interface CreateRunRequest {
    labels?: {
        [name: string]: string;
    } | null;
    mounts?: Array<MountRequest> | null;
    policy?: PolicyOverrides | null;
    runId?: RunId | null;
    source: Source;
    ttlSeconds?: number | null;
}
export interface CreatedOperator {
    createdAt?: string | null;
    createdBy?: string | null;
    expiresAt?: string | null;
    name: OperatorName;
    revokedAt?: string | null;
    scopes: Array<Scope>;
    token: string;
}
export interface CreatedRun {
    run: Run;
    token: IssuedToken;
}
export interface CurrentApproval {
    actor: string;
    approvalId: ApprovalId;
    approvedBy: Array<OperatorName>;
    approvers: number;
    createdAt: string;
    decidedBy?: string | null;
    decidedSeq?: number | null;
    diff?: string | null;
    editedSeq?: number | null;
    expiresAt: string;
    files: Array<ApprovalFile>;
    notCreator: boolean;
    note?: string | null;
    onBehalfOf?: string | null;
    reason: string;
    reasons: Array<string>;
    resolution?: string | null;
    runId: RunId;
    state: ApprovalState;
    tool: string;
    toolCallId: ToolCallId;
    votes: Array<ApprovalVote>;
    warnings: Array<ApprovalWarning>;
    canApply?: boolean | null;
    present?: Array<PresentVersion> | null;
}
export interface Degradation {
    detail: string;
    hint: string;
    what: string;
}
export interface DeleteFileInput {
    dryRun?: boolean;
    evidence?: DeleteFileInputEvidence;
    expectedSha256?: ExpectedVersion | null;
    path: string;
    reason: string;
    recursive?: boolean;
    stepId?: string;
    toolCallId?: string;
}
export interface DeleteFileInputEvidence {
    eventId: string;
}
export interface DeleteFileOutput {
    artifactUris: Array<string>;
    files?: Array<DeletedFile>;
    headHash: string;
    notices?: Array<string>;
    ok: true;
    oldSha256?: Sha256 | null;
    path: LogicalPath;
    seq: number;
    summary: string;
    toolCallId: string;
    warnings: Array<string>;
}
export interface DeletedFile {
    deletions: number;
    insertions: number;
    oldSha256: Sha256;
    operation: string;
    path: LogicalPath;
}
export type DeliveryState = "pending" | "delivered" | "failed";
export interface DiffFile {
    binary: boolean;
    deletions: number;
    encoding?: Encoding | null;
    encodingGuessed?: boolean;
    insertions: number;
    newSha256?: Sha256 | null;
    oldSha256?: Sha256 | null;
    path: string;
    status: string;
}
export interface DiffWorkspaceInput {
    atSeq?: number | null;
    checkTree?: boolean;
    maxBytes?: number;
    maxChars?: number | null;
    mount?: string;
    path?: string | null;
    statOnly?: boolean;
    stepId?: string;
    toolCallId?: string;
}
export interface DiffWorkspaceOutput {
    atSeq?: number | null;
    baseCommit: string;
    contentWithheld?: boolean;
    deletions: number;
    diff: string;
    diffSha256: Sha256;
    files: Array<DiffFile>;
    filesChanged: number;
    insertions: number;
    maxBytes?: number | null;
    nextPath?: string | null;
    notices?: Array<string>;
    ok: true;
    stat: string;
    toolCallId: string;
    treeChecked?: boolean | null;
    truncated: boolean;
    truncatedReason?: string | null;
    warnings?: Array<string>;
}
export interface Disk {
    bytes: number;
    files: number;
    historyBytes?: number;
    ownBytes?: number;
    ownFiles?: number;
}
export interface DriftEntry {
    actualSha256?: Sha256 | null;
    change: string;
    expectedSha256?: Sha256 | null;
    path: string;
}
export interface DriftReport {
    items: Array<DriftEntry>;
    truncated: boolean;
    written: number;
}
export interface EditFileInput {
    dryRun?: boolean;
    encoding?: string | null;
    evidence?: EditFileInputEvidence;
    expectedReplacements?: number | null;
    expectedSha256?: ExpectedVersion | null;
    newString: string;
    oldString: string;
    path: string;
    reason: string;
    replaceAll?: boolean;
    stepId?: string;
    toolCallId?: string;
}
export interface EditFileInputEvidence {
    eventId: string;
}
export type Encoding = "utf-8" | "utf-8-bom" | "utf-16le" | "utf-16be" | "windows-1252" | "windows-1250" | "windows-1251" | "windows-1253" | "windows-1254" | "windows-1255" | "windows-1256" | "windows-1257" | "windows-1258" | "windows-874" | "iso-8859-2" | "iso-8859-3" | "iso-8859-4" | "iso-8859-5" | "iso-8859-6" | "iso-8859-7" | "iso-8859-8" | "iso-8859-8-i" | "iso-8859-10" | "iso-8859-13" | "iso-8859-14" | "iso-8859-15" | "iso-8859-16" | "koi8-r" | "koi8-u" | "ibm866" | "macintosh" | "x-mac-cyrillic" | "shift_jis" | "euc-jp" | "euc-kr" | "gbk" | "gb18030" | "big5";
export interface Entry {
    kind?: FileKind | null;
    path: string;
    readable: boolean;
    reason?: string | null;
    redacted?: boolean;
    sizeBytes?: number | null;
    type: EntryType;
}
export type EntryType = "file" | "directory" | "symlink" | "other";
export type EventKind = "prompt" | "model" | "command" | "test" | "message" | "handoff" | "evidence" | "link";
export interface Evidence {
    eventId: ToolCallId;
}
export type ExpectedVersion = string;
export type FileKind = "TEXT_SOURCE" | "TEXT_CONFIG" | "TEXT_DOC" | "LOCKFILE" | "GENERATED" | "VENDORED" | "SECRET_LIKE" | "BINARY" | "DIRECTORY" | "GIT_INTERNAL" | "SUBMODULE" | "UNKNOWN";
export interface FindFilesInput {
    cursor?: string | null;
    glob: Array<string>;
    maxChars?: number | null;
    maxResults?: number;
    mount?: string;
    path?: string;
    sort?: "path" | "modified" | "size";
    stepId?: string;
    toolCallId?: string;
}
export interface FindFilesOutput {
    entries: Array<FoundFile>;
    nextCursor?: string | null;
    notShown?: NotShown;
    notes?: Array<string>;
    notices?: Array<string>;
    ok: true;
    toolCallId: string;
    totalEntries?: number | null;
    truncated: boolean;
    truncatedReason?: string | null;
    warnings?: Array<string>;
}
export interface Fork {
    atSeq: number;
    mergedSeq?: number | null;
    runId: RunId;
    state: RunState;
}
export interface ForkedFrom {
    hash: Sha256;
    mergedSeq?: number | null;
    runId: RunId;
    seq: number;
    source: Source;
}
export interface FoundFile {
    kind?: FileKind | null;
    modifiedAt: string;
    path: LogicalPath;
    readable: boolean;
    reason?: string | null;
    sizeBytes?: number | null;
    type: EntryType;
}
export type GitMode = "100644" | "100755" | "120000";
export interface Health {
    ok: boolean;
}
export interface HourStats {
    changes: number;
    commands: number;
    denied: number;
    deniedByPerson: number;
    failed: number;
    other: number;
    pending: number;
    reads: number;
    records: number;
    refused: number;
    hour: string;
}
export interface HunkOffset {
    hunk: number;
    offset: number;
}
export interface ImportProblem {
    code: Code;
    hint: string;
    message: string;
}
export interface ImportReport {
    bytes: number;
    error?: ImportProblem | null;
    files: number;
    leftOut: Array<SkippedEntry>;
    leftOutMore?: number;
    progress: string;
    resumed?: boolean;
}
export interface InclusionProof {
    checkpoint: string;
    leaf: CheckpointLeaf;
    leafIndex: number;
    nextSeq?: number | null;
    proof: Array<Sha256>;
    recordHash: Sha256;
    records: Array<AuditRecord>;
    seq: number;
    treeSize: number;
}
export interface IssueTokenRequest {
    expiresAt?: string | null;
    permissions?: Array<Permission> | null;
}
export interface IssuedToken {
    expiresAt?: string | null;
    permissions: Array<Permission>;
    token: string;
    tokenId: TokenId;
}
export type KindDecision = "ALLOW" | "REQUIRE_EVIDENCE" | "REQUIRE_APPROVAL" | "DENY" | "REDACT";
export interface LeftEntry {
    path: string;
    rule: string;
}
export interface LeftFile {
    path: string;
    rule: string;
}
export interface LeftOutEntry {
    path: string;
    why: string;
}
export interface Limits {
    bundle: BundleLimits;
    defaultBudget: Budget;
    requests: RequestLimits;
    service: ServiceLimits;
    tools: ToolLimits;
}
export type LineEnding = "lf" | "crlf" | "mixed" | "none";
export interface ListDirInput {
    atSeq?: number | null;
    cursor?: string | null;
    includeHidden?: boolean;
    includeIgnored?: boolean;
    maxChars?: number | null;
    maxDepth?: number;
    maxEntries?: number;
    mount?: string;
    path?: string;
    stepId?: string;
    toolCallId?: string;
}
export interface ListDirOutput {
    atSeq?: number | null;
    entries: Array<Entry>;
    nextCursor?: string | null;
    notShown?: NotShown;
    notices?: Array<string>;
    ok: true;
    path: LogicalPath;
    toolCallId: string;
    totalEntries?: number | null;
    truncated: boolean;
    truncatedReason?: string | null;
    warnings?: Array<string>;
}
export type LogicalPath = string;
export interface Match {
    after: Array<string>;
    before: Array<string>;
    column?: number;
    endLine?: number | null;
    kind: FileKind;
    line?: number;
    path: string;
    snippet: string;
}
export interface MergeRequest {
    dryRun?: boolean;
    from: RunId;
    onConflict?: OnConflict;
    onDenied?: OnDenied;
    reason: string;
}
export interface Mount {
    description: string;
    entries?: Array<string>;
    name: string;
}
export interface MountRequest {
    description: string;
    name: string;
    path: string;
}
export interface MoveFileInput {
    dryRun?: boolean;
    evidence?: MoveFileInputEvidence;
    expectedSha256?: ExpectedVersion | null;
    from: string;
    reason: string;
    recursive?: boolean;
    stepId?: string;
    to: string;
    toolCallId?: string;
}
export interface MoveFileInputEvidence {
    eventId: string;
}
export interface MoveFileOutput {
    artifactUris: Array<string>;
    files?: Array<MovedFile>;
    from: LogicalPath;
    headHash: string;
    notices?: Array<string>;
    ok: true;
    seq: number;
    sha256?: Sha256 | null;
    summary: string;
    to: LogicalPath;
    toolCallId: string;
    warnings: Array<string>;
}
export interface MovedFile {
    deletions: number;
    from: LogicalPath;
    insertions: number;
    operation: string;
    path: LogicalPath;
    sha256: Sha256;
}
export interface NearestText {
    difference: string;
    line: number;
}
export interface NextCommand {
    cancel?: string | null;
    command?: CommandOrder | null;
}
export interface NextCommandRequest {
    runner: string;
    running?: string | null;
    waitSeconds?: number | null;
}
export interface NodeView {
    incarnation: number;
    isAlive: boolean;
    isThis: boolean;
    nodeId: string;
    ownedRuns: number;
    startedAt: string;
    url: string;
}
export interface NotShown {
    binaryFiles?: number;
    generatedFiles?: number;
    generatedFolders?: number;
    hidden?: number;
    ignored?: number;
    moreSkipped?: number;
    unopenedFolders?: number;
    vendoredFiles?: number;
    vendoredFolders?: number;
}
export type OnConflict = "refuse" | "merge";
export type OnDenied = "refuse" | "leave";
export interface OneFile {
    actual?: number | null;
    content?: string | null;
    cutLine?: number | null;
    encoding?: Encoding | null;
    encodingGuessed?: boolean;
    gitLfsBytes?: number | null;
    limit?: number | null;
    lineEnding?: LineEnding | null;
    message?: string | null;
    nextColumn?: number | null;
    nextStartLine?: number | null;
    redacted?: boolean;
    sha256?: Sha256 | null;
    sizeBytes?: number | null;
    status: string;
    totalLines?: number | null;
    truncated?: boolean;
}
export interface Operator {
    createdAt?: string | null;
    createdBy?: string | null;
    expiresAt?: string | null;
    name: OperatorName;
    revokedAt?: string | null;
    scopes: Array<Scope>;
}
export type OperatorName = string;
export interface OperatorSelf {
    name: OperatorName;
    scopes: Array<Scope>;
}
export type Outcome = "ok" | "refused" | "pending" | "failed";
export type OutsideChanges = "REFUSE" | "RECORD";
export interface OwnRun {
    baseCommit?: string | null;
    closedAt?: string | null;
    createdAt: string;
    entries?: Array<Entry> | null;
    expiresAt?: string | null;
    mounts: Array<Mount>;
    notShown?: NotShown;
    policy: Policy;
    remaining: RunAmounts;
    runId: RunId;
    state: RunState;
    token: OwnToken;
    truncated?: boolean;
    usage: RunAmounts;
}
export interface OwnToken {
    expiresAt?: string | null;
    permissions: Array<Permission>;
    tokenId: TokenId;
}
export interface Page_Approval {
    items: Array<Approval>;
    nextCursor?: string | null;
}
export interface Page_AuditRecord {
    items: Array<AuditRecord>;
    nextCursor?: string | null;
}
export interface Page_NodeView {
    items: Array<NodeView>;
    nextCursor?: string | null;
}
export interface Page_Operator {
    items: Array<Operator>;
    nextCursor?: string | null;
}
export interface Page_Run {
    items: Array<Run>;
    nextCursor?: string | null;
}
export interface Page_RunToken {
    items: Array<RunToken>;
    nextCursor?: string | null;
}
export interface Page_WebhookDelivery {
    items: Array<WebhookDelivery>;
    nextCursor?: string | null;
}
export interface Page_WebhookView {
    items: Array<WebhookView>;
    nextCursor?: string | null;
}
export interface PatchedFile {
    deletions: number;
    from?: LogicalPath | null;
    insertions: number;
    newSha256?: Sha256 | null;
    offsets: Array<HunkOffset>;
    oldSha256?: Sha256 | null;
    operation: string;
    path: LogicalPath;
}
export interface PathExplanation {
    kind: FileKind;
    mutate: PolicyDecision;
    path: LogicalPath;
    read: PolicyDecision;
}
export interface PeopleCounts {
    calls: number;
    mutations: number;
}
export type Permission = "file:list" | "file:read" | "file:search" | "file:diff" | "file:write:create" | "file:write:replace" | "file:patch:apply" | "file:delete" | "file:move" | "audit:read" | "event:append" | "evidence:attest" | "changeset:apply" | "command:serve";
export interface Policy {
    allowModeChange: boolean;
    approval?: ApprovalRule;
    ask?: Array<string>;
    budget: Budget;
    commandBudget?: Budget;
    commands?: CommandPolicy;
    deny: Array<string>;
    fileBudget?: Verdict;
    ignoredFiles: Verdict;
    kinds: {
        [name: string]: KindDecision;
    };
    maxFileBytes: number;
    maxTransferBytes: number;
    notSecret?: Array<string>;
    outsideChanges?: OutsideChanges;
    profile: string;
    quota?: Quota;
    read: Array<string>;
    requireApprovalIf: Array<Trigger>;
    runBudget?: BudgetOverrides | null;
    symbolicLinks?: Verdict;
    write: Array<string>;
}
export interface PolicyDecision {
    code?: Code | null;
    decision: Verdict;
    message?: string | null;
    reasons: Array<string>;
}
export interface PolicyExplanation {
    command?: PolicyDecision | null;
    patch?: PolicyDecision | null;
    paths: Array<PathExplanation>;
}
export interface PolicyOverrides {
    allowModeChange?: boolean | null;
    approval?: ApprovalRuleOverrides | null;
    ask?: Array<string> | null;
    budget?: BudgetOverrides | null;
    commandBudget?: BudgetOverrides | null;
    commands?: CommandOverrides | null;
    deny?: Array<string> | null;
    fileBudget?: Verdict | null;
    ignoredFiles?: Verdict | null;
    kinds?: {
        [name: string]: KindDecision;
    } | null;
    maxFileBytes?: number | null;
    maxTransferBytes?: number | null;
    notSecret?: Array<string> | null;
    outsideChanges?: OutsideChanges | null;
    profile?: string | null;
    quota?: QuotaOverrides | null;
    read?: Array<string> | null;
    requireApprovalIf?: Array<Trigger> | null;
    runBudget?: BudgetOverrides | null;
    symbolicLinks?: Verdict | null;
    write?: Array<string> | null;
}
export interface PolicyQuery {
    command?: string | null;
    patch?: string | null;
    path?: string | null;
}
export interface PresentVersion {
    exists: boolean;
    isExpected?: boolean | null;
    path: LogicalPath;
    sha256?: Sha256 | null;
}
export interface Problem {
    actual?: number | null;
    approvalId?: ApprovalId | null;
    conflictRegions?: Array<ConflictRegion>;
    conflicts?: Array<Conflict>;
    contentWithheld?: boolean;
    currentSha256?: Sha256 | null;
    diff?: string | null;
    difference?: string | null;
    headHash?: Sha256 | null;
    hunk?: number | null;
    knownSha256?: Sha256 | null;
    limit?: number | null;
    lines?: Array<number>;
    nearest?: Array<NearestText>;
    notices?: Array<string>;
    path?: string | null;
    reasons?: Array<string>;
    resolution?: string | null;
    retryAfterSeconds?: number | null;
    seq?: number | null;
    totalLines?: number | null;
    code: Code;
    detail: string;
    hint: string;
    instance?: string | null;
    message: string;
    ok: false;
    status: number;
    title: string;
    toolCallId?: ToolCallId | null;
    type: string;
}
export interface ProblemDetails {
    actual?: number | null;
    approvalId?: ApprovalId | null;
    conflictRegions?: Array<ConflictRegion>;
    conflicts?: Array<Conflict>;
    contentWithheld?: boolean;
    currentSha256?: Sha256 | null;
    diff?: string | null;
    difference?: string | null;
    headHash?: Sha256 | null;
    hunk?: number | null;
    knownSha256?: Sha256 | null;
    limit?: number | null;
    lines?: Array<number>;
    nearest?: Array<NearestText>;
    notices?: Array<string>;
    path?: string | null;
    reasons?: Array<string>;
    resolution?: string | null;
    retryAfterSeconds?: number | null;
    seq?: number | null;
    totalLines?: number | null;
}
export interface Quota {
    maxFiles?: number;
    maxHistoryBytes?: number;
    maxRecords?: number;
    maxTreeBytes?: number;
    pendingApprovals?: number;
}
export interface QuotaAmounts {
    files: number;
    historyBytes: number;
    pendingApprovals: number;
    records: number;
    treeBytes: number;
}
export interface QuotaOverrides {
    maxFiles?: number | null;
    maxHistoryBytes?: number | null;
    maxRecords?: number | null;
    maxTreeBytes?: number | null;
    pendingApprovals?: number | null;
}
export interface RanCommand {
    changes?: CommandChanges | null;
    contentWithheld?: boolean;
    cutLine?: number | null;
    differs?: Array<string>;
    differsCount?: number;
    durationMicros: number;
    eventSeq?: number | null;
    exitCode?: number | null;
    headHash: string;
    nextColumn?: number | null;
    notices?: Array<string>;
    ok: true;
    output: string;
    outputLines?: number;
    outputOf?: string | null;
    outputSha256?: Sha256 | null;
    outputStartCut?: boolean;
    outputStartLine?: number;
    putAside?: Array<string>;
    putAsideCount?: number;
    seq: number;
    shell?: string | null;
    signal?: number | null;
    timedOut: boolean;
    toolCallId: string;
    warning?: string | null;
}
export interface ReadFileInput {
    atSeq?: number | null;
    column?: number | null;
    encoding?: string | null;
    format?: "numbered" | "raw";
    maxChars?: number | null;
    maxLines?: number;
    mount?: string;
    path: string;
    startLine?: number;
    stepId?: string;
    toolCallId?: string;
}
export interface ReadFileOutput {
    atSeq?: number | null;
    content: string;
    cutLine?: number | null;
    encoding: Encoding;
    encodingGuessed?: boolean;
    endLine: number;
    format?: "numbered" | "raw" | null;
    gitLfsBytes?: number | null;
    lineEnding: LineEnding;
    linesCut?: number;
    nextColumn?: number | null;
    nextStartLine?: number | null;
    notices?: Array<string>;
    ok: true;
    path: LogicalPath;
    redacted?: boolean;
    sha256?: Sha256 | null;
    startLine: number;
    toolCallId: string;
    totalLines: number;
    truncated: boolean;
    warnings?: Array<string>;
}
export interface ReadFilesInput {
    maxChars?: number | null;
    mount?: string;
    paths: Array<string>;
    stepId?: string;
    toolCallId?: string;
}
export interface ReadFilesOutput {
    files: {
        [name: string]: OneFile;
    };
    notices?: Array<string>;
    ok: true;
    remaining?: Array<string>;
    toolCallId: string;
    truncated?: boolean;
    truncatedReason?: string | null;
    warnings?: Array<string>;
}
export interface Readiness {
    degraded?: Array<Degradation>;
    ok: boolean;
}
export interface ReasonStats {
    outcome: string;
    reason: string;
    records: number;
}
export interface RecordFile {
    kind: FileKind;
    mode?: GitMode | null;
    newSha256?: Sha256 | null;
    oldMode?: GitMode | null;
    oldSha256?: Sha256 | null;
    path: LogicalPath;
}
export interface RecordStats {
    hours: Array<HourStats>;
    moreReasons: number;
    moreRuns: number;
    reasons: Array<ReasonStats>;
    runs: Array<RunStats>;
    total: StatsCounts;
}
export interface ReplaceRangeInput {
    content: string;
    dryRun?: boolean;
    encoding?: string | null;
    endLine: number;
    evidence?: ReplaceRangeInputEvidence;
    expectedSha256: ExpectedVersion;
    path: string;
    reason: string;
    startLine: number;
    stepId?: string;
    toolCallId?: string;
}
export interface ReplaceRangeInputEvidence {
    eventId: string;
}
export interface ReportApproval {
    approvalId: ApprovalId;
    decidedBy?: string | null;
    editedSeq?: number | null;
    note?: string | null;
    onBehalfOf?: string | null;
    paths: Array<string>;
    reason: string;
    reasons: Array<string>;
    state: ApprovalState;
    tool: string;
}
export interface ReportBudget {
    limit?: number | null;
    name: string;
    used: number;
}
export interface ReportCommand {
    differsCount?: number | null;
    exitCode?: number | null;
    isAttested: boolean;
    isCurrent: boolean;
    notAppliedSeq?: number | null;
    outputSha256?: Sha256 | null;
    seq: number;
    summary: string;
    tool: string;
    treeSha256?: Sha256 | null;
}
export interface ReportCounts {
    approvalsRequested: number;
    commands?: number;
    denied: number;
    dryRuns: number;
    events: number;
    failed: number;
    reads: number;
    records: number;
    refused: number;
    writes: number;
}
export interface ReportDiff {
    deletions: number;
    diffSha256: Sha256;
    files: Array<ReportDiffFile>;
    filesChanged: number;
    insertions: number;
    moreFiles: number;
}
export interface ReportDiffFile {
    deletions: number;
    insertions: number;
    path: string;
    status: string;
}
export interface ReportFile {
    kind?: FileKind | null;
    lastSeq: number;
    newSha256?: Sha256 | null;
    oldSha256?: Sha256 | null;
    path: string;
    reads: number;
    refused: number;
    writes: number;
}
export interface ReportVerification {
    checkpointedSeq: number;
    intact: boolean;
    problem?: string | null;
    verifiedSeq: number;
}
export interface RequestLimits {
    bodyTimeoutSeconds: number;
    maxAnswerMemoryBytes: number;
    maxArchiveBytes: number;
    maxBatchCalls: number;
    maxBodyBytes: number;
    maxBodyMemoryBytes: number;
    maxJsonValues: number;
    maxWaitSeconds: number;
    minBytesPerSecond: number;
    pageDefault: number;
    pageMax: number;
    rateBurst?: number | null;
    ratePerSecond?: number | null;
    requestTimeoutSeconds: number;
    tokenConcurrency: number;
}
export interface ResourceMetadata {
    authorization_servers: Array<string>;
    bearer_methods_supported: Array<string>;
    resource: string;
    resource_name: string;
    scopes_supported: Array<string>;
}
export interface RestoredFile {
    deletions: number;
    insertions: number;
    operation: string;
    path: LogicalPath;
}
export interface RevertCallsInput {
    dryRun?: boolean;
    evidence?: RevertCallsInputEvidence;
    last?: number | null;
    ofPath?: string | null;
    reason: string;
    stepId?: string;
    toSeq?: number | null;
    toolCallId?: string;
    toolCallIds?: Array<string> | null;
}
export interface RevertCallsInputEvidence {
    eventId: string;
}
export interface RevertCallsOutput {
    artifactUris: Array<string>;
    deletions: number;
    files: Array<RestoredFile>;
    filesTouched: Array<LogicalPath>;
    headHash: string;
    insertions: number;
    notices?: Array<string>;
    ok: true;
    reverted: Array<ToolCallId>;
    seq: number;
    summary: string;
    toolCallId: string;
    warnings: Array<string>;
}
export interface RotateTokenRequest {
    expiresAt?: string | null;
    overlapSeconds?: number | null;
}
export interface Run {
    agent?: string | null;
    archiveUri?: string | null;
    archivedAt?: string | null;
    baseCommit?: string | null;
    closedAt?: string | null;
    counts: RunCounts;
    createdAt: string;
    createdBy?: OperatorName | null;
    disk: Disk;
    expiresAt?: string | null;
    forks?: Array<Fork> | null;
    headHash: Sha256;
    headSeq: number;
    import: ImportReport;
    labels: {
        [name: string]: string;
    };
    lastActivityAt?: string | null;
    moreForks?: boolean;
    mounts: Array<Mount>;
    parent?: ForkedFrom | null;
    people: PeopleCounts;
    policy: Policy;
    prompt?: string | null;
    repository?: string | null;
    runId: RunId;
    source: Source;
    state: RunState;
}
export interface RunAmounts {
    quota: QuotaAmounts;
    runBudget: BudgetAmounts;
}
export interface RunChange {
    files: Array<ChangedFile>;
    seq: number;
    timestamp: string;
    tool: string;
    toolCallId: ToolCallId;
}
export interface RunCommandInput {
    column?: number | null;
    command?: string | null;
    cwd?: string | null;
    maxChars?: number | null;
    outputOf?: string | null;
    reason?: string;
    shell?: "sh" | "bash" | null;
    startLine?: number | null;
    stepId?: string;
    timeoutSeconds?: number | null;
    toolCallId?: string;
}
export interface RunComparison {
    files: Array<ComparedFile>;
    nextAfter?: string | null;
    runs: Array<ComparedRun>;
}
export interface RunCounts {
    calls: number;
    deletions: number;
    denied: number;
    insertions: number;
    mutations: number;
    pendingApprovals: number;
}
export type RunId = string;
export interface RunReport {
    approvals: Array<ReportApproval>;
    baseCommit?: string | null;
    budgets: Array<ReportBudget>;
    closedAt?: string | null;
    commands: Array<ReportCommand>;
    counts: ReportCounts;
    createdAt: string;
    diff?: ReportDiff | null;
    diffProblem?: Code | null;
    files: Array<ReportFile>;
    headHash: Sha256;
    headSeq: number;
    labels: {
        [name: string]: string;
    };
    lastAt?: string | null;
    moreApprovals: number;
    moreCommands: number;
    moreFiles: number;
    policyProfile: string;
    prompt?: string | null;
    runId: RunId;
    source: {
        [name: string]: unknown;
    };
    state: RunState;
    verification?: ReportVerification | null;
}
export type RunState = "preparing" | "open" | "awaiting_approval" | "closed" | "deleted";
export interface RunStats {
    changes: number;
    commands: number;
    denied: number;
    deniedByPerson: number;
    failed: number;
    other: number;
    pending: number;
    reads: number;
    records: number;
    refused: number;
    runId: string;
}
export interface RunToken {
    createdAt: string;
    expiresAt?: string | null;
    issuedBy: string;
    lastUsedAt?: string | null;
    permissions: Array<Permission>;
    revokedAt?: string | null;
    tokenId: TokenId;
}
export interface RunUsage {
    remaining: RunAmounts;
    usage: RunAmounts;
}
export type RunView = Run | OwnRun;
export type Scope = "orchestrate" | "approve" | "audit" | "metrics";
export interface SearchTextInput {
    caseSensitive?: boolean;
    contextLines?: number;
    cursor?: string | null;
    excludeGlob?: Array<string>;
    fileType?: string | null;
    includeGlob?: Array<string>;
    maxChars?: number | null;
    maxMatches?: number;
    mode?: "literal" | "regex";
    mount?: string;
    multiline?: boolean;
    onePerFile?: boolean;
    path?: string;
    query: string;
    skip?: number;
    stepId?: string;
    toolCallId?: string;
    wholeWord?: boolean;
}
export interface SearchTextOutput {
    contentWithheld?: boolean;
    filesSearched: number;
    matches: Array<Match>;
    matchesSkipped?: number;
    nextCursor?: string | null;
    notShown?: NotShown;
    notes?: Array<string>;
    notices?: Array<string>;
    ok: true;
    query: string;
    skipped?: Array<string>;
    toolCallId: string;
    truncated: boolean;
    truncatedReason?: string | null;
    warnings?: Array<string>;
}
export interface ServiceLimits {
    exportThreads: number;
    headerTimeoutSeconds: number;
    idleTimeoutSeconds: number;
    importThreads: number;
    maxConnections: number;
    maxDiskBytes?: number | null;
    maxLiveRuns: number;
    maxRuns?: number | null;
    readThreads: number;
    searchThreads: number;
    writeThreads: number;
}
export interface SettleRequest {
    accept: "tree" | "ledger";
    dryRun?: boolean | null;
    paths?: Array<string> | null;
    reason: string;
    toolCallId?: string | null;
}
export interface SettledDrift {
    accept: Accept;
    files: Array<SettledFile>;
    remaining: number;
    skipped: Array<LogicalPath>;
}
export interface SettledFile {
    change: string;
    foundSha256?: Sha256 | null;
    knownSha256?: Sha256 | null;
    path: LogicalPath;
}
export type Severity = "info" | "doubt" | "danger";
export type Sha256 = string;
export interface SkippedEntry {
    path: string;
    reason: string;
}
export type Source = SourceEmpty | SourceGit | SourceDirectory | SourceArchive | SourceRun;
export interface SourceEmpty {
    type: "empty";
}
export interface SourceGit {
    credential?: string | null;
    ref?: string | null;
    type: "git";
    url: string;
}
export interface SourceDirectory {
    path: string;
    type: "directory";
}
export interface SourceArchive {
    type: "archive";
}
export interface SourceRun {
    atSeq?: number | null;
    runId: RunId;
    type: "run";
}
export interface StatPathInput {
    maxChars?: number | null;
    mount?: string;
    path: string;
    stepId?: string;
    toolCallId?: string;
}
export interface StatPathOutput {
    exists: boolean;
    kind?: FileKind | null;
    mode?: string | null;
    modifiedAt?: string | null;
    notices?: Array<string>;
    ok: true;
    path: LogicalPath;
    readable: boolean;
    reason?: string | null;
    redacted?: boolean;
    sha256?: Sha256 | null;
    sizeBytes?: number | null;
    target?: LogicalPath | null;
    toolCallId: string;
    type?: "file" | "directory" | "symlink" | "other" | null;
    warnings?: Array<string>;
    writable: boolean;
}
export interface Stats {
    hours: Array<HourStats>;
    moreReasons: number;
    moreRuns: number;
    reasons: Array<ReasonStats>;
    runs: Array<RunStats>;
    total: StatsCounts;
    since?: string | null;
    until?: string | null;
}
export interface StatsCounts {
    changes: number;
    commands: number;
    denied: number;
    deniedByPerson: number;
    failed: number;
    other: number;
    pending: number;
    reads: number;
    records: number;
    refused: number;
}
export interface StopRunRequest {
    reason: string;
}
export interface StoredFile {
    artifactUris: Array<string>;
    created: boolean;
    headHash: string;
    newSha256?: Sha256 | null;
    notices?: Array<string>;
    ok: true;
    oldSha256?: Sha256 | null;
    path: LogicalPath;
    seq: number;
    sizeBytes: number;
    summary: string;
    toolCallId: string;
    warnings: Array<string>;
}
export interface Tally {
    bytes: number;
    files: number;
    lines: number;
}
export interface TextEditOutput {
    artifactUris: Array<string>;
    bytesWritten: number;
    created: boolean;
    deletions: number;
    headHash: string;
    insertions: number;
    merged?: boolean;
    mergedFrom?: Sha256 | null;
    newSha256: Sha256;
    notices?: Array<string>;
    ok: true;
    oldSha256?: Sha256 | null;
    path: LogicalPath;
    replacements?: number | null;
    seq: number;
    summary: string;
    toolCallId: string;
    warnings: Array<string>;
}
export type TokenId = string;
export interface ToolCall {
    actor: string;
    artifactUris: Array<string>;
    by?: By | null;
    code?: Code | null;
    decision: Verdict;
    diffSha256?: Sha256 | null;
    durationMicros: number;
    evidence?: Evidence | null;
    files: Array<RecordFile>;
    format?: string | null;
    hash?: Sha256;
    input?: {
        [name: string]: unknown;
    } | null;
    left?: Array<LeftEntry>;
    leftCount?: number | null;
    mutates: boolean;
    outcome: Outcome;
    pathsRead: Array<LogicalPath>;
    pathsWritten: Array<LogicalPath>;
    prevHash: Sha256;
    reason?: string | null;
    reasons: Array<string>;
    requestId?: string | null;
    runId: string;
    seq: number;
    stepId?: string | null;
    timestamp: string;
    tool: string;
    toolCallId: ToolCallId;
    traceId?: string | null;
    approval?: Approval | null;
    contentWithheld?: boolean;
    resolution?: string | null;
}
export type ToolCallId = string;
export interface ToolInfo {
    annotations?: {
        [name: string]: unknown;
    };
    description?: string;
    function?: {
        [name: string]: unknown;
    };
    inputSchema?: {
        [name: string]: unknown;
    };
    mutates?: boolean;
    name?: string;
    outputSchema?: {
        [name: string]: unknown;
    };
    permissions?: Array<string>;
    title?: string;
    type?: string;
}
export interface ToolLimits {
    diffWorkspaceMaxBytes: number;
    findFilesMaxGlobs: number;
    findFilesMaxResults: number;
    listDirMaxDepth: number;
    listDirMaxEntries: number;
    maxEntriesBytes: number;
    maxPathBytes: number;
    maxReasonCharacters: number;
    maxStepIdCharacters: number;
    maxToolCallIdCharacters: number;
    rangedReadFactor: number;
    readFileMaxContentBytes: number;
    readFileMaxLineCharacters: number;
    readFileMaxLines: number;
    readFilesMaxContentBytes: number;
    readFilesMaxPaths: number;
    revertCallsMaxCalls: number;
    searchTextMaxContextLines: number;
    searchTextMaxGlobs: number;
    searchTextMaxMatches: number;
    searchTextMaxQueryBytes: number;
    searchTextMaxSeconds: number;
}
export interface ToolList {
    items: Array<ToolInfo>;
    mounts?: Array<Mount>;
}
export interface TreeStatsInput {
    maxChars?: number | null;
    mount?: string;
    path?: string;
    stepId?: string;
    toolCallId?: string;
}
export interface TreeStatsOutput {
    bytes: number;
    files: number;
    lines: number;
    byExtension: {
        [name: string]: Tally;
    };
    byKind: {
        [name: string]: Tally;
    };
    directories: number;
    notCounted: number;
    notShown?: NotShown;
    notices?: Array<string>;
    ok: true;
    path: LogicalPath;
    toolCallId: string;
    truncated?: boolean;
    warnings?: Array<string>;
}
export type Trigger = "touchesBuildFile" | "touchesSecuritySensitivePath" | "touchesLockfile" | "deletesFile" | "changesPublicApi" | "deletesTest" | "weakensTest";
export interface UpdateRunRequest {
    expiresAt?: string | null;
    labels?: {
        [name: string]: string;
    };
}
export interface UploadedArtifact {
    headHash?: Sha256 | null;
    ok: boolean;
    seq?: number | null;
    sha256: Sha256;
    sizeBytes: number;
    uri: string;
}
export type Verdict = "ALLOW" | "REQUIRE_APPROVAL" | "DENY";
export type WarningCode = "WEAKENS_TEST" | "DELETES_TEST" | "CREDENTIAL_LIKE" | "NEW_HOST" | "DENIED_BEFORE" | "OUTSIDE_WRITE" | "STALE" | "TESTS_FAILED" | "TESTS_NOT_ON_THIS_TREE";
export interface WebhookDelivery {
    attempts: number;
    createdAt: string;
    id: string;
    lastError?: string | null;
    lastStatus?: number | null;
    nextAttemptAt?: string | null;
    runId?: RunId | null;
    state: DeliveryState;
    type: WebhookEvent;
}
export type WebhookEvent = "approval.requested" | "approval.decided" | "approval.expired" | "run.closed" | "call.refused" | "budget.reached" | "run.needs_repair" | "signing.stopped";
export type WebhookState = "active" | "disabled";
export interface WebhookView {
    events: Array<WebhookEvent>;
    name: string;
    pending: number;
    state: WebhookState;
    url: string;
}
export interface WriteFileInput {
    content: string;
    dryRun?: boolean;
    encoding?: string | null;
    evidence?: WriteFileInputEvidence;
    expectedSha256?: ExpectedVersion | null;
    lineEnding?: "lf" | "crlf" | null;
    mode?: "CREATE_NEW" | "REPLACE_EXISTING" | "CREATE_OR_REPLACE";
    onConflict?: "refuse" | "merge";
    path: string;
    reason: string;
    stepId?: string;
    toolCallId?: string;
}
export interface WriteFileInputEvidence {
    eventId: string;
}
/** The input and the answer of each tool. */
export interface Tools {
    apply_patch: {
        input: ApplyPatchInput;
        output: ApplyPatchOutput;
    };
    delete_file: {
        input: DeleteFileInput;
        output: DeleteFileOutput;
    };
    diff_workspace: {
        input: DiffWorkspaceInput;
        output: DiffWorkspaceOutput;
    };
    edit_file: {
        input: EditFileInput;
        output: TextEditOutput;
    };
    find_files: {
        input: FindFilesInput;
        output: FindFilesOutput;
    };
    list_dir: {
        input: ListDirInput;
        output: ListDirOutput;
    };
    move_file: {
        input: MoveFileInput;
        output: MoveFileOutput;
    };
    read_file: {
        input: ReadFileInput;
        output: ReadFileOutput;
    };
    read_files: {
        input: ReadFilesInput;
        output: ReadFilesOutput;
    };
    replace_range: {
        input: ReplaceRangeInput;
        output: TextEditOutput;
    };
    revert_calls: {
        input: RevertCallsInput;
        output: RevertCallsOutput;
    };
    run_command: {
        input: RunCommandInput;
        output: RanCommand;
    };
    search_text: {
        input: SearchTextInput;
        output: SearchTextOutput;
    };
    stat_path: {
        input: StatPathInput;
        output: StatPathOutput;
    };
    tree_stats: {
        input: TreeStatsInput;
        output: TreeStatsOutput;
    };
    write_file: {
        input: WriteFileInput;
        output: TextEditOutput;
    };
}
