//! Diffs that [`diff_file`](crate::diff_file) has written, in which a symbolic link is a file with its target as content.

use super::{FilePatch, Patch};

/// The mode of a symbolic link at the end of a header line, and that of a file.
const LINK: &[u8] = b" 120000";
const FILE: &[u8] = b" 100644";

/// Returns the sections of a diff that this service has written, without those of binary files. One that turns a file into a link has two
/// for its path. Modes are left out: the record has them.
pub fn written_sections(diff: &[u8]) -> Vec<FilePatch> {
    let mut sections: Vec<Vec<u8>> = Vec::new();
    for line in diff.split_inclusive(|byte| *byte == b'\n') {
        // A line of a hunk begins with another character than a header.
        if line.starts_with(b"diff --git ") {
            sections.push(Vec::new());
        }
        let Some(section) = sections.last_mut() else { continue };
        match line.strip_suffix(b"\n").unwrap_or(line).strip_suffix(LINK) {
            Some(header) if is_header(header) => section.extend([header, FILE, b"\n"].concat()),
            _ => section.extend_from_slice(line),
        }
    }
    let parsed = sections.iter().filter_map(|section| Patch::parse_bytes(section).ok());
    parsed.flat_map(|patch| patch.files).map(|section| FilePatch { mode: None, ..section }).collect()
}

fn is_header(line: &[u8]) -> bool {
    [&b"index "[..], b"new file mode", b"deleted file mode", b"old mode", b"new mode"]
        .iter()
        .any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LINK_MODE, LogicalPath, PatchOperation, Side, diff_file};

    #[test]
    fn what_was_written_is_read_with_its_links() {
        use PatchOperation::{Create, Delete, Modify};
        let path = LogicalPath::parse("a b").unwrap();
        let side = |bytes: &'static [u8], mode| Some(Side { path: &path, bytes, mode });
        let link = |target| side(target, LINK_MODE);
        let operations = |old, new| {
            let sections = written_sections(&diff_file(old, new).text);
            sections.into_iter().map(|section| (section.operation, section.path)).collect::<Vec<_>>()
        };
        let expected = |operations: &[PatchOperation]| -> Vec<_> {
            operations.iter().map(|operation| (*operation, path.clone())).collect()
        };
        assert_eq!(operations(None, link(b"to")), expected(&[Create]));
        assert_eq!(operations(link(b"to"), link(b"from")), expected(&[Modify]));
        assert_eq!(operations(side(b"index 120000\n", 0o644), link(b"from")), expected(&[Delete, Create]));
        let text = diff_file(side(b"index 1 120000\n", 0o644), side(b"index 2 120000\n", 0o755)).text;
        let section = &written_sections(&text)[0];
        assert_eq!(section.apply(b"index 1 120000\n").unwrap().bytes, b"index 2 120000\n");
        let reversed = written_sections(&diff_file(link(b"to"), link(b"from")).text)[0].reversed().unwrap();
        assert_eq!(reversed.apply(b"from").unwrap().bytes, b"to");
        assert!(written_sections(b"").is_empty());
    }
}
