//! Room on the disk that is kept for the records of looks: on a full disk mutations are refused, and reads go on.
//!
//! A file beside the database takes the room. It goes when a commit finds the disk full, and comes back when there is room
//! again; until then nothing that changes files is taken.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

/// The most that is kept, in bytes: tens of thousands of records.
const MOST: u64 = 16 << 20;
/// The share of the disk that is kept at most.
const SHARE: u64 = 16;
/// How often it is tried to take the room again.
const PACE: Duration = Duration::from_millis(100);

/// The room that is kept, or was given up.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    is_held: bool,
    tried: Option<Instant>,
}

impl Reserve {
    /// The reserve of `database`, taken where there is room. Blocks.
    pub(super) fn new(database: &Path) -> Self {
        let mut reserve = Self { path: place(database), is_held: false, tried: None };
        if !reserve.is_held() {
            tracing::warn!("the disk of the database is full: only reads are taken until there is room");
        }
        reserve
    }

    /// Whether the room is kept. Where it was given up, it is tried now and then to take it again. Blocks.
    pub(super) fn is_held(&mut self) -> bool {
        if self.is_held || self.tried.is_some_and(|tried| tried.elapsed() < PACE) {
            return self.is_held;
        }
        self.tried = Some(Instant::now());
        match allocate(&self.path) {
            Ok(()) => self.is_held = true,
            // A disk that cannot keep room ahead is used as it is.
            Err(error) if error.kind() == ErrorKind::Unsupported => self.is_held = true,
            Err(_) => drop(std::fs::remove_file(&self.path)),
        }
        self.is_held
    }

    /// Gives the room to those who look; false where it has been given already. Blocks.
    pub(super) fn release(&mut self) -> bool {
        if !self.is_held {
            return false;
        }
        tracing::warn!("the disk of the database is full: only reads are taken until there is room");
        self.is_held = false;
        self.tried = Some(Instant::now());
        std::fs::remove_file(&self.path).is_ok()
    }
}

/// Gives up the reserve of a database that cannot be opened for want of room; false where it has none.
pub(super) fn give_up(database: &Path) -> bool {
    std::fs::remove_file(place(database)).is_ok()
}

fn place(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".reserve");
    PathBuf::from(name)
}

fn allocate(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file: File = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let disk = fstatvfs(&file)?;
    let bytes = MOST.min(disk.f_blocks.saturating_mul(disk.f_frsize) / SHARE).max(1);
    Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}
