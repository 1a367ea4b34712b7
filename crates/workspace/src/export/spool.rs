//! An export that is complete before its first byte is sent.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek as _, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::dir::{create_file, fresh_name, remove_file};

/// The size up to which an export is held in memory.
const MAX_MEMORY_BYTES: usize = 1 << 20;

/// Takes the bytes of an export, in memory or in a file in `tmp/` that has no name.
pub(super) struct Spool {
    tmp: Arc<OwnedFd>,
    memory: Vec<u8>,
    file: Option<File>,
}

impl Spool {
    pub(super) fn new(tmp: Arc<OwnedFd>) -> Self {
        Self { tmp, memory: Vec::new(), file: None }
    }

    /// Returns a reader of all bytes.
    pub(super) fn into_reader(mut self) -> io::Result<Box<dyn Read + Send>> {
        let Some(mut file) = self.file.take() else { return Ok(Box::new(Cursor::new(self.memory))) };
        file.write_all(&self.memory)?;
        file.rewind()?;
        Ok(Box::new(file))
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.memory.len() + bytes.len() > MAX_MEMORY_BYTES {
            let file = match &mut self.file {
                Some(file) => file,
                none => {
                    let name = fresh_name("export-");
                    let file = create_file(&self.tmp, &*name)?;
                    remove_file(&self.tmp, &*name)?;
                    none.insert(file)
                }
            };
            file.write_all(&self.memory)?;
            self.memory.clear();
        }
        self.memory.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
