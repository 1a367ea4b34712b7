//! Counting all entries of a listing of which some are missing.

use std::ffi::CString;
use std::io;

use rustix::fs::FileType;

use super::{JudgedName, Lister};
use crate::WorkspaceError;
use crate::error::check_cancelled;
use crate::guard::{Root, TreeFolder};
use crate::ignored::RuleScope;
use crate::query::list::MAX_COUNTED;
use crate::query::not_shown::NotShown;
use crate::walk::WalkPath;

impl Lister<'_> {
    /// Whether all entries are to be counted.
    pub(crate) fn counts_all(&self) -> bool {
        self.query.counts_all && (self.truncated || self.query.after.is_some())
    }

    /// Counts all entries of the requested folder, which is open as `dir`, and those that are left out. `None` if there are more than [`MAX_COUNTED`].
    pub(crate) fn count(&mut self, dir: &TreeFolder, at: &WalkPath) -> Result<Option<u64>, WorkspaceError> {
        // The listing has read the folder to its end.
        Root::rewind(dir)?;
        let scope = self.scope.clone();
        let mut total = 0;
        self.not_shown = NotShown::default();
        self.count_folder(dir, at, &scope, 1, &mut total)?;
        Ok(Some(total).filter(|total| *total <= MAX_COUNTED))
    }

    fn count_folder(
        &mut self,
        dir: &TreeFolder,
        at: &WalkPath,
        scope: &RuleScope,
        depth: u32,
        total: &mut u64,
    ) -> Result<(), WorkspaceError> {
        let (tree, filter, enters) = (self.tree, self.filter, depth < self.query.max_depth);
        let not_shown = &mut self.not_shown;
        let mut folders: Vec<(CString, WalkPath)> = Vec::new();
        let counted = tree.root.each_entry(dir, &mut self.buffer, |name, file_type| {
            check_cancelled(self.cancel)?;
            if *total > MAX_COUNTED {
                return Ok(());
            }
            let found = match filter.judge(tree, at, scope, name, file_type)? {
                JudgedName::Listed(found) => found,
                JudgedName::LeftOut(reason) => {
                    not_shown.add(reason);
                    return Ok(());
                }
                JudgedName::Unnamed => return Ok(()),
            };
            *total += 1;
            match file_type {
                FileType::Directory if enters => folders.extend(found.at.map(|at| (found.name, at))),
                FileType::Directory => not_shown.unopened_folders += 1,
                _ => {}
            }
            Ok(())
        });
        match counted {
            // The folder was replaced by a file meanwhile.
            Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
            counted => counted?,
        }
        for (name, at) in folders {
            if *total > MAX_COUNTED {
                break;
            }
            let inner = match self.tree.root.open_subfolder(dir, &name) {
                Ok(inner) => inner,
                Err(error) => {
                    error.unless_disk()?;
                    continue;
                }
            };
            let scope = match &self.tree.ignored {
                Some(ignored) => ignored.enter(&self.tree.root, scope, at.real().as_str().as_bytes(), &inner)?,
                None => RuleScope::default(),
            };
            self.count_folder(&inner, &at, &scope, depth + 1, total)?;
        }
        Ok(())
    }
}
