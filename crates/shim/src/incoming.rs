//! Contents of a layer, written beside the tree: one by one, or as a tree whose top entries are moved into an empty folder.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::entry::{MAX_DEPTH, NodeKind, NodeStamp, NodeVersion};
use crate::error::ShimError;
use crate::handles::{FolderCursor, ParentFolder, create_file, for_each_entry, name_of, open_folder, stat, unlink};
use crate::index::IndexFolder;

const INCOMING: &str = "incoming";
/// The most bytes that a layer unpacks to: far more than a tree has, and less than what fills a disk without an end.
const MAX_LAYER_BYTES: u64 = 256 << 30;
const CHUNK_BYTES: usize = 256 << 10;

/// A file or link of a layer, written beside the tree.
pub(crate) struct IncomingNode {
    pub(crate) version: NodeVersion,
    pub(crate) stamp: NodeStamp,
    /// Its name in the folder of incoming files, unless that has a tree.
    pub(crate) name: String,
}

/// The folder of incoming files.
pub(crate) struct IncomingFolder {
    pub(crate) incoming: OwnedFd,
    /// If it has a tree.
    tree: Option<FolderCursor>,
    /// Files of a first checkout get the times of the layer, but none after this one: they would be newer than all that is built from
    /// them.
    latest_ns: Option<i64>,
    staged: u64,
    left_bytes: u64,
    chunk: Vec<u8>,
}

impl IncomingFolder {
    pub(crate) fn create(own: &IndexFolder, is_tree: bool, latest_ns: Option<i64>) -> Result<Self, ShimError> {
        let failed = ShimError::of("the folder of incoming files");
        rustix::fs::mkdirat(&own.dir, INCOMING, Mode::RWXU).map_err(&failed)?;
        let incoming = open_folder(&own.dir, INCOMING).map_err(&failed)?;
        let root = incoming.try_clone().map_err(|error| ShimError::io("the folder of incoming files", error))?;
        Ok(Self {
            incoming,
            tree: is_tree.then(|| FolderCursor::new(root)),
            latest_ns,
            staged: 0,
            left_bytes: MAX_LAYER_BYTES,
            chunk: vec![0; CHUNK_BYTES],
        })
    }

    #[cfg(test)]
    pub(crate) fn with_max_bytes(self, max_bytes: u64) -> Self {
        Self { left_bytes: max_bytes, ..self }
    }

    pub(crate) fn is_tree(&self) -> bool {
        self.tree.is_some()
    }

    /// Writes a folder of the layer, if there is a tree.
    pub(crate) fn folder(&mut self, path: &str) -> Result<(), ShimError> {
        place(&self.incoming, &mut self.tree, &mut self.staged, &format!("{path}/")).map(drop)
    }

    /// Writes a link.
    pub(crate) fn link(&mut self, path: &str, target: &[u8], modified: Timespec) -> Result<IncomingNode, ShimError> {
        let (dir, name) = place(&self.incoming, &mut self.tree, &mut self.staged, path)?;
        make(dir, &name, || rustix::fs::symlinkat(target, dir, &*name)).map_err(taken(path))?;
        if is_before(modified, self.latest_ns) {
            let times = Timestamps { last_access: modified, last_modification: modified };
            rustix::fs::utimensat(dir, &*name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(ShimError::of(path))?;
        }
        let found = stat(dir, &*name).and_then(|found| found.ok_or(Errno::NOENT)).map_err(ShimError::of(path))?;
        Ok(IncomingNode { version: NodeVersion::of_link(target), stamp: NodeStamp::of(&found), name })
    }

    /// Writes a file.
    pub(crate) fn file(
        &mut self,
        path: &str,
        is_executable: bool,
        content: &mut impl Read,
        modified: Timespec,
    ) -> Result<IncomingNode, ShimError> {
        let (kind, mode) = if is_executable { (NodeKind::Executable, 0o777) } else { (NodeKind::File, 0o666) };
        let (dir, name) = place(&self.incoming, &mut self.tree, &mut self.staged, path)?;
        let mut file = make(dir, &name, || create_file(dir, &*name, mode)).map_err(taken(path))?;
        let failed = |error: io::Error| ShimError::io(path, error);
        let mut hasher = Sha256::new();
        loop {
            let count = match content.read(&mut self.chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            self.left_bytes = self
                .left_bytes
                .checked_sub(count as u64)
                .ok_or_else(|| ShimError::Refused(format!("{path}: the layer has more bytes than a run can have")))?;
            hasher.update(&self.chunk[..count]);
            file.write_all(&self.chunk[..count]).map_err(failed)?;
        }
        if is_before(modified, self.latest_ns) {
            let times = Timestamps { last_access: modified, last_modification: modified };
            rustix::fs::futimens(&file, &times).map_err(ShimError::of(path))?;
        }
        let stamp = NodeStamp::of(&rustix::fs::fstat(&file).map_err(ShimError::of(path))?);
        Ok(IncomingNode { version: NodeVersion { kind, hash: hasher.finalize().into() }, stamp, name })
    }
}

/// Returns the folder and the name at which `path` is written.
fn place<'a>(
    incoming: &'a OwnedFd,
    tree: &'a mut Option<FolderCursor>,
    staged: &mut u64,
    path: &str,
) -> Result<(BorrowedFd<'a>, String), ShimError> {
    let Some(cursor) = tree else {
        *staged += 1;
        return Ok((incoming.as_fd(), staged.to_string()));
    };
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    match cursor.enter(folder, true).map_err(ShimError::of(path))? {
        ParentFolder::Folder(dir) => Ok((dir, name_of(path).to_owned())),
        ParentFolder::NoFolder(above) => Err(is_no_folder(path.trim_end_matches('/'), &above)),
        ParentFolder::Missing => Err(ShimError::io(path, Errno::NOENT)),
    }
}

/// A layer has something in what is no folder.
pub(crate) fn is_no_folder(path: &str, above: &str) -> ShimError {
    ShimError::Refused(format!("the layer has {path:?} in {above:?}, which is no folder"))
}

/// Makes an entry. Of a path that a layer has twice, the last one is meant.
fn make<T>(dir: BorrowedFd<'_>, name: &str, make: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => {
            unlink(dir, name)?;
            make()
        }
        made => made,
    }
}

/// What is said if a path of the layer is a folder of the layer too.
fn taken(path: &str) -> impl Fn(Errno) -> ShimError {
    move |errno| match errno {
        Errno::ISDIR | Errno::PERM => {
            ShimError::Refused(format!("the layer has something in {path:?}, which is no folder"))
        }
        errno => ShimError::io(path, errno),
    }
}

fn is_before(time: Timespec, latest_ns: Option<i64>) -> bool {
    latest_ns
        .is_some_and(|latest| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec) < i128::from(latest))
}

/// Removes what a layer before has left.
pub(crate) fn remove_incoming(own: &IndexFolder) -> Result<(), ShimError> {
    remove_tree(&own.dir, INCOMING).map_err(ShimError::of("the folder of incoming files"))
}

/// Removes the folders above `path` that are empty.
pub(crate) fn remove_empty_folders(cursor: &mut FolderCursor, path: &str) -> Result<(), ShimError> {
    let mut folder = path;
    while let Some((above, _)) = folder.rsplit_once('/') {
        folder = above;
        let ParentFolder::Folder(dir) = cursor.parent_of(folder).map_err(ShimError::of(folder))? else { break };
        match rustix::fs::unlinkat(dir, name_of(folder), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => cursor.reset(),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Removes an entry with everything in it. A missing one is no error.
pub(crate) fn remove_tree(dir: &OwnedFd, name: &str) -> Result<(), Errno> {
    let deeper = Deeper { dir, name, count: Cell::new(0) };
    let mut removed = 0;
    remove(dir, &c_name(name)?, &deeper, 0)?;
    while removed < deeper.count.get() {
        remove(dir, &c_name(&deeper.name(removed))?, &deeper, 0)?;
        removed += 1;
    }
    Ok(())
}

/// Folders that were too deep to be removed where they were. They are beside the tree, and removed after it.
struct Deeper<'a> {
    dir: &'a OwnedFd,
    name: &'a str,
    count: Cell<u32>,
}

impl Deeper<'_> {
    fn name(&self, number: u32) -> String {
        format!("{}.{number}", self.name)
    }

    fn take(&self, dir: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        loop {
            let number = self.count.get();
            self.count.set(number + 1);
            match rustix::fs::renameat(dir, name, self.dir, self.name(number)) {
                // Left by a program that was killed.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                moved => return moved,
            }
        }
    }
}

fn c_name(name: &str) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

fn remove(dir: &OwnedFd, name: &CStr, deeper: &Deeper<'_>, depth: usize) -> Result<(), Errno> {
    if depth > MAX_DEPTH {
        return deeper.take(dir, name);
    }
    let folder = match open_folder(dir, name) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return unlink(dir, name),
        Err(errno) => return Err(errno),
    };
    let mut entries = Vec::new();
    for_each_entry(folder.as_fd(), |name, file_type| {
        entries.push((name.to_owned(), file_type));
        Ok::<_, Errno>(())
    })?;
    for (name, file_type) in entries {
        match file_type {
            FileType::Directory => remove(&folder, &name, deeper, depth + 1)?,
            _ => unlink(&folder, name.as_c_str())?,
        }
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}
