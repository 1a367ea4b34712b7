//! The folder of backups: a folder for each, and the objects that they share, each named by its hash.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a backup is outside of the data folder, in a folder that the operator names"
)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use archive::{ArchiveWriter, Member, Part};
use engine::clock;
use model::{RunId, Sha256};
use rustix::fs::FlockOperation;
use sha2::Digest as _;

use crate::backup::manifest::{BackupManifest, NamedFile, SavedArchive};
use crate::backup::saved_content::{OBJECTS, SavedContent, object};
use crate::backup::saved_run::SavedRun;
use crate::output::progress;
use config::{ConfigError, StartError};

/// An object that is being written.
const NEW_OBJECT: &str = "objects/new";
const LOCK: &str = "lock";
/// The contents of the files that the newest backup has copied, by their stamps: the next one does not read them again.
const STAMPS: &str = "stamps.json";
/// The archive of what belongs to no run, in the backup's own folder: it is another one each time.
pub(crate) const SERVICE: &str = "service.tar";
/// The folder of the runs' rows and of temporary files, in the backup's own folder until all archives are written.
const ROWS: &str = "rows";
const BUFFER_BYTES: usize = 256 * 1024;
/// The age of a file's last change, in seconds, from which on a further change gives it another stamp.
const SETTLED_SECONDS: i64 = 2;

/// A folder of backups, locked for this process.
pub(crate) struct BackupFolder {
    root: PathBuf,
    #[expect(dead_code, reason = "held for its drop")]
    lock: File,
    /// The objects that complete backups have.
    known: HashSet<SavedContent>,
    /// The contents of files that the newest backup has copied, by their stamps.
    stamps: HashMap<String, SavedContent>,
    /// Those of this backup.
    new_stamps: BTreeMap<String, SavedContent>,
    /// The parts of the bases that this backup has copied, by the names of the bases.
    pub(crate) bases: HashMap<String, Vec<(String, SavedContent)>>,
    /// The number of the backup that is written next.
    next_number: u64,
    /// The backup that is being written.
    current: Option<PathBuf>,
    /// The rows that are not in archives yet.
    rows: HashMap<RunId, Member>,
    /// The objects that this backup has created. One that a damaged backup may need was there before.
    new: Vec<SavedContent>,
}

/// Why a file was not copied.
#[derive(Debug)]
pub(crate) enum BackupCopyError {
    /// It cannot be read.
    Source(io::Error),
    /// The backup cannot be written.
    Target(io::Error),
}

impl BackupFolder {
    /// Opens or creates the folder, and removes what no complete backup needs.
    ///
    /// # Errors
    ///
    /// If the folder is used by another process, has other files, or cannot be written.
    pub(crate) fn open(root: &Path) -> Result<Self, ConfigError> {
        let failed = |why: String| ConfigError(format!("{}: {why}", root.display()));
        Self::try_open(root).map_err(|error| failed(error.to_string()))
    }

    fn try_open(root: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        for entry in std::fs::read_dir(root)? {
            let name = entry?.file_name();
            let is_ours = [OBJECTS, LOCK, STAMPS, "lost+found"].iter().any(|own| name == *own);
            if !is_ours && !name.to_str().is_some_and(is_backup) {
                let message =
                    "the folder has other files than backups: name an empty folder, or one of earlier backups";
                return Err(io::Error::other(message));
            }
        }
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(root.join(LOCK))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another backup into this folder is running: wait for its end"));
            }
            locked => locked?,
        }
        DirBuilder::new().recursive(true).mode(0o700).create(root.join(OBJECTS))?;
        let mut folder = Self {
            root: root.to_owned(),
            lock,
            known: HashSet::new(),
            stamps: HashMap::new(),
            new_stamps: BTreeMap::new(),
            bases: HashMap::new(),
            next_number: 1,
            current: None,
            rows: HashMap::new(),
            new: Vec::new(),
        };
        folder.clean_up()?;
        Ok(folder)
    }

    /// Removes what killed backups have left, and the objects of backups that were removed. What remains was synced.
    fn clean_up(&mut self) -> io::Result<()> {
        let (mut needed, mut newest, mut unreadable, mut damaged) = (HashSet::new(), 0, 0, 0);
        for name in backups(&self.root)? {
            let path = self.root.join(&name);
            let kept = "no object is removed while it is here";
            match BackupManifest::read(&path) {
                Ok(Some(manifest)) => {
                    for SavedArchive { archive, .. } in &manifest.runs {
                        // Most archives are those of other backups too.
                        if !needed.insert(*archive) {
                            continue;
                        }
                        match SavedRun::open(&self.root, archive) {
                            Ok(run) => needed.extend(run.contents()),
                            Err(error) => {
                                damaged += 1;
                                progress(&format!("{name}: an archive is damaged: {error}; {kept}"));
                            }
                        }
                    }
                    newest = newest.max(manifest.number);
                }
                Ok(None) => std::fs::remove_dir_all(&path)?,
                Err(error) => {
                    unreadable += 1;
                    progress(&format!("{name}: damaged: {error}; {kept}"));
                }
            }
        }
        let is_readable = damaged + unreadable == 0;
        // Without stamps, the files are read again.
        let stamps = std::fs::read(self.root.join(STAMPS)).ok();
        self.stamps = stamps.and_then(|stamps| serde_json::from_slice(&stamps).ok()).unwrap_or_default();
        // Any of the unreadable ones may have been the newest.
        self.next_number = newest + unreadable + 1;
        let sizes: HashMap<_, _> = needed.iter().map(|content| (content.sha256, content.size)).collect();
        for folder in std::fs::read_dir(self.root.join(OBJECTS))? {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                std::fs::remove_file(folder.path())?;
                continue;
            }
            for object in std::fs::read_dir(folder.path())? {
                let object = object?;
                let name = format!("{}{}", folder.file_name().display(), object.file_name().display());
                let sha256 = Sha256::parse(&name).ok();
                match sha256.and_then(|sha256| Some(SavedContent { sha256, size: *sizes.get(&sha256)? })) {
                    Some(content) if object.metadata()?.len() == content.size => drop(self.known.insert(content)),
                    None if is_readable => std::fs::remove_file(object.path())?,
                    // One of another size is written again, if its file still exists.
                    Some(_) | None => {}
                }
            }
        }
        let known = &self.known;
        self.stamps.retain(|_, content| known.contains(content));
        Ok(())
    }

    /// Begins a backup and returns its folder and its number.
    ///
    /// # Errors
    ///
    /// If the folder exists or cannot be created.
    pub(crate) fn begin(&mut self) -> io::Result<(PathBuf, u64)> {
        self.begin_at(&clock::now())
    }

    /// A clock that was set back may give the time of an earlier backup, which stays as it is.
    fn begin_at(&mut self, time: &str) -> io::Result<(PathBuf, u64)> {
        let path = self.root.join(time.replace(':', "-"));
        DirBuilder::new().mode(0o700).create(&path)?;
        self.current = Some(path.clone());
        DirBuilder::new().mode(0o700).create(path.join(ROWS))?;
        Ok((path, self.next_number))
    }

    /// Removes the backup that was begun, with the objects that it has created. What remains is removed by the next backup.
    pub(crate) fn discard(&mut self) -> io::Result<()> {
        if let Some(path) = self.current.take() {
            std::fs::remove_dir_all(path)?;
        }
        for content in std::mem::take(&mut self.new) {
            self.known.remove(&content);
            std::fs::remove_file(object(&self.root, &content.sha256))?;
        }
        Ok(())
    }

    /// Syncs everything and completes the backup.
    ///
    /// # Errors
    ///
    /// If the disk fails. The folder is no backup then.
    pub(crate) fn finish(&mut self, manifest: &BackupManifest) -> io::Result<()> {
        let Some(path) = &self.current else { return Ok(()) };
        std::fs::remove_dir_all(path.join(ROWS))?;
        std::fs::write(self.root.join(STAMPS), serde_json::to_vec(&self.new_stamps)?)?;
        // One call for all: thousands of objects would be synced one by one otherwise.
        rustix::fs::syncfs(File::open(&self.root)?)?;
        manifest.write(path)?;
        self.current = None;
        File::open(&self.root)?.sync_all()
    }

    /// Copies a file of a run to the objects, unless a complete backup has it. Returns its content.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the object not be written.
    pub(crate) fn add(&mut self, mut file: File) -> Result<SavedContent, BackupCopyError> {
        let stamp = stamp(&file).map_err(BackupCopyError::Source)?;
        let known = stamp.as_ref().and_then(|stamp| self.stamps.get(stamp).or_else(|| self.new_stamps.get(stamp)));
        let content = match known {
            Some(content) => *content,
            None => self.store(&mut file)?,
        };
        // A file that was changed meanwhile has another stamp, which does not belong to what was read.
        if let Some(stamp) = stamp
            && self::stamp(&file).map_err(BackupCopyError::Source)?.as_ref() == Some(&stamp)
        {
            self.new_stamps.insert(stamp, content);
        }
        Ok(content)
    }

    /// Copies what is in `file` to the objects, unless a complete backup has it. Returns its content.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or the object not be written.
    pub(crate) fn store(&mut self, file: &mut dyn Read) -> Result<SavedContent, BackupCopyError> {
        let new = self.root.join(NEW_OBJECT);
        let content = copy(file, &new)?;
        if self.known.contains(&content) {
            std::fs::remove_file(&new).map_err(BackupCopyError::Target)?;
        } else {
            self.put_new(content).map_err(BackupCopyError::Target)?;
        }
        Ok(content)
    }

    /// Makes the new object that of `content`.
    fn put_new(&mut self, content: SavedContent) -> io::Result<()> {
        let path = object(&self.root, &content.sha256);
        DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap_or(&self.root))?;
        // A damaged backup may need the object that is replaced, which has the same content or is damaged itself.
        let is_replaced = std::fs::exists(&path)?;
        std::fs::rename(self.root.join(NEW_OBJECT), &path)?;
        self.known.insert(content);
        if !is_replaced {
            self.new.push(content);
        }
        failpoint::hit("backup.object");
        Ok(())
    }

    /// Begins the rows of `run`, which [`add_rows`](Self::add_rows) completes. Those of an earlier attempt are replaced.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub(crate) fn begin_rows(&self, run: &RunId) -> io::Result<Part> {
        Part::rows(create(&self.path_of_rows(run))?)
    }

    /// Keeps the rows of `run` until its archive is written.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub(crate) fn add_rows(&mut self, run: RunId, rows: Part) -> io::Result<()> {
        self.rows.insert(run, rows.finish()?.0);
        Ok(())
    }

    /// Writes the archive of a run with its rows, which are removed, and its files to the objects, unless it is there and intact.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn add_archive(&mut self, run: &SavedRun, head_hash: Sha256) -> io::Result<SavedContent> {
        let folder = self.temporary_folder();
        let mut writer = self.collect(&folder, run)?;
        let mut write = |to: &mut dyn io::Write| {
            let (size, sha256) = writer.write(run.run_id.clone(), run.head_seq, head_hash, to)?;
            Ok::<_, io::Error>(SavedContent { sha256, size })
        };
        let content = write(&mut io::sink())?;
        let is_known = self.known.contains(&content);
        if !is_known || hash(&object(&self.root, &content.sha256)).ok() != Some(content) {
            if is_known {
                progress(&format!("{}: its archive is damaged, and is written again", run.run_id));
            }
            write(&mut create(&self.root.join(NEW_OBJECT))?)?;
            self.put_new(content)?;
        }
        std::fs::remove_file(self.path_of_rows(&run.run_id))?;
        Ok(content)
    }

    /// Writes the archive of what belongs to no run to the backup's own folder.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn write_service(&mut self, path: &Path) -> io::Result<NamedFile> {
        let folder = self.temporary_folder();
        let mut writer = self.collect(&folder, &SavedRun::new(RunId::service(), 0))?;
        let (size, sha256) = writer.write(RunId::service(), 0, Sha256::ZERO, create(&path.join(SERVICE))?)?;
        Ok(NamedFile { name: SERVICE.to_owned(), content: SavedContent { sha256, size } })
    }

    /// Returns the members of the archive of a run.
    fn collect<'a>(&mut self, folder: &'a Path, run: &SavedRun) -> io::Result<ArchiveWriter<'a>> {
        let mut writer = ArchiveWriter::new(folder);
        let rows =
            self.rows.remove(&run.run_id).ok_or_else(|| io::Error::other("the rows of a run were not copied"))?;
        writer.add_finished(rows, File::open(self.path_of_rows(&run.run_id))?);
        let mut entries = writer.begin(archive::ENTRIES)?;
        run.write(&mut entries)?;
        writer.add(entries)?;
        Ok(writer)
    }

    /// Returns the folder that is removed at the end of the backup, or by the next one if this one is killed.
    fn temporary_folder(&self) -> PathBuf {
        self.current.as_deref().unwrap_or(&self.root).join(ROWS)
    }

    fn path_of_rows(&self, run: &RunId) -> PathBuf {
        self.temporary_folder().join(run.as_str())
    }

    /// Copies a file to the backup's own folder. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If it cannot be read or written.
    pub(crate) fn add_named(&self, name: &str, from: &Path) -> Result<Option<NamedFile>, BackupCopyError> {
        let Some(folder) = &self.current else { return Ok(None) };
        let mut file = match File::open(from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(BackupCopyError::Source)?,
        };
        let content = copy(&mut file, &folder.join(name))?;
        Ok(Some(NamedFile { name: name.to_owned(), content }))
    }

    /// Returns the entry of a file that was written to the backup's own folder.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub(crate) fn named(path: &Path, name: &str) -> io::Result<NamedFile> {
        Ok(NamedFile { name: name.to_owned(), content: hash(&path.join(name))? })
    }

    /// Returns the number and the bytes of the objects that this backup has added.
    pub(crate) fn added(&self) -> (usize, u64) {
        (self.new.len(), self.new.iter().map(|content| content.size).sum())
    }
}

/// Returns the error of a command that cannot write the folder of backups.
pub(crate) fn failed(error: &io::Error) -> StartError {
    StartError::failed("the backup folder", error)
}

/// Returns the names of the folders of backups, complete or not, in their order.
///
/// # Errors
///
/// If the folder cannot be read.
pub(crate) fn backups(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| is_backup(name)));
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the content of a file.
///
/// # Errors
///
/// If it cannot be read.
pub(crate) fn hash(path: &Path) -> io::Result<SavedContent> {
    let mut file = File::open(path)?;
    pump(&mut file, &mut io::sink()).map_err(|(BackupCopyError::Source(error) | BackupCopyError::Target(error))| error)
}

/// Whether `name` is that of a backup: a time such as `2026-11-23T08-30-00.123456Z`.
fn is_backup(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'T' | b'Z' | b'.');
    name.len() == 27 && name.as_bytes()[10] == b'T' && name.ends_with('Z') && name.bytes().all(is_part)
}

/// Returns what identifies the version of a file, or `None` if its last change is too recent for that.
fn stamp(file: &File) -> io::Result<Option<String>> {
    let meta = file.metadata()?;
    let changed = meta.ctime().max(meta.mtime());
    let is_settled = changed.saturating_add(SETTLED_SECONDS) < clock::now_seconds();
    let [modified, changed] =
        [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())].map(|(s, ns)| format!("{s}.{ns:09}"));
    Ok(is_settled.then(|| format!("{}:{}:{}:{modified}:{changed}", meta.dev(), meta.ino(), meta.len())))
}

fn copy(from: &mut dyn Read, to: &Path) -> Result<SavedContent, BackupCopyError> {
    pump(from, &mut create(to).map_err(BackupCopyError::Target)?)
}

/// Creates a file, or empties the one that is there.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn pump(from: &mut dyn Read, to: &mut dyn io::Write) -> Result<SavedContent, BackupCopyError> {
    let (mut sha256, mut size, mut buffer) = (sha2::Sha256::new(), 0, vec![0; BUFFER_BYTES]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(SavedContent { sha256: Sha256::from_bytes(sha256.finalize().into()), size }),
            Ok(count) => {
                size += count as u64;
                sha256.update(&buffer[..count]);
                to.write_all(&buffer[..count]).map_err(BackupCopyError::Target)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(BackupCopyError::Source(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn begun(root: &Path) -> BackupFolder {
        let mut folder = BackupFolder::open(root).unwrap();
        folder.begin().unwrap();
        let mut rows = folder.begin_rows(&RunId::service()).unwrap();
        rows.write_all(b"rows").unwrap();
        folder.add_rows(RunId::service(), rows).unwrap();
        folder
    }

    /// Where unnamed files cannot be created, they have a name for a moment, and a kill leaves them. A folder of backups with other files
    /// than backups is refused.
    #[test]
    fn temporary_files_are_where_the_next_backup_removes_them() {
        let root = tempfile::tempdir().unwrap();
        let mut folder = begun(root.path());
        let temporary = folder.temporary_folder();
        let writer = folder.collect(&temporary, &SavedRun::new(RunId::service(), 0)).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let open = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        let open: Vec<_> = open.filter(|path| path.starts_with(root.path())).collect();
        let unnamed = open.iter().filter(|path| path.display().to_string().ends_with(" (deleted)")).count();
        assert_eq!(unnamed, 1, "{open:?}");
        let lock = root.path().join(LOCK);
        assert!(open.iter().all(|path| *path == lock || path.starts_with(&temporary)), "{open:?}");
        drop(writer);
    }

    #[test]
    fn rows_are_removed_once_they_are_in_an_archive() {
        let root = tempfile::tempdir().unwrap();
        let mut folder = begun(root.path());
        let run = RunId::parse("r").unwrap();
        let mut archives = Vec::new();
        for _ in 0..2 {
            let mut rows = folder.begin_rows(&run).unwrap();
            rows.write_all(b"rows of the run").unwrap();
            folder.add_rows(run.clone(), rows).unwrap();
            archives.push(folder.add_archive(&SavedRun::new(run.clone(), 3), Sha256::ZERO).unwrap());
            assert!(!folder.path_of_rows(&run).exists(), "the rows stay");
        }
        assert_eq!(archives[0], archives[1]);
        assert_eq!(folder.added().0, 1, "an archive that is there was written again");
        assert_eq!(hash(&object(root.path(), &archives[0].sha256)).unwrap(), archives[0]);
    }

    #[test]
    fn an_earlier_backup_of_the_same_time_is_not_written_to() {
        let root = tempfile::tempdir().unwrap();
        let mut folder = begun(root.path());
        let time = "2026-11-23T08:30:00.123456Z";
        folder.begin_at(time).unwrap();
        assert_eq!(folder.begin_at(time).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
