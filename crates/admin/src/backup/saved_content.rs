//! A content in the folder of backups, named by its hash: all backups share it.

#![expect(
    clippy::disallowed_types,
    reason = "a backup is outside of the data folder, in a folder that the operator names"
)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use model::Sha256;
use serde::{Deserialize, Serialize};

/// The folder of the objects.
pub(crate) const OBJECTS: &str = "objects";

/// The identity of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SavedContent {
    pub(crate) sha256: Sha256,
    /// In bytes.
    pub(crate) size: u64,
}

/// Returns the path of an object in the folder of backups.
pub(crate) fn object(root: &Path, sha256: &Sha256) -> PathBuf {
    let name = sha256.to_string();
    let (folder, name) = name.split_at(2);
    root.join(OBJECTS).join(folder).join(name)
}

/// Opens an object of the folder of backups.
///
/// # Errors
///
/// If it cannot be read.
pub(crate) fn open_object(root: &Path, content: &SavedContent) -> io::Result<File> {
    File::open(object(root, &content.sha256))
}
