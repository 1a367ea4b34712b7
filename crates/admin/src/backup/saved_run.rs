//! What a backup has of a run besides its rows, as the archive of the run says it.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use archive::open_member;
use model::{LogicalPath, RunId};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Deserializer;
use workspace::{RunEntry, RunEntryKind};

use super::saved_content::{SavedContent, open_object};

/// What a path is escaped by. Bytes that are not ASCII are escaped in any case.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The most bytes of entries that are read: those of millions of files.
const MAX_ENTRIES_BYTES: u64 = 1 << 30;

/// A run's files, except those that the base and the rows have.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SavedRun {
    pub(crate) run_id: RunId,
    /// The number of the newest record among the rows.
    pub(crate) head_seq: u64,
    /// Its base, its artifacts, the contents that wait for approval, the entries of its tree that neither the base nor the rows have, and
    /// contents of the tree that were too large for the ledger.
    #[serde(skip)]
    pub(crate) entries: Vec<SavedEntry>,
    /// Whether the whole tree is in `entries`, because it is not what the ledger says.
    pub(crate) is_whole_tree: bool,
    /// Files whose content was found nowhere.
    pub(crate) missing: Vec<LogicalPath>,
    /// Why a part of the run could not be read.
    pub(crate) problem: Option<String>,
}

/// An entry of a run's folder, a part of its base, or a content of its tree.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(crate) enum SavedEntry {
    /// A regular file.
    File {
        path: String,
        mode: u32,
        #[serde(flatten)]
        content: SavedContent,
    },
    /// A symbolic link.
    Link { path: String, target: String },
    /// A folder.
    Folder { path: String },
    /// A part of the run's base.
    Base {
        name: String,
        #[serde(flatten)]
        content: SavedContent,
    },
    /// A content whose path the rows name.
    Content {
        #[serde(flatten)]
        content: SavedContent,
    },
}

impl SavedRun {
    /// Returns a run without files.
    pub(crate) fn new(run_id: RunId, head_seq: u64) -> Self {
        Self { run_id, head_seq, entries: Vec::new(), is_whole_tree: false, missing: Vec::new(), problem: None }
    }

    /// Writes the member [`archive::ENTRIES`].
    ///
    /// # Errors
    ///
    /// If `to` cannot be written.
    pub(crate) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut to = BufWriter::new(to);
        serde_json::to_writer(&mut to, self)?;
        for entry in &self.entries {
            writeln!(to)?;
            serde_json::to_writer(&mut to, entry)?;
        }
        writeln!(to)?;
        to.flush()
    }

    /// Reads the run from the archive with the content `archive` in the folder of backups `root`.
    ///
    /// # Errors
    ///
    /// If the archive is missing or damaged.
    pub(crate) fn open(root: &Path, archive: &SavedContent) -> io::Result<Self> {
        let member = open_member(open_object(root, archive)?, archive::ENTRIES).map_err(io::Error::other)?;
        Self::read(member)
    }

    fn read(from: impl Read) -> io::Result<Self> {
        let mut lines = Deserializer::from_reader(BufReader::new(from.take(MAX_ENTRIES_BYTES)));
        let mut run = Self::deserialize(&mut lines)?;
        run.entries = lines.into_iter().collect::<Result<_, _>>()?;
        Ok(run)
    }

    /// Returns every content that the entries name.
    pub(crate) fn contents(&self) -> impl Iterator<Item = SavedContent> {
        self.entries.iter().filter_map(|entry| match entry {
            SavedEntry::File { content, .. } | SavedEntry::Base { content, .. } | SavedEntry::Content { content } => {
                Some(*content)
            }
            SavedEntry::Link { .. } | SavedEntry::Folder { .. } => None,
        })
    }
}

impl SavedEntry {
    /// Returns the saved form of an entry. `content` is that of a file.
    pub(crate) fn new(entry: &RunEntry, content: Option<SavedContent>) -> Option<Self> {
        let path = escape(&entry.path);
        Some(match (&entry.kind, content) {
            (RunEntryKind::File { mode }, Some(content)) => Self::File { path, mode: *mode, content },
            (RunEntryKind::File { .. }, None) => return None,
            (RunEntryKind::Link { target }, _) => Self::Link { path, target: escape(target) },
            (RunEntryKind::Folder, _) => Self::Folder { path },
        })
    }

    /// Returns the entry as it is written, and the content of a file. `None` for what is not in the run's folder.
    pub(crate) fn entry(&self) -> Option<(RunEntry, Option<SavedContent>)> {
        let (path, kind, content) = match self {
            Self::File { path, mode, content } => (path, RunEntryKind::File { mode: *mode }, Some(*content)),
            Self::Link { path, target } => (path, RunEntryKind::Link { target: unescape(target) }, None),
            Self::Folder { path } => (path, RunEntryKind::Folder, None),
            Self::Base { .. } | Self::Content { .. } => return None,
        };
        Some((RunEntry { path: unescape(path), kind }, content))
    }
}

fn escape(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

fn unescape(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}
