use std::collections::BTreeSet;

use engine::tools::{Audience, CatalogueView, TOOLS};
use model::{Permission, Refusal};
use serde_json::{Map, Value, json};

use super::*;

fn view(audience: Audience, permissions: &BTreeSet<Permission>) -> CatalogueView<'_> {
    CatalogueView { audience, permissions, policy: None, has_mounts: false, has_runner: true }
}

fn all() -> BTreeSet<Permission> {
    Permission::ALL.into_iter().collect()
}

fn map(format: &str, tool: &str, input: Value) -> Result<mapping::MappedCall, Refusal> {
    let format = ToolFormat::find(format).unwrap();
    format.tool(tool).unwrap().map(format, input)
}

/// A value of the type of a schema.
fn value_of(name: &str, schema: &Value) -> Value {
    match (name, schema["type"].as_str().unwrap()) {
        // Values that not every text or number is.
        ("output_mode", _) => json!("content"),
        ("view_range", _) => json!([1, 2]),
        ("include", "array") => json!(["src/**/*.rs", "/workspace/a.rs"]),
        ("type", _) if schema.get("enum").is_none() => json!("rust"),
        ("end_line", _) => json!(9),
        (_, "string") => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("/workspace/a.rs")),
        (_, "integer" | "number") => json!(1),
        (_, "boolean") => json!(false),
        (_, "array") => json!([]),
        (_, "object") => object_of(schema),
        (_, other) => panic!("{other}"),
    }
}

fn object_of(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().unwrap();
    properties.iter().map(|(name, schema)| (name.clone(), value_of(name, schema))).collect::<Map<_, _>>().into()
}

#[test]
fn every_argument_that_is_declared_is_taken() {
    for format in FORMATS.iter() {
        for tool in &format.tools {
            assert!(tool.becomes().count() > 0 && format.tool(&tool.name).is_some(), "{} {}", format.name, tool.name);
            if tool.rows.len() > 1 {
                // The arguments depend on the command.
                continue;
            }
            let mut input = object_of(&tool.input);
            if tool.name == "apply_patch" && format.name == "openai-apply-patch" {
                input["operation"] =
                    json!({"type": "update_file", "path": "a", "move_to": "b", "diff": "@@\n-a\n+b\n"});
            }
            let mapped = tool.map(format, input.clone()).map(|call| call.call.name).map_err(|refusal| refusal.message);
            match tool.name.as_str() {
                "write_stdin" => assert!(mapped.unwrap_err().starts_with("write_stdin failed"), "{input}"),
                _ => assert!(mapped.is_ok(), "{} {} {input}: {mapped:?}", format.name, tool.name),
            }
        }
    }
}

#[test]
fn what_a_call_becomes_is_an_input_of_our_tool() {
    let view = json!({"command": "view", "path": "/workspace/a", "view_range": "[2, -1]"});
    let insert =
        json!({"command": "insert", "path": "/workspace/a", "insert_line": "1", "insert_text": "", "new_str": ""});
    let calls = [
        ("anthropic-editor", "str_replace_based_edit_tool", view),
        ("anthropic-editor", "str_replace_based_edit_tool", insert),
        ("claude-code", "Grep", json!({"pattern": "a", "path": null, "-C": "2", "output_mode": "content"})),
        ("gemini", "read_file", json!({"path": "/workspace/a", "offset": 4, "limit": 2})),
        ("gemini", "read_file", json!({"file_path": "/output/tc_1", "start_line": 3, "end_line": 4})),
        ("qwen", "list_directory", json!({"path": "/workspace"})),
        (
            "qwen",
            "edit",
            json!({"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": false, "expected_replacements": 2.0}),
        ),
    ];
    let wanted = [
        ("read_file", json!({"path": "a", "startLine": 2, "maxLines": 1000})),
        ("replace_range", json!({"path": "a", "startLine": 2, "endLine": 1, "content": "\n"})),
        (
            "search_text",
            json!({"query": "a", "mode": "regex", "path": ".", "includeGlob": [], "caseSensitive": true, "contextLines": 2, "maxMatches": 1000}),
        ),
        ("read_file", json!({"path": "a", "startLine": 5, "maxLines": 2, "format": "raw"})),
        ("run_command", json!({"outputOf": "tc_1", "startLine": 3})),
        ("list_dir", json!({"path": ".", "maxDepth": 1, "includeHidden": true, "includeIgnored": false})),
        (
            "edit_file",
            json!({"path": "a", "oldString": "b", "newString": "c", "replaceAll": true, "expectedReplacements": 2}),
        ),
    ];
    for ((format, tool, input), (own, want)) in calls.into_iter().zip(wanted) {
        let call = map(format, tool, input).map_err(|refusal| refusal.message).unwrap();
        assert_eq!((call.call.name, Value::from(call.input)), (own, want), "{format}");
    }
}

#[test]
fn patterns_are_few_and_short() {
    for (pattern, count, is_taken) in
        [("*.md".to_owned(), 100, true), ("a".to_owned(), 101, false), ("a".repeat(501), 1, false)]
    {
        let input = json!({"dir_path": "/workspace", "ignore": vec![pattern; count]});
        let refusal = map("gemini", "list_directory", input).map(|_| ()).map_err(|refusal| refusal.message);
        let want = "`ignore` takes at most 100 patterns of at most 500 bytes".to_owned();
        assert_eq!(refusal, if is_taken { Ok(()) } else { Err(want) });
    }
}

#[test]
fn only_the_tools_that_a_caller_may_use_are_declared() {
    let (none, all) = (BTreeSet::new(), all());
    let (none, all) = (view(Audience::Model, &none), view(Audience::Model, &all));
    for format in FORMATS.iter() {
        assert!(format.declarations(&none).is_empty() && format.mcp_tools(&none).is_empty(), "{}", format.name);
        assert_eq!(format.mcp_tools(&all).len(), format.tools.len(), "{}", format.name);
        let chars = |items: Vec<Value>| Value::from(items).to_string().chars().count();
        let (declared, mcp) = (chars(format.declarations(&all)), chars(format.mcp_tools(&all)));
        assert!(declared <= 5_000 && mcp <= 5_000, "{}: {declared}, {mcp}", format.name);
    }
}

fn has_key(value: &Value, keys: &[&str]) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(key, value)| keys.contains(&key.as_str()) || has_key(value, keys))
        }
        Value::Array(items) => items.iter().any(|item| has_key(item, keys)),
        _ => false,
    }
}

#[test]
fn a_model_is_shown_what_it_decides_in_few_characters() {
    let permissions = all();
    let form = FunctionForm::default();
    for format in
        [CatalogueFormat::Workspaced, CatalogueFormat::Openai, CatalogueFormat::Anthropic, CatalogueFormat::Mcp]
    {
        // The 15 that every run has; a runner adds one, of few characters.
        let mounts = CatalogueView { has_mounts: true, has_runner: false, ..view(Audience::Model, &permissions) };
        let text = Value::from(format.items(&mounts, form)).to_string();
        assert!(text.chars().count() <= 12_000, "{format:?}, with mounts: {}", text.chars().count());
        let items = format.items(&view(Audience::Model, &permissions), form);
        assert_eq!(items.len(), TOOLS.len());
        let (last, others) = items.split_last().unwrap();
        let (text, command) = (Value::from(others.to_vec()).to_string(), last.to_string());
        assert!(text.chars().count() <= 12_000, "{format:?}: {}", text.chars().count());
        assert!(command.contains("run_command") && command.chars().count() <= 1_300, "{format:?}: {command}");
        let hidden =
            ["allOf", "oneOf", "anyOf", "$ref", "outputSchema", "mount", "dryRun", "toolCallId", "expectedSha256"];
        assert!(!has_key(&Value::from(items), &hidden), "{format:?}");
    }
    let mounts = CatalogueView { has_mounts: true, ..view(Audience::Model, &permissions) };
    assert!(has_key(&Value::from(CatalogueFormat::Openai.items(&mounts, form)), &["mount"]));
}

#[test]
fn hints_name_what_the_format_has() {
    let table = [
        ("Copy `oldString` exactly.", "Copy `old_str` exactly."),
        ("Read it again with read_file, then call again.", "Read it again with view, then call again."),
        ("Include more lines in `oldString`. Or set `replaceAll`.", "Include more lines in `old_str`."),
        ("Find its path with find_files.", ""),
        ("Choose another path. Go on to the next.", "Choose another path. Go on to the next."),
        ("Read src/read_file.rs or my-read_file.", "Read src/read_file.rs or my-read_file."),
    ];
    let format = ToolFormat::find("anthropic-editor").unwrap();
    for (hint, want) in table {
        assert_eq!(format.translate(hint), want);
    }
    let message = "`oldString` was not found in `read_file`";
    assert_eq!(format.message(message), "`old_str` was not found in `read_file`");
}

#[test]
fn a_line_of_the_patch_is_named_as_that_of_the_diff() {
    let operation = json!({"operation": {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b\n"}});
    let call = map("openai-apply-patch", "apply_patch", operation).map_err(|refusal| refusal.message).unwrap();
    let said = |line: u64, problem: &str| {
        let refusal = Refusal::new(model::Code::PatchInvalid, format!("line {line} of the patch: {problem}"), "");
        let parts = model::MessageParts { line: Some(line), ..model::MessageParts::default() };
        call.message_of(&Refusal { parts: Some(Box::new(parts)), ..refusal })
    };
    assert_eq!(said(4, "`x` is wrong"), "line 2 of the diff: `x` is wrong");
    assert_eq!(said(1, "the patch changes no file"), "the patch changes no file");
}

#[test]
fn a_decision_names_the_tools_of_the_form() {
    let edited = "approved: src/a (edit_file).py (edit_file), applied — \"as (edit_file), asked\"";
    let ran = "approved: \"make\" (run_command): exit 2; run_command with outputOf=tc_1 shows its output";
    let of = |tool: &str| format!("approved: src/a (edit_file).py ({tool}), applied — \"as (edit_file), asked\"");
    let not_named = "approved: src/a (edit_file).py, applied — \"as (edit_file), asked\"".to_owned();
    let ran_by = |tool: &str, how: &str| format!("approved: \"make\" ({tool}): exit 2; {how} shows its output");
    let no_command = "approved: \"make\": exit 2".to_owned();
    for format in FORMATS.iter() {
        let expected = match format.name.as_str() {
            "anthropic-editor" => (of("str_replace"), no_command.clone()),
            "anthropic-toolset" => (of("edit"), ran_by("bash", "read with file_path=/output/tc_1")),
            "claude-code" => (of("Edit"), no_command.clone()),
            "openai-apply-patch" => (not_named.clone(), no_command.clone()),
            "codex" => (not_named.clone(), ran_by("exec_command", "write_stdin with session_id=tc_1")),
            "gemini" => (of("replace"), ran_by("run_shell_command", "read_file with file_path=/output/tc_1")),
            "qwen" => (of("edit"), ran_by("run_shell_command", "read_file with file_path=/output/tc_1")),
            other => panic!("{other}"),
        };
        let said = format.notices(vec![edited.to_owned(), ran.to_owned()]);
        assert_eq!(said, [expected.0, expected.1], "{}", format.name);
        let comment = vec!["comment on a by ada: \"denied: x (edit_file)\"".to_owned()];
        assert_eq!(format.notices(comment.clone()), comment);
    }
}
