//! Inclusion and consistency proofs from the ledger. Each one is verified before it is returned, since somebody may have
//! changed the stored nodes.

use async_recursion::async_recursion as boxed;
use ledger::{StoredCheckpoint, StoredLeaf};
use model::{Code, Refusal, RunId, Sha256};
use serde_json::Value;
use transparency::{
    ConsistencyProof, InclusionProof, ProofPlan, hash_checkpoint_leaf, verify_consistency, verify_inclusion,
};

use crate::checkpoints::tree::{compute_proof, load_frontier};
use crate::checkpoints::{Checkpoints, SignedCheckpoint, contradiction};
use engine::CallError;

/// The most records in one answer.
const MAX_RECORDS: u32 = 1000;

impl Checkpoints {
    /// Proves that the tree of `from` leaves is a prefix of the tree of `to` leaves, or of the newest checkpoint's.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `NOT_FOUND`, `UNAVAILABLE`.
    #[boxed]
    pub async fn prove_consistency(&self, from: Option<u64>, to: Option<u64>) -> Result<ConsistencyProof, CallError> {
        let from = from.ok_or_else(|| missing("from"))?;
        if from == 0 || to.is_some_and(|to| to < from) {
            let hint = "Give the sizes of two checkpoints, the earlier one first.";
            return Err(Refusal::invalid("`from` is at least 1 and at most `to`", hint).into());
        }
        let signed = self.newest()?;
        let to = to.unwrap_or(signed.size);
        let Some(plan) = ProofPlan::consistency(from, to).filter(|_| to <= signed.size) else {
            let message = format!("the newest checkpoint is over {} leaves", signed.size);
            return Err(Refusal::new(Code::NotFound, message, "GET /v1/checkpoint returns the newest one.").into());
        };
        let proof = compute_proof(self.ledger.as_ref(), &plan).await?.ok_or_else(contradiction)?;
        let old = self.root(from).await?;
        let new = if to == signed.size { Some(signed.root) } else { self.root(to).await? };
        let is_proved = old.zip(new).is_some_and(|(old, new)| verify_consistency(from, to, old, new, &proof));
        if is_proved { Ok(ConsistencyProof { from, to, proof }) } else { Err(contradiction().into()) }
    }

    /// Proves that record `seq` of `run` is in the history that the newest checkpoint was signed over.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `NOT_FOUND`, `UNAVAILABLE`.
    #[boxed]
    pub async fn prove_inclusion(&self, run: &RunId, seq: Option<u64>) -> Result<InclusionProof, CallError> {
        let seq = seq.ok_or_else(|| missing("seq"))?;
        let hint = "The run's audit has each record's `seq`.";
        if seq == 0 {
            return Err(Refusal::invalid("`seq` is at least 1", hint).into());
        }
        if self.ledger.record(run, seq).await?.is_none() {
            return Err(Refusal::new(Code::NotFound, format!("the run has no record {seq}"), hint).into());
        }
        let signed = self.newest()?;
        let stored = self.ledger.covering_leaf(run, seq, signed.size).await?.ok_or_else(not_covered)?;
        let leaf = Some(&stored).filter(|stored| stored.recorded == Some(stored.head_hash)).and_then(StoredLeaf::leaf);
        let leaf = leaf.ok_or_else(contradiction)?;
        let proof = self.prove_leaf(&stored, &signed).await?.ok_or_else(contradiction)?;
        let records = self.records_between(run, seq, leaf.head_seq).await?;
        let next_seq = seq + records.len() as u64;
        Ok(InclusionProof {
            seq,
            record_hash: records.first().and_then(hash_of).ok_or_else(contradiction)?,
            records,
            next_seq: (next_seq <= leaf.head_seq).then_some(next_seq),
            leaf,
            leaf_index: stored.index,
            tree_size: signed.size,
            proof,
            checkpoint: signed.note.clone(),
        })
    }

    /// Proves that the head `seq` of `run` is in the signed history, by the first checkpoint that covers it, so that each
    /// attempt gives the same proof. `None` while no checkpoint covers it.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE`.
    #[boxed]
    pub async fn prove_head(&self, run: &RunId, seq: u64) -> Result<Option<InclusionProof>, CallError> {
        let newest = match self.newest() {
            Err(refusal) if refusal.code == Code::NotFound => return Ok(None),
            newest => newest?,
        };
        let stored = self.ledger.covering_leaf(run, seq, newest.size).await?;
        let Some((stored, leaf)) = stored.and_then(|stored| stored.leaf().map(|leaf| (stored, leaf))) else {
            return Ok(None);
        };
        if leaf.head_seq != seq || stored.recorded != Some(leaf.head_hash) {
            return Err(contradiction().into());
        }
        let first = self.ledger.checkpoints(stored.index, 1).await?.pop().ok_or_else(contradiction)?;
        // It may have been signed by an earlier key.
        let root = self.key_history().and_then(|keys| keys.verify(&first.note)).map_err(|_| contradiction())?.root;
        let StoredCheckpoint { size, position, note } = first;
        let signed = SignedCheckpoint { size, position, root, note };
        let proof = self.prove_leaf(&stored, &signed).await?.ok_or_else(contradiction)?;
        let records = self.records_between(run, seq, seq).await?;
        Ok(Some(InclusionProof {
            seq,
            record_hash: leaf.head_hash,
            records,
            next_seq: None,
            leaf,
            leaf_index: stored.index,
            tree_size: signed.size,
            proof,
            checkpoint: signed.note.clone(),
        }))
    }

    /// Returns the proof that a leaf is in the signed tree, or `None` if it is not.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if nodes of the tree are missing.
    pub(super) async fn prove_leaf(
        &self,
        stored: &StoredLeaf,
        signed: &SignedCheckpoint,
    ) -> Result<Option<Vec<Sha256>>, CallError> {
        let plan = ProofPlan::inclusion(stored.index, signed.size);
        let Some((plan, leaf)) = plan.zip(stored.leaf()) else { return Ok(None) };
        let proof = compute_proof(self.ledger.as_ref(), &plan).await?.ok_or_else(contradiction)?;
        let is_proved = verify_inclusion(hash_checkpoint_leaf(&leaf), stored.index, signed.size, &proof, signed.root);
        Ok(is_proved.then_some(proof))
    }

    async fn root(&self, size: u64) -> Result<Option<Sha256>, CallError> {
        Ok(load_frontier(self.ledger.as_ref(), size).await?.map(|frontier| frontier.root()))
    }

    async fn records_between(&self, run: &RunId, first: u64, last: u64) -> Result<Vec<Value>, CallError> {
        let stored = self.ledger.record_range(run, first, last, MAX_RECORDS.into()).await?;
        let parsed: Result<_, _> = stored.iter().map(|record| serde_json::from_str(&record.text)).collect();
        parsed.map_err(|error| CallError::Internal(Box::new(error)))
    }
}

fn hash_of(record: &Value) -> Option<Sha256> {
    record.get("hash").and_then(Value::as_str).and_then(|hash| Sha256::parse(hash).ok())
}

fn missing(name: &str) -> Refusal {
    Refusal::invalid(format!("the query parameter `{name}` is missing"), "Compare the query with /openapi.json.")
}

fn not_covered() -> Refusal {
    let hint = "A checkpoint is signed every few seconds: try again then.";
    Refusal::new(Code::NotFound, "no checkpoint covers the record yet", hint)
        .with_details(|details| details.retry_after_seconds = Some(5))
}
