//! A tree of two layers is compared with a plain folder in which the same changes were made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{LINK_MODE, RunId, Sha256, Step, StepBytes, StepContent};
use proptest::prelude::*;

use super::open_ambient_folder;
use crate::test_support::{TestWorkspaces, git_on_base, not_cancelled, path, rules, search_query, tree_of, visible};
use crate::{DiffQuery, FindQuery, FindSort, ImportSource, ListQuery, SearchQuery, Tree, Workspace, WorkspaceError};

/// What a change puts at a path.
#[derive(Clone, Debug)]
enum Content {
    File(&'static str, u32),
    Link(&'static str),
    Nothing,
}

const NAMES: [&str; 16] = [
    "a",
    "b.txt",
    "d/a",
    "d/b.txt",
    "d/e/a",
    "d/e/f/x",
    "l",
    "l/a",
    "m",
    "m/a",
    "up/a",
    "x.log",
    "d/x.log",
    ".gitignore",
    "é",
    "d/e",
];

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        3 => (prop::sample::select(vec!["", "one\n", "two\nlines\n", "needle\n"]), prop::sample::select(vec![0o644, 0o755]))
            .prop_map(|(text, mode)| Content::File(text, mode)),
        2 => prop::sample::select(vec!["d", "a", "d/e", "../a", "..", "d/../b.txt", "l", "../../x", "/etc", "m/a"])
            .prop_map(Content::Link),
        2 => Just(Content::Nothing),
    ]
}

fn change() -> impl Strategy<Value = (&'static str, Content)> {
    (prop::sample::select(&NAMES[..]), content())
}

/// Applies a change to a plain folder. Returns false if something is in its way.
fn change_plain(root: &Path, name: &str, content: &Content) -> bool {
    let at = root.join(name);
    let mut above = at.parent().unwrap();
    while above != root {
        match fs::symlink_metadata(above) {
            Ok(found) if !found.is_dir() => return false,
            _ => above = above.parent().unwrap(),
        }
    }
    match fs::symlink_metadata(&at) {
        Ok(found) if found.is_dir() => return false,
        Ok(_) => fs::remove_file(&at).unwrap(),
        Err(_) if matches!(content, Content::Nothing) => return false,
        Err(_) => fs::create_dir_all(at.parent().unwrap()).unwrap(),
    }
    match content {
        Content::File(text, mode) => {
            fs::write(&at, text).unwrap();
            fs::set_permissions(&at, fs::Permissions::from_mode(*mode)).unwrap();
        }
        Content::Link(target) => symlink(target, &at).unwrap(),
        Content::Nothing => {
            let mut above = at.parent().unwrap();
            while above != root && fs::remove_dir(above).is_ok() {
                above = above.parent().unwrap();
            }
        }
    }
    true
}

/// Applies a change as a transaction does.
fn change_layered(workspace: &Workspace, plain: &BTreeMap<PathBuf, (u32, Vec<u8>)>, name: &str, content: &Content) {
    let before = plain.get(Path::new(name)).map(|(_, bytes)| Sha256::of(bytes));
    let after = match content {
        Content::File(text, mode) => Some((text.as_bytes().to_vec(), *mode)),
        Content::Link(target) => Some((target.as_bytes().to_vec(), LINK_MODE)),
        Content::Nothing => None,
    };
    let new = |(bytes, mode): (Vec<u8>, u32)| StepContent {
        sha256: Sha256::of(&bytes),
        mode,
        bytes: StepBytes::Inline(bytes),
    };
    let after = after.map(new);
    let step = Step { path: path(name), before, after };
    let staged = workspace.stage(std::slice::from_ref(&step), &BTreeMap::new()).unwrap();
    assert_eq!(staged.changed_outside(), [], "{name} {content:?}");
    workspace.apply(staged).unwrap().sync().unwrap();
    workspace.add_written(&[path(name)]);
}

fn show<T: std::fmt::Debug>(answer: Result<T, WorkspaceError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(WorkspaceError::Refused(refusal)) => format!("{:?} {}", refusal.code, refusal.message),
        Err(error) => format!("{error:?}"),
    }
}

/// Returns what every query says of a tree. Times are left out.
fn answers(tree: &Tree) -> Vec<String> {
    let (rules, cancel) = (rules(), not_cancelled());
    let mut all = Vec::new();
    for folder in [".", "d", "l", "m", "d/e"] {
        for (max_depth, after) in [(1, None), (9, None), (9, Some("d/a".to_owned()))] {
            let query = ListQuery {
                path: path(folder),
                max_depth,
                include_hidden: true,
                include_ignored: false,
                max_entries: 1000,
                after,
                counts_all: true,
            };
            all.push(format!("list {folder}: {}", show(tree.list(&rules, &query, &cancel))));
        }
        let query = FindQuery {
            globs: vec!["**".to_owned()],
            path: path(folder),
            max_results: 1000,
            sort: FindSort::Path,
            after: None,
            counts_all: true,
        };
        let found = tree.find(&rules, &query, &cancel).map(|report| {
            let entries = report.entries.into_iter();
            let entries: Vec<_> = entries
                .map(|entry| (entry.path, entry.entry_type, entry.kind, entry.size_bytes, entry.readable, entry.reason))
                .collect();
            (entries, report.total, report.not_shown)
        });
        all.push(format!("find {folder}: {}", show(found)));
        all.push(format!("stats {folder}: {}", show(tree.stats(&rules, &path(folder), &cancel))));
        let query = SearchQuery { path: path(folder), context_lines: 1, ..search_query("needle") };
        all.push(format!("search {folder}: {}", show(tree.search(&rules, &query, &cancel))));
    }
    add_answers_by_name(tree, &rules, &mut all);
    all
}

fn add_answers_by_name(tree: &Tree, rules: &model::Rules, all: &mut Vec<String>) {
    for name in NAMES.into_iter().chain(["d", ".", "nothing", "a/b", "l/e/a", "m/b.txt", "up"]) {
        let read = tree.read(rules, &path(name), 1000).map(|read| (read.real_path, read.bytes, read.mode));
        all.push(format!("read {name}: {}", show(read)));
        let stat = tree.stat(rules, &path(name), &not_cancelled()).map(|stat| {
            let found = stat.found.map(|found| {
                (found.entry_type, found.kind, found.target, found.refused, found.size_bytes, found.mode, found.sha256)
            });
            // The permission bits of a folder are those of who made it.
            let found = found.map(|mut found| {
                if found.0 == crate::EntryType::Directory {
                    found.5 = 0;
                }
                found
            });
            (found, stat.writable)
        });
        all.push(format!("stat {name}: {}", show(stat)));
        all.push(format!("names near {name}: {}", show(tree.follow_path(rules, &path(name)))));
    }
}

/// Returns which paths git says to differ between the base and the plain folder.
fn git_diff(rig: &TestWorkspaces, plain: &Path, written: &BTreeSet<&str>) -> Vec<(String, char)> {
    let index = rig.outside().join("index");
    let _ = fs::remove_file(&index);
    let git = |tree: &Path, args: &[&str]| git_on_base(rig, "r", tree, args);
    // With what git ignores, which the base has and its commit has not.
    let imported = rig.imported("r");
    git(&imported, &["add", "-A", "-f"]);
    let base = git(&imported, &["write-tree"]);
    git(plain, &["add", "-A"]);
    for name in written {
        // Behind a link, it is another file.
        let is_linked = Path::new(name).ancestors().skip(1).any(|folder| plain.join(folder).is_symlink());
        if !is_linked && fs::symlink_metadata(plain.join(name)).is_ok_and(|found| !found.is_dir()) {
            git(plain, &["add", "-f", "--", name]);
        }
    }
    let listed = git(plain, &["diff", "--cached", "--no-renames", "--name-status", "-z", base.trim()]);
    let mut words = listed.split('\0');
    let mut found = Vec::new();
    while let (Some(status), Some(path)) = (words.next(), words.next()) {
        let status = status.chars().next().unwrap();
        found.push((path.to_owned(), if status == 'T' { 'M' } else { status }));
    }
    found
}

fn import(rig: &TestWorkspaces, plain: &Path) -> Arc<Workspace> {
    for (name, text) in [
        ("a", "base\n"),
        ("b.txt", "needle in the base\n"),
        ("d/a", "base\nneedle\n"),
        ("d/e/a", ""),
        ("d/e/f/x", "deep\n"),
        ("x.log", "ignored needle\n"),
        (".gitignore", "*.log\n"),
    ] {
        fs::create_dir_all(plain.join(name).parent().unwrap()).unwrap();
        fs::write(plain.join(name), text).unwrap();
    }
    symlink("d", plain.join("l")).unwrap();
    symlink("../b.txt", plain.join("d/to-b")).unwrap();
    rig.import("r", ImportSource::Directory(plain.to_owned())).unwrap().workspace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn two_layers_are_one_tree(changes in prop::collection::vec(change(), 1..30)) {
        let rig = TestWorkspaces::new();
        let plain = rig.root("plain");
        let workspace = import(&rig, &plain);
        let mut written = BTreeSet::new();
        for (name, content) in &changes {
            let before = tree_of(&plain);
            if !change_plain(&plain, name, content) {
                continue;
            }
            written.insert(*name);
            change_layered(&workspace, &before, name, content);
            prop_assert_eq!(visible(&workspace), tree_of(&plain), "{} {:?}", name, content);
        }
        let one = Tree::of_run(open_ambient_folder(&plain).unwrap(), workspace.base().clone(), None);
        one.ignored.as_ref().unwrap().add_written(&written.iter().map(|name| path(name)).collect::<Vec<_>>());
        for (layered, plain) in answers(workspace.tree()).into_iter().zip(answers(&one)) {
            prop_assert_eq!(layered, plain);
        }
        let query = DiffQuery { path: None, stat_only: false, max_bytes: usize::MAX };
        let diff = workspace.diff(&rules(), &query, &not_cancelled()).unwrap();
        let status = |status: &str| match status {
            "created" => 'A',
            "deleted" => 'D',
            _ => 'M',
        };
        let found: Vec<_> = diff.files.iter().map(|file| (file.path.clone(), status(&file.status))).collect();
        prop_assert_eq!(found, git_diff(&rig, &plain, &written));
        // What is opened again is the same, once it knows what was removed.
        let removed = written.iter().filter(|name| fs::symlink_metadata(plain.join(name)).is_err());
        let again = rig.workspaces.get(&RunId::parse("r").unwrap()).unwrap();
        again.hide_removed(&removed.map(|name| path(name)).collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(visible(&again), tree_of(&plain));
    }
}
