use proptest::prelude::*;

use super::PathRejected::{
    Absolute, Backslash, ControlCharacter, Empty, GitInternal, NameTooLong, Nul, ParentDir, TooDeep, TooLong,
    TrailingDotOrSpace, TrailingSlash,
};
use super::{LogicalPath, MAX_PATH_BYTES, PathRejected};

fn parsed(raw: &str) -> Result<String, PathRejected> {
    LogicalPath::parse(raw).map(|path| path.as_str().to_owned())
}

#[test]
fn two_paths_of_which_one_lies_under_the_other_are_found() {
    type Pair = Option<(&'static str, &'static str)>;
    let table: [(&[&str], Pair); 8] = [
        (&[], None),
        (&["q"], None),
        (&["q", "q"], None),
        (&["q", "q.x", "q-/r", "qr/s"], None),
        // In byte order, other paths are between the two.
        (&["q/r", "q-", "q.x", "q!/a", "q"], Some(("q", "q/r"))),
        (&["a/b/c/d", "z", "a/b"], Some(("a/b", "a/b/c/d"))),
        (&["b/c", "b/d", "a"], None),
        (&["x", "."], Some((".", "x"))),
    ];
    for (raw, want) in table {
        let paths: Vec<_> = raw.iter().map(|raw| LogicalPath::parse(raw).unwrap()).collect();
        let found = LogicalPath::find_nested(&paths).map(|(above, below)| (above.as_str(), below.as_str()));
        assert_eq!(found, want, "{raw:?}");
    }
}

#[test]
fn parse_normalises_or_names_the_broken_rule() {
    let table = [
        ("src/App.java", Ok("src/App.java")),
        ("./src/App.java", Ok("src/App.java")),
        ("./src//lib.rs/", Ok("src/lib.rs")),
        ("src/../pom.xml", Ok("pom.xml")),
        ("a/b/../../c", Ok("c")),
        ("a/..", Ok(".")),
        (".", Ok(".")),
        ("./.", Ok(".")),
        ("..hidden", Ok("..hidden")),
        ("...", Ok("...")),
        ("a\nb", Ok("a\nb")),
        ("a\\b", Ok("a\\b")),
        ("", Err(Empty)),
        ("/", Err(Absolute)),
        ("/etc/passwd", Err(Absolute)),
        ("//etc", Err(Absolute)),
        ("..", Err(ParentDir)),
        ("../../etc/passwd", Err(ParentDir)),
        ("src/../../lib.rs", Err(ParentDir)),
        ("a\0b", Err(Nul)),
    ];
    for (raw, want) in table {
        assert_eq!(parsed(raw), want.map(str::to_owned), "{raw:?}");
    }
}

#[test]
fn a_path_is_bounded_before_it_is_cleaned() {
    assert!(parsed(&"a".repeat(MAX_PATH_BYTES)).is_ok());
    assert_eq!(parsed(&"a".repeat(MAX_PATH_BYTES + 1)), Err(TooLong));
    assert_eq!(parsed(&"./".repeat(MAX_PATH_BYTES)), Err(TooLong));
    let deep = LogicalPath::parse(&"a".repeat(MAX_PATH_BYTES - 1)).unwrap();
    assert_eq!(deep.child("b"), Err(TooLong));
}

#[test]
fn no_path_lies_in_git() {
    for name in [
        ".git",
        ".GIT",
        ".Git",
        ".git.",
        ".git ",
        ".git. .",
        ".git:x",
        ".git::$INDEX_ALLOCATION",
        "git~1",
        "GIT~1",
        ".g\u{200c}it",
        ".\u{feff}git",
        "．git",
        ".ｇｉｔ",
        ".g\u{0456}t",
        ".gıt",
        ".git\u{7f}",
        ".git\\config",
        "x\\.git",
    ] {
        for raw in [name.to_owned(), format!("{name}/config"), format!("a/{name}"), format!("./a//{name}/b/")] {
            assert_eq!(parsed(&raw), Err(GitInternal), "{raw:?}");
        }
    }
    for name in [".gitignore", ".github", "git", ".git2", "a.git", ".git-x", "xgit~1", "git~2"] {
        assert_eq!(parsed(name), Ok(name.to_owned()));
    }
    assert_eq!(parsed("a/.git/../b"), Ok("a/b".to_owned()));
}

#[test]
fn the_path_of_a_file_has_no_trailing_slash() {
    assert_eq!(LogicalPath::parse_file("a/b/"), Err(TrailingSlash));
    assert_eq!(LogicalPath::parse_file("a//b").map(String::from), Ok("a/b".to_owned()));
    assert_eq!(LogicalPath::parse_file("../b/"), Err(ParentDir));
}

#[test]
fn new_names_are_plain() {
    let name_of_255 = "é".repeat(127) + "x";
    let deepest = vec!["a"; 64].join("/");
    let table = [
        ("src/main.rs", Ok(())),
        ("ünïcödé/日本.txt", Ok(())),
        (" a", Ok(())),
        (".hidden", Ok(())),
        (name_of_255.as_str(), Ok(())),
        (deepest.as_str(), Ok(())),
        ("a\tb", Err(ControlCharacter)),
        ("a\n", Err(ControlCharacter)),
        ("a\u{7f}", Err(ControlCharacter)),
        ("a\u{85}", Err(ControlCharacter)),
        ("a\u{202e}b", Err(ControlCharacter)),
        ("a\u{2066}b/c", Err(ControlCharacter)),
        ("a\u{200f}", Err(ControlCharacter)),
        ("a\u{2028}", Err(ControlCharacter)),
        ("a\\b", Err(Backslash)),
        ("a.", Err(TrailingDotOrSpace)),
        ("a /b", Err(TrailingDotOrSpace)),
        ("...", Err(TrailingDotOrSpace)),
    ];
    for (raw, want) in table {
        assert_eq!(LogicalPath::parse(raw).unwrap().check_new(), want, "{raw:?}");
    }
    let of = |raw: &str| LogicalPath::parse(raw).unwrap().check_new();
    assert_eq!(of(&"a".repeat(256)), Err(NameTooLong));
    assert_eq!(of(&(name_of_255.clone() + "x")), Err(NameTooLong));
    assert_eq!(of(&vec!["a"; 65].join("/")), Err(TooDeep));
}

#[test]
fn parents_children_and_components_agree() {
    let root = LogicalPath::root();
    let file = LogicalPath::parse("a/b.txt").unwrap();
    assert_eq!((root.parent(), root.file_name(), root.components().count()), (None, ".", 0));
    assert_eq!((file.file_name(), file.components().collect::<Vec<_>>()), ("b.txt", vec!["a", "b.txt"]));
    assert_eq!(file.parent().unwrap().as_str(), "a");
    assert_eq!(file.parent().unwrap().parent(), Some(root.clone()));
    assert_eq!(root.child("a").unwrap().child("b.txt"), Ok(file.clone()));
    for up in ["..", "../x", ".", "x/..", "x/../.."] {
        assert_eq!(file.child(up), Err(ParentDir), "{up}");
    }
    assert_eq!(file.child(".git"), Err(GitInternal));
    assert_eq!(file.child("/etc"), Err(Absolute));
}

/// Paths as attackers write them, composed of significant parts.
fn hostile() -> impl Strategy<Value = String> {
    let bits = prop::sample::select(vec![
        "/", "//", ".", "..", "./", "../", "a", "b.txt", ".git", ".GIT", "git~1", "\u{200b}", "．", "\0", "\\", " ",
        ":", "ｇ", "i\u{307}", "\u{0456}", ".gi", "t", "%2e", "~", "\u{202e}", "\n", "é",
    ]);
    prop_oneof![prop::collection::vec(bits, 0..12).prop_map(|bits| bits.concat()), "\\PC{0,30}"]
}

proptest! {
    #[test]
    fn any_input_is_refused_or_stays_under_the_root(raw in hostile()) {
        let Ok(path) = LogicalPath::parse(&raw) else { return Ok(()) };
        let text = path.as_str();
        prop_assert!(!text.is_empty() && !text.starts_with('/') && !text.ends_with('/') && !text.contains('\0'));
        prop_assert!(text.len() <= raw.len().max(1));
        if !path.is_root() {
            prop_assert!(text.split('/').all(|name| !matches!(name, "" | "." | "..")));
        }
        // File systems ignore only blanks and dots at the end of a name. The rest of the name must not be `.git`.
        for name in path.components() {
            let lower = name.to_ascii_lowercase();
            prop_assert!(lower.trim_end_matches(['.', ' ']) != ".git", "{:?}", name);
        }
        prop_assert_eq!(LogicalPath::parse(text), Ok(path.clone()), "cleaning is idempotent");
        prop_assert_eq!(LogicalPath::parse_file(text), Ok(path.clone()));
        let json = serde_json::to_string(&path).unwrap();
        prop_assert_eq!(serde_json::from_str::<LogicalPath>(&json).unwrap(), path);
    }

    #[test]
    fn a_child_lies_in_its_folder(folder in hostile(), name in hostile()) {
        let Ok(folder) = LogicalPath::parse(&folder) else { return Ok(()) };
        let Ok(child) = folder.child(&name) else { return Ok(()) };
        prop_assert!(child.components().count() > folder.components().count());
        prop_assert!(child.components().zip(folder.components()).all(|(of_child, of_folder)| of_child == of_folder));
        prop_assert_eq!(LogicalPath::parse(child.as_str()), Ok(child.clone()));
    }

    #[test]
    fn an_accepted_new_name_is_displayed_unchanged(raw in hostile()) {
        let Ok(path) = LogicalPath::parse(&raw) else { return Ok(()) };
        if path.check_new().is_ok() {
            let shown = |c: char| !c.is_control() && c != '\\' && !('\u{202a}'..='\u{202e}').contains(&c);
            prop_assert!(path.as_str().chars().all(shown));
            prop_assert!(path.components().all(|name| name.len() <= 255 && !name.ends_with(['.', ' '])));
            if let Some(parent) = path.parent() {
                prop_assert_eq!(parent.check_new(), Ok(()), "a folder of a new file is as plain");
            }
        }
    }
}
