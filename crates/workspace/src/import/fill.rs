//! Writing the tree and the base of a run into its folder, from each kind of source.

use std::io::Write as _;
use std::os::fd::AsFd as _;

use model::Rules;
use rustix::fs::Mode;

use super::base_parts::Untracked;
use super::git::{self, GitSource, Origin};
use super::staging::{Done, Staging};
use super::writer::ImportWriter;
use super::{
    FOLDERS, ImportError, ImportObserver, ImportSource, Workspaces, archive, bare, directory, hard_links, reuse,
    run_folders, tracked, tree_note,
};
use crate::base::manifest::{self, Head};
use crate::base::{GIT_NAME, MANIFEST_NAME};
use crate::dir::{create_file, open_dir};
use crate::git::Git;

impl Workspaces {
    pub(super) fn fill(
        &self,
        staging: &Staging<'_>,
        source: ImportSource<'_>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<Done, ImportError> {
        for folder in FOLDERS {
            rustix::fs::mkdirat(&staging.dir, folder, Mode::RWXU)?;
        }
        run_folders::mark_unfinished(&staging.dir)?;
        tree_note::reserve(&staging.dir)?;
        let git_dir = self.path.join(&staging.name).join(GIT_NAME);
        bare::make(&git_dir)?;
        let git = Git::new(git_dir, &self.home);
        match source {
            ImportSource::GitRemote { url, reference, credential } => {
                let credential = credential.map(|name| self.credential(&name, &url)).transpose()?;
                self.fill_from_git(
                    staging,
                    &git,
                    &Origin::Remote { url, credential },
                    reference.as_deref(),
                    rules,
                    watch,
                )
            }
            ImportSource::GitLocal { path, reference } => {
                let path = git::find(&path, &|real| self.is_allowed(real))?;
                let origin = Origin::Local { path, reads: self.import_roots.clone() };
                self.fill_from_git(staging, &git, &origin, reference.as_deref(), rules, watch)
            }
            source => self.write(staging, &git, rules, watch, |writer| {
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
        staging: &Staging<'_>,
        git: &Git,
        origin: &Origin<'_>,
        reference: Option<&str>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<Done, ImportError> {
        let source = GitSource::new(git, origin, reference, self.limits, watch)?;
        let id = reuse::origin_id(origin);
        let bases = self.base_index.of(&self.dir, id)?;
        // The repository is asked even if the commit is known: the credential may be revoked, and a ref may have moved.
        if let Some(commit) = if bases.is_empty() { None } else { source.tip()? } {
            for run in bases.into_iter().filter(|(known, _)| *known == commit).map(|(_, run)| run) {
                match reuse::copy(&self.dir, &run, (id, &commit), &staging.dir, git, watch) {
                    Ok(done) => return Ok(done),
                    Err(reuse::CopyError::Import(error)) => return Err(error),
                    Err(reuse::CopyError::Unusable(error)) => {
                        tracing::info!(run.id = %run, %error, "the base of a run cannot be reused");
                        self.base_index.remove(&run);
                        staging.empty(git.dir())?;
                    }
                }
            }
        }
        let mut done = self.write(staging, git, rules, watch, |writer| source.copy(writer).map(Some))?;
        reuse::describe(&staging.dir, git, id, &done)?;
        done.reusable = Some((id, done.base_commit.clone()));
        Ok(done)
    }

    /// Writes the tree with `copy`, which returns its commit if the source is a git repository, and the base.
    fn write(
        &self,
        staging: &Staging<'_>,
        git: &Git,
        rules: &Rules,
        watch: &dyn ImportObserver,
        copy: impl FnOnce(&mut ImportWriter<'_>) -> Result<Option<String>, ImportError>,
    ) -> Result<Done, ImportError> {
        let repo = open_dir(&staging.dir, "repo")?;
        let mut writer = ImportWriter::new(repo.try_clone()?, self.limits, watch);
        let commit = copy(&mut writer)?;
        hard_links::remove_revealing(&mut writer, repo.as_fd(), rules)?;
        let folders = writer.folders()?;
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
            bare::commit(git, repo.as_fd(), &rows, watch)?
        };
        let head = Head { commit: base_commit.clone(), ignores };
        let manifest_sha256 = manifest::digest(&rows);
        create_file(&staging.dir, MANIFEST_NAME)?.write_all(&manifest::write(&head, rows, folders))?;
        Ok(Done {
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
