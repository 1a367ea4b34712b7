//! A run's files as they were at one of its records.

mod kept;

use std::io;
use std::sync::Arc;

use ledger::Ledger;
use model::{ArtifactId, Record, Refusal, RunId, Sha256};
use tokio::runtime::Handle;
use workspace::{Base, Contents, Past};

use crate::CallError;
use crate::calls::Head;
use crate::service::{LiveRun, Service};
use crate::versions;

pub(crate) use kept::{damaged_step, sound};

/// Records looked at in one go.
const PAGE: u32 = 500;

/// What a call looks back at.
pub(crate) struct PastView {
    /// The files.
    pub(crate) files: Past,
    /// What they held.
    pub(crate) contents: FromLedger,
}

/// Contents from the ledger, for a thread that may block.
pub(crate) struct FromLedger {
    ledger: Arc<dyn Ledger>,
    run: RunId,
    runtime: Handle,
}

impl FromLedger {
    /// What the ledger keeps of `run`. To be called in the runtime, and used outside of it.
    pub(crate) fn of(ledger: Arc<dyn Ledger>, run: RunId) -> Self {
        Self { ledger, run, runtime: Handle::current() }
    }

    fn as_kept(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        self.runtime.block_on(self.ledger.content(&self.run, seq, sha256)).map_err(io::Error::other)
    }
}

/// The same as it is kept, whatever has become of it: for whoever looks for what is wrong.
pub(crate) struct AsKept(pub(crate) FromLedger);

impl Contents for AsKept {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        self.0.as_kept(seq, sha256)
    }
}

/// The same without what was changed there, as if it had never been kept: for whoever goes on without it.
pub(crate) struct SoundAlone(pub(crate) FromLedger);

impl Contents for SoundAlone {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.as_kept(seq, sha256)?.filter(|bytes| Sha256::of(bytes) == *sha256))
    }
}

impl Contents for FromLedger {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        let kept = self.as_kept(seq, sha256)?;
        let kept = kept.map(|bytes| sound(bytes, &self.run, seq, sha256)).transpose();
        kept.map_err(|damaged| io::Error::new(io::ErrorKind::InvalidData, damaged))
    }
}

/// The files of `run` at its record `seq`; their modes only where `with_modes` asks for the diffs that tell them.
///
/// # Errors
///
/// Where the ledger or the disk fails.
pub(crate) async fn load(
    ledger: &Arc<dyn Ledger>,
    run: &RunId,
    base: &Arc<Base>,
    seq: u64,
    with_modes: bool,
) -> Result<Past, CallError> {
    let base = Arc::clone(base);
    let started = tokio::task::spawn_blocking(move || Past::of_base(&base)).await;
    let mut past = started.map_err(|error| CallError::Internal(Box::new(error)))??;
    let mut since = 0;
    loop {
        let page = ledger.changes(run, since, PAGE).await?;
        if page.is_empty() {
            return Ok(past);
        }
        for stored in page {
            let record = versions::parse(&stored.text)?;
            since = record.seq;
            if record.seq > seq {
                return Ok(past);
            }
            let diff = if with_modes { diff_of(ledger.as_ref(), run, &record).await? } else { Vec::new() };
            past.add(&record, &diff);
        }
    }
}

/// The diff that a mutation has left.
///
/// # Errors
///
/// Where the ledger fails.
pub(crate) async fn diff_of(ledger: &dyn Ledger, run: &RunId, record: &Record) -> Result<Vec<u8>, CallError> {
    let mut diff = Vec::new();
    for uri in &record.artifact_uris {
        let id = uri.rsplit('/').next().and_then(|raw| ArtifactId::parse(raw).ok());
        if let Some(id) = id {
            diff.extend(ledger.artifact(run, &id).await?.unwrap_or_default());
        }
    }
    Ok(diff)
}

impl Service {
    /// What a call that gave `seq` as `atSeq` looks at.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(crate) async fn look_back(
        &self,
        head: &Head,
        live: &Arc<LiveRun>,
        seq: u64,
        with_modes: bool,
    ) -> Result<PastView, CallError> {
        if head.mount.is_some() {
            let refusal = Refusal::invalid("a mount has no records, and so no past", "Leave out `mount` or `atSeq`.");
            return Err(refusal.into());
        }
        let ledger = &self.0.ledger;
        let newest = ledger.run(&live.run_id).await?.map_or(0, |stored| stored.run.head_seq);
        if seq > newest {
            let message = format!("`atSeq` is {seq}, but the run's newest record is {newest}");
            let hint = "Give the seq of a record of this run, or 0 for what it started from.";
            let refusal = Refusal::invalid(message, hint);
            return Err(refusal.about(|about| (about.limit, about.actual) = (Some(newest), Some(seq))).into());
        }
        let files = load(ledger, &live.run_id, live.workspace.base(), seq, with_modes).await?;
        Ok(PastView { files, contents: FromLedger::of(Arc::clone(ledger), live.run_id.clone()) })
    }
}
