//! The check of the checkpoint file against the leaves in the database, and of the leaves against the chains.

#![expect(clippy::disallowed_types, reason = "the checkpoint file is outside of the runs' folders")]

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use ledger::{Ledger, LedgerError, StoredCheckpoint, StoredLeaf};
use model::{ChainReport, RunId, Sha256};
use transparency::{
    Checkpoint, CheckpointReader, Frontier, KeyChangeError, KeyHistory, LeafCheck, LogEntry, NoteError, Subtree,
    hash_checkpoint_leaf,
};

use proofs::checkpoints::{PAGE, push_leaf};

/// Reads file and database side by side.
pub(super) struct LogCheck<'a> {
    ledger: &'a dyn Ledger,
    keys: KeyHistory,
    path: &'a Path,
    /// `None` if there is no file.
    file: Option<CheckpointReader<BufReader<File>>>,
    /// Whether nodes use the database. A node's file lacks what others have signed since its last start.
    is_of_nodes: bool,
    /// The tree of the leaves so far.
    tree: Frontier,
    /// Leaves and checkpoints of the database that were read ahead.
    leaves: VecDeque<StoredLeaf>,
    checkpoints: VecDeque<StoredCheckpoint>,
    /// The size of the last checkpoint taken from `checkpoints`.
    stored_size: u64,
    runs: HashMap<RunId, LeafCheck>,
    /// Leaves after the last verified checkpoint, and the nodes that they complete.
    uncovered: Vec<StoredLeaf>,
    nodes: Vec<(Subtree, Sha256)>,
    verified: u64,
}

/// The result of the check.
#[derive(Debug, Default)]
pub(super) struct LogReport {
    runs: HashMap<RunId, LeafCheck>,
    checkpoints: u64,
    leaves: u64,
    /// Changes of the key.
    key_changes: usize,
    /// A difference that the next start repairs.
    remark: Option<String>,
    problem: Option<String>,
}

/// Why the check ends early.
enum CheckStop {
    Ledger(LedgerError),
    /// File or database were tampered with.
    Tampered(String),
    /// The leaves are not those that were signed.
    Forked(String),
}

impl From<LedgerError> for CheckStop {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

impl LogReport {
    /// Returns the report of a database that has checkpoints, but whose checkpoint file is missing.
    pub(super) fn file_missing(path: &Path) -> Self {
        let problem = format!("the database has checkpoints, but there is no file {}", path.display());
        Self { problem: Some(problem), ..Self::default() }
    }

    /// Returns the report of a database whose statements about changes of the key are refused.
    pub(super) fn keys_refused(why: &KeyChangeError) -> Self {
        Self { problem: Some(format!("the changes of the key in the database: {why}")), ..Self::default() }
    }

    /// Returns whether file and tree are intact.
    pub(super) fn is_intact(&self) -> bool {
        self.problem.is_none()
    }

    /// Adds to the report of a run's chain what contradicts its leaves.
    pub(super) fn add_to(&self, report: &mut ChainReport) {
        if let Some(leaves) = self.runs.get(&report.run_id) {
            leaves.add_to(report);
        }
    }

    /// Returns the runs that have leaves and are not among `known`.
    pub(super) fn missing_runs(&self, known: &HashSet<RunId>) -> Vec<&RunId> {
        let mut runs: Vec<_> = self.runs.keys().filter(|run| !known.contains(run)).collect();
        runs.sort_unstable();
        runs
    }

    /// Returns the report in one line.
    pub(super) fn line(&self) -> String {
        let remark = self.remark.as_ref().map(|remark| format!("; {remark}")).unwrap_or_default();
        match &self.problem {
            Some(problem) => format!("checkpoints: BROKEN: {problem}"),
            None if self.checkpoints == 0 => format!("checkpoints: none{remark}"),
            None => {
                let keys = match self.key_changes {
                    0 => String::new(),
                    changes => format!(", by {} keys in turn", changes + 1),
                };
                format!("checkpoints: intact, {} over {} leaves{keys}{remark}", self.checkpoints, self.leaves)
            }
        }
    }
}

impl<'a> LogCheck<'a> {
    pub(super) fn new(
        ledger: &'a dyn Ledger,
        keys: KeyHistory,
        (path, file): (&'a Path, Option<CheckpointReader<BufReader<File>>>),
        is_of_nodes: bool,
    ) -> Self {
        Self {
            ledger,
            keys,
            path,
            file,
            is_of_nodes,
            tree: Frontier::default(),
            leaves: VecDeque::new(),
            checkpoints: VecDeque::new(),
            stored_size: 0,
            runs: HashMap::new(),
            uncovered: Vec::new(),
            nodes: Vec::new(),
            verified: 0,
        }
    }

    /// Checks the whole file and all leaves.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(super) async fn run(mut self) -> ledger::Result<LogReport> {
        let (remark, problem, is_forked) = match self.check_all().await {
            Ok(remark) => (remark, None, false),
            Err(CheckStop::Tampered(problem)) => (None, Some(problem), false),
            Err(CheckStop::Forked(problem)) => (None, Some(problem), true),
            Err(CheckStop::Ledger(error)) => return Err(error),
        };
        // The leaves after a problem still show which run's chain was changed.
        while problem.is_some() && self.next_leaf().await?.is_some() {
            self.check_uncovered(is_forked);
        }
        self.check_uncovered(is_forked);
        let Self { runs, verified, tree, keys, .. } = self;
        let key_changes = keys.changes().len();
        Ok(LogReport { runs, checkpoints: verified, leaves: tree.size(), key_changes, remark, problem })
    }

    /// Checks until the first problem. Returns a remark on what the next start repairs.
    async fn check_all(&mut self) -> Result<Option<String>, CheckStop> {
        let ends_partially = loop {
            let Some(file) = &mut self.file else { break false };
            let next = file.next_entry();
            match next.map_err(|error| CheckStop::Tampered(format!("{}: {error}", self.path.display())))? {
                LogEntry::Note(note) => self.check_entry(&note).await?,
                LogEntry::Partial => break true,
                LogEntry::End => break false,
            }
        };
        let mut remark =
            ends_partially.then(|| "the file ends within an entry, which the next start cuts off".to_owned());
        remark = self.check_missing_entries().await?.or(remark);
        match self.next_leaf().await? {
            None => Ok(remark),
            Some(leaf) => Err(CheckStop::Tampered(format!("leaf {} is not in a checkpoint", leaf.index))),
        }
    }

    /// Checks the checkpoints that the database has and the file lacks. Returns a remark on them.
    async fn check_missing_entries(&mut self) -> Result<Option<String>, CheckStop> {
        let (size, mut missing) = (self.tree.size(), 0_u64);
        while let Some(checkpoint) = self.next_checkpoint().await? {
            self.verify(&checkpoint.note).await?;
            missing += 1;
            // A process that is killed may have stored one entry without writing it.
            if missing > 1 && !self.is_of_nodes {
                return Err(CheckStop::Tampered(format!(
                    "the file ends at {size} leaves and lacks checkpoints that the database has"
                )));
            }
        }
        let last_change = self.keys.changes().last().map_or(0, |last| last.checkpoint.size);
        if self.tree.size() < last_change {
            return Err(CheckStop::Tampered(format!(
                "the checkpoint over {last_change} leaves, by two keys, is missing"
            )));
        }
        Ok(match missing {
            0 => None,
            1 => Some("the file lacks the newest checkpoint, which the next start adds".to_owned()),
            _ => Some(format!(
                "the file ends at {size} leaves and lacks {missing} entries of other nodes, which the next start adds"
            )),
        })
    }

    /// Checks the file's next note, which has to be the database's next checkpoint.
    async fn check_entry(&mut self, note: &str) -> Result<(), CheckStop> {
        let checkpoint = self.verify(note).await?;
        match self.next_checkpoint().await? {
            Some(stored) if stored.note == note => Ok(()),
            Some(stored) if stored.size < checkpoint.size => {
                Err(CheckStop::Tampered(format!("the file lacks the checkpoint over {} leaves", stored.size)))
            }
            Some(_) | None => {
                Err(CheckStop::Tampered(format!("the database lacks the checkpoint over {} leaves", checkpoint.size)))
            }
        }
    }

    /// Verifies a note: it is signed, larger than the one before, and has the root of the leaves in the database.
    async fn verify(&mut self, note: &str) -> Result<Checkpoint, CheckStop> {
        let before = self.tree.size();
        let checkpoint = self.keys.verify(note).map_err(|error| {
            let hint = match error {
                KeyChangeError::Note(NoteError::NotSigned) => {
                    ", and no statement leads from this key to the one that signed"
                }
                _ => "",
            };
            let number = self.verified + 1;
            CheckStop::Tampered(format!("checkpoint {number} of the file (after {before} leaves): {error}{hint}"))
        })?;
        if checkpoint.size <= before {
            let problem = format!("the checkpoint over {} leaves follows one over {before}", checkpoint.size);
            return Err(CheckStop::Tampered(problem));
        }
        let mut first = None;
        while self.tree.size() < checkpoint.size {
            let Some(leaf) = self.next_leaf().await? else {
                return Err(CheckStop::Forked(format!(
                    "a tree of {} leaves was signed, and the database has {}: the later history was cut off",
                    checkpoint.size,
                    self.tree.size()
                )));
            };
            first = first.or(leaf.run_id.map(|run| (run, leaf.head_seq)));
        }
        if self.tree.root() != checkpoint.root {
            let first = first.map(|(run, seq)| format!(" (run {run}, seq {seq}, and later ones)")).unwrap_or_default();
            return Err(CheckStop::Forked(format!(
                "the leaves {before} to {}{first} do not have the signed root: the history was forked",
                checkpoint.size - 1
            )));
        }
        self.check_uncovered(false);
        self.check_nodes().await?;
        self.verified += 1;
        Ok(checkpoint)
    }

    /// Compares the uncovered leaves with their runs' chains. Leaves of a forked tree confirm nothing.
    fn check_uncovered(&mut self, is_forked: bool) {
        for leaf in self.uncovered.drain(..) {
            let Some(run) = leaf.run_id.clone() else { continue };
            let check = self.runs.entry(run).or_default();
            if is_forked { check.push_unsigned(leaf.index) } else { push_leaf(check, &leaf) }
        }
    }

    /// Compares the stored nodes with those of the leaves. The service computes missing nodes again.
    async fn check_nodes(&mut self) -> Result<(), CheckStop> {
        let nodes = std::mem::take(&mut self.nodes);
        let indexes: Vec<_> = nodes.iter().map(|(node, _)| node.storage_index()).collect();
        let stored = self.ledger.node_hashes(&indexes).await?;
        let differs =
            |(node, hash): &&(Subtree, Sha256)| stored.get(&node.storage_index()).is_some_and(|one| one != hash);
        match nodes.iter().find(differs) {
            None => Ok(()),
            Some((node, _)) => Err(CheckStop::Tampered(format!(
                "the stored node over the leaves {} to {} has another hash than they have: proofs from it are invalid",
                node.index << node.level,
                ((node.index + 1) << node.level) - 1
            ))),
        }
    }

    /// Appends the database's next leaf to the tree.
    async fn next_leaf(&mut self) -> Result<Option<StoredLeaf>, LedgerError> {
        if self.leaves.is_empty() {
            self.leaves = self.ledger.leaves(None, self.tree.size(), PAGE).await?.into();
        }
        let Some(stored) = self.leaves.pop_front().filter(|leaf| leaf.index == self.tree.size()) else {
            return Ok(None);
        };
        // A leaf whose run is missing gets a hash that does not lead to the signed root.
        let hash = stored.leaf().map_or(Sha256::ZERO, |leaf| hash_checkpoint_leaf(&leaf));
        self.nodes.extend(self.tree.push(hash));
        self.uncovered.push(stored.clone());
        Ok(Some(stored))
    }

    async fn next_checkpoint(&mut self) -> Result<Option<StoredCheckpoint>, LedgerError> {
        if self.checkpoints.is_empty() {
            self.checkpoints = self.ledger.checkpoints(self.stored_size, PAGE).await?.into();
        }
        let next = self.checkpoints.pop_front();
        if let Some(stored) = &next {
            self.stored_size = stored.size;
        }
        Ok(next)
    }
}
