//! Patches in the form `*** Begin Patch`: the tool of `OpenAI`'s Responses for one file, and the tools of Codex.

use std::borrow::Cow;

use model::{Code, FILE_HEAD_HINT, FORMAT_HINT, HUNK_FILE_HINT, Patch, PatchOperation, Refusal, WHOLE_PATCH_HINT};
use serde_json::{Value, json};

use super::answers;
use super::arguments::Arguments;
use super::claude::object;
use super::outputs;
use super::paths::WORKSPACE;
use super::refusals::{OUTPUT_OF, repeated};
use super::{AsWritten, FormatTool, MappedCall, ModelFormat, Shown, Words, as_response_function, own_tools};
use crate::tools::text::command::CommandForm;

/// The patches that Codex writes, as a grammar of Lark.
const GRAMMAR: &str = r#"start: "*** Begin Patch" LF file+ "*** End Patch" LF?
file: added | deleted | updated
added: "*** Add File: " name LF ("+" text LF)+
deleted: "*** Delete File: " name LF
updated: "*** Update File: " name LF moved? change?
moved: "*** Move to: " name LF
change: (place | line)+ end?
place: ("@@" | "@@ " name) LF
line: ("+" | "-" | " ") text LF
end: "*** End of File" LF
name: /(.+)/
text: /(.*)/
%import common.LF
"#;

/// The headers of a patch that name a file.
const HEADERS: [&str; 4] = ["*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "];

/// `apply_patch` of `OpenAI`'s Responses.
pub(super) fn openai() -> ModelFormat {
    ModelFormat {
        name: "openai-apply-patch",
        tools: vec![FormatTool {
            name: "apply_patch",
            description: "Creates, updates or deletes one text file by a diff: create_file takes lines that begin with +, update_file \
                          hunks headed by @@. Paths are relative to the root of the files.",
            input: object(
                json!({ "operation": object(
                    json!({
                        "type": { "type": "string", "enum": ["create_file", "update_file", "delete_file"] },
                        "path": { "type": "string", "description": "The file." },
                        "diff": { "type": "string", "description": "The lines, without headers of files." },
                        "move_to": { "type": "string", "description": "With update_file: the new path." },
                    }),
                    &["type", "path"],
                )}),
                &["operation"],
            ),
            becomes: own_tools(&["apply_patch"]),
            map: operation,
            item: Some(|call_id, is_ok, output| {
                let status = if is_ok { "completed" } else { "failed" };
                json!({ "type": "apply_patch_call_output", "call_id": call_id, "status": status, "output": output })
            }),
        }],
        declare: |_| vec![json!({ "type": "apply_patch" })],
        refuse,
        words: DIFF_WORDS,
    }
}

/// The tools of Codex.
pub(super) fn codex() -> ModelFormat {
    ModelFormat {
        name: "codex",
        tools: vec![
            FormatTool {
                name: "apply_patch",
                description: "Edits text files by a patch that begins with *** Begin Patch. It is text, not JSON.",
                input: object(json!({ "input": { "type": "string", "description": "The whole patch." } }), &["input"]),
                becomes: own_tools(&["apply_patch"]),
                map: freeform,
                item: None,
            },
            FormatTool {
                name: "exec_command",
                description: "Runs a shell command in the run's files, to its end.",
                input: object(
                    json!({
                        "cmd": { "type": "string", "description": "The command." },
                        "workdir": { "type": "string", "description": "The folder in which it runs; by default the root." },
                        "yield_time_ms": { "type": "number", "description": "Has no effect: the answer waits for the end." },
                        "max_output_tokens": { "type": "number", "description": "The most tokens of output." },
                    }),
                    &["cmd"],
                ),
                becomes: own_tools(&["run_command"]),
                map: exec_command,
                item: None,
            },
            write_stdin(),
        ],
        declare: |shown: &Shown<'_>| {
            let declared = shown.tools.iter().map(|tool| match tool.name {
                "apply_patch" => json!({
                    "type": "custom", "name": tool.name, "description": tool.description,
                    "format": { "type": "grammar", "syntax": "lark", "definition": GRAMMAR },
                }),
                _ => as_response_function(tool, &shown.schema(tool), false),
            });
            declared.collect()
        },
        refuse,
        words: WORDS,
    }
}

/// Nothing can be written to a command, of which the answer waits for the end. It reads on in the output.
fn write_stdin() -> FormatTool {
    FormatTool {
        name: "write_stdin",
        description: "Reads more of the output of a command that exec_command has run.",
        input: object(
            json!({
                "session_id": { "type": "string", "description": "As the answer to the command has it." },
                "chars": { "type": "string", "description": "Only empty: every command has ended." },
                "yield_time_ms": { "type": "number", "description": "Has no effect." },
                "max_output_tokens": { "type": "number", "description": "The most tokens of output." },
            }),
            &["session_id"],
        ),
        becomes: own_tools(&["run_command"]),
        map: |tool, mut arguments| {
            let session = arguments.required(&["session_id"])?;
            let chars = arguments.text(&["chars"])?.unwrap_or_default();
            let most = max_chars(&mut arguments)?;
            arguments.ignore(&["yield_time_ms"]);
            arguments.finish()?;
            outputs::read_on(asked(tool, session), &chars, most)
        },
        item: None,
    }
}

/// The words of Codex. A patch has no lines that name both sides of a file.
const WORDS: Words = Words::Other(&[
    ("apply_patch", "apply_patch"),
    ("run_command", "exec_command"),
    (OUTPUT_OF, "; write_stdin with session_id="),
    (WHOLE_PATCH_HINT, FORMAT_HINT),
    (HUNK_FILE_HINT, FORMAT_HINT),
    (FILE_HEAD_HINT, FORMAT_HINT),
]);

/// What the diff of one file has, for the tool that is given no more.
const DIFF_HINT: &str = "Send the diff alone: for create_file lines that begin with `+`; for update_file hunks headed by `@@`, whose lines begin with a \
     blank, `-` or `+`.";

/// The words of the tool for one file.
const DIFF_WORDS: Words = Words::Other(&[
    ("apply_patch", "apply_patch"),
    (WHOLE_PATCH_HINT, DIFF_HINT),
    (HUNK_FILE_HINT, DIFF_HINT),
    (FILE_HEAD_HINT, DIFF_HINT),
    (FORMAT_HINT, DIFF_HINT),
]);

fn asked(tool: &FormatTool, path: String) -> AsWritten {
    AsWritten { tool: tool.name, path, ..AsWritten::default() }
}

fn patch_call(asked: AsWritten, patch: &str) -> MappedCall {
    MappedCall::new("apply_patch", asked, json!({ "patch": patch }), answers::change(answers::patched))
}

fn freeform(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let text = arguments.required(&["input"])?;
    // The members of the item in which the API gives the text.
    arguments.ignore(&["type", "id", "call_id", "name", "status", "namespace"]);
    arguments.finish()?;
    let text = without_here_document(&text);
    let mut patch = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match HEADERS.iter().find_map(|header| Some((*header, line.strip_prefix(header)?))) {
            Some((header, rest)) => {
                let path = rest.trim_end_matches(['\r', '\n']);
                patch.extend([header, &WORKSPACE.strip(path)?, &rest[path.len()..]]);
            }
            None => patch.push_str(line),
        }
    }
    Ok(patch_call(asked(tool, String::new()), &patch))
}

/// The text of a here-document, such as `apply_patch <<'EOF'` up to `EOF`; another text as it is.
fn without_here_document(text: &str) -> &str {
    let inner = || {
        let (first, rest) = text.trim_start().split_once('\n')?;
        let (command, word) = first.trim_end().split_once("<<")?;
        let word = word.trim_start_matches('-').trim().trim_matches(['\'', '"']);
        let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let body = rest.trim_end().strip_suffix(word).filter(|body| body.is_empty() || body.ends_with('\n'))?;
        (is_word && ["", "apply_patch", "applypatch"].contains(&command.trim())).then_some(body)
    };
    inner().unwrap_or(text)
}

/// One operation of `apply_patch_call`.
fn operation(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let members = arguments.object("operation")?.ok_or_else(|| {
        Refusal::invalid("`operation` is missing", "Send the item `apply_patch_call` as the model has given it.")
    })?;
    arguments.ignore(&["type", "id", "call_id", "status", "caller", "created_by"]);
    arguments.finish()?;
    let mut operation = Arguments::of("apply_patch", Value::Object(members))?;
    let kind = operation.required(&["type"])?;
    operation.of_command(&kind);
    let written = operation.required(&["path"])?;
    let diff = if kind == "delete_file" { String::new() } else { operation.text(&["diff"])?.unwrap_or_default() };
    let diff = without_here_document(&diff);
    let move_to = operation.text(&["move_to"])?;
    operation.ignore(&["diff"]);
    operation.finish()?;
    let path = WORKSPACE.strip(&written)?;
    let target = move_to.as_deref().map(|path| WORKSPACE.strip(path)).transpose()?;
    let (header, wanted) = match (kind.as_str(), &target) {
        ("create_file", None) => (format!("*** Add File: {path}\n"), PatchOperation::Create),
        ("delete_file", None) => (format!("*** Delete File: {path}\n"), PatchOperation::Delete),
        ("update_file", None) => (format!("*** Update File: {path}\n"), PatchOperation::Modify),
        ("update_file", Some(to)) => (format!("*** Update File: {path}\n*** Move to: {to}\n"), PatchOperation::Rename),
        ("create_file" | "delete_file", Some(_)) => {
            return Err(Refusal::invalid("`move_to` is for update_file alone", "Leave it out."));
        }
        (other, _) => {
            let message = format!("there is no operation {}", repeated(other));
            return Err(Refusal::invalid(message, "Give create_file, update_file or delete_file."));
        }
    };
    let end = if diff.is_empty() || diff.ends_with('\n') { "" } else { "\n" };
    let before = format!("*** Begin Patch\n{header}");
    let patch = format!("{before}{diff}{end}*** End Patch\n");
    // Headers in the diff would reach other files than the operation names.
    if let Ok(parsed) = Patch::parse(&patch) {
        let is_it =
            |raw: &str, found: &str| model::LogicalPath::parse_file(raw).is_ok_and(|path| path.as_str() == found);
        let is_only = match &parsed.files[..] {
            [file] => {
                file.operation == wanted
                    && is_it(&path, file.from.as_str())
                    && is_it(target.as_ref().unwrap_or(&path), file.path.as_str())
            }
            _ => false,
        };
        if !is_only {
            let message = format!("the diff is not that of {} alone", repeated(&written));
            return Err(Refusal::new(Code::PatchInvalid, message, "Leave headers of files out of the diff."));
        }
    }
    let asked = AsWritten { lines_before: before.lines().count(), ..asked(tool, written) };
    Ok(patch_call(asked, &patch))
}

/// The most characters of an output.
fn max_chars(arguments: &mut Arguments) -> Result<Option<u64>, Refusal> {
    let tokens = arguments.integer(&["max_output_tokens"])?;
    // A token is about four characters.
    Ok(tokens.and_then(|tokens| u64::try_from(tokens).ok()).map(|tokens| tokens.saturating_mul(4).max(1)))
}

fn exec_command(tool: &FormatTool, mut arguments: Arguments) -> Result<MappedCall, Refusal> {
    let command = arguments.required(&["cmd"])?;
    let folder = arguments.text(&["workdir"])?;
    let most = max_chars(&mut arguments)?;
    let reason = arguments.text(&["justification"])?;
    // A sandbox and its policy decide about these.
    arguments.ignore(&["yield_time_ms", "shell", "tty", "login", "sandbox_permissions", "prefix_rule"]);
    arguments.finish()?;
    let cwd = folder.map(|folder| WORKSPACE.strip_folder(Some(&folder))).transpose()?;
    let input = json!({ "command": command, "cwd": cwd, "maxChars": most });
    let form = CommandForm { is_process: true, ..CommandForm::of(outputs::by_session) };
    let render = Box::new(move |answer: &str| form.render(answer));
    let mut call = MappedCall::new("run_command", asked(tool, String::new()), input, render);
    call.reason = reason;
    Ok(call)
}

/// A message about a line of the patch, as one about a line of the diff, which the form has put after `before` other lines.
fn in_diff(message: &str, before: usize) -> Cow<'_, str> {
    let found = message.strip_prefix("line ").and_then(|rest| rest.split_once(" of the patch: "));
    match found.and_then(|(number, what)| Some((number.parse::<usize>().ok()?, what))) {
        Some((number, what)) if before > 0 => match number.checked_sub(before).filter(|number| *number > 0) {
            Some(number) => format!("line {number} of the diff: {what}").into(),
            None => what.into(),
        },
        Some(_) | None => message.into(),
    }
}

fn refuse(asked: &AsWritten, refusal: &Refusal) -> Option<String> {
    match (asked.tool, refusal.code) {
        ("write_stdin", Code::NotFound) => {
            return Some(format!("write_stdin failed: Unknown session {}", repeated(&asked.path)));
        }
        ("exec_command" | "write_stdin", _) => return None,
        _ => {}
    }
    let named = refusal.details.path.as_deref().unwrap_or(&asked.path);
    let said = match refusal.code {
        Code::PatchConflict => format!("Failed to find expected lines in {named}: {}", refusal.message),
        Code::PatchInvalid => format!("Invalid patch: {}", in_diff(&refusal.message, asked.lines_before)),
        Code::NotFound => format!("Failed to read file to update: {}", refusal.message),
        _ => return None,
    };
    Some(format!("apply_patch verification failed: {said}"))
}

#[cfg(test)]
mod tests {
    use super::{in_diff, without_here_document};

    #[test]
    fn a_here_document_is_its_text() {
        let patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n";
        for start in ["<<EOF", "<<'EOF'", "<<\"EOF\"", "apply_patch <<'EOF'", "applypatch << EOF", "apply_patch <<-EOF"]
        {
            assert_eq!(without_here_document(&format!("{start}\n{patch}EOF\n")), patch, "{start}");
        }
        for other in [patch.to_owned(), format!("<<EOF\n{patch}"), format!("cat <<EOF\n{patch}EOF\n")] {
            assert_eq!(without_here_document(&other), other);
        }
    }

    #[test]
    fn lines_are_those_of_the_diff() {
        assert_eq!(in_diff("line 4 of the patch: `x` is wrong", 2), "line 2 of the diff: `x` is wrong");
        assert_eq!(in_diff("line 1 of the patch: the patch changes no file", 2), "the patch changes no file");
        assert_eq!(in_diff("line 4 of the patch: `x` is wrong", 0), "line 4 of the patch: `x` is wrong");
        assert_eq!(in_diff("line x", 2), "line x");
    }
}
