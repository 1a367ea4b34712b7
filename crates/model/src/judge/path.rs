//! Judges an access to a path.

use super::facts::{Access, PathFacts};
use crate::{Code, FileKind, LogicalPath, PathRejected, Policy, Refusal, Rules, Verdict};

/// Judges an access to a path by the path alone.
///
/// A mutation that needs approval is not refused here but decided by [`judge_change`](crate::judge_change). A read that would
/// need approval is denied, because reads do not wait. Read globs do not apply to folders, because a walk has to enter them.
/// The tool itself refuses to change a folder.
///
/// # Errors
///
/// `PATH_REJECTED` in a submodule, and for a file in place of its folder; `POLICY_DENIED_SECRET`; `POLICY_DENIED` with all its
/// reasons.
pub fn judge_path(rules: &Rules, access: Access, facts: &PathFacts<'_>) -> Result<(), Refusal> {
    let kind = kind_of(rules, facts);
    match kind {
        FileKind::Submodule => return Err(Refusal::path(facts.path.as_str(), PathRejected::Submodule)),
        // A logical path is never in `.git`. If one were, it would be denied like a secret.
        FileKind::SecretLike | FileKind::GitInternal => return Err(secret_denied(facts.path, kind)),
        FileKind::TextSource
        | FileKind::TextConfig
        | FileKind::TextDoc
        | FileKind::Lockfile
        | FileKind::Generated
        | FileKind::Vendored
        | FileKind::Binary
        | FileKind::Directory
        | FileKind::Unknown => {}
    }
    if access == Access::Mutate && kind != FileKind::Directory && rules.has_submodule_under(facts.path) {
        return Err(Refusal::path(facts.path.as_str(), PathRejected::AboveSubmodule));
    }
    let mut reasons = Vec::new();
    if let Some(real_path) = facts.real_path.filter(|real_path| *real_path != facts.path) {
        add_glob_reasons(rules, access, kind, real_path, &mut reasons);
    }
    add_glob_reasons(rules, access, kind, facts.path, &mut reasons);
    add_state_reasons(rules, access, kind, facts, &mut reasons);
    let mut seen = std::collections::BTreeSet::new();
    reasons.retain(|reason| seen.insert(reason.clone()));
    if reasons.is_empty() { Ok(()) } else { Err(denied(rules, access, facts.path, reasons)) }
}

/// Whether a read of the secret file at a path may show its keys without their values. Everything but its kind must permit the
/// read.
pub fn may_read_redacted(rules: &Rules, facts: &PathFacts<'_>) -> bool {
    if !rules.redacts_secrets() || kind_of(rules, facts) != FileKind::SecretLike {
        return false;
    }
    let mut reasons = Vec::new();
    for path in [Some(facts.path), facts.real_path].into_iter().flatten() {
        add_glob_reasons(rules, Access::Read, FileKind::SecretLike, path, &mut reasons);
    }
    add_state_reasons(rules, Access::Read, FileKind::SecretLike, facts, &mut reasons);
    reasons.is_empty()
}

/// Returns the strictest kind by the path, its target and the facts.
fn kind_of(rules: &Rules, facts: &PathFacts<'_>) -> FileKind {
    let by_name = |path| match facts.kind {
        FileKind::Directory => rules.kind_of_dir(path),
        _ => match rules.kind_of_path(path) {
            strict @ (FileKind::SecretLike
            | FileKind::GitInternal
            | FileKind::Submodule
            | FileKind::Generated
            | FileKind::Vendored) => strict,
            _ => facts.kind,
        },
    };
    match facts.real_path {
        // The caller determined the kind from the same path.
        None if facts.kind != FileKind::Directory => facts.kind,
        None => by_name(facts.path),
        Some(real_path) => facts.kind.stricter(by_name(facts.path)).stricter(by_name(real_path)),
    }
}

fn add_glob_reasons(rules: &Rules, access: Access, kind: FileKind, path: &LogicalPath, reasons: &mut Vec<String>) {
    reasons.extend(rules.matching_deny_globs(path).map(|glob| format!("deny:{glob}")));
    if kind != FileKind::Directory && !rules.may_read(path) {
        reasons.push("read:no-match".to_owned());
    }
    if access == Access::Mutate && !rules.may_write(path) && !rules.asks(path) {
        reasons.push("write:no-match".to_owned());
    }
}

fn add_state_reasons(rules: &Rules, access: Access, kind: FileKind, facts: &PathFacts<'_>, reasons: &mut Vec<String>) {
    if access == Access::Mutate && kind != FileKind::Directory && rules.verdict_of(kind) == Verdict::Deny {
        reasons.push(format!("kind:{}", kind.as_str()));
    }
    let ignored = rules.policy().ignored_files;
    if facts.ignored && (ignored == Verdict::Deny || (ignored == Verdict::RequireApproval && access != Access::Mutate))
    {
        reasons.push("ignored".to_owned());
    }
    // Every folder has several hard links.
    if facts.hard_linked && facts.kind != FileKind::Directory {
        reasons.push("hardLink".to_owned());
    }
}

fn secret_denied(path: &LogicalPath, kind: FileKind) -> Refusal {
    Refusal::new(
        Code::PolicyDeniedSecret,
        format!("`{path}` is a secret file, which no tool can read or change"),
        "Continue without it. To document its settings, write `.env.example` with placeholders, or ask the operator.",
    )
    .at(path)
    .with_details(|details| details.reasons = vec![format!("kind:{}", kind.as_str())])
}

fn denied(rules: &Rules, access: Access, path: &LogicalPath, reasons: Vec<String>) -> Refusal {
    let verb = match access {
        Access::Read => "reading",
        Access::Search => "searching",
        Access::Mutate => "changing",
    };
    let message = format!("the run's policy denies {verb} `{path}` ({})", reasons.join(", "));
    let hint = hint(rules, &reasons);
    Refusal::new(Code::PolicyDenied, message, hint).at(path).with_details(|details| details.reasons = reasons)
}

fn hint(rules: &Rules, reasons: &[String]) -> String {
    match reasons.first().map_or("", String::as_str) {
        "kind:GENERATED" => "Change the source that the file is generated from.".to_owned(),
        "kind:VENDORED" => "Change the version of the dependency, or wrap it in your own code.".to_owned(),
        "ignored" => "Git ignores the file and does not track it. Work with tracked files.".to_owned(),
        "hardLink" => "The file has several hard links and may be an alias. Work with another file.".to_owned(),
        "write:no-match" if rules.policy().write.is_empty() && rules.policy().ask.is_empty() => {
            "The run is read-only.".to_owned()
        }
        "write:no-match" => {
            let Policy { write, ask, .. } = rules.policy();
            let asked =
                if ask.is_empty() { String::new() } else { format!("; once a person approves: {}", first_globs(ask)) };
            format!("The run may change: {}{asked}.", first_globs(write))
        }
        "read:no-match" => format!("The run may read: {}.", first_globs(&rules.policy().read)),
        _ => "Continue without it, or ask the operator for a policy that allows it.".to_owned(),
    }
}

/// Formats the first globs of a list for a hint.
fn first_globs(globs: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<_> = globs.iter().take(SHOWN).map(|glob| format!("`{glob}`")).collect();
    let more = if globs.len() > SHOWN { " and others" } else { "" };
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") + more }
}
