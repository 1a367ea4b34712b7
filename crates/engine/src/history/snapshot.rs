//! Snapshots: a run's files as they were at one of its records.

use async_recursion::async_recursion as boxed;
use std::io::{self, Read as _, Seek as _};
use std::sync::Arc;

use content::{ObjectError, Objects};
use ledger::Ledger;
use model::{ArtifactId, LogicalPath, Record, Refusal, RunId, Sha256};
use shared_pool::Permit;
use tokio::runtime::Handle;
use workspace::{Base, LargeContent, Snapshot, StoredContents};

use crate::CallError;
use crate::call::Call;
use crate::engine::Engine;
use crate::history::content_history;
use crate::history::content_history::verified;
use crate::run::changes::Changes;
use crate::run::open_run::OpenRun;
use crate::tool::{AtRecord, SnapshotView};

/// The largest content of the object store that is held in memory. Of a larger one, earlier versions can neither be read nor restored, so
/// the store keeps it only while the file has it.
pub const MAX_RESTORABLE_BYTES: u64 = 16 << 20;

/// The contents that the ledger stores, for a thread that may block. A content that does not match its hash is an error.
pub struct LedgerContents {
    ledger: Arc<dyn Ledger>,
    objects: Option<Objects>,
    run: RunId,
    runtime: Handle,
}

impl LedgerContents {
    /// Creates a reader of the contents of `run`. To be called in the runtime, and used outside of it.
    pub fn of(ledger: Arc<dyn Ledger>, run: RunId) -> Self {
        Self { ledger, objects: None, run, runtime: Handle::current() }
    }

    /// Also reads large contents from the object store.
    #[must_use]
    pub fn with_objects(self, objects: Option<Objects>) -> Self {
        Self { objects, ..self }
    }

    fn raw(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        let content = async {
            match self.ledger.content(&self.run, seq, sha256).await.map_err(io::Error::other)? {
                None => large_content(self.objects.as_ref(), *sha256).await.map_err(io::Error::other),
                content => Ok(content),
            }
        };
        self.runtime.block_on(content)
    }

    fn large(&self, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        let Some(objects) = &self.objects else { return Ok(None) };
        let found = self.runtime.block_on(objects.content(*sha256, u64::MAX)).map_err(io::Error::other)?;
        let Some(mut content) = found else { return Ok(None) };
        let size = content.seek(io::SeekFrom::End(0))?;
        content.rewind()?;
        Ok(Some((size, content)))
    }
}

/// The stored contents without a check of their hashes, for offline checks.
pub struct RawContents(pub LedgerContents);

impl StoredContents for RawContents {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        self.0.raw(seq, sha256)
    }

    fn large(&self, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        self.0.large(sha256)
    }
}

/// The stored contents that match their hashes. Others count as not stored.
pub struct VerifiedContents(pub LedgerContents);

impl StoredContents for VerifiedContents {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.raw(seq, sha256)?.filter(|bytes| Sha256::of(bytes) == *sha256))
    }

    fn large(&self, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        self.0.large(sha256)
    }
}

impl StoredContents for LedgerContents {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        let stored = self.raw(seq, sha256)?;
        let content = stored.map(|bytes| verified(bytes, &self.run, seq, sha256)).transpose();
        content.map_err(|damaged| io::Error::new(io::ErrorKind::InvalidData, damaged))
    }

    fn large(&self, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        Self::large(self, sha256)
    }
}

/// Returns a content of the object store, if it is not too large to be held in memory.
///
/// # Errors
///
/// If the store fails, or the content is altered.
pub(crate) async fn large_content(objects: Option<&Objects>, sha256: Sha256) -> Result<Option<Vec<u8>>, ObjectError> {
    let Some(objects) = objects else { return Ok(None) };
    let found = match objects.content(sha256, MAX_RESTORABLE_BYTES).await {
        Err(ObjectError::TooLarge(_)) => None,
        found => found?,
    };
    let Some(mut content) = found else { return Ok(None) };
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Loads the files of `run` at its record `seq`.
///
/// # Errors
///
/// If the ledger or the disk fails.
#[boxed]
pub async fn load(ledger: &Arc<dyn Ledger>, run: &RunId, base: &Arc<Base>, seq: u64) -> Result<Snapshot, CallError> {
    let newest = ledger.newest_versions(run).await?;
    if newest.iter().any(|newest| newest.seq > seq) {
        return load_recorded(ledger, run, base, seq).await;
    }
    let mut snapshot = of_base(base).await?;
    for newest in newest {
        snapshot.set(newest.path, newest.seq, newest.kind, newest.file);
    }
    Ok(snapshot)
}

async fn of_base(base: &Arc<Base>) -> Result<Snapshot, CallError> {
    let base = Arc::clone(base);
    let started = tokio::task::spawn_blocking(move || Snapshot::of_base(&base)).await;
    Ok(started.map_err(|error| CallError::Internal(Box::new(error)))??)
}

/// As [`load`], from the hashed records alone: commands that judge a ledger believe nothing else.
///
/// # Errors
///
/// If the ledger or the disk fails.
#[boxed]
pub async fn load_recorded(
    ledger: &Arc<dyn Ledger>,
    run: &RunId,
    base: &Arc<Base>,
    seq: u64,
) -> Result<Snapshot, CallError> {
    let mut snapshot = of_base(base).await?;
    let mut changes = Changes::after(ledger.as_ref(), run, 0);
    while let Some(record) = changes.next::<Record>().await?.filter(|record| record.seq <= seq) {
        snapshot.add(&record);
    }
    Ok(snapshot)
}

/// Returns the stored diff of a mutation.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn diff_of(ledger: &dyn Ledger, run: &RunId, record: &Record) -> Result<Vec<u8>, CallError> {
    diff_at(ledger, run, &record.artifact_uris).await
}

/// Returns the stored diffs at these URIs of artifacts.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn diff_at(ledger: &dyn Ledger, run: &RunId, uris: &[String]) -> Result<Vec<u8>, CallError> {
    let mut diff = Vec::new();
    for uri in uris {
        let id = uri.rsplit('/').next().and_then(|raw| ArtifactId::parse(raw).ok());
        if let Some(id) = id {
            diff.extend(ledger.artifact(run, &id).await?.unwrap_or_default());
        }
    }
    Ok(diff)
}

impl Engine {
    /// Returns the snapshot that a call with `atSeq` reads, and the permit of the read.
    ///
    /// A single file costs a lookup of its last change. Everything else is computed from the whole history up to the record,
    /// which takes as long as a search and has a permit of the searches.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(crate) async fn snapshot_at(
        &self,
        call: &Call,
        open_run: &Arc<OpenRun>,
        at: AtRecord,
    ) -> Result<(Permit, SnapshotView), CallError> {
        let AtRecord { seq, only } = at;
        self.check_at_record(call, open_run, seq).await?;
        let ledger = &self.ledger;
        let view = |files| SnapshotView {
            files,
            contents: Box::new(
                LedgerContents::of(Arc::clone(ledger), open_run.run_id.clone()).with_objects(self.objects.clone()),
            ),
        };
        if let Some(path) = only {
            let permit = self.read_permit(call.tool.is_expensive).await;
            let files = self.load_one(open_run, seq, &path).await?;
            if files.get(&path).is_some() {
                return Ok((permit, view(files)));
            }
            // The path may be a folder, which only the files in it show.
        }
        let permit = self.read_permit(true).await;
        Ok((permit, view(load(ledger, &open_run.run_id, open_run.workspace.base(), seq).await?)))
    }

    /// Loads the file at `path` at the record `seq`, if it existed.
    async fn load_one(&self, open_run: &Arc<OpenRun>, seq: u64, path: &LogicalPath) -> Result<Snapshot, CallError> {
        let ledger = &self.ledger;
        let run = Arc::clone(open_run);
        let mut files = self.blocking(move || Ok(Snapshot::of_base(run.workspace.base())?)).await?;
        if let Some(stored) = ledger.last_change(&open_run.run_id, path, seq).await? {
            files.add(&content_history::parse(&stored.text)?);
        }
        Ok(files)
    }

    async fn check_at_record(&self, call: &Call, open_run: &OpenRun, seq: u64) -> Result<(), CallError> {
        if call.mount.is_some() {
            let refusal = Refusal::invalid(
                "`atSeq` cannot be used with a mount, which has no records",
                "Omit `mount` or `atSeq`.",
            );
            return Err(refusal.into());
        }
        let newest = self.ledger.run(&open_run.run_id).await?.map_or(0, |stored| stored.run.head_seq);
        if seq > newest {
            let message = format!("`atSeq` is {seq}; the run's newest record is {newest}");
            let hint = "Give the seq of a record of this run, or 0 for its start.";
            let refusal = Refusal::invalid(message, hint);
            return Err(refusal
                .with_details(|details| (details.limit, details.actual) = (Some(newest), Some(seq)))
                .into());
        }
        Ok(())
    }
}
