//! The types and rules of workspaced.
//!
//! This crate does no IO: it opens no files, reads no clock, uses no randomness and never waits. Every function depends only
//! on its arguments, so the rules can be tested with tables.

mod approval_warning;
mod change;
mod command_line;
mod credential;
mod diff;
mod edit;
mod git_lfs;
mod hash;
mod id;
pub mod json;
mod judge;
mod kind;
mod merge;
mod named_enum;
mod operator;
mod patch;
mod path;
mod policy;
mod record;
mod refusal;
mod run;
#[cfg(test)]
mod test_support;
mod text;

pub use approval_warning::{
    ApprovalWarning, Severity, WarningCode, change_warnings, is_part_of_other, is_test_command, sort_warnings,
};
pub use change::{
    Change, Content, Effect, FileState, GitMode, LINK_MODE, LineCounts, Step, StepBytes, StepContent, git_mode,
    is_link_mode,
};
pub use command_line::{quote_word, shown_command};
pub use credential::{credential_in, excerpt, new_credential, redact};
pub use diff::{DecodedFrom, FileDiff, Side, count_changes, diff_file, diff_unread, quoted_name};
pub use edit::{EditFault, EditResult, NearMatch, RangeFault, edit, replace_range};
pub use git_lfs::git_lfs_pointer;
pub use hash::{HashInvalid, Sha256, canonical_json};
pub use id::{
    ApprovalId, ArtifactId, IdInvalid, MAX_TOOL_CALL_ID, OperatorName, RESERVED_SUFFIXES, RunId, TokenId, ToolCallId,
    is_reserved_id,
};
pub use judge::{
    Access, ChangeFacts, Decision, EvidenceFact, PathFacts, bytes_written, changes_to_approve, explain_path,
    judge_call_bytes, judge_change, judge_command, judge_file_count, judge_new_text, judge_path, judge_scanned_content,
    may_read_redacted,
};
pub use kind::{FileKind, is_binary};
pub use merge::{MAX_MERGE_BYTES, MergeFault, keep_line_endings, merge};
pub use operator::{Operator, OperatorToken, Scope};
pub use patch::{
    FILE_HEAD_HINT, FORMAT_HINT, FilePatch, HUNK_FILE_HINT, Hunk, HunkLine, HunkOffset, OUT_OF_ORDER, Patch,
    PatchBudget, PatchFault, PatchLeniency, PatchOperation, PatchResult, WHOLE_PATCH_HINT, written_sections,
};
pub use path::confusables::fold_name;
pub use path::{LogicalPath, MAX_PATH_BYTES, PathRejected, WHITEOUT, composed, is_unprintable, link_stays_inside};
pub use policy::{
    ApprovalRule, ApprovalRuleOverrides, BaseFolders, Budget, BudgetOverrides, CommandOverrides, CommandPolicy,
    KindDecision, OutsideChanges, Policy, PolicyOverrides, ProfileFileError, Profiles, Quota, QuotaOverrides, Rules,
    Trigger, glob_mistake,
};
pub use record::{
    ARCHIVE_TOOL, By, ChainBreak, ChainCheck, ChainReport, CheckpointLeaf, DeliveryState, DeniedEntry, Draft,
    EventKind, Evidence, FirstVersions, HourStats, MAX_EVENT_DATA_BYTES, MAX_LEFT, MAX_READ_INPUT_BYTES,
    MAX_RUN_EVENT_BYTES, MAX_RUN_EVENTS, MAX_SUMMARY_CHARS, MAX_UPLOAD_BYTES, MIGRATE_TOOL, NOBODY,
    OUTSIDE_CHANGE_TOOL, Outcome, ReasonStats, Record, RecordFile, RecordStats, RunStats, StatsCounts, Verdict,
    Versions, WebhookDelivery, WebhookEvent, WebhookMessage, recorded_input, redact_members, verify_chain,
};
pub use refusal::{
    Code, Conflict, ConflictRegion, Guide, MessageParts, NearestText, ProblemDetails, Refusal, RefusalReader, Result,
    hint_for,
};
pub use run::*;
pub use text::{
    ContentScan, Decoded, Encoding, LineEnding, MAX_LINE_CHARS, PageFormat, PageStart, ScannedContent, TextPage,
    TextPageSize, declared_encoding, decode, decode_as, detect_encoding, encode, is_guessed, is_likely,
    is_settings_file, number_lines, page, page_within, redact_settings,
};
