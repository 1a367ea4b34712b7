use super::*;
use crate::Code;

/// A patch in this format that updates `f`.
fn update(hunks: &str) -> String {
    format!("*** Begin Patch\n*** Update File: f\n{hunks}*** End Patch\n")
}

fn applied(hunks: &str, before: &str) -> Result<String, Vec<Conflict>> {
    apply(&update(hunks), before).map(|patched| String::from_utf8(patched.bytes).unwrap())
}

#[test]
fn files_are_added_updated_moved_and_deleted() {
    let patch = "*** Begin Patch\n*** Add File: d/new\n+one\n+\n+two\n*** Add File: empty\n*** Update File: f\n@@\n a\n-b\n+B\n\n\
                 *** Update File: old\n*** Move to: to/new name\n@@ head\n-x\n+y\n*** Update File: p\n*** Move to: q\n\
                 *** Delete File: gone\n*** End Patch\n\n";
    let patch = Patch::parse(patch).unwrap();
    let summaries: Vec<_> = patch
        .files
        .iter()
        .map(|section| format!("{:?} {} {} #{}", section.operation, section.from, section.path, section.hunks.len()))
        .collect();
    let want = [
        "Create d/new d/new #1",
        "Create empty empty #0",
        "Modify f f #1",
        "Rename old to/new name #1",
        "Rename p q #0",
        "Delete gone gone #0",
    ];
    assert_eq!(summaries, want);
    assert_eq!(patch.files[0].apply(b"").unwrap().bytes, b"one\n\ntwo\n");
    assert_eq!(patch.files[2].apply(b"a\nb\n").unwrap().bytes, b"a\nB\n");
    assert_eq!(patch.files[3].apply(b"head\nx\n").unwrap().bytes, b"head\ny\n");
    let gone = patch.files[5].apply(b"any\ncontent\n").unwrap();
    assert_eq!((gone.bytes, gone.counts.deletions), (Vec::new(), 2));
}

#[test]
fn hunks_are_found_by_their_context() {
    let before = "a\nb\nc\nd\ne\n";
    assert_eq!(applied(" b\n-c\n+C\n", before).unwrap(), "a\nb\nC\nd\ne\n");
    assert_eq!(applied("@@\n-b\n+B\n@@\n d\n+x\n e\n", before).unwrap(), "a\nB\nc\nd\nx\ne\n");
    assert_eq!(applied("@@ -7,2 +7,2 @@ fn x\n-e\n+E\n", before).unwrap(), "a\nb\nc\nd\nE\n");
    let conflicts = applied("@@\n-x\n+y\n@@\n-z\n+y\n", before).unwrap_err();
    assert_eq!(conflicts.iter().map(|conflict| conflict.hunk).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn context_that_occurs_twice_is_refused_with_its_lines() {
    let conflicts = applied("@@\n x\n-y\n+z\n", "x\ny\nx\ny\n").unwrap_err();
    assert_eq!(conflicts[0].applies_at, [1, 3]);
}

#[test]
fn a_hunk_is_found_after_the_previous_one() {
    assert_eq!(applied("@@\n x\n-a\n+A\n y\n@@\n x\n-b\n+B\n", "x\na\ny\nx\nb\n").unwrap(), "x\nA\ny\nx\nB\n");
    let before = "b\n".repeat(30) + "x\na\nb\nc\n";
    assert_eq!(applied("@@\n x\n-a\n@@\n-b\n", &before).unwrap(), "b\n".repeat(30) + "x\nc\n");
    let conflicts = applied("@@\n-two\n+2\n@@\n-one\n+1\n", "one\ntwo\n").unwrap_err();
    let told = "its line occurs only at line 1, before an earlier hunk: put the hunks in the order of the file";
    assert_eq!((conflicts[0].hunk, conflicts[0].reason.as_str(), &conflicts[0].applies_at[..]), (2, told, &[1][..]));
    assert!(conflicts[0].expected.is_empty(), "{conflicts:?}");
    let conflicts = applied("@@ b\n-a\n+A\n", "a\nb\n").unwrap_err();
    assert_eq!(conflicts[0].reason, "its line occurs only at line 1, above the line that its `@@` line names");
}

#[test]
fn an_anchor_selects_one_of_several_positions() {
    let before =
        "class A:\n    def f():\n        pass\n    def g():\n        pass\n\nclass B:\n    def f():\n        pass\n";
    let patched = applied("@@ class A:\n@@     def g():\n-        pass\n+        return 1\n", before).unwrap();
    assert_eq!(patched, before.replacen("def g():\n        pass", "def g():\n        return 1", 1));
    let patched = applied("@@ class A:\n@@ def f():\n-        pass\n+        return 1\n", before).unwrap();
    assert_eq!(patched, before.replacen("pass", "return 1", 1));
    let patched = applied("@@ class B:\n-        pass\n+        return 1\n", before).unwrap();
    assert_eq!(
        patched,
        "class A:\n    def f():\n        pass\n    def g():\n        pass\n\nclass B:\n    def f():\n        return 1\n"
    );
    let conflicts = applied("@@ class A:\n-        pass\n+        return 1\n", before).unwrap_err();
    assert_eq!(conflicts[0].applies_at, [3, 5, 9]);
}

#[test]
fn a_conflict_about_an_anchor_says_whether_it_is_missing_or_repeated() {
    let before = "class A:\n    def f():\n        pass\n\nclass B:\n    def f():\n        pass\n";
    for (anchors, reason, line, found) in [
        ("@@ class B\n", "no line is exactly `class B`, as its `@@` line says", 5, "class B:\n"),
        (
            "@@ entirely other\n",
            "no line is exactly `entirely other`, as its `@@` line says, and none is similar",
            1,
            "",
        ),
        ("@@ def f():\n", "the line `def f():` of its `@@` line is repeated, at lines 2, 6", 2, ""),
        (
            "@@ class B:\n@@ class A:\n",
            "the line `class A:` of its `@@` line is only at line 1, which is before",
            1,
            "",
        ),
    ] {
        let conflicts = applied(&format!("{anchors}-        pass\n+        return 1\n"), before).unwrap_err();
        let Conflict { reason: told, line: at, found: shown, expected, .. } = &conflicts[0];
        assert!(told.starts_with(reason), "{told}");
        assert_eq!((*at, shown.as_str()), (line, found), "{anchors}");
        assert!(expected.is_empty() || expected != shown, "{expected}");
    }
}

#[test]
fn a_conflict_invents_no_similar_text() {
    let conflicts = applied("@@\n-wholly other\n+text\n", "fn a() {\n    1\n}\n").unwrap_err();
    assert_eq!((conflicts[0].found.as_str(), conflicts[0].line), ("", 1));
    assert!(conflicts[0].reason.contains("nothing similar"), "{}", conflicts[0].reason);
    let conflicts = applied("@@\n-    let lmit = 1;\n+    x\n", "fn a() {\n    let limit = 1;\n}\n").unwrap_err();
    assert_eq!((conflicts[0].found.as_str(), conflicts[0].line), ("    let limit = 1;\n", 2));
}

#[test]
fn a_conflict_names_differences_that_cannot_be_seen() {
    for (old, line, named) in [
        ("a b", "a\u{a0}b", "white space only: U+00A0 in the file, U+0020 in the patch, at column 2"),
        ("caf\u{e9} x", "cafe\u{301} x", "look the same: U+0065 U+0301 in the file, U+00E9 in the patch, at column 4"),
    ] {
        let conflicts = applied(&format!("@@\n-{old}\n+new text\n"), &format!("x\n{line}\n")).unwrap_err();
        assert!(conflicts[0].reason.contains(named), "{}", conflicts[0].reason);
    }
}

#[test]
fn a_hunk_that_is_applied_already_says_so() {
    let after = "one\ntwo\n2\nthree\n";
    for (hunk, line) in [("@@\n one\n-zwei\n+two\n+2\n", 1), ("@@\n-x\n+three\n", 4), ("@@\n two\n-x\n 2\n", 2)] {
        let conflicts = applied(hunk, after).unwrap_err();
        assert_eq!(conflicts[0].reason, format!("already applied: its new lines are at line {line}"), "{hunk}");
    }
    assert!(!applied("@@\n-x\n", after).unwrap_err()[0].reason.contains("already"));
}

#[test]
fn an_empty_line_before_the_end_of_the_file_is_context() {
    assert_eq!(applied("@@\n a\n-b\n+B\n\n*** End of File\n", "a\nb\n\n").unwrap(), "a\nB\n\n");
    assert_eq!(applied("@@\n a\n-b\n+B\n\n", "a\nb\n\n").unwrap(), "a\nB\n\n");
}

#[test]
fn a_hunk_can_state_the_end_of_the_file() {
    assert_eq!(applied("@@\n x\n-y\n+z\n*** End of File\n", "x\ny\nx\ny\n").unwrap(), "x\ny\nx\nz\n");
    assert_eq!(applied("@@\n+z\n*** End of File\n", "x\n").unwrap(), "x\nz\n");
    assert_eq!(applied("@@\n-x\n+z\n*** End of File\n", "x\ny\n").unwrap_err()[0].applies_at, [1]);
}

#[test]
fn the_line_endings_of_the_file_are_preserved() {
    assert_eq!(applied("@@\n x\n-y\n+z\n+w\n", "x\r\ny\r\n").unwrap(), "x\r\nz\r\nw\r\n");
    assert_eq!(applied("@@\n x\n-y\n+z\n", "x\ny").unwrap(), "x\nz");
    assert_eq!(applied("@@\n+z\n*** End of File\n", "x\r\ny").unwrap(), "x\r\ny\r\nz");
}

#[test]
fn text_outside_the_format_is_refused_with_its_line() {
    let whole = |body: &str| format!("*** Begin Patch\n{body}*** End Patch\n");
    let table = [
        (whole(""), "line 1 of the patch: the patch changes no file"),
        ("*** Begin Patch\n*** Delete File: f\n".to_owned(), "line 3 of the patch: the patch ends without"),
        (whole("junk\n"), "line 2 of the patch: `junk` is not valid"),
        (whole("*** Update File: f\n"), "line 2 of the patch: the file's section changes nothing"),
        (whole("*** Update File: f\n@@\n x\n"), "line 3 of the patch: the hunk changes nothing"),
        (whole("*** Update File: f\n@@\n"), "line 3 of the patch: the hunk changes nothing"),
        (whole("*** Update File: f\n@@\n-x\nyes\n"), "line 5 of the patch: `yes` is not a line of a hunk"),
        (whole("*** Add File: f\n+x\nyes\n"), "line 4 of the patch: `yes` does not begin with `+`"),
        (whole("*** Delete File: f\n-x\n"), "line 3 of the patch: `-x` is not valid"),
        (whole("*** Delete File: f\n") + "more\n", "line 4 of the patch: text follows"),
        (whole("*** Delete File: f\n*** Add File: ./f\n+x\n"), "line 3 of the patch: `f` is already changed at line 2"),
    ];
    for (patch, want) in table {
        let refusal = Patch::parse(&patch).expect_err(&patch);
        assert_eq!(refusal.code, Code::PatchInvalid, "{patch}");
        assert!(refusal.message.starts_with(want), "{}\n  wanted: {want}\n{patch}", refusal.message);
    }
    let outside = whole("*** Delete File: ../f\n");
    assert_eq!(Patch::parse(&outside).expect_err(&outside).code, Code::PathRejected);
    let nameless = whole("*** Delete File: \n");
    assert_eq!(Patch::parse(&nameless).expect_err(&nameless).code, Code::PathRejected);
}

#[test]
fn headers_may_have_blanks_around_them() {
    let patch = "\n  *** Begin Patch  \n\t*** Add File: a \n+one\n *** Update File:  f\n@@\n-x\n+y\n\t*** Delete File: gone\n  \n\
                 *** Update File: g\n-x\n+z\n   *** End Patch \n \n";
    let patch = Patch::parse(patch).unwrap();
    let paths: Vec<_> = patch.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a", "f", "gone", "g"]);
    assert_eq!(patch.files[1].apply(b"x\n").unwrap().bytes, b"y\n");
    assert_eq!(patch.files[3].apply(b"x\n").unwrap().bytes, b"z\n");
}

#[test]
fn headers_may_be_closed_as_the_first_one_is() {
    let patch = "*** Begin Patch ***\n*** Add File: a ***\n+one\n*** Update File: f ***\n*** Move to: g ***\n@@\n x\n-y\n+z\n\
                 *** End of File ***\n*** End Patch ***\n";
    let files = Patch::parse(patch).unwrap().files;
    let paths: Vec<_> = files.iter().map(|file| (file.from.as_str(), file.path.as_str())).collect();
    assert_eq!(paths, [("a", "a"), ("f", "g")]);
    assert_eq!(files[1].apply(b"x\ny\n").unwrap().bytes, b"x\nz\n");
    let open = Patch::parse("*** Begin Patch\n*** Delete File: a ***\n*** End Patch\n").unwrap();
    assert_eq!(open.files[0].path.as_str(), "a ***");
    let refusal = Patch::parse(&update("@@\n-x\n+y\n").replace("End Patch", "End Patch ***")).unwrap_err();
    assert!(refusal.message.contains("`*** End Patch ***` is not valid"), "{refusal}");
}

#[test]
fn lines_with_the_numbers_of_a_reader_are_told() {
    for hunks in ["@@\n 1  alpha\n-2  beta\n+2  BETA\n", "@@\n-     2\tbeta\n+     2\tBETA\n"] {
        let conflicts = applied(hunks, "alpha\nbeta\n").unwrap_err();
        assert!(conflicts[0].reason.starts_with("its lines begin with line numbers"), "{}", conflicts[0].reason);
    }
    let reason = applied("@@\n-2\n+3\n", "\n1\n").unwrap_err().remove(0).reason;
    assert!(!reason.contains("line numbers"), "{reason}");
}

#[test]
fn a_lenient_patch_ignores_the_form_of_blanks_and_punctuation_where_one_place_is_left() {
    let lenient = |hunks: &str, before: &str| {
        let files = Patch::parse(&update(hunks)).unwrap().files;
        files[0].apply_within(before.as_bytes(), PatchLeniency::Lenient, &mut PatchBudget::default())
    };
    let before = "say(\u{201c}a\u{201d}) \u{2014} 1\t\n  next\u{a0}line\nend";
    let hunks = "@@\n say(\"a\") - 1\n-  next line\n+  new line\n";
    let patched = lenient(hunks, before).unwrap();
    assert_eq!(String::from_utf8(patched.bytes).unwrap(), "say(\u{201c}a\u{201d}) \u{2014} 1\t\n  new line\nend\n");
    assert!(patched.is_lenient);
    // `apply_patch` itself has no fuzz, and keeps the end of the file.
    applied(hunks, before).unwrap_err();
    assert_eq!(applied("@@\n-a\n+b\n", "a\nend").unwrap(), "b\nend");
    let exact = lenient("@@\n-a\n+b\n", "a\nend").unwrap();
    assert_eq!((exact.bytes.as_slice(), exact.is_lenient), (&b"b\nend\n"[..], false));
    // Blanks at the start of a line, and letters, are what they are.
    for (hunks, before) in [("@@\n-a\n+b\n", "  a\n"), ("@@\n-a\n+b\n", "\u{430}\n")] {
        lenient(hunks, before).unwrap_err();
    }
    let PatchFault::Conflicts(conflicts) = lenient("@@\n-a\n+b\n", "a \nx\na\t\n").unwrap_err() else { panic!() };
    assert_eq!(conflicts[0].applies_at, [1, 3]);
    // The anchor too, and the endings of the file stay.
    let patched = lenient("@@ class 'A':\n-x \n+y\n", "class \u{2018}A\u{2019}:\r\n  z\r\nx\r\n").unwrap();
    assert_eq!(String::from_utf8(patched.bytes).unwrap(), "class \u{2018}A\u{2019}:\r\n  z\r\ny\r\n");
}

#[test]
fn a_header_with_a_space_before_it_is_a_line_of_its_hunk() {
    let text = "*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n *** Update File: g\n-x\n+z\n*** End Patch\n";
    let patch = Patch::parse(text).unwrap();
    assert_eq!(patch.files.len(), 1);
    assert_eq!(patch.files[0].apply(b"x\n*** Update File: g\nx\n").unwrap().bytes, b"y\n*** Update File: g\nz\n");
    // Where the file has no such line, the refusal names the header.
    patch.files[0].apply(b"x\n").unwrap_err();
    let refusal = Patch::padded_header(text, &patch.files[0]).unwrap();
    assert_eq!(refusal.code, Code::PatchInvalid);
    assert!(refusal.message.starts_with("line 6 of the patch: `*** Update File: g` begins with a blank"), "{refusal}");
    let other = update("@@\n x\n-y\n");
    assert_eq!(Patch::padded_header(&other, &Patch::parse(&other).unwrap().files[0]), None);
}

#[test]
fn lines_without_context_belong_under_their_anchor_or_at_the_end() {
    assert_eq!(applied("@@\n+z\n", "x\ny\n").unwrap(), "x\ny\nz\n");
    assert_eq!(applied("+z\n+w\n", "x\ny").unwrap(), "x\ny\nz\nw");
    assert_eq!(applied("+z\n", "").unwrap(), "z\n");
    assert_eq!(applied("@@\n+z\n", "x\r\n").unwrap(), "x\r\nz\r\n");
    let before = "class A:\n    x = 1\nclass B:\n    y = 2\n";
    assert_eq!(
        applied("@@ class A:\n+    z = 3\n", before).unwrap(),
        "class A:\n    z = 3\n    x = 1\nclass B:\n    y = 2\n"
    );
    assert_eq!(
        applied("@@ class A:\n+    z = 3\n@@ class B:\n-    y = 2\n+    y = 4\n@@\n+end\n", before).unwrap(),
        "class A:\n    z = 3\n    x = 1\nclass B:\n    y = 4\nend\n"
    );
    let conflicts = applied("@@ class C:\n+    z = 3\n", before).unwrap_err();
    assert!(conflicts[0].reason.contains("class C:"), "{}", conflicts[0].reason);
}
