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
        ("cargo test > out 2>&1", "allow"),
        ("cargo test \\\n  --workspace", "allow"),
        ("cargo test &", "allow"),
        ("RUST_LOG=debug cargo test", "deny"),
        ("env RUST_LOG=debug cargo test", "deny"),
        ("PATH=.; cargo test", "deny"),
        ("nohup cargo test", "allow"),
        ("> a.txt", "deny"),
        ("# nothing", "deny"),
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
        "cargo build &> out",
        "cargo build >& out",
        "cargo build \u{a0}#",
        "cargo build \r#",
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

/// What was tried to get past a list of what is denied, or of what is allowed.
#[test]
fn nothing_passes_by_the_way_it_is_written() {
    let open = policy(&json!({"deny": ["git push"]}));
    for line in [
        "git \\\n push",
        "\\\n git push",
        "echo \\\n#'\ngit push\n#'",
        "bash -c -- 'git push'",
        "sh -c -e 'git push'",
        "bash -o pipefail -c 'git push'",
        "bash -euo pipefail -c 'git push'",
        "X=git; $X push",
        "/usr/bin/gi? push",
        "{git,push}",
        "(g''it push)",
        "env -i git push",
        "env -S 'git push'",
        "command -p git push",
        "time -p git push",
        "timeout 5 git push",
        "eval git push",
        "builtin command git push",
        "xargs git push",
        "GIT_DIR=x git push",
        "env A=b git push",
        "/usr/bin/git push",
        "echo a &>/tmp/o git push",
        "echo x\r#; git push",
        "echo x\u{a0}#; git push",
        "git $X",
    ] {
        assert_eq!(said(&open, line), "deny", "{line}");
    }
    let listed = policy(&json!({"allow": ["echo *", "cargo *"]}));
    for line in [
        "echo x\r#; git push",
        "echo x\u{a0}#; git push",
        "echo \\\n#'\ngit push\n#'",
        "echo a &>/tmp/o git push",
        "echo a >& b git push",
        "bash -norc 'cargo test'",
        "PATH=.:$PATH cargo test",
        "env PATH=. cargo test",
        "$CARGO build",
        "car*o build",
        "X=1",
    ] {
        assert_eq!(said(&listed, line), "deny", "{line}");
    }
    let named = policy(&json!({"allow": ["RUST_LOG=* cargo *"]}));
    assert_eq!((said(&named, "RUST_LOG=debug cargo test"), said(&named, "PATH=. cargo test")), ("allow", "deny"));
    let read_only = policy(&json!({"others": "DENY"}));
    for line in ["> a.txt", "X=1", "# hi", "true"] {
        assert_eq!(said(&read_only, line), "deny", "{line}");
    }
}

#[test]
fn a_hostile_line_is_judged_in_bounded_space() {
    let open = policy(&json!({"deny": ["git push"], "ask": ["npm publish"]}));
    assert_eq!(said(&open, &"env ".repeat(4095)), "allow");
    assert_eq!(said(&open, &format!("{}git push", "env ".repeat(4000))), "deny");
    let many = judge_command(
        &policy(&json!({"allow": ["x"]})),
        &(0..2000).map(|n| format!("p{n}")).collect::<Vec<_>>().join(";"),
    );
    assert!(many.verdict == Verdict::Deny && many.reasons.len() <= 8, "{:?}", many.reasons);
}
