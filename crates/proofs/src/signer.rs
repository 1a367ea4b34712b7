//! The task that signs checkpoints.
//!
//! A round appends the chain heads that advanced as leaves in one ledger transaction, then the signed note to the
//! checkpoint file, syncs it, and publishes it. So the file is ahead of the database only if somebody restored an older
//! database, which is detected.

pub mod file;
pub mod key;
pub mod key_changes;
mod rotate;

use async_recursion::async_recursion as boxed;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::clock;
use ledger::{AdvancedHead, Ledger, LedgerError, NewCheckpoint, PageSize, RecordFilter, Role, StoredCheckpoint};
use model::{Sha256, WebhookMessage};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use transparency::{
    Frontier, KeyChange, KeyChangeError, KeyHistory, LogTail, NoteError, SigningKeys, VerifierKey, hash_checkpoint_leaf,
};

use self::file::CheckpointFile;
use crate::checkpoints::{CheckpointState, Checkpoints, PAGE, PublicKeys, SignedCheckpoint, load_frontier};
use cluster::nodes::membership::Membership;
use config::StartError;
use config::{CheckpointConfig, ConfigError};
use data_dir::InstanceNoteFile;

pub use self::rotate::{KeysWritten, create, rotate};

/// Records that one checkpoint covers at most, so that its transaction is short. More records get further checkpoints.
const MAX_RECORDS: i64 = 2000;
/// Number of uncovered records that triggers a checkpoint before the interval is over.
const TRIGGERING_RECORDS: i64 = 1000;
/// How often uncovered records are counted.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the signing task where an earlier process ended. Returns what it publishes.
///
/// # Errors
///
/// If the key, the file or the database cannot be used, the file lacks checkpoints, or another key signed the earlier ones.
#[boxed]
pub async fn start(
    config: &CheckpointConfig,
    ledger: Arc<dyn Ledger>,
    instance_note: InstanceNoteFile,
    node: Option<Arc<Membership>>,
) -> Result<Checkpoints, StartError> {
    let latest = ledger.latest_checkpoint().await.map_err(|error| StartError::failed("the database", &error))?;
    let keys = key::load_or_create(config, latest.is_some())?;
    let public = PublicKeys { verifier_key: keys.key().verifier_key().to_text(), statements: Vec::new() };
    let (key_publisher, public_keys) = watch::channel(public);
    let (publisher, published) = watch::channel(CheckpointState::Empty);
    // The file of a node gets the checkpoints of other nodes too.
    let renews_file = node.is_some();
    let mut signer = Signer {
        config: config.clone(),
        keys,
        instance_note,
        renews_file,
        ledger: Arc::clone(&ledger),
        publisher,
        key_publisher,
        node,
        tree: None,
    };
    signer.resume().await?;
    let stop = CancellationToken::new();
    let task = tokio::spawn(signer.run(stop.clone()));
    Ok(Checkpoints::new(ledger, published, public_keys, stop, task))
}

/// Writes the checkpoints that the file has lost to it again, from the database, while no service runs.
///
/// # Errors
///
/// If there is no key, the file or the database cannot be used, or they contradict what was signed.
#[boxed]
pub async fn renew_file(
    config: &CheckpointConfig,
    ledger: Arc<dyn Ledger>,
    instance_note: InstanceNoteFile,
) -> Result<(), StartError> {
    let keys = key::load(config)?;
    let public = PublicKeys { verifier_key: keys.key().verifier_key().to_text(), statements: Vec::new() };
    let signer = Signer {
        config: config.clone(),
        keys,
        instance_note,
        renews_file: true,
        ledger,
        publisher: watch::Sender::new(CheckpointState::Empty),
        key_publisher: watch::Sender::new(public),
        node: None,
        tree: None,
    };
    signer.load().await.map(drop).map_err(|error| error.of_start(config))
}

struct Signer {
    config: CheckpointConfig,
    keys: SigningKeys,
    instance_note: InstanceNoteFile,
    /// Whether lost checkpoints are written to the file again.
    renews_file: bool,
    ledger: Arc<dyn Ledger>,
    publisher: watch::Sender<CheckpointState>,
    key_publisher: watch::Sender<PublicKeys>,
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
    /// The keys of the log so far.
    keys: KeyHistory,
    /// Whether the newest checkpoint is signed by two keys.
    has_two_signatures: bool,
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
    /// Another node signs with a key that this one lacks.
    #[error("the log has a new key, {0}, which this node lacks: put it into its key file, and restart it")]
    KeyReplaced(String),
    /// The database or the file contradicts what was signed.
    #[error("{0}")]
    Contradiction(String),
    /// The file lacks checkpoints that the database has.
    #[error("{0}")]
    FileIncomplete(String),
    #[error("the instance file in the data folder")]
    InstanceNote(#[source] io::Error),
}

impl SignError {
    /// The refusal of a checkpoint in the database.
    fn by_other_key(error: KeyChangeError) -> Self {
        match error {
            KeyChangeError::Note(NoteError::NotSigned | NoteError::OtherOrigin) | KeyChangeError::Untrusted => {
                Self::OtherKey
            }
            error => Self::Contradiction(format!("the newest checkpoint in the database: {error}")),
        }
    }

    /// Returns why a command that needs the log fails.
    fn of_start(self, config: &CheckpointConfig) -> StartError {
        match self {
            Self::FileIncomplete(why) => ConfigError(why).into(),
            Self::Contradiction(why) => {
                ConfigError(format!("{why}; run `workspaced verify` to see what is wrong")).into()
            }
            Self::Ledger(error) => StartError::failed("the database", &error),
            Self::File(error) | Self::InstanceNote(error) => {
                StartError::failed(format!("--checkpoint-file {}", config.file.display()), &error)
            }
            Self::OtherKey | Self::KeyReplaced(_) => {
                let hint = "put the key back, or start with a new database and a new file";
                ConfigError(format!("WORKSPACED_CHECKPOINT_KEY or --checkpoint-key-file: {self}; {hint}")).into()
            }
        }
    }
}

/// Loads the keys of the log, and the statements that lead from one to the next.
///
/// # Errors
///
/// If the ledger fails, or the statements are not a chain with the first of `keys` in it.
async fn load_history(
    ledger: &dyn Ledger,
    keys: &SigningKeys,
    latest: Option<&StoredCheckpoint>,
) -> Result<(KeyHistory, Vec<String>), SignError> {
    let statements = key_changes::load(ledger, latest).await?;
    match KeyHistory::follow(keys.key().verifier_key(), statements.iter().map(String::as_str)) {
        Ok(history) => Ok((history, statements)),
        Err(KeyChangeError::Untrusted) => Err(SignError::OtherKey),
        Err(error) => Err(SignError::Contradiction(format!("the changes of the key: {error}"))),
    }
}

impl Signer {
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
        match self.load().await {
            Ok(tree) if !self.has_key(tree.keys.newest()) => return Err(rotate::replaced(&tree.keys)),
            Ok(tree) => self.tree = Some(tree),
            Err(SignError::Contradiction(why)) => self.halt(&why).await,
            Err(error) => return Err(error.of_start(&self.config)),
        }
        Ok(())
    }

    fn has_key(&self, public: &VerifierKey) -> bool {
        self.keys.all().any(|key| key.verifier_key() == *public)
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
            sleep(self.config.every).await;
            return;
        };
        let mut newest = self.ledger.newest_position();
        while *newest.borrow_and_update() <= tree.position {
            if newest.changed().await.is_err() {
                // The ledger is closed: only `stop` ends the wait.
                std::future::pending::<()>().await;
            }
        }
        let deadline = Instant::now() + self.config.every;
        while Instant::now() < deadline && *newest.borrow() - tree.position < TRIGGERING_RECORDS {
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
        let note = self.sign(size, root, &tree)?;
        let checkpoint = StoredCheckpoint { size, position: to, note };
        // The folder of a node says nothing about the checkpoints of others.
        if self.node.is_none() {
            let instance_note = self.instance_note.clone();
            let noted = tokio::task::spawn_blocking(move || instance_note.expect_checkpoint(size)).await;
            noted.map_err(io::Error::other).flatten().map_err(SignError::InstanceNote)?;
        }
        self.ledger.append_checkpoint(NewCheckpoint { leaves, nodes, checkpoint: checkpoint.clone() }).await?;
        failpoint::hit("checkpoint.stored");
        tree.has_two_signatures = KeyChange::is_statement(&checkpoint.note);
        if tree.has_two_signatures && *tree.keys.newest() == self.keys.key().verifier_key() {
            // The log has a new key from here on: load it, with the statement that leads to it.
            return self.load().await;
        }
        tree.file = append(tree.file, vec![checkpoint.note.clone()]).await?;
        self.publish(checkpoint, root);
        Ok(tree)
    }

    /// Signs the checkpoint of a tree that continues `tree`: by both keys until a checkpoint is signed by the new one alone.
    fn sign(&self, size: u64, root: Sha256, tree: &SignedTree) -> Result<String, SignError> {
        let newest = tree.keys.newest();
        let (key, successor) = (self.keys.key(), self.keys.successor());
        let is_retired = || !tree.has_two_signatures && successor.is_some_and(|one| one.verifier_key() == *newest);
        match successor {
            _ if !self.has_key(newest) => Err(SignError::KeyReplaced(newest.to_text())),
            Some(successor) if is_retired() => Ok(successor.sign(size, root)),
            Some(successor) => {
                let signed = key.sign_change(successor, size, root);
                signed.map_err(|error| SignError::Contradiction(format!("the new key: {error}")))
            }
            None => Ok(key.sign(size, root)),
        }
    }

    fn publish(&self, checkpoint: StoredCheckpoint, root: Sha256) {
        let StoredCheckpoint { size, position, note } = checkpoint;
        let signed = SignedCheckpoint { size, position, root, note };
        self.publisher.send_replace(CheckpointState::Signed(Arc::new(signed)));
    }

    /// Loads the tree, completes the file and publishes the newest checkpoint.
    async fn load(&self) -> Result<SignedTree, SignError> {
        let latest = self.ledger.latest_checkpoint().await?;
        let (keys, statements) = load_history(self.ledger.as_ref(), &self.keys, latest.as_ref()).await?;
        let frontier = match &latest {
            None => Frontier::default(),
            Some(latest) => self.load_signed(latest, &keys).await?,
        };
        if let Some(why) = key_changes::contradiction(self.ledger.as_ref(), &keys, &statements).await? {
            return Err(SignError::Contradiction(why));
        }
        let latest_note = latest.as_ref().map(|latest| &latest.note);
        if latest_note.is_some_and(|note| statements.last() == Some(note)) {
            failpoint::hit("key.signed");
            if !key_changes::store(self.ledger.as_ref(), &statements).await? {
                let why = "the database has another change of the key than the newest checkpoint says";
                return Err(SignError::Contradiction(why.to_owned()));
            }
        }
        let has_two_signatures = latest_note.is_some_and(|note| KeyChange::is_statement(note));
        let file = self.complete_file(frontier.size(), &keys).await?;
        let position = latest.as_ref().map_or(0, |latest| latest.position);
        if !self.has_records_until(position).await? {
            return Err(SignError::Contradiction("records that a checkpoint covers are missing".to_owned()));
        }
        self.key_publisher.send_replace(PublicKeys { verifier_key: keys.newest().to_text(), statements });
        if let Some(latest) = latest {
            self.publish(latest, frontier.root());
        }
        Ok(SignedTree { frontier, position, file, keys, has_two_signatures })
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
        let signed = keys.verify(&latest.note).map_err(SignError::by_other_key)?;
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

    /// Opens the file and appends the checkpoints over up to `size` leaves that it lacks.
    async fn complete_file(&self, size: u64, keys: &KeyHistory) -> Result<CheckpointFile, SignError> {
        let (path, origin) = (self.config.file.clone(), self.keys.key().verifier_key().name().to_owned());
        let opened = tokio::task::spawn_blocking(move || CheckpointFile::open(&path, &origin));
        let (mut file, LogTail { last_note, partial_bytes }) = opened.await.map_err(io::Error::other)??;
        if partial_bytes > 0 {
            tracing::warn!(bytes = partial_bytes, "a partial entry at the end of the checkpoint file was cut off");
        }
        let mut in_file = self.size_in_file(last_note, size, keys).await?;
        let mut added = 0;
        loop {
            let missing = self.ledger.checkpoints(in_file, PAGE).await?;
            let Some(last) = missing.last() else { break };
            in_file = last.size;
            added += missing.len();
            // A process that was killed leaves out one entry at most.
            if added > 1 && !self.renews_file {
                let why = format!(
                    "--checkpoint-file {}: it has lost checkpoints that the database has: put its newest state back, or \
                    run `workspaced key renew-file` if that is lost",
                    self.config.file.display()
                );
                return Err(SignError::FileIncomplete(why));
            }
            file = append(file, missing.into_iter().map(|checkpoint| checkpoint.note).collect()).await?;
        }
        if added > 1 {
            tracing::warn!(entries = added, "checkpoints that the checkpoint file had lost were written again");
        }
        Ok(file)
    }

    /// Returns the size of the tree in the file's last entry, which has to be in the database too.
    async fn size_in_file(&self, last_note: Option<String>, size: u64, keys: &KeyHistory) -> Result<u64, SignError> {
        let Some(note) = last_note else { return Ok(0) };
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
        Ok(last.size)
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
