//! The files of a folder that a mutation changes as a whole.

use model::{Code, LogicalPath, Refusal};
use rustix::fs::FileType;

use crate::{Workspace, WorkspaceError};

impl Workspace {
    /// Returns every entry under the folder at `path` that is no folder, sorted; `None` if there is no folder. Stops after `most`
    /// entries. Neither policy nor the ignore rules apply.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED` if an entry has a name that no call can use; if the disk fails.
    pub fn files_under(&self, path: &LogicalPath, most: usize) -> Result<Option<Vec<LogicalPath>>, WorkspaceError> {
        let (mut files, mut folders, mut buffer) = (Vec::new(), vec![path.clone()], Vec::new());
        let mut is_folder = false;
        while let Some(folder) = folders.pop() {
            let opened = match self.tree().root.open_unlinked(&folder) {
                Ok(opened) if opened.file_type() == FileType::Directory => opened,
                // A file, or removed meanwhile.
                Ok(_) => continue,
                Err(error) => {
                    error.unless_disk()?;
                    continue;
                }
            };
            is_folder = true;
            self.tree().root.each_entry(&opened.into_folder(&folder), &mut buffer, |name, file_type| {
                let child = name.to_str().ok().and_then(|name| folder.child(name).ok());
                let child = child.ok_or_else(|| unnameable(&folder))?;
                match file_type {
                    FileType::Directory => folders.push(child),
                    _ if files.len() < most => files.push(child),
                    _ => {}
                }
                Ok::<(), WorkspaceError>(())
            })?;
            if files.len() == most {
                break;
            }
        }
        files.sort_unstable();
        Ok(is_folder.then_some(files))
    }
}

fn unnameable(folder: &LogicalPath) -> Refusal {
    let message = format!("`{folder}` has an entry that no call can change");
    Refusal::new(Code::PathRejected, message, "Move or delete the other files of the folder one by one.").at(folder)
}
