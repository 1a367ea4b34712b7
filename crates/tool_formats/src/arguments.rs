//! The arguments of a call in a format.

use engine::tools::ArgumentForms;
use model::{Refusal, excerpt};
use serde_json::{Map, Value};

use crate::templates::{fill, repeated};
use crate::{FormatTool, Row};

/// The arguments that are not taken yet. Each is accepted in the types that models send.
#[derive(Clone)]
pub(crate) struct Arguments<'a> {
    members: Map<String, Value>,
    forms: &'a ArgumentForms,
    /// The tool or command that the arguments are for, in refusals.
    of: String,
}

impl<'a> Arguments<'a> {
    /// The arguments of `tool`. A text is the only argument of a tool that takes text instead of JSON.
    pub(crate) fn of(tool: &'a FormatTool, input: Value) -> Result<Self, Refusal> {
        let of = format!("tool `{}`", tool.name);
        let members = match input {
            Value::Object(members) => members,
            Value::String(text) => Map::from_iter([("input".to_owned(), Value::String(text))]),
            _ => {
                let message = format!("the input of `{}` is not an object", tool.name);
                return Err(Refusal::invalid(message, "Send the arguments as one JSON object."));
            }
        };
        Ok(Self { members, forms: tool.forms(), of })
    }

    /// The members of an argument that is an object.
    pub(crate) fn of_members(members: Map<String, Value>, forms: &'a ArgumentForms, of: &str) -> Self {
        Self { members, forms, of: of.to_owned() }
    }

    /// Names the command whose arguments these are.
    pub(crate) fn for_command(self, command: &str) -> Self {
        Self { of: format!("command: {}", excerpt(command, 40)), ..self }
    }

    /// Takes an argument under the first of its names, which `|` separates. `null` is an absent argument.
    pub(crate) fn take(&mut self, names: &str) -> Result<Option<Value>, Refusal> {
        let name = names.split('|').next().unwrap_or_default();
        let mut found: Option<Value> = None;
        for other in names.split('|') {
            // Some clients send an argument under both names.
            let fits = |value: &Value| value.is_null() || found.as_ref().is_none_or(|found| found == value);
            if self.members.get(other).is_some_and(fits) {
                found = self.members.remove(other).filter(|value| !value.is_null()).or(found);
            }
        }
        let Some(mut value) = found else { return Ok(None) };
        match self.forms.fit(name, &mut value) {
            None => Ok(Some(value)),
            Some(wanted) => {
                let message = format!("parameter `{name}` for {} is not {wanted}", self.of);
                Err(Refusal::invalid(message, "Correct it and call again."))
            }
        }
    }

    /// Takes a text that is required.
    pub(crate) fn text(&mut self, name: &str) -> Result<String, Refusal> {
        self.optional_text(name)?.ok_or_else(|| self.missing(name))
    }

    /// Takes a text.
    pub(crate) fn optional_text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        Ok(self.take(name)?.and_then(into_text))
    }

    pub(crate) fn missing(&self, name: &str) -> Refusal {
        let message = format!("parameter `{name}` is required for {}", self.of);
        Refusal::invalid(message, "Give it and call again.")
    }

    /// Whether the text with this name is there and empty.
    pub(crate) fn is_empty_text(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| value == "")
    }

    /// Refuses an argument with which the call of `row` is not possible.
    pub(crate) fn check_not_with(&mut self, row: &Row) -> Result<(), Refusal> {
        for (name, [message, hint]) in &row.not_with {
            if self.take(name)?.is_some_and(|value| value != false && value != "") {
                let text = |name: &str| {
                    Some(self.members.get(name)?.as_str().map_or_else(|| self.members[name].to_string(), repeated))
                };
                return Err(Refusal::invalid(fill(message, text).as_ref().unwrap_or(message), hint));
            }
        }
        Ok(())
    }

    /// Refuses an argument that was not taken and, unless `accepts_known`, is one of the tool's.
    pub(crate) fn finish(&self, accepts_known: bool) -> Result<(), Refusal> {
        let is_known = |name: &str| accepts_known && self.forms.has(name);
        let Some((name, _)) = self.members.iter().find(|(name, value)| !value.is_null() && !is_known(name)) else {
            return Ok(());
        };
        let message = format!("there is no parameter `{}` for {}", excerpt(name, 60), self.of);
        Err(Refusal::invalid(message, "Leave it out and call again."))
    }
}

pub(crate) fn into_text(value: Value) -> Option<String> {
    if let Value::String(text) = value { Some(text) } else { None }
}
