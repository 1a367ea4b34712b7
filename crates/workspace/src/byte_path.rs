//! Relative paths as bytes: a tree can contain names that are not UTF-8.

/// Splits a path into its folder (empty for the root) and its name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Returns `a`, `a/b` and `a/b/c` for `a/b/c`.
pub(crate) fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let whole = (!path.is_empty()).then_some(path.len());
    ends.chain(whole).map(|end| &path[..end])
}

/// Whether a path is relative and has no names that lead elsewhere.
pub(crate) fn is_plain(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b"..") && !name.contains(&0))
}
