//! Stores of objects: a folder, or a bucket of S3. Archives, large contents and bases are kept in them.

mod base_cache;
mod bucket;
mod content_store;
mod folder_identity;

pub(crate) use base_cache::base_cache_bytes;
pub(crate) use bucket::{Bucket, StoreError};
pub(crate) use content_store::open_objects;
