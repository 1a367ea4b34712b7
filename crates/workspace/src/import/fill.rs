//! Making a base from each kind of source.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use model::{Rules, Sha256};
use sha2::Digest as _;

use super::git::{self, GitOrigin, GitSource};
use super::writer::{ENTRY_BYTES, ImportWriter, WrittenTree};
use super::{ImportError, ImportObserver, ImportSource, Importer, archive, bare, directory, hard_links, tracked};
use crate::base::MANIFEST_NAME;
use crate::base_files::GITIGNORE_NAME;
use crate::base_files::manifest::{self, Head, MODE_LINK, ManifestRow};
use crate::bases::{BaseInfo, BaseStore, KnownSource, StagedBase};
use crate::byte_path::{folders_above, split};
use crate::dir::create_file;
use crate::skipped::SkippedReport;

/// The result of an import.
pub(crate) enum FilledBase {
    /// The source has a commit that was imported before.
    Known(KnownSource),
    New(NewBase),
}

/// A base that was written and not placed yet.
pub(crate) struct NewBase {
    pub(crate) info: BaseInfo,
    pub(crate) skipped: SkippedReport,
    /// Its files, in the order of its list.
    pub(crate) rows: Vec<ManifestRow>,
    /// The repository and the commit by which another import finds this base.
    pub(crate) source: Option<(Sha256, String)>,
}

/// The version of the rules by which a commit becomes a tree. What was imported by other rules is imported again.
const RULES: u32 = 4;

impl Importer {
    /// Writes `source` to the base `to`, unless it was imported before. Also returns the paths of the source's uncommitted changes.
    pub(crate) fn fill(
        &self,
        to: &mut StagedBase,
        known: &BaseStore,
        source: ImportSource<'_>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<(FilledBase, Vec<Vec<u8>>), ImportError> {
        bare::make(to.git.dir())?;
        let (origin, reference) = match source {
            ImportSource::GitRemote { url, reference, credential } => {
                let credential = credential.map(|name| self.credential(&name, &url)).transpose()?;
                (GitOrigin::Remote { url, credential }, reference)
            }
            ImportSource::GitLocal { path, reference } => {
                let work_tree = git::work_tree(&path);
                let path = git::find(&path, &|real| self.is_allowed(real))?;
                (GitOrigin::Local { path, reads: self.roots.clone(), work_tree }, reference)
            }
            ImportSource::Directory(path) => {
                let copy = |writer: &mut ImportWriter<'_>| {
                    directory::copy(&path, &self.own.ids, self.limits, writer).map(|()| None)
                };
                return Ok((FilledBase::New(self.write(to, rules, watch, copy)?), Vec::new()));
            }
            ImportSource::Archive(archive) => {
                let copy = |writer: &mut ImportWriter<'_>| archive::copy(archive, self.limits, writer).map(|()| None);
                return Ok((FilledBase::New(self.write(to, rules, watch, copy)?), Vec::new()));
            }
            ImportSource::Empty => {
                return Ok((FilledBase::New(self.write(to, rules, watch, |_| Ok(None))?), Vec::new()));
            }
        };
        self.fill_from_git(to, known, &origin, reference.as_deref(), rules, watch)
    }

    /// Uses the base as which the commit was imported before; if there is none, fetches the commit. The tree of a commit does not
    /// depend on the rules, which decide on hard links only.
    fn fill_from_git(
        &self,
        to: &mut StagedBase,
        known: &BaseStore,
        origin: &GitOrigin<'_>,
        reference: Option<&str>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<(FilledBase, Vec<Vec<u8>>), ImportError> {
        let git = to.git.clone();
        let source = GitSource::new(&git, origin, reference, self.limits, watch)?;
        let (id, has_failed) = (origin_id(origin), AtomicBool::new(false));
        if known.knows(&id)
            // The repository is asked even if the commit is known: the credential may be revoked, and a ref may have moved.
            && let Some(commit) = source.tip()?
        {
            if let Some(known_source) = known.known(&id, &commit) {
                bare::borrow(git.dir(), known.get(&known_source.base)?.git().dir())?;
                return Ok((FilledBase::Known(known_source), source.uncommitted(&commit, &has_failed)));
            }
            // Not if the commit is perhaps only in an earlier base, and in the repository no more.
            if let Some(earlier) = known.newest(&id) {
                to.share(&earlier)?;
            }
        }
        let commit = source.fetch_commit()?;
        // Both take long in a large tree, and neither needs the other.
        thread::scope(|scope| {
            let uncommitted = scope.spawn(|| source.uncommitted(&commit, &has_failed));
            let done = self.write(to, rules, watch, |writer| {
                source.copy(&commit, writer)?;
                Ok(Some(commit.clone()))
            });
            let mut done = done.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
            done.source = Some((id, commit.clone()));
            Ok((FilledBase::New(done), uncommitted.join().unwrap_or_default()))
        })
    }

    /// Writes the tree with `copy`, which returns its commit if the source is a git repository, and the list of its files.
    fn write(
        &self,
        to: &mut StagedBase,
        rules: &Rules,
        watch: &dyn ImportObserver,
        copy: impl FnOnce(&mut ImportWriter<'_>) -> Result<Option<String>, ImportError>,
    ) -> Result<NewBase, ImportError> {
        let mut writer = ImportWriter::new(&mut to.contents, self.limits, watch);
        let commit = copy(&mut writer)?;
        let ignores = hard_links::remove_revealing(&mut writer, rules)?;
        let WrittenTree { mut rows, folders, submodules, narrowed, skipped } = writer.finish();
        let commit = if let Some(commit) = commit {
            commit
        } else {
            watch.progress("committing", rows.len() as u64, bytes_of(&rows));
            tracked::mark_untracked(&mut rows, &ignores);
            let tracked: Vec<_> = rows.iter().filter(|row| !row.is_ignored).collect();
            bare::commit(&to.git, &to.contents, &tracked, watch)?
        };
        let head = Head { commit, submodules, ignores, narrowed };
        let info = describe(&head, &rows, &folders);
        create_file(&to.dir, MANIFEST_NAME)?.write_all(&manifest::write(&head, &rows, folders))?;
        Ok(NewBase { info, skipped, rows, source: None })
    }
}

/// Returns the size of the files.
fn bytes_of(rows: &[ManifestRow]) -> u64 {
    rows.iter().filter(|row| row.mode != MODE_LINK).map(|row| row.size).sum()
}

/// Describes a base.
pub(crate) fn describe(head: &Head, rows: &[ManifestRow], folders: &[Vec<u8>]) -> BaseInfo {
    let untracked: Vec<_> = rows.iter().filter(|row| row.is_ignored).collect();
    let links = rows.iter().filter(|row| row.mode == MODE_LINK).count();
    let bytes = bytes_of(rows);
    BaseInfo {
        commit: head.commit.clone(),
        manifest_sha256: manifest::digest(rows.iter().filter(|row| !row.is_ignored)),
        untracked_sha256: (!untracked.is_empty()).then(|| manifest::digest(untracked)),
        files: rows.len() as u64,
        bytes,
        quota_bytes: bytes.saturating_add((folders.len() + links) as u64 * ENTRY_BYTES),
        variant: variant(head, rows, folders),
    }
}

fn variant(head: &Head, rows: &[ManifestRow], folders: &[Vec<u8>]) -> Option<Sha256> {
    let used: HashSet<&[u8]> = rows.iter().flat_map(|row| folders_above(&row.path)).collect();
    let mut empty: Vec<_> = folders.iter().filter(|folder| !folder.is_empty() && !used.contains(&folder[..])).collect();
    let files = rows.iter().map(|row| split(&row.path)).filter(|(_, name)| *name == GITIGNORE_NAME.as_bytes());
    let with_rules: HashSet<&[u8]> = files.map(|(folder, _)| folder).collect();
    let mut without_file = head.ignores.iter().filter(|(folder, _)| !with_rules.contains(&folder[..])).peekable();
    if empty.is_empty() && head.narrowed.is_empty() && without_file.peek().is_none() {
        return None;
    }
    empty.sort_unstable();
    let mut hash = sha2::Sha256::new();
    for folder in empty.into_iter().chain(&head.submodules) {
        hash.update(folder);
        hash.update(b"\0\n");
    }
    for (path, mode) in &head.narrowed {
        hash.update(path);
        hash.update(format!("\0{mode:o}\n"));
    }
    for (folder, text) in without_file {
        hash.update(folder);
        hash.update(format!("\0rules {}\n", Sha256::of(text)));
    }
    Some(Sha256::from_bytes(hash.finalize().into()))
}

/// Identifies the repository of `origin`: two repositories may name the same commit, and only one of them may be readable.
fn origin_id(origin: &GitOrigin<'_>) -> Sha256 {
    let text = match origin {
        GitOrigin::Remote { url, .. } => format!("{RULES}\nremote\n{url}").into_bytes(),
        GitOrigin::Local { path, .. } => {
            [format!("{RULES}\nlocal\n").as_bytes(), path.as_os_str().as_encoded_bytes()].concat()
        }
    };
    Sha256::of(&text)
}
