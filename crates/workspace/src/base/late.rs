//! What the base takes in after the import: files that git ignores, and that it therefore lacks, from when the run first changes
//! them. Without that nobody would see what a change took the place of, nor that a file went away.
//!
//! An ignored tree may hold tens of thousands of files, so that none is kept before it is needed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, Weak};

use model::{LogicalPath, Rules, Sha256, Verdict};
use rustix::fs::FileType;
use sha2::Digest as _;

use super::Base;
use super::manifest::{MODE_EXECUTABLE, MODE_FILE, Row, Stamp};
use crate::git::{Bounds, GitError, hex, parse_oid};
use crate::guard::Blocking;
use crate::{Workspace, WorkspaceError};

/// The file beside the manifest that names them.
const LATE_NAME: &str = "base.late";
/// How long it may take to keep one file.
const SECONDS: u64 = 600;

impl Workspace {
    /// Takes those of `paths` into the base that git ignores and that the run is about to change for the first time. To be
    /// called before the change is journalled: once it is, they are there for good.
    ///
    /// # Errors
    ///
    /// Where the disk or git fails.
    pub fn add_ignored_to_base<'p>(
        &self,
        rules: &Rules,
        paths: impl IntoIterator<Item = &'p LogicalPath>,
    ) -> Result<(), WorkspaceError> {
        if rules.policy().ignored_files == Verdict::Deny {
            return Ok(());
        }
        let mut rows = Vec::new();
        for path in paths {
            // What the run has written does not count as ignored.
            if !self.tree().is_ignored(path, None, Blocking::Allowed)? {
                continue;
            }
            match self.tree().root.open_unlinked(path) {
                Ok(opened) if opened.file_type() == FileType::RegularFile => {
                    let executable = opened.stat.st_mode & 0o111 != 0;
                    rows.push(self.base().keep(path, executable, opened.file)?);
                }
                Ok(_) => {}
                Err(error) => error.unless_disk()?,
            }
        }
        if rows.is_empty() { Ok(()) } else { Ok(self.base().add_late(rows)?) }
    }
}

impl Base {
    /// Puts a file's bytes into the base's repository.
    fn keep(&self, path: &LogicalPath, executable: bool, file: OwnedFd) -> io::Result<Row> {
        let mut from = Hashed { from: File::from(file), sha256: sha2::Sha256::new(), size: 0 };
        let said = self.git.talk(&["hash-object", "-w", "--stdin"], &Bounds::seconds(SECONDS), |mut stdin, stdout| {
            io::copy(&mut from, &mut stdin)?;
            drop(stdin);
            let mut said = String::new();
            stdout.take(256).read_to_string(&mut said)?;
            Ok(said)
        });
        let said = said.map_err(|error| match error {
            GitError::Io(error) => error,
            error => io::Error::other(error),
        })?;
        let oid = parse_oid(said.trim()).ok_or_else(|| io::Error::other("git did not say what it has kept"))?;
        self.sync_object(&oid)?;
        Ok(Row {
            path: path.as_str().as_bytes().to_vec(),
            mode: if executable { MODE_EXECUTABLE } else { MODE_FILE },
            oid,
            sha256: from.sha256.finalize().into(),
            // Of the rest nothing is known that proves that the file is as it was.
            stamp: Stamp { size: from.size, ..Stamp::default() },
        })
    }

    fn sync_object(&self, oid: &[u8; 20]) -> io::Result<()> {
        let (objects, name) = (self.git.dir().join("objects"), hex(oid));
        let folder = objects.join(&name[..2]);
        match File::open(folder.join(&name[2..])) {
            Ok(object) => object.sync_all()?,
            // Another object of the same bytes was there before, in a pack.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        File::open(folder)?.sync_all()?;
        File::open(objects)?.sync_all()
    }

    fn add_late(&self, rows: Vec<Row>) -> io::Result<()> {
        // Nobody loads the base meanwhile.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.late()?;
        all.retain(|one| rows.iter().all(|row| row.path != one.path));
        all.extend(rows);
        let mut bytes = Vec::new();
        for Row { path, mode, oid, sha256, stamp } in &all {
            write!(bytes, "{mode} {} {} {} ", stamp.size, hex(oid), Sha256::from_bytes(*sha256))?;
            bytes.extend_from_slice(path);
            bytes.push(0);
        }
        let folder = self.folder()?;
        let fresh = folder.join(format!("{LATE_NAME}.new"));
        let mut file = File::create(&fresh)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&fresh, folder.join(LATE_NAME))?;
        File::open(folder)?.sync_all()?;
        if let Some(stale) = std::mem::replace(&mut *loaded, Weak::new()).upgrade() {
            self.shelf.remove(&stale);
        }
        failpoint::hit("base.kept");
        Ok(())
    }

    /// The rows of what was taken in since the import.
    pub(super) fn late(&self) -> io::Result<Vec<Row>> {
        let bytes = match std::fs::read(self.folder()?.join(LATE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let rows = bytes.split(|byte| *byte == 0).filter(|row| !row.is_empty()).map(parse);
        rows.collect::<Option<_>>().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("`{LATE_NAME}` of the run's folder is damaged"))
        })
    }

    /// The run's folder.
    fn folder(&self) -> io::Result<PathBuf> {
        Ok(self.git.dir().parent().map(Path::to_owned).ok_or(io::ErrorKind::NotFound)?)
    }
}

fn parse(row: &[u8]) -> Option<Row> {
    let mut parts = std::str::from_utf8(row).ok()?.splitn(5, ' ');
    let (mode, size) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (oid, sha256) = (parse_oid(parts.next()?)?, Sha256::parse(parts.next()?).ok()?);
    let path = parts.next()?.as_bytes().to_vec();
    Some(Row { path, mode, oid, sha256: *sha256.as_bytes(), stamp: Stamp { size, ..Stamp::default() } })
}

/// A file that is hashed while it is read.
struct Hashed {
    from: File,
    sha256: sha2::Sha256,
    size: u64,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.sha256.update(&buffer[..count]);
        self.size += count as u64;
        Ok(count)
    }
}
