//! The tools of Gemini CLI, and those of Qwen Code, which descend from them.

use model::{Code, Refusal};
use serde_json::{Value, json};

use super::answers::{self, ListingForm, MatchesForm, MatchesMode, marked_name};
use super::arguments::Arguments;
use super::claude::{absolute, command_call, object};
use super::outputs;
use super::paths::WORKSPACE;
use super::refusals::{OUTPUT_OF, note_under, unread};
use super::snippet::{self, SnippetForm};
use super::{AsWritten, FormatTool, MappedCall, ModelFormat, Shown, Words, as_chat_functions, own_tools};
use crate::tool::text;
use crate::tools::text::command::OutputPlace;

/// The most lines that one read shows.
const MAX_LINES: u64 = crate::tools::MAX_READ_LINES;
/// The most matches that one search finds.
const MAX_MATCHES: u64 = crate::tools::MAX_FOUND_MATCHES;
/// The files that a glob finds at most.
const MAX_FOUND: u64 = 200;
/// The matches that a search shows if the caller sets no limit.
const DEFAULT_MATCHES: u64 = 100;

/// What a form calls the folder of a search or a list. Models of either know the other's name; a refusal has the form's own.
fn folder_names(tool: &FormatTool) -> [&'static str; 2] {
    if tool.input["properties"].get("dir_path").is_some() { ["dir_path", "path"] } else { ["path", "dir_path"] }
}

/// The tools of Gemini CLI for files.
pub(super) fn gemini() -> ModelFormat {
    ModelFormat {
        name: "gemini",
        tools: vec![
            list_directory("dir_path"),
            FormatTool {
                name: "read_file",
                description: "Reads a text file, or the lines from start_line to end_line.",
                input: object(
                    json!({
                        "file_path": text_of("The file, under /workspace."),
                        "start_line": integer("The first line, from 1."),
                        "end_line": integer("The last line."),
                    }),
                    &["file_path"],
                ),
                becomes: own_tools(&["read_file"]),
                map: read_file,
                item: None,
            },
            read_many_files(),
            write_file(),
            glob_tool("dir_path"),
            gemini_search(),
            replace_tool(),
            shell("dir_path"),
        ],
        declare: |shown: &Shown<'_>| {
            let functions: Vec<_> = shown
                .tools
                .iter()
                .map(|tool| {
                    json!({
                        "name": tool.name, "description": tool.description, "parametersJsonSchema": shown.schema(tool),
                    })
                })
                .collect();
            vec![json!({ "functionDeclarations": functions })]
        },
        refuse,
        words: WORDS,
    }
}

/// The read of several files of Gemini CLI.
fn read_many_files() -> FormatTool {
    let globs =
        |description: &str| json!({ "type": "array", "items": { "type": "string" }, "description": description });
    FormatTool {
        name: "read_many_files",
        description: "Reads several text files, at most 50 and 64 KiB together.",
        input: object(
            json!({
                "include": globs("Paths, and globs such as src/**/*.ts."),
                "exclude": globs("Globs to leave out."),
            }),
            &["include"],
        ),
        becomes: own_tools(&["read_files"]),
        map: |tool, mut arguments| {
            let mut include = arguments.texts("include")?;
            include.extend(arguments.texts("paths")?);
            let exclude = arguments.texts("exclude")?;
            arguments.ignore(&["recursive", "useDefaultExcludes", "file_filtering_options"]);
            arguments.finish()?;
            if include.is_empty() {
                let message = "parameter `include` is required for tool `read_many_files`";
                return Err(Refusal::invalid(message, "Give it and call again."));
            }
            // A path that may be excluded is matched like a glob.
            let is_glob =
                |path: &String| !exclude.is_empty() || path.contains(['*', '?', '[', '{']) || path.ends_with('/');
            let (globs, paths): (Vec<_>, Vec<_>) = include.into_iter().partition(is_glob);
            let paths = paths.iter().map(|path| WORKSPACE.strip(path)).collect::<Result<Vec<_>, _>>()?;
            // A glob without a folder is of names in the root.
            let anchored = |glob: String| if glob.contains('/') { glob } else { format!("/{glob}") };
            let mut globs =
                globs.iter().map(|glob| WORKSPACE.strip_glob(glob).map(anchored)).collect::<Result<Vec<_>, _>>()?;
            if !globs.is_empty() {
                let excluded = exclude.iter().map(|glob| WORKSPACE.strip_glob(&format!("!{glob}")));
                globs.extend(excluded.collect::<Result<Vec<_>, _>>()?);
            }
            let input = json!({ "paths": paths });
            let call = MappedCall::new("read_files", asked(tool, String::new()), input, answers::many_files(absolute));
            Ok(MappedCall { globs, ..call })
        },
        item: None,
    }
}

/// The search of Gemini CLI.
fn gemini_search() -> FormatTool {
    FormatTool {
        name: "grep_search",
        description: "Searches text files for a regular expression, without regard to case unless case_sensitive is set.",
        input: object(
            json!({
                "pattern": text_of("The expression."),
                "dir_path": text_of("The file or folder to search; by default all."),
                "include_pattern": text_of("Search only files that match this glob."),
                "names_only": boolean("Return the paths of the files alone."),
                "case_sensitive": boolean("Match case."),
                "fixed_strings": boolean("The pattern is literal text."),
                "context": integer("Lines around each match, at most 3."),
                "max_matches_per_file": integer("The most matches of one file."),
                "total_max_matches": integer("The most matches, by default 100."),
            }),
            &["pattern"],
        ),
        becomes: own_tools(&["search_text"]),
        map: grep_search,
        item: None,
    }
}

/// The edit of Gemini CLI.
fn replace_tool() -> FormatTool {
    FormatTool {
        name: "replace",
        description: "Replaces old_string in a text file that you have read. It must occur exactly once unless allow_multiple is \
                              set. An empty old_string creates a file.",
        input: object(
            json!({
                "file_path": text_of("The file, under /workspace."),
                "instruction": text_of("Why and how the file changes."),
                "old_string": text_of("The text to replace, exactly as it is in the file."),
                "new_string": text_of("The new text."),
                "allow_multiple": boolean("Replace every occurrence."),
            }),
            &["file_path", "instruction", "old_string", "new_string"],
        ),
        becomes: own_tools(&["edit_file", "write_file"]),
        map: |tool, arguments| edit(tool, arguments),
        item: None,
    }
}

/// The tools of Qwen Code for files.
pub(super) fn qwen() -> ModelFormat {
    ModelFormat {
        name: "qwen",
        tools: vec![
            list_directory("path"),
            FormatTool {
                name: "read_file",
                description: "Reads a text file, or limit lines of it from offset on.",
                input: object(
                    json!({
                        "file_path": text_of("The absolute path, under /workspace."),
                        "offset": integer("Lines to skip."),
                        "limit": integer("The number of lines."),
                    }),
                    &["file_path"],
                ),
                becomes: own_tools(&["read_file"]),
                map: read_file,
                item: None,
            },
            write_file(),
            glob_tool("path"),
            FormatTool {
                name: "grep_search",
                description: "Searches text files for a regular expression, without regard to case.",
                input: object(
                    json!({
                        "pattern": text_of("The expression."),
                        "path": text_of("The file or folder to search; by default all."),
                        "glob": text_of("Search only files that match this glob."),
                        "limit": integer("The most matches, by default 100."),
                    }),
                    &["pattern"],
                ),
                becomes: own_tools(&["search_text"]),
                map: grep_search,
                item: None,
            },
            FormatTool {
                name: "edit",
                description: "Replaces old_string in a text file that you have read. It must occur exactly once unless replace_all is set. \
                              An empty old_string creates a file.",
                input: object(
                    json!({
                        "file_path": text_of("The absolute path, under /workspace."),
                        "old_string": text_of("The text to replace, exactly as it is in the file."),
                        "new_string": text_of("The new text."),
                        "replace_all": boolean("Replace every occurrence."),
                    }),
                    &["file_path", "old_string", "new_string"],
                ),
                becomes: own_tools(&["edit_file", "write_file"]),
                map: |tool, arguments| edit(tool, arguments),
                item: None,
            },
            shell("directory"),
        ],
        declare: |shown: &Shown<'_>| as_chat_functions(shown),
        refuse,
        words: WORDS,
    }
}

const WORDS: Words = Words::Other(&[
    ("read_file", "read_file"),
    ("list_dir", "list_directory"),
    ("write_file", "write_file"),
    ("find_files", "glob"),
    ("search_text", "grep_search"),
    ("oldString", "old_string"),
    ("newString", "new_string"),
    (OUTPUT_OF, "; read_file with file_path=/output/"),
]);

fn text_of(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn integer(description: &str) -> Value {
    json!({ "type": "integer", "description": description })
}

fn boolean(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn asked(tool: &FormatTool, path: String) -> AsWritten {
    AsWritten { tool: tool.name, path, ..AsWritten::default() }
}

/// A number that is not negative.
fn count(arguments: &mut Arguments, names: &[&str]) -> Result<Option<u64>, Refusal> {
    let wrong = |value: i64| Refusal::invalid(format!("`{}` is {value}", names[0]), "Give 0 or more, or leave it out.");
    arguments.integer(names)?.map(|value| u64::try_from(value).map_err(|_| wrong(value))).transpose()
}

fn list_directory(folder: &'static str) -> FormatTool {
    FormatTool {
        name: "list_directory",
        description: "Lists the names in one folder.",
        input: object(
            json!({
                folder: text_of("The folder, under /workspace."),
                "ignore": { "type": "array", "items": { "type": "string" }, "description": "Globs of names to leave out." },
                "file_filtering_options": { "type": "object", "description": "What else to leave out.", "properties": {
                    "respect_git_ignore": boolean("Leave out what git ignores; by default true."),
                }},
            }),
            &[folder],
        ),
        becomes: own_tools(&["list_dir"]),
        map: |tool, mut arguments| {
            let written = arguments.required(&folder_names(tool))?;
            let ignore = arguments.texts("ignore")?;
            let filtering = arguments.object("file_filtering_options")?.unwrap_or_default();
            arguments.finish()?;
            let respects_git = filtering.get("respect_git_ignore") != Some(&Value::Bool(false));
            let listing = ListingForm {
                title: format!("Directory listing for {written}:"),
                entry: marked_name,
                empty: format!("Directory {written} is empty."),
                ignore,
            };
            let input = json!({
                "path": WORKSPACE.strip_folder(Some(&written))?, "maxDepth": 1, "includeHidden": true,
                "includeIgnored": !respects_git,
            });
            Ok(MappedCall::new("list_dir", asked(tool, written), input, answers::listing(WORKSPACE, listing)))
        },
        item: None,
    }
}

fn write_file() -> FormatTool {
    FormatTool {
        name: "write_file",
        description: "Writes a whole text file. Read an existing one first.",
        input: object(
            json!({
                "file_path": text_of("The file, under /workspace."),
                "content": text_of("The whole content."),
            }),
            &["file_path", "content"],
        ),
        becomes: own_tools(&["write_file"]),
        map: |tool, mut arguments| {
            let written = arguments.required(&["file_path", "path"])?;
            let content = arguments.required(&["content"])?;
            arguments.ignore(&["modified_by_user", "ai_proposed_content", "record_as_artifact"]);
            arguments.finish()?;
            let input = json!({ "path": WORKSPACE.strip(&written)?, "content": content });
            let path = written.clone();
            let render = answers::change(move |change| {
                let what = if change.created { "created and wrote to new file" } else { "overwrote file" };
                format!("Successfully {what}: {path} {}.", change.counts())
            });
            Ok(MappedCall::new("write_file", asked(tool, written), input, render))
        },
        item: None,
    }
}

fn glob_tool(folder: &'static str) -> FormatTool {
    FormatTool {
        name: "glob",
        description: "Finds files by a glob such as src/**/*.ts, newest first.",
        input: object(
            json!({
                "pattern": text_of("The glob."),
                folder: text_of("The folder to search; by default all."),
            }),
            &["pattern"],
        ),
        becomes: own_tools(&["find_files"]),
        map: |tool, mut arguments| {
            let pattern = arguments.required(&["pattern"])?;
            let written = arguments.text(&folder_names(tool))?;
            arguments.ignore(&["case_sensitive", "respect_git_ignore", "respect_gemini_ignore"]);
            arguments.finish()?;
            let none = format!("No files found matching pattern \"{pattern}\"");
            let input = json!({
                "glob": [WORKSPACE.strip_glob(&pattern)?], "path": WORKSPACE.strip_folder(written.as_deref())?,
                "sort": "modified", "maxResults": MAX_FOUND,
            });
            let title = |files: usize| format!("Found {files} file(s), newest first:");
            let render = answers::found(absolute, Some(title), none);
            Ok(MappedCall::new("find_files", asked(tool, written.unwrap_or_default()), input, render))
        },
        item: None,
    }
}

fn read_file(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let is_qwen = tool.input["properties"].get("offset").is_some();
    let written = arguments.required(&["file_path", "absolute_path", "path"])?;
    let first = count(&mut arguments, &["start_line"])?;
    let last = count(&mut arguments, &["end_line"])?;
    let offset = count(&mut arguments, &["offset"])?;
    let limit = count(&mut arguments, &["limit"])?;
    arguments.ignore(&["pages"]);
    arguments.finish()?;
    let start = first.map(|line| line.max(1)).or_else(|| offset.map(|skipped| skipped.saturating_add(1))).unwrap_or(1);
    let lines = match last {
        Some(last) if last < start => {
            let message = format!("`end_line` is {last}, before `start_line`, which is {start}");
            return Err(Refusal::invalid(message, "Give an end_line from start_line on."));
        }
        Some(last) => last - start + 1,
        None => limit.unwrap_or(MAX_LINES),
    };
    let (lines, asked) = (lines.clamp(1, MAX_LINES), asked(tool, written));
    if let Some(output) = outputs::read(&asked, start, lines, more_of(is_qwen)) {
        return Ok(output);
    }
    let path = WORKSPACE.strip(&asked.path)?;
    let input = json!({ "path": path, "startLine": start, "maxLines": lines, "format": "raw" });
    let next =
        if is_qwen { |line: u64| format!("offset={}", line - 1) } else { |line: u64| format!("start_line={line}") };
    Ok(MappedCall::new("read_file", asked, input, answers::page(next)))
}

/// How the form's models read more of the output of a command.
fn more_of(is_qwen: bool) -> fn(&str, OutputPlace) -> String {
    if is_qwen { outputs::by_offset } else { outputs::by_start_line }
}

fn grep_search(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let pattern = arguments.required(&["pattern"])?;
    let written = arguments.text(&folder_names(tool))?;
    let glob = arguments.text(&["include_pattern", "include", "glob"])?;
    let names_only = arguments.boolean(&["names_only"])?.unwrap_or(false);
    let case_sensitive = arguments.boolean(&["case_sensitive"])?.unwrap_or(false);
    let is_literal = arguments.boolean(&["fixed_strings"])?.unwrap_or(false);
    let around = [&["context"][..], &["before"], &["after"]].map(|names| count(&mut arguments, names));
    let context = around.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().max().unwrap_or_default();
    let per_file = count(&mut arguments, &["max_matches_per_file"])?;
    let most = count(&mut arguments, &["total_max_matches", "limit"])?.unwrap_or(DEFAULT_MATCHES);
    arguments.ignore(&["no_ignore"]);
    arguments.finish()?;
    let glob = glob.map(|glob| WORKSPACE.strip_glob(&glob)).transpose()?;
    let input = json!({
        "query": pattern, "mode": if is_literal { "literal" } else { "regex" },
        "path": WORKSPACE.strip_folder(written.as_deref())?, "includeGlob": glob.map(|glob| vec![glob]),
        "caseSensitive": case_sensitive, "onePerFile": names_only.then_some(true), "contextLines": context.min(3), "maxMatches": most.clamp(1, MAX_MATCHES),
    });
    let render = answers::matches(MatchesForm {
        show: absolute,
        mode: if names_only { MatchesMode::Files } else { MatchesMode::Grouped },
        limit: usize::MAX,
        paging: None,
        per_file: per_file.map_or(usize::MAX, |most| usize::try_from(most.max(1)).unwrap_or(usize::MAX)),
        none: format!("No matches found for pattern \"{pattern}\"."),
    });
    Ok(MappedCall::new("search_text", asked(tool, written.unwrap_or_default()), input, render))
}

fn edit(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let written = arguments.required(&["file_path"])?;
    let old = arguments.required(&["old_string"])?;
    let new = arguments.required(&["new_string"])?;
    let reason = arguments.text(&["instruction"])?;
    let all = arguments.boolean(&["allow_multiple", "replace_all"])?;
    let expected = count(&mut arguments, &["expected_replacements"])?.filter(|expected| *expected != 1);
    arguments.ignore(&["modified_by_user", "ai_proposed_content"]);
    arguments.finish()?;
    if expected == Some(0) {
        return Err(Refusal::invalid("`expected_replacements` is 0", "Give the number of occurrences to replace."));
    }
    let path = WORKSPACE.strip(&written)?;
    let shown = written.clone();
    let asked = AsWritten { old: old.clone(), ..asked(tool, written) };
    let mut call = if old.is_empty() {
        let input = json!({ "path": path, "content": new, "mode": "CREATE_NEW" });
        let render = answers::change(move |_| format!("Created new file: {shown} with provided content."));
        MappedCall::new("write_file", asked, input, render)
    } else {
        let input = json!({
            "path": path, "oldString": old, "newString": new, "replaceAll": expected.map(|_| true).or(all),
            "expectedReplacements": expected,
        });
        let render = answers::change(move |change| {
            format!("Successfully modified file: {shown} ({} replacements) {}.", change.replacements, change.counts())
        });
        let shown: SnippetForm = if tool.name == "edit" { snippet::edited_lines } else { snippet::updated_code };
        MappedCall { snippet: Some(shown), ..MappedCall::new("edit_file", asked, input, render) }
    };
    call.reason = reason;
    Ok(call)
}

fn shell(folder: &'static str) -> FormatTool {
    FormatTool {
        name: "run_shell_command",
        description: "Runs a shell command in the run's files. Each runs in a new shell, to its end.",
        input: object(
            json!({
                "command": text_of("The command."),
                "description": text_of("What it is for, in a sentence."),
                folder: text_of("The folder in which it runs, under /workspace."),
            }),
            &["command"],
        ),
        becomes: own_tools(&["run_command"]),
        map: |tool, mut arguments| {
            let command = arguments.required(&["command"])?;
            let reason = arguments.text(&["description"])?;
            let folder = arguments.text(&["dir_path", "directory"])?;
            let timeout = count(&mut arguments, &["timeout"])?;
            if arguments.boolean(&["is_background"])? == Some(true) {
                let message = "a command cannot run in the background here: it is ended with its call";
                return Err(Refusal::invalid(
                    message,
                    "Run it without is_background, or leave it to the run's operator.",
                ));
            }
            arguments.ignore(&["delay_ms"]);
            arguments.finish()?;
            let folder = folder.map(|folder| WORKSPACE.strip_folder(Some(&folder))).transpose()?;
            let more = more_of(tool.input["properties"].get("directory").is_some());
            let mut call = command_call(asked(tool, String::new()), (&command, None), folder.as_deref(), timeout, more);
            call.reason = reason;
            Ok(call)
        },
        item: None,
    }
}

fn refuse(asked: &AsWritten, refusal: &Refusal) -> Option<String> {
    let path = text::quote::one_line(&asked.path);
    let details = &refusal.details;
    let said = match refusal.code {
        Code::EditNotFound => {
            format!("Failed to edit, 0 occurrences found for old_string in {path}. No edits made.")
        }
        Code::EditNotUnique => {
            let (wanted, found) = (details.limit.unwrap_or(1), details.actual.unwrap_or_default());
            let many = if asked.tool == "edit" { "replace_all" } else { "allow_multiple" };
            format!(
                "Failed to edit, expected {wanted} occurrence(s) but found {found} for old_string in file: {path}. To replace every \
                 one, set {many}."
            )
        }
        Code::NotFound => format!("File not found: {path}{}", note_under(WORKSPACE, refusal)),
        Code::AlreadyExists => format!("File already exists, cannot create: {path}"),
        Code::NotAFile => format!("Path is a directory, not a file: {path}"),
        Code::NotADirectory => format!("Path is not a directory: {path}"),
        _ => return unread(refusal),
    };
    Some(said)
}
