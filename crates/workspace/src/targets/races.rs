//! Races: a folder is repeatedly exchanged with a link to a path outside the tree, while tools read and write.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags};

use crate::guard::{GuardError, RemovedPaths};
use crate::query::list::ListQuery;
use crate::targets::TargetSpec;
use crate::test_support::{CANARY, TestTree, not_cancelled, path, rules, search_query};
use crate::{SearchMode, SearchQuery};
use crate::{Tree, WorkspaceError};

/// Creates a folder and a link that exchange the names `folder` and `link`.
fn fixture() -> TestTree {
    let fixture = TestTree::with(&[("folder/secret.txt", "inside\n"), ("folder/deep/er/secret.txt", "inside\n")]);
    fs::create_dir_all(fixture.outside("deep/er")).unwrap();
    fs::write(fixture.outside("deep/er/secret.txt"), CANARY).unwrap();
    fixture.link("link", "../outside");
    fixture
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `look` `rounds` times during the exchange. `look` returns whether it opened the folder.
fn race(fixture: &TestTree, rounds: usize, mut look: impl FnMut(&Tree, usize) -> bool) {
    let tree = fixture.tree();
    let stop = AtomicBool::new(false);
    let (folder, link) = (fixture.repo("folder"), fixture.repo("link"));
    thread::scope(|scope| {
        let exchange = scope.spawn(|| {
            let mut exchanged = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                exchanged += 1;
            }
            exchanged
        });
        // A test that fails here must not leave the other thread running.
        let at_the_end = StopOnDrop(&stop);
        let got_in = (0..rounds).filter(|round| look(&tree, *round)).count();
        drop(at_the_end);
        assert!(exchange.join().unwrap() > 100, "the exchange never went on");
        assert!(got_in > 0 && got_in < rounds, "{got_in} of {rounds} got in: there was no race");
    });
}

#[test]
fn no_read_gets_out() {
    let fixture = fixture();
    let rules = rules();
    let paths =
        ["folder/secret.txt", "link/secret.txt", "folder/deep/er/secret.txt", "link/deep/er/secret.txt"].map(path);
    let spec = TargetSpec { is_text: true, max_bytes: 1000, max_held_bytes: 1000, may_be_link: &|_| false };
    race(&fixture, 100_000, |tree, round| {
        let path = &paths[round % paths.len()];
        let read = match round % 3 {
            0 => tree.read(&rules, path, 1000).map(|read| read.bytes),
            1 => tree.try_read(&rules, path, 1000).unwrap_or(Err(WorkspaceError::Cancelled)).map(|read| read.bytes),
            _ => {
                let target = tree.target(&rules, path, &RemovedPaths::new(), &spec);
                target.map(|target| target.before.expect("the file is always there").1)
            }
        };
        match read {
            Ok(bytes) => {
                assert_eq!(bytes, b"inside\n");
                true
            }
            Err(WorkspaceError::Io(error)) => panic!("{error}"),
            Err(WorkspaceError::Refused(_) | WorkspaceError::Cancelled) => false,
        }
    });
}

#[test]
fn no_listing_gets_out() {
    let fixture = fixture();
    fs::write(fixture.outside("only-outside"), CANARY).unwrap();
    let rules = rules();
    let queries = [".", "folder", "link", "folder/deep"].map(|raw| ListQuery {
        path: path(raw),
        max_depth: 5,
        include_hidden: true,
        include_ignored: true,
        max_entries: 100,
        after: None,
        counts_all: false,
    });
    race(&fixture, 5_000, |tree, round| match tree.list(&rules, &queries[round % queries.len()], &not_cancelled()) {
        Ok(listing) => {
            assert!(!listing.entries.iter().any(|entry| entry.path.contains("outside")), "{listing:?}");
            listing.entries.iter().any(|entry| entry.path.ends_with("/secret.txt"))
        }
        Err(WorkspaceError::Refused(_)) => false,
        Err(error) => panic!("{error:?}"),
    });
}

#[test]
fn no_search_gets_out() {
    let fixture = fixture();
    let rules = rules();
    let query = |raw: &str, text: &str| SearchQuery { mode: SearchMode::Regex, path: path(raw), ..search_query(text) };
    let text = format!("{CANARY}|inside");
    let queries = [query(".", &text), query("folder", &text), query("link", &text), query("link/deep", &text)];
    race(&fixture, 3_000, |tree, round| match tree.search(&rules, &queries[round % queries.len()], &not_cancelled()) {
        Ok(report) => {
            assert!(report.matches.iter().all(|found| found.snippet == "inside"), "{report:?}");
            !report.matches.is_empty()
        }
        Err(WorkspaceError::Refused(_)) => false,
        Err(error) => panic!("{error:?}"),
    });
}

#[test]
fn no_folder_is_created_outside() {
    let fixture = fixture();
    race(&fixture, 10_000, |tree, round| {
        let raw = format!("{}/new{}/deeper/file", ["folder", "link"][round % 2], round % 50);
        match tree.root.create_parent(&path(&raw)) {
            Ok((parent, _)) => {
                let file = rustix::fs::statat(&parent.dir, "file", rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
                let inside = matches!(file, Err(rustix::io::Errno::NOENT));
                rustix::fs::unlinkat(&parent.dir, "nothing", rustix::fs::AtFlags::empty()).unwrap_err();
                inside
            }
            Err(GuardError::Io(error)) => panic!("{error}"),
            Err(_) => false,
        }
    });
    let mut names: Vec<_> =
        fs::read_dir(fixture.outside("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["deep", "secret.txt"]);
}

/// Reads a file under its own name and through a link, while it is replaced as mutations do it: in exchange for another file
/// outside the tree, which is then removed.
#[test]
fn a_file_that_is_being_replaced_is_always_read() {
    const READERS: usize = 8;
    const READS: usize = 100_000;
    let fixture = TestTree::with(&[("folder/file.txt", "one\n")]);
    fixture.link("link", "folder/file.txt");
    let (rules, tree) = (rules(), fixture.tree());
    let paths = ["folder/file.txt", "link"].map(path);
    let (spare, file) = (fixture.outside("spare.txt"), fixture.repo("folder/file.txt"));
    let stop = AtomicBool::new(false);
    let replaced = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut replaced = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                fs::write(&spare, if replaced.is_multiple_of(2) { "two\n" } else { "one\n" }).unwrap();
                rustix::fs::renameat_with(CWD, &spare, CWD, &file, RenameFlags::EXCHANGE).unwrap();
                fs::remove_file(&spare).unwrap();
                replaced += 1;
            }
            replaced
        });
        let at_the_end = StopOnDrop(&stop);
        let (rules, tree, paths) = (&rules, &tree, &paths);
        let readers = (0..READERS).map(|reader| {
            scope.spawn(move || {
                for round in 0..READS / READERS {
                    let path = &paths[round % 2];
                    let read = match (reader + round) % 3 {
                        0 => tree.try_read(rules, path, 1000).unwrap_or_else(|| tree.read(rules, path, 1000)),
                        _ => tree.read(rules, path, 1000),
                    };
                    let read = read.unwrap_or_else(|error| panic!("read {round} of `{path}`: {error:?}"));
                    assert!(matches!(&*read.bytes, b"one\n" | b"two\n"), "{:?}", read.bytes);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        let failed = readers.into_iter().filter_map(|reader| reader.join().err()).count();
        drop(at_the_end);
        assert_eq!(failed, 0, "readers that failed");
        writer.join().unwrap()
    });
    assert!(replaced > 100, "replaced {replaced} times");
}
