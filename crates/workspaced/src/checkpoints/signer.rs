//! The task that signs: round by round, and where an earlier process ended.

#![expect(clippy::disallowed_types, reason = "the file of checkpoints lies where the settings say")]

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ledger::{AdvancedHead, Ledger, LedgerError, NewCheckpoint, StoredCheckpoint};
use model::merkle::Edge;
use model::{CheckpointInvalid, CheckpointKey, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::file::{CheckpointFile, Opened};
use super::{Published, Signed};
use crate::config::{BadSetting, CheckpointConfig};
use crate::lock::NoteFile;
use crate::start::StartError;

/// Records that one round looks through at most, so that no commit of it is long; what is left has its own round at once.
const MAX_RECORDS: i64 = 2000;
/// Between two looks at how many records have come, while there are some that no checkpoint covers.
const LOOK: Duration = Duration::from_millis(100);
/// Leaves or checkpoints that are asked for at a time.
const PAGE: u32 = 500;

/// Makes checkpoints.
pub(super) struct Signer {
    key: CheckpointKey,
    path: PathBuf,
    note: NoteFile,
    /// Whether the file is given what it has lost.
    renews_file: bool,
    /// How long a record waits for its checkpoint at most.
    every: Duration,
    /// How many records wait at most.
    records: i64,
    ledger: Arc<dyn Ledger>,
    tell: watch::Sender<Published>,
    /// `None` after a failure, which leaves unknown how far the round came.
    tree: Option<Tree>,
}

/// Where the tree stands.
struct Tree {
    edge: Edge,
    /// The position up to which it was looked for heads that had moved.
    looked: i64,
    file: CheckpointFile,
}

/// Why there is no checkpoint.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the checkpoint file")]
    File(#[from] io::Error),
    #[error("the checkpoints so far are of another key or origin")]
    OtherKey,
    /// The database does not hold what was signed.
    #[error("{0}")]
    Diverged(String),
    /// The file lacks what the database holds.
    #[error("{0}")]
    Lost(String),
    #[error("the note in the data folder")]
    Note(#[source] io::Error),
}

impl Signer {
    pub(super) fn new(
        key: CheckpointKey,
        config: &CheckpointConfig,
        ledger: Arc<dyn Ledger>,
        note: NoteFile,
        tell: watch::Sender<Published>,
    ) -> Self {
        let (path, every, records, renews_file) =
            (config.file.clone(), config.every, config.records, config.renew_file);
        Self { key, path, note, renews_file, every, records, ledger, tell, tree: None }
    }

    /// Reads where an earlier process ended, and gives the file what it lacks.
    ///
    /// # Errors
    ///
    /// Where database or file fail, the file has lost checkpoints, or those so far are of another key.
    pub(super) async fn take_up(&mut self) -> Result<(), StartError> {
        match self.load().await {
            Ok(tree) => self.tree = Some(tree),
            Err(Fault::Diverged(why)) => self.halt(&why),
            Err(Fault::Lost(why)) => return Err(BadSetting(why).into()),
            Err(Fault::Ledger(error)) => return Err(StartError::failed("the database", &error)),
            Err(Fault::File(error) | Fault::Note(error)) => {
                return Err(StartError::failed(format!("--checkpoint-file {}", self.path.display()), &error));
            }
            Err(error @ Fault::OtherKey) => {
                let hint = "put the key back, or start with a new database and a new file";
                return Err(BadSetting(format!("--checkpoint-origin or checkpoint.key: {error}; {hint}")).into());
            }
        }
        Ok(())
    }

    /// Signs until `stop`, and once more then.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while !self.is_halted() {
            tokio::select! {
                () = self.wait() => {}
                () = stop.cancelled() => {}
            }
            let ending = stop.is_cancelled();
            match self.rounds().await {
                Ok(()) => {}
                Err(Fault::Diverged(why) | Fault::Lost(why)) => self.halt(&why),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "a checkpoint could not be made");
                }
            }
            if ending {
                return;
            }
        }
    }

    fn is_halted(&self) -> bool {
        matches!(*self.tell.borrow(), Published::Halted)
    }

    /// Signs no more: what would be signed contradicts what was signed before.
    fn halt(&mut self, why: &str) {
        tracing::error!(why, "no checkpoints are signed any more; `workspaced verify` tells what is wrong");
        self.tree = None;
        self.tell.send_replace(Published::Halted);
    }

    /// Until there are records to look at, and enough of them or for long enough.
    async fn wait(&self) {
        let Some(tree) = &self.tree else {
            sleep(self.every).await;
            return;
        };
        let mut newest = self.ledger.newest_position();
        while *newest.borrow_and_update() <= tree.looked {
            if newest.changed().await.is_err() {
                // The ledger has ended, and the service with it.
                std::future::pending::<()>().await;
            }
        }
        let until = Instant::now() + self.every;
        while Instant::now() < until && *newest.borrow() - tree.looked < self.records {
            sleep(LOOK.min(until - Instant::now())).await;
        }
    }

    /// Makes rounds until every record that was there at the beginning is covered.
    async fn rounds(&mut self) -> Result<(), Fault> {
        let mut tree = match self.tree.take() {
            Some(tree) => tree,
            None => self.load().await?,
        };
        let newest = *self.ledger.newest_position().borrow();
        while tree.looked < newest {
            tree = self.round(tree, newest).await?;
        }
        self.tree = Some(tree);
        Ok(())
    }

    async fn round(&self, mut tree: Tree, newest: i64) -> Result<Tree, Fault> {
        let to = newest.min(tree.looked.saturating_add(MAX_RECORDS));
        let moved = self.ledger.advanced_heads(tree.looked, to).await?;
        if let Some(AdvancedHead { leaf, .. }) = moved.iter().find(|moved| !moved.extends_last_leaf) {
            let why = format!("the chain of run {} does not hold what was signed of it before", leaf.run_id);
            return Err(Fault::Diverged(why));
        }
        let leaves: Vec<_> = moved.into_iter().map(|moved| moved.leaf).collect();
        tree.looked = to;
        if leaves.is_empty() {
            return Ok(tree);
        }
        let nodes = leaves.iter().flat_map(|leaf| tree.edge.push(leaf.hash())).collect();
        let note = self.key.sign(tree.edge.size(), tree.edge.root());
        let checkpoint = StoredCheckpoint { size: tree.edge.size(), position: to, note };
        let (folder, size) = (self.note.clone(), checkpoint.size);
        let noted = tokio::task::spawn_blocking(move || folder.expect_checkpoint(size)).await;
        noted.map_err(io::Error::other).flatten().map_err(Fault::Note)?;
        self.ledger.append_checkpoint(NewCheckpoint { leaves, nodes, checkpoint: checkpoint.clone() }).await?;
        failpoint::hit("checkpoint.stored");
        tree.file = append(tree.file, vec![checkpoint.note.clone()]).await?;
        self.publish(checkpoint, tree.edge.root());
        Ok(tree)
    }

    fn publish(&self, checkpoint: StoredCheckpoint, root: Sha256) {
        let StoredCheckpoint { size, note, .. } = checkpoint;
        self.tell.send_replace(Published::Signed(Arc::new(Signed { size, root, note })));
    }

    /// Reads where the tree stands, and brings the file up to it.
    async fn load(&self) -> Result<Tree, Fault> {
        let latest = self.ledger.latest_checkpoint().await?;
        let edge = match &latest {
            None => Edge::default(),
            Some(latest) => self.edge(latest).await?,
        };
        let file = self.level(edge.size()).await?;
        let position = latest.as_ref().map_or(0, |latest| latest.position);
        let newest = *self.ledger.newest_position().borrow();
        if newest < position {
            return Err(Fault::Diverged("records that a checkpoint covers are gone".to_owned()));
        }
        if let Some(latest) = latest {
            self.publish(latest, edge.root());
        }
        Ok(Tree { edge, looked: position, file })
    }

    /// The tree's right edge, which has to give the root that was signed.
    async fn edge(&self, latest: &StoredCheckpoint) -> Result<Edge, Fault> {
        let signed = self.key.verifier().open(&latest.note).map_err(|error| match error {
            CheckpointInvalid::NotSigned | CheckpointInvalid::OtherOrigin => Fault::OtherKey,
            error => Fault::Diverged(format!("the newest checkpoint in the database: {error}")),
        })?;
        let fits = |edge: &Edge| edge.size() == signed.size && edge.root() == signed.root;
        if let Some(edge) = self.ledger.tree_frontier(latest.size).await?.filter(fits) {
            return Ok(edge);
        }
        tracing::warn!("the tree of the checkpoints is built anew from its leaves");
        let mut edge = Edge::default();
        while edge.size() < latest.size {
            let page = self.ledger.leaves(None, edge.size(), PAGE).await?;
            let before = edge.size();
            for leaf in page.iter().filter_map(ledger::StoredLeaf::leaf).take(to_room(latest.size - before)) {
                edge.push(leaf.hash());
            }
            if edge.size() == before {
                break;
            }
        }
        if fits(&edge) {
            Ok(edge)
        } else {
            Err(Fault::Diverged("the leaves in the database do not give the root that was signed".to_owned()))
        }
    }

    /// Opens the file and appends what it lacks of the checkpoints over up to `size` leaves.
    async fn level(&self, size: u64) -> Result<CheckpointFile, Fault> {
        let (path, origin) = (self.path.clone(), self.key.verifier().name().to_owned());
        let opened = tokio::task::spawn_blocking(move || CheckpointFile::open(&path, &origin)).await;
        let Opened { mut file, last, cut } = opened.map_err(io::Error::other)??;
        if cut > 0 {
            tracing::warn!(bytes = cut, "the checkpoint file ended within an entry, which was cut off");
        }
        let mut known = self.known(last, size).await?;
        let mut lacking = 0;
        while known < size {
            let missing = self.ledger.checkpoints(known, PAGE).await?;
            let Some(newest) = missing.last() else { break };
            (known, lacking) = (newest.size, lacking + missing.len());
            // A process that was killed leaves one out, no more.
            if lacking > 1 && !self.renews_file {
                let place = self.path.display();
                let why = format!(
                    "--checkpoint-file {place}: it has lost checkpoints that the database holds: put its newest state back, or \
                    start once with --renew-checkpoint-file where that is lost for good"
                );
                return Err(Fault::Lost(why));
            }
            file = append(file, missing.into_iter().map(|one| one.note).collect()).await?;
        }
        if lacking > 1 {
            tracing::warn!(checkpoints = lacking, "the checkpoint file had lost checkpoints, which were added");
        }
        Ok(file)
    }

    /// How many leaves the file's last checkpoint is over, which has to be one of the database's.
    async fn known(&self, last: Option<String>, size: u64) -> Result<u64, Fault> {
        let Some(note) = last else { return Ok(0) };
        let told = self.key.verifier().open(&note);
        let told = told.map_err(|error| Fault::Diverged(format!("the last checkpoint in the file: {error}")))?;
        if told.size > size {
            let message = format!("the file knows a tree of {} leaves, the database one of {size}", told.size);
            return Err(Fault::Diverged(message));
        }
        let stored = self.ledger.checkpoints(told.size.saturating_sub(1), 1).await?;
        if stored.first().is_none_or(|stored| stored.note != note) {
            return Err(Fault::Diverged("the last checkpoint in the file is none of the database".to_owned()));
        }
        Ok(told.size)
    }
}

/// Appends notes to the file where blocking is allowed.
async fn append(mut file: CheckpointFile, notes: Vec<String>) -> Result<CheckpointFile, Fault> {
    let appended = tokio::task::spawn_blocking(move || {
        notes.iter().try_for_each(|note| file.append(note))?;
        Ok::<_, io::Error>(file)
    });
    Ok(appended.await.map_err(io::Error::other)??)
}

fn to_room(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
