//! Finds the passages of a text that are most similar to the text an edit searches for.
//!
//! First every passage gets a rough score from the pairs of characters that its lines share with the searched ones, in one
//! pass over the text. Then the best of them are compared by edit distance.

mod difference;
mod similarity;

pub(crate) use similarity::Effort;
use similarity::{MAX_LINE_BYTES, Pairs, WORDS, line_similarity};

/// A passage that is similar to the text an edit searches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMatch {
    /// Its first line, from 1.
    pub line: u64,
    /// The difference: lines with `-` were searched for, lines with `+` are in the text.
    pub difference: String,
    /// The kind of a small difference, such as `white space`.
    pub only: Option<&'static str>,
    /// Names the characters of the first line that differs, if a reader sees no difference.
    pub unseen: Option<String>,
}

/// The most matches returned.
const MAX_NEAR: usize = 3;
/// The most lines of the text that are compared.
const MAX_LINES: usize = 100_000;
/// The most lines of the searched text that a rough score is made of: the longest ones among its first thousand.
const MAX_ROUGH_LINES: usize = 64;
const MAX_SEARCHED_LINES: usize = 1000;
/// The most comparisons of two lines by their pairs of characters: some tenths of a second.
const MAX_ROUGH_COMPARISONS: usize = 2_000_000;
/// The most passages that are compared by edit distance.
const MAX_CANDIDATES: usize = 32;
/// The same where no passage has a pair of characters in common with the searched text.
const MAX_DISSIMILAR: usize = 1000;
/// The most lines of a passage that are compared by edit distance.
const MAX_EXACT_LINES: usize = 40;
/// The most steps of all comparisons by edit distance of one search: some hundredths of a second.
const MAX_EXACT_STEPS: usize = 16_000_000;
/// The most steps of one search, with those for the rough scores.
const MAX_STEPS: usize = MAX_EXACT_STEPS + (MAX_ROUGH_COMPARISONS + MAX_LINES) * WORDS + MAX_LINES * MAX_LINE_BYTES;
/// The least similarity of a passage.
const MIN_SIMILARITY: f32 = 0.6;

/// A line to search for.
struct Wanted<'a> {
    /// Its index in the searched text.
    offset: usize,
    line: &'a str,
    pairs: Pairs,
    weight: f32,
}

/// A passage, by the index of its first line.
#[derive(Clone, Copy)]
struct NearCandidate {
    at: usize,
    score: f32,
}

/// Returns the passages of `text` that are most similar to `old`, best first, at most [`MAX_NEAR`], none of which overlap.
/// Both texts have LF only. A text without a similar passage has none.
///
/// The work is bounded: of long lines only the start is compared, and of a long `old` only some lines.
pub(crate) fn nearest(text: &str, old: &str) -> Vec<NearMatch> {
    let lines: Vec<&str> = text.lines().take(MAX_LINES).collect();
    let searched: Vec<&str> = old.lines().take(MAX_SEARCHED_LINES).collect();
    if lines.is_empty() || searched.is_empty() {
        return Vec::new();
    }
    let window = old.lines().take(MAX_LINES).count().min(lines.len());
    let best = best_candidates(&lines, &searched, window, &mut Effort::new(MAX_STEPS));
    let mut chosen: Vec<NearCandidate> = Vec::new();
    for candidate in best {
        let is_close = chosen.first().is_none_or(|first| candidate.score >= first.score * 0.6);
        let overlaps = chosen.iter().any(|other| other.at.abs_diff(candidate.at) < window);
        if is_close && !overlaps && chosen.len() < MAX_NEAR {
            chosen.push(candidate);
        }
    }
    chosen.into_iter().map(|candidate| difference::describe(old, text, candidate.at)).collect()
}

/// Returns the index of the first of the `lines` that are most similar to `searched`; `None` if none are similar, or the effort
/// is used up.
pub(crate) fn nearest_position(lines: &[&str], searched: &[&str], effort: &mut Effort) -> Option<usize> {
    if lines.is_empty() || searched.is_empty() {
        return None;
    }
    let searched = &searched[..searched.len().min(MAX_SEARCHED_LINES)];
    let lines = &lines[..lines.len().min(MAX_LINES)];
    best_candidates(lines, searched, searched.len().min(lines.len()), effort).first().map(|best| best.at)
}

/// Whether the first of `lines` are similar to `searched`; `None` once the effort is used up.
pub(crate) fn is_similar(lines: &[&str], searched: &[&str], effort: &mut Effort) -> Option<bool> {
    similarity(searched, lines, effort).map(|score| score >= MIN_SIMILARITY)
}

/// The passages of `window` lines that are similar to the searched ones, best first; none if the effort does not suffice.
fn best_candidates(lines: &[&str], searched: &[&str], window: usize, effort: &mut Effort) -> Vec<NearCandidate> {
    let Some(mut best) = rough_candidates(lines, &searched[..searched.len().min(window)], window, effort) else {
        return Vec::new();
    };
    if best.is_empty() {
        best.extend((0..=lines.len() - window).take(MAX_DISSIMILAR).map(|at| NearCandidate { at, score: 0.0 }));
    }
    effort.with_most(MAX_EXACT_STEPS, |effort| {
        for candidate in &mut best {
            candidate.score = similarity(searched, &lines[candidate.at..], effort).unwrap_or(candidate.score);
        }
    });
    best.retain(|candidate| candidate.score >= MIN_SIMILARITY);
    best.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
    best
}

/// The passages with the best rough scores, in no order; `None` if the effort does not suffice.
fn rough_candidates(
    lines: &[&str],
    searched: &[&str],
    window: usize,
    effort: &mut Effort,
) -> Option<Vec<NearCandidate>> {
    let wanted = rough_lines(searched, lines.len());
    let bytes: usize = lines.iter().map(|line| line.len().min(MAX_LINE_BYTES)).sum();
    effort.take(bytes + lines.len() * (1 + wanted.len()) * WORDS)?;
    let mut scores = vec![0.0; lines.len() - window + 1];
    for (index, line) in lines.iter().enumerate() {
        let pairs = Pairs::of(line);
        for want in &wanted {
            if let Some(score) = index.checked_sub(want.offset).and_then(|at| scores.get_mut(at)) {
                *score += want.weight * want.pairs.similarity(&pairs, want.line.trim() == line.trim());
            }
        }
    }
    let total: f32 = wanted.iter().map(|want| want.weight).sum();
    let scored = scores.into_iter().enumerate().filter(|(_, score)| *score > 0.0);
    let mut best: Vec<_> = scored.map(|(at, score)| NearCandidate { at, score: score / total }).collect();
    if best.len() > MAX_CANDIDATES {
        best.select_nth_unstable_by(MAX_CANDIDATES, |a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
        best.truncate(MAX_CANDIDATES);
    }
    Some(best)
}

/// The lines that the rough scores are made of.
fn rough_lines<'a>(searched: &[&'a str], text_lines: usize) -> Vec<Wanted<'a>> {
    let most = (MAX_ROUGH_COMPARISONS / text_lines).clamp(1, MAX_ROUGH_LINES);
    let mut by_length: Vec<_> = searched.iter().copied().enumerate().collect();
    by_length.sort_by_key(|(_, line)| std::cmp::Reverse(line.trim().len()));
    by_length.truncate(most);
    let wanted =
        |(offset, line): (usize, &'a str)| Wanted { offset, line, pairs: Pairs::of(line), weight: weight(line) };
    by_length.into_iter().map(wanted).collect()
}

/// The weight of a line. A long line identifies a passage better than a short one.
fn weight(line: &str) -> f32 {
    u8::try_from(line.trim().len() + 1).map_or(255.0, f32::from)
}

/// How similar the first of `lines` are to those of `searched`, from 0 to 1; `None` once the effort is used up.
fn similarity(searched: &[&str], lines: &[&str], effort: &mut Effort) -> Option<f32> {
    let (mut sum, mut total) = (0.0, 0.0);
    for (index, want) in searched.iter().take(MAX_EXACT_LINES).enumerate() {
        let weight = weight(want);
        total += weight;
        if let Some(line) = lines.get(index) {
            sum += weight * line_similarity(want, line, effort)?;
        }
    }
    Some(sum / total)
}

#[cfg(test)]
mod tests;
