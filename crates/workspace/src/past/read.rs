//! One text file as it was.

use std::sync::atomic::AtomicBool;

use model::{Access, Code, LogicalPath, Refusal, Rules, Sha256};

use super::{ContentLocation, ContentStore, Snapshot};
use crate::error::{file_too_large, not_a_file, unsupported_binary};
use crate::guard::Blocking;
use crate::read::{is_binary, kind_of};
use crate::{FileContent, Workspace, WorkspaceError};

impl Workspace {
    /// Reads the text file that was at `path`, at most `max_bytes` of it; judged as if it were there now.
    ///
    /// # Errors
    ///
    /// As for [`Tree::read`](crate::Tree::read); `NOT_FOUND` also where the bytes were too many to be kept.
    pub fn read_snapshot(
        &self,
        rules: &Rules,
        past: &Snapshot,
        path: &LogicalPath,
        max_bytes: u64,
        contents: &dyn ContentStore,
        cancel: &AtomicBool,
    ) -> Result<FileContent, WorkspaceError> {
        let by_name = rules.kind_of_path(path);
        self.tree().judge(rules, Access::Read, path, None, by_name, Blocking::Allowed)?;
        let Some(file) = past.files.get(path) else {
            let refusal = if past.has_beneath(path) { not_a_file(path) } else { was_not_there(path) };
            return Err(refusal.into());
        };
        if file.is_link {
            return Err(was_a_link(path).into());
        }
        if let ContentLocation::Base { size_bytes } = file.location
            && size_bytes > max_bytes
        {
            return Err(file_too_large(path, max_bytes, size_bytes).into());
        }
        let bytes = self.snapshot_bytes(path, file, contents, cancel)?.ok_or_else(|| not_kept(path))?;
        if bytes.len() as u64 > max_bytes {
            return Err(file_too_large(path, max_bytes, bytes.len() as u64).into());
        }
        let kind = kind_of(rules, path, &bytes);
        if kind != by_name {
            self.tree().judge(rules, Access::Read, path, None, kind, Blocking::Allowed)?;
        }
        if is_binary(kind, &bytes) || model::detect_encoding(&bytes).is_none() {
            return Err(unsupported_binary(path).into());
        }
        let sha256 = Sha256::of(&bytes);
        Ok(FileContent { path: path.clone(), real_path: None, kind, bytes, sha256, mode: file.mode })
    }
}

/// Nothing was at `path` then.
pub(crate) fn was_not_there(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotFound,
        format!("`{path}` was not there at that record"),
        "Use list_dir with the same atSeq to see what was, or leave atSeq out.",
    )
    .at(path)
}

fn was_a_link(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotAFile,
        format!("`{path}` was a symbolic link, which is not followed into the past"),
        "Read the file that it leads to, by its own path.",
    )
    .at(path)
}

/// What was at `path` is not to be had any more.
fn not_kept(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::NotFound,
        format!("what `{path}` held at that record is not kept any more"),
        "It was too large to be kept: only its hash is, in the audit. Leave atSeq out to read what is there now.",
    )
    .at(path)
}
