//! Archives that runs are made from. They come to a disk, a folder for each process.

#![expect(clippy::expect_used, reason = "a target fails by panicking")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};

use model::{PolicyOverrides, Profiles, Rules, RunId};
use tempfile::TempDir;
use workspace::{ImportError, ImportLimits, ImportObserver, ImportSource, Workspaces};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "archive",
    run,
    words: &[
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
    tries: 250,
};

struct Nobody;

impl ImportObserver for Nobody {
    fn progress(&self, _: &'static str, _: u64, _: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

struct Ground {
    home: TempDir,
    workspaces: Workspaces,
    rules: Rules,
}

impl Ground {
    fn new() -> Self {
        // Memory where there is a file system in it: what is synced costs nothing there.
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

    /// Everything but what lies in the run's folder.
    fn around(&self) -> BTreeSet<String> {
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
        static GROUND: RefCell<Option<Ground>> = const { RefCell::new(None) };
    }
    GROUND.with_borrow_mut(|ground| {
        // Taken out, so that one that a fault has spoiled is not used again.
        let used = ground.take().unwrap_or_else(Ground::new);
        import(&used, input);
        *ground = Some(used);
    });
}

fn import(ground: &Ground, input: &[u8]) {
    let run = RunId::parse("run").expect("an ID");
    let before = ground.around();
    let mut archive = input;
    let place = ground.home.path().join("data/workspaces/run");
    match ground.workspaces.import(&run, ImportSource::Archive(&mut archive), &ground.rules, &Nobody) {
        Ok(imported) => {
            let repo = place.join("repo");
            let files = check(&repo, &repo);
            assert_eq!(files, imported.files, "it says how much came in");
            ground.workspaces.remove(&run).expect("removed");
        }
        Err(ImportError::Refused(refusal)) => assert!(!refusal.message.contains("/workspaces/"), "{refusal:?}"),
        Err(fault @ (ImportError::Io(_) | ImportError::Cancelled)) => {
            panic!("the archive's fault became ours: {fault:?}")
        }
    }
    assert!(!place.exists(), "half of it is left");
    assert_eq!(ground.around(), before, "something was made outside");
}

/// How many files and links lie in `folder`, none of which leads out or runs as somebody else.
fn check(root: &Path, folder: &Path) -> u64 {
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (place, found) = (entry.path(), entry.metadata().expect("what it is"));
        assert!(
            found.permissions().mode() & 0o7000 == 0 || found.is_symlink(),
            "{} has bits that are not its own",
            place.display()
        );
        assert!(!entry.file_name().eq_ignore_ascii_case(".git"), "{} came in", place.display());
        if found.is_dir() {
            files += check(root, &place);
            continue;
        }
        files += 1;
        if found.is_symlink() {
            let target = fs::read_link(&place).expect("a link");
            let depth = folder.strip_prefix(root).expect("beneath").components().count();
            assert!(stays(&target, depth), "{} leads out to {}", place.display(), target.display());
        } else {
            assert!(found.is_file(), "{} is no file", place.display());
        }
    }
    files
}

/// Whether `target`, read from a folder so many names down, stays beneath the root by its names.
fn stays(target: &Path, depth: usize) -> bool {
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
