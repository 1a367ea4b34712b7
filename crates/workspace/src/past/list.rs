//! A listing as it was.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{Access, Code, FileKind, LogicalPath, PathFacts, Rules};

use super::read::was_not_there;
use super::{ContentLocation, ContentStore, Snapshot, SnapshotFile, of_git};
use crate::error::not_a_directory;
use crate::first::BoundedEntries;
use crate::guard::Blocking;
use crate::ignored::Scope;
use crate::list::{BESIDE_PATH, is_made};
use crate::read::{is_binary, kind_of};
use crate::{Entry, EntryType, ListQuery, Listing, Workspace, WorkspaceError};

/// So many first bytes tell the kind of a file whose name does not.
const HEAD_BYTES: u64 = 8 * 1024;
/// A ranged read takes files up to so many times `maxFileBytes`.
const RANGED_READ_FACTOR: u64 = 16;

/// A listing in the making.
struct Lister<'a> {
    workspace: &'a Workspace,
    rules: &'a Rules,
    query: &'a ListQuery,
    /// Whether the listed folder is itself ignored, or generated or vendored: then such entries are asked for.
    shows_ignored: bool,
    shows_made: bool,
    /// Whether what lies in a folder is shown, and the rules in force there.
    folders: HashMap<LogicalPath, Option<Scope>>,
}

impl Workspace {
    /// Lists a folder as it was. A folder was there as long as a file lay in it.
    ///
    /// # Errors
    ///
    /// As for [`Tree::list`](crate::Tree::list).
    pub fn list_snapshot(
        &self,
        rules: &Rules,
        past: &Snapshot,
        query: &ListQuery,
        contents: &dyn ContentStore,
        cancel: &AtomicBool,
    ) -> Result<Listing, WorkspaceError> {
        if !past.has_beneath(&query.path) {
            let by_name = rules.kind_of_path(&query.path);
            self.tree().judge(rules, Access::Read, &query.path, None, by_name, Blocking::Allowed)?;
            let was_there = past.files.contains_key(&query.path);
            let refusal = if was_there { not_a_directory(&query.path) } else { was_not_there(&query.path) };
            return Err(refusal.into());
        }
        let mut lister = Lister::new(self, rules, query)?;
        let mut found = BoundedEntries::new(query.max_entries, BESIDE_PATH);
        for (path, file) in past.beneath(&query.path) {
            check(cancel)?;
            lister.add(path, file, &mut found)?;
        }
        let (found, truncated) = found.finish();
        let shown: Vec<_> = found.into_iter().collect();
        let heads = self.base_heads(rules, &shown, cancel)?;
        let mut entries = Vec::with_capacity(shown.len());
        for (path, file) in shown {
            check(cancel)?;
            entries.push(match file {
                None => lister.folder_entry(&path)?,
                Some(file) => lister.file_entry(&path, file, heads.get(&path), contents)?,
            });
        }
        Ok(Listing { entries, truncated })
    }

    /// The first bytes of base files whose names do not tell their kind.
    fn base_heads(
        &self,
        rules: &Rules,
        shown: &[(LogicalPath, Option<&SnapshotFile>)],
        cancel: &AtomicBool,
    ) -> Result<HashMap<LogicalPath, Vec<u8>>, WorkspaceError> {
        let loaded = self.base().load()?;
        let wanted = shown.iter().filter_map(|(path, file)| {
            let asks = rules.kind_of_path(path) == FileKind::Unknown
                && file.is_some_and(|file| !file.is_link && matches!(file.location, ContentLocation::Base { .. }));
            Some((path, loaded.manifest.get(path.as_str().as_bytes()).filter(|_| asks)?))
        });
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() {
            return Ok(HashMap::new());
        }
        let read = self.base().blobs().with(cancel, |blobs| {
            let mut heads = HashMap::with_capacity(wanted.len());
            for (path, file) in &wanted {
                let mut head = Vec::new();
                blobs.read(loaded.manifest.oid(*file), &mut |from, _| {
                    from.take(HEAD_BYTES).read_to_end(&mut head).map(drop)
                })?;
                heads.insert((*path).clone(), head);
            }
            Ok(heads)
        });
        read.map_err(of_git)
    }
}

impl<'a> Lister<'a> {
    fn new(workspace: &'a Workspace, rules: &'a Rules, query: &'a ListQuery) -> Result<Self, WorkspaceError> {
        let scope = scope_of(workspace, &query.path)?;
        let shows_ignored = query.include_ignored || scope.excludes_folder_itself();
        let shows_made = query.include_ignored || is_made(rules.kind_of_dir(&query.path));
        let folders = HashMap::from([(query.path.clone(), Some(scope))]);
        Ok(Self { workspace, rules, query, shows_ignored, shows_made, folders })
    }

    /// Adds the file, or the folder that it lies too deep in, with the folders above it.
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
            let Ok(place) = folder.child(name) else { return Ok(()) };
            let is_folder = level + 1 < names.len();
            if found.contains(&place) && is_folder {
                folder = place;
                continue;
            }
            if !self.shows(&folder, &place, is_folder)? {
                return Ok(());
            }
            found.insert(place.clone(), (!is_folder).then_some(file));
            folder = place;
        }
        Ok(())
    }

    /// Whether an entry of `folder` is shown.
    fn shows(&mut self, folder: &LogicalPath, place: &LogicalPath, is_folder: bool) -> Result<bool, WorkspaceError> {
        if is_folder && let Some(known) = self.folders.get(place) {
            return Ok(known.is_some());
        }
        let kind = if is_folder { self.rules.kind_of_dir(place) } else { self.rules.kind_of_path(place) };
        let hidden = !self.query.include_hidden && place.file_name().starts_with('.');
        let shown = !hidden
            && (self.shows_made || !is_made(kind))
            && (self.shows_ignored || !self.ignores(folder, place, is_folder)?);
        if is_folder {
            let scope = if shown { Some(scope_of(self.workspace, place)?) } else { None };
            self.folders.insert(place.clone(), scope);
        }
        Ok(shown)
    }

    fn ignores(&self, folder: &LogicalPath, place: &LogicalPath, is_folder: bool) -> Result<bool, WorkspaceError> {
        let (Some(ignored), Some(Some(scope))) = (&self.workspace.tree().ignored, self.folders.get(folder)) else {
            return Ok(false);
        };
        Ok(ignored.hides(scope, place.as_str().as_bytes(), is_folder)?)
    }

    fn folder_entry(&self, path: &LogicalPath) -> Result<Entry, WorkspaceError> {
        let refused = self.refused(path, FileKind::Directory, true)?;
        Ok(entry(path, EntryType::Directory, Some(self.rules.kind_of_dir(path)), None, refused))
    }

    fn file_entry(
        &self,
        path: &LogicalPath,
        file: &SnapshotFile,
        head: Option<&Vec<u8>>,
        contents: &dyn ContentStore,
    ) -> Result<Entry, WorkspaceError> {
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
        let refused = match (self.refused(path, by_name, false)?, size_bytes) {
            (Some(code), _) => Some(code),
            (None, None) => Some(Code::NotFound),
            (None, Some(size)) if size > max_bytes => Some(Code::FileTooLarge),
            (None, Some(_)) => (binary || kind == FileKind::Binary).then_some(Code::UnsupportedBinary),
        };
        Ok(entry(path, EntryType::File, Some(kind), size_bytes, refused))
    }

    /// What reading it would be refused with, by its name.
    fn refused(&self, path: &LogicalPath, kind: FileKind, is_folder: bool) -> Result<Option<Code>, WorkspaceError> {
        let folder = path.parent().unwrap_or_else(LogicalPath::root);
        let ignored = self.ignores(&folder, path, is_folder)?;
        let facts = PathFacts { path, real_path: None, kind, ignored, hard_linked: false };
        Ok(model::judge_path(self.rules, Access::Read, &facts).err().map(|refusal| refusal.code))
    }
}

fn scope_of(workspace: &Workspace, folder: &LogicalPath) -> Result<Scope, WorkspaceError> {
    let tree = workspace.tree();
    match &tree.ignored {
        Some(ignored) => Ok(ignored.scope_of(&tree.root, folder, Blocking::Allowed)?),
        None => Ok(Scope::default()),
    }
}

fn entry(
    path: &LogicalPath,
    entry_type: EntryType,
    kind: Option<FileKind>,
    size_bytes: Option<u64>,
    refused: Option<Code>,
) -> Entry {
    let reason = refused.map(|code| code.as_str().to_owned());
    Entry { path: path.to_string(), entry_type, kind, size_bytes, readable: refused.is_none(), reason }
}

fn check(cancel: &AtomicBool) -> Result<(), WorkspaceError> {
    if cancel.load(Ordering::Relaxed) { Err(WorkspaceError::Cancelled) } else { Ok(()) }
}
