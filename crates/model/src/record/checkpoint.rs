//! The leaf that checkpoints are computed over.

use serde::{Deserialize, Serialize};

use crate::{RunId, Sha256};

/// A leaf of the checkpoint tree: the head of a run's audit chain. Fields are in the order of their JSON names, so that
/// serialising is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointLeaf {
    /// The hash of the run's last record.
    pub head_hash: Sha256,
    /// Its `seq`.
    pub head_seq: u64,
    /// The run, or `_service` for the service's own chain.
    #[serde(deserialize_with = "RunId::deserialize_recorded")]
    #[schema(value_type = String, pattern = "^([A-Za-z0-9][A-Za-z0-9_-]{0,63}|_service)$")]
    pub run_id: RunId,
}

impl CheckpointLeaf {
    /// Returns the canonical JSON, which is the leaf's content in the tree.
    pub fn to_canonical(&self) -> String {
        // Strings and numbers always serialise. An empty text would fail verification.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_serialises_as_canonical_json() {
        let leaf = CheckpointLeaf { head_hash: Sha256::ZERO, head_seq: 3, run_id: RunId::parse("r1").unwrap() };
        let text = leaf.to_canonical();
        assert_eq!(text, format!("{{\"headHash\":\"{}\",\"headSeq\":3,\"runId\":\"r1\"}}", "0".repeat(64)));
        assert_eq!(text, crate::canonical_json(serde_json::to_value(&leaf).unwrap().as_object().unwrap()));
    }
}
