//! Changes between a run and a folder: layers in, sets of changes out.

use async_recursion::async_recursion as boxed;
use std::collections::{BTreeSet, HashSet};
use std::io::{self, Read, Seek as _};
use std::pin::Pin;

use bytes::{Buf as _, Bytes};
use flate2::read::GzDecoder;
use futures_util::{Stream, StreamExt as _};
use model::{FileKind, RunId};
use shim::{
    AppliedLayer, ChangeKind, CheckedOut, CommandFolder, LayerConflict, LeftEntry, PathChange, ReadLimits, ScanReport,
    ShimError, check_layer,
};
use tempfile::SpooledTempFile;
use tokio::runtime::Handle;

use crate::changesets::{
    ChangesetCommand, ChangesetConflict, ChangesetDenied, ChangesetOutcome, NewChangeset, RunLayer,
};
use crate::folders::error::FolderError;
use crate::folders::place::{FolderPlace, OpenFolder};
use crate::packed_layer::PackedLayer;
use crate::problem::Error;
use crate::transport::Client;

/// What is read from a folder at most: what a service takes in one set unless its operator has decided otherwise.
const LIMITS: ReadLimits = ReadLimits { max_file_bytes: 1 << 30, max_total_bytes: 1 << 30 };
/// A layer up to this size is kept in memory.
const MAX_LAYER_IN_MEMORY: usize = 16 << 20;
/// How many of the entries that cannot be part of a run a scan names, as the shim does.
const MAX_LEFT: usize = 100;
/// The most characters of a path that is only shown.
pub(crate) const MAX_SHOWN_CHARS: usize = 300;
/// Why a file is left that changes again and again.
pub(crate) const UNSTEADY: &str = "it changes while it is read";
/// What is said of commits in a sandbox.
const COMMITTED: &str = "the run takes the files of the sandbox and none of its commits";
/// How often files that change while they are read are read again.
const MAX_READS: usize = 3;

/// A run's files in a folder, which stays open: a program that runs several commands keeps it.
///
/// The run is the one that the caller names, and from the first pull on the record is the one that was pulled: a command that
/// changes the folder's index leads nothing to another run.
#[derive(Debug)]
pub struct Checkout {
    client: Client,
    run: RunId,
    folder: OpenFolder,
    /// The states that the folder can have: one, or two if an operation did not tell how it ended. Empty before its own word was taken.
    known: Vec<Option<CheckedOut>>,
    /// The paths that the last pull has left as they were, because they were changed both here and in the run.
    left: HashSet<String>,
}

/// How a set of changes is pushed.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// The reason for the audit. Of a command, its text if this is empty.
    pub reason: String,
    /// What happens if others have changed the same files.
    pub on_conflict: ChangesetConflict,
    /// What happens if policy denies a part.
    pub on_denied: ChangesetDenied,
    /// Only ask what would happen.
    pub is_dry_run: bool,
    /// The ID of the set; a repetition under the same one is the same set. Made if missing.
    pub changeset_id: Option<String>,
}

/// Which folders a scan looks into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanScope {
    /// Not into those that builds and installations fill, such as `target` and `node_modules`, where the run has nothing in them.
    #[default]
    Usual,
    /// Into all.
    All,
}

/// What a pull has done.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The record before, if the folder had one.
    pub from: Option<u64>,
    /// What the folder has now.
    pub now: CheckedOut,
    /// What was written and deleted.
    pub applied: AppliedLayer,
    /// Entries of the run that are not in the folder, such as files that look like secrets.
    pub left_out: u64,
    /// The paths of the first of those.
    pub left_out_paths: Vec<String>,
    /// What was changed both here and in the run, and is as it was here. The folder is behind the run then: `now` is as before, until
    /// each of them was pushed, made equal, or taken from the run.
    pub conflicts: Vec<LayerConflict>,
}

/// A set of changes that was pushed.
#[derive(Debug)]
pub struct Pushed {
    /// The service's answer.
    pub answer: ChangesetOutcome,
    /// What was not sent.
    pub left: Vec<LeftEntry>,
    /// How many of those change again and again while they are read.
    pub unsteady: usize,
    /// Why the folder does not have the state of the run that the set made. The set is applied nevertheless.
    pub stale: Option<FolderError>,
}

/// Changed files as a layer.
#[derive(Clone, Debug)]
pub struct ChangedLayer {
    /// A tar, compressed by zstd.
    pub packed: PackedLayer,
    /// Entries of the tar.
    pub entries: u64,
    /// Files that are not in it.
    pub left: Vec<LeftEntry>,
}

impl Checkout {
    /// Opens a folder for a run. Nothing is pulled yet.
    ///
    /// # Errors
    ///
    /// Those of [`OpenFolder::open`].
    #[boxed]
    pub async fn open(client: &Client, run: &RunId, place: &FolderPlace) -> Result<Self, FolderError> {
        Ok(Self::new(client, run, OpenFolder::open(place).await?))
    }

    /// A run in a folder that is open.
    pub fn new(client: &Client, run: &RunId, folder: OpenFolder) -> Self {
        Self { client: client.clone(), run: run.clone(), folder, known: Vec::new(), left: HashSet::new() }
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The folder.
    pub fn folder(&self) -> &OpenFolder {
        &self.folder
    }

    /// Returns the folder, for another run.
    pub fn into_folder(self) -> OpenFolder {
        self.folder
    }

    /// The record that the folder was brought to last. `None` if it has nothing of the run, or that is not known.
    pub fn seq(&self) -> Option<u64> {
        if let [Some(now)] = self.known.as_slice() { Some(now.seq) } else { None }
    }

    /// Returns the hash of what the folder has of the run: of the lines `KIND SHA256 PATH`, each ended by a NUL byte, in order of their
    /// paths.
    ///
    /// # Errors
    ///
    /// If the folder is no checkout, or the connection to the sandbox is lost.
    #[boxed]
    pub async fn tree_sha256(&self) -> Result<String, FolderError> {
        self.folder.with(|folder| Ok(folder.tree_sha256()?)).await
    }

    /// Returns the states that the folder can have, for the checkout that is opened in its place.
    pub(crate) fn known(&self) -> &[Option<CheckedOut>] {
        &self.known
    }

    /// Expects a folder in one of these states, or one that was made anew.
    pub(crate) fn expect(&mut self, known: Vec<Option<CheckedOut>>) {
        self.known = known;
        if !self.known.is_empty() {
            self.known.push(None);
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Closes the folder.
    ///
    /// # Errors
    ///
    /// Those of [`OpenFolder::close`].
    #[boxed]
    pub async fn close(self) -> Result<(), FolderError> {
        self.folder.close().await
    }

    /// Brings the folder to the newest state of the run. Overwrites nothing that was changed there.
    ///
    /// # Errors
    ///
    /// [`FolderError::OtherRun`], a refusal of the service, or conflicts: what was changed both here and in the run is as it was then, and
    /// the rest is pulled, unless it was a first checkout, which has written nothing.
    #[boxed]
    pub async fn pull(&mut self) -> Result<Pulled, FolderError> {
        let pulled = self.pull_rest(Vec::new()).await?;
        if pulled.conflicts.is_empty() { Ok(pulled) } else { Err(ShimError::Conflicts(pulled.conflicts).into()) }
    }

    /// As [`Checkout::pull`], but conflicts are in [`Pulled::conflicts`]. At the paths `theirs`, which were changed here too, the version
    /// of the run is taken.
    ///
    /// # Errors
    ///
    /// As [`Checkout::pull`], but for conflicts of a folder that is a checkout; and if a path of `theirs` did not change both here and in
    /// the run, after which nothing was written.
    #[boxed]
    pub async fn pull_rest(&mut self, theirs: Vec<String>) -> Result<Pulled, FolderError> {
        let from = self.base().await?.map(|have| have.seq);
        let layer = self.client.layer(&self.run, from).await?;
        let now = self.state_of(&layer);
        self.apply(layer, from, now, theirs).await
    }

    /// Puts what is at `paths` and not the run's aside, into `.workspaced/aside`, and writes the run's version there. What was put aside
    /// before is removed.
    pub(crate) async fn restore(&mut self, paths: &BTreeSet<String>, scope: ScanScope) -> Result<(), FolderError> {
        let base = self.checked_out().await?;
        let moved: Vec<String> = paths.iter().cloned().collect();
        self.folder.with(move |folder| Ok(folder.put_aside(&moved)?)).await?;
        if paths.is_empty() {
            return Ok(());
        }
        let is_missing = |change: &PathChange| {
            let above = |path: &str| path.rfind('/').map(|at| change.path[..at].to_owned());
            let mut from_here_up = std::iter::successors(Some(change.path.clone()), |path| above(path));
            change.change == ChangeKind::Deleted && from_here_up.any(|path| paths.contains(&path))
        };
        if self.scan(scope).await?.changes.iter().any(is_missing) {
            let layer = self.client.layer(&self.run, None).await?;
            // The whole tree does not say what was deleted: the next pull does.
            self.apply(layer, Some(base.seq), base, Vec::new()).await?;
        }
        Ok(())
    }

    /// Checks the run out into a folder that has lost its index. What is in the way is put aside, into `.workspaced/aside`.
    pub(crate) async fn check_out_anew(&mut self) -> Result<(), FolderError> {
        self.folder.with(|folder| Ok(folder.put_aside(&[])?)).await?;
        self.pull_rest(Vec::new()).await.map(drop)
    }

    /// Returns what a folder has after a layer.
    fn state_of(&self, layer: &RunLayer) -> CheckedOut {
        CheckedOut { run: self.run.to_string(), seq: layer.seq, head_hash: layer.head_hash.to_string() }
    }

    /// Finds what differs from the run. Files that are too large for a set are among what is left.
    ///
    /// # Errors
    ///
    /// If the folder is no checkout, or cannot be read.
    #[boxed]
    pub async fn scan(&mut self, scope: ScanScope) -> Result<ScanReport, FolderError> {
        let filled = match scope {
            ScanScope::All => Vec::new(),
            ScanScope::Usual => FileKind::filled_folders().map(str::to_owned).collect(),
        };
        let mut report = self.folder.with(move |folder| Ok(folder.scan(&filled)?)).await?;
        let is_large = |change: &PathChange| change.size > LIMITS.max_file_bytes;
        let (large, changes) = std::mem::take(&mut report.changes).into_iter().partition(is_large);
        report.changes = changes;
        name_large(large, &mut report);
        Ok(report)
    }

    /// Reads `changes` as they are now.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read, is too large for one set, or sends something that was not asked for.
    #[boxed]
    pub async fn layer_of(&mut self, changes: &[PathChange]) -> Result<ChangedLayer, FolderError> {
        if changes.iter().fold(0_u64, |sum, change| sum.saturating_add(change.size)) > LIMITS.max_total_bytes {
            // Before all of it is read.
            let max = LIMITS.max_total_bytes;
            return Err(ShimError::Refused(format!("the changed files have more than {max} bytes")).into());
        }
        let paths: Vec<String> = changes.iter().map(|change| change.path.clone()).collect();
        let read = move |folder: &mut dyn CommandFolder| {
            let (mut layer, left, entries) = read(folder, paths)?;
            let packed = PackedLayer::pack(&mut layer, MAX_LAYER_IN_MEMORY);
            Ok(ChangedLayer { packed: packed.map_err(|error| FolderError::io("the layer", error))?, entries, left })
        };
        self.folder.with(read).await
    }

    /// Sends everything that changed in the folder as one set. `None` if there is nothing to send.
    ///
    /// # Errors
    ///
    /// A refusal of the service, which has changed nothing; [`FolderError::NoCheckout`]; [`FolderError::NothingSent`] if no change could be
    /// sent; or a folder that cannot be read.
    #[boxed]
    pub async fn push(&mut self, scope: ScanScope, options: &PushOptions) -> Result<Option<Pushed>, FolderError> {
        self.checked_out().await?;
        let report = self.scan(scope).await?;
        self.push_changes(&report.changes, options, None).await
    }

    /// Sends `changes` as one set, and takes what the run made of them. `None` if there is nothing to send.
    ///
    /// # Errors
    ///
    /// As [`Checkout::push`].
    #[boxed]
    pub async fn push_changes(
        &mut self,
        changes: &[PathChange],
        options: &PushOptions,
        command: Option<ChangesetCommand>,
    ) -> Result<Option<Pushed>, FolderError> {
        let base = self.checked_out().await?;
        if changes.is_empty() {
            return Ok(None);
        }
        let layer = self.layer_of(changes).await?;
        if layer.entries == 0 {
            return if layer.left.is_empty() { Ok(None) } else { Err(FolderError::NothingSent { left: layer.left }) };
        }
        let changeset = NewChangeset {
            changeset_id: options.changeset_id.clone(),
            based_on_seq: base.seq,
            reason: options.reason.clone(),
            command,
            on_conflict: options.on_conflict,
            on_denied: options.on_denied,
            dry_run: options.is_dry_run,
        };
        let answer = self.client.apply_changeset(&self.run, &changeset, &layer.packed).await?;
        let taken: Vec<_> = answer.applied.iter().chain(&answer.merged).map(|taken| taken.path().to_owned()).collect();
        let stale = if taken.is_empty() || options.is_dry_run {
            None
        } else {
            // A failure here undoes nothing in the run: the answer is told first.
            self.take_back(taken).await.err()
        };
        let unsteady = layer.left.iter().filter(|entry| entry.why == UNSTEADY).count();
        Ok(Some(Pushed { answer, left: layer.left, unsteady, stale }))
    }

    /// Brings the folder to the state after its set was applied: what was merged comes back, and so does what others have changed
    /// meanwhile.
    pub(crate) async fn take_back(&mut self, taken: Vec<String>) -> Result<(), FolderError> {
        let base = self.checked_out().await?.seq;
        self.folder.with(move |folder| Ok(folder.confirm(&taken)?)).await?;
        let layer = self.client.layer(&self.run, Some(base)).await?;
        let known = std::mem::take(&mut self.left);
        let now = self.state_of(&layer);
        let mut conflicts = self.apply(layer, Some(base), now, Vec::new()).await?.conflicts;
        conflicts.retain(|conflict| !known.contains(&conflict.path));
        if conflicts.is_empty() { Ok(()) } else { Err(ShimError::Conflicts(conflicts).into()) }
    }

    async fn checked_out(&mut self) -> Result<CheckedOut, FolderError> {
        self.base().await?.ok_or_else(|| FolderError::NoCheckout { folder: self.folder.shown().to_owned() })
    }

    /// Returns what the folder has of the run. Its first word is taken, and from then on it can say nothing else.
    async fn base(&mut self) -> Result<Option<CheckedOut>, FolderError> {
        let have = self.folder.have().await?;
        let folder = || self.folder.shown().to_owned();
        match have {
            Some(have) if have.run != self.run.as_str() => {
                Err(FolderError::OtherRun { folder: folder(), found: have.run })
            }
            // One that was lost is checked out anew, and leads nowhere else.
            have if have.is_some() && !self.known.is_empty() && !self.known.contains(&have) => {
                Err(FolderError::Moved { folder: folder() })
            }
            have => {
                self.known = vec![have.clone()];
                Ok(have)
            }
        }
    }

    /// Applies a layer of the run, after which the folder is at `now`. At the paths `theirs` its version is taken.
    async fn apply(
        &mut self,
        layer: RunLayer,
        from: Option<u64>,
        now: CheckedOut,
        theirs: Vec<String>,
    ) -> Result<Pulled, FolderError> {
        let (left_out, left_out_paths) = (layer.left_out, layer.left_out_paths);
        let content = ContentReader {
            chunks: Box::pin(layer.content.into_stream()),
            chunk: Bytes::new(),
            runtime: Handle::current(),
        };
        // If the caller does not wait for the end, or the sandbox is lost on the way, it has one or the other.
        self.known.push(Some(now.clone()));
        let after = now.clone();
        let applied = self.folder.with(move |folder| {
            // Made here, since a decoder reads the first bytes at once.
            let mut content: Box<dyn Read> =
                if layer.is_compressed { Box::new(GzDecoder::new(content)) } else { Box::new(content) };
            folder.take_theirs(&theirs)?;
            Ok(folder.apply(&after, &mut content)?)
        });
        match applied.await {
            Ok(applied) if applied.conflicts.is_empty() => {
                self.known = vec![Some(now.clone())];
                self.left.clear();
                Ok(Pulled { from, now, applied, left_out, left_out_paths, conflicts: Vec::new() })
            }
            Ok(mut applied) => {
                self.known.pop();
                let conflicts = std::mem::take(&mut applied.conflicts);
                self.left = conflicts.iter().map(|conflict| conflict.path.clone()).collect();
                let Some(Some(now)) = self.known.first().cloned() else {
                    // A first checkout has none.
                    return Err(ShimError::Conflicts(conflicts).into());
                };
                Ok(Pulled { from, now, applied, left_out, left_out_paths, conflicts })
            }
            Err(error) => {
                if !matches!(error, FolderError::Folder(ShimError::Lost(_))) {
                    self.known.pop();
                }
                Err(error)
            }
        }
    }
}

/// Names the repository of a command that has committed in it since a look before.
pub(crate) fn committed(before: &ScanReport, now: &ScanReport) -> Option<LeftEntry> {
    (now.git_ns > before.git_ns).then(|| LeftEntry { path: ".git/".to_owned(), why: COMMITTED.to_owned() })
}

/// Names files that no set takes, however they are read.
fn name_large(large: Vec<PathChange>, report: &mut ScanReport) {
    report.left_count += large.len() as u64;
    report.foreign_count = report.foreign_count.saturating_add(large.len() as u64);
    let room = MAX_LEFT.saturating_sub(report.left.len());
    let why = format!("it has more than {} bytes", LIMITS.max_file_bytes);
    let path = |change: PathChange| change.path.chars().take(MAX_SHOWN_CHARS).collect();
    report.left.extend(large.into_iter().take(room).map(|change| LeftEntry { path: path(change), why: why.clone() }));
}

/// Reads a layer. Files that change again and again while they are read are left.
fn read(
    folder: &mut dyn CommandFolder,
    mut paths: Vec<String>,
) -> Result<(SpooledTempFile, Vec<LeftEntry>, u64), FolderError> {
    let mut changing = Vec::new();
    for attempt in 1..=MAX_READS * 10 {
        let mut layer = SpooledTempFile::new(MAX_LAYER_IN_MEMORY);
        let mut report = folder.read(&paths, LIMITS, &mut layer)?;
        if report.torn.is_empty() {
            let rewound =
                |layer: &mut SpooledTempFile| layer.rewind().map_err(|error| FolderError::io("the layer", error));
            rewound(&mut layer)?;
            // A hostile sandbox could add what nobody was shown.
            check_layer(&mut layer, &paths)?;
            rewound(&mut layer)?;
            report.left.append(&mut changing);
            return Ok((layer, report.left, report.entries));
        }
        if attempt >= MAX_READS {
            paths.retain(|path| !report.torn.contains(path));
            let why = UNSTEADY.to_owned();
            changing.extend(report.torn.into_iter().map(|path| LeftEntry { path, why: why.clone() }));
        }
    }
    Err(FolderError::Unsteady)
}

/// A download as a reader, on a thread that may block.
struct ContentReader {
    chunks: Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>,
    chunk: Bytes,
    runtime: Handle,
}

impl Read for ContentReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.runtime.block_on(self.chunks.next()) {
                None => return Ok(0),
                Some(chunk) => self.chunk = chunk.map_err(io::Error::other)?,
            }
        }
        let count = self.chunk.len().min(buffer.len());
        self.chunk.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
