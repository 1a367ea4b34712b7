//! What the server tells a model about its run, once, at the start of a session.

use std::fmt::Write as _;

use model::{KindDecision, Permission, Policy, Run, Verdict};

/// Globs of a list that are named; a policy may have hundreds.
const MAX_GLOBS: usize = 20;

/// Returns the instructions for a caller who has `permissions` in `run`. In a format of a provider, only its tools are named.
pub(super) fn of_run(run: &Run, is_own: bool, may: impl Fn(Permission) -> bool) -> String {
    let policy = &run.policy;
    let root = if is_own {
        "Paths are relative to its root, `.`.".to_owned()
    } else {
        format!("Its root is `{}`.", tool_formats::ROOT)
    };
    let mut text = format!(
        "Tools to read and change the files of one workspace. {root} A refusal says what to do next. Every call is recorded.\n"
    );
    if is_own && !run.mounts.is_empty() {
        text.push_str("Read-only mounts, for reading tools' `mount`:\n");
        for mount in &run.mounts {
            let _ = writeln!(text, "- {}: {}", mount.name, mount.description);
        }
    }
    globs(&mut text, "Readable", &policy.read, &["**"]);
    let writes = [
        Permission::FileWriteCreate,
        Permission::FileWriteReplace,
        Permission::FilePatchApply,
        Permission::FileDelete,
        Permission::FileMove,
    ];
    if writes.into_iter().any(may) && !(policy.write.is_empty() && policy.ask.is_empty()) {
        changes(&mut text, policy);
        if is_own {
            text.push_str("revert_calls undoes your last change, or with last: N so many.\n");
        }
    } else {
        text.push_str("This run is read-only.\n");
    }
    globs(&mut text, "Never accessible", &policy.deny, &[]);
    text
}

/// What a caller who may change files has to know.
fn changes(text: &mut String, policy: &Policy) {
    text.push_str("Read a file before you change it: a change is refused if the file is not as you last saw it.\n");
    globs(text, "Writable", &policy.write, &["**"]);
    let budget = &policy.budget;
    let _ = writeln!(
        text,
        "Limits of one call: {} files, {} inserted and {} deleted lines, {} deleted files, {} bytes. Split larger changes.",
        budget.max_files_touched,
        budget.max_insertions,
        budget.max_deletions,
        budget.max_files_deleted,
        budget.max_bytes,
    );
    match policy.file_budget {
        Verdict::Allow => text.push_str("A call that only creates one file may insert more lines.\n"),
        Verdict::RequireApproval => {
            text.push_str("A call that only creates one file may insert more lines, if a person approves.\n");
        }
        Verdict::Deny => {}
    }
    if policy.run_budget.is_some() {
        text.push_str("The whole run has limits, too; a refusal names the one that is reached.\n");
    }
    let kinds = |wanted: &[KindDecision]| {
        let chosen = policy.kinds.iter().filter(|(_, decision)| wanted.contains(decision));
        chosen.map(|(kind, _)| kind.as_str()).collect::<Vec<_>>()
    };
    list(text, "Changes to these kinds of files are denied", &kinds(&[KindDecision::Deny, KindDecision::Redact]));
    let mut asks = kinds(&[KindDecision::RequireApproval, KindDecision::RequireEvidence]);
    asks.extend(policy.require_approval_if.iter().map(|trigger| trigger.as_str()));
    asks.extend(policy.ask.iter().take(MAX_GLOBS).map(String::as_str));
    list(text, "A person must approve (the call answers APPROVAL_REQUIRED; go on with other work)", &asks);
    if policy.ignored_files != Verdict::Allow {
        text.push_str("Files that git ignores are not accessible.\n");
    }
}

/// Names globs that restrict the run, but not the default of all paths.
fn globs(text: &mut String, title: &str, globs: &[String], all: &[&str]) {
    if globs.iter().map(String::as_str).eq(all.iter().copied()) {
        return;
    }
    let shown: Vec<_> = globs.iter().take(MAX_GLOBS).map(String::as_str).collect();
    list(text, title, &shown);
    if globs.len() > MAX_GLOBS {
        let _ = writeln!(text, "({} more)", globs.len() - MAX_GLOBS);
    }
}

fn list(text: &mut String, title: &str, names: &[&str]) {
    if !names.is_empty() {
        let _ = writeln!(text, "{title}: {}.", names.join(", "));
    }
}
