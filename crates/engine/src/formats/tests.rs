use std::collections::BTreeSet;

use model::Permission;
use serde_json::{Map, Value, json};

use super::*;
use crate::tools::{Audience, CatalogueFormat, CatalogueView};

fn view(permissions: &BTreeSet<Permission>) -> CatalogueView<'_> {
    CatalogueView {
        format: CatalogueFormat::Workspaced,
        audience: Audience::Model,
        permissions,
        policy: None,
        has_mounts: false,
        has_runner: true,
    }
}

fn all() -> BTreeSet<Permission> {
    Permission::ALL.into_iter().collect()
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
            assert!(!tool.becomes.is_empty() && format.tool(tool.name).is_some(), "{} {}", format.name, tool.name);
            if format.has_own_tools()
                || tool.input["properties"].get("command").is_some_and(|command| command.get("enum").is_some())
            {
                // Those of our own are taken by the tool, and those of an editor depend on the command.
                continue;
            }
            let mut input = object_of(&tool.input);
            if tool.name == "apply_patch" && format.name == "openai-apply-patch" {
                input["operation"] =
                    json!({"type": "update_file", "path": "a", "move_to": "b", "diff": "@@\n-a\n+b\n"});
            }
            let mapped = tool.map(input.clone()).map(|call| call.tool.name).map_err(|refusal| refusal.message);
            match tool.name {
                "write_stdin" => assert!(mapped.unwrap_err().starts_with("write_stdin failed"), "{input}"),
                _ => assert!(mapped.is_ok(), "{} {} {input}: {mapped:?}", format.name, tool.name),
            }
        }
    }
}

#[test]
fn what_a_call_becomes_is_an_input_of_our_tool() {
    let calls = [
        (
            "anthropic-editor",
            "str_replace_based_edit_tool",
            json!({"command": "view", "path": "/workspace/a", "view_range": "[2, -1]"}),
        ),
        (
            "anthropic-memory",
            "memory",
            json!({"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"}),
        ),
        ("swe-agent", "str_replace_editor", json!({"command": "undo_edit", "path": "/workspace/a"})),
        ("claude-code", "Grep", json!({"pattern": "a", "path": null, "-C": "2", "output_mode": "content"})),
        ("gemini", "read_file", json!({"path": "/workspace/a", "offset": 4, "limit": 2})),
        ("qwen", "list_directory", json!({"path": "/workspace"})),
    ];
    let wanted = [
        ("read_file", json!({"path": "a", "startLine": 2, "maxLines": 1000})),
        ("move_file", json!({"from": "a", "to": "b", "recursive": true})),
        ("revert_calls", json!({"last": 1, "ofPath": "a"})),
        (
            "search_text",
            json!({"query": "a", "mode": "regex", "path": ".", "includeGlob": [], "caseSensitive": true, "contextLines": 2, "maxMatches": 1000}),
        ),
        ("read_file", json!({"path": "a", "startLine": 5, "maxLines": 2, "format": "raw"})),
        ("list_dir", json!({"path": ".", "maxDepth": 1, "includeHidden": true, "includeIgnored": false})),
    ];
    for ((format, tool, input), (own, want)) in calls.into_iter().zip(wanted) {
        let call = ModelFormat::find(format)
            .unwrap()
            .tool(tool)
            .unwrap()
            .map(input)
            .map_err(|refusal| refusal.message)
            .unwrap();
        assert_eq!((call.tool.name, Value::from(call.input)), (own, want), "{format}");
    }
}

#[test]
fn only_the_tools_that_a_caller_may_use_are_declared() {
    let (none, all) = (BTreeSet::new(), all());
    for format in FORMATS.iter() {
        assert!(
            format.declarations(&view(&none)).is_empty() && format.mcp_tools(&view(&none)).is_empty(),
            "{}",
            format.name
        );
        assert_eq!(format.mcp_tools(&view(&all)).len(), format.tools.len(), "{}", format.name);
        let chars = |items: Vec<Value>| Value::from(items).to_string().chars().count();
        let (declared, mcp) = (chars(format.declarations(&view(&all))), chars(format.mcp_tools(&view(&all))));
        println!("{:20} {declared:6} {mcp:6}", format.name);
        let most = if format.has_own_tools() { 16_000 } else { 5_000 };
        assert!(declared <= most && mcp <= most, "{}: {declared}, {mcp}", format.name);
    }
}
