//! JSON Schemas of tools: the same types that the OpenAPI document shows, without references.

use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A type's schema and the ones that it refers to.
pub struct ToolSchema {
    /// The type's own schema.
    pub schema: RefOr<Schema>,
    /// The type's name in the document.
    pub name: String,
    /// Schemas that it refers to, by name.
    pub refers_to: Vec<(String, RefOr<Schema>)>,
}

impl ToolSchema {
    /// Returns the schema of `T`.
    pub fn of<T: ToSchema>() -> Self {
        let mut refers_to = Vec::new();
        T::schemas(&mut refers_to);
        Self { schema: <T as PartialSchema>::schema(), name: T::name().into_owned(), refers_to }
    }

    /// Returns one JSON Schema without references, with additional `members`, of which those in `required` are required.
    pub fn inlined(&self, members: &[(&str, Value)], required: &[&str]) -> Value {
        let mut schema = self.resolve(serde_json::to_value(&self.schema).unwrap_or_default(), 0);
        merge_annotations(&mut schema);
        if let Some(object) = schema.as_object_mut() {
            merge_parts(object);
            extend(object, members, required);
        }
        schema
    }

    /// Returns the JSON Schema with references to the types of `refers_to`, with additional `members`, of which those in
    /// `required` are required.
    pub fn with_references(&self, members: &[(&str, Value)], required: &[&str]) -> Value {
        let mut schema = serde_json::to_value(&self.schema).unwrap_or_default();
        // Flattened structs are references, to be merged into the object.
        if let Some(Value::Array(parts)) = schema.get_mut("allOf") {
            for part in parts {
                let name = part["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
                let found = self.refers_to.iter().find(|(known, _)| Some(known.as_str()) == name);
                if let Some(Ok(schema)) = found.map(|(_, schema)| serde_json::to_value(schema)) {
                    *part = schema;
                }
            }
        }
        merge_annotations(&mut schema);
        if let Some(object) = schema.as_object_mut() {
            merge_parts(object);
            extend(object, members, required);
        }
        schema
    }

    fn resolve(&self, value: Value, depth: usize) -> Value {
        match value {
            Value::Object(members) => match members.get("$ref").and_then(Value::as_str) {
                Some(reference) if depth < 16 => {
                    let name = reference.rsplit('/').next().unwrap_or_default();
                    let found = self.refers_to.iter().find(|(known, _)| known == name);
                    let schema = found.and_then(|(_, schema)| serde_json::to_value(schema).ok()).unwrap_or(json!({}));
                    self.resolve(schema, depth + 1)
                }
                _ => Value::Object(members.into_iter().map(|(key, value)| (key, self.resolve(value, depth))).collect()),
            },
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.resolve(item, depth)).collect()),
            scalar => scalar,
        }
    }
}

/// Merges, at any depth, each part of an `allOf` that only describes the others into them. A generator writes such a part
/// for a member that refers to a type and has a description or a default of its own, with the type `object`, which would
/// accept no value of another type.
pub fn merge_annotations(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(merge_annotations);
            let Some(Value::Array(parts)) = members.get("allOf") else { return };
            let (annotations, rest): (Vec<_>, Vec<_>) = parts.iter().cloned().partition(is_annotation);
            if let (false, [Value::Object(only)]) = (annotations.is_empty(), rest.as_slice()) {
                members.remove("allOf");
                for (key, value) in only.clone() {
                    members.entry(key).or_insert(value);
                }
                for (key, value) in annotations.into_iter().filter_map(into_members).flatten() {
                    if key != "type" {
                        members.insert(key, value);
                    }
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(merge_annotations),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn into_members(value: Value) -> Option<Map<String, Value>> {
    if let Value::Object(members) = value { Some(members) } else { None }
}

/// Whether a schema restricts nothing but the type, to `object`.
fn is_annotation(schema: &Value) -> bool {
    const KEYS: [&str; 5] = ["type", "description", "default", "example", "examples"];
    schema.as_object().is_some_and(|members| {
        members.keys().all(|key| KEYS.contains(&key.as_str()))
            && members.get("type").is_none_or(|kind| kind == "object")
    })
}

/// Merges the parts of an `allOf`, which flattened structs have, into one object.
fn merge_parts(object: &mut Map<String, Value>) {
    let Some(Value::Array(parts)) = object.remove("allOf") else { return };
    for part in parts {
        let Value::Object(part) = part else { continue };
        for (key, value) in part {
            match (object.get_mut(&key), value) {
                (Some(Value::Object(merged)), Value::Object(more)) => merged.extend(more),
                (Some(Value::Array(merged)), Value::Array(more)) => merged.extend(more),
                (Some(_), _) => {}
                (None, value) => {
                    object.insert(key, value);
                }
            }
        }
    }
}

fn extend(object: &mut Map<String, Value>, members: &[(&str, Value)], required: &[&str]) {
    let properties = object.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        for (name, schema) in members {
            properties.insert((*name).to_owned(), schema.clone());
        }
    }
    let all = object.entry("required").or_insert_with(|| json!([]));
    if let Some(all) = all.as_array_mut() {
        all.extend(required.iter().map(|name| Value::from(*name)));
    }
    if object.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        object.remove("required");
    }
}
