//! Finds the passages of a text that are most similar to the text an edit searches for.

/// A passage that is similar to the text an edit searches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMatch {
    /// Its first line, from 1.
    pub line: u64,
    /// The difference: lines with `-` were searched for, lines with `+` are in the text.
    pub difference: String,
    /// The kind of a small difference, such as `white space`.
    pub only: Option<&'static str>,
}

/// The most matches returned.
const MAX_NEAR: usize = 3;
/// The most lines of a difference.
const MAX_LINES_SHOWN: usize = 20;
/// The most characters of a line that are compared and shown.
const MAX_LINE_CHARS: usize = 200;
/// The most lines of each of the two texts that are compared.
const MAX_LINES: usize = 100_000;
/// The most bytes that the comparisons of one search may visit: some tenths of a second.
const MAX_WORK: usize = 64 << 20;
/// The fixed cost of a comparison, in bytes.
const FIXED_COST: usize = 16;

/// A line to search for.
struct Wanted<'a> {
    line: &'a str,
    squeezed: String,
    words: Vec<&'a str>,
}

/// Returns the passages of `text` that are most similar to `old`, best first. Both have LF only.
///
/// Compares only the start of long lines. Of a long text or a long `old`, compares as many lines from the start as
/// [`MAX_WORK`] allows.
pub(crate) fn nearest(text: &str, old: &str) -> Vec<NearMatch> {
    let wanted_count = old.lines().take(MAX_LINES).count();
    let lines: Vec<&str> = text.lines().take(MAX_LINES).map(start_of).collect();
    if wanted_count == 0 || lines.is_empty() {
        return Vec::new();
    }
    let window = wanted_count.min(lines.len());
    let one_pass: usize = lines.iter().map(|line| line.len() + FIXED_COST).sum();
    let mut wanted = Vec::new();
    let mut cost_of_window = 0;
    for line in old.lines().take(window).map(Wanted::of) {
        cost_of_window += line.cost();
        if !wanted.is_empty() && cost_of_window.saturating_mul(one_pass) > MAX_WORK {
            break;
        }
        wanted.push(line);
    }
    let mut work = 0;
    let mut scored: Vec<(usize, usize)> = Vec::new();
    for at in 0..=lines.len() - window {
        let mut score = 0;
        for (want, line) in wanted.iter().zip(&lines[at..]) {
            work += want.cost() * (line.len() + FIXED_COST);
            score += want.similarity(line);
        }
        if score > wanted.len() * 4 / 10 {
            scored.push((score, at));
        }
        if work > MAX_WORK {
            break;
        }
    }
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    scored.truncate(MAX_NEAR);
    scored.into_iter().map(|(_, at)| describe(old, text, at)).collect()
}

impl<'a> Wanted<'a> {
    fn of(line: &'a str) -> Self {
        let line = start_of(line);
        Self { line, squeezed: squeeze(line).collect(), words: line.split_whitespace().collect() }
    }

    /// How often a comparison visits each byte of the other line.
    fn cost(&self) -> usize {
        self.words.len() + 2
    }

    /// 10 for an equal line, 8 for one that differs in white space or quotes only, 0 to 6 for the share of common words.
    fn similarity(&self, other: &str) -> usize {
        if self.line == other {
            return 10;
        }
        if !self.squeezed.is_empty() && self.squeezed.chars().eq(squeeze(other)) {
            return 8;
        }
        if self.words.is_empty() {
            return 0;
        }
        6 * self.words.iter().filter(|word| other.contains(**word)).count() / self.words.len()
    }
}

/// The line without white space and with all quotes as `"`.
fn squeeze(line: &str) -> impl Iterator<Item = char> {
    let quote = |c: char| if matches!(c, '\'' | '“' | '”' | '‘' | '’' | '`') { '"' } else { c };
    line.chars().filter(|c| !c.is_whitespace()).map(quote)
}

/// The part of a line that is compared and shown.
fn start_of(line: &str) -> &str {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => &line[..end],
        None => line,
    }
}

/// Describes the passage that begins at line `at`, from 0.
fn describe(old: &str, text: &str, at: usize) -> NearMatch {
    let pairs = || old.lines().zip(text.lines().skip(at));
    let mut difference = String::new();
    for (want, have) in pairs().take(MAX_LINES_SHOWN) {
        if want == have {
            difference.extend(["  ", start_of(want), "\n"]);
        } else {
            difference.extend(["- ", start_of(want), "\n+ ", start_of(have), "\n"]);
        }
    }
    let blank = |line: &'_ str| line.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let lower = |line: &'_ str| line.to_lowercase();
    let all = |same: &dyn Fn(&str, &str) -> bool| pairs().all(|(want, have)| want == have || same(want, have));
    let only = if old.lines().count() > text.lines().skip(at).count() {
        None
    } else if all(&|want, have| blank(want) == blank(have)) {
        Some("white space")
    } else if all(&|want, have| squeeze(want).eq(squeeze(have))) {
        Some("quotes")
    } else if all(&|want, have| lower(want) == lower(have)) {
        Some("letter case")
    } else {
        None
    };
    NearMatch { line: at as u64 + 1, difference, only }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_bounded_for_any_lines() {
        let words = (0..100_000).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
        let line = "x ".repeat(500_000);
        let short = "a\n".repeat(1 << 20);
        for (text, old) in [(&line, &words), (&words, &line), (&short, &words), (&short, &"b\n".repeat(1 << 20))] {
            for near in nearest(text, old) {
                assert!(
                    near.difference.len() <= MAX_LINES_SHOWN * (2 * MAX_LINE_CHARS + 6),
                    "{}",
                    near.difference.len()
                );
            }
        }
    }

    #[test]
    fn a_passage_is_found_by_the_start_of_long_lines() {
        let text = format!("first\n{}\nlast\n", "long line ".repeat(10_000));
        let near = nearest(&text, &"long  line ".repeat(10_000));
        assert_eq!(near[0].line, 2);
    }
}
