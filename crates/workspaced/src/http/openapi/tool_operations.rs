//! One operation for each tool, from the catalogue.

use serde_json::{Value, json};

use super::responses::{header_references, refusal};
use engine::tool::Tool;
use engine::tools::TOOLS;

/// Returns the ID of the operation that calls a tool: `read_file` → `callReadFile`. Without the prefix, `delete_file` and
/// the operation `deleteFile` would have the same name in generated clients.
pub(crate) fn operation_id(tool: &Tool) -> String {
    let words = tool.name.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    format!("call{}", words.collect::<String>())
}

/// Returns the tool that an operation calls.
pub(crate) fn tool_of(id: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| operation_id(tool) == id)
}

/// Returns the schema of an item of the catalogue, in each of its forms.
pub(crate) fn catalogue_item() -> Value {
    let object = |title: &str, description: &str, properties: Value| {
        let required: Vec<_> = properties.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        json!({
            "title": title, "description": description, "type": "object", "required": required, "properties": properties,
        })
    };
    let text = json!({"type": "string"});
    let schema = json!({"type": "object"});
    let function = object(
        "FunctionDeclaration",
        "The function.",
        json!({
            "name": text, "description": text, "parameters": schema,
        }),
    );
    json!({"anyOf": [
        {"$ref": "#/components/schemas/ToolInfo"},
        object("FunctionTool", "With `format=openai`.", json!({"type": {"const": "function"}, "function": function})),
        object("MessagesTool", "With `format=anthropic`.", json!({"name": text, "description": text, "input_schema": schema})),
        object("McpTool", "With `format=mcp`.", json!({
            "name": text, "title": text, "description": text, "inputSchema": schema, "annotations": schema,
        })),
    ]})
}

/// Returns the operation that documents a tool.
pub(crate) fn operation(tool: &Tool) -> Value {
    let schema = |name: String| json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
    let permissions: Vec<_> = tool.permissions.iter().map(|one| one.as_str()).collect();
    let quoted: Vec<_> = permissions.iter().map(|name| format!("`{name}`")).collect();
    let mut responses = json!({
        "200": {"description": "The call's result.", "headers": header_references(&["Call", "Seq", "FileSha256"]), "content": {
            "application/json": schema((tool.output)().name),
            "text/plain": {"schema": {"type": "string"}},
        }},
    });
    let statuses: &[_] = if tool.mutates() { &["202", "422", "507"] } else { &["507"] };
    for status in statuses {
        responses[*status] = json!(refusal(status, true));
    }
    json!({
        "tags": ["tools"],
        "summary": format!("Call `{}`", tool.name),
        "description": format!("{}\n\nRequires the permission {}.", tool.description, quoted.join(" or ")),
        "operationId": operation_id(tool),
        "x-permissions": permissions,
        "parameters": [{"name": "run", "in": "path", "required": true, "description": "The run.",
            "schema": {"$ref": "#/components/schemas/RunId"}}],
        "requestBody": {"required": tool.mutates(), "content": {"application/json": schema((tool.input)().name)}},
        "responses": responses,
    })
}
