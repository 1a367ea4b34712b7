//! The note in a run's folder of the records that its tree has. The ledger knows by it whether the folder belongs to the history that it
//! has itself: a folder can be an older copy, and the ledger can have lost records.
//!
//! The note names two records. Everything up to `synced` is in the tree and on the disk; it is written before the journal drops a
//! step, so that the journal always reaches back to it. Nothing after `begun` was moved into the tree; it is written before that
//! happens, but not synced by itself. The file has a constant size and is overwritten in place, which a full disk does not prevent.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Weak};

use model::{RunId, Sha256};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{RunFolder, Workspaces};
use crate::apply::{fdatasync, sync_in_parallel};
use crate::dir::{create_file, open_dir, open_file};

/// The file in the folder of a run.
const NAME: &str = ".reached";
/// The size of the file: two lines with a number and a hash, and space up to the end.
const BYTES: usize = 192;

/// A record of a run's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainPoint {
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub hash: Sha256,
}

/// Which records a run's tree has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeNote {
    /// The last record up to which every change is in the tree and on the disk.
    pub synced: ChainPoint,
    /// The last record whose change was about to be moved into the tree.
    pub begun: ChainPoint,
}

/// The note of a run whose folder is in use. The file is opened for each write, so that nothing prevents the disk from becoming read-only.
#[derive(Debug)]
pub struct TreeNoteFile {
    dir: OwnedFd,
    note: Mutex<TreeNote>,
}

/// The open notes by the runs whose folders they are in.
#[derive(Debug, Default)]
pub(super) struct OpenNotes(Mutex<HashMap<RunId, Weak<TreeNoteFile>>>);

impl OpenNotes {
    /// Forgets the note in a folder that was removed or replaced.
    pub(super) fn remove(&self, run: &RunId) {
        self.0.lock().remove(run);
    }
}

impl ChainPoint {
    /// A record that no ledger has.
    pub const UNKNOWN: Self = Self { seq: u64::MAX, hash: Sha256::ZERO };
}

impl TreeNote {
    /// Returns the note of a tree that has every change up to `point`, and no other.
    pub fn at(point: ChainPoint) -> Self {
        Self { synced: point, begun: point }
    }

    fn to_bytes(self) -> Vec<u8> {
        let line = |ChainPoint { seq, hash }: ChainPoint| format!("{seq} {hash}\n");
        let mut text = format!("{}{}", line(self.synced), line(self.begun));
        text.extend(std::iter::repeat_n(' ', BYTES.saturating_sub(text.len() + 1)));
        text.push('\n');
        text.into_bytes()
    }

    /// Parses a note. `None` for one that was never written. One that cannot be understood names records that no ledger has.
    fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return None;
        }
        let mut lines = text.lines();
        let mut point = || {
            let (seq, hash) = lines.next()?.split_once(' ')?;
            Some(ChainPoint { seq: seq.parse().ok()?, hash: Sha256::parse(hash).ok()? })
        };
        let parsed = point().and_then(|synced| Some(Self { synced, begun: point()? }));
        Some(parsed.unwrap_or(Self::at(ChainPoint::UNKNOWN)))
    }
}

impl TreeNoteFile {
    /// Notes that the changes up to `point` are about to be moved into the tree. A process that is killed leaves the note; nothing is
    /// synced.
    ///
    /// # Errors
    ///
    /// If the disk fails. Nothing may be moved then.
    pub fn begin(&self, point: ChainPoint) -> io::Result<()> {
        let mut note = self.note.lock();
        if point.seq > note.begun.seq {
            note.begun = point;
            open_to_write(&self.dir)?.write_all_at(&note.to_bytes(), 0)?;
        }
        Ok(())
    }

    /// Notes that every change up to `point` is in the tree and on the disk. Durable when it returns.
    ///
    /// # Errors
    ///
    /// If the disk fails; [`is_fsync_failure`](crate::is_fsync_failure) if it must not be tried again.
    pub fn reach(&self, point: ChainPoint) -> io::Result<()> {
        let file = open_to_write(&self.dir)?;
        {
            let mut note = self.note.lock();
            if point.seq <= note.synced.seq {
                return Ok(());
            }
            note.synced = point;
            if point.seq > note.begun.seq {
                note.begun = point;
            }
            file.write_all_at(&note.to_bytes(), 0)?;
        }
        fdatasync(&file)
    }
}

/// [Notes](TreeNoteFile::reach) for each run how far its tree is on the disk, several at once.
///
/// # Errors
///
/// As for [`TreeNoteFile::reach`]; some may be noted then.
pub fn sync_notes(mut notes: Vec<(Arc<TreeNoteFile>, ChainPoint)>) -> io::Result<()> {
    notes.sort_by_key(|(note, point)| (Arc::as_ptr(note), std::cmp::Reverse(point.seq)));
    notes.dedup_by_key(|(note, _)| Arc::as_ptr(note));
    sync_in_parallel(&notes, |(note, point)| note.reach(*point))
}

impl Workspaces {
    /// Reads the note of `run`'s folder; `None` if it has none, which an earlier version has left.
    ///
    /// # Errors
    ///
    /// If the folder is missing ([`ErrorKind::NotFound`]) or the disk fails.
    pub fn tree_note(&self, run: &RunId) -> io::Result<Option<TreeNote>> {
        read(&open_dir(&self.dir, run.as_str())?)
    }

    /// Opens the note of `run`'s folder. If it has none, writes that its tree has every change up to `point`, and no other. All that have
    /// it open share one value: a run may be opened again while its last changes are synced.
    ///
    /// # Errors
    ///
    /// If the folder is missing or the disk fails.
    pub fn open_tree_note(&self, run: &RunId, point: ChainPoint) -> io::Result<Arc<TreeNoteFile>> {
        let mut open = self.notes.0.lock();
        if let Some(note) = open.get(run).and_then(Weak::upgrade) {
            return Ok(note);
        }
        let dir = open_dir(&self.dir, run.as_str())?;
        let noted = read(&dir)?;
        let note = noted.unwrap_or(TreeNote::at(point));
        if noted.is_none() {
            write(&dir, note)?;
        }
        let opened = Arc::new(TreeNoteFile { dir, note: Mutex::new(note) });
        open.retain(|_, note| note.strong_count() > 0);
        open.insert(run.clone(), Arc::downgrade(&opened));
        Ok(opened)
    }

    /// Notes that the tree of `run`, which no service uses, has every change up to `point`, and no other. Durable when it returns.
    ///
    /// # Errors
    ///
    /// If the folder is missing or the disk fails.
    pub fn set_tree_note(&self, run: &RunId, point: ChainPoint) -> io::Result<()> {
        let dir = open_dir(&self.dir, run.as_str())?;
        write(&dir, TreeNote::at(point))
    }

    /// Notes in the folders of `runs` without a note that nobody knows what is in them: the database is older than the folders.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn distrust_folders_without_note(&self, runs: &HashSet<String>) -> io::Result<()> {
        let is_finished = |folder: &RunFolder| !folder.is_unfinished && runs.contains(folder.run.as_str());
        for folder in self.folders()?.into_iter().filter(is_finished) {
            let dir = open_dir(&self.dir, folder.run.as_str())?;
            if read(&dir)?.is_none() {
                write(&dir, TreeNote::at(ChainPoint::UNKNOWN))?;
            }
        }
        Ok(())
    }
}

/// Creates the file without a note in `dir`, the folder of a run that is being imported, so that its space is taken.
pub(super) fn reserve(dir: &OwnedFd) -> io::Result<()> {
    create_file(dir, NAME)?.write_all_at(&[b' '; BYTES], 0)
}

/// Writes the note into `dir`, which becomes the folder of a run and is synced as a whole.
pub(super) fn create(dir: &OwnedFd, point: ChainPoint) -> io::Result<()> {
    create_file(dir, NAME)?.write_all_at(&TreeNote::at(point).to_bytes(), 0)
}

fn read(dir: &OwnedFd) -> io::Result<Option<TreeNote>> {
    let file = match open_file(dir, NAME) {
        Err(Errno::NOENT) => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    match file.take(BYTES as u64).read_to_string(&mut text) {
        // Not text, so not a note.
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(Some(TreeNote::at(ChainPoint::UNKNOWN))),
        read => read.map(|_| TreeNote::parse(&text)),
    }
}

fn open_to_write(dir: &OwnedFd) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(dir, NAME, flags, Mode::empty())?))
}

/// Writes the note, durably.
fn write(dir: &OwnedFd, note: TreeNote) -> io::Result<()> {
    let (file, is_new) = match open_to_write(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => (create_file(dir, NAME)?, true),
        file => (file?, false),
    };
    file.write_all_at(&note.to_bytes(), 0)?;
    fdatasync(&file)?;
    if is_new {
        rustix::fs::fsync(dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(seq: u64) -> ChainPoint {
        ChainPoint { seq, hash: Sha256::of(&seq.to_le_bytes()) }
    }

    #[test]
    fn a_note_parses_as_it_was_written() {
        for note in [TreeNote::at(ChainPoint::UNKNOWN), TreeNote { synced: point(0), begun: point(7) }] {
            let bytes = note.to_bytes();
            assert_eq!((bytes.len(), TreeNote::parse(std::str::from_utf8(&bytes).unwrap())), (BYTES, Some(note)));
        }
        assert_eq!(TreeNote::parse(&" ".repeat(BYTES)), None);
        for text in ["7\n", "7 x\n8 y\n", "\0"] {
            assert_eq!(TreeNote::parse(text), Some(TreeNote::at(ChainPoint::UNKNOWN)), "{text:?}");
        }
    }

    #[test]
    fn a_note_only_grows() {
        let folder = tempfile::tempdir().unwrap();
        let dir = open_dir(rustix::fs::CWD, folder.path()).unwrap();
        write(&dir, TreeNote::at(point(3))).unwrap();
        let file = TreeNoteFile { dir, note: Mutex::new(TreeNote::at(point(3))) };
        let noted = || read(&file.dir).unwrap().unwrap();
        file.begin(point(5)).unwrap();
        assert_eq!(noted(), TreeNote { synced: point(3), begun: point(5) });
        file.begin(point(4)).unwrap();
        file.reach(point(4)).unwrap();
        file.reach(point(2)).unwrap();
        assert_eq!(noted(), TreeNote { synced: point(4), begun: point(5) });
        file.reach(point(6)).unwrap();
        assert_eq!(noted(), TreeNote::at(point(6)));
    }
}
