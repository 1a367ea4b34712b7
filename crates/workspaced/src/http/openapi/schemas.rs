//! What the schemas of the document have in common: formats of members, bytes, and references instead of copies.

use engine::tools::merge_annotations;
use serde_json::{Map, Value, json};

/// Members whose values are commits.
const COMMITS: [&str; 1] = ["baseCommit"];
/// Members, and query parameters, whose values are times, besides those that end in `At`.
const TIMES: [&str; 3] = ["timestamp", "since", "until"];

/// Applies the rules of this module to every schema of `document`.
pub(super) fn normalize(document: &mut Value) {
    refer_to_items(&mut document["components"]["schemas"]);
    name_variants(&mut document["components"]["schemas"]);
    send_json_as_text(&mut document["components"]["schemas"]);
    each_schema(&mut document["components"]["schemas"]);
    for item in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
        each_schema(item);
    }
}

/// A page is generic: its items are written out where the page is. Replaces them by a reference.
fn refer_to_items(schemas: &mut Value) {
    let Some(schemas) = schemas.as_object_mut() else { return };
    for (name, schema) in schemas {
        if let Some(item) = name.strip_prefix("Page_") {
            schema["properties"]["items"]["items"] = json!({"$ref": format!("#/components/schemas/{item}")});
        }
    }
}

/// A part of a form is bytes: the object that a client sends as one is JSON text. Several generators cannot write an object into a form.
fn send_json_as_text(schemas: &mut Value) {
    let forms = schemas.as_object_mut().into_iter().flatten().filter(|(name, _)| name.ends_with("Parts"));
    for part in forms.filter_map(|(_, form)| form["properties"].as_object_mut()).flat_map(|parts| parts.values_mut()) {
        let reference =
            part.get("$ref").or_else(|| part.pointer("/allOf/0/$ref")).or_else(|| part.pointer("/oneOf/0/$ref"));
        let Some(reference) = reference.and_then(Value::as_str).map(str::to_owned) else { continue };
        let name = reference.rsplit('/').next().unwrap_or_default();
        let description = part["description"].as_str().unwrap_or_default();
        *part = json!({
            "type": "string", "contentMediaType": "application/json", "contentSchema": {"$ref": reference},
            "description": format!("{description} JSON: `{name}`."),
        });
    }
}

/// Names the variants of types that have a `type` member, for generated clients: `empty` of `Source` is `EmptySource`.
fn name_variants(schemas: &mut Value) {
    for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
        for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
            let values = variant.pointer("/properties/type/enum").and_then(Value::as_array);
            let Some([Value::String(kind)]) = values.map(Vec::as_slice) else { continue };
            let (first, rest) = kind.split_at(1);
            variant["title"] = Value::from(first.to_uppercase() + rest + name);
        }
    }
}

fn each_schema(value: &mut Value) {
    merge_annotations(value);
    walk(value);
}

/// Gives a schema the form that every generator reads. What it accepts stays the same, except for constants that are Booleans: an
/// enumeration of `true` is no valid type in several languages, so that its value is said by an extension.
fn generate_alike(schema: &mut Map<String, Value>) {
    match schema.get("const").cloned() {
        Some(value @ Value::Bool(_)) => {
            schema.remove("const");
            schema.entry("description").or_insert_with(|| Value::from(format!("Always {value}.")));
            schema.insert("x-const".to_owned(), value);
        }
        Some(value @ Value::String(_)) => {
            schema.remove("const");
            schema.insert("type".to_owned(), Value::from("string"));
            schema.insert("enum".to_owned(), json!([value]));
        }
        // A member that is called `const`.
        Some(_) | None => {}
    }
    for key in ["oneOf", "anyOf"] {
        for part in schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(part) = part.as_object_mut().filter(|part| part.get("$ref").is_some_and(Value::is_string)) {
                part.retain(|key, _| key == "$ref");
            }
        }
    }
    if schema.len() > 1
        && let Some(reference @ Value::String(_)) = schema.get("$ref").cloned()
    {
        schema.remove("$ref");
        schema.insert("allOf".to_owned(), json!([{"$ref": reference}]));
    }
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if is_bytes(members) {
                *value = json!({"type": "string", "format": "binary"});
                return;
            }
            generate_alike(members);
            if members.get("in").is_some_and(Value::is_string) {
                normalize_parameter(members);
            }
            if is_any_object(members) {
                // Without it, generated clients take the object for an empty one.
                members.insert("additionalProperties".to_owned(), Value::from(true));
            }
            if let Some(Value::Object(properties)) = members.get_mut("properties") {
                properties.iter_mut().for_each(|(name, schema)| add_format(name, schema));
            }
            members.iter_mut().filter(|(key, _)| !key.starts_with("example")).for_each(|(_, member)| walk(member));
        }
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns whether a schema is what the generator writes for `Vec<u8>`.
fn is_bytes(schema: &Map<String, Value>) -> bool {
    let items = schema.get("items");
    items.is_some_and(|items| items["type"] == "integer" && items["format"] == "int32" && items["minimum"] == 0)
        && items.is_some_and(|items| items.as_object().is_some_and(|items| items.len() == 3))
}

/// Returns whether a schema accepts objects and says nothing about their members.
fn is_any_object(schema: &Map<String, Value>) -> bool {
    let kind = schema.get("type");
    let is_object = kind.is_some_and(|kind| *kind == "object" || *kind == json!(["object", "null"]));
    let described = ["properties", "additionalProperties", "allOf", "oneOf", "anyOf"];
    is_object && !described.iter().any(|key| schema.contains_key(*key))
}

/// A parameter is given or it is omitted: it is never null. Numbers have any length; too large ones are taken as the limit.
fn normalize_parameter(parameter: &mut Map<String, Value>) {
    let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(schema) = parameter.get_mut("schema") else { return };
    if schema["type"] == json!(["string", "null"]) {
        schema["type"] = Value::from("string");
    }
    if let Some(members) = schema.as_object_mut().filter(|members| members.get("type") == Some(&json!("integer"))) {
        members.remove("format");
    }
    add_format(&name, schema);
}

/// Adds the format of a member to its schema, if it is text without one.
fn add_format(name: &str, schema: &mut Value) {
    let is_text = schema["type"] == "string" || schema["type"] == json!(["string", "null"]);
    let has_format = ["format", "pattern", "enum"].iter().any(|key| schema.get(key).is_some());
    if !is_text || has_format {
        return;
    }
    if name.ends_with("At") || TIMES.contains(&name) {
        schema["format"] = Value::from("date-time");
    } else if COMMITS.contains(&name) {
        schema["pattern"] = Value::from("^([0-9a-f]{40}|[0-9a-f]{64})$");
    } else if name == "traceId" {
        schema["pattern"] = Value::from("^[0-9a-f]{32}$");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_have_formats_bytes_and_references() {
        let mut document = json!({
            "components": {"schemas": {
                "Page_Run": {"properties": {"items": {"type": "array", "items": {"type": "object"}}}},
                "Run": {"properties": {
                    "createdAt": {"type": "string"}, "closedAt": {"type": ["string", "null"]}, "since": {"type": "integer"},
                    "baseCommit": {"type": "string"}, "ok": {"type": "boolean", "const": true},
                    "kind": {"$ref": "#/components/schemas/Kind", "description": "Its kind."},
                    "either": {"oneOf": [{"$ref": "#/components/schemas/A", "description": "Or."}, {"const": "b"}]}, "labels": {"example": {"properties": {"createdAt": {"type": "string"}}}},
                }},
            }},
            "paths": {"/x": {"get": {
                "parameters": [{"name": "since", "in": "query", "schema": {"type": ["string", "null"]}}],
                "requestBody": {"content": {"a/b": {"schema": {
                    "type": "array", "items": {"type": "integer", "format": "int32", "minimum": 0},
                }}}},
            }}},
        });
        normalize(&mut document);
        let schemas = &document["components"]["schemas"];
        assert_eq!(schemas["Page_Run"]["properties"]["items"]["items"], json!({"$ref": "#/components/schemas/Run"}));
        let run = &schemas["Run"]["properties"];
        assert_eq!(run["createdAt"]["format"], "date-time");
        assert_eq!(run["closedAt"]["format"], "date-time");
        assert!(run["since"].get("format").is_none() && run["baseCommit"]["pattern"].is_string());
        assert_eq!(run["ok"], json!({"type": "boolean", "description": "Always true.", "x-const": true}));
        assert_eq!(run["kind"], json!({"allOf": [{"$ref": "#/components/schemas/Kind"}], "description": "Its kind."}));
        assert_eq!(
            run["either"]["oneOf"],
            json!([{"$ref": "#/components/schemas/A"}, {"type": "string", "enum": ["b"]}])
        );
        assert!(!run["labels"].to_string().contains("date-time"), "{run}");
        let operation = &document["paths"]["/x"]["get"];
        assert_eq!(operation["parameters"][0]["schema"], json!({"type": "string", "format": "date-time"}));
        let bytes = json!({"type": "string", "format": "binary"});
        assert_eq!(operation["requestBody"]["content"]["a/b"]["schema"], bytes);
    }
}
