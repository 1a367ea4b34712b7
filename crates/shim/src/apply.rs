//! A layer of the run is written into the folder, but for what was changed here too. A first checkout overwrites nothing: all of it is
//! written, or nothing.
//!
//! New contents are written beside the tree first, into the folder of the index. Then each path is compared with the index, and the contents
//! are moved into the tree of those that were not changed here. A program that is killed meanwhile leaves some of them moved; the same
//! layer goes in again, since files that have its versions already are no conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, FileType, Timespec};
use rustix::io::Errno;
use rustix::path::Arg as _;
use tar::{Archive, EntryType};

use crate::aside::{add_aside, put_aside};
use crate::entry::{MAX_LAYER_ENTRIES, NodeStamp, NodeVersion, OPAQUE, OWN_FOLDER, WHITEOUT, check_path, stays_inside};
use crate::error::{LayerConflict, ShimError};
use crate::folder::AppliedLayer;
use crate::handles::{FolderCursor, ParentFolder, for_each_entry, name_of, open_folder, stat, unlink};
use crate::incoming::{IncomingFolder, IncomingNode, is_no_folder, remove_empty_folders, remove_incoming};
use crate::index::{CheckoutIndex, IndexChanges, IndexEntry, IndexFolder};
use crate::scan::{LookedAt, WORTH_SAVING_BYTES, look, look_bytes};

/// The most conflicts that are kept.
const MAX_CONFLICTS: usize = 1000;

/// What a layer says.
#[derive(Default)]
struct LayerPlan {
    nodes: BTreeMap<String, IncomingNode>,
    folders: BTreeSet<String>,
    /// Paths that are deleted, with all that is in them.
    deleted: BTreeSet<String>,
    /// Folders whose content is that of the layer alone.
    opaque: BTreeSet<String>,
    /// What is overwritten although it was changed here.
    forced: BTreeSet<String>,
}

/// A layer on its way into a folder.
pub(crate) struct Application<'a> {
    root: &'a OwnedFd,
    own: &'a IndexFolder,
    index: &'a CheckoutIndex,
    /// Whether files get the times of the layer.
    is_first: bool,
    /// The file system's time before anything was looked at.
    began_ns: i64,
    /// What is overwritten although it was changed here.
    theirs: BTreeSet<String>,
    /// What was put aside: the run's version is written, although it was changed here.
    restored: BTreeSet<String>,
    /// Whether what is in the way of the layer is put aside.
    gives_way: bool,
    changes: IndexChanges,
}

impl<'a> Application<'a> {
    pub(crate) fn new(
        root: &'a OwnedFd,
        own: &'a IndexFolder,
        index: &'a CheckoutIndex,
        is_first: bool,
        theirs: BTreeSet<String>,
        restored: BTreeSet<String>,
    ) -> Result<Self, ShimError> {
        let (began_ns, changes, gives_way) = (own.now_ns()?, IndexChanges::new(), false);
        Ok(Self { root, own, index, is_first, began_ns, theirs, restored, gives_way, changes })
    }

    /// Puts aside what is in its way.
    pub(crate) fn giving_way(self) -> Self {
        Self { gives_way: true, ..self }
    }

    /// Writes the layer, and returns what is new in the index.
    pub(crate) fn run(mut self, layer: &mut dyn Read) -> Result<(IndexChanges, AppliedLayer), ShimError> {
        remove_incoming(self.own)?;
        let applied = self.apply(layer);
        // What is left there is of no use, and an error before says more.
        let removed = remove_incoming(self.own);
        let applied = applied?;
        removed?;
        self.prove()?;
        Ok((self.changes, applied))
    }

    /// Waits until the new files are old enough for their metadata to prove something, if that is shorter than to hash them again.
    fn prove(&mut self) -> Result<(), ShimError> {
        let mut now = self.own.now_ns()?;
        let new = || self.changes.values().flatten().map(|entry| entry.stamp);
        let young = new().filter(|stamp| stamp.newest_ns() >= now).map(|stamp| look_bytes(&stamp)).sum::<u64>();
        if young >= WORTH_SAVING_BYTES {
            now = self.own.time_after(new().map(|stamp| stamp.newest_ns()).max().unwrap_or(now))?;
        }
        for entry in self.changes.values_mut().flatten() {
            entry.stamp = entry.stamp.proven_at(now);
        }
        Ok(())
    }

    fn apply(&mut self, layer: &mut dyn Read) -> Result<AppliedLayer, ShimError> {
        let is_whole = self.is_first && self.is_empty()?;
        let mut staging = IncomingFolder::create(self.own, is_whole, self.is_first.then_some(self.began_ns))?;
        let mut plan = stage(layer, &mut staging)?;
        if is_whole {
            return self.move_whole(plan, &staging);
        }
        let mut removals = self.removals(&plan);
        if self.gives_way {
            self.put_conflicts_aside(&mut plan, &removals)?;
        }
        let conflicts = self.leave_conflicts(&mut plan, &mut removals)?;
        if let Some(path) = self.theirs.iter().find(|path| !plan.forced.contains(*path)) {
            return Err(ShimError::Refused(format!("{path} did not change both here and in the run")));
        }
        let deleted = self.remove(&removals)?;
        let written = self.move_in(plan, &staging, &conflicts)?;
        Ok(AppliedLayer { written, deleted, conflicts })
    }

    /// Puts aside what is in the way of the plan.
    fn put_conflicts_aside(&mut self, plan: &mut LayerPlan, removals: &BTreeSet<String>) -> Result<(), ShimError> {
        // What was put aside before is removed.
        put_aside(self.root, self.own, self.index, &[])?;
        for _ in 0..MAX_LAYER_ENTRIES / MAX_CONFLICTS {
            let found = self.compare(plan, removals)?;
            if found.is_empty() {
                break;
            }
            let paths: Vec<_> = found.into_iter().map(|conflict| conflict.path).collect();
            self.restored.extend(add_aside(self.root, self.own, self.index, &paths)?);
        }
        Ok(())
    }

    /// Takes what was changed here out of the plan, and what needs its place.
    fn leave_conflicts(
        &mut self,
        plan: &mut LayerPlan,
        removals: &mut BTreeSet<String>,
    ) -> Result<Vec<LayerConflict>, ShimError> {
        let mut conflicts = Vec::new();
        loop {
            let found = self.compare(plan, removals)?;
            let is_last = found.is_empty();
            for LayerConflict { path, .. } in &found {
                plan.nodes.remove(path);
                removals.remove(path);
            }
            conflicts.extend(found);
            if !conflicts.is_empty() && (self.is_first || conflicts.len() >= MAX_CONFLICTS) {
                return Err(ShimError::Conflicts(conflicts));
            }
            if is_last {
                return Ok(conflicts);
            }
        }
    }

    /// Whether nothing but the index is in the folder.
    fn is_empty(&self) -> Result<bool, ShimError> {
        let mut is_empty = true;
        for_each_entry(self.root.as_fd(), |name, _| {
            is_empty &= name.to_bytes() == OWN_FOLDER.as_bytes();
            Ok::<_, Errno>(())
        })
        .map_err(ShimError::of("the folder"))?;
        Ok(is_empty)
    }

    /// Moves a whole tree into an empty folder.
    fn move_whole(&mut self, plan: LayerPlan, staging: &IncomingFolder) -> Result<AppliedLayer, ShimError> {
        let mut names = Vec::new();
        for_each_entry(staging.incoming.as_fd(), |name, _| {
            names.push(name.to_owned());
            Ok::<_, Errno>(())
        })
        .map_err(ShimError::of("the folder of incoming files"))?;
        for name in &names {
            let shown = name.to_string_lossy();
            rustix::fs::renameat(&staging.incoming, name, self.root, name).map_err(ShimError::of(&shown))?;
        }
        let written = plan.nodes.len() as u64;
        for (path, IncomingNode { version, mut stamp, .. }) in plan.nodes {
            // The move has changed what is at the top, and nothing below.
            if !path.contains('/') {
                stamp = stamp_of(self.root.as_fd(), &path)?;
            }
            self.changes.insert(path, Some(IndexEntry { version, stamp }));
        }
        Ok(AppliedLayer { written, deleted: 0, conflicts: Vec::new() })
    }

    /// Returns the paths of the index that the layer deletes.
    fn removals(&self, plan: &LayerPlan) -> BTreeSet<String> {
        let mut removals = BTreeSet::new();
        for path in plan.deleted.iter().chain(&plan.opaque) {
            removals.extend(self.index.beneath(path).cloned());
        }
        removals.extend(plan.deleted.iter().filter(|path| self.index.entries.contains_key(*path)).cloned());
        removals.retain(|path| !plan.nodes.contains_key(path));
        removals
    }

    /// Compares what is in the folder with the index and with the layer. Files that have the version of the layer leave the plan.
    fn compare(&mut self, plan: &mut LayerPlan, removals: &BTreeSet<String>) -> Result<Vec<LayerConflict>, ShimError> {
        let mut conflicts = Vec::new();
        let mut cursor = self.cursor()?;
        let (mut done, mut kept, mut forced) = (Vec::new(), Vec::new(), Vec::new());
        let incoming = plan.nodes.iter().map(|(path, node)| (path, Some(node.version)));
        for (path, wanted) in incoming.chain(removals.iter().map(|path| (path, None))) {
            match self.compare_one(&mut cursor, path, wanted, removals)? {
                Comparison::Same(stamp) => done.push((path.clone(), stamp)),
                Comparison::Kept => kept.push(path.clone()),
                Comparison::Changed(_) if self.theirs.contains(path) => forced.push(path.clone()),
                Comparison::Changed(why) | Comparison::Blocked(why) if conflicts.len() < MAX_CONFLICTS => {
                    conflicts.push(LayerConflict { path: path.clone(), why: why.to_owned() });
                }
                Comparison::Write | Comparison::Changed(_) | Comparison::Blocked(_) => {}
            }
        }
        plan.forced.extend(forced);
        for path in kept {
            plan.nodes.remove(&path);
        }
        for (path, stamp) in done {
            if let Some(node) = plan.nodes.remove(&path) {
                let stamp = stamp.proven_at(self.began_ns);
                self.changes.insert(path, Some(IndexEntry { version: node.version, stamp }));
            }
        }
        Ok(conflicts)
    }

    fn compare_one(
        &self,
        cursor: &mut FolderCursor,
        path: &str,
        wanted: Option<NodeVersion>,
        removals: &BTreeSet<String>,
    ) -> Result<Comparison, ShimError> {
        let known = self.index.entries.get(path);
        let looked = match cursor.parent_of(path).map_err(ShimError::of(path))? {
            ParentFolder::Folder(dir) => look(dir, path, known)?,
            ParentFolder::Missing => LookedAt::Absent,
            ParentFolder::NoFolder(above) if removals.contains(&above) => LookedAt::Absent,
            ParentFolder::NoFolder(_) => {
                return Ok(Comparison::Blocked("something else is in the place of its folder"));
            }
        };
        let is_runs = known.is_some_and(|known| Some(known.version) == wanted);
        Ok(match (looked, known, wanted) {
            // Not written again: a build would take it for newer than its output.
            (LookedAt::Unchanged(stamp), ..) if is_runs => Comparison::Same(stamp),
            (LookedAt::Unchanged(_), ..) => Comparison::Write,
            (LookedAt::Absent, ..) if self.restored.contains(path) => Comparison::Write,
            // What was changed here was changed from this very version.
            _ if is_runs => Comparison::Kept,
            // A folder that takes the place of a file which the run deleted is this folder's own.
            (LookedAt::Absent, None, _) | (LookedAt::Absent | LookedAt::Folder, _, None) => Comparison::Write,
            (LookedAt::Absent, Some(_), Some(_)) => Comparison::Changed("deleted here"),
            (LookedAt::Node(version, stamp), _, Some(wanted)) if version == wanted => Comparison::Same(stamp),
            (LookedAt::Node(..), None, _) => Comparison::Changed("created here"),
            (LookedAt::Node(..), Some(_), Some(_)) => Comparison::Changed("changed here"),
            (LookedAt::Node(..), Some(_), None) => Comparison::Changed("changed here, deleted in the run"),
            (LookedAt::Folder, _, Some(_)) if self.is_emptied(path, removals)? => Comparison::Write,
            (LookedAt::Folder, _, Some(_)) => Comparison::Blocked("a folder here"),
            (LookedAt::Special, ..) => Comparison::Blocked("no file here"),
        })
    }

    /// Whether nothing is left in a folder after the removals.
    fn is_emptied(&self, folder: &str, removals: &BTreeSet<String>) -> Result<bool, ShimError> {
        let mut cursor = self.cursor()?;
        let mut todo = vec![folder.to_owned()];
        while let Some(folder) = todo.pop() {
            let ParentFolder::Folder(dir) = cursor.enter(&folder, false).map_err(ShimError::of(&folder))? else {
                return Ok(false);
            };
            let mut is_emptied = true;
            for_each_entry(dir, |name, file_type| {
                let path = format!("{folder}/{}", name.to_string_lossy());
                if file_type == FileType::Directory {
                    todo.push(path);
                } else {
                    is_emptied &= removals.contains(&path);
                }
                Ok::<_, Errno>(())
            })
            .map_err(ShimError::of(&folder))?;
            if !is_emptied || todo.len() > MAX_LAYER_ENTRIES {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes files, and the folders that are empty then.
    fn remove(&mut self, removals: &BTreeSet<String>) -> Result<u64, ShimError> {
        let mut cursor = self.cursor()?;
        let mut count = 0;
        // From the end, so that the entries of a folder precede it.
        for path in removals.iter().rev() {
            if let ParentFolder::Folder(dir) = cursor.parent_of(path).map_err(ShimError::of(path))?
                && stat(dir, name_of(path)).map_err(ShimError::of(path))?.is_some_and(|found| !is_folder(&found))
            {
                unlink(dir, name_of(path)).map_err(ShimError::of(path))?;
                count += 1;
            }
            self.changes.insert(path.clone(), None);
            remove_empty_folders(&mut cursor, path)?;
        }
        Ok(count)
    }

    /// Moves what was written beside the tree into it.
    fn move_in(
        &mut self,
        plan: LayerPlan,
        staging: &IncomingFolder,
        conflicts: &[LayerConflict],
    ) -> Result<u64, ShimError> {
        let incoming = &staging.incoming;
        let mut cursor = self.cursor()?;
        for folder in &plan.folders {
            if let ParentFolder::NoFolder(path) = cursor.enter(folder, true).map_err(ShimError::of(folder))?
                // What is in its place is told.
                && !conflicts.iter().any(|conflict| conflict.path == path || conflict.path.starts_with(&format!("{path}/")))
            {
                return Err(ShimError::Refused(format!("{path}: no folder, so that {folder} cannot be created")));
            }
        }
        let written = plan.nodes.len() as u64;
        for (path, IncomingNode { version, name, .. }) in plan.nodes {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let ParentFolder::Folder(dir) = cursor.enter(folder, true).map_err(ShimError::of(&path))? else {
                return Err(ShimError::Refused(format!("{path}: its folder was replaced meanwhile")));
            };
            match rustix::fs::renameat(incoming, &name, dir, name_of(&path)) {
                Err(Errno::ISDIR) => {
                    remove_folders(dir, name_of(&path)).map_err(ShimError::of(&path))?;
                    rustix::fs::renameat(incoming, &name, dir, name_of(&path)).map_err(ShimError::of(&path))?;
                }
                renamed => renamed.map_err(ShimError::of(&path))?,
            }
            let stamp = stamp_of(dir, &path)?;
            self.changes.insert(path, Some(IndexEntry { version, stamp }));
        }
        Ok(written)
    }

    fn cursor(&self) -> Result<FolderCursor, ShimError> {
        let root = self.root.try_clone().map_err(|error| ShimError::io("the folder", error))?;
        Ok(FolderCursor::new(root))
    }
}

enum Comparison {
    Write,
    /// It has the version of the layer already.
    Same(NodeStamp),
    /// It has what came of the version of the layer here.
    Kept,
    /// It was changed here too.
    Changed(&'static str),
    /// As [`Changed`](Self::Changed), and no version of the run can take its place.
    Blocked(&'static str),
}

impl LayerPlan {
    /// Checks that nothing is in the place of a folder that another entry needs, before anything is moved.
    fn check_places(&self) -> Result<(), ShimError> {
        for path in self.nodes.keys().chain(&self.folders) {
            let mut above = path.as_str();
            while let Some((folder, _)) = above.rsplit_once('/') {
                if self.nodes.contains_key(folder) {
                    return Err(is_no_folder(path, folder));
                }
                above = folder;
            }
        }
        Ok(())
    }

    /// Takes an entry that means a deletion. Returns whether it was one.
    fn take_whiteout(&mut self, path: &str) -> Result<bool, ShimError> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name == OPAQUE {
            check(folder)?;
            self.opaque.insert(folder.to_owned());
            return Ok(true);
        }
        let Some(name) = name.strip_prefix(WHITEOUT) else { return Ok(false) };
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        check(&path)?;
        self.deleted.insert(path);
        Ok(true)
    }
}

/// Writes the contents of a layer beside the tree.
fn stage(layer: &mut dyn Read, staging: &mut IncomingFolder) -> Result<LayerPlan, ShimError> {
    let mut archive = Archive::new(layer);
    let mut plan = LayerPlan::default();
    let bad = |error: io::Error| ShimError::io("the layer", error);
    for (number, entry) in archive.entries().map_err(bad)?.enumerate() {
        if number >= MAX_LAYER_ENTRIES {
            return Err(ShimError::Refused(format!("the layer has more than {MAX_LAYER_ENTRIES} entries")));
        }
        let mut entry = entry.map_err(bad)?;
        let path = String::from_utf8(entry.path_bytes().into_owned());
        let path = path.map_err(|_| ShimError::Refused("a name of the layer is not UTF-8".to_owned()))?;
        let path = path.strip_prefix("./").unwrap_or(&path).trim_end_matches('/').to_owned();
        if matches!(path.as_str(), "" | ".") || plan.take_whiteout(&path)? {
            continue;
        }
        check(&path)?;
        let kind = entry.header().entry_type();
        if kind == EntryType::Directory {
            if staging.is_tree() {
                staging.folder(&path)?;
            }
            plan.folders.insert(path);
            continue;
        }
        let modified = time_of(&mut entry);
        let staged = if kind == EntryType::Symlink {
            let target = entry.link_name_bytes().unwrap_or_default().into_owned();
            if !std::str::from_utf8(&target).is_ok_and(|target| stays_inside(&path, target)) {
                return Err(ShimError::Refused(format!(
                    "the layer has the link {path:?}, which leads out of the folder"
                )));
            }
            staging.link(&path, &target, modified)?
        } else if kind.is_file() {
            let is_executable = entry.header().mode().map_err(bad)? & 0o100 != 0;
            staging.file(&path, is_executable, &mut entry, modified)?
        } else {
            return Err(ShimError::Refused(format!("{path}: the layer has an entry of type {kind:?}")));
        };
        plan.nodes.insert(path, staged);
    }
    // A stream that breaks after the last entry may have been damaged before it: its checksum comes last.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(bad)?;
    plan.check_places()?;
    Ok(plan)
}

/// Returns what the metadata of a file or link is now.
fn stamp_of(dir: std::os::fd::BorrowedFd<'_>, path: &str) -> Result<NodeStamp, ShimError> {
    let found = stat(dir, name_of(path)).and_then(|found| found.ok_or(Errno::NOENT));
    Ok(NodeStamp::of(&found.map_err(ShimError::of(path))?))
}

fn check(path: &str) -> Result<(), ShimError> {
    check_path(path).map_err(|why| ShimError::Refused(format!("the layer has the entry {path:?}: {why}")))
}

fn is_folder(found: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

/// The time of an entry, with its fraction if the layer has it.
fn time_of<R: Read>(entry: &mut tar::Entry<'_, R>) -> Timespec {
    let whole = entry.header().mtime().ok().and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(0);
    let mut time = Timespec { tv_sec: whole, tv_nsec: 0 };
    let Ok(Some(extensions)) = entry.pax_extensions() else { return time };
    for extension in extensions.filter_map(Result::ok) {
        let value = extension.value().ok().filter(|_| extension.key_bytes() == b"mtime");
        let Some((seconds, fraction)) = value.map(|value| value.split_once('.').unwrap_or((value, ""))) else {
            continue;
        };
        let nanos = format!("{fraction:0<9}");
        if let (Ok(seconds), Some(Ok(nanos))) = (seconds.parse(), nanos.get(..9).map(str::parse)) {
            time = Timespec { tv_sec: seconds, tv_nsec: nanos };
        }
    }
    time
}

/// Removes a folder that has only folders.
fn remove_folders(dir: impl std::os::fd::AsFd, name: &str) -> Result<(), Errno> {
    let folder = open_folder(&dir, name)?;
    let mut names = Vec::new();
    for_each_entry(folder.as_fd(), |name, _| {
        names.push(name.to_owned());
        Ok::<_, Errno>(())
    })?;
    for name in names {
        remove_folders(&folder, name.to_str().map_err(|_| Errno::NOTEMPTY)?)?;
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}
