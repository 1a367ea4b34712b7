//! Target for archives that are imported into runs.

#![expect(clippy::expect_used, reason = "a target fails by panicking")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};
use std::time::Duration;

use model::{PolicyOverrides, Profiles, Rules, RunId, Sha256};
use tempfile::TempDir;
use workspace::{Base, ImportLimits, ImportObserver, ImportSource, WorkspaceError, Workspaces};

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "archive",
    run,
    dictionary: &[
        b"ustar\0",
        b"ustar  \0",
        b"0000755\0",
        b"0104755\0",
        b"77777777777\0",
        b"../",
        b"/",
        b".git/config",
        b"\0",
        b"\x80\0\0\0",
        b"././@LongLink",
        b"16 path=../../x\n",
        b"30 GNU.sparse.realsize=9999999\n",
        b"\x1f\x8b\x08\0",
        b"0",
        b"1",
        b"2",
        b"5",
        b"x",
        b"g",
        b"L",
        b"K",
        b"S",
    ],
    max_bytes: 1 << 16,
    iterations: 250,
};

struct NoObserver;

impl ImportObserver for NoObserver {
    fn progress(&self, _: &'static str, _: u64, _: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// A data folder to import into.
struct DataFolder {
    home: TempDir,
    workspaces: Workspaces,
    rules: Rules,
}

impl DataFolder {
    fn new() -> Self {
        // A file system in memory, if available, makes syncs cheap.
        let shared = Path::new("/dev/shm");
        let home = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        let home = home.expect("a folder for temporary files");
        let limits = ImportLimits {
            max_entries: 300,
            max_bytes: 1 << 20,
            max_depth: 32,
            max_ratio: 50,
            ..ImportLimits::default()
        };
        let workspaces = Workspaces::open(&home.path().join("data"), &[]).expect("a data folder").with_limits(limits);
        let rules = Profiles::built_in().resolve(&PolicyOverrides::default()).expect("the default policy");
        Self { home, workspaces, rules }
    }

    /// Returns the entries outside the run's folder.
    fn outside(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for folder in
            [self.home.path().to_owned(), self.home.path().join("data"), self.home.path().join("data/workspaces")]
        {
            for entry in fs::read_dir(folder).expect("a folder").flatten() {
                found.insert(entry.path().display().to_string());
            }
        }
        found
    }
}

fn run(input: &[u8]) {
    thread_local! {
        static DATA_FOLDER: RefCell<Option<DataFolder>> = const { RefCell::new(None) };
    }
    DATA_FOLDER.with_borrow_mut(|cached| {
        // Taken out of the cell, so that a folder is not used again after a failed import.
        let folder = cached.take().unwrap_or_else(DataFolder::new);
        import(&folder, input);
        *cached = Some(folder);
    });
}

fn import(folder: &DataFolder, input: &[u8]) {
    let run = RunId::parse("run").expect("an ID");
    let before = folder.outside();
    let mut archive = input;
    let run_folder = folder.home.path().join("data/workspaces/run");
    match folder.workspaces.import(&run, ImportSource::Archive(&mut archive), &folder.rules, &NoObserver) {
        Ok(imported) => {
            let base = folder.workspaces.base(&run).expect("a base");
            assert!(check(&base) <= imported.files, "the reported number of files differs");
            assert_eq!(fs::read_dir(run_folder.join("repo")).expect("a folder").count(), 0, "the run has a copy");
            folder.workspaces.remove(&run).expect("removed");
            folder.workspaces.remove_unused_bases(Duration::ZERO).expect("removed");
        }
        Err(WorkspaceError::Refused(refusal)) => assert!(!refusal.message.contains("/workspaces/"), "{refusal:?}"),
        Err(fault @ (WorkspaceError::Io(_) | WorkspaceError::Cancelled)) => {
            panic!("an invalid archive caused an internal error: {fault:?}")
        }
    }
    assert!(!run_folder.exists(), "a failed import left files");
    assert_eq!(folder.outside(), before, "an import created a file outside");
}

/// Returns the number of files and links that a call can name. Asserts that each can be read, and that no link escapes.
fn check(base: &Base) -> u64 {
    let files = base.files().expect("a list");
    for file in &files {
        let bytes = base.read(&file.path, u64::MAX).expect("its bytes").expect("a file");
        assert_eq!(Sha256::of(&bytes), file.sha256);
        assert!(!file.path.components().any(|name| name.eq_ignore_ascii_case(".git")), "{} was imported", file.path);
        if file.is_link {
            let (target, depth) = (Path::new(OsStr::from_bytes(&bytes)), file.path.components().count() - 1);
            assert!(is_inside(target, depth), "{} links to {}, which is outside", file.path, target.display());
        }
    }
    files.len() as u64
}

/// Returns whether `target`, resolved from a folder at this depth, is inside the root.
fn is_inside(target: &Path, depth: usize) -> bool {
    let mut depth = depth;
    for component in target.components() {
        match component {
            Component::RootDir | Component::Prefix(_) => return false,
            Component::CurDir => {}
            Component::ParentDir if depth == 0 => return false,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
        }
    }
    true
}
