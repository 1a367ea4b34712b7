//! A policy as callers see it, and what may override a profile.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::budget::{Budget, BudgetOverrides};
use super::quota::{Quota, QuotaOverrides};
use crate::{FileKind, Verdict};

/// The policy in force for a run, complete: every member has its value.
///
/// # Globs
///
/// A glob is matched against the whole path from the root of the tree. `*`, `?` and `[…]` stay within one name, `**` goes
/// through folders, `{a,b}` is either; a `/` or `./` at the start is dropped. There is no negation.
///
/// - `read`, `write` and `notSecret`: a glob means the paths that it matches, in their very letters; one that ends in `/` means
///   everything beneath the folder. So `src/` and `src/**` are the same, and `src` alone is a file called `src`.
/// - `deny` errs to the strict side, as a line of `.gitignore` would: a glob also covers everything beneath what it matches;
///   one without a `/` (but at its end) matches at any depth, unless it begins with one; letter case and look-alikes do not
///   matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// The profile that it was made from.
    pub profile: String,
    /// Globs of what may be read. What may not be read may not be changed either.
    pub read: Vec<String>,
    /// Globs of what may be changed.
    pub write: Vec<String>,
    /// Globs of what may be neither.
    pub deny: Vec<String>,
    /// Globs of names that are fine although they look like those of secrets, in the same form as `read`. What they match
    /// is treated as any other file of its type, in every tool.
    #[serde(default)]
    pub not_secret: Vec<String>,
    /// What a mutation of each kind meets. `SECRET_LIKE`, `GIT_INTERNAL` and `DIRECTORY` are always `DENY`; `BINARY` is about
    /// the files plane and about deleting and moving, since no text tool writes binary files.
    pub kinds: BTreeMap<FileKind, Verdict>,
    /// What one call may use up.
    pub budget: Budget,
    /// What the whole run may use up; a member that is missing is not bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_budget: Option<BudgetOverrides>,
    /// What the run may hold on the service's disk, and how many calls of it may wait for a person.
    #[serde(default)]
    pub quota: Quota,
    /// Whole files in an answer, and the result of a text mutation, in bytes.
    pub max_file_bytes: u64,
    /// One file of the files plane, in bytes.
    pub max_transfer_bytes: u64,
    /// What a person has to agree to.
    pub require_approval_if: BTreeSet<Trigger>,
    /// Whether a patch may change the executable bit.
    pub allow_mode_change: bool,
    /// What reading or changing a file that git ignores and does not track meets. Reads do not wait for a person: for them
    /// `REQUIRE_APPROVAL` is a denial.
    pub ignored_files: Verdict,
}

/// The bytes of file contents that one call may have in memory, before and after its change together, unless two files of
/// `maxFileBytes` are more.
const MAX_CALL_BYTES: u64 = 32 << 20;

impl Policy {
    /// The most bytes of file contents that one call may have in memory, before and after its change together.
    pub fn max_call_bytes(&self) -> u64 {
        MAX_CALL_BYTES.max(self.max_file_bytes.saturating_mul(2))
    }
}

/// What a person may have to agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Trigger {
    /// A file that says how the project is built or what it depends on: `pom.xml`, `build.gradle`, `Cargo.toml`, `build.rs`,
    /// `package.json`, `tsconfig.json`, `pyproject.toml`, `requirements.txt`, `go.mod`, `Gemfile`, `Makefile`,
    /// `CMakeLists.txt`, `Dockerfile`, `docker-compose.yml`, `*.csproj`, `*.bzl`, `flake.nix` and their like, in any folder.
    TouchesBuildFile,
    /// A file that machines, agents or editors act on, in any folder and any letter case: CI (`.github/`, `.gitlab-ci.yml`,
    /// `.circleci/`, `Jenkinsfile`, `azure-pipelines.yml` …), agents' configuration and instructions (`.claude/`, `.cursor/`,
    /// `.codex/`, `.mcp.json`, `AGENTS.md`, `CLAUDE.md` …), editors' (`.vscode/`, `.idea/`, `.devcontainer/` …), hooks
    /// (`.husky/`, `.githooks/`, `.pre-commit-config.yaml`, `.envrc` …), git's (`.gitattributes`, `.gitmodules`), build tools'
    /// that run programs (`.cargo/`, `.mvn/`, the Gradle wrapper), and `CODEOWNERS`.
    TouchesSecuritySensitivePath,
    /// A lockfile.
    TouchesLockfile,
    /// A file that goes for good; a move does not count.
    DeletesFile,
    /// A public declaration is added, removed or changed, in Rust, Java, TypeScript or JavaScript, Python or Go.
    ChangesPublicApi,
}

impl Trigger {
    /// Every trigger.
    pub const ALL: [Self; 5] = [
        Self::TouchesBuildFile,
        Self::TouchesSecuritySensitivePath,
        Self::TouchesLockfile,
        Self::DeletesFile,
        Self::ChangesPublicApi,
    ];

    /// The trigger as callers write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TouchesBuildFile => "touchesBuildFile",
            Self::TouchesSecuritySensitivePath => "touchesSecuritySensitivePath",
            Self::TouchesLockfile => "touchesLockfile",
            Self::DeletesFile => "deletesFile",
            Self::ChangesPublicApi => "changesPublicApi",
        }
    }
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
    pub not_secret: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<BTreeMap<FileKind, Verdict>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetOverrides>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_budget: Option<BudgetOverrides>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaOverrides>,
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
