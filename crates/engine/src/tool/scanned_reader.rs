//! A reader of a content that is not in memory, which is scanned on its way.

use std::io::{self, Read};

use model::ContentScan;

/// Scans for credentials what is read.
pub(crate) struct ScannedReader<'a> {
    from: &'a mut dyn Read,
    pub(crate) scan: ContentScan,
}

impl<'a> ScannedReader<'a> {
    pub(crate) fn new(from: &'a mut dyn Read) -> Self {
        Self { from, scan: ContentScan::default() }
    }
}

impl Read for ScannedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.scan.feed(&buffer[..count]);
        Ok(count)
    }
}
