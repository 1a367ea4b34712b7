//! Target for paths of callers. An input is a path, and optionally a second line with a name in it.

use model::{FileKind, LogicalPath, MAX_PATH_BYTES};

use crate::{Target, is_inside_root};

pub(crate) const TARGET: Target = Target {
    name: "path",
    run,
    dictionary: &[
        b"..",
        b"/../",
        b"./",
        b"//",
        b".git",
        b".GIT/",
        b".git\xe2\x80\x8b",
        b"git~1",
        b".env",
        b"\\..\\",
        b"C:\\",
        b"\0",
        b"\xe2\x80\xae",
        b"\xcc\x81",
        b"\xef\xbc\x8e\xef\xbc\x8e",
        b"con",
        b"a",
        b"/",
        b"\xff",
    ],
    max_bytes: 8192,
    iterations: 40_000,
};

fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (raw, name) = text.split_once('\n').unwrap_or((&text, "child"));
    let Ok(path) = LogicalPath::parse(raw) else { return };
    assert!(path.as_str().len() <= MAX_PATH_BYTES && is_inside_root(path.as_str()), "{raw:?} became {path}");
    assert!(path.is_root() || path.components().all(|name| name != "."), "{raw:?} became {path}");
    assert!(path.components().all(|name| !name.eq_ignore_ascii_case(".git")), "{raw:?} became {path}");
    assert_eq!(LogicalPath::parse(path.as_str()).as_ref(), Ok(&path), "a normalized path changes");
    assert_eq!(LogicalPath::parse_file(raw).is_ok(), !raw.ends_with('/'), "{raw:?}");
    if path.check_new().is_ok() {
        assert!(
            path.components().all(|name| name.len() <= 255 && !name.contains(['\\', '\n'])),
            "{path} is accepted as a new path"
        );
    }
    if let Some(parent) = path.parent() {
        assert_eq!(parent.child(path.file_name()).as_ref(), Ok(&path));
    }
    if let Ok(child) = path.child(name) {
        assert!(is_inside_root(child.as_str()), "{path} / {name:?} became {child}");
        let is_under_path = path.is_root() || child.as_str().starts_with(&format!("{path}/"));
        assert!(is_under_path && child != path, "{path} / {name:?} became {child}");
    }
    // Every path has a kind, and the result is deterministic.
    assert_eq!(FileKind::of_path(&path), FileKind::of_path(&path));
}
