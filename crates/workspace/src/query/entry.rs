//! Describing an entry of a tree: what it is, and whether it can be read.

use std::ffi::{CStr, CString};
use std::io;

use model::{Access, Code, FileKind, LogicalPath, PathFacts, Refusal, Rules, Sha256};
use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use crate::error::not_a_file;
use crate::guard::{Blocking, GuardError, Opened, TreeFolder, is_hard_linked};
use crate::opened_file::{head_of, kind_of};
use crate::query::stat::RANGED_READ_FACTOR;
use crate::walk::{Candidate, WalkPath};
use crate::{Tree, WorkspaceError};

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum EntryType {
    File,
    Directory,
    Symlink,
    Other,
}

/// An existing entry.
#[derive(Clone, Debug)]
pub struct EntryStat {
    /// Its type. A symbolic link is not followed.
    pub entry_type: EntryType,
    /// Its kind, if it is a file or a folder.
    pub kind: Option<FileKind>,
    /// Where a symbolic link leads to, if that may be read.
    pub target: Option<LogicalPath>,
    /// The code that reading it would be refused with; `None` if it would be read.
    pub refused: Option<Code>,
    /// Whether a read shows the keys of the secret file without their values.
    pub redacted: bool,
    /// Its size, if it is a file.
    pub size_bytes: Option<u64>,
    /// The time of the last write.
    pub modified_at: jiff::Timestamp,
    /// Its permission bits.
    pub mode: u32,
    /// The hash of its bytes, if they may be read and are not too many.
    pub sha256: Option<Sha256>,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Entry)]
pub struct FolderEntry {
    /// Its path from the root of the tree; bytes that are not UTF-8 are written `\xNN`.
    pub path: String,
    /// Its type.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Its kind, if it is a file or a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// Its size, if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether `read_file` would return its content.
    pub readable: bool,
    /// True for a secret file of settings of which `read_file` shows the keys without their values, because the policy says
    /// `REDACT`. It is not readable otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// If not, the code that reading it would be refused with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl EntryType {
    pub(crate) fn of(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Self::Other,
        }
    }
}

impl EntryStat {
    /// Returns an entry with this metadata of which nothing else is known. An entry that is no file or folder is not readable.
    pub(crate) fn of(stat: &Stat) -> Self {
        let entry_type = EntryType::of(FileType::from_raw_mode(stat.st_mode));
        let nanoseconds = i32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        Self {
            entry_type,
            kind: None,
            target: None,
            refused: (entry_type == EntryType::Other).then_some(Code::NotAFile),
            redacted: false,
            size_bytes: (entry_type == EntryType::File).then(|| size_of(stat)),
            // A time beyond the calendar is shown as the epoch.
            modified_at: jiff::Timestamp::new(stat.st_mtime, nanoseconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH),
            mode: stat.st_mode & 0o7777,
            sha256: None,
        }
    }
}

impl FolderEntry {
    /// Returns the entry at `path`, which is not redacted.
    pub(crate) fn new(
        path: &LogicalPath,
        entry_type: EntryType,
        kind: Option<FileKind>,
        size_bytes: Option<u64>,
        refused: Option<Code>,
    ) -> Self {
        let (path, reason) = (path.as_str().to_owned(), refused.map(|code| code.as_str().to_owned()));
        Self { path, entry_type, kind, size_bytes, readable: refused.is_none(), redacted: false, reason }
    }
}

impl Tree {
    /// Describes the entry of `dir` with this metadata, which is not that of a link's target. Reads the first bytes of a file if
    /// policy permits and `reads_head`, or if its name does not tell its kind. Also returns the opened file, if its hash may be shown.
    pub(crate) fn describe(
        &self,
        rules: &Rules,
        dir: &TreeFolder,
        entry: &Candidate,
        stat: &Stat,
        reads_head: bool,
    ) -> Result<(EntryStat, Option<Opened>), WorkspaceError> {
        let mut found = EntryStat::of(stat);
        let mut opened = None;
        match found.entry_type {
            EntryType::Other => {}
            EntryType::Symlink => found.refused = self.refusal_of_target(rules, &entry.at.shown)?,
            EntryType::Directory => {
                found.kind = Some(rules.kind_of_dir(entry.at.real()));
                found.refused = entry.refusal(rules, FileKind::Directory, false);
            }
            EntryType::File => opened = self.describe_file(rules, dir, entry, stat, reads_head, &mut found)?,
        }
        Ok((found, opened))
    }

    fn describe_file(
        &self,
        rules: &Rules,
        dir: &TreeFolder,
        entry: &Candidate,
        stat: &Stat,
        reads_head: bool,
        found: &mut EntryStat,
    ) -> Result<Option<Opened>, WorkspaceError> {
        let by_name = match entry.kind {
            // A file has replaced the folder.
            FileKind::Directory => rules.kind_of_path(entry.at.real()),
            by_name => by_name,
        };
        let mut size = size_of(stat);
        found.kind = Some(by_name);
        found.refused = entry.refusal(rules, by_name, is_hard_linked(stat));
        if found.refused.is_some() {
            found.redacted = shows_keys(rules, &entry.facts(by_name, is_hard_linked(stat)), size);
            if found.redacted {
                // With the keys it would be the length of the values.
                found.size_bytes = None;
            }
            return Ok(None);
        }
        let (mut kind, mut head, mut opened) = (by_name, Vec::new(), None);
        if reads_head || by_name == FileKind::Unknown {
            let file = match self.open_placed(rules, dir, entry, by_name) {
                Ok(file) => file,
                Err(error) => {
                    found.refused = Some(refused_code(error)?);
                    return Ok(None);
                }
            };
            // A read error is reported when the file is read.
            head = head_of(&file).unwrap_or_default();
            kind = kind_of(rules, entry.at.real(), &head);
            size = file.size();
            opened = Some(file);
        }
        (found.kind, found.size_bytes) = (Some(kind), Some(size));
        let max_bytes = rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR);
        found.refused = if kind == FileKind::SecretLike {
            Some(Code::PolicyDeniedSecret)
        } else if size > max_bytes {
            Some(Code::FileTooLarge)
        } else {
            (kind == FileKind::Binary || model::is_binary(&head)).then_some(Code::UnsupportedBinary)
        };
        Ok(opened.filter(|_| matches!(found.refused, None | Some(Code::UnsupportedBinary))))
    }

    /// Opens a file. It is judged once more if it has several names: it may be another one than policy has seen.
    fn open_placed(
        &self,
        rules: &Rules,
        dir: &TreeFolder,
        entry: &Candidate,
        kind: FileKind,
    ) -> Result<Opened, WorkspaceError> {
        let path = &entry.at.shown;
        let file = self.root.open_entry(dir, &entry.name).map_err(|error| error.at(path))?;
        if file.is_hard_linked() {
            model::judge_path(rules, Access::Read, &entry.facts(kind, true))?;
        }
        if file.file_type() == FileType::RegularFile { Ok(file) } else { Err(not_a_file(path).into()) }
    }

    /// Describes an entry of `folder` for a list; `None` if it does not exist any more.
    pub(crate) fn list_entry(
        &self,
        rules: &Rules,
        folder: &TreeFolder,
        entry: &Candidate,
    ) -> Result<Option<FolderEntry>, WorkspaceError> {
        let Some(stat) = self.stat_in(folder, &entry.name)? else { return Ok(None) };
        let found = if entry.is_nameable {
            self.describe(rules, folder, entry, &stat, false)?.0
        } else {
            EntryStat { refused: Some(Code::PathRejected), ..EntryStat::of(&stat) }
        };
        let EntryStat { entry_type, kind, size_bytes, refused, redacted, .. } = found;
        let shown = FolderEntry::new(&entry.at.shown, entry_type, kind, size_bytes, refused);
        Ok(Some(FolderEntry { redacted, ..shown }))
    }

    /// Returns the entry at `path` with its folder and its metadata, without following its last name; `None` if nothing exists.
    pub(crate) fn entry_at(
        &self,
        rules: &Rules,
        path: &LogicalPath,
    ) -> Result<Option<(TreeFolder, Candidate, Stat)>, WorkspaceError> {
        let parent = path.parent().unwrap_or_else(LogicalPath::root);
        let folder = match self.root.open(&parent, Blocking::Allowed) {
            Ok(folder) if folder.file_type() == FileType::Directory => folder,
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            Ok(_) | Err(_) => return Ok(None),
        };
        let above = WalkPath { shown: parent, real: folder.real.clone() };
        let folder_stat = folder.stat;
        let dir = folder.into_folder(above.real());
        let name = CString::new(path.file_name()).map_err(io::Error::from)?;
        let (at, stat) = if path.is_root() {
            (above, Some(folder_stat))
        } else {
            let at = above.child(path.file_name()).map_err(|rule| Refusal::path(path.as_str(), rule))?;
            (at, self.stat_in(&dir, &name)?)
        };
        let Some(stat) = stat else { return Ok(None) };
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let kind = if file_type.is_dir() { FileKind::Directory } else { rules.kind_of_path(at.real()) };
        let ignored = self.is_ignored(path, at.real.as_ref(), Blocking::Allowed)?;
        Ok(Some((dir, Candidate { at, name, is_nameable: true, file_type, kind, ignored, depth: 0 }, stat)))
    }

    /// Returns the metadata of the entry `name` of `folder`; `None` if it does not exist any more.
    pub(crate) fn stat_in(&self, folder: &TreeFolder, name: &CStr) -> io::Result<Option<Stat>> {
        self.root.stat_entry(folder, name).or_else(|errno| GuardError::from(errno).unless_disk().map(|()| None))
    }

    /// Returns the code that reading the target of the link at `path` would be refused with.
    pub(crate) fn refusal_of_target(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<Code>, WorkspaceError> {
        let admitted = match self.root.open(path, Blocking::Allowed) {
            Ok(opened) if opened.file_type() == FileType::Directory => {
                self.judge(rules, Access::Read, path, Some(&opened), FileKind::Directory, Blocking::Allowed)
            }
            _ => self.admit(rules, Access::Read, path, Blocking::Allowed).map(drop),
        };
        admitted.map_or_else(|error| refused_code(error).map(Some), |()| Ok(None))
    }

    /// Returns the path to which the symbolic links in `path` lead, if that may be read.
    pub(crate) fn link_target(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<LogicalPath>, WorkspaceError> {
        if self.refusal_of_target(rules, path)?.is_some() {
            return Ok(None);
        }
        Ok(self.root.open(path, Blocking::Allowed).ok().and_then(|opened| opened.real))
    }
}

/// Whether a read of the secret file would show its keys without their values, judged by its name and its size.
pub(crate) fn shows_keys(rules: &Rules, facts: &PathFacts<'_>, size_bytes: u64) -> bool {
    model::may_read_redacted(rules, facts)
        && model::is_settings_file(facts.real_path.unwrap_or(facts.path))
        && size_bytes <= rules.policy().max_file_bytes
}

/// Whether only the keys of the file `entry` with this metadata are shown.
pub(crate) fn is_redacted(rules: &Rules, entry: &Candidate, stat: &Stat) -> bool {
    let hard_linked = is_hard_linked(stat);
    entry.refusal(rules, entry.kind, hard_linked).is_some()
        && shows_keys(rules, &entry.facts(entry.kind, hard_linked), size_of(stat))
}

/// Returns the code of a refusal.
fn refused_code(error: WorkspaceError) -> Result<Code, WorkspaceError> {
    match error {
        WorkspaceError::Refused(refusal) => Ok(refusal.code),
        error => Err(error),
    }
}

pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
