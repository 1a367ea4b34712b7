//! The note in a run's folder of the records that its tree has. The ledger knows by it whether the folder belongs to the history that it
//! has itself: a folder can be an older copy, and the ledger can have lost records.
//!
//! The note names two records. Everything up to `synced` is in the tree and on the disk; it is written before the journal drops a
//! step, so that the journal always reaches back to it. Nothing after `begun` was moved into the tree; it is written before that
//! happens, but not synced by itself. The file has a constant size and is overwritten in place, which a full disk does not prevent.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Weak};

use model::{RunId, Sha256};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Workspaces;
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
    /// The start of every chain, before its first record.
    pub const START: Self = Self { seq: 0, hash: Sha256::ZERO };
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

    /// Parses a note. One that cannot be understood names records that no ledger has.
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let mut point = || {
            let (seq, hash) = lines.next()?.split_once(' ')?;
            Some(ChainPoint { seq: seq.parse().ok()?, hash: Sha256::parse(hash).ok()? })
        };
        let parsed = point().and_then(|synced| Some(Self { synced, begun: point()? }));
        parsed.unwrap_or(Self::at(ChainPoint::UNKNOWN))
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
    /// Reads the note of `run`'s folder. A folder without one has records that no ledger has.
    ///
    /// # Errors
    ///
    /// If the folder is missing ([`ErrorKind::NotFound`]) or the disk fails.
    pub fn tree_note(&self, run: &RunId) -> io::Result<TreeNote> {
        read(&open_dir(&self.dir, run.as_str())?)
    }

    /// Opens the note of `run`'s folder. All that have it open share one value: a run may be opened again while its last changes are
    /// synced.
    ///
    /// # Errors
    ///
    /// If the folder is missing or the disk fails.
    pub fn open_tree_note(&self, run: &RunId) -> io::Result<Arc<TreeNoteFile>> {
        let mut open = self.notes.0.lock();
        if let Some(note) = open.get(run).and_then(Weak::upgrade) {
            return Ok(note);
        }
        let dir = open_dir(&self.dir, run.as_str())?;
        let note = read(&dir)?;
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
}

/// Writes the note into `dir`, which becomes the folder of a run and is synced as a whole.
pub(super) fn create(dir: &OwnedFd, point: ChainPoint) -> io::Result<()> {
    create_file(dir, NAME)?.write_all_at(&TreeNote::at(point).to_bytes(), 0)
}

fn read(dir: &OwnedFd) -> io::Result<TreeNote> {
    let mut bytes = Vec::new();
    match open_file(dir, NAME) {
        Err(Errno::NOENT) => 0,
        file => file?.take(BYTES as u64).read_to_end(&mut bytes)?,
    };
    Ok(TreeNote::parse(&String::from_utf8_lossy(&bytes)))
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
            assert_eq!((bytes.len(), TreeNote::parse(std::str::from_utf8(&bytes).unwrap())), (BYTES, note));
        }
        for text in ["", "7\n", "7 x\n8 y\n", "\0"] {
            assert_eq!(TreeNote::parse(text), TreeNote::at(ChainPoint::UNKNOWN), "{text:?}");
        }
    }

    #[test]
    fn a_note_only_grows() {
        let folder = tempfile::tempdir().unwrap();
        let dir = open_dir(rustix::fs::CWD, folder.path()).unwrap();
        write(&dir, TreeNote::at(point(3))).unwrap();
        let file = TreeNoteFile { dir, note: Mutex::new(TreeNote::at(point(3))) };
        let noted = || read(&file.dir).unwrap();
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
