//! The editor of one tool with commands: Anthropic's text editor and memory, and that of SWE-agent.

use model::{Code, Refusal};
use serde_json::{Value, json};

use super::answers::{self, ListingForm, whole_path};
use super::arguments::Arguments;
use super::paths::{FormRoot, MEMORIES, WORKSPACE};
use super::refusals::{ended, note_under, occurrences, repeated};
use super::snippet::{self, SnippetForm};
use super::{AsWritten, FormatTool, MappedCall, ModelFormat, RenderAnswer, Shown, Words, as_chat_functions, own_tools};
use crate::tool::text;

const WORDS: Words = Words::Other(&[
    ("read_file", "view"),
    ("list_dir", "view"),
    ("write_file", "create"),
    ("edit_file", "str_replace"),
    ("replace_range", "insert"),
    ("oldString", "old_str"),
    ("newString", "new_str"),
    ("endLine", "insert_line"),
    ("`from`", "`old_path`"),
    ("`to`", "`new_path`"),
]);

/// The most lines that one view shows.
const MAX_LINES: u64 = crate::tools::MAX_READ_LINES;
/// How deep, and how many entries, memory lists for the sizes of its folders.
const MAX_LISTED_DEPTH: u64 = 20;
const MAX_LISTED: u64 = 10_000;

/// The name of the tool of memory.
const MEMORY_TOOL: &str = "memory";

/// What sets one editor apart from the others.
struct EditorForm {
    root: FormRoot,
    commands: &'static [&'static str],
    /// Whether `create` also replaces a file.
    create_replaces: bool,
    /// Whether it is memory, whose words are those of Anthropic's own.
    is_memory: bool,
}

const EDITOR: EditorForm = EditorForm {
    root: WORKSPACE,
    commands: &["view", "create", "str_replace", "insert"],
    create_replaces: true,
    is_memory: false,
};
const MEMORY: EditorForm = EditorForm {
    root: MEMORIES,
    commands: &["view", "create", "str_replace", "insert", "delete", "rename"],
    create_replaces: false,
    is_memory: true,
};
const SWE_AGENT: EditorForm = EditorForm {
    root: WORKSPACE,
    commands: &["view", "create", "str_replace", "insert", "undo_edit"],
    create_replaces: false,
    is_memory: false,
};

/// `text_editor_20250728` of Anthropic.
pub(super) fn anthropic() -> ModelFormat {
    ModelFormat {
        name: "anthropic-editor",
        tools: vec![FormatTool {
            name: "str_replace_based_edit_tool",
            description: "Views, creates and edits text files under /workspace. Commands: view (a file with line numbers, or a \
                          folder), create, str_replace (old_str must occur exactly once) and insert (after insert_line).",
            input: schema(&EDITOR, &[FILE_TEXT, VIEW_RANGE, OLD_STR, NEW_STR, INSERT_LINE, INSERT_TEXT]),
            becomes: own_tools(&["read_file", "list_dir", "write_file", "edit_file", "replace_range"]),
            map: |tool, arguments| map(&EDITOR, tool, arguments),
            item: None,
        }],
        declare: |_| vec![json!({ "type": "text_editor_20250728", "name": "str_replace_based_edit_tool" })],
        refuse,
        words: WORDS,
    }
}

/// `memory_20250818` of Anthropic.
pub(super) fn memory() -> ModelFormat {
    ModelFormat {
        name: "anthropic-memory",
        tools: vec![FormatTool {
            name: MEMORY_TOOL,
            description: "Keeps notes in text files under /memories. Commands: view (a file with line numbers, or a folder), create \
                          (a new file), str_replace (old_str must occur exactly once), insert (after insert_line), delete and rename.",
            input: schema(
                &MEMORY,
                &[FILE_TEXT, VIEW_RANGE, OLD_STR, NEW_STR, INSERT_LINE, INSERT_TEXT, OLD_PATH, NEW_PATH],
            ),
            becomes: own_tools(&[
                "read_file",
                "list_dir",
                "write_file",
                "edit_file",
                "replace_range",
                "delete_file",
                "move_file",
            ]),
            map: |tool, arguments| map(&MEMORY, tool, arguments),
            item: None,
        }],
        declare: |_| vec![json!({ "type": "memory_20250818", "name": "memory" })],
        refuse,
        words: WORDS,
    }
}

/// `str_replace_editor` of SWE-agent.
pub(super) fn swe_agent() -> ModelFormat {
    ModelFormat {
        name: "swe-agent",
        tools: vec![FormatTool {
            name: "str_replace_editor",
            description: "Views, creates and edits text files under /workspace. Commands: view (a file with line numbers, or a folder \
                          two levels deep), create (a new file), str_replace (old_str must occur exactly once), insert (new_str after \
                          insert_line) and undo_edit (undoes your last change, if it is of this file).",
            input: schema(&SWE_AGENT, &[FILE_TEXT, VIEW_RANGE, OLD_STR, NEW_STR, INSERT_LINE]),
            becomes: own_tools(&["read_file", "list_dir", "write_file", "edit_file", "replace_range", "revert_calls"]),
            map: |tool, arguments| map(&SWE_AGENT, tool, arguments),
            item: None,
        }],
        declare: |shown: &Shown<'_>| as_chat_functions(shown),
        refuse,
        words: WORDS,
    }
}

type Property = (&'static str, &'static str, &'static str);

const FILE_TEXT: Property = ("file_text", "string", "With create: the content of the file.");
const VIEW_RANGE: Property =
    ("view_range", "range", "With view of a file: the first and the last line; -1 is the end.");
const OLD_STR: Property = ("old_str", "string", "With str_replace: the text to replace.");
const NEW_STR: Property = ("new_str", "string", "With str_replace: the new text. With insert: the lines.");
const INSERT_LINE: Property = ("insert_line", "integer", "With insert: the line after which; 0 is the start.");
const INSERT_TEXT: Property = ("insert_text", "string", "With insert: the lines.");
const OLD_PATH: Property = ("old_path", "string", "With rename: the present path.");
const NEW_PATH: Property = ("new_path", "string", "With rename: the new path.");

fn schema(form: &EditorForm, properties: &[Property]) -> Value {
    let root = form.root.show("");
    let mut schema = json!({
        "type": "object",
        "properties": {
            "command": { "type": "string", "enum": form.commands, "description": "What to do." },
            "path": { "type": "string", "description": format!("The file or folder, such as {root}/a.txt.") },
        },
        // `rename` has two paths instead.
        "required": if form.is_memory { json!(["command"]) } else { json!(["command", "path"]) },
        "additionalProperties": false,
    });
    for (name, kind, description) in properties {
        schema["properties"][name] = match *kind {
            "range" => json!({ "type": "array", "items": { "type": "integer" }, "description": description }),
            kind => json!({ "type": kind, "description": description }),
        };
    }
    schema
}

fn map(form: &EditorForm, tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let command = arguments.required(&["command"])?;
    arguments.of_command(&command);
    let Some(&command) = form.commands.iter().find(|known| **known == command) else {
        let message = format!("unrecognized command {}", repeated(&command));
        let hint = format!("The commands of {} are {}.", tool.name, form.commands.join(", "));
        return Err(Refusal::invalid(message, hint));
    };
    let names: &[&str] = if command == "rename" { &["old_path"] } else { &["path"] };
    let written = arguments.required(names)?;
    let path = form.root.strip(&written)?;
    if path == "." && command != "view" {
        return Err(changes_root(form, command));
    }
    let asked = AsWritten { tool: tool.name, path: written, command, ..AsWritten::default() };
    let call = match command {
        "view" => view(form, &mut arguments, &path, asked)?,
        "create" => create(form, &mut arguments, &path, asked)?,
        "str_replace" => str_replace(form, &mut arguments, &path, asked)?,
        "insert" => insert(form, &mut arguments, &path, asked)?,
        "delete" => {
            let said = format!("Successfully deleted {}", asked.path);
            let input = json!({ "path": path, "recursive": true });
            MappedCall::new("delete_file", asked, input, answers::change(move |_| said.clone()))
        }
        "rename" => rename(form, &mut arguments, &path, asked)?,
        _ => undo_edit(&path, asked),
    };
    arguments.finish()?;
    Ok(call)
}

/// The refusal to change the root.
fn changes_root(form: &EditorForm, command: &str) -> Refusal {
    let root = form.root.show("");
    let is_root = format!("{root} is the root of all files");
    if form.is_memory && matches!(command, "delete" | "rename") {
        let message = format!("Cannot {command} the {root} directory itself");
        return Refusal::invalid(message, format!("{is_root}: name a file below it."));
    }
    Refusal::invalid(format!("{is_root}, which no command changes"), "Name a file below it.")
}

/// How a reader continues after the last line that is shown.
fn next(line: u64) -> String {
    format!("view_range=[{line}, -1]")
}

/// The first line and the number of lines of a range.
pub(super) fn lines_of_range(range: Option<Vec<i64>>) -> Result<(u64, u64), Refusal> {
    let wrong = |shown: &str| {
        let message = format!("invalid `view_range`: {shown}");
        Refusal::invalid(message, "Give the first line, from 1, and the last one, or -1 for the end of the file.")
    };
    let Some(range) = range else { return Ok((1, MAX_LINES)) };
    let [first, last] = range[..] else { return Err(wrong("it is not a list of two integers")) };
    let shown = format!("[{first}, {last}]");
    let start = u64::try_from(first).ok().filter(|first| *first > 0).ok_or_else(|| wrong(&shown))?;
    match u64::try_from(last) {
        Ok(end) if end >= start => Ok((start, (end - start + 1).min(MAX_LINES))),
        Err(_) if last == -1 => Ok((start, MAX_LINES)),
        Ok(_) | Err(_) => Err(wrong(&shown)),
    }
}

fn view(form: &EditorForm, arguments: &mut Arguments, path: &str, asked: AsWritten) -> Result<MappedCall, Refusal> {
    let range = arguments.integers("view_range")?;
    let has_range = range.is_some();
    let (start, lines) = lines_of_range(range)?;
    let folder = if has_range {
        let message = "the `view_range` parameter is not allowed when `path` points to a directory";
        Err(Refusal::invalid(message, "View the folder without it."))
    } else {
        Ok(list(form, path, asked.clone()))
    };
    let mut call = if form.is_memory {
        let title = format!("Here's the content of {} with line numbers:", asked.path);
        let input = json!({ "path": path, "startLine": start, "maxLines": lines, "format": "raw" });
        MappedCall::new("read_file", asked, input, answers::memory_page(title, lines, next))
    } else {
        let title = format!("Here's the result of running `cat -n` on {}:", asked.path);
        let input = json!({ "path": path, "startLine": start, "maxLines": lines });
        MappedCall::new("read_file", asked, input, answers::titled_page(title, next))
    };
    call.if_folder = Some(Box::new(folder));
    Ok(call)
}

/// A view of a folder. Memory shows the size of each, for which all that is below is listed.
fn list(form: &EditorForm, path: &str, asked: AsWritten) -> MappedCall {
    let listing = ListingForm {
        title: format!(
            "Here're the files and directories up to 2 levels deep in {}, excluding hidden items:",
            asked.path
        ),
        entry: whole_path,
        empty: format!("The directory {} is empty, apart from what is hidden.", asked.path),
        ignore: Vec::new(),
    };
    if form.is_memory {
        let input = json!({ "path": path, "maxDepth": MAX_LISTED_DEPTH, "maxEntries": MAX_LISTED });
        let render = answers::memory_listing(listing.title, asked.path.clone(), path.to_owned());
        MappedCall::new("list_dir", asked, input, render)
    } else {
        let input = json!({ "path": path, "maxDepth": 2 });
        MappedCall::new("list_dir", asked, input, answers::listing(form.root, listing))
    }
}

fn create(form: &EditorForm, arguments: &mut Arguments, path: &str, asked: AsWritten) -> Result<MappedCall, Refusal> {
    let content = arguments.required(&["file_text"])?;
    let mode = if form.create_replaces { "CREATE_OR_REPLACE" } else { "CREATE_NEW" };
    let shown = asked.path.clone();
    let render = answers::change(move |change| {
        if change.created {
            format!("File created successfully at: {shown}")
        } else {
            format!("The file {shown} has been replaced {}.", change.counts())
        }
    });
    Ok(MappedCall::new("write_file", asked, json!({ "path": path, "content": content, "mode": mode }), render))
}

fn str_replace(
    form: &EditorForm,
    arguments: &mut Arguments,
    path: &str,
    asked: AsWritten,
) -> Result<MappedCall, Refusal> {
    let old = arguments.required(&["old_str"])?;
    let new = arguments.text(&["new_str"])?.unwrap_or_default();
    let input = json!({ "path": path, "oldString": old, "newString": new });
    let (render, snippet): (_, SnippetForm) = if form.is_memory {
        let said = "The memory file has been edited. Here is the snippet showing the change (with line numbers):";
        (answers::change(|_| said.to_owned()), snippet::of_memory)
    } else {
        (edited(&asked.path), snippet::numbered)
    };
    let call = MappedCall::new("edit_file", AsWritten { old, ..asked }, input, render);
    Ok(MappedCall { snippet: Some(snippet), ..call })
}

fn edited(path: &str) -> RenderAnswer {
    let path = path.to_owned();
    answers::change(move |change| format!("The file {path} has been edited {}.", change.counts()))
}

fn insert(form: &EditorForm, arguments: &mut Arguments, path: &str, asked: AsWritten) -> Result<MappedCall, Refusal> {
    let line = arguments.required_integer("insert_line")?;
    let text = arguments.required(&["insert_text", "new_str"])?;
    // Some clients send it under both names.
    arguments.text(&["new_str"])?;
    let line = u64::try_from(line).map_err(|_| {
        Refusal::invalid(format!("invalid `insert_line` parameter: {line}"), "Give a line from 0, the start, on.")
    })?;
    // No text is an empty line. Memory inserts no empty lines after it.
    let content = match text.trim_end_matches('\n') {
        lines if form.is_memory => format!("{lines}\n"),
        _ if text.is_empty() => "\n".to_owned(),
        _ => text,
    };
    let input = json!({ "path": path, "startLine": line.saturating_add(1), "endLine": line, "content": content });
    if form.is_memory {
        let said = format!("The file {} has been edited.", asked.path);
        return Ok(MappedCall::new("replace_range", asked, input, answers::change(move |_| said.clone())));
    }
    let render = edited(&asked.path);
    Ok(MappedCall { snippet: Some(snippet::numbered), ..MappedCall::new("replace_range", asked, input, render) })
}

fn rename(form: &EditorForm, arguments: &mut Arguments, path: &str, asked: AsWritten) -> Result<MappedCall, Refusal> {
    let new = arguments.required(&["new_path"])?;
    let to = form.root.strip(&new)?;
    if to == "." {
        return Err(changes_root(form, "move onto"));
    }
    if to == path {
        let message = "`old_path` and `new_path` are the same path";
        return Err(Refusal::invalid(message, "Give another path in `new_path`."));
    }
    let input = json!({ "from": path, "to": to, "recursive": true });
    let said = format!("Successfully renamed {} to {new}", asked.path);
    let asked = AsWritten { old: new, ..asked };
    Ok(MappedCall::new("move_file", asked, input, answers::change(move |_| said.clone())))
}

fn undo_edit(path: &str, asked: AsWritten) -> MappedCall {
    let said = format!("Last edit to {} undone successfully", asked.path);
    let render = answers::change(move |change| format!("{said} {}.", change.counts()));
    MappedCall::new("revert_calls", asked, json!({ "last": 1, "ofPath": path }), render)
}

fn refuse(asked: &AsWritten, refusal: &Refusal) -> Option<String> {
    let AsWritten { path, old, .. } = asked;
    let (path, old) = (text::quote::one_line(path), repeated(old));
    if asked.tool == MEMORY_TOOL {
        return refuse_memory(asked, &path, &old, refusal);
    }
    let said = match refusal.code {
        Code::EditNotFound => {
            format!("No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
        }
        Code::EditNotUnique => format!(
            "No replacement was performed. Multiple occurrences of old_str `{old}` in {}. Please ensure it is unique.",
            occurrences(refusal)
        ),
        Code::NotFound if refusal.message.starts_with("nothing to undo") => {
            format!("No edit history found for {path}{}.", undone_note(refusal))
        }
        Code::NotFound => ended(format!(
            "The path {path} does not exist. Please provide a valid path{}",
            note_under(WORKSPACE, refusal)
        )),
        Code::AlreadyExists => format!("File already exists at: {path}. It cannot be overwritten by this command."),
        Code::NotAFile => {
            format!("The path {path} is a directory and only the `view` command can be used on directories.")
        }
        Code::InvalidRequest if refusal.details.total_lines.is_some() => format!(
            "Invalid `insert_line` parameter. It should be within the range [0, {}].",
            refusal.details.total_lines.unwrap_or_default()
        ),
        _ => return None,
    };
    Some(said)
}

/// As Anthropic's own memory refuses.
fn refuse_memory(asked: &AsWritten, path: &str, old: &str, refusal: &Refusal) -> Option<String> {
    let said = match refusal.code {
        Code::EditNotFound => {
            format!("No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
        }
        Code::EditNotUnique => format!(
            "No replacement was performed. Multiple occurrences of old_str `{old}` in {}. Please ensure it is unique",
            occurrences(refusal).replace(['[', ']'], "")
        ),
        Code::NotFound if matches!(asked.command, "delete" | "rename") => {
            format!("The path {path} does not exist{}", note_under(MEMORIES, refusal))
        }
        Code::NotFound => ended(format!(
            "The path {path} does not exist. Please provide a valid path{}",
            note_under(MEMORIES, refusal)
        )),
        Code::AlreadyExists | Code::NotAFile | Code::NotADirectory if let Some(taken) = destination(asked, refusal) => {
            format!("The destination {taken} already exists")
        }
        Code::AlreadyExists => format!("File {path} already exists"),
        Code::NotAFile => format!("The path {path} is not a file."),
        Code::InvalidRequest if let Some(lines) = refusal.details.total_lines => {
            let line = refusal.details.actual.unwrap_or_default().saturating_sub(1);
            format!("Invalid `insert_line` parameter: {line}. It should be within the range [0, {lines}].")
        }
        _ => return None,
    };
    Some(said)
}

/// Where `rename` was to move a file, if something is in the way there.
fn destination(asked: &AsWritten, refusal: &Refusal) -> Option<String> {
    if asked.command != "rename" {
        return None;
    }
    let (at, from) = (refusal.details.path.as_deref()?, MEMORIES.strip(&asked.path).ok()?);
    let is_taken = match refusal.code {
        // A file, of a folder's files.
        Code::NotADirectory => at.starts_with(&format!("{}/", MEMORIES.strip(&asked.old).ok()?)),
        _ => at != from,
    };
    is_taken.then(|| text::quote::one_line(&asked.old).into_owned())
}

/// Says that there is a last change, but of another file.
fn undone_note(refusal: &Refusal) -> &'static str {
    if refusal.details.path.is_some() { ", your last change is of another file" } else { "" }
}
