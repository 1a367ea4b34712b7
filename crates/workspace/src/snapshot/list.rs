//! Listing a folder of a snapshot.

use std::ffi::{CStr, CString};
use std::sync::atomic::AtomicBool;

use model::{Access, Code, FileKind, LogicalPath, Rules};
use rustix::fs::FileType;

use super::read::not_in_snapshot;
use super::{ContentLocation, Snapshot, SnapshotFile, StoredContents};
use crate::error::not_a_directory;
use crate::guard::Blocking;
use crate::ignored::RuleScope;
use crate::opened_file::{is_binary, kind_of};
use crate::query::RANGED_READ_FACTOR;
use crate::query::entry::{EntryType, shows_keys};
use crate::query::list::list;
use crate::walk::{Candidate, FolderSource, WalkPath, WalkRoot};
use crate::{FolderEntry, ListQuery, Listing, Tree, Workspace, WorkspaceError};

/// The folders and files of a snapshot.
struct SnapshotSource<'a> {
    tree: &'a Tree,
    snapshot: &'a Snapshot,
    contents: &'a (dyn StoredContents + Sync),
}

impl Workspace {
    /// Lists a folder of a snapshot. A folder existed as long as a file was in it.
    ///
    /// # Errors
    ///
    /// As for [`Tree::list`](crate::Tree::list).
    pub fn list_snapshot(
        &self,
        rules: &Rules,
        snapshot: &Snapshot,
        query: &ListQuery,
        contents: &(dyn StoredContents + Sync),
        cancel: &AtomicBool,
    ) -> Result<Listing, WorkspaceError> {
        let (tree, path) = (self.tree(), &query.path);
        if !snapshot.has_files_under(path) {
            tree.judge(rules, Access::Read, path, None, rules.kind_of_path(path), Blocking::Allowed)?;
            let is_file = snapshot.get(path).is_some();
            return Err(if is_file { not_a_directory(path) } else { not_in_snapshot(path) }.into());
        }
        let at = WalkPath { shown: path.clone(), real: None };
        let root = WalkRoot { dir: path.clone(), at, scope: tree.scope_of(path)? };
        let source = SnapshotSource { tree, snapshot, contents };
        list(&source, rules, query, root, &|_, candidate| source.describe(rules, candidate), cancel)
    }
}

impl SnapshotSource<'_> {
    /// Describes an entry as far as that is known without the tree: policy is decided by its path.
    fn describe(&self, rules: &Rules, candidate: &Candidate) -> Result<Option<FolderEntry>, WorkspaceError> {
        let path = &candidate.at.shown;
        let refused = |kind| candidate.refusal(rules, kind, false);
        let (kind, size_bytes, refused) = match self.snapshot.get(path) {
            None => (Some(rules.kind_of_dir(path)), None, refused(FileKind::Directory)),
            Some(file) if file.is_link => (None, None, Some(Code::NotAFile)),
            Some(file) => {
                let (kind, size_bytes, refused) = self.describe_file(rules, path, &file, refused)?;
                (Some(kind), size_bytes, refused)
            }
        };
        let facts = candidate.facts(kind.unwrap_or(candidate.kind), false);
        // Where the keys of the file are shown, its size would be the length of its values.
        let size_bytes = size_bytes.filter(|size| refused.is_none() || !shows_keys(rules, &facts, *size));
        let entry_type = EntryType::of(candidate.file_type);
        Ok(Some(FolderEntry::new(path, entry_type, kind, size_bytes, refused)))
    }

    /// Returns the kind of a file, its size, and the code that reading it would be refused with. `refused` says that of a kind.
    fn describe_file(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        file: &SnapshotFile,
        refused: impl Fn(FileKind) -> Option<Code>,
    ) -> Result<(FileKind, Option<u64>, Option<Code>), WorkspaceError> {
        let by_name = rules.kind_of_path(path);
        let (kind, size_bytes, binary) = match file.location {
            ContentLocation::Base { size_bytes } => {
                let base = &self.snapshot.base;
                let index = base.manifest.get(path.as_str().as_bytes()).filter(|_| by_name == FileKind::Unknown);
                let head = index.map(|index| base.head(index)).transpose()?;
                (head.map_or(by_name, |head| kind_of(rules, path, &head)), Some(size_bytes), false)
            }
            ContentLocation::Ledger { seq, kind } => {
                let bytes = self.contents.content(seq, &file.sha256)?;
                let binary = bytes.as_ref().is_some_and(|bytes| is_binary(kind, bytes));
                (kind, bytes.map(|bytes| bytes.len() as u64), binary)
            }
        };
        let max_bytes = rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR);
        let judged = if kind == FileKind::SecretLike { kind } else { by_name };
        let refused = refused(judged).or(match size_bytes {
            None => Some(Code::NotFound),
            Some(size) if size > max_bytes => Some(Code::FileTooLarge),
            Some(_) => (binary || kind == FileKind::Binary).then_some(Code::UnsupportedBinary),
        });
        Ok((kind, size_bytes, refused))
    }
}

impl FolderSource for SnapshotSource<'_> {
    type Folder = LogicalPath;

    fn tree(&self) -> &Tree {
        self.tree
    }

    fn each_entry(
        &self,
        folder: &LogicalPath,
        _buffer: &mut Vec<u8>,
        visit: &mut dyn FnMut(&CStr, FileType) -> Result<(), WorkspaceError>,
    ) -> Result<(), WorkspaceError> {
        for (name, file_type) in self.snapshot.entries_in(folder) {
            // No path has a NUL.
            let Ok(name) = CString::new(name) else { continue };
            visit(&name, file_type)?;
        }
        Ok(())
    }

    fn open(
        &self,
        _parent: Option<(&LogicalPath, &CStr)>,
        path: &LogicalPath,
    ) -> Result<Option<LogicalPath>, WorkspaceError> {
        Ok(Some(path.clone()))
    }

    fn scope(
        &self,
        _above: &RuleScope,
        folder: &LogicalPath,
        _path: &LogicalPath,
        _has_gitignore: bool,
    ) -> Result<RuleScope, WorkspaceError> {
        Ok(self.tree.scope_of(folder)?)
    }
}
