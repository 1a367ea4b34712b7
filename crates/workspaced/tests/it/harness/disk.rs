//! Creates, reads and compares files on disk.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::SystemTime;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use super::{Snapshot, sha256, until};

/// Creates a named pipe that no process opens.
pub(crate) fn mkfifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_bits_truncate(0o644), 0).unwrap();
}

/// Returns every path under `folder` with its content hash, mode or link target.
pub(crate) fn snapshot(folder: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    snapshot_into(Path::new(""), folder, &mut found);
    found
}

/// Returns the files and links under `folder`, without folders.
pub(crate) fn files_in(folder: &Path) -> Snapshot {
    snapshot(folder).into_iter().filter(|(_, entry)| entry != "directory").collect()
}

/// Returns bytes that do not compress.
pub(crate) fn incompressible(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(count / 8).flatten().collect()
}

fn snapshot_into(prefix: &Path, folder: &Path, found: &mut Snapshot) {
    // Through a handle, since a whole path may be longer than a system call takes.
    let opened = File::open(folder).unwrap();
    for entry in std::fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), prefix.join(entry.file_name()));
        let data = path.symlink_metadata().unwrap();
        let description = if data.is_symlink() {
            format!("-> {}", std::fs::read_link(&path).unwrap().display())
        } else if data.is_dir() {
            snapshot_into(&name, &path, found);
            "directory".into()
        } else if data.is_file() {
            format!("{:o} {}", data.permissions().mode() & 0o777, sha256(std::fs::read(&path).unwrap()))
        } else {
            "other".into()
        };
        found.insert(name.to_string_lossy().into_owned(), description);
    }
}

/// Waits until `folder` is empty or missing. Replaced files are removed after the answer.
pub(crate) async fn until_empty(folder: &Path) {
    until("the folder is empty", async || {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let left: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// Returns the names in a `.tar.gz`.
pub(crate) fn names_in(archive: &[u8]) -> Vec<String> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let name = |entry: tar::Entry<'_, _>| entry.path().unwrap().to_string_lossy().trim_start_matches("./").to_owned();
    tar.entries().unwrap().map(|entry| name(entry.unwrap())).collect()
}

/// Formats a time as in the contract.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).unwrap().to_string()
}

/// A thread that exchanges two names in a loop.
pub(crate) struct Swapper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

/// Starts to exchange `one` and `other` in `folder`.
pub(crate) fn swap_until_stopped(folder: &Path, one: &str, other: &str) -> Swapper {
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, one, other): (_, PathBuf, PathBuf) = (Arc::clone(&stop), folder.join(one), folder.join(other));
    let thread = std::thread::spawn(move || {
        let mut swaps = 0;
        while !seen.load(Ordering::Relaxed) {
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            swaps += 1;
            if swaps % 64 == 0 {
                std::thread::yield_now();
            }
        }
        swaps
    });
    Swapper { stop, thread }
}

impl Swapper {
    /// Stops the thread and returns the number of exchanges.
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
