//! Listing a folder of a snapshot.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use model::{Access, Code, FileKind, LogicalPath, PathFacts, Rules};

use super::read::not_in_snapshot;
use super::{ContentLocation, Snapshot, SnapshotFile, StoredContents};
use crate::error::{check_cancelled, not_a_directory};
use crate::guard::Blocking;
use crate::ignored::RuleScope;
use crate::ignored::is_machine_made;
use crate::opened_file::{is_binary, kind_of};
use crate::query::RANGED_READ_FACTOR;
use crate::query::list::{ENTRY_OVERHEAD, MAX_COUNTED};
use crate::query::not_shown::{LeftOut, NotShown};
use crate::{BoundedEntries, EntryType, FolderEntry, ListQuery, Listing, Workspace, WorkspaceError};

/// A listing under construction.
struct SnapshotLister<'a> {
    workspace: &'a Workspace,
    rules: &'a Rules,
    query: &'a ListQuery,
    /// Whether the listed folder itself is ignored, or generated or vendored: then such entries are shown.
    shows_ignored: bool,
    shows_machine_made: bool,
    /// The rules in force in each folder that is shown, and why another one is left out.
    folders: HashMap<LogicalPath, (RuleScope, Option<LeftOut>)>,
    /// The number of files within the maximum depth that are shown.
    files: u64,
    not_shown: NotShown,
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
        contents: &dyn StoredContents,
        cancel: &AtomicBool,
    ) -> Result<Listing, WorkspaceError> {
        if !snapshot.has_files_under(&query.path) {
            let by_name = rules.kind_of_path(&query.path);
            self.tree().judge(rules, Access::Read, &query.path, None, by_name, Blocking::Allowed)?;
            let is_file = snapshot.get(&query.path).is_some();
            let refusal = if is_file { not_a_directory(&query.path) } else { not_in_snapshot(&query.path) };
            return Err(refusal.into());
        }
        let mut lister = SnapshotLister::new(self, rules, query)?;
        let mut found = BoundedEntries::new(query.max_entries, ENTRY_OVERHEAD);
        let files = snapshot.files_under(&query.path);
        for (path, file) in &files {
            check_cancelled(cancel)?;
            lister.add(path, file, &mut found)?;
        }
        let (found, truncated) = found.finish();
        let total = lister.total().filter(|_| truncated || query.after.is_some());
        let shown: Vec<_> = found.into_iter().collect();
        let heads = self.base_heads(rules, &shown, cancel)?;
        let mut entries = Vec::with_capacity(shown.len());
        for (path, file) in shown {
            check_cancelled(cancel)?;
            entries.push(match file {
                None => lister.folder_entry(&path)?,
                Some(file) => lister.file_entry(&path, file, heads.get(&path), contents)?,
            });
        }
        Ok(Listing { entries, truncated, total, not_shown: lister.not_shown })
    }

    /// Reads the first bytes of base files whose kind cannot be detected from their names.
    fn base_heads(
        &self,
        rules: &Rules,
        shown: &[(LogicalPath, Option<&SnapshotFile>)],
        cancel: &AtomicBool,
    ) -> Result<HashMap<LogicalPath, Vec<u8>>, WorkspaceError> {
        let wanted = shown.iter().filter_map(|(path, file)| {
            let is_unknown = rules.kind_of_path(path) == FileKind::Unknown
                && file.is_some_and(|file| !file.is_link && matches!(file.location, ContentLocation::Base { .. }));
            is_unknown.then_some(path)
        });
        let wanted: Vec<_> = wanted.collect();
        let mut heads = HashMap::with_capacity(wanted.len());
        let base = self.base().load()?;
        for path in wanted {
            check_cancelled(cancel)?;
            if let Some(file) = base.manifest.get(path.as_str().as_bytes()) {
                heads.insert(path.clone(), base.head(file)?);
            }
        }
        Ok(heads)
    }
}

impl<'a> SnapshotLister<'a> {
    fn new(workspace: &'a Workspace, rules: &'a Rules, query: &'a ListQuery) -> Result<Self, WorkspaceError> {
        let scope = workspace.tree().scope_of(&query.path)?;
        let shows_ignored = query.include_ignored || scope.excludes_folder_itself();
        let shows_machine_made = query.include_ignored || is_machine_made(rules.kind_of_dir(&query.path));
        let folders = HashMap::from([(query.path.clone(), (scope, None))]);
        Ok(Self {
            workspace,
            rules,
            query,
            shows_ignored,
            shows_machine_made,
            folders,
            files: 0,
            not_shown: NotShown::default(),
        })
    }

    /// The number of all entries, if the query asks for it. The requested folder itself is none.
    fn total(&self) -> Option<u64> {
        let folders = self.folders.values().filter(|(_, left_out)| left_out.is_none()).count() as u64;
        let total = self.files + folders.saturating_sub(1);
        (self.query.counts_all && total <= MAX_COUNTED).then_some(total)
    }

    /// Adds the file and the folders above it, down to the maximum depth.
    fn add<'p>(
        &mut self,
        path: &LogicalPath,
        file: &'p SnapshotFile,
        found: &mut BoundedEntries<Option<&'p SnapshotFile>>,
    ) -> Result<(), WorkspaceError> {
        let depth = if self.query.path.is_root() { 0 } else { self.query.path.components().count() };
        let names: Vec<&str> = path.components().collect();
        let mut folder = self.query.path.clone();
        for (level, name) in names.iter().enumerate().skip(depth) {
            if level - depth >= self.query.max_depth as usize {
                return Ok(());
            }
            let Ok(entry) = folder.child(name) else { return Ok(()) };
            let is_folder = level + 1 < names.len();
            if found.contains(&entry) && is_folder {
                folder = entry;
                continue;
            }
            let is_new = !is_folder || !self.folders.contains_key(&entry);
            let left_out = self.left_out(&folder, &entry, is_folder)?;
            let is_after = self.query.after.as_deref().is_none_or(|after| entry.as_str() > after);
            if is_new && (is_after || self.query.counts_all) {
                match left_out {
                    Some(reason) => self.not_shown.add(reason),
                    None if is_folder && level - depth + 1 == self.query.max_depth as usize => {
                        self.not_shown.unopened_folders += 1;
                    }
                    None => {}
                }
            }
            if left_out.is_some() {
                return Ok(());
            }
            self.files += u64::from(!is_folder);
            if is_after {
                found.insert(entry.clone(), (!is_folder).then_some(file));
            }
            folder = entry;
        }
        Ok(())
    }

    /// Returns why the entry `path` of `folder` is left out; `None` if it is shown.
    fn left_out(
        &mut self,
        folder: &LogicalPath,
        path: &LogicalPath,
        is_folder: bool,
    ) -> Result<Option<LeftOut>, WorkspaceError> {
        if is_folder && let Some((_, left_out)) = self.folders.get(path) {
            return Ok(*left_out);
        }
        let kind = if is_folder { self.rules.kind_of_dir(path) } else { self.rules.kind_of_path(path) };
        let machine_made = LeftOut::machine_made(kind, is_folder).filter(|_| !self.shows_machine_made);
        let left_out = if !self.query.include_hidden && path.file_name().starts_with('.') {
            Some(LeftOut::Hidden)
        } else if machine_made.is_some() {
            machine_made
        } else if !self.shows_ignored && self.ignores(folder, path, is_folder)? {
            Some(LeftOut::Ignored)
        } else {
            None
        };
        if is_folder {
            let scope = match left_out {
                None => self.workspace.tree().scope_of(path)?,
                Some(_) => RuleScope::default(),
            };
            self.folders.insert(path.clone(), (scope, left_out));
        }
        Ok(left_out)
    }

    fn ignores(&self, folder: &LogicalPath, path: &LogicalPath, is_folder: bool) -> Result<bool, WorkspaceError> {
        let Some((scope, None)) = self.folders.get(folder) else { return Ok(false) };
        Ok(self.workspace.tree().hides(scope, path.as_str().as_bytes(), is_folder)?)
    }

    fn folder_entry(&self, path: &LogicalPath) -> Result<FolderEntry, WorkspaceError> {
        let refused = self.refused(path, FileKind::Directory, true)?;
        Ok(entry(path, EntryType::Directory, Some(self.rules.kind_of_dir(path)), None, refused))
    }

    fn file_entry(
        &self,
        path: &LogicalPath,
        file: &SnapshotFile,
        head: Option<&Vec<u8>>,
        contents: &dyn StoredContents,
    ) -> Result<FolderEntry, WorkspaceError> {
        if file.is_link {
            return Ok(entry(path, EntryType::Symlink, None, None, Some(Code::NotAFile)));
        }
        let by_name = self.rules.kind_of_path(path);
        let (size_bytes, kind, binary) = match file.location {
            ContentLocation::Base { size_bytes } => {
                (Some(size_bytes), head.map_or(by_name, |head| kind_of(self.rules, path, head)), false)
            }
            ContentLocation::Ledger { seq, kind } => {
                let bytes = contents.content(seq, &file.sha256)?;
                let binary = bytes.as_ref().is_some_and(|bytes| is_binary(kind, bytes));
                (bytes.map(|bytes| bytes.len() as u64), kind, binary)
            }
        };
        let max_bytes = self.rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR);
        let judged = if kind == FileKind::SecretLike { kind } else { by_name };
        let refused = match (self.refused(path, judged, false)?, size_bytes) {
            (Some(code), _) => Some(code),
            (None, None) => Some(Code::NotFound),
            (None, Some(size)) if size > max_bytes => Some(Code::FileTooLarge),
            (None, Some(_)) => (binary || kind == FileKind::Binary).then_some(Code::UnsupportedBinary),
        };
        Ok(entry(path, EntryType::File, Some(kind), size_bytes, refused))
    }

    /// Returns the code that reading the entry would be refused with, by its path only.
    fn refused(&self, path: &LogicalPath, kind: FileKind, is_folder: bool) -> Result<Option<Code>, WorkspaceError> {
        let folder = path.parent().unwrap_or_else(LogicalPath::root);
        let ignored = self.ignores(&folder, path, is_folder)?;
        let facts = PathFacts { path, real_path: None, kind, ignored, hard_linked: false };
        Ok(model::judge_path(self.rules, Access::Read, &facts).err().map(|refusal| refusal.code))
    }
}

fn entry(
    path: &LogicalPath,
    entry_type: EntryType,
    kind: Option<FileKind>,
    size_bytes: Option<u64>,
    refused: Option<Code>,
) -> FolderEntry {
    let reason = refused.map(|code| code.as_str().to_owned());
    FolderEntry {
        path: path.to_string(),
        entry_type,
        kind,
        size_bytes,
        readable: refused.is_none(),
        redacted: false,
        reason,
    }
}
