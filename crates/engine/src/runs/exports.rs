//! What leaves a run: the diffs that mutations left as proof, and the run as a whole, as tree, diff or commit.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use ledger::{Appended, Entry, Preconditions};
use model::{
    ArtifactId, Code, DiskChange, Draft, LogicalPath, Outcome, Permission, Record, Refusal, RunId, Sha256, Usage,
    Verdict,
};
use serde::Deserialize;
use workspace::Bundle;

use crate::admission::bulkhead::Permit;
use crate::call::record::{reasons_of, refusal_of, verdict_of};
use crate::call_error::refusals::forbidden;
use crate::clock::{new_tool_call_id, now, now_seconds};
use crate::engine::{Caller, Engine};
use crate::runs::open_run::OpenRun;
use crate::{CallError, reconcile};

/// What leaves a run as a whole.
#[derive(Clone, Debug)]
pub enum ExportFormat {
    /// The tree as tar.gz.
    Archive,
    /// The diff from the base.
    Patch,
    /// One commit on the base, as a git bundle.
    Bundle(BundleCommit),
}

/// What the commit of a bundle shall say; what is missing is made up from the run.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct BundleCommit {
    /// Who made the changes, at most 256 characters; `workspaced` where it is missing.
    #[param(max_length = 256, example = "An Agent")]
    author_name: Option<String>,
    /// Their address, at most 256 characters; `agent@workspaced.invalid` where it is missing.
    #[param(max_length = 256, example = "agent@example.com")]
    author_email: Option<String>,
    /// What the commit says, at most 64 KiB; the reasons of the run's changes where it is missing.
    #[param(max_length = 65536, example = "Greet everyone")]
    message: Option<String>,
    /// The branch that the bundle holds; `workspaced/{run}` where it is missing.
    #[param(max_length = 200, example = "fix/greeting")]
    branch: Option<String>,
}

/// The longest name or address of an author, in characters.
pub const MAX_AUTHOR: usize = 256;
/// The longest message of a commit, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Reasons that a message is made of at most.
const MAX_REASONS: usize = 200;
/// The longest first line of a message that is made up.
const MAX_SUBJECT: usize = 72;
/// Records looked at in one go.
const PAGE: u32 = 500;

/// An export that was recorded and may be written.
pub struct Export {
    engine: Engine,
    open_run: Arc<OpenRun>,
    what: Prepared,
    /// Its own: what looks at files waits for nobody who takes them in.
    permit: Permit,
}

/// An export with all that it needs.
enum Prepared {
    Archive,
    Patch,
    Bundle(Bundle),
}

impl ExportFormat {
    /// What the audit calls it.
    fn name(&self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Patch => "patch",
            Self::Bundle(_) => "bundle",
        }
    }

    /// What the caller needs for it, all of these: whatever leaves a run shows content of files.
    fn permissions(&self) -> &'static [Permission] {
        match self {
            Self::Archive | Self::Bundle(_) => &[Permission::FileRead],
            Self::Patch => &[Permission::FileDiff, Permission::FileRead],
        }
    }
}

impl Engine {
    /// The diff of a mutation.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    pub async fn artifact(&self, run: &RunId, id: &ArtifactId) -> Result<Vec<u8>, CallError> {
        if let Some(diff) = self.ledger.artifact(run, id).await? {
            return Ok(diff);
        }
        self.known_run(run).await?;
        let hint = "The run's audit lists every artifact with its record.";
        Err(Refusal::new(Code::NotFound, "the run has no such artifact", hint).into())
    }

    /// Records that the caller takes the whole run, refused or not, once there is a place for it.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, `RATE_LIMITED`, `INVALID_REQUEST`, `RUN_NOT_FOUND`, `RUN_CLOSED`, `UNAVAILABLE`.
    pub async fn begin_export(&self, run: &RunId, caller: Caller, outlet: ExportFormat) -> Result<Export, CallError> {
        let started = Instant::now();
        let tool = outlet.name();
        let lacking = outlet.permissions().iter().find(|needed| !caller.permissions.contains(needed));
        let opened = match lacking {
            None => self.prepare_export(run, outlet).await,
            Some(needed) => Err(forbidden(std::slice::from_ref(needed)).into()),
        };
        let refusal = match &opened {
            Ok(_) => None,
            Err(CallError::Refused(refusal)) if refusal.code != Code::RunNotFound => Some(refusal),
            Err(_) => return opened,
        };
        let recorded = self.append(vec![export_entry(run, tool, &caller, refusal, started)]).await?;
        if let Appended::PreconditionFailed(failed) = recorded {
            let refusal = refusal_of(failed);
            self.append(vec![export_entry(run, tool, &caller, Some(&refusal), started)]).await?;
            return Err(refusal.into());
        }
        opened
    }

    async fn prepare_export(&self, run: &RunId, outlet: ExportFormat) -> Result<Export, CallError> {
        // What is left of the request's time is for the beginning of the answer.
        let permit = self.permits.export.acquire(run, self.limits.request_timeout / 2).await?;
        let commit = match &outlet {
            ExportFormat::Bundle(commit) => Some(commit.check(run)?),
            ExportFormat::Archive | ExportFormat::Patch => None,
        };
        let open_run = self.open(run).await?;
        reconcile::ensure_consistent(self, &open_run).await?;
        let what = match (outlet, commit) {
            (ExportFormat::Bundle(_), Some(mut bundle)) => {
                if bundle.message.is_empty() {
                    bundle.message = self.message_of(run).await?;
                }
                Prepared::Bundle(bundle)
            }
            (ExportFormat::Patch, _) => Prepared::Patch,
            (ExportFormat::Archive | ExportFormat::Bundle(_), _) => Prepared::Archive,
        };
        Ok(Export { engine: self.clone(), open_run, what, permit })
    }

    /// What a commit of all of the run's changes says: the reasons that they were made for.
    async fn message_of(&self, run: &RunId) -> Result<String, CallError> {
        let (mut since, mut reasons, mut left) = (0, Vec::<String>::new(), 0usize);
        loop {
            let page = self.ledger.changes(run, since, PAGE.into()).await?;
            if page.is_empty() {
                return Ok(message_from(run, &reasons, left));
            }
            for stored in page {
                let record: Record =
                    serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
                since = record.seq;
                let Some(reason) = record.reason.filter(|_| !record.paths_written.is_empty()) else { continue };
                if reasons.len() >= MAX_REASONS {
                    left += 1;
                } else if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
    }
}

/// One reason is the message; several stand one a line under a line of their own.
fn message_from(run: &RunId, reasons: &[String], left: usize) -> String {
    let short = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut message = match reasons {
        [] => format!("Changes of run {run}"),
        [only] if only.chars().count() <= MAX_SUBJECT && !only.contains('\n') => return format!("{only}\n"),
        several => {
            let lines: Vec<_> = several.iter().map(|reason| format!("- {}", short(reason))).collect();
            format!("Changes of run {run}\n\n{}", lines.join("\n"))
        }
    };
    if left > 0 {
        let _ = write!(message, "\n- and {left} more");
    }
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
    }
    message.push('\n');
    message
}

impl BundleCommit {
    /// What the bundle holds; the message is empty where it is to be made up.
    fn check(&self, run: &RunId) -> Result<Bundle, Refusal> {
        let named = |name: &str, value: &Option<String>, default: &str| match value.as_deref().map(str::trim) {
            None => Ok(default.to_owned()),
            Some(value)
                if value.is_empty()
                    || value.chars().count() > MAX_AUTHOR
                    || value.chars().any(|c| c.is_control() || matches!(c, '<' | '>')) =>
            {
                let message =
                    format!("`{name}` takes 1 to {MAX_AUTHOR} characters, none of them `<`, `>` or a control");
                Err(Refusal::invalid(message, format!("Give another `{name}`, or leave it out.")))
            }
            Some(value) => Ok(value.to_owned()),
        };
        let message = self.message.as_deref().unwrap_or_default().trim();
        if message.len() > MAX_MESSAGE_BYTES || message.contains('\0') || self.message.is_some() && message.is_empty() {
            let problem = format!("`message` takes 1 to {MAX_MESSAGE_BYTES} bytes of text");
            return Err(Refusal::invalid(problem, "Give a shorter message, or leave it out.").with_details(
                |details| {
                    (details.limit, details.actual) = (Some(MAX_MESSAGE_BYTES as u64), Some(message.len() as u64));
                },
            ));
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

/// The entry of an export, which is none of the tools' calls.
fn export_entry(run: &RunId, tool: &str, caller: &Caller, refusal: Option<&Refusal>, started: Instant) -> Entry {
    let is_ok = refusal.is_none();
    let draft = Draft {
        actor: caller.actor.clone(),
        artifact_uris: Vec::new(),
        code: refusal.map(|refusal| refusal.code),
        decision: refusal.map_or(Verdict::Allow, |refusal| verdict_of(refusal.code)),
        diff_sha256: None,
        duration_micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        files: Vec::new(),
        mutates: false,
        outcome: if is_ok { Outcome::Ok } else { Outcome::Refused },
        paths_read: if is_ok { vec![LogicalPath::root()] } else { Vec::new() },
        paths_written: Vec::new(),
        reason: None,
        reasons: refusal.map(reasons_of).unwrap_or_default(),
        run_id: run.clone(),
        step_id: None,
        timestamp: now(),
        tool: tool.to_owned(),
        tool_call_id: new_tool_call_id(),
    };
    let preconditions = Preconditions { open_run: false, token: caller.token.clone().filter(|_| is_ok) };
    Entry {
        draft,
        input_sha256: Sha256::of(b""),
        client_supplied_id: false,
        reply: None,
        steps: Vec::new(),
        artifact: None,
        approval: None,
        approval_decision: None,
        usage: Usage::default(),
        disk: DiskChange::default(),
        preconditions,
    }
}

impl Export {
    /// Writes it to `out`; flat in memory. `cancel` breaks it off.
    ///
    /// # Errors
    ///
    /// Where the disk, git or `out` fails.
    pub async fn write(self, mut out: impl Write + Send + 'static, cancel: Arc<AtomicBool>) -> Result<(), CallError> {
        let Self { engine, open_run, what, permit } = self;
        engine
            .blocking(move || {
                // Held by the thread itself, which is what it stands for.
                let _permit = permit;
                match what {
                    Prepared::Archive => open_run.workspace.export(&open_run.rules, &mut out)?,
                    Prepared::Patch => drop(open_run.workspace.write_patch(&open_run.rules, &mut out, &cancel)?),
                    Prepared::Bundle(bundle) => {
                        drop(open_run.workspace.bundle(&open_run.rules, &bundle, &mut out, &cancel)?);
                    }
                }
                Ok(out.flush()?)
            })
            .await
    }
}
