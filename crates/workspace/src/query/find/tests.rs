use std::fs::{self, File};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use model::Code;

use super::{FindQuery, FindReport, FindSort};
use crate::test_support::{TestBase, TestTree, code, not_cancelled, path, rules};
use crate::{Tree, WorkspaceError};

fn query(globs: &[&str]) -> FindQuery {
    let globs = globs.iter().map(|glob| (*glob).to_owned()).collect();
    FindQuery { path: path("."), globs, max_results: 200, sort: FindSort::Path, after: None, counts_all: false }
}

fn find(tree: &Tree, query: &FindQuery) -> FindReport {
    tree.find(&rules(), query, &not_cancelled()).unwrap()
}

fn paths(finding: &FindReport) -> Vec<&str> {
    finding.entries.iter().map(|found| found.path.as_str()).collect()
}

#[test]
fn files_and_links_are_found_by_name_or_path() {
    let names = ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.md", ".github/ci.yml", ".env"];
    let fixture = TestTree::with(&names.map(|name| (name, "text")));
    fixture.link("link.rs", "a.rs");
    fixture.link("src/loop", "..");
    let tree = fixture.tree();
    assert_eq!(paths(&find(&tree, &query(&["*.rs"]))), ["a.rs", "link.rs", "src/b.rs", "src/deep/c.rs"]);
    assert_eq!(paths(&find(&tree, &query(&["src/*.rs", "*.md"]))), ["src/b.rs", "src/d.md"]);
    assert_eq!(paths(&find(&tree, &query(&["**/ci.yml", ".env"]))), [".env", ".github/ci.yml"]);
    assert_eq!(
        paths(&find(&tree, &FindQuery { path: path("src"), ..query(&["*.rs"]) })),
        ["src/b.rs", "src/deep/c.rs"]
    );
    assert_eq!(paths(&find(&tree, &query(&["src"]))), Vec::<&str>::new());
    let secret = &find(&tree, &query(&[".env"])).entries[0];
    assert_eq!((secret.readable, secret.reason.as_deref()), (false, Some("POLICY_DENIED_SECRET")));
}

#[test]
fn ignored_files_are_not_found_and_made_ones_on_request() {
    let names = [".git/x.js", "node_modules/m/a.js", "target/b.js", "skip/c.js", "d.js", "e.min.js", "kept/f.js"];
    let fixture = TestTree::with(&names.map(|name| (name, "text")));
    fixture.write(".gitignore", "skip/\nkept/\n");
    let tree = fixture.tree_on(TestBase::tracking(&["kept/f.js"]));
    assert_eq!(paths(&find(&tree, &query(&["*.js"]))), ["d.js", "kept/f.js"]);
    let inside = FindQuery { path: path("skip"), ..query(&["*.js"]) };
    assert_eq!(paths(&find(&tree, &inside)), ["skip/c.js"]);
    let inside = FindQuery { path: path("node_modules"), ..query(&["*.js"]) };
    assert_eq!(paths(&find(&tree, &inside)), ["node_modules/m/a.js"]);
}

#[test]
fn what_comes_first_is_by_path_by_time_or_by_size() {
    let fixture = TestTree::new();
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for (number, name) in ["d", "a", "sub/c", "b"].iter().enumerate() {
        fixture.write(name, "x".repeat(10 - number / 2));
        let file = File::options().write(true).open(fixture.repo(name)).unwrap();
        file.set_modified(start + Duration::from_millis(500 * number as u64)).unwrap();
    }
    let tree = fixture.tree();
    for (sort, want) in [
        (FindSort::Path, ["a", "b", "d", "sub/c"]),
        (FindSort::Modified, ["b", "sub/c", "a", "d"]),
        (FindSort::Size, ["a", "d", "b", "sub/c"]),
    ] {
        for max_results in 1..=5 {
            let finding = find(&tree, &FindQuery { max_results, sort, ..query(&["*"]) });
            assert_eq!(paths(&finding), want[..max_results.min(4)], "{sort:?} {max_results}");
            assert_eq!(finding.truncated, max_results < 4);
        }
    }
    let first = &find(&tree, &query(&["a"])).entries[0];
    assert_eq!(first.modified_at, "2023-11-14T22:13:20.5Z");
}

#[test]
fn refusals_come_in_order() {
    let fixture = TestTree::with(&[("a.txt", "")]);
    fixture.link("out", "../outside");
    let tree = fixture.tree();
    let refused = |query: &FindQuery| code(tree.find(&rules(), query, &not_cancelled()));
    assert_eq!(refused(&query(&["["])), Code::InvalidRequest);
    for (raw, want) in [
        ("out", Code::PathRejected),
        (".env", Code::PolicyDeniedSecret),
        ("x", Code::NotFound),
        ("a.txt", Code::NotADirectory),
    ] {
        assert_eq!(refused(&FindQuery { path: path(raw), ..query(&["*"]) }), want, "{raw}");
    }
    let cancelled = tree.find(&rules(), &query(&["*"]), &AtomicBool::new(true));
    assert!(matches!(cancelled, Err(WorkspaceError::Cancelled)));
}

#[test]
fn of_many_files_the_first_are_kept() {
    let fixture = TestTree::new();
    fs::create_dir(fixture.repo("many")).unwrap();
    for number in 0..5_000 {
        fs::write(fixture.repo(&format!("many/{number:04}")), "x".repeat(number % 100)).unwrap();
    }
    let tree = fixture.tree();
    let finding = find(&tree, &FindQuery { sort: FindSort::Size, max_results: 3, ..query(&["*"]) });
    assert_eq!(paths(&finding), ["many/0099", "many/0199", "many/0299"]);
    assert!(finding.truncated);
}
