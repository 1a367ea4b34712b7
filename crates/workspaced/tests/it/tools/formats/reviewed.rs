//! What a form says of calls at its edges: which path and which member a refusal names.

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use super::said;
use crate::harness::{Backend, Run};

#[rstest]
#[tokio::test]
async fn a_refusal_names_no_member_that_the_form_has_not(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("src/a.py", "a\n")]).await;
    let edit = json!({"file_path": "/workspace/src/a.py", "old_string": "", "new_string": "x"});
    let exists = said(&run, "claude-code", "Edit", edit).await;
    assert!(exists.contains("change it with Edit") && !exists.contains("REPLACE_EXISTING"), "{exists}");
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
