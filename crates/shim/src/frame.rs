//! Frames on a pipe: one byte of kind, four bytes of length, and that many bytes.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most bytes of a frame.
pub(crate) const MAX_FRAME_BYTES: usize = 1 << 20;
/// Bytes of a stream that are put into one frame.
pub(crate) const DATA_BYTES: usize = 128 << 10;

/// What a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// The first frame of the shim.
    Hello,
    /// An operation, JSON.
    Request,
    /// A part of a stream.
    Data,
    /// The end of a stream. With a payload, the stream is not complete, and this is why.
    End,
    /// A part of a list, JSON.
    Item,
    /// The result of an operation, JSON.
    Done,
    /// Why an operation failed, JSON.
    Fault,
    Stdout,
    Stderr,
    /// A signal for the command: its number in one byte.
    Signal,
    /// The shim works on an operation that sends nothing now.
    Beat,
}

const KINDS: [FrameKind; 11] = [
    FrameKind::Hello,
    FrameKind::Request,
    FrameKind::Data,
    FrameKind::End,
    FrameKind::Item,
    FrameKind::Done,
    FrameKind::Fault,
    FrameKind::Stdout,
    FrameKind::Stderr,
    FrameKind::Signal,
    FrameKind::Beat,
];

/// A frame that was read.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.payload).map_err(io::Error::other)
    }
}

/// Reads a frame. `None` at the end of the pipe.
pub(crate) fn read_frame(from: &mut dyn Read) -> io::Result<Option<Frame>> {
    let mut kind = [0];
    loop {
        match from.read(&mut kind) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let kind = *KINDS.get(usize::from(kind[0])).ok_or_else(|| io::Error::other("an unknown kind of frame"))?;
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::other("a frame that is too long"));
    }
    let mut payload = vec![0; length];
    from.read_exact(&mut payload)?;
    Ok(Some(Frame { kind, payload }))
}

/// Writes a frame at once, without flushing.
pub(crate) fn write_frame(to: &mut dyn Write, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_FRAME_BYTES);
    let length = length.ok_or_else(|| io::Error::other("a frame that is too long"))?;
    to.write_all(&[&[kind as u8], &length.to_le_bytes()[..], payload].concat())
}

pub(crate) fn write_json(to: &mut dyn Write, kind: FrameKind, value: &impl Serialize) -> io::Result<()> {
    write_frame(to, kind, &serde_json::to_vec(value)?)
}

/// Writes the elements of a list in as many frames as they need.
pub(crate) fn write_items<T: Serialize>(to: &mut dyn Write, items: &[T]) -> io::Result<()> {
    // A path has 4 KiB at most, and is escaped at worst to six times that.
    items.chunks(32).try_for_each(|chunk| write_json(to, FrameKind::Item, &chunk))
}

/// What is written to it becomes frames of data.
pub(crate) struct DataWriter<'a> {
    to: &'a mut dyn Write,
    waiting: Vec<u8>,
}

impl<'a> DataWriter<'a> {
    pub(crate) fn new(to: &'a mut dyn Write) -> Self {
        Self { to, waiting: Vec::with_capacity(DATA_BYTES) }
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            write_frame(self.to, FrameKind::Data, &self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }
}

impl Write for DataWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(DATA_BYTES - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..count]);
        if self.waiting.len() >= DATA_BYTES {
            self.send()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
