use proptest::prelude::*;

use super::*;

fn merged(base: &str, current: &str, new: &str) -> Result<String, MergeFault> {
    merge(base.as_bytes(), current.as_bytes(), new).map(|bytes| String::from_utf8(bytes).unwrap())
}

const BASE: &str = "one\ntwo\nthree\nfour\nfive\n";

#[test]
fn changes_of_different_lines_are_merged() {
    let table = [
        (BASE, "ONE\ntwo\nthree\nfour\nfive\n", "one\ntwo\nthree\nfour\nFIVE\n", "ONE\ntwo\nthree\nfour\nFIVE\n"),
        (
            BASE,
            "one\ntwo\nthree\nfour\nfive\nsix\n",
            "zero\none\ntwo\nthree\nfour\nfive\n",
            "zero\none\ntwo\nthree\nfour\nfive\nsix\n",
        ),
        (BASE, "one\ntwo\nthree\nfour\n", "ONE\ntwo\nthree\nfour\nfive\n", "ONE\ntwo\nthree\nfour\n"),
        // The same change on both sides is made once.
        (BASE, "one\nTWO\nthree\nfour\nfive\n", "one\nTWO\nthree\nfour\nFIVE\n", "one\nTWO\nthree\nfour\nFIVE\n"),
        // Only line endings differ between the sides.
        (
            BASE,
            "ONE\r\ntwo\r\nthree\r\nfour\r\nfive\r\n",
            "one\ntwo\nthree\nfour\nFIVE\n",
            "ONE\r\ntwo\r\nthree\r\nfour\r\nFIVE\r\n",
        ),
        ("one\r\ntwo\r\nthree\r\n", "ONE\ntwo\nthree\n", "one\r\ntwo\r\nTHREE\r\n", "ONE\ntwo\nTHREE\n"),
        // Lines of a file that mixes endings keep theirs.
        ("a\r\nb\nc\r\nd\n", "A\r\nb\nc\r\nd\n", "a\nb\nc\nd\ne\n", "A\r\nb\nc\r\nd\ne\n"),
        ("a\r\nb\nc\r\nd\n", "a\r\nb\nc\r\nD\n", "a\nx\nb\nc\nd\n", "a\r\nx\r\nb\nc\r\nD\n"),
        // The final newline is merged by itself.
        ("a\nb\nc", "A\nb\nc", "a\nb\nc\n", "A\nb\nc\n"),
        ("a\nb\nc", "a\nb\nc\n", "A\nb\nc", "A\nb\nc\n"),
        ("a\nb\nc", "A\nb\nc", "a\nb\nc\nd", "A\nb\nc\nd"),
        ("a\r\nb\r\nc", "A\r\nb\r\nc", "a\nb\nC", "A\r\nb\r\nC"),
        // The byte order mark is that of the file.
        ("\u{feff}a\nb\nc\n", "\u{feff}A\nb\nc\n", "a\nb\nC\n", "\u{feff}A\nb\nC\n"),
        ("a\nb\nc\n", "A\nb\nc\n", "\u{feff}a\nb\nC\n", "A\nb\nC\n"),
        ("", "", "a\n", "a\n"),
        ("a\nb\nc\n", "", "a\nb\nc\n", ""),
    ];
    for (base, current, new, want) in table {
        assert_eq!(merged(base, current, new).as_deref(), Ok(want), "{base:?} {current:?} {new:?}");
    }
}

#[test]
fn a_conflict_names_its_regions() {
    let Err(MergeFault::Conflicts { regions, count }) =
        merged(BASE, "zero\none\n2\nthree\nfour\nfive\n", "one\nTWO\nthree\nfour\nFIVE\n")
    else {
        panic!()
    };
    let text = str::to_owned;
    let region = ConflictRegion { line: 3, base: text("two\n"), current: text("2\n"), new: text("TWO\n") };
    assert_eq!((regions, count), (vec![region], 1));
    // A region that is removed on one side, lines that look like conflict markers, and many regions.
    let base = "<<<<<<< a\nb\n=======\nc\n";
    let Err(MergeFault::Conflicts { regions, .. }) =
        merged(base, "<<<<<<< a\n=======\nc\n", "<<<<<<< a\nB\n=======\nc\n")
    else {
        panic!()
    };
    assert_eq!((regions[0].line, &*regions[0].current, &*regions[0].new), (2, "", "B\n"));
    let many = |mark: &str| (0..30).map(|n| format!("same {n}\nstill {n}\n{mark} {n}\n")).collect::<Vec<_>>().concat();
    let Err(MergeFault::Conflicts { regions, count }) = merged(&many("a"), &many("b"), &many("c")) else { panic!() };
    assert_eq!((regions.len(), count, regions[9].line), (10, 30, 30));
    let long = |mark: &str| format!("{}\n", mark.repeat(5000)).repeat(50);
    let Err(MergeFault::Conflicts { regions, .. }) = merged(&long("a"), &long("b"), &long("c")) else { panic!() };
    assert_eq!(regions[0].new.len(), 12 * 201);
}

#[test]
fn what_is_no_text_or_too_large_is_not_merged() {
    assert_eq!(merge(b"\0", b"a", "b"), Err(MergeFault::NotText));
    assert_eq!(merge(b"a", b"\0", "b"), Err(MergeFault::NotText));
    let large = "a".repeat((1 << 20) + 1);
    assert_eq!(merged("a", "b", &large), Err(MergeFault::TooLarge { bytes: (1 << 20) + 1 }));
    // A rewrite of many lines would take `diffy` a time that grows with the square of the lines.
    let lines = |mark: &str| (0..60_000).map(|n| format!("{mark}{n}\n")).collect::<Vec<_>>().concat();
    assert_eq!(merged(&lines("a"), &lines("b"), &lines("c")), Err(MergeFault::TooDifferent));
    // Many lines with few changes are merged.
    let (base, current) = (lines("a"), lines("a") + "z\n");
    assert_eq!(merged(&base, &current, &("0\n".to_owned() + &base)).unwrap(), "0\n".to_owned() + &current);
}

#[test]
fn the_encoding_of_the_file_is_kept() {
    let utf16 = |text: &str| encode(text, crate::Encoding::Utf16Le).unwrap();
    let done = merge(&utf16("a\nb\nc\n"), &utf16("A\nb\nc\n"), "a\nb\nü\n");
    assert_eq!(done, Ok(utf16("A\nb\nü\n")));
    let latin = |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<_>>();
    let text = "Grüße an alle\nschöne Straße\nfür heute\n";
    let current = text.replace("alle", "viele");
    assert_eq!(merge(&latin(text), &latin(&current), &text.replace("heute", "→")), Err(MergeFault::NotEncodable));
}

fn lines() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc]{0,2}\n", 0..12).prop_map(|lines| lines.concat())
}

fn crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

proptest! {
    #[test]
    fn identical_sides_are_that_side(base in lines(), side in lines()) {
        prop_assert_eq!(merged(&base, &side, &side), Ok(side));
    }

    #[test]
    fn a_change_of_one_side_is_taken(base in lines(), side in lines()) {
        prop_assert_eq!(merged(&base, &side, &base), Ok(side.clone()));
        prop_assert_eq!(merged(&base, &base, &side), Ok(side));
    }

    #[test]
    fn line_endings_change_nothing_but_themselves(base in lines(), current in lines(), new in lines()) {
        let want = merged(&base, &current, &new);
        prop_assume!(!current.is_empty());
        for base in [base.clone(), crlf(&base)] {
            for new in [new.clone(), crlf(&new)] {
                prop_assert_eq!(merged(&base, &crlf(&current), &new), want.clone().map(|text| crlf(&text)));
                prop_assert_eq!(merged(&base, &current, &new), want.clone());
            }
        }
    }

    #[test]
    fn a_merge_has_what_each_side_has_added(head in lines(), middle in lines(), tail in lines()) {
        let base = format!("{head}--\n{middle}--\n--\n{tail}");
        let current = format!("first\n{base}");
        let new = format!("{base}last\n");
        prop_assert_eq!(merged(&base, &current, &new), Ok(format!("first\n{base}last\n")));
    }

    #[test]
    fn no_text_makes_a_merge_panic(base in "[ab\r\n]{0,20}", current in "[ab\r\n]{0,20}", new in "[ab\r\n]{0,20}") {
        if let Ok(done) = merged(&base, &current, &new) {
            prop_assert!(done.len() <= 3 * (current.len() + new.len()) + 2);
        }
    }
}
