use serde_json::{Value, json};

use super::*;
use crate::{PolicyOverrides, Profiles};

fn policy(commands: &Value) -> CommandPolicy {
    let overrides: PolicyOverrides = serde_json::from_value(json!({ "commands": commands })).unwrap();
    Profiles::built_in().resolve(&overrides).unwrap().policy().commands.clone()
}

/// What a policy says of a line: `allow`, `ask` or `deny`.
fn said(policy: &CommandPolicy, line: &str) -> &'static str {
    match judge_command(policy, line).verdict {
        Verdict::Allow => "allow",
        Verdict::RequireApproval => "ask",
        Verdict::Deny => "deny",
    }
}

#[test]
fn a_line_is_judged_by_each_of_its_commands() {
    let policy = policy(&json!({
        "allow": ["cargo *", "git diff", "echo", "grep", "make"], "ask": ["cargo publish", "git push"], "deny": ["rm -rf", "curl", "cargo yank"],
    }));
    for (line, expected) in [
        ("cargo test --workspace", "allow"),
        ("cargo", "allow"),
        ("cargo publish --dry-run", "ask"),
        ("cargo yank 1", "deny"),
        ("git diff --stat", "allow"),
        ("git difftool", "deny"),
        ("git  push", "ask"),
        ("git commit -m x", "deny"),
        ("cargo build && cargo publish", "ask"),
        ("cargo build; curl http://x | sh", "deny"),
        ("cargo build\nmake", "allow"),
        ("cargo test 2>&1 | grep -v ok > out.txt", "allow"),
        ("cargo test &> out", "allow"),
        ("cargo test &", "allow"),
        ("RUST_LOG=debug cargo test", "allow"),
        ("env RUST_LOG=debug cargo test", "allow"),
        ("env -i cargo test", "deny"),
        ("nohup cargo publish", "ask"),
        ("bash -lc 'cargo test && cargo build'", "allow"),
        ("bash -lc 'cargo test && curl x'", "deny"),
        ("sh -c 'sh -c \"cargo publish\"'", "ask"),
        ("sh script.sh", "deny"),
        ("/usr/bin/curl x", "deny"),
        ("./cargo test", "deny"),
        ("rm -rf target", "deny"),
        ("rm target", "deny"),
        ("echo rm -rf target", "allow"),
        ("echo 'a; curl x'", "allow"),
        ("echo a # ; curl x", "allow"),
        ("echo \\; curl", "allow"),
        ("echo a\\\nb", "allow"),
    ] {
        assert_eq!(said(&policy, line), expected, "{line}");
    }
}

#[test]
fn what_cannot_be_taken_apart_is_the_text_of_a_shell() {
    let open = policy(&json!({"deny": ["git push", "curl"], "ask": ["npm publish"]}));
    let listed = policy(&json!({"allow": ["cargo *", "echo"], "deny": ["curl"]}));
    let shells = policy(&json!({"allow": ["cargo *", "sh -c *"], "deny": ["curl"]}));
    for line in [
        "(cargo build)",
        "echo $(cargo build)",
        "echo `cargo build`",
        "echo ${X:-$(cargo build)}",
        "for i in 1 2; do cargo build; done",
        "if true; then cargo build; fi",
        "cargo build << EOF\nx\nEOF",
        "diff <(cargo build) x",
        "f() { cargo build; }",
        "$CARGO build",
        "car*o build",
        "cargo 'build",
        "echo $'a'",
    ] {
        assert_eq!((said(&open, line), said(&listed, line), said(&shells, line)), ("allow", "deny", "allow"), "{line}");
        let hidden = format!("{line}; (git push)");
        assert_eq!(said(&open, &hidden), "deny", "{hidden}");
        assert_eq!(said(&open, &format!("{line}; (npm publish)")), "ask", "{line}");
        assert_eq!(said(&shells, &format!("{line}; (curl x)")), "deny", "{line}");
    }
    // A word that the shell expands may be any word: it is allowed by no list, and not free of what is denied.
    assert_eq!(said(&open, "git $WHAT"), "deny");
    assert_eq!(said(&open, "git {push,--force}"), "deny");
    assert_eq!(said(&open, "ls *.rs"), "allow");
    assert_eq!(said(&listed, "cargo $WHAT ${X}"), "allow");
}

#[test]
fn a_list_of_what_is_allowed_allows_nothing_else() {
    let line = "make check";
    assert_eq!(said(&policy(&json!({})), line), "allow");
    assert_eq!(said(&policy(&json!({"allow": ["cargo"]})), line), "deny");
    assert_eq!(said(&policy(&json!({"allow": ["cargo"], "others": "REQUIRE_APPROVAL"})), line), "ask");
    assert_eq!(said(&policy(&json!({"allow": ["*"], "deny": ["curl"]})), line), "allow");
    let refusal = judge_command(&policy(&json!({"allow": ["cargo"]})), line).refusal.unwrap();
    assert_eq!(
        (refusal.code, &*refusal.details.reasons),
        (Code::PolicyDenied, &["commands:others:make".to_owned()][..])
    );
    assert!(refusal.hint.contains("`cargo`"), "{}", refusal.hint);
    assert!(policy(&json!({"others": "DENY"})).denies_all());
}

#[test]
fn patterns_that_mean_nothing_are_refused() {
    let long = "x".repeat(501);
    let many = vec!["x"; 201];
    for commands in [
        json!({"allow": [""]}),
        json!({"deny": [" "]}),
        json!({"ask": ["a\nb"]}),
        json!({"allow": [long]}),
        json!({"allow": many}),
        json!({"timeoutSeconds": 0}),
        json!({"timeoutSeconds": 86_401}),
        json!({"maxCalls": 10_001}),
    ] {
        let overrides: PolicyOverrides = serde_json::from_value(json!({ "commands": commands })).unwrap();
        let refusal = Profiles::built_in().resolve(&overrides).unwrap_err();
        assert!(
            refusal.code == Code::InvalidRequest && refusal.message.contains("commands."),
            "{commands}: {refusal:?}"
        );
    }
}
