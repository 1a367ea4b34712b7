//! An ordinary checkout of a repository, changed with plain file operations and read with git.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file or symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Its bytes, and whether it is executable.
    File(Vec<u8>, bool),
    /// Its target.
    Link(String),
}

/// What each path has after a change; `None` if it has no entry.
pub(super) type Changes = Vec<(String, Option<Entry>)>;
pub(super) type Files = BTreeMap<String, Entry>;

/// The checkout, and the untouched folder that it was made from.
pub(super) struct Checkout {
    pub(super) root: PathBuf,
    origin: PathBuf,
    index: PathBuf,
    pub(super) files: Files,
    /// Paths that git never ignores: those of the base's commit, and all that were ever changed.
    tracked: BTreeSet<String>,
    /// Whether git's rules exclude a path.
    excluded: HashMap<String, bool>,
}

/// What the base has. Git ignores `loose.log` and `ign/`, and tracks `kept.log` although a rule excludes it.
const BASE_FILES: [(&str, &str); 26] = [
    ("README.md", "# title\n\nneedle one\nlast\n"),
    ("a.txt", "alpha\nneedle two\nomega\n"),
    ("empty.txt", ""),
    ("run.sh", "#!/bin/sh\necho needle\n"),
    ("crlf.txt", "one\r\nneedle three\r\ntwo\r\n"),
    ("unended.txt", "first\nneedle last"),
    ("blob.bin", "\0needle\u{1}"),
    ("src/main.rs", "fn main() {\n    needle();\n}\n"),
    ("src/lib/mod.rs", "mod x;\nmod y;\n"),
    ("src/lib/deep/x/y.txt", "deep\nneedle\n"),
    ("src/lib/deep/tool.sh", "echo deep\n"),
    ("docs/one.md", "one\n"),
    ("docs/more/two.md", "two\nneedle\n"),
    ("spa ce/file name.txt", "blank\n"),
    ("quote\"d'.txt", "quotes\n"),
    ("-dash.txt", "dash\n"),
    ("\u{e9}.txt", "composed\n"),
    ("de\u{301}/o\u{308}.txt", "decomposed needle\n"),
    ("日本/語.md", "needle 語\n"),
    ("new\nline", "an odd name\n"),
    ("ask/one.txt", "ask one\n"),
    ("ask/sub/two.txt", "ask two\n"),
    ("denied/a.txt", "needle that nobody may read\n"),
    ("kept.log", "kept\n"),
    ("loose.log", "needle that git ignores\n"),
    ("ign/z.txt", "needle that git ignores\n"),
];
const BASE_LINKS: [(&str, &str); 9] = [
    ("link-file", "a.txt"),
    ("link-dir", "src"),
    ("src/up", "../docs/./one.md"),
    ("chain", "link-dir/lib/../main.rs"),
    ("dangling", "nowhere/at.txt"),
    ("loop", "loop"),
    ("out", "../../outside.txt"),
    ("absolute", "/etc/passwd"),
    ("docs/to-ask", "../ask"),
];

impl Checkout {
    /// Makes `origin`, a repository with changes that are not committed, and a checkout of what a run has that is made from it as a
    /// clone or as a plain folder.
    pub(super) fn new(folder: &Path, origin: &Path, is_clone: bool) -> Self {
        fs::create_dir_all(origin).unwrap();
        let root = folder.join("plain");
        let (index, excluded) = (folder.join("index"), HashMap::new());
        let long = format!("{}.txt", "long".repeat(60));
        let write = |root: &Path, path: &str, bytes: &[u8]| {
            put(root, path, &file(bytes, Path::new(path).extension().is_some_and(|extension| extension == "sh")));
        };
        for (path, text) in BASE_FILES.into_iter().chain([(long.as_str(), "long\n"), (".gitignore", "*.log\n/ign/\n")])
        {
            write(origin, path, text.as_bytes());
        }
        for (path, target) in BASE_LINKS {
            put(origin, path, &Entry::Link(target.to_owned()));
        }
        if is_clone {
            git(origin, &["init", "-q"]);
            git(origin, &["add", "-A"]);
            git(origin, &["add", "-f", "kept.log"]);
            git(origin, &["commit", "-qm", "base"]);
            git(folder, &["clone", "-q", origin.to_str().unwrap(), "plain"]);
        } else {
            for (path, entry) in &read_tree(origin) {
                put(&root, path, entry);
            }
            // The rules of the untouched folder, which has no repository.
            git(origin, &["init", "-q"]);
            git(&root, &["init", "-q"]);
            git(&root, &["add", "-A"]);
            git(&root, &["commit", "-qm", "base"]);
        }
        let listed = git(&root, &["ls-files", "-z"]);
        let tracked = listed.split_terminator('\0').map(str::to_owned).collect();
        let files = read_tree(&root);
        Self { root, origin: origin.to_owned(), index, files, tracked, excluded }
    }

    /// Makes the changes if each fits what is there: no file or link is above another one. Returns whether it did.
    pub(super) fn apply(&mut self, changes: &[(String, Option<Entry>)]) -> bool {
        let Some(files) = self.after(changes) else { return false };
        for (path, _) in changes.iter().filter(|(path, _)| self.files.contains_key(path)) {
            remove(&self.root, path);
        }
        for (path, entry) in changes {
            if let Some(entry) = entry {
                put(&self.root, path, entry);
            }
            self.tracked.insert(path.clone());
            if path.ends_with(".gitignore") {
                self.excluded.clear();
            }
        }
        self.files = files;
        true
    }

    /// Returns the files after changes that fit.
    pub(super) fn after(&self, changes: &[(String, Option<Entry>)]) -> Option<Files> {
        let mut files = self.files.clone();
        for (path, _) in changes {
            files.remove(path);
        }
        for (path, entry) in changes {
            files.extend(entry.clone().map(|entry| (path.clone(), entry)));
        }
        let fits = |path: &String| {
            !above(path).any(|above| files.contains_key(above)) && files_under(&files, path).next().is_none()
        };
        changes.iter().all(|(path, entry)| entry.is_none() || fits(path)).then_some(files)
    }

    /// Whether git ignores a path by the present rules or by those of the base.
    pub(super) fn is_ignored(&mut self, path: &str) -> bool {
        if self.tracked.contains(path) {
            return false;
        }
        if let Some(known) = self.excluded.get(path) {
            return *known;
        }
        let excludes = |root: &Path| {
            let args = ["check-ignore", "-q", "--no-index", "--", path];
            match git_command(root, &args).status().unwrap().code() {
                Some(0) => true,
                // A path beyond a symbolic link is no path of the tree.
                Some(1 | 128) => false,
                code => panic!("{path}: {code:?}"),
            }
        };
        let excluded = excludes(&self.root) || excludes(&self.origin);
        self.excluded.insert(path.to_owned(), excluded);
        excluded
    }

    /// Returns git's diff from the base with these options.
    pub(super) fn diff(&mut self, options: &[&str]) -> String {
        let paths: Vec<_> = self.files.keys().cloned().collect();
        let paths: Vec<_> = paths.iter().filter(|path| !self.is_ignored(path)).map(String::as_str).collect();
        let _ = fs::remove_file(&self.index);
        let git = |args: &[&str]| {
            let output = git_command(&self.root, args).env("GIT_INDEX_FILE", &self.index).output().unwrap();
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        git(&["read-tree", "HEAD"]);
        // Not all that the present rules show: those of the base hide files too.
        git(&["add", "-u"]);
        git(&[&["add", "-f", "--"], &paths[..]].concat());
        git(&[&["diff", "--cached", "--no-color", "--no-ext-diff"], options, &["HEAD"]].concat())
    }

    /// Returns the file to which the system resolves a path within the checkout.
    pub(super) fn resolve(&self, path: &str) -> Option<String> {
        let real = fs::canonicalize(self.root.join(path)).ok().filter(|real| real.is_file())?;
        Some(real.strip_prefix(&self.root).ok()?.to_str().unwrap().to_owned())
    }
}

pub(super) fn file(bytes: &[u8], is_executable: bool) -> Entry {
    Entry::File(bytes.to_owned(), is_executable)
}

/// Returns the folders above a path.
pub(super) fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

/// Returns the files and links in a folder and its subfolders.
pub(super) fn files_under<'a>(files: &'a Files, folder: &str) -> impl Iterator<Item = (&'a String, &'a Entry)> {
    let prefix = format!("{folder}/");
    files.range(prefix.clone()..).take_while(move |(path, _)| path.starts_with(&prefix))
}

fn put(root: &Path, path: &str, entry: &Entry) {
    let at = root.join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    match entry {
        Entry::Link(target) => symlink(target, at).unwrap(),
        Entry::File(bytes, is_executable) => {
            fs::write(&at, bytes).unwrap();
            let mode = if *is_executable { 0o755 } else { 0o644 };
            fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

/// Removes a file and the folders that are empty then: a run has folders only as parts of paths.
fn remove(root: &Path, path: &str) {
    let at = root.join(path);
    fs::remove_file(&at).unwrap();
    let mut folders = at.ancestors().skip(1).take_while(|folder| *folder != root);
    while folders.next().is_some_and(|folder| fs::remove_dir(folder).is_ok()) {}
}

/// Returns every file and link under `root` but those of its `.git`.
pub(super) fn read_tree(root: &Path) -> Files {
    let (mut found, mut folders) = (Files::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let at = entry.unwrap().path();
            let path = at.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let stat = fs::symlink_metadata(&at).unwrap();
            if stat.is_symlink() {
                found.insert(path, Entry::Link(fs::read_link(&at).unwrap().to_str().unwrap().to_owned()));
            } else if stat.is_file() {
                found.insert(path, Entry::File(fs::read(&at).unwrap(), stat.permissions().mode() & 0o100 != 0));
            } else if path != ".git" {
                folders.push(at);
            }
        }
    }
    found
}

fn git_command(folder: &Path, args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    git.args(["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]);
    git.args(["-c", "core.excludesFile=/dev/null"]).args(args);
    git
}

fn git(folder: &Path, args: &[&str]) -> String {
    let output = git_command(folder, args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
