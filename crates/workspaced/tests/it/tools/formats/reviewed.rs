//! What a form says of calls at its edges: which path and which member a refusal names, and what a second undo does.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use super::said;
use crate::harness::{Backend, Run};

#[rstest]
#[tokio::test]
async fn a_refusal_of_memory_names_paths_and_members_that_memory_has(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.md", "a\n"), ("b.md", "b\n"), ("d/c.md", "c\n")]).await;
    let memory = async |input: Value| said(&run, "anthropic-memory", "memory", input).await;
    let rename = |to: &str| json!({"command": "rename", "old_path": "/memories/a.md", "new_path": to});
    for (to, taken) in [("/memories/b.md", "/memories/b.md"), ("/memories/d", "/memories/d")] {
        let text = memory(rename(to)).await;
        assert!(text.starts_with(&format!("The destination {taken} already exists\n")), "{text}");
        assert!(!text.contains("`to`"), "{text}");
    }
    assert!(memory(rename("/memories/b.md")).await.contains("Choose another path in `new_path`."));
    for (to, want) in [
        ("/memories", "/memories is the root of all files"),
        ("/memories/a.md", "`old_path` and `new_path` are the same path"),
    ] {
        let text = memory(rename(to)).await;
        assert!(text.starts_with("INVALID_REQUEST: ") && text.contains(want), "{text}");
    }
    let into = json!({"command": "rename", "old_path": "/memories/d", "new_path": "/memories/d/e"});
    let text = memory(into).await;
    assert!(text.contains("`new_path`") && !text.contains("`to`"), "{text}");
    let exists = memory(json!({"command": "create", "path": "/memories/a.md", "file_text": "x"})).await;
    assert!(exists.starts_with("File /memories/a.md already exists") && exists.contains("str_replace"), "{exists}");
    assert!(!exists.contains("REPLACE_EXISTING"), "{exists}");
    // A path that may have been meant can be given as it is said.
    let missing = memory(json!({"command": "view", "path": "/memories/x/c.md"})).await;
    assert!(missing.starts_with("The path /memories/x/c.md does not exist."), "{missing}");
    assert!(missing.contains("did you mean `/memories/d/c.md`?\n"), "{missing}");
    assert_eq!(run.on_disk("b.md"), "b\n");
}

#[rstest]
#[tokio::test]
async fn a_refusal_names_no_member_that_the_form_has_not(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("src/a.py", "a\n")]).await;
    let edit = json!({"file_path": "/workspace/src/a.py", "old_string": "", "new_string": "x"});
    let exists = said(&run, "claude-code", "Edit", edit).await;
    assert!(exists.contains("change it with Edit") && !exists.contains("REPLACE_EXISTING"), "{exists}");
    let create = json!({"command": "create", "path": "/workspace/src/a.py", "file_text": "x"});
    let exists = said(&run, "swe-agent", "str_replace_editor", create).await;
    assert!(exists.contains("change it with str_replace") && !exists.contains("REPLACE_EXISTING"), "{exists}");
    for (format, folder) in [("gemini", "dir_path"), ("qwen", "path")] {
        for tool in ["glob", "grep_search"] {
            let text = said(&run, format, tool, json!({"pattern": "a", folder: [1]})).await;
            assert!(text.contains(&format!("parameter `{folder}` for")), "{text}");
        }
        let text = said(&run, format, "list_directory", json!({})).await;
        assert!(text.contains(&format!("parameter `{folder}` is required")), "{text}");
    }
    let missing = said(&run, "claude-code", "Read", json!({"file_path": "/workspace/lib/a.py"})).await;
    assert!(missing.starts_with("File does not exist; did you mean `/workspace/src/a.py`?\n"), "{missing}");
    let patch = "*** Begin Patch\n*** Add File: /etc/x\n+1\n*** End Patch\n";
    let outside = said(&run, "codex", "apply_patch", json!(patch)).await;
    assert!(outside.starts_with("PATH_REJECTED: Path must start with /workspace, got: /etc/x\nGive"), "{outside}");
    // Anthropic's own reader takes lines before the first as the first.
    let text = said(&run, "anthropic-toolset", "read", json!({"file_path": "src/a.py", "view_range": [0, 5]})).await;
    assert_eq!(text, "a\n");
}

#[rstest]
#[tokio::test]
async fn undoing_again_undoes_the_edit_before(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.py", "1\n")]).await;
    let path = "/workspace/a.py";
    let edit = async |input: Value| said(&run, "swe-agent", "str_replace_editor", input).await;
    let change = |old: &str, new: &str| json!({"command": "str_replace", "path": path, "old_str": old, "new_str": new});
    let undo = json!({"command": "undo_edit", "path": path});
    edit(json!({"command": "view", "path": path})).await;
    for (old, new) in [("1", "2"), ("2", "3")] {
        edit(change(old, new)).await;
    }
    for want in ["2\n", "1\n"] {
        let undone = edit(undo.clone()).await;
        assert_eq!(undone, "Last edit to /workspace/a.py undone successfully (+1 -1).\n");
        assert_eq!(run.on_disk("a.py"), want);
    }
    assert_eq!(edit(undo.clone()).await.lines().next(), Some("No edit history found for /workspace/a.py."));
    // An edit after an undo is the last one, and then that before the undone one.
    edit(change("1", "4")).await;
    edit(change("4", "5")).await;
    edit(undo.clone()).await;
    edit(change("4", "6")).await;
    for want in ["4\n", "1\n"] {
        edit(undo.clone()).await;
        assert_eq!(run.on_disk("a.py"), want);
    }
    assert!(edit(undo).await.starts_with("No edit history found for"));
    assert_eq!(run.on_disk("a.py"), "1\n");
}

#[rstest]
#[tokio::test]
async fn a_missing_permission_is_said_in_text(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.md", "a\n")]).await;
    let tokens = format!("/v1/runs/{}/tokens", run.id);
    let issued = server.operator().post(&tokens, json!({"permissions": ["file:read"]})).await.is(201);
    let reader = Run { agent: run.agent.with_token(issued["token"].as_str()), ..run.clone() };
    // The root is a folder, which is no secret: what lacks is the permission.
    let root = json!({"command": "view", "path": "/workspace"});
    let text = said(&reader, "anthropic-editor", "str_replace_based_edit_tool", root).await;
    assert!(text.starts_with("FORBIDDEN: the token lacks the permission file:list"), "{text}");
    let write = json!({"file_path": "b.md", "content": "b"});
    let text = said(&reader, "claude-code", "Write", write.clone()).await;
    assert!(text.starts_with("FORBIDDEN: the token lacks the permission file:write"), "{text}");
    let path = format!("/v1/runs/{}/formats/claude-code/Write", run.id);
    let request = reader.agent.request(Method::POST, &path).header("accept", "text/plain").json(&write);
    let answer = reader.agent.send(request).await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().starts_with("FORBIDDEN: the token lacks the permission file:write"), "{}", answer.text());
}

#[rstest]
#[tokio::test]
async fn a_snippet_shows_no_more_than_its_reader_may_read(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let files = [("a.md", "one\ntwo\n"), ("shut/b.md", "one\ntwo\n")];
    let server = crate::harness::Server::shared(backend).await;
    let policy = json!({"policy": {"read": ["a.md"], "write": ["**"]}});
    let run = server.run_with_files(&files, policy).await;
    let edit = |path: &str| json!({"command": "str_replace", "path": path, "old_str": "one", "new_str": "1"});
    let tool = "str_replace_based_edit_tool";
    let tokens = format!("/v1/runs/{}/tokens", run.id);
    let issued = server.operator().post(&tokens, json!({"permissions": ["file:write:replace"]})).await.is(201);
    let writer = Run { agent: run.agent.with_token(issued["token"].as_str()), ..run.clone() };
    let blind = said(&writer, "anthropic-editor", tool, edit("/workspace/a.md")).await;
    assert_eq!(blind, "The file /workspace/a.md has been edited (+1 -1).\n");
    let shut = said(&run, "anthropic-editor", tool, edit("/workspace/shut/b.md")).await;
    assert!(!shut.contains("two"), "{shut}");
}
