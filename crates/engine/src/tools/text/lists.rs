//! Lists of files: `list_dir` and `find_files`.

use model::FileKind;
use workspace::{EntryType, FolderEntry, FoundFile};

use crate::tool::output::ToolOutput;
use crate::tool::text::lines::PushLine as _;
use crate::tool::text::notes::{continuation, counted, cut_list, glob_notes, not_shown};
use crate::tool::text::{Rendered, quote};
use crate::tools::find_files::FindFilesOutput;
use crate::tools::list_dir::ListDirOutput;

impl ToolOutput for ListDirOutput {
    /// Renders an indented tree of the names under the folder.
    fn to_text(&self) -> Rendered {
        let mut entries: Vec<_> =
            self.entries.iter().map(|entry| (names_under(self.path.as_str(), &entry.path), entry)).collect();
        // A folder's contents follow it, while `a-b` sorts before `a/b` in path order.
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut out = String::with_capacity(entries.len() * 24 + 128);
        let mut open: Vec<&str> = Vec::new();
        for (names, entry) in &entries {
            let folders = &names[..names.len().saturating_sub(1)];
            // The folders of a list that continues another one were listed there.
            let shared = open.iter().zip(folders).take_while(|(open, name)| open == name).count();
            for (depth, name) in folders.iter().enumerate().skip(shared) {
                push_name(&mut out, depth, name, true, "");
            }
            let is_folder = entry.entry_type == EntryType::Directory;
            if let Some(name) = names.last() {
                push_name(&mut out, folders.len(), name, is_folder, &notes_of_entry(entry));
            }
            open.clear();
            open.extend(if is_folder { &names[..] } else { folders });
        }
        if entries.is_empty() {
            out.push_str("[empty folder]\n");
        }
        out.extend(not_shown(&self.not_shown, "not shown", |left| {
            let ways = [(left.hidden > 0, "includeHidden"), (left.has_unwanted(), "includeIgnored")];
            ways.into_iter().filter_map(|(applies, way)| applies.then_some(way)).collect()
        }));
        if self.not_shown.unopened_folders > 0 {
            let folders = counted(self.not_shown.unopened_folders, "folder", "folders");
            out.push_line(format_args!("[{folders} not opened; maxDepth]"));
        }
        let shown = self.entries.len();
        let end = end_of(
            shown,
            self.total_entries,
            self.truncated_reason.as_deref(),
            self.next_cursor.as_deref(),
            "maxEntries",
        );
        Rendered { body: out, end }
    }
}

impl ToolOutput for FindFilesOutput {
    /// Renders one path a line.
    fn to_text(&self) -> Rendered {
        let mut out = String::with_capacity(self.entries.len() * 48 + 128);
        for entry in &self.entries {
            out.push_str(&found_line(entry));
        }
        if self.entries.is_empty() {
            out.push_str("[no files found]\n");
            out.push_str(&glob_notes(&self.notes));
        }
        out.extend(not_shown(&self.not_shown, "not searched", |_| vec!["path=FOLDER looks inside"]));
        let shown = self.entries.len();
        let end = end_of(
            shown,
            self.total_entries,
            self.truncated_reason.as_deref(),
            self.next_cursor.as_deref(),
            "maxResults",
        );
        Rendered { body: out, end }
    }
}

/// Returns how many of the entries under `folder` have at most `max_chars` characters in the tree; at least one.
pub(crate) fn fitting_entries(folder: &str, entries: &[FolderEntry], max_chars: usize) -> usize {
    let line = |entry: &FolderEntry| {
        let names = names_under(folder, &entry.path);
        let name = names.last().copied().unwrap_or_default();
        let mut line = String::new();
        push_name(&mut line, names.len().saturating_sub(1), name, true, &notes_of_entry(entry));
        line.chars().count()
    };
    fitting(entries.iter().map(line), max_chars)
}

/// Returns how many of the found files have at most `max_chars` characters; at least one.
pub(crate) fn fitting_files(entries: &[FoundFile], max_chars: usize) -> usize {
    fitting(entries.iter().map(|entry| found_line(entry).chars().count()), max_chars)
}

/// Returns how many of the items have at most `max_chars` characters together; at least one.
pub(crate) fn fitting(chars: impl Iterator<Item = usize>, max_chars: usize) -> usize {
    let mut sum = 0;
    let fits = chars.enumerate().take_while(|(index, chars)| {
        sum += chars;
        *index == 0 || sum <= max_chars
    });
    fits.count()
}

fn found_line(entry: &FoundFile) -> String {
    format!("{}{}\n", quote::path(entry.path.as_str()), notes_of_found(entry))
}

/// Returns what is special about a file that was found, in brackets; empty for an ordinary one.
pub fn notes_of_found(entry: &FoundFile) -> String {
    notes(entry.entry_type, entry.kind, entry.reason.as_deref(), false)
}

/// Returns the last lines of a list that is cut. The member `limit` of the input limits the number of entries.
fn end_of(shown: usize, total: Option<u64>, reason: Option<&str>, next_cursor: Option<&str>, limit: &str) -> String {
    let Some(reason) = reason else { return String::new() };
    let remedy = match reason {
        "maxChars" => "narrow path or raise maxChars".to_owned(),
        "maxBytes" => "narrow path".to_owned(),
        _ => format!("narrow path or raise {limit}"),
    };
    let next = next_cursor.map(continuation).unwrap_or_default();
    next + &cut_list(shown, total, &remedy)
}

/// The names of `path` under the listed folder.
fn names_under<'a>(folder: &str, path: &'a str) -> Vec<&'a str> {
    let rest = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path);
    rest.split('/').collect()
}

fn push_name(out: &mut String, depth: usize, name: &str, is_folder: bool, notes: &str) {
    out.extend(std::iter::repeat_n("  ", depth));
    out.push_str(&quote::path(name));
    out.push_str(if is_folder { "/" } else { "" });
    out.push_str(notes);
    out.push('\n');
}

/// Returns what is special about an entry of a folder, in brackets; empty for an ordinary one.
pub fn notes_of_entry(entry: &FolderEntry) -> String {
    notes(entry.entry_type, entry.kind, entry.reason.as_deref(), entry.redacted)
}

/// Returns what is special about an entry, in brackets; empty for an ordinary one.
fn notes(entry_type: EntryType, kind: Option<FileKind>, reason: Option<&str>, redacted: bool) -> String {
    let what = match (entry_type, kind) {
        (EntryType::Symlink, _) => Some("link"),
        (EntryType::Other, _) => Some("special"),
        (_, Some(kind)) => kind_note(kind),
        (_, None) => None,
    };
    let why = match reason {
        None | Some("UNSUPPORTED_BINARY" | "NOT_A_FILE") => None,
        Some("POLICY_DENIED_SECRET") if redacted => Some("keys only"),
        Some("POLICY_DENIED_SECRET") => Some("secret").filter(|why| what != Some(why)),
        Some("FILE_TOO_LARGE") => Some("too large"),
        Some("PATH_REJECTED") if kind == Some(FileKind::Submodule) => None,
        Some("PATH_REJECTED") if entry_type != EntryType::Symlink => Some("invalid name"),
        Some(_) => Some("not readable"),
    };
    match (what, why) {
        (None, None) => String::new(),
        (Some(note), None) | (None, Some(note)) => format!(" [{note}]"),
        (Some(what), Some(why)) => format!(" [{what}, {why}]"),
    }
}

/// The note of a kind that policy treats in a special way.
fn kind_note(kind: FileKind) -> Option<&'static str> {
    match kind {
        FileKind::Lockfile => Some("lockfile"),
        FileKind::Generated => Some("generated"),
        FileKind::Vendored => Some("vendored"),
        FileKind::SecretLike => Some("secret"),
        FileKind::Binary => Some("binary"),
        FileKind::Submodule => Some("submodule"),
        FileKind::TextSource
        | FileKind::TextConfig
        | FileKind::TextDoc
        | FileKind::Directory
        | FileKind::GitInternal
        | FileKind::Unknown => None,
    }
}
