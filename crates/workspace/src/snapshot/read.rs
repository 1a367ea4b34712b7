//! Reading a text file of a snapshot.

use model::{Access, Code, LogicalPath, Refusal, Rules, Sha256};

use super::{ContentLocation, Snapshot, StoredContents};
use crate::error::{file_too_large, not_a_file, unsupported_binary};
use crate::guard::Blocking;
use crate::opened_file::{is_binary, kind_of};
use crate::{FileContent, Transfer, Workspace, WorkspaceError};

impl Workspace {
    /// Reads the text file at `path` in a snapshot, if it has at most `max_bytes`. It is judged as if it were in the tree.
    ///
    /// # Errors
    ///
    /// As for [`Tree::read`](crate::Tree::read); `NOT_FOUND` also if the bytes were too many to be stored.
    pub fn read_snapshot(
        &self,
        rules: &Rules,
        snapshot: &Snapshot,
        path: &LogicalPath,
        max_bytes: u64,
        contents: &dyn StoredContents,
    ) -> Result<FileContent, WorkspaceError> {
        let file = self.snapshot_file(rules, snapshot, path, max_bytes, contents)?;
        if is_binary(file.kind, &file.bytes) || model::detect_encoding(&file.bytes).is_none() {
            return Err(unsupported_binary(path).into());
        }
        Ok(file)
    }

    /// Reads the file at `path` in a snapshot to be sent, if it has at most `max_bytes`. It may be of any kind, is judged as if it were in
    /// the tree, and is held in memory.
    ///
    /// # Errors
    ///
    /// As for [`Tree::open_transfer`](crate::Tree::open_transfer); `NOT_FOUND` also if the bytes were too many to be stored.
    pub fn snapshot_transfer(
        &self,
        rules: &Rules,
        snapshot: &Snapshot,
        path: &LogicalPath,
        max_bytes: u64,
        contents: &dyn StoredContents,
    ) -> Result<Transfer, WorkspaceError> {
        Ok(Transfer::of_content(self.snapshot_file(rules, snapshot, path, max_bytes, contents)?))
    }

    fn snapshot_file(
        &self,
        rules: &Rules,
        snapshot: &Snapshot,
        path: &LogicalPath,
        max_bytes: u64,
        contents: &dyn StoredContents,
    ) -> Result<FileContent, WorkspaceError> {
        let by_name = rules.kind_of_path(path);
        self.tree().judge(rules, Access::Read, path, None, by_name, Blocking::Allowed)?;
        let Some(file) = snapshot.get(path) else {
            let refusal = if snapshot.has_files_under(path) { not_a_file(path) } else { not_in_snapshot(path) };
            return Err(refusal.into());
        };
        if file.is_link {
            return Err(is_a_link(path).into());
        }
        if let ContentLocation::Base { size_bytes } = file.location
            && size_bytes > max_bytes
        {
            return Err(file_too_large(path, max_bytes, size_bytes).into());
        }
        let bytes = self.snapshot_content(path, &file, contents)?.ok_or_else(|| not_stored(path))?;
        if bytes.len() as u64 > max_bytes {
            return Err(file_too_large(path, max_bytes, bytes.len() as u64).into());
        }
        let kind = kind_of(rules, path, &bytes);
        if kind != by_name {
            self.tree().judge(rules, Access::Read, path, None, kind, Blocking::Allowed)?;
        }
        let sha256 = Sha256::of(&bytes);
        Ok(FileContent { path: path.clone(), real_path: None, kind, bytes, sha256, mode: file.mode })
    }
}

/// The snapshot has nothing at `path`.
pub(crate) fn not_in_snapshot(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotFound,
        format!("`{path}` did not exist at that record"),
        "Use list_dir with the same atSeq to see what existed, or omit atSeq.",
    )
    .at(path)
}

fn is_a_link(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotAFile,
        format!("`{path}` was a symbolic link at that record; links of past records are not followed"),
        "Read the link's target by its own path.",
    )
    .at(path)
}

/// The bytes of the file at `path` are not stored.
fn not_stored(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotFound,
        format!("the content of `{path}` at that record is not stored"),
        "The file was too large to be stored; the audit has only its hash. Omit atSeq to read the current content.",
    )
    .at(path)
}
