//! Making a base from each kind of source.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use model::{Rules, Sha256};

use super::git::{self, GitOrigin, GitSource};
use super::writer::{ENTRY_BYTES, ImportWriter, WrittenTree};
use super::{ImportObserver, ImportSource, Importer, archive, directory, hard_links, tracked};
use crate::WorkspaceError;
use crate::bare;
use crate::base::MANIFEST_NAME;
use crate::base_files::manifest::{self, Head, MODE_LINK, ManifestRow};
use crate::bases::{BaseInfo, BaseStore, CommitBase, StagedBase};
use crate::dir::create_file;

/// The version of the rules by which a commit becomes a tree. What was imported by other rules is imported again.
const RULES: u32 = 4;
/// What a source that is not a repository has in place of a commit.
const NO_COMMIT: &str = "none";

/// What identifies a source that may have been imported before: its repository, and the commit if it has one.
type SourceId = (Sha256, Option<String>);

impl Importer {
    /// Makes the base of `source`, unless it was imported before. Also returns the paths of the source's uncommitted changes.
    pub(crate) fn make_base(
        &self,
        bases: &BaseStore,
        source: ImportSource<'_>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<(CommitBase, Vec<Vec<u8>>), WorkspaceError> {
        let made = match source {
            ImportSource::GitRemote { url, reference, credential } => {
                let credential = credential.map(|name| self.credential(&name, &url)).transpose()?;
                let origin = GitOrigin::Remote { url, credential };
                return self.make_from_git(bases, &origin, reference.as_deref(), rules, watch);
            }
            ImportSource::GitLocal { path, reference } => {
                let work_tree = git::work_tree(&path);
                let path = git::find(&path, &|real| self.is_allowed(real))?;
                let origin = GitOrigin::Local { path, reads: self.roots.clone(), work_tree };
                return self.make_from_git(bases, &origin, reference.as_deref(), rules, watch);
            }
            ImportSource::Directory(path) => {
                let copy = |writer: &mut ImportWriter<'_>| directory::copy(&path, &self.own.ids, self.limits, writer);
                self.write(bases, bases.stage()?, None, rules, watch, copy)
            }
            ImportSource::Archive(archive) => {
                let copy = |writer: &mut ImportWriter<'_>| archive::copy(archive, self.limits, writer);
                self.write(bases, bases.stage()?, None, rules, watch, copy)
            }
            ImportSource::Empty => {
                let nothing = Sha256::of(b"nothing");
                match bases.known(&nothing, NO_COMMIT) {
                    Some(known) => Ok(known),
                    None => self.write(bases, bases.stage()?, Some((nothing, None)), rules, watch, |_| Ok(())),
                }
            }
        };
        Ok((made?, Vec::new()))
    }

    /// Uses the base as which the commit was imported before; if there is none, fetches the commit. The tree of a commit does not
    /// depend on the rules, which decide on hard links only.
    fn make_from_git(
        &self,
        bases: &BaseStore,
        origin: &GitOrigin<'_>,
        reference: Option<&str>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<(CommitBase, Vec<Vec<u8>>), WorkspaceError> {
        let mut to = bases.stage()?;
        let git = to.git.clone();
        let source = GitSource::new(&git, origin, reference, self.limits, watch)?;
        let (id, has_failed) = (origin_id(origin), AtomicBool::new(false));
        // The repository is asked even if the commit is known: the credential may be revoked, and a ref may have moved.
        if let Some(earlier) = bases.newest(&id)
            && let Some(commit) = source.tip()?
        {
            if let Some(known) = bases.known(&id, &commit) {
                let info = bases.info(&known.base)?;
                watch.check_quota(info.files, info.quota_bytes)?;
                bare::borrow(git.dir(), bases.get(&known.base)?.git().dir())?;
                return Ok((known, source.uncommitted(&commit, &has_failed)));
            }
            // Not if the commit is perhaps only in an earlier base, and in the repository no more.
            to.share(&earlier)?;
        }
        let commit = source.fetch_commit()?;
        // Both take long in a large tree, and neither needs the other.
        thread::scope(|scope| {
            let uncommitted = scope.spawn(|| source.uncommitted(&commit, &has_failed));
            let copy = |writer: &mut ImportWriter<'_>| source.copy(&commit, writer);
            let made = self.write(bases, to, Some((id, Some(commit.clone()))), rules, watch, copy);
            let made = made.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
            Ok((made, uncommitted.join().unwrap_or_default()))
        })
    }

    /// Writes the tree with `copy`, and places it as a base by which another import of `source` finds it.
    fn write(
        &self,
        bases: &BaseStore,
        mut to: StagedBase,
        source: Option<SourceId>,
        rules: &Rules,
        watch: &dyn ImportObserver,
        copy: impl FnOnce(&mut ImportWriter<'_>) -> Result<(), WorkspaceError>,
    ) -> Result<CommitBase, WorkspaceError> {
        let mut writer = ImportWriter::new(&mut to.contents, self.limits, watch);
        copy(&mut writer)?;
        let ignores = hard_links::remove_revealing(&mut writer, rules)?;
        let WrittenTree { mut rows, folders, submodules, narrowed, skipped } = writer.finish();
        let commit = if let Some((_, Some(commit))) = &source {
            commit.clone()
        } else {
            watch.progress("committing", rows.len() as u64, bytes_of(&rows));
            tracked::mark_untracked(&mut rows, &ignores);
            bare::commit_of(rows.iter().filter(|row| !row.is_ignored))
        };
        let head = Head { commit, submodules, ignores, narrowed };
        let folder_count = folders.len();
        let list = manifest::write(&head, &rows, folders);
        create_file(&to.dir, MANIFEST_NAME)?.write_all(&list)?;
        to.write_locations(&rows)?;
        if watch.cancelled() {
            return Err(WorkspaceError::Cancelled);
        }
        let base = to.place(&describe(&head, &rows, folder_count, &list))?;
        let made = CommitBase { base, skipped };
        if let Some((origin, commit)) = source {
            bases.note(&origin, commit.as_deref().unwrap_or(NO_COMMIT), &made)?;
        }
        Ok(made)
    }
}

/// Returns the size of the files.
fn bytes_of(rows: &[ManifestRow]) -> u64 {
    rows.iter().filter(|row| row.mode != MODE_LINK).map(|row| row.size).sum()
}

/// Describes the base with this list of files.
pub(crate) fn describe(head: &Head, rows: &[ManifestRow], folders: usize, list: &[u8]) -> BaseInfo {
    let untracked: Vec<_> = rows.iter().filter(|row| row.is_ignored).collect();
    let links = rows.iter().filter(|row| row.mode == MODE_LINK).count();
    let bytes = bytes_of(rows);
    BaseInfo {
        commit: head.commit.clone(),
        manifest_sha256: manifest::digest(rows.iter().filter(|row| !row.is_ignored)),
        untracked_sha256: (!untracked.is_empty()).then(|| manifest::digest(untracked)),
        files: rows.len() as u64,
        bytes,
        quota_bytes: bytes.saturating_add((folders + links) as u64 * ENTRY_BYTES),
        list_sha256: Sha256::of(list),
    }
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
