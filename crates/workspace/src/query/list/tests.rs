use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use model::{Code, FileKind, PolicyOverrides};
use rustix::fs::{CWD, Mode, OFlags};

use super::{FolderEntry, ListQuery, Listing};
use crate::test_support::{TestBase, TestTree, code, not_cancelled, path, rules, rules_with};
use crate::{EntryType, Tree, WorkspaceError};

fn query(raw: &str) -> ListQuery {
    ListQuery {
        path: path(raw),
        max_depth: 2,
        include_hidden: false,
        include_ignored: false,
        max_entries: 300,
        after: None,
        counts_all: false,
    }
}

fn all(raw: &str) -> ListQuery {
    ListQuery { max_depth: 20, include_hidden: true, include_ignored: true, max_entries: 10_000, ..query(raw) }
}

fn list(tree: &Tree, query: &ListQuery) -> Listing {
    tree.list(&rules(), query, &not_cancelled()).unwrap()
}

fn paths(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| entry.path.as_str()).collect()
}

fn entry<'a>(listing: &'a Listing, path: &str) -> &'a FolderEntry {
    listing.entries.iter().find(|entry| entry.path == path).unwrap_or_else(|| panic!("no {path}"))
}

#[test]
fn entries_are_sorted_by_the_bytes_of_their_paths() {
    let names = ["b/x", "b-c", "b.d", "b0", "a/b/c", "B", "é", "a-", "a/b-"];
    let fixture = TestTree::with(&names.map(|name| (name, "")));
    let listing = list(&fixture.tree(), &all("."));
    let mut sorted = paths(&listing);
    sorted.sort_unstable();
    assert_eq!(paths(&listing), sorted);
    assert_eq!(sorted, ["B", "a", "a-", "a/b", "a/b-", "a/b/c", "b", "b-c", "b.d", "b/x", "b0", "é"]);
    assert!(!listing.truncated);
}

#[test]
fn a_listing_is_the_first_of_all_entries_however_many_there_are() {
    let fixture = TestTree::with(&[("m/a", ""), ("m/b/c", ""), ("m-", ""), ("n", ""), ("a/z/y", ""), ("o/p", "")]);
    let whole = list(&fixture.tree(), &all("."));
    for max_entries in 1..=whole.entries.len() + 1 {
        let listing = list(&fixture.tree(), &ListQuery { max_entries, ..all(".") });
        let shown = max_entries.min(whole.entries.len());
        assert_eq!(listing.entries, whole.entries[..shown], "{max_entries}");
        assert_eq!(listing.truncated, max_entries < whole.entries.len(), "{max_entries}");
    }
}

#[test]
fn pages_are_parts_of_the_whole_listing() {
    let files = [("m/a", ""), ("m/b/c", ""), ("m-", ""), (".h/x", ""), ("dist/x", ""), ("a/z/y", ""), ("o/.p/q", "")];
    let fixture = TestTree::with(&files);
    let tree = fixture.tree();
    for all in [all("."), query("."), query("m")] {
        let whole = list(&tree, &all);
        for counts_all in [false, true] {
            let (mut after, mut found) = (None, Vec::new());
            loop {
                let page = list(&tree, &ListQuery { max_entries: 2, after: after.clone(), counts_all, ..all.clone() });
                let is_counted = counts_all && (page.truncated || after.is_some());
                assert_eq!(page.total, is_counted.then_some(whole.entries.len() as u64), "{all:?} {after:?}");
                assert!(!counts_all || page.not_shown == whole.not_shown, "{all:?} {after:?}");
                after = page.entries.last().map(|entry| entry.path.clone());
                found.extend(page.entries);
                if !page.truncated {
                    break;
                }
            }
            assert_eq!(found, whole.entries, "{all:?}");
        }
    }
}

#[test]
fn depth_counts_from_the_folder_that_is_named() {
    let fixture = TestTree::with(&[("a/b/c/d", "")]);
    let tree = fixture.tree();
    for (raw, max_depth, want) in [
        (".", 1, &["a"][..]),
        (".", 3, &["a", "a/b", "a/b/c"]),
        ("a/b", 1, &["a/b/c"]),
        ("a", 20, &["a/b", "a/b/c", "a/b/c/d"]),
    ] {
        assert_eq!(paths(&list(&tree, &ListQuery { max_depth, ..query(raw) })), want, "{raw} {max_depth}");
    }
}

#[test]
fn what_is_hidden_made_or_ignored_is_shown_on_request() {
    let fixture = TestTree::with(&[
        (".gitignore", "*.log\n/scratch/\n"),
        (".github/ci.yml", ""),
        ("a.log", ""),
        ("kept.log", ""),
        ("scratch/x", ""),
        ("target/debug/x", ""),
        ("node_modules/m/index.js", ""),
        ("api.pb.go", ""),
        ("src/main.rs", ""),
    ]);
    let tree = fixture.tree_on(TestBase::tracking(&["kept.log", "src/main.rs"]));
    assert_eq!(paths(&list(&tree, &query("."))), ["kept.log", "src", "src/main.rs"]);
    let hidden = list(&tree, &ListQuery { include_hidden: true, ..query(".") });
    assert_eq!(paths(&hidden), [".github", ".github/ci.yml", ".gitignore", "kept.log", "src", "src/main.rs"]);
    let ignored = list(&tree, &ListQuery { include_ignored: true, ..query(".") });
    assert_eq!(
        paths(&ignored),
        [
            "a.log",
            "api.pb.go",
            "kept.log",
            "node_modules",
            "node_modules/m",
            "scratch",
            "scratch/x",
            "src",
            "src/main.rs",
            "target",
            "target/debug"
        ]
    );
    let log = entry(&ignored, "a.log");
    assert_eq!((log.readable, log.reason.as_deref()), (false, Some("POLICY_DENIED")));
    assert_eq!(entry(&ignored, "target").kind, Some(FileKind::Generated));
    // A folder that is requested itself shows its contents.
    assert_eq!(paths(&list(&tree, &query("target"))), ["target/debug", "target/debug/x"]);
    assert_eq!(paths(&list(&tree, &query("scratch"))), ["scratch/x"]);
    assert_eq!(paths(&list(&tree, &query(".github"))), [".github/ci.yml"]);
}

#[test]
fn git_is_in_no_listing() {
    let fixture = TestTree::with(&[("a", "")]);
    for name in [".git/config", "sub/.GIT/x", "sub/.git", "worktree/.git", ".g\u{200d}it/x"] {
        if !fixture.repo(name).exists() {
            fixture.write(name, "");
        }
    }
    let listing = list(&fixture.tree(), &all("."));
    assert_eq!(paths(&listing), ["a", "sub", "worktree"]);
}

#[test]
fn entries_with_paths_that_no_call_can_name_are_counted() {
    let fixture = TestTree::with(&[("a", "text\n")]);
    let mut dir = rustix::fs::open(fixture.repo("."), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    for _ in 0..16 {
        rustix::fs::mkdirat(&dir, "d".repeat(250), Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "d".repeat(250), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    }
    for length in [80, 81] {
        rustix::fs::openat(&dir, "f".repeat(length), OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    }
    let tree = fixture.tree();
    let listing = list(&tree, &all("."));
    assert_eq!((listing.entries.len(), listing.not_shown.more_skipped), (18, 1));
    let stats = tree.stats(&rules(), &path("."), &not_cancelled()).unwrap();
    assert_eq!((stats.total.files, stats.not_shown.more_skipped), (2, 1));
}

#[test]
fn an_entry_that_cannot_be_read_is_listed_with_the_reason() {
    let fixture = TestTree::with(&[(".env", "K=1"), ("a.txt", "text"), (".aws/credentials", "x"), ("private/x", "")]);
    fixture.write("image.png", b"\x89PNG\0");
    fixture.write("blob", b"\0\0\0");
    fixture.write("script", "#!/bin/sh\n");
    fs::File::create(fixture.repo("huge.txt")).unwrap().set_len(1 << 30).unwrap();
    fs::hard_link(fixture.repo("a.txt"), fixture.repo("b.txt")).unwrap();
    rustix::fs::mkfifoat(CWD, fixture.repo("fifo"), Mode::RUSR).unwrap();
    let rules =
        rules_with(&PolicyOverrides { deny: Some(vec!["private/**".to_owned()]), ..PolicyOverrides::default() });
    let listing = fixture.tree().list(&rules, &all("."), &not_cancelled()).unwrap();
    for (path, entry_type, reason) in [
        (".env", EntryType::File, Some("POLICY_DENIED_SECRET")),
        (".aws/credentials", EntryType::File, Some("POLICY_DENIED_SECRET")),
        ("private/x", EntryType::File, Some("POLICY_DENIED")),
        ("a.txt", EntryType::File, Some("POLICY_DENIED")),
        ("b.txt", EntryType::File, Some("POLICY_DENIED")),
        ("image.png", EntryType::File, Some("UNSUPPORTED_BINARY")),
        ("blob", EntryType::File, Some("UNSUPPORTED_BINARY")),
        ("huge.txt", EntryType::File, Some("FILE_TOO_LARGE")),
        ("fifo", EntryType::Other, Some("NOT_A_FILE")),
        ("script", EntryType::File, None),
        ("private", EntryType::Directory, Some("POLICY_DENIED")),
        (".aws", EntryType::Directory, None),
    ] {
        let found = entry(&listing, path);
        assert_eq!((found.entry_type, found.reason.as_deref()), (entry_type, reason), "{path}");
        assert_eq!(found.readable, reason.is_none(), "{path}");
    }
    assert_eq!(entry(&listing, ".env").size_bytes, Some(3));
    assert_eq!(entry(&listing, "private").size_bytes, None);
}

#[test]
fn links_are_listed_as_themselves_and_never_entered() {
    let fixture = TestTree::with(&[("a/b.txt", "text"), (".env", "")]);
    for (at, target) in [
        ("in", "a/b.txt"),
        ("folder", "a"),
        ("out", "../outside/secret.txt"),
        ("secret", ".env"),
        ("dangling", "x"),
        ("loop", "loop"),
    ] {
        fixture.link(at, target);
    }
    let listing = list(&fixture.tree(), &all("."));
    for (path, reason) in [
        ("in", None),
        ("folder", None),
        ("out", Some("PATH_REJECTED")),
        ("secret", Some("POLICY_DENIED_SECRET")),
        ("dangling", Some("NOT_FOUND")),
        ("loop", Some("NOT_FOUND")),
    ] {
        let found = entry(&listing, path);
        assert_eq!((found.entry_type, found.kind, found.size_bytes), (EntryType::Symlink, None, None), "{path}");
        assert_eq!(found.reason.as_deref(), reason, "{path}");
    }
    assert!(!paths(&listing).contains(&"folder/b.txt"));
    // A folder that is named by a link is shown under the requested name.
    assert_eq!(paths(&list(&fixture.tree(), &all("folder"))), ["folder/b.txt"]);
}

#[test]
fn names_that_are_no_text_are_escaped_and_not_readable() {
    let fixture = TestTree::with(&[("a", ""), ("z", "")]);
    fs::write(fixture.repo("").join(OsStr::from_bytes(b"caf\xe9")), "").unwrap();
    let folder = fixture.repo("").join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("inside"), "").unwrap();
    let listing = list(&fixture.tree(), &all("."));
    assert_eq!(paths(&listing), ["a", "caf\\xe9", "d\\xff", "z"]);
    let found = entry(&listing, "caf\\xe9");
    assert_eq!((found.readable, found.reason.as_deref()), (false, Some("PATH_REJECTED")));
}

#[test]
fn refusals_come_in_order() {
    let fixture = TestTree::with(&[("a.txt", ""), (".env", ""), (".aws/credentials", "")]);
    fixture.link("out", "../outside");
    let tree = fixture.tree();
    for (raw, want) in [
        ("out", Code::PathRejected),
        (".env", Code::PolicyDeniedSecret),
        ("missing/.env", Code::PolicyDeniedSecret),
        ("missing", Code::NotFound),
        ("a.txt/x", Code::NotFound),
        ("a.txt", Code::NotADirectory),
    ] {
        assert_eq!(code(tree.list(&rules(), &query(raw), &not_cancelled())), want, "{raw}");
    }
    // The metadata of secret files is not hidden.
    assert_eq!(paths(&list(&tree, &all(".aws"))), [".aws/credentials"]);
}

#[test]
fn of_many_entries_only_those_that_are_shown_are_kept() {
    let fixture = TestTree::new();
    fs::create_dir(fixture.repo("many")).unwrap();
    for number in 0..30_000 {
        fs::write(fixture.repo(&format!("many/{number:06}")), "").unwrap();
    }
    let listing = list(&fixture.tree(), &ListQuery { max_entries: 300, ..query("many") });
    assert!(listing.truncated);
    assert_eq!(paths(&listing), (0..300).map(|number| format!("many/{number:06}")).collect::<Vec<_>>());
    let cancelled = fixture.tree().list(&rules(), &query("many"), &AtomicBool::new(true));
    assert!(matches!(cancelled, Err(WorkspaceError::Cancelled)));
}

#[test]
fn a_hundred_folders_deep_is_listed_to_twenty() {
    let fixture = TestTree::new();
    fs::create_dir_all(fixture.repo(&["d"; 100].join("/"))).unwrap();
    let start = Instant::now();
    let listing = list(&fixture.tree(), &all("."));
    assert_eq!(listing.entries.len(), 20);
    assert!(start.elapsed().as_secs() < 5);
}
