//! Stores of objects: a folder, or a bucket of S3. Archives, large contents and bases are kept in them.

mod base_cache;
mod bucket;
mod content_store;
mod folder_identity;

pub use base_cache::base_cache_bytes;
pub use bucket::{Bucket, StoreError};
pub use content_store::open_objects;
