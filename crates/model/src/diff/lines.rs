//! What differs between two texts, as lines: the shared start and end are cut off before anything is split.

/// Lines of context round a change.
pub(super) const CONTEXT: usize = 3;
/// Equal lines kept behind the last change, so that it can be shown lower where that is the same.
const KEPT_BEHIND: usize = CONTEXT + 60;

/// The part of two texts that holds every change, with the context that a diff shows round it.
pub(super) struct Region<'a> {
    /// The old side's lines, each with its ending.
    pub(super) old: Vec<&'a [u8]>,
    /// The new side's.
    pub(super) new: Vec<&'a [u8]>,
    /// Lines before the region; the same on both sides.
    pub(super) lines_before: usize,
    /// The text before the region.
    pub(super) before: &'a [u8],
    /// Whether lines follow the region; the same on both sides.
    pub(super) cut_behind: bool,
    /// Bytes of the whole new text.
    pub(super) new_len: usize,
}

impl<'a> Region<'a> {
    pub(super) fn new(old: &'a [u8], new: &'a [u8]) -> Self {
        let start = context_start(old, common_prefix(old, new));
        let room = old.len().min(new.len()) - start;
        let shared = common_suffix(old, new).min(room);
        let tail = context_end(&old[old.len() - shared..]);
        Self {
            old: split(&old[start..old.len() - tail]),
            new: split(&new[start..new.len() - tail]),
            lines_before: memchr::memchr_iter(b'\n', &old[..start]).count(),
            before: &old[..start],
            cut_behind: tail > 0,
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

/// Where the context before the byte `differs` starts.
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

/// How many bytes at the end of `shared` are of no interest: what follows the line that may be cut and those kept.
fn context_end(shared: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', shared).nth(KEPT_BEHIND).map_or(0, |end| shared.len() - end - 1)
}

/// Compared at once: `==` on slices is far faster than byte by byte.
const BLOCK: usize = 4096;

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK)).take_while(|(a, b)| a == b);
    let equal: usize = blocks.map(|(block, _)| block.len()).sum();
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.rchunks(BLOCK).zip(b.rchunks(BLOCK)).take_while(|(a, b)| a == b);
    let equal: usize = blocks.map(|(block, _)| block.len()).sum();
    let (a, b) = (&a[..a.len() - equal], &b[..b.len() - equal]);
    equal + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}
