//! Proofs over HTTP: that a record is in the tree, and that one tree is the beginning of another.

use ledger::StoredLeaf;
use model::merkle::{ProofPlan, verify_consistency, verify_inclusion};
use model::{CheckpointLeaf, Code, Record, Refusal, RunId, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::CallError;
use crate::checkpoints::{Signed, contradicted};
use crate::service::Service;

/// Records of one answer at most.
const MAX_RECORDS: u32 = 1000;

/// Which two trees to compare.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Consistency {
    /// How many leaves the earlier tree has.
    #[param(required = true, value_type = u64, minimum = 1, example = 3)]
    from: Option<u64>,
    /// How many leaves the later tree has; the newest checkpoint's where it is missing.
    #[param(minimum = 1, example = 7)]
    to: Option<u64>,
}

/// That the tree of `from` leaves is the beginning of that of `to`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsistencyProof {
    /// How many leaves the earlier tree has.
    from: u64,
    /// How many leaves the later tree has.
    to: u64,
    /// Hashes of subtrees, in the order of RFC 6962.
    proof: Vec<Sha256>,
}

/// Which record to prove.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Inclusion {
    /// The record's `seq`.
    #[param(required = true, value_type = u64, minimum = 1, example = 3)]
    seq: Option<u64>,
}

/// That a record is in the history that a checkpoint was signed over.
///
/// The records from `seq` to the leaf's `headSeq` are linked by `prevHash`, the last one's hash is the leaf's, the leaf is
/// in the tree by `proof`, and the tree's root is signed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InclusionProof {
    /// The record's `seq`.
    seq: u64,
    /// The record's hash.
    record_hash: Sha256,
    /// The records from `seq` on, at most 1,000 and 4 MiB.
    #[schema(value_type = Vec<Record>)]
    records: Vec<Value>,
    /// The next record up to the leaf's, where they do not fit: the run's audit tells them.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_seq: Option<u64>,
    /// The leaf: the text that is hashed is its canonical JSON.
    leaf: CheckpointLeaf,
    /// The leaf's number, from 0.
    leaf_index: u64,
    /// How many leaves the tree of the checkpoint has.
    tree_size: u64,
    /// Hashes of subtrees from the leaf up, in the order of RFC 6962.
    proof: Vec<Sha256>,
    /// The signed note.
    checkpoint: String,
}

impl Service {
    /// Proves that one tree is the beginning of another.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `NOT_FOUND`, `UNAVAILABLE`.
    pub(crate) async fn prove_consistency(&self, asked: Consistency) -> Result<ConsistencyProof, CallError> {
        let from = asked.from.ok_or_else(|| missing("from"))?;
        if from == 0 || asked.to.is_some_and(|to| to < from) {
            let hint = "Give the sizes of two checkpoints, the earlier one first.";
            return Err(Refusal::invalid("`from` is at least 1 and at most `to`", hint).into());
        }
        let signed = self.checkpoint()?;
        let size = signed.size;
        let to = asked.to.unwrap_or(size);
        let Some(plan) = ProofPlan::consistency(from, to).filter(|_| to <= size) else {
            let message = format!("the newest checkpoint is over {size} leaves");
            return Err(Refusal::new(Code::NotFound, message, "GET /v1/checkpoint tells the newest one.").into());
        };
        let proof = self.prove(&plan).await?;
        // What is told was checked first: somebody may have changed the nodes that it was made of.
        let root_of = async |size| Ok::<_, CallError>(self.ledger.tree_frontier(size).await?.map(|edge| edge.root()));
        let old = root_of(from).await?;
        let new = if to == signed.size { Some(signed.root) } else { root_of(to).await? };
        let holds = old.zip(new).is_some_and(|(old, new)| verify_consistency(from, to, old, new, &proof));
        if holds { Ok(ConsistencyProof { from, to, proof }) } else { Err(contradicted().into()) }
    }

    /// Proves that a record is in the history that the newest checkpoint was signed over.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `RUN_NOT_FOUND`, `NOT_FOUND`, `UNAVAILABLE`.
    pub(crate) async fn prove_inclusion(&self, run: &RunId, asked: Inclusion) -> Result<InclusionProof, CallError> {
        let seq = asked.seq.ok_or_else(|| missing("seq"))?;
        if seq == 0 {
            return Err(Refusal::invalid("`seq` is at least 1", "The run's audit tells each record's `seq`.").into());
        }
        if self.ledger.record(run, seq).await?.is_none() {
            self.known_run(run).await?;
            let hint = "The run's audit tells each record's `seq`.";
            return Err(Refusal::new(Code::NotFound, format!("the run has no record {seq}"), hint).into());
        }
        let signed = self.checkpoint()?;
        let stored = self.ledger.covering_leaf(run, seq, signed.size).await?.ok_or_else(not_covered)?;
        let leaf = Some(&stored).filter(|stored| stored.recorded == Some(stored.head_hash)).and_then(StoredLeaf::leaf);
        let leaf = leaf.ok_or_else(contradicted)?;
        let proof = self.prove_leaf(&stored, &signed).await?.ok_or_else(contradicted)?;
        let records = self.records_between(run, seq, leaf.head_seq).await?;
        let next_seq = seq + records.len() as u64;
        Ok(InclusionProof {
            seq,
            record_hash: records.first().and_then(hash_of).ok_or_else(contradicted)?,
            records,
            next_seq: (next_seq <= leaf.head_seq).then_some(next_seq),
            leaf,
            leaf_index: stored.index,
            tree_size: signed.size,
            proof,
            checkpoint: signed.note.clone(),
        })
    }

    /// Whether a leaf is in the tree that was signed.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub(super) async fn is_signed(&self, stored: &StoredLeaf, signed: &Signed) -> Result<bool, CallError> {
        Ok(self.prove_leaf(stored, signed).await?.is_some())
    }

    /// The proof that a leaf is in the tree that was signed; `None` where that does not hold.
    async fn prove_leaf(&self, stored: &StoredLeaf, signed: &Signed) -> Result<Option<Vec<Sha256>>, CallError> {
        let plan = ProofPlan::inclusion(stored.index, signed.size);
        let Some((plan, leaf)) = plan.zip(stored.leaf()) else { return Ok(None) };
        let proof = self.prove(&plan).await?;
        let holds = verify_inclusion(leaf.hash(), stored.index, signed.size, &proof, signed.root);
        Ok(holds.then_some(proof))
    }

    async fn records_between(&self, run: &RunId, first: u64, last: u64) -> Result<Vec<Value>, CallError> {
        let stored = self.ledger.record_range(run, first, last, MAX_RECORDS.into()).await?;
        let parsed: Result<_, _> = stored.iter().map(|record| serde_json::from_str(&record.text)).collect();
        parsed.map_err(|error| CallError::Internal(Box::new(error)))
    }

    async fn prove(&self, plan: &ProofPlan) -> Result<Vec<Sha256>, CallError> {
        let nodes: Vec<_> = plan.nodes().collect();
        let hashes = self.ledger.tree_nodes(&nodes).await?;
        let proof = plan.finish(|node| hashes.get(&node).copied());
        proof.ok_or_else(|| contradicted().into())
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
