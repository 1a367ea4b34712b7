//! What lists and searches leave out although the caller may know of it.

use model::{FileKind, Rules};
use serde::{Deserialize, Serialize};

use crate::walk::Candidate;

/// Why a list or a search leaves an entry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// Its name begins with `.`.
    Hidden,
    /// Git ignores it.
    Ignored,
    /// It is generated.
    Generated {
        /// Whether it is a folder.
        is_folder: bool,
    },
    /// It is vendored.
    Vendored {
        /// Whether it is a folder.
        is_folder: bool,
    },
    /// It is not text.
    Binary,
    /// Its path is longer than a call can name.
    TooLong,
}

impl LeftOut {
    /// Returns the reason for an entry that is generated or vendored; `None` for any other kind.
    pub(crate) fn machine_made(rules: &Rules, entry: &Candidate) -> Option<Self> {
        let is_folder = entry.kind == FileKind::Directory;
        match if is_folder { rules.kind_of_dir(entry.at.real()) } else { entry.kind } {
            FileKind::Generated => Some(Self::Generated { is_folder }),
            FileKind::Vendored => Some(Self::Vendored { is_folder }),
            _ => None,
        }
    }
}

/// The numbers of entries that a list or a search leaves out. A folder counts once, with everything in it. Entries that policy
/// hides from the caller are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NotShown {
    /// Entries whose names begin with `.`.
    #[serde(skip_serializing_if = "is_zero")]
    pub hidden: u64,
    /// Entries that git ignores.
    #[serde(skip_serializing_if = "is_zero")]
    pub ignored: u64,
    /// Generated files.
    #[serde(skip_serializing_if = "is_zero")]
    pub generated_files: u64,
    /// Folders of generated files.
    #[serde(skip_serializing_if = "is_zero")]
    pub generated_folders: u64,
    /// Vendored files.
    #[serde(skip_serializing_if = "is_zero")]
    pub vendored_files: u64,
    /// Folders of vendored files.
    #[serde(skip_serializing_if = "is_zero")]
    pub vendored_folders: u64,
    /// Files that are not text, for a search.
    #[serde(skip_serializing_if = "is_zero")]
    pub binary_files: u64,
    /// Folders that are listed without their contents because of `maxDepth`.
    #[serde(skip_serializing_if = "is_zero")]
    pub unopened_folders: u64,
    /// Entries with paths over 4,096 bytes, and files that could not be searched besides those in `skipped`.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_skipped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl NotShown {
    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether entries are left out that are ignored, generated or vendored.
    pub fn has_unwanted(&self) -> bool {
        let Self { ignored, generated_files, generated_folders, vendored_files, vendored_folders, .. } = self;
        ignored + generated_files + generated_folders + vendored_files + vendored_folders > 0
    }

    /// Counts an entry.
    pub(crate) fn add(&mut self, reason: LeftOut) {
        let count = match reason {
            LeftOut::Hidden => &mut self.hidden,
            LeftOut::Ignored => &mut self.ignored,
            LeftOut::Generated { is_folder: false } => &mut self.generated_files,
            LeftOut::Generated { is_folder: true } => &mut self.generated_folders,
            LeftOut::Vendored { is_folder: false } => &mut self.vendored_files,
            LeftOut::Vendored { is_folder: true } => &mut self.vendored_folders,
            LeftOut::Binary => &mut self.binary_files,
            LeftOut::TooLong => &mut self.more_skipped,
        };
        *count += 1;
    }
}
