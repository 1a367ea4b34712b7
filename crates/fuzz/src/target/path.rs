//! Paths of callers.

use model::{FileKind, LogicalPath, MAX_PATH_BYTES};

use super::{Target, stays_beneath};

pub(super) const TARGET: Target = Target {
    name: "path",
    run,
    words: &[
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
    tries: 40_000,
};

fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // The first line is a path, the second a name in it.
    let (raw, name) = text.split_once('\n').unwrap_or((&text, "child"));
    let Ok(path) = LogicalPath::parse(raw) else { return };
    assert!(path.as_str().len() <= MAX_PATH_BYTES && stays_beneath(path.as_str()), "{raw:?} became {path}");
    assert!(path.is_root() || path.components().all(|name| name != "."), "{raw:?} became {path}");
    assert!(path.components().all(|name| !name.eq_ignore_ascii_case(".git")), "{raw:?} became {path}");
    assert_eq!(LogicalPath::parse(path.as_str()).as_ref(), Ok(&path), "a clean path is clean");
    assert_eq!(LogicalPath::parse_file(raw).is_ok(), !raw.ends_with('/'), "{raw:?}");
    if path.check_new().is_ok() {
        assert!(path.components().all(|name| name.len() <= 255 && !name.contains(['\\', '\n'])), "{path} may be new");
    }
    if let Some(parent) = path.parent() {
        assert_eq!(parent.child(path.file_name()).as_ref(), Ok(&path));
    }
    if let Ok(child) = path.child(name) {
        assert!(stays_beneath(child.as_str()), "{path} / {name:?} became {child}");
        let beneath = path.is_root() || child.as_str().starts_with(&format!("{path}/"));
        assert!(beneath && child != path, "{path} / {name:?} became {child}");
    }
    // Whatever it is called, it is of some kind, and of the same when it is asked again.
    assert_eq!(FileKind::of_path(&path), FileKind::of_path(&path));
}
