//! The stored checkpoints: the leaves of one Merkle tree over all runs, its complete subtrees, and the signed notes.

use std::collections::HashMap;

use async_trait::async_trait;
use model::{CheckpointLeaf, RunId, Sha256};

use crate::backend::Backend;
use crate::packed::{self, record_columns};
use crate::statement::{PageColumns, Param, RowReader, Rows, Select, damaged, tables, to_count};
use crate::store::Store;
use crate::{LedgerPage, PageSize, Result, StoredRecord, rows};

/// Selects the heads, not covered by a leaf, of the runs with records after `$1` and up to `$2`. Also each run's last leaf, and the
/// record that the chain now contains at that leaf.
const ADVANCED: Select<AdvancedHead> = Select {
    sql: concat!(
        "SELECT run_id, h.head_seq, h.head_hash, b.head_seq, b.head_hash, ",
        record_columns!("a."),
        ", archived_seq, ",
        record_columns!("n."),
        " FROM (SELECT DISTINCT run_no FROM audit_record WHERE position > $1 AND position <= $2) AS advanced \
    JOIN run ON run.run_no = advanced.run_no JOIN run_head h ON h.run_no = advanced.run_no \
    LEFT JOIN checkpoint_leaf b ON b.leaf_no = \
      (SELECT leaf_no FROM checkpoint_leaf l WHERE l.run_no = advanced.run_no ORDER BY head_seq DESC LIMIT 1) \
    LEFT JOIN audit_record a ON a.run_no = h.run_no AND a.seq = b.head_seq \
    LEFT JOIN audit_record n ON n.run_no = h.run_no AND n.seq = b.head_seq + 1 AND archived_seq = b.head_seq \
    WHERE NOT EXISTS (SELECT 1 FROM checkpoint_leaf l \
      WHERE l.run_no = h.run_no AND l.head_seq = h.head_seq AND l.head_hash = h.head_hash) \
    ORDER BY advanced.run_no"
    ),
    read: read_head,
};

tables! {
    LEAF: Insert checkpoint_leaf (leaf_no Int, run_no RunId, head_seq Int, head_hash Bytes);
    NODE: Insert checkpoint_node (place Int, hash Bytes);
    CHECKPOINT: Insert checkpoint (size Int, position Int, note Text);
}

const LATEST: Select<StoredCheckpoint> =
    Select { sql: "SELECT size, position, note FROM checkpoint ORDER BY size DESC LIMIT 1", read: read_checkpoint };
const CHECKPOINTS: Select<StoredCheckpoint> = Select {
    sql: "SELECT size, position, note FROM checkpoint WHERE size > $1 ORDER BY size LIMIT $2",
    read: read_checkpoint,
};
/// Has [`NODES_PER_QUERY`] parameters.
const NODES: Select<(u64, Sha256)> = Select {
    sql: "SELECT place, hash FROM checkpoint_node WHERE place IN ($1, $2, $3, $4, $5, $6, $7, $8)",
    read: |row| Ok((to_count(row.int(0)?), rows::sha256(&row.bytes(1)?)?)),
};
const NODES_PER_QUERY: usize = 8;
macro_rules! select_leaf {
    ($rest:literal) => {
        concat!(
            "SELECT l.leaf_no, run_id, l.head_seq, l.head_hash, ",
            record_columns!("a."),
            ", archived_seq, ",
            record_columns!("n."),
            " FROM checkpoint_leaf l ",
            "LEFT JOIN run ON run.run_no = l.run_no ",
            "LEFT JOIN audit_record a ON a.run_no = l.run_no AND a.seq = l.head_seq ",
            "LEFT JOIN audit_record n ON n.run_no = l.run_no AND n.seq = l.head_seq + 1 AND archived_seq = l.head_seq ",
            $rest
        )
    };
}
const LEAVES: Select<StoredLeaf> =
    Select { sql: select_leaf!("WHERE l.leaf_no >= $1 ORDER BY l.leaf_no LIMIT $2"), read: read_leaf };
const LEAVES_OF: Select<StoredLeaf> = Select {
    sql: select_leaf!(
        "WHERE l.run_no = (SELECT run_no FROM run WHERE run_id = $3) AND l.leaf_no >= $1 ORDER BY l.leaf_no LIMIT $2"
    ),
    read: read_leaf,
};
const COVERING: Select<StoredLeaf> = Select {
    sql: select_leaf!(
        "WHERE l.run_no = (SELECT run_no FROM run WHERE run_id = $1) AND l.head_seq >= $2 AND l.leaf_no < $3 \
    ORDER BY l.head_seq, l.leaf_no LIMIT 1"
    ),
    read: read_leaf,
};
const RECORD_RANGE: Select<StoredRecord> = Select {
    sql: concat!(
        "SELECT position, ",
        record_columns!(""),
        " FROM audit_record \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq >= $2 AND seq <= $3 ORDER BY seq LIMIT $4"
    ),
    read: rows::record,
};

/// A checkpoint to store, with the leaves and nodes that it adds to the tree.
#[derive(Clone, Debug)]
pub struct NewCheckpoint {
    /// The new leaves. The last one has the number `checkpoint.size - 1`.
    pub leaves: Vec<CheckpointLeaf>,
    /// The tree nodes that they complete: their storage indexes and hashes.
    pub nodes: Vec<(u64, Sha256)>,
    /// The checkpoint.
    pub checkpoint: StoredCheckpoint,
}

/// A signed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// Number of leaves that it covers.
    pub size: u64,
    /// The position up to which the heads of runs were examined.
    pub position: i64,
    /// The signed note.
    pub note: String,
}

/// A run whose head advanced since its last leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvancedHead {
    /// The run's next leaf.
    pub leaf: CheckpointLeaf,
    /// Whether the chain still contains the head of the run's last leaf, and continues after it.
    pub extends_last_leaf: bool,
}

/// A leaf, and the hash that the chain now contains at its `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLeaf {
    /// Its number, from 0.
    pub index: u64,
    /// The run; `None` if its row was removed, which only direct access to the database can do.
    pub run_id: Option<RunId>,
    /// `seq` of the run's head.
    pub head_seq: u64,
    /// Hash of the run's head.
    pub head_hash: Sha256,
    /// The hash that the record at `head_seq` has now; `None` if the record is missing or unreadable. Of the last archived
    /// record, the hash that the next record refers to; of those before it, which only the archive has, the leaf's.
    pub recorded: Option<Sha256>,
}

impl StoredLeaf {
    /// Returns the leaf that the tree hashes; `None` if the run is missing.
    pub fn leaf(&self) -> Option<CheckpointLeaf> {
        let run_id = self.run_id.clone()?;
        Some(CheckpointLeaf { head_hash: self.head_hash, head_seq: self.head_seq, run_id })
    }
}

/// The part of the ledger that stores checkpoints. Every method is one transaction.
#[async_trait]
pub trait CheckpointLog: Send + Sync {
    /// Returns the heads, not covered by a leaf yet, of the runs with records after position `after` and up to `to`, in the
    /// order of the runs' creation.
    async fn advanced_heads(&self, after: i64, to: i64) -> Result<Vec<AdvancedHead>>;
    /// Appends a checkpoint with its leaves.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the tree has grown since the checkpoint was created.
    async fn append_checkpoint(&self, new: NewCheckpoint) -> Result<()>;
    /// Returns the newest checkpoint.
    async fn latest_checkpoint(&self) -> Result<Option<StoredCheckpoint>>;
    /// Lists the checkpoints over more than `size` leaves, in order.
    async fn checkpoints(&self, size: u64, limit: u32) -> Result<Vec<StoredCheckpoint>>;
    /// Lists the leaves from number `from` on, of one run or of all, in order.
    async fn leaves(&self, run: Option<&RunId>, from: u64, limit: u32) -> Result<Vec<StoredLeaf>>;
    /// Returns the first leaf of `run`, among the first `size` leaves, whose head is at or after `seq`.
    async fn covering_leaf(&self, run: &RunId, seq: u64, size: u64) -> Result<Option<StoredLeaf>>;
    /// Returns the hashes of tree nodes by their storage indexes. Unknown nodes are left out.
    async fn node_hashes(&self, indexes: &[u64]) -> Result<HashMap<u64, Sha256>>;
    /// Lists the records of a run from `first` to `last`, in order.
    async fn record_range(
        &self,
        run: &RunId,
        first: u64,
        last: u64,
        size: PageSize,
    ) -> Result<LedgerPage<StoredRecord>>;
}

#[async_trait]
impl<B: Backend> CheckpointLog for Store<B> {
    async fn advanced_heads(&self, after: i64, to: i64) -> Result<Vec<AdvancedHead>> {
        self.all(ADVANCED, vec![after.into(), to.into()]).await
    }

    async fn append_checkpoint(&self, new: NewCheckpoint) -> Result<()> {
        self.0.write(None, new.into_rows()).await
    }

    async fn latest_checkpoint(&self) -> Result<Option<StoredCheckpoint>> {
        self.one(LATEST, Vec::new()).await
    }

    async fn checkpoints(&self, size: u64, limit: u32) -> Result<Vec<StoredCheckpoint>> {
        self.all(CHECKPOINTS, vec![size.into(), Param::Int(limit.into())]).await
    }

    async fn leaves(&self, run: Option<&RunId>, from: u64, limit: u32) -> Result<Vec<StoredLeaf>> {
        let mut params = vec![Param::from(from), Param::Int(limit.into())];
        params.extend(run.map(|run| Param::from(run.as_str())));
        let select = if run.is_some() { LEAVES_OF } else { LEAVES };
        self.all(select, params).await
    }

    async fn covering_leaf(&self, run: &RunId, seq: u64, size: u64) -> Result<Option<StoredLeaf>> {
        self.one(COVERING, vec![run.as_str().into(), seq.into(), size.into()]).await
    }

    async fn node_hashes(&self, indexes: &[u64]) -> Result<HashMap<u64, Sha256>> {
        let mut hashes = HashMap::new();
        for chunk in indexes.chunks(NODES_PER_QUERY) {
            // No node has a negative index.
            let mut params = vec![Param::Int(-1); NODES_PER_QUERY];
            chunk.iter().zip(&mut params).for_each(|(index, param)| *param = (*index).into());
            hashes.extend(self.all(NODES, params).await?);
        }
        Ok(hashes)
    }

    async fn record_range(
        &self,
        run: &RunId,
        first: u64,
        last: u64,
        size: PageSize,
    ) -> Result<LedgerPage<StoredRecord>> {
        let params = vec![run.as_str().into(), first.into(), last.into(), Param::Int(size.query_limit())];
        self.0.fetch_page(RECORD_RANGE.sql, params, RECORD_RANGE.read, size, PageColumns::RECORDS).await
    }
}

impl NewCheckpoint {
    fn into_rows(self) -> Vec<Rows<'static>> {
        let (mut leaves, mut nodes) = (Rows::new(&LEAF), Rows::new(&NODE));
        let first = self.checkpoint.size.saturating_sub(self.leaves.len() as u64);
        for (number, leaf) in (first..).zip(&self.leaves) {
            leaves.push([number.into(), leaf.run_id.as_str().into(), leaf.head_seq.into(), (&leaf.head_hash).into()]);
        }
        for (index, hash) in &self.nodes {
            nodes.push([(*index).into(), hash.into()]);
        }
        let StoredCheckpoint { size, position, note } = self.checkpoint;
        let mut checkpoint = Rows::new(&CHECKPOINT);
        checkpoint.push([size.into(), position.into(), note.into()]);
        vec![leaves, nodes, checkpoint]
    }
}

fn read_head(row: &dyn RowReader) -> Result<AdvancedHead> {
    let leaf = CheckpointLeaf {
        run_id: rows::run_id(row, 0)?,
        head_seq: to_count(row.int(1)?),
        head_hash: rows::sha256(&row.bytes(2)?)?,
    };
    let extends_last_leaf = match row.maybe_int(3)?.zip(row.maybe_bytes(4)?) {
        None => true,
        Some((seq, hash)) => {
            let hash = rows::sha256(&hash)?;
            to_count(seq) < leaf.head_seq && recorded_hash(row, 5, to_count(seq), hash)? == Some(hash)
        }
    };
    Ok(AdvancedHead { leaf, extends_last_leaf })
}

fn read_checkpoint(row: &dyn RowReader) -> Result<StoredCheckpoint> {
    Ok(StoredCheckpoint { size: to_count(row.int(0)?), position: row.int(1)?, note: row.text(2)? })
}

fn read_leaf(row: &dyn RowReader) -> Result<StoredLeaf> {
    let (head_seq, head_hash) = (to_count(row.int(2)?), rows::sha256(&row.bytes(3)?)?);
    let run_id = row.maybe_text(1)?.map(|id| RunId::parse_recorded(&id).map_err(|_| damaged("run ID"))).transpose()?;
    Ok(StoredLeaf {
        index: to_count(row.int(0)?),
        run_id,
        head_seq,
        head_hash,
        recorded: recorded_hash(row, 4, head_seq, head_hash)?,
    })
}

/// Returns [`StoredLeaf::recorded`] of the leaf with the head `seq` and `hash`, from the columns from `first` on: those of the
/// record at `seq`, the last archived record, and those of the record after `seq` if `seq` is the last archived one.
fn recorded_hash(row: &dyn RowReader, first: usize, seq: u64, hash: Sha256) -> Result<Option<Sha256>> {
    if let Some(body) = packed::maybe_record(row, first)? {
        // The verification of the chain reports the problem of an unreadable record.
        return Ok(rows::record_hash(&body).ok());
    }
    Ok(match row.maybe_int(first + 3)?.map(to_count) {
        Some(archived_seq) if seq < archived_seq => Some(hash),
        Some(_) => packed::maybe_record(row, first + 4)?.and_then(|next| rows::previous_hash(&next).ok()),
        None => None,
    })
}
