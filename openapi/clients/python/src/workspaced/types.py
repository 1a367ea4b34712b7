"""The objects of the API. Written by `generate_types.py` from the API document: do not edit."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict, Unpack, overload


Accept: TypeAlias = "Literal['tree', 'ledger']"


class AppendEventRequest(TypedDict):
    data: NotRequired[Any]
    durationMicros: NotRequired[int | None]
    eventId: NotRequired[str | None]
    kind: EventKind
    startedAt: NotRequired[str | None]
    stepId: NotRequired[str | None]
    summary: str


class AppendEventsRequest(TypedDict):
    events: list[AppendEventRequest]


class AppendedEvent(TypedDict):
    eventId: ToolCallId
    headHash: Sha256
    ok: bool
    seq: int


class AppendedEvents(TypedDict):
    events: list[AppendedEvent]
    ok: bool


class AppliedChangeset(TypedDict):
    applied: list[LogicalPath]
    deletions: int
    eventSeq: NotRequired[int | None]
    insertions: int
    left: list[LeftFile]
    merged: list[LogicalPath]
    mergedSeq: NotRequired[int | None]
    notTaken: dict[str, int]


class ApplyChangesetRequest(TypedDict):
    basedOnSeq: int
    changesetId: NotRequired[str | None]
    command: NotRequired[CommandReport | None]
    dryRun: NotRequired[bool]
    onConflict: NotRequired[OnConflict]
    onDenied: NotRequired[OnDenied]
    reason: str
    stepId: NotRequired[str | None]


class ApplyPatchInput(TypedDict):
    dryRun: NotRequired[bool]
    encoding: NotRequired[str | None]
    evidence: NotRequired[ApplyPatchInputEvidence]
    expectedBaseCommit: NotRequired[str | None]
    expectedSha256: NotRequired[dict[str, ExpectedVersion]]
    patch: str
    reason: str
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class ApplyPatchInputEvidence(TypedDict):
    eventId: str


class ApplyPatchOutput(TypedDict):
    applied: bool
    artifactUris: list[str]
    deletions: int
    dryRun: bool
    files: list[PatchedFile]
    filesTouched: list[LogicalPath]
    headHash: str
    insertions: int
    newWorkspaceDiffSha256: NotRequired[Sha256 | None]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    seq: int
    summary: str
    toolCallId: str
    warnings: list[str]


class Approval(TypedDict):
    actor: str
    approvalId: ApprovalId
    approvedBy: list[OperatorName]
    approvers: int
    createdAt: str
    decidedBy: NotRequired[str | None]
    decidedSeq: NotRequired[int | None]
    diff: NotRequired[str | None]
    editedSeq: NotRequired[int | None]
    expiresAt: str
    files: list[ApprovalFile]
    notCreator: bool
    note: NotRequired[str | None]
    onBehalfOf: NotRequired[str | None]
    reason: str
    reasons: list[str]
    resolution: NotRequired[str | None]
    runId: RunId
    state: ApprovalState
    tool: str
    toolCallId: ToolCallId
    votes: list[ApprovalVote]
    warnings: list[ApprovalWarning]


class ApprovalDecision(TypedDict):
    decidedBy: NotRequired[str | None]
    edits: NotRequired[list[ApprovalEdit]]
    note: NotRequired[str | None]
    onBehalfOf: NotRequired[str | None]


class ApprovalEdit(TypedDict):
    newString: str
    oldString: str
    path: str


class ApprovalFile(TypedDict):
    deletions: int
    insertions: int
    newSha256: NotRequired[Sha256 | None]
    oldSha256: NotRequired[Sha256 | None]
    operation: str
    path: LogicalPath


class ApprovalFileLines(TypedDict):
    atSeq: int
    content: str
    endLine: int
    nextStartLine: NotRequired[int | None]
    ok: bool
    path: str
    startLine: int
    toolCallId: str
    totalLines: int
    truncated: bool


ApprovalId: TypeAlias = "str"


class ApprovalResult(TypedDict):
    actor: str
    approvalId: ApprovalId
    approvedBy: list[OperatorName]
    approvers: int
    createdAt: str
    decidedBy: NotRequired[str | None]
    decidedSeq: NotRequired[int | None]
    diff: NotRequired[str | None]
    editedSeq: NotRequired[int | None]
    expiresAt: str
    files: list[ApprovalFile]
    notCreator: bool
    note: NotRequired[str | None]
    onBehalfOf: NotRequired[str | None]
    reason: str
    reasons: list[str]
    resolution: NotRequired[str | None]
    runId: RunId
    state: ApprovalState
    tool: str
    toolCallId: ToolCallId
    votes: list[ApprovalVote]
    warnings: list[ApprovalWarning]
    headHash: NotRequired[Sha256 | None]
    seq: NotRequired[int | None]


class ApprovalRule(TypedDict):
    approvers: NotRequired[int]
    notCreator: NotRequired[bool]


class ApprovalRuleOverrides(TypedDict):
    approvers: NotRequired[int | None]
    notCreator: NotRequired[bool | None]


ApprovalState: TypeAlias = "Literal['pending', 'approved', 'denied', 'expired', 'failed']"


class ApprovalVote(TypedDict):
    onBehalfOf: NotRequired[str | None]
    operator: OperatorName


class ApprovalWarning(TypedDict):
    approvalId: NotRequired[ApprovalId | None]
    code: WarningCode
    line: NotRequired[int | None]
    note: NotRequired[str | None]
    path: NotRequired[LogicalPath | None]
    severity: Severity
    text: str


ArtifactId: TypeAlias = "str"


class AuditRecord(TypedDict):
    actor: str
    artifactUris: list[str]
    by: NotRequired[By | None]
    code: NotRequired[Code | None]
    decision: Verdict
    diffSha256: NotRequired[Sha256 | None]
    durationMicros: int
    evidence: NotRequired[Evidence | None]
    files: list[RecordFile]
    format: NotRequired[str | None]
    hash: NotRequired[Sha256]
    input: NotRequired[dict[str, Any] | None]
    left: NotRequired[list[LeftEntry]]
    leftCount: NotRequired[int | None]
    mutates: bool
    outcome: Outcome
    pathsRead: list[LogicalPath]
    pathsWritten: list[LogicalPath]
    prevHash: Sha256
    reason: NotRequired[str | None]
    reasons: list[str]
    requestId: NotRequired[str | None]
    runId: str
    seq: int
    stepId: NotRequired[str | None]
    timestamp: str
    tool: str
    toolCallId: ToolCallId
    traceId: NotRequired[str | None]


class AuditVerification(TypedDict):
    archivedRecords: NotRequired[int]
    discontinuity: NotRequired[ChainBreak | None]
    firstBreak: NotRequired[ChainBreak | None]
    headHash: Sha256
    headSeq: int
    intact: bool
    missingDiffs: NotRequired[int]
    records: int
    runId: RunId
    checkpointedSeq: int


class BatchCall(TypedDict):
    input: NotRequired[dict[str, Any]]
    tool: str


class BatchRequest(TypedDict):
    atomic: NotRequired[bool]
    calls: list[BatchCall]
    stopOnError: NotRequired[bool]


class BatchResponse(TypedDict):
    failedCall: NotRequired[int | None]
    ok: bool
    results: list[BatchResult]
    skipped: int


class BatchResult(TypedDict):
    answer: dict[str, Any]
    status: int
    tool: str


class Budget(TypedDict):
    maxBytes: NotRequired[int]
    maxDeletions: NotRequired[int]
    maxFilesDeleted: NotRequired[int]
    maxFilesTouched: NotRequired[int]
    maxInsertions: NotRequired[int]


class BudgetAmounts(TypedDict):
    bytes: NotRequired[int | None]
    deletions: NotRequired[int | None]
    filesDeleted: NotRequired[int | None]
    filesTouched: NotRequired[int | None]
    insertions: NotRequired[int | None]


class BudgetOverrides(TypedDict):
    maxBytes: NotRequired[int | None]
    maxDeletions: NotRequired[int | None]
    maxFilesDeleted: NotRequired[int | None]
    maxFilesTouched: NotRequired[int | None]
    maxInsertions: NotRequired[int | None]


class BundleLimits(TypedDict):
    maxAuthorCharacters: int
    maxMessageBytes: int


By: TypeAlias = "Literal['agent', 'operator', 'service']"


class ChainBreak(TypedDict):
    problem: str
    seq: int


class ChainReport(TypedDict):
    archivedRecords: NotRequired[int]
    discontinuity: NotRequired[ChainBreak | None]
    firstBreak: NotRequired[ChainBreak | None]
    headHash: Sha256
    headSeq: int
    intact: bool
    missingDiffs: NotRequired[int]
    records: int
    runId: RunId


class ChangeList(TypedDict):
    items: list[RunChange]
    more: bool
    nextSince: int


class ChangedFile(TypedDict):
    change: str
    kind: FileKind
    newSha256: NotRequired[Sha256 | None]
    oldSha256: NotRequired[Sha256 | None]
    path: LogicalPath


class ChangesetAnswer(TypedDict):
    applied: list[LogicalPath]
    deletions: int
    eventSeq: NotRequired[int | None]
    insertions: int
    left: list[LeftFile]
    merged: list[LogicalPath]
    mergedSeq: NotRequired[int | None]
    notTaken: dict[str, int]
    artifactUris: list[str]
    headHash: str
    ok: bool
    seq: int
    summary: str
    toolCallId: str
    warnings: list[str]


class ChangesetParts(TypedDict):
    changeset: str
    layer: str


class CheckpointLeaf(TypedDict):
    headHash: Sha256
    headSeq: int
    runId: str


Code: TypeAlias = "Literal['BODY_TOO_LARGE', 'UNAUTHENTICATED', 'FORBIDDEN', 'RATE_LIMITED', 'RUN_NOT_FOUND', 'TOOL_NOT_FOUND', 'INVALID_REQUEST', 'PATCH_INVALID', 'PRECONDITION_REQUIRED', 'TOOL_CALL_ID_REUSED', 'IDEMPOTENCY_KEY_REUSED', 'PATH_REJECTED', 'RUN_CLOSED', 'RUN_NEEDS_REPAIR', 'BASE_COMMIT_MISMATCH', 'POLICY_DENIED_SECRET', 'POLICY_DENIED', 'NOT_FOUND', 'ALREADY_EXISTS', 'NOT_A_DIRECTORY', 'NOT_A_FILE', 'FILE_TOO_LARGE', 'UNSUPPORTED_BINARY', 'WRITE_CONFLICT', 'PATCH_CONFLICT', 'EDIT_NOT_FOUND', 'EDIT_NOT_UNIQUE', 'REVERT_CONFLICT', 'CHANGED_OUTSIDE', 'PATCH_BUDGET_EXCEEDED', 'QUOTA_EXCEEDED', 'APPROVAL_REQUIRED', 'BATCH_NOT_DONE', 'UNAVAILABLE', 'INTERNAL']"


class CommandChanges(TypedDict):
    applied: NotRequired[list[str]]
    approvalId: NotRequired[str | None]
    code: NotRequired[Code | None]
    deletions: NotRequired[int]
    insertions: NotRequired[int]
    left: NotRequired[list[LeftFile]]
    leftOut: NotRequired[list[LeftOutEntry]]
    leftOutCount: NotRequired[int]
    merged: NotRequired[list[str]]
    message: NotRequired[str | None]
    notTaken: NotRequired[dict[str, int]]
    seq: NotRequired[int | None]
    toolCallId: NotRequired[str | None]


class CommandOrder(TypedDict):
    command: str
    commandId: str
    cwd: str
    reason: NotRequired[str | None]
    shell: NotRequired[CommandShell]
    timeoutSeconds: int


class CommandOverrides(TypedDict):
    allow: NotRequired[list[str] | None]
    ask: NotRequired[list[str] | None]
    deny: NotRequired[list[str] | None]
    maxCalls: NotRequired[int | None]
    others: NotRequired[Verdict | None]
    timeoutSeconds: NotRequired[int | None]


class CommandPolicy(TypedDict):
    allow: NotRequired[list[str]]
    ask: NotRequired[list[str]]
    deny: NotRequired[list[str]]
    maxCalls: int
    others: Verdict
    timeoutSeconds: int


class CommandReport(TypedDict):
    argv: list[str]
    cwd: NotRequired[str | None]
    differs: NotRequired[list[str]]
    differsCount: NotRequired[int | None]
    durationMicros: NotRequired[int | None]
    environment: NotRequired[dict[str, Any]]
    exitCode: NotRequired[int | None]
    outputRefused: NotRequired[str | None]
    outputSha256: NotRequired[Sha256 | None]
    startedAt: NotRequired[str | None]


class CommandResultAnswer(TypedDict):
    changes: NotRequired[CommandChanges | None]
    eventSeq: NotRequired[int | None]
    ok: bool
    rejected: NotRequired[list[str]]


class CommandResultParts(TypedDict):
    layer: NotRequired[str | None]
    result: str


class CommandResultRequest(TypedDict):
    basedOnSeq: NotRequired[int | None]
    differs: NotRequired[list[str]]
    differsCount: NotRequired[int]
    durationMicros: NotRequired[int]
    environment: NotRequired[dict[str, Any]]
    error: NotRequired[str | None]
    exitCode: NotRequired[int | None]
    leftOut: NotRequired[list[LeftOutEntry]]
    leftOutCount: NotRequired[int]
    noFolder: NotRequired[bool]
    notSent: NotRequired[str | None]
    onConflict: NotRequired[OnConflict]
    onDenied: NotRequired[OnDenied]
    output: NotRequired[str]
    outputLines: NotRequired[int]
    outputSha256: NotRequired[Sha256 | None]
    outputStartCut: NotRequired[bool]
    putAside: NotRequired[list[str]]
    putAsideCount: NotRequired[int]
    runner: str
    signal: NotRequired[int | None]
    startedAt: NotRequired[str | None]
    timedOut: NotRequired[bool]
    warning: NotRequired[str | None]


CommandShell: TypeAlias = "Literal['sh', 'bash']"


class CommentRequest(TypedDict):
    line: NotRequired[int | None]
    onBehalfOf: NotRequired[str | None]
    path: NotRequired[str | None]
    text: str


class ComparedFile(TypedDict):
    first: NotRequired[ComparedVersion | None]
    path: LogicalPath
    second: NotRequired[ComparedVersion | None]
    status: ComparedStatus


class ComparedRun(TypedDict):
    baseCommit: NotRequired[str | None]
    budgets: list[ReportBudget]
    counts: RunCounts
    headHash: Sha256
    headSeq: int
    runId: RunId
    state: RunState
    tests: list[ReportCommand]


ComparedStatus: TypeAlias = "Literal['same', 'different', 'onlyFirst', 'onlySecond', 'neither']"


class ComparedVersion(TypedDict):
    mode: str
    sha256: Sha256


class Conflict(TypedDict):
    appliesAt: NotRequired[list[int]]
    expected: str
    found: str
    hunk: int
    line: int
    path: str
    reason: str


class ConflictRegion(TypedDict):
    base: str
    current: str
    line: int
    new: str


ConsistencyProof = TypedDict("ConsistencyProof", {
    "from": "int",
    "proof": "list[Sha256]",
    "to": "int",
})


class CreateOperatorRequest(TypedDict):
    expiresAt: NotRequired[str | None]
    name: str
    scopes: list[Scope]


class CreateRunRequest(TypedDict):
    labels: NotRequired[dict[str, str] | None]
    mounts: NotRequired[list[MountRequest] | None]
    policy: NotRequired[PolicyOverrides | None]
    runId: NotRequired[RunId | None]
    source: Source
    ttlSeconds: NotRequired[int | None]


class CreatedOperator(TypedDict):
    createdAt: NotRequired[str | None]
    createdBy: NotRequired[str | None]
    expiresAt: NotRequired[str | None]
    name: OperatorName
    revokedAt: NotRequired[str | None]
    scopes: list[Scope]
    token: str


class CreatedRun(TypedDict):
    run: Run
    token: IssuedToken


class CurrentApproval(TypedDict):
    actor: str
    approvalId: ApprovalId
    approvedBy: list[OperatorName]
    approvers: int
    createdAt: str
    decidedBy: NotRequired[str | None]
    decidedSeq: NotRequired[int | None]
    diff: NotRequired[str | None]
    editedSeq: NotRequired[int | None]
    expiresAt: str
    files: list[ApprovalFile]
    notCreator: bool
    note: NotRequired[str | None]
    onBehalfOf: NotRequired[str | None]
    reason: str
    reasons: list[str]
    resolution: NotRequired[str | None]
    runId: RunId
    state: ApprovalState
    tool: str
    toolCallId: ToolCallId
    votes: list[ApprovalVote]
    warnings: list[ApprovalWarning]
    canApply: NotRequired[bool | None]
    present: NotRequired[list[PresentVersion] | None]


class Degradation(TypedDict):
    detail: str
    hint: str
    what: str


class DeleteFileInput(TypedDict):
    dryRun: NotRequired[bool]
    evidence: NotRequired[DeleteFileInputEvidence]
    expectedSha256: NotRequired[ExpectedVersion | None]
    path: str
    reason: str
    recursive: NotRequired[bool]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class DeleteFileInputEvidence(TypedDict):
    eventId: str


class DeleteFileOutput(TypedDict):
    artifactUris: list[str]
    files: NotRequired[list[DeletedFile]]
    headHash: str
    notices: NotRequired[list[str]]
    ok: Literal[True]
    oldSha256: NotRequired[Sha256 | None]
    path: LogicalPath
    seq: int
    summary: str
    toolCallId: str
    warnings: list[str]


class DeletedFile(TypedDict):
    deletions: int
    insertions: int
    oldSha256: Sha256
    operation: str
    path: LogicalPath


DeliveryState: TypeAlias = "Literal['pending', 'delivered', 'failed']"


class DiffFile(TypedDict):
    binary: bool
    deletions: int
    encoding: NotRequired[Encoding | None]
    encodingGuessed: NotRequired[bool]
    insertions: int
    newSha256: NotRequired[Sha256 | None]
    oldSha256: NotRequired[Sha256 | None]
    path: str
    status: str


class DiffWorkspaceInput(TypedDict):
    atSeq: NotRequired[int | None]
    checkTree: NotRequired[bool]
    maxBytes: NotRequired[int]
    maxChars: NotRequired[int | None]
    mount: NotRequired[str]
    path: NotRequired[str | None]
    statOnly: NotRequired[bool]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class DiffWorkspaceOutput(TypedDict):
    atSeq: NotRequired[int | None]
    baseCommit: str
    contentWithheld: NotRequired[bool]
    deletions: int
    diff: str
    diffSha256: Sha256
    files: list[DiffFile]
    filesChanged: int
    insertions: int
    maxBytes: NotRequired[int | None]
    nextPath: NotRequired[str | None]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    stat: str
    toolCallId: str
    treeChecked: NotRequired[bool | None]
    truncated: bool
    truncatedReason: NotRequired[str | None]
    warnings: NotRequired[list[str]]


class Disk(TypedDict):
    bytes: int
    files: int
    historyBytes: NotRequired[int]
    ownBytes: NotRequired[int]
    ownFiles: NotRequired[int]


class DriftEntry(TypedDict):
    actualSha256: NotRequired[Sha256 | None]
    change: str
    expectedSha256: NotRequired[Sha256 | None]
    path: str


class DriftReport(TypedDict):
    items: list[DriftEntry]
    truncated: bool
    written: int


class EditFileInput(TypedDict):
    dryRun: NotRequired[bool]
    encoding: NotRequired[str | None]
    evidence: NotRequired[EditFileInputEvidence]
    expectedReplacements: NotRequired[int | None]
    expectedSha256: NotRequired[ExpectedVersion | None]
    newString: str
    oldString: str
    path: str
    reason: str
    replaceAll: NotRequired[bool]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class EditFileInputEvidence(TypedDict):
    eventId: str


Encoding: TypeAlias = "Literal['utf-8', 'utf-8-bom', 'utf-16le', 'utf-16be', 'windows-1252', 'windows-1250', 'windows-1251', 'windows-1253', 'windows-1254', 'windows-1255', 'windows-1256', 'windows-1257', 'windows-1258', 'windows-874', 'iso-8859-2', 'iso-8859-3', 'iso-8859-4', 'iso-8859-5', 'iso-8859-6', 'iso-8859-7', 'iso-8859-8', 'iso-8859-8-i', 'iso-8859-10', 'iso-8859-13', 'iso-8859-14', 'iso-8859-15', 'iso-8859-16', 'koi8-r', 'koi8-u', 'ibm866', 'macintosh', 'x-mac-cyrillic', 'shift_jis', 'euc-jp', 'euc-kr', 'gbk', 'gb18030', 'big5']"


class Entry(TypedDict):
    kind: NotRequired[FileKind | None]
    path: str
    readable: bool
    reason: NotRequired[str | None]
    redacted: NotRequired[bool]
    sizeBytes: NotRequired[int | None]
    type: EntryType


EntryType: TypeAlias = "Literal['file', 'directory', 'symlink', 'other']"


EventKind: TypeAlias = "Literal['prompt', 'model', 'command', 'test', 'message', 'handoff', 'evidence', 'link']"


class Evidence(TypedDict):
    eventId: ToolCallId


ExpectedVersion: TypeAlias = "str"


FileKind: TypeAlias = "Literal['TEXT_SOURCE', 'TEXT_CONFIG', 'TEXT_DOC', 'LOCKFILE', 'GENERATED', 'VENDORED', 'SECRET_LIKE', 'BINARY', 'DIRECTORY', 'GIT_INTERNAL', 'SUBMODULE', 'UNKNOWN']"


class FindFilesInput(TypedDict):
    cursor: NotRequired[str | None]
    glob: list[str]
    maxChars: NotRequired[int | None]
    maxResults: NotRequired[int]
    mount: NotRequired[str]
    path: NotRequired[str]
    sort: NotRequired[Literal['path', 'modified', 'size']]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class FindFilesOutput(TypedDict):
    entries: list[FoundFile]
    nextCursor: NotRequired[str | None]
    notShown: NotRequired[NotShown]
    notes: NotRequired[list[str]]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    toolCallId: str
    totalEntries: NotRequired[int | None]
    truncated: bool
    truncatedReason: NotRequired[str | None]
    warnings: NotRequired[list[str]]


class Fork(TypedDict):
    atSeq: int
    mergedSeq: NotRequired[int | None]
    runId: RunId
    state: RunState


class ForkedFrom(TypedDict):
    hash: Sha256
    mergedSeq: NotRequired[int | None]
    runId: RunId
    seq: int
    source: Source


class FoundFile(TypedDict):
    kind: NotRequired[FileKind | None]
    modifiedAt: str
    path: LogicalPath
    readable: bool
    reason: NotRequired[str | None]
    sizeBytes: NotRequired[int | None]
    type: EntryType


GitMode: TypeAlias = "Literal['100644', '100755', '120000']"


class Health(TypedDict):
    ok: bool


class HourStats(TypedDict):
    changes: int
    commands: int
    denied: int
    deniedByPerson: int
    failed: int
    other: int
    pending: int
    reads: int
    records: int
    refused: int
    hour: str


class HunkOffset(TypedDict):
    hunk: int
    offset: int


class ImportProblem(TypedDict):
    code: Code
    hint: str
    message: str


class ImportReport(TypedDict):
    bytes: int
    error: NotRequired[ImportProblem | None]
    files: int
    leftOut: list[SkippedEntry]
    leftOutMore: NotRequired[int]
    progress: str
    resumed: NotRequired[bool]


class InclusionProof(TypedDict):
    checkpoint: str
    leaf: CheckpointLeaf
    leafIndex: int
    nextSeq: NotRequired[int | None]
    proof: list[Sha256]
    recordHash: Sha256
    records: list[AuditRecord]
    seq: int
    treeSize: int


class IssueTokenRequest(TypedDict):
    expiresAt: NotRequired[str | None]
    permissions: NotRequired[list[Permission] | None]


class IssuedToken(TypedDict):
    expiresAt: NotRequired[str | None]
    permissions: list[Permission]
    token: str
    tokenId: TokenId


KindDecision: TypeAlias = "Literal['ALLOW', 'REQUIRE_EVIDENCE', 'REQUIRE_APPROVAL', 'DENY', 'REDACT']"


class LeftEntry(TypedDict):
    path: str
    rule: str


class LeftFile(TypedDict):
    path: str
    rule: str


class LeftOutEntry(TypedDict):
    path: str
    why: str


class Limits(TypedDict):
    bundle: BundleLimits
    defaultBudget: Budget
    requests: RequestLimits
    service: ServiceLimits
    tools: ToolLimits


LineEnding: TypeAlias = "Literal['lf', 'crlf', 'mixed', 'none']"


class ListDirInput(TypedDict):
    atSeq: NotRequired[int | None]
    cursor: NotRequired[str | None]
    includeHidden: NotRequired[bool]
    includeIgnored: NotRequired[bool]
    maxChars: NotRequired[int | None]
    maxDepth: NotRequired[int]
    maxEntries: NotRequired[int]
    mount: NotRequired[str]
    path: NotRequired[str]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class ListDirOutput(TypedDict):
    atSeq: NotRequired[int | None]
    entries: list[Entry]
    nextCursor: NotRequired[str | None]
    notShown: NotRequired[NotShown]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    path: LogicalPath
    toolCallId: str
    totalEntries: NotRequired[int | None]
    truncated: bool
    truncatedReason: NotRequired[str | None]
    warnings: NotRequired[list[str]]


LogicalPath: TypeAlias = "str"


class Match(TypedDict):
    after: list[str]
    before: list[str]
    column: NotRequired[int]
    endLine: NotRequired[int | None]
    kind: FileKind
    line: NotRequired[int]
    path: str
    snippet: str


MergeRequest = TypedDict("MergeRequest", {
    "dryRun": NotRequired["bool"],
    "from": "RunId",
    "onConflict": NotRequired["OnConflict"],
    "onDenied": NotRequired["OnDenied"],
    "reason": "str",
})


class Mount(TypedDict):
    description: str
    entries: NotRequired[list[str]]
    name: str


class MountRequest(TypedDict):
    description: str
    name: str
    path: str


MoveFileInput = TypedDict("MoveFileInput", {
    "dryRun": NotRequired["bool"],
    "evidence": NotRequired["MoveFileInputEvidence"],
    "expectedSha256": NotRequired["ExpectedVersion | None"],
    "from": "str",
    "reason": "str",
    "recursive": NotRequired["bool"],
    "stepId": NotRequired["str"],
    "to": "str",
    "toolCallId": NotRequired["str"],
})


class MoveFileInputEvidence(TypedDict):
    eventId: str


MoveFileOutput = TypedDict("MoveFileOutput", {
    "artifactUris": "list[str]",
    "files": NotRequired["list[MovedFile]"],
    "from": "LogicalPath",
    "headHash": "str",
    "notices": NotRequired["list[str]"],
    "ok": "Literal[True]",
    "seq": "int",
    "sha256": NotRequired["Sha256 | None"],
    "summary": "str",
    "to": "LogicalPath",
    "toolCallId": "str",
    "warnings": "list[str]",
})


MovedFile = TypedDict("MovedFile", {
    "deletions": "int",
    "from": "LogicalPath",
    "insertions": "int",
    "operation": "str",
    "path": "LogicalPath",
    "sha256": "Sha256",
})


class NearestText(TypedDict):
    difference: str
    line: int


class NextCommand(TypedDict):
    cancel: NotRequired[str | None]
    command: NotRequired[CommandOrder | None]


class NextCommandRequest(TypedDict):
    runner: str
    running: NotRequired[str | None]
    waitSeconds: NotRequired[int | None]


class NodeView(TypedDict):
    incarnation: int
    isAlive: bool
    isThis: bool
    nodeId: str
    ownedRuns: int
    startedAt: str
    url: str


class NotShown(TypedDict):
    binaryFiles: NotRequired[int]
    generatedFiles: NotRequired[int]
    generatedFolders: NotRequired[int]
    hidden: NotRequired[int]
    ignored: NotRequired[int]
    moreSkipped: NotRequired[int]
    unopenedFolders: NotRequired[int]
    vendoredFiles: NotRequired[int]
    vendoredFolders: NotRequired[int]


OnConflict: TypeAlias = "Literal['refuse', 'merge']"


OnDenied: TypeAlias = "Literal['refuse', 'leave']"


class OneFile(TypedDict):
    actual: NotRequired[int | None]
    content: NotRequired[str | None]
    cutLine: NotRequired[int | None]
    encoding: NotRequired[Encoding | None]
    encodingGuessed: NotRequired[bool]
    gitLfsBytes: NotRequired[int | None]
    limit: NotRequired[int | None]
    lineEnding: NotRequired[LineEnding | None]
    message: NotRequired[str | None]
    nextColumn: NotRequired[int | None]
    nextStartLine: NotRequired[int | None]
    redacted: NotRequired[bool]
    sha256: NotRequired[Sha256 | None]
    sizeBytes: NotRequired[int | None]
    status: str
    totalLines: NotRequired[int | None]
    truncated: NotRequired[bool]


class Operator(TypedDict):
    createdAt: NotRequired[str | None]
    createdBy: NotRequired[str | None]
    expiresAt: NotRequired[str | None]
    name: OperatorName
    revokedAt: NotRequired[str | None]
    scopes: list[Scope]


OperatorName: TypeAlias = "str"


class OperatorSelf(TypedDict):
    name: OperatorName
    scopes: list[Scope]


Outcome: TypeAlias = "Literal['ok', 'refused', 'pending', 'failed']"


OutsideChanges: TypeAlias = "Literal['REFUSE', 'RECORD']"


class OwnRun(TypedDict):
    baseCommit: NotRequired[str | None]
    closedAt: NotRequired[str | None]
    createdAt: str
    entries: NotRequired[list[Entry] | None]
    expiresAt: NotRequired[str | None]
    mounts: list[Mount]
    notShown: NotRequired[NotShown]
    policy: Policy
    remaining: RunAmounts
    runId: RunId
    state: RunState
    token: OwnToken
    truncated: NotRequired[bool]
    usage: RunAmounts


class OwnToken(TypedDict):
    expiresAt: NotRequired[str | None]
    permissions: list[Permission]
    tokenId: TokenId


class Page_Approval(TypedDict):
    items: list[Approval]
    nextCursor: NotRequired[str | None]


class Page_AuditRecord(TypedDict):
    items: list[AuditRecord]
    nextCursor: NotRequired[str | None]


class Page_NodeView(TypedDict):
    items: list[NodeView]
    nextCursor: NotRequired[str | None]


class Page_Operator(TypedDict):
    items: list[Operator]
    nextCursor: NotRequired[str | None]


class Page_Run(TypedDict):
    items: list[Run]
    nextCursor: NotRequired[str | None]


class Page_RunToken(TypedDict):
    items: list[RunToken]
    nextCursor: NotRequired[str | None]


class Page_WebhookDelivery(TypedDict):
    items: list[WebhookDelivery]
    nextCursor: NotRequired[str | None]


class Page_WebhookView(TypedDict):
    items: list[WebhookView]
    nextCursor: NotRequired[str | None]


PatchedFile = TypedDict("PatchedFile", {
    "deletions": "int",
    "from": NotRequired["LogicalPath | None"],
    "insertions": "int",
    "newSha256": NotRequired["Sha256 | None"],
    "offsets": "list[HunkOffset]",
    "oldSha256": NotRequired["Sha256 | None"],
    "operation": "str",
    "path": "LogicalPath",
})


class PathExplanation(TypedDict):
    kind: FileKind
    mutate: PolicyDecision
    path: LogicalPath
    read: PolicyDecision


class PeopleCounts(TypedDict):
    calls: int
    mutations: int


Permission: TypeAlias = "Literal['file:list', 'file:read', 'file:search', 'file:diff', 'file:write:create', 'file:write:replace', 'file:patch:apply', 'file:delete', 'file:move', 'audit:read', 'event:append', 'evidence:attest', 'changeset:apply', 'command:serve']"


class Policy(TypedDict):
    allowModeChange: bool
    approval: NotRequired[ApprovalRule]
    ask: NotRequired[list[str]]
    budget: Budget
    commandBudget: NotRequired[Budget]
    commands: NotRequired[CommandPolicy]
    deny: list[str]
    fileBudget: NotRequired[Verdict]
    ignoredFiles: Verdict
    kinds: dict[str, KindDecision]
    maxFileBytes: int
    maxTransferBytes: int
    notSecret: NotRequired[list[str]]
    outsideChanges: NotRequired[OutsideChanges]
    profile: str
    quota: NotRequired[Quota]
    read: list[str]
    requireApprovalIf: list[Trigger]
    runBudget: NotRequired[BudgetOverrides | None]
    symbolicLinks: NotRequired[Verdict]
    write: list[str]


class PolicyDecision(TypedDict):
    code: NotRequired[Code | None]
    decision: Verdict
    message: NotRequired[str | None]
    reasons: list[str]


class PolicyExplanation(TypedDict):
    command: NotRequired[PolicyDecision | None]
    patch: NotRequired[PolicyDecision | None]
    paths: list[PathExplanation]


class PolicyOverrides(TypedDict):
    allowModeChange: NotRequired[bool | None]
    approval: NotRequired[ApprovalRuleOverrides | None]
    ask: NotRequired[list[str] | None]
    budget: NotRequired[BudgetOverrides | None]
    commandBudget: NotRequired[BudgetOverrides | None]
    commands: NotRequired[CommandOverrides | None]
    deny: NotRequired[list[str] | None]
    fileBudget: NotRequired[Verdict | None]
    ignoredFiles: NotRequired[Verdict | None]
    kinds: NotRequired[dict[str, KindDecision] | None]
    maxFileBytes: NotRequired[int | None]
    maxTransferBytes: NotRequired[int | None]
    notSecret: NotRequired[list[str] | None]
    outsideChanges: NotRequired[OutsideChanges | None]
    profile: NotRequired[str | None]
    quota: NotRequired[QuotaOverrides | None]
    read: NotRequired[list[str] | None]
    requireApprovalIf: NotRequired[list[Trigger] | None]
    runBudget: NotRequired[BudgetOverrides | None]
    symbolicLinks: NotRequired[Verdict | None]
    write: NotRequired[list[str] | None]


class PolicyQuery(TypedDict):
    command: NotRequired[str | None]
    patch: NotRequired[str | None]
    path: NotRequired[str | None]


class PresentVersion(TypedDict):
    exists: bool
    isExpected: NotRequired[bool | None]
    path: LogicalPath
    sha256: NotRequired[Sha256 | None]


class Problem(TypedDict):
    actual: NotRequired[int | None]
    approvalId: NotRequired[ApprovalId | None]
    conflictRegions: NotRequired[list[ConflictRegion]]
    conflicts: NotRequired[list[Conflict]]
    contentWithheld: NotRequired[bool]
    currentSha256: NotRequired[Sha256 | None]
    diff: NotRequired[str | None]
    difference: NotRequired[str | None]
    headHash: NotRequired[Sha256 | None]
    hunk: NotRequired[int | None]
    knownSha256: NotRequired[Sha256 | None]
    limit: NotRequired[int | None]
    lines: NotRequired[list[int]]
    nearest: NotRequired[list[NearestText]]
    notices: NotRequired[list[str]]
    path: NotRequired[str | None]
    reasons: NotRequired[list[str]]
    resolution: NotRequired[str | None]
    retryAfterSeconds: NotRequired[int | None]
    seq: NotRequired[int | None]
    totalLines: NotRequired[int | None]
    code: Code
    detail: str
    hint: str
    instance: NotRequired[str | None]
    message: str
    ok: Literal[False]
    status: int
    title: str
    toolCallId: NotRequired[ToolCallId | None]
    type: str


class ProblemDetails(TypedDict):
    actual: NotRequired[int | None]
    approvalId: NotRequired[ApprovalId | None]
    conflictRegions: NotRequired[list[ConflictRegion]]
    conflicts: NotRequired[list[Conflict]]
    contentWithheld: NotRequired[bool]
    currentSha256: NotRequired[Sha256 | None]
    diff: NotRequired[str | None]
    difference: NotRequired[str | None]
    headHash: NotRequired[Sha256 | None]
    hunk: NotRequired[int | None]
    knownSha256: NotRequired[Sha256 | None]
    limit: NotRequired[int | None]
    lines: NotRequired[list[int]]
    nearest: NotRequired[list[NearestText]]
    notices: NotRequired[list[str]]
    path: NotRequired[str | None]
    reasons: NotRequired[list[str]]
    resolution: NotRequired[str | None]
    retryAfterSeconds: NotRequired[int | None]
    seq: NotRequired[int | None]
    totalLines: NotRequired[int | None]


class Quota(TypedDict):
    maxFiles: NotRequired[int]
    maxHistoryBytes: NotRequired[int]
    maxRecords: NotRequired[int]
    maxTreeBytes: NotRequired[int]
    pendingApprovals: NotRequired[int]


class QuotaAmounts(TypedDict):
    files: int
    historyBytes: int
    pendingApprovals: int
    records: int
    treeBytes: int


class QuotaOverrides(TypedDict):
    maxFiles: NotRequired[int | None]
    maxHistoryBytes: NotRequired[int | None]
    maxRecords: NotRequired[int | None]
    maxTreeBytes: NotRequired[int | None]
    pendingApprovals: NotRequired[int | None]


class RanCommand(TypedDict):
    changes: NotRequired[CommandChanges | None]
    contentWithheld: NotRequired[bool]
    cutLine: NotRequired[int | None]
    differs: NotRequired[list[str]]
    differsCount: NotRequired[int]
    durationMicros: int
    eventSeq: NotRequired[int | None]
    exitCode: NotRequired[int | None]
    headHash: str
    nextColumn: NotRequired[int | None]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    output: str
    outputLines: NotRequired[int]
    outputOf: NotRequired[str | None]
    outputSha256: NotRequired[Sha256 | None]
    outputStartCut: NotRequired[bool]
    outputStartLine: NotRequired[int]
    putAside: NotRequired[list[str]]
    putAsideCount: NotRequired[int]
    seq: int
    shell: NotRequired[str | None]
    signal: NotRequired[int | None]
    timedOut: bool
    toolCallId: str
    warning: NotRequired[str | None]


class ReadFileInput(TypedDict):
    atSeq: NotRequired[int | None]
    column: NotRequired[int | None]
    encoding: NotRequired[str | None]
    format: NotRequired[Literal['numbered', 'raw']]
    maxChars: NotRequired[int | None]
    maxLines: NotRequired[int]
    mount: NotRequired[str]
    path: str
    startLine: NotRequired[int]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class ReadFileOutput(TypedDict):
    atSeq: NotRequired[int | None]
    content: str
    cutLine: NotRequired[int | None]
    encoding: Encoding
    encodingGuessed: NotRequired[bool]
    endLine: int
    format: NotRequired[Literal['numbered', 'raw'] | None]
    gitLfsBytes: NotRequired[int | None]
    lineEnding: LineEnding
    linesCut: NotRequired[int]
    nextColumn: NotRequired[int | None]
    nextStartLine: NotRequired[int | None]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    path: LogicalPath
    redacted: NotRequired[bool]
    sha256: NotRequired[Sha256 | None]
    startLine: int
    toolCallId: str
    totalLines: int
    truncated: bool
    warnings: NotRequired[list[str]]


class ReadFilesInput(TypedDict):
    maxChars: NotRequired[int | None]
    mount: NotRequired[str]
    paths: list[str]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class ReadFilesOutput(TypedDict):
    files: dict[str, OneFile]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    remaining: NotRequired[list[str]]
    toolCallId: str
    truncated: NotRequired[bool]
    truncatedReason: NotRequired[str | None]
    warnings: NotRequired[list[str]]


class Readiness(TypedDict):
    degraded: NotRequired[list[Degradation]]
    ok: bool


class ReasonStats(TypedDict):
    outcome: str
    reason: str
    records: int


class RecordFile(TypedDict):
    kind: FileKind
    mode: NotRequired[GitMode | None]
    newSha256: NotRequired[Sha256 | None]
    oldMode: NotRequired[GitMode | None]
    oldSha256: NotRequired[Sha256 | None]
    path: LogicalPath


class RecordStats(TypedDict):
    hours: list[HourStats]
    moreReasons: int
    moreRuns: int
    reasons: list[ReasonStats]
    runs: list[RunStats]
    total: StatsCounts


class ReplaceRangeInput(TypedDict):
    content: str
    dryRun: NotRequired[bool]
    encoding: NotRequired[str | None]
    endLine: int
    evidence: NotRequired[ReplaceRangeInputEvidence]
    expectedSha256: ExpectedVersion
    path: str
    reason: str
    startLine: int
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class ReplaceRangeInputEvidence(TypedDict):
    eventId: str


class ReportApproval(TypedDict):
    approvalId: ApprovalId
    decidedBy: NotRequired[str | None]
    editedSeq: NotRequired[int | None]
    note: NotRequired[str | None]
    onBehalfOf: NotRequired[str | None]
    paths: list[str]
    reason: str
    reasons: list[str]
    state: ApprovalState
    tool: str


class ReportBudget(TypedDict):
    limit: NotRequired[int | None]
    name: str
    used: int


class ReportCommand(TypedDict):
    differsCount: NotRequired[int | None]
    exitCode: NotRequired[int | None]
    isAttested: bool
    isCurrent: bool
    notAppliedSeq: NotRequired[int | None]
    outputSha256: NotRequired[Sha256 | None]
    seq: int
    summary: str
    tool: str
    treeSha256: NotRequired[Sha256 | None]


class ReportCounts(TypedDict):
    approvalsRequested: int
    commands: NotRequired[int]
    denied: int
    dryRuns: int
    events: int
    failed: int
    reads: int
    records: int
    refused: int
    writes: int


class ReportDiff(TypedDict):
    deletions: int
    diffSha256: Sha256
    files: list[ReportDiffFile]
    filesChanged: int
    insertions: int
    moreFiles: int


class ReportDiffFile(TypedDict):
    deletions: int
    insertions: int
    path: str
    status: str


class ReportFile(TypedDict):
    kind: NotRequired[FileKind | None]
    lastSeq: int
    newSha256: NotRequired[Sha256 | None]
    oldSha256: NotRequired[Sha256 | None]
    path: str
    reads: int
    refused: int
    writes: int


class ReportVerification(TypedDict):
    checkpointedSeq: int
    intact: bool
    problem: NotRequired[str | None]
    verifiedSeq: int


class RequestLimits(TypedDict):
    bodyTimeoutSeconds: int
    maxAnswerMemoryBytes: int
    maxArchiveBytes: int
    maxBatchCalls: int
    maxBodyBytes: int
    maxBodyMemoryBytes: int
    maxJsonValues: int
    maxWaitSeconds: int
    minBytesPerSecond: int
    pageDefault: int
    pageMax: int
    rateBurst: NotRequired[int | None]
    ratePerSecond: NotRequired[int | None]
    requestTimeoutSeconds: int
    tokenConcurrency: int


class ResourceMetadata(TypedDict):
    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    resource: str
    resource_name: str
    scopes_supported: list[str]


class RestoredFile(TypedDict):
    deletions: int
    insertions: int
    operation: str
    path: LogicalPath


class RevertCallsInput(TypedDict):
    dryRun: NotRequired[bool]
    evidence: NotRequired[RevertCallsInputEvidence]
    last: NotRequired[int | None]
    ofPath: NotRequired[str | None]
    reason: str
    stepId: NotRequired[str]
    toSeq: NotRequired[int | None]
    toolCallId: NotRequired[str]
    toolCallIds: NotRequired[list[str] | None]


class RevertCallsInputEvidence(TypedDict):
    eventId: str


class RevertCallsOutput(TypedDict):
    artifactUris: list[str]
    deletions: int
    files: list[RestoredFile]
    filesTouched: list[LogicalPath]
    headHash: str
    insertions: int
    notices: NotRequired[list[str]]
    ok: Literal[True]
    reverted: list[ToolCallId]
    seq: int
    summary: str
    toolCallId: str
    warnings: list[str]


class RotateTokenRequest(TypedDict):
    expiresAt: NotRequired[str | None]
    overlapSeconds: NotRequired[int | None]


Run = TypedDict("Run", {
    "agent": NotRequired["str | None"],
    "archiveUri": NotRequired["str | None"],
    "archivedAt": NotRequired["str | None"],
    "baseCommit": NotRequired["str | None"],
    "closedAt": NotRequired["str | None"],
    "counts": "RunCounts",
    "createdAt": "str",
    "createdBy": NotRequired["OperatorName | None"],
    "disk": "Disk",
    "expiresAt": NotRequired["str | None"],
    "forks": NotRequired["list[Fork] | None"],
    "headHash": "Sha256",
    "headSeq": "int",
    "import": "ImportReport",
    "labels": "dict[str, str]",
    "lastActivityAt": NotRequired["str | None"],
    "moreForks": NotRequired["bool"],
    "mounts": "list[Mount]",
    "parent": NotRequired["ForkedFrom | None"],
    "people": "PeopleCounts",
    "policy": "Policy",
    "prompt": NotRequired["str | None"],
    "repository": NotRequired["str | None"],
    "runId": "RunId",
    "source": "Source",
    "state": "RunState",
})


class RunAmounts(TypedDict):
    quota: QuotaAmounts
    runBudget: BudgetAmounts


class RunChange(TypedDict):
    files: list[ChangedFile]
    seq: int
    timestamp: str
    tool: str
    toolCallId: ToolCallId


class RunCommandInput(TypedDict):
    column: NotRequired[int | None]
    command: NotRequired[str | None]
    cwd: NotRequired[str | None]
    maxChars: NotRequired[int | None]
    outputOf: NotRequired[str | None]
    reason: NotRequired[str]
    shell: NotRequired[Literal['sh', 'bash'] | None]
    startLine: NotRequired[int | None]
    stepId: NotRequired[str]
    timeoutSeconds: NotRequired[int | None]
    toolCallId: NotRequired[str]


class RunComparison(TypedDict):
    files: list[ComparedFile]
    nextAfter: NotRequired[str | None]
    runs: list[ComparedRun]


class RunCounts(TypedDict):
    calls: int
    deletions: int
    denied: int
    insertions: int
    mutations: int
    pendingApprovals: int


RunId: TypeAlias = "str"


class RunReport(TypedDict):
    approvals: list[ReportApproval]
    baseCommit: NotRequired[str | None]
    budgets: list[ReportBudget]
    closedAt: NotRequired[str | None]
    commands: list[ReportCommand]
    counts: ReportCounts
    createdAt: str
    diff: NotRequired[ReportDiff | None]
    diffProblem: NotRequired[Code | None]
    files: list[ReportFile]
    headHash: Sha256
    headSeq: int
    labels: dict[str, str]
    lastAt: NotRequired[str | None]
    moreApprovals: int
    moreCommands: int
    moreFiles: int
    policyProfile: str
    prompt: NotRequired[str | None]
    runId: RunId
    source: dict[str, Any]
    state: RunState
    verification: NotRequired[ReportVerification | None]


RunState: TypeAlias = "Literal['preparing', 'open', 'awaiting_approval', 'closed', 'deleted']"


class RunStats(TypedDict):
    changes: int
    commands: int
    denied: int
    deniedByPerson: int
    failed: int
    other: int
    pending: int
    reads: int
    records: int
    refused: int
    runId: str


class RunToken(TypedDict):
    createdAt: str
    expiresAt: NotRequired[str | None]
    issuedBy: str
    lastUsedAt: NotRequired[str | None]
    permissions: list[Permission]
    revokedAt: NotRequired[str | None]
    tokenId: TokenId


class RunUsage(TypedDict):
    remaining: RunAmounts
    usage: RunAmounts


RunView: TypeAlias = "Run | OwnRun"


Scope: TypeAlias = "Literal['orchestrate', 'approve', 'audit', 'metrics']"


class SearchTextInput(TypedDict):
    caseSensitive: NotRequired[bool]
    contextLines: NotRequired[int]
    cursor: NotRequired[str | None]
    excludeGlob: NotRequired[list[str]]
    fileType: NotRequired[str | None]
    includeGlob: NotRequired[list[str]]
    maxChars: NotRequired[int | None]
    maxMatches: NotRequired[int]
    mode: NotRequired[Literal['literal', 'regex']]
    mount: NotRequired[str]
    multiline: NotRequired[bool]
    onePerFile: NotRequired[bool]
    path: NotRequired[str]
    query: str
    skip: NotRequired[int]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]
    wholeWord: NotRequired[bool]


class SearchTextOutput(TypedDict):
    contentWithheld: NotRequired[bool]
    filesSearched: int
    matches: list[Match]
    matchesSkipped: NotRequired[int]
    nextCursor: NotRequired[str | None]
    notShown: NotRequired[NotShown]
    notes: NotRequired[list[str]]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    query: str
    skipped: NotRequired[list[str]]
    toolCallId: str
    truncated: bool
    truncatedReason: NotRequired[str | None]
    warnings: NotRequired[list[str]]


class ServiceLimits(TypedDict):
    exportThreads: int
    headerTimeoutSeconds: int
    idleTimeoutSeconds: int
    importThreads: int
    maxConnections: int
    maxDiskBytes: NotRequired[int | None]
    maxLiveRuns: int
    maxRuns: NotRequired[int | None]
    readThreads: int
    searchThreads: int
    writeThreads: int


class SettleRequest(TypedDict):
    accept: Literal['tree', 'ledger']
    dryRun: NotRequired[bool | None]
    paths: NotRequired[list[str] | None]
    reason: str
    toolCallId: NotRequired[str | None]


class SettledDrift(TypedDict):
    accept: Accept
    files: list[SettledFile]
    remaining: int
    skipped: list[LogicalPath]


class SettledFile(TypedDict):
    change: str
    foundSha256: NotRequired[Sha256 | None]
    knownSha256: NotRequired[Sha256 | None]
    path: LogicalPath


Severity: TypeAlias = "Literal['info', 'doubt', 'danger']"


Sha256: TypeAlias = "str"


class SkippedEntry(TypedDict):
    path: str
    reason: str


Source: TypeAlias = "SourceEmpty | SourceGit | SourceDirectory | SourceArchive | SourceRun"


class SourceEmpty(TypedDict):
    type: Literal['empty']


class SourceGit(TypedDict):
    credential: NotRequired[str | None]
    ref: NotRequired[str | None]
    type: Literal['git']
    url: str


class SourceDirectory(TypedDict):
    path: str
    type: Literal['directory']


class SourceArchive(TypedDict):
    type: Literal['archive']


class SourceRun(TypedDict):
    atSeq: NotRequired[int | None]
    runId: RunId
    type: Literal['run']


class StatPathInput(TypedDict):
    maxChars: NotRequired[int | None]
    mount: NotRequired[str]
    path: str
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class StatPathOutput(TypedDict):
    exists: bool
    kind: NotRequired[FileKind | None]
    mode: NotRequired[str | None]
    modifiedAt: NotRequired[str | None]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    path: LogicalPath
    readable: bool
    reason: NotRequired[str | None]
    redacted: NotRequired[bool]
    sha256: NotRequired[Sha256 | None]
    sizeBytes: NotRequired[int | None]
    target: NotRequired[LogicalPath | None]
    toolCallId: str
    type: NotRequired[Literal['file', 'directory', 'symlink', 'other'] | None]
    warnings: NotRequired[list[str]]
    writable: bool


class Stats(TypedDict):
    hours: list[HourStats]
    moreReasons: int
    moreRuns: int
    reasons: list[ReasonStats]
    runs: list[RunStats]
    total: StatsCounts
    since: NotRequired[str | None]
    until: NotRequired[str | None]


class StatsCounts(TypedDict):
    changes: int
    commands: int
    denied: int
    deniedByPerson: int
    failed: int
    other: int
    pending: int
    reads: int
    records: int
    refused: int


class StopRunRequest(TypedDict):
    reason: str


class StoredFile(TypedDict):
    artifactUris: list[str]
    created: bool
    headHash: str
    newSha256: NotRequired[Sha256 | None]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    oldSha256: NotRequired[Sha256 | None]
    path: LogicalPath
    seq: int
    sizeBytes: int
    summary: str
    toolCallId: str
    warnings: list[str]


class Tally(TypedDict):
    bytes: int
    files: int
    lines: int


class TextEditOutput(TypedDict):
    artifactUris: list[str]
    bytesWritten: int
    created: bool
    deletions: int
    headHash: str
    insertions: int
    merged: NotRequired[bool]
    mergedFrom: NotRequired[Sha256 | None]
    newSha256: Sha256
    notices: NotRequired[list[str]]
    ok: Literal[True]
    oldSha256: NotRequired[Sha256 | None]
    path: LogicalPath
    replacements: NotRequired[int | None]
    seq: int
    summary: str
    toolCallId: str
    warnings: list[str]


TokenId: TypeAlias = "str"


class ToolCall(TypedDict):
    actor: str
    artifactUris: list[str]
    by: NotRequired[By | None]
    code: NotRequired[Code | None]
    decision: Verdict
    diffSha256: NotRequired[Sha256 | None]
    durationMicros: int
    evidence: NotRequired[Evidence | None]
    files: list[RecordFile]
    format: NotRequired[str | None]
    hash: NotRequired[Sha256]
    input: NotRequired[dict[str, Any] | None]
    left: NotRequired[list[LeftEntry]]
    leftCount: NotRequired[int | None]
    mutates: bool
    outcome: Outcome
    pathsRead: list[LogicalPath]
    pathsWritten: list[LogicalPath]
    prevHash: Sha256
    reason: NotRequired[str | None]
    reasons: list[str]
    requestId: NotRequired[str | None]
    runId: str
    seq: int
    stepId: NotRequired[str | None]
    timestamp: str
    tool: str
    toolCallId: ToolCallId
    traceId: NotRequired[str | None]
    approval: NotRequired[Approval | None]
    contentWithheld: NotRequired[bool]
    resolution: NotRequired[str | None]


ToolCallId: TypeAlias = "str"


class ToolInfo(TypedDict):
    annotations: NotRequired[dict[str, Any]]
    description: NotRequired[str]
    function: NotRequired[dict[str, Any]]
    inputSchema: NotRequired[dict[str, Any]]
    mutates: NotRequired[bool]
    name: NotRequired[str]
    outputSchema: NotRequired[dict[str, Any]]
    permissions: NotRequired[list[str]]
    title: NotRequired[str]
    type: NotRequired[str]


class ToolLimits(TypedDict):
    diffWorkspaceMaxBytes: int
    findFilesMaxGlobs: int
    findFilesMaxResults: int
    listDirMaxDepth: int
    listDirMaxEntries: int
    maxEntriesBytes: int
    maxPathBytes: int
    maxReasonCharacters: int
    maxStepIdCharacters: int
    maxToolCallIdCharacters: int
    rangedReadFactor: int
    readFileMaxContentBytes: int
    readFileMaxLineCharacters: int
    readFileMaxLines: int
    readFilesMaxContentBytes: int
    readFilesMaxPaths: int
    revertCallsMaxCalls: int
    searchTextMaxContextLines: int
    searchTextMaxGlobs: int
    searchTextMaxMatches: int
    searchTextMaxQueryBytes: int
    searchTextMaxSeconds: int


class ToolList(TypedDict):
    items: list[ToolInfo]
    mounts: NotRequired[list[Mount]]


class TreeStatsInput(TypedDict):
    maxChars: NotRequired[int | None]
    mount: NotRequired[str]
    path: NotRequired[str]
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class TreeStatsOutput(TypedDict):
    bytes: int
    files: int
    lines: int
    byExtension: dict[str, Tally]
    byKind: dict[str, Tally]
    directories: int
    notCounted: int
    notShown: NotRequired[NotShown]
    notices: NotRequired[list[str]]
    ok: Literal[True]
    path: LogicalPath
    toolCallId: str
    truncated: NotRequired[bool]
    warnings: NotRequired[list[str]]


Trigger: TypeAlias = "Literal['touchesBuildFile', 'touchesSecuritySensitivePath', 'touchesLockfile', 'deletesFile', 'changesPublicApi', 'deletesTest', 'weakensTest']"


class UpdateRunRequest(TypedDict):
    expiresAt: NotRequired[str | None]
    labels: NotRequired[dict[str, str]]


class UploadedArtifact(TypedDict):
    headHash: NotRequired[Sha256 | None]
    ok: bool
    seq: NotRequired[int | None]
    sha256: Sha256
    sizeBytes: int
    uri: str


Verdict: TypeAlias = "Literal['ALLOW', 'REQUIRE_APPROVAL', 'DENY']"


WarningCode: TypeAlias = "Literal['WEAKENS_TEST', 'DELETES_TEST', 'CREDENTIAL_LIKE', 'NEW_HOST', 'DENIED_BEFORE', 'OUTSIDE_WRITE', 'STALE', 'TESTS_FAILED', 'TESTS_NOT_ON_THIS_TREE']"


class WebhookDelivery(TypedDict):
    attempts: int
    createdAt: str
    id: str
    lastError: NotRequired[str | None]
    lastStatus: NotRequired[int | None]
    nextAttemptAt: NotRequired[str | None]
    runId: NotRequired[RunId | None]
    state: DeliveryState
    type: WebhookEvent


WebhookEvent: TypeAlias = "Literal['approval.requested', 'approval.decided', 'approval.expired', 'run.closed', 'call.refused', 'budget.reached', 'run.needs_repair', 'signing.stopped']"


WebhookState: TypeAlias = "Literal['active', 'disabled']"


class WebhookView(TypedDict):
    events: list[WebhookEvent]
    name: str
    pending: int
    state: WebhookState
    url: str


class WriteFileInput(TypedDict):
    content: str
    dryRun: NotRequired[bool]
    encoding: NotRequired[str | None]
    evidence: NotRequired[WriteFileInputEvidence]
    expectedSha256: NotRequired[ExpectedVersion | None]
    lineEnding: NotRequired[Literal['lf', 'crlf'] | None]
    mode: NotRequired[Literal['CREATE_NEW', 'REPLACE_EXISTING', 'CREATE_OR_REPLACE']]
    onConflict: NotRequired[Literal['refuse', 'merge']]
    path: str
    reason: str
    stepId: NotRequired[str]
    toolCallId: NotRequired[str]


class WriteFileInputEvidence(TypedDict):
    eventId: str


class CallTool(Protocol):
    """Calls a tool by its name: the input and the answer of each tool."""

    @overload
    def __call__(self, tool: Literal["apply_patch"], /, **input: Unpack[ApplyPatchInput]) -> ApplyPatchOutput: ...

    @overload
    def __call__(self, tool: Literal["delete_file"], /, **input: Unpack[DeleteFileInput]) -> DeleteFileOutput: ...

    @overload
    def __call__(self, tool: Literal["diff_workspace"], /, **input: Unpack[DiffWorkspaceInput]) -> DiffWorkspaceOutput: ...

    @overload
    def __call__(self, tool: Literal["edit_file"], /, **input: Unpack[EditFileInput]) -> TextEditOutput: ...

    @overload
    def __call__(self, tool: Literal["find_files"], /, **input: Unpack[FindFilesInput]) -> FindFilesOutput: ...

    @overload
    def __call__(self, tool: Literal["list_dir"], /, **input: Unpack[ListDirInput]) -> ListDirOutput: ...

    @overload
    def __call__(self, tool: Literal["move_file"], /, **input: Unpack[MoveFileInput]) -> MoveFileOutput: ...

    @overload
    def __call__(self, tool: Literal["read_file"], /, **input: Unpack[ReadFileInput]) -> ReadFileOutput: ...

    @overload
    def __call__(self, tool: Literal["read_files"], /, **input: Unpack[ReadFilesInput]) -> ReadFilesOutput: ...

    @overload
    def __call__(self, tool: Literal["replace_range"], /, **input: Unpack[ReplaceRangeInput]) -> TextEditOutput: ...

    @overload
    def __call__(self, tool: Literal["revert_calls"], /, **input: Unpack[RevertCallsInput]) -> RevertCallsOutput: ...

    @overload
    def __call__(self, tool: Literal["run_command"], /, **input: Unpack[RunCommandInput]) -> RanCommand: ...

    @overload
    def __call__(self, tool: Literal["search_text"], /, **input: Unpack[SearchTextInput]) -> SearchTextOutput: ...

    @overload
    def __call__(self, tool: Literal["stat_path"], /, **input: Unpack[StatPathInput]) -> StatPathOutput: ...

    @overload
    def __call__(self, tool: Literal["tree_stats"], /, **input: Unpack[TreeStatsInput]) -> TreeStatsOutput: ...

    @overload
    def __call__(self, tool: Literal["write_file"], /, **input: Unpack[WriteFileInput]) -> TextEditOutput: ...


class AsyncCallTool(Protocol):
    """Calls a tool by its name: the input and the answer of each tool."""

    @overload
    async def __call__(self, tool: Literal["apply_patch"], /, **input: Unpack[ApplyPatchInput]) -> ApplyPatchOutput: ...

    @overload
    async def __call__(self, tool: Literal["delete_file"], /, **input: Unpack[DeleteFileInput]) -> DeleteFileOutput: ...

    @overload
    async def __call__(self, tool: Literal["diff_workspace"], /, **input: Unpack[DiffWorkspaceInput]) -> DiffWorkspaceOutput: ...

    @overload
    async def __call__(self, tool: Literal["edit_file"], /, **input: Unpack[EditFileInput]) -> TextEditOutput: ...

    @overload
    async def __call__(self, tool: Literal["find_files"], /, **input: Unpack[FindFilesInput]) -> FindFilesOutput: ...

    @overload
    async def __call__(self, tool: Literal["list_dir"], /, **input: Unpack[ListDirInput]) -> ListDirOutput: ...

    @overload
    async def __call__(self, tool: Literal["move_file"], /, **input: Unpack[MoveFileInput]) -> MoveFileOutput: ...

    @overload
    async def __call__(self, tool: Literal["read_file"], /, **input: Unpack[ReadFileInput]) -> ReadFileOutput: ...

    @overload
    async def __call__(self, tool: Literal["read_files"], /, **input: Unpack[ReadFilesInput]) -> ReadFilesOutput: ...

    @overload
    async def __call__(self, tool: Literal["replace_range"], /, **input: Unpack[ReplaceRangeInput]) -> TextEditOutput: ...

    @overload
    async def __call__(self, tool: Literal["revert_calls"], /, **input: Unpack[RevertCallsInput]) -> RevertCallsOutput: ...

    @overload
    async def __call__(self, tool: Literal["run_command"], /, **input: Unpack[RunCommandInput]) -> RanCommand: ...

    @overload
    async def __call__(self, tool: Literal["search_text"], /, **input: Unpack[SearchTextInput]) -> SearchTextOutput: ...

    @overload
    async def __call__(self, tool: Literal["stat_path"], /, **input: Unpack[StatPathInput]) -> StatPathOutput: ...

    @overload
    async def __call__(self, tool: Literal["tree_stats"], /, **input: Unpack[TreeStatsInput]) -> TreeStatsOutput: ...

    @overload
    async def __call__(self, tool: Literal["write_file"], /, **input: Unpack[WriteFileInput]) -> TextEditOutput: ...
