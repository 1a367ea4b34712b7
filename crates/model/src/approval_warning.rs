//! What speaks against a change that waits for a person.

mod assignments;
mod credentials;
mod diff_lines;
mod hosts;
mod test_command;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::credential::readable;
use crate::judge::{deletes_test, weakens_test};
use crate::named_enum::named_enum;
use crate::{ApprovalId, ChangeFacts, FileKind, LogicalPath, Rules, excerpt};
pub use diff_lines::is_part_of_other;
use diff_lines::{DiffLine, diff_lines};
pub use test_command::is_test_command;

/// The most warnings with one code.
const MAX_PER_CODE: usize = 10;
/// The longest name in a text, in characters.
const MAX_NAMED: usize = 100;

named_enum! {
    /// How much a warning matters.
    pub enum Severity {
        /// Good to know.
        Info = "info",
        /// To be checked before the change is approved.
        Doubt = "doubt",
        /// A reason to deny, unless the reviewer knows better.
        Danger = "danger",
    }
}

named_enum! {
    /// What a warning is about.
    pub enum WarningCode {
        /// The change leaves fewer tests or assertions, or skips more, as the trigger `weakensTest` defines it.
        WeakensTest = "WEAKENS_TEST",
        /// The change deletes or empties a test file, as the trigger `deletesTest` defines it.
        DeletesTest = "DELETES_TEST",
        /// An added line looks like it contains a credential.
        CredentialLike = "CREDENTIAL_LIKE",
        /// An added line names a host that neither the old version of the file nor another line of the change names.
        NewHost = "NEW_HOST",
        /// A person has denied the same change, a part of it, or one that contains it, in this run.
        DeniedBefore = "DENIED_BEFORE",
        /// A path is outside of the policy's `write`.
        OutsideWrite = "OUTSIDE_WRITE",
        /// A file has changed since the approval was requested.
        Stale = "STALE",
        /// The last test that ran with this change failed.
        TestsFailed = "TESTS_FAILED",
        /// The run has tests, and none of them ran with this change.
        TestsNotOnThisTree = "TESTS_NOT_ON_THIS_TREE",
    }
}

impl WarningCode {
    /// The severity of every warning with this code.
    pub fn severity(self) -> Severity {
        match self {
            Self::WeakensTest | Self::DeletesTest | Self::CredentialLike | Self::DeniedBefore | Self::TestsFailed => {
                Severity::Danger
            }
            Self::NewHost | Self::OutsideWrite | Self::Stale => Severity::Doubt,
            Self::TestsNotOnThisTree => Severity::Info,
        }
    }
}

/// What speaks against a change that waits for a person. It never repeats a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalWarning {
    /// What it is about.
    pub code: WarningCode,
    /// How much it matters.
    pub severity: Severity,
    /// The file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<LogicalPath>,
    /// The line of the new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The earlier approval, of `DENIED_BEFORE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The note of the person who denied that, of `DENIED_BEFORE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The warning in one sentence.
    #[schema(example = "An added line names the host collect.example.net, which the file did not name before.")]
    pub text: String,
}

impl ApprovalWarning {
    /// Creates a warning about the whole change.
    pub fn new(code: WarningCode, text: impl Into<String>) -> Self {
        let (path, line, approval_id, note) = (None, None, None, None);
        Self { code, severity: code.severity(), path, line, approval_id, note, text: text.into() }
    }

    /// Adds the file.
    #[must_use]
    pub fn at(self, path: &LogicalPath) -> Self {
        Self { path: Some(path.clone()), ..self }
    }

    fn on(self, line: &DiffLine<'_>) -> Self {
        Self { line: Some(line.number), ..self.at(&line.path) }
    }
}

/// Returns what the files and texts of a change say against it. `diff` is the whole change; without `facts` only its lines are known.
pub fn change_warnings(rules: &Rules, facts: &[ChangeFacts<'_>], diff: &str) -> Vec<ApprovalWarning> {
    let mut found = Vec::new();
    let mut add = |code, text: &str, matches: &dyn Fn(&ChangeFacts<'_>) -> bool| {
        let matching = facts.iter().filter(|facts| matches(facts)).take(MAX_PER_CODE);
        found.extend(matching.map(|facts| ApprovalWarning::new(code, text).at(facts.path)));
    };
    add(WarningCode::DeletesTest, "The change deletes or empties a test file.", &deletes_test);
    let text =
        "The change leaves fewer tests or assertions, skips more of them, or changes what the test runner is told.";
    add(WarningCode::WeakensTest, text, &weakens_test);
    let text = "The path is outside of what the run may change without a person.";
    add(WarningCode::OutsideWrite, text, &|facts| !rules.may_write(facts.path));
    let lines = diff_lines(diff);
    let old_text = |path: &LogicalPath| facts.iter().find(|facts| facts.path == path).and_then(|facts| facts.old_text);
    found.extend(credential_warnings(rules, &lines, &old_text));
    found.extend(host_warnings(&lines, &old_text));
    found
}

/// Warns of added lines that look like they contain a credential that is nowhere else in the change or in the file's old version.
fn credential_warnings<'a>(
    rules: &Rules,
    lines: &[DiffLine<'_>],
    old_text: &dyn Fn(&LogicalPath) -> Option<&'a [u8]>,
) -> Vec<ApprovalWarning> {
    let is_known = |path: &LogicalPath, value: &str| {
        let in_old = |old: &[u8]| memchr::memmem::find(&readable(old), value.as_bytes()).is_some();
        lines.iter().any(|line| !line.is_added() && line.text.contains(value)) || old_text(path).is_some_and(in_old)
    };
    let suspected = lines.iter().filter(|line| line.is_added()).filter_map(|line| {
        let is_config = matches!(rules.kind_of_path(&line.path), FileKind::TextConfig | FileKind::Unknown);
        let found = credentials::suspected(&line.text, is_config)?;
        Some((line, found))
    });
    let new = suspected.filter(|(line, found)| !is_known(&line.path, &found.value)).take(MAX_PER_CODE);
    let warn = |(line, found): (&DiffLine<'_>, credentials::Suspected)| {
        let text = format!("An added line looks like it contains a credential: {}.", excerpt(&found.name, MAX_NAMED));
        ApprovalWarning::new(WarningCode::CredentialLike, text).on(line)
    };
    new.map(warn).collect()
}

/// Warns of hosts that added lines name, and neither another line of the change nor the file's old version.
fn host_warnings<'a>(
    lines: &[DiffLine<'_>],
    old_text: &dyn Fn(&LogicalPath) -> Option<&'a [u8]>,
) -> Vec<ApprovalWarning> {
    let (added, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.is_added());
    let added: Vec<_> =
        added.iter().flat_map(|line| hosts::hosts(&line.text).into_iter().map(move |host| (line, host))).collect();
    if added.is_empty() {
        return Vec::new();
    }
    let mut known: BTreeSet<String> = others.iter().flat_map(|line| hosts::hosts(&line.text)).collect();
    let mut read = BTreeSet::new();
    let mut found = Vec::new();
    for (line, host) in added {
        if known.contains(&host) {
            continue;
        }
        if read.insert(&line.path) {
            let old = readable(old_text(&line.path).unwrap_or_default());
            known.extend(String::from_utf8_lossy(&old).lines().flat_map(hosts::hosts));
        }
        if found.len() < MAX_PER_CODE && known.insert(host.clone()) {
            let text = format!(
                "An added line names the host {}, which the file did not name before.",
                excerpt(&host, MAX_NAMED)
            );
            found.push(ApprovalWarning::new(WarningCode::NewHost, text).on(line));
        }
    }
    found
}

/// Sorts warnings, the most severe first.
pub fn sort_warnings(warnings: &mut [ApprovalWarning]) {
    warnings.sort_by_key(|warning| std::cmp::Reverse(warning.severity));
}

#[cfg(test)]
mod tests;
