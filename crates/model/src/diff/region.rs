//! The part of two texts that differs, as lines. The common start and end are cut off before anything is split.

/// Lines of context around a change.
pub(crate) const CONTEXT: usize = 3;
/// Equal lines after the last change that the region includes, so that the change can move down over them.
const LINES_AFTER: usize = CONTEXT + 60;

/// The part of two texts that contains every change, with the context that a diff shows around it.
pub(crate) struct Region<'a> {
    /// The old side's lines, each with its ending.
    pub(crate) old: Vec<&'a [u8]>,
    /// The new side's.
    pub(crate) new: Vec<&'a [u8]>,
    /// Lines before the region; the same on both sides.
    pub(crate) lines_before: usize,
    /// The text before the region.
    pub(crate) before: &'a [u8],
    /// Whether lines follow the region; the same on both sides.
    pub(crate) is_cut_after: bool,
    /// Bytes of the whole new text.
    pub(crate) new_len: usize,
}

impl<'a> Region<'a> {
    pub(crate) fn new(old: &'a [u8], new: &'a [u8]) -> Self {
        let start = context_start(old, common_prefix(old, new));
        let most = old.len().min(new.len()) - start;
        let shared = common_suffix(old, new).min(most);
        let tail = bytes_after_region(&old[old.len() - shared..]);
        Self {
            old: split(&old[start..old.len() - tail]),
            new: split(&new[start..new.len() - tail]),
            lines_before: memchr::memchr_iter(b'\n', &old[..start]).count(),
            before: &old[..start],
            is_cut_after: tail > 0,
            new_len: new.len(),
        }
    }
}

/// The lines of `text`, each with its ending.
fn split(text: &[u8]) -> Vec<&[u8]> {
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', text).map(|at| at + 1).chain(std::iter::once(text.len()));
    let lines = ends.map(|end| &text[std::mem::replace(&mut start, end)..end]);
    lines.filter(|line| !line.is_empty()).collect()
}

/// The start of the context before the first byte that differs.
fn context_start(text: &[u8], differs: usize) -> usize {
    let mut start = line_start(text, differs);
    for _ in 0..CONTEXT {
        if start == 0 {
            break;
        }
        start = line_start(text, start - 1);
    }
    start
}

fn line_start(text: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1)
}

/// The bytes at the end of the common suffix that the region leaves out. The suffix may start within a line.
fn bytes_after_region(suffix: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', suffix).nth(LINES_AFTER).map_or(0, |end| suffix.len() - end - 1)
}

/// Bytes compared at once, in turn: `==` on slices is far faster than a loop over bytes.
const BLOCKS: [usize; 3] = [4096, 64, 1];

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    BLOCKS.into_iter().fold(0, |equal, size| {
        let blocks = a[equal..].chunks_exact(size).zip(b[equal..].chunks_exact(size));
        equal + size * blocks.take_while(|(a, b)| a == b).count()
    })
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    BLOCKS.into_iter().fold(0, |equal, size| {
        let (a, b) = (&a[..a.len() - equal], &b[..b.len() - equal]);
        let blocks = a.rchunks_exact(size).zip(b.rchunks_exact(size));
        equal + size * blocks.take_while(|(a, b)| a == b).count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_texts_share_ends_at_the_first_and_last_byte_that_differs() {
        let text = vec![b'a'; 9_000];
        for at in [0, 1, 63, 64, 65, 4_095, 4_096, 4_097, 8_191, 8_999] {
            let mut other = text.clone();
            other[at] = b'b';
            assert_eq!((common_prefix(&text, &other), common_suffix(&text, &other)), (at, 8_999 - at), "{at}");
            // Sides of different lengths.
            assert_eq!(common_prefix(&text[..at], &text), at);
            assert_eq!(common_suffix(&text[..at], &text), at);
        }
    }
}
