//! Exports of a run: the tree as tar.gz, what has changed in it as a layer, and its changes as a git bundle.

mod archive;
mod artifacts;
mod bundle;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::GzEncoder;
use model::{Access, FileKind, LogicalPath, PathFacts, PathRejected, Rules, WHITEOUT, is_link_mode, link_stays_inside};
use rustix::fs::{FileType, Stat};
use tar::{Builder, EntryType as HeaderType, Header};

use crate::error::check_cancelled;
use crate::error::file_too_large;
use crate::guard::{self, Blocking, GuardError, OpenFile, Opened, TreeFolder};
use crate::ignored::{GITIGNORE_NAME, RuleScope};
use crate::kept_files::Pin;
use crate::opened_file::{is_readable, is_secret, is_secret_file};
use crate::stamp::FileStamp;
use crate::{Workspace, WorkspaceError};

pub use artifacts::ArtifactBundle;
pub use bundle::{Bundle, PatchFormat, PreparedBundle, PreparedPatch};

/// The most paths that are kept of what an export leaves out.
const MAX_LEFT_OUT: usize = 100;
/// The largest file that is looked into for a private key before an export is written.
const MAX_KEY_BYTES: u64 = 64 * 1024;

impl Workspace {
    /// Begins an export of the tree as it is now. Left out are files that policy hides or git ignores, special files, and symbolic
    /// links to paths outside the tree. Changes that are applied later do not affect the export: it keeps the files that they replace.
    ///
    /// # Errors
    ///
    /// If the disk fails, or a file is larger than the policy's `maxTransferBytes`; `Cancelled`.
    pub fn begin_export(self: &Arc<Self>, rules: &Rules, cancel: &AtomicBool) -> Result<TreeExport, WorkspaceError> {
        // Before the first file is listed.
        let pin = Pin::new(self.kept());
        let mut lister = ExportLister { workspace: self, rules, cancel, left_out: LeftOutFiles::default() };
        let (mut entries, mut listed) = (lister.entries(&LogicalPath::root(), &RuleScope::default())?, Vec::new());
        while let Some((entry, scope)) = entries.pop() {
            if let (ExportEntryKind::Folder, Some(scope)) = (&entry.kind, scope) {
                entries.append(&mut lister.entries(&entry.path, &scope)?);
            }
            // The folder itself is left out like its files, which are read nevertheless: policy may permit one of them.
            if !matches!(entry.kind, ExportEntryKind::Folder) || is_shown_folder(rules, &entry.path) {
                listed.push(entry);
            }
        }
        let left_out = lister.left_out;
        Ok(TreeExport { workspace: Arc::clone(self), deleted: Vec::new(), entries: listed, left_out, pin })
    }

    /// Begins an export of the files at `paths` as they are now, in path order: those that exist, and the names of those that do not.
    /// The same is left out as from an export of the tree, and changes that are applied later do not affect it either.
    ///
    /// # Errors
    ///
    /// As for [`begin_export`](Self::begin_export).
    pub fn begin_layer<'a>(
        self: &Arc<Self>,
        rules: &Rules,
        paths: impl IntoIterator<Item = &'a LogicalPath>,
        cancel: &AtomicBool,
    ) -> Result<TreeExport, WorkspaceError> {
        let pin = Pin::new(self.kept());
        let mut lister = ExportLister { workspace: self, rules, cancel, left_out: LeftOutFiles::default() };
        let (mut entries, mut deleted) = (Vec::new(), Vec::new());
        for path in paths {
            let names_whiteout = path.components().any(|name| name.starts_with(WHITEOUT));
            if names_whiteout
                || !is_readable(rules, path, false)
                || self.tree().is_ignored(path, None, Blocking::Allowed)?
            {
                lister.left_out.add(Some(path));
                continue;
            }
            match lister.present(path)? {
                PresentEntry::Exported(kind) => entries.push(ExportEntry { path: path.clone(), kind }),
                PresentEntry::LeftOutFiles => lister.left_out.add(Some(path)),
                PresentEntry::Missing => deleted.push(path.clone()),
            }
        }
        Ok(TreeExport { workspace: Arc::clone(self), deleted, entries, left_out: lister.left_out, pin })
    }
}

/// A time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryTime(pub u64);

impl EntryTime {
    fn set(self, header: &mut Header) {
        header.set_mtime(self.0 / 1_000_000);
    }

    /// The time in seconds, if it has a fraction: a build tool must see that a file is newer than what was made of it within the
    /// same second.
    fn with_fraction(self) -> Option<String> {
        let fraction = self.0 % 1_000_000;
        (fraction > 0).then(|| format!("{}.{fraction:06}", self.0 / 1_000_000))
    }
}

/// The times of the entries of an archive.
#[derive(Clone, Debug)]
pub struct EntryTimes {
    /// That of each file that the run has changed.
    pub changed: BTreeMap<LogicalPath, EntryTime>,
    /// That of all others.
    pub created: EntryTime,
}

impl EntryTimes {
    fn of(&self, path: &LogicalPath) -> EntryTime {
        self.changed.get(path).copied().unwrap_or(self.created)
    }
}

/// An export of the tree, or of what has changed in it, as it was when the export began.
pub struct TreeExport {
    workspace: Arc<Workspace>,
    /// In path order.
    deleted: Vec<LogicalPath>,
    /// In path order.
    entries: Vec<ExportEntry>,
    left_out: LeftOutFiles,
    pin: Pin,
}

/// What an export leaves out.
#[derive(Clone, Debug, Default)]
pub struct LeftOutFiles {
    /// The number of entries, without those that git ignores.
    pub count: u64,
    /// The first paths.
    pub paths: Vec<LogicalPath>,
}

impl LeftOutFiles {
    /// Adds an entry, with its path if a call can name it.
    fn add(&mut self, path: Option<&LogicalPath>) {
        self.count += 1;
        if self.paths.len() < MAX_LEFT_OUT {
            self.paths.extend(path.cloned());
        }
    }
}

/// An entry of an export.
struct ExportEntry {
    path: LogicalPath,
    kind: ExportEntryKind,
}

enum ExportEntryKind {
    Folder,
    File {
        stamp: FileStamp,
        is_executable: bool,
    },
    /// A link with its target.
    Link(String),
}

/// Lists what is exported.
struct ExportLister<'a> {
    workspace: &'a Workspace,
    rules: &'a Rules,
    cancel: &'a AtomicBool,
    /// What is left out so far.
    left_out: LeftOutFiles,
}

/// What is at a path of a layer.
enum PresentEntry {
    Exported(ExportEntryKind),
    LeftOutFiles,
    /// No file, so that whoever has one deletes it.
    Missing,
}

impl ExportLister<'_> {
    /// Returns the entries of the folder at `path` in reverse order, folders with the rules in force in this one. `above` are the rules
    /// in force in its parent.
    fn entries(
        &mut self,
        path: &LogicalPath,
        above: &RuleScope,
    ) -> Result<Vec<(ExportEntry, Option<RuleScope>)>, WorkspaceError> {
        let tree = self.workspace.tree();
        let Some(ignored) = &tree.ignored else { return Ok(Vec::new()) };
        let Some(opened) = open(self.workspace, path)? else { return Ok(Vec::new()) };
        if !opened.file_type().is_dir() {
            return Ok(Vec::new());
        }
        let folder = &opened.into_folder(path);
        let mut names = Vec::new();
        tree.root.each_entry(folder, &mut Vec::new(), |name, file_type| {
            check_cancelled(self.cancel)?;
            names.push((name.to_owned(), file_type));
            Ok::<(), WorkspaceError>(())
        })?;
        let text = path.as_str().as_bytes();
        let scope = if names.iter().any(|(name, _)| name.to_bytes() == GITIGNORE_NAME.as_bytes()) {
            ignored.enter(&tree.root, above, text, folder)?
        } else {
            ignored.enter_without_gitignore(above, text)?
        };
        let mut entries = Vec::new();
        for (name, file_type) in names {
            // No tool can name entries whose names are not UTF-8 or are Git-internal.
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else {
                self.left_out.add(None);
                continue;
            };
            let is_folder = file_type == FileType::Directory;
            let is_hidden = tree.hides(&scope, path.as_str().as_bytes(), is_folder);
            if is_folder {
                if is_hidden.is_ok_and(|hidden| !hidden) {
                    entries.push((ExportEntry { path, kind: ExportEntryKind::Folder }, Some(scope.clone())));
                }
            } else if !is_hidden? {
                let is_shown = matches!(file_type, FileType::RegularFile | FileType::Symlink)
                    && is_readable(self.rules, &path, false);
                match if is_shown { self.kind(folder, &name, &path)? } else { None } {
                    Some(kind) => entries.push((ExportEntry { path, kind }, None)),
                    None => self.left_out.add(Some(&path)),
                }
            }
        }
        entries.sort_unstable_by(|(a, _), (b, _)| b.path.cmp(&a.path));
        Ok(entries)
    }

    /// Returns what is at `path`.
    fn present(&self, path: &LogicalPath) -> Result<PresentEntry, WorkspaceError> {
        let root = &self.workspace.tree().root;
        let opened = match root.open_unlinked(path) {
            Ok(opened) => opened,
            Err(GuardError::Missing | GuardError::NotADirectory) => return Ok(PresentEntry::Missing),
            Err(GuardError::Rejected(PathRejected::LinkInMutation)) => {
                // What was in a folder that is a link now does not exist any more.
                let Some(link) = root.find_link(path)? else { return Ok(PresentEntry::Missing) };
                let kind = self.link_kind(path, link.target);
                return Ok(kind.map_or(PresentEntry::LeftOutFiles, PresentEntry::Exported));
            }
            Err(error) => {
                error.unless_disk()?;
                return Ok(PresentEntry::LeftOutFiles);
            }
        };
        if opened.file_type() == FileType::Directory {
            // The files in it are at paths of their own.
            return Ok(PresentEntry::Missing);
        }
        let kind = match self.file_kind(&opened.stat, path)? {
            Some(kind) if !is_secret(self.rules, path, &opened)? => kind,
            _ => return Ok(PresentEntry::LeftOutFiles),
        };
        Ok(PresentEntry::Exported(kind))
    }

    /// Returns what the entry `name` of `folder` is; `None` if it is not exported, or was removed since its folder was read.
    fn kind(
        &self,
        folder: &TreeFolder,
        name: &CStr,
        path: &LogicalPath,
    ) -> Result<Option<ExportEntryKind>, WorkspaceError> {
        let root = &self.workspace.tree().root;
        let Some(stat) = root.stat_entry(folder, name)? else { return Ok(None) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = root.read_link(folder, name)?;
                Ok(target.and_then(|target| self.link_kind(path, target)))
            }
            _ => self.file_kind(&stat, path),
        }
    }

    /// Returns the entry of a link, unless it leads out of the tree.
    fn link_kind(&self, path: &LogicalPath, target: Vec<u8>) -> Option<ExportEntryKind> {
        let target = String::from_utf8(target).ok()?;
        // Where a `..` after a name leads depends on what the name is.
        let stays_inside = link_stays_inside(path.as_str().as_bytes(), target.as_bytes())
            || self.workspace.tree().root.open(path, Blocking::Allowed).is_ok();
        stays_inside.then_some(ExportEntryKind::Link(target))
    }

    fn file_kind(&self, stat: &Stat, path: &LogicalPath) -> Result<Option<ExportEntryKind>, WorkspaceError> {
        // A file with several names may be an alias of one that policy hides.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || guard::is_hard_linked(stat) {
            return Ok(None);
        }
        let (stamp, most) = (FileStamp::of(stat), self.rules.policy().max_transfer_bytes);
        if stamp.size > most {
            return Err(file_too_large(path, most, stamp.size).into());
        }
        Ok(Some(ExportEntryKind::File { stamp, is_executable: stat.st_mode & 0o111 != 0 }))
    }
}

fn is_shown_folder(rules: &Rules, path: &LogicalPath) -> bool {
    let facts = PathFacts { path, real_path: None, kind: FileKind::Directory, ignored: false, hard_linked: false };
    model::judge_path(rules, Access::Read, &facts).is_ok()
}

fn open(workspace: &Workspace, path: &LogicalPath) -> Result<Option<Opened>, WorkspaceError> {
    match workspace.tree().root.open_unlinked(path) {
        Ok(opened) => Ok(Some(opened)),
        Err(error) => {
            // It was removed or replaced since its folder was read.
            error.unless_disk()?;
            Ok(None)
        }
    }
}

impl TreeExport {
    /// The entries that policy hides by their names, that are special, or that have names which no call can use. Of a layer, and after
    /// [`leave_out_secrets`](Self::leave_out_secrets), also those that policy hides by their content.
    pub fn left_out(&self) -> &LeftOutFiles {
        &self.left_out
    }

    /// Leaves out the files that policy hides by their content, so that it is known before the export is written which they are.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn leave_out_secrets(&mut self, rules: &Rules) -> Result<(), WorkspaceError> {
        for entry in std::mem::take(&mut self.entries) {
            // One that is larger is no key alone.
            let is_secret = match &entry.kind {
                ExportEntryKind::File { stamp, .. } if stamp.size <= MAX_KEY_BYTES => {
                    match self.open_file(&entry.path, *stamp)? {
                        Some((file, _)) => is_secret_file(rules, &entry.path, &file)?,
                        None => false,
                    }
                }
                _ => false,
            };
            if is_secret {
                self.left_out.add(Some(&entry.path));
            } else {
                self.entries.push(entry);
            }
        }
        Ok(())
    }

    /// Writes the export as tar.gz to `out`, in path order, without the files that `rules` hide by their content.
    ///
    /// The same tree at the same record gives the same bytes: the archive has no owners, and its times are those of the records.
    ///
    /// # Errors
    ///
    /// If the disk or `out` fails, a file becomes shorter while it is written, or changes replace more files meanwhile than can be
    /// kept. The archive is truncated then.
    pub fn write(&self, rules: &Rules, times: &EntryTimes, out: &mut dyn Write) -> Result<(), WorkspaceError> {
        let gzip = self.write_tar(rules, times, GzEncoder::new(out, Compression::fast()))?;
        gzip.finish()?.flush()?;
        Ok(())
    }

    /// Writes the export as tar to `out`, in the form of a layer of an OCI image: for each deleted file an empty one with the prefix
    /// `.wh.`, and then the files.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn write_layer(&self, rules: &Rules, times: &EntryTimes, out: &mut dyn Write) -> Result<(), WorkspaceError> {
        Ok(self.write_tar(rules, times, out)?.flush()?)
    }

    fn write_tar<W: Write>(&self, rules: &Rules, times: &EntryTimes, out: W) -> Result<W, WorkspaceError> {
        let mut tar = Builder::new(out);
        for path in &self.deleted {
            let mut header = header(HeaderType::Regular, 0o644, 0);
            times.of(path).set(&mut header);
            tar.append_data(&mut header, whiteout(path), io::empty())?;
        }
        for ExportEntry { path, kind } in &self.entries {
            match kind {
                ExportEntryKind::Folder => {
                    let mut header = header(HeaderType::Directory, 0o755, 0);
                    times.created.set(&mut header);
                    tar.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                ExportEntryKind::Link(target) => {
                    let mut header = header(HeaderType::Symlink, 0o777, 0);
                    times.of(path).set(&mut header);
                    tar.append_link(&mut header, path.as_str(), target)?;
                }
                ExportEntryKind::File { stamp, is_executable } => {
                    let Some((file, size)) = self.open_file(path, *stamp)? else { continue };
                    if is_secret_file(rules, path, &file)? {
                        continue;
                    }
                    let mut header = header(HeaderType::Regular, if *is_executable { 0o755 } else { 0o644 }, size);
                    let time = times.of(path);
                    time.set(&mut header);
                    if let Some(fraction) = time.with_fraction() {
                        tar.append_pax_extensions([("mtime", fraction.as_bytes())])?;
                    }
                    // Exactly as many bytes as the header says, even if the file changes meanwhile.
                    let mut bytes = Exactly { from: file.into_reader()?.take(size), left: size };
                    tar.append_data(&mut header, path.as_str(), &mut bytes)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }

    /// Opens the file that was at `path` when the export began, and returns its size. `None` if it was removed since, but by no change.
    fn open_file(&self, path: &LogicalPath, stamp: FileStamp) -> Result<Option<(OpenFile, u64)>, WorkspaceError> {
        let present = open(&self.workspace, path)?;
        if let Some(opened) = &present
            && FileStamp::of(&opened.stat).has_same_content(&stamp)
        {
            return Ok(present.map(|opened| (opened.file, stamp.size)));
        }
        if let Some(kept) = self.pin.open(path, stamp)? {
            return Ok(Some((kept.into(), stamp.size)));
        }
        // The run has replaced or removed it since.
        let files = self.workspace.base().load()?;
        if let Some(entry) = files.entry(path.as_str().as_bytes())
            && FileStamp::of(&files.stat(entry)).has_same_content(&stamp)
        {
            return Ok(Some((OpenFile::Base(files, entry), stamp.size)));
        }
        // Changed from outside.
        let changed = present.filter(|opened| opened.file_type().is_file() && !guard::is_hard_linked(&opened.stat));
        Ok(changed.map(|opened| {
            let size = opened.size();
            (opened.file, size)
        }))
    }
}

/// What [`pack_layer`] packs at a path.
pub struct PackedFile<'a> {
    /// The content, of a link its target.
    pub bytes: Box<dyn Read + 'a>,
    /// The length of the content in bytes.
    pub size_bytes: u64,
    /// The mode.
    pub mode: u32,
}

/// Packs files and links as a layer, compressed with zstd, into `out`: each path with its file, or nothing for a deleted one.
///
/// # Errors
///
/// If a content cannot be read or written.
pub fn pack_layer<'a>(
    files: impl IntoIterator<Item = (&'a LogicalPath, io::Result<Option<PackedFile<'a>>>)>,
    out: impl Write,
) -> io::Result<()> {
    let mut tar = Builder::new(zstd::stream::write::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?);
    for (path, file) in files {
        match file? {
            None => tar.append_data(&mut header(HeaderType::Regular, 0o644, 0), whiteout(path), io::empty())?,
            Some(PackedFile { mut bytes, mode, .. }) if is_link_mode(mode) => {
                let mut target = Vec::new();
                bytes.read_to_end(&mut target)?;
                let target = OsStr::from_bytes(&target);
                tar.append_link(&mut header(HeaderType::Symlink, 0o777, 0), path.as_str(), target)?;
            }
            Some(PackedFile { bytes, size_bytes, mode }) => {
                let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
                let bytes = Exactly { from: bytes, left: size_bytes };
                tar.append_data(&mut header(HeaderType::Regular, mode, size_bytes), path.as_str(), bytes)?;
            }
        }
    }
    tar.into_inner()?.finish().map(drop)
}

/// Returns the name that stands for the deleted file at `path` in a layer.
fn whiteout(path: &LogicalPath) -> String {
    let folder = path.parent().filter(|parent| !parent.is_root());
    let folder = folder.map(|parent| format!("{parent}/")).unwrap_or_default();
    format!("{folder}{WHITEOUT}{}", path.file_name())
}

pub(crate) fn header(entry_type: HeaderType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(entry_type);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// A reader that fails if there are fewer bytes than promised.
pub(crate) struct Exactly<R> {
    pub(crate) from: R,
    pub(crate) left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.left -= count as u64;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was archived"));
        }
        Ok(count)
    }
}
