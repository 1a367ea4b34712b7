//! A layer that was received: what a command has changed, as a tar.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use model::{Policy, Sha256};
use workspace::{LayerLimits, SpooledFile};

use crate::run::quota::Reservation;

/// The largest layer that is received into memory, in bytes. Larger ones are received into a file.
pub const MAX_LAYER_IN_MEMORY: u64 = 16 << 20;
/// The largest file of a set that is held in memory, so that its text is compared and merged, and its content kept in the ledger.
pub(crate) const MAX_HELD_FILE_BYTES: u64 = 8 << 20;
/// The most bytes of files that a set holds in memory. Further ones are staged.
pub(crate) const MAX_HELD_BYTES: u64 = 64 << 20;
/// The most entries of a layer.
const MAX_ENTRIES: u64 = 50_000;

/// A layer that was received. The same bytes are the same layer.
#[derive(Clone, Debug)]
pub struct Layer {
    bytes: LayerBytes,
    sha256: Sha256,
}

#[derive(Clone, Debug)]
enum LayerBytes {
    InMemory(Bytes),
    /// With the disk space that it takes.
    Spooled(Arc<(SpooledFile, Reservation)>),
    /// They were hashed alone: the change set is recorded, and is answered as it was then.
    Recorded,
}

impl Layer {
    /// A layer in a file.
    pub(crate) fn spooled(file: SpooledFile, space: Reservation) -> Self {
        Self { sha256: file.sha256, bytes: LayerBytes::Spooled(Arc::new((file, space))) }
    }

    /// The layer of a change set that is recorded under its ID already.
    pub(crate) fn recorded(sha256: Sha256) -> Self {
        Self { sha256, bytes: LayerBytes::Recorded }
    }

    /// Whether it is that of a change set that is recorded already.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.bytes, LayerBytes::Recorded)
    }

    /// The hash of its bytes.
    pub(crate) fn sha256(&self) -> Sha256 {
        self.sha256
    }

    /// The bytes that it takes in memory.
    pub(crate) fn held_bytes(&self) -> u64 {
        match &self.bytes {
            LayerBytes::InMemory(bytes) => bytes.len() as u64,
            LayerBytes::Spooled(_) | LayerBytes::Recorded => 0,
        }
    }

    /// Reads it from its beginning.
    pub(crate) fn reader(&self) -> Box<dyn Read + '_> {
        match &self.bytes {
            LayerBytes::InMemory(bytes) => Box::new(io::Cursor::new(&**bytes)),
            LayerBytes::Spooled(spooled) => Box::new(spooled.0.reader()),
            // It is answered before, or refused as another one under the same ID. An empty layer is damaged.
            LayerBytes::Recorded => Box::new(io::empty()),
        }
    }
}

impl From<Bytes> for Layer {
    fn from(bytes: Bytes) -> Self {
        Self { sha256: Sha256::of(&bytes), bytes: LayerBytes::InMemory(bytes) }
    }
}

/// What a layer may have: of one file as much as an upload, and of all together as much, or what is held in memory if that is more.
pub(crate) fn layer_limits(policy: &Policy) -> LayerLimits {
    let max_file_bytes = policy.max_transfer_bytes;
    LayerLimits { max_entries: MAX_ENTRIES, max_bytes: max_file_bytes.max(MAX_HELD_BYTES), max_file_bytes }
}

/// The largest layer as it is sent, in bytes.
pub(crate) fn max_sent_bytes(policy: &Policy) -> u64 {
    policy.max_transfer_bytes.max(MAX_LAYER_IN_MEMORY)
}
