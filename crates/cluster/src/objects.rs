//! Stores of objects: a folder, or a bucket of S3. Archives, large contents and bases are kept in them.

mod base_cache;
#[cfg_attr(not(feature = "object-store"), path = "objects/no_bucket.rs")]
mod bucket;
mod content_store;
mod store;

pub use base_cache::base_cache_bytes;
pub use bucket::open_store;
pub use content_store::open_objects;
pub use store::{ByteStore, StoreError};
