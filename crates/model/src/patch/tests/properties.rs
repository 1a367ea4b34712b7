use proptest::prelude::*;

use super::*;
use crate::{Side, diff_file};

/// Texts of few different lines, so that many are equal; some without a final newline, in CRLF or no text in any encoding.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        6 => "[a-d]{0,2}\n".prop_map(String::into_bytes),
        1 => "[ab]\r\n".prop_map(String::into_bytes),
        1 => Just(b"\x01\xe9\xff\n".to_vec()),
        1 => "(-- a/f|\\+\\+ b/f|@@ -1 \\+1 @@|\\\\ No|-- |diff --git a/x b/x)\n".prop_map(String::into_bytes),
    ];
    (prop::collection::vec(line, 0..40), prop_oneof![3 => Just(""), 1 => Just("z")])
        .prop_map(|(lines, end)| [lines.concat().as_slice(), end.as_bytes()].concat())
}

fn names() -> impl Strategy<Value = LogicalPath> {
    prop_oneof![
        Just("f".to_owned()),
        "[a-zé\"\\\\\t ]{1,6}(/[a-z ]{1,4}){0,2}x",
        Just("a/b/a b/b".to_owned()),
        Just("dev/null".to_owned()),
    ]
    .prop_map(|name| LogicalPath::parse(&name).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_diff_is_parsed_applied_and_reversed(
        (old, new) in (texts(), texts()),
        (from, path) in (names(), names()),
        (old_mode, new_mode) in (prop_oneof![Just(0o644), Just(0o755)], prop_oneof![Just(0o644), Just(0o755)]),
        kind in 0..4,
    ) {
        let to = if kind == 0 { &from } else { &path };
        let old_side = (kind != 2).then_some(Side { path: &from, bytes: &old, mode: old_mode });
        let to = if kind == 3 { &from } else { to };
        let new_side = (kind != 3).then_some(Side { path: to, bytes: &new, mode: new_mode });
        let diff = diff_file(old_side, new_side);
        if diff.text.is_empty() { return Ok(()); }
        let shown = String::from_utf8_lossy(&diff.text).into_owned();
        let patch = Patch::parse_bytes(&diff.text);
        prop_assert!(patch.is_ok(), "{patch:?}\n{shown}");
        let patch = patch.unwrap();
        prop_assert_eq!(patch.files.len(), 1);
        let section = &patch.files[0];
        let (before, after) = match kind { 2 => (&b""[..], &new[..]), 3 => (&old[..], &b""[..]), _ => (&old[..], &new[..]) };
        prop_assert_eq!(&section.path, new_side.or(old_side).unwrap().path);
        prop_assert_eq!(&section.from, old_side.or(new_side).unwrap().path);
        let patched = section.apply(before);
        prop_assert!(patched.is_ok(), "{patched:?}\n{shown}");
        let patched = patched.unwrap();
        prop_assert_eq!(&patched.bytes, after, "{}", shown);
        prop_assert_eq!(patched.counts, diff.counts);
        prop_assert!(patched.offsets.is_empty());
        if let Some(reverse) = patch.reversed() {
            let undone = reverse.files[0].apply(after);
            prop_assert!(undone.is_ok(), "{undone:?}\n{shown}");
            prop_assert_eq!(&undone.unwrap().bytes, before, "{}", shown);
        }
    }

    #[test]
    fn a_patch_in_lf_keeps_a_file_in_crlf(old in "([a-d]{0,2}\n){1,30}", new in "([a-d]{0,2}\n){1,30}") {
        let path = LogicalPath::parse("f").unwrap();
        let side = |bytes| Side { path: &path, bytes, mode: 0o644 };
        let diff = diff_file(Some(side(old.as_bytes())), Some(side(new.as_bytes())));
        if diff.text.is_empty() { return Ok(()); }
        let patch = Patch::parse_bytes(&diff.text).unwrap();
        let crlf = |text: &str| text.replace('\n', "\r\n").into_bytes();
        prop_assert_eq!(patch.files[0].apply(&crlf(&old)).unwrap().bytes, crlf(&new));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "((diff --git a/f b/f|--- a/f|\\+\\+\\+ b/f|@@ -[0-3](,[0-3])? \\+[0-3](,[0-3])? @@|[-+ \\\\][ab ]{0,2}|new file mode 100644|rename from f|-- |\\*\\*\\* (Begin Patch|End Patch|Update File: f|Add File: g|End of File)|@@|)\r?\n){0,14}", before in texts()) {
        if let Ok(patch) = Patch::parse(&text) {
            for section in &patch.files {
                drop(section.apply(&before));
            }
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(Patch::parse_bytes(&text));
    }

    #[test]
    fn a_changed_diff_is_applied_correctly_or_refused(
        (old, new) in (texts(), texts()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![Just(None), any::<u8>().prop_map(Some)]), 1..4),
    ) {
        let path = LogicalPath::parse("f").unwrap();
        let side = |bytes| Side { path: &path, bytes, mode: 0o644 };
        let mut text = diff_file(Some(side(&old)), Some(side(&new))).text;
        for (at, byte) in changes {
            if text.is_empty() { return Ok(()); }
            let at = at.index(text.len());
            match byte {
                Some(byte) => text[at] = byte,
                None => drop(text.remove(at)),
            }
        }
        if let Ok(patch) = Patch::parse_bytes(&text) {
            for section in &patch.files {
                // A line without content and without a newline counts as a line but adds no bytes.
                let nothing = section.hunks.iter().flat_map(|hunk| &hunk.lines).any(|line| line.bytes().is_empty());
                if let Some(patched) = section.apply(&old).ok().filter(|_| !nothing) {
                    let lines = |bytes: &[u8]| bytes.split_inclusive(|byte| *byte == b'\n').count() as u64;
                    let want = lines(&old) + patched.counts.insertions;
                    prop_assert!(section.ignores_content || lines(&patched.bytes) + patched.counts.deletions == want);
                }
            }
        }
    }
}
