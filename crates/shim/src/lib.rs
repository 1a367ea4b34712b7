//! The folder in which commands of a run run, and what they changed in it.
//!
//! A folder is filled from a run by layers (tar streams in the form of an OCI image layer), and an index remembers the version
//! of each file that came from the run. [`LocalFolder`] is a folder of this machine. [`RemoteFolder`] is one in a sandbox: it
//! speaks with the program `workspaced-shim`, which does there what [`LocalFolder`] does here, over a pipe. Both are a
//! [`CommandFolder`].
//!
//! The folder is hostile: a command may have written anything into it, its index included. What is read from it is only a
//! proposal, which the service judges. No symbolic link is followed, and everything is bounded.

mod apply;
mod aside;
mod command;
mod entry;
mod error;
mod folder;
mod frame;
mod handles;
mod incoming;
mod index;
mod layer;
mod local;
mod message;
mod remote;
mod scan;
mod serve;

#[cfg(test)]
mod tests;

pub use command::{CommandControl, CommandOutcome, CommandSpec, OutputStream};
pub use entry::{MAX_LAYER_ENTRIES, OWN_FOLDER};
pub use error::{LayerConflict, ShimError};
pub use folder::{
    AppliedLayer, ChangeKind, CheckedOut, CommandFolder, LeftEntry, PathChange, ReadLimits, ReadReport, ScanReport,
};
pub use layer::{check_layer, texts_of_layer};
pub use local::{FreshFolder, LocalFolder};
pub use remote::RemoteFolder;
pub use serve::serve;
