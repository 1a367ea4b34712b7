//! The index: which version of which file came from the run, and what the file looked like when that was last seen.
//!
//! A file whose metadata is that of the index is unchanged, provided that it is older than the index: a change within the same tick
//! of the file system's clock as the last look at the file leaves no trace. Only the time of the inode's last change cannot be set by
//! a program, so that it betrays a change whose author has set the file's own time back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::entry::{MAX_LAYER_ENTRIES, NodeKind, NodeStamp, NodeVersion, OWN_FOLDER, check_path, hex, parse_hash};
use crate::error::ShimError;
use crate::folder::CheckedOut;
use crate::handles::{create_file, open_file, open_folder, unlink};

const MAGIC: &str = "workspaced-index 1";
const NAME: &str = "index";
const NEW_NAME: &str = "index.new";
const CLOCK_NAME: &str = "clock";
/// The most bytes of an index that is read.
const MAX_INDEX_BYTES: u64 = 1 << 30;
/// The most bytes of one entry.
const MAX_LINE_BYTES: u64 = 8192;
/// The coarsest clock of a usual file system ticks every 10 ms; some have seconds.
const TICK: Duration = Duration::from_millis(2);
/// How often a tick is waited for.
const MAX_TICKS: u32 = 25;

/// What the folder has of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) version: NodeVersion,
    pub(crate) stamp: NodeStamp,
}

/// The index of a checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckoutIndex {
    pub(crate) of: CheckedOut,
    /// The file system's time before which all entries were last looked at or later: an entry that is not older proves nothing.
    pub(crate) clock_ns: i128,
    pub(crate) entries: BTreeMap<String, IndexEntry>,
}

impl CheckoutIndex {
    pub(crate) fn new(of: CheckedOut) -> Self {
        Self { of, clock_ns: i128::MIN, entries: BTreeMap::new() }
    }

    /// Whether a file that looks like `stamp` is the one of `entry`.
    pub(crate) fn is_unchanged(&self, entry: &IndexEntry, stamp: &NodeStamp) -> bool {
        entry.stamp == *stamp && stamp.newest_ns() < self.clock_ns
    }

    /// Whether the run has anything in `folder`.
    pub(crate) fn has_beneath(&self, folder: &str) -> bool {
        self.beneath(folder).next().is_some()
    }

    /// The paths in `folder`.
    pub(crate) fn beneath(&self, folder: &str) -> impl Iterator<Item = &String> {
        let prefix = format!("{folder}/");
        let from = (Bound::Excluded(prefix.clone()), Bound::Unbounded);
        self.entries.range(from).map(|(path, _)| path).take_while(move |path| path.starts_with(&prefix))
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

    /// Returns the time of the file system that has the checkout.
    pub(crate) fn now_ns(&self) -> Result<i128, ShimError> {
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
    pub(crate) fn time_after(&self, time_ns: i128) -> Result<i128, ShimError> {
        for _ in 0..MAX_TICKS {
            let now = self.now_ns()?;
            if now > time_ns {
                return Ok(now);
            }
            std::thread::sleep(TICK);
        }
        // Files from the future, or a clock of seconds: their entries prove nothing, and are hashed again.
        self.now_ns()
    }

    /// Reads the index. `None` if there is none.
    pub(crate) fn load(&self) -> Result<Option<CheckoutIndex>, ShimError> {
        let file = match open_file(&self.dir, NAME) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(ShimError::io("the index", errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(ShimError::of("the index"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(damaged());
        }
        parse(file).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(),
            _ => ShimError::io("the index", error),
        })
    }

    /// Replaces the index.
    pub(crate) fn save(&self, index: &CheckoutIndex) -> Result<(), ShimError> {
        let failed = ShimError::of("the index");
        unlink(&self.dir, NEW_NAME).map_err(&failed)?;
        let file = create_file(&self.dir, NEW_NAME, 0o600).map_err(&failed)?;
        write(file, index).map_err(|error| ShimError::io("the index", error))?;
        rustix::fs::renameat(&self.dir, NEW_NAME, &self.dir, NAME).map_err(&failed)
    }
}

fn damaged() -> ShimError {
    ShimError::Refused("the index of the folder is damaged: check the run out into another folder".to_owned())
}

fn write(file: File, index: &CheckoutIndex) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, file);
    let of = serde_json::to_string(&index.of)?;
    write!(out, "{MAGIC}\0{of}\0{}\0{}\0", index.clock_ns, index.entries.len())?;
    for (path, IndexEntry { version, stamp }) in &index.entries {
        let (kind, hash) = (version.kind.as_char(), hex(&version.hash));
        let NodeStamp { size, mode, inode, modified_ns, changed_ns } = stamp;
        write!(out, "{kind} {hash} {size} {mode} {inode} {modified_ns} {changed_ns} {path}\0")?;
    }
    out.flush()
}

fn parse(file: File) -> io::Result<Option<CheckoutIndex>> {
    let mut input = BufReader::with_capacity(1 << 18, file.take(MAX_INDEX_BYTES));
    let mut line = Vec::new();
    let mut next = || {
        line.clear();
        (&mut input).take(MAX_LINE_BYTES).read_until(0, &mut line)?;
        line.pop_if(|last| *last == 0).ok_or(io::ErrorKind::InvalidData)?;
        String::from_utf8(line.clone()).map_err(|_| io::ErrorKind::InvalidData.into())
    };
    if next()? != MAGIC {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let of = serde_json::from_str(&next()?).map_err(|_| io::ErrorKind::InvalidData)?;
    let clock_ns = number(&next()?)?;
    let count: usize = number(&next()?)?;
    if count > MAX_LAYER_ENTRIES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let line: Result<String, io::Error> = next();
        entries.push(parse_entry(&line?).ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(Some(CheckoutIndex { of, clock_ns, entries: entries.into_iter().collect() }))
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

fn parse_entry(line: &str) -> Option<(String, IndexEntry)> {
    let mut fields = line.splitn(8, ' ');
    let version = NodeVersion { kind: NodeKind::parse(fields.next()?)?, hash: parse_hash(fields.next()?)? };
    let stamp = NodeStamp {
        size: fields.next()?.parse().ok()?,
        mode: fields.next()?.parse().ok()?,
        inode: fields.next()?.parse().ok()?,
        modified_ns: fields.next()?.parse().ok()?,
        changed_ns: fields.next()?.parse().ok()?,
    };
    let path = fields.next()?;
    check_path(path).ok()?;
    Some((path.to_owned(), IndexEntry { version, stamp }))
}
