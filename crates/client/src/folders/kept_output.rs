//! The output of a command, as much as is kept of it.

use std::collections::VecDeque;

use model::{MAX_UPLOAD_BYTES, redact};

/// The beginning and the end of a command's output, as much as an artifact may have.
#[derive(Debug, Default)]
pub(crate) struct KeptOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes between the two that are not kept.
    dropped: u64,
}

impl KeptOutput {
    /// The most bytes of an artifact.
    #[expect(clippy::cast_possible_truncation, reason = "the limit is far below that of any machine")]
    const MAX: usize = MAX_UPLOAD_BYTES as usize;
    /// Half of one, with room for the line between the halves.
    const HALF: usize = Self::MAX / 2 - 64;

    pub(crate) fn add(&mut self, chunk: &[u8]) {
        let (head, rest) = chunk.split_at(chunk.len().min(Self::HALF - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(Self::HALF);
        self.tail.drain(..excess);
        self.dropped += excess as u64;
    }

    /// Returns it as a text without credentials, no longer than an artifact may be.
    pub(crate) fn into_redacted(self) -> String {
        let mut all = self.head;
        if self.dropped > 0 {
            all.extend(format!("\n[{} bytes are not kept]\n", self.dropped).into_bytes());
        }
        all.extend(&self.tail);
        let mut text = redact(&String::from_utf8_lossy(&all)).into_owned();
        text.truncate(text.floor_char_boundary(Self::MAX));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_is_too_long_keeps_its_beginning_and_its_end() {
        let mut kept = KeptOutput::default();
        (0..40).for_each(|number| kept.add(format!("{number:01024}").repeat(1024).as_bytes()));
        let text = kept.into_redacted();
        assert!(text.len() as u64 <= MAX_UPLOAD_BYTES && text.len() > 15 << 20);
        assert!(text.starts_with("0000") && text.ends_with("0039"));
        let dropped = (40 << 20) - 2 * KeptOutput::HALF;
        assert!(text.contains(&format!("\n[{dropped} bytes are not kept]\n")));
    }

    #[test]
    fn a_credential_in_the_output_is_not_kept() {
        let mut kept = KeptOutput::default();
        kept.add(b"\xff token: ghp_abcdefghijklmnopqrstuvwxyz0123456789 end\n");
        let text = kept.into_redacted();
        assert!(text.contains("[redacted: ") && !text.contains("ghp_"), "{text}");
    }
}
