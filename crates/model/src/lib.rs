//! Words and rules of workspaced.
//!
//! The law of this crate: rules do no IO. Nothing here opens a file, asks a clock, draws a random number or waits; every
//! function is a pure answer to its arguments, so that what decides over a repository can be tested by tables alone.

mod change;
mod checkpoint;
mod confusables;
mod credential;
mod diff;
mod edit;
mod hash;
mod id;
pub mod json;
mod judge;
mod kind;
mod patch;
mod path;
mod policy;
mod record;
mod refusal;
mod run;
#[cfg(test)]
mod test_support;
mod text;

pub use change::{Change, ChangeSet, Content, Counts, Effect, FileState, Step, StepBytes, StepContent};
pub use checkpoint::CheckpointLeaf;
pub use confusables::fold_name;
pub use credential::{credential_in, excerpt, new_credential, redact};
pub use diff::{FileDiff, Side, count_changes, diff_file};
pub use edit::{EditFault, EditResult, NearMatch, edit};
pub use hash::{HashInvalid, Sha256, canonical_json};
pub use id::{ApprovalId, ArtifactId, IdInvalid, MAX_TOOL_CALL_ID, RunId, TokenId, ToolCallId};
pub use judge::{
    Access, ChangeFacts, Decision, PathFacts, bytes_written, explain_path, judge_call_bytes, judge_change,
    judge_file_count, judge_new_text, judge_path, judge_scanned_content,
};
pub use kind::{FileKind, is_binary};
pub use patch::{
    FileModes, FilePatch, Hunk, HunkLine, HunkOffset, Patch, PatchFault, PatchOperation, PatchResult, diff_modes,
};
pub use path::{LogicalPath, MAX_PATH_BYTES, PathRejected, is_unprintable};
pub use policy::{
    Budget, BudgetOverrides, Policy, PolicyOverrides, ProfileFileError, Profiles, Quota, QuotaOverrides, Rules,
    SourceFolders, Trigger,
};
pub use record::{ChainBreak, ChainCheck, ChainReport, Draft, Outcome, Record, RecordFile, Verdict, verify_chain};
pub use refusal::{Code, Conflict, ProblemDetails, Refusal, Result};
pub use run::*;
pub use text::{
    ContentScan, Decoded, Encoding, LineEnding, MAX_LINE_CHARS, Page, PageFormat, ScannedContent, decode,
    detect_encoding, encode, page,
};
