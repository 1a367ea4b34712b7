//! What tests of this crate share.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use model::{PolicyOverrides, Profiles, Rules, RunId};
use tempfile::TempDir;

use crate::{ImportError, ImportLimits, ImportObserver, ImportSource, ImportedRun, Workspace, Workspaces};

/// Workspaces in a folder of their own, with one import root beside them.
pub(crate) struct Rig {
    dir: TempDir,
    pub(crate) workspaces: Workspaces,
}

/// A watch that does not listen.
pub(crate) struct Quiet;

impl ImportObserver for Quiet {
    fn progress(&self, _: &'static str, _: u64, _: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with_limits(ImportLimits::default())
    }

    pub(crate) fn with_limits(limits: ImportLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("roots")).unwrap();
        let workspaces = Workspaces::open(&dir.path().join("data"), &[dir.path().join("roots")]).unwrap();
        Self { workspaces: workspaces.with_limits(limits), dir }
    }

    /// A new folder under the import root.
    pub(crate) fn root(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join("roots").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A place outside of the import root.
    pub(crate) fn outside(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn run(&self, run: &str) -> PathBuf {
        self.data().join("workspaces").join(run)
    }

    pub(crate) fn repo(&self, run: &str) -> PathBuf {
        self.run(run).join("repo")
    }

    pub(crate) fn import(&self, run: &str, source: ImportSource<'_>) -> Result<ImportedRun, ImportError> {
        self.workspaces.import(&RunId::parse(run).unwrap(), source, &rules(), &Quiet)
    }

    /// A run with these files.
    pub(crate) fn with_files(&self, run: &str, files: &[(&str, &str)]) -> Arc<Workspace> {
        let source = self.root(&format!("source-{run}"));
        for (path, text) in files {
            fs::create_dir_all(source.join(path).parent().unwrap()).unwrap();
            fs::write(source.join(path), text).unwrap();
        }
        self.import(run, ImportSource::Directory(source)).unwrap().workspace
    }

    /// What git says of a run's base.
    pub(crate) fn base_git(&self, run: &str, args: &[&str]) -> String {
        git(&self.run(run).join("base.git"), args)
    }

    /// Everything beside each other in `workspaces/`.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.data().join("workspaces")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

/// Runs git in `dir` as a person would, with nobody's configuration.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"])
        .args(["-c", "commit.gpgsign=false", "-c", "core.excludesFile=/dev/null"])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every file and link below `dir`: its path, its mode, its bytes or its target.
pub(crate) fn tree_of(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = if meta.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path.strip_prefix(dir).unwrap().to_owned(), (meta.permissions().mode() & 0o7777, bytes));
        }
    }
    found
}

/// The rules of the default profile.
pub(crate) fn rules() -> Rules {
    Profiles::built_in().resolve(&PolicyOverrides::default()).unwrap()
}
