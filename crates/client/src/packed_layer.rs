//! A layer that is packed to be sent: in memory, or in a file if it is large.

use bytes::Bytes;
#[cfg(feature = "folders")]
use in_file::LayerFile;
use reqwest::Body;

/// A layer that is packed to be sent, as often as that is necessary.
#[derive(Clone, Debug)]
pub struct PackedLayer(PackedBytes);

#[derive(Clone, Debug)]
enum PackedBytes {
    InMemory(Bytes),
    #[cfg(feature = "folders")]
    InFile(LayerFile),
}

impl PackedLayer {
    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        match &self.0 {
            PackedBytes::InMemory(bytes) => bytes.len() as u64,
            #[cfg(feature = "folders")]
            PackedBytes::InFile(file) => file.size_bytes,
        }
    }

    /// Returns the body that has it between `head` and `tail`.
    pub(crate) fn body(&self, head: &Bytes, tail: &Bytes) -> Body {
        match &self.0 {
            PackedBytes::InMemory(bytes) => Body::from([head, &**bytes, tail].concat()),
            #[cfg(feature = "folders")]
            PackedBytes::InFile(file) => file.body(head.clone(), tail.clone()),
        }
    }
}

impl From<Vec<u8>> for PackedLayer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(PackedBytes::InMemory(bytes.into()))
    }
}

#[cfg(feature = "folders")]
mod in_file {
    #![expect(clippy::disallowed_types, reason = "the file has no name, and only this process has it")]

    use std::fs::File;
    use std::io::{self, Read, Seek as _};
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::{Stream, StreamExt as _, stream};
    use reqwest::Body;
    use tempfile::SpooledTempFile;

    use super::{PackedBytes, PackedLayer};

    /// How much of a file is read at a time.
    const CHUNK_BYTES: u64 = 256 << 10;

    /// A layer in a file without a name.
    #[derive(Clone, Debug)]
    pub(super) struct LayerFile {
        file: Arc<File>,
        pub(super) size_bytes: u64,
    }

    impl PackedLayer {
        /// Packs a tar. What is larger than `max_in_memory` goes to a file without a name in the folder for temporary files.
        pub(crate) fn pack(layer: &mut dyn Read, max_in_memory: usize) -> io::Result<Self> {
            let spool = SpooledTempFile::new(max_in_memory);
            let mut encoder = zstd::stream::write::Encoder::new(spool, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            io::copy(layer, &mut encoder)?;
            let mut packed = encoder.finish()?;
            if packed.is_rolled() {
                let file = packed.into_file()?;
                let size_bytes = file.metadata()?.len();
                return Ok(Self(PackedBytes::InFile(LayerFile { file: Arc::new(file), size_bytes })));
            }
            let mut bytes = Vec::new();
            packed.rewind()?;
            packed.read_to_end(&mut bytes)?;
            Ok(bytes.into())
        }
    }

    impl LayerFile {
        pub(super) fn body(&self, head: Bytes, tail: Bytes) -> Body {
            let around = |bytes: Bytes| stream::iter([Ok::<_, io::Error>(bytes)]);
            Body::wrap_stream(around(head).chain(self.chunks()).chain(around(tail)))
        }

        fn chunks(&self) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
            let size = self.size_bytes;
            stream::try_unfold((Arc::clone(&self.file), 0), move |(file, position)| async move {
                if position >= size {
                    return Ok(None);
                }
                let read = tokio::task::spawn_blocking(move || {
                    let mut chunk = vec![0; usize::try_from(CHUNK_BYTES.min(size - position)).unwrap_or_default()];
                    file.read_exact_at(&mut chunk, position).map(|()| (Bytes::from(chunk), file))
                });
                let (chunk, file) = read.await.map_err(io::Error::other)??;
                let next = position + chunk.len() as u64;
                Ok(Some((chunk, (file, next))))
            })
        }
    }
}
