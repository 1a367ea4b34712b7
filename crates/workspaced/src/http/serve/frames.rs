//! The frames that a client of HTTP/2 sends: whether one that the service waits for is late, and whether there are too many that
//! carry nothing. The library checks everything else.

use std::time::{Duration, Instant};

/// What every connection of HTTP/2 begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum number of control frames within [`WINDOW`].
const MAX_CONTROL_FRAMES: u32 = 2000;
const WINDOW: Duration = Duration::from_secs(10);

const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows the boundaries of the frames that were received.
#[derive(Debug)]
pub(crate) struct Frames {
    preface_left: usize,
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    payload_left: usize,
    is_data: bool,
    /// Whether `CONTINUATION` has to follow.
    in_header_block: bool,
    /// Control frames since `window_began`.
    control: u32,
    window_began: Instant,
}

/// What a part of the input has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// No frame and no header block is complete.
    Part,
    /// Something was completed.
    Complete,
    /// There are too many control frames.
    Flood,
}

impl Frames {
    /// Follows a connection from its first byte.
    pub(crate) fn new() -> Self {
        Self {
            preface_left: PREFACE.len(),
            head: [0; HEAD_BYTES],
            head_filled: 0,
            payload_left: 0,
            is_data: false,
            in_header_block: false,
            control: 0,
            window_began: Instant::now(),
        }
    }

    /// Whether the rest of a frame is missing that is not the body of a request: those have timeouts of their own.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.preface_left > 0
            || self.head_filled > 0
            || self.in_header_block
            || (self.payload_left > 0 && !self.is_data)
    }

    /// Follows `bytes`, which come next.
    pub(crate) fn receive(&mut self, mut bytes: &[u8]) -> Received {
        let mut received = Received::Part;
        let preface = self.preface_left.min(bytes.len());
        self.preface_left -= preface;
        bytes = &bytes[preface..];
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let part = self.payload_left.min(bytes.len());
                self.payload_left -= part;
                bytes = &bytes[part..];
            } else {
                let part = (HEAD_BYTES - self.head_filled).min(bytes.len());
                self.head[self.head_filled..self.head_filled + part].copy_from_slice(&bytes[..part]);
                self.head_filled += part;
                bytes = &bytes[part..];
                if self.head_filled < HEAD_BYTES {
                    break;
                }
                if !self.begin_frame() {
                    return Received::Flood;
                }
            }
            if self.payload_left == 0 && !self.in_header_block {
                received = Received::Complete;
            }
        }
        received
    }

    /// Takes the complete head of a frame. Returns whether there are not too many control frames.
    fn begin_frame(&mut self) -> bool {
        let [length @ .., kind, flags, _, _, _, _] = self.head;
        self.head_filled = 0;
        self.payload_left = usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
        self.is_data = kind == DATA;
        match kind {
            HEADERS | CONTINUATION => {
                self.in_header_block = flags & END_HEADERS == 0;
                true
            }
            DATA | WINDOW_UPDATE => true,
            _ => self.count_control_frame(),
        }
    }

    fn count_control_frame(&mut self) -> bool {
        self.control += 1;
        if self.control <= MAX_CONTROL_FRAMES {
            return true;
        }
        if self.window_began.elapsed() < WINDOW {
            return false;
        }
        (self.control, self.window_began) = (0, Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD_BYTES + payload, 7);
        frame
    }

    #[test]
    fn boundaries_are_found_wherever_the_input_is_cut() {
        let input = [
            PREFACE.to_vec(),
            frame(4, 0, 12),
            frame(HEADERS, 0, 300),
            frame(CONTINUATION, END_HEADERS, 5),
            frame(DATA, 0, 40),
            frame(DATA, 1, 0),
        ]
        .concat();
        for size in [1, 2, 9, 10, 100, input.len()] {
            let mut frames = Frames::new();
            for part in input.chunks(size) {
                assert_ne!(frames.receive(part), Received::Flood);
            }
            assert!(!frames.is_incomplete(), "{size}");
        }
    }

    #[test]
    fn a_header_block_is_incomplete_until_its_end_and_a_body_never() {
        let mut frames = Frames::new();
        assert!(frames.is_incomplete());
        assert_eq!(frames.receive(PREFACE), Received::Part);
        assert!(!frames.is_incomplete());
        assert_eq!(frames.receive(&frame(HEADERS, 0, 10)), Received::Part);
        assert!(frames.is_incomplete());
        assert_eq!(frames.receive(&frame(CONTINUATION, END_HEADERS, 10)), Received::Complete);
        assert!(!frames.is_incomplete());
        assert_eq!(frames.receive(&frame(DATA, 0, 10)[..12]), Received::Part);
        assert!(!frames.is_incomplete());
        assert_eq!(frames.receive(&[7; 7]), Received::Complete);
        assert_eq!(frames.receive(&frame(6, 0, 8)[..12]), Received::Part);
        assert!(frames.is_incomplete());
    }

    #[test]
    fn control_frames_are_a_flood_and_those_of_requests_are_not() {
        let mut frames = Frames::new();
        frames.receive(PREFACE);
        for _ in 0..10 * MAX_CONTROL_FRAMES {
            assert_eq!(frames.receive(&frame(HEADERS, END_HEADERS, 3)), Received::Complete);
            assert_eq!(frames.receive(&frame(WINDOW_UPDATE, 0, 4)), Received::Complete);
            assert_eq!(frames.receive(&frame(DATA, 0, 3)), Received::Complete);
        }
        let pings = frame(6, 0, 8).repeat(usize::try_from(MAX_CONTROL_FRAMES).unwrap());
        assert_eq!(frames.receive(&pings), Received::Complete);
        assert_eq!(frames.receive(&frame(3, 0, 4)), Received::Flood);
    }
}
