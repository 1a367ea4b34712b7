//! Trees for tests: a run's folder with something outside it that must never be seen.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{Code, LogicalPath, PolicyOverrides, Profiles, Rules};

use crate::guard::{Root, open_ambient_folder};
use crate::ignored::Baseline;
use crate::{Tree, WorkspaceError};

/// What stands in every file outside of a tree: no answer may ever hold it.
pub(crate) const CANARY: &str = "canary-from-outside";

/// A run's folder in a temporary one, with `outside/` beside it.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
}

/// A base that tracks what it is told.
#[derive(Debug, Default)]
pub(crate) struct TestBase {
    /// Every tracked path; `None` where all are.
    pub(crate) tracked: Option<BTreeSet<String>>,
    pub(crate) gitignores: Vec<(String, Vec<u8>)>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["repo", "tmp", "outside"] {
            fs::create_dir(fixture.dir.path().join(name)).unwrap();
        }
        fs::write(fixture.outside("secret.txt"), CANARY).unwrap();
        fixture
    }

    /// With these files, whose text is beside them.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let fixture = Self::new();
        for (path, text) in files {
            fixture.write(path, text);
        }
        fixture
    }

    pub(crate) fn repo(&self, path: &str) -> PathBuf {
        self.dir.path().join("repo").join(path)
    }

    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.dir.path().join("outside").join(path)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let place = self.repo(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, bytes).unwrap();
    }

    /// A symbolic link at `path` in the tree.
    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        let place = self.repo(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink(target, place).unwrap();
    }

    pub(crate) fn root(&self) -> Root {
        Root::of_run(open_ambient_folder(&self.repo("")).unwrap())
    }

    /// The tree, with all of it tracked.
    pub(crate) fn tree(&self) -> Tree {
        self.tree_on(TestBase::default())
    }

    pub(crate) fn tree_on(&self, base: TestBase) -> Tree {
        Tree::of_run(open_ambient_folder(&self.repo("")).unwrap(), Arc::new(base))
    }
}

impl TestBase {
    pub(crate) fn tracking(paths: &[&str]) -> Self {
        Self { tracked: Some(paths.iter().map(|path| (*path).to_owned()).collect()), gitignores: Vec::new() }
    }

    #[must_use]
    pub(crate) fn with_rules(mut self, folder: &str, rules: &str) -> Self {
        self.gitignores.push((folder.to_owned(), rules.as_bytes().to_vec()));
        self
    }
}

impl Baseline for TestBase {
    fn is_loaded(&self) -> bool {
        true
    }

    fn tracks(&self, path: &str) -> io::Result<bool> {
        Ok(self.tracked.as_ref().is_none_or(|tracked| tracked.contains(path)))
    }

    fn tracks_beneath(&self, path: &str) -> io::Result<bool> {
        let beneath = format!("{path}/");
        Ok(self.tracked.as_ref().is_none_or(|tracked| tracked.iter().any(|path| path.starts_with(&beneath))))
    }

    fn gitignores(&self) -> io::Result<Vec<(String, Vec<u8>)>> {
        Ok(self.gitignores.clone())
    }
}

pub(crate) fn path(raw: &str) -> LogicalPath {
    LogicalPath::parse(raw).unwrap()
}

/// The default policy.
pub(crate) fn rules() -> Rules {
    rules_with(&PolicyOverrides::default())
}

pub(crate) fn rules_with(overrides: &PolicyOverrides) -> Rules {
    Profiles::built_in().resolve(overrides).unwrap()
}

/// The code that a call was refused with.
pub(crate) fn code<T: std::fmt::Debug>(answer: Result<T, WorkspaceError>) -> Code {
    match answer {
        Err(WorkspaceError::Refused(refusal)) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// Never set.
pub(crate) fn going_on() -> AtomicBool {
    AtomicBool::new(false)
}
