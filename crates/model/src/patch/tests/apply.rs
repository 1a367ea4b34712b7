use super::*;

fn text(patched: &PatchResult) -> &str {
    std::str::from_utf8(&patched.bytes).unwrap()
}

fn offsets(patched: &PatchResult) -> Vec<(u32, i64)> {
    patched.offsets.iter().map(|moved| (moved.hunk, moved.offset)).collect()
}

/// Lines `1` to `count`.
fn numbers(count: usize) -> String {
    (1..=count).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat()
}

const FIVE: &str = "@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n";

#[test]
fn a_hunk_applies_at_its_stated_line() {
    let patched = apply(&of_f(FIVE), &numbers(9)).unwrap();
    assert_eq!(text(&patched), numbers(9).replace('5', "five"));
    assert_eq!((offsets(&patched), patched.counts), (vec![], LineCounts { insertions: 1, deletions: 1 }));
}

#[test]
fn a_hunk_moves_to_the_only_other_position_and_reports_its_offset() {
    for (before, offset) in [(format!("x\ny\n{}", numbers(9)), 2), (numbers(9)[4..].to_owned(), -2)] {
        let patched = apply(&of_f(FIVE), &before).unwrap();
        assert_eq!(text(&patched), before.replace('5', "five"));
        assert_eq!(offsets(&patched), [(1, offset)]);
    }
}

#[test]
fn the_stated_line_takes_precedence_over_other_matches() {
    let before = format!("{}4\n5\n6\n", numbers(9));
    assert_eq!(text(&apply(&of_f(FIVE), &before).unwrap()), format!("{}4\n5\n6\n", numbers(9).replace('5', "five")));
}

#[test]
fn a_hunk_with_two_possible_positions_is_refused() {
    let before = format!("0\n{}4\n5\n6\n", numbers(9));
    let conflicts = apply(&of_f(FIVE), &before).unwrap_err();
    assert_eq!(conflicts[0].applies_at, [5, 11]);
    assert!(conflicts[0].reason.contains("2 times"), "{}", conflicts[0].reason);
}

#[test]
fn after_a_moved_hunk_a_match_at_the_stated_line_must_be_unique() {
    // The second hunk's lines occur at its stated line and again three lines further.
    let patch = of_f(&format!("{FIVE}@@ -10,3 +10,3 @@\n a\n-b\n+B\n c\n"));
    let before = format!("x\ny\n{}a\nb\nc\na\nb\nc\n", numbers(7));
    let conflicts = apply(&patch, &before).unwrap_err();
    assert_eq!((conflicts[0].hunk, conflicts[0].applies_at.as_slice()), (2, &[10, 13][..]));
    let before = format!("x\ny\n{}0\n0\na\nb\nc\n0\n", numbers(7));
    assert_eq!(offsets(&apply(&patch, &before).unwrap()), [(1, 2), (2, 2)]);
}

#[test]
fn a_hunk_at_the_start_or_end_of_the_file_does_not_move() {
    let start = of_f("@@ -1,2 +1,2 @@\n-1\n+one\n 2\n");
    assert_eq!(text(&apply(&start, "1\n2\n3\n").unwrap()), "one\n2\n3\n");
    let conflicts = apply(&start, "0\n1\n2\n3\n").unwrap_err();
    assert_eq!(conflicts[0].applies_at, [2]);
    let end = of_f("@@ -2,2 +2,3 @@\n 2\n 3\n+4\n");
    assert_eq!(text(&apply(&end, "1\n2\n3\n").unwrap()), "1\n2\n3\n4\n");
    assert_eq!(offsets(&apply(&end, "0\n1\n2\n3\n").unwrap()), [(1, 1)]);
    let conflicts = apply(&end, "0\n1\n2\n3\n5\n").unwrap_err();
    assert_eq!(conflicts[0].applies_at, [3]);
    assert!(conflicts[0].reason.contains("no context after"), "{}", conflicts[0].reason);
}

#[test]
fn a_hunk_without_trailing_context_is_refused_where_its_place_is_not_unique() {
    let patch = of_f("@@ -2,2 +2,2 @@\n x\n-y\n+z\n");
    for before in ["0\n1\nx\ny\nx\ny\n", "0\n1\nx\ny\n2\nx\ny\n"] {
        let conflicts = apply(&patch, before).unwrap_err();
        assert_eq!(conflicts[0].applies_at.len(), 2, "{before}");
        assert!(conflicts[0].reason.contains("2 times"), "{}", conflicts[0].reason);
    }
}

#[test]
fn a_hunk_at_its_stated_line_needs_no_trailing_context() {
    let end = of_f("@@ -2,2 +2,2 @@\n 2\n-3\n+three\n");
    assert_eq!(text(&apply(&end, "1\n2\n3\n5\n").unwrap()), "1\n2\nthree\n5\n");
    let both = of_f("@@ -1 +1,2 @@\n 1\n+2\n");
    assert_eq!(text(&apply(&both, "1\n3\n").unwrap()), "1\n2\n3\n");
}

#[test]
fn a_hunk_without_context_applies_only_at_its_stated_line() {
    let patch = of_f("@@ -2 +2 @@\n-2\n+two\n");
    assert_eq!(text(&apply(&patch, "1\n2\n3\n").unwrap()), "1\ntwo\n3\n");
    let conflicts = apply(&patch, "0\n1\n2\n3\n").unwrap_err();
    assert_eq!(conflicts[0].applies_at, [3]);
}

#[test]
fn a_hunk_of_an_empty_file_applies_to_an_empty_file_only() {
    let patch = of_f("@@ -0,0 +1 @@\n+1\n");
    assert_eq!(text(&apply(&patch, "").unwrap()), "1\n");
    assert!(apply(&patch, "0\n").unwrap_err()[0].reason.contains("empty"));
    let create = patch.replace("--- a/f", "--- /dev/null");
    assert_eq!(text(&apply(&create, "").unwrap()), "1\n");
    assert_eq!(apply(&create, "0\n").unwrap_err().len(), 1);
}

#[test]
fn a_deletion_must_cover_the_whole_file() {
    let patch = "--- a/f\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n";
    assert_eq!(text(&apply(patch, "1\n2\n").unwrap()), "");
    assert_eq!(apply(patch, "1\n2\n3\n").unwrap_err()[0].found, "3\n");
    assert_eq!(apply(patch, "0\n1\n2\n").unwrap_err().len(), 1);
    let empty = "diff --git a/f b/f\ndeleted file mode 100644\n";
    assert_eq!(text(&apply(empty, "").unwrap()), "");
    assert_eq!(apply(empty, "1\n").unwrap_err()[0].found, "1\n");
}

#[test]
fn every_hunk_that_fails_is_reported_with_the_lines_found() {
    let patch = of_f(
        "@@ -2,3 +2,3 @@\n 2\n-x\n+y\n 4\n@@ -6,3 +6,3 @@\n 6\n-7\n+seven\n 8\n@@ -11,3 +11,3 @@\n eleven\n-12\n+z\n 13\n",
    );
    let conflicts = apply(&patch, &numbers(20)).unwrap_err();
    let reported: Vec<_> = conflicts.iter().map(|c| (c.hunk, c.line, c.expected.as_str(), c.found.as_str())).collect();
    assert_eq!(reported, [(1, 2, "2\nx\n4\n", "2\n3\n4\n"), (3, 11, "eleven\n12\n13\n", "11\n12\n13\n")]);
}

#[test]
fn a_conflict_shows_the_most_likely_position_of_a_hunk() {
    let patch = of_f("@@ -2,4 +2,4 @@\n 30\n 31\n-32 \n+x\n 33\n");
    let conflict = &apply(&patch, &numbers(40)).unwrap_err()[0];
    assert_eq!((conflict.line, conflict.found.as_str()), (30, "30\n31\n32\n33\n"));
    assert!(conflict.reason.contains("white space only"), "{}", conflict.reason);
}

#[test]
fn the_end_of_the_last_line_counts() {
    let patch = of_f("@@ -1,2 +1,2 @@\n 1\n-2\n+two\n");
    let conflict = &apply(&patch, "1\n2").unwrap_err()[0];
    assert!(conflict.reason.contains("No newline at end of file"), "{}", conflict.reason);
    let without_newline = of_f("@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+two\n");
    assert_eq!(text(&apply(&without_newline, "1\n2").unwrap()), "1\ntwo\n");
    assert!(apply(&without_newline, "1\n2\n").unwrap_err()[0].reason.contains("ends in a newline"));
}

#[test]
fn a_patch_in_lf_keeps_the_crlf_of_a_file() {
    let patch = of_f("@@ -1,4 +1,5 @@\n 1\n-2\n+two\n+zwei\n 3\n 4\n");
    assert_eq!(text(&apply(&patch, "1\r\n2\r\n3\r\n4\r\n5\r\n").unwrap()), "1\r\ntwo\r\nzwei\r\n3\r\n4\r\n5\r\n");
    // Inserted lines take the ending of the line above; all others keep theirs, even if they are mixed.
    assert_eq!(text(&apply(&patch, "1\r\n2\n3\r\n4\n5\r\n").unwrap()), "1\r\ntwo\nzwei\n3\r\n4\n5\r\n");
    let end = of_f("@@ -1,2 +1,3 @@\n 1\n-2\n\\ No newline at end of file\n+2\n+3\n");
    assert_eq!(text(&apply(&end, "1\r\n2").unwrap()), "1\r\n2\r\n3\r\n");
}

#[test]
fn crlf_in_a_patch_is_compared_exactly() {
    let patch = of_f("@@ -1,2 +1,2 @@\n-1\r\n+1\n 2\r\n");
    assert_eq!(text(&apply(&patch, "1\r\n2\r\n").unwrap()), "1\n2\r\n");
    assert!(apply(&patch, "1\n2\n").unwrap_err()[0].reason.contains("CR LF"));
}

#[test]
fn a_byte_order_mark_is_preserved() {
    let patch = of_f("@@ -1,2 +1,2 @@\n-1\n+one\n 2\n");
    assert_eq!(text(&apply(&patch, "\u{feff}1\n2\n").unwrap()), "\u{feff}one\n2\n");
    let marked = of_f("@@ -1,2 +1,2 @@\n-\u{feff}1\n+one\n 2\n");
    assert_eq!(text(&apply(&marked, "\u{feff}1\n2\n").unwrap()), "one\n2\n");
}

#[test]
fn text_in_other_encodings_is_patched_by_its_characters() {
    let patch = section(&of_f("@@ -1,2 +1,2 @@\n café\n-1\n+déjà vu\n"));
    assert_eq!(patch.apply(b"caf\xe9\n1\n").unwrap().bytes, b"caf\xe9\nd\xe9j\xe0 vu\n");
    let utf16 = crate::encode("café\r\n1\r\n", crate::Encoding::Utf16Le).unwrap();
    let want = crate::encode("café\r\ndéjà vu\r\n", crate::Encoding::Utf16Le).unwrap();
    assert_eq!(patch.apply(&utf16).unwrap().bytes, want);
    let kanji = section(&of_f("@@ -1,2 +1,2 @@\n café\n-1\n+漢\n"));
    assert_eq!(kanji.apply(b"caf\xe9\n1\n"), Err(PatchFault::NotEncodable));
    // Hunks that do not match are reported before characters that cannot be encoded.
    assert_eq!(conflicts(kanji.apply(b"caf\xe9\n2\n").unwrap_err()).len(), 1);
}

#[test]
fn a_patch_that_is_not_utf8_is_applied_as_bytes() {
    let patch = Patch::parse_bytes(b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n caf\xe9\n-\xff\n+\xfe\n").unwrap();
    assert_eq!(patch.files[0].apply(b"caf\xe9\n\xff\n").unwrap().bytes, b"caf\xe9\n\xfe\n");
}

#[test]
fn searches_are_bounded_for_repetitive_lines() {
    let before = "x\n".repeat(600_000);
    let lines = " x\n".repeat(5000);
    // No match, though almost all lines match at every position.
    let patch = of_f(&format!("@@ -7,5001 +7,5002 @@\n{lines}+z\n y\n"));
    assert_eq!(apply(&patch, &before).unwrap_err().len(), 1);
    let patch = of_f(&format!("@@ -599999,5001 +599999,5002 @@\n{lines}+z\n x\n"));
    assert_eq!(apply(&patch, &before).unwrap_err()[0].applies_at.len(), 20);
    // Thousands of hunks, all with wrong line numbers: at some point the search gives up.
    let hunk = |at| format!("@@ -{at},3 +{at},3 @@\n x\n-y\n+z\n x\n");
    let hunks: Vec<_> = (0..3000).map(|number| hunk(4 * number + 2)).collect();
    let conflicts = apply(&of_f(&hunks.concat()), &before).unwrap_err();
    assert_eq!(conflicts.len(), 100);
    assert!(conflicts[99].reason.contains("too many hunks"), "{}", conflicts[99].reason);
}

#[test]
fn the_searches_for_all_hunks_of_a_patch_are_bounded() {
    let before = format!("{}\n", "y".repeat(190)).repeat(700);
    let hunks: Vec<_> =
        (0..60).map(|number| format!("@@ -{0},3 +{0},3 @@\n x\n-old\n+new\n x\n", 1 + number * 7)).collect();
    let hunks = hunks.concat();
    let file = section(&format!("--- a/a\n+++ b/a\n{hunks}"));
    let mut budget = crate::PatchBudget::default();
    for number in 0..400 {
        let conflicts =
            conflicts(file.apply_within(before.as_bytes(), PatchLeniency::Strict, &mut budget).unwrap_err());
        assert_eq!(conflicts.len(), 60);
        let is_first = conflicts[0].reason.ends_with("nothing similar does");
        assert!(is_first || number > 0, "{:?}", conflicts[0]);
        assert!(conflicts.iter().all(|conflict| !conflict.found.is_empty()));
    }
}

#[test]
fn a_last_line_without_a_newline_is_never_joined_to_a_line_that_follows() {
    let hunks = [
        // Without context, with context before it, at the start of the file, and with a wrong count.
        "@@ -2 +2 @@\n-2\n+z\n\\ No newline at end of file\n",
        "@@ -2,2 +2,2 @@\n 2\n-3\n+z\n\\ No newline at end of file\n",
        "@@ -1 +1,2 @@\n 1\n+z\n\\ No newline at end of file\n",
        "@@ -1,2 +1,2 @@\n 1\n+z\n\\ No newline at end of file\n",
    ];
    for (hunk, lines) in hunks.into_iter().zip([2, 3, 1, 1]) {
        let conflicts = apply(&of_f(hunk), &numbers(5)).unwrap_err();
        assert!(conflicts[0].reason.contains("the file must end with it"), "{hunk}: {}", conflicts[0].reason);
        let patched = apply(&of_f(hunk), &numbers(lines)).unwrap();
        assert!(text(&patched).ends_with("\nz") || text(&patched) == "z", "{hunk}");
    }
}

#[test]
fn two_hyphens_at_the_end_of_a_hunk_that_is_read_to_its_end_delete_a_line() {
    for header in ["@@ -1,9 +1,9 @@", "@@"] {
        let patch = of_f(&format!("{header}\n a\n-b\n+B\n--\n"));
        assert_eq!(text(&apply(&patch, "a\nb\n-\n").unwrap()), "a\nB\n");
        assert!(apply(&patch, "a\nb\n").is_err());
        let signed = of_f(&format!("{header}\n a\n-b\n+B\n-- \n2.47\n"));
        assert_eq!(text(&apply(&signed, "a\nb\n").unwrap()), "a\nB\n");
    }
}
