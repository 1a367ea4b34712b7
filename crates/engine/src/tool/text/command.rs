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
    output_start_line: u64,
    output_lines: u64,
    #[serde(borrow, default)]
    output_of: Option<Cow<'a, str>>,
    #[serde(default)]
    content_withheld: bool,
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
    code: Option<String>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Left {
    path: String,
    rule: String,
}

/// Renders an answer of `run_command`.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn ran(answer: &str) -> serde_json::Result<Rendered> {
    let ran: Ran<'_> = serde_json::from_str(answer)?;
    Ok(rendered(&ran, &ran.ending(), "output:", true))
}

/// As [`ran`], for a reader who cannot read more of the output.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn ran_without_more(answer: &str) -> serde_json::Result<Rendered> {
    let ran: Ran<'_> = serde_json::from_str(answer)?;
    Ok(rendered(&ran, &ran.ending(), "output:", false))
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
    Ok(rendered(&ran, &head, "Output:", false))
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

/// Renders how a command ended, what it changed and what it printed.
fn rendered(ran: &Ran<'_>, head: &str, label: &str, can_read_more: bool) -> Rendered {
    let mut body = String::new();
    body.push_line(head);
    // Before the output, which may have lines that look like these.
    if let Some(changes) = &ran.changes {
        add_changes(&mut body, changes);
    }
    if ran.content_withheld {
        body.push_line("[output withheld: the token has no file:read]");
    }
    if !ran.output.is_empty() {
        body.push_line(label);
        body.push_str(&ran.output);
        if !ran.output.ends_with('\n') {
            body.push('\n');
        }
    }
    let last = (ran.output_start_line + ran.output.lines().count() as u64).saturating_sub(1);
    let mut end = String::new();
    if let Some(of) = ran.output_of.as_ref().filter(|_| !ran.output.is_empty())
        && (ran.output_start_line > 1 || last < ran.output_lines)
    {
        let next = if last < ran.output_lines { last + 1 } else { 1 };
        let way = format!("; outputOf={} with startLine={next} reads others", quote::quoted(of));
        end.push_line(format_args!(
            "[output lines {}-{last} of {}{}]",
            ran.output_start_line,
            ran.output_lines,
            if can_read_more { &way } else { "" },
        ));
    }
    Rendered { body, end }
}

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
    for (folder, count) in &changes.not_taken {
        body.push_line(format_args!("[{count} generated or ignored in {} not taken]", quote::path(folder)));
    }
}

fn add_files(body: &mut String, title: &str, files: impl ExactSizeIterator<Item = String>) {
    let count = files.len();
    if count == 0 {
        return;
    }
    body.push_line(format_args!("{title}:"));
    for file in files.take(MAX_FILES) {
        body.push_line(format_args!("  {file}"));
    }
    if count > MAX_FILES {
        body.push_line(format_args!("  [{} more]", count - MAX_FILES));
    }
}
