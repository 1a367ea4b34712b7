use super::*;
use crate::Code;

/// A short summary of a file patch.
fn summary(section: &FilePatch) -> String {
    let mode = section.mode.map(|mode| format!(" {mode:o}")).unwrap_or_default();
    format!("{:?} {} {}{mode} #{}", section.operation, section.from, section.path, section.hunks.len())
}

fn sections(patch: &str) -> Vec<String> {
    let patch = Patch::parse(patch).unwrap_or_else(|refusal| panic!("{refusal}:\n{patch}"));
    patch.files.iter().map(summary).collect()
}

#[test]
fn every_form_of_file_header_is_parsed() {
    let table: [(&str, &[&str]); 22] = [
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", &["Modify f f #1"]),
        ("--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b", &["Modify f f #1"]),
        ("--- a/f\t2024-01-01 00:00:00.0 +0000\n+++ b/f\tnow\n@@ -1 +1 @@\n-a\n+b\n", &["Modify f f #1"]),
        ("--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+b\n", &["Create d/f d/f #1"]),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", &["Delete f f #1"]),
        ("--- a/f\t1970-01-01 01:00:00.0 +0100\n+++ b/f\t2024-01-01\n@@ -0,0 +1 @@\n+b\n", &["Create f f #1"]),
        ("--- a/f\t2024-01-01\n+++ b/f\t1970-01-01 00:00:00.0 +0000\n@@ -1 +0,0 @@\n-b\n", &["Delete f f #1"]),
        ("diff -ruN old/f new/f\n--- old/f\n+++ new/f\n@@ -1 +1 @@\n-a\n+b\n", &["Modify f f #1"]),
        ("Index: f\n========\n--- f\t(revision 1)\n+++ f\t(working copy)\n@@ -1 +1 @@\n-a\n+b\n", &["Modify f f #1"]),
        ("diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@ fn a()\n-a\n+b\n", &["Modify f f #1"]),
        ("diff --git src/f src/f\n--- src/f\n+++ src/f\n@@ -1 +1 @@\n-a\n+b\n", &["Modify src/f src/f #1"]),
        ("diff --git i/f w/f\n--- i/f\n+++ w/f\n@@ -1 +1 @@\n-a\n+b\n", &["Modify f f #1"]),
        (
            "diff --git a/f b/f\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n",
            &["Create f f 755 #1"],
        ),
        ("diff --git a/f b/f\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n", &["Create f f #1"]),
        ("diff --git a/a b b/a b\nnew file mode 100644\nindex 0..e69\n", &["Create a b a b 644 #0"]),
        ("diff --git a/f b/f\ndeleted file mode 100644\nindex e69..0\n", &["Delete f f #0"]),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", &["Modify f f 755 #0"]),
        ("diff --git a/a b/c/d\nsimilarity index 100%\nrename from a\nrename to c/d\n", &["Rename a c/d #0"]),
        (
            "diff --git a/a b b/c d\nsimilarity index 90%\nrename from a b\nrename to c d\nindex 1..2 100644\n--- a/a b\t\n+++ b/c d\t\n@@ -1 +1 @@\n-a\n+b\n",
            &["Rename a b c d #1"],
        ),
        ("diff --git a/a b/b\nsimilarity index 100%\ncopy from a\ncopy to b\n", &["Copy a b #0"]),
        (
            "diff --git \"a/\\303\\251\\t\\\"\" \"b/\\303\\251\\t\\\"\"\n--- \"a/\\303\\251\\t\\\"\"\n+++ \"b/\\303\\251\\t\\\"\"\n@@ -1 +1 @@\n-a\n+b\n",
            &["Modify é\t\" é\t\" #1"],
        ),
        ("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-a\n+b\n\n c\n\n@@ -9,2 +9 @@\n a\n-b\n\n", &["Modify f f #2"]),
    ];
    for (patch, want) in table {
        assert_eq!(sections(patch), want, "{patch}");
    }
}

#[test]
fn a_patch_may_mix_git_and_plain_headers() {
    let git = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n";
    let plain = "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n@@ -7 +7,2 @@\n c\n+d\n";
    let renamed = "diff --git a/h b/i\nsimilarity index 100%\nrename from h\nrename to i\n";
    for patch in [[git, plain, renamed], [plain, git, renamed], [renamed, git, plain], [plain, renamed, git]] {
        let mut found = sections(&patch.concat());
        found.sort();
        assert_eq!(found, ["Modify f f #1", "Modify g g #2", "Rename h i #0"]);
        assert_eq!(sections(&patch.join("\n\n")).len(), 3);
    }
}

#[test]
fn the_header_and_signature_of_a_mail_are_ignored() {
    let mail = "From 0123456789 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH] x\n\nText.\n---\n f | 2 +-\n\n\
                diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n-- \n2.47.3\n\n";
    assert_eq!(sections(mail), ["Modify f f #1"]);
    let shown = "commit 0123\nAuthor: A\n\n    Text.\n\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(sections(shown), ["Modify f f #1"]);
}

#[test]
fn lines_of_a_file_that_look_like_headers_are_lines() {
    let patch = of_f("@@ -1,4 +1,4 @@\n--- a/g\n+++ b/g\n @@ -1 +1 @@\n diff --git a/x b/x\n-- \n++ \n");
    let lines = &section(&patch).hunks[0].lines;
    assert_eq!(lines[0], HunkLine::Delete(b"-- a/g\n".to_vec()));
    assert_eq!(lines[4], HunkLine::Delete(b"- \n".to_vec()));
    assert_eq!(lines.len(), 6);
}

#[test]
fn a_patch_entirely_in_crlf_is_read_as_lf() {
    let patch = "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n";
    assert_eq!(section(&patch.replace('\n', "\r\n")), section(patch));
    let kept = of_f("@@ -1 +1 @@\n-a\r\n+b\r\n");
    assert_eq!(section(&kept).hunks[0].lines[0], HunkLine::Delete(b"a\r\n".to_vec()));
}

#[test]
fn a_last_line_without_a_newline_is_completed() {
    let patch = of_f("@@ -1,2 +1,2 @@\n-a\n+b\n c");
    assert_eq!(section(&patch), section(&(patch.clone() + "\n")));
}

#[test]
fn lines_marked_as_without_newline_have_none() {
    let patch = of_f("@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ Kein Zeilenumbruch\n");
    let lines = &section(&patch).hunks[0].lines;
    assert_eq!(lines[1..], [HunkLine::Delete(b"b".to_vec()), HunkLine::Insert(b"c".to_vec())]);
}

/// Hunks that change a file `f`.
const HUNK: &str = "@@ -1 +1 @@\n-a\n+b\n";

/// Checks that each text is refused as an invalid patch, with a message that begins like this.
fn are_refused(table: Vec<(String, &str)>) {
    for (patch, want) in table {
        let refusal = Patch::parse(&patch).expect_err(&patch);
        assert_eq!(refusal.code, Code::PatchInvalid, "{patch}");
        assert!(refusal.message.starts_with(want), "{}\n  wanted: {want}\n{patch}", refusal.message);
        assert!(refusal.hint.len() > 10, "{patch}");
    }
}

/// A file with these Git headers.
fn git(headers: &str) -> String {
    format!("diff --git a/f b/f\n{headers}")
}

/// As [`git`], followed by a hunk.
fn hunked(headers: &str) -> String {
    git(&format!("{headers}--- a/f\n+++ b/f\n{HUNK}"))
}

#[test]
fn text_that_is_not_a_patch_is_refused_with_its_line() {
    are_refused(vec![
        (String::new(), "line 1 of the patch: the patch changes no file"),
        ("\n \n".to_owned(), "line 1 of the patch: the patch changes no file"),
        ("Subject: nothing\n\ntext\n".to_owned(), "line 1 of the patch: the patch changes no file"),
        ("hello\n".to_owned(), "line 1 of the patch: `hello` is not part of a patch"),
        (format!("```diff\n{}```\n", of_f(HUNK)), "line 1 of the patch: ````diff` is not part"),
        (of_f(HUNK) + "```\n", "line 6 of the patch: "),
        (of_f(HUNK) + "junk\n" + HUNK, "line 6 of the patch: `junk` is not part of a patch"),
        (of_f(HUNK) + "junk\n", "line 6 of the patch: `junk`"),
        ("From me\n@@ -1 +1 @@\n".to_owned(), "line 2 of the patch: `@@ -1 +1 @@` is before the first file's header"),
        ("--- a/f\n".to_owned() + HUNK, "line 1 of the patch: `--- a/f` has no counterpart"),
        ("+++ b/f\n".to_owned() + HUNK, "line 1 of the patch: `+++ b/f` has no counterpart"),
        (of_f("text\n"), "line 3 of the patch: `text` is not part"),
        (of_f("@@ -1234567890123 +1 @@\n-a\n+b\n"), "line 3 of the patch: "),
        (git(""), "line 1 of the patch: the file's section changes nothing"),
        (git("index 1..2 100644\n"), "line 1 of the patch: the file's section changes nothing"),
        (git("junk\n"), "line 2 of the patch: `junk` is not part"),
        (format!("--- /dev/null\n+++ /dev/null\n{HUNK}"), "line 1 of the patch: both sides are missing"),
        ("diff --cc f\nindex 1,2..3\n".to_owned(), "line 1 of the patch: combined diffs of merges"),
        ("Only in new: g\n".to_owned(), "line 1 of the patch: `Only in new: g` names a file"),
    ]);
}

#[test]
fn hunks_that_are_not_what_they_say_are_refused_with_their_line() {
    are_refused(vec![
        (HUNK.to_owned(), "line 1 of the patch: the hunk `@@ -1 +1 @@` belongs to no file"),
        (
            of_f(HUNK) + "-- \n2.47\n\nmore\n",
            "line 3 of the patch: the hunk's header `@@ -1 +1 @@` states 1 old and 1 new lines, but 2 old and 1 new lines follow",
        ),
        (of_f(""), "line 1 of the patch: the file has no hunks"),
        (of_f("@@ -1,1 +1,1\n-a\n+b\n"), "line 3 of the patch: `@@ -1,1 +1,1` has no line numbers"),
        (of_f("@@ -0,1 +1 @@\n-a\n+b\n"), "line 3 of the patch: `@@ -0,1 +1 @@` begins at line 0"),
        (
            of_f("@@ -1,3 +1,2 @@\n-a\n+b\n c\n!\n"),
            "line 3 of the patch: the hunk's header `@@ -1,3 +1,2 @@` states 3 old and 2 new lines, but 2 old and 2 new lines follow",
        ),
        (
            of_f("@@ -1,2 +1,2 @@\n-a\n+b\n") + HUNK,
            "line 6 of the patch: hunk 2 begins at line 1 of the file, but the previous hunk ends at line 1",
        ),
        (of_f("@@ -1,2 +1,2 @@\n-a\n+b\n!\n"), "line 3 of the patch: the hunk's header"),
        (
            of_f("@@ -1,2 +1 @@\n a\n b\n"),
            "line 3 of the patch: the hunk's header `@@ -1,2 +1 @@` states 2 old and 1 new lines, but 2 old and 2 new lines follow",
        ),
        (of_f("@@ -1,2 +1,2 @@\n a\n b\n"), "line 4 of the patch: the hunk changes nothing"),
        (of_f("@@ -3,0 +4 @@\n+a\n"), "line 3 of the patch: the hunk has no line of the old file"),
        (
            of_f("@@ -5 +5 @@\n-a\n+b\n@@ -1 +1 @@\n-a\n+b\n"),
            "line 6 of the patch: hunk 2 begins at line 1 of the file, but the previous hunk ends at line 5",
        ),
        (of_f("@@ -1,2 +1,2 @@\n-a\n+b\n c\n@@ -2 +2 @@\n-c\n+d\n"), "line 7 of the patch: hunk 2 begins at line 2"),
        (
            of_f("@@ -1,2 +1,2 @@\n-a\n\\ No newline at end of file\n+b\n c\n"),
            "line 7 of the patch: a line follows `\\ No newline",
        ),
        (
            of_f("@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n@@ -2 +2 @@\n-c\n+d\n"),
            "line 8 of the patch: a line follows `\\ No newline",
        ),
        (git("--- a/f\n+++ b/f\n"), "line 2 of the patch: the file has no hunks"),
        (git(HUNK), "line 2 of the patch: the hunk `@@ -1 +1 @@` belongs to no file"),
        (
            "--- /dev/null\n+++ b/f\n@@ -1 +1,2 @@\n a\n+b\n".to_owned(),
            "line 1 of the patch: the patch creates a file but contains old lines",
        ),
        (
            "--- a/f\n+++ /dev/null\n@@ -1,2 +1 @@\n a\n-b\n".to_owned(),
            "line 1 of the patch: the patch deletes a file but keeps lines",
        ),
    ]);
}

#[test]
fn unsupported_content_is_refused_with_its_line() {
    are_refused(vec![
        (git("index 1..2\nGIT binary patch\nliteral 0\n"), "line 3 of the patch: binary files cannot be patched"),
        (git("index 1..2\nBinary files a/f and b/f differ\n"), "line 3 of the patch: binary files cannot be patched"),
        ("Binary files a/f and b/f differ\n".to_owned(), "line 1 of the patch: binary files cannot be patched"),
        (git("new file mode 120000\n"), "line 2 of the patch: symbolic links cannot be patched"),
        (hunked("index 1..2 120000\n"), "line 2 of the patch: symbolic links cannot be patched"),
        (git("old mode 100644\nnew mode 120000\n"), "line 3 of the patch: symbolic links cannot be patched"),
        (git("new file mode 160000\n"), "line 2 of the patch: submodules cannot be patched"),
        (hunked("index 1..2 160000\n"), "line 2 of the patch: submodules cannot be patched"),
        (git("new file mode 040000\n"), "line 2 of the patch: `040000` is not a file mode"),
        (git("new file mode 104755\n"), "line 2 of the patch: `104755` is not a file mode"),
        (git("new file mode 644\n"), "line 2 of the patch: `644` is not a file mode"),
        (git("old mode 100644\n"), "line 1 of the patch: the change of mode is incomplete"),
        (git("new mode 100755\n"), "line 1 of the patch: the change of mode is incomplete"),
        (git("new file mode 100644\nnew file mode 100644\n"), "line 3 of the patch: `new file mode` occurs twice"),
        (
            git("new file mode 100644\ndeleted file mode 100644\n"),
            "line 1 of the patch: the file's headers contradict each other",
        ),
        (
            "diff --git a/f b/g\n".to_owned() + "rename from f\nrename to g\ncopy from f\ncopy to g\n",
            "line 1 of the patch: the file's headers contradict",
        ),
        (hunked("new file mode 100644\n"), "line 1 of the patch: `/dev/null` must be"),
        (
            git("new file mode 100644\n--- /dev/null\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"),
            "line 1 of the patch: the patch creates a file but contains old lines",
        ),
        (
            git("deleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n"),
            "line 1 of the patch: the patch deletes a file but keeps lines",
        ),
    ]);
}

#[test]
fn names_that_disagree_are_refused_with_their_line() {
    are_refused(vec![
        (git("rename from f\n"), "line 1 of the patch: only one of the two names is given"),
        (
            git("rename from f\nrename to g\n"),
            "line 1 of the patch: the header's names disagree: `a/f b/f` and `f -> g`",
        ),
        (format!("--- a/f\n+++ b/g\n{HUNK}"), "line 1 of the patch: the header's names disagree: `f` and `g`"),
        (format!("--- a/f\n+++ a/f/..\n{HUNK}"), "line 1 of the patch: the header's names disagree"),
        (format!("--- src/f\n+++ test/f\n{HUNK}"), "line 1 of the patch: the header's names disagree"),
        (
            format!("diff --git a/safe b/safe\n--- a/../../etc/passwd\n+++ b/../../etc/passwd\n{HUNK}"),
            "line 1 of the patch: the header's names disagree",
        ),
        (format!("diff --git a/f b/g\n--- a/f\n+++ b/g\n{HUNK}"), "line 1 of the patch: the header's names disagree"),
        (
            "diff --git a/f b/g\nold mode 100644\nnew mode 100755\n".to_owned(),
            "line 1 of the patch: `a/f b/g` does not name one file twice",
        ),
        (
            git("new file mode 100644\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+a\n"),
            "line 1 of the patch: the header's names disagree: `f` and `b/g`",
        ),
        (format!("--- \"a/f\n+++ \"b/f\"\n{HUNK}"), "line 1 of the patch: `\"a/f` is not a file name"),
        (format!("--- \"a/\\q\"\n+++ \"b/\\q\"\n{HUNK}"), "line 1 of the patch: `\"a/\\q\"` is not a file name"),
        (format!("--- \n+++ \n{HUNK}"), "line 1 of the patch: `` is not a file name"),
        (format!("--- a/f\r\n+++ b/f\r\n{HUNK}"), "line 1 of the patch: the header ends in CR LF"),
        (
            "diff --git a/f b/f\r\nold mode 100644\nnew mode 100755\n".to_owned(),
            "line 1 of the patch: the header ends in CR LF",
        ),
        (git("--- a/f\ttext\n+++ b/f\n") + HUNK, "line 2 of the patch: text follows the file's name"),
    ]);
}

#[test]
fn a_path_in_two_sections_is_refused_with_its_line() {
    are_refused(vec![
        (of_f(HUNK) + &of_f(HUNK), "line 6 of the patch: `f` is already changed at line 1"),
        (of_f(HUNK) + &of_f(HUNK).replace("/f", "/./f"), "line 6 of the patch: `f` is already changed"),
        (
            of_f(HUNK) + "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n",
            "line 6 of the patch: `f` is already changed",
        ),
        (
            of_f(HUNK) + "diff --git a/f b/g\nrename from f\nrename to g\n",
            "line 6 of the patch: `f` is already changed",
        ),
        (
            "diff --git a/f b/g\nrename from f\nrename to g\ndiff --git a/f b/f\n".to_owned() + &of_f(HUNK),
            "line 4 of the patch: `f` is already changed",
        ),
        (
            "diff --git a/f b/g\nrename from f\nrename to g\ndiff --git a/f b/h\nrename from f\nrename to h\n"
                .to_owned(),
            "line 4 of the patch: `f` is already changed",
        ),
        (
            "diff --git a/f b/g\nrename from f\nrename to g\ndiff --git a/h b/g\nrename from h\nrename to g\n"
                .to_owned(),
            "line 4 of the patch: `g` is already changed",
        ),
        (
            "diff --git a/f b/f\nrename from f\nrename to f\n".to_owned(),
            "line 1 of the patch: `f` is renamed to itself",
        ),
    ]);
}

#[test]
fn names_are_judged_as_paths_after_the_syntax() {
    let table = [
        format!("--- a/../../etc/passwd\n+++ b/../../etc/passwd\n{HUNK}"),
        format!("--- /etc/passwd\n+++ /etc/passwd\n{HUNK}"),
        format!("--- a/.git/config\n+++ b/.git/config\n{HUNK}"),
        format!("--- a/dir/\n+++ b/dir/\n{HUNK}"),
        "diff --git a/f b/.GIT/hooks/x\nrename from f\nrename to .GIT/hooks/x\n".to_owned(),
        "diff --git a/../f b/g\nrename from ../f\nrename to g\n".to_owned(),
        "diff --git \"a/\\377\" \"b/\\377\"\nold mode 100644\nnew mode 100755\n".to_owned(),
        "diff --git \"a/x\\000\" \"b/x\\000\"\nold mode 100644\nnew mode 100755\n".to_owned(),
    ];
    for patch in table {
        assert_eq!(Patch::parse(&patch).expect_err(&patch).code, Code::PathRejected, "{patch}");
        // A syntax error after it is reported first.
        let worse = patch.clone() + "junk\n";
        assert_eq!(Patch::parse(&worse).expect_err(&worse).code, Code::PatchInvalid, "{worse}");
        let twice = patch.clone() + &of_f(HUNK).replace("/f", "/t") + &of_f(HUNK).replace("/f", "/t");
        assert_eq!(Patch::parse(&twice).expect_err(&twice).code, Code::PatchInvalid, "{twice}");
    }
}

#[test]
fn a_file_and_a_path_under_it_are_refused() {
    let make = |path: &str| format!("diff --git a/{path} b/{path}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
    let gone = |path: &str| format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
    let away = "diff --git a/f b/g\nrename from f\nrename to g\n";
    are_refused(vec![
        (make("f") + &make("f/g"), "line 6 of the patch: `f/g` is under `f`, which line 1 makes a file"),
        (make("f/g") + &make("f"), "line 1 of the patch: `f/g` is under `f`, which line 6 makes a file"),
        (away.to_owned() + &make("g/h/i"), "line 4 of the patch: `g/h/i` is under `g`"),
    ]);
    assert_eq!(sections(&(gone("f") + &make("f/g"))).len(), 2);
    assert_eq!(sections(&(make("f") + &gone("f/g"))).len(), 2);
    assert_eq!(sections(&(away.to_owned() + &make("f/g"))).len(), 2);
}

#[test]
fn renames_may_swap_and_free_a_path() {
    let swap = "diff --git a/f b/g\nrename from f\nrename to g\ndiff --git a/g b/f\nrename from g\nrename to f\n";
    assert_eq!(sections(swap), ["Rename f g #0", "Rename g f #0"]);
    let replaced = "diff --git a/f b/g\nrename from f\nrename to g\ndiff --git a/f b/f\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n";
    assert_eq!(sections(replaced), ["Rename f g #0", "Create f f #1"]);
    let copies = "diff --git a/f b/g\ncopy from f\ncopy to g\ndiff --git a/f b/h\nrename from f\nrename to h\n";
    assert_eq!(sections(copies), ["Copy f g #0", "Rename f h #0"]);
}

#[test]
fn headers_and_hunks_of_one_format_may_be_in_the_other() {
    let begin = |body: &str| format!("*** Begin Patch\n{body}*** End Patch\n");
    let table: [(String, &[&str]); 11] = [
        (of_f("@@\n-a\n+b\n"), &["Modify f f #1"]),
        (of_f("@@ ... @@\n-a\n+b\n@@ def x():\n-c\n\n-- \n2.47\n"), &["Modify f f #2"]),
        (
            git("--- a/f\n+++ b/f\n@@\n-a\n+b\n\n") + &of_f(HUNK).replace("/f", "/g"),
            &["Modify f f #1", "Modify g g #1"],
        ),
        ("--- /dev/null\n+++ b/f\n@@\n+a\n+b\n".to_owned(), &["Create f f #1"]),
        ("*** Update File: f\n@@\n-a\n+b\n*** End Patch\n".to_owned(), &["Modify f f #1"]),
        ("*** Update File: f\n@@\n-a\n+b\n*** Delete File: g\n".to_owned(), &["Modify f f #1", "Delete g g #0"]),
        (begin(&of_f(HUNK)), &["Modify f f #1"]),
        (
            begin(&(git("old mode 100644\nnew mode 100755\n") + "*** Delete File: g\n")),
            &["Modify f f 755 #0", "Delete g g #0"],
        ),
        (begin(&format!("*** Update File: f\n{}", of_f(HUNK))), &["Modify f f #1"]),
        (begin(&format!("*** Update File: f\n@@\n-a\n+b\n{}", of_f(HUNK).replace("/f", "/g"))), &["Modify f f #1"]),
        (begin("*** Add File: f\n--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n"), &["Create f f #1"]),
    ];
    for (patch, want) in table {
        // What could be a deleted and an inserted line is one, unless the section has both forms of header.
        if patch.contains("/g\n+++") && patch.starts_with("*** Begin") {
            assert_eq!(section(&patch).hunks[0].lines.len(), 4, "{patch}");
            continue;
        }
        assert_eq!(sections(&patch), want, "{patch}");
    }
    let other = begin(&format!("*** Update File: g\n{}", of_f(HUNK)));
    let refusal = Patch::parse(&other).unwrap_err();
    assert!(refusal.message.starts_with("line 3 of the patch: `a/f` is in the section of `g`"), "{refusal}");
}

#[test]
fn a_miscounted_hunk_is_counted_again_where_its_end_is_clear() {
    let next = "diff --git a/g b/g\nold mode 100644\nnew mode 100755\n";
    for (hunks, lines) in [
        ("@@ -1,3 +1,2 @@\n-a\n+b\n c\n", &[3][..]),
        ("@@ -1 +1 @@\n-a\n+b\n c\n", &[3]),
        ("@@ -1,9 +1,9 @@\n a\n\n-b\n c\n\n", &[4]),
        ("@@ -1,9 +1,9 @@\n a\n-b\n@@ -4,1 +3,1 @@\n-c\n d\n", &[2, 2]),
        ("@@ -1,2 +1,2 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n", &[2]),
    ] {
        for patch in [of_f(hunks), of_f(hunks) + next] {
            let parsed = Patch::parse(&patch).unwrap_or_else(|refusal| panic!("{refusal}:\n{patch}"));
            let counts: Vec<_> = parsed.files[0].hunks.iter().map(|hunk| hunk.lines.len()).collect();
            assert_eq!((counts.as_slice(), parsed.warnings.len()), (lines, lines.len()), "{patch}");
            assert!(parsed.warnings[0].contains("counted again"), "{:?}", parsed.warnings);
        }
    }
    let created = Patch::parse("--- /dev/null\n+++ b/f\n@@ -0,0 +1,9 @@\n+a\n+b\n").unwrap();
    assert_eq!(created.files[0].apply(b"").unwrap().bytes, b"a\nb\n");
    // Two lines that may be lines of the hunk or name a file.
    let unclear = of_f("@@ -1,9 +1,9 @@\n a\n--- x\n+++ y\n z\n");
    assert!(Patch::parse(&unclear).unwrap_err().message.contains("states 9 old"));
}

#[test]
fn a_byte_order_mark_before_a_patch_is_ignored() {
    for patch in [of_f(HUNK), hunked(""), format!("*** Begin Patch\n*** Update File: f\n{HUNK}*** End Patch\n")] {
        assert_eq!(sections(&format!("\u{feff}{patch}")), ["Modify f f #1"], "{patch}");
    }
}
