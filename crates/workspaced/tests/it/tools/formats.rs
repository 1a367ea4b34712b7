//! Tools in the forms that models were trained on: their declarations, a script of calls in each, and what is recorded.

mod equivalence;
mod originals;
mod reviewed;
mod sizes;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, Runner, Server, sha256};

const FORMATS: [&str; 7] =
    ["anthropic-editor", "anthropic-toolset", "claude-code", "openai-apply-patch", "codex", "gemini", "qwen"];

const SOURCE: &str = "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return a + a\n";
const FILES: [(&str, &str); 5] = [
    ("src/calc.py", SOURCE),
    ("src/deep/x.txt", "needle one\nneedle two\n"),
    ("README.md", "# Calc\n"),
    (".env", "KEY=value\n"),
    ("package-lock.json", "{}\n"),
];
const EDITED: &str = "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return a + a\n";

/// Calls a tool in a format as the agent.
pub(super) async fn call(run: &Run, format: &str, tool: &str, input: Value) -> Answer {
    let path = format!("/v1/runs/{}/formats/{format}/{tool}", run.id);
    run.agent.send(run.agent.request(Method::POST, &path).json(&input)).await
}

/// Calls a tool in a format and returns what goes back to the model.
async fn said(run: &Run, format: &str, tool: &str, input: Value) -> String {
    let answer = call(run, format, tool, input).await;
    assert!(answer.header("content-type").starts_with("text/plain"), "{}: {}", answer.what, answer.text());
    answer.text()
}

/// What the provider's API takes as its list of tools.
async fn declared(run: &Run, format: &str) -> Value {
    run.agent.get(&format!("/v1/tools?format={format}")).await.ok()["items"].clone()
}

/// The names of functions, and those of the members of their inputs.
fn functions(items: &Value) -> Vec<(String, Vec<String>)> {
    let of = |item: &Value| {
        let function = item.get("function").unwrap_or(item);
        let schemas = ["parameters", "input_schema", "parametersJsonSchema", "inputSchema"];
        let schema = schemas.iter().find_map(|name| function.get(*name)).unwrap();
        assert_eq!(schema["type"], "object", "{item:#}");
        assert!(function["description"].as_str().is_some_and(|text| text.len() < 340), "{item:#}");
        let members = schema["properties"].as_object().unwrap().keys().cloned().collect();
        (function["name"].as_str().unwrap().to_owned(), members)
    };
    items.as_array().unwrap().iter().map(of).collect()
}

fn shaped(table: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
    let of = |(name, members): &(&str, &str)| {
        let mut members: Vec<_> = members.split(' ').map(str::to_owned).collect();
        members.sort_unstable();
        ((*name).to_owned(), members)
    };
    table.iter().map(of).collect()
}

#[rstest]
#[tokio::test]
async fn a_declaration_is_what_the_api_of_the_provider_takes(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let declared = async |format| declared(&run, format).await;
    assert_eq!(
        declared("anthropic-editor").await,
        json!([{"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}])
    );
    assert_eq!(declared("openai-apply-patch").await, json!([{"type": "apply_patch"}]));
    let enabled = |name: &str, enabled: bool| json!({"name": name, "enabled": enabled});
    // There is no runner, and nothing of the web.
    assert_eq!(
        declared("anthropic-toolset").await,
        json!([{"type": "agent_toolset_20260401", "configs": [
            enabled("bash", false), enabled("read", true), enabled("write", true), enabled("edit", true),
            enabled("glob", true), enabled("grep", true), enabled("web_fetch", false), enabled("web_search", false),
        ]}])
    );
    let codex = declared("codex").await;
    assert_eq!(codex.as_array().unwrap().len(), 1, "{codex:#}");
    assert_eq!((&codex[0]["type"], &codex[0]["name"]), (&json!("custom"), &json!("apply_patch")));
    assert_eq!((&codex[0]["format"]["type"], &codex[0]["format"]["syntax"]), (&json!("grammar"), &json!("lark")));
    let grammar = codex[0]["format"]["definition"].as_str().unwrap();
    for mark in ["*** Begin Patch", "*** Add File: ", "*** Move to: ", "*** End of File", "*** End Patch"] {
        assert!(grammar.contains(mark), "{grammar}");
    }
    assert_eq!(
        functions(&declared("claude-code").await),
        shaped(&[
            ("Read", "file_path offset limit"),
            ("Edit", "file_path old_string new_string replace_all"),
            ("Write", "file_path content"),
            ("Glob", "pattern path"),
            ("Grep", "pattern path glob type output_mode -A -B -C -n -i head_limit offset multiline"),
        ])
    );
    let gemini = declared("gemini").await;
    assert_eq!(gemini.as_array().unwrap().len(), 1, "{gemini:#}");
    assert_eq!(
        functions(&gemini[0]["functionDeclarations"]),
        shaped(&[
            ("list_directory", "dir_path ignore file_filtering_options"),
            ("read_file", "file_path start_line end_line"),
            ("read_many_files", "include exclude"),
            ("write_file", "file_path content"),
            ("glob", "pattern dir_path"),
            (
                "grep_search",
                "pattern dir_path include_pattern names_only case_sensitive fixed_strings context max_matches_per_file total_max_matches"
            ),
            ("replace", "file_path instruction old_string new_string allow_multiple"),
        ])
    );
    let qwen = declared("qwen").await;
    assert!(qwen.as_array().unwrap().iter().all(|item| item["type"] == "function"), "{qwen:#}");
    assert_eq!(
        functions(&qwen),
        shaped(&[
            ("list_directory", "path ignore file_filtering_options"),
            ("read_file", "file_path offset limit"),
            ("write_file", "file_path content"),
            ("glob", "pattern path"),
            ("grep_search", "pattern path glob limit"),
            ("edit", "file_path old_string new_string replace_all"),
        ])
    );
    for (flags, flat, strict) in [
        ("openai&flat=true", true, false),
        ("openai&strict=true", false, true),
        ("openai&flat=true&strict=true", true, true),
    ] {
        let items = declared(flags).await;
        assert_eq!(items.as_array().unwrap().len(), 15, "{flags}");
        for item in items.as_array().unwrap() {
            let function = if flat { item } else { &item["function"] };
            assert_eq!((&item["type"], &function["strict"]), (&json!("function"), &json!(strict)), "{item:#}");
            if strict {
                assert_strict(&function["parameters"]);
            }
        }
    }
    for other in ["format=anthropic&flat=true", "format=codex&strict=true"] {
        run.agent.get(&format!("/v1/tools?{other}")).await.refused("INVALID_REQUEST");
    }
}

/// Asserts what `OpenAI` requires of a schema that it enforces.
fn assert_strict(schema: &Value) {
    let allowed = ["type", "description", "properties", "required", "additionalProperties", "items", "enum"];
    for key in schema.as_object().unwrap().keys() {
        assert!(allowed.contains(&key.as_str()), "{key} in {schema:#}");
    }
    if let Some(properties) = schema["properties"].as_object() {
        let names: Vec<_> = properties.keys().collect();
        assert_eq!(schema["required"], json!(names), "{schema:#}");
        assert_eq!(schema["additionalProperties"], false, "{schema:#}");
        properties.values().for_each(assert_strict);
    }
    if schema["items"].is_object() {
        assert_strict(&schema["items"]);
    }
}

#[rstest]
#[tokio::test]
async fn an_unknown_format_is_refused_with_the_names_of_all(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let list = run.agent.get("/v1/tools?format=emacs").await.refused("INVALID_REQUEST");
    let called = call(&run, "emacs", "view", json!({})).await.refused("INVALID_REQUEST");
    let mcp = run.agent.send(run.agent.request(Method::POST, "/mcp?format=emacs").json(&json!({}))).await.is(400);
    for name in FORMATS {
        let texts = [&list["message"], &called["hint"], &mcp["error"]["data"]["message"]];
        assert!(texts.iter().all(|text| text.as_str().unwrap().contains(name)), "{name}: {texts:?}");
    }
    let tool = call(&run, "claude-code", "read_file", json!({})).await.refused("TOOL_NOT_FOUND");
    assert!(tool["hint"].as_str().unwrap().contains("Read, Edit, Write"), "{tool}");
}

#[rstest]
#[tokio::test]
async fn the_editor_of_anthropic_does_a_task(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let edit = async |input: Value| said(&run, "anthropic-editor", "str_replace_based_edit_tool", input).await;
    let path = "/workspace/src/calc.py";
    assert_eq!(
        edit(json!({"command": "view", "path": "/workspace"})).await,
        "Here're the files and directories up to 2 levels deep in /workspace, excluding hidden items:\n\
         /workspace/README.md\n/workspace/package-lock.json [lockfile]\n/workspace/src/\n/workspace/src/calc.py\n/workspace/src/deep/\n\
         [1 hidden not shown]\n"
    );
    let text =
        edit(json!({"command": "str_replace", "path": path, "old_str": "return a * b", "new_str": "return a + b"}))
            .await;
    assert!(
        text.starts_with(
            "No replacement was performed, old_str `return a * b` did not appear verbatim in /workspace/src/calc.py.\n"
        ),
        "{text}"
    );
    assert!(text.contains("nearest at line 2:") && !text.contains("oldString"), "{text}");
    assert_eq!(
        edit(json!({"command": "view", "path": path, "view_range": [1, 2]})).await,
        "Here's the result of running `cat -n` on /workspace/src/calc.py:\n     1\tdef add(a, b):\n     2\t    return a - b\n\
         [lines 1-2 of 6; continue with view_range=[3, -1]]\n"
    );
    assert!(
        edit(json!({"command": "view", "path": path, "view_range": [5, -1]}))
            .await
            .ends_with("     6\t    return a + a\n")
    );
    let twice = edit(json!({"command": "str_replace", "path": path, "old_str": "    return a", "new_str": "x"})).await;
    assert!(
        twice.starts_with(
            "No replacement was performed. Multiple occurrences of old_str `    return a` in lines: [2, 6]."
        ),
        "{twice}"
    );
    assert!(!twice.contains("replaceAll"), "{twice}");
    let right = json!({"command": "str_replace", "path": path, "old_str": "a - b", "new_str": "a + b"});
    let snippet = "Here's the result of running `cat -n` on a snippet of it:\n";
    assert_eq!(
        edit(right.clone()).await,
        format!(
            "The file /workspace/src/calc.py has been edited (+1 -1).\n{snippet}     1\tdef add(a, b):\n     2\t    return a + b\n\
             {}     5\tdef twice(a):\n",
            "     3\t\n     4\t\n"
        )
    );
    assert_eq!(run.on_disk("src/calc.py"), EDITED);
    let again = edit(right).await;
    assert!(again.contains("already applied") && !again.contains("newString"), "{again}");
    // Lines are inserted in either name of their text.
    let inserted = edit(json!({"command": "insert", "path": path, "insert_line": 0, "insert_text": "# calc"})).await;
    assert_eq!(
        inserted,
        format!(
            "The file /workspace/src/calc.py has been edited (+1 -0).\n{snippet}     1\t# calc\n     2\tdef add(a, b):\n     \
             3\t    return a + b\n     4\t\n"
        )
    );
    let both =
        json!({"command": "insert", "path": path, "insert_line": 7, "new_str": "# end\n", "insert_text": "# end\n"});
    edit(both).await;
    assert_eq!(run.on_disk("src/calc.py"), format!("# calc\n{EDITED}# end\n"));
    let outside = edit(json!({"command": "insert", "path": path, "insert_line": 90, "insert_text": "x"})).await;
    assert!(
        outside.starts_with("Invalid `insert_line` parameter. It should be within the range [0, 8].\n"),
        "{outside}"
    );
    assert_eq!(
        edit(json!({"command": "create", "path": "/workspace/new/a.txt", "file_text": "a\n"})).await,
        "File created successfully at: /workspace/new/a.txt\n"
    );
    // What the token has not seen is not replaced.
    let unseen = edit(json!({"command": "create", "path": "/workspace/README.md", "file_text": "x\n"})).await;
    assert!(unseen.starts_with("WRITE_CONFLICT: ") && unseen.contains("Read it first with view"), "{unseen}");
    edit(json!({"command": "view", "path": "/workspace/README.md"})).await;
    assert_eq!(
        edit(json!({"command": "create", "path": "/workspace/README.md", "file_text": "x\n"})).await,
        "The file /workspace/README.md has been replaced (+1 -1).\n"
    );
    let secret = edit(json!({"command": "view", "path": "/workspace/.env"})).await;
    assert!(secret.starts_with("POLICY_DENIED_SECRET: "), "{secret}");
    let missing = edit(json!({"command": "view", "path": "/workspace/src/calk.py"})).await;
    assert!(
        missing.starts_with("The path /workspace/src/calk.py does not exist. Please provide a valid path"),
        "{missing}"
    );
    for outside in ["/etc/passwd", "/workspacex/a", "/"] {
        let answer =
            call(&run, "anthropic-editor", "str_replace_based_edit_tool", json!({"command": "view", "path": outside}));
        let answer = answer.await;
        assert_eq!(answer.status, 400);
        let text = answer.text();
        assert!(
            text.starts_with(&format!("PATH_REJECTED: Path must start with /workspace, got: {outside}\n")),
            "{text}"
        );
        assert!(text.contains("Give a path under `/workspace`"), "{text}");
    }
    let up = edit(json!({"command": "view", "path": "/workspace/../../etc/passwd"})).await;
    assert!(up.starts_with("PATH_REJECTED: "), "{up}");
    let no_range = edit(json!({"command": "view", "path": "/workspace/src", "view_range": [1, 2]})).await;
    assert!(no_range.contains("`view_range` parameter is not allowed when `path` points to a directory"), "{no_range}");
    for (input, want) in [
        (json!({"command": "undo_edit", "path": path}), "unrecognized command undo_edit"),
        (json!({"command": "create", "path": path}), "parameter `file_text` is required for command: create"),
        (json!({"command": "view", "path": path, "view_range": [2, 1]}), "invalid `view_range`: [2, 1]"),
        (json!({"command": "view", "path": path, "lines": 2}), "there is no parameter `lines` for command: view"),
    ] {
        let text = edit(input).await;
        assert!(text.starts_with("INVALID_REQUEST: ") && text.contains(want), "{text}");
    }
    let folder =
        edit(json!({"command": "str_replace", "path": "/workspace/src", "old_str": "a", "new_str": "b"})).await;
    assert!(folder.starts_with("The path /workspace/src is a directory"), "{folder}");
    assert_recorded(&run, "anthropic-editor").await;
}

/// Asserts that all calls were recorded as those of our tools, in the format, and that the chain is intact.
async fn assert_recorded(run: &Run, format: &str) {
    let calls = run.calls().await;
    assert!(calls.len() > 3);
    for record in &calls {
        assert_eq!(record["format"], format, "{record:#}");
        let ours = run.operator.get("/v1/tools").await.ok();
        let is_ours = ours["items"].as_array().unwrap().iter().any(|tool| tool["name"] == record["tool"]);
        assert!(is_ours, "{record:#}");
        if record["mutates"] == true && record["outcome"] == "ok" {
            assert!(record["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{record:#}");
        }
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_patches_of_openai_do_a_task(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let patch = async |operation: Value, status: u16, state: &str| {
        let item = json!({"type": "apply_patch_call", "id": "apc_1", "call_id": "call_7", "status": "completed", "operation": operation});
        let answer = call(&run, "openai-apply-patch", "apply_patch", item).await;
        assert!(answer.header("content-type").starts_with("application/json"), "{}", answer.text());
        let item = answer.is(status);
        assert_eq!((&item["type"], &item["call_id"]), (&json!("apply_patch_call_output"), &json!("call_7")), "{item}");
        assert_eq!(item["status"], state, "{item}");
        item["output"].as_str().unwrap().to_owned()
    };
    let update = |diff: &str| json!({"type": "update_file", "path": "src/calc.py", "diff": diff});
    let wrong = patch(update("@@ def add(a, b):\n-    return a * b\n+    return a + b\n"), 409, "failed").await;
    assert!(
        wrong.starts_with("apply_patch verification failed: Failed to find expected lines in src/calc.py"),
        "{wrong}"
    );
    let done = patch(update("@@ def add(a, b):\n-    return a - b\n+    return a + b"), 200, "completed").await;
    assert_eq!(done, "Success. Updated the following files:\nM src/calc.py\n");
    assert_eq!(run.on_disk("src/calc.py"), EDITED);
    let created = json!({"type": "create_file", "path": "/workspace/new.txt", "diff": "+one\n+two\n"});
    assert_eq!(patch(created.clone(), 200, "completed").await, "Success. Updated the following files:\nA new.txt\n");
    assert_eq!(run.on_disk("new.txt"), "one\ntwo\n");
    assert!(patch(created, 409, "failed").await.contains("ALREADY_EXISTS"));
    // Lines are those of the diff, which has no headers of its own.
    let invalid = patch(update("@@\n-    return a + b\nreturn\n"), 400, "failed").await;
    assert!(
        invalid.starts_with("apply_patch verification failed: Invalid patch: line 3 of the diff: `return`"),
        "{invalid}"
    );
    assert!(!invalid.contains("*** Begin Patch") && !invalid.contains("+++"), "{invalid}");
    let moved =
        json!({"type": "update_file", "path": "new.txt", "move_to": "moved.txt", "diff": "@@\n-one\n+1\n two\n"});
    patch(moved, 200, "completed").await;
    assert_eq!(run.on_disk("moved.txt"), "1\ntwo\n");
    let deleted = patch(json!({"type": "delete_file", "path": "moved.txt"}), 200, "completed").await;
    assert_eq!(deleted, "Success. Updated the following files:\nD moved.txt\n");
    let secret = json!({"type": "update_file", "path": ".env", "diff": "@@\n-KEY=value\n+KEY=x\n"});
    assert!(patch(secret, 403, "failed").await.starts_with("POLICY_DENIED_SECRET: "));
    // A diff reaches no other file than the operation names.
    for diff in [
        "@@\n-    return a + b\n+    return b\n*** Delete File: README.md\n",
        "@@\n-    return a + b\n+    return b\n\t*** Delete File: README.md\n",
        "*** Move to: other.py\n@@\n-    return a + b\n+    return b\n",
    ] {
        assert!(patch(update(diff), 400, "failed").await.contains("is not that of src/calc.py alone"), "{diff}");
    }
    for (operation, want) in [
        (
            json!({"type": "create_file", "path": "x", "diff": "+a\n *** Delete File: README.md\n"}),
            "is not that of x alone",
        ),
        (json!({"type": "create_file", "path": "x\n*** Delete File: README.md", "diff": "+a\n"}), ""),
        (json!({"type": "rename_file", "path": "x"}), "there is no operation rename_file"),
        (json!({"type": "delete_file", "path": "/etc/passwd"}), "Path must start with /workspace"),
        (json!({"type": "delete_file"}), "parameter `path` is required for command: delete_file"),
    ] {
        let text = patch(operation, 400, "failed").await;
        assert!(text.contains(want), "{text}");
    }
    assert!(run.files().contains_key("README.md"));
    assert_recorded(&run, "openai-apply-patch").await;
}

#[rstest]
#[tokio::test]
async fn the_tools_of_claude_do_a_task(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let claude = async |tool: &str, input: Value| said(&run, "claude-code", tool, input).await;
    let path = "/workspace/src/calc.py";
    assert_eq!(claude("Glob", json!({"pattern": "**/*.py"})).await, "/workspace/src/calc.py\n");
    assert_eq!(claude("Glob", json!({"pattern": "/workspace/src/deep/*"})).await, "/workspace/src/deep/x.txt\n");
    assert_eq!(claude("Glob", json!({"pattern": "*.zig", "path": "/workspace/src"})).await, "No files found\n");
    let unread = claude("Write", json!({"file_path": path, "content": "x"})).await;
    assert!(unread.starts_with("File has not been read yet. Read it first before writing to it.\n"), "{unread}");
    let read = claude("Read", json!({"file_path": path, "offset": 2, "limit": 1})).await;
    assert_eq!(read, "     2\t    return a - b\n[lines 2-2 of 6; continue with offset=3]\n");
    let edit = |old: &str, new: &str| json!({"file_path": path, "old_string": old, "new_string": new});
    let wrong = claude("Edit", edit("a * b", "a + b")).await;
    assert!(wrong.starts_with("String to replace not found in file. String: a * b\n"), "{wrong}");
    let twice = claude("Edit", edit("return", "yield")).await;
    assert!(twice.starts_with("Found 2 matches of the string to replace, but replace_all is false.\n"), "{twice}");
    assert_eq!(
        claude("Edit", edit("a - b", "a + b")).await,
        "The file /workspace/src/calc.py has been updated successfully (+1 -1).\n"
    );
    assert_eq!(run.on_disk("src/calc.py"), EDITED);
    assert_eq!(
        claude("Edit", json!({"file_path": "/workspace/n.txt", "old_string": "", "new_string": "n\n"})).await,
        "The file /workspace/n.txt has been created successfully (+1 -0).\n"
    );
    let exists = claude("Edit", json!({"file_path": path, "old_string": "", "new_string": "n\n"})).await;
    assert!(exists.starts_with("Cannot create new file - file already exists."), "{exists}");
    let stale = run.text("write_file", json!({"path": "n.txt", "content": "m\n", "reason": "r"})).await;
    assert_eq!(stale.status, 200);
    assert_eq!(claude("Grep", json!({"pattern": "NEEDLE (one|two)", "-i": true})).await, "/workspace/src/deep/x.txt\n");
    assert_eq!(
        claude("Grep", json!({"pattern": "needle", "output_mode": "content", "head_limit": 1, "offset": 1})).await,
        "/workspace/src/deep/x.txt:2:needle two\n"
    );
    assert_eq!(
        claude("Grep", json!({"pattern": "needle", "output_mode": "content", "-n": false, "type": "py"})).await,
        "No matches found\n"
    );
    assert_eq!(
        claude("Grep", json!({"pattern": "one", "output_mode": "content", "-A": 1, "glob": "*.{txt,md}"})).await,
        "/workspace/src/deep/x.txt:1:needle one\n/workspace/src/deep/x.txt-2-needle two\n"
    );
    assert_eq!(
        claude("Grep", json!({"pattern": "needle", "output_mode": "count"})).await,
        "/workspace/src/deep/x.txt:2\n"
    );
    assert_eq!(
        claude("Grep", json!({"pattern": "[a-z]", "glob": "src/**", "type": "py", "output_mode": "count"})).await,
        "/workspace/src/calc.py:4\n"
    );
    let nothing = "No matches found\n[0 files searched]\n";
    assert_eq!(claude("Grep", json!({"pattern": "a", "glob": "*.py", "type": "rust"})).await, nothing);
    let nothing = "No matches found\n[0 files searched: no path matches *.cob]\n";
    assert_eq!(claude("Grep", json!({"pattern": "a", "glob": "*.cob"})).await, nothing);
    assert_eq!(
        claude("Grep", json!({"pattern": "one.needle", "multiline": true, "output_mode": "content"})).await,
        "/workspace/src/deep/x.txt:1:needle one\n/workspace/src/deep/x.txt:2:needle two\n"
    );
    let refused = claude("Grep", json!({"pattern": "one\\nneedle"})).await;
    assert!(refused.contains("spans several lines") && refused.contains("Or set `multiline`."), "{refused}");
    assert!(claude("Grep", json!({"pattern": "a", "type": "nosuch"})).await.contains("the type nosuch is not known"));
    assert!(claude("Read", json!({"file_path": "/workspace/none"})).await.starts_with("File does not exist"));
    assert!(
        claude("Read", json!({"file_path": "/workspace/src"}))
            .await
            .starts_with("/workspace/src is a directory, not a file.")
    );
    assert!(claude("Read", json!({"file_path": "/workspace/.env"})).await.starts_with("POLICY_DENIED_SECRET: "));

    let toolset = async |tool: &str, input: Value| said(&run, "anthropic-toolset", tool, input).await;
    assert_eq!(toolset("read", json!({"file_path": "README.md"})).await, "# Calc\n");
    assert_eq!(
        toolset("read", json!({"file_path": path, "view_range": [5, 0]})).await,
        "def twice(a):\n    return a + a\n"
    );
    assert_eq!(toolset("glob", json!({"pattern": "*.txt", "path": "src"})).await, "src/deep/x.txt\n");
    assert_eq!(toolset("grep", json!({"pattern": "needle t"})).await, "src/deep/x.txt:2:needle two\n");
    let edit = |old: &str| json!({"file_path": "src/deep/x.txt", "old_string": old, "new_string": "pin"});
    assert!(toolset("edit", edit("thread")).await.starts_with("edit: old_string not found in src/deep/x.txt\n"));
    assert!(
        toolset("edit", edit("needle"))
            .await
            .starts_with("edit: old_string appears 2 times in src/deep/x.txt (must be unique)\n")
    );
    assert_eq!(toolset("edit", edit("needle one")).await, "edited src/deep/x.txt (1 replacement(s))\n");
    assert_eq!(toolset("write", json!({"file_path": "w.txt", "content": "w\n"})).await, "wrote w.txt (+1 -0)\n");
    assert!(toolset("read", json!({"file_path": "none"})).await.starts_with("read: none: no such file or directory"));
    assert!(toolset("bash", json!({"restart": true})).await.contains("every command runs in a new one"));
}

#[rstest]
#[tokio::test]
async fn the_tools_of_gemini_and_qwen_do_a_task(#[values(Backend::Sqlite)] backend: Backend) {
    for (format, folder, edit_tool, all) in
        [("gemini", "dir_path", "replace", "allow_multiple"), ("qwen", "path", "edit", "replace_all")]
    {
        let (_server, run) = Run::shared(backend, &FILES).await;
        let tool = async |tool: &str, input: Value| said(&run, format, tool, input).await;
        let path = "/workspace/src/calc.py";
        assert_eq!(
            tool("list_directory", json!({folder: "/workspace/", "ignore": ["*.md", "*lock*"]})).await,
            "Directory listing for /workspace/:\n.env [secret]\n[DIR] src\n[2 left out by ignore]\n"
        );
        let unread = tool("write_file", json!({"file_path": path, "content": "x"})).await;
        assert!(unread.starts_with("File has not been read yet."), "{unread}");
        let range =
            if format == "gemini" { json!({"start_line": 1, "end_line": 2}) } else { json!({"offset": 0, "limit": 2}) };
        let next = if format == "gemini" { "start_line=3" } else { "offset=2" };
        let mut read = json!({"file_path": path});
        read.as_object_mut().unwrap().extend(range.as_object().unwrap().clone());
        assert_eq!(
            tool("read_file", read).await,
            format!("def add(a, b):\n    return a - b\n[lines 1-2 of 6; continue with {next}]\n")
        );
        let edit = |old: &str, new: &str| json!({"file_path": path, "old_string": old, "new_string": new});
        let wrong = tool(edit_tool, edit("a * b", "a + b")).await;
        assert!(
            wrong.starts_with("Failed to edit, 0 occurrences found for old_string in /workspace/src/calc.py."),
            "{wrong}"
        );
        assert!(!wrong.contains("oldString"), "{wrong}");
        let twice = tool(edit_tool, edit("return", "yield")).await;
        assert!(twice.starts_with(
            "Failed to edit, expected 1 occurrence(s) but found 2 for old_string in file: /workspace/src/calc.py."
        ));
        assert!(twice.contains(&format!("set {all}.")), "{twice}");
        let shown = if format == "gemini" {
            "Here is the updated code:\n"
        } else {
            "Showing lines 1-5 from the edited file:\n\n---\n\n"
        };
        assert_eq!(
            tool(edit_tool, edit("a - b", "a + b")).await,
            format!(
                "Successfully modified file: /workspace/src/calc.py (1 replacements) (+1 -1).\n{shown}def add(a, b):\n    return a + b\n\n\n\
                 def twice(a):\n"
            )
        );
        assert_eq!(run.on_disk("src/calc.py"), EDITED);
        let create = |name: &str| json!({"file_path": name, "old_string": "", "new_string": "x x\n"});
        assert_eq!(
            tool(edit_tool, create("/workspace/n.txt")).await,
            "Created new file: /workspace/n.txt with provided content.\n"
        );
        assert!(
            tool(edit_tool, create(path))
                .await
                .starts_with("File already exists, cannot create: /workspace/src/calc.py")
        );
        let counted = |count: u64| json!({"file_path": "/workspace/n.txt", "old_string": "x", "new_string": "y", "expected_replacements": count});
        let other = tool(edit_tool, counted(3)).await;
        assert!(other.starts_with("Failed to edit, expected 3 occurrence(s) but found 2 for old_string"), "{other}");
        assert!(tool(edit_tool, counted(2)).await.contains("(2 replacements)"));
        assert_eq!(run.on_disk("n.txt"), "y y\n");
        assert_eq!(
            tool("glob", json!({"pattern": "src/**/*.txt"})).await,
            "Found 1 file(s), newest first:\n/workspace/src/deep/x.txt\n"
        );
        let names: &[&str] =
            if format == "gemini" { &["grep_search", "search_file_content"] } else { &["grep_search"] };
        for name in names {
            assert_eq!(
                tool(name, json!({"pattern": "NEEDLE T"})).await,
                "File: /workspace/src/deep/x.txt\nL2: needle two\n---\n"
            );
        }
        assert!(
            tool("read_file", json!({"file_path": "/workspace/none"}))
                .await
                .starts_with("File not found: /workspace/none")
        );
        assert!(tool("read_file", json!({"file_path": "/workspace/.env"})).await.starts_with("POLICY_DENIED_SECRET: "));
        assert_recorded(&run, format).await;
        if format == "gemini" {
            // What a form says of the reason is the reason.
            let input =
                json!({"file_path": path, "instruction": "multiply", "old_string": "a + b", "new_string": "a * b"});
            tool("replace", input).await;
            assert_eq!(run.last_record().await["reason"], "multiply");
        }
    }
}

#[rstest]
#[tokio::test]
async fn codex_does_a_task(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let patch = async |body: &str| {
        said(&run, "codex", "apply_patch", json!(format!("*** Begin Patch\n{body}*** End Patch\n"))).await
    };
    let update =
        |old: &str| format!("*** Update File: src/calc.py\n@@ def add(a, b):\n-    return {old}\n+    return a + b\n");
    let wrong = patch(&update("a * b")).await;
    assert!(
        wrong.starts_with("apply_patch verification failed: Failed to find expected lines in src/calc.py"),
        "{wrong}"
    );
    let all = format!(
        "{}*** Add File: /workspace/new.txt\n+one\n*** Delete File: src/deep/x.txt\n*** Update File: README.md\n*** Move to: /workspace/docs.md\n@@\n-# Calc\n+# Sum\n",
        update("a - b")
    );
    assert_eq!(
        patch(&all).await,
        "Success. Updated the following files:\nM src/calc.py\nA new.txt\nD src/deep/x.txt\nM docs.md\n"
    );
    assert_eq!((run.on_disk("src/calc.py").as_str(), run.on_disk("docs.md").as_str()), (EDITED, "# Sum\n"));
    assert!(run.files().contains_key("new.txt"));
    // The item of the API, and the function of models without free text.
    for input in [
        json!({"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin Patch\n*** Delete File: new.txt\n*** End Patch"}),
        json!({"input": "*** Begin Patch\n*** Delete File: docs.md\n*** End Patch"}),
    ] {
        assert!(said(&run, "codex", "apply_patch", input).await.starts_with("Success."));
    }
    let outside = patch("*** Delete File: /etc/passwd\n").await;
    assert!(outside.starts_with("PATH_REJECTED: Path must start with /workspace, got: /etc/passwd"), "{outside}");
    assert!(patch("*** Delete File: .env\n").await.starts_with("POLICY_DENIED_SECRET: "));
    for text in ["no patch", "@@ -1 +1 @@\n-a\n+b\n"] {
        let invalid = said(&run, "codex", "apply_patch", json!(text)).await;
        assert!(
            invalid.starts_with("apply_patch verification failed: Invalid patch: line 1 of the patch: "),
            "{invalid}"
        );
        assert!(invalid.contains("`*** Begin Patch`") && !invalid.contains("+++ b/PATH"), "{invalid}");
    }
    assert_recorded(&run, "codex").await;
    for gone in ["new.txt", "src/deep/x.txt", "README.md", "docs.md"] {
        assert!(!run.has(gone).await, "{gone}");
    }
}

#[rstest]
#[tokio::test]
async fn our_own_tools_take_null_as_strict_schemas_have_it(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let read = json!({"path": "README.md", "startLine": null, "maxLines": null, "format": null, "column": null, "encoding": null});
    assert_eq!(run.text("read_file", read).await.text(), "1  # Calc\n");
    let edit = |old: &str| json!({"path": "README.md", "oldString": old, "newString": "Sum", "replaceAll": null, "encoding": null, "reason": "to try"});
    assert!(run.text("edit_file", edit("Kalk")).await.text().starts_with("EDIT_NOT_FOUND: "));
    assert!(run.text("edit_file", edit("Calc")).await.text().starts_with("edited README.md"));
}

#[rstest]
#[tokio::test]
async fn a_call_in_a_format_waits_for_approval_as_any_other(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    said(&run, "claude-code", "Read", json!({"file_path": "/workspace/package-lock.json"})).await;
    let edit = json!({"file_path": "/workspace/package-lock.json", "old_string": "{}", "new_string": "{ }"});
    let path = format!("/v1/runs/{}/formats/claude-code/Edit", run.id);
    let request =
        run.agent.request(Method::POST, &path).header("x-reason", "to space it").header("x-tool-call-id", "mine");
    let waits = run.agent.send(request.json(&edit)).await;
    assert_eq!((waits.status, waits.header("workspaced-call")), (202, "mine"));
    assert!(waits.text().starts_with("APPROVAL_REQUIRED: "), "{}", waits.text());
    let pending = run.last_record().await;
    assert_eq!((&pending["outcome"], &pending["format"]), (&json!("pending"), &json!("claude-code")));
    assert_eq!((&pending["reason"], &pending["toolCallId"]), (&json!("to space it"), &json!("mine")));
    let approvals = run.operator.get("/v1/approvals?state=pending&limit=1000").await.ok();
    let mine =
        approvals["items"].as_array().unwrap().iter().find(|approval| approval["runId"] == json!(run.id)).unwrap();
    let approve = format!("/v1/approvals/{}/approve", mine["approvalId"].as_str().unwrap());
    run.operator.post(&approve, json!({"decidedBy": "ada"})).await.ok();
    let done = run.calls().await.into_iter().rfind(|record| record["tool"] == "edit_file").unwrap();
    assert_eq!((&done["outcome"], &done["format"]), (&json!("ok"), &json!("claude-code")));
    assert_eq!(run.on_disk("package-lock.json"), "{ }\n");
    let next = said(&run, "claude-code", "Glob", json!({"pattern": "*.md"})).await;
    assert!(next.starts_with("approved: package-lock.json (Edit), applied\n"), "{next}");
    // A repeated ID is the same call.
    let request =
        run.agent.request(Method::POST, &path).header("x-reason", "to space it").header("x-tool-call-id", "mine");
    assert_eq!(run.agent.send(request.json(&edit)).await.status, 202);
    let request = run.agent.request(Method::POST, &path).header("x-tool-call-id", "mine");
    let other = json!({"file_path": "/workspace/README.md", "old_string": "# Calc", "new_string": "#"});
    let reused = run.agent.send(request.json(&other)).await;
    assert!(reused.status == 409 && reused.text().starts_with("TOOL_CALL_ID_REUSED: "), "{}", reused.text());
}

#[rstest]
#[tokio::test]
async fn a_format_shows_and_does_what_the_token_and_the_policy_allow(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let read_only = server.run_with_files(&FILES, json!({"policy": {"profile": "READ_ONLY"}})).await;
    let shown: Vec<_> =
        functions(&declared(&read_only, "claude-code").await).into_iter().map(|(name, _)| name).collect();
    assert_eq!(shown, ["Read", "Glob", "Grep"]);
    assert_eq!(declared(&read_only, "codex").await, json!([]));
    let edit = json!({"file_path": "README.md", "old_string": "Calc", "new_string": "x"});
    assert!(said(&read_only, "claude-code", "Edit", edit).await.starts_with("POLICY_DENIED: "));

    let run = server.run_with_files(&FILES, json!({})).await;
    let tokens = format!("/v1/runs/{}/tokens", run.id);
    let issued = server.operator().post(&tokens, json!({"permissions": ["file:list", "file:search"]})).await.is(201);
    let lister = Run { agent: run.agent.with_token(issued["token"].as_str()), ..run.clone() };
    let shown: Vec<_> = functions(&declared(&lister, "claude-code").await).into_iter().map(|(name, _)| name).collect();
    assert_eq!(shown, ["Glob", "Grep"]);
    let forbidden = said(&lister, "claude-code", "Read", json!({"file_path": "README.md"})).await;
    assert!(forbidden.starts_with("FORBIDDEN: the token lacks the permission file:read"), "{forbidden}");
    let refused = run.last_record().await;
    assert_eq!(
        (&refused["tool"], &refused["format"], &refused["code"]),
        (&json!("read_file"), &json!("claude-code"), &json!("FORBIDDEN"))
    );
    // Lines are content.
    let search = json!({"pattern": "needle", "output_mode": "content"});
    assert!(
        said(&lister, "claude-code", "Grep", search.clone()).await.starts_with("FORBIDDEN: "),
        "a regular expression reads"
    );
    let literal = json!({"pattern": "needle", "fixed_strings": true});
    assert_eq!(said(&lister, "gemini", "grep_search", literal).await, "/workspace/src/deep/x.txt\n");
    // A tool of several commands does those that are permitted.
    let view = |path: &str| json!({"command": "view", "path": path});
    let listed = said(&lister, "anthropic-editor", "str_replace_based_edit_tool", view("/workspace/src")).await;
    assert!(listed.contains("/workspace/src/calc.py"), "{listed}");
    let file = said(&lister, "anthropic-editor", "str_replace_based_edit_tool", view("/workspace/README.md")).await;
    assert!(file.starts_with("FORBIDDEN: "), "{file}");
    let answer = call(
        &lister,
        "anthropic-editor",
        "str_replace_based_edit_tool",
        json!({"command": "create", "path": "/workspace/n", "file_text": ""}),
    );
    assert_eq!(answer.await.status, 403);
}

#[rstest]
#[tokio::test]
async fn commands_are_offered_and_run_in_each_form_that_has_them(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let shown = async |format| declared(&run, format).await.to_string();
    let none = json!({"cmd": "ls"});
    assert!(said(&run, "codex", "exec_command", none).await.contains("no runner"), "without one");
    let runner = Runner::new(&run).await;
    runner.attach().await;
    for (format, tool) in [
        ("codex", "exec_command"),
        ("codex", "write_stdin"),
        ("gemini", "run_shell_command"),
        ("qwen", "run_shell_command"),
    ] {
        assert!(shown(format).await.contains(&format!("\"{tool}\"")), "{format}");
    }
    assert!(shown("anthropic-toolset").await.contains(r#"{"enabled":true,"name":"bash"}"#));
    let cases = [
        (
            "codex",
            "exec_command",
            json!({"cmd": "make", "workdir": "/workspace/src", "justification": "to build"}),
            "src",
            "Process exited with code 2\nOutput:\n  out\n",
        ),
        (
            "anthropic-toolset",
            "bash",
            json!({"command": "make", "timeout_ms": 1500}),
            ".",
            "exit 2 after 0.0 s\noutput:\n  out\n",
        ),
        (
            "gemini",
            "run_shell_command",
            json!({"command": "make", "description": "to build", "dir_path": "src"}),
            "src",
            "exit 2 after 0.0 s\noutput:\n  out\n",
        ),
    ];
    for (format, tool, input, cwd, want) in cases {
        let caller = run.clone();
        let asked = tokio::spawn(async move { said(&caller, format, tool, input).await });
        let order = runner.next().await;
        assert_eq!((&order["command"], &order["cwd"]), (&json!("make"), &json!(cwd)), "{order}");
        if format == "anthropic-toolset" {
            assert_eq!(order["timeoutSeconds"], 2);
        } else {
            assert_eq!(order["reason"], "to build");
        }
        runner.report(order["commandId"].as_str().unwrap(), json!({"exitCode": 2, "output": "out\n"}), None).await.ok();
        let text = asked.await.unwrap();
        assert!(text.contains(want), "{text}");
        assert!(format != "codex" || text.starts_with("Wall time: 0.00"), "{text}");
        let record = run.last_record().await;
        assert_eq!((&record["tool"], &record["format"]), (&json!("run_command"), &json!(format)));
    }
    let stdin = said(&run, "codex", "write_stdin", json!({"session_id": 7})).await;
    assert!(stdin.contains("write_stdin failed: Unknown session 7"), "{stdin}");
    let stdin = said(&run, "codex", "write_stdin", json!({"session_id": 7, "chars": "y\n"})).await;
    assert!(stdin.contains("the process of session 7 has exited"), "{stdin}");
}

/// A tool and its input.
type Asked = (&'static str, Value);

/// For each form: what runs a command, what its answer says of the rest of an output, what reads that, and what reads on in a line that is
/// too long for one answer. The ID of the command is `ID`.
fn readers_of_output() -> [(&'static str, Asked, &'static str, Asked, Asked); 4] {
    let path = |id: &str| json!(format!("/output/{id}"));
    [
        (
            "codex",
            ("exec_command", json!({"cmd": "make"})),
            "write_stdin with session_id=\"ID@1\" and no chars",
            ("write_stdin", json!({"session_id": "ID@1"})),
            ("write_stdin", json!({"session_id": "ID@10.16001", "chars": ""})),
        ),
        (
            "anthropic-toolset",
            ("bash", json!({"command": "make"})),
            "read with file_path=/output/ID and view_range=[1, -1]",
            ("read", json!({"file_path": path("ID"), "view_range": [1, -1]})),
            ("read", json!({"file_path": path("ID@10.16001")})),
        ),
        (
            "gemini",
            ("run_shell_command", json!({"command": "make"})),
            "read_file with file_path=/output/ID and start_line=1",
            ("read_file", json!({"file_path": path("ID"), "start_line": 1})),
            ("read_file", json!({"file_path": path("ID@10.16001")})),
        ),
        (
            "qwen",
            ("run_shell_command", json!({"command": "make"})),
            "read_file with file_path=/output/ID and offset=0",
            ("read_file", json!({"file_path": path("ID"), "offset": 0})),
            ("read_file", json!({"file_path": path("ID@10.16001")})),
        ),
    ]
}

#[rstest]
#[tokio::test]
async fn the_rest_of_an_output_is_read_by_the_tools_of_the_form(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let wide = "w".repeat(17_000);
    let output = format!("line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\nline 9\n{wide}\nend\n");
    let uri = format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(&output));
    runner.client.put(&uri, output.clone()).await.is(201);
    for (format, (tool, input), way, (reads, first), (reads_on, wide_line)) in readers_of_output() {
        let caller = run.clone();
        let asked = tokio::spawn(async move { said(&caller, format, tool, input).await });
        let id = runner.next().await["commandId"].as_str().unwrap().to_owned();
        let of_id = |input: &Value| serde_json::from_str::<Value>(&input.to_string().replace("ID", &id)).unwrap();
        let result = json!({"exitCode": 0, "output": "end\n", "outputLines": 11, "outputSha256": sha256(&output)});
        runner.report(&id, result, None).await.ok();
        let text = asked.await.unwrap();
        let rest = format!("[output lines 11-11 of 11; {} reads others]\n", way.replace("ID", &id));
        assert!(text.ends_with(&rest), "{text}");
        let text = said(&run, format, reads, of_id(&first)).await;
        assert!(text.contains("utput:\n  line 1\n  line 2\n") && text.contains("  line 9\n"), "{text}");
        assert!(
            text.contains("[output lines 1-9 of 11; ") && text.contains(if format == "qwen" { "=9" } else { "10" }),
            "{text}"
        );
        let record = run.last_record().await;
        assert_eq!((&record["tool"], &record["format"]), (&json!("run_command"), &json!(format)));
        let text = said(&run, format, reads_on, of_id(&wide_line)).await;
        assert!(text.contains(&format!("utput:\n  {}\n  end\n", "w".repeat(1_000))), "{text}");
        if format == "gemini" {
            let lines = json!({"file_path": format!("/output/{id}"), "start_line": 2, "end_line": 3});
            let text = said(&run, format, reads, lines).await;
            assert!(
                text.contains("output:\n  line 2\n  line 3\n[output lines 2-3 of 11; ")
                    && text.contains("start_line=4"),
                "{text}"
            );
        }
    }
    let text = said(&run, "gemini", "read_file", json!({"file_path": "/output/none", "start_line": 1})).await;
    assert!(text.starts_with("File not found: /output/none"), "{text}");
    // No other tool takes such a path, and no file can have it.
    let text = said(&run, "gemini", "write_file", json!({"file_path": "/output/x", "content": ""})).await;
    assert!(text.contains("PATH_REJECTED"), "{text}");
}

#[rstest]
#[tokio::test]
async fn the_protocol_lists_and_calls_the_tools_of_a_format(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let rpc = async |format: &str, method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let request = run.agent.request(Method::POST, &format!("/mcp?format={format}"));
        run.agent.send(request.header("mcp-protocol-version", "2025-06-18").json(&body)).await.json()
    };
    for (format, names) in [
        ("anthropic-editor", &["str_replace_based_edit_tool"][..]),
        ("anthropic-toolset", &["read", "write", "edit", "glob", "grep"]),
        ("claude-code", &["Read", "Edit", "Write", "Glob", "Grep"]),
        ("openai-apply-patch", &["apply_patch"]),
        ("codex", &["apply_patch"]),
        ("gemini", &["list_directory", "read_file", "read_many_files", "write_file", "glob", "grep_search", "replace"]),
        ("qwen", &["list_directory", "read_file", "write_file", "glob", "grep_search", "edit"]),
    ] {
        let listed = rpc(format, "tools/list", json!({})).await["result"]["tools"].clone();
        let shown: Vec<_> = functions(&listed).into_iter().map(|(name, _)| name).collect();
        assert_eq!(shown, names, "{format}");
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let initialized = rpc(format, "initialize", params).await;
        let text = initialized["result"]["instructions"].as_str().unwrap();
        assert!(!text.contains("revert_calls") && text.contains("Its root is `/"), "{text}");
    }
    let called = async |format: &str, name: &str, arguments: Value| {
        let result = rpc(format, "tools/call", json!({"name": name, "arguments": arguments})).await["result"].clone();
        (result["isError"].as_bool().unwrap(), result["content"][0]["text"].as_str().unwrap().to_owned())
    };
    let read = called("claude-code", "Read", json!({"file_path": "/workspace/README.md"})).await;
    assert_eq!(read, (false, "     1\t# Calc\n".to_owned()));
    let (is_error, text) =
        called("claude-code", "Edit", json!({"file_path": "README.md", "old_string": "x", "new_string": "y"})).await;
    assert!(is_error && text.starts_with("String to replace not found in file."), "{text}");
    let operation = json!({"operation": {"type": "delete_file", "path": "README.md"}});
    let (is_error, text) = called("openai-apply-patch", "apply_patch", operation).await;
    assert!(!is_error && text == "Success. Updated the following files:\nD README.md\n", "{text}");
    let unknown = rpc("claude-code", "tools/call", json!({"name": "read_file", "arguments": {}})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(run.last_record().await["format"], "openai-apply-patch");
    // The headers of the request say of the call what the form does not.
    let with_headers = async |path: &str, name: &str, arguments: Value, id: &str| {
        let params = json!({"name": name, "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let request = run.agent.request(Method::POST, path).header("mcp-protocol-version", "2025-06-18");
        let request = request.header("x-reason", "as asked").header("x-tool-call-id", id);
        run.agent.send(request.json(&body)).await.ok()["result"].clone()
    };
    let write = json!({"file_path": "/workspace/w.txt", "content": "w\n"});
    let own = json!({"path": "o.txt", "content": "o\n", "toolCallId": "of-the-model"});
    for (path, name, input, id) in
        [("/mcp?format=claude-code", "Write", write, "id-1"), ("/mcp", "write_file", own, "id-2")]
    {
        let first = with_headers(path, name, input.clone(), id).await;
        assert_eq!(first["isError"], false, "{first}");
        assert_eq!(with_headers(path, name, input, id).await, first, "a repetition is the same call");
        let record = run.last_record().await;
        assert_eq!((&record["toolCallId"], &record["reason"]), (&json!(id), &json!("as asked")));
    }
    // Without a format, the tools are our own, and records have none.
    run.call("list_dir", json!({})).await.ok();
    assert!(run.last_record().await.get("format").is_none());
}
