//! The tools of Claude: those of Claude Code, and Anthropic's toolset for agents.

use model::{Code, Refusal};
use serde_json::{Value, json};

use super::answers::{self, MatchPaging, MatchesForm, MatchesMode};
use super::arguments::Arguments;
use super::editor::lines_of_range;
use super::outputs;
use super::paths::WORKSPACE;
use super::refusals::{OUTPUT_OF, ended, note_of, note_under, repeated, unread};
use super::{AsWritten, FormatTool, MappedCall, ModelFormat, Shown, Words, own_tools};
use crate::tool::text;
use crate::tools::text::command::{CommandForm, OutputPlace};

/// The most lines that one read shows.
const MAX_LINES: u64 = crate::tools::MAX_READ_LINES;
/// The most matches that one search finds.
const MAX_MATCHES: u64 = crate::tools::MAX_FOUND_MATCHES;
/// The files that a glob finds at most.
const MAX_FOUND: u64 = 200;
/// The lines that a search shows if the caller sets no limit.
const DEFAULT_LINES: usize = 250;

/// `agent_toolset_20260401` of Anthropic.
pub(super) fn toolset() -> ModelFormat {
    ModelFormat {
        name: "anthropic-toolset",
        tools: vec![
            FormatTool {
                name: "bash",
                description: "Runs a command in bash, in the run's files. Each runs in a new shell. Where the sandbox has no bash, sh runs it, and the answer says so.",
                input: object(
                    json!({
                        "command": { "type": "string", "description": "The command." },
                        "restart": { "type": "boolean", "description": "Has no effect: every shell is a new one." },
                        "timeout_ms": { "type": "integer", "description": "The time that it may take." },
                    }),
                    &[],
                ),
                becomes: own_tools(&["run_command"]),
                map: bash,
                item: None,
            },
            FormatTool {
                name: "read",
                description: "Returns a text file, or the lines of view_range.",
                input: object(
                    json!({
                        "file_path": { "type": "string", "description": "The file." },
                        "view_range": { "type": "array", "items": { "type": "integer" },
                            "description": "The first and the last line; 0 or less is the end." },
                    }),
                    &["file_path"],
                ),
                becomes: own_tools(&["read_file"]),
                map: toolset_read,
                item: None,
            },
            FormatTool {
                name: "write",
                description: "Writes a whole text file. Read an existing one first.",
                input: object(write_properties(), &["file_path", "content"]),
                becomes: own_tools(&["write_file"]),
                map: |tool, arguments| write(tool, arguments, |path, _| format!("wrote {path}")),
                item: None,
            },
            FormatTool {
                name: "edit",
                description: "Replaces old_string in a text file, where it must occur exactly once unless replace_all is set.",
                input: object(edit_properties(), &["file_path", "old_string", "new_string"]),
                becomes: own_tools(&["edit_file"]),
                map: |tool, arguments| {
                    let mut call = edit(tool, arguments)?;
                    let path = call.asked.path.clone();
                    call.render = Some(answers::change(move |change| {
                        format!("edited {path} ({} replacement(s))", change.replacements)
                    }));
                    Ok(call)
                },
                item: None,
            },
            FormatTool {
                name: "glob",
                description: "Finds files by a glob such as **/*.go, newest first.",
                input: object(glob_properties(), &["pattern"]),
                becomes: own_tools(&["find_files"]),
                map: |tool, arguments| glob(tool, arguments, relative, "no matches"),
                item: None,
            },
            FormatTool {
                name: "grep",
                description: "Searches text files for a regular expression.",
                input: object(glob_properties(), &["pattern"]),
                becomes: own_tools(&["search_text"]),
                map: toolset_grep,
                item: None,
            },
        ],
        declare: declare_toolset,
        refuse: refuse_toolset,
        words: Words::Other(&[
            ("read_file", "read"),
            ("write_file", "write"),
            ("edit_file", "edit"),
            ("find_files", "glob"),
            ("list_dir", "glob"),
            ("search_text", "grep"),
            ("oldString", "old_string"),
            ("newString", "new_string"),
            ("replaceAll", "replace_all"),
            ("timeoutSeconds", "timeout_ms"),
            (OUTPUT_OF, "; read with file_path=/output/"),
        ]),
    }
}

/// The tools of Claude Code for files.
pub(super) fn claude_code() -> ModelFormat {
    ModelFormat {
        name: "claude-code",
        tools: vec![
            FormatTool {
                name: "Read",
                description: "Reads a text file, with line numbers as cat -n has them.",
                input: object(
                    json!({
                        "file_path": { "type": "string", "description": "The absolute path, under /workspace." },
                        "offset": { "type": "integer", "description": "The first line." },
                        "limit": { "type": "integer", "description": "The number of lines." },
                    }),
                    &["file_path"],
                ),
                becomes: own_tools(&["read_file"]),
                map: read,
                item: None,
            },
            FormatTool {
                name: "Edit",
                description: "Replaces old_string in a text file that you have read. It must occur exactly once unless replace_all is \
                              set. An empty old_string creates a file.",
                input: object(edit_properties(), &["file_path", "old_string", "new_string"]),
                becomes: own_tools(&["edit_file", "write_file"]),
                map: |tool, arguments| {
                    let mut call = edit(tool, arguments)?;
                    let path = call.asked.path.clone();
                    call.render = Some(answers::change(move |change| {
                        let what = if change.created { "created" } else { "updated" };
                        format!("The file {path} has been {what} successfully {}.", change.counts())
                    }));
                    Ok(call)
                },
                item: None,
            },
            FormatTool {
                name: "Write",
                description: "Writes a whole text file. Read an existing one first.",
                input: object(write_properties(), &["file_path", "content"]),
                becomes: own_tools(&["write_file"]),
                map: |tool, arguments| {
                    write(tool, arguments, |path, created| {
                        let what = if created { "File created successfully at:" } else { "The file was replaced:" };
                        format!("{what} {path}")
                    })
                },
                item: None,
            },
            FormatTool {
                name: "Glob",
                description: "Finds files by a glob such as **/*.ts, newest first.",
                input: object(glob_properties(), &["pattern"]),
                becomes: own_tools(&["find_files"]),
                map: |tool, arguments| glob(tool, arguments, absolute, "No files found"),
                item: None,
            },
            FormatTool {
                name: "Grep",
                description: "Searches text files for a regular expression, as ripgrep does.",
                input: object(grep_properties(), &["pattern"]),
                becomes: own_tools(&["search_text"]),
                map: grep,
                item: None,
            },
        ],
        declare: |shown: &Shown<'_>| {
            let declared = shown.tools.iter().map(|tool| {
                json!({ "name": tool.name, "description": tool.description, "input_schema": shown.schema(tool) })
            });
            declared.collect()
        },
        refuse: refuse_claude_code,
        words: Words::Other(&[
            ("read_file", "Read"),
            ("write_file", "Write"),
            ("edit_file", "Edit"),
            ("find_files", "Glob"),
            ("list_dir", "Glob"),
            ("search_text", "Grep"),
            ("oldString", "old_string"),
            ("newString", "new_string"),
            ("replaceAll", "replace_all"),
            ("startLine", "offset"),
            ("maxLines", "limit"),
            ("includeGlob", "glob"),
            ("multiline", "multiline"),
        ]),
    }
}

/// A schema of an input with these properties.
#[expect(clippy::needless_pass_by_value, reason = "every caller makes it for this")]
pub(super) fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn write_properties() -> Value {
    json!({
        "file_path": { "type": "string", "description": "The file, under /workspace." },
        "content": { "type": "string", "description": "The whole content." },
    })
}

fn edit_properties() -> Value {
    json!({
        "file_path": { "type": "string", "description": "The file, under /workspace." },
        "old_string": { "type": "string", "description": "The text to replace, exactly as it is in the file." },
        "new_string": { "type": "string", "description": "The new text." },
        "replace_all": { "type": "boolean", "description": "Replace every occurrence." },
    })
}

fn glob_properties() -> Value {
    json!({
        "pattern": { "type": "string", "description": "The pattern." },
        "path": { "type": "string", "description": "The folder to search; by default all." },
    })
}

fn grep_properties() -> Value {
    json!({
        "pattern": { "type": "string", "description": "The expression." },
        "path": { "type": "string", "description": "The file or folder to search; by default all." },
        "glob": { "type": "string", "description": "Search only files that match, such as *.{ts,tsx}; ! excludes." },
        "type": { "type": "string", "description": "Search only files of this type, such as js, py or rust." },
        "output_mode": { "type": "string", "enum": ["content", "files_with_matches", "count"],
            "description": "Lines, paths (the default) or counts." },
        "-A": { "type": "integer", "description": "With content: lines after each match, at most 3." },
        "-B": { "type": "integer", "description": "With content: lines before each match, at most 3." },
        "-C": { "type": "integer", "description": "With content: lines around each match, at most 3." },
        "-n": { "type": "boolean", "description": "With content: show line numbers (the default)." },
        "-i": { "type": "boolean", "description": "Ignore case." },
        "head_limit": { "type": "integer", "description": "The most lines of the answer." },
        "offset": { "type": "integer", "description": "Lines of the answer to skip." },
        "multiline": { "type": "boolean", "description": "Let a match span lines, and . match their ends." },
    })
}

/// A whole path, as the forms with absolute paths show it.
pub(super) fn absolute(path: &str) -> String {
    WORKSPACE.show(path)
}

fn relative(path: &str) -> String {
    path.to_owned()
}

fn asked(tool: &FormatTool, path: String) -> AsWritten {
    AsWritten { tool: tool.name, path, ..AsWritten::default() }
}

/// A count that is not negative.
fn count(name: &str, value: Option<i64>) -> Result<Option<u64>, Refusal> {
    let wrong = |value: i64| Refusal::invalid(format!("`{name}` is {value}"), "Give 0 or more, or leave it out.");
    value.map(|value| u64::try_from(value).map_err(|_| wrong(value))).transpose()
}

fn read(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let written = arguments.required(&["file_path"])?;
    let start = count("offset", arguments.integer(&["offset"])?)?.unwrap_or(1).max(1);
    let lines = count("limit", arguments.integer(&["limit"])?)?.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    arguments.finish()?;
    let input = json!({ "path": WORKSPACE.strip(&written)?, "startLine": start, "maxLines": lines });
    let render = answers::page(|line| format!("offset={line}"));
    Ok(MappedCall::new("read_file", asked(tool, written), input, render))
}

fn toolset_read(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let written = arguments.required(&["file_path"])?;
    let mut range = arguments.integers("view_range")?;
    // This form takes every line before the first as the first, and as the end what is not a line.
    if let Some([first, last]) = range.as_deref_mut() {
        *first = (*first).max(1);
        *last = if *last <= 0 { -1 } else { *last };
    }
    let (start, lines) = lines_of_range(range)?;
    arguments.finish()?;
    let asked = asked(tool, written);
    if let Some(output) = outputs::read(&asked, start, lines, outputs::by_view_range) {
        return Ok(output);
    }
    let path = WORKSPACE.strip(&asked.path)?;
    let input = json!({ "path": path, "startLine": start, "maxLines": lines, "format": "raw" });
    let render = answers::page(|line| format!("view_range=[{line}, -1]"));
    Ok(MappedCall::new("read_file", asked, input, render))
}

fn write(tool: &FormatTool, mut arguments: Arguments, say: fn(&str, bool) -> String) -> Result<MappedCall, Refusal> {
    let written = arguments.required(&["file_path"])?;
    let content = arguments.required(&["content"])?;
    arguments.finish()?;
    let input = json!({ "path": WORKSPACE.strip(&written)?, "content": content });
    let path = written.clone();
    let render = answers::change(move |change| format!("{} {}", say(&path, change.created), change.counts()));
    Ok(MappedCall::new("write_file", asked(tool, written), input, render))
}

/// An edit. An empty old text creates a file. The caller sets how the answer is shown.
fn edit(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let written = arguments.required(&["file_path"])?;
    let old = arguments.required(&["old_string"])?;
    let new = arguments.required(&["new_string"])?;
    let all = arguments.boolean(&["replace_all"])?;
    arguments.finish()?;
    let path = WORKSPACE.strip(&written)?;
    let creates = old.is_empty() && tool.becomes.iter().any(|tool| tool.name == "write_file");
    let asked = AsWritten { old: old.clone(), ..asked(tool, written) };
    Ok(if creates {
        let input = json!({ "path": path, "content": new, "mode": "CREATE_NEW" });
        MappedCall::new("write_file", asked, input, answers::change(|_| String::new()))
    } else {
        let input = json!({ "path": path, "oldString": old, "newString": new, "replaceAll": all });
        MappedCall::new("edit_file", asked, input, answers::change(|_| String::new()))
    })
}

fn glob(
    tool: &FormatTool,
    mut arguments: Arguments,
    show: fn(&str) -> String,
    none: &str,
) -> Result<MappedCall, Refusal> {
    let pattern = arguments.required(&["pattern"])?;
    let written = arguments.text(&["path"])?;
    arguments.finish()?;
    let path = WORKSPACE.strip_folder(written.as_deref())?;
    let pattern = WORKSPACE.strip_glob(&pattern)?;
    let input = json!({ "glob": [pattern], "path": path, "sort": "modified", "maxResults": MAX_FOUND });
    let render = answers::found(show, None, none.to_owned());
    Ok(MappedCall::new("find_files", asked(tool, written.unwrap_or_default()), input, render))
}

fn toolset_grep(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let pattern = arguments.required(&["pattern"])?;
    let written = arguments.text(&["path"])?;
    arguments.finish()?;
    let path = WORKSPACE.strip_folder(written.as_deref())?;
    let input = json!({ "query": pattern, "mode": "regex", "path": path, "maxMatches": MAX_MATCHES });
    let render = answers::matches(MatchesForm {
        show: relative,
        mode: MatchesMode::Lines { numbered: true },
        limit: DEFAULT_LINES,
        paging: None,
        per_file: usize::MAX,
        none: "no matches".to_owned(),
    });
    Ok(MappedCall::new("search_text", asked(tool, written.unwrap_or_default()), input, render))
}

fn grep(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let pattern = arguments.required(&["pattern"])?;
    let written = arguments.text(&["path"])?;
    let glob = arguments.text(&["glob"])?;
    let file_type = arguments.text(&["type"])?;
    let mode = arguments.text(&["output_mode"])?;
    let numbered = arguments.boolean(&["-n"])?.unwrap_or(true);
    let around = [&["-A"][..], &["-B"], &["-C", "context"]]
        .into_iter()
        .map(|names| count(names[0], arguments.integer(names)?).map(Option::unwrap_or_default));
    let context = around.collect::<Result<Vec<_>, Refusal>>()?.into_iter().max().unwrap_or_default();
    let ignores_case = arguments.boolean(&["-i"])?.unwrap_or(false);
    let limit = count("head_limit", arguments.integer(&["head_limit"])?)?;
    let skip = count("offset", arguments.integer(&["offset"])?)?.unwrap_or_default();
    let multiline = arguments.boolean(&["multiline"])?;
    arguments.finish()?;
    let mode = match mode.as_deref() {
        None | Some("files_with_matches") => MatchesMode::Files,
        Some("content") => MatchesMode::Lines { numbered },
        Some("count") => MatchesMode::Counts,
        Some(other) => {
            let message = format!("`output_mode` is {}", repeated(other));
            return Err(Refusal::invalid(message, "Give content, files_with_matches or count."));
        }
    };
    let globs = globs_of(glob.as_deref().unwrap_or_default())?;
    let path = WORKSPACE.strip_folder(written.as_deref())?;
    let context = if matches!(mode, MatchesMode::Lines { .. }) { context.min(3) } else { 0 };
    let is_files = mode == MatchesMode::Files;
    // Elsewhere a match is not a line of the answer.
    let is_searched =
        is_files || (matches!(mode, MatchesMode::Lines { .. }) && context == 0 && multiline != Some(true));
    let input = json!({
        "query": pattern, "mode": "regex", "path": path, "includeGlob": globs, "fileType": file_type,
        "caseSensitive": !ignores_case,
        "multiline": multiline, "contextLines": context, "maxMatches": MAX_MATCHES,
        "onePerFile": is_files.then_some(true), "skip": (is_searched && skip > 0).then_some(skip),
    });
    let lines = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let render = answers::matches(MatchesForm {
        show: absolute,
        mode,
        paging: Some(MatchPaging { offset: lines(skip), is_searched, next: |offset| format!("offset={offset}") }),
        // 0 is no limit but our own.
        limit: limit.filter(|limit| *limit > 0).map_or(DEFAULT_LINES, lines),
        per_file: usize::MAX,
        none: "No matches found".to_owned(),
    });
    Ok(MappedCall::new("search_text", asked(tool, written.unwrap_or_default()), input, render))
}

/// Returns the globs of a search, which the form gives to ripgrep one by one, each with `!` before it if it excludes.
fn globs_of(glob: &str) -> Result<Vec<String>, Refusal> {
    let has_braces = |part: &str| part.contains('{') && part.contains('}');
    let parts = glob.split_whitespace().flat_map(|part| part.split(move |c: char| c == ',' && !has_braces(part)));
    parts.filter(|part| !part.is_empty()).map(|part| WORKSPACE.strip_glob(part)).collect()
}

fn bash(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let command = arguments.text(&["command"])?;
    let restart = arguments.boolean(&["restart"])?.unwrap_or(false);
    let timeout = count("timeout_ms", arguments.integer(&["timeout_ms"])?)?;
    arguments.finish()?;
    let Some(command) = command else {
        return Err(if restart {
            let message = "there is no shell to restart: every command runs in a new one";
            Refusal::invalid(message, "Call bash with the next command.")
        } else {
            Refusal::invalid("bash: command is required", "Give it and call again.")
        });
    };
    let asked = asked(tool, String::new());
    Ok(command_call(asked, (&command, Some("bash")), None, timeout, outputs::by_view_range))
}

/// A call of `run_command`, whose answer is shown as our own, with the shell that runs it. `more` is how the reader gets more of the output.
pub(super) fn command_call(
    asked: AsWritten,
    (command, shell): (&str, Option<&str>),
    cwd: Option<&str>,
    timeout_ms: Option<u64>,
    more: fn(&str, OutputPlace) -> String,
) -> MappedCall {
    let seconds = timeout_ms.filter(|timeout| *timeout > 0).map(|timeout| timeout.div_ceil(1000));
    let input = json!({ "command": command, "shell": shell, "cwd": cwd, "timeoutSeconds": seconds });
    MappedCall::new("run_command", asked, input, Box::new(move |answer| CommandForm::of(more).render(answer)))
}

/// The toolset is declared as a whole; what the caller may not use is switched off.
fn declare_toolset(shown: &Shown<'_>) -> Vec<Value> {
    let names = ["bash", "read", "write", "edit", "glob", "grep", "web_fetch", "web_search"];
    let configs =
        names.map(|name| json!({ "name": name, "enabled": shown.tools.iter().any(|tool| tool.name == name) }));
    vec![json!({ "type": "agent_toolset_20260401", "configs": configs })]
}

fn refuse_toolset(asked: &AsWritten, refusal: &Refusal) -> Option<String> {
    let AsWritten { tool, path, .. } = asked;
    let path = text::quote::one_line(path);
    let said = match refusal.code {
        Code::EditNotFound => format!("{tool}: old_string not found in {path}"),
        Code::EditNotUnique => {
            let times = refusal.details.actual.unwrap_or_default();
            format!("{tool}: old_string appears {times} times in {path} (must be unique)")
        }
        Code::NotFound => format!("{tool}: {path}: no such file or directory{}", note_of(refusal)),
        Code::NotAFile => format!("{tool}: {path}: is a directory"),
        _ => return unread(refusal),
    };
    Some(said)
}

fn refuse_claude_code(asked: &AsWritten, refusal: &Refusal) -> Option<String> {
    let said = match refusal.code {
        Code::EditNotFound => format!("String to replace not found in file. String: {}", repeated(&asked.old)),
        Code::EditNotUnique => format!(
            "Found {} matches of the string to replace, but replace_all is false.",
            refusal.details.actual.unwrap_or_default()
        ),
        Code::NotFound => ended(format!("File does not exist{}", note_under(WORKSPACE, refusal))),
        Code::AlreadyExists => "Cannot create new file - file already exists.".to_owned(),
        Code::NotAFile => format!("{} is a directory, not a file.", text::quote::one_line(&asked.path)),
        _ => return unread(refusal),
    };
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::globs_of;

    #[test]
    fn globs_are_taken_one_by_one_and_may_exclude() {
        let table: [(&str, &[&str]); 4] = [
            ("*.{ts,tsx}", &["*.{ts,tsx}"]),
            ("*.ts,*.md !docs/** ", &["*.ts", "*.md", "!docs/**"]),
            ("!*.md", &["!*.md"]),
            ("!/workspace/docs/**", &["!/docs/**"]),
        ];
        for (glob, want) in table {
            let globs = globs_of(glob).map_err(|refusal| refusal.message);
            assert_eq!(globs, Ok(want.iter().map(|glob| (*glob).to_owned()).collect()), "{glob}");
        }
    }
}
