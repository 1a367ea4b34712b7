//! Edits: an input is the old text, the new one and the file's, with a line of `====` between them.

use model::{EditFault, edit};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "edit",
    run,
    words: &[
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
    tries: 15_000,
};

/// The most that a result may have.
const MAX_BYTES: u64 = 1 << 20;

fn run(input: &[u8]) {
    let input = String::from_utf8_lossy(input);
    let mut parts = input.splitn(3, "\n====\n");
    let (old, new, text) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // The tool refuses it before it comes here.
    if old.is_empty() {
        return;
    }
    let everywhere = edit(text, old, new, true, MAX_BYTES);
    match edit(text, old, new, false, MAX_BYTES) {
        Ok(once) => {
            assert_eq!(once.replacements, 1);
            assert_eq!(everywhere.as_ref(), Ok(&once), "the only place is every place");
            surrounds(text, &once.text);
        }
        Err(EditFault::NotUnique { occurrences: places, lines }) => {
            assert!(
                !lines.is_empty() && lines.iter().all(|line| *line >= 1 && *line <= text.lines().count() as u64 + 1)
            );
            assert!(places > 1 && lines.len() as u64 <= places, "not unique, and not several");
            // Occurrences that overlap are replaced once, and counted each.
            let replaced = everywhere.map(|all| all.replacements);
            match replaced {
                Ok(replaced) => assert!((1..=places).contains(&replaced), "{replaced} of {places}"),
                Err(fault) => {
                    assert!(matches!(fault, EditFault::TooLong { .. }), "several places, and not all: {fault:?}");
                }
            }
        }
        Err(EditFault::TooLong { bytes }) => assert!(bytes > MAX_BYTES),
        Err(EditFault::NotFound(near)) => {
            assert!(!text.contains(old), "{old:?} is there");
            assert!(near.iter().all(|near| near.line >= 1));
            assert!(everywhere.is_err(), "found nowhere, and everywhere");
        }
    }
    // An edit that puts in what was there leaves everything as it was.
    if let Ok(same) = edit(text, old, old, true, MAX_BYTES) {
        assert_eq!(same.text, text, "{old:?} for itself");
    }
}

/// A replacement changes one stretch: what stands before and behind it stays.
fn surrounds(before: &str, after: &str) {
    let (before, after) = (before.as_bytes(), after.as_bytes());
    let start = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let end =
        before[start..].iter().rev().zip(after[start..].iter().rev()).take_while(|(one, other)| one == other).count();
    assert!(start + end <= before.len().min(after.len()));
}
