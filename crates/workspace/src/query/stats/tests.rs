use std::fs;
use std::sync::atomic::AtomicBool;

use model::{Code, FileKind};

use super::Tally;
use crate::WorkspaceError;
use crate::test_support::{TestBase, TestTree, code, not_cancelled, path, rules};

#[test]
fn files_bytes_and_lines_are_counted_by_kind_and_extension() {
    let fixture = TestTree::with(&[
        ("src/a.rs", "1\n2\n"),
        ("src/deep/b.rs", "1\n2\n3"),
        ("README.md", "one"),
        ("empty.txt", ""),
        (".env", "K=1\nL=2\n"),
        ("Makefile", "all:\n"),
        (".gitignore", "*.log\n"),
        ("a.log", "ignored\n"),
        ("IMAGE.PNG", "\u{89}"),
    ]);
    fixture.write("blob.bin", b"\n\n\0\n");
    fs::hard_link(fixture.outside("secret.txt"), fixture.repo("alias.txt")).unwrap();
    fixture.link("link.rs", "src/a.rs");
    let tree = fixture.tree_on(TestBase::tracking(&[]));
    let stats = tree.stats(&rules(), &path("."), &not_cancelled()).unwrap();
    assert_eq!(stats.directories, 2);
    assert_eq!(stats.by_extension["rs"], Tally { files: 2, bytes: 9, lines: 5 });
    assert_eq!(stats.by_extension["md"], Tally { files: 1, bytes: 3, lines: 1 });
    assert_eq!(stats.by_extension[""].files, 3);
    assert_eq!(stats.by_extension["txt"], Tally { files: 2, bytes: 19, lines: 0 });
    assert_eq!(stats.by_extension["png"].files, 1);
    assert!(!stats.by_extension.contains_key("log"));
    assert_eq!(stats.by_kind[&FileKind::TextSource].lines, 5);
    assert_eq!(stats.by_kind[&FileKind::SecretLike], Tally { files: 1, bytes: 8, lines: 0 });
    assert_eq!(stats.by_kind[&FileKind::Binary], Tally { files: 1, bytes: 4, lines: 0 });
    assert_eq!((stats.total.files, stats.not_counted), (10, 3));
    let sum: u64 = stats.by_kind.values().map(|tally| tally.bytes).sum();
    assert_eq!(sum, stats.total.bytes);
    assert_eq!(stats, tree.stats(&rules(), &path("."), &not_cancelled()).unwrap());
    assert_eq!(
        tree.stats(&rules(), &path("src/deep"), &not_cancelled()).unwrap().total,
        Tally { files: 1, bytes: 5, lines: 3 }
    );
}

#[test]
fn a_file_without_end_costs_nothing() {
    let fixture = TestTree::new();
    fs::File::create(fixture.repo("sparse.txt")).unwrap().set_len(1 << 40).unwrap();
    let stats = fixture.tree().stats(&rules(), &path("."), &not_cancelled()).unwrap();
    assert_eq!(stats.total, Tally { files: 1, bytes: 1 << 40, lines: 0 });
}

#[test]
fn rare_extensions_are_counted_together() {
    let fixture = TestTree::with(&[("a.common", ""), ("b.common", "")]);
    for number in 0..250 {
        fixture.write(&format!("x.e{number:03}"), "1");
    }
    let stats = fixture.tree().stats(&rules(), &path("."), &not_cancelled()).unwrap();
    assert_eq!(stats.by_extension.len(), 200);
    assert_eq!((stats.by_extension["common"].files, stats.by_extension["..."].files), (2, 52));
}

#[test]
fn refusals_come_in_order_and_a_cancelled_count_stops() {
    let fixture = TestTree::with(&[("a.txt", ""), ("b/c", "")]);
    fixture.link("out", "../outside");
    let tree = fixture.tree();
    for (raw, want) in [
        ("out", Code::PathRejected),
        (".env", Code::PolicyDeniedSecret),
        ("x", Code::NotFound),
        ("a.txt", Code::NotADirectory),
    ] {
        assert_eq!(code(tree.stats(&rules(), &path(raw), &not_cancelled())), want, "{raw}");
    }
    assert!(matches!(tree.stats(&rules(), &path("."), &AtomicBool::new(true)), Err(WorkspaceError::Cancelled)));
}
