//! Support for the tests of this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{Code, LogicalPath, PolicyOverrides, Profiles, Rules, RunId};
use tempfile::TempDir;

use crate::bare::{FETCHED, make_bare, write_quoted};
use crate::base_files::BaseEntry;
use crate::guard::{Root, open_ambient_folder};
use crate::ignored::{Baseline, RuleSet, SimilarPaths};
use crate::{ImportLimits, ImportObserver, ImportSource, ImportedRun, Tree, Workspace, WorkspaceError, Workspaces};

/// The content of every file outside of a tree. No answer may contain it.
pub(crate) const CANARY: &str = "canary-from-outside";

/// A run's folder in a temporary folder, with `outside/` beside it.
pub(crate) struct TestTree {
    dir: TempDir,
}

/// A base with given tracked paths.
#[derive(Debug, Default)]
pub(crate) struct TestBase {
    /// The tracked paths; `None` for all.
    pub(crate) tracked: Option<BTreeSet<String>>,
    pub(crate) gitignores: Vec<(String, Vec<u8>)>,
}

impl TestTree {
    pub(crate) fn new() -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["repo", "tmp", "outside"] {
            fs::create_dir(fixture.dir.path().join(name)).unwrap();
        }
        fs::write(fixture.outside("secret.txt"), CANARY).unwrap();
        fixture
    }

    /// Creates the folder with these files, each with its text.
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
        let file = self.repo(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    /// Creates a symbolic link at `path` in the tree.
    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        let link = self.repo(path);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, link).unwrap();
    }

    pub(crate) fn root(&self) -> Root {
        Root::of_run(open_ambient_folder(&self.repo("")).unwrap(), None)
    }

    /// Returns the tree, with all files tracked.
    pub(crate) fn tree(&self) -> Tree {
        self.tree_on(TestBase::default())
    }

    pub(crate) fn tree_on(&self, base: TestBase) -> Tree {
        Tree::of_run(open_ambient_folder(&self.repo("")).unwrap(), Arc::new(base), None)
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

    fn tracks_under(&self, path: &str) -> io::Result<bool> {
        let prefix = format!("{path}/");
        Ok(self.tracked.as_ref().is_none_or(|tracked| tracked.iter().any(|path| path.starts_with(&prefix))))
    }

    fn add_similar_paths(&self, similar: &mut SimilarPaths<'_>) -> io::Result<()> {
        for tracked in self.tracked.iter().flatten() {
            let name = tracked.rsplit('/').next().unwrap_or(tracked);
            similar.add_file(name.as_bytes(), || LogicalPath::parse(tracked).ok());
        }
        Ok(())
    }

    fn rules(&self) -> io::Result<Arc<RuleSet>> {
        let folder = |folder: &str| if folder == "." { Vec::new() } else { folder.as_bytes().to_vec() };
        let rules: Vec<_> = self.gitignores.iter().map(|(path, text)| (folder(path), text.clone())).collect();
        Ok(Arc::new(RuleSet::new(&rules)))
    }
}

/// Whether the file system of the tests can read without waiting. In memory (tmpfs), each such read answers that it would block.
pub(crate) fn can_read_without_waiting() -> bool {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"x").unwrap();
    let mut byte = [0];
    let parts = &mut [io::IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(&file, parts, 0, rustix::io::ReadWriteFlags::NOWAIT) != Err(rustix::io::Errno::OPNOTSUPP)
}

pub(crate) fn path(raw: &str) -> LogicalPath {
    LogicalPath::parse(raw).unwrap()
}

/// Returns the rules of the default profile.
pub(crate) fn rules() -> Rules {
    rules_with(&PolicyOverrides::default())
}

pub(crate) fn rules_with(overrides: &PolicyOverrides) -> Rules {
    Profiles::built_in().resolve(overrides).unwrap()
}

/// Returns the code that a call was refused with.
pub(crate) fn code<T: std::fmt::Debug>(answer: Result<T, WorkspaceError>) -> Code {
    match answer {
        Err(WorkspaceError::Refused(refusal)) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// Returns a search for `text` in the whole tree.
pub(crate) fn search_query(text: &str) -> crate::SearchQuery {
    crate::SearchQuery {
        query: text.to_owned(),
        mode: crate::SearchMode::Literal,
        path: path("."),
        include_glob: Vec::new(),
        exclude_glob: Vec::new(),
        file_type: None,
        case_sensitive: true,
        whole_word: false,
        multiline: false,
        max_matches: 100,
        context_lines: 0,
        paths_only: false,
        one_per_file: false,
        after: None,
        max_time: std::time::Duration::from_mins(1),
    }
}

/// Returns a cancel flag that is not set.
pub(crate) fn not_cancelled() -> AtomicBool {
    AtomicBool::new(false)
}

/// A service's workspaces in a temporary folder, with one import root beside them.
pub(crate) struct TestWorkspaces {
    dir: TempDir,
    pub(crate) workspaces: Workspaces,
}

/// An observer that does nothing.
pub(crate) struct NoObserver;

impl ImportObserver for NoObserver {
    fn progress(&self, _: &'static str, _: u64, _: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

impl TestWorkspaces {
    pub(crate) fn new() -> Self {
        Self::with_limits(ImportLimits::default())
    }

    pub(crate) fn with_limits(limits: ImportLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("roots")).unwrap();
        let workspaces = Workspaces::open(&dir.path().join("data"), &[dir.path().join("roots")]).unwrap();
        Self { workspaces: workspaces.with_limits(limits), dir }
    }

    /// Creates a folder under the import root.
    pub(crate) fn root(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join("roots").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Returns a folder outside of the import root.
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

    pub(crate) fn import(&self, run: &str, source: ImportSource<'_>) -> Result<ImportedRun, WorkspaceError> {
        self.workspaces.import(&RunId::parse(run).unwrap(), source, &rules(), &NoObserver)
    }

    /// Imports a run with these files, and puts them into its own layer, where tests change them.
    pub(crate) fn with_files(&self, run: &str, files: &[(&str, &str)]) -> Arc<Workspace> {
        let source = self.root(&format!("source-{run}"));
        for (path, text) in files {
            fs::create_dir_all(source.join(path).parent().unwrap()).unwrap();
            fs::write(source.join(path), text).unwrap();
        }
        let workspace = self.import(run, ImportSource::Directory(source)).unwrap().workspace;
        self.write_all(run);
        workspace
    }

    /// Returns the folder of a run's base.
    pub(crate) fn base(&self, run: &str) -> PathBuf {
        let name = fs::read_to_string(self.run(run).join("base")).unwrap();
        self.data().join("bases").join(name.trim())
    }

    /// Writes the files that a run has started from to a folder of their own, and returns it.
    pub(crate) fn imported(&self, run: &str) -> PathBuf {
        let folder = self.dir.path().join("imported").join(run);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        let files = self.workspaces.base(&RunId::parse(run).unwrap()).unwrap().load().unwrap();
        let at = |path: &[u8]| folder.join(std::ffi::OsStr::from_bytes(path));
        for (path, _) in files.manifest.folders() {
            fs::create_dir_all(at(path)).unwrap();
        }
        for (file, row) in files.manifest.rows() {
            let bytes = files.bytes(file).unwrap();
            if files.is_link(file) {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&bytes), at(&row.path)).unwrap();
                continue;
            }
            fs::write(at(&row.path), bytes).unwrap();
            let mode = files.stat(BaseEntry::File(file)).st_mode & 0o7777;
            fs::set_permissions(at(&row.path), fs::Permissions::from_mode(mode)).unwrap();
        }
        folder
    }

    /// Changes the first place of all bases at which the bytes `old` are.
    pub(crate) fn alter_bases(&self, old: &[u8]) {
        for segment in fs::read_dir(self.data().join("bases/segments")).unwrap() {
            let path = segment.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            if let Some(at) = memchr::memmem::find(&bytes, old) {
                bytes[at] ^= 1;
                return fs::write(path, bytes).unwrap();
            }
        }
        panic!("no base has these bytes");
    }

    /// Imports a run without files, and writes these into its own layer.
    pub(crate) fn with_own_files(&self, run: &str, files: &[(&str, &str)]) -> Arc<Workspace> {
        let workspace = self.import(run, ImportSource::Empty).unwrap().workspace;
        for (path, text) in files {
            let file = self.repo(run).join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        workspace
    }

    /// Hides the files of the base that the run's own layer does not have, as if calls had removed them.
    pub(crate) fn hide_missing(&self, run: &str, workspace: &Workspace) {
        let files = workspace.base().files().unwrap().into_iter().map(|file| file.path);
        let own = self.repo(run);
        let is_missing = |path: &LogicalPath| fs::symlink_metadata(own.join(path.as_str())).is_err();
        workspace.hide_removed(&files.filter(is_missing).collect::<Vec<_>>()).unwrap();
    }

    /// Copies the base's files into the run's own layer, as calls that write them would.
    pub(crate) fn write_all(&self, run: &str) {
        copy_tree(&self.imported(run), &self.repo(run));
    }

    /// Returns a repository with the base commit of `run`. If the run does not come from git, git makes it of the base's files.
    pub(crate) fn base_repository(&self, run: &str) -> PathBuf {
        let (own, made) = (self.base(run).join("git"), self.outside().join(format!("base-of-{run}")));
        if own.join(FETCHED).exists() || made.exists() {
            return if made.exists() { made } else { own };
        }
        make_bare(&made).unwrap();
        let base = self.workspaces.base(&RunId::parse(run).unwrap()).unwrap();
        let files = base.load().unwrap();
        let mut import = git_command(&made);
        import.args(["fast-import", "--quiet", "--done", "--depth=0"]).stdin(Stdio::piped());
        let mut import = import.spawn().unwrap();
        let mut to = import.stdin.take().unwrap();
        writeln!(to, "commit refs/heads/base\ncommitter workspaced <workspaced@localhost> 0 +0000").unwrap();
        write!(to, "data 26\nWhat the run started with\n").unwrap();
        for (index, row) in files.manifest.rows().filter(|(_, row)| !row.is_ignored) {
            write!(to, "M {:o} inline ", row.mode).unwrap();
            write_quoted(&mut to, &row.path).unwrap();
            write!(to, "\ndata {}\n", row.size).unwrap();
            to.write_all(&files.bytes(index).unwrap()).unwrap();
            writeln!(to).unwrap();
        }
        writeln!(to, "done").unwrap();
        drop(to);
        assert!(import.wait().unwrap().success());
        assert_eq!(git(&made, &["rev-parse", "refs/heads/base"]).trim(), base.commit());
        made
    }

    /// Runs git on a run's base.
    pub(crate) fn base_git(&self, run: &str, args: &[&str]) -> String {
        git(&self.base_repository(run), args)
    }

    /// Returns the names in `workspaces/`, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.data().join("workspaces")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

/// Returns a command of git in `dir` without the configuration of any user.
pub(crate) fn git_command(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(dir).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    git.args(["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]);
    git.args(["-c", "core.excludesFile=/dev/null"]);
    git
}

/// Runs git on `tree` and the repository of `run`'s base, with an index of its own.
pub(crate) fn git_on_base(rig: &TestWorkspaces, run: &str, tree: &Path, args: &[&str]) -> String {
    let output = git_command(tree)
        .env("GIT_INDEX_FILE", rig.outside().join("index"))
        .env("GIT_DIR", rig.base_repository(run))
        .env("GIT_WORK_TREE", tree)
        .args(["-c", "core.bare=false"])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs git in `dir` without the configuration of any user.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = git_command(dir).args(args).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_tree(&source, &target);
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source).unwrap(), target).unwrap();
        } else {
            fs::copy(source, target).unwrap();
        }
    }
}

/// Returns every file and link under `dir`: its path, its mode, and its bytes or target.
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
