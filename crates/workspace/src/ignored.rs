//! What git ignores and does not track.
//!
//! A file is ignored where the rules of the tree's present `.gitignore` files say so, or those of the base: nobody
//! un-hides a file by editing rules. What the base tracks is never ignored.

use std::{fmt, io};

/// What a run started with, as far as reading asks.
pub(crate) trait Baseline: fmt::Debug + Send + Sync {
    /// Whether the answers below come from memory.
    fn is_loaded(&self) -> bool;

    /// Whether the base holds the file or symbolic link at `path`.
    fn tracks(&self, path: &str) -> io::Result<bool>;

    /// Whether the base holds anything beneath the folder at `path`.
    fn tracks_beneath(&self, path: &str) -> io::Result<bool>;

    /// Every `.gitignore` of the base: the folder it lies in (`.` for the root) and its bytes.
    fn gitignores(&self) -> io::Result<Vec<(String, Vec<u8>)>>;
}
