//! A git repository as a source: fetched into a bare repository of the service, then read object by object.
//!
//! Nothing is checked out, so no filter, hook or attribute of the source can run. The program that serves a local source runs
//! with an environment in which only the service's own configuration can name programs.

mod credential;
mod find;
mod refs;
mod remote;
#[cfg(test)]
mod tests;
mod tree;
mod uncommitted;

use std::path::PathBuf;
use std::time::Duration;

use model::Refusal;

use super::writer::ImportWriter;
use super::{ImportLimits, ImportObserver};
use crate::WorkspaceError;
use crate::bare::{self, FETCHED};
use crate::git::{Bounds, Git, GitError};

pub use credential::{GitCredential, GitToken};
pub(super) use find::{find, work_tree};

/// The time limit of a fetch.
const FETCH_TIME: Duration = Duration::from_mins(15);
/// Parts of git's complaints by which a failed fetch is classified.
const CLASSES: [&str; 8] = [
    OTHER_FORMAT,
    "Authentication failed",
    "could not read Username",
    "Could not resolve host",
    "couldn't find remote ref",
    "not found",
    "certificate",
    "timed out",
];
/// How git complains about a repository with other hashes than its own.
const OTHER_FORMAT: &str = "mismatched algorithms";

/// Where to fetch from.
pub(super) enum GitOrigin<'a> {
    Remote {
        url: String,
        credential: Option<&'a GitCredential>,
    },
    Local {
        /// Its git folder.
        path: PathBuf,
        /// Folders that it may refer to: the import roots.
        reads: Vec<PathBuf>,
        /// The folder that the repository is checked out in, if it has one.
        work_tree: Option<PathBuf>,
    },
}

/// A repository, and the commit of it that an import asks for.
pub(super) struct GitSource<'a> {
    /// Git on the folder that receives the objects, without network and without access to the source.
    git: &'a Git,
    /// Git on the same folder, which reaches the source.
    remote: Git,
    origin: &'a GitOrigin<'a>,
    /// Whether the remote repository is sent a credential, which it could repeat.
    has_credential: bool,
    reference: &'a str,
    limits: ImportLimits,
    watch: &'a dyn ImportObserver,
}

impl<'a> GitSource<'a> {
    /// Checks where `origin` leads and what `reference` names, and reads the credential.
    pub(super) fn new(
        git: &'a Git,
        origin: &'a GitOrigin<'a>,
        reference: Option<&'a str>,
        limits: ImportLimits,
        watch: &'a dyn ImportObserver,
    ) -> Result<Self, WorkspaceError> {
        let reference = reference.map_or(Ok("HEAD"), check_reference)?;
        let mut has_credential = false;
        let remote = match origin {
            GitOrigin::Remote { url, credential } => {
                let (port, resolve) = remote::judge(url, git.allowed_hosts())?;
                let mut settings = vec![("remote.origin.url", url.as_str())];
                settings.extend(resolve.as_deref().map(|resolve| ("http.curloptResolve", resolve)));
                let header = credential.map(|credential| credential.header(url)).transpose()?;
                settings.extend(header.as_ref().map(|(key, value)| (key.as_str(), value.as_str())));
                has_credential = header.is_some();
                git.clone().with_settings(&settings).with_env("GIT_ALLOW_PROTOCOL", "https").connecting(port)
            }
            GitOrigin::Local { path, reads, .. } => git
                .clone()
                .with_settings(&[("remote.origin.url", path.to_str().ok_or_else(no_repository)?)])
                .with_env("GIT_ALLOW_PROTOCOL", "file")
                .reading(reads),
        };
        Ok(Self { git, remote, origin, has_credential, reference, limits, watch })
    }

    /// Writes the tree of the fetched `commit` with `writer`.
    pub(super) fn copy(&self, commit: &str, writer: &mut ImportWriter<'_>) -> Result<(), WorkspaceError> {
        self.watch.progress("writing", 0, 0);
        let entries = tree::list(self.git, commit, self.limits, self.watch, writer)?;
        tree::write(self.git, entries, self.watch, writer)
    }
}

/// Checks that `reference` is the name of a branch, tag or commit that git cannot take for anything else.
fn check_reference(reference: &str) -> Result<&str, Refusal> {
    let forbidden = |byte: u8| byte.is_ascii_control() || b" ~^:?*[\\".contains(&byte);
    let bad = reference.is_empty()
        || reference.len() > 255
        || reference.starts_with(['-', '/', '+'])
        || reference.ends_with(['/', '.'])
        || reference.contains("..")
        || reference.contains("//")
        || reference.contains("@{")
        || reference.bytes().any(forbidden)
        || reference.split('/').any(|name| name.starts_with('.') || name.strip_suffix(".lock").is_some());
    if bad {
        return Err(Refusal::invalid(
            "the source's `ref` is not a valid name of a branch, tag or commit",
            "Give a branch, a tag, or a commit of 4 to 40 hexadecimal digits.",
        ));
    }
    Ok(reference)
}

fn no_repository() -> WorkspaceError {
    Refusal::invalid(
        "the source is not a readable git repository",
        "Use a git repository with at least one commit, or a `directory` source.",
    )
    .into()
}

impl GitSource<'_> {
    /// Fetches the commit, with as little else as possible, and returns it.
    pub(super) fn fetch_commit(&self) -> Result<String, WorkspaceError> {
        self.watch.progress("fetching", 0, 0);
        let reference = self.reference;
        match self.fetch(&["--depth=1"], &[&format!("+{reference}:{FETCHED}")]) {
            Ok(()) => return self.resolve(FETCHED),
            Err(WorkspaceError::Refused(refusal)) if !may_be_commit(reference) => return Err(refusal.into()),
            Err(WorkspaceError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        // An abbreviated commit, or a commit that no ref names: all commits are needed to find it.
        self.fetch(&[], &["+refs/heads/*:refs/source/heads/*", "+refs/tags/*:refs/source/tags/*"])?;
        let commit = self.resolve(reference)?;
        self.run(&["update-ref", FETCHED, &commit])?;
        Ok(commit)
    }

    fn fetch(&self, depth: &[&str], refspecs: &[&str]) -> Result<(), WorkspaceError> {
        let quiet = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc"];
        let whole = ["--no-recurse-submodules", "--update-shallow"];
        let args = [&quiet[..], &whole, depth, &["--end-of-options", "origin"], refspecs].concat();
        let quota = |bytes| self.watch.check_quota(0, bytes);
        let shared = bare::size(self.git.dir());
        let size = || bare::size(self.git.dir()).saturating_sub(shared);
        let too_much = || size() > self.limits.max_bytes || quota(size()).is_err();
        let bounds = Bounds { time: FETCH_TIME, stop: &|| self.watch.cancelled(), too_much: &too_much };
        let fetched = self.remote.output(&args, 64 * 1024, &bounds);
        fetched.map_err(|error| match quota(size()) {
            Err(refusal) => refusal.into(),
            Ok(()) => self.remote_error(error),
        })?;
        Ok(())
    }

    /// Returns the commit that `name` leads to in the fetched objects.
    fn resolve(&self, name: &str) -> Result<String, WorkspaceError> {
        let out = self.run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")])?;
        let commit = String::from_utf8_lossy(&out).trim().to_owned();
        if commit.len() == 40 { Ok(commit) } else { Err(no_repository()) }
    }

    /// Returns the error of a call that reached the source. What git says of one that was sent a credential is not logged, but for the
    /// class of it: the source may have repeated the credential in any form.
    fn remote_error(&self, error: GitError) -> WorkspaceError {
        fetch_error(match error {
            GitError::Failed(complaint) if self.has_credential => {
                let class = CLASSES.into_iter().find(|class| complaint.contains(class)).unwrap_or("another failure");
                GitError::Failed(format!("{class}; the answer may repeat the credential, and is not logged"))
            }
            error => error,
        })
    }

    fn run(&self, args: &[&str]) -> Result<Vec<u8>, WorkspaceError> {
        self.git.output(args, 64 * 1024, &Bounds::seconds(60)).map_err(fetch_error)
    }
}

fn may_be_commit(reference: &str) -> bool {
    (4..=40).contains(&reference.len()) && reference.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn fetch_error(error: GitError) -> WorkspaceError {
    match error {
        GitError::Io(error) => WorkspaceError::Io(error),
        GitError::Cancelled => WorkspaceError::Cancelled,
        GitError::Failed(complaint) if complaint.contains(OTHER_FORMAT) => Refusal::invalid(
            "the repository has the object format sha256; only repositories with sha1 can be read",
            "Import an archive of the commit, or a clone with `git init --object-format=sha1`.",
        )
        .into(),
        GitError::Failed(complaint) => {
            tracing::info!(error = %model::redact(&complaint), "a git source could not be fetched");
            Refusal::invalid(
                "the git source could not be fetched: the repository, ref or commit does not exist or is not readable",
                "Check the address or path and the `ref`. Redirects are not followed, and an empty repository has no commit to \
                 start from.",
            )
            .into()
        }
        GitError::TooLong => {
            Refusal::invalid("the git source took too long to fetch", "Try again, or import an archive of the commit.")
                .into()
        }
        GitError::TooMuch => {
            Refusal::invalid("the git source is too large", "Import an archive with less in it.").into()
        }
    }
}
