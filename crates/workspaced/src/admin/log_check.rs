//! The signed checkpoints of the file against the leaves in the database, and those against the chains.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use ledger::{Ledger, StoredCheckpoint, StoredLeaf};
use model::merkle::{Edge, Node};
use model::{ChainReport, Checkpoint, CheckpointVerifier, RunId, Sha256};

use crate::checkpoints::check::{LeafCheck, PAGE};
use crate::checkpoints::file::{Next, Notes};

/// Goes through file and database side by side.
pub(super) struct TreeCheck<'a> {
    ledger: &'a dyn Ledger,
    verifier: CheckpointVerifier,
    notes: Notes,
    /// The tree of the leaves so far.
    edge: Edge,
    /// Leaves and checkpoints of the database that were read ahead.
    leaves: VecDeque<StoredLeaf>,
    stored: VecDeque<StoredCheckpoint>,
    /// The size up to which the database's checkpoints were read.
    stored_size: u64,
    runs: HashMap<RunId, LeafCheck>,
    /// Leaves that no checkpoint was found to hold yet, and the nodes that they complete.
    unsigned: Vec<StoredLeaf>,
    nodes: Vec<(Node, Sha256)>,
    checkpoints: u64,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct TreeReport {
    runs: HashMap<RunId, LeafCheck>,
    checkpoints: u64,
    leaves: u64,
    /// What is to be known besides, though nothing is wrong.
    remark: Option<String>,
    problem: Option<String>,
}

/// What stops the check: a fault of the store, or something that is wrong.
enum Stop {
    Store(ledger::LedgerError),
    Wrong(String),
    /// The leaves are not those that were signed.
    Forked(String),
}

impl From<ledger::LedgerError> for Stop {
    fn from(error: ledger::LedgerError) -> Self {
        Self::Store(error)
    }
}

impl TreeReport {
    /// Nothing was signed yet.
    pub(super) fn nothing() -> Self {
        Self::default()
    }

    /// There are checkpoints in the database, but no file.
    pub(super) fn without_file(path: &Path) -> Self {
        let problem = format!("the database has checkpoints, but there is no file {}", path.display());
        Self { problem: Some(problem), ..Self::default() }
    }

    /// Whether all is well with file and tree.
    pub(super) fn holds(&self) -> bool {
        self.problem.is_none()
    }

    /// Adds to the report of a run's chain what its leaves tell.
    pub(super) fn add_to(&self, report: &mut ChainReport) {
        if let Some(leaves) = self.runs.get(&report.run_id) {
            leaves.add_to(report);
        }
    }

    /// Runs that leaves name, and that are not among `known`.
    pub(super) fn runs_beside(&self, known: &HashSet<RunId>) -> Vec<&RunId> {
        let mut runs: Vec<_> = self.runs.keys().filter(|run| !known.contains(run)).collect();
        runs.sort_unstable();
        runs
    }

    /// All of it in a line.
    pub(super) fn line(&self) -> String {
        let remark = self.remark.as_ref().map(|remark| format!("; {remark}")).unwrap_or_default();
        match &self.problem {
            Some(problem) => format!("checkpoints: BROKEN: {problem}"),
            None if self.checkpoints == 0 => format!("checkpoints: none{remark}"),
            None => format!("checkpoints: intact, {} over {} leaves{remark}", self.checkpoints, self.leaves),
        }
    }
}

impl<'a> TreeCheck<'a> {
    pub(super) fn new(ledger: &'a dyn Ledger, verifier: CheckpointVerifier, notes: Notes) -> Self {
        Self {
            ledger,
            verifier,
            notes,
            edge: Edge::default(),
            leaves: VecDeque::new(),
            stored: VecDeque::new(),
            stored_size: 0,
            runs: HashMap::new(),
            unsigned: Vec::new(),
            nodes: Vec::new(),
            checkpoints: 0,
        }
    }

    /// Checks all.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub(super) async fn run(mut self) -> ledger::Result<TreeReport> {
        let (remark, problem, forked) = match self.go_through().await {
            Ok(remark) => (remark, None, false),
            Err(Stop::Wrong(problem)) => (None, Some(problem), false),
            Err(Stop::Forked(problem)) => (None, Some(problem), true),
            Err(Stop::Store(error)) => return Err(error),
        };
        // Leaves behind a fault still tell which run's chain is not what it was.
        while problem.is_some() && self.next_leaf().await?.is_some() {
            self.take_leaves(forked);
        }
        self.take_leaves(forked);
        let Self { runs, checkpoints, edge, .. } = self;
        Ok(TreeReport { runs, checkpoints, leaves: edge.size(), remark, problem })
    }

    async fn go_through(&mut self) -> Result<Option<String>, Stop> {
        let half = loop {
            let next = self.notes.next();
            let next = next.map_err(|error| Stop::Wrong(format!("{}: {error}", self.notes.path().display())))?;
            match next {
                Next::Note(note) => self.compare(&note).await?,
                Next::Half => break true,
                Next::End => break false,
            }
        };
        let mut remark = half.then(|| "the file ends within an entry, which the next start mends".to_owned());
        if let Some(behind) = self.next_stored().await? {
            if self.next_stored().await?.is_some() {
                return Err(Stop::Wrong(format!(
                    "the file ends at {} leaves, and lacks checkpoints that the database has",
                    self.edge.size()
                )));
            }
            // What a process that was killed had stored and not written yet.
            self.check(&behind.note).await?;
            remark = Some("the file lacks the newest one, which the next start adds".to_owned());
        }
        match self.next_leaf().await? {
            None => Ok(remark),
            Some(leaf) => Err(Stop::Wrong(format!("leaf {} is in no checkpoint", leaf.index))),
        }
    }

    /// Takes the file's next note, which has to be the database's next one too.
    async fn compare(&mut self, note: &str) -> Result<(), Stop> {
        let told = self.check(note).await?;
        match self.next_stored().await? {
            Some(stored) if stored.note == note => Ok(()),
            Some(stored) if stored.size < told.size => {
                Err(Stop::Wrong(format!("the file lacks the checkpoint over {} leaves", stored.size)))
            }
            Some(_) | None => {
                Err(Stop::Wrong(format!("the database does not have the checkpoint over {} leaves", told.size)))
            }
        }
    }

    /// Compares the leaves that were read with their runs' chains. What is `forked` confirms nothing.
    fn take_leaves(&mut self, forked: bool) {
        for leaf in self.unsigned.drain(..) {
            let Some(run) = leaf.run_id.clone() else { continue };
            let check = self.runs.entry(run).or_default();
            if forked { check.doubt(&leaf) } else { check.push(&leaf) }
        }
    }

    /// Compares the nodes that the database keeps with what the leaves give. Those that are lost are made anew.
    async fn check_nodes(&mut self) -> Result<(), Stop> {
        let nodes = std::mem::take(&mut self.nodes);
        let kept = self.ledger.tree_nodes(&nodes.iter().map(|(node, _)| *node).collect::<Vec<_>>()).await?;
        match nodes.iter().find(|(node, hash)| kept.get(node).is_some_and(|kept| kept != hash)) {
            None => Ok(()),
            Some((node, _)) => Err(Stop::Wrong(format!(
                "the node of the leaves {} to {} is not what they give: proofs that are made of it do not hold",
                node.index << node.level,
                ((node.index + 1) << node.level) - 1
            ))),
        }
    }

    /// Takes a note: signed, larger than the one before, and with the root of the leaves in the database.
    async fn check(&mut self, note: &str) -> Result<Checkpoint, Stop> {
        let before = self.edge.size();
        let told = self.verifier.open(note).map_err(|error| {
            Stop::Wrong(format!("checkpoint {} of the file (behind {before} leaves): {error}", self.checkpoints + 1))
        })?;
        if told.size <= before {
            return Err(Stop::Wrong(format!(
                "the checkpoint over {} leaves stands behind one over {before}",
                told.size
            )));
        }
        let mut named = None;
        while self.edge.size() < told.size {
            let Some(leaf) = self.next_leaf().await? else {
                return Err(Stop::Forked(format!(
                    "a tree of {} leaves was signed, and the database has {}: the history behind was cut off",
                    told.size,
                    self.edge.size()
                )));
            };
            named = named.or(leaf.run_id.map(|run| (run, leaf.head_seq)));
        }
        if self.edge.root() != told.root {
            let place =
                named.map(|(run, seq)| format!(" (run {run}, seq {seq}, and those behind)")).unwrap_or_default();
            return Err(Stop::Forked(format!(
                "the leaves {before} to {}{place} do not give the root that was signed: the history was forked",
                told.size - 1
            )));
        }
        self.take_leaves(false);
        self.check_nodes().await?;
        self.checkpoints += 1;
        Ok(told)
    }

    /// Takes the database's next leaf into the tree, and compares it with its run's chain.
    async fn next_leaf(&mut self) -> Result<Option<StoredLeaf>, ledger::LedgerError> {
        if self.leaves.is_empty() {
            self.leaves = self.ledger.leaves(None, self.edge.size(), PAGE).await?.into();
        }
        let Some(stored) = self.leaves.pop_front().filter(|leaf| leaf.index == self.edge.size()) else {
            return Ok(None);
        };
        // The hash of what is gone is as good as any: it does not give the root.
        let hash = stored.leaf().map_or(Sha256::ZERO, |leaf| leaf.hash());
        self.nodes.extend(self.edge.push(hash));
        self.unsigned.push(stored.clone());
        Ok(Some(stored))
    }

    async fn next_stored(&mut self) -> Result<Option<StoredCheckpoint>, ledger::LedgerError> {
        if self.stored.is_empty() {
            self.stored = self.ledger.checkpoints(self.stored_size, PAGE).await?.into();
        }
        let next = self.stored.pop_front();
        if let Some(stored) = &next {
            self.stored_size = stored.size;
        }
        Ok(next)
    }
}
