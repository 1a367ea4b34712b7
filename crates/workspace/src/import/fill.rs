//! Writing the tree and the base of a run into its folder, from each kind of source.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use model::{Rules, Sha256};
use rustix::fs::Mode;

use super::git::{self, GitOrigin, GitSource};
use super::quota::SkippedReport;
use super::tracked::Untracked;
use super::writer::ImportWriter;
use super::{
    ImportError, ImportObserver, ImportSource, Importer, archive, bare, directory, hard_links, reuse, tracked,
};
use crate::base::manifest::{self, Head};
use crate::base::{GIT_NAME, MANIFEST_NAME};
use crate::dir::{create_file, open_dir, remove_file};
use crate::git::Git;
use crate::remove::remove_tree;

/// The result of an import.
pub(crate) struct FilledRun {
    pub(crate) base_commit: String,
    pub(crate) manifest_sha256: Sha256,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: SkippedReport,
    /// The number of files and folders.
    pub(crate) entries: usize,
    /// The repository and the commit by which another run finds this base.
    pub(crate) reusable: Option<(Sha256, String)>,
    /// The files that git ignores.
    pub(crate) untracked: Untracked,
}

/// Where the tree and the base of a run are written.
pub(crate) struct Destination<'a> {
    /// The folder of all runs, whose bases may be reused.
    pub(crate) runs: &'a OwnedFd,
    /// The folder of the new run, in which the folder of its tree is empty.
    pub(crate) folder: &'a OwnedFd,
    /// The repository of its base, which does not exist yet.
    pub(crate) git: Git,
}

impl Destination<'_> {
    /// Removes what an attempt has written of the tree and the base.
    fn empty(&self) -> io::Result<()> {
        // What an attempt left in it could make git believe that it has a commit whose objects are missing.
        remove_tree(self.folder.as_fd(), GIT_NAME)?;
        bare::make(self.git.dir())?;
        remove_tree(self.folder.as_fd(), "repo")?;
        rustix::fs::mkdirat(self.folder, "repo", Mode::RWXU)?;
        for name in [MANIFEST_NAME, reuse::NAME] {
            remove_file(self.folder, name)?;
        }
        Ok(())
    }
}

impl Importer {
    /// Writes the tree and the base of a run from `source`.
    pub(crate) fn fill(
        &self,
        to: &Destination<'_>,
        source: ImportSource<'_>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<FilledRun, ImportError> {
        bare::make(to.git.dir())?;
        match source {
            ImportSource::GitRemote { url, reference, credential } => {
                let credential = credential.map(|name| self.credential(&name, &url)).transpose()?;
                self.fill_from_git(to, &GitOrigin::Remote { url, credential }, reference.as_deref(), rules, watch)
            }
            ImportSource::GitLocal { path, reference } => {
                let work_tree = git::work_tree(&path);
                let path = git::find(&path, &|real| self.is_allowed(real))?;
                let origin = GitOrigin::Local { path, reads: self.roots.clone(), work_tree };
                let mut done = self.fill_from_git(to, &origin, reference.as_deref(), rules, watch)?;
                for path in git::uncommitted(&to.git, &origin, reference.as_deref(), &done.base_commit) {
                    done.skipped.add(&path, "an uncommitted change of the source");
                }
                Ok(done)
            }
            source => self.write(to, rules, watch, |writer| {
                match source {
                    ImportSource::Directory(path) => directory::copy(&path, &self.own.ids, self.limits, writer)?,
                    ImportSource::Archive(archive) => archive::copy(archive, self.limits, writer)?,
                    ImportSource::Empty | ImportSource::GitRemote { .. } | ImportSource::GitLocal { .. } => {}
                }
                Ok(None)
            }),
        }
    }

    /// Copies the base of another run that started from the same commit; if there is none, fetches the commit. The tree of a
    /// commit does not depend on the rules, which decide on hard links only.
    fn fill_from_git(
        &self,
        to: &Destination<'_>,
        origin: &GitOrigin<'_>,
        reference: Option<&str>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<FilledRun, ImportError> {
        let source = GitSource::new(&to.git, origin, reference, self.limits, watch)?;
        let id = reuse::origin_id(origin);
        let bases = self.bases.of(to.runs, id)?;
        // The repository is asked even if the commit is known: the credential may be revoked, and a ref may have moved.
        if let Some(commit) = if bases.is_empty() { None } else { source.tip()? } {
            for run in bases.into_iter().filter(|(known, _)| *known == commit).map(|(_, run)| run) {
                match reuse::copy(to, &run, (id, &commit), watch) {
                    Ok(done) => return Ok(done),
                    Err(reuse::CopyError::Import(error)) => return Err(error),
                    Err(reuse::CopyError::Unusable(error)) => {
                        tracing::info!(run.id = %run, %error, "the base of a run cannot be reused");
                        self.bases.remove(&run);
                        to.empty()?;
                    }
                }
            }
        }
        let mut done = self.write(to, rules, watch, |writer| source.copy(writer).map(Some))?;
        reuse::describe(to, id, &done)?;
        done.reusable = Some((id, done.base_commit.clone()));
        Ok(done)
    }

    /// Writes the tree with `copy`, which returns its commit if the source is a git repository, and the base.
    fn write(
        &self,
        to: &Destination<'_>,
        rules: &Rules,
        watch: &dyn ImportObserver,
        copy: impl FnOnce(&mut ImportWriter<'_>) -> Result<Option<String>, ImportError>,
    ) -> Result<FilledRun, ImportError> {
        let repo = open_dir(to.folder, "repo")?;
        let mut writer = ImportWriter::new(repo.try_clone()?, self.limits, watch);
        let commit = copy(&mut writer)?;
        hard_links::remove_revealing(&mut writer, repo.as_fd(), rules)?;
        let (folders, submodules) = (writer.folders()?, writer.submodules());
        let (mut rows, skipped) = writer.into_rows();
        let entries = rows.len() + folders.len();
        // The writer's own counts include files that it removed again.
        let files = rows.len() as u64;
        let bytes = rows.iter().filter(|row| row.mode != manifest::MODE_LINK).map(|row| row.stamp.size).sum();
        let ignores = tracked::ignore_files(repo.as_fd(), &rows)?;
        let mut untracked = Vec::new();
        let base_commit = if let Some(commit) = commit {
            commit
        } else {
            watch.progress("committing", files, bytes);
            untracked = tracked::take_untracked(&mut rows, &ignores);
            bare::commit(&to.git, repo.as_fd(), &rows, watch)?
        };
        let head = Head { commit: base_commit.clone(), submodules, ignores };
        let manifest_sha256 = manifest::digest(&rows);
        create_file(to.folder, MANIFEST_NAME)?.write_all(&manifest::write(&head, rows, folders))?;
        Ok(FilledRun {
            base_commit,
            manifest_sha256,
            files,
            bytes,
            skipped,
            entries,
            reusable: None,
            untracked: Untracked(untracked.into()),
        })
    }
}
