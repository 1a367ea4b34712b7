//! The run's changes as one commit on its base, in a git bundle: ready to be fetched and made a pull request of.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{Access, LogicalPath, PathFacts, Refusal, Rules};

use crate::base::manifest::FileIndex;
use crate::diff::Candidate;
use crate::git::{Bounds, Git, GitError, hex};
use crate::import::{FETCHED, fresh_name, make_bare, write_quoted};
use crate::{Workspace, WorkspaceError};

/// How long each call of git may take.
const TIME: Duration = Duration::from_mins(10);
/// How much of it is handed on at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// What the commit of a bundle says.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The branch that the bundle holds, without `refs/heads/`.
    pub branch: String,
    /// Who made the changes.
    pub author_name: String,
    /// Their address.
    pub author_email: String,
    /// When, in seconds since the epoch.
    pub seconds: i64,
    /// What the commit says.
    pub message: String,
}

impl Bundle {
    /// Checks what git would not take.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a bad branch.
    pub fn check(&self) -> Result<(), Refusal> {
        check_branch(&self.branch)
    }
}

impl Workspace {
    /// Writes a git bundle to `out` whose branch is one commit on the run's base, and returns the commit. Changes that
    /// policy hides and files that git ignores are not in it.
    ///
    /// Whoever fetches it from a git run needs the base commit; the bundle of any other run holds its base too, or, where
    /// policy hides some of the base, or the run has changed files that git ignored, a commit of what it started with: without
    /// what policy hides, and with these files.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a bad branch; where the disk, git or `out` fails; `Cancelled`.
    pub fn bundle(
        &self,
        rules: &Rules,
        bundle: &Bundle,
        out: &mut dyn Write,
        cancel: &AtomicBool,
    ) -> Result<String, WorkspaceError> {
        bundle.check()?;
        let changes = self.changes(rules, cancel)?;
        let fetched = self.base().git().dir().join(FETCHED).exists();
        // Whoever has fetched the base knows it; nobody else may learn by it what policy hides.
        let shown = if fetched { None } else { self.shown_base(rules)? };
        let scratch = Scratch::new(self)?;
        let stop = || cancel.load(Ordering::Relaxed);
        let bounds = Bounds { time: TIME, stop: &stop, too_much: &|| false };
        let args = ["fast-import", "--quiet", "--done", "--depth=0"];
        let commit = scratch.git.talk(&args, &bounds, |stdin, mut stdout| {
            let mut to = BufWriter::with_capacity(PIECE_BYTES, stdin);
            let from = match &shown {
                None => self.base_commit().to_owned(),
                Some(files) => write_shown(bundle, files, &mut to)?,
            };
            self.write_commit(bundle, &from, &changes, &mut to)?;
            to.flush()?;
            drop(to);
            let mut said = String::new();
            stdout.by_ref().take(256).read_to_string(&mut said)?;
            Ok(said.trim().to_owned())
        });
        let commit = commit.map_err(git_error)?;
        let branch = format!("refs/heads/{}", bundle.branch);
        let base = format!("^{}", self.base_commit());
        // So that a clone of the bundle checks the branch out.
        std::fs::write(scratch.git.dir().join("HEAD"), format!("ref: {branch}\n"))?;
        let mut args = vec!["bundle", "create", "--quiet", "-", "HEAD", &branch];
        if fetched {
            args.push(&base);
        }
        let copied = scratch.git.talk(&args, &bounds, |stdin, mut stdout| {
            drop(stdin);
            io::copy(&mut stdout, out)
        });
        copied.map_err(git_error)?;
        Ok(commit)
    }

    /// The base's files that may be shown, where these are not those of the base commit.
    fn shown_base(&self, rules: &Rules) -> io::Result<Option<Vec<BaseEntry>>> {
        let loaded = self.base().load()?;
        let manifest = &loaded.manifest;
        let mut shown = Vec::with_capacity(manifest.len());
        for (folder, files) in manifest.folders() {
            for file in files.map(FileIndex) {
                let path = if folder.is_empty() { Vec::new() } else { [folder, b"/"].concat() };
                let path = [path.as_slice(), manifest.name(file)].concat();
                // What the run has not come to change stays ignored.
                let is_ours = !manifest.is_late(file) || self.tree().has_written(&path);
                if is_ours && is_shown(rules, &path) {
                    shown.push(BaseEntry { path, mode: manifest.mode(file), oid: *manifest.oid(file) });
                }
            }
        }
        // Nor does the base commit have what git ignored.
        Ok((shown.len() < manifest.len() || manifest.has_late()).then_some(shown))
    }

    fn write_commit(&self, bundle: &Bundle, from: &str, changes: &[Candidate], to: &mut impl Write) -> io::Result<()> {
        write_head(bundle, ":1", &bundle.message, to)?;
        writeln!(to, "from {from}")?;
        // Removals first: a file may have become a folder.
        for gone in changes.iter().filter(|change| change.now.is_none()) {
            write!(to, "D ")?;
            write_quoted(to, gone.path.as_str().as_bytes())?;
            writeln!(to)?;
        }
        for change in changes {
            let Some(now) = &change.now else { continue };
            let Some(bytes) = self.bytes_of(&change.path, now.is_link)? else { continue };
            write!(to, "M {:o} inline ", now.git_mode())?;
            write_quoted(to, change.path.as_str().as_bytes())?;
            write!(to, "\ndata {}\n", bytes.size)?;
            let copied = io::copy(&mut bytes.from.take(bytes.size), to)?;
            if copied < bytes.size {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was bundled"));
            }
            writeln!(to)?;
        }
        to.write_all(b"\nget-mark :1\ndone\n")
    }

    /// What stands at `path`; `None` where it went away meanwhile.
    fn bytes_of(&self, path: &LogicalPath, is_link: bool) -> io::Result<Option<Bytes>> {
        let root = &self.tree().root;
        if is_link {
            let Ok(place) = root.place(path) else { return Ok(None) };
            let Ok(target) = rustix::fs::readlinkat(&place.dir, &*place.name, Vec::new()) else { return Ok(None) };
            let target = target.into_bytes();
            return Ok(Some(Bytes { size: target.len() as u64, from: Box::new(io::Cursor::new(target)) }));
        }
        match root.open_unlinked(path) {
            Ok(opened) if opened.file_type().is_file() && !opened.is_hard_linked() => {
                Ok(Some(Bytes { size: opened.size(), from: Box::new(File::from(opened.file)) }))
            }
            Ok(_) => Ok(None),
            Err(error) => error.unless_disk().map(|()| None),
        }
    }
}

/// A file of the base, in git's words.
struct BaseEntry {
    path: Vec<u8>,
    mode: u32,
    oid: [u8; 20],
}

/// Whether policy lets a caller have a file of the base. A name that no policy can be asked about is not shown.
fn is_shown(rules: &Rules, path: &[u8]) -> bool {
    let Some(path) = std::str::from_utf8(path).ok().and_then(|path| LogicalPath::parse(path).ok()) else {
        return false;
    };
    let kind = rules.kind_of_path(&path);
    let facts = PathFacts { path: &path, real_path: None, kind, ignored: false, hard_linked: false };
    model::judge_path(rules, Access::Read, &facts).is_ok()
}

fn write_head(bundle: &Bundle, mark: &str, message: &str, to: &mut impl Write) -> io::Result<()> {
    let who =
        format!("{} <{}> {} +0000", plain(&bundle.author_name), plain(&bundle.author_email), bundle.seconds.max(0));
    write!(to, "commit refs/heads/{}\nmark {mark}\nauthor {who}\ncommitter {who}\n", bundle.branch)?;
    writeln!(to, "data {}\n{message}", message.len())
}

/// Writes a commit of what the run started with, as far as it may be seen; the answer is its mark.
fn write_shown(bundle: &Bundle, files: &[BaseEntry], to: &mut impl Write) -> io::Result<String> {
    const MARK: &str = ":2";
    write_head(bundle, MARK, "What the run started with, as far as it may be seen", to)?;
    for file in files {
        write!(to, "M {:o} {} ", file.mode, hex(&file.oid))?;
        write_quoted(to, &file.path)?;
        writeln!(to)?;
    }
    writeln!(to)?;
    Ok(MARK.to_owned())
}

struct Bytes {
    size: u64,
    from: Box<dyn Read>,
}

/// A repository for one bundle, which sees the base's objects; removed with all that is in it.
struct Scratch {
    git: Git,
}

impl Scratch {
    fn new(workspace: &Workspace) -> io::Result<Self> {
        let base = workspace.base().git();
        let run: PathBuf = base.dir().parent().ok_or(io::ErrorKind::NotFound)?.to_owned();
        let scratch = Self { git: base.at(run.join("tmp").join(fresh_name("bundle-"))) };
        make_bare(scratch.git.dir())?;
        std::fs::create_dir(scratch.git.dir().join("objects/info"))?;
        let mut objects = base.dir().join("objects").into_os_string().into_encoded_bytes();
        objects.push(b'\n');
        std::fs::write(scratch.git.dir().join("objects/info/alternates"), objects)?;
        // Where the base was fetched without what came before, nobody looks for it.
        match std::fs::copy(base.dir().join("shallow"), scratch.git.dir().join("shallow")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(scratch),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(self.git.dir()) {
            // The next start empties the folder that it lies in.
            tracing::warn!(%error, "what a bundle left could not be removed");
        }
    }
}

fn check_branch(branch: &str) -> Result<(), Refusal> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/.".contains(&byte);
    let bad = |name: &str| name.is_empty() || name.starts_with(['.', '-']) || name.strip_suffix(".lock").is_some();
    if branch.len() > 200
        || !branch.bytes().all(fine)
        || branch.contains("..")
        || branch.ends_with('.')
        || branch.split('/').any(bad)
    {
        return Err(Refusal::invalid(
            "the branch has a name that git does not take",
            "Use letters, digits, `_`, `-`, `.` and `/`.",
        ));
    }
    Ok(())
}

/// A name as a commit may have it.
fn plain(name: &str) -> String {
    let plain: String = name.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
    plain.trim().to_owned()
}

fn git_error(error: GitError) -> WorkspaceError {
    match error {
        GitError::Cancelled => WorkspaceError::Cancelled,
        GitError::Io(error) => WorkspaceError::Io(error),
        error => WorkspaceError::Io(io::Error::other(error)),
    }
}
