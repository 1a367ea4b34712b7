//! The JSON documents in which a service returns proofs, and their verification.

use model::{ChainCheck, CheckpointLeaf, Record, RunId, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::merkle::hash_checkpoint_leaf;
use crate::proof::{verify_consistency, verify_inclusion};
use crate::{Checkpoint, NoteError, VerifierKey};

/// Why a proof is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The proof is about another record, tree or run.
    #[error("the proof is about something else: {0}")]
    Unrelated(&'static str),
    /// The note is not accepted.
    #[error("the checkpoint is not accepted: {0}")]
    Note(#[from] NoteError),
    /// The records do not reach the leaf.
    #[error("the records from {next_seq} on are missing")]
    Incomplete {
        /// The first missing record.
        next_seq: u64,
    },
    /// The records are not a chain that ends at the leaf.
    #[error("record {seq}: {problem}")]
    Chain {
        /// The record at which the chain breaks.
        seq: u64,
        /// What is wrong there.
        problem: String,
    },
    /// The hashes do not result in the signed root.
    #[error("the hashes do not lead to the signed root")]
    Root,
}

/// A proof that the tree of `from` leaves is a prefix of the tree of `to` leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsistencyProof {
    /// The number of leaves of the earlier tree.
    pub from: u64,
    /// The number of leaves of the later tree.
    pub to: u64,
    /// Hashes of subtrees, in the order of RFC 6962.
    pub proof: Vec<Sha256>,
}

impl ConsistencyProof {
    /// Verifies that the log of checkpoint `new` grew from `old` and nothing was removed or changed.
    ///
    /// # Errors
    ///
    /// [`ProofError`] if the proof is about other checkpoints, or does not prove it.
    pub fn verify(&self, old: &Checkpoint, new: &Checkpoint) -> Result<(), ProofError> {
        if old.origin != new.origin || (self.from, self.to) != (old.size, new.size) {
            return Err(ProofError::Unrelated("other checkpoints"));
        }
        let is_proved = verify_consistency(self.from, self.to, old.root, new.root, &self.proof);
        if is_proved { Ok(()) } else { Err(ProofError::Root) }
    }
}

/// A proof that a record is in the history that a checkpoint was signed over.
///
/// The records from `seq` to the leaf's `headSeq` are linked by `prevHash`, the last one's hash is the leaf's, the leaf is
/// in the tree by `proof`, and the tree's root is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InclusionProof {
    /// The record's `seq`.
    pub seq: u64,
    /// The record's hash.
    pub record_hash: Sha256,
    /// The records from `seq` on, at most 1,000 and 4 MiB.
    #[schema(value_type = Vec<Record>)]
    pub records: Vec<Value>,
    /// The first missing record before the leaf's, if not all fit. Read it and the following ones from the run's audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_seq: Option<u64>,
    /// The leaf. Its content in the tree is its canonical JSON.
    pub leaf: CheckpointLeaf,
    /// The index of the leaf, from 0.
    pub leaf_index: u64,
    /// The number of leaves in the tree of the checkpoint.
    pub tree_size: u64,
    /// Hashes of subtrees from the leaf up, in the order of RFC 6962.
    pub proof: Vec<Sha256>,
    /// The signed note.
    pub checkpoint: String,
}

impl InclusionProof {
    /// Verifies that record `seq` of `run` is in a history that `key` has signed. Returns the checkpoint.
    ///
    /// If the proof has a `nextSeq`, append the missing records first and set it to `None`.
    ///
    /// # Errors
    ///
    /// [`ProofError`] if the proof is about another record, incomplete, or does not prove it.
    pub fn verify(&self, run: &RunId, seq: u64, key: &VerifierKey) -> Result<Checkpoint, ProofError> {
        if self.leaf.run_id != *run || self.seq != seq {
            return Err(ProofError::Unrelated("another record"));
        }
        if let Some(next_seq) = self.next_seq {
            return Err(ProofError::Incomplete { next_seq });
        }
        let checkpoint = key.verify(&self.checkpoint)?;
        if checkpoint.size != self.tree_size {
            return Err(ProofError::Unrelated("a tree of another size"));
        }
        let leaf = hash_checkpoint_leaf(&self.leaf);
        if !verify_inclusion(leaf, self.leaf_index, self.tree_size, &self.proof, checkpoint.root) {
            return Err(ProofError::Root);
        }
        self.verify_records()?;
        Ok(checkpoint)
    }

    /// Verifies that the records are a chain from the proved record to the leaf's.
    fn verify_records(&self) -> Result<(), ProofError> {
        let hash = |name| move |record: &Value| Sha256::parse(record.get(name)?.as_str()?).ok();
        let first = self.records.first().filter(|first| hash("hash")(first) == Some(self.record_hash));
        let before = first.and_then(hash("prevHash"));
        let (Some(before), Some(before_seq)) = (before, self.seq.checked_sub(1)) else {
            return Err(ProofError::Unrelated("the first record is another one"));
        };
        let mut chain = ChainCheck::after(&self.leaf.run_id, before_seq, before);
        let _ = self.records.iter().all(|record| chain.push(&record.to_string()));
        let report = chain.finish((self.leaf.head_seq, self.leaf.head_hash));
        match report.first_break {
            None => Ok(()),
            Some(found) => Err(ProofError::Chain { seq: found.seq, problem: found.problem }),
        }
    }
}
