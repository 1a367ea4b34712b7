//! Facts about files: `stat_path` and `tree_stats`.

use std::borrow::Cow;

use model::FileKind;
use serde::Deserialize;
use workspace::{EntryType, Tally, TreeStats};

use super::lines::PushLine as _;
use super::notes::{counted, not_shown};
use super::{Rendered, quote};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the facts are independent")]
struct Stat<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    exists: bool,
    #[serde(rename = "type")]
    entry_type: Option<EntryType>,
    kind: Option<FileKind>,
    #[serde(borrow, default)]
    target: Option<Cow<'a, str>>,
    readable: bool,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
    #[serde(default)]
    redacted: bool,
    writable: bool,
    size_bytes: Option<u64>,
    #[serde(borrow, default)]
    modified_at: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    mode: Option<Cow<'a, str>>,
}

/// Renders an answer of `stat_path` as one line.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn stat_path(answer: &str) -> serde_json::Result<Rendered> {
    let stat: Stat<'_> = serde_json::from_str(answer)?;
    let path = quote::path(&stat.path);
    if !stat.exists {
        let can = if stat.writable { "can be created" } else { "not writable" };
        return Ok(format!("{path}: does not exist, {can}\n").into());
    }
    let mut facts: Vec<Cow<'_, str>> = vec![Cow::Borrowed(match stat.entry_type {
        Some(EntryType::Directory) => "folder",
        Some(EntryType::Symlink) => "link",
        Some(EntryType::Other) => "special file",
        Some(EntryType::File) | None => "file",
    })];
    facts.extend(stat.target.as_deref().map(|target| format!("leads to {}", quote::path(target)).into()));
    facts.extend(stat.kind.and_then(kind_name).map(Cow::Borrowed));
    facts.extend(stat.size_bytes.map(|size| counted(size, "byte", "bytes").into()));
    facts.extend(stat.modified_at.map(|time| format!("modified {time}").into()));
    facts.extend(stat.mode.map(|mode| format!("mode {mode}").into()));
    facts.push(match (stat.readable, stat.reason) {
        (true, _) => "readable".into(),
        (false, Some(reason)) => format!("not readable ({reason})").into(),
        (false, None) => "not readable".into(),
    });
    facts.extend(stat.redacted.then_some(Cow::Borrowed("keys can be read")));
    facts.push(if stat.writable { "writable".into() } else { "not writable".into() });
    Ok(format!("{path}: {}\n", facts.join(", ")).into())
}

#[derive(Deserialize)]
struct ShownCounts<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(default)]
    truncated: bool,
    #[serde(flatten)]
    stats: TreeStats,
}

/// Renders an answer of `tree_stats`: the sums, then a line for each kind and extension.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn tree_stats(answer: &str) -> serde_json::Result<Rendered> {
    let ShownCounts { path, truncated, stats } = serde_json::from_str(answer)?;
    let mut out = head(&path, &stats);
    for (extension, tally) in &stats.by_extension {
        out.push_str(&extension_line(extension, tally));
    }
    if stats.not_counted > 0 {
        out.push_line(format_args!("[lines of {} not counted]", counted(stats.not_counted, "file", "files")));
    }
    out.extend(not_shown(&stats.not_shown, "not counted", |_| vec!["path=FOLDER looks inside"]));
    if truncated {
        out.push_str("[extensions are missing; narrow path or raise maxChars]\n");
    }
    Ok(out.into())
}

/// Removes the last extensions from `stats` until its text has at most `max_chars` characters. Returns whether any was removed.
pub(crate) fn fit_stats(path: &str, stats: &mut TreeStats, max_chars: usize) -> bool {
    let mut chars = head(path, stats).chars().count();
    let before = stats.by_extension.len();
    let mut is_full = false;
    stats.by_extension.retain(|extension, tally| {
        chars += extension_line(extension, tally).chars().count();
        is_full |= chars > max_chars;
        !is_full
    });
    stats.by_extension.len() < before
}

fn head(path: &str, stats: &TreeStats) -> String {
    let folders = counted(stats.directories, "folder", "folders");
    let mut out = format!("{}: {}, {folders}\nkinds:\n", quote::path(path), sums(&stats.total));
    for (kind, tally) in &stats.by_kind {
        out.push_line(format_args!("  {}: {}", kind_name(*kind).unwrap_or("other"), sums(tally)));
    }
    out.push_str("extensions:\n");
    out
}

fn extension_line(extension: &str, tally: &Tally) -> String {
    let name = match extension {
        "" => "none".into(),
        "..." => "others".into(),
        extension => quote::path(extension),
    };
    format!("  {name}: {}\n", sums(tally))
}

fn sums(tally: &Tally) -> String {
    let files = counted(tally.files, "file", "files");
    format!("{files}, {}, {}", counted(tally.bytes, "byte", "bytes"), counted(tally.lines, "line", "lines"))
}

fn kind_name(kind: FileKind) -> Option<&'static str> {
    match kind {
        FileKind::TextSource => Some("source"),
        FileKind::TextConfig => Some("configuration"),
        FileKind::TextDoc => Some("documentation"),
        FileKind::Lockfile => Some("lockfile"),
        FileKind::Generated => Some("generated"),
        FileKind::Vendored => Some("vendored"),
        FileKind::SecretLike => Some("secret"),
        FileKind::Binary => Some("binary"),
        FileKind::GitInternal => Some("git-internal"),
        FileKind::Submodule => Some("submodule"),
        FileKind::Directory | FileKind::Unknown => None,
    }
}
