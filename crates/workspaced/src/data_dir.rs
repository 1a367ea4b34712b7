//! The data folder: one process and one database at a time use it (several folders, one for each node, may use a database), and startup cleans up what an earlier process left.

mod disk;
mod durable_file;
mod instance;
pub(crate) mod leftovers;
mod lock;
mod node;
pub(crate) mod token_key;

pub(crate) use self::disk::DiskProbe;
pub(crate) use self::instance::{Continuity, Instance};
pub(crate) use self::lock::{DataDirLock, IDENTITY, InstanceNoteFile, check_identity};
