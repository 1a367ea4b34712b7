//! Stores of objects: a folder, or a bucket of S3. Archives, large contents and bases are kept in them.

#[cfg_attr(not(feature = "object-store"), path = "objects/no_bucket.rs")]
mod bucket;
mod content_store;
mod store;

pub use bucket::open_store;
pub use content_store::open_objects;
pub use store::{ByteStore, StoreError};
