//! The tools in the forms that models were trained on.
//!
//! A format is a table: how a provider declares each tool, which of our calls an input becomes, and how the answer or the refusal of that
//! call is said. Nothing is executed here; `calls` does that, as for any other call.

mod answers;
mod arguments;
mod claude;
mod editor;
mod gemini;
mod outputs;
mod own;
mod patches;
mod paths;
mod refusals;
pub(crate) mod snippet;

use std::sync::LazyLock;

use model::Refusal;
use serde_json::{Map, Value, json};

use crate::tool::text::Rendered;
use crate::tool::{Tool, ToolRun};
use crate::tools::{self, CatalogueView};

use arguments::Arguments;
use snippet::SnippetForm;

/// Every format, in the order of the documentation.
pub static FORMATS: LazyLock<Vec<ModelFormat>> = LazyLock::new(|| {
    vec![
        editor::anthropic(),
        editor::memory(),
        claude::toolset(),
        claude::claude_code(),
        patches::openai(),
        patches::codex(),
        gemini::gemini(),
        gemini::qwen(),
        editor::swe_agent(),
        own::responses(),
        own::strict(),
    ]
});

/// A set of tools in the form that a provider declares and a model was trained on.
pub struct ModelFormat {
    /// Its name, as in routes and records.
    pub name: &'static str,
    /// Its tools.
    pub tools: Vec<FormatTool>,
    /// Returns what the provider's API takes as its list of tools.
    declare: fn(&Shown<'_>) -> Vec<Value>,
    /// Returns the first line of a refusal in the words of the form; `None` for our own.
    refuse: fn(&AsWritten, &Refusal) -> Option<String>,
    /// What hints call our tools and their arguments here.
    words: Words,
}

/// Our names of tools and arguments, each with that of a form. A sentence with another of our names is left out of a hint.
#[derive(Clone, Copy)]
enum Words {
    /// The form has our names.
    Own,
    /// The form has these instead. A whole hint of ours may stand for another.
    Other(&'static [(&'static str, &'static str)]),
}

/// The tools that a caller is shown.
struct Shown<'a> {
    tools: Vec<&'a FormatTool>,
    view: &'a CatalogueView<'a>,
}

/// A tool in a form that a model was trained on.
pub struct FormatTool {
    /// Its name in this form.
    pub name: &'static str,
    /// What it does. A model reads this.
    description: &'static str,
    /// JSON Schema of the input.
    input: Value,
    /// The tools that a call may become, at least one; beside them, a tool that reads files reads the output of commands. A call with an invalid input is recorded as one of the first.
    pub(crate) becomes: Vec<&'static Tool>,
    /// Returns the call that an input becomes.
    map: fn(&FormatTool, Arguments) -> Result<MappedCall, Refusal>,
    /// Makes the answer an item of the provider's API, given the ID of its call and whether it succeeded. Else the answer is text.
    item: Option<fn(&str, bool, &str) -> Value>,
}

/// Renders the JSON answer of a tool.
pub(crate) type RenderAnswer = Box<dyn FnOnce(&str) -> serde_json::Result<Rendered> + Send + Sync>;

/// What a call in a form becomes.
pub(crate) struct MappedCall {
    /// The tool.
    pub(crate) tool: &'static Tool,
    /// Its own members of the input.
    pub(crate) input: Map<String, Value>,
    /// The reason, where the form has one.
    pub(crate) reason: Option<String>,
    /// What was asked, in the words of the form.
    pub(crate) asked: AsWritten,
    /// How the answer is shown; `None` as by the tool itself.
    pub(crate) render: Option<RenderAnswer>,
    /// How the lines around a change are shown after the answer, where the form has that.
    pub(crate) snippet: Option<SnippetForm>,
    /// Globs of files whose paths are added to `paths`. One that begins with `!` excludes.
    pub(crate) globs: Vec<String>,
    /// What the call becomes instead if its path is a folder.
    pub(crate) if_folder: Option<Box<Result<MappedCall, Refusal>>>,
}

/// What a refusal repeats of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsWritten {
    /// The name of the tool in the form.
    tool: &'static str,
    /// The path, as the caller wrote it.
    path: String,
    /// The text that was to be replaced, or the path to which a file was to be moved.
    old: String,
    /// The command of a tool that has several.
    command: &'static str,
    /// The lines that the form has put before the diff that it was given.
    lines_before: usize,
}

impl ModelFormat {
    /// Returns the format with `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Returns the names of all formats.
    pub fn names() -> String {
        FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the tool with `name`. Names that earlier versions of a form had are known too.
    pub fn tool(&self, name: &str) -> Option<&FormatTool> {
        let name = match (self.name, name) {
            ("gemini", "search_file_content") => "grep_search",
            (_, name) => name,
        };
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Returns the folder that stands for the root of the run.
    pub fn root(&self) -> &'static str {
        match self.words {
            Words::Own => ".",
            Words::Other(_) if self.name == "anthropic-memory" => paths::MEMORIES.folder(),
            Words::Other(_) => paths::WORKSPACE.folder(),
        }
    }

    /// Whether its tools are our own.
    pub fn has_own_tools(&self) -> bool {
        matches!(self.words, Words::Own)
    }

    /// Returns the names of the format's tools.
    pub fn tool_names(&self) -> String {
        self.tools.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the tools that the caller may use, as the list that the provider's API takes.
    pub fn declarations(&self, view: &CatalogueView<'_>) -> Vec<Value> {
        let shown = self.shown(view);
        if shown.tools.is_empty() { Vec::new() } else { (self.declare)(&shown) }
    }

    /// Returns the tools that the caller may use, as the Model Context Protocol declares them.
    pub fn mcp_tools(&self, view: &CatalogueView<'_>) -> Vec<Value> {
        let shown = self.shown(view);
        let declared = shown.tools.iter().map(|tool| {
            let only_reads = tool.becomes.iter().all(|tool| tool.only_reads());
            json!({
                "name": tool.name, "description": tool.description, "inputSchema": shown.schema(tool),
                "annotations": {
                    "readOnlyHint": only_reads,
                    "destructiveHint": !only_reads,
                    "idempotentHint": only_reads,
                    "openWorldHint": tool.becomes.iter().any(|tool| matches!(tool.run, ToolRun::Command)),
                },
            })
        });
        declared.collect()
    }

    fn shown<'a>(&'a self, view: &'a CatalogueView<'a>) -> Shown<'a> {
        let is_shown = |tool: &&FormatTool| tool.becomes.iter().any(|tool| view.shows(tool));
        Shown { tools: self.tools.iter().filter(is_shown).collect(), view }
    }
}

impl Shown<'_> {
    /// Returns the schema of a tool's input. That of one of our own tools depends on the view.
    fn schema(&self, tool: &FormatTool) -> Value {
        if tool.input.is_null() { own::schema(tool, self.view) } else { tool.input.clone() }
    }
}

impl FormatTool {
    /// Returns the call that an input becomes.
    ///
    /// # Errors
    ///
    /// In the words of the form, if the input is not one of the tool's.
    pub(crate) fn map(&self, input: Value) -> Result<MappedCall, Refusal> {
        (self.map)(self, Arguments::of(self.name, input)?)
    }

    /// Returns the tool as which a call with an invalid input is recorded.
    pub(crate) fn first(&self) -> &'static Tool {
        self.becomes[0]
    }

    /// Returns the answer as what the provider's API takes back; `None` if that is the text.
    pub fn item(&self, call_id: &str, is_ok: bool, text: &str) -> Option<Value> {
        self.item.map(|item| item(call_id, is_ok, text))
    }
}

/// Returns our tool with this name.
///
/// # Panics
///
/// If there is none: the tables of the formats are fixed, and every test reads them.
#[expect(clippy::expect_used, reason = "the tables are fixed")]
fn own_tool(name: &str) -> &'static Tool {
    tools::find(name).expect("a format names one of our tools")
}

/// Returns our tools with these names.
fn own_tools(names: &[&str]) -> Vec<&'static Tool> {
    names.iter().map(|name| own_tool(name)).collect()
}

impl MappedCall {
    /// A call of our tool `name`.
    fn new(name: &str, asked: AsWritten, input: Value, render: RenderAnswer) -> Self {
        let input = match input {
            Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        };
        Self {
            tool: own_tool(name),
            input,
            reason: None,
            asked,
            render: Some(render),
            snippet: None,
            globs: Vec::new(),
            if_folder: None,
        }
    }
}

/// Declares tools as functions of `OpenAI`'s Chat Completions, which many other APIs take too.
fn as_chat_functions(shown: &Shown<'_>) -> Vec<Value> {
    let declared = shown.tools.iter().map(|tool| {
        json!({ "type": "function", "function": {
            "name": tool.name, "description": tool.description, "parameters": shown.schema(tool),
        }})
    });
    declared.collect()
}

/// Declares tools as functions of `OpenAI`'s Responses.
fn as_response_function(tool: &FormatTool, parameters: &Value, strict: bool) -> Value {
    json!({
        "type": "function", "name": tool.name, "description": tool.description, "parameters": parameters,
        "strict": strict,
    })
}

#[cfg(test)]
mod tests;
