use std::fs;
use std::io;
use std::path::Path;

use model::{FileKind, LogicalPath, RunId, Sha256};

use super::{ContentLocation, Snapshot, SnapshotFile, StoredContents};
use crate::test_support::{TestWorkspaces, not_cancelled, path, rules, tree_of};
use crate::{LargeContent, ListQuery, RebuildReport};

const SMALL: &str = "from the ledger\n";
const LARGE: &str = "from the store\n";

/// A ledger that has [`SMALL`], and for any other hash `forged`; and a store that has [`LARGE`].
struct Contents {
    forged: Option<&'static str>,
}

impl StoredContents for Contents {
    fn content(&self, _seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        let found = if *sha256 == Sha256::of(SMALL.as_bytes()) { Some(SMALL) } else { self.forged };
        Ok(found.map(|text| text.as_bytes().to_vec()))
    }

    fn large(&self, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        let is_stored = *sha256 == Sha256::of(LARGE.as_bytes());
        Ok(is_stored.then(|| (LARGE.len() as u64, Box::new(LARGE.as_bytes()) as Box<dyn io::Read + Send>)))
    }
}

/// Returns the files of a run that has written these files, each with its text and its mode.
fn snapshot(rig: &TestWorkspaces, written: &[(&str, &str, u32)]) -> Snapshot {
    let base = rig.workspaces.base(&RunId::parse("r").unwrap()).unwrap();
    let mut snapshot = Snapshot::of_base(&base).unwrap();
    for (name, text, mode) in written {
        let location = ContentLocation::Ledger { seq: 2, kind: FileKind::TextSource };
        let is_link = *mode == 0o120_000;
        let file = SnapshotFile { sha256: Sha256::of(text.as_bytes()), mode: mode & 0o777, is_link, location };
        snapshot.written.insert(path(name), Some(file));
    }
    snapshot
}

fn rebuild(rig: &TestWorkspaces, snapshot: &Snapshot, contents: &Contents, to: &Path) -> RebuildReport {
    let base = rig.workspaces.base(&RunId::parse("r").unwrap()).unwrap();
    base.rebuild(snapshot, to, contents).unwrap()
}

#[test]
fn a_rebuilt_tree_is_the_tree_of_the_snapshot() {
    let rig = TestWorkspaces::new();
    rig.with_files("r", &[("a/kept", "kept\n"), ("a/changed", "old\n"), ("deleted", "x")]);
    let written = [("a/changed", SMALL, 0o644), ("run.sh", LARGE, 0o755), ("b/link", SMALL, 0o120_000)];
    let mut snapshot = snapshot(&rig, &written);
    snapshot.written.insert(path("deleted"), None);
    let to = rig.outside().join("rebuilt");
    let report = rebuild(&rig, &snapshot, &Contents { forged: None }, &to);
    assert_eq!((report.files, report.links), (3, 1), "{report:?}");
    assert!(report.wrong.is_empty() && report.not_kept.is_empty() && report.lost.is_empty(), "{report:?}");
    let expected = [
        ("a/changed", (0o644, SMALL)),
        ("a/kept", (0o644, "kept\n")),
        ("b/link", (0o777, SMALL)),
        ("run.sh", (0o755, LARGE)),
    ];
    let expected = expected.map(|(name, (mode, text))| (name.into(), (mode, text.as_bytes().to_vec())));
    assert_eq!(tree_of(&to), expected.into());
}

#[test]
fn a_rebuild_reports_each_file_that_it_cannot_write_and_writes_all_others() {
    let rig = TestWorkspaces::new();
    rig.with_files("r", &[("a", "first\n"), ("b", "second\n"), ("c", "third\n")]);
    let snapshot = snapshot(&rig, &[("d", "stored nowhere\n", 0o644), ("e", SMALL, 0o644)]);
    rig.alter_bases(b"second\n");
    let to = rig.outside().join("rebuilt");
    let report = rebuild(&rig, &snapshot, &Contents { forged: None }, &to);
    assert_eq!((report.files, report.lost, report.not_kept), (3, vec![path("b")], vec![path("d")]));
    assert_eq!(tree_of(&to).keys().map(|name| name.to_str().unwrap()).collect::<Vec<_>>(), ["a", "c", "e"]);

    let forged = rig.outside().join("forged");
    let report = rebuild(&rig, &snapshot, &Contents { forged: Some("forged\n") }, &forged);
    assert_eq!((report.files, report.lost, report.wrong), (3, vec![path("b")], vec![path("d")]));
    assert_eq!(fs::read_to_string(forged.join("d")).unwrap(), "forged\n");
}

#[test]
fn a_snapshot_has_the_files_of_its_base_but_for_what_was_written() {
    let rig = TestWorkspaces::new();
    rig.with_files("r", &[("a/x", "x"), ("a/y", "y"), ("a.b", "z"), ("c", "z")]);
    let mut snapshot = snapshot(&rig, &[("a/x", SMALL, 0o644), ("a/z/w", SMALL, 0o644), ("d/e", SMALL, 0o644)]);
    snapshot.written.insert(path("c"), None);
    let names = |files: std::collections::BTreeMap<LogicalPath, SnapshotFile>| {
        files.into_keys().map(|path| path.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(snapshot.files()), ["a.b", "a/x", "a/y", "a/z/w", "d/e"]);
    assert_eq!(snapshot.entries_in(&path("a")).into_keys().collect::<Vec<_>>(), ["x", "y", "z"]);
    assert_eq!(snapshot.changed().count(), 3);
    assert_eq!(snapshot.removed().collect::<Vec<_>>(), [&path("c")]);
    for (folder, has_files) in [(".", true), ("a", true), ("a/z", true), ("d", true), ("c", false), ("b", false)] {
        assert_eq!(snapshot.has_files_under(&path(folder)), has_files, "{folder}");
    }
    for removed in ["a/x", "a/y", "a/z/w"] {
        snapshot.written.insert(path(removed), None);
    }
    assert!(!snapshot.has_files_under(&path("a")));
    assert_eq!(snapshot.get(&path("a.b")).unwrap().sha256, Sha256::of(b"z"));
    assert_eq!(snapshot.get(&path("a/x")), None);
}

#[test]
fn a_snapshot_is_listed_as_the_tree_that_has_its_files() {
    let rig = TestWorkspaces::new();
    let base = [
        (".gitignore", "*.log\nout/\n"),
        ("a/changed.rs", "old\n"),
        ("a/kept", "#!/bin/sh\n"),
        ("a/removed/x.rs", "x"),
        ("a-b.rs", "text\n"),
        ("node_modules/m/index.js", ""),
        (".env", "K=1\n"),
        (".github/ci.yml", ""),
        ("deep/er/and/deeper.md", "text\n"),
        ("replaced", "a file\n"),
    ];
    let workspace = rig.with_files("r", &base);
    let written = ["a/changed.rs", "a/new/z.rs", "a/new.rs", "b/out/kept.rs", "replaced/by/folder.rs"];
    let mut snapshot = snapshot(&rig, &written.map(|name| (name, SMALL, 0o644)));
    for name in ["a/removed/x.rs", "replaced"] {
        snapshot.written.insert(path(name), None);
        fs::remove_file(rig.repo("r").join(name)).unwrap();
    }
    for name in written {
        let file = rig.repo("r").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, SMALL).unwrap();
    }
    fs::remove_dir(rig.repo("r").join("a/removed")).unwrap();
    rig.hide_missing("r", &workspace);
    workspace.add_written(&snapshot.written.keys().cloned().collect::<Vec<_>>());
    let mut shown = 0;
    for number in 0..64_u32 {
        let flag = |bit: u32| number & (1 << bit) != 0;
        let query = ListQuery {
            path: path(if flag(0) { "." } else { "a" }),
            max_depth: if flag(1) { 1 } else { 4 },
            include_hidden: flag(2),
            include_ignored: flag(3),
            max_entries: 3,
            after: flag(4).then(|| "a/changed.rs".to_owned()),
            counts_all: flag(5),
        };
        let (rules, cancel) = (rules(), not_cancelled());
        let contents = Contents { forged: None };
        let then = workspace.list_snapshot(&rules, &snapshot, &query, &contents, &cancel).unwrap();
        let now = workspace.tree().list(&rules, &query, &cancel).unwrap();
        assert_eq!(format!("{then:?}"), format!("{now:?}"), "{query:?}");
        shown += then.entries.len();
    }
    assert!(shown > 100, "{shown}");
}
