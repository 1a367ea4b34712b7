//! Relative paths as bytes: a tree can contain names that are not UTF-8.

use model::LogicalPath;

/// Returns the logical path. `None` if no logical path can be that path, so that no tool reaches the file.
pub(crate) fn logical_path(path: &[u8]) -> Option<LogicalPath> {
    LogicalPath::parse(std::str::from_utf8(path).ok()?).ok()
}

/// Splits a path into its folder (empty for the root) and its name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Returns the path of the entry `name` of a folder (empty for the root).
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// Returns `a`, `a/b` and `a/b/c` for `a/b/c`.
pub(crate) fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let whole = (!path.is_empty()).then_some(path.len());
    ends.chain(whole).map(|end| &path[..end])
}

/// Returns `a/b` and `a` for `a/b/c`, in any order.
pub(crate) fn folders_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    prefixes(split(path).0)
}

/// Whether a path is relative and has no names that lead elsewhere.
pub(crate) fn is_plain(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b"..") && !name.contains(&0))
}
