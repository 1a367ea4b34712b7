//! What a scan finds in a folder in which anything may be.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode};

use super::{Checkout, index_file, read_index};
use crate::entry::NodeStamp;
use crate::index::IndexFolder;
use crate::scan::FolderScan;
use crate::{CommandFolder as _, ShimError};

fn load(checkout: &Checkout) -> (IndexFolder, crate::index::CheckoutIndex) {
    let root = crate::handles::open_root(checkout.dir.path()).unwrap();
    let own = IndexFolder::open(root).unwrap().unwrap();
    let index = own.load().unwrap().unwrap();
    (own, index)
}

#[test]
fn what_is_no_file_is_named_and_left() {
    let mut checkout = Checkout::of(&[("a", "1"), ("was-a-file", "1")]);
    rustix::fs::mknodat(CWD, checkout.path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = UnixListener::bind(checkout.path("socket")).unwrap();
    symlink("/etc/passwd", checkout.path("absolute")).unwrap();
    symlink("d/../../out", checkout.path("out")).unwrap();
    symlink("d/../a", checkout.path("inside")).unwrap();
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
    assert_eq!(changes, ["inside", "sub/file"]);
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
        "was-a-file",
    ];
    assert_eq!((left.as_slice(), report.left_count), (&expected[..], 13));
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
fn a_file_that_is_as_young_as_the_index_is_hashed_again() {
    let mut checkout = Checkout::of(&[("a", "one"), ("b", "one")]);
    let (own, mut index) = load(&checkout);
    // As if `a` had been written within the tick in which it was looked at: its metadata says nothing.
    let clock = index.clock_ns;
    index.entries.get_mut("a").unwrap().version.hash[0] ^= 1;
    own.save(&index).unwrap();
    checkout.reopen().unwrap();
    assert_eq!(checkout.changes(), Vec::<String>::new(), "its metadata is older than the index");
    index.clock_ns = index.entries["a"].stamp.newest_ns();
    own.save(&index).unwrap();
    checkout.reopen().unwrap();
    assert_eq!(checkout.changes(), ["M a"]);
    assert!(index.entries["a"].stamp.newest_ns() < clock);
}

#[test]
fn a_file_that_was_only_touched_is_unchanged_and_not_hashed_twice() {
    let mut checkout = Checkout::of(&[("a", "one")]);
    let touched = std::fs::File::options().write(true).open(checkout.path("a")).unwrap();
    touched.set_modified(UNIX_EPOCH + Duration::from_hours(500_000)).unwrap();
    touched.set_modified(UNIX_EPOCH + Duration::from_hours(400_000)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(checkout.changes(), Vec::<String>::new());
    let (_, index) = load(&checkout);
    let now = NodeStamp::of(&rustix::fs::statat(CWD, checkout.path("a"), rustix::fs::AtFlags::empty()).unwrap());
    assert!(index.is_unchanged(&index.entries["a"], &now));
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
    let checkout = Checkout::of(&[]);
    for folder in ["", "d/"] {
        (0..50).for_each(|number| checkout.put(&format!("{folder}{number}"), ""));
    }
    let root = crate::handles::open_root(checkout.dir.path()).unwrap();
    for max in [10, 60, 101] {
        let mut index = load(&checkout).1;
        let refused = FolderScan::new(&mut index, &[]).with_max_walked(max).run(&root).unwrap_err();
        assert!(refused.to_string().starts_with(&format!("the folder has more than {max} entries: ")), "{refused}");
    }
    let mut index = load(&checkout).1;
    assert_eq!(FolderScan::new(&mut index, &[]).with_max_walked(102).run(&root).unwrap().0.changes.len(), 100);
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
    let header = r#"workspaced-index 1|{"run":"r","seq":1,"headHash":""}|0|"#;
    let more = ["99999999|", "1|", "1|f 00 1 1 1 1 1 ../../etc/passwd|"].map(|rest| header.to_owned() + rest);
    let hostile = [String::new(), "garbage".to_owned(), "workspaced-index 1|{}|0|0|".to_owned()];
    for text in hostile.into_iter().chain(more) {
        let bytes = text.replace('|', "\0");
        let mut checkout = Checkout::of(&[("a", "1")]);
        std::fs::write(checkout.path(".workspaced/index"), bytes).unwrap();
        let refused = checkout.reopen().unwrap_err().to_string();
        assert!(refused.starts_with("the index of the folder is damaged"), "{refused}");
    }
    let mut checkout = Checkout::of(&[("a", "1")]);
    let whole = read_index(&checkout);
    for cut in 0..whole.len() {
        index_file(&checkout).set_len(0).unwrap();
        std::fs::write(checkout.path(".workspaced/index"), &whole[..cut]).unwrap();
        assert!(checkout.reopen().is_err(), "{cut}");
    }

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
