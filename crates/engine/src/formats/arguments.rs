//! The arguments of a call in a provider's form.

use model::{Refusal, excerpt, json};
use serde_json::{Map, Value};

/// The arguments that are not taken yet. Models send some in other types than the schema has; each is taken for what it says.
pub(crate) struct Arguments {
    members: Map<String, Value>,
    /// What the arguments are of, for refusals: a tool or one of its commands.
    of: String,
}

impl Arguments {
    /// The arguments of `tool`. A text is the only argument of a tool that takes text instead of JSON.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if they are neither an object nor a text.
    pub(super) fn of(tool: &str, input: Value) -> Result<Self, Refusal> {
        let members = match input {
            Value::Object(members) => members,
            Value::String(text) => Map::from_iter([("input".to_owned(), Value::String(text))]),
            _ => {
                let message = format!("the input of `{tool}` is not an object");
                return Err(Refusal::invalid(message, "Send the arguments as one JSON object."));
            }
        };
        Ok(Self { members, of: format!("tool `{tool}`") })
    }

    /// Names the command whose arguments these are.
    pub(super) fn of_command(&mut self, command: &str) {
        self.of = format!("command: {}", excerpt(command, 40));
    }

    /// Takes the first of `names` that is there. `null` is an absent argument.
    fn take(&mut self, names: &[&str]) -> Option<Value> {
        names.iter().find_map(|name| self.members.remove(*name).filter(|value| !value.is_null()))
    }

    fn wrong(&self, name: &str, wanted: &str) -> Refusal {
        Refusal::invalid(format!("parameter `{name}` for {} is not {wanted}", self.of), "Correct it and call again.")
    }

    fn missing(&self, name: &str) -> Refusal {
        let message = format!("parameter `{name}` is required for {}", self.of);
        Refusal::invalid(message, "Give it and call again.")
    }

    /// Takes a text, under the first of `names` that is there.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn text(&mut self, names: &[&str]) -> Result<Option<String>, Refusal> {
        match self.take(names) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(self.wrong(names[0], "a string")),
        }
    }

    /// Takes a text that must be there.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn required(&mut self, names: &[&str]) -> Result<String, Refusal> {
        self.text(names)?.ok_or_else(|| self.missing(names[0]))
    }

    /// Takes a whole number.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn integer(&mut self, names: &[&str]) -> Result<Option<i64>, Refusal> {
        match self.take(names) {
            None => Ok(None),
            Some(value) => whole(&value).map(Some).ok_or_else(|| self.wrong(names[0], "an integer")),
        }
    }

    /// Takes a whole number that must be there.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn required_integer(&mut self, name: &str) -> Result<i64, Refusal> {
        self.integer(&[name])?.ok_or_else(|| self.missing(name))
    }

    /// Takes a Boolean.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn boolean(&mut self, names: &[&str]) -> Result<Option<bool>, Refusal> {
        match self.take(names) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(Value::String(text)) if text == "true" || text == "false" => Ok(Some(text == "true")),
            Some(_) => Err(self.wrong(names[0], "a boolean")),
        }
    }

    /// Takes a list of whole numbers.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn integers(&mut self, name: &str) -> Result<Option<Vec<i64>>, Refusal> {
        let list = match self.take(&[name]) {
            None => return Ok(None),
            Some(Value::String(text)) => json::parse(text.as_bytes()).ok(),
            Some(value) => Some(value),
        };
        let numbers = list.as_ref().and_then(Value::as_array).and_then(|list| list.iter().map(whole).collect());
        numbers.map(Some).ok_or_else(|| self.wrong(name, "a list of integers"))
    }

    /// Takes a list of texts, or one.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>, Refusal> {
        let entries = match self.take(&[name]) {
            None => return Ok(Vec::new()),
            Some(Value::Array(entries)) => entries,
            Some(entry) => vec![entry],
        };
        let text = |entry: Value| match entry {
            Value::String(text) => Some(text),
            _ => None,
        };
        entries.into_iter().map(text).collect::<Option<_>>().ok_or_else(|| self.wrong(name, "a list of strings"))
    }

    /// Takes an object.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, Refusal> {
        match self.take(&[name]) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(_) => Err(self.wrong(name, "an object")),
        }
    }

    /// Leaves out arguments that have no meaning here, such as a description for a person who watches.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.members.remove(*name);
        }
    }

    /// Returns all arguments that are left.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.members
    }

    /// Checks that every argument was taken.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with the name of one that the tool does not have.
    pub(super) fn finish(self) -> Result<(), Refusal> {
        let Some((name, _)) = self.members.iter().find(|(_, value)| !value.is_null()) else { return Ok(()) };
        let message = format!("there is no parameter `{}` for {}", excerpt(name, 60), self.of);
        Err(Refusal::invalid(message, "Leave it out and call again."))
    }
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let real = number.as_f64().filter(|real| real.fract() == 0.0 && real.abs() < 9e15)?;
            format!("{real:.0}").parse().ok()
        }),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}
