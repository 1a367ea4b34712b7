//! The objects of the service in an object store: large contents by their hash, and the bases of runs.
//!
//! This crate has the names of the objects and the trait of a store. It opens no file and no connection. An object is put before
//! the commit that names it, under a reservation, and deleted only under a claim, which no reservation and no commit passes.

mod name;
mod objects;
mod store;

pub use name::{BaseId, ObjectName};
pub use objects::{ClaimedObject, NoClaims, ObjectClaims, Objects, ReservedObject};
pub use store::{ContentStore, ObjectError, ObjectStat, StoredObject};
