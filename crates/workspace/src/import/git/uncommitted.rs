//! Changes in the working tree of a local source that its commit does not have, and that a run from the commit therefore lacks.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::atomic::{AtomicBool, Ordering};

use super::find::open_regular;
use super::{GitOrigin, GitSource};
use crate::git::{Bounds, GitError};

/// The time limit of each call of git.
const SECONDS: u64 = 20;
/// The most bytes of names.
const MAX_NAME_BYTES: usize = 4 << 20;
/// The most bytes of the name of a branch.
const MAX_HEAD_BYTES: u64 = 64 * 1024;
/// The largest index that is read.
const MAX_INDEX_BYTES: u64 = 256 << 20;
/// The copy of the source's index, in the folder of the run's base.
const INDEX: &str = "source-index";

impl GitSource<'_> {
    /// Returns the paths of uncommitted and untracked files of the source's working tree, if `commit` is what is checked out there. None
    /// if that cannot be found out, or if `stop` is set: the import itself does not depend on it.
    pub(in crate::import) fn uncommitted(&self, commit: &str, stop: &AtomicBool) -> Vec<Vec<u8>> {
        self.list_uncommitted(commit, stop).unwrap_or_else(|error| {
            tracing::info!(%error, "uncommitted changes of a git source could not be listed");
            Vec::new()
        })
    }

    fn list_uncommitted(&self, commit: &str, stop: &AtomicBool) -> Result<Vec<Vec<u8>>, GitError> {
        let GitOrigin::Local { path, reads, work_tree: Some(work_tree) } = self.origin else { return Ok(Vec::new()) };
        let is_checked_out = self.reference == "HEAD" || {
            let mut head = String::new();
            open_regular(&path.join("HEAD"))?.take(MAX_HEAD_BYTES).read_to_string(&mut head)?;
            let branch = head.trim().strip_prefix("ref: refs/heads/");
            branch.is_some_and(|branch| self.reference.strip_prefix("refs/heads/").unwrap_or(self.reference) == branch)
        };
        let index = path.join("index");
        if !is_checked_out || !index.exists() {
            return Ok(Vec::new());
        }
        // Git writes beside the index that it reads. The source is not written to.
        let copy = self.git.dir().join(INDEX);
        let index = open_regular(&index)?;
        if index.metadata()?.len() > MAX_INDEX_BYTES {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
        }
        io::copy(&mut index.take(MAX_INDEX_BYTES), &mut File::create(&copy)?)?;
        // Only the service's own configuration is read, in which no filter is.
        let git =
            self.git.clone().reading(reads).with_env("GIT_INDEX_FILE", &copy).with_env("GIT_WORK_TREE", work_tree);
        let stop = || stop.load(Ordering::Relaxed) || self.watch.cancelled();
        let names =
            |args: &[&str]| git.output(args, MAX_NAME_BYTES, &Bounds { stop: &stop, ..Bounds::seconds(SECONDS) });
        let changed = |more: &[&str]| {
            let diff = [
                "diff",
                "--name-only",
                "-z",
                "--no-renames",
                "--no-ext-diff",
                "--no-textconv",
                "--ignore-submodules=all",
            ];
            names(&[&diff, more, &[commit]].concat())
        };
        // A file may be as in the commit, and staged otherwise. What is staged cannot be compared with the files: the base lacks it.
        let (changed, staged) = (changed(&[]), changed(&["--cached"]));
        let untracked = names(&["ls-files", "-z", "--others", "--exclude-standard"]);
        std::fs::remove_file(&copy)?;
        let lists = [changed?, staged?, untracked?];
        let all = lists.iter().flat_map(|list| list.split(|byte| *byte == 0));
        let mut all: Vec<_> = all.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}
