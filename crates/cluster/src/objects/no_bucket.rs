//! Stands in for [`bucket`](super::bucket) in a build without the feature `object-store`.

use std::sync::Arc;

use super::store::{ByteStore, StoreError};
use config::StoreTarget;

/// Refuses to open a store. The check of the settings has refused it before.
///
/// # Errors
///
/// Always.
pub fn open_store(_: &StoreTarget) -> Result<Arc<dyn ByteStore>, StoreError> {
    Err(StoreError::Store(config::NO_OBJECT_STORE.into()))
}
