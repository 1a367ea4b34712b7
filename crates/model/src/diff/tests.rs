use proptest::prelude::*;

use super::*;
use crate::test_support::{Git, path};
use crate::{Encoding, bytes_written};

/// The diff of one path's bytes, mode 644.
fn diff(old: Option<&[u8]>, new: Option<&[u8]>) -> FileDiff {
    let path = path("x");
    let side = |bytes| Side { path: &path, bytes, mode: 0o644 };
    diff_file(old.map(side), new.map(side))
}

fn text_of(diff: &FileDiff) -> &str {
    std::str::from_utf8(&diff.text).unwrap()
}

#[test]
fn a_change_a_creation_and_a_deletion_are_written_as_git_writes_them() {
    type Version = Option<&'static [u8]>;
    let table: [(Version, Version, &str); 8] = [
        (Some(b"a\nb\nc\n"), Some(b"a\nB\nc\n"), "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"),
        (None, Some(b"a\n"), "new file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"),
        (Some(b"a\n"), None, "deleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"),
        (None, Some(b""), "new file mode 100644\n"),
        (Some(b""), None, "deleted file mode 100644\n"),
        (Some(b"a"), Some(b"a\n"), "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        (
            // No text in any encoding, because of the control character.
            Some(b"a\r\n\x01\xff"),
            Some(b"a\r\nb\n\x01\xff"),
            "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n a\r\n+b\n \u{1}\u{fffd}\n\\ No newline at end of file\n",
        ),
        (
            Some(b"a\0"),
            Some(b"b\0"),
            "index 90802fedc2462f10bf2114d086cacb9e3af99ffb..28eacf2b08bcaecd186cfa2d9d93e8672a37d6a2 100644\n\
             Binary files a/x and b/x differ\n",
        ),
    ];
    for (old, new, want) in table {
        let diff = diff(old, new);
        assert_eq!(String::from_utf8_lossy(&diff.text), format!("diff --git a/x b/x\n{want}"));
    }
}

#[test]
fn equal_sides_have_no_diff() {
    assert_eq!(diff(Some(b"a\n"), Some(b"a\n")).text, b"");
    assert_eq!(diff(Some(b"a\0\n"), Some(b"a\0\n")).text, b"");
    assert_eq!(diff(None, None).text, b"");
}

#[test]
fn a_rename_shows_both_names_and_the_similarity() {
    let (from, to) = (path("old name"), path("dir/neu\"é\t"));
    let old = Side { path: &from, bytes: b"1\n2\n3\n4\n", mode: 0o644 };
    let moved = diff_file(Some(old), Some(Side { path: &to, mode: 0o755, ..old }));
    let want = "diff --git a/old name \"b/dir/neu\\\"\\303\\251\\t\"\nold mode 100644\nnew mode 100755\n\
                similarity index 100%\nrename from old name\nrename to \"dir/neu\\\"\\303\\251\\t\"\n";
    assert_eq!(text_of(&moved), want);
    let edited = diff_file(Some(old), Some(Side { path: &to, bytes: b"1\n2\n3\n5\n", ..old }));
    assert!(text_of(&edited).contains("similarity index 75%\n"), "{}", text_of(&edited));
    assert!(text_of(&edited).contains("--- a/old name\t\n+++ \"b/dir/neu"), "{}", text_of(&edited));
}

#[test]
fn text_in_utf16_is_shown_and_counted_by_its_characters() {
    let utf16 = |text| crate::encode(text, crate::Encoding::Utf16Le).unwrap();
    let (old, new) = (utf16("a\r\nb\r\n"), utf16("a\r\né\r\n"));
    let changed = diff(Some(&old), Some(&new));
    assert!(text_of(&changed).ends_with("@@ -1,2 +1,2 @@\n a\r\n-b\r\n+é\r\n"), "{}", text_of(&changed));
    assert_eq!((changed.binary, changed.counts), (false, LineCounts { insertions: 1, deletions: 1 }));
    assert_eq!(count_changes(&old, &new), changed.counts);
    let patch = crate::Patch::parse_bytes(&changed.text).unwrap();
    assert_eq!(patch.files[0].apply(&old).unwrap().bytes, new);
    // The same characters in another encoding: no line differs.
    let turned = diff(Some(&old), Some(b"a\r\nb\r\n"));
    assert!(turned.binary && text_of(&turned).ends_with("Binary files a/x and b/x differ\n"), "{}", text_of(&turned));
}

#[test]
fn text_in_an_older_encoding_is_shown_by_its_characters() {
    let gbk = |text: &str| crate::encode(text, Encoding::Gbk).unwrap();
    let long = "// 中文注释 初始化\n// 打开串口\n";
    let (old, new) = (gbk(&format!("{long}int a;\n")), gbk(&format!("{long}int 甲;\n")));
    let changed = diff(Some(&old), Some(&new));
    assert!(text_of(&changed).ends_with(" // 打开串口\n-int a;\n+int 甲;\n"), "{}", text_of(&changed));
    let decoded = Some(DecodedFrom { encoding: Encoding::Gbk, is_guessed: true });
    assert_eq!((changed.decoded, changed.bytes_written), (decoded, None));
    assert_eq!(count_changes(&old, &new), changed.counts);
    let patch = crate::Patch::parse_bytes(&changed.text).unwrap();
    assert_eq!(patch.files[0].apply(&old).unwrap().bytes, new);
    // To UTF-8 with other characters, and with the same ones.
    let converted = diff(Some(&old), Some(format!("{long}int 甲;\n").as_bytes()));
    assert_eq!(converted.counts, LineCounts { insertions: 1, deletions: 1 }, "{}", text_of(&converted));
    assert_eq!(converted.decoded, decoded);
    let same = diff(Some(&old), Some(format!("{long}int a;\n").as_bytes()));
    assert_eq!((same.decoded, same.counts), (None, LineCounts { insertions: 2, deletions: 2 }));
    // From ASCII.
    let first = diff(Some(b"int a;\n"), Some(&gbk(&format!("{long}int a;\n"))));
    assert!(text_of(&first).contains("+// 打开串口\n"), "{}", text_of(&first));
    // No text: the bytes as they are.
    let raw = diff(Some(b"a\x01\xff\n"), Some(b"b\x01\xff\n"));
    assert!(raw.text.ends_with(b"-a\x01\xff\n+b\x01\xff\n") && raw.decoded.is_none(), "{:?}", raw.text);
}

#[test]
fn another_guess_changes_no_other_line() {
    // By itself, the short comment is taken for Korean; with a longer one, for Chinese.
    let gbk = |text: &str| crate::encode(text, Encoding::Gbk).unwrap();
    let old = gbk("#include <stdio.h>\n// 打开串口\nvoid f(){}\n");
    let new = [&old[..], &gbk("// 中文注释 初始化 关闭串口 这是一个测试\n")].concat();
    let encoding = |bytes: &[u8]| crate::detect_encoding(bytes).unwrap();
    assert_eq!((encoding(&old), encoding(&new)), (Encoding::EucKr, Encoding::Gbk));
    for (old, new, counts) in [
        (&old, &new, LineCounts { insertions: 1, deletions: 0 }),
        (&new, &old, LineCounts { insertions: 0, deletions: 1 }),
    ] {
        let changed = diff(Some(old), Some(new));
        assert_eq!(changed.counts, counts, "{}", text_of(&changed));
    }
    // A file that says that it has another encoding from now on.
    let old = gbk("# coding: gbk\n# 日本\n");
    let new = crate::encode("# coding: euc-jp\n# 日本\n", Encoding::EucJp).unwrap();
    let changed = diff(Some(&old), Some(&new));
    assert!(text_of(&changed).ends_with("-# coding: gbk\n+# coding: euc-jp\n # 日本\n"), "{}", text_of(&changed));
}

#[test]
fn a_mode_change_alone_is_shown() {
    let path = path("run.sh");
    let old = Side { path: &path, bytes: b"x\n", mode: 0o664 };
    let diff = diff_file(Some(old), Some(Side { mode: 0o775, ..old }));
    assert_eq!(text_of(&diff), "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n");
    assert_eq!(diff.counts, LineCounts::default());
}

#[test]
fn a_link_is_shown_as_git_shows_it() {
    let path = path("newest");
    let link = |bytes: &'static [u8]| Side { path: &path, bytes, mode: crate::LINK_MODE };
    let hunk = "@@ -1 +1 @@\n-v1\n\\ No newline at end of file\n+v2\n\\ No newline at end of file\n";
    let retargeted = diff_file(Some(link(b"v1")), Some(link(b"v2")));
    let expected = format!(
        "diff --git a/newest b/newest\nindex {}..{} 120000\n--- a/newest\n+++ b/newest\n{hunk}",
        write::blob_id(b"v1"),
        write::blob_id(b"v2"),
    );
    assert_eq!(text_of(&retargeted), expected);
    assert_eq!(text_of(&diff_file(Some(link(b"v1")), Some(link(b"v1")))), "");
    // The same bytes are another thing.
    let file = Side { mode: 0o644, ..link(b"v1") };
    let became = diff_file(Some(file), Some(link(b"v1")));
    let text = text_of(&became);
    assert!(text.starts_with("diff --git a/newest b/newest\ndeleted file mode 100644\n"), "{text}");
    assert!(text.contains("diff --git a/newest b/newest\nnew file mode 120000\n"), "{text}");
    assert_eq!(became.counts, LineCounts { insertions: 1, deletions: 1 });
}

#[test]
fn a_hunk_shows_the_heading_above_it() {
    let old = "fn one() {\n    1;\n    2;\n    3;\n    4;\n    5;\n}\n";
    let diff = diff(Some(old.as_bytes()), Some(old.replace('5', "6").as_bytes()));
    assert!(text_of(&diff).contains("@@ -3,5 +3,5 @@ fn one() {\n"), "{}", text_of(&diff));
}

#[test]
fn an_inserted_function_shows_from_its_own_first_line() {
    let old = "fn a() {\n    x();\n}\n\nfn c() {\n    x();\n}\n";
    let new = "fn a() {\n    x();\n}\n\nfn b() {\n    x();\n}\n\nfn c() {\n    x();\n}\n";
    let diff = diff(Some(old.as_bytes()), Some(new.as_bytes()));
    assert!(text_of(&diff).contains("+fn b() {\n+    x();\n+}\n+\n"), "{}", text_of(&diff));
}

/// The new text according to a second implementation.
fn applied_by_diffy(old: &[u8], text: &[u8]) -> Vec<u8> {
    diffy::apply_bytes(old, &diffy::Patch::from_bytes(text).unwrap()).unwrap()
}

/// Texts of few different lines, so that many are equal; sometimes without a final newline.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![4 => "[ab]{0,1}\n", 1 => "[a-c]{1,2}\r\n", 1 => "\n"];
    (prop::collection::vec(line, 0..40), prop_oneof![3 => Just(""), 1 => Just("z")])
        .prop_map(|(lines, end)| (lines.concat() + end).into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn git_applies_every_diff_and_finds_none_shorter(old in texts(), new in texts()) {
        let git = Git::new();
        git.write("x", &old);
        let diff = diff(Some(&old), Some(&new));
        prop_assert_eq!(count_changes(&old, &new), diff.counts);
        prop_assert_eq!(diff.bytes_written, Some(bytes_written(Some(&old), Some(&new), 0)));
        if old != new {
            prop_assert_eq!(git.apply(&diff.text), Ok(()), "{}", String::from_utf8_lossy(&diff.text));
            prop_assert_eq!(git.read("x"), Some(new.clone()));
            prop_assert_eq!(applied_by_diffy(&old, &diff.text), new.clone());
            git.write("old", &old);
            git.write("new", &new);
            let stat = git.run(&["diff", "--no-index", "--minimal", "--numstat", "old", "new"], b"").stdout;
            let stat = String::from_utf8(stat).unwrap();
            let gits: Vec<u64> = stat.split('\t').take(2).map(|count| count.parse().unwrap()).collect();
            // Not equal: Git's minimal diff is sometimes not minimal.
            prop_assert!(diff.counts.insertions + diff.counts.deletions <= gits[0] + gits[1], "{:?} {}", diff.counts, stat);
        }
    }
}

#[test]
fn git_applies_creations_deletions_renames_and_odd_names() {
    for name in ["plain", "two words", "tab\there", "quote\"", "back\\slash", "umlaut-é", "new\nline", "\u{1}\u{7f}"] {
        let git = Git::new();
        let (old, new) = (path(name), path(&format!("to/{name}")));
        for bytes in [&b"1\n2\n3\n"[..], b"no end", b""] {
            let base = Side { path: &old, bytes, mode: 0o644 };
            let steps = [
                (None, Some(base)),
                (Some(base), Some(Side { mode: 0o755, ..base })),
                (Some(base), Some(Side { bytes: b"1\nzwei\n3\n", ..base })),
                (
                    Some(Side { bytes: b"1\nzwei\n3\n", ..base }),
                    Some(Side { path: &new, bytes: b"1\n3\n", mode: 0o644 }),
                ),
                (Some(Side { path: &new, bytes: b"1\n3\n", mode: 0o644 }), Some(base)),
                (Some(base), None),
            ];
            for (from, to) in steps {
                let diff = diff_file(from, to);
                assert_eq!(git.apply(&diff.text), Ok(()), "{}", text_of(&diff));
                for side in [from, to].into_iter().flatten() {
                    let want = to.filter(|to| to.path == side.path).map(|to| to.bytes.to_vec());
                    assert_eq!(git.read(side.path.as_str()), want, "{}", text_of(&diff));
                }
            }
        }
    }
}

/// A text with one line for each number.
fn lines_of(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn hostile_pairs_take_bounded_time_and_their_diffs_apply() {
    let numbers = |count: u32, step: u32, below: u32| (0..count).map(move |at| at * step % below);
    let table = [
        ("a shuffle", lines_of(numbers(20_000, 1, 20_011)), lines_of(numbers(20_000, 7919, 20_011))),
        ("the reverse", lines_of(0..20_000), lines_of((0..20_000).rev())),
        ("few kinds of lines", lines_of(numbers(20_000, 7, 53)), lines_of(numbers(20_000, 11, 51))),
        ("too many of few kinds", lines_of(numbers(300_000, 1, 2)), lines_of(numbers(300_000, 3, 7).map(|at| at % 2))),
        ("too many in reverse", lines_of(0..300_000), lines_of((0..300_000).rev())),
    ];
    for (what, old, new) in table {
        let diff = diff(Some(&old), Some(&new));
        let patch = crate::Patch::parse_bytes(&diff.text).unwrap();
        assert!(patch.files[0].apply(&old).unwrap().bytes == new, "{what}");
    }
}

#[test]
fn changes_far_apart_in_a_large_file_are_found() {
    let old = lines_of(0..400_000);
    let new =
        lines_of((0..400_000).filter(|at| at % 1000 != 7).map(|at| if at % 1000 == 500 { at + 400_000 } else { at }));
    assert_eq!(count_changes(&old, &new), LineCounts { insertions: 400, deletions: 800 });
}

#[test]
fn the_same_sides_have_the_same_diff_on_every_thread() {
    let old = lines_of((0..3_000).map(|at| at * at % 97));
    let new = lines_of((0..3_000).map(|at| at * at % 89));
    let write = || diff(Some(&old), Some(&new)).text;
    let diffs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(diffs.iter().all(|diff| *diff == diffs[0]));
}

#[test]
fn texts_without_a_line_in_common_are_cheap() {
    let old = lines_of(0..200_000);
    let new: Vec<u8> = old.iter().map(|byte| if *byte == b'\n' { *byte } else { byte ^ 0x40 }).collect();
    assert_eq!(count_changes(&old, &new), LineCounts { insertions: 200_000, deletions: 200_000 });
    assert_eq!(count_changes(&vec![b'x'; 16 << 20], &vec![b'y'; 16 << 20]), LineCounts { insertions: 1, deletions: 1 });
}

#[test]
fn a_small_change_of_a_huge_file_costs_no_table_of_its_lines() {
    let old: Vec<u8> = (0..2_000_000).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
    let mut new = old.clone();
    let at = new.len() / 2;
    new[at] = b'X';
    let region = Region::new(&old, &new);
    assert!(region.old.len() < 100 && region.new.len() < 100, "{}", region.old.len());
    let diff = diff(Some(&old), Some(&new));
    assert_eq!(diff.counts, LineCounts { insertions: 1, deletions: 1 });
}
