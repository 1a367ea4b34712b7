//! Our own tools as functions of `OpenAI`'s Responses, and so that the provider enforces their schemas.

use model::Refusal;
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{AsWritten, FormatTool, MappedCall, ModelFormat, Shown, Words, as_response_function};
use crate::tools::{CATALOGUE, CatalogueView, TOOLS};

/// Our tools as functions of `OpenAI`'s Responses.
pub(super) fn responses() -> ModelFormat {
    format("openai-responses", |shown| {
        let declared = shown.tools.iter().map(|tool| as_response_function(tool, &shown.schema(tool), false));
        declared.collect()
    })
}

/// As [`responses`], with schemas that the provider enforces: every member is required, and those that were optional may be null.
pub(super) fn strict() -> ModelFormat {
    format("openai-strict", |shown| {
        let declared = shown.tools.iter().map(|tool| {
            let mut schema = shown.schema(tool);
            make_strict(&mut schema);
            as_response_function(tool, &schema, true)
        });
        declared.collect()
    })
}

fn format(name: &'static str, declare: fn(&Shown<'_>) -> Vec<Value>) -> ModelFormat {
    let tools = TOOLS.iter().map(|tool| FormatTool {
        name: tool.name,
        description: tool.description,
        // That of the catalogue, which depends on the caller.
        input: Value::Null,
        becomes: vec![tool],
        map: |tool, arguments| call(tool, arguments),
        item: None,
    });
    ModelFormat { name, tools: tools.collect(), declare, refuse: |_, _| None, words: Words::Own }
}

/// Returns the schema of our own tool that a model is shown.
pub(super) fn schema(tool: &FormatTool, view: &CatalogueView<'_>) -> Value {
    let info = CATALOGUE.iter().find(|info| info.name == tool.name);
    info.map_or_else(|| json!({ "type": "object" }), |info| view.input_schema(info))
}

fn call(tool: &FormatTool, arguments: Arguments) -> Result<MappedCall, Refusal> {
    let [own] = tool.becomes[..] else {
        return Err(Refusal::invalid("the tool has no call", "Call another tool."));
    };
    let mut input = arguments.rest();
    // The server makes the IDs of calls: a model may invent the same one twice.
    input.remove("toolCallId");
    Ok(MappedCall {
        tool: own,
        input,
        reason: None,
        asked: AsWritten { tool: tool.name, ..AsWritten::default() },
        render: None,
        snippet: None,
        globs: Vec::new(),
        if_folder: None,
    })
}

/// Requires every member of every object, and permits `null` for those that were optional.
fn make_strict(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    if let Some(default) = members.remove("default") {
        let description = members.get("description").and_then(Value::as_str).unwrap_or_default();
        let space = if description.is_empty() { "" } else { " " };
        let described = format!("{description}{space}Default: {default}.");
        members.insert("description".to_owned(), described.into());
    }
    if let Some(items) = members.get_mut("items") {
        make_strict(items);
    }
    let required: Vec<String> = members
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let Some(Value::Object(properties)) = members.get_mut("properties") else { return };
    for (name, property) in properties.iter_mut() {
        make_strict(property);
        if !required.contains(name) {
            make_nullable(property);
        }
    }
    let names: Vec<_> = properties.keys().cloned().collect();
    members.insert("required".to_owned(), names.into());
    members.insert("additionalProperties".to_owned(), false.into());
}

fn make_nullable(property: &mut Value) {
    let Some(members) = property.as_object_mut() else { return };
    if let Some(kind) = members.get_mut("type").filter(|kind| kind.is_string()) {
        *kind = json!([kind.take(), "null"]);
    }
    if let Some(Value::Array(values)) = members.get_mut("enum") {
        values.push(Value::Null);
    }
}
