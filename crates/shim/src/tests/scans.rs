//! What a scan finds in a folder in which anything may be.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode};

use super::{Checkout, Put, layer, names, read_index};
use crate::entry::NodeStamp;
use crate::scan::FolderScan;
use crate::{CommandFolder as _, ShimError};

fn stamp(checkout: &Checkout, path: &str) -> NodeStamp {
    NodeStamp::of(&rustix::fs::statat(CWD, checkout.path(path), rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap())
}

#[test]
fn what_is_no_file_is_named_and_left() {
    let mut checkout = Checkout::of(&[("a", "1"), ("was-a-file", "1")]);
    rustix::fs::mknodat(CWD, checkout.path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = UnixListener::bind(checkout.path("socket")).unwrap();
    symlink("/etc/passwd", checkout.path("absolute")).unwrap();
    symlink("d/../../out", checkout.path("out")).unwrap();
    // `d` may become a link to anywhere.
    symlink("d/../a", checkout.path("up")).unwrap();
    symlink("./d/a", checkout.path("inside")).unwrap();
    std::fs::write(checkout.dir.path().join(OsStr::from_bytes(b"not-\xff-utf8")), "").unwrap();
    std::fs::create_dir(checkout.dir.path().join(OsStr::from_bytes(b"folder-\xff"))).unwrap();
    checkout.put("control\x1b[2J", "");
    checkout.put("line\nbreak", "");
    checkout.put(".wh.a", "");
    checkout.put("d/.wh..wh..opq", "");
    checkout.put(".git/hooks/pre-commit", "#!/bin/sh");
    checkout.put("sub/.git/config", "");
    checkout.put(".GIT/hooks/pre-commit", "#!/bin/sh");
    checkout.put(".WorkSpaced/index", "");
    checkout.put("sub/file", "1");
    checkout.put(".workspaced/planted", "");
    std::fs::remove_file(checkout.path("was-a-file")).unwrap();
    rustix::fs::mknodat(CWD, checkout.path("was-a-file"), FileType::Fifo, Mode::RUSR, 0).unwrap();

    let report = checkout.scan();
    let changes: Vec<_> = report.changes.iter().map(|change| change.path.as_str()).collect();
    // The file of the run is missing, whatever is in its place.
    assert_eq!(changes, ["inside", "sub/file", "was-a-file"]);
    let mut left: Vec<_> = report.left.iter().map(|left| left.path.as_str()).collect();
    left.sort_unstable();
    let expected = [
        ".GIT/hooks/pre-commit",
        ".WorkSpaced/index",
        ".wh.a",
        "absolute",
        "control\x1b[2J",
        "d/.wh..wh..opq",
        "fifo",
        "folder-\u{fffd}",
        "line\nbreak",
        "not-\u{fffd}-utf8",
        "out",
        "socket",
        "up",
    ];
    assert_eq!((left.as_slice(), report.left_count, report.foreign_count), (&expected[..], 13, 13));
    let (layer, read) = checkout.read();
    assert_eq!(names(&layer), ["inside", "sub/file"]);
    assert_eq!((read.left[0].path.as_str(), read.left[0].why.as_str()), ("was-a-file", "it is no file any more"));
}

#[test]
fn empty_folders_are_counted_apart_and_keep_no_other_name_out() {
    let mut checkout = Checkout::of(&[("a", "1")]);
    for number in 0..150 {
        std::fs::create_dir(checkout.path(&format!("empty{number:03}"))).unwrap();
    }
    symlink("/etc/passwd", checkout.path("out")).unwrap();
    let report = checkout.scan();
    assert_eq!((report.left.len(), report.left_count, report.foreign_count), (100, 151, 1));
    assert_eq!((report.left[0].path.as_str(), report.left[1].path.as_str()), ("out", "empty000/"));
}

#[test]
fn a_file_whose_time_was_set_back_is_found_by_the_time_of_its_inode() {
    let mut checkout = Checkout::of(&[("a", "one"), ("b", "one")]);
    let path = checkout.path("a");
    let before = path.metadata().unwrap().modified().unwrap();
    // In place, with the same size and the same time.
    std::fs::write(&path, "two").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
    assert_eq!(path.metadata().unwrap().modified().unwrap(), before);
    assert_eq!(checkout.changes(), ["M a"]);
}

#[test]
fn a_file_that_is_as_young_as_the_look_at_it_is_hashed_again() {
    let mut checkout = Checkout::of(&[("a", "one"), ("b", "one")]);
    let looked = stamp(&checkout, "a");
    // As if it had been written again within the tick in which it was looked at: its metadata says nothing.
    for (now_ns, expected) in [(looked.newest_ns(), vec!["M a"]), (looked.newest_ns() + 1, vec![])] {
        let entry = checkout.folder.index().entries.get_mut("a").unwrap();
        entry.version.hash[0] ^= u8::from(now_ns == looked.newest_ns());
        entry.stamp = looked.proven_at(now_ns);
        assert_eq!(checkout.changes(), expected);
    }
}

#[test]
fn a_file_that_was_only_touched_is_unchanged_and_not_hashed_twice() {
    let mut checkout = Checkout::of(&[("a", "one")]);
    let touched = std::fs::File::options().write(true).open(checkout.path("a")).unwrap();
    touched.set_modified(UNIX_EPOCH + Duration::from_hours(500_000)).unwrap();
    touched.set_modified(UNIX_EPOCH + Duration::from_hours(400_000)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(checkout.changes(), Vec::<String>::new());
    let now = stamp(&checkout, "a");
    assert_eq!(checkout.folder.index().entries["a"].stamp, now);
}

#[test]
fn the_entries_are_written_once_for_each_layer_and_not_for_one_without_changes() {
    let written = |checkout: &Checkout| checkout.path(".workspaced/index").metadata().unwrap().ino();
    let mut checkout = Checkout::of(&[("a", "1"), ("b", "1")]);
    let first = written(&checkout);
    checkout.pull(&layer(&[])).unwrap();
    checkout.put("a", "2");
    checkout.read();
    checkout.folder.confirm(&["a".to_owned()]).unwrap();
    checkout.scan();
    assert_eq!(written(&checkout), first);
    checkout.pull(&layer(&[("b", Put::File("2"))])).unwrap();
    assert_ne!(written(&checkout), first);
    checkout.reopen().unwrap();
    assert_eq!((checkout.changes(), checkout.folder.have().unwrap().unwrap().seq), (vec![], 3));
}

#[test]
fn entries_that_are_newer_than_their_record_are_those_of_a_program_that_was_killed() {
    let mut checkout = Checkout::of(&[("a", "1"), ("b", "1")]);
    let state = std::fs::read(checkout.path(".workspaced/state")).unwrap();
    let entries = std::fs::read(checkout.path(".workspaced/index")).unwrap();
    let theirs = layer(&[("a", Put::File("2"))]);
    checkout.pull(&theirs).unwrap();
    std::fs::write(checkout.path(".workspaced/state"), &state).unwrap();
    checkout.reopen().unwrap();
    assert_eq!((checkout.folder.have().unwrap().unwrap().seq, checkout.changes()), (1, vec![]));
    checkout.pull(&theirs).unwrap();
    // The other way round a file that was never pulled would seem to be current.
    std::fs::write(checkout.path(".workspaced/index"), &entries).unwrap();
    assert!(checkout.reopen().unwrap_err().to_string().starts_with("the index of the folder is damaged"));
}

#[test]
fn a_folder_whose_record_was_removed_takes_what_is_there() {
    let mut checkout = Checkout::of(&[("a", "1"), ("d/b", "1")]);
    std::fs::remove_file(checkout.path(".workspaced/state")).unwrap();
    checkout.reopen().unwrap();
    assert_eq!(checkout.folder.have().unwrap(), None);
    checkout.put("a", "mine");
    let theirs = layer(&[("a", Put::File("1")), ("d/b", Put::File("1"))]);
    assert!(matches!(checkout.pull(&theirs), Err(ShimError::Conflicts(_))));
    checkout.put("a", "1");
    checkout.pull(&theirs).unwrap();
    assert_eq!(checkout.changes(), Vec::<String>::new());
}

#[test]
fn names_that_begin_alike_are_found_in_the_order_of_the_index() {
    let paths = ["a", "a!", "a-b", "a.txt", "a/b", "a0", "ab/c", "b.d/x", "b/x", "b0"];
    let of = |skip: usize| paths.iter().enumerate().filter(move |(at, _)| *at != skip).map(|(_, path)| *path);
    for (skip, left_out) in paths.into_iter().enumerate() {
        // Not a file and a folder of one name.
        let files: Vec<_> = of(skip).filter(|path| *path != "a").map(|path| (path, "1")).collect();
        let mut checkout = Checkout::of(&files);
        assert_eq!(checkout.changes(), Vec::<String>::new(), "{files:?}");
        if left_out != "a" {
            checkout.put(left_out, "1");
            assert_eq!(checkout.changes(), [format!("A {left_out}")]);
        }
        for (path, _) in &files {
            std::fs::remove_file(checkout.path(path)).unwrap();
        }
        let gone = checkout.changes().into_iter().filter(|change| change.starts_with("D ")).count();
        assert_eq!(gone, files.len());
    }
    let mut checkout = Checkout::of(&[("a/b", "1"), ("a/c/d", "1"), ("a0", "1")]);
    std::fs::remove_dir_all(checkout.path("a")).unwrap();
    checkout.put("a", "1");
    assert_eq!(checkout.changes(), ["A a", "D a/b", "D a/c/d"]);
}

#[test]
fn a_tracked_file_that_became_huge_is_not_read() {
    let mut checkout = Checkout::of(&[("a", "one")]);
    std::fs::File::options().write(true).open(checkout.path("a")).unwrap().set_len(10 << 40).unwrap();
    let report = checkout.scan();
    assert_eq!((report.changes[0].path.as_str(), report.changes[0].size), ("a", 10 << 40));
}

#[test]
fn build_output_is_walked_only_where_the_run_has_some() {
    let mut checkout = Checkout::of(&[("a/target/tracked", "1")]);
    checkout.put("target/debug/x", "1");
    checkout.put("b/Target/y", "1");
    checkout.put("a/target/new", "1");
    let report = checkout.scan();
    let changes: Vec<_> = report.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(changes, ["a/target/new"]);
    let mut not_walked = report.not_walked;
    not_walked.sort();
    assert_eq!(not_walked, ["b/Target/", "target/"]);
}

#[test]
fn a_folder_with_too_many_entries_is_refused() {
    let mut checkout = Checkout::of(&[]);
    for folder in ["", "d/"] {
        (0..50).for_each(|number| checkout.put(&format!("{folder}{number}"), ""));
    }
    let root = crate::handles::open_root(checkout.dir.path()).unwrap();
    for max in [10, 60, 101] {
        let refused = FolderScan::new(checkout.folder.index(), &[], 0).with_max_walked(max).run(&root).unwrap_err();
        assert!(refused.to_string().starts_with(&format!("the folder has more than {max} entries: ")), "{refused}");
    }
    let found = FolderScan::new(checkout.folder.index(), &[], 0).with_max_walked(102).run(&root).unwrap().0;
    assert_eq!(found.changes.len(), 100);
}

#[test]
fn nothing_is_said_of_what_is_too_deep_to_be_seen() {
    let mut checkout = Checkout::of(&[("a", "1")]);
    let deep = ["d"; 140].join("/");
    checkout.put(&format!("{deep}/file"), "1");
    let report = checkout.scan();
    assert_eq!((report.changes.len(), report.left_count), (0, 1));
    assert_eq!(report.left[0].why, "the folder is too deep");
}

#[test]
fn a_folder_that_cannot_be_read_hides_files_and_deletes_none() {
    let mut checkout = Checkout::of(&[("d/a", "1"), ("e", "1")]);
    std::fs::set_permissions(checkout.path("d"), PermissionsExt::from_mode(0o000)).unwrap();
    std::fs::set_permissions(checkout.path("e"), PermissionsExt::from_mode(0o000)).unwrap();
    let is_root = std::fs::read_dir(checkout.path("d")).is_ok();
    let report = checkout.scan();
    std::fs::set_permissions(checkout.path("d"), PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(report.changes, vec![]);
    assert!(is_root || report.left_count == 2, "{report:?}");
}

#[test]
fn an_index_that_a_command_has_changed_is_refused_or_only_proposes_less() {
    let damaged = |checkout: &mut Checkout, what: &str| {
        let refused = checkout.reopen().unwrap_err().to_string();
        assert!(refused.starts_with("the index of the folder is damaged"), "{what}: {refused}");
    };
    let mut checkout = Checkout::of(&[("a", "1")]);
    let whole = read_index(&checkout);
    for cut in 0..whole.len() {
        std::fs::write(checkout.path(".workspaced/index"), &whole[..cut]).unwrap();
        damaged(&mut checkout, &cut.to_string());
    }
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let hostile = [
        b"garbage".to_vec(),
        with(0, b"X"),
        // An older generation, more entries, another kind, and paths that lead out or go on.
        with(8, &[0]),
        with(16, &u64::MAX.to_le_bytes()),
        with(16, &[2]),
        with(24, &[9]),
        with(whole.len() - 1, b"/"),
        with(whole.len() - 1, &[0xff]),
        with(whole.len() - 3, &[2]),
        with(whole.len() - 3, &[0]),
        [whole.as_slice(), b"more"].concat(),
    ];
    for bytes in hostile {
        std::fs::write(checkout.path(".workspaced/index"), &bytes).unwrap();
        damaged(&mut checkout, &String::from_utf8_lossy(&bytes));
    }
    std::fs::write(checkout.path(".workspaced/index"), &whole).unwrap();
    let state = std::fs::read_to_string(checkout.path(".workspaced/state")).unwrap();
    for text in ["", "garbage", "{}", &state[..state.len() - 1], &" ".repeat(1 << 20)] {
        std::fs::write(checkout.path(".workspaced/state"), text).unwrap();
        damaged(&mut checkout, text);
    }
    std::fs::write(checkout.path(".workspaced/state"), &state).unwrap();
    checkout.reopen().unwrap();

    // A FIFO does not block, and links are not followed.
    for kind in ["fifo", "link", "folder"] {
        let mut checkout = Checkout::of(&[("a", "1")]);
        let path = checkout.path(".workspaced/index");
        std::fs::remove_file(&path).unwrap();
        match kind {
            "fifo" => rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            "link" => symlink("/etc/passwd", &path).unwrap(),
            _ => std::fs::create_dir(&path).unwrap(),
        }
        assert!(checkout.reopen().is_err(), "{kind}");
    }
    let mut checkout = Checkout::of(&[("a", "1")]);
    std::fs::rename(checkout.path(".workspaced"), checkout.path("elsewhere")).unwrap();
    symlink("elsewhere", checkout.path(".workspaced")).unwrap();
    assert!(checkout.reopen().is_err());
}

#[test]
fn a_folder_without_an_index_is_no_checkout() {
    let mut checkout = Checkout::empty();
    assert_eq!(checkout.folder.have().unwrap(), None);
    let refused = checkout.folder.scan(&[]).unwrap_err();
    assert!(matches!(refused, ShimError::Refused(_)), "{refused}");
    assert!(!checkout.path(".workspaced").exists());
}

#[test]
fn a_folder_whose_index_was_removed_says_what_to_do() {
    let mut checkout = Checkout::of(&[("a", "1")]);
    std::fs::remove_dir_all(checkout.path(".workspaced")).unwrap();
    checkout.put("a", "2");
    let refused = checkout.folder.scan(&[]).unwrap_err().to_string();
    assert!(refused.ends_with("check the run out into another folder"), "{refused}");
}

#[test]
fn a_scan_leaves_out_what_an_earlier_one_has_found_as_it_is_now() {
    let mut checkout = Checkout::of(&[("a", "1"), ("b", "1"), ("gone", "1")]);
    checkout.put("a", "2");
    checkout.put("new", "1");
    std::fs::remove_file(checkout.path("gone")).unwrap();
    rustix::fs::mknodat(CWD, checkout.path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    checkout.put("target/o", "1");
    let earlier = checkout.scan();
    let mut same = checkout.scan();
    let paths = |changes: &[crate::PathChange]| changes.iter().map(|change| change.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&same.leave_out(&earlier)), ["a", "gone", "new"]);
    assert_eq!(same, crate::ScanReport::default());

    // The clock of the file system may be coarse.
    std::thread::sleep(Duration::from_millis(20));
    checkout.put("b", "2");
    checkout.put("new", "2");
    checkout.put("sub/target/o", "1");
    rustix::fs::mknodat(CWD, checkout.path("other"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let mut report = checkout.scan();
    assert_eq!(paths(&report.leave_out(&earlier)), ["a", "gone"]);
    assert_eq!(paths(&report.changes), ["b", "new"]);
    assert_eq!(
        (report.left[0].path.as_str(), report.left_count, report.not_walked),
        ("other", 1, vec!["sub/target/".into()])
    );
}

#[test]
fn an_empty_folder_and_a_commit_are_named() {
    let mut checkout = Checkout::of(&[("d/a", "1")]);
    assert_eq!(checkout.scan().git_ns, 0);
    std::fs::remove_file(checkout.path("d/a")).unwrap();
    std::fs::create_dir_all(checkout.path("new/empty")).unwrap();
    std::fs::create_dir_all(checkout.path(".git/logs")).unwrap();
    std::fs::write(checkout.path(".git/logs/HEAD"), "a commit").unwrap();
    let report = checkout.scan();
    assert!(report.git_ns > 0);
    let left: Vec<_> = report.left.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(left, ["new/empty/"], "the run does not have the other one either");
}
