//! The run's changes as one commit on its base: in a git bundle that can be fetched and turned into a pull request, as a patch, or as
//! a mail for `git am`.

use std::collections::HashSet;
use std::io::{self, BufWriter, Read, Write};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{LogicalPath, Refusal, Rules};

use crate::base_files::BaseFiles;
use crate::base_files::manifest::{FileIndex, MODE_LINK};
use crate::diff::DiffCandidate;
use crate::dir::fresh_name;
use crate::error::check_cancelled;
use crate::git::{Bounds, Git, hex};
use crate::import::{FETCHED, borrow, make_bare, write_quoted};
use crate::opened_file::{is_readable, is_secret};
use crate::{Workspace, WorkspaceError};

/// The time limit of each call of git.
const TIME: Duration = Duration::from_mins(10);
/// The sizes of files that may be private keys, in bytes.
const KEY_FILE_BYTES: RangeInclusive<u64> = 48..=64 << 10;
/// The size of the buffer for what git reads.
const CHUNK_BYTES: usize = 256 * 1024;

/// The commit of a bundle or of a mail.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The branch that a bundle contains, without `refs/heads/`.
    pub branch: String,
    /// The author's name.
    pub author_name: String,
    /// The author's address.
    pub author_email: String,
    /// The time of the commit, in seconds since the epoch.
    pub seconds: i64,
    /// The commit message.
    pub message: String,
}

impl Bundle {
    /// The commit of a diff, which shows nothing of it.
    fn unnamed() -> Self {
        Self {
            branch: "patch".to_owned(),
            author_name: "workspaced".to_owned(),
            author_email: String::new(),
            seconds: 0,
            message: "patch".to_owned(),
        }
    }

    /// Checks that git accepts the branch name.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an invalid branch name.
    pub fn check(&self) -> Result<(), Refusal> {
        check_branch(&self.branch)
    }
}

impl Workspace {
    /// Prepares a git bundle whose branch is one commit on the run's base. Changes that policy hides and files that git ignores are
    /// left out. Nothing of the tree is read later.
    ///
    /// To fetch the bundle of a git run, the base commit is needed. The bundle of any other run contains its base; or, if policy
    /// hides a part of the base or the run has changed ignored files, a commit without the hidden files and with these.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an invalid branch name; if the disk or git fails; `Cancelled`.
    pub fn prepare_bundle(
        &self,
        rules: &Rules,
        bundle: &Bundle,
        cancel: &AtomicBool,
    ) -> Result<PreparedBundle, WorkspaceError> {
        bundle.check()?;
        let ScratchCommit { scratch, commit, is_fetched, .. } = self.commit(rules, bundle, cancel)?;
        let branch = format!("refs/heads/{}", bundle.branch);
        let base = format!("^{}", self.base_commit());
        // A clone of the bundle then checks the branch out.
        std::fs::write(scratch.git.dir().join("HEAD"), format!("ref: {branch}\n"))?;
        let mut refs = vec!["HEAD".to_owned(), branch];
        refs.extend(is_fetched.then_some(base));
        Ok(PreparedBundle { scratch, commit, refs })
    }

    /// Prepares the difference between the base and the tree as git writes it, which `git apply` accepts on the base: with the
    /// contents of binary files, renames and modes. Changes that policy hides and files that git ignores are left out. Nothing of
    /// the tree is read later.
    ///
    /// # Errors
    ///
    /// If the disk or git fails; `Cancelled`.
    pub fn prepare_patch(
        &self,
        rules: &Rules,
        format: &PatchFormat,
        cancel: &AtomicBool,
    ) -> Result<PreparedPatch, WorkspaceError> {
        let (is_mail, commit) = match format {
            PatchFormat::Diff => (false, Bundle::unnamed()),
            PatchFormat::Mail(commit) => (true, commit.clone()),
        };
        let ScratchCommit { scratch, commit, is_empty, .. } = self.commit(rules, &commit, cancel)?;
        Ok(PreparedPatch { scratch, commit, is_mail, is_empty })
    }

    /// Makes the commit in a temporary repository.
    fn commit(&self, rules: &Rules, bundle: &Bundle, cancel: &AtomicBool) -> Result<ScratchCommit, WorkspaceError> {
        let changes = self.changes(rules, cancel)?;
        let fetched = self.base().git().dir().join(FETCHED).exists();
        // A fetched base is known to the caller. Any other must not reveal what policy hides.
        let shown = if fetched { None } else { self.shown_base(rules, cancel)? };
        let scratch = Scratch::new(self)?;
        let stop = || cancel.load(Ordering::Relaxed);
        let bounds = Bounds { time: TIME, stop: &stop, too_much: &|| false };
        let args = ["fast-import", "--quiet", "--done", "--depth=0"];
        let commit = scratch.git.run(&args, &bounds, |stdin, mut stdout| {
            let mut to = BufWriter::with_capacity(CHUNK_BYTES, stdin);
            let from = match &shown {
                None => self.base_commit().to_owned(),
                Some(files) => self.write_visible_base(bundle, files, &mut to)?,
            };
            self.write_commit(rules, bundle, &from, &changes, &mut to)?;
            to.flush()?;
            drop(to);
            let mut output = String::new();
            stdout.by_ref().take(256).read_to_string(&mut output)?;
            Ok(output.trim().to_owned())
        })?;
        Ok(ScratchCommit { scratch, commit, is_fetched: fetched, is_empty: changes.is_empty() })
    }

    /// Returns the files of the base that the caller may read; `None` if these are exactly the files of the base commit.
    fn shown_base(&self, rules: &Rules, cancel: &AtomicBool) -> Result<Option<Vec<PathOfBase>>, WorkspaceError> {
        let loaded = self.base().load()?;
        let manifest = &loaded.manifest;
        let keys = base_keys(rules, &loaded, cancel)?;
        let (mut shown, mut is_all, mut has_ignored) = (Vec::with_capacity(manifest.len()), true, false);
        for (folder, files) in manifest.folders() {
            for file in files.map(FileIndex) {
                let path = manifest.path(folder, file);
                // An ignored file that the run has not changed yet stays ignored.
                let is_ignored = manifest.is_ignored(file);
                if is_ignored && !self.tree().has_written(&path) {
                    continue;
                }
                let is_shown = !keys.contains(&file.0)
                    && manifest.logical_path(folder, file).is_some_and(|path| is_readable(rules, &path, false));
                if is_shown {
                    has_ignored |= is_ignored;
                    shown.push((file, path));
                } else {
                    is_all = false;
                }
            }
        }
        // The base commit has no ignored files.
        Ok((!is_all || has_ignored).then_some(shown))
    }

    fn write_commit(
        &self,
        rules: &Rules,
        bundle: &Bundle,
        from: &str,
        changes: &[DiffCandidate],
        to: &mut impl Write,
    ) -> io::Result<()> {
        write_commit_header(bundle, ":1", &bundle.message, to)?;
        writeln!(to, "from {from}")?;
        // Removals first: a folder may replace a file.
        for removed in changes.iter().filter(|change| change.now.is_none()) {
            write!(to, "D ")?;
            write_quoted(to, removed.path.as_str().as_bytes())?;
            writeln!(to)?;
        }
        for change in changes {
            let Some(now) = &change.now else { continue };
            let Some(content) = self.content_of(rules, &change.path, now.is_link())? else { continue };
            write!(to, "M {:o} inline ", now.git_mode())?;
            write_quoted(to, change.path.as_str().as_bytes())?;
            write!(to, "\ndata {}\n", content.size)?;
            let copied = io::copy(&mut content.from.take(content.size), to)?;
            if copied < content.size {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was bundled"));
            }
            writeln!(to)?;
        }
        to.write_all(b"\nget-mark :1\ndone\n")
    }

    /// Writes a commit of the base's visible files and returns its mark.
    fn write_visible_base(&self, bundle: &Bundle, files: &[PathOfBase], to: &mut impl Write) -> io::Result<String> {
        const MARK: &str = ":2";
        let loaded = self.base().load()?;
        let manifest = &loaded.manifest;
        write_commit_header(bundle, MARK, "Initial files of the run, without hidden files", to)?;
        for (file, path) in files {
            // The repository has what the base commit has.
            let is_ignored = manifest.is_ignored(*file);
            let object = if is_ignored { "inline".to_owned() } else { hex(manifest.oid(*file)) };
            write!(to, "M {:o} {object} ", manifest.mode(*file))?;
            write_quoted(to, path)?;
            writeln!(to)?;
            if is_ignored {
                let bytes = loaded.bytes(*file)?;
                writeln!(to, "data {}", bytes.len())?;
                to.write_all(&bytes)?;
                writeln!(to)?;
            }
        }
        writeln!(to)?;
        Ok(MARK.to_owned())
    }

    /// Returns the content of the file or link at `path`; `None` if it was removed meanwhile, or is a secret.
    fn content_of(&self, rules: &Rules, path: &LogicalPath, is_link: bool) -> io::Result<Option<BundleContent>> {
        let root = &self.tree().root;
        if is_link {
            let target = root.find_link(path)?.map(|link| link.target);
            return Ok(target
                .map(|target| BundleContent { size: target.len() as u64, from: Box::new(io::Cursor::new(target)) }));
        }
        match root.open_unlinked(path) {
            Ok(opened)
                if opened.file_type().is_file() && !opened.is_hard_linked() && !is_secret(rules, path, &opened)? =>
            {
                Ok(Some(BundleContent { size: opened.size(), from: Box::new(opened.file.into_reader()?) }))
            }
            Ok(_) => Ok(None),
            Err(error) => error.unless_disk().map(|()| None),
        }
    }
}

/// Returns the files of the base that are secrets by their content.
fn base_keys(rules: &Rules, loaded: &BaseFiles, cancel: &AtomicBool) -> Result<HashSet<u32>, WorkspaceError> {
    let manifest = &loaded.manifest;
    let files = manifest.folders().flat_map(|(folder, files)| files.map(move |file| (folder, FileIndex(file))));
    let may_be_key = |file| KEY_FILE_BYTES.contains(&manifest.size(file)) && manifest.mode(file) != MODE_LINK;
    let files: Vec<_> = files
        .filter(|(_, file)| may_be_key(*file))
        .filter_map(|(folder, file)| Some((manifest.logical_path(folder, file)?, file)))
        .collect();
    if files.is_empty() {
        return Ok(HashSet::new());
    }
    let mut keys = HashSet::new();
    for (path, file) in &files {
        check_cancelled(cancel)?;
        let head = loaded.head(*file)?;
        keys.extend(rules.is_secret_content(path, &head).then_some(file.0));
    }
    Ok(keys)
}

/// A bundle that is ready to be written. Dropping it removes its repository.
pub struct PreparedBundle {
    scratch: Scratch,
    commit: String,
    /// What the bundle contains, and what it leaves out.
    refs: Vec<String>,
}

impl PreparedBundle {
    /// Writes the bundle to `out`, and returns its commit.
    ///
    /// # Errors
    ///
    /// If the disk, git or `out` fails; `Cancelled`.
    pub fn write(&self, out: &mut dyn Write, cancel: &AtomicBool) -> Result<&str, WorkspaceError> {
        let stop = || cancel.load(Ordering::Relaxed);
        let bounds = Bounds { time: TIME, stop: &stop, too_much: &|| false };
        let mut args = vec!["bundle", "create", "--quiet", "-"];
        args.extend(self.refs.iter().map(String::as_str));
        self.scratch.git.run(&args, &bounds, |stdin, mut stdout| {
            drop(stdin);
            io::copy(&mut stdout, out)
        })?;
        Ok(&self.commit)
    }
}

/// The format of a patch.
#[derive(Clone, Debug)]
pub enum PatchFormat {
    /// A diff.
    Diff,
    /// A mail for `git am`, with the author, the time and the message of the commit.
    Mail(Bundle),
}

/// A patch that is ready to be written. Dropping it removes its repository.
pub struct PreparedPatch {
    scratch: Scratch,
    commit: String,
    is_mail: bool,
    is_empty: bool,
}

impl PreparedPatch {
    /// Writes the patch to `out`. It is empty if nothing has changed.
    ///
    /// # Errors
    ///
    /// If the disk, git or `out` fails; `Cancelled`.
    pub fn write(&self, out: &mut dyn Write, cancel: &AtomicBool) -> Result<(), WorkspaceError> {
        if self.is_empty {
            return Ok(());
        }
        let stop = || cancel.load(Ordering::Relaxed);
        let bounds = Bounds { time: TIME, stop: &stop, too_much: &|| false };
        let parent = format!("{}^", self.commit);
        let range = format!("{parent}..{}", self.commit);
        let form = ["--binary", "--full-index", "--find-renames", "--no-ext-diff", "--no-textconv", "--no-color"];
        let args: Vec<&str> = if self.is_mail {
            ["format-patch", "--stdout", "--no-signature", "--no-numbered"]
                .into_iter()
                .chain(form)
                .chain([&*range])
                .collect()
        } else {
            ["diff-tree", "-r", "-p"].into_iter().chain(form).chain([&*parent, &*self.commit]).collect()
        };
        self.scratch.git.run(&args, &bounds, |stdin, mut stdout| {
            drop(stdin);
            io::copy(&mut stdout, out)
        })?;
        Ok(())
    }
}

/// A file of the base, and its path.
type PathOfBase = (FileIndex, Vec<u8>);

/// A commit of the run's changes in a temporary repository.
struct ScratchCommit {
    scratch: Scratch,
    commit: String,
    /// Whether the base was fetched, so that the caller can have it.
    is_fetched: bool,
    /// Whether nothing has changed.
    is_empty: bool,
}

fn write_commit_header(bundle: &Bundle, mark: &str, message: &str, to: &mut impl Write) -> io::Result<()> {
    let who =
        format!("{} <{}> {} +0000", plain(&bundle.author_name), plain(&bundle.author_email), bundle.seconds.max(0));
    write!(to, "commit refs/heads/{}\nmark {mark}\nauthor {who}\ncommitter {who}\n", bundle.branch)?;
    writeln!(to, "data {}\n{message}", message.len())
}

struct BundleContent {
    size: u64,
    from: Box<dyn Read>,
}

/// A temporary repository for one bundle, which borrows the base's objects. Dropping it removes it.
struct Scratch {
    git: Git,
}

impl Scratch {
    fn new(workspace: &Workspace) -> io::Result<Self> {
        let base = workspace.base().git();
        let scratch = Self { git: base.at(workspace.tmp_path().join(fresh_name("bundle-"))) };
        make_bare(scratch.git.dir())?;
        borrow(scratch.git.dir(), base.dir())?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(self.git.dir()) {
            // The folder is emptied when the run is next opened.
            tracing::warn!(%error, "the temporary repository of a bundle could not be removed");
        }
    }
}

fn check_branch(branch: &str) -> Result<(), Refusal> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/.".contains(&byte);
    let is_bad = |name: &str| name.is_empty() || name.starts_with(['.', '-']) || name.strip_suffix(".lock").is_some();
    if branch.len() > 200
        || !branch.bytes().all(is_valid)
        || branch.contains("..")
        || branch.ends_with('.')
        || branch.split('/').any(is_bad)
    {
        return Err(Refusal::invalid(
            format!("git does not accept the branch name `{}`", model::excerpt(branch, 200)),
            "Use letters, digits, `_`, `-`, `.` and `/`, at most 200 characters.",
        ));
    }
    Ok(())
}

/// Returns a name as a commit may contain it.
fn plain(name: &str) -> String {
    let plain: String = name.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
    plain.trim().to_owned()
}
