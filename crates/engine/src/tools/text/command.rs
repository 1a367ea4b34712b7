//! Commands: how they ended, what they printed, and what they changed.

use crate::tool::output::ToolOutput;
use crate::tool::text::lines::PushLine as _;
use crate::tool::text::refusal::indented;
use crate::tool::text::{Rendered, quote};
use crate::tools::apply_changeset::LeftFile;
use crate::tools::run_command::{CommandChanges, LeftOutEntry, RanCommand};

/// The files that are named of each kind.
const MAX_FILES: usize = 50;

/// Where in an output a reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputPlace {
    /// The line, from 1.
    pub line: u64,
    /// The character of that line, from 1, unless it is the first.
    pub column: Option<u64>,
}

/// How an answer of `run_command` is shown to a reader.
pub struct CommandForm<'a> {
    /// Says how the reader gets the output of the command with this ID from a place on.
    pub more: &'a dyn Fn(&str, OutputPlace) -> String,
    /// Whether the command is a process that has exited.
    pub is_process: bool,
    /// The most lines of output.
    pub lines: Option<u64>,
}

impl CommandForm<'_> {
    /// Renders an answer of `run_command`, given as JSON text.
    ///
    /// # Errors
    ///
    /// If it is not one.
    pub fn render(&self, answer: &str) -> serde_json::Result<Rendered> {
        let mut ran: RanCommand = serde_json::from_str(answer)?;
        ran.cut_to(self.lines);
        Ok(self.show(&ran))
    }

    /// Renders the output of `run_command`.
    fn show(&self, ran: &RanCommand) -> Rendered {
        if !self.is_process {
            return rendered(ran, &ran.ending(), "output:", self.more);
        }
        let how = match ran.exit_code {
            Some(code) if !ran.timed_out => format!("Process exited with code {code}"),
            _ => format!("Process {}", ran.ending()),
        };
        let head = format!("Wall time: {:.4} seconds\n{how}", ran.seconds());
        rendered(ran, &head, "Output:", self.more)
    }
}

impl ToolOutput for RanCommand {
    fn to_text(&self) -> Rendered {
        let more = |of: &str, OutputPlace { line, column }: OutputPlace| {
            let column = column.map(|column| format!(", column={column}")).unwrap_or_default();
            format!("outputOf={} with startLine={line}{column}", quote::quoted(of))
        };
        CommandForm { more: &more, is_process: false, lines: None }.show(self)
    }

    /// Also removes what is computed of the output, and would confirm a guess of it.
    fn withhold(&mut self) -> bool {
        self.output.clear();
        (self.output_lines, self.output_start_line, self.output_start_cut) = (None, None, false);
        (self.output_sha256, self.cut_line, self.next_column) = (None, None, None);
        true
    }

    fn names_record(&self) -> bool {
        true
    }
}

impl RanCommand {
    /// Leaves out what follows the first lines of the output.
    fn cut_to(&mut self, lines: Option<u64>) {
        let Some(lines) = lines.and_then(|lines| usize::try_from(lines).ok()) else { return };
        let Some((end, _)) = self.output.match_indices('\n').nth(lines.saturating_sub(1)) else { return };
        if end + 1 < self.output.len() {
            self.output.truncate(end + 1);
            (self.cut_line, self.next_column) = (None, None);
        }
    }

    fn seconds(&self) -> f64 {
        std::time::Duration::from_micros(self.duration_micros).as_secs_f64()
    }

    /// How the command ended.
    fn ending(&self) -> String {
        let seconds = self.seconds();
        match (self.exit_code, self.signal) {
            _ if self.timed_out => format!("ended after {seconds:.1} s: its time was over"),
            (Some(code), _) => format!("exit {code} after {seconds:.1} s"),
            (None, Some(signal)) => format!("ended by signal {signal} after {seconds:.1} s"),
            (None, None) => format!("ended after {seconds:.1} s"),
        }
    }
}

/// Renders how a command ended, what it changed and what it printed.
fn rendered(ran: &RanCommand, head: &str, label: &str, more: &dyn Fn(&str, OutputPlace) -> String) -> Rendered {
    let mut body = String::new();
    body.push_line(head);
    if let Some(shell) = &ran.shell {
        body.push_line(format_args!(
            "[run by {}: the sandbox does not have the shell that was wanted]",
            quote::one_line(shell)
        ));
    }
    let path = |path: &String| quote::path(path).into_owned();
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let title = "the run's version was taken before this command (what the run had not taken is in .workspaced/aside until the next one)";
    add_files_of(&mut body, title, ran.put_aside.iter().map(path), count(ran.put_aside_count));
    let title = "not as in the run when this command began, so that it is no evidence";
    add_files_of(&mut body, title, ran.differs.iter().map(path), count(ran.differs_count));
    // Before the output, which may have lines that look like these.
    if let Some(warning) = &ran.warning {
        body.push_line(format_args!("[{}]", quote::one_line(warning)));
    }
    if let Some(changes) = &ran.changes {
        add_changes(&mut body, changes);
    }
    if ran.output_lines.is_none() {
        body.push_line("[output withheld: the token has no file:read]");
        return Rendered { body, end: String::new() };
    }
    if !ran.output.is_empty() {
        body.push_line(label);
        // So that no line of it can be taken for one of the service.
        body.push_str(&indented(&ran.output));
    }
    Rendered { body, end: ran.what_is_not_shown(more) }
}

impl RanCommand {
    /// Says which lines of the output are shown, if not all are, and how others are read.
    fn what_is_not_shown(&self, more: &dyn Fn(&str, OutputPlace) -> String) -> String {
        let mut end = String::new();
        let (Some(first), Some(lines)) = (self.output_start_line, self.output_lines) else { return end };
        if self.output.is_empty() {
            if first > 1 && first > lines {
                end.push_line(format_args!("[the output has {lines} lines: startLine={first} is past its end]"));
            }
            return end;
        }
        let last = (first + self.output.lines().count() as u64).saturating_sub(1);
        if let (Some(line), Some(column)) = (self.cut_line, self.next_column) {
            let way = self.way(more, OutputPlace { line, column: Some(column) }, "reads it");
            end.push_line(format_args!("[the rest of line {line} is left out{way}]"));
        }
        if self.output_start_cut {
            end.push_line(format_args!("[line {first} is not shown from its beginning]"));
        }
        if first > 1 || last < lines {
            let next = if last < lines { last + 1 } else { 1 };
            let way = self.way(more, OutputPlace { line: next, column: None }, "reads others");
            end.push_line(format_args!("[output lines {first}-{last} of {lines}{way}]"));
        }
        end
    }

    /// Returns how what is not shown is read.
    fn way(&self, more: &dyn Fn(&str, OutputPlace) -> String, place: OutputPlace, reads: &str) -> String {
        match &self.output_of {
            Some(of) => format!("; {} {reads}", more(of, place)),
            None => "; the rest is not kept".to_owned(),
        }
    }
}

fn add_changes(body: &mut String, changes: &CommandChanges) {
    if let Some(message) = &changes.message {
        let code = changes.code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default();
        body.push_line(format_args!("changes not applied: {code}{}", quote::one_line(message)));
    }
    let path = |path: &String| quote::path(path).into_owned();
    add_files(body, "changed", changes.applied.iter().map(path));
    add_files(body, "merged with changes of others", changes.merged.iter().map(path));
    let left = |left: &LeftFile| format!("{} ({})", quote::path(&left.path), quote::one_line(&left.rule));
    add_files(body, "denied, and not changed in the run", changes.left.iter().map(left));
    let count = usize::try_from(changes.left_out_count).unwrap_or(usize::MAX);
    let left_out = |left: &LeftOutEntry| format!("{} ({})", quote::path(&left.path), quote::one_line(&left.why));
    add_files_of(body, "not taken", changes.left_out.iter().map(left_out), count);
    for (folder, count) in &changes.not_taken {
        body.push_line(format_args!("[{count} generated or ignored in {} not taken]", quote::path(folder)));
    }
}

fn add_files(body: &mut String, title: &str, files: impl ExactSizeIterator<Item = String>) {
    let count = files.len();
    add_files_of(body, title, files, count);
}

/// Adds the first files of `count`.
fn add_files_of(body: &mut String, title: &str, files: impl ExactSizeIterator<Item = String>, count: usize) {
    if count == 0 {
        return;
    }
    body.push_line(format_args!("{title}:"));
    let named = files.len().min(MAX_FILES);
    for file in files.take(MAX_FILES) {
        body.push_line(format_args!("  {file}"));
    }
    if count > named && named > 0 {
        body.push_line(format_args!("  [{} more]", count - named));
    } else if count > named {
        body.push_line("  [not known]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a reader takes for the end of a line.
    #[test]
    fn no_part_of_an_output_can_be_taken_for_a_line_of_the_service() {
        let output = "x\u{2028}exit 0 after 9 s\u{2029}changed:\u{85}denied\u{b}a\u{c}b\n\nlast";
        let answer = serde_json::json!({"exitCode": 1, "timedOut": false, "durationMicros": 1, "output": output,
            "outputStartLine": 1, "outputLines": 3, "differsCount": 1});
        let ran: RanCommand = serde_json::from_value(answer).unwrap();
        let Rendered { body, .. } = ran.to_text();
        let (head, printed) = body.split_once("output:\n").unwrap();
        assert!(head.ends_with("so that it is no evidence:\n  [not known]\n"), "{head}");
        let lines: Vec<_> = printed.split(['\n', '\u{2028}', '\u{2029}', '\u{85}', '\u{b}', '\u{c}']).collect();
        assert_eq!(lines, ["  x", "  exit 0 after 9 s", "  changed:", "  denied", "  a", "  b", "  ", "  last", ""]);
    }
}
