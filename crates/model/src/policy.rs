//! Policies: named profiles, overrides, and the compiled rules in force.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{FileKind, Refusal, Verdict};

/// The policy in force for a run, complete: every member has its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// The profile that it was made from.
    pub profile: String,
    /// Globs of what may be read.
    pub read: Vec<String>,
    /// Globs of what may be changed.
    pub write: Vec<String>,
    /// Globs of what may be neither.
    pub deny: Vec<String>,
    /// What a mutation of each kind meets.
    pub kinds: BTreeMap<FileKind, Verdict>,
    /// What one call may use up.
    pub budget: Budget,
    /// What the whole run may use up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_budget: Option<Budget>,
    /// Whole files in an answer, and the result of a text mutation, in bytes.
    pub max_file_bytes: u64,
    /// One file of the files plane, in bytes.
    pub max_transfer_bytes: u64,
    /// What a person has to agree to.
    pub require_approval_if: BTreeSet<Trigger>,
    /// Whether a patch may change the executable bit.
    pub allow_mode_change: bool,
    /// What reading or changing a file that git ignores and does not track meets.
    pub ignored_files: Verdict,
}

/// What may be used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Budget {
    /// Different files.
    pub max_files_touched: u64,
    /// Lines added.
    pub max_insertions: u64,
    /// Lines removed.
    pub max_deletions: u64,
    /// Files deleted.
    pub max_files_deleted: u64,
    /// Bytes written.
    pub max_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            max_files_touched: 20,
            max_insertions: 800,
            max_deletions: 800,
            max_files_deleted: 5,
            max_bytes: 200_000,
        }
    }
}

/// What a person may have to agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Trigger {
    TouchesBuildFile,
    TouchesSecuritySensitivePath,
    TouchesLockfile,
    DeletesFile,
    ChangesPublicApi,
}

/// What `POST /v1/runs` may say about policy; what is missing comes from the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "as in `Policy`")]
pub struct PolicyOverrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<BTreeMap<FileKind, Verdict>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_budget: Option<Budget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_file_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_transfer_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_approval_if: Option<BTreeSet<Trigger>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_mode_change: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored_files: Option<Verdict>,
}

/// The profiles that an operator has: the three built-in ones and their own.
#[derive(Clone, Debug)]
pub struct Profiles(#[expect(dead_code, reason = "skeleton")] BTreeMap<String, Policy>);

impl Profiles {
    /// `READ_ONLY`, `SUPERVISED_PR` and `AUTONOMOUS`.
    pub fn built_in() -> Self {
        unimplemented!()
    }

    /// The policy of a profile (`SUPERVISED_PR` where none is named) with `overrides` over it.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an unknown profile, a bad glob, or a kind that no policy may loosen.
    pub fn resolve(&self, _overrides: &PolicyOverrides) -> Result<Rules, Refusal> {
        unimplemented!()
    }
}

/// A policy with its globs compiled. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Rules {
    policy: Policy,
}

impl Rules {
    /// Compiles the globs of `policy`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with the glob that is bad.
    pub fn compile(_policy: Policy) -> Result<Self, Refusal> {
        unimplemented!()
    }

    /// The policy as callers see it.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
