//! What leaves a run: the diffs that mutations left as proof, and the tree as a whole.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use ledger::Entry;
use model::{ArtifactId, Code, Draft, LogicalPath, Outcome, Permission, Refusal, RunId, Sha256, Usage, Verdict};

use crate::CallError;
use crate::calls::{forbidden, reasons_of, verdict_of};
use crate::service::{Caller, LiveRun, Service, new_tool_call_id, now};

/// What the audit calls an export.
const EXPORT: &str = "archive";

/// An export that was recorded and may be written.
pub(crate) struct Export {
    service: Service,
    live: Arc<LiveRun>,
}

impl Service {
    /// The diff of a mutation.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    pub(crate) async fn artifact(&self, run: &RunId, id: &ArtifactId) -> Result<Vec<u8>, CallError> {
        if let Some(diff) = self.0.ledger.artifact(run, id).await? {
            return Ok(diff);
        }
        self.known_run(run).await?;
        let hint = "The run's audit lists every artifact with its record.";
        Err(Refusal::new(Code::NotFound, "the run has no such artifact", hint).into())
    }

    /// Records that the caller takes the whole tree, refused or not.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, `RUN_NOT_FOUND`, `RUN_CLOSED`.
    pub(crate) async fn begin_export(&self, run: &RunId, caller: Caller) -> Result<Export, CallError> {
        let started = Instant::now();
        let opened = if caller.permissions.contains(&Permission::FileRead) {
            self.live(run).await
        } else {
            Err(forbidden(&[Permission::FileRead]).into())
        };
        let refusal = match &opened {
            Ok(_) => None,
            Err(CallError::Refused(refusal)) if refusal.code != Code::RunNotFound => Some(refusal),
            Err(_) => return opened.map(|live| Export { service: self.clone(), live }),
        };
        let draft = draft_of(run, caller, refusal, started);
        self.append(Entry {
            draft,
            input_sha256: Sha256::of(b""),
            claimed: false,
            reply: None,
            steps: Vec::new(),
            artifact: None,
            approval: None,
            decides: None,
            usage: Usage::default(),
        })
        .await?;
        Ok(Export { service: self.clone(), live: opened? })
    }
}

fn draft_of(run: &RunId, caller: Caller, refusal: Option<&Refusal>, started: Instant) -> Draft {
    Draft {
        actor: caller.actor,
        artifact_uris: Vec::new(),
        code: refusal.map(|refusal| refusal.code),
        decision: refusal.map_or(Verdict::Allow, |refusal| verdict_of(refusal.code)),
        duration_micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        files: Vec::new(),
        mutates: false,
        outcome: if refusal.is_none() { Outcome::Ok } else { Outcome::Refused },
        paths_read: if refusal.is_none() { vec![LogicalPath::root()] } else { Vec::new() },
        paths_written: Vec::new(),
        reason: None,
        reasons: refusal.map(reasons_of).unwrap_or_default(),
        run_id: run.clone(),
        step_id: None,
        timestamp: now(),
        tool: EXPORT.to_owned(),
        tool_call_id: new_tool_call_id(),
    }
}

impl Export {
    /// Writes the tree as tar.gz to `out`, when there is a place for the work.
    ///
    /// # Errors
    ///
    /// Where the disk or `out` fails.
    pub(crate) async fn write(self, mut out: impl Write + Send + 'static) -> Result<(), CallError> {
        let Self { service, live } = self;
        let place = service.0.pools.search.acquire().await;
        let _place = place.map_err(|error| CallError::Internal(Box::new(error)))?;
        service
            .blocking(move || {
                live.workspace.export(&live.rules, &mut out)?;
                Ok(out.flush()?)
            })
            .await
    }
}
