//! The run's changes as git writes them: one commit on its base in a bundle that can be fetched and turned into a pull request, or a
//! patch.

use std::io::{self, BufWriter, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{LogicalPath, Refusal, Rules, link_stays_inside, quoted_name};

use super::packer::Exactly;
use crate::bare::{borrow, make_bare, write_quoted};
use crate::base_files::BaseEntry;
use crate::diff::DiffCandidate;
use crate::dir::fresh_name;
use crate::git::{Bounds, Git, GitError};
use crate::guard::OpenFile;
use crate::opened_file::{is_secret, is_secret_file};
use crate::{Workspace, WorkspaceError};

/// The time limit of each call of git.
const TIME: Duration = Duration::from_mins(10);
/// The size of the buffer for what git reads.
const CHUNK_BYTES: usize = 256 * 1024;
/// The branch from whose last two commits a patch is made.
const PATCH_BRANCH: &str = "refs/heads/patch";

/// The commit of a bundle.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The branch, without `refs/heads/`.
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
    /// Checks that git accepts the branch name.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an invalid branch name.
    pub fn check(&self) -> Result<(), Refusal> {
        check_branch(&self.branch)
    }

    fn write_header(&self, to: &mut impl Write) -> io::Result<()> {
        let Self { branch, seconds, message, .. } = self;
        let who = format!("{} <{}> {} +0000", plain(&self.author_name), plain(&self.author_email), seconds.max(&0));
        write!(to, "commit refs/heads/{branch}\nauthor {who}\ncommitter {who}\n")?;
        writeln!(to, "data {}\n{message}", message.len())
    }
}

impl Workspace {
    /// Checks that the run can be exported as a bundle: its base is a commit of a repository, which the receiver has too.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the run does not come from git.
    pub fn check_bundle(&self) -> Result<(), Refusal> {
        if self.base().is_from_git() {
            return Ok(());
        }
        Err(Refusal::invalid(
            "a git bundle adds a commit to a repository, and this run does not come from one",
            "Take the run's patch, or its tree as an archive.",
        ))
    }

    /// Prepares a git bundle whose branch is one commit on the run's base commit, which is needed to fetch it. Changes that policy
    /// hides and files that git ignores are left out. Nothing of the tree is read later.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an invalid branch name, or if the run does not come from git; if the disk or git fails; `Cancelled`.
    pub fn prepare_bundle(
        &self,
        rules: &Rules,
        bundle: &Bundle,
        cancel: &AtomicBool,
    ) -> Result<GitExport, WorkspaceError> {
        bundle.check()?;
        self.check_bundle()?;
        let changes = self.changes(rules, cancel)?;
        let branch = format!("refs/heads/{}", bundle.branch);
        let base = self.base_commit();
        let args = ["bundle", "create", "--quiet", "-", "HEAD", &branch, &format!("^{base}")];
        let export = GitExport::new(self, &args)?;
        borrow(export.git.dir(), self.base().git().dir())?;
        export.import(cancel, |to| {
            bundle.write_header(to)?;
            writeln!(to, "from {base}")?;
            self.write_new(rules, &changes, to)
        })?;
        // What fetches from the bundle without naming a branch then gets this one.
        std::fs::write(export.git.dir().join("HEAD"), format!("ref: {branch}\n"))?;
        Ok(export)
    }

    /// Prepares the difference between the base and the tree as git writes it, which `git apply` accepts on the base: with the
    /// contents of binary files, renames and modes. Changes that policy hides and files that git ignores are left out; the first lines
    /// name the links that lead out of the tree, which are left out too. Nothing of the tree is read later.
    ///
    /// # Errors
    ///
    /// If the disk or git fails; `Cancelled`.
    pub fn prepare_patch(&self, rules: &Rules, cancel: &AtomicBool) -> Result<GitExport, WorkspaceError> {
        let changes = self.changes(rules, cancel)?;
        let before = format!("{PATCH_BRANCH}^");
        let form = ["--binary", "--full-index", "--find-renames", "--no-ext-diff", "--no-textconv", "--no-color"];
        let args = [&["diff-tree", "-r", "-p"], &form[..], &[&before, PATCH_BRANCH]].concat();
        let mut export = GitExport::new(self, &args)?;
        // Two commits with the changed files alone.
        let header = format!("commit {PATCH_BRANCH}\ncommitter workspaced <> 0 +0000\ndata 0\n");
        export.left_out = export.import(cancel, |to| {
            write!(to, "{header}")?;
            self.write_old(rules, &changes, to)?;
            write!(to, "{header}")?;
            self.write_new(rules, &changes, to)
        })?;
        Ok(export)
    }

    /// Writes the files of the base that have changed, without secrets.
    fn write_old(&self, rules: &Rules, changes: &[DiffCandidate], to: &mut impl Write) -> io::Result<()> {
        let base = self.base().load()?;
        for DiffCandidate { path, .. } in changes {
            let Some(file) = base.manifest.get(path.as_str().as_bytes()) else { continue };
            let content = OpenFile::Base(Arc::clone(&base), BaseEntry::File(file));
            if base.is_link(file) || !is_secret_file(rules, path, &content)? {
                let (mode, size) = (base.manifest.mode(file), base.manifest.size(file));
                write_file(path, mode, size, &mut content.into_reader()?, to)?;
            }
        }
        Ok(())
    }

    /// Writes what has changed to what it is now. Returns the links that lead out of the tree, which are left out: the diff does not show
    /// their targets either.
    fn write_new(&self, rules: &Rules, changes: &[DiffCandidate], to: &mut impl Write) -> io::Result<Vec<LogicalPath>> {
        let mut left_out = Vec::new();
        // Removals first: a folder may replace a file.
        for removed in changes.iter().filter(|change| change.now.is_none()) {
            write!(to, "D ")?;
            write_quoted(to, removed.path.as_str().as_bytes())?;
            writeln!(to)?;
        }
        let root = &self.tree().root;
        for DiffCandidate { path, now, .. } in changes {
            let Some(now) = now else { continue };
            if now.is_link() {
                match root.find_link(path)?.map(|link| link.target) {
                    Some(target) if link_stays_inside(path.as_str().as_bytes(), &target) => {
                        write_file(path, now.git_mode(), target.len() as u64, &mut &*target, to)?;
                    }
                    Some(_) => left_out.push(path.clone()),
                    None => {}
                }
                continue;
            }
            match root.open_unlinked(path) {
                Ok(opened)
                    if opened.file_type().is_file()
                        && !opened.is_hard_linked()
                        && !is_secret(rules, path, &opened)? =>
                {
                    write_file(path, now.git_mode(), opened.size(), &mut opened.file.into_reader()?, to)?;
                }
                Ok(_) => {}
                // It was removed meanwhile.
                Err(error) => error.unless_disk()?,
            }
        }
        Ok(left_out)
    }
}

fn write_file(path: &LogicalPath, mode: u32, size: u64, content: &mut dyn Read, to: &mut impl Write) -> io::Result<()> {
    write!(to, "M {mode:o} inline ")?;
    write_quoted(to, path.as_str().as_bytes())?;
    write!(to, "\ndata {size}\n")?;
    io::copy(&mut Exactly::of(content, size), to)?;
    writeln!(to)
}

/// A bundle or a patch that is ready to be written, in a temporary repository. Dropping it removes that.
pub struct GitExport {
    git: Git,
    /// The arguments with which git writes it.
    args: Vec<String>,
    /// The links that a patch leaves out.
    left_out: Vec<LogicalPath>,
}

impl GitExport {
    fn new(workspace: &Workspace, args: &[&str]) -> io::Result<Self> {
        let git = workspace.base().git().at(workspace.tmp_path().join(fresh_name("export-")));
        let export = Self { git, args: args.iter().map(|arg| (*arg).to_owned()).collect(), left_out: Vec::new() };
        make_bare(export.git.dir())?;
        Ok(export)
    }

    /// Imports the commits that `write` writes into the repository.
    fn import<T>(
        &self,
        cancel: &AtomicBool,
        write: impl FnOnce(&mut BufWriter<ChildStdin>) -> io::Result<T>,
    ) -> Result<T, GitError> {
        self.run(&["fast-import", "--quiet", "--done", "--depth=0"], cancel, |stdin, mut stdout| {
            let mut to = BufWriter::with_capacity(CHUNK_BYTES, stdin);
            let written = write(&mut to)?;
            to.write_all(b"done\n")?;
            drop(to.into_inner().map_err(io::IntoInnerError::into_error)?);
            io::copy(&mut stdout, &mut io::sink())?;
            Ok(written)
        })
    }

    /// Writes the bundle or the patch to `out`. A patch is empty if nothing has changed.
    ///
    /// # Errors
    ///
    /// If the disk, git or `out` fails; `Cancelled`.
    pub fn write(&self, out: &mut dyn Write, cancel: &AtomicBool) -> Result<(), WorkspaceError> {
        for path in &self.left_out {
            let name = quoted_name("", path.as_str());
            writeln!(out, "# {name} is left out: it is a symbolic link that leads out of the tree.")?;
        }
        let args: Vec<_> = self.args.iter().map(String::as_str).collect();
        Ok(self.run(&args, cancel, |stdin, mut stdout| {
            drop(stdin);
            io::copy(&mut stdout, out).map(drop)
        })?)
    }

    fn run<T>(
        &self,
        args: &[&str],
        cancel: &AtomicBool,
        io: impl FnOnce(ChildStdin, ChildStdout) -> io::Result<T>,
    ) -> Result<T, GitError> {
        let stop = || cancel.load(Ordering::Relaxed);
        self.git.run(args, &Bounds { time: TIME, stop: &stop, too_much: &|| false }, io)
    }
}

impl Drop for GitExport {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(self.git.dir()) {
            // The folder is emptied when the run is next opened.
            tracing::warn!(%error, "the temporary repository of an export could not be removed");
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
