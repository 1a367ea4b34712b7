//! Target for edits. An input is the old text, the new text and the text of the file, separated by lines `====`.

use model::{EditFault, edit};

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "edit",
    run,
    dictionary: &[
        b"\n====\n",
        b"\n",
        b"\r\n",
        b"a",
        b"aa",
        b"  ",
        b"\t",
        b"\xc3\xa9",
        b"\xe2\x80\xa8",
        b"fn f() {\n",
        b"}\n",
    ],
    max_bytes: 4096,
    iterations: 15_000,
};

/// The maximum size of a result.
const MAX_BYTES: u64 = 1 << 20;

fn run(input: &[u8]) {
    let input = String::from_utf8_lossy(input);
    let mut parts = input.splitn(3, "\n====\n");
    let (old, new, text) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // The tool refuses an empty text earlier.
    if old.is_empty() {
        return;
    }
    let everywhere = edit(text, old, new, true, MAX_BYTES);
    match edit(text, old, new, false, MAX_BYTES) {
        Ok(once) => {
            assert_eq!(once.replacements, 1);
            assert_eq!(everywhere.as_ref(), Ok(&once), "a single replacement and `replaceAll` differ");
            assert_one_change(text, &once.text);
        }
        Err(EditFault::NotUnique { occurrences, lines }) => {
            assert!(
                !lines.is_empty() && lines.iter().all(|line| *line >= 1 && *line <= text.lines().count() as u64 + 1)
            );
            assert!(occurrences > 1 && lines.len() as u64 <= occurrences, "not unique, and {occurrences} occurrences");
            // Overlapping occurrences are counted separately and replaced once.
            let replaced = everywhere.map(|all| all.replacements);
            match replaced {
                Ok(replaced) => assert!((1..=occurrences).contains(&replaced), "{replaced} of {occurrences}"),
                Err(fault) => {
                    assert!(
                        matches!(fault, EditFault::TooLong { .. }),
                        "several occurrences, but `replaceAll` fails: {fault:?}"
                    );
                }
            }
        }
        Err(EditFault::TooLong { bytes }) => assert!(bytes > MAX_BYTES),
        Err(EditFault::SameLines) => {
            assert!(old != new && old.replace("\r\n", "\n") == new.replace("\r\n", "\n"), "not the same lines");
        }
        Err(EditFault::AlreadyApplied(lines)) => {
            assert!(!text.contains(old), "{old:?} occurs in the text");
            assert!(!lines.is_empty() && everywhere.is_err(), "not found, but `replaceAll` succeeds");
        }
        Err(EditFault::Numbered(line)) => {
            assert!(!text.contains(old) && line >= 1, "{old:?} occurs in the text");
            assert!(everywhere.is_err(), "not found, but `replaceAll` succeeds");
        }
        Err(EditFault::NotFound(near)) => {
            assert!(!text.contains(old), "{old:?} occurs in the text");
            assert!(near.iter().all(|near| near.line >= 1));
            assert!(everywhere.is_err(), "not found, but `replaceAll` succeeds");
        }
    }
    // Replacing a text with itself changes nothing.
    if let Ok(same) = edit(text, old, old, true, MAX_BYTES) {
        assert_eq!(same.text, text, "{old:?} replaced with itself");
    }
}

/// Asserts that the texts differ in one range only.
fn assert_one_change(before: &str, after: &str) {
    let (before, after) = (before.as_bytes(), after.as_bytes());
    let start = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let end =
        before[start..].iter().rev().zip(after[start..].iter().rev()).take_while(|(one, other)| one == other).count();
    assert!(start + end <= before.len().min(after.len()));
}
