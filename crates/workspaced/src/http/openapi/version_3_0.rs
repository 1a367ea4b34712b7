//! The document as OpenAPI 3.0.3, for generators that do not read 3.1.
//!
//! Schemas of 3.1 are JSON Schema 2020-12; those of 3.0 are a dialect of their own. What 3.0 cannot express is left out, so
//! that its schemas accept the same values, or more. Responses whose body is not that of the others are left out too.

use serde_json::{Map, Value, json};

/// Keywords of JSON Schema that OpenAPI 3.0 does not have.
const UNKNOWN: [&str; 9] = [
    "$schema",
    "propertyNames",
    "prefixItems",
    "contentMediaType",
    "contentEncoding",
    "contentSchema",
    "patternProperties",
    "unevaluatedProperties",
    "$comment",
];

/// Converts a document of OpenAPI 3.1.
pub(crate) fn convert(mut document: Value) -> Value {
    document["openapi"] = Value::from("3.0.3");
    if let Some(license) = document["info"]["license"].as_object_mut() {
        license.remove("identifier");
    }
    let schemas = document["components"]["schemas"].as_object_mut();
    schemas.into_iter().flatten().for_each(|(_, schema)| convert_schema(schema));
    for part in ["parameters", "headers", "responses"] {
        convert_part(&mut document["components"][part]);
    }
    convert_part(&mut document["paths"]);
    for item in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
        for operation in item.as_object_mut().into_iter().flat_map(|methods| methods.values_mut()) {
            if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
                keep_one_body(responses);
            }
        }
    }
    document
}

/// Leaves out the successes whose body is not that of the first one, such as `202` of a call that waits for an approval, and the
/// errors without a body: generators that read only 3.0 have one type for the successes of an operation and one for its errors.
fn keep_one_body(responses: &mut Map<String, Value>) {
    let first = responses.iter().find(|(status, _)| status.starts_with('2')).map(|(_, response)| body_of(response));
    responses.retain(|status, response| match status.as_bytes() {
        [b'2', ..] => Some(body_of(response)) == first,
        [b'4' | b'5', ..] => response.get("$ref").is_some() || response.get("content").is_some(),
        _ => true,
    });
}

/// The body of a response; of a refusal, the reference to it.
fn body_of(response: &Value) -> Value {
    response.get("$ref").or_else(|| response.get("content")).cloned().unwrap_or_default()
}

/// Converts what is not a schema: the schemas in it, and references, which have no description of their own in 3.0.
fn convert_part(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.get("$ref").is_some_and(Value::is_string) {
                members.retain(|key, _| key == "$ref");
            }
            for (key, member) in members {
                match key.as_str() {
                    "schema" => convert_schema(member),
                    "example" | "examples" => {}
                    _ => convert_part(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(convert_part),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn convert_schema(schema: &mut Value) {
    if let Value::Bool(accepts) = schema {
        *schema = if *accepts { json!({}) } else { json!({"not": {}}) };
        return;
    }
    let Some(members) = schema.as_object_mut() else { return };
    members.retain(|key, _| !UNKNOWN.contains(&key.as_str()));
    for key in ["properties", "oneOf", "anyOf", "allOf", "items", "additionalProperties", "not"] {
        match (key, members.get_mut(key)) {
            ("properties", Some(Value::Object(properties))) => properties.values_mut().for_each(convert_schema),
            // Both versions permit `false` here.
            ("additionalProperties", Some(Value::Bool(_))) | (_, None) => {}
            (_, Some(Value::Array(parts))) => convert_parts(parts),
            (_, Some(part)) => convert_schema(part),
        }
    }
    convert_null(members);
    convert_type(members);
    convert_keywords(members);
    convert_reference(members);
}

/// Converts alternatives, except `null`, which [`convert_null`] needs.
fn convert_parts(parts: &mut [Value]) {
    parts.iter_mut().filter(|part| !is_null(part)).for_each(convert_schema);
}

fn is_null(schema: &Value) -> bool {
    schema["type"] == "null"
}

/// `oneOf` with `null` becomes `nullable`.
fn convert_null(members: &mut Map<String, Value>) {
    for key in ["oneOf", "anyOf"] {
        let Some(Value::Array(parts)) = members.get_mut(key) else { continue };
        let all = parts.len();
        parts.retain(|part| !is_null(part));
        let is_nullable = parts.len() < all;
        if is_nullable {
            if let [only] = parts.as_mut_slice() {
                let only = only.take();
                members.remove(key);
                merge(members, only);
            }
            members.insert("nullable".to_owned(), Value::from(true));
        }
    }
}

/// Merges a schema into the only one that contains it.
fn merge(members: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else { return };
    if part.contains_key("$ref") {
        members.insert("allOf".to_owned(), json!([part]));
        return;
    }
    for (key, value) in part {
        members.entry(key).or_insert(value);
    }
}

/// A list of types becomes one type, alternatives, or `nullable`.
fn convert_type(members: &mut Map<String, Value>) {
    let types = match members.remove("type") {
        Some(Value::Array(types)) => types,
        Some(Value::String(one)) if one == "null" => vec![Value::from(one)],
        Some(one) => {
            members.insert("type".to_owned(), one);
            return;
        }
        None => return,
    };
    let is_nullable = types.iter().any(|one| one == "null");
    let mut types: Vec<_> = types.into_iter().filter(|one| one != "null").collect();
    if types.len() > 1 {
        members.insert("anyOf".to_owned(), types.into_iter().map(|one| json!({"type": one})).collect());
    } else if let Some(only) = types.pop() {
        members.insert("type".to_owned(), only);
    }
    if is_nullable {
        members.insert("nullable".to_owned(), Value::from(true));
        if let Some(Value::Array(values)) = members.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
    }
}

/// Converts keywords that have another name or form.
fn convert_keywords(members: &mut Map<String, Value>) {
    if let Some(value) = members.remove("const") {
        members.insert("enum".to_owned(), json!([value]));
    }
    if let Some(Value::Array(examples)) = members.remove("examples")
        && let Some(first) = examples.into_iter().next()
    {
        members.entry("example").or_insert(first);
    }
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(value @ Value::Number(_)) = members.get(exclusive).cloned() {
            members.insert(bound.to_owned(), value);
            members.insert(exclusive.to_owned(), Value::from(true));
        }
    }
}

/// A reference with members of its own becomes a part of `allOf`: 3.0 ignores what is beside a reference.
fn convert_reference(members: &mut Map<String, Value>) {
    if members.len() > 1
        && let Some(reference) = members.remove("$ref")
    {
        members.insert("allOf".to_owned(), json!([{"$ref": reference}]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keyword_has_its_form_of_3_0() {
        let reference = || json!({"$ref": "#/components/schemas/A"});
        for (schema, want) in [
            (json!({"type": ["string", "null"]}), json!({"type": "string", "nullable": true})),
            (
                json!({"type": ["string", "null"], "enum": ["a"]}),
                json!({"type": "string", "nullable": true, "enum": ["a", null]}),
            ),
            (json!({"type": ["string", "integer"]}), json!({"anyOf": [{"type": "string"}, {"type": "integer"}]})),
            (json!({"type": "null"}), json!({"nullable": true})),
            (json!({"oneOf": [reference(), {"type": "null"}]}), json!({"allOf": [reference()], "nullable": true})),
            (json!({"oneOf": [{"type": "integer"}, {"type": "null"}]}), json!({"type": "integer", "nullable": true})),
            (json!({"const": true}), json!({"enum": [true]})),
            (json!({"type": "string", "examples": ["a", "b"]}), json!({"type": "string", "example": "a"})),
            (json!({"exclusiveMinimum": 3}), json!({"minimum": 3, "exclusiveMinimum": true})),
            (json!({"type": "object", "propertyNames": {"type": "string"}}), json!({"type": "object"})),
            (
                json!({"$ref": "#/components/schemas/A", "description": "It."}),
                json!({"allOf": [reference()], "description": "It."}),
            ),
            // Members of an object may have the names of keywords.
            (
                json!({"properties": {"const": {"const": 1}, "type": {"type": ["string", "null"]}}}),
                json!({"properties": {"const": {"enum": [1]}, "type": {"type": "string", "nullable": true}}}),
            ),
            (
                json!({"items": true, "additionalProperties": false}),
                json!({"items": {}, "additionalProperties": false}),
            ),
        ] {
            let mut converted = schema.clone();
            convert_schema(&mut converted);
            assert_eq!(converted, want, "{schema}");
        }
    }

    #[test]
    fn the_document_keeps_its_examples_and_loses_what_is_beside_references() {
        let document = convert(json!({
            "openapi": "3.1.0",
            "info": {"license": {"name": "MIT", "identifier": "MIT"}},
            "components": {},
            "paths": {"/a": {"get": {"responses": {
                "200": {"content": {"a/b": {"example": {"$ref": "a", "type": ["b"]}, "schema": {"const": 1}}}},
                "201": {"content": {"a/b": {"example": {"$ref": "a", "type": ["b"]}, "schema": {"const": 1}}}},
                "202": {"$ref": "#/components/responses/ApprovalRequired"},
                "304": {"description": "It has not changed."},
                "409": {"$ref": "#/components/responses/Conflict", "description": "It."},
                "414": {"description": "The URL is too long."},
            }}}},
        }));
        assert_eq!(document["openapi"], "3.0.3");
        assert_eq!(document["info"]["license"], json!({"name": "MIT"}));
        let responses = &document["paths"]["/a"]["get"]["responses"];
        assert_eq!(responses["200"]["content"]["a/b"]["example"], json!({"$ref": "a", "type": ["b"]}));
        assert_eq!(responses["200"]["content"]["a/b"]["schema"], json!({"enum": [1]}));
        assert_eq!(responses["409"], json!({"$ref": "#/components/responses/Conflict"}));
        let kept: Vec<_> = responses.as_object().unwrap().keys().collect();
        assert_eq!(kept, ["200", "201", "304", "409"], "one body for the successes and one for the errors");
    }
}
