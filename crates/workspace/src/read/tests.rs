use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::Duration;

use model::{Code, FileKind, PolicyOverrides, Sha256, Verdict};
use rustix::fs::{CWD, Mode};

use crate::test_support::{CANARY, TestBase, TestTree, can_read_without_waiting, code, path, rules, rules_with};

const MAX: u64 = 1024 * 1024;

#[test]
fn a_file_is_read_with_its_hash_kind_and_mode() {
    let fixture = TestTree::with(&[("src/main.rs", "fn main() {}\n")]);
    let read = fixture.tree().read(&rules(), &path("src/main.rs"), MAX).unwrap();
    assert_eq!(read.bytes, b"fn main() {}\n");
    assert_eq!(read.sha256, Sha256::of(b"fn main() {}\n"));
    assert_eq!((read.kind, read.mode, read.real_path), (FileKind::TextSource, 0o644, None));
}

#[test]
fn an_empty_file_is_a_text() {
    let fixture = TestTree::with(&[("empty.txt", "")]);
    assert_eq!(fixture.tree().read(&rules(), &path("empty.txt"), MAX).unwrap().bytes, b"");
}

#[test]
fn a_link_is_judged_by_both_names() {
    let fixture = TestTree::with(&[("a.txt", "text"), (".env", "KEY=1"), ("conf/plain.txt", "text")]);
    fixture.link("link.txt", "a.txt");
    fixture.link("innocent.txt", ".env");
    fixture.link("server.pem", "a.txt");
    fixture.link("folder", "conf");
    let (tree, rules) = (fixture.tree(), rules());
    let read = tree.read(&rules, &path("link.txt"), MAX).unwrap();
    assert_eq!((read.path, read.real_path), (path("link.txt"), Some(path("a.txt"))));
    assert_eq!(tree.read(&rules, &path("folder/plain.txt"), MAX).unwrap().real_path, Some(path("conf/plain.txt")));
    for raw in ["innocent.txt", "server.pem", ".env"] {
        assert_eq!(code(tree.read(&rules, &path(raw), MAX)), Code::PolicyDeniedSecret, "{raw}");
    }
}

#[test]
fn policy_comes_before_existence() {
    let fixture = TestTree::with(&[("a.txt", "text"), ("target", "a file")]);
    let rules =
        rules_with(&PolicyOverrides { deny: Some(vec!["private/**".to_owned()]), ..PolicyOverrides::default() });
    let tree = fixture.tree();
    for (raw, want) in [
        (".env", Code::PolicyDeniedSecret),
        ("no/such/folder/id_rsa", Code::PolicyDeniedSecret),
        ("a.txt/.env", Code::PolicyDeniedSecret),
        ("private/missing", Code::PolicyDenied),
        ("missing", Code::NotFound),
        ("a.txt/missing", Code::NotFound),
    ] {
        assert_eq!(code(tree.read(&rules, &path(raw), MAX)), want, "{raw}");
    }
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let fixture = TestTree::with(&[("folder/a", "")]);
    rustix::fs::mkfifoat(CWD, fixture.repo("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.repo("socket")).unwrap();
    fixture.link("to-fifo", "fifo");
    for raw in ["folder", "fifo", "socket", "to-fifo", "."] {
        assert_eq!(code(fixture.tree().read(&rules(), &path(raw), MAX)), Code::NotAFile, "{raw}");
        if let Some(answer) = fixture.tree().try_read(&rules(), &path(raw), MAX) {
            assert_eq!(code(answer), Code::NotAFile, "{raw}");
        }
    }
}

#[test]
fn a_file_with_a_second_name_may_be_an_alias() {
    let fixture = TestTree::with(&[("a.txt", "text")]);
    fs::hard_link(fixture.outside("secret.txt"), fixture.repo("alias.txt")).unwrap();
    assert_eq!(code(fixture.tree().read(&rules(), &path("alias.txt"), MAX)), Code::PolicyDenied);
}

#[test]
fn a_file_that_is_too_large_is_refused_with_its_size_before_a_byte_is_read() {
    let fixture = TestTree::new();
    let file = fs::File::create(fixture.repo("sparse.txt")).unwrap();
    file.set_len(1 << 40).unwrap();
    match fixture.tree().read(&rules(), &path("sparse.txt"), MAX) {
        Err(crate::WorkspaceError::Refused(refusal)) => {
            assert_eq!(refusal.code, Code::FileTooLarge);
            assert_eq!((refusal.details.limit, refusal.details.actual), (Some(MAX), Some(1 << 40)));
        }
        other => panic!("{other:?}"),
    }
    fixture.write("exact.txt", "x".repeat(100));
    assert!(fixture.tree().read(&rules(), &path("exact.txt"), 100).is_ok());
    assert_eq!(code(fixture.tree().read(&rules(), &path("exact.txt"), 99)), Code::FileTooLarge);
}

#[test]
fn a_binary_file_is_refused_even_if_its_name_is_that_of_a_text() {
    let fixture = TestTree::new();
    fixture.write("nul.txt", b"a\0b");
    fixture.write("late.txt", [b"x".repeat(20_000), b"\0".to_vec()].concat());
    fixture.write("image.png", b"\x89PNG\r\n\x1a\n\0\0");
    fixture.write("text.png", "only called so");
    fixture.write("utf16.txt", b"\xff\xfeh\0i\0\n\0");
    fixture.write("latin.txt", b"caf\xe9\n");
    for raw in ["nul.txt", "late.txt", "image.png"] {
        assert_eq!(code(fixture.tree().read(&rules(), &path(raw), MAX)), Code::UnsupportedBinary, "{raw}");
    }
    for raw in ["text.png", "utf16.txt", "latin.txt"] {
        assert!(fixture.tree().read(&rules(), &path(raw), MAX).is_ok(), "{raw}");
    }
}

#[test]
fn ignored_files_are_denied_and_tracked_ones_are_not() {
    let fixture =
        TestTree::with(&[(".gitignore", "*.log\n/local/\n"), ("a.log", "1"), ("kept.log", "2"), ("local/x", "3")]);
    let tree = fixture.tree_on(TestBase::tracking(&[".gitignore", "kept.log"]).with_rules(".", "*.log\n/local/\n"));
    for raw in ["a.log", "local/x", "missing.log"] {
        assert_eq!(code(tree.read(&rules(), &path(raw), MAX)), Code::PolicyDenied, "{raw}");
    }
    assert_eq!(tree.read(&rules(), &path("kept.log"), MAX).unwrap().bytes, b"2");
    let allowing = rules_with(&PolicyOverrides { ignored_files: Some(Verdict::Allow), ..PolicyOverrides::default() });
    assert_eq!(tree.read(&allowing, &path("a.log"), MAX).unwrap().bytes, b"1");
}

#[test]
fn a_link_to_an_ignored_file_does_not_show_it() {
    let fixture = TestTree::with(&[(".gitignore", "*.log\n"), ("a.log", "1"), ("a.txt", "2")]);
    fixture.link("link.txt", "a.log");
    fixture.link("own.log", "a.txt");
    fixture.link("kept.log", "a.txt");
    let tree = fixture.tree_on(TestBase::tracking(&[".gitignore", "a.txt", "link.txt", "kept.log"]));
    assert_eq!(code(tree.read(&rules(), &path("link.txt"), MAX)), Code::PolicyDenied);
    assert_eq!(code(tree.read(&rules(), &path("own.log"), MAX)), Code::PolicyDenied);
    assert_eq!(tree.read(&rules(), &path("kept.log"), MAX).unwrap().bytes, b"2");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a file has to become old, and no clock but the kernel's says so")]
fn a_kept_hash_never_outlives_its_bytes() {
    let fixture = TestTree::new();
    let (tree, rules) = (fixture.tree(), rules());
    let old = vec![b'a'; 4096];
    fixture.write("a.txt", &old);
    // Old enough for its hash to be cached.
    let file = OpenOptions::new().write(true).open(fixture.repo("a.txt")).unwrap();
    thread::sleep(Duration::from_millis(2_100));
    for _ in 0..2 {
        assert_eq!(tree.read(&rules, &path("a.txt"), MAX).unwrap().sha256, Sha256::of(&old));
    }
    // The same length, and a time of writing that is set back.
    let before = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"b", 0).unwrap();
    file.set_modified(before).unwrap();
    let read = tree.read(&rules, &path("a.txt"), MAX).unwrap();
    assert_eq!((read.bytes[0], read.sha256), (b'b', Sha256::of(&read.bytes)));
    // Just written, and written again within the same tick.
    for round in 0..200_u32 {
        let bytes = round.to_le_bytes().repeat(1024).iter().map(|byte| byte % 60 + 40).collect::<Vec<u8>>();
        file.write_all_at(&bytes, 0).unwrap();
        let read = tree.read(&rules, &path("a.txt"), MAX).unwrap();
        assert_eq!((&read.bytes, read.sha256), (&bytes, Sha256::of(&bytes)), "round {round}");
    }
}

#[test]
fn a_read_that_may_not_wait_answers_as_one_that_may() {
    if !can_read_without_waiting() {
        eprintln!("SKIPPED: the file system of the tests cannot read without waiting");
        return;
    }
    let fixture = TestTree::with(&[("src/a.rs", "text"), (".env", "KEY=1"), (".gitignore", "*.log\n"), ("b.log", "")]);
    fixture.link("link", "src/a.rs");
    let tree = fixture.tree_on(TestBase::tracking(&["src/a.rs"]));
    let rules = rules();
    for raw in ["src/a.rs", "link", ".env", "b.log", "missing", "src"] {
        let waited = tree.read(&rules, &path(raw), MAX);
        // Everything is cached now. A rename elsewhere on the machine makes the kernel answer that the call would block.
        let answer = (0..10_000).find_map(|_| tree.try_read(&rules, &path(raw), MAX)).expect(raw);
        match (waited, answer) {
            (Ok(waited), Ok(answer)) => assert_eq!((waited.bytes, waited.sha256), (answer.bytes, answer.sha256)),
            (waited, answer) => assert_eq!(code(waited), code(answer), "{raw}"),
        }
    }
}

#[test]
fn a_file_that_shrinks_or_grows_under_the_read_gives_one_of_its_versions() {
    let fixture = TestTree::new();
    fixture.write("a.txt", "0");
    let file_path = fixture.repo("a.txt");
    let writer = thread::spawn(move || {
        for round in 0..2_000_usize {
            let mut file = OpenOptions::new().write(true).truncate(true).open(&file_path).unwrap();
            file.write_all(&vec![b'x'; round % 50]).unwrap();
        }
    });
    let (tree, rules) = (fixture.tree(), rules());
    while !writer.is_finished() {
        let read = tree.read(&rules, &path("a.txt"), MAX).unwrap();
        assert_eq!(read.sha256, Sha256::of(&read.bytes));
        assert!(read.bytes.iter().all(|byte| matches!(byte, b'x' | b'0')));
    }
    writer.join().unwrap();
}

#[test]
fn invisible_characters_hide_nothing() {
    let fixture = TestTree::with(&[(".env", CANARY), (".e\u{200b}nv", "other"), ("ｉｄ_ｒｓａ", "wide")]);
    for raw in [".e\u{200b}nv", "ｉｄ_ｒｓａ", ".ENV", ".еnv"] {
        assert_eq!(code(fixture.tree().read(&rules(), &path(raw), MAX)), Code::PolicyDeniedSecret, "{raw:?}");
    }
}

#[test]
fn a_link_to_a_name_that_is_no_text_is_rejected() {
    let fixture = TestTree::new();
    fs::write(fixture.repo("").join(OsStr::from_bytes(b"\xff.txt")), "text").unwrap();
    fixture.link("link", OsStr::from_bytes(b"\xff.txt"));
    assert_eq!(code(fixture.tree().read(&rules(), &path("link"), MAX)), Code::PathRejected);
}
