//! Leniency for the arguments that models send: `null` for an absent member, numbers and Booleans as text, a list as the text of a JSON
//! array or as its only entry. Each is taken for what the schema has in that place.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use model::json;
use serde_json::{Map, Value};

use crate::tool::input::{MAX_EXACT, normalize_integer};
use crate::tools::CATALOGUE;

/// The members of each tool's input, by the name of the tool.
static TOOL_FORMS: LazyLock<HashMap<&'static str, ArgumentForms>> =
    LazyLock::new(|| CATALOGUE.iter().map(|tool| (tool.name, ArgumentForms::of(&tool.input_schema))).collect());

/// The types of an input's members, by their names.
pub struct ArgumentForms(HashMap<String, ArgumentMember>);

/// A member of an input.
#[derive(Clone, Copy, Debug)]
struct ArgumentMember {
    kind: ArgumentKind,
    is_required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentKind {
    Text,
    Number,
    Boolean,
    Texts,
    Numbers,
    Object,
    Other,
}

impl ArgumentForms {
    /// Returns the types in the JSON Schema of an object.
    pub fn of(schema: &Value) -> Self {
        let required: HashSet<_> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let member = |(name, schema): (&String, &Value)| {
            let is_required = required.contains(name.as_str());
            (name.clone(), ArgumentMember { kind: ArgumentKind::of(schema), is_required })
        };
        Self(properties.map(member).collect())
    }

    /// Whether there is a member with this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Brings the value of a member into the form of its type. Returns what it should be if it has another type.
    pub fn fit(&self, name: &str, value: &mut Value) -> Option<&'static str> {
        let kind = self.0.get(name)?.kind;
        normalize_value(kind, value);
        normalize_integer(value);
        let all = |value: &Value, fits: fn(&Value) -> bool| value.as_array().is_some_and(|list| list.iter().all(fits));
        let is_whole = |value: &Value| value.is_i64() || value.is_u64();
        let (fits, wanted) = match kind {
            ArgumentKind::Text => (value.is_string(), "a string"),
            ArgumentKind::Number => (is_whole(value), "an integer"),
            ArgumentKind::Boolean => (value.is_boolean(), "a boolean"),
            ArgumentKind::Texts => (all(value, Value::is_string), "a list of strings"),
            ArgumentKind::Numbers => (all(value, is_whole), "a list of integers"),
            ArgumentKind::Object => (value.is_object(), "an object"),
            ArgumentKind::Other => return None,
        };
        (!fits).then_some(wanted)
    }
}

impl ArgumentKind {
    fn of(schema: &Value) -> Self {
        // A list's schema also has the type of its entries, and that of an optional member `null`.
        let kind = |schema: &Value| match &schema["type"] {
            Value::Array(kinds) => kinds.first().and_then(Value::as_str).unwrap_or_default().to_owned(),
            kind => kind.as_str().unwrap_or_default().to_owned(),
        };
        match (kind(schema).as_str(), kind(&schema["items"]).as_str()) {
            ("string", _) => Self::Text,
            ("integer" | "number", _) => Self::Number,
            ("boolean", _) => Self::Boolean,
            ("array", "string") => Self::Texts,
            ("array", "integer") => Self::Numbers,
            ("object", _) => Self::Object,
            _ => Self::Other,
        }
    }
}

/// Brings the members of an input of `tool` into the form of its schema. What has no other form stays, and is refused by the parser of
/// the input.
pub(crate) fn normalize(tool: &str, members: &mut Map<String, Value>) {
    let Some(ArgumentForms(known)) = TOOL_FORMS.get(tool) else { return };
    members.retain(|name, value| !value.is_null() || known.get(name).is_none_or(|member| member.is_required));
    for (name, value) in members.iter_mut() {
        if let Some(member) = known.get(name) {
            normalize_value(member.kind, value);
        }
    }
}

fn normalize_value(kind: ArgumentKind, value: &mut Value) {
    let normal = match (kind, &mut *value) {
        // A float of this size is an integer that has lost digits.
        (ArgumentKind::Text, Value::Number(number))
            if number.as_f64().is_none_or(|float| !number.is_f64() || float.abs() < MAX_EXACT) =>
        {
            Value::String(number.to_string())
        }
        (ArgumentKind::Number, Value::String(text)) => match serde_json::from_str(text) {
            Ok(number @ Value::Number(_)) if !text.contains(char::is_whitespace) => number,
            _ => return,
        },
        (ArgumentKind::Boolean, Value::String(text)) => match text.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => return,
        },
        (ArgumentKind::Texts | ArgumentKind::Numbers, Value::String(text)) => match list_in(text) {
            Some(list) => Value::Array(list),
            None => Value::Array(vec![value.take()]),
        },
        (ArgumentKind::Texts | ArgumentKind::Numbers, Value::Number(_) | Value::Bool(_)) => {
            Value::Array(vec![value.take()])
        }
        _ => return,
    };
    *value = normal;
    let entry = if kind == ArgumentKind::Numbers { ArgumentKind::Number } else { ArgumentKind::Text };
    for value in value.as_array_mut().into_iter().flatten() {
        normalize_value(entry, value);
    }
}

/// Returns the entries if `text` is a JSON array, such as `["a", "b"]`. `[ab].txt` is a glob.
fn list_in(text: &str) -> Option<Vec<Value>> {
    if !text.trim_start().starts_with('[') {
        return None;
    }
    match json::parse(text.as_bytes()) {
        Ok(Value::Array(entries)) => Some(entries),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::normalize;

    #[test]
    fn arguments_are_taken_in_the_forms_that_models_send() {
        let table = [
            // One entry of a list.
            ("find_files", json!({"glob": "*.rs", "path": "src"}), json!({"glob": ["*.rs"], "path": "src"})),
            ("read_files", json!({"paths": "a"}), json!({"paths": ["a"]})),
            ("search_text", json!({"query": "x", "includeGlob": "a"}), json!({"query": "x", "includeGlob": ["a"]})),
            ("revert_calls", json!({"toolCallIds": "tc_1"}), json!({"toolCallIds": ["tc_1"]})),
            ("read_files", json!({"paths": ["a"]}), json!({"paths": ["a"]})),
            ("read_files", json!({"paths": {}}), json!({"paths": {}})),
            // The text of a JSON array.
            ("read_files", json!({"paths": "[\"a\", \"b\"]"}), json!({"paths": ["a", "b"]})),
            ("read_files", json!({"paths": "[2024, \"b\"]"}), json!({"paths": ["2024", "b"]})),
            ("find_files", json!({"glob": "[ab].txt"}), json!({"glob": ["[ab].txt"]})),
            ("find_files", json!({"glob": "[\"a\", \"a\""}), json!({"glob": ["[\"a\", \"a\""]})),
            // `null` for what is optional.
            ("read_file", json!({"path": "a", "startLine": null, "atSeq": null}), json!({"path": "a"})),
            ("read_file", json!({"path": null, "mount": null}), json!({"path": null})),
            ("write_file", json!({"expectedSha256": null, "dryRun": null, "stepId": null}), json!({})),
            ("read_file", json!({"unknown": null}), json!({"unknown": null})),
            // Numbers and Booleans as text, and numbers for text.
            ("read_file", json!({"startLine": "2", "maxLines": "1e2"}), json!({"startLine": 2, "maxLines": 1e2})),
            ("read_file", json!({"startLine": " 2", "maxLines": "two"}), json!({"startLine": " 2", "maxLines": "two"})),
            (
                "list_dir",
                json!({"includeHidden": "true", "maxDepth": "1"}),
                json!({"includeHidden": true, "maxDepth": 1}),
            ),
            ("search_text", json!({"caseSensitive": "no", "query": 42}), json!({"caseSensitive": "no", "query": "42"})),
            ("write_file", json!({"content": 42, "dryRun": "false"}), json!({"content": "42", "dryRun": false})),
            (
                "write_file",
                json!({"content": 18_446_744_073_709_551_615_u64}),
                json!({"content": "18446744073709551615"}),
            ),
            ("write_file", json!({"content": 1.25, "path": 1e23}), json!({"content": "1.25", "path": 1e23})),
            ("write_file", json!({"content": true}), json!({"content": true})),
        ];
        for (name, input, want) in table {
            let mut members = input.as_object().unwrap().clone();
            normalize(name, &mut members);
            assert_eq!(json!(members), want, "{name} {input}");
        }
    }
}
