//! What the ledger keeps of checkpoints: the leaves of one tree over all runs, its complete subtrees, what was signed.

use std::collections::HashMap;

use async_trait::async_trait;
use model::{CheckpointLeaf, RunId, Sha256};

use crate::backend::{Arg, Backend, Columns, PageColumns, Statement, damaged, to_count, to_int};
use crate::store::Store;
use crate::{Page, PageSize, Result, StoredRecord, rows};

/// Heads of runs that have records behind one position, up to another, and that no leaf holds yet.
const MOVED: &str = "SELECT run_id, h.head_seq, h.head_hash, b.head_seq, b.head_hash, \
    (SELECT a.body FROM audit_record a WHERE a.run_no = h.run_no AND a.seq = b.head_seq) \
    FROM (SELECT DISTINCT run_no FROM audit_record WHERE position > $1 AND position <= $2) AS moved \
    JOIN run ON run.run_no = moved.run_no JOIN run_head h ON h.run_no = moved.run_no \
    LEFT JOIN checkpoint_leaf b ON b.leaf_no = \
      (SELECT leaf_no FROM checkpoint_leaf l WHERE l.run_no = moved.run_no ORDER BY head_seq DESC LIMIT 1) \
    WHERE NOT EXISTS (SELECT 1 FROM checkpoint_leaf l \
      WHERE l.run_no = h.run_no AND l.head_seq = h.head_seq AND l.head_hash = h.head_hash) \
    ORDER BY moved.run_no";
const INSERT_LEAF: &str = "INSERT INTO checkpoint_leaf (leaf_no, run_no, head_seq, head_hash) \
    VALUES ($1, (SELECT run_no FROM run WHERE run_id = $2), $3, $4)";
const INSERT_NODE: &str = "INSERT INTO checkpoint_node (place, hash) VALUES ($1, $2)";
const INSERT_CHECKPOINT: &str = "INSERT INTO checkpoint (size, position, note) VALUES ($1, $2, $3)";
const LATEST: &str = "SELECT size, position, note FROM checkpoint ORDER BY size DESC LIMIT 1";
const CHECKPOINTS: &str = "SELECT size, position, note FROM checkpoint WHERE size > $1 ORDER BY size LIMIT $2";
/// As many as [`NODES_AT_ONCE`].
const NODES: &str = "SELECT place, hash FROM checkpoint_node WHERE place IN ($1, $2, $3, $4, $5, $6, $7, $8)";
const NODES_AT_ONCE: usize = 8;
macro_rules! select_leaf {
    ($rest:literal) => {
        concat!(
            "SELECT l.leaf_no, run_id, l.head_seq, l.head_hash, a.body FROM checkpoint_leaf l ",
            "LEFT JOIN run ON run.run_no = l.run_no ",
            "LEFT JOIN audit_record a ON a.run_no = l.run_no AND a.seq = l.head_seq ",
            $rest
        )
    };
}
const LEAVES: &str = select_leaf!("WHERE l.leaf_no >= $1 ORDER BY l.leaf_no LIMIT $2");
const LEAVES_OF: &str = select_leaf!(
    "WHERE l.run_no = (SELECT run_no FROM run WHERE run_id = $3) AND l.leaf_no >= $1 ORDER BY l.leaf_no LIMIT $2"
);
const COVERING: &str = select_leaf!(
    "WHERE l.run_no = (SELECT run_no FROM run WHERE run_id = $1) AND l.head_seq >= $2 AND l.leaf_no < $3 \
    ORDER BY l.head_seq, l.leaf_no LIMIT 1"
);
const STRETCH: &str = "SELECT position, body FROM audit_record \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq >= $2 AND seq <= $3 ORDER BY seq LIMIT $4";

/// A checkpoint with what it adds to the tree.
#[derive(Clone, Debug)]
pub struct NewCheckpoint {
    /// The new leaves; the last one is number `checkpoint.size - 1`.
    pub leaves: Vec<CheckpointLeaf>,
    /// The tree nodes that they complete: their storage indexes and hashes.
    pub nodes: Vec<(u64, Sha256)>,
    /// What was signed.
    pub checkpoint: StoredCheckpoint,
}

/// A checkpoint as it was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// How many leaves it is over.
    pub size: u64,
    /// The position up to which it was looked for heads that had moved.
    pub position: i64,
    /// The signed note.
    pub note: String,
}

/// Where a run's chain stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvancedHead {
    /// The leaf that it gets.
    pub leaf: CheckpointLeaf,
    /// Whether the chain has grown behind what the run's leaf before holds, and still has that.
    pub extends_last_leaf: bool,
}

/// A leaf, and what the chain holds in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLeaf {
    /// Its number, from 0.
    pub index: u64,
    /// The run; `None` where it is gone, which only somebody past the ledger can have done.
    pub run_id: Option<RunId>,
    /// Where the run's chain stood.
    pub head_seq: u64,
    /// The hash that its last record had.
    pub head_hash: Sha256,
    /// The hash that this record tells now; `None` where it is gone or cannot be read.
    pub recorded: Option<Sha256>,
}

impl StoredLeaf {
    /// What is hashed; `None` where the run is gone.
    pub fn leaf(&self) -> Option<CheckpointLeaf> {
        let run_id = self.run_id.clone()?;
        Some(CheckpointLeaf { head_hash: self.head_hash, head_seq: self.head_seq, run_id })
    }
}

/// What the ledger keeps of checkpoints. Every method is one transaction.
#[async_trait]
pub trait CheckpointLog: Send + Sync {
    /// Heads of runs with records behind position `after`, up to `to`, that no leaf holds yet; by the runs' creation.
    async fn advanced_heads(&self, after: i64, to: i64) -> Result<Vec<AdvancedHead>>;
    /// Appends a checkpoint with its leaves. `AlreadyExists` where the tree is not as large as it takes it to be.
    async fn append_checkpoint(&self, round: NewCheckpoint) -> Result<()>;
    /// The newest checkpoint.
    async fn latest_checkpoint(&self) -> Result<Option<StoredCheckpoint>>;
    /// Checkpoints over more than `size` leaves, in order.
    async fn checkpoints(&self, size: u64, limit: u32) -> Result<Vec<StoredCheckpoint>>;
    /// Leaves from number `from` on, in order; of one run or of all.
    async fn leaves(&self, run: Option<&RunId>, from: u64, limit: u32) -> Result<Vec<StoredLeaf>>;
    /// The leaf, among the first `size`, with the first head of `run` at `seq` or behind it.
    async fn covering_leaf(&self, run: &RunId, seq: u64, size: u64) -> Result<Option<StoredLeaf>>;
    /// Returns the hashes of tree nodes by their storage indexes. Unknown nodes are left out.
    async fn node_hashes(&self, indexes: &[u64]) -> Result<HashMap<u64, Sha256>>;
    /// Records of a run from `first` to `last`, in order.
    async fn record_range(&self, run: &RunId, first: u64, last: u64, size: PageSize) -> Result<Page<StoredRecord>>;
}

#[async_trait]
impl<B: Backend> CheckpointLog for Store<B> {
    async fn advanced_heads(&self, after: i64, to: i64) -> Result<Vec<AdvancedHead>> {
        self.0.fetch(MOVED, vec![after.into(), to.into()], read_head).await
    }

    async fn append_checkpoint(&self, round: NewCheckpoint) -> Result<()> {
        self.0.append_checkpoint(round).await
    }

    async fn latest_checkpoint(&self) -> Result<Option<StoredCheckpoint>> {
        Ok(self.0.fetch(LATEST, Vec::new(), read_checkpoint).await?.pop())
    }

    async fn checkpoints(&self, size: u64, limit: u32) -> Result<Vec<StoredCheckpoint>> {
        self.0.fetch(CHECKPOINTS, vec![size.into(), Arg::Int(limit.into())], read_checkpoint).await
    }

    async fn leaves(&self, run: Option<&RunId>, from: u64, limit: u32) -> Result<Vec<StoredLeaf>> {
        let mut args = vec![Arg::from(from), Arg::Int(limit.into())];
        args.extend(run.map(|run| Arg::from(run.as_str())));
        let sql = if run.is_some() { LEAVES_OF } else { LEAVES };
        self.0.fetch(sql, args, read_leaf).await
    }

    async fn covering_leaf(&self, run: &RunId, seq: u64, size: u64) -> Result<Option<StoredLeaf>> {
        let args = vec![run.as_str().into(), seq.into(), size.into()];
        Ok(self.0.fetch(COVERING, args, read_leaf).await?.pop())
    }

    async fn node_hashes(&self, indexes: &[u64]) -> Result<HashMap<u64, Sha256>> {
        let read = |row: &dyn Columns| Ok((to_count(row.int(0)?), rows::sha256(&row.bytes(1)?)?));
        let mut hashes = HashMap::new();
        for chunk in indexes.chunks(NODES_AT_ONCE) {
            // No node has a negative index.
            let mut args = vec![Arg::Int(-1); NODES_AT_ONCE];
            chunk.iter().zip(&mut args).for_each(|(index, arg)| *arg = (*index).into());
            hashes.extend(self.0.fetch(NODES, args, read).await?);
        }
        Ok(hashes)
    }

    async fn record_range(&self, run: &RunId, first: u64, last: u64, size: PageSize) -> Result<Page<StoredRecord>> {
        let args = vec![run.as_str().into(), first.into(), last.into(), Arg::Int(size.rows_to_ask())];
        self.0.fetch_page(STRETCH, args, rows::record, size, PageColumns::RECORDS).await
    }
}

impl NewCheckpoint {
    /// The number of the first leaf.
    pub(crate) fn first_leaf(&self) -> u64 {
        self.checkpoint.size.saturating_sub(self.leaves.len() as u64)
    }

    /// The round row by row. The checkpoint comes last, so that a failure at the first statement is one of the tree.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        let leaf = |(number, leaf): (u64, &CheckpointLeaf)| {
            let run = leaf.run_id.as_str().into();
            Statement::new(INSERT_LEAF, [number.into(), run, leaf.head_seq.into(), (&leaf.head_hash).into()])
        };
        let node = |(index, hash): &(u64, Sha256)| Statement::new(INSERT_NODE, [(*index).into(), hash.into()]);
        let StoredCheckpoint { size, position, note } = &self.checkpoint;
        let checkpoint = Statement::new(INSERT_CHECKPOINT, [(*size).into(), (*position).into(), note.as_str().into()]);
        let leaves = (self.first_leaf()..).zip(&self.leaves).map(leaf);
        leaves.chain(self.nodes.iter().map(node)).chain([checkpoint]).collect()
    }

    /// A column of the new leaves.
    pub(crate) fn leaf_column<'a, T>(&'a self, take: impl Fn(&'a CheckpointLeaf) -> T) -> Vec<T> {
        self.leaves.iter().map(take).collect()
    }

    /// The numbers of the new leaves.
    pub(crate) fn leaf_numbers(&self) -> Vec<i64> {
        (self.first_leaf()..self.checkpoint.size).map(to_int).collect()
    }
}

fn read_head(row: &dyn Columns) -> Result<AdvancedHead> {
    let leaf = CheckpointLeaf {
        run_id: rows::run_id(row, 0)?,
        head_seq: to_count(row.int(1)?),
        head_hash: rows::sha256(&row.bytes(2)?)?,
    };
    let extends_last_leaf = match row.maybe_int(3)?.zip(row.maybe_bytes(4)?) {
        None => true,
        Some((seq, hash)) => {
            let recorded = row.maybe_text(5)?.and_then(|body| rows::record_hash(&body).ok());
            to_count(seq) < leaf.head_seq && recorded == Some(rows::sha256(&hash)?)
        }
    };
    Ok(AdvancedHead { leaf, extends_last_leaf })
}

fn read_checkpoint(row: &dyn Columns) -> Result<StoredCheckpoint> {
    Ok(StoredCheckpoint { size: to_count(row.int(0)?), position: row.int(1)?, note: row.text(2)? })
}

fn read_leaf(row: &dyn Columns) -> Result<StoredLeaf> {
    let run_id = row.maybe_text(1)?.map(|id| RunId::parse(&id).map_err(|_| damaged("run ID"))).transpose()?;
    Ok(StoredLeaf {
        index: to_count(row.int(0)?),
        run_id,
        head_seq: to_count(row.int(2)?),
        head_hash: rows::sha256(&row.bytes(3)?)?,
        // A record that cannot be read has no hash; the check of the chain tells what is wrong with it.
        recorded: row.maybe_text(4)?.and_then(|body| rows::record_hash(&body).ok()),
    })
}
