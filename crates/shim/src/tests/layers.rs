//! Layers go in and out.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sha2::Digest as _;

use super::{Checkout, LIMITS, Put, layer, names, tree};
use crate::incoming::IncomingFolder;
use crate::{CheckedOut, CommandFolder as _, ShimError, check_layer};

fn conflicts(done: Result<(u64, u64), ShimError>) -> Vec<String> {
    match done.unwrap_err() {
        ShimError::Conflicts(conflicts) => {
            conflicts.into_iter().map(|conflict| format!("{}: {}", conflict.path, conflict.why)).collect()
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_changed_here_is_a_layer_that_makes_the_same_tree_elsewhere() {
    let base = layer(&[
        ("same.txt", Put::File("same")),
        ("src/a.rs", Put::File("old")),
        ("src/gone.rs", Put::File("gone")),
        ("run.sh", Put::File("#!/bin/sh")),
        ("tool", Put::Program("#!/bin/sh")),
        ("link", Put::Link("same.txt")),
        ("empty/", Put::Folder),
    ]);
    let (mut one, mut other) = (Checkout::empty(), Checkout::empty());
    assert_eq!(one.pull(&base).unwrap(), (6, 0));
    other.pull(&base).unwrap();
    assert!(one.path("empty").is_dir());
    assert_eq!(one.changes(), Vec::<String>::new());

    one.put("src/a.rs", "new");
    one.put("new/deep/file", "added");
    std::fs::remove_file(one.path("src/gone.rs")).unwrap();
    std::fs::set_permissions(one.path("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::remove_file(one.path("link")).unwrap();
    // The target stays as it is written.
    symlink(".//src/./a.rs", one.path("link")).unwrap();
    assert_eq!(one.changes(), ["M link", "A new/deep/file", "M run.sh", "M src/a.rs", "D src/gone.rs"]);

    let (layer, report) = one.read();
    assert_eq!((report.entries, &report.torn, &report.left), (5, &vec![], &vec![]));
    assert_eq!(names(&layer), ["link", "new/deep/file", "run.sh", "src/a.rs", "src/.wh.gone.rs"]);
    assert_eq!(other.pull(&layer).unwrap(), (4, 1));
    assert_eq!(tree(one.dir.path()), tree(other.dir.path()));
    assert_eq!(other.changes(), Vec::<String>::new());
}

#[test]
fn an_entry_names_the_version_of_the_run_that_it_replaces() {
    let mut checkout = Checkout::of(&[("a", "old"), ("gone", "gone")]);
    checkout.put("a", "mine");
    let conflict = checkout.pull(&layer(&[("a", Put::File("theirs")), ("b", Put::File("pulled"))]));
    assert!(matches!(conflict, Err(ShimError::Conflicts(_))));
    checkout.put("b", "changed");
    checkout.put("new", "new");
    std::fs::remove_file(checkout.path("gone")).unwrap();
    let (layer, _) = checkout.read();
    let mut bases = Vec::new();
    for entry in tar::Archive::new(layer.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let pax = entry.pax_extensions().unwrap().unwrap().next().unwrap().unwrap();
        assert_eq!(pax.key(), Ok("WORKSPACED.base"));
        bases.push((path, pax.value().unwrap().to_owned()));
    }
    let base = |content: &str| crate::entry::hex(&sha2::Sha256::digest(content));
    let expected = [("a", base("old")), ("b", base("pulled")), (".wh.gone", base("gone")), ("new", "none".to_owned())];
    assert_eq!(bases, expected.map(|(path, base)| (path.to_owned(), base)));
}

#[test]
fn a_folder_in_the_place_of_a_file_or_a_link_deletes_it_in_the_layer() {
    let base = layer(&[("a", Put::File("a")), ("d/1", Put::File("1")), ("l", Put::Link("d"))]);
    let (mut one, mut other) = (Checkout::empty(), Checkout::empty());
    one.pull(&base).unwrap();
    other.pull(&base).unwrap();
    for path in ["a", "l"] {
        std::fs::remove_file(one.path(path)).unwrap();
        one.put(&format!("{path}/2"), "2");
    }
    let (layer, report) = one.read();
    assert_eq!(report.left, vec![]);
    assert_eq!(names(&layer), [".wh.a", "a/2", ".wh.l", "l/2"]);
    assert_eq!(other.pull(&layer).unwrap(), (2, 2));
    assert_eq!(tree(one.dir.path()), tree(other.dir.path()));
}

#[test]
fn versions_that_the_run_took_are_no_changes_any_more() {
    let mut checkout = Checkout::of(&[("a", "1"), ("b", "1"), ("c", "1")]);
    checkout.put("a", "2");
    checkout.put("b", "2");
    std::fs::remove_file(checkout.path("c")).unwrap();
    checkout.read();
    checkout.folder.confirm(&["a".to_owned(), "c".to_owned(), "never".to_owned()]).unwrap();
    assert_eq!(checkout.changes(), ["M b"]);
    checkout.reopen().unwrap();
    assert_eq!(checkout.changes(), ["M b"]);
}

#[test]
fn a_layer_overwrites_nothing_that_was_changed_here() {
    let mut checkout = Checkout::of(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("same", "1")]);
    checkout.put("a", "mine");
    checkout.put("new", "mine");
    checkout.put("same", "2");
    checkout.put("c", "mine");
    checkout.put("e", "mine");
    std::fs::remove_file(checkout.path("d")).unwrap();
    let mut expected_tree = tree(checkout.dir.path());
    expected_tree.insert("b".to_owned(), "2".to_owned());
    let theirs = layer(&[
        ("a", Put::File("2")),
        ("b", Put::File("2")),
        (".wh.c", Put::File("")),
        ("d", Put::File("2")),
        ("new", Put::File("2")),
        ("same", Put::File("2")),
        ("e/b", Put::File("a file in the place of a folder")),
    ]);
    let found = conflicts(checkout.pull(&theirs));
    let expected = [
        "a: changed here",
        "d: deleted here",
        "e/b: something else is in the place of its folder",
        "new: created here",
        "c: changed here, deleted in the run",
    ];
    assert_eq!(found, expected);
    assert_eq!(tree(checkout.dir.path()), expected_tree, "what was not changed here is as in the run");
    assert!(!checkout.path(".workspaced/incoming").exists());
    checkout.reopen().unwrap();
    assert_eq!(checkout.changes(), ["M a", "M c", "D d", "A e", "A new"]);
}

#[test]
fn a_layer_that_comes_again_takes_what_is_settled_meanwhile() {
    let mut checkout = Checkout::of(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1"), ("f", "1")]);
    for path in ["a", "c", "d"] {
        checkout.put(path, "mine");
    }
    std::fs::remove_file(checkout.path("f")).unwrap();
    let theirs = layer(&[
        ("a", Put::File("2")),
        ("b", Put::File("2")),
        ("c", Put::File("2")),
        (".wh.d", Put::File("")),
        ("e", Put::File("2")),
        ("f", Put::File("2")),
    ]);
    let all = ["a: changed here", "c: changed here", "f: deleted here", "d: changed here, deleted in the run"];
    assert_eq!(conflicts(checkout.pull(&theirs)), all);
    // What came and was changed since is a change of the run's version, and so is what was deleted.
    checkout.put("b", "from 2");
    std::fs::remove_file(checkout.path("e")).unwrap();
    assert_eq!(conflicts(checkout.pull(&theirs)), all);
    // One is as in the run now, others are to be.
    checkout.put("c", "2");
    for nowhere in ["b", "c", "nowhere"] {
        checkout.folder.take_theirs(&["a".to_owned(), nowhere.to_owned()]).unwrap();
        let refused = checkout.pull(&theirs).unwrap_err().to_string();
        assert_eq!(refused, format!("{nowhere} did not change both here and in the run"));
        assert_eq!(tree(checkout.dir.path())["a"], "mine");
    }
    checkout.folder.take_theirs(&["a".to_owned(), "d".to_owned()]).unwrap();
    assert_eq!(conflicts(checkout.pull(&theirs)), ["f: deleted here"]);
    checkout.folder.take_theirs(&["f".to_owned()]).unwrap();
    checkout.pull(&theirs).unwrap();
    let found: Vec<_> = tree(checkout.dir.path()).into_iter().collect();
    let expected = [("a", "2"), ("b", "from 2"), ("c", "2"), ("f", "2")];
    assert_eq!(found, expected.map(|(path, content)| (path.to_owned(), content.to_owned())));
    assert_eq!(checkout.changes(), ["M b", "D e"]);
}

#[test]
fn what_needs_the_place_of_a_file_that_was_changed_here_is_left_with_it() {
    let mut checkout = Checkout::of(&[("d/a", "1"), ("d/b", "1"), ("f", "1")]);
    checkout.put("d/a", "mine");
    checkout.put("f", "mine");
    let theirs = layer(&[
        (".wh.d", Put::File("")),
        ("d", Put::File("2")),
        (".wh.f", Put::File("")),
        ("f/", Put::Folder),
        ("f/x", Put::File("2")),
        ("ok", Put::File("2")),
    ]);
    let found = conflicts(checkout.pull(&theirs));
    let expected = [
        "d/a: changed here, deleted in the run",
        "f: changed here, deleted in the run",
        "d: a folder here",
        "f/x: something else is in the place of its folder",
    ];
    assert_eq!(found, expected);
    let found: Vec<_> = tree(checkout.dir.path()).into_iter().collect();
    let expected = [("d/a", "mine"), ("f", "mine"), ("ok", "2")];
    assert_eq!(found, expected.map(|(path, content)| (path.to_owned(), content.to_owned())));
}

#[test]
fn a_folder_and_a_file_take_each_others_place() {
    let mut checkout = Checkout::of(&[("file", "1"), ("folder/a", "1"), ("folder/deep/b", "1"), ("opaque/old", "1")]);
    let swapped = layer(&[
        (".wh.file", Put::File("")),
        ("file/inside", Put::File("2")),
        (".wh.folder", Put::File("")),
        ("folder", Put::File("2")),
        ("opaque/.wh..wh..opq", Put::File("")),
        ("opaque/new", Put::File("2")),
    ]);
    checkout.pull(&swapped).unwrap();
    let found: Vec<_> = tree(checkout.dir.path()).into_iter().collect();
    let expected = [("file/inside", "2"), ("folder", "2"), ("opaque/new", "2")];
    assert_eq!(found, expected.map(|(path, content)| (path.to_owned(), content.to_owned())));
    assert_eq!(checkout.changes(), Vec::<String>::new());

    // What is nobody's stays, and says so.
    checkout.pull(&layer(&[("d/tracked", Put::File("1"))])).unwrap();
    checkout.put("d/mine", "1");
    let found = conflicts(checkout.pull(&layer(&[(".wh.d", Put::File("")), ("d", Put::File("2"))])));
    assert_eq!(found, ["d: a folder here"]);
    checkout.pull(&layer(&[(".wh.d", Put::File(""))])).unwrap();
    assert_eq!(checkout.changes(), ["A d/mine"]);
}

#[test]
fn a_first_checkout_has_the_times_of_the_records_and_a_later_file_is_new() {
    let mut checkout = Checkout::of(&[("old", "1")]);
    assert_eq!(checkout.path("old").metadata().unwrap().mtime(), 1_700_000_000);
    checkout.pull(&layer(&[("old", Put::File("2"))])).unwrap();
    let age = SystemTime::now().duration_since(checkout.path("old").metadata().unwrap().modified().unwrap());
    assert!(age.unwrap() < Duration::from_mins(10));
}

#[test]
fn a_layer_with_a_hostile_name_changes_nothing() {
    for name in [
        "../out",
        "/out",
        "a/../../out",
        ".workspaced/index",
        ".WorkSpaced/index",
        ".git/hooks/x",
        ".GIT/hooks/x",
        "a/.git/config",
        "a/.Git/config",
        ".wh...",
        ".wh..GIT",
        ".GIT/.wh..wh..opq",
    ] {
        let mut checkout = Checkout::of(&[("a/b", "1")]);
        let done = checkout.pull(&layer(&[("first", Put::File("1")), (name, Put::File("1"))]));
        assert!(matches!(done, Err(ShimError::Refused(_))), "{name}");
        assert_eq!(tree(checkout.dir.path()).len(), 1, "{name}");
    }
    let mut checkout = Checkout::empty();
    let cut = layer(&[("d/b", Put::File("1")), ("e/", Put::Folder), ("a", Put::File("0123456789"))]);
    assert!(checkout.pull(&cut[..2050]).is_err());
    assert_eq!(std::fs::read_dir(checkout.dir.path()).unwrap().count(), 1);
    assert!(!checkout.path(".workspaced/incoming").exists());
}

#[test]
fn a_layer_with_a_link_that_leads_out_changes_nothing() {
    for (path, target) in
        [("l", ".."), ("l", "/etc"), ("a/l", "../../x"), ("a/l", "b/../../../x"), ("l", "a/../../x"), ("l", "a/../b")]
    {
        let mut checkout = Checkout::of(&[("a/b", "1")]);
        let refused = checkout.pull(&layer(&[("first", Put::File("1")), (path, Put::Link(target))])).unwrap_err();
        assert_eq!(refused.to_string(), format!("the layer has the link {path:?}, which leads out of the folder"));
        assert_eq!(tree(checkout.dir.path()).len(), 1, "{path} to {target}");
    }
    let mut checkout = Checkout::of(&[("a/b", "1")]);
    checkout.pull(&layer(&[("a/l", Put::Link("../a/b")), ("m", Put::Link("nowhere"))])).unwrap();
    assert_eq!(tree(checkout.dir.path())["a/l"], "-> ../a/b");
}

#[test]
fn a_layer_that_contradicts_itself_changes_nothing() {
    for (above, below) in [
        (("z", Put::File("1")), ("z/a", Put::File("1"))),
        (("z", Put::Link("first")), ("z/a/b", Put::File("1"))),
        (("z", Put::File("1")), ("z/a/b", Put::Link("../../first"))),
        (("z/a", Put::Program("1")), ("z/a/b/c", Put::Folder)),
    ] {
        let paths = (above.0, below.0);
        let mut checkout = Checkout::of(&[("first", "1"), ("gone", "1")]);
        let before = tree(checkout.dir.path());
        let theirs = layer(&[("first", Put::File("2")), (".wh.gone", Put::File("")), above, below]);
        let refused = checkout.pull(&theirs).unwrap_err();
        assert!(refused.to_string().ends_with("which is no folder"), "{paths:?}: {refused}");
        assert_eq!(tree(checkout.dir.path()), before, "{paths:?}");
        assert!(!checkout.path(".workspaced/incoming").exists());
    }
    for order in [["z", "z/a"], ["z/a", "z"]] {
        let mut checkout = Checkout::empty();
        let refused = checkout.pull(&layer(&order.map(|path| (path, Put::File("1"))))).unwrap_err();
        assert!(refused.to_string().ends_with("which is no folder"), "{order:?}: {refused}");
        assert_eq!(std::fs::read_dir(checkout.dir.path()).unwrap().count(), 1, "{order:?}");
    }
}

#[test]
fn a_first_checkout_is_moved_whole_into_an_empty_folder() {
    let entries = [
        ("a", Put::File("1")),
        ("d/", Put::Folder),
        ("d/b", Put::Program("first")),
        ("d/b", Put::Program("2")),
        ("e/f/l", Put::Link("../g")),
        ("empty/", Put::Folder),
        (".wh.gone", Put::File("")),
        ("top", Put::Link("a")),
    ];
    let mut checkout = Checkout::empty();
    assert_eq!(checkout.pull(&layer(&entries)).unwrap(), (4, 0));
    let found = tree(checkout.dir.path());
    let expected = [("a", "1"), ("d/b", "x 2"), ("e/f/l", "-> ../g"), ("top", "-> a")];
    assert_eq!(found, expected.map(|(path, content)| (path.to_owned(), content.to_owned())).into());
    assert!(checkout.path("empty").is_dir() && !checkout.path(".workspaced/incoming").exists());
    for path in ["a", "d/b", "e/f/l"] {
        assert_eq!(checkout.path(path).symlink_metadata().unwrap().mtime(), 1_700_000_000, "{path}");
    }
    assert_eq!(checkout.changes(), Vec::<String>::new());
    let mut other = Checkout::empty();
    other.put("d/b", "2");
    other.put("mine", "");
    assert!(other.pull(&layer(&entries)).is_err(), "it is no program there");
    std::fs::remove_dir_all(other.path("d")).unwrap();
    other.pull(&layer(&entries)).unwrap();
    assert_eq!(checkout.folder.tree_sha256().unwrap(), other.folder.tree_sha256().unwrap());
}

#[test]
fn a_layer_whose_stream_breaks_after_its_last_entry_changes_nothing() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("a wrong checksum"))
        }
    }
    for files in [&[][..], &[("b", "1")]] {
        let mut checkout = Checkout::of(files);
        let after = CheckedOut { run: "run_1".to_owned(), seq: 2, head_hash: String::new() };
        let theirs = layer(&[("a", Put::File("1"))]);
        let mut broken = std::io::Read::chain(theirs.as_slice(), Broken);
        let error = checkout.folder.apply(&after, &mut broken).unwrap_err().to_string();
        assert_eq!(error, "the layer: a wrong checksum");
        assert_eq!((checkout.folder.have().unwrap().unwrap().seq, tree(checkout.dir.path()).len()), (1, files.len()));
    }
}

#[test]
fn a_layer_is_bounded_in_bytes() {
    let checkout = Checkout::of(&[]);
    let root = crate::handles::open_root(checkout.dir.path()).unwrap();
    let own = crate::index::IndexFolder::open(root).unwrap().unwrap();
    for is_tree in [false, true] {
        let mut staging = IncomingFolder::create(&own, is_tree, None).unwrap().with_max_bytes(10);
        let time = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
        staging.file("d/a", false, &mut b"123456".as_slice(), time).unwrap();
        let refused = staging.file("d/b", false, &mut std::io::repeat(0), time).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), "d/b: the layer has more bytes than a run can have");
        crate::incoming::remove_incoming(&own).unwrap();
    }
    assert!(!checkout.path(".workspaced/incoming").exists());
}

#[test]
fn a_layer_from_a_sandbox_has_what_was_asked_for_and_nothing_else() {
    let asked = ["a", "d/b", "d/l", "d/gone", "gone"].map(str::to_owned);
    let good = layer(&[
        ("a", Put::File("1")),
        ("d/b", Put::Program("1")),
        ("d/l", Put::Link("b")),
        ("d/.wh.gone", Put::File("")),
        (".wh.gone", Put::File("")),
    ]);
    check_layer(good.as_slice(), &asked).unwrap();
    let mut renamed = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(10);
    renamed.append_data(&mut header, "pax", b"10 path=a\n".as_slice()).unwrap();
    let renamed = [renamed.get_ref().as_slice(), good.as_slice()].concat();
    assert!(check_layer(renamed.as_slice(), &asked).unwrap_err().to_string().contains("with attributes"));
    for (path, put) in [
        ("b", Put::File("1")),
        ("d", Put::File("1")),
        ("./a", Put::File("1")),
        ("d/../a", Put::File("1")),
        ("/a", Put::File("1")),
        ("d/.wh.c", Put::File("")),
        (".wh.d", Put::File("")),
        (".wh..wh..opq", Put::File("")),
        ("d/.wh..wh..opq", Put::File("")),
        (".wh.", Put::File("")),
        (".env", Put::File("A=1")),
        (".git/hooks/post-commit", Put::Program("1")),
        ("a", Put::Folder),
        ("d/b", Put::Special),
    ] {
        let shown = path.to_owned();
        let refused = check_layer(layer(&[("a", Put::File("1")), (path, put)]).as_slice(), &asked).unwrap_err();
        let expected = format!("the sandbox sent {shown:?}, which it was not asked for");
        assert_eq!(refused.to_string(), expected);
    }
    assert!(check_layer(&good[..good.len() - 1500], &asked).is_err(), "cut");
}

#[test]
fn nothing_is_written_through_a_link() {
    let outside = tempfile::tempdir().unwrap();
    let mut checkout = Checkout::of(&[("d/a", "1")]);
    std::fs::remove_dir_all(checkout.path("d")).unwrap();
    symlink(outside.path(), checkout.path("d")).unwrap();
    let found = conflicts(checkout.pull(&layer(&[("d/a", Put::File("2")), ("d/b", Put::File("2"))])));
    assert_eq!(found.len(), 2);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn what_a_killed_checkout_left_is_no_hindrance() {
    let mut checkout = Checkout::of(&[("a", "1"), ("b", "1")]);
    let theirs = layer(&[("a", Put::File("2")), ("b", Put::File("2"))]);
    // One of the two files was moved into the tree, the other was not, and the index knows neither.
    checkout.put("a", "2");
    checkout.put(".workspaced/incoming/1", "2");
    checkout.put(".workspaced/incoming/d/e/f", "2");
    symlink("/", checkout.path(".workspaced/incoming/d/l")).unwrap();
    checkout.put(".workspaced/index.new", "half of an ind");
    assert_eq!(checkout.pull(&theirs).unwrap(), (1, 0));
    assert_eq!(checkout.changes(), Vec::<String>::new());
}

#[test]
fn a_folder_of_another_run_is_refused() {
    let mut checkout = Checkout::of(&[("a", "1")]);
    let other = CheckedOut { run: "run_2".to_owned(), seq: 1, head_hash: String::new() };
    let refused = checkout.folder.apply(&other, &mut layer(&[]).as_slice()).unwrap_err();
    assert_eq!(refused.to_string(), "the folder is a checkout of the run run_1");
}

#[test]
fn a_checkout_into_a_folder_that_has_the_files_takes_them() {
    let mut checkout = Checkout::empty();
    checkout.put("a", "1");
    checkout.put("mine", "1");
    assert_eq!(checkout.pull(&layer(&[("a", Put::File("1")), ("b", Put::File("1"))])).unwrap(), (1, 0));
    assert_eq!(checkout.changes(), ["A mine"]);
    assert_eq!(conflicts(checkout.pull(&layer(&[("mine", Put::File("2"))]))), ["mine: created here"]);
}

#[test]
fn files_over_a_limit_are_left_and_named() {
    let mut checkout = Checkout::of(&[("a", "1")]);
    checkout.put("b", "2");
    std::fs::File::create(checkout.path("sparse")).unwrap().set_len(10 << 30).unwrap();
    let (layer, report) = checkout.read();
    assert_eq!(names(&layer), ["b"]);
    assert_eq!((report.left.len(), report.left[0].path.as_str()), (1, "sparse"));
    let limits = crate::ReadLimits { max_total_bytes: 1, ..LIMITS };
    checkout.put("c", "more");
    let refused = checkout.folder.read(&["b".to_owned(), "c".to_owned()], limits, &mut Vec::new()).unwrap_err();
    assert_eq!(refused.to_string(), "the changed files have more than 1 bytes");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_noticed() {
    struct Meddler<'a>(&'a Checkout, bool);
    impl std::io::Write for Meddler<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // The header comes first: the file is open then, and not read yet.
            if !std::mem::replace(&mut self.1, true) {
                self.0.put("grows", "longer than it was");
                self.0.put("shrinks", "s");
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut checkout = Checkout::of(&[]);
    checkout.put("grows", "short");
    checkout.put("shrinks", "shrinks");
    let mut folder = std::mem::replace(&mut checkout.folder, Checkout::empty().folder);
    let report = folder.read(&["grows".to_owned()], LIMITS, &mut Meddler(&checkout, false)).unwrap();
    assert_eq!(report.torn, ["grows"]);
    checkout.put("shrinks", "shrinks");
    let report = folder.read(&["shrinks".to_owned()], LIMITS, &mut Meddler(&checkout, false)).unwrap();
    assert_eq!(report.torn, ["shrinks"]);
    let report = folder.read(&["shrinks".to_owned()], LIMITS, &mut Vec::new()).unwrap();
    assert_eq!(report.torn, Vec::<String>::new());
}

#[test]
fn what_is_put_aside_gives_way_to_the_runs_version() {
    let files = [("t.sh", "exit 1"), ("d/gone", "gone"), ("d/f", "f"), ("was/file", "x"), ("same", "same")];
    let mut checkout = Checkout::of(&files);
    let before = tree(checkout.dir.path());
    checkout.put("t.sh", "exit 0");
    checkout.put("new/added", "added");
    std::fs::remove_dir_all(checkout.path("d")).unwrap();
    std::fs::remove_dir_all(checkout.path("was")).unwrap();
    checkout.put("was", "a file now");
    let paths: Vec<_> = checkout.scan().changes.into_iter().map(|change| change.path).collect();
    assert_eq!(paths, ["d/f", "d/gone", "new/added", "t.sh", "was", "was/file"]);
    checkout.folder.put_aside(&paths).unwrap();
    assert!(!checkout.path("new").exists(), "the folder that is empty goes too");
    let aside = |path: &str| std::fs::read_to_string(checkout.path(".workspaced/aside").join(path)).ok();
    assert_eq!(["t.sh", "new/added", "was"].map(aside), ["exit 0", "added", "a file now"].map(|x| Some(x.to_owned())));
    // Its own version is the one that the folder has of the run.
    let now: Vec<_> = files.iter().map(|(path, content)| (*path, Put::File(content))).collect();
    assert_eq!(checkout.pull(&layer(&now)).unwrap(), (4, 0));
    assert_eq!(tree(checkout.dir.path()), before);
    assert_eq!(checkout.changes(), Vec::<String>::new());
    checkout.folder.put_aside(&[]).unwrap();
    assert!(!checkout.path(".workspaced/aside").exists());
}

/// Whatever stands where the run has a file, or has none, gives way.
#[test]
fn links_special_files_and_folders_are_put_aside_too() {
    let files = [("d/c", "c"), ("a", "a"), ("b", "b"), ("e/f", "f"), ("g", "g"), ("kept", "kept")];
    let mut checkout = Checkout::of(&files);
    let before = tree(checkout.dir.path());
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("c"), "foreign").unwrap();
    for gone in ["d", "e"] {
        std::fs::remove_dir_all(checkout.path(gone)).unwrap();
    }
    for gone in ["a", "b", "g"] {
        std::fs::remove_file(checkout.path(gone)).unwrap();
    }
    let fifo = |path: std::path::PathBuf| mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    symlink(outside.path(), checkout.path("d")).unwrap();
    symlink("/etc/passwd", checkout.path("g")).unwrap();
    symlink(outside.path(), checkout.path("new")).unwrap();
    fifo(checkout.path("a"));
    fifo(checkout.path("e"));
    std::fs::create_dir(checkout.path("b")).unwrap();
    fifo(checkout.path("b/pipe"));
    checkout.put(".wh.x", "");
    checkout.put("line\nbreak", "");
    for odd in [&b"not-\xff-utf8"[..], b"not-\xfe-utf8"] {
        std::fs::create_dir(checkout.dir.path().join(OsStr::from_bytes(odd))).unwrap();
        std::fs::write(checkout.dir.path().join(OsStr::from_bytes(odd)).join("x"), "").unwrap();
    }
    let report = checkout.scan();
    let changed: Vec<_> = report.changes.iter().map(|change| change.path.clone()).collect();
    assert_eq!(changed, ["a", "b", "d/c", "e/f", "g"]);
    let left: Vec<_> = report.left.iter().map(|left| left.path.clone()).collect();
    assert!(left.contains(&"new".to_owned()) && left.contains(&"d".to_owned()), "{left:?}");
    // What only blocks the way of a path goes without being named.
    let named = left.iter().filter(|path| !["d", "e"].contains(&path.as_str()));
    let paths: Vec<_> = changed.iter().chain(named).cloned().chain([".git/x".to_owned(), "../x".to_owned()]).collect();
    checkout.folder.put_aside(&paths).unwrap();
    let now: Vec<_> = files.iter().map(|(path, content)| (*path, Put::File(content))).collect();
    checkout.pull(&layer(&now)).unwrap();
    assert_eq!(tree(checkout.dir.path()), before);
    let report = checkout.scan();
    assert!(report.changes.is_empty() && report.left.is_empty(), "{report:?}");
    let aside = checkout.path(".workspaced/aside");
    assert!(aside.join("d").is_symlink() && aside.join("b/pipe").symlink_metadata().is_ok());
    checkout.folder.put_aside(&[]).unwrap();
    assert!(!aside.exists() && outside.path().join("c").exists(), "names that are not UTF-8 go as well");
}

#[test]
fn a_folder_that_is_too_deep_is_put_aside_and_removed() {
    let mut checkout = Checkout::of(&[("a", "a")]);
    std::fs::remove_file(checkout.path("a")).unwrap();
    let mut dir = std::fs::File::open(checkout.dir.path()).unwrap();
    for name in std::iter::once("a").chain(std::iter::repeat_n("x", 300)) {
        rustix::fs::mkdirat(&dir, name, Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&dir, format!("{name}y"), Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, name, rustix::fs::OFlags::RDONLY, Mode::empty()).unwrap().into();
    }
    checkout.folder.put_aside(&["a".to_owned()]).unwrap();
    checkout.pull(&layer(&[("a", Put::File("a"))])).unwrap();
    assert_eq!(checkout.changes(), Vec::<String>::new());
    checkout.folder.put_aside(&[]).unwrap();
    let mut own: Vec<_> =
        std::fs::read_dir(checkout.path(".workspaced")).unwrap().map(|e| e.unwrap().file_name()).collect();
    own.sort();
    assert_eq!(own, ["clock", "index", "lock", "state"]);
}

/// A command that removes the index leaves nothing behind that would be taken for the run's.
#[test]
fn a_folder_whose_index_was_removed_is_checked_out_anew() {
    let files = [("a", "a"), ("d/b", "b"), ("same", "same")];
    let now: Vec<_> = files.iter().map(|(path, content)| (*path, Put::File(content))).collect();
    for replaced in [false, true] {
        let mut checkout = Checkout::of(&files);
        let before = tree(checkout.dir.path());
        std::fs::remove_dir_all(checkout.path(".workspaced")).unwrap();
        if replaced {
            checkout.put(".workspaced", "no folder");
        }
        std::fs::remove_dir_all(checkout.path("d")).unwrap();
        checkout.put("a", "evil");
        symlink("/tmp", checkout.path("d")).unwrap();
        let removed = checkout.folder.scan(&[]).unwrap_err().to_string();
        assert!(removed.contains("was removed here"), "{removed}");
        assert_eq!(checkout.folder.have().unwrap(), None);
        let Err(ShimError::Conflicts(conflicts)) = checkout.pull(&layer(&now)) else { panic!("nothing is in the way") };
        assert_eq!(conflicts.iter().map(|conflict| conflict.path.as_str()).collect::<Vec<_>>(), ["a", "d/b"]);
        checkout.folder.put_aside(&[]).unwrap();
        assert_eq!(checkout.pull(&layer(&now)).unwrap(), (2, 0));
        assert_eq!((tree(checkout.dir.path()), checkout.changes()), (before, Vec::new()));
        assert_eq!(std::fs::read_to_string(checkout.path(".workspaced/aside/a")).unwrap(), "evil");
    }
}
