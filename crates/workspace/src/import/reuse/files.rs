//! Copying the files of a base, on several threads: cloned where the file system can, else byte by byte.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::CopyError;
use crate::base::Blobs;
use crate::base::manifest::{BaseManifest, FileIndex, MODE_EXECUTABLE, MODE_LINK, ManifestRow};
use crate::byte_path::split;
use crate::dir::{create_file, open_dir, open_file, open_under, remove_file};
use crate::git::Git;
use crate::import::{ImportError, ImportObserver};
use crate::stamp::FileStamp;

/// The most threads: more of them wait for the same disk.
const MAX_THREADS: usize = 4;
/// Files up to this size are read and written, which takes fewer calls of the kernel's than a copy inside it is worth.
const BUFFER_BYTES: usize = 128 * 1024;

/// The files of a copy, and its folders with their stamps.
type CopiedTree = (Vec<ManifestRow>, Vec<(Vec<u8>, FileStamp)>);

/// All that the threads share.
struct ReuseCopier<'a> {
    from: OwnedFd,
    to: OwnedFd,
    manifest: &'a BaseManifest,
    folders: &'a [&'a [u8]],
    next: AtomicUsize,
    /// Cleared by the first file that the file system cannot clone.
    can_clone: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
    watch: &'a dyn ImportObserver,
    rows: Mutex<Vec<ManifestRow>>,
    /// Files that differ from the base now.
    changed: Mutex<Vec<ManifestRow>>,
}

/// Copies the tree of the base from `from` to `to`. Returns its files and folders with their new stamps.
pub(super) fn copy(
    from: &OwnedFd,
    to: &OwnedFd,
    git: &Git,
    manifest: &BaseManifest,
    folders: &[&[u8]],
    watch: &dyn ImportObserver,
) -> Result<CopiedTree, CopyError> {
    watch.progress("writing", 0, 0);
    let copier = ReuseCopier {
        from: open_dir(from, "repo")?,
        to: open_dir(to, "repo")?,
        manifest,
        folders,
        next: AtomicUsize::new(0),
        can_clone: AtomicBool::new(true),
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        watch,
        rows: Mutex::new(Vec::with_capacity(manifest.len())),
        changed: Mutex::default(),
    };
    for path in folders.iter().filter(|path| !path.is_empty()) {
        rustix::fs::mkdirat(&copier.to, *path, Mode::from(0o755))?;
    }
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(|| copier.work())).collect();
        let mut done = copier.work();
        for worker in workers {
            done =
                done.and(worker.join().map_err(|_| CopyError::from(io::Error::other("a thread panicked"))).flatten());
        }
        done
    })?;
    copier.write_changed(git)?;
    let stamps = folders.iter().map(|path| {
        let name: &[u8] = if path.is_empty() { b"." } else { path };
        let stat = rustix::fs::statat(&copier.to, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((path.to_vec(), FileStamp::of(&stat)))
    });
    let stamps = stamps.collect::<Result<_, Errno>>()?;
    Ok((copier.rows.into_inner(), stamps))
}

impl ReuseCopier<'_> {
    /// Copies folder after folder, until none is left.
    fn work(&self) -> Result<(), CopyError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut rows, mut changed) = (Vec::new(), Vec::new());
        while let Some(path) = self.folders.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.watch.cancelled() {
                return Err(CopyError::Import(ImportError::Cancelled));
            }
            self.folder(path, &mut buffer, &mut rows, &mut changed)?;
            let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
            self.watch.progress("writing", files, bytes);
        }
        self.rows.lock().append(&mut rows);
        self.changed.lock().append(&mut changed);
        Ok(())
    }

    fn folder(
        &self,
        path: &[u8],
        buffer: &mut [u8],
        rows: &mut Vec<ManifestRow>,
        changed: &mut Vec<ManifestRow>,
    ) -> Result<(), CopyError> {
        let Some(folder) = self.manifest.folder(path) else { return Ok(()) };
        // The run may have removed the folder, or have put something else there.
        let from = open_folder(&self.from, path).ok();
        let to = open_folder(&self.to, path)?;
        for (index, mut row) in self.manifest.rows_in(path, folder) {
            let copied = match &from {
                Some(from) => self.file(index, &row, from.as_fd(), to.as_fd(), buffer)?,
                None => None,
            };
            match copied {
                Some(stamp) => {
                    row.stamp = stamp;
                    self.files.fetch_add(1, Ordering::Relaxed);
                    self.bytes.fetch_add(stamp.size, Ordering::Relaxed);
                    rows.push(row);
                }
                None => changed.push(row),
            }
        }
        Ok(())
    }

    /// Copies one file or link, and returns its stamp; `None` if it differs from the base.
    fn file(
        &self,
        index: FileIndex,
        row: &ManifestRow,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> io::Result<Option<FileStamp>> {
        let name = split(&row.path).1;
        if row.mode == MODE_LINK {
            let is_same = |stat: rustix::fs::Stat| self.manifest.is_unchanged(index, &FileStamp::of(&stat));
            if !rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_same) {
                return Ok(None);
            }
            let Ok(target) = rustix::fs::readlinkat(from, name, Vec::new()) else { return Ok(None) };
            return make_link(to, name, target.as_bytes()).map(Some);
        }
        let Ok(mut source) = open_file(from, name) else { return Ok(None) };
        let is_same = |source: &File| {
            Ok::<_, Errno>(self.manifest.is_unchanged(index, &FileStamp::of(&rustix::fs::fstat(source)?)))
        };
        if !is_same(&source)? {
            return Ok(None);
        }
        let mut target = create_file(to, name)?;
        let is_whole = self.bytes(&mut source, &mut target, row.stamp.size, buffer)?;
        // Nothing may have changed the file while it was copied.
        if !is_whole || !is_same(&source)? {
            drop(target);
            remove_file(to, name)?;
            return Ok(None);
        }
        finish(&target, row.mode).map(Some)
    }

    /// Copies `size` bytes. Returns whether the source had them.
    fn bytes(&self, source: &mut File, target: &mut File, size: u64, buffer: &mut [u8]) -> io::Result<bool> {
        if size == 0 {
            return Ok(true);
        }
        if self.can_clone.load(Ordering::Relaxed) {
            match rustix::fs::ioctl_ficlone(&*target, &*source) {
                Ok(()) => return Ok(true),
                // If the disk is full, so does the copy fail.
                Err(_) => self.can_clone.store(false, Ordering::Relaxed),
            }
        }
        if size > buffer.len() as u64 {
            // Copies inside the kernel.
            return Ok(io::copy(source, target)? == size);
        }
        let count = usize::try_from(size).unwrap_or(buffer.len());
        match source.read_exact(&mut buffer[..count]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
        target.write_all(&buffer[..count])?;
        Ok(true)
    }

    /// Writes the files that differ from the base now, from the base's objects.
    fn write_changed(&self, git: &Git) -> Result<(), CopyError> {
        let changed = std::mem::take(&mut *self.changed.lock());
        if changed.is_empty() {
            return Ok(());
        }
        let written = Blobs::new(git).with(&AtomicBool::new(false), |blobs| {
            for mut row in changed {
                let (folder, name) = split(&row.path);
                let to = open_folder(&self.to, folder)?;
                row.stamp = if row.mode == MODE_LINK {
                    make_link(to.as_fd(), name, &blobs.get(&row.oid)?)?
                } else {
                    let mut target = create_file(&to, name)?;
                    blobs.read(&row.oid, &mut |bytes, _| io::copy(bytes, &mut target).map(drop))?;
                    finish(&target, row.mode)?
                };
                self.rows.lock().push(row);
            }
            Ok(())
        });
        written.map_err(|error| CopyError::Unusable(io::Error::other(error)))
    }
}

/// Opens the folder at `path` (empty for the root) under `root`.
fn open_folder(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_under(root, if path.is_empty() { b"." } else { path }, OFlags::DIRECTORY)
}

fn make_link(dir: BorrowedFd<'_>, name: &[u8], target: &[u8]) -> io::Result<FileStamp> {
    rustix::fs::symlinkat(target, dir, name)?;
    Ok(FileStamp::of(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Sets the mode of a written file, and returns its stamp.
fn finish(file: &File, mode: u32) -> io::Result<FileStamp> {
    let is_executable = mode == MODE_EXECUTABLE;
    rustix::fs::fchmod(file, if is_executable { Mode::from(0o755) } else { Mode::from(0o644) })?;
    Ok(FileStamp::of(&rustix::fs::fstat(file)?))
}
