//! Facts about files: `stat_path` and `tree_stats`.

use std::borrow::Cow;

use model::{FileKind, Sha256};
use workspace::{EntryType, Tally, TreeStats};

use crate::tool::output::ToolOutput;
use crate::tool::text::lines::PushLine as _;
use crate::tool::text::notes::{counted, not_shown};
use crate::tool::text::{Rendered, quote};
use crate::tools::stat_path::StatPathOutput;
use crate::tools::tree_stats::TreeStatsOutput;

impl ToolOutput for StatPathOutput {
    /// Renders one line.
    fn to_text(&self) -> Rendered {
        let path = quote::path(self.path.as_str());
        if !self.exists {
            let can = if self.writable { "can be created" } else { "not writable" };
            return format!("{path}: does not exist, {can}\n").into();
        }
        let mut facts: Vec<Cow<'_, str>> = vec![Cow::Borrowed(match self.entry_type {
            Some(EntryType::Directory) => "folder",
            Some(EntryType::Symlink) => "link",
            Some(EntryType::Other) => "special file",
            Some(EntryType::File) | None => "file",
        })];
        facts.extend(self.target.as_ref().map(|target| format!("leads to {}", quote::path(target.as_str())).into()));
        facts.extend(self.kind.and_then(kind_name).map(Cow::Borrowed));
        facts.extend(self.size_bytes.map(|size| counted(size, "byte", "bytes").into()));
        facts.extend(self.modified_at.as_ref().map(|time| format!("modified {time}").into()));
        facts.extend(self.mode.as_ref().map(|mode| format!("mode {mode}").into()));
        facts.push(match (self.readable, &self.reason) {
            (true, _) => "readable".into(),
            (false, Some(reason)) => format!("not readable ({reason})").into(),
            (false, None) => "not readable".into(),
        });
        facts.extend(self.redacted.then_some(Cow::Borrowed("keys can be read")));
        facts.push(if self.writable { "writable".into() } else { "not writable".into() });
        format!("{path}: {}\n", facts.join(", ")).into()
    }

    fn sha256(&self) -> Option<Sha256> {
        self.sha256
    }
}

impl ToolOutput for TreeStatsOutput {
    /// Renders the sums, then a line for each kind and extension.
    fn to_text(&self) -> Rendered {
        let Self { path, truncated, stats } = self;
        let mut out = head(path.as_str(), stats);
        for (extension, tally) in &stats.by_extension {
            out.push_str(&extension_line(extension, tally));
        }
        if stats.not_counted > 0 {
            out.push_line(format_args!("[lines of {} not counted]", counted(stats.not_counted, "file", "files")));
        }
        out.extend(not_shown(&stats.not_shown, "not counted", |_| vec!["path=FOLDER looks inside"]));
        if *truncated {
            out.push_str("[extensions are missing; narrow path or raise maxChars]\n");
        }
        out.into()
    }
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
