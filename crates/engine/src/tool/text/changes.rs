//! Answers of the tools that change files.

use std::borrow::Cow;

use serde::Deserialize;

use super::lines::PushLine as _;
use super::{Rendered, quote};

#[derive(Deserialize)]
struct ShownChange<'a> {
    #[serde(borrow)]
    summary: Cow<'a, str>,
    #[serde(borrow, default)]
    files: Vec<ShownChangedFile<'a>>,
}

#[derive(Deserialize)]
struct ShownChangedFile<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    from: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    insertions: u64,
    deletions: u64,
}

/// Renders the answer of a mutation: its summary, and a line for each of several files.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn change(answer: &str) -> serde_json::Result<Rendered> {
    let ShownChange { summary, files } = serde_json::from_str(answer)?;
    let mut out = format!("{}\n", quote::one_line(&summary));
    if files.len() > 1 {
        for file in &files {
            push_file(&mut out, file);
        }
    }
    Ok(out.into())
}

fn push_file(out: &mut String, file: &ShownChangedFile<'_>) {
    let letter = match file.operation.as_ref() {
        "created" => 'A',
        "deleted" => 'D',
        "renamed" => 'R',
        "copied" => 'C',
        _ => 'M',
    };
    let path = quote::path(&file.path);
    let counts = match (file.insertions, file.deletions) {
        (0, 0) => String::new(),
        (insertions, deletions) => format!(" +{insertions} -{deletions}"),
    };
    match &file.from {
        Some(from) => out.push_line(format_args!("{letter} {} -> {path}{counts}", quote::path(from))),
        None => out.push_line(format_args!("{letter} {path}{counts}")),
    }
}
