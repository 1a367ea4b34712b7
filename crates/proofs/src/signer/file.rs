//! The checkpoint file, to which every signed note is appended and synced.

#![expect(clippy::disallowed_types, reason = "the file is outside of the database and of the runs' folders on purpose")]

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use transparency::{CheckpointReader, LogTail};

/// The file, open for appending.
#[derive(Debug)]
pub struct CheckpointFile {
    file: File,
    /// The end of the last complete entry.
    end: u64,
    /// Whether there may be a partial entry after it.
    has_partial: bool,
}

impl CheckpointFile {
    /// Opens or creates the file of the log called `origin`, and cuts off a partial entry at its end. Returns what the end
    /// of the file was before. Blocks.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the file is not a checkpoint file of this origin.
    pub fn open(path: &Path, origin: &str) -> io::Result<(Self, LogTail)> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(length.saturating_sub(LogTail::BYTES)))?;
        file.read_to_end(&mut bytes)?;
        let tail = LogTail::parse(&bytes, origin);
        let tail = tail.ok_or_else(|| io::Error::other("it is not a checkpoint file of this origin"))?;
        let mut file = Self { file, end: length - tail.partial_bytes, has_partial: tail.partial_bytes > 0 };
        file.cut_partial()?;
        sync_folder(path)?;
        Ok((file, tail))
    }

    /// Appends a note and syncs it. After a failure, the next call removes what was written of it. Blocks.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn append(&mut self, note: &str) -> io::Result<()> {
        self.cut_partial()?;
        self.has_partial = true;
        self.file.seek(SeekFrom::Start(self.end))?;
        let entry = format!("{note}\n");
        self.file.write_all(entry.as_bytes())?;
        failpoint::hit("checkpoint.written");
        self.file.sync_data()?;
        self.end += entry.len() as u64;
        self.has_partial = false;
        Ok(())
    }

    /// Cuts off what follows the last complete entry.
    fn cut_partial(&mut self) -> io::Result<()> {
        if self.has_partial {
            self.file.set_len(self.end)?;
            self.file.sync_all()?;
            self.has_partial = false;
        }
        Ok(())
    }
}

/// Syncs the folder of the file, so that a new file survives a power failure.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Opens the checkpoint file of the log called `origin` for reading. Returns `None` if there is no file.
///
/// # Errors
///
/// If it cannot be opened.
pub fn read(path: &Path, origin: &str) -> io::Result<Option<CheckpointReader<BufReader<File>>>> {
    match File::open(path) {
        Ok(file) => Ok(Some(CheckpointReader::new(BufReader::new(file), origin))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
