//! Sparse files of GNU's form: a map of their parts in front of the parts.

use std::io::{self, Read};

use tar::{GnuSparseHeader, Header};

use super::reader::Reader;

/// Where the parts of a sparse file are; between them are zeros.
pub(super) struct SparseMap {
    /// Offset and length of each, in their order.
    parts: Vec<(u64, u64)>,
    /// The file's size, with its holes.
    pub(super) size: u64,
}

impl SparseMap {
    /// The map in `header`, and whether it goes on in the next block; `None` where it is no map.
    pub(super) fn of(header: &Header) -> Option<(Self, bool)> {
        let gnu = header.as_gnu()?;
        let mut map = Self { parts: Vec::new(), size: gnu.real_size().ok()? };
        map.extend(&gnu.sparse)?;
        Some((map, gnu.is_extended()))
    }

    /// Adds the parts that a block names.
    pub(super) fn extend(&mut self, parts: &[GnuSparseHeader]) -> Option<()> {
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let (offset, length) = (part.offset().ok()?, part.length().ok()?);
            let end = self.parts.last().map_or(0, |(offset, length)| offset + length);
            // Bounds the sum of the two as well.
            (offset >= end && offset.checked_add(length)? <= self.size).then_some(())?;
            self.parts.push((offset, length));
        }
        Some(())
    }

    /// Whether the parts have `bytes` bytes together.
    pub(super) fn holds(&self, bytes: u64) -> bool {
        self.parts.iter().map(|(_, length)| length).sum::<u64>() == bytes
    }
}

/// A sparse file with its holes filled.
pub(super) struct Filled<'a, 'b> {
    pub(super) map: &'a SparseMap,
    pub(super) parts: &'a mut Reader<'b>,
    /// How many parts were read whole.
    done: usize,
    at: u64,
}

impl<'a, 'b> Filled<'a, 'b> {
    pub(super) fn new(map: &'a SparseMap, parts: &'a mut Reader<'b>) -> Self {
        Self { map, parts, done: 0, at: 0 }
    }
}

impl Read for Filled<'_, '_> {
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
