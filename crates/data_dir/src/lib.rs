//! The data folder: one process and one database at a time use it (several folders, one for each node, may use a database), and startup cleans up what an earlier process left.

mod disk;
mod durable_file;
mod instance;
pub mod leftovers;
mod lock;
mod node;

pub use self::disk::DiskProbe;
pub use self::instance::{Continuity, Instance};
pub use self::lock::{DataDirLock, IDENTITY, InstanceNoteFile, check_identity};
