//! What a model pays for each form: the tables of `deploy/mcp.md`, and texts beside what they say.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use super::{FORMATS, declared, said};
use crate::harness::{Backend, Run, Runner};

/// The tools that MCP lists, in a format or as our own.
async fn listed(run: &Run, path: &str) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}});
    let request = run.agent.request(Method::POST, path).header("mcp-protocol-version", "2025-06-18");
    run.agent.send(request.json(&body)).await.ok()["result"]["tools"].clone()
}

/// A number with commas, as the tables have it.
fn shown(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

#[rstest]
#[tokio::test]
async fn the_documentation_says_what_each_catalogue_costs(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let bytes = |list: &Value| list.to_string().len();
    let row = |name: &str, api: Option<usize>, mcp: usize| {
        let api = api.map_or_else(String::new, shown);
        format!("| {name} | {api} | {} | {} |", shown(mcp), shown(mcp / 4))
    };
    let mut rows = vec![row("our own", None, bytes(&listed(&run, "/mcp").await))];
    for format in FORMATS {
        let mcp = listed(&run, &format!("/mcp?format={format}")).await;
        rows.push(row(&format!("`{format}`"), Some(bytes(&declared(&run, format).await)), bytes(&mcp)));
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/mcp.md");
    let page = std::fs::read_to_string(root).unwrap();
    let rows = rows.join("\n");
    assert!(page.contains(&rows), "deploy/mcp.md should have the rows\n{rows}");
}

/// Lines of the length that lines of code have.
fn source() -> String {
    let lines = (1..=900).map(|line| format!("    let value_{line} = compute(value_{}, \"some text\");\n", line / 2));
    lines.collect::<Vec<_>>().concat()
}

#[rstest]
#[tokio::test]
async fn the_text_of_a_read_is_hardly_larger_than_the_file(#[values(Backend::Sqlite)] backend: Backend) {
    let content = source();
    let (_server, run) = Run::shared(backend, &[("a.rs", &content)]).await;
    let view = |path: &str| json!({"command": "view", "path": path});
    let file = json!({"file_path": "/workspace/a.rs"});
    for (format, tool, input) in [
        ("anthropic-editor", "str_replace_based_edit_tool", view("/workspace/a.rs")),
        ("anthropic-toolset", "read", file.clone()),
        ("claude-code", "Read", file.clone()),
        ("gemini", "read_file", file.clone()),
        ("qwen", "read_file", file),
    ] {
        let text = said(&run, format, tool, input).await;
        assert!(text.contains("let value_900 ="), "{format}: not the whole file");
        let (text, content) = (text.len(), content.len());
        assert!(text * 100 <= content * 115, "{format}: {text} bytes of text, {content} of content");
    }
}
