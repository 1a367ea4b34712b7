//! Commands: how they ended, what they printed, and what they changed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::lines::PushLine as _;
use super::{Rendered, quote};

/// The files that are named of each kind.
const MAX_FILES: usize = 50;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ran<'a> {
    exit_code: Option<i64>,
    signal: Option<i64>,
    timed_out: bool,
    duration_micros: u64,
    #[serde(borrow)]
    output: Cow<'a, str>,
    #[serde(default)]
    output_start_line: u64,
    #[serde(default)]
    output_start_cut: bool,
    #[serde(default)]
    output_lines: u64,
    #[serde(default)]
    cut_line: Option<u64>,
    #[serde(default)]
    next_column: Option<u64>,
    #[serde(borrow, default)]
    output_of: Option<Cow<'a, str>>,
    #[serde(default)]
    content_withheld: bool,
    #[serde(borrow, default)]
    warning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    changes: Option<ChangedByCommand<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangedByCommand<'a> {
    #[serde(default)]
    applied: Vec<String>,
    #[serde(default)]
    merged: Vec<String>,
    #[serde(default)]
    left: Vec<Left>,
    #[serde(default)]
    not_taken: BTreeMap<String, u64>,
    #[serde(default)]
    left_out: Vec<LeftOutLine>,
    #[serde(default)]
    left_out_count: u64,
    #[serde(default)]
    code: Option<String>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Left {
    path: String,
    rule: String,
}

#[derive(Deserialize)]
struct LeftOutLine {
    path: String,
    why: String,
}

/// Renders an answer of `run_command`.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn ran(answer: &str) -> serde_json::Result<Rendered> {
    let ran: Ran<'_> = serde_json::from_str(answer)?;
    Ok(rendered(&ran, &ran.ending(), "output:", OtherLines::OutputOf))
}

/// As [`ran`], for a reader whose tools have no call that reads more of the output.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn ran_without_more(answer: &str) -> serde_json::Result<Rendered> {
    let ran: Ran<'_> = serde_json::from_str(answer)?;
    Ok(rendered(&ran, &ran.ending(), "output:", OtherLines::File))
}

/// Renders an answer of `run_command` as that of a process that has exited.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn ran_as_process(answer: &str) -> serde_json::Result<Rendered> {
    let ran: Ran<'_> = serde_json::from_str(answer)?;
    let how = match ran.exit_code {
        Some(code) if !ran.timed_out => format!("Process exited with code {code}"),
        _ => format!("Process {}", ran.ending()),
    };
    let head = format!("Wall time: {:.4} seconds\n{how}", ran.seconds());
    Ok(rendered(&ran, &head, "Output:", OtherLines::File))
}

impl Ran<'_> {
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

/// How a reader gets the lines of an output that are not shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherLines {
    /// By `outputOf`.
    OutputOf,
    /// By a command that puts its output into a file.
    File,
}

/// Renders how a command ended, what it changed and what it printed.
fn rendered(ran: &Ran<'_>, head: &str, label: &str, others: OtherLines) -> Rendered {
    let mut body = String::new();
    body.push_line(head);
    // Before the output, which may have lines that look like these.
    if let Some(warning) = &ran.warning {
        body.push_line(format_args!("[{}]", quote::one_line(warning)));
    }
    if let Some(changes) = &ran.changes {
        add_changes(&mut body, changes);
    }
    if ran.content_withheld {
        body.push_line("[output withheld: the token has no file:read]");
        return Rendered { body, end: String::new() };
    }
    if !ran.output.is_empty() {
        body.push_line(label);
        body.push_str(&ran.output);
        if !ran.output.ends_with('\n') {
            body.push('\n');
        }
    }
    Rendered { body, end: ran.what_is_not_shown(others) }
}

impl Ran<'_> {
    /// Says which lines of the output are shown, if not all are, and how others are read.
    fn what_is_not_shown(&self, others: OtherLines) -> String {
        let Self { output_start_line: first, output_lines: lines, .. } = *self;
        let mut end = String::new();
        if self.output.is_empty() {
            if first > 1 && first > lines {
                end.push_line(format_args!("[the output has {lines} lines: startLine={first} is past its end]"));
            }
            return end;
        }
        let last = (first + self.output.lines().count() as u64).saturating_sub(1);
        if let (Some(line), Some(column)) = (self.cut_line, self.next_column) {
            let way = self.way(others, || format!("startLine={line}, column={column} reads it"));
            end.push_line(format_args!("[the rest of line {line} is left out{way}]"));
        }
        if self.output_start_cut {
            end.push_line(format_args!("[line {first} is not shown from its beginning]"));
        }
        if first > 1 || last < lines {
            let next = if last < lines { last + 1 } else { 1 };
            let way = self.way(others, || format!("startLine={next} reads others"));
            end.push_line(format_args!("[output lines {first}-{last} of {lines}{way}]"));
        }
        end
    }

    /// Returns how what is not shown is read; `from` is where `outputOf` begins.
    fn way(&self, others: OtherLines, from: impl FnOnce() -> String) -> String {
        match (&self.output_of, others) {
            (Some(of), OtherLines::OutputOf) => format!("; outputOf={} with {}", quote::quoted(of), from()),
            (None, OtherLines::OutputOf) => "; the rest is not kept".to_owned(),
            (_, OtherLines::File) => FILE.to_owned(),
        }
    }
}

/// How more of an output is read by tools that have no call for it.
const FILE: &str = "; to read the rest, run the command with its output in a file, and show that by parts: \
                    COMMAND > /tmp/output 2>&1; sed -n '1,100p' /tmp/output";

fn add_changes(body: &mut String, changes: &ChangedByCommand<'_>) {
    if let Some(message) = &changes.message {
        let code = changes.code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default();
        body.push_line(format_args!("changes not applied: {code}{}", quote::one_line(message)));
    }
    let path = |path: &String| quote::path(path).into_owned();
    add_files(body, "changed", changes.applied.iter().map(path));
    add_files(body, "merged with changes of others", changes.merged.iter().map(path));
    let left = |left: &Left| format!("{} ({})", quote::path(&left.path), quote::one_line(&left.rule));
    add_files(body, "denied, and not changed in the run", changes.left.iter().map(left));
    let count = usize::try_from(changes.left_out_count).unwrap_or(usize::MAX);
    let left_out = |left: &LeftOutLine| format!("{} ({})", quote::path(&left.path), quote::one_line(&left.why));
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
    if count > named {
        body.push_line(format_args!("  [{} more]", count - named));
    }
}
