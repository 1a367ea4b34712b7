//! The hash that identifies how a tree differs from its base, known without any diff.

use std::io;

use model::{LogicalPath, Sha256, git_mode};
use sha2::Digest as _;

use crate::Workspace;

/// A version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionId {
    /// The hash of its bytes; for a symbolic link, of its target.
    pub sha256: Sha256,
    /// Its mode as git has it.
    pub git_mode: u32,
}

impl VersionId {
    /// The version with these bytes and these permission bits.
    pub fn of(sha256: Sha256, mode: u32) -> Self {
        Self { sha256, git_mode: git_mode(mode) }
    }
}

/// A path that may differ from the base.
#[derive(Debug)]
pub struct PathVersion<'a> {
    /// The path.
    pub path: &'a LogicalPath,
    /// The version of the tree; `None` for no file.
    pub now: Option<VersionId>,
}

impl Workspace {
    /// Returns the SHA-256 of the lines `path NUL mode NUL sha256 LF` of all `paths` that differ from the base. They come in path
    /// order. A deleted path has the mode `000000` and the hash `-`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn diff_digest<'a>(&self, paths: impl IntoIterator<Item = PathVersion<'a>>) -> io::Result<Sha256> {
        let loaded = self.base().load()?;
        let manifest = &loaded.manifest;
        let mut hash = sha2::Sha256::new();
        for PathVersion { path, now } in paths {
            let base = manifest.get(path.as_str().as_bytes());
            let base = base.map(|file| {
                let sha256 = Sha256::from_bytes(*manifest.sha256(file));
                VersionId { sha256, git_mode: manifest.mode(file) }
            });
            if now == base {
                continue;
            }
            let (mode, sha256) = now.map_or((0, "-".to_owned()), |now| (now.git_mode, now.sha256.to_string()));
            hash.update(format!("{path}\0{mode:06o}\0{sha256}\n"));
        }
        Ok(Sha256::from_bytes(hash.finalize().into()))
    }
}
