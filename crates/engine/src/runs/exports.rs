//! Exports of a run as archive, patch or git bundle, and the stored diffs of its mutations.

use async_recursion::async_recursion as boxed;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use futures_util::future::BoxFuture;
use ledger::{Appended, Entry};
use model::{ArtifactId, Code, Draft, LogicalPath, Outcome, Permission, Record, Refusal, RunId, Sha256};
use serde::Deserialize;
use serde_json::{Map, Value};
use shared_pool::Permit;
use workspace::{Bundle, GitExport, LeftOutFiles};

use crate::admission::pools::permit_within;
use crate::call::history_quota::{history_exceeded, unrecorded};
use crate::call::record::{reasons_of, verdict_of};
use crate::call_error::refusals::forbidden;
use crate::call_error::refusals::refusal_of;
use crate::caller::{Caller, RequestIds};
use crate::clock::{new_tool_call_id, now, now_seconds};
use crate::engine::NotRecorded;
use crate::run::changes::Changes;
use crate::run::open_run::OpenRun;
use crate::runs::Runs;
use crate::runs::entry_times::ArchiveExport;
use crate::{CallError, reconcile};

/// The format of an export.
#[derive(Clone, Debug)]
pub enum ExportFormat {
    /// The tree as tar.gz; or, as a layer, what has changed in it after a record.
    Archive {
        /// The record.
        since: Option<u64>,
        /// Whether the tree is a tar too, which who sends it may compress.
        is_plain: bool,
    },
    /// The diff from the base.
    Patch,
    /// One commit on the base, as a git bundle.
    Bundle(BundleCommit),
}

/// The commit of a bundle.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct BundleCommit {
    /// The author's name, at most 256 characters. Default: `workspaced`.
    #[param(max_length = 256, example = "An Agent")]
    author_name: Option<String>,
    /// The author's email address, at most 256 characters. Default: `agent@workspaced.invalid`.
    #[param(max_length = 256, example = "agent@example.com")]
    author_email: Option<String>,
    /// The commit message, at most 64 KiB. Default: the reasons of the run's changes.
    #[param(max_length = 65536, example = "Greet everyone")]
    message: Option<String>,
    /// The branch in the bundle. Default: `workspaced/{run}`.
    #[param(max_length = 200, example = "fix/greeting")]
    branch: Option<String>,
}

/// The maximum length of an author's name or email address, in characters.
pub const MAX_AUTHOR: usize = 256;
/// The maximum length of a commit message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// The maximum number of reasons in a generated message.
const MAX_REASONS: usize = 200;
/// The maximum length of the first line of a generated message, in characters.
const MAX_SUBJECT: usize = 72;

/// A recorded export that is ready to be written.
pub struct Export {
    runs: Arc<Runs>,
    open_run: Arc<OpenRun>,
    content: ExportContent,
    permit: Permit,
}

/// The state of the tree that an archive or a layer has.
#[derive(Clone, Debug)]
pub struct ExportedState {
    /// The newest record at that state. All changes up to it are in the archive, and no later one.
    pub seq: u64,
    /// The hash of that record.
    pub head_hash: Sha256,
    /// What is left out.
    pub left_out: LeftOutFiles,
}

/// What an export writes.
enum ExportContent {
    Archive(Box<ArchiveExport>),
    Patch,
    Bundle(Bundle),
}

/// An export of which everything is read that a change could affect.
enum ReadExport {
    Archive(Box<ArchiveExport>),
    Git(GitExport),
}

impl ExportFormat {
    /// Returns the tool in the export's record.
    fn name(&self) -> &'static str {
        match self {
            Self::Archive { .. } => "archive",
            Self::Patch => "patch",
            Self::Bundle(_) => "bundle",
        }
    }

    /// Returns what the export's record says of its input.
    fn recorded_input(&self) -> Option<Map<String, Value>> {
        let Self::Archive { since: Some(since), .. } = self else { return None };
        Some(Map::from_iter([("since".to_owned(), Value::from(*since))]))
    }

    /// Returns the permissions of which a caller needs all. Every export shows file content.
    fn permissions(&self) -> &'static [Permission] {
        match self {
            Self::Archive { .. } | Self::Bundle(_) => &[Permission::FileRead],
            Self::Patch => &[Permission::FileDiff, Permission::FileRead],
        }
    }
}

impl Runs {
    /// Returns the diff of a mutation.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    #[boxed]
    pub async fn artifact(&self, run: &RunId, id: &ArtifactId) -> Result<Vec<u8>, CallError> {
        if let Some(diff) = self.engine.ledger.artifact(run, id).await? {
            return Ok(diff);
        }
        self.engine.known_run(run).await?;
        let hint = "The run's audit lists every artifact with its record.";
        Err(Refusal::new(Code::NotFound, "the run has no such artifact", hint).into())
    }

    /// Prepares an export and records it, also if it is refused. Waits for a permit.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, `RATE_LIMITED`, `INVALID_REQUEST`, `RUN_NOT_FOUND`, `RUN_CLOSED`, `UNAVAILABLE`.
    pub fn begin_export<'a>(
        self: &'a Arc<Self>,
        run: &'a RunId,
        caller: Caller,
        format: ExportFormat,
    ) -> BoxFuture<'a, Result<Export, CallError>> {
        Box::pin(async move {
            let started = Instant::now();
            let (tool, input) = (format.name(), format.recorded_input());
            let lacking = format.permissions().iter().find(|needed| !caller.permissions.contains(needed));
            let opened = match lacking {
                None => self.prepare_export(run, format).await,
                Some(needed) => Err(forbidden(std::slice::from_ref(needed)).into()),
            };
            let refusal = match &opened {
                Ok(_) => None,
                Err(CallError::Refused(refusal)) if refusal.code != Code::RunNotFound => Some(refusal),
                Err(_) => return opened,
            };
            let epoch = opened.as_ref().ok().and_then(|export| export.open_run.epoch);
            let mut entry = Entry { epoch, ..export_entry(run, tool, &caller, refusal, started) };
            entry.draft.input.clone_from(&input);
            let refusal = match self.engine.record(vec![entry]).await {
                // A refusal that the reserve has no room for.
                Err(NotRecorded::Rejected(Appended::HistoryQuotaExceeded(excess))) if opened.is_err() => {
                    return Err(unrecorded(excess).into());
                }
                Err(NotRecorded::Rejected(Appended::PreconditionFailed(failed))) => refusal_of(failed),
                Err(NotRecorded::Rejected(Appended::HistoryQuotaExceeded(excess))) => history_exceeded(excess),
                Err(NotRecorded::Failed(error)) => return Err(error.into()),
                _ => return opened,
            };
            let mut entry = export_entry(run, tool, &caller, Some(&refusal), started);
            entry.draft.input = input;
            Err(self.engine.append_refusal(entry, refusal).await.into())
        })
    }

    async fn prepare_export(self: &Arc<Self>, run: &RunId, format: ExportFormat) -> Result<Export, CallError> {
        // The other half of the request timeout is for the start of the response.
        let permit =
            permit_within(&self.engine.pools.export, "exports", self.engine.limits.request_timeout / 2).await?;
        if let ExportFormat::Bundle(commit) = &format {
            commit.check(run)?;
        }
        let open_run = self.engine.open(run).await?;
        reconcile::ensure_consistent(&self.engine, &open_run).await?;
        let content = match format {
            ExportFormat::Bundle(commit) => {
                open_run.workspace.check_bundle()?;
                ExportContent::Bundle(self.with_message(run, commit.check(run)?).await?)
            }
            ExportFormat::Archive { since, is_plain } => {
                let export = self.begin_archive(&open_run, since, Arc::default()).await?;
                let export = ArchiveExport { is_layer: export.is_layer || is_plain, ..export };
                ExportContent::Archive(Box::new(export))
            }
            ExportFormat::Patch => ExportContent::Patch,
        };
        Ok(Export { runs: Arc::clone(self), open_run, content, permit })
    }

    async fn with_message(&self, run: &RunId, bundle: Bundle) -> Result<Bundle, CallError> {
        let message = if bundle.message.is_empty() { self.generate_message(run).await? } else { bundle.message };
        Ok(Bundle { message, ..bundle })
    }

    /// Generates a commit message from the reasons of the run's changes.
    async fn generate_message(&self, run: &RunId) -> Result<String, CallError> {
        let (mut reasons, mut omitted) = (Vec::<String>::new(), 0usize);
        let mut changes = Changes::after(self.engine.ledger.as_ref(), run, 0);
        while let Some(record) = changes.next::<Record>().await? {
            let Some(reason) = record.reason.filter(|_| !record.paths_written.is_empty()) else { continue };
            if reasons.len() >= MAX_REASONS {
                omitted += 1;
            } else if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        Ok(message_from(run, &reasons, omitted))
    }
}

/// Returns the commit message: a single short reason, or a subject and a list of reasons.
fn message_from(run: &RunId, reasons: &[String], omitted: usize) -> String {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut message = match reasons {
        [] => format!("Changes of run {run}"),
        [only] if only.chars().count() <= MAX_SUBJECT && !only.contains('\n') => return format!("{only}\n"),
        several => {
            let lines: Vec<_> = several.iter().map(|reason| format!("- {}", one_line(reason))).collect();
            format!("Changes of run {run}\n\n{}", lines.join("\n"))
        }
    };
    if omitted > 0 {
        let _ = write!(message, "\n- and {omitted} more");
    }
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
    }
    message.push('\n');
    message
}

impl BundleCommit {
    /// Checks the members and applies the defaults. The message is empty if it is to be generated.
    fn check(&self, run: &RunId) -> Result<Bundle, Refusal> {
        let named = |name: &str, value: &Option<String>, default: &str| match value.as_deref().map(str::trim) {
            None => Ok(default.to_owned()),
            Some(value)
                if value.is_empty()
                    || value.chars().count() > MAX_AUTHOR
                    || value.chars().any(|c| c.is_control() || matches!(c, '<' | '>')) =>
            {
                let message = format!("`{name}` is empty, too long or contains `<`, `>` or a control character");
                Err(Refusal::invalid(message, format!("Give 1 to {MAX_AUTHOR} other characters, or omit `{name}`.")))
            }
            Some(value) => Ok(value.to_owned()),
        };
        let message = self.message.as_deref().unwrap_or_default().trim();
        if message.len() > MAX_MESSAGE_BYTES || message.contains('\0') || self.message.is_some() && message.is_empty() {
            let problem = format!("`message` is empty, contains a NUL or is longer than {MAX_MESSAGE_BYTES} bytes");
            return Err(Refusal::invalid(problem, "Give another message, or omit it.").with_details(|details| {
                (details.limit, details.actual) = (Some(MAX_MESSAGE_BYTES as u64), Some(message.len() as u64));
            }));
        }
        let bundle = Bundle {
            branch: self.branch.clone().unwrap_or_else(|| format!("workspaced/{run}")),
            author_name: named("authorName", &self.author_name, "workspaced")?,
            author_email: named("authorEmail", &self.author_email, "agent@workspaced.invalid")?,
            seconds: now_seconds(),
            message: if message.is_empty() { String::new() } else { format!("{message}\n") },
        };
        bundle.check()?;
        Ok(bundle)
    }
}

/// Returns the ledger entry of an export.
fn export_entry(run: &RunId, tool: &str, caller: &Caller, refusal: Option<&Refusal>, started: Instant) -> Entry {
    let mut draft = Draft::new(run.clone(), caller.actor.clone(), tool, new_tool_call_id(), now());
    draft.duration_micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    RequestIds::write(caller.request.as_deref(), &mut draft);
    match refusal {
        None => draft.paths_read = vec![LogicalPath::root()],
        Some(refusal) => {
            draft.code = Some(refusal.code);
            draft.decision = verdict_of(refusal.code);
            draft.outcome = Outcome::Refused;
            draft.reasons = reasons_of(refusal);
        }
    }
    let mut entry = Entry::new(draft, Sha256::of(b""));
    entry.preconditions.token = caller.token.clone().filter(|_| refusal.is_none());
    entry
}

impl Export {
    /// The state that an archive has; `None` for other exports.
    pub fn state(&self) -> Option<ExportedState> {
        let ExportContent::Archive(archive) = &self.content else { return None };
        let (seq, head_hash) = archive.head;
        Some(ExportedState { seq, head_hash, left_out: archive.export.left_out().clone() })
    }

    /// Writes the export to `out` as a stream. Setting `cancel` ends it early.
    ///
    /// # Errors
    ///
    /// If the disk, git or `out` fails.
    pub async fn write(self, mut out: impl Write + Send + 'static, cancel: Arc<AtomicBool>) -> Result<(), CallError> {
        let Self { runs, open_run, content, permit } = self;
        let (run, stop) = (Arc::clone(&open_run), Arc::clone(&cancel));
        let export = match content {
            ExportContent::Archive(archive) => ReadExport::Archive(archive),
            ExportContent::Patch => {
                let read = move || Ok(run.workspace.prepare_patch(&run.rules, &stop)?);
                ReadExport::Git(runs.engine.read_one_state(&open_run, read).await?)
            }
            ExportContent::Bundle(bundle) => {
                let read = move || Ok(run.workspace.prepare_bundle(&run.rules, &bundle, &stop)?);
                ReadExport::Git(runs.engine.read_one_state(&open_run, read).await?)
            }
        };
        // From here on neither waits for the other: the client, which may read slowly, and the run's mutations.
        runs.engine
            .blocking(move || {
                // Held by the thread: the permit limits the number of threads.
                let _permit = permit;
                match export {
                    ReadExport::Archive(archive) => {
                        let ArchiveExport { export, times, is_layer, .. } = *archive;
                        if is_layer {
                            export.write_layer(&open_run.rules, &times, &mut out)?;
                        } else {
                            export.write(&open_run.rules, &times, &mut out)?;
                        }
                    }
                    ReadExport::Git(export) => export.write(&mut out, &cancel)?,
                }
                Ok(out.flush()?)
            })
            .await
    }
}
