//! What a form does as its original does: how patches are compared, how searches are paged, which files are read.

use rstest::rstest;
use serde_json::{Value, json};

use super::{call, said};
use crate::harness::{Backend, Run};

/// Text that models write with the punctuation of ASCII.
const TYPESET: &str = "say(\u{201c}a\u{201d}) \u{2014} 1\t\n  next\u{a0}line\nend";
const HUNK: &str = "@@\n say(\"a\") - 1\n-  next line\n+  new line\n";

fn update(path: &str, hunks: &str) -> String {
    format!("*** Begin Patch\n*** Update File: {path}\n{hunks}*** End Patch\n")
}

#[rstest]
#[tokio::test]
async fn patches_of_codex_and_v4a_are_compared_as_their_originals_do(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let files = [("codex.txt", TYPESET), ("v4a.txt", TYPESET), ("own.txt", TYPESET), ("package-lock.json", TYPESET)];
    let (_server, run) = Run::shared(backend, &files).await;
    let changed = "say(\u{201c}a\u{201d}) \u{2014} 1\t\n  new line\nend\n";
    let here = format!("apply_patch <<'EOF'\n{}EOF\n", update("/workspace/codex.txt", HUNK));
    let text = said(&run, "codex", "apply_patch", json!(here)).await;
    let warning = "warning: hunks of codex.txt differ from the file in blanks or punctuation";
    assert!(text.starts_with(&format!("Success. Updated the following files:\nM codex.txt\n{warning}")), "{text}");
    assert_eq!(run.on_disk("codex.txt"), changed);
    let operation = json!({"operation": {"type": "update_file", "path": "v4a.txt", "diff": HUNK}});
    call(&run, "openai-apply-patch", "apply_patch", operation).await.ok();
    assert_eq!(run.on_disk("v4a.txt"), changed);
    // A person who approves it approves the same change.
    let waits = call(&run, "codex", "apply_patch", json!(update("package-lock.json", HUNK))).await;
    assert_eq!(waits.status, 202, "{}", waits.text());
    let approvals = run.operator.get(&format!("/v1/approvals?state=pending&run={}", run.id)).await.ok();
    let approve = format!("/v1/approvals/{}/approve", approvals["items"][0]["approvalId"].as_str().unwrap());
    assert_eq!(run.operator.post(&approve, json!({"decidedBy": "ada"})).await.ok()["state"], "approved");
    assert_eq!(run.on_disk("package-lock.json"), changed);
    // The tool itself applies nothing with fuzz.
    run.patch(&update("own.txt", HUNK)).await.refused("PATCH_CONFLICT");
    assert_eq!(run.on_disk("own.txt"), TYPESET);
    let twice = "a \na\t\n";
    run.create("twice.txt", twice).await;
    let text = said(&run, "codex", "apply_patch", json!(update("twice.txt", "@@\n-a\n+b\n"))).await;
    assert!(text.contains("occurs 2 times"), "{text}");
    assert_eq!(run.on_disk("twice.txt"), twice);
}

#[rstest]
#[tokio::test]
async fn what_a_patch_or_an_edit_has_too_much_is_named(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("m.txt", "a\nb\nc\nd\n")]).await;
    let patch = async |hunks: &str| {
        run.text("apply_patch", json!({"patch": update("m.txt", hunks), "reason": "to try"})).await.text()
    };
    let order = patch("@@\n-c\n+C\n@@\n-a\n+A\n").await;
    assert!(order.contains("hunk 2: its line occurs only at line 1, before an earlier hunk"), "{order}");
    assert!(order.contains("Put the hunks of each file in the order of the file.") && !order.contains("expected:"));
    for numbered in ["@@\n 1  a\n-2  b\n+2  B\n", "@@\n-     2\tb\n+     2\tB\n"] {
        let text = patch(numbered).await;
        assert!(text.contains("its lines begin with line numbers"), "{text}");
    }
    let edit = json!({"path": "m.txt", "oldString": "2  b\n3  c", "newString": "2  B\n3  c", "reason": "to try"});
    let text = run.text("edit_file", edit).await.text();
    assert!(text.starts_with("EDIT_NOT_FOUND: ") && text.contains("begin with line numbers"), "{text}");
    let input = json!({"file_path": "/workspace/m.txt", "old_string": "     2\tb", "new_string": "     2\tB"});
    let text = said(&run, "claude-code", "Edit", input).await;
    assert!(text.contains("begin with line numbers, which the file does not have"), "{text}");
    // Headers that end as the first line does.
    let closed = "*** Begin Patch ***\n*** Update File: m.txt ***\n@@\n-b\n+B\n*** End Patch ***\n";
    assert!(!said(&run, "codex", "apply_patch", json!(closed)).await.contains("PATCH_INVALID"));
    let own = run.text("apply_patch", json!({"patch": closed, "reason": "r"})).await.text();
    assert!(!own.contains("PATCH_INVALID"), "{own}");
    assert_eq!(run.on_disk("m.txt"), "a\nB\nc\nd\n");
}

#[rstest]
#[tokio::test]
async fn grep_of_claude_code_reaches_the_last_match(#[values(Backend::Sqlite)] backend: Backend) {
    let many = (1..=2500).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
    let files = [("a/many.txt", many.as_str()), ("b.md", "line\nline\n"), ("c.txt", "line\n"), ("d.txt", "other\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    let grep = async |mut input: Value| {
        input["pattern"] = json!("line");
        said(&run, "claude-code", "Grep", input).await
    };
    let content =
        |offset: usize, limit: usize| json!({"output_mode": "content", "offset": offset, "head_limit": limit});
    let first = grep(content(0, 2)).await;
    assert!(first.starts_with("/workspace/a/many.txt:1:line 1\n/workspace/a/many.txt:2:line 2\n["), "{first}");
    assert!(first.ends_with("continue with offset=2]\n"), "{first}");
    let later = grep(content(1500, 2)).await;
    assert!(later.starts_with("/workspace/a/many.txt:1501:line 1501\n/workspace/a/many.txt:1502:"), "{later}");
    assert!(later.ends_with("continue with offset=1502]\n"), "{later}");
    let last = grep(content(2499, 10)).await;
    let rest = "/workspace/a/many.txt:2500:line 2500\n/workspace/b.md:1:line\n/workspace/b.md:2:line\n/workspace/c.txt:1:line\n";
    assert_eq!(last, rest);
    assert_eq!(grep(content(2503, 10)).await, "[2,503 lines in all, none after offset=2503]\n");
    assert_eq!(grep(content(9999, 10)).await, "[2,503 lines in all, none after offset=9999]\n");
    // A file with many matches hides no other, and each is on one page.
    assert_eq!(grep(json!({})).await, "/workspace/a/many.txt\n/workspace/b.md\n/workspace/c.txt\n");
    let second = grep(json!({"offset": 1, "head_limit": 1})).await;
    assert_eq!(second, "/workspace/b.md\n[1 line more; continue with offset=2]\n");
    assert_eq!(grep(json!({"offset": 3})).await, "[3 lines in all, none after offset=3]\n");
    // Counts stop with the matches, and say so.
    let counts = |offset: usize| json!({"output_mode": "count", "offset": offset});
    let stopped =
        "[stopped after 1,000 matches, so that the last count is too low; search a folder below it, or for less]\n";
    assert_eq!(grep(counts(0)).await, format!("/workspace/a/many.txt:1000\n{stopped}"));
    assert_eq!(grep(counts(1)).await, format!("[1 line, none after offset=1]\n{stopped}"));
    // With lines around matches, parts are of lines.
    let around = json!({"output_mode": "content", "path": "b.md", "-C": 1, "offset": 1});
    assert_eq!(grep(around).await, "/workspace/b.md:2:line\n");
    let names = said(&run, "gemini", "grep_search", json!({"pattern": "line", "names_only": true})).await;
    assert_eq!(names, "/workspace/a/many.txt\n/workspace/b.md\n/workspace/c.txt\n");
    // Globs exclude, as for ripgrep.
    assert_eq!(grep(json!({"glob": "!*.md"})).await, "/workspace/a/many.txt\n/workspace/c.txt\n");
    assert_eq!(grep(json!({"glob": "*.md,*.txt !/workspace/a/**"})).await, "/workspace/b.md\n/workspace/c.txt\n");
    for (format, member) in [("gemini", "include_pattern"), ("qwen", "glob")] {
        let text = said(&run, format, "grep_search", json!({"pattern": "line", member: "!many.txt"})).await;
        assert!(text.contains("b.md") && !text.contains("many.txt"), "{text}");
    }
    let own = run.ok("search_text", json!({"query": "line", "includeGlob": ["*.txt", "!m*"], "skip": 0})).await;
    assert_eq!((own["matches"].as_array().unwrap().len(), &own["matches"][0]["path"]), (1, &json!("c.txt")));
    let own = run.ok("find_files", json!({"glob": ["*.txt", "!m*"]})).await;
    assert_eq!(own["entries"].as_array().unwrap().len(), 2);
    // A program goes on with either.
    let part = json!({"query": "line", "skip": 2498, "maxMatches": 2});
    let part = run.ok("search_text", part).await;
    assert_eq!((&part["matchesSkipped"], &part["matches"][1]["line"]), (&json!(2498), &json!(2500)));
    let next = json!({"query": "line", "maxMatches": 2, "cursor": part["nextCursor"]});
    assert_eq!(run.ok("search_text", next).await["matches"][0]["path"], "b.md");
}

#[rstest]
#[tokio::test]
async fn gemini_reads_many_files_by_paths_and_globs(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("a.md", "# A\n"),
        ("docs/b.md", "# B\n"),
        ("src/c.ts", "c\n"),
        ("src/c.test.ts", "t\n"),
        (".env", "KEY=value\n"),
    ];
    let (server, run) = Run::shared(backend, &files).await;
    let read = async |input: Value| said(&run, "gemini", "read_many_files", input).await;
    assert_eq!(
        read(json!({"include": ["/workspace/a.md", "src/*.ts"], "exclude": ["**/*.test.ts"]})).await,
        "--- /workspace/a.md ---\n\n# A\n\n--- /workspace/src/c.ts ---\n\nc\n\n--- End of content ---\n"
    );
    let record = run.last_record().await;
    assert_eq!((&record["tool"], &record["format"]), (&json!("read_files"), &json!("gemini")));
    assert_eq!(record["pathsRead"], json!(["a.md", "src/c.ts"]));
    // What is named by its path is excluded too.
    assert_eq!(
        read(json!({"include": ["a.md", "src/c.ts", "docs/b.md"], "exclude": ["a.md", "docs/**"]})).await,
        "--- /workspace/src/c.ts ---\n\nc\n\n--- End of content ---\n"
    );
    // A glob without a folder is of the root, and names what is refused.
    assert_eq!(read(json!({"include": ["*.md", "docs/"]})).await.matches("--- /workspace/").count(), 2);
    assert!(!read(json!({"include": ["*.md"]})).await.contains("docs"));
    let some = read(json!({"include": ["a.md", ".env", "none.md"]})).await;
    assert!(
        some.ends_with(
            "[not read: /workspace/.env: POLICY_DENIED_SECRET]\n[not read: /workspace/none.md: NOT_FOUND]\n"
        )
    );
    assert!(read(json!({"include": ["lib/**"]})).await.starts_with("NOT_FOUND: no files match `include`"));
    assert!(read(json!({"include": []})).await.contains("parameter `include` is required"));
    assert!(read(json!({"include": ["/etc/*"]})).await.starts_with("PATH_REJECTED: "));
    let tokens = format!("/v1/runs/{}/tokens", run.id);
    let issued = server.operator().post(&tokens, json!({"permissions": ["file:read"]})).await.is(201);
    let reader = Run { agent: run.agent.with_token(issued["token"].as_str()), ..run.clone() };
    let text = said(&reader, "gemini", "read_many_files", json!({"include": ["*.md"]})).await;
    assert!(text.starts_with("FORBIDDEN: the token lacks the permission file:list"), "{text}");
    let many: Vec<_> = (0..60).map(|number| (format!("m/{number:02}.txt"), format!("{number}\n"))).collect();
    for (path, content) in &many {
        run.put(path, content);
    }
    run.accept_tree().await;
    let text = read(json!({"include": ["m/**"]})).await;
    assert_eq!(text.matches("--- /workspace/m/").count(), 50);
    assert!(text.ends_with("[10 files more match; narrow include]\n"), "{text}");
}
