//! Applies the same patches with Git and with this crate: the results are equal, or both refuse.
//!
//! The intended differences:
//! 1. A hunk that does not match at its stated line but at several others is refused; Git takes the nearest.
//! 2. Once a hunk has moved, the later hunks have to be unique too; Git still trusts their numbers.
//! 3. Hunks keep their order; Git lets one move before another.
//! 4. A hunk without any context applies only at its stated line, as with `git apply --unidiff-zero`. Without old lines, it
//!    is refused.
//! 5. A line that a hunk states to have no newline must have none; Git accepts one and joins the line with the next.

#![expect(clippy::disallowed_methods, reason = "the test reads this crate's sources as samples")]

use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::test_support::Git;

/// Pairs of texts for which Git writes patches, at each width of context.
const PAIRS: usize = 130;
/// Widths of context, each with the number of files that a patch is applied to: its original file and changed copies of it.
const WIDTHS: [(&str, usize); 4] = [("-U0", 2), ("-U1", 5), ("-U3", 6), ("-U8", 3)];

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below.max(1) as u64).unwrap()
    }
}

type Text = Vec<Vec<u8>>;

/// The sources of this crate, as lines: real files with many similar lines.
fn sources() -> Vec<Text> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(
                    std::fs::read(path).unwrap().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect(),
                );
            }
        }
    }
    files
}

/// A part of a real file; sometimes in CRLF, without a final newline, very short or repetitive.
fn piece(dice: &mut Dice, sources: &[Text]) -> Text {
    let source = &sources[dice.roll(sources.len())];
    let start = dice.roll(source.len());
    let length = if dice.roll(6) == 0 { dice.roll(4) } else { 5 + dice.roll(120) };
    let mut text = source[start..(start + length).min(source.len())].to_vec();
    if dice.roll(8) == 0 {
        let copy = text.clone();
        text.extend(copy);
    }
    if dice.roll(10) == 0 {
        for line in &mut text {
            line.pop_if(|last| *last == b'\n');
            line.extend_from_slice(b"\r\n");
        }
    }
    if dice.roll(6) == 0
        && let Some(last) = text.last_mut()
    {
        last.pop_if(|last| *last == b'\n');
        text.retain(|line| !line.is_empty());
    }
    text
}

/// Changes a few lines of a text.
fn change(dice: &mut Dice, text: &Text, sources: &[Text], changes: usize) -> Text {
    let mut text = text.clone();
    for _ in 0..changes {
        let at = dice.roll(text.len() + 1);
        let some = 1 + dice.roll(3);
        match dice.roll(5) {
            0 | 1 => drop(text.drain(at..(at + some).min(text.len()))),
            2 => {
                let from = dice.roll(text.len() + 1);
                let copied = text[from..(from + some).min(text.len())].to_vec();
                text.splice(at..at, copied);
            }
            _ => {
                let source = &sources[dice.roll(sources.len())];
                let line = source[dice.roll(source.len())].clone();
                text.splice(at..(at + dice.roll(2)).min(text.len()), [line]);
            }
        }
    }
    // Only the last line may lack its end.
    let last = text.len().saturating_sub(1);
    for line in &mut text[..last] {
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
    }
    text
}

/// The patches that Git writes for all pairs in one run, each with the number of its pair.
fn patches(pairs: &[(Vec<u8>, Vec<u8>)], context: &str) -> Vec<(usize, Vec<u8>)> {
    let git = Git::new();
    for (number, (old, new)) in pairs.iter().enumerate() {
        git.write(&format!("a/{number}"), old);
        git.write(&format!("b/{number}"), new);
    }
    let diff = git.run(&["diff", "--no-index", "--no-prefix", context, "a", "b"], b"").stdout;
    // Lines of files have a mark in front, so only a file's header begins like this.
    let begins = |at: &usize| *at == 0 || diff[at - 1] == b'\n';
    let starts: Vec<_> = memchr::memmem::find_iter(&diff, "diff --git a/").filter(begins).collect();
    let ends = starts.iter().skip(1).copied().chain([diff.len()]);
    let sections = starts.iter().zip(ends).map(|(start, end)| diff[*start..end].to_vec());
    let number = |section: &[u8]| -> usize {
        let first = section.split(|byte| *byte == b'\n').next().unwrap();
        std::str::from_utf8(first.rsplit(|byte| *byte == b'/').next().unwrap()).unwrap().parse().unwrap()
    };
    sections.map(|section| (number(&section), section)).collect()
}

/// The same patch with other line numbers, as if lines had been added or removed above it.
fn shift(patch: &[u8], by: i64) -> Vec<u8> {
    let shift_line = |line: &[u8]| -> Vec<u8> {
        let Some(ranges) = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("@@ -")) else {
            return line.to_vec();
        };
        let (old, rest) = ranges.split_once(" +").unwrap();
        let (new, rest) = rest.split_once(" @@").unwrap();
        let moved = |range: &str| {
            let (start, count) = range.split_once(',').unwrap_or((range, "1"));
            // Only an empty side may start at 0.
            let least = i64::from(count != "0");
            format!("{},{count}", (start.parse::<i64>().unwrap() + by).max(least))
        };
        format!("@@ -{} +{} @@{rest}", moved(old), moved(new)).into_bytes()
    };
    patch.split_inclusive(|byte| *byte == b'\n').flat_map(shift_line).collect()
}

/// The file after Git applied a patch; `None` if Git refused it.
fn by_git(git: &Git, patch: &[u8], name: &str, before: &[u8], bare: bool) -> Option<Vec<u8>> {
    git.write(name, before);
    let mut arguments = vec!["apply", "--whitespace=nowarn"];
    if bare {
        arguments.push("--unidiff-zero");
    }
    arguments.push("-");
    git.run(&arguments, patch).status.success().then(|| git.read(name).unwrap_or_default())
}

/// Compares the two implementations for one patch and one file. Fails for a difference that is not intended.
fn compare(git: &Git, patch: &[u8], name: &str, before: &[u8]) -> Result<Verdict, String> {
    let parsed = Patch::parse_bytes(patch);
    let is_context = |line: &HunkLine| matches!(line, HunkLine::Context(_));
    let bare = |hunk: &Hunk| !hunk.lines.first().is_some_and(is_context) && !hunk.lines.last().is_some_and(is_context);
    let unclosed = |patch: &Patch| patch.files[0].hunks.iter().any(|hunk| !hunk.lines.last().is_some_and(is_context));
    let (ours, conflicts, bare, unended) = match &parsed {
        Err(refusal) if refusal.message.contains("no line of the old file") => return Ok(Verdict::ByRule),
        // Line numbers limited to the first line may overlap, which the parser refuses.
        Err(refusal) if refusal.message.contains("the previous hunk ends") => return Ok(Verdict::ByRule),
        Err(refusal) => return Err(format!("refused: {refusal}")),
        Ok(patch) => {
            let section = &patch.files[0];
            let bare = section.hunks.iter().any(|hunk| bare(hunk) && hunk.old_lines().next().is_some());
            let last_lines = section.hunks.iter().filter_map(|hunk| hunk.old_lines().next_back());
            let unended = last_lines.into_iter().any(|line| !line.ends_with(b"\n"));
            match section.apply(before) {
                Ok(patched) => (Some(patched.bytes), Vec::new(), bare, unended),
                Err(fault) => (None, conflicts(fault), bare, unended),
            }
        }
    };
    let theirs = by_git(git, patch, name, before, bare);
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours == theirs => Ok(Verdict::Applied),
        (None, None) => Ok(Verdict::Refused),
        (None, Some(_)) if bare || unended || conflicts.iter().any(by_rule) => Ok(Verdict::ByRule),
        (Some(_), Some(_)) if bare && unended => Ok(Verdict::ByRule),
        // A hunk that matches at its stated line applies; Git requires trailing context or the end of the file.
        (Some(_), None | Some(_)) if parsed.as_ref().is_ok_and(unclosed) => Ok(Verdict::ByRule),
        (ours, theirs) => {
            let shown = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            Err(format!("ours: {:?}\ngit's: {:?}\nconflicts: {conflicts:#?}", shown(ours), shown(theirs)))
        }
    }
}

/// Whether Git does not report this conflict: several positions, or one out of order.
fn by_rule(conflict: &Conflict) -> bool {
    conflict.applies_at.len() > 1 || conflict.reason.contains("before an earlier hunk")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Applied,
    Refused,
    ByRule,
}

#[test]
fn patches_apply_as_with_git() {
    let sources = sources();
    let dice = &mut Dice(0x9e37_79b9_7f4a_7c15);
    let texts: Vec<(Text, Text)> = (0..PAIRS)
        .map(|_| {
            let old = piece(dice, &sources);
            let changes = 1 + dice.roll(6);
            let new = change(dice, &old, &sources, changes);
            (old, new)
        })
        .collect();
    let pairs: Vec<_> = texts.iter().map(|(old, new)| (old.concat(), new.concat())).collect();
    let mut cases = Vec::new();
    for (context, targets) in WIDTHS {
        for (number, patch) in patches(&pairs, context) {
            for target in 0..targets {
                let old = &texts[number].0;
                let before = if target == 0 { old.clone() } else { change(dice, old, &sources, target) };
                let by = if dice.roll(3) == 0 { i64::try_from(dice.roll(13)).unwrap() - 6 } else { 0 };
                cases.push((number, shift(&patch, by), before.concat()));
            }
        }
    }
    let cases = Mutex::new(cases.into_iter());
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let git = Git::new();
                loop {
                    let Some((number, patch, before)) = cases.lock().unwrap().next() else { return };
                    let verdict = compare(&git, &patch, &number.to_string(), &before).unwrap_or_else(|fault| {
                        let shown = String::from_utf8_lossy(&patch);
                        panic!("{fault}\n{shown}\nbefore:\n{}", String::from_utf8_lossy(&before))
                    });
                    found.lock().unwrap().push(verdict);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let count = |verdict| found.iter().filter(|found| **found == verdict).count();
    let counts = (count(Verdict::Applied), count(Verdict::Refused), count(Verdict::ByRule));
    println!("{counts:?}");
    // The cases are the same in every run; these bounds keep them from becoming trivial.
    assert!(counts.0 > 500 && counts.1 > 300 && counts.2 < found.len() / 4, "{counts:?}");
}
