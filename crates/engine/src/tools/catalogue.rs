//! `GET /v1/tools`: the table as a function-calling model needs it.

use std::sync::LazyLock;

use model::Permission;
use serde::Serialize;
use serde_json::{Value, json};

use super::TOOLS;
use crate::tool::Tool;

/// One tool as callers see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolInfo {
    /// Its name, as in its route.
    #[schema(example = "read_file")]
    pub name: &'static str,
    /// What it does and when to use it.
    pub description: &'static str,
    /// Whether it may change files.
    pub mutates: bool,
    /// What a token needs: one of these at least.
    pub permissions: Vec<&'static str>,
    /// JSON Schema of its input, whole.
    pub input_schema: Value,
    /// JSON Schema of its answer, whole.
    pub output_schema: Value,
}

/// Every tool.
pub static CATALOGUE: LazyLock<Vec<ToolInfo>> = LazyLock::new(|| TOOLS.iter().map(info).collect());

fn info(tool: &Tool) -> ToolInfo {
    ToolInfo {
        name: tool.name,
        description: tool.description,
        mutates: tool.mutates(),
        permissions: tool.permissions.iter().map(|permission| permission.as_str()).collect(),
        input_schema: input_schema(tool),
        output_schema: output_schema(tool),
    }
}

/// The whole input of `tool`: its own members and those that every call takes.
pub fn input_schema(tool: &Tool) -> Value {
    let mut members = vec![
        (
            "toolCallId",
            json!({"type": "string", "minLength": 1, "maxLength": 128, "description":
                "Names the call; the same ID again is the same call. Made by the server where it is missing."}),
        ),
        (
            "stepId",
            json!({"type": "string", "minLength": 1, "maxLength": 128, "description": "The caller's own step, for the audit."}),
        ),
    ];
    let mut required = Vec::new();
    if tool.mutates() {
        required.push("reason");
        members.push((
            "reason",
            json!({"type": "string", "minLength": 1, "maxLength": 2000, "description": "Why: it goes into the audit, a credential in it as `[redacted: kind]`."}),
        ));
        members.push((
            "dryRun",
            json!({"type": "boolean", "default": false, "description": "Answer what the call would, and change nothing."}),
        ));
    } else {
        members.push((
            "mount",
            json!({"type": "string", "description": "The read-only tree to look at; the workspace itself where it is missing."}),
        ));
    }
    (tool.input)().inlined(&members, &required)
}

/// The whole answer of `tool` where it is `ok`.
pub fn output_schema(tool: &Tool) -> Value {
    let mut members = vec![
        ("ok", json!({"type": "boolean", "const": true})),
        ("toolCallId", json!({"type": "string", "description": "The call."})),
    ];
    let mut required = vec!["ok", "toolCallId"];
    if tool.mutates() {
        members.extend([
            ("seq", json!({"type": "integer", "minimum": 1, "description": "The call's record in the run's audit."})),
            (
                "headHash",
                json!({"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "That record's hash: whoever keeps it is a witness of the run's chain."}),
            ),
            (
                "artifactUris",
                json!({"type": "array", "items": {"type": "string"}, "description": "Diffs of what was changed."}),
            ),
            ("summary", json!({"type": "string", "description": "What was done, in a line."})),
            ("warnings", json!({"type": "array", "items": {"type": "string"}, "description": "What to know besides."})),
        ]);
        required.extend(["seq", "headHash", "artifactUris", "summary", "warnings"]);
    }
    if !tool.content.is_empty() && !tool.permissions.contains(&Permission::FileRead) {
        let told = format!(
            "True for a token without file:read: {} of files is not shown, and the member is empty.",
            tool.content.join(", ")
        );
        members.push(("contentWithheld", json!({"type": "boolean", "description": told})));
    }
    (tool.output)().inlined(&members, &required)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value) -> bool {
        match value {
            Value::Object(members) => members.contains_key("$ref") || members.values().any(references),
            Value::Array(items) => items.iter().any(references),
            _ => false,
        }
    }

    #[test]
    fn every_schema_is_whole_and_closed() {
        for tool in CATALOGUE.iter() {
            for schema in [&tool.input_schema, &tool.output_schema] {
                assert!(!references(schema), "{}: {schema:#}", tool.name);
                assert_eq!(schema["type"], "object", "{}", tool.name);
            }
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
            let required = tool.input_schema["required"].as_array().cloned().unwrap_or_default();
            assert_eq!(required.contains(&json!("reason")), tool.mutates, "{}", tool.name);
        }
    }

    #[test]
    fn every_tool_is_there_once() {
        let mut names: Vec<_> = CATALOGUE.iter().map(|tool| tool.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
