//! The index: which version of which file came from the run, and what the file looked like when that was last seen.
//!
//! A file whose metadata is that of the index is unchanged. An entry has the metadata only if the file was older than the look at it;
//! others are hashed again. Only the time of the inode's last change cannot be set by a program, so that it betrays a change whose
//! author has set the file's own time back.
//!
//! The entries are in one file, and the record that they belong to in another, small one, so that a pull without changes writes only
//! that. The entries are written first: of a program that is killed in between, the next pull brings the same layer again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::entry::{MAX_LAYER_ENTRIES, NodeKind, NodeStamp, NodeVersion, OWN_FOLDER, check_path, hex};
use crate::error::ShimError;
use crate::folder::CheckedOut;
use crate::handles::{create_file, open_file, open_folder, stat, unlink};

const MAGIC: &[u8; 8] = b"WSINDEX2";
const NAME: &str = "index";
const STATE_NAME: &str = "state";
const CLOCK_NAME: &str = "clock";
/// The most bytes of an index that is read.
const MAX_INDEX_BYTES: u64 = 1 << 30;
/// The most bytes of its state.
const MAX_STATE_BYTES: u64 = 64 << 10;
/// Bytes of an entry besides its path.
const ENTRY_BYTES: usize = 1 + 32 + 8 + 4 + 8 + 8 + 8 + 2;
/// The coarsest clock of a usual file system ticks every 10 ms; some have seconds.
const TICK: Duration = Duration::from_millis(1);
/// How often a tick is waited for.
const MAX_TICKS: u32 = 50;

/// What the folder has of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) version: NodeVersion,
    pub(crate) stamp: NodeStamp,
}

/// New entries of an index, nothing for a path that is not in it any more.
pub(crate) type IndexChanges = BTreeMap<String, Option<IndexEntry>>;

/// The index of a checkout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CheckoutIndex {
    pub(crate) of: CheckedOut,
    pub(crate) entries: BTreeMap<String, IndexEntry>,
    /// Counts how often the entries were written.
    pub(crate) generation: u64,
    /// Whether the entries differ from the written ones.
    pub(crate) is_unsaved: bool,
}

/// The small file beside the entries.
#[derive(Debug, Serialize, Deserialize)]
struct IndexState {
    of: CheckedOut,
    /// That of the entries when it was written.
    generation: u64,
}

impl CheckoutIndex {
    pub(crate) fn new(of: CheckedOut) -> Self {
        Self { of, entries: BTreeMap::new(), generation: 0, is_unsaved: true }
    }

    /// The paths in `folder`.
    pub(crate) fn beneath(&self, folder: &str) -> impl Iterator<Item = &String> {
        let prefix = format!("{folder}/");
        let from = (Bound::Excluded(prefix.clone()), Bound::Unbounded);
        self.entries.range(from).map(|(path, _)| path).take_while(move |path| path.starts_with(&prefix))
    }

    /// Takes new entries.
    pub(crate) fn change(&mut self, changes: IndexChanges) {
        self.is_unsaved |= !changes.is_empty();
        if self.entries.is_empty() {
            self.entries = changes.into_iter().filter_map(|(path, entry)| Some((path, entry?))).collect();
            return;
        }
        for (path, entry) in changes {
            match entry {
                Some(entry) => drop(self.entries.insert(path, entry)),
                None => drop(self.entries.remove(&path)),
            }
        }
    }

    /// Returns the hash of all versions with their paths.
    pub(crate) fn tree_sha256(&self) -> String {
        let mut hasher = Sha256::new();
        for (path, entry) in &self.entries {
            let NodeVersion { kind, hash } = entry.version;
            hasher.update(format!("{} {} {path}\0", kind.as_char(), hex(&hash)));
        }
        hex(&hasher.finalize())
    }
}

/// The folder of the index.
#[derive(Debug)]
pub(crate) struct IndexFolder {
    pub(crate) dir: OwnedFd,
}

impl IndexFolder {
    /// Opens it in a checkout. `None` if there is none.
    pub(crate) fn open(root: impl AsFd) -> Result<Option<Self>, ShimError> {
        match open_folder(root, OWN_FOLDER) {
            Ok(dir) => Ok(Some(Self { dir })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(ShimError::io(OWN_FOLDER, errno)),
        }
    }

    /// Opens it, and creates it first if it is missing.
    pub(crate) fn create(root: impl AsFd) -> Result<Self, ShimError> {
        match rustix::fs::mkdirat(&root, OWN_FOLDER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(ShimError::io(OWN_FOLDER, errno)),
        }
        let dir = open_folder(root, OWN_FOLDER).map_err(ShimError::of(OWN_FOLDER))?;
        Ok(Self { dir })
    }

    /// Whether it is the one that the checkout has now.
    pub(crate) fn is_in(&self, root: impl AsFd) -> Result<bool, ShimError> {
        let failed = ShimError::of(OWN_FOLDER);
        let now = stat(root, OWN_FOLDER).map_err(&failed)?;
        let this = rustix::fs::fstat(&self.dir).map_err(&failed)?;
        Ok(now.is_some_and(|now| (now.st_dev, now.st_ino) == (this.st_dev, this.st_ino)))
    }

    /// Returns the time of the file system that has the checkout.
    pub(crate) fn now_ns(&self) -> Result<i64, ShimError> {
        let failed = ShimError::of("the clock of the index");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.dir, CLOCK_NAME, flags, Mode::RUSR | Mode::WUSR);
        let file = opened.map_err(|errno| match errno {
            Errno::NOENT => ShimError::Refused(format!(
                "`{OWN_FOLDER}` was removed here, without which nobody knows what changed: check the run out into another folder"
            )),
            errno => failed(errno),
        })?;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        rustix::fs::futimens(&file, &Timestamps { last_access: now, last_modification: now }).map_err(&failed)?;
        let stat = rustix::fs::fstat(&file).map_err(&failed)?;
        Ok(NodeStamp::of(&stat).modified_ns)
    }

    /// Returns a time of the file system after `time_ns`, if one comes soon.
    pub(crate) fn time_after(&self, time_ns: i64) -> Result<i64, ShimError> {
        for _ in 0..MAX_TICKS {
            let now = self.now_ns()?;
            if now > time_ns {
                return Ok(now);
            }
            std::thread::sleep(TICK);
        }
        // Files from the future, or a clock of seconds: their metadata proves nothing, and they are hashed again.
        self.now_ns()
    }

    /// Reads the index. `None` if there is none.
    pub(crate) fn load(&self) -> Result<Option<CheckoutIndex>, ShimError> {
        // Without it nobody knows which record the entries are of: a first pull finds what is there already.
        let Some(state) = self.bytes_of(STATE_NAME, MAX_STATE_BYTES)? else { return Ok(None) };
        let state: IndexState = serde_json::from_slice(&state).map_err(|_| damaged())?;
        let bytes = self.bytes_of(NAME, MAX_INDEX_BYTES)?.ok_or_else(damaged)?;
        let (generation, entries) = parse(&bytes).ok_or_else(damaged)?;
        // Entries that are newer were written just before the program was killed.
        if generation < state.generation {
            return Err(damaged());
        }
        Ok(Some(CheckoutIndex { of: state.of, entries, generation, is_unsaved: false }))
    }

    /// Reads a file. `None` if there is none.
    fn bytes_of(&self, name: &str, max_bytes: u64) -> Result<Option<Vec<u8>>, ShimError> {
        let file = match open_file(&self.dir, name) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(ShimError::io("the index", errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(ShimError::of("the index"))?;
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > max_bytes {
            return Err(damaged());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
        file.take(max_bytes).read_to_end(&mut bytes).map_err(|error| ShimError::io("the index", error))?;
        Ok(Some(bytes))
    }

    /// Writes the index: its entries only if they have changed.
    pub(crate) fn save(&self, index: &mut CheckoutIndex) -> Result<(), ShimError> {
        if index.is_unsaved {
            index.generation += 1;
            self.replace(NAME, "index.new", &written(index))?;
            index.is_unsaved = false;
        }
        let state = IndexState { of: index.of.clone(), generation: index.generation };
        let state = serde_json::to_vec(&state).map_err(|error| ShimError::io("the index", io::Error::other(error)))?;
        self.replace(STATE_NAME, "state.new", &state)
    }

    fn replace(&self, name: &str, new_name: &str, bytes: &[u8]) -> Result<(), ShimError> {
        let failed = ShimError::of("the index");
        unlink(&self.dir, new_name).map_err(&failed)?;
        let mut file: File = create_file(&self.dir, new_name, 0o600).map_err(&failed)?;
        file.write_all(bytes).map_err(|error| ShimError::io("the index", error))?;
        rustix::fs::renameat(&self.dir, new_name, &self.dir, name).map_err(&failed)
    }
}

fn damaged() -> ShimError {
    ShimError::Refused("the index of the folder is damaged: check the run out into another folder".to_owned())
}

fn written(index: &CheckoutIndex) -> Vec<u8> {
    let bytes: usize = index.entries.keys().map(|path| ENTRY_BYTES + path.len()).sum();
    let mut out = Vec::with_capacity(bytes + 24);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&index.generation.to_le_bytes());
    out.extend_from_slice(&(index.entries.len() as u64).to_le_bytes());
    for (path, IndexEntry { version, stamp }) in &index.entries {
        let NodeStamp { size, mode, inode, modified_ns, changed_ns } = stamp;
        out.push(version.kind as u8);
        out.extend_from_slice(&version.hash);
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&mode.to_le_bytes());
        out.extend_from_slice(&inode.to_le_bytes());
        out.extend_from_slice(&modified_ns.to_le_bytes());
        out.extend_from_slice(&changed_ns.to_le_bytes());
        // A path has 4 KiB at most.
        out.extend_from_slice(&u16::try_from(path.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(path.as_bytes());
    }
    out
}

fn parse(mut bytes: &[u8]) -> Option<(u64, BTreeMap<String, IndexEntry>)> {
    let bytes = &mut bytes;
    if &take::<8>(bytes)? != MAGIC {
        return None;
    }
    let generation = u64::from_le_bytes(take(bytes)?);
    let count = usize::try_from(u64::from_le_bytes(take(bytes)?)).ok()?;
    if count > MAX_LAYER_ENTRIES || count > bytes.len() / ENTRY_BYTES {
        return None;
    }
    let mut entries: Vec<(String, IndexEntry)> = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(parse_entry(bytes)?);
    }
    bytes.is_empty().then(|| (generation, entries.into_iter().collect()))
}

fn parse_entry(bytes: &mut &[u8]) -> Option<(String, IndexEntry)> {
    let [kind] = take(bytes)?;
    let version = NodeVersion { kind: NodeKind::parse(kind)?, hash: take(bytes)? };
    let stamp = NodeStamp {
        size: u64::from_le_bytes(take(bytes)?),
        mode: u32::from_le_bytes(take(bytes)?),
        inode: u64::from_le_bytes(take(bytes)?),
        modified_ns: i64::from_le_bytes(take(bytes)?),
        changed_ns: i64::from_le_bytes(take(bytes)?),
    };
    let length = u16::from_le_bytes(take(bytes)?);
    let (path, rest) = bytes.split_at_checked(length.into())?;
    *bytes = rest;
    let path = std::str::from_utf8(path).ok().filter(|path| check_path(path).is_ok())?;
    Some((path.to_owned(), IndexEntry { version, stamp }))
}

/// Takes the next bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}
