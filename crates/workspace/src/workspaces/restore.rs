//! Making the folder of a run that is not on this machine: its base from its parts, if that is not here either, and the newest version of
//! each file that the run has written, which the ledger names. Each is made in a staging folder and renamed into place at the end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use model::RunId;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::base_parts::{
    CONTENTS_PART, FETCHED_PART, MANIFEST_PART, PACK, SEGMENT, SHALLOW_PART, damaged, set_fetched,
};
use super::staging::Staging;
use super::{ChainPoint, Workspaces, run_base, run_copy, run_folders, tree_note};
use crate::base::{Base, MANIFEST_NAME, MAX_MANIFEST_BYTES};
use crate::base_files::manifest::{self, MODE_LINK};
use crate::base_files::{LOCATIONS_NAME, segment_names};
use crate::bases::{RecordedBase, StagedBase};
use crate::byte_path::is_plain;
use crate::dir::{create_file, open_dir, open_file};
use crate::error::WorkspaceError;
use crate::fsync_tree;
use crate::import::describe;
use crate::remove::remove_tree;
use crate::snapshot::{RebuildReport, Snapshot, StoredContents};

/// A run whose folder was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredRun {
    /// The number of files and links.
    pub files: u64,
    /// The size of the files in bytes.
    pub bytes: u64,
    /// The number of files and links that are not of the base.
    pub own_files: u64,
    /// The size of these files in bytes.
    pub own_bytes: u64,
}

/// The complete folder of a run that is not in its place yet. Dropping it removes it, unless it was [placed](Self::place).
pub struct MadeRun {
    folder: Staging<Arc<Workspaces>>,
    restored: RestoredRun,
}

/// The folder of a run while it is made. Dropping it removes it.
pub struct RunRestorer {
    folder: Staging<Arc<Workspaces>>,
    base: Option<Arc<Base>>,
    /// The epoch under which this node owns the run, if several nodes share the ledger.
    epoch: Option<u64>,
}

/// A base while it is made from its parts. Dropping it removes it.
pub struct BaseMaker {
    staged: StagedBase,
    /// The segments that were added, or were on this machine.
    segments: Vec<String>,
    is_fetched: bool,
}

impl Workspaces {
    /// Whether the folder of `run` is on this machine.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn has_folder(&self, run: &RunId) -> io::Result<bool> {
        match open_dir(&self.dir, run.as_str()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Begins to make the folder of a run, which replaces an outdated one. If several nodes share the ledger, `epoch` is that under which
    /// this node owns the run.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn restorer(self: &Arc<Self>, epoch: Option<u64>) -> io::Result<RunRestorer> {
        Ok(RunRestorer { folder: Staging::new(Arc::clone(self))?, base: None, epoch })
    }

    /// Begins to make a base from its parts.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn base_maker(&self) -> io::Result<BaseMaker> {
        let staged = self.bases.stage()?;
        std::fs::create_dir(staged.git.dir().join("objects/pack"))?;
        Ok(BaseMaker { staged, segments: Vec::new(), is_fetched: false })
    }
}

impl BaseMaker {
    /// The part with the list of a base's files, which identifies the base.
    pub const LIST: &str = MANIFEST_PART;

    /// Whether the part called `name` has to be [added](Self::add_part). Otherwise it is on this machine, with another base.
    pub fn needs(&mut self, name: &str) -> bool {
        let Some(segment) = name.strip_prefix(SEGMENT) else { return true };
        let is_here = self.staged.contents.has_segment(segment);
        if is_here {
            self.segments.push(segment.to_owned());
        }
        !is_here
    }

    /// Adds a part of the base.
    ///
    /// # Errors
    ///
    /// If the disk or `content` fails, or a base has no such part.
    pub fn add_part(&mut self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        if let Some(segment) = name.strip_prefix(SEGMENT) {
            self.staged.contents.add_segment(segment, content)?;
            self.segments.push(segment.to_owned());
            return Ok(());
        }
        let mut file = match name {
            MANIFEST_PART => create_file(&self.staged.dir, MANIFEST_NAME)?,
            CONTENTS_PART => create_file(&self.staged.dir, LOCATIONS_NAME)?,
            SHALLOW_PART => File::create_new(self.staged.git.dir().join(SHALLOW_PART))?,
            FETCHED_PART => {
                self.is_fetched = true;
                return Ok(());
            }
            pack if pack.starts_with(PACK) && is_plain(pack.as_bytes()) && !pack.contains('/') => {
                File::create_new(self.staged.git.dir().join("objects/pack").join(pack))?
            }
            _ => return Err(damaged("the base has an unknown part")),
        };
        io::copy(content, &mut file).map(drop)
    }

    /// Puts the base into its place once all its parts are added. Returns its name. The bytes of a file are verified when it is read
    /// first.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the base is not `recorded` or its parts do not belong together ([`io::ErrorKind::InvalidData`]).
    pub fn finish(mut self, recorded: Option<&RecordedBase>) -> io::Result<String> {
        let mut bytes = Vec::new();
        open_file(&self.staged.dir, MANIFEST_NAME)?.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes)?;
        let (head, manifest) = manifest::read(&bytes)?;
        let rows: Vec<_> = manifest.rows().map(|(_, row)| row).collect();
        let info = describe(&head, &rows, manifest.folders().count(), &bytes);
        if recorded.is_some_and(|recorded| info.recorded() != *recorded) || !rows.iter().all(|row| is_plain(&row.path))
        {
            return Err(damaged("the base is not the one that the run started from"));
        }
        if self.is_fetched {
            set_fetched(self.staged.git.dir(), &head.commit)?;
        }
        let names = segment_names(&mut open_file(&self.staged.dir, LOCATIONS_NAME)?)?;
        if let Some(name) = names.iter().find(|name| !self.segments.contains(name)) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("the base lacks its segment {name}")));
        }
        self.staged.contents.use_segments(names);
        self.staged.place(&info)
    }
}

impl RunRestorer {
    /// Makes the run start from the base that `run` is `recorded` to start from. Returns false if that is not on this machine.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn use_base(&mut self, run: &RunId, recorded: &RecordedBase) -> io::Result<bool> {
        // A folder that is replaced, or forked, has the same variant.
        let Staging { workspaces, dir, .. } = &self.folder;
        let of_run = workspaces.base_name(run).ok();
        let Some(base) = workspaces.bases.find(recorded, of_run.as_deref())? else { return Ok(false) };
        // From here on, the folder keeps the base.
        run_base::write(dir, base.id())?;
        self.base = Some(base);
        Ok(true)
    }

    /// Marks the folder as one of a run that the ledger does not have yet, as that of an import, until the run is
    /// [confirmed](Workspaces::confirm).
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn mark_unfinished(&self) -> io::Result<()> {
        run_folders::mark_unfinished(&self.folder.dir)
    }

    /// Adds the artifacts that [`bundle_artifacts`](Workspaces::bundle_artifacts) has archived.
    ///
    /// # Errors
    ///
    /// If the disk or `content` fails, or an entry is none of artifacts ([`io::ErrorKind::InvalidData`]).
    pub fn add_artifacts(&mut self, content: &mut dyn Read) -> io::Result<()> {
        run_copy::unpack_artifacts(&self.folder.dir, content)
    }

    /// Writes the run's own files of `snapshot`, which is that of `newest`, the newest record of the run, or unknown for a run that the
    /// ledger does not have yet. Artifacts that were not added, and contents of calls that wait for approval, are copied from the
    /// folder that this one replaces, if there is one.
    ///
    /// # Errors
    ///
    /// If the disk or the ledger fails, a file has another hash than recorded ([`io::ErrorKind::InvalidData`]), or the bytes of one
    /// are missing ([`io::ErrorKind::NotFound`]).
    pub fn make(
        self,
        run: &RunId,
        snapshot: &Snapshot,
        contents: &dyn StoredContents,
        newest: ChainPoint,
    ) -> Result<MadeRun, WorkspaceError> {
        let Staging { workspaces, dir, .. } = &self.folder;
        let tree = open_dir(dir, "repo").map_err(io::Error::from)?;
        let own = snapshot.write_changed(tree, contents)?;
        check_complete(&own)?;
        let restored = self.restored(snapshot, &own)?;
        if let Some(epoch) = self.epoch {
            workspaces.note_owner(dir, epoch)?;
        }
        tree_note::create(dir, newest)?;
        let kept = workspaces.copy_artifacts(run, dir)?;
        let written = usize::try_from(restored.own_files).unwrap_or(usize::MAX);
        fsync_tree::sync(dir, written.saturating_add(kept))?;
        failpoint::hit("restore.made");
        Ok(MadeRun { folder: self.folder, restored })
    }

    /// Returns what the tree has: the base, but for what the run has written.
    fn restored(&self, snapshot: &Snapshot, own: &RebuildReport) -> io::Result<RestoredRun> {
        let base = self.base()?;
        let info = self.folder.workspaces.bases.info(base.id())?;
        let (mut files, mut bytes) = (info.files, info.bytes);
        let loaded = base.load()?;
        let manifest = &loaded.manifest;
        for replaced in snapshot.written().filter_map(|path| manifest.get(path.as_str().as_bytes())) {
            let size = if manifest.mode(replaced) == MODE_LINK { 0 } else { manifest.size(replaced) };
            (files, bytes) = (files.saturating_sub(1), bytes.saturating_sub(size));
        }
        let (own_files, own_bytes) = (own.files + own.links, own.bytes);
        Ok(RestoredRun { files: files + own_files, bytes: bytes + own_bytes, own_files, own_bytes })
    }

    /// Returns the base.
    ///
    /// # Errors
    ///
    /// If it was not set.
    pub fn base(&self) -> io::Result<Arc<Base>> {
        self.base.clone().ok_or_else(|| io::Error::other("the base of a run was not set"))
    }
}

impl MadeRun {
    /// Moves the folder of `run` into its place. The outdated one that it replaces is removed.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn place(mut self, run: &RunId) -> io::Result<RestoredRun> {
        let Staging { workspaces, name, is_finished, .. } = &mut self.folder;
        let all = &workspaces.dir;
        match rustix::fs::renameat_with(all, &**name, all, run.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => *is_finished = true,
            // The drop removes the outdated folder, which has the name of this one then.
            Err(Errno::EXIST) => {
                rustix::fs::renameat_with(all, &**name, all, run.as_str(), RenameFlags::EXCHANGE)?;
                workspaces.notes.remove(run);
            }
            Err(errno) => return Err(errno.into()),
        }
        rustix::fs::fsync(all)?;
        failpoint::hit("restore.placed");
        Ok(self.restored)
    }

    /// As [`place`](Self::place), and moves the folder that it replaces to `lost+found/`. Returns its name there. Both are exchanged at
    /// once: a process that is killed before leaves the new one there.
    ///
    /// # Errors
    ///
    /// If the disk fails, or `lost+found/` is on another file system.
    pub fn place_and_set_aside(mut self, run: &RunId) -> io::Result<(RestoredRun, String)> {
        let workspaces = Arc::clone(&self.folder.workspaces);
        let (lost, name) = workspaces.move_to_lost(&self.folder.name, run)?;
        // In `lost+found/`, nothing removes it.
        self.folder.is_finished = true;
        if let Err(errno) =
            rustix::fs::renameat_with(&lost, &*name, &workspaces.dir, run.as_str(), RenameFlags::EXCHANGE)
        {
            remove_tree(lost.as_fd(), name.as_bytes())?;
            return Err(errno.into());
        }
        workspaces.notes.remove(run);
        for dir in [&lost, &workspaces.dir] {
            rustix::fs::fsync(dir)?;
        }
        failpoint::hit("restore.placed");
        Ok((self.restored, name))
    }
}

/// A run is restored whole, or not at all.
fn check_complete(report: &RebuildReport) -> io::Result<()> {
    if !report.not_kept.is_empty() {
        let problem = "the content of a file is neither in the ledger nor in the store";
        return Err(io::Error::new(io::ErrorKind::NotFound, problem));
    }
    if report.wrong.is_empty() && report.lost.is_empty() {
        return Ok(());
    }
    Err(damaged("a file has other bytes than the run's records say"))
}
