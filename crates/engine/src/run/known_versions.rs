//! The version of each file that a run's story has: what the newest record that wrote the path has left, or else the base.
//!
//! Any other version in the tree was made from outside. Read with the records when the run is opened, so that no call needs the
//! database for it.

use std::collections::BTreeMap;
use std::io;

use ledger::Ledger;
use model::{FileState, LINK_MODE, LogicalPath, Record, RunId, Sha256, git_mode, is_link_mode};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use workspace::{Base, PathVersion, VersionId, Workspace};

use crate::CallError;
use crate::run::changes::{ChangeRecord, Changes};

/// Tools that keep the mode of a file that they replace.
pub(crate) const KEEP_MODES: [&str; 4] = ["edit_file", "replace_range", "write_file", "files_put"];
/// The bits of a mode that make a file executable.
pub(crate) const EXECUTABLE: u32 = 0o111;

/// A file as the run's story has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFile {
    /// Hash of its bytes; for a symbolic link, of its target.
    pub sha256: Sha256,
    /// Whether it is executable; `None` if that is not known.
    pub executable: Option<bool>,
    /// Whether it is a symbolic link.
    pub is_link: bool,
}

/// A file that a run's audit has.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFile {
    /// The hash of its bytes; `None` if no file should exist.
    pub sha256: Option<Sha256>,
    /// Whether it should be executable; `None` if that is not known.
    pub executable: Option<bool>,
}

/// What records say about whether a file is executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// This.
    Executable(bool),
    /// It is no file but a symbolic link.
    Link,
    /// As in the base.
    OfBase,
    /// Only a diff in the ledger has it.
    InDiff,
    /// No record has it.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    /// `None` if no file is left.
    sha256: Option<Sha256>,
    mode: Mode,
    /// The mode of the file in the tree, as git has it, once that was needed because `mode` does not say it.
    mode_in_tree: Option<u32>,
}

/// The version of every path that records have written.
#[derive(Debug, Default)]
pub struct KnownVersions(RwLock<BTreeMap<LogicalPath, Written>>);

impl Mode {
    /// The mode of a file or a link of which it is known.
    pub(crate) fn of(mode: u32) -> Self {
        if is_link_mode(mode) { Self::Link } else { Self::Executable(mode & EXECUTABLE != 0) }
    }
}

impl KnownFile {
    /// Whether `found` is this version.
    pub fn is(&self, found: &FileState) -> bool {
        let is_executable = found.mode & EXECUTABLE != 0;
        self.is_link == is_link_mode(found.mode)
            && self.sha256 == found.sha256
            && (self.is_link || self.executable.is_none_or(|executable| executable == is_executable))
    }

    /// Its permission bits, as git has them, or [`LINK_MODE`]; `None` if they are not known.
    pub fn mode(&self) -> Option<u32> {
        if self.is_link { Some(LINK_MODE) } else { self.executable.map(|is| if is { 0o755 } else { 0o644 }) }
    }
}

impl KnownVersions {
    /// Reads what the records of `run` have left.
    ///
    /// # Errors
    ///
    /// If the ledger fails, or a record cannot be read.
    pub async fn load(ledger: &dyn Ledger, run: &RunId) -> Result<Self, CallError> {
        let mut known = BTreeMap::new();
        let mut changes = Changes::after(ledger, run, 0);
        // Calls that are recorded meanwhile add their files themselves.
        while let Some(record) = changes.next::<WrittenFiles>().await? {
            record.add_to(&mut known);
        }
        Ok(Self(RwLock::new(known)))
    }

    /// Replaces everything by `other`.
    pub fn replace(&self, other: Self) {
        *self.0.write() = other.0.into_inner();
    }

    /// Adds the files of a new record, with the permission bits of those of which they are known.
    pub fn add(&self, record: &Record, modes: &BTreeMap<LogicalPath, u32>) {
        if record.paths_written.is_empty() {
            return;
        }
        let mut known = self.0.write();
        for file in &record.files {
            let mode = modes.get(&file.path).map_or(Mode::Unknown, |mode| Mode::of(*mode));
            known.insert(file.path.clone(), Written { sha256: file.new_sha256, mode, mode_in_tree: None });
        }
    }

    /// Whether a record has written `path`. The result is stable only for the holder of the path's lock.
    pub fn has_written(&self, path: &LogicalPath) -> bool {
        self.0.read().contains_key(path)
    }

    /// Returns every path that records have written.
    pub fn paths(&self) -> Vec<LogicalPath> {
        self.0.read().keys().cloned().collect()
    }

    /// Returns every path at which records have left no file.
    pub fn removed(&self) -> Vec<LogicalPath> {
        let known = self.0.read();
        known.iter().filter(|(_, written)| written.sha256.is_none()).map(|(path, _)| path.clone()).collect()
    }

    /// Returns every path that records have written, with the file that they have left there.
    pub fn written(&self) -> BTreeMap<LogicalPath, ExpectedFile> {
        let file = |Written { sha256, mode, .. }: Written| ExpectedFile {
            sha256,
            executable: match mode {
                Mode::Executable(executable) => Some(executable),
                Mode::Link | Mode::OfBase | Mode::InDiff | Mode::Unknown => None,
            },
        };
        self.0.read().iter().map(|(path, written)| (path.clone(), file(*written))).collect()
    }

    /// Returns the file at `path`; `None` if there is none. Reads the base from the disk if it is not in memory.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn file(&self, base: &Base, path: &LogicalPath) -> io::Result<Option<KnownFile>> {
        let written = self.0.read().get(path).copied();
        let of_base = || {
            let file = base.file(path)?;
            Ok::<_, io::Error>(file.map(|file| KnownFile {
                sha256: file.sha256,
                executable: Some(file.mode & EXECUTABLE != 0),
                is_link: file.is_link,
            }))
        };
        let Some(Written { sha256, mode, .. }) = written else { return of_base() };
        let Some(sha256) = sha256 else { return Ok(None) };
        let (executable, is_link) = match mode {
            Mode::Executable(executable) => (Some(executable), false),
            Mode::OfBase => of_base()?.map_or((None, false), |file| (file.executable, file.is_link)),
            Mode::Link => (None, true),
            Mode::InDiff | Mode::Unknown => (None, false),
        };
        Ok(Some(KnownFile { sha256, executable, is_link }))
    }

    /// Returns the hash of the file at `path` if a record has written it: `Some(None)` if no file is left.
    #[expect(
        clippy::option_option,
        reason = "the outer one says whether it was written here, the inner one whether it exists"
    )]
    pub fn written_sha256(&self, path: &LogicalPath) -> Option<Option<Sha256>> {
        self.0.read().get(path).map(|written| written.sha256)
    }

    /// Returns the digest of how the tree will differ from its base: see [`Workspace::diff_digest`].
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) fn diff_sha256(
        &self,
        workspace: &Workspace,
        planned: &BTreeMap<LogicalPath, Option<VersionId>>,
    ) -> io::Result<Sha256> {
        self.find_modes(workspace);
        let known = self.0.read();
        let written = known.iter().map(|(path, written)| {
            let now = written.sha256.map(|sha256| VersionId { sha256, git_mode: written.git_mode() });
            (path, PathVersion { path, now })
        });
        let mut versions: BTreeMap<_, _> = written.collect();
        versions.extend(planned.iter().map(|(path, now)| (path, PathVersion { path, now: *now })));
        workspace.diff_digest(versions.into_values())
    }

    /// Finds in the tree the modes that the records do not say, which happens once for each file after the run is opened.
    fn find_modes(&self, workspace: &Workspace) {
        let lacks = |written: &Written| {
            written.sha256.is_some()
                && written.mode_in_tree.is_none()
                && matches!(written.mode, Mode::InDiff | Mode::Unknown)
        };
        let lacking: Vec<_> =
            self.0.read().iter().filter(|(_, written)| lacks(written)).map(|(path, _)| path.clone()).collect();
        let found: Vec<_> = lacking.into_iter().map(|path| (workspace.git_mode_at(&path), path)).collect();
        if found.is_empty() {
            return;
        }
        let mut known = self.0.write();
        for (mode, path) in found {
            if let Some(written) = known.get_mut(&path) {
                written.mode_in_tree = mode.or(Some(git_mode(0)));
            }
        }
    }

    /// Whether only a diff in the ledger has the mode of the file at `path`.
    pub(crate) fn lacks_mode(&self, path: &LogicalPath) -> bool {
        self.0.read().get(path).is_some_and(|written| written.mode == Mode::InDiff && written.sha256.is_some())
    }

    /// Sets the mode of the file at `path`.
    pub(crate) fn set_mode(&self, path: &LogicalPath, mode: Mode) {
        if let Some(written) = self.0.write().get_mut(path) {
            written.mode = mode;
        }
    }
}

impl Written {
    /// Returns its mode as git has it; `None` for that of the base.
    fn git_mode(&self) -> Option<u32> {
        match self.mode {
            Mode::Executable(executable) => Some(git_mode(if executable { EXECUTABLE } else { 0 })),
            Mode::Link => Some(LINK_MODE),
            Mode::OfBase => None,
            Mode::InDiff | Mode::Unknown => self.mode_in_tree,
        }
    }
}

/// The part of a record that names the written files. The rest is not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenFiles {
    pub(crate) seq: u64,
    tool: String,
    /// Empty for a dry run.
    pub(crate) paths_written: Vec<LogicalPath>,
    pub(crate) files: Vec<WrittenFile>,
}

/// A file that a record has written: its path, and its versions before and after.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenFile {
    pub(crate) path: LogicalPath,
    pub(crate) old_sha256: Option<Sha256>,
    pub(crate) new_sha256: Option<Sha256>,
}

impl ChangeRecord for WrittenFiles {
    fn seq(&self) -> u64 {
        self.seq
    }
}

impl WrittenFiles {
    fn add_to(self, known: &mut BTreeMap<LogicalPath, Written>) {
        if self.paths_written.is_empty() {
            return;
        }
        let keeps_modes = KEEP_MODES.contains(&self.tool.as_str());
        for WrittenFile { path, old_sha256, new_sha256: sha256 } in self.files {
            let mode = match (keeps_modes, old_sha256, known.get(&path)) {
                (false, ..) => Mode::InDiff,
                (true, None, _) => Mode::Executable(false),
                (true, Some(_), Some(before)) => before.mode,
                (true, Some(_), None) => Mode::OfBase,
            };
            known.insert(path, Written { sha256, mode, mode_in_tree: None });
        }
    }
}
