//! Limits of what a run may store at a time.

use serde::{Deserialize, Serialize};

/// Limits of what a run may store at a time. The length of every file of its tree counts, including binary and generated
/// files, and the bytes of unfinished uploads. Deleting a file frees its share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Quota {
    /// Bytes of all files of the tree, including imported ones.
    pub max_tree_bytes: u64,
    /// Files of the tree, including imported ones.
    pub max_files: u64,
    /// Calls that wait for approval. A batch counts as one.
    pub pending_approvals: u64,
    /// Bytes that its calls, reads included, add to the database and to the object store.
    pub max_history_bytes: u64,
    /// Records of its calls.
    pub max_records: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            max_tree_bytes: 4 << 30,
            max_files: 200_000,
            pending_approvals: 100,
            max_history_bytes: 1 << 30,
            max_records: 1_000_000,
        }
    }
}

/// Some members of a [`Quota`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[expect(missing_docs, reason = "as in `Quota`")]
pub struct QuotaOverrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tree_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_approvals: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_history_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_records: Option<u64>,
}

impl QuotaOverrides {
    /// Returns `base` with these members replaced.
    pub(crate) fn over(&self, base: &Quota) -> Quota {
        Quota {
            max_tree_bytes: self.max_tree_bytes.unwrap_or(base.max_tree_bytes),
            max_files: self.max_files.unwrap_or(base.max_files),
            pending_approvals: self.pending_approvals.unwrap_or(base.pending_approvals),
            max_history_bytes: self.max_history_bytes.unwrap_or(base.max_history_bytes),
            max_records: self.max_records.unwrap_or(base.max_records),
        }
    }
}
