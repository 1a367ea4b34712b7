//! Making a base from each kind of source.

use std::collections::HashSet;
use std::io::Write as _;

use model::{Rules, Sha256};
use sha2::Digest as _;

use super::git::{self, GitOrigin, GitSource};
use super::writer::{ENTRY_BYTES, ImportWriter};
use super::{ImportError, ImportObserver, ImportSource, Importer, archive, bare, directory, hard_links, tracked};
use crate::base::MANIFEST_NAME;
use crate::base_files::manifest::{self, Head, MODE_LINK, ManifestRow};
use crate::bases::{BaseInfo, BaseStore, KnownSource, StagedBase};
use crate::byte_path::folders_above;
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
        let done = match source {
            ImportSource::GitRemote { url, reference, credential } => {
                let credential = credential.map(|name| self.credential(&name, &url)).transpose()?;
                let origin = GitOrigin::Remote { url, credential };
                self.fill_from_git(to, known, &origin, reference.as_deref(), rules, watch)?
            }
            ImportSource::GitLocal { path, reference } => {
                let work_tree = git::work_tree(&path);
                let path = git::find(&path, &|real| self.is_allowed(real))?;
                let origin = GitOrigin::Local { path, reads: self.roots.clone(), work_tree };
                let done = self.fill_from_git(to, known, &origin, reference.as_deref(), rules, watch)?;
                let commit = match &done {
                    FilledBase::Known(source) => {
                        bare::borrow(to.git.dir(), known.get(&source.base)?.git().dir())?;
                        &source.commit
                    }
                    FilledBase::New(new) => &new.info.commit,
                };
                let uncommitted = git::uncommitted(&to.git, &origin, reference.as_deref(), commit);
                return Ok((done, uncommitted));
            }
            source => FilledBase::New(self.write(to, rules, watch, |writer| {
                match source {
                    ImportSource::Directory(path) => directory::copy(&path, &self.own.ids, self.limits, writer)?,
                    ImportSource::Archive(archive) => archive::copy(archive, self.limits, writer)?,
                    ImportSource::Empty | ImportSource::GitRemote { .. } | ImportSource::GitLocal { .. } => {}
                }
                Ok(None)
            })?),
        };
        Ok((done, Vec::new()))
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
    ) -> Result<FilledBase, ImportError> {
        let git = to.git.clone();
        let source = GitSource::new(&git, origin, reference, self.limits, watch)?;
        let id = origin_id(origin);
        if known.knows(&id)
            // The repository is asked even if the commit is known: the credential may be revoked, and a ref may have moved.
            && let Some(commit) = source.tip()?
        {
            if let Some(source) = known.known(&id, &commit) {
                return Ok(FilledBase::Known(source));
            }
            // Not if the commit is perhaps only in an earlier base, and in the repository no more.
            if let Some(earlier) = known.newest(&id) {
                to.share(&earlier)?;
            }
        }
        let mut done = self.write(to, rules, watch, |writer| source.copy(writer).map(Some))?;
        done.source = Some((id, done.info.commit.clone()));
        Ok(FilledBase::New(done))
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
        hard_links::remove_revealing(&mut writer, rules)?;
        let (folders, submodules, narrowed) = (writer.folders(), writer.submodules(), writer.take_narrowed());
        let (mut rows, skipped) = writer.into_rows();
        let ignores = tracked::ignore_files(&to.contents, &rows)?;
        let commit = if let Some(commit) = commit {
            commit
        } else {
            watch.progress("committing", rows.len() as u64, bytes_of(&rows));
            tracked::mark_untracked(&mut rows, &ignores);
            let tracked: Vec<_> = rows.iter().filter(|row| !row.is_ignored).cloned().collect();
            bare::commit(&to.git, &to.contents, &tracked, watch)?
        };
        let head = Head { commit, submodules, ignores, narrowed };
        let info = describe(&head, &rows, &folders);
        manifest::sort(&mut rows);
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
    if empty.is_empty() && head.narrowed.is_empty() {
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
