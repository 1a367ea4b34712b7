//! Judging one path by what it is.

use super::facts::{Access, PathFacts};
use crate::{Code, FileKind, LogicalPath, Refusal, Rules, Verdict};

/// Judges one path by what it is: the refusal is `POLICY_DENIED_SECRET` or `POLICY_DENIED` with its reasons, all of them.
///
/// What asks for a person is not refused here: for a mutation [`judge_change`](crate::judge_change) finds it again in
/// the facts of the change, and for a read it counts as a denial, since reads do not wait. A folder may be read regardless
/// of the read globs, since a walk has to pass it; and that a folder is no file to change is for the tool to say.
///
/// # Errors
///
/// The refusal, where policy denies.
pub fn judge_path(rules: &Rules, access: Access, facts: &PathFacts<'_>) -> Result<(), Refusal> {
    let kind = kind_of(rules, facts);
    match kind {
        // No logical path can lie in git's own; if one ever does, it is as closed as a secret.
        FileKind::SecretLike | FileKind::GitInternal => return Err(secret(facts.path, kind)),
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
    let mut reasons = Vec::new();
    if let Some(real_path) = facts.real_path.filter(|real_path| *real_path != facts.path) {
        by_globs(rules, access, kind, real_path, &mut reasons);
    }
    by_globs(rules, access, kind, facts.path, &mut reasons);
    by_state(rules, access, kind, facts, &mut reasons);
    let mut seen = std::collections::BTreeSet::new();
    reasons.retain(|reason| seen.insert(reason.clone()));
    if reasons.is_empty() { Ok(()) } else { Err(denied(rules, access, facts.path, reasons)) }
}

/// The strictest kind of the names that lead there.
fn kind_of(rules: &Rules, facts: &PathFacts<'_>) -> FileKind {
    let by_name = |path| match facts.kind {
        FileKind::Directory => rules.kind_of_dir(path),
        _ => match rules.kind_of_path(path) {
            strict @ (FileKind::SecretLike | FileKind::GitInternal | FileKind::Generated | FileKind::Vendored) => {
                strict
            }
            _ => facts.kind,
        },
    };
    match facts.real_path {
        // The caller took the kind from this very path.
        None if facts.kind != FileKind::Directory => facts.kind,
        None => by_name(facts.path),
        Some(real_path) => facts.kind.stricter(by_name(facts.path)).stricter(by_name(real_path)),
    }
}

fn by_globs(rules: &Rules, access: Access, kind: FileKind, path: &LogicalPath, reasons: &mut Vec<String>) {
    reasons.extend(rules.denying(path).map(|glob| format!("deny:{glob}")));
    if kind != FileKind::Directory && !rules.may_read(path) {
        reasons.push("read:no-match".to_owned());
    }
    if access == Access::Mutate && !rules.may_write(path) {
        reasons.push("write:no-match".to_owned());
    }
}

fn by_state(rules: &Rules, access: Access, kind: FileKind, facts: &PathFacts<'_>, reasons: &mut Vec<String>) {
    if access == Access::Mutate && kind != FileKind::Directory && rules.verdict_of(kind) == Verdict::Deny {
        reasons.push(format!("kind:{}", kind.as_str()));
    }
    let ignored = rules.policy().ignored_files;
    if facts.ignored && (ignored == Verdict::Deny || (ignored == Verdict::RequireApproval && access != Access::Mutate))
    {
        reasons.push("ignored".to_owned());
    }
    // Every folder has several.
    if facts.hard_linked && facts.kind != FileKind::Directory {
        reasons.push("hardLink".to_owned());
    }
}

fn secret(path: &LogicalPath, kind: FileKind) -> Refusal {
    Refusal::new(
        Code::PolicyDeniedSecret,
        format!("`{path}` is where secrets are kept; no tool reads or changes it"),
        "Go on without it. To show which settings it takes, write `.env.example` with placeholders, or ask the operator.",
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
        "kind:GENERATED" => "Change the source that it is generated from instead.".to_owned(),
        "kind:VENDORED" => "Change the dependency's version, or wrap it in code of your own.".to_owned(),
        "ignored" => "Git ignores the file and does not track it. Work with tracked files.".to_owned(),
        "hardLink" => "The file has several names and may be an alias. Work with another file.".to_owned(),
        "write:no-match" if rules.policy().write.is_empty() => "The run may change nothing: only read.".to_owned(),
        "write:no-match" => format!("The run may change: {}.", some_of(&rules.policy().write)),
        "read:no-match" => format!("The run may read: {}.", some_of(&rules.policy().read)),
        _ => "Go on without it, or ask the operator for a policy that allows it.".to_owned(),
    }
}

/// The first globs of a list, as a hint shows them.
fn some_of(globs: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<_> = globs.iter().take(SHOWN).map(|glob| format!("`{glob}`")).collect();
    let more = if globs.len() > SHOWN { " and others" } else { "" };
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") + more }
}
