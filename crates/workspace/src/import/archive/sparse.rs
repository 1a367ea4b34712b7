//! Sparse files in GNU format: a map of the parts, followed by the parts.

use std::io::{self, Read};

use tar::{GnuSparseHeader, Header};

use super::reader::TarReader;

/// The parts of a sparse file; between them are zeros.
pub(crate) struct SparseMap {
    /// Offset and length of each, in order.
    parts: Vec<(u64, u64)>,
    /// The file's size, including its holes.
    pub(super) size: u64,
}

impl SparseMap {
    /// Parses the map in `header`, and returns whether it continues in the next block. `None` if it is invalid.
    pub(super) fn of(header: &Header) -> Option<(Self, bool)> {
        let gnu = header.as_gnu()?;
        let mut map = Self { parts: Vec::new(), size: gnu.real_size().ok()? };
        map.extend(&gnu.sparse)?;
        Some((map, gnu.is_extended()))
    }

    /// Adds the parts of one block; `None` if they are invalid.
    pub(super) fn extend(&mut self, parts: &[GnuSparseHeader]) -> Option<()> {
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let (offset, length) = (part.offset().ok()?, part.length().ok()?);
            let end = self.parts.last().map_or(0, |(offset, length)| offset + length);
            // This also bounds the sum of offset and length.
            (offset >= end && offset.checked_add(length)? <= self.size).then_some(())?;
            self.parts.push((offset, length));
        }
        Some(())
    }

    /// Whether the parts have `bytes` bytes together.
    pub(super) fn has_size(&self, bytes: u64) -> bool {
        self.parts.iter().map(|(_, length)| length).sum::<u64>() == bytes
    }
}

/// Reads a sparse file with its holes filled.
pub(super) struct FilledReader<'a, 'b> {
    map: &'a SparseMap,
    parts: &'a mut TarReader<'b>,
    /// How many parts were read completely.
    done: usize,
    at: u64,
}

impl<'a, 'b> FilledReader<'a, 'b> {
    pub(super) fn new(map: &'a SparseMap, parts: &'a mut TarReader<'b>) -> Self {
        Self { map, parts, done: 0, at: 0 }
    }
}

impl Read for FilledReader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.map.parts.get(self.done).is_some_and(|(offset, length)| offset + length <= self.at) {
            self.done += 1;
        }
        let (offset, end) = self
            .map
            .parts
            .get(self.done)
            .map_or((self.map.size, self.map.size), |(offset, length)| (*offset, offset + length));
        let until = if self.at < offset { offset } else { end };
        let most = usize::try_from(until - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let count = if self.at < offset {
            buffer[..most].fill(0);
            most
        } else {
            self.parts.read(&mut buffer[..most])?
        };
        self.at += count as u64;
        Ok(count)
    }
}
