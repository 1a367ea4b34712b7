//! Reads the modes in a diff that the service wrote.

use super::name;
use crate::{LINK_MODE, LogicalPath};

/// The modes of one file in a diff, as Git writes them (`0o100644`, `0o100755`, `0o120000`). `None` if the mode of a file does not
/// change or the side does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileModes {
    /// The path before the change.
    pub from: LogicalPath,
    /// The path after it.
    pub path: LogicalPath,
    /// The mode before the change.
    pub old: Option<u32>,
    /// The mode after it.
    pub new: Option<u32>,
}

/// Reads the modes in `diff`, which [`diff_file`](crate::diff_file) wrote, of binary files too. Ignores what has another
/// format.
pub fn diff_modes(diff: &[u8]) -> Vec<FileModes> {
    let mut all: Vec<FileModes> = Vec::new();
    // Lines of files begin with ` `, `-` or `+`, so they are never taken for headers.
    for line in diff.split(|byte| *byte == b'\n') {
        if let Some(names) = line.strip_prefix(b"diff --git ") {
            // The two names of a rename follow in headers of their own.
            let path = name::same_in_git_line(names).and_then(|name| parse(&name)).unwrap_or_else(LogicalPath::root);
            all.push(FileModes { from: path.clone(), path, old: None, new: None });
            continue;
        }
        let Some(last) = all.last_mut() else { continue };
        if let Some(mode) = mode(line, &["old mode ", "deleted file mode "]) {
            last.old = Some(mode);
        } else if let Some(mode) = mode(line, &["new mode ", "new file mode "]) {
            last.new = Some(mode);
        } else if line.starts_with(b"index ") && line.ends_with(b" 120000") {
            (last.old, last.new) = (Some(LINK_MODE), Some(LINK_MODE));
        } else if let Some(from) = moved(line, b"rename from ") {
            last.from = from;
        } else if let Some(path) = moved(line, b"rename to ") {
            last.path = path;
        }
    }
    all.retain(|modes| !modes.path.is_root());
    all
}

fn parse(name: &[u8]) -> Option<LogicalPath> {
    LogicalPath::parse(std::str::from_utf8(name).ok()?).ok()
}

fn moved(line: &[u8], mark: &[u8]) -> Option<LogicalPath> {
    parse(&name::alone(line.strip_prefix(mark)?)?)
}

fn mode(line: &[u8], marks: &[&str]) -> Option<u32> {
    let text = marks.iter().find_map(|mark| line.strip_prefix(mark.as_bytes()))?;
    u32::from_str_radix(std::str::from_utf8(text).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::path;
    use crate::{Side, diff_file};

    #[test]
    fn every_kind_of_change_has_its_modes() {
        let (a, odd, to) = (path("a b.txt"), path("ü \"x\".sh"), path("dir/to.sh"));
        let side = |path, bytes: &'static [u8], mode| Some(Side { path, bytes, mode });
        let text = b"diff --git a/x b/x\nold mode 100755\n";
        let cases = [
            (None, side(&a, text, 0o644), None, Some(0o100_644)),
            (None, side(&odd, b"\0", 0o755), None, Some(0o100_755)),
            (side(&odd, b"1\n", 0o755), None, Some(0o100_755), None),
            (side(&a, b"1\n", 0o755), side(&a, b"1\n", 0o644), Some(0o100_755), Some(0o100_644)),
            (side(&odd, b"1\n", 0o644), side(&to, b"1\n", 0o755), Some(0o100_644), Some(0o100_755)),
            (side(&a, b"1\n", 0o644), side(&odd, b"2\n", 0o644), None, None),
            (side(&a, text, 0o644), side(&a, b"other\n", 0o644), None, None),
            (None, side(&odd, b"to", LINK_MODE), None, Some(LINK_MODE)),
            (side(&a, b"to", LINK_MODE), None, Some(LINK_MODE), None),
            (side(&a, b"to", LINK_MODE), side(&a, b"from", LINK_MODE), Some(LINK_MODE), Some(LINK_MODE)),
            (side(&odd, b"to", LINK_MODE), side(&to, b"to", LINK_MODE), Some(LINK_MODE), Some(LINK_MODE)),
        ];
        let mut whole = Vec::new();
        let mut wanted = Vec::new();
        for (old, new, old_mode, new_mode) in cases {
            whole.extend(diff_file(old, new).text);
            let (from, path) = (old.or(new).unwrap().path.clone(), new.or(old).unwrap().path.clone());
            wanted.push(FileModes { from, path, old: old_mode, new: new_mode });
        }
        assert_eq!(diff_modes(&whole), wanted);
        assert_eq!(diff_modes(b"no diff at all\nnew mode 100755\n"), []);
    }
}
