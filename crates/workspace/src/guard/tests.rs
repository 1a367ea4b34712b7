use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use model::{LogicalPath, PathRejected};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode};

use super::{Blocking, GuardError, OpenFile, Opened, Root, open_ambient_folder, self_test};
use crate::test_support::{CANARY, TestTree, path};

fn open(root: &Root, raw: &str) -> Result<Opened, GuardError> {
    root.open(&path(raw), Blocking::Allowed)
}

fn rejected(opened: Result<Opened, GuardError>) -> PathRejected {
    match opened {
        Err(GuardError::Rejected(rule)) => rule,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn a_plain_path_opens_and_has_no_other_name() {
    let fixture = TestTree::with(&[("a/b.txt", "text")]);
    let opened = open(&fixture.root(), "a/b.txt").unwrap();
    assert_eq!((opened.size(), opened.real.clone(), opened.file_type()), (4, None, FileType::RegularFile));
    assert_eq!(open(&fixture.root(), ".").unwrap().file_type(), FileType::Directory);
}

#[test]
fn a_link_that_stays_inside_resolves_to_its_target() {
    let fixture = TestTree::with(&[("a/b/c.txt", "text")]);
    fixture.link("file", "a/b/c.txt");
    fixture.link("folder", "a/b");
    fixture.link("chain", "folder");
    fixture.link("a/up", "../a/b/../b");
    fixture.link("self", ".");
    for (raw, real) in [
        ("file", "a/b/c.txt"),
        ("folder/c.txt", "a/b/c.txt"),
        ("chain/c.txt", "a/b/c.txt"),
        ("a/up/c.txt", "a/b/c.txt"),
        ("self/self/file", "a/b/c.txt"),
        ("chain", "a/b"),
        ("self", "."),
    ] {
        assert_eq!(open(&fixture.root(), raw).unwrap().real, Some(path(real)), "{raw}");
    }
}

#[test]
fn a_link_to_a_path_outside_is_rejected_while_files_are_renamed_elsewhere() {
    let fixture = TestTree::with(&[("a/x", "")]);
    fixture.link("a/secret", format!("{}../../outside/secret.txt", "../a/".repeat(3)));
    let elsewhere = tempfile::tempdir().unwrap();
    let (one, other) = (elsewhere.path().join("one"), elsewhere.path().join("other"));
    fs::write(&one, "").unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                fs::rename(&one, &other).unwrap();
                fs::rename(&other, &one).unwrap();
            }
        });
        let root = fixture.root();
        let rules = (0..300).map(|_| open(&root, "a/secret")).collect::<Vec<_>>();
        is_done.store(true, Ordering::Relaxed);
        for rule in rules {
            assert_eq!(rejected(rule), PathRejected::LinkOut);
        }
    });
}

#[test]
fn a_link_to_a_path_outside_is_rejected_at_every_position() {
    let fixture = TestTree::with(&[("a/x", "")]);
    fixture.link("up", "..");
    fixture.link("file", "../outside/secret.txt");
    fixture.link("absolute", fixture.outside("secret.txt"));
    // Even one that leads back: the kernel follows no absolute link under a root.
    fixture.link("back", fixture.repo("a"));
    fixture.link("a/around", "../../repo/a/x");
    fixture.link("magic", "/proc/self/cwd");
    fixture.link("first", "second");
    fixture.link("second", "../outside");
    for raw in [
        "up",
        "up/outside/secret.txt",
        "file",
        "absolute",
        "back/x",
        "a/around",
        "magic",
        "first/secret.txt",
        "first",
        "up/nothing",
        "second/nothing",
    ] {
        assert_eq!(rejected(open(&fixture.root(), raw)), PathRejected::LinkOut, "{raw}");
    }
}

#[test]
fn a_link_into_git_or_to_a_name_that_is_no_text_is_rejected() {
    let fixture = TestTree::new();
    fixture.write(".git/config", CANARY);
    fixture.write("sub/.GIT/config", CANARY);
    fixture.link("innocent", ".git/config");
    fixture.link("folder", ".git");
    fixture.link("other", "sub/.GIT/config");
    for raw in ["innocent", "folder", "folder/config", "other"] {
        assert_eq!(rejected(open(&fixture.root(), raw)), PathRejected::GitInternal, "{raw}");
    }
    fs::write(fixture.repo("").join(OsStr::from_bytes(b"odd\xff")), "text").unwrap();
    fixture.link("odd", OsStr::from_bytes(b"odd\xff"));
    assert_eq!(rejected(open(&fixture.root(), "odd")), PathRejected::LinkToUnnameable);
}

#[test]
fn what_leads_nowhere_is_missing_and_what_leads_through_a_file_is_no_folder() {
    let fixture = TestTree::with(&[("file", "text")]);
    fixture.link("dangling", "nothing/at/all");
    fixture.link("too-long", "n".repeat(300));
    fixture.link("loop", "loop");
    fixture.link("ping", "pong");
    fixture.link("pong", "ping");
    let long = "x".repeat(300);
    for raw in ["nothing", "no/such/folder", "dangling", "too-long", "loop", "ping", "loop/inner", &long] {
        assert!(matches!(open(&fixture.root(), raw), Err(GuardError::Missing)), "{raw}");
    }
    assert!(matches!(open(&fixture.root(), "file/inner"), Err(GuardError::NotADirectory)));
}

#[test]
fn special_files_open_at_once_or_not_at_all() {
    let fixture = TestTree::new();
    rustix::fs::mkfifoat(CWD, fixture.repo("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    let _socket = UnixListener::bind(fixture.repo("socket")).unwrap();
    assert_eq!(open(&fixture.root(), "fifo").unwrap().file_type(), FileType::Fifo);
    assert!(matches!(open(&fixture.root(), "socket"), Err(GuardError::Special)));
}

#[test]
fn a_second_name_of_a_file_is_seen() {
    let fixture = TestTree::with(&[("one", "text"), ("alone", "text")]);
    fs::hard_link(fixture.repo("one"), fixture.repo("two")).unwrap();
    fs::create_dir(fixture.repo("folder")).unwrap();
    for (raw, hard_linked) in [("one", true), ("two", true), ("alone", false), ("folder", false)] {
        assert_eq!(open(&fixture.root(), raw).unwrap().is_hard_linked(), hard_linked, "{raw}");
    }
}

#[test]
fn a_mutation_follows_no_link_at_all() {
    let fixture = TestTree::with(&[("a/b.txt", "text")]);
    fixture.link("file", "a/b.txt");
    fixture.link("folder", "a");
    fixture.link("out", "../outside");
    let root = fixture.root();
    for raw in ["file", "folder/b.txt", "folder/new", "out/secret.txt"] {
        assert_eq!(rejected(root.open_unlinked(&path(raw))), PathRejected::LinkInMutation, "{raw}");
    }
    for raw in ["folder/new", "out/new", "out/deep/new"] {
        let parent = root.create_parent(&path(raw));
        assert!(matches!(parent, Err(GuardError::Rejected(PathRejected::LinkInMutation))), "{raw}: {parent:?}");
    }
    assert_eq!(fs::read_dir(fixture.outside("")).unwrap().count(), 1);
    // The link itself can be the target; its metadata is read without following it.
    assert_eq!(root.find(&path("file")).unwrap().unwrap().file_type(), FileType::Symlink);
}

#[test]
fn missing_folders_are_created_once() {
    let fixture = TestTree::with(&[("file", "text")]);
    let root = fixture.root();
    assert!(matches!(root.open_parent(&path("a/b/c")), Err(GuardError::Missing)));
    let (parent, has_created) = root.create_parent(&path("a/b/c")).unwrap();
    assert_eq!((parent.name.as_str(), has_created), ("c", true));
    assert!(root.find(&path("a/b/c")).unwrap().is_none());
    assert!(fixture.repo("a/b").is_dir());
    let (_, has_created) = root.create_parent(&path("a/b/d")).unwrap();
    assert!(!has_created);
    assert!(matches!(root.create_parent(&path("file/a/b")), Err(GuardError::NotADirectory)));
    assert!(matches!(root.create_parent(&LogicalPath::root()), Err(GuardError::Special)));
}

#[test]
fn a_moved_root_still_knows_names() {
    let fixture = TestTree::with(&[("a/b.txt", "text")]);
    fixture.link("link", "a/b.txt");
    let root = fixture.root();
    fs::rename(fixture.repo(""), fixture.folder().join("elsewhere")).unwrap();
    assert_eq!(open(&root, "link").unwrap().real, Some(path("a/b.txt")));
}

#[test]
fn the_self_test_passes_here_and_leaves_nothing() {
    let fixture = TestTree::new();
    let dir = open_ambient_folder(fixture.folder()).unwrap();
    self_test(dir.as_fd()).unwrap();
    self_test(dir.as_fd()).unwrap();
    let mut names: Vec<_> = fs::read_dir(fixture.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["outside", "repo", "tmp"]);
}

/// The pieces of hostile paths.
const PIECES: [&str; 39] = [
    "",
    ".",
    "..",
    "...",
    "a",
    "b",
    "up",
    "out",
    "abs",
    "in",
    "file",
    "secret.txt",
    "outside",
    "repo",
    ".git",
    ".GIT",
    ".git.",
    "\u{2024}git",
    ".gi\u{200d}t",
    ".env",
    "a\\b",
    "~",
    "\u{202e}txt",
    "con",
    "a ",
    "%2e%2e",
    "\u{feff}",
    "é",
    "//",
    "proc",
    "self",
    "root",
    "fd",
    "0",
    "\n",
    "C:",
    "dangling",
    "loop",
    "nul\0",
];

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![8 => proptest::sample::select(&PIECES[..]).prop_map(str::to_owned), 1 => ".{0,8}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_path_is_refused_or_under_the_root(
        pieces in prop::collection::vec(piece(), 1..8),
        absolute in prop::bool::weighted(0.1),
    ) {
        thread_local!(static FIXTURE: (TestTree, Root) = hostile());
        let raw = format!("{}{}", if absolute { "/" } else { "" }, pieces.join("/"));
        let Ok(logical) = LogicalPath::parse(&raw) else { return Ok(()) };
        FIXTURE.with(|(fixture, root)| {
            if let Ok(opened) = root.open(&logical, Blocking::Allowed) {
                let folder = open_ambient_folder(fixture.folder()).unwrap();
                let opened_path = kernel_name(own(&opened));
                let repo = kernel_name(&root.own);
                assert!(opened_path.starts_with(&repo), "{raw:?} left {folder:?}");
                let mut text = [0; 64];
                let read = opened.file.read_at(&mut text, 0).unwrap_or(0);
                assert!(!text[..read].starts_with(CANARY.as_bytes()), "{raw:?} read what is outside");
            }
            if let Ok(parent) = root.open_parent(&logical) {
                assert!(kernel_name(&parent.dir).starts_with(&kernel_name(&root.own)), "{raw:?}");
            }
        });
    }
}

fn own(opened: &Opened) -> &OwnedFd {
    let OpenFile::Own(file) = &opened.file else { panic!("the tree has one layer") };
    file
}

/// Returns the kernel's own path of a handle.
fn kernel_name(fd: &OwnedFd) -> Vec<u8> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::readlinkat(CWD, link, Vec::new()).unwrap().into_bytes()
}

/// Creates a tree with every way out that a tree can contain.
fn hostile() -> (TestTree, Root) {
    let fixture = TestTree::with(&[("a/b/file", "inside"), ("file", "inside"), ("b/a/file", "inside")]);
    for (at, target) in
        [("up", ".."), ("out", "../outside"), ("a/up", "../.."), ("in", "a"), ("dangling", "x"), ("loop", "loop")]
    {
        fixture.link(at, target);
    }
    fixture.link("abs", fixture.outside(""));
    fixture.link("a/b/root", "/");
    fixture.link("b/self", "/proc/self");
    let root = fixture.root();
    (fixture, root)
}
