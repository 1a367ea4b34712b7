//! An asynchronous client of workspaced's HTTP API.
//!
//! A [`Client`] has the address of a service and one token: that of an operator, or of a run. Every method is one operation of
//! the API. Runs, records, approvals and policies are the types of the `model` crate, which the service itself answers with.
//!
//! ```no_run
//! # async fn example() -> Result<(), workspaced_client::Error> {
//! use futures_util::TryStreamExt as _;
//! use serde_json::json;
//! use workspaced_client::{AuditFilter, Client, NewRun, Source};
//!
//! let operator = Client::new("http://127.0.0.1:8080", "THE-OPERATOR-TOKEN")?;
//! let created = operator.create_run(&NewRun::from(Source::Empty {})).await?;
//! let run = &created.run.run_id;
//!
//! let agent = operator.with_token(&created.token.token)?;
//! let input = json!({"path": "a.txt", "content": "first\n", "reason": "an example"});
//! let written: serde_json::Value = agent.call(run, "write_file", &input).await?;
//! println!("version {}", written["newSha256"]);
//!
//! let mut records = std::pin::pin!(agent.run_audit(run, &AuditFilter::default()));
//! while let Some(record) = records.try_next().await? {
//!     println!("{} {}", record.seq, record.tool);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Repetition
//!
//! Where no answer arrives, and for the statuses 429 and 503, a request is repeated as [`RetryPolicy`] says, after the time
//! that the service asks for. A repetition is the same call: the client gives each tool call, event and creation its ID once,
//! so that a change is made once. Decisions of approvals and creations of operators and of their tokens have no such ID; they are repeated only
//! where the service cannot have executed them. Other refusals are never repeated.
//!
//! # Folders and commands
//!
//! With the feature `folders`, a `Checkout` has a run's files in a folder of this machine or in a sandbox, runs commands there, and
//! sends back what they changed as one judged set.
//!
//! # Limits
//!
//! Answers are read into memory up to [`Client::with_max_answer_bytes`]. Files and archives are streams.

mod approvals;
mod audit;
mod changesets;
mod commands;
mod events;
mod files;
#[cfg(feature = "folders")]
mod folders;
mod follow;
mod mcp;
mod operators;
mod packed_layer;
mod problem;
mod request;
mod retry;
mod runs;
mod server_sent_events;
#[cfg(test)]
mod tests;
mod tools;
mod transport;
mod webhooks;

pub use approvals::{ApprovalDecision, ApprovalEdit, ApprovalFilter, DecisionResult};
pub use audit::{AuditFilter, Verification};
pub use changesets::{
    ChangesetCommand, ChangesetConflict, ChangesetDenied, ChangesetOutcome, ChangesetPath, NewChangeset, NewMerge,
    RunLayer,
};
pub use commands::{CommandOrder, CommandResult, LeftOutPath, NextCommand, ReportedChanges, ReportedCommand};
pub use events::{AppendedEvent, CommandEvent, NewEvent, UploadedArtifact};
pub use files::{ByteRange, Download, Precondition, StoredFile, body_of};
#[cfg(feature = "folders")]
pub use folders::{
    ChangedLayer, Checkout, CommandSignals, ExecMode, ExecOptions, Executed, Execution, FolderError, FolderPlace,
    OpenFolder, PausedRunner, Pulled, PushOptions, Pushed, RecordedCommand, Runner, SandboxAddress, SandboxPlace,
    ScanScope, ServedCommand,
};
pub use follow::FollowedRecord;
pub use operators::{CreatedOperator, NewOperator, NewOperatorToken};
pub use packed_layer::PackedLayer;
pub use problem::{Error, Problem};
pub use request::Page;
pub use retry::RetryPolicy;
pub use runs::{CreatedRun, IssuedToken, MountRequest, NewRun, NewToken, RunView};
pub use tools::{Batch, BatchAnswer, BatchCall, BatchResult, TextAnswer};
pub use transport::Client;
pub use webhooks::{Webhook, WebhookState};

pub use model::{
    Approval, ApprovalId, ApprovalState, ApprovalWarning, ArtifactId, Code, DeliveryState, EventKind, LogicalPath,
    Operator, OperatorName, Outcome, Permission, PolicyOverrides, Record, Run, RunId, RunState, RunToken, Scope,
    Sha256, Source, TokenId, ToolCallId, Verdict, WebhookDelivery, WebhookEvent, shown_command,
};
/// The body of an upload; [`body_of`] makes one from a reader.
pub use reqwest::Body;
#[cfg(feature = "folders")]
pub use shim::{
    AppliedLayer, ChangeKind, CheckedOut, CommandOutcome, CommandSpec, LayerConflict, LeftEntry, OutputStream,
    PathChange, ScanReport, ShimError,
};
