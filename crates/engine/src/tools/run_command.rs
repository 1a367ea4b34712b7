//! `run_command`: a command that a runner runs, outside of the service, in the run's files; and what it has printed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::{Code, Permission, Refusal, Sha256, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool::input::{any_path, bounded, max_chars};
use crate::tool::output::is_zero;
use crate::tool::{Tool, ToolRun, ToolSchema};
use crate::tools::apply_changeset::LeftFile;

/// The longest command, in bytes.
const MAX_COMMAND_BYTES: usize = 16 * 1024;
/// The characters of output that an answer has unless the call asks for fewer.
const MAX_OUTPUT_CHARS: usize = 16_000;

/// The name of the tool, also in records.
pub(crate) const RUN_COMMAND: &str = "run_command";

pub(crate) const TOOL: Tool = Tool {
    name: RUN_COMMAND,
    description: "Runs a shell command in a sandbox that has the run's files: builds, tests, formatters. Returns exit code, the end of \
                  the output and what changed; changes are judged as those of any tool. With outputOf, reads more of an earlier output.",
    is_expensive: true,
    // A command changes many files at once, as a patch does.
    permissions: &[Permission::FilePatchApply],
    content: &["output"],
    input: ToolSchema::of::<RunCommandInput>,
    output: ToolSchema::of::<RanCommand>,
    run: ToolRun::Command,
};

/// The input of `run_command`: `command`, or `outputOf`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"command": "cargo test --workspace", "timeoutSeconds": 300}))]
pub(crate) struct RunCommandInput {
    /// The command, as the shell takes it.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 16_384)]
    command: Option<String>,
    /// `sh` (default), or `bash` if the sandbox has it.
    #[serde(default)]
    #[schema(inline)]
    shell: Option<CommandShell>,
    /// The folder in which it runs, by default the root.
    #[serde(default)]
    cwd: Option<String>,
    /// Its time limit in seconds; the policy has the default and the maximum.
    #[serde(default)]
    #[schema(minimum = 1)]
    timeout_seconds: Option<u64>,
    /// The ID of an earlier command, whose output is returned instead.
    #[serde(default)]
    output_of: Option<String>,
    /// With outputOf: the first line.
    #[serde(default)]
    #[schema(minimum = 1)]
    start_line: Option<u64>,
    /// With startLine: the first character of that line.
    #[serde(default)]
    #[schema(minimum = 1)]
    column: Option<u64>,
    /// The maximum length of `output`, in characters; at most 16,000.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
}

/// The shell that runs a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CommandShell {
    /// The one that every sandbox has.
    #[default]
    Sh,
    /// `bash`, where the sandbox has it.
    Bash,
}

impl CommandShell {
    /// Whether it is the one that every sandbox has.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::Sh
    }
}

/// A parsed input.
#[derive(Debug)]
pub(crate) enum CommandInput {
    /// To run a command.
    Run {
        /// The line.
        command: String,
        /// The folder in which it runs.
        cwd: String,
        /// The seconds that the caller gives it.
        timeout_seconds: Option<u64>,
        /// The shell that runs it.
        shell: CommandShell,
        /// The characters of output that are shown.
        max_chars: usize,
    },
    /// To read an output.
    Output {
        /// The command.
        of: ToolCallId,
        /// Where to begin.
        start: OutputStart,
        /// The characters of output that are shown.
        max_chars: usize,
    },
}

/// Where the reading of an output begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputStart {
    /// The line, from 1.
    pub(crate) line: u64,
    /// The character of that line, from 1.
    pub(crate) column: u64,
}

impl OutputStart {
    /// The first line.
    pub(crate) const FIRST: Self = Self { line: 1, column: 1 };
}

/// Checks that a command line can be judged and recorded.
///
/// # Errors
///
/// `INVALID_REQUEST`; `POLICY_DENIED_SECRET` if it has a credential, which would be recorded.
pub(crate) fn check_command(command: &str) -> Result<(), Refusal> {
    let is_strange = |c: char| c.is_control() && c != '\n' && c != '\t';
    if command.trim().is_empty() || command.chars().any(is_strange) || command.len() > MAX_COMMAND_BYTES {
        let message = format!("`command` is empty, has control characters or is longer than {MAX_COMMAND_BYTES} bytes");
        return Err(Refusal::invalid(message, "Give one command line; write a longer script into a file first."));
    }
    let redacted = matches!(model::redact(command), Cow::Owned(_)).then_some("a secret in a URL or a header");
    if let Some(what) = model::credential_in(command.as_bytes()).or(redacted) {
        // It would be recorded.
        let message = format!("the command contains a credential: {what}");
        let hint = "Let the sandbox have the credential in a variable or a file, and name that in the command.";
        return Err(Refusal::new(Code::PolicyDeniedSecret, message, hint)
            .with_details(|details| details.reasons = vec![format!("secret:{what}")]));
    }
    Ok(())
}

impl TryFrom<RunCommandInput> for CommandInput {
    type Error = Refusal;

    fn try_from(input: RunCommandInput) -> Result<Self, Refusal> {
        let max_chars = max_chars(input.max_chars)?.unwrap_or(MAX_OUTPUT_CHARS).min(MAX_OUTPUT_CHARS);
        match (input.command, input.output_of) {
            (Some(command), None) => {
                check_command(&command)?;
                if input.start_line.is_some() || input.column.is_some() {
                    let message = "`startLine` or `column` is given without `outputOf`";
                    return Err(Refusal::invalid(message, "Omit them: they are of the output of an earlier command."));
                }
                let bounded_time = |seconds| bounded("timeoutSeconds", seconds, 1, u64::MAX);
                let timeout_seconds = input.timeout_seconds.map(bounded_time).transpose()?;
                let cwd = any_path(input.cwd.as_deref().unwrap_or_default())?.as_str().to_owned();
                let shell = input.shell.unwrap_or_default();
                Ok(Self::Run { command, cwd, timeout_seconds, shell, max_chars })
            }
            (None, Some(of)) => {
                let of = ToolCallId::parse(&of).map_err(|error| {
                    Refusal::invalid(error.to_string(), "Give the ID that the answer to the command has.")
                })?;
                let start = OutputStart {
                    line: input.start_line.unwrap_or(1).max(1),
                    column: input.column.unwrap_or(1).max(1),
                };
                Ok(Self::Output { of, start, max_chars })
            }
            (None, None) | (Some(_), Some(_)) => {
                let message = "the call needs one of `command` and `outputOf`";
                Err(Refusal::invalid(
                    message,
                    "Give `command` to run one, or `outputOf` to read the output of an earlier one.",
                ))
            }
        }
    }
}

/// The output of `run_command`.
#[derive(Debug, Default, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RanCommand {
    /// The exit code; omitted if a signal or the time limit has ended the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i64>,
    /// The signal that has ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i64>,
    /// Whether its time was over.
    pub(crate) timed_out: bool,
    /// How long it took, in microseconds.
    pub(crate) duration_micros: u64,
    /// What it printed, both streams as they came and as a terminal shows them, without credentials: the end of it, or from `startLine` on.
    pub(crate) output: String,
    /// The number of the first line of `output`, from 1. Omitted for a caller without `file:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    pub(crate) output_start_line: Option<u64>,
    /// Whether `output` begins within that line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(crate) output_start_cut: bool,
    /// How many lines the whole output has. Omitted for a caller without `file:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    pub(crate) output_lines: Option<u64>,
    /// The last line of `output`, if it is cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cut_line: Option<u64>,
    /// The `column` with which `startLine` = `cutLine` continues it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_column: Option<u64>,
    /// The ID by which `outputOf` reads the output; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_of: Option<String>,
    /// SHA-256 of the whole output, which is an artifact of the run. Omitted for a caller without `file:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_sha256: Option<Sha256>,
    /// The number of the command's record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_seq: Option<u64>,
    /// The shell that has run it, if it is not the one that was wanted: the sandbox does not have that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shell: Option<String>,
    /// Paths whose content in the sandbox was not that of the run when it began, at most 100: it is neither evidence nor a passed test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) differs: Vec<String>,
    /// How many there are of those.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub(crate) differs_count: u64,
    /// Paths whose content the run had not taken from an earlier command, at most 100: the sandbox had the run's version again when this one
    /// began, and the other one in `.workspaced/aside`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) put_aside: Vec<String>,
    /// How many there are of those.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub(crate) put_aside_count: u64,
    /// What else its caller has to know of the files that it has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
    /// What it changed; omitted if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changes: Option<CommandChanges>,
}

/// What became of the changes of a command.
#[derive(Clone, Debug, Default, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandChanges {
    /// The ID of the change set, by which `revert_calls` undoes it; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// The number of its record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    /// The paths that are as the command left them.
    #[serde(default)]
    pub(crate) applied: Vec<String>,
    /// The paths into which its changes were merged, because they have changed since.
    #[serde(default)]
    pub(crate) merged: Vec<String>,
    /// What was denied and is as before in the run.
    #[serde(default)]
    pub(crate) left: Vec<LeftFile>,
    /// How many files were not taken, by the folder at the top.
    #[serde(default)]
    pub(crate) not_taken: BTreeMap<String, u64>,
    /// What the command left that cannot be part of a run, such as a FIFO, a file that is too large, or a new folder of build output: the
    /// first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<LeftOutEntry>,
    /// How many there are of those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) left_out_count: u64,
    /// Lines added.
    #[serde(default)]
    pub(crate) insertions: u64,
    /// Lines removed.
    #[serde(default)]
    pub(crate) deletions: u64,
    /// Why nothing of it is in the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<Code>,
    /// The same for people and models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The approval for which the changes wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval_id: Option<String>,
}

impl CommandChanges {
    /// Those of a change set under `id` that was refused.
    pub(crate) fn refused(id: &ToolCallId, refusal: &Refusal) -> Self {
        Self {
            tool_call_id: Some(id.to_string()),
            seq: refusal.details.seq,
            code: Some(refusal.code),
            message: Some(refusal.message.clone()),
            approval_id: refusal.details.approval_id.as_ref().map(ToString::to_string),
            ..Self::default()
        }
    }
}

/// What a command left that cannot be part of a run.
#[derive(Clone, Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LeftOutEntry {
    /// The path. That of a folder ends with a slash.
    #[schema(example = "target/")]
    pub(crate) path: String,
    /// Why it cannot be part of the run.
    pub(crate) why: String,
}

impl RanCommand {
    /// Takes what the record of the command says of the files that it has found.
    pub(crate) fn add_tree(&mut self, data: &Value) {
        let paths = |name: &str| serde_json::from_value(data[name].clone()).unwrap_or_default();
        let count = |name: &str| data[name].as_u64().unwrap_or(0);
        (self.differs, self.differs_count) = (paths("differs"), count("differsCount"));
        (self.put_aside, self.put_aside_count) = (paths("putAside"), count("putAsideCount"));
    }

    /// Takes as many of the last lines of `text` as `max_chars` characters. The output has `lines` in all, of which `text` may be the end;
    /// `is_cut` is whether it begins within a line.
    pub(crate) fn set_end(&mut self, text: &str, lines: u64, is_cut: bool, max_chars: usize) {
        let total = text.chars().count();
        let mut begin = text.char_indices().nth(total.saturating_sub(max_chars)).map_or(text.len(), |(at, _)| at);
        let is_within = |at: usize| if at == 0 { is_cut } else { !text[..at].ends_with('\n') };
        // From the beginning of a line, unless that leaves nothing.
        if is_within(begin)
            && let Some(end) = text[begin..].find('\n').filter(|end| begin + end + 1 < text.len())
        {
            begin += end + 1;
        }
        self.output_start_cut = is_within(begin) && begin < text.len();
        text[begin..].clone_into(&mut self.output);
        let lines = lines.max(line_count(text));
        let first = lines.saturating_add(1).saturating_sub(line_count(&self.output)).max(1);
        (self.output_start_line, self.output_lines) = (Some(first), Some(lines));
    }

    /// Takes as many lines from `start` on as `max_chars` characters; of a line that is longer than that, its beginning.
    pub(crate) fn set_lines(&mut self, text: &str, start: OutputStart, max_chars: usize) {
        (self.output_start_line, self.output_lines) = (Some(start.line), Some(line_count(text)));
        self.output_start_cut = start.column > 1;
        let skip = |count: u64| usize::try_from(count - 1).unwrap_or(usize::MAX);
        let (mut left, mut column) = (max_chars, start.column);
        for (number, line) in (start.line..).zip(text.split_inclusive('\n').skip(skip(start.line))) {
            let from = line.char_indices().nth(skip(column)).map_or(line.len(), |(at, _)| at);
            let line = &line[from..];
            let chars = line.chars().count();
            if chars > left {
                if self.output.is_empty() {
                    self.output = line.chars().take(left).collect();
                    self.cut_line = Some(number);
                    self.next_column = Some(column.saturating_add(left as u64));
                }
                break;
            }
            left -= chars;
            column = 1;
            self.output.push_str(line);
        }
    }
}

/// Returns an output as a terminal shows it: without escape sequences, and of a line that was written again from its beginning, such as a
/// progress bar, the last version. Each line stays one.
pub(crate) fn as_shown(output: &str) -> Cow<'_, str> {
    if !output.contains(['\r', '\u{1b}', '\u{8}', '\u{9b}']) {
        return Cow::Borrowed(output);
    }
    let mut shown = String::with_capacity(output.len());
    for line in output.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let line = without_escapes(line);
        let line = line.trim_end_matches('\r');
        let from = line.rfind('\r').map_or(0, |at| at + 1);
        for c in line[from..].chars() {
            if c == '\u{8}' {
                if shown.ends_with('\n') || shown.is_empty() {
                    continue;
                }
                shown.pop();
            } else {
                shown.push(c);
            }
        }
        shown.push_str(end);
    }
    Cow::Owned(shown)
}

/// Removes escape sequences: those with parameters (`ESC [`), strings up to their end (`ESC ]` and the like), and short ones.
fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let kind = match c {
            '\u{9b}' => Some('['),
            '\u{1b}' => chars.next(),
            _ => {
                plain.push(c);
                continue;
            }
        };
        match kind {
            Some('[') => {
                let is_parameter = |c: &char| ('\u{20}'..='\u{3f}').contains(c);
                while chars.next_if(is_parameter).is_some() {}
                chars.next_if(|c| ('@'..='~').contains(c));
            }
            Some(']' | 'P' | '_' | '^' | 'X') => {
                while let Some(c) = chars.next() {
                    if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            // Such as the choice of a character set.
            Some(' '..='/') => drop(chars.next()),
            Some(_) | None => {}
        }
    }
    plain
}

/// How many lines a text has.
pub(crate) fn line_count(text: &str) -> u64 {
    text.lines().count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(text: &str, max_chars: usize) -> (String, u64, u64) {
        let mut ran = RanCommand::default();
        ran.set_end(text, 0, false, max_chars);
        (ran.output, ran.output_start_line.unwrap(), ran.output_lines.unwrap())
    }

    #[test]
    fn the_end_of_an_output_begins_with_a_line() {
        assert_eq!(end_of("", 10), (String::new(), 1, 0));
        assert_eq!(end_of("a\nb\n", 10), ("a\nb\n".into(), 1, 2));
        assert_eq!(end_of("one\ntwo\nthree\n", 7), ("three\n".into(), 3, 3));
        assert_eq!(end_of("one\ntwo\nthree\n", 6), ("three\n".into(), 3, 3));
        assert_eq!(end_of("one\ntwo\nthree\n", 10), ("two\nthree\n".into(), 2, 3));
        assert_eq!(end_of("äöüäöü", 3), ("äöü".into(), 1, 1));
        // The runner has sent the end alone.
        let mut ran = RanCommand::default();
        ran.set_end("y\nz\n", 100, false, 50);
        assert_eq!((&*ran.output, ran.output_start_line, ran.output_lines), ("y\nz\n", Some(99), Some(100)));
    }

    #[test]
    fn an_end_that_begins_within_a_line_says_so() {
        let end = |text, is_cut, max_chars| {
            let mut ran = RanCommand::default();
            ran.set_end(text, 9, is_cut, max_chars);
            (ran.output, ran.output_start_line.unwrap(), ran.output_start_cut)
        };
        assert_eq!(end("abcdef\n", false, 4), ("def\n".into(), 9, true));
        assert_eq!(end("abcdef\n", false, 40), ("abcdef\n".into(), 9, false));
        assert_eq!(end("f\nz\n", true, 40), ("z\n".into(), 9, false));
        assert_eq!(end("f\n", true, 40), ("f\n".into(), 9, true));
        assert_eq!(end("", true, 40), (String::new(), 10, false));
    }

    #[test]
    fn an_output_is_shown_as_a_terminal_shows_it() {
        let shown = |text| as_shown(text).into_owned();
        assert_eq!(shown("plain\n"), "plain\n");
        assert_eq!(shown(" 1%\r 50%\r100%\nnext\r\nlast"), "100%\nnext\nlast");
        assert_eq!(shown("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}x\u{1b}(By\n"), "red xy\n");
        assert_eq!(shown("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\\n"), "link\n");
        assert_eq!(shown("ab\u{8}c\n\u{8}d"), "ac\nd");
        assert_eq!(shown("\u{1b}"), "");
        assert_eq!(shown("\u{1b}[2K\rdone\r"), "done");
    }

    #[test]
    fn lines_of_an_output_are_whole() {
        let lines = |line, max| {
            let mut ran = RanCommand::default();
            ran.set_lines("one\ntwo\nthree\n", OutputStart { line, column: 1 }, max);
            (ran.output, ran.output_start_line.unwrap(), ran.output_lines.unwrap())
        };
        assert_eq!(lines(2, 100), ("two\nthree\n".into(), 2, 3));
        assert_eq!(lines(1, 8), ("one\ntwo\n".into(), 1, 3));
        assert_eq!(lines(3, 2), ("th".into(), 3, 3));
        assert_eq!(lines(9, 100), (String::new(), 9, 3));
    }

    #[test]
    fn a_line_that_is_cut_is_continued_at_its_next_column() {
        let lines = |line, column, max| {
            let mut ran = RanCommand::default();
            ran.set_lines("one\näöüß\nx\n", OutputStart { line, column }, max);
            (ran.output, ran.output_start_cut, ran.cut_line, ran.next_column)
        };
        assert_eq!(lines(2, 1, 3), ("äöü".into(), false, Some(2), Some(4)));
        assert_eq!(lines(2, 4, 3), ("ß\n".into(), true, None, None));
        assert_eq!(lines(2, 4, 100), ("ß\nx\n".into(), true, None, None));
        assert_eq!(lines(2, 100, 100), ("x\n".into(), true, None, None));
        assert_eq!(lines(1, 100, 3), ("äöü".into(), true, Some(2), Some(4)));
    }
}
