use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{ExcludedFiles, RuleScope, RuleSet};
use crate::guard::Blocking;
use crate::test_support::{TestBase, TestTree, can_read_without_waiting, git, git_command, path};
use crate::{Tree, test_support};

fn ignored(tree: &Tree, raw: &str) -> bool {
    let by_path = tree.is_ignored(&path(raw), None, Blocking::Allowed).unwrap();
    // A rename elsewhere on the machine makes the kernel answer that the call would block.
    let attempts = if can_read_without_waiting() { 10_000 } else { 1 };
    let unblocked = (0..attempts).find_map(|_| match tree.is_ignored(&path(raw), None, Blocking::Forbidden) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
        answer => Some(answer.unwrap()),
    });
    assert_eq!(unblocked.unwrap_or(by_path), by_path, "{raw}: the call that must not block has another answer");
    by_path
}

#[test]
fn rules_are_gits() {
    let rules = "\
        # a comment\n\
        *.log\n\
        !keep.log\n\
        /top\n\
        build/\n\
        docs/*.html\n\
        **/deep\n\
        a/**/z\n\
        \\#hash\n\
        trailing \n\
        [ab].bin\r\n\
        [unclosed\n\
        space\\ \n";
    let fixture = TestTree::with(&[
        (".gitignore", rules),
        ("sub/.gitignore", "!*.log\nown\n"),
        ("sub/inner/.gitignore", "*.txt\n"),
        ("build/.gitignore", "!x\n"),
    ]);
    let tree = fixture.tree_on(TestBase::tracking(&[]));
    let cases = [
        ("a.log", true),
        ("keep.log", false),
        ("x/a.log", true),
        ("x/keep.log", false),
        ("top", true),
        ("x/top", false),
        ("build/x", true),
        ("x/build/y", true),
        ("y/build", false),
        ("docs/a.html", true),
        ("docs/x/a.html", false),
        ("q/w/deep", true),
        ("a/z", true),
        ("a/b/c/z", true),
        ("#hash", true),
        ("# a comment", false),
        ("trailing", true),
        ("a.bin", true),
        ("c.bin", false),
        ("[unclosed", false),
        ("sub/a.log", false),
        ("sub/own", true),
        ("own", false),
        ("sub/inner/a.txt", true),
        ("sub/a.txt", false),
        ("sub/inner/b.log", false),
    ];
    fs::create_dir_all(fixture.repo("")).unwrap();
    git(&fixture.repo(""), &["init", "-q"]);
    for (raw, want) in cases {
        assert_eq!(ignored(&tree, raw), want, "{raw}");
        let asked = git_command(&fixture.repo("")).args(["check-ignore", "-q", "--no-index", "--", raw]).status();
        assert_eq!(asked.unwrap().success(), want, "git thinks otherwise of {raw}");
    }
}

/// Rules of the kinds that a `.gitignore` has, and of those in which matchers differ.
fn rule() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => "[abc]",
        4 => Just("*".to_owned()),
        3 => Just("/".to_owned()),
        2 => prop::sample::select(vec!["**/", "/**", "**", "***", "?", "{a,b}", "{", "}", ",", ".", "é", "\\", " ", "\t", "-", "!", "#"])
            .prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            "[ab]", "[!a]", "[^a]", "[]a]", "[!]a]", "[a-c]", "[c-a]", "[a-]", "[-a]", "[[:alpha:]]", "[[:alpha:]b-c]", "[[:nope:]]",
            "[[:alpha]", "[[a]", "[\\]a]", "[a\\-c]", "[\\a-\\c]", "[a", "[", "]", "[]", "[/]", "[!/]", "[a/]", "[\\/a]", "[[:space:]]",
            "[[:punct:]]", "[[:upper:]a]", "[^[:digit:]]", "[a-[:alpha:]]", "[é]",
        ])
        .prop_map(str::to_owned),
        1 => prop::sample::select(vec!["\\*", "\\?", "\\[", "\\a", "\\ ", "\\!", "\\#", "\\/", "\\\\"]).prop_map(str::to_owned),
    ];
    let body = prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat());
    let ends = (
        prop_oneof![4 => Just(""), 1 => Just("!"), 1 => Just("/"), 1 => Just("#")],
        body,
        prop_oneof![6 => Just(""), 1 => Just("/"), 1 => Just(" "), 1 => Just("\t"), 1 => Just("\r"), 1 => Just("  ")],
    );
    ends.prop_map(|(start, body, end)| format!("{start}{body}{end}"))
}

/// The folders with rules.
const FOLDERS: [&str; 3] = [".", "d", "d/a"];

/// Writes a rule file into each of [`FOLDERS`], and asks git which of `paths` it ignores.
fn excluded_by_git(fixture: &TestTree, paths: &[String], texts: &[String]) -> BTreeSet<String> {
    for (folder, text) in FOLDERS.iter().zip(texts) {
        fixture.write(&format!("{folder}/.gitignore"), text);
    }
    let mut check = git_command(&fixture.repo(""));
    check.args(["check-ignore", "--no-index", "--stdin", "-z"]);
    let mut child = check.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all((paths.join("\0") + "\0").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    output.split(|byte| *byte == 0).map(|path| String::from_utf8(path.to_vec()).unwrap()).collect()
}

#[test]
fn rules_are_gits_for_any_rules() {
    let names =
        ["a", "b", "ab", "abc", "c", "a b", "a ", "a\t", "é", "{a,b}", "[a", "a-c", "-", "!a", "#a", "*", "\\a", "]"];
    let mut paths: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    paths.extend(names.iter().map(|name| format!("d/{name}")));
    paths.extend(
        ["a", "ab", "c"]
            .iter()
            .flat_map(|name| [format!("d/a/{name}"), format!("d/a/b/{name}"), format!("d/b/{name}")]),
    );
    // These are folders.
    paths.retain(|path| path != "d/a" && path != "d/b");
    let fixture = TestTree::with(&[("d/a/b/keep", ""), ("d/b/keep", "")]);
    git(&fixture.repo(""), &["init", "-q"]);
    let text = || prop::collection::vec(rule(), 0..5).prop_map(|rules| rules.join("\n") + "\n");
    let texts = || [text(), text(), text()];
    let base = prop_oneof![texts().prop_map(Some), Just(None)];
    let mut runner = TestRunner::new(Config { cases: 256, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(texts(), base), |(now, base)| {
        let base = base.unwrap_or_else(|| now.clone());
        let (by_base, by_now) = (excluded_by_git(&fixture, &paths, &base), excluded_by_git(&fixture, &paths, &now));
        let mut started = TestBase::tracking(&[]);
        for (folder, text) in FOLDERS.iter().zip(&base) {
            started = started.with_rules(folder, text);
        }
        let tree = fixture.tree_on(started);
        let bytes = |text: &str| text.as_bytes().to_vec();
        let files: Vec<_> =
            FOLDERS.iter().zip(&now).map(|(folder, text)| (bytes(folder.trim_matches('.')), bytes(text))).collect();
        let rules = RuleSet::new(&files);
        let mut listed = ExcludedFiles::by(&rules);
        for path in &paths {
            let (by_now, by_base) = (by_now.contains(path), by_base.contains(path));
            let parsed = model::LogicalPath::parse(path).unwrap();
            let ours = tree.is_ignored(&parsed, None, Blocking::Allowed).unwrap();
            let case = format!("{path:?} under the rules {now:?} and those of the base {base:?}");
            prop_assert_eq!(ours, by_now || by_base, "{}", case);
            prop_assert_eq!(listed.contains(path.as_bytes()), by_now, "{}", case);
            prop_assert_eq!(walked(&tree, path), ours, "{}", case);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}

/// Whether a walk from the root leaves out the file at `path`.
fn walked(tree: &Tree, raw: &str) -> bool {
    let rules = tree.ignored.as_ref().unwrap();
    let mut scope = RuleScope::default();
    for folder in [""].into_iter().chain(raw.match_indices('/').map(|(end, _)| &raw[..end])) {
        let folder = if folder.is_empty() { path(".") } else { path(folder) };
        let dir = tree.root.open(&folder, Blocking::Allowed).unwrap().into_folder(&folder);
        scope = rules.enter(&tree.root, &scope, folder.as_str().as_bytes(), &dir).unwrap();
    }
    rules.hides(&scope, raw.as_bytes(), false).unwrap()
}

#[test]
fn a_pattern_that_is_made_to_be_slow_ends() {
    let fixture = TestTree::with(&[(".gitignore", &format!("{}b\n", "**/*a*".repeat(50)))]);
    let tree = fixture.tree_on(TestBase::tracking(&[]));
    let long = vec!["a".repeat(60); 50].join("/");
    // Either answer is right. It takes no longer than the bound.
    let _answer = tree.is_ignored(&path(&long), None, Blocking::Allowed).unwrap();
}

#[test]
fn many_slow_patterns_end_as_one_does_and_show_nothing() {
    let slow = format!("{}b", "**/*a*".repeat(8));
    for rule in [slow.clone(), format!("!{slow}")] {
        let rules = format!("{rule}\n").repeat(250_000 / rule.len());
        let fixture = TestTree::with(&[(".gitignore", &format!("private\n{rules}"))]);
        let tree = fixture.tree_on(TestBase::tracking(&[]));
        let long = vec!["a".repeat(60); 50].join("/");
        // One after the other, the patterns would take minutes.
        assert!(ignored(&tree, &long), "{rule}");
        assert!(ignored(&tree, "private"));
    }
}

#[test]
fn what_is_tracked_is_never_ignored() {
    let fixture =
        TestTree::with(&[(".gitignore", "*.log\nbuild/\n"), ("a.log", ""), ("build/kept", ""), ("build/made", "")]);
    let tree = fixture.tree_on(TestBase::tracking(&["a.log", "build/kept"]));
    for (raw, want) in [("a.log", false), ("b.log", true), ("build/kept", false), ("build/made", true)] {
        assert_eq!(ignored(&tree, raw), want, "{raw}");
    }
}

#[test]
fn nobody_unhides_a_file_by_editing_rules() {
    let fixture =
        TestTree::with(&[("private.txt", "x"), ("sub/.gitignore", "!*\n"), ("sub/private.txt", "x"), ("new", "x")]);
    let base = TestBase::tracking(&[]).with_rules(".", "private.txt\n").with_rules("sub", "hidden\n");
    let tree = fixture.tree_on(base);
    for (raw, want) in
        [("private.txt", true), ("sub/private.txt", true), ("sub/hidden", true), ("new", false), ("sub/new", false)]
    {
        assert_eq!(ignored(&tree, raw), want, "{raw}");
    }
    // New rules hide more at once.
    fixture.write(".gitignore", "new\n");
    assert!(ignored(&tree, "new"));
    fixture.write(".gitignore", "wen\n");
    assert!(!ignored(&tree, "new"));
    fs::remove_file(fixture.repo(".gitignore")).unwrap();
    assert!(!ignored(&tree, "wen"));
    assert!(ignored(&tree, "private.txt"));
}

#[test]
fn rules_of_the_base_hold_where_they_are_those_of_the_tree_and_where_folders_are_excluded() {
    let rules = "out/\n!keep\n";
    let fixture = TestTree::with(&[(".gitignore", rules), ("out/keep", ""), ("keep", "")]);
    let tree = fixture.tree_on(TestBase::tracking(&[]).with_rules(".", rules));
    assert!(ignored(&tree, "out/keep"), "nothing is taken back in from an excluded folder");
    assert!(!ignored(&tree, "keep"));
}

#[test]
fn a_link_called_gitignore_rules_nothing() {
    let fixture = TestTree::with(&[("rules", "*\n"), ("a", ""), ("sub/b", "")]);
    fixture.link(".gitignore", "rules");
    fixture.link("sub/.gitignore", "../../outside/secret.txt");
    let tree = fixture.tree_on(TestBase::tracking(&[]));
    assert!(!ignored(&tree, "a"));
    assert!(!ignored(&tree, "sub/b"));
}

#[test]
fn rules_that_are_too_many_hide_everything_that_is_not_tracked() {
    let fixture = TestTree::with(&[("a", ""), ("b", "")]);
    fixture.write(".gitignore", "x\n".repeat(200_000));
    let tree = fixture.tree_on(TestBase::tracking(&["a"]));
    assert!(!ignored(&tree, "a"));
    assert!(ignored(&tree, "b"));
}

#[test]
fn a_walk_and_a_path_agree() {
    let fixture = TestTree::with(&[
        (".gitignore", "*.log\n/skip/\n"),
        ("a/.gitignore", "!b.log\nx/\n"),
        ("a/b.log", ""),
        ("a/c.log", ""),
        ("a/x/y", ""),
        ("skip/z", ""),
    ]);
    let tree = fixture.tree_on(TestBase::tracking(&[]).with_rules(".", "*.tmp\n"));
    for raw in ["a/b.log", "a/c.log", "a/d.tmp", "a/x/y", "skip/z", "a/e.txt"] {
        assert_eq!(walked(&tree, raw), ignored(&tree, raw), "{raw}");
    }
}

#[test]
fn in_a_mount_nothing_is_ignored() {
    let fixture = TestTree::with(&[(".gitignore", "*\n"), ("a.txt", "text")]);
    let mount = Tree::open_mount(&fixture.repo("")).unwrap();
    assert_eq!(mount.read(&test_support::rules(), &path("a.txt"), 100).unwrap().bytes, b"text");
}
