//! Which folder is a store. One on another disk may disappear, and leave an empty folder at its path: what was written to that one would
//! not be in the store.

#![expect(clippy::disallowed_methods, reason = "stores are outside of the data folder")]

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::objects::store::StoreError;

/// A folder as it was when the store was opened.
#[derive(Clone, Debug)]
pub(super) struct FolderIdentity {
    folder: Arc<Path>,
    device: u64,
    inode: u64,
}

impl FolderIdentity {
    /// Returns that of an existing folder.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(folder)?;
        Ok(Self { folder: folder.into(), device: found.dev(), inode: found.ino() })
    }

    /// Checks that the folder is still the same one.
    ///
    /// # Errors
    ///
    /// `Away` if it is not; if the disk fails.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        match tokio::fs::metadata(&self.folder).await {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Err(error.into()),
            _ => Err(StoreError::Away),
        }
    }
}
