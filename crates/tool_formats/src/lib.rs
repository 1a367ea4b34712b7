//! The tools of the service in the formats of model providers.
//!
//! A format is a file in `formats/`: how the provider declares each tool, which call of ours an input becomes, and how the answer or the
//! refusal of that call reads. The code here interprets the files; the engine executes, judges and records each call as one of its tools.

mod answers;
mod arguments;
mod calls;
mod declarations;
mod mapping;
mod outputs;
mod patches;
mod paths;
mod refusals;
mod rows;
mod snippet;
mod templates;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::{LazyLock, OnceLock};

use engine::tools::{self, ArgumentForms, Tool};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use declarations::ListStyle;
use outputs::OutputReader;
use rows::{AnswerForm, ArgumentRole};
use snippet::Snippet;

pub use calls::{FormatCall, FormatRefusal, call, check_permitted};
pub use declarations::{CatalogueFormat, FunctionForm};
pub use paths::ROOT;

/// Every format of a provider, in the order of the documentation.
pub static FORMATS: LazyLock<Vec<ToolFormat>> = LazyLock::new(|| {
    let files = [
        include_str!("../formats/anthropic-editor.json"),
        include_str!("../formats/anthropic-toolset.json"),
        include_str!("../formats/claude-code.json"),
        include_str!("../formats/openai-apply-patch.json"),
        include_str!("../formats/codex.json"),
        include_str!("../formats/gemini.json"),
        include_str!("../formats/qwen.json"),
    ];
    files.into_iter().map(parse).collect()
});

#[expect(clippy::expect_used, reason = "the files are part of the program, and every test reads them")]
fn parse(file: &str) -> ToolFormat {
    serde_json::from_str(file).expect("the file of a format has its form")
}

/// The tools of a provider.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolFormat {
    /// Its name, as in routes and records.
    pub name: String,
    /// How the provider's API takes the list of tools.
    declare: ListStyle,
    /// Whether answers show paths relative to the root.
    #[serde(default)]
    relative: bool,
    /// Names of our tools and arguments, each with that of the format. A sentence with another of our names is left out of a hint.
    words: BTreeMap<String, String>,
    /// The hint about a patch in a wrong form, if not that of our tool.
    patch_hint: Option<String>,
    /// How a model reads more of the output of a command.
    output: Option<OutputReader>,
    refusals: Templates,
    /// Names that earlier versions of the provider had for tools.
    #[serde(default)]
    aliases: BTreeMap<String, String>,
    /// Its tools.
    pub tools: Vec<FormatTool>,
}

/// The first line of a refusal by its code, or by what is wrong with the version that a change expects: `unseen`, `changed`.
type Templates = BTreeMap<String, String>;

/// A tool of a provider.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FormatTool {
    /// Its name.
    pub name: String,
    /// Its purpose. A model reads this.
    description: String,
    /// The grammar in Lark of a tool that takes text instead of JSON.
    grammar: Option<String>,
    /// JSON Schema of the input.
    input: Value,
    /// Properties that are accepted beside the declared ones. A property that no row uses has no effect.
    #[serde(default)]
    hidden: Map<String, Value>,
    /// Its refusals, if they are not those of the format.
    refusals: Option<Templates>,
    /// The type of the API's item that is the answer, if that is not text.
    item: Option<String>,
    /// The calls that an input may become: one for each command of a tool that has several, else one. A call with an invalid input is
    /// recorded as the first.
    rows: Vec<Row>,
    #[serde(skip)]
    forms: OnceLock<ArgumentForms>,
}

/// A call that an input becomes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    /// The value of `command` of a tool that has several.
    command: Option<String>,
    /// Our tool.
    #[serde(deserialize_with = "own_tool")]
    call: &'static Tool,
    /// The arguments, each with what it becomes. Other names under which it is accepted follow after `|`.
    arguments: BTreeMap<String, ArgumentRole>,
    /// The arguments that are required beside those of the schema.
    #[serde(default)]
    required: Vec<String>,
    /// Message and hint if a required argument is missing.
    missing: Option<[String; 2]>,
    /// Arguments that refuse the call unless they are empty or false, with message and hint.
    #[serde(default)]
    not_with: BTreeMap<String, [String; 2]>,
    /// Members of our input where no argument sets them.
    #[serde(default)]
    with: Map<String, Value>,
    /// How the answer is shown.
    answer: AnswerForm,
    /// How the lines around the change are shown after the answer.
    snippet: Option<Snippet>,
    /// The row if the text to replace is empty.
    if_empty: Option<Box<Row>>,
    /// The row if the path is a folder.
    if_folder: Option<Box<Row>>,
}

fn own_tool<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static Tool, D::Error> {
    let name = String::deserialize(deserializer)?;
    tools::find(&name).ok_or_else(|| D::Error::custom(format_args!("there is no tool {name}")))
}

impl Debug for ToolFormat {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl ToolFormat {
    /// Returns the format with `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Returns the names of all formats.
    pub fn names() -> String {
        FORMATS.iter().map(|format| format.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the tool with `name`.
    pub fn tool(&self, name: &str) -> Option<&FormatTool> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Returns the names of the format's tools.
    pub fn tool_names(&self) -> String {
        self.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Returns how the format writes a path from the root of the run.
    fn show(&self, path: &str) -> String {
        if self.relative { path.to_owned() } else { paths::show(path) }
    }
}

impl FormatTool {
    /// Returns our tools that a call may become.
    fn becomes(&self) -> impl Iterator<Item = &'static Tool> {
        let rows = self.rows.iter();
        let rows = rows.flat_map(|row| [Some(row), row.if_folder.as_deref(), row.if_empty.as_deref()]);
        rows.flatten().map(|row| row.call)
    }

    /// Returns our tool as which a call with an invalid input is recorded.
    fn first(&self) -> &'static Tool {
        self.rows[0].call
    }

    fn forms(&self) -> &ArgumentForms {
        self.forms.get_or_init(|| {
            let mut properties = self.hidden.clone();
            properties.extend(self.input["properties"].as_object().cloned().unwrap_or_default());
            ArgumentForms::of(&json!({ "properties": properties, "required": self.input["required"] }))
        })
    }

    /// Returns the answer as the item that the provider's API takes back; `None` if that is the text.
    pub fn item(&self, call_id: &str, is_ok: bool, text: &str) -> Option<Value> {
        let status = if is_ok { "completed" } else { "failed" };
        self.item.as_ref().map(|kind| json!({ "type": kind, "call_id": call_id, "status": status, "output": text }))
    }
}

#[cfg(test)]
mod tests;
