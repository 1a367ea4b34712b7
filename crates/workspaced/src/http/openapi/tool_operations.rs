//! One operation for each tool, from the catalogue.

use engine::tools::{TOOLS, Tool};
use serde_json::{Value, json};

use super::responses::{header_references, refusal};

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

/// Returns the schema of an item of the catalogue. It has the members of every form and requires none: generated clients do not
/// compile with alternatives whose members differ in their spelling alone, such as `inputSchema` and `input_schema`.
pub(crate) fn catalogue_item() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let object = |description: &str| json!({"type": "object", "description": description});
    json!({
        "type": "object",
        "description": "A tool in the form that `format` chooses. With `openai`, it has `type` and `function`; with `anthropic`, \
                        `name`, `description` and `input_schema`; with `mcp`, `name`, `title`, `description`, `inputSchema` \
                        and `annotations`. In a format that models were trained on, it is what the provider's API takes.",
        "properties": {
            "name": text("Its name, as in its route."),
            "title": text("With `mcp`: its name for people."),
            "description": text("What it does and when to use it."),
            "mutates": {"type": "boolean", "description": "Whether it may change files."},
            "permissions": {"type": "array", "items": {"type": "string"},
                "description": "The permissions of which a token needs at least one."},
            "inputSchema": object("JSON Schema of the input, without references."),
            "outputSchema": object("JSON Schema of the output, without references; missing for `audience=model`."),
            "annotations": object("What the tool does to files."),
            "type": text("`function`."),
            "function": object("`name`, `description` and `parameters` of the function."),
        },
        "additionalProperties": true,
    })
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
    let statuses: &[_] = match (tool.mutates(), tool.only_reads()) {
        (true, _) => &["202", "422", "507"],
        (false, true) => &["507"],
        (false, false) => &["202", "507"],
    };
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
        "requestBody": {"required": !tool.only_reads(), "content": {"application/json": schema((tool.input)().name)}},
        "responses": responses,
    })
}
