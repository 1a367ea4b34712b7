//! Files that git ignores. The import does not store them; the base takes each in when the run first changes it, so that a
//! diff can show what was replaced or deleted.
//!
//! An ignored tree may contain tens of thousands of files, so none is stored before it is needed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Weak;

use model::{LogicalPath, Sha256};

use super::Base;
use super::manifest::{MODE_EXECUTABLE, MODE_FILE, ManifestRow};
use crate::git::{Bounds, GitError, hex, parse_oid};
use crate::hashing::copy_hashed;
use crate::stamp::FileStamp;

/// The file beside the manifest that lists them.
pub(crate) const LIST_NAME: &str = "base.late";
/// The time limit for storing one file.
const SECONDS: u64 = 600;

impl Base {
    /// Stores a file's bytes in the base's repository.
    pub(crate) fn store(
        &self,
        path: &LogicalPath,
        executable: bool,
        content: &mut dyn Read,
    ) -> io::Result<ManifestRow> {
        let stored = self.git.run(&["hash-object", "-w", "--stdin"], &Bounds::seconds(SECONDS), |mut stdin, stdout| {
            let (sha256, size) = copy_hashed(content, &mut stdin, u64::MAX)?;
            drop(stdin);
            let mut output = String::new();
            stdout.take(256).read_to_string(&mut output)?;
            Ok((sha256, size, parse_oid(output.trim())))
        });
        let (sha256, size, oid) = stored.map_err(|error| match error {
            GitError::Io(error) => error,
            error => io::Error::other(error),
        })?;
        let oid = oid.ok_or_else(|| io::Error::other("git hash-object printed no object id"))?;
        self.sync_object(&oid)?;
        Ok(ManifestRow {
            path: path.as_str().as_bytes().to_vec(),
            mode: if executable { MODE_EXECUTABLE } else { MODE_FILE },
            oid,
            sha256: *sha256.as_bytes(),
            // The other parts of the stamp are unknown, so that it never proves the file unchanged.
            stamp: FileStamp { size, ..FileStamp::default() },
        })
    }

    fn sync_object(&self, oid: &[u8; 20]) -> io::Result<()> {
        let (objects, name) = (self.git.dir().join("objects"), hex(oid));
        let folder = objects.join(&name[..2]);
        match File::open(folder.join(&name[2..])) {
            Ok(object) => object.sync_all()?,
            // A pack has the object already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        File::open(folder)?.sync_all()?;
        File::open(objects)?.sync_all()
    }

    /// Adds files that git ignores to the base.
    pub(crate) fn add_ignored_files(&self, rows: Vec<ManifestRow>) -> io::Result<()> {
        // Held to the end, so that nobody loads the base meanwhile.
        let mut loaded = self.loaded.lock();
        let mut all = self.ignored_files()?;
        all.retain(|one| rows.iter().all(|row| row.path != one.path));
        all.extend(rows);
        let mut bytes = Vec::new();
        for ManifestRow { path, mode, oid, sha256, stamp } in &all {
            write!(bytes, "{mode} {} {} {} ", stamp.size, hex(oid), Sha256::from_bytes(*sha256))?;
            bytes.extend_from_slice(path);
            bytes.push(0);
        }
        let folder = self.folder()?;
        let fresh = folder.join(format!("{LIST_NAME}.new"));
        let mut file = File::create(&fresh)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&fresh, folder.join(LIST_NAME))?;
        File::open(folder)?.sync_all()?;
        if let Some(stale) = std::mem::replace(&mut *loaded, Weak::new()).upgrade() {
            self.lru.remove(&stale);
        }
        failpoint::hit("base.kept");
        Ok(())
    }

    /// Returns the rows of the ignored files that were added since the import.
    pub(crate) fn ignored_files(&self) -> io::Result<Vec<ManifestRow>> {
        let bytes = match std::fs::read(self.folder()?.join(LIST_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let rows = bytes.split(|byte| *byte == 0).filter(|row| !row.is_empty()).map(parse);
        rows.collect::<Option<_>>().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("`{LIST_NAME}` in the run's folder is damaged"))
        })
    }

    /// Returns the run's folder.
    fn folder(&self) -> io::Result<PathBuf> {
        Ok(self.git.dir().parent().map(Path::to_owned).ok_or(io::ErrorKind::NotFound)?)
    }
}

fn parse(row: &[u8]) -> Option<ManifestRow> {
    let mut parts = std::str::from_utf8(row).ok()?.splitn(5, ' ');
    let (mode, size) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (oid, sha256) = (parse_oid(parts.next()?)?, Sha256::parse(parts.next()?).ok()?);
    let path = parts.next()?.as_bytes().to_vec();
    Some(ManifestRow { path, mode, oid, sha256: *sha256.as_bytes(), stamp: FileStamp { size, ..FileStamp::default() } })
}
