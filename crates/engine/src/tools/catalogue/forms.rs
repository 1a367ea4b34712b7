//! The forms of the catalogue: for programs and for models, as several interfaces take it.

use std::collections::BTreeSet;

use model::{FileKind, KindDecision, Permission, Policy};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{CATALOGUE, ToolInfo};
use crate::tool::{Tool, ToolRun};
use crate::tools::TOOLS;

/// Who reads the catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// A program: every member of the input, and the schema of the output.
    #[default]
    Program,
    /// A model: only what it has to decide. No `toolCallId`, `stepId`, `expectedSha256` or `dryRun`, `mount` only where the run
    /// has mounts, no output schema, and schemas without `allOf`, `oneOf` and `$ref`.
    Model,
}

/// Members of the input that a model does not set.
const PROGRAM_MEMBERS: [&str; 16] = [
    "toolCallId",
    "stepId",
    "expectedSha256",
    "dryRun",
    "evidence",
    "expectedBaseCommit",
    "atSeq",
    "checkTree",
    "maxChars",
    "expectedReplacements",
    "ofPath",
    "fileType",
    // The text view has neither IDs nor numbers of records.
    "toolCallIds",
    "toSeq",
    "onePerFile",
    "skip",
];

/// Keywords of a schema that a model does not need: the service says what is wrong with a value.
const PROGRAM_KEYWORDS: [&str; 10] = [
    "format",
    "example",
    "examples",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
];

/// What one caller is shown of the catalogue.
#[derive(Clone, Debug)]
pub struct CatalogueView<'a> {
    /// The reader.
    pub audience: Audience,
    /// What the caller may do; a tool for which it has no permission is left out.
    pub permissions: &'a BTreeSet<Permission>,
    /// The policy of the caller's run; a tool that it always denies is left out.
    pub policy: Option<&'a Policy>,
    /// Whether the run has mounts.
    pub has_mounts: bool,
    /// Whether a runner is attached to the run, without which no command is run.
    pub has_runner: bool,
}

impl CatalogueView<'_> {
    /// Returns the tools that the caller may use, in the order of the catalogue.
    pub fn shown(&self) -> impl Iterator<Item = (&'static Tool, &'static ToolInfo)> {
        TOOLS.iter().zip(CATALOGUE.iter()).filter(|(tool, _)| self.shows(tool))
    }

    /// Returns these tools as the service declares them.
    pub fn items(&self) -> Vec<Value> {
        let items = self.shown().map(|(_, info)| {
            let mut item = json!({
                "name": info.name, "description": info.description, "mutates": info.mutates,
                "permissions": info.permissions, "inputSchema": self.input_schema(info),
            });
            if self.audience == Audience::Program {
                item["outputSchema"] = info.output_schema.clone();
            }
            item
        });
        items.collect()
    }

    /// Returns these tools as the Model Context Protocol declares them.
    pub fn mcp_items(&self) -> Vec<Value> {
        let items = self.shown().map(|(tool, info)| {
            json!({
                "name": info.name, "title": title(info.name), "description": info.description,
                "inputSchema": self.input_schema(info),
                "annotations": {
                    "readOnlyHint": tool.only_reads(),
                    "destructiveHint": tool.is_destructive(),
                    "idempotentHint": tool.only_reads(),
                    "openWorldHint": tool.is_command(),
                },
            })
        });
        items.collect()
    }

    /// Whether the caller may use `tool` at all.
    pub fn shows(&self, tool: &Tool) -> bool {
        let is_permitted = tool.permissions.iter().any(|permission| self.permissions.contains(permission));
        is_permitted
            && match tool.run {
                ToolRun::Read(_) => true,
                ToolRun::Mutation(_) => !self.policy.is_some_and(denies_every_change),
                ToolRun::Command => self.has_runner && !self.policy.is_some_and(|policy| policy.commands.denies_all()),
            }
    }

    /// The schema of the tool's input in this view.
    pub fn input_schema(&self, info: &ToolInfo) -> Value {
        match self.audience {
            Audience::Program => info.input_schema.clone(),
            // A mount has no diff.
            Audience::Model => self.for_model(info.input_schema.clone(), info.name != "diff_workspace"),
        }
    }

    fn for_model(&self, mut schema: Value, has_mount: bool) -> Value {
        if let Some(members) = schema.as_object_mut() {
            members.remove("description");
            let hidden =
                |name: &str| PROGRAM_MEMBERS.contains(&name) || (name == "mount" && !(has_mount && self.has_mounts));
            if let Some(Value::Object(properties)) = members.get_mut("properties") {
                properties.retain(|name, _| !hidden(name));
            }
            if let Some(Value::Array(required)) = members.get_mut("required") {
                required.retain(|name| !name.as_str().is_some_and(hidden));
                if required.is_empty() {
                    members.remove("required");
                }
            }
            if let Some(reason) = members.get_mut("properties").and_then(|properties| properties.get_mut("reason")) {
                // What a program is told of it does not concern a model.
                *reason = json!({ "type": "string", "description": "One sentence for the reviewer." });
            }
        }
        simplify(&mut schema);
        schema
    }
}

impl Tool {
    /// Whether a call may remove or replace what is in a file.
    pub fn is_destructive(&self) -> bool {
        !self.only_reads()
    }

    /// Whether the input may name the version of the one file that the call changes.
    pub fn expects_version(&self) -> bool {
        let info = CATALOGUE.iter().find(|info| info.name == self.name);
        let member = info.and_then(|info| info.input_schema.pointer("/properties/expectedSha256"));
        // An optional member has no type of its own, but a choice of schemas.
        self.mutates()
            && member
                .map(|member| &member["type"])
                .is_some_and(|kind| kind != "object" && kind.get(0).is_none_or(|first| first != "object"))
    }
}

/// A tool's name for people: `read_file` → `Read file`.
fn title(name: &str) -> String {
    let mut title = name.replace('_', " ");
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    title
}

/// Whether a policy denies every mutation, so that a model should not be offered one.
fn denies_every_change(policy: &Policy) -> bool {
    let is_denied = |kind: &FileKind| policy.kinds.get(kind) == Some(&KindDecision::Deny);
    let kinds = [FileKind::TextSource, FileKind::TextConfig, FileKind::TextDoc, FileKind::Unknown];
    (policy.write.is_empty() && policy.ask.is_empty()) || kinds.iter().all(is_denied)
}

/// Removes from a schema, at any depth, what a model does not need: `null` for an omitted member, formats of numbers,
/// examples, and alternatives to the fullest form of a value.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for key in ["anyOf", "oneOf"] {
                if let Some(Value::Array(forms)) = members.remove(key) {
                    merge(members, fullest(forms));
                }
            }
            members.retain(|key, value| !PROGRAM_KEYWORDS.contains(&key.as_str()) || is_property(value));
            // What is false by default is said by its description. `null` is no value of the one type that is left.
            members.retain(|key, value| key != "default" || !(*value == false || value.is_null()));
            if let Some(Value::Array(types)) = members.get("type") {
                let named = types.iter().find(|name| *name != "null").cloned();
                members.extend(named.map(|name| ("type".to_owned(), name)));
            }
            members.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a value is the schema of a property whose name is that of a keyword.
fn is_property(value: &Value) -> bool {
    value.as_object().is_some_and(|members| members.contains_key("type") || members.contains_key("enum"))
}

/// The form of a value that takes most: a list rather than one entry of it, and never `null`.
fn fullest(forms: Vec<Value>) -> Value {
    let is_null = |form: &Value| form.get("type").is_some_and(|kind| kind == "null");
    let mut forms: Vec<_> = forms.into_iter().filter(|form| !is_null(form)).collect();
    let list = forms.iter().position(|form| form.get("type").is_some_and(|kind| kind == "array"));
    if forms.is_empty() { json!({}) } else { forms.swap_remove(list.unwrap_or(0)) }
}

fn merge(members: &mut Map<String, Value>, form: Value) {
    if let Value::Object(form) = form {
        for (key, value) in form {
            members.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests;
