//! The task that signs checkpoints.
//!
//! A round appends the chain heads that advanced as leaves in one ledger transaction, then the signed note to the
//! checkpoint file, syncs it, and publishes it. So the file is ahead of the database only if somebody restored an older
//! database, which is detected.

#![expect(clippy::disallowed_types, reason = "the settings say where the checkpoint file is")]

pub(crate) mod file;
pub(crate) mod key;
pub(crate) mod key_changes;
mod rotate;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::clock;
use ledger::{AdvancedHead, Ledger, LedgerError, NewCheckpoint, PageSize, RecordFilter, Role, StoredCheckpoint};
use model::{Sha256, WebhookMessage};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use transparency::{
    Frontier, KeyChange, KeyChangeError, KeyHistory, LogTail, NoteError, SignerKey, hash_checkpoint_leaf,
};

use self::file::CheckpointFile;
use self::key::KeyInForce;
use self::key_changes::{ExpectedStatements, FilePosition};
use crate::checkpoints::{CheckpointState, Checkpoints, PAGE, PublicKeys, SignedCheckpoint, load_frontier};
use crate::config::{CheckpointConfig, ConfigError};
use crate::data_dir::InstanceNoteFile;
use crate::nodes::membership::Membership;
use crate::start_error::StartError;

pub(crate) use self::rotate::{Rotation, rotate};

/// Records that one checkpoint covers at most, so that its transaction is short. More records get further checkpoints.
const MAX_RECORDS: i64 = 2000;
/// How often uncovered records are counted.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the signing task where an earlier process ended. Returns what it publishes.
///
/// # Errors
///
/// If the key, the file or the database cannot be used, the file lacks checkpoints, or another key signed the earlier ones.
pub(crate) async fn start(
    config: &CheckpointConfig,
    ledger: Arc<dyn Ledger>,
    instance_note: InstanceNoteFile,
    node: Option<Arc<Membership>>,
) -> Result<Checkpoints, StartError> {
    let latest = ledger.latest_checkpoint().await.map_err(|error| StartError::failed("the database", &error))?;
    let statements = key_changes::load(ledger.as_ref()).await?;
    let KeyInForce { key, was_interrupted } = key::load_or_create(config, latest.is_some(), &statements)?;
    if was_interrupted {
        tracing::warn!("completed a change of the key that signs checkpoints, which was interrupted");
    }
    let verifier_key = key.verifier_key().to_text();
    let (publisher, published) = watch::channel(CheckpointState::Empty);
    let mut signer = Signer::new(config, key, Arc::clone(&ledger), instance_note, publisher).of_node(node);
    signer.resume().await?;
    let stop = CancellationToken::new();
    let task = tokio::spawn(signer.run(stop.clone()));
    let keys = PublicKeys { verifier_key, statements };
    Ok(Checkpoints::new(ledger, published, keys, stop, task))
}

struct Signer {
    key: SignerKey,
    /// The checkpoint file.
    path: PathBuf,
    instance_note: InstanceNoteFile,
    /// Whether lost checkpoints are written to the file again.
    renews_file: bool,
    /// The longest time until a record is covered.
    interval: Duration,
    /// The number of uncovered records at which a checkpoint is signed before the interval is over.
    max_uncovered: i64,
    ledger: Arc<dyn Ledger>,
    publisher: watch::Sender<CheckpointState>,
    /// The node that signs while it has the role; `None` if the service is the only one.
    node: Option<Arc<Membership>>,
    /// `None` after a failure: the next round loads it again.
    tree: Option<SignedTree>,
}

/// The state of the log after a checkpoint.
struct SignedTree {
    frontier: Frontier,
    /// The position of the last record whose chain head was taken into account.
    position: i64,
    file: CheckpointFile,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum SignError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the checkpoint file")]
    File(#[from] io::Error),
    #[error("the earlier checkpoints were signed with another key or origin")]
    OtherKey,
    /// The database or the file contradicts what was signed.
    #[error("{0}")]
    Contradiction(String),
    /// The file lacks checkpoints that the database has.
    #[error("{0}")]
    FileIncomplete(String),
    #[error("the instance file in the data folder")]
    InstanceNote(#[source] io::Error),
}

impl Signer {
    fn new(
        config: &CheckpointConfig,
        key: SignerKey,
        ledger: Arc<dyn Ledger>,
        instance_note: InstanceNoteFile,
        publisher: watch::Sender<CheckpointState>,
    ) -> Self {
        Self {
            key,
            path: config.file.clone(),
            instance_note,
            renews_file: config.renew_file,
            interval: config.every,
            max_uncovered: config.records,
            ledger,
            publisher,
            node: None,
            tree: None,
        }
    }

    /// Returns the signer of a node. Its file gets the checkpoints of other nodes too.
    fn of_node(self, node: Option<Arc<Membership>>) -> Self {
        let renews_file = self.renews_file || node.is_some();
        Self { renews_file, node, ..self }
    }

    /// Whether another node signs.
    fn follows(&self) -> bool {
        self.node.as_ref().is_some_and(|node| !node.holds(Role::Signing))
    }

    /// Loads the state that an earlier process left, and completes the file.
    ///
    /// # Errors
    ///
    /// If the database or the file fails, the file lacks checkpoints, or another key signed the earlier ones.
    async fn resume(&mut self) -> Result<(), StartError> {
        match self.load_with_file().await {
            Ok(tree) => self.tree = Some(tree),
            Err(SignError::Contradiction(why)) => self.halt(&why).await,
            Err(error) => return Err(self.start_error(error)),
        }
        Ok(())
    }

    /// Returns why a command that needs the log fails.
    fn start_error(&self, error: SignError) -> StartError {
        match error {
            SignError::FileIncomplete(why) => ConfigError(why).into(),
            SignError::Contradiction(why) => {
                ConfigError(format!("{why}; run `workspaced verify` to see what is wrong")).into()
            }
            SignError::Ledger(error) => StartError::failed("the database", &error),
            SignError::File(error) | SignError::InstanceNote(error) => {
                StartError::failed(format!("--checkpoint-file {}", self.path.display()), &error)
            }
            SignError::OtherKey => {
                let hint = "put the key back, or start with a new database and a new file";
                ConfigError(format!("--checkpoint-origin or checkpoint.key: {error}; {hint}")).into()
            }
        }
    }

    /// Signs until `stop` is cancelled, and once more then.
    async fn run(mut self, stop: CancellationToken) {
        while !self.is_halted() {
            tokio::select! {
                () = self.wait() => {}
                () = stop.cancelled() => {}
            }
            let is_last = stop.is_cancelled();
            match self.cover_all().await {
                Ok(()) => {}
                Err(SignError::Contradiction(why) | SignError::FileIncomplete(why)) => self.halt(&why).await,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "no checkpoint could be signed");
                }
            }
            if is_last {
                return;
            }
        }
    }

    fn is_halted(&self) -> bool {
        matches!(*self.publisher.borrow(), CheckpointState::Halted)
    }

    /// Stops signing: another checkpoint would contradict what was signed before.
    async fn halt(&mut self, why: &str) {
        tracing::error!(why, "no checkpoints are signed any more; run `workspaced verify` to see what is wrong");
        self.tree = None;
        self.publisher.send_replace(CheckpointState::Halted);
        if let Err(error) = self.ledger.notify(&WebhookMessage::signing_stopped(&clock::now())).await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "webhooks could not be notified that signing has stopped");
        }
    }

    /// Waits until there are uncovered records, and then until there are enough of them or the interval is over.
    async fn wait(&self) {
        let Some(tree) = &self.tree else {
            sleep(self.interval).await;
            return;
        };
        let mut newest = self.ledger.newest_position();
        while *newest.borrow_and_update() <= tree.position {
            if newest.changed().await.is_err() {
                // The ledger is closed: only `stop` ends the wait.
                std::future::pending::<()>().await;
            }
        }
        let deadline = Instant::now() + self.interval;
        while Instant::now() < deadline && *newest.borrow() - tree.position < self.max_uncovered {
            sleep(POLL_INTERVAL.min(deadline - Instant::now())).await;
        }
    }

    /// Signs checkpoints until every record that exists now is covered.
    async fn cover_all(&mut self) -> Result<(), SignError> {
        let mut tree = match self.tree.take() {
            // Another node may have signed since.
            Some(tree) if self.node.is_none() || self.is_newest(&tree).await? => tree,
            _ => self.load().await?,
        };
        if self.follows() {
            self.tree = Some(tree);
            return Ok(());
        }
        let newest = *self.ledger.newest_position().borrow();
        while tree.position < newest {
            tree = self.sign_next(tree, newest).await?;
        }
        self.tree = Some(tree);
        Ok(())
    }

    /// Whether no checkpoint is newer than the tree.
    async fn is_newest(&self, tree: &SignedTree) -> Result<bool, SignError> {
        let latest = self.ledger.latest_checkpoint().await?;
        Ok(latest.map_or(0, |latest| latest.size) == tree.frontier.size())
    }

    /// Covers the next records, up to position `newest` at most.
    async fn sign_next(&mut self, mut tree: SignedTree, newest: i64) -> Result<SignedTree, SignError> {
        let to = newest.min(tree.position.saturating_add(MAX_RECORDS));
        let heads = self.ledger.advanced_heads(tree.position, to).await?;
        if let Some(AdvancedHead { leaf, .. }) = heads.iter().find(|head| !head.extends_last_leaf) {
            let why = format!("the chain of run {} does not contain what was signed of it before", leaf.run_id);
            return Err(SignError::Contradiction(why));
        }
        let leaves: Vec<_> = heads.into_iter().map(|head| head.leaf).collect();
        tree.position = to;
        if leaves.is_empty() {
            return Ok(tree);
        }
        let completed = leaves.iter().flat_map(|leaf| tree.frontier.push(hash_checkpoint_leaf(leaf)));
        let nodes = completed.map(|(node, hash)| (node.storage_index(), hash)).collect();
        let (size, root) = (tree.frontier.size(), tree.frontier.root());
        let checkpoint = StoredCheckpoint { size, position: to, note: self.key.sign(size, root) };
        // The folder of a node says nothing about the checkpoints of others.
        if self.node.is_none() {
            let instance_note = self.instance_note.clone();
            let noted = tokio::task::spawn_blocking(move || instance_note.expect_checkpoint(size)).await;
            noted.map_err(io::Error::other).flatten().map_err(SignError::InstanceNote)?;
        }
        self.ledger.append_checkpoint(NewCheckpoint { leaves, nodes, checkpoint: checkpoint.clone() }).await?;
        failpoint::hit("checkpoint.stored");
        tree.file = append(tree.file, vec![checkpoint.note.clone()]).await?;
        self.publish(checkpoint, root);
        Ok(tree)
    }

    fn publish(&self, checkpoint: StoredCheckpoint, root: Sha256) {
        let StoredCheckpoint { size, position, note } = checkpoint;
        let signed = SignedCheckpoint { size, position, root, note };
        self.publisher.send_replace(CheckpointState::Signed(Arc::new(signed)));
    }

    /// As [`load`](Self::load), where the file may have been changed since this process has written to it: also compares all its
    /// changes of the key with those of the database.
    async fn load_with_file(&self) -> Result<SignedTree, SignError> {
        let tree = self.load().await?;
        let statements = key_changes::load(self.ledger.as_ref()).await?;
        let key = self.key.verifier_key();
        let (path, origin) = (self.path.clone(), key.name().to_owned());
        let keys = KeyHistory::follow(key, statements.iter().map(String::as_str));
        let keys = keys.map_err(|error| SignError::Contradiction(format!("the changes of the key: {error}")))?;
        let expected = ExpectedStatements::new(statements, &keys);
        let compared = tokio::task::spawn_blocking(move || file::contradiction(&path, &origin, expected)).await;
        match compared.map_err(io::Error::other)?? {
            Some(why) => Err(SignError::Contradiction(format!("--checkpoint-file {}: {why}", self.path.display()))),
            None => Ok(tree),
        }
    }

    /// Loads the tree, completes the file and publishes the newest checkpoint.
    async fn load(&self) -> Result<SignedTree, SignError> {
        let latest = self.ledger.latest_checkpoint().await?;
        let statements = key_changes::load(self.ledger.as_ref()).await?;
        let keys = KeyHistory::follow(self.key.verifier_key(), statements.iter().map(String::as_str));
        let keys = keys.map_err(|error| SignError::Contradiction(format!("the changes of the key: {error}")))?;
        let frontier = match &latest {
            None => Frontier::default(),
            Some(latest) => self.load_signed(latest, &keys).await?,
        };
        if keys.changes().last().is_some_and(|last| last.checkpoint.size > frontier.size()) {
            let why = "checkpoints from before a change of the key are missing in the database";
            return Err(SignError::Contradiction(why.to_owned()));
        }
        if let Some(why) = key_changes::contradiction(self.ledger.as_ref(), &keys).await? {
            return Err(SignError::Contradiction(why));
        }
        let file = self.complete_file(frontier.size(), &keys, &statements).await?;
        let position = latest.as_ref().map_or(0, |latest| latest.position);
        if !self.has_records_until(position).await? {
            return Err(SignError::Contradiction("records that a checkpoint covers are missing".to_owned()));
        }
        if let Some(latest) = latest {
            self.publish(latest, frontier.root());
        }
        Ok(SignedTree { frontier, position, file })
    }

    /// Whether the database has records up to a position. That another node has signed them says so before this process sees that they
    /// are settled: a commit in flight can hold that back for as long as it lasts.
    async fn has_records_until(&self, position: i64) -> Result<bool, LedgerError> {
        if *self.ledger.newest_position().borrow() >= position {
            return Ok(true);
        }
        let newest_first = RecordFilter { newest_first: true, ..RecordFilter::default() };
        let newest = self.ledger.records(&newest_first, None, PageSize::rows(1)).await?;
        Ok(newest.items.first().is_some_and(|newest| newest.position >= position))
    }

    /// Loads the frontier of the tree that was signed last. Computes it from the leaves if nodes are missing or changed.
    async fn load_signed(&self, latest: &StoredCheckpoint, keys: &KeyHistory) -> Result<Frontier, SignError> {
        let signed = keys.verify(&latest.note).map_err(|error| match error {
            KeyChangeError::Note(NoteError::NotSigned | NoteError::OtherOrigin) => SignError::OtherKey,
            error => SignError::Contradiction(format!("the newest checkpoint in the database: {error}")),
        })?;
        let is_signed = |frontier: &Frontier| frontier.size() == signed.size && frontier.root() == signed.root;
        if let Some(frontier) = load_frontier(self.ledger.as_ref(), latest.size).await?.filter(is_signed) {
            return Ok(frontier);
        }
        tracing::warn!("nodes of the checkpoint tree are missing or changed; it is computed from its leaves");
        let frontier = self.compute_frontier(latest.size).await?;
        if is_signed(&frontier) {
            Ok(frontier)
        } else {
            Err(SignError::Contradiction("the leaves in the database do not have the signed root".to_owned()))
        }
    }

    /// Computes the frontier of the first `size` leaves, or of fewer if leaves are missing.
    async fn compute_frontier(&self, size: u64) -> Result<Frontier, LedgerError> {
        let mut frontier = Frontier::default();
        while frontier.size() < size {
            let page = self.ledger.leaves(None, frontier.size(), PAGE).await?;
            let before = frontier.size();
            let missing = usize::try_from(size - before).unwrap_or(usize::MAX);
            for leaf in page.iter().filter_map(ledger::StoredLeaf::leaf).take(missing) {
                frontier.push(hash_checkpoint_leaf(&leaf));
            }
            if frontier.size() == before {
                break;
            }
        }
        Ok(frontier)
    }

    /// Opens the file and appends the checkpoints over up to `size` leaves, and the statements, that it lacks.
    async fn complete_file(
        &self,
        size: u64,
        keys: &KeyHistory,
        statements: &[String],
    ) -> Result<CheckpointFile, SignError> {
        let (path, origin) = (self.path.clone(), self.key.verifier_key().name().to_owned());
        let opened = tokio::task::spawn_blocking(move || CheckpointFile::open(&path, &origin));
        let (mut file, LogTail { last_note, partial_bytes }) = opened.await.map_err(io::Error::other)??;
        if partial_bytes > 0 {
            tracing::warn!(bytes = partial_bytes, "a partial entry at the end of the checkpoint file was cut off");
        }
        let mut position = self.position_in_file(last_note, size, keys, statements).await?;
        let mut added = 0;
        loop {
            let checkpoints = self.ledger.checkpoints(position.size, PAGE).await?;
            let missing = position.next_notes(checkpoints, statements);
            let missing = missing.map_err(|error| SignError::Contradiction(error.to_string()))?;
            if missing.is_empty() {
                break;
            }
            added += missing.len();
            // A process that was killed leaves out one entry at most.
            if added > 1 && !self.renews_file {
                let why = format!(
                    "--checkpoint-file {}: it has lost checkpoints that the database has: put its newest state back, or \
                    start once with --renew-checkpoint-file if that is lost",
                    self.path.display()
                );
                return Err(SignError::FileIncomplete(why));
            }
            file = append(file, missing).await?;
        }
        if added > 1 {
            tracing::warn!(entries = added, "checkpoints that the checkpoint file had lost were written again");
        }
        Ok(file)
    }

    /// Returns what the file has up to its last entry, which has to be in the database too.
    async fn position_in_file(
        &self,
        last_note: Option<String>,
        size: u64,
        keys: &KeyHistory,
        statements: &[String],
    ) -> Result<FilePosition, SignError> {
        let Some(note) = last_note else { return Ok(FilePosition::default()) };
        // Several statements may have one size, each signed by keys of its own, so that no key is in force for them.
        if KeyChange::is_statement(&note) {
            let mut stored = statements.iter().zip(keys.changes()).enumerate();
            let (index, (_, change)) = stored.find(|(_, (statement, _))| **statement == note).ok_or_else(|| {
                SignError::Contradiction("the last change of the key in the file is not in the database".to_owned())
            })?;
            return Ok(FilePosition { size: change.checkpoint.size, statements: index + 1 });
        }
        let last = keys.verify(&note);
        let last =
            last.map_err(|error| SignError::Contradiction(format!("the last checkpoint in the file: {error}")))?;
        if last.size > size {
            let why = format!("the file has a tree of {} leaves, the database one of {size}", last.size);
            return Err(SignError::Contradiction(why));
        }
        let stored = self.ledger.checkpoints(last.size.saturating_sub(1), 1).await?;
        if stored.first().is_none_or(|stored| stored.note != note) {
            let why = "the last checkpoint in the file is not in the database";
            return Err(SignError::Contradiction(why.to_owned()));
        }
        let earlier = keys.changes().iter().take_while(|change| change.checkpoint.size < last.size).count();
        Ok(FilePosition { size: last.size, statements: earlier })
    }
}

/// Appends notes to the file on a blocking thread.
async fn append(mut file: CheckpointFile, notes: Vec<String>) -> Result<CheckpointFile, SignError> {
    let appended = tokio::task::spawn_blocking(move || {
        notes.iter().try_for_each(|note| file.append(note))?;
        Ok::<_, io::Error>(file)
    });
    Ok(appended.await.map_err(io::Error::other)??)
}
