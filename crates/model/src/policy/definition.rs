//! Policies as callers see them, and the overrides of a profile.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::approval_rule::{ApprovalRule, ApprovalRuleOverrides};
use super::budget::{Budget, BudgetOverrides};
use super::commands::{CommandOverrides, CommandPolicy};
use super::kind_decision::KindDecision;
use super::quota::{Quota, QuotaOverrides};
use crate::named_enum::named_enum;
use crate::{FileKind, Verdict};

/// The complete policy in force for a run.
///
/// # Globs
///
/// A glob is matched against the whole path from the root of the tree. `*`, `?` and `[…]` match within one name, `**` matches
/// across folders, and `{a,b}` matches either alternative. A leading `/` or `./` is removed. There is no negation. A glob that can match
/// no path of a tree is `INVALID_REQUEST`.
///
/// - `read`, `write` and `notSecret`: a glob matches exactly, including letter case. A glob that ends in `/` matches everything
///   under the folder: `src/` is the same as `src/**`, while `src` matches only a file with this name.
/// - `deny` and `ask` match more broadly, like a line of `.gitignore`: a glob also matches everything under the paths that it
///   matches. A glob without a `/`, except at its end, matches at any depth. Letter case and look-alike characters are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// The name of its profile.
    pub profile: String,
    /// Globs of paths that may be read. A path that may not be read may not be changed either.
    pub read: Vec<String>,
    /// Globs of paths that may be changed.
    pub write: Vec<String>,
    /// Globs of paths that may be neither read nor changed.
    pub deny: Vec<String>,
    /// Globs of paths whose changes a person must approve, in the same form as `deny`. `deny` takes precedence over `ask`, and `ask`
    /// over `write`: a path outside of `write` that matches may be changed once a person has approved.
    #[serde(default)]
    pub ask: Vec<String>,
    /// Globs of paths that are not secret although their names are those of secret files, in the same form as `read`. Every
    /// tool treats these files as any other file of their type.
    #[serde(default)]
    pub not_secret: Vec<String>,
    /// The decision about each kind of file. `GIT_INTERNAL`, `SUBMODULE` and `DIRECTORY` are always `DENY`, and `SECRET_LIKE` is `DENY` or
    /// `REDACT`. `REQUIRE_EVIDENCE` is for `LOCKFILE` and `GENERATED`. `BINARY` applies to file uploads, deletions and moves, since no text tool writes binary files.
    pub kinds: BTreeMap<FileKind, KindDecision>,
    /// The limits of one call.
    pub budget: Budget,
    /// The limits of one change set, which is what a command outside of the service has changed.
    #[serde(default = "Budget::of_command")]
    pub command_budget: Budget,
    /// What applies to a call that makes one new file, and nothing else, with more lines than `budget.maxInsertions`: it cannot be
    /// split. Of a change set, `commandBudget.maxInsertions` counts.
    #[serde(default = "default_file_budget")]
    pub file_budget: Verdict,
    /// The limits of the whole run. A missing member is not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_budget: Option<BudgetOverrides>,
    /// The limits of the run's disk usage and of its pending calls.
    #[serde(default)]
    pub quota: Quota,
    /// The maximum size of a whole file in an answer and of the result of a text mutation, in bytes.
    pub max_file_bytes: u64,
    /// The maximum size of an uploaded or downloaded file, in bytes.
    pub max_transfer_bytes: u64,
    /// The triggers for which a call needs approval.
    pub require_approval_if: BTreeSet<Trigger>,
    /// Who must approve.
    #[serde(default)]
    pub approval: ApprovalRule,
    /// Whether a patch may change the executable bit.
    pub allow_mode_change: bool,
    /// The verdict on reading or changing a file that Git ignores and does not track. Reads cannot wait for approval, so
    /// `REQUIRE_APPROVAL` denies them.
    pub ignored_files: Verdict,
    /// The verdict on a symbolic link that a change set makes or leads elsewhere. One that leads out of the tree, through another link
    /// or to a file that the policy hides is refused in any case.
    #[serde(default = "earlier_symbolic_links")]
    pub symbolic_links: Verdict,
    /// What happens to a change of a file that was changed by something else than a call of the run.
    #[serde(default)]
    pub outside_changes: OutsideChanges,
    /// Which commands callers may have run, where a runner is attached to the run.
    #[serde(default)]
    pub commands: CommandPolicy,
}

/// The decision of profiles, and of policies that an earlier version stored.
pub(super) fn default_file_budget() -> Verdict {
    Verdict::RequireApproval
}

/// The verdict of policies that an earlier version stored, which took no links.
fn earlier_symbolic_links() -> Verdict {
    Verdict::Deny
}

/// The maximum bytes of file contents that one call may have in memory: contents before and after its change together. If two
/// files of `maxFileBytes` are larger, their size is the maximum.
const MAX_CALL_BYTES: u64 = 32 << 20;

impl Policy {
    /// The maximum bytes of file contents that one call may have in memory: contents before and after its change together.
    pub fn max_call_bytes(&self) -> u64 {
        MAX_CALL_BYTES.max(self.max_file_bytes.saturating_mul(2))
    }
}

named_enum! {
    /// What happens to a call that changes a file whose present version no record of the run, and not its base, has.
    #[derive(Default)]
    pub enum OutsideChanges {
        /// The call is refused with `CHANGED_OUTSIDE`.
        #[default]
        Refuse = "REFUSE",
        /// The change from outside is recorded first, as `workspace.outside_change` by `nobody`, with its diff.
        Record = "RECORD",
    }
}

named_enum! {
    /// A property of a change for which a policy may require approval.
    pub enum Trigger {
        /// Changes a file that defines the build or its dependencies: `pom.xml`, `build.gradle`, `Cargo.toml`, `build.rs`,
        /// `package.json`, `tsconfig.json`, `pyproject.toml`, `requirements.txt`, `go.mod`, `Gemfile`, `Makefile`,
        /// `CMakeLists.txt`, `Dockerfile`, `docker-compose.yml`, `*.csproj`, `*.bzl`, `flake.nix` and similar files, in any
        /// folder.
        TouchesBuildFile = "touchesBuildFile",
        /// Changes automation, or code that decides who may do what, in any folder and any letter case. Automation is what machines,
        /// agents or editors act on: CI (`.github/`,
        /// `.gitlab-ci.yml`, `.circleci/`, `Jenkinsfile`, `azure-pipelines.yml` …), agents' configuration and instructions
        /// (`.claude/`, `.cursor/`, `.codex/`, `.mcp.json`, `AGENTS.md`, `CLAUDE.md` …), editors (`.vscode/`, `.idea/`,
        /// `.devcontainer/` …), hooks (`.husky/`, `.githooks/`, `.pre-commit-config.yaml`, `lefthook.yml` …), Git
        /// (`.gitattributes`, `.gitmodules`), build tools that run programs (`.cargo/`, `.mvn/`, the Gradle wrapper), and
        /// `CODEOWNERS`. Authentication and permission code is a file, other than documentation, with one of these words in its name or
        /// in that of a folder: `auth`, `authn`, `authz`, `authentication`, `authorization`, `login`, `signin`, `oauth`, `oidc`, `saml`,
        /// `sso`, `mfa`, `otp`, `totp`, `jwt`, `csrf`, `password`, `permission`, `rbac`, `acl`, `iam`, `accesscontrol` and their variants. Name
        /// other paths in `ask`.
        TouchesSecuritySensitivePath = "touchesSecuritySensitivePath",
        /// Changes a lockfile.
        TouchesLockfile = "touchesLockfile",
        /// Deletes a file. A move is not a deletion.
        DeletesFile = "deletesFile",
        /// Adds, removes or changes a public declaration in Rust, Java, TypeScript or JavaScript, Python or Go. A new test file has none.
        ChangesPublicApi = "changesPublicApi",
        /// Deletes or empties a test file, or moves it to a name that is not one of a test or that its runner does not
        /// collect. Knows Rust, Java, TypeScript or JavaScript, Python and Go.
        DeletesTest = "deletesTest",
        /// Leaves fewer tests or assertions in a file than before, skips more tests, or changes the configuration of a
        /// runner of tests. In the same languages.
        WeakensTest = "weakensTest",
    }
}

/// The policy of `POST /v1/runs`. Missing members have the values of the profile.
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
    pub ask: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_secret: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<BTreeMap<FileKind, KindDecision>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetOverrides>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_budget: Option<BudgetOverrides>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_budget: Option<Verdict>,
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
    pub approval: Option<ApprovalRuleOverrides>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_mode_change: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored_files: Option<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbolic_links: Option<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside_changes: Option<OutsideChanges>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<CommandOverrides>,
}
