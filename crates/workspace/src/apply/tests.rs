mod folders;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use model::{Sha256, Step, StepBytes, StepContent};
use proptest::prelude::*;

use super::*;
use crate::test_support::{TestWorkspaces, tree_of};

fn path(raw: &str) -> LogicalPath {
    LogicalPath::parse(raw).unwrap()
}

fn write(raw: &str, before: Option<&str>, after: &str) -> Step {
    let before = before.map(|text| Sha256::of(text.as_bytes()));
    let bytes = after.as_bytes().to_vec();
    let content = StepContent { sha256: Sha256::of(&bytes), mode: 0o644, bytes: StepBytes::Inline(bytes) };
    Step { path: path(raw), before, after: Some(content) }
}

fn delete(raw: &str, before: &str) -> Step {
    Step { path: path(raw), before: Some(Sha256::of(before.as_bytes())), after: None }
}

fn carry_out(workspace: &Workspace, steps: &[Step]) {
    let staged = workspace.stage(steps, &BTreeMap::new()).unwrap();
    assert!(staged.changed_outside().is_empty());
    workspace.apply(staged).unwrap().sync().unwrap();
}

fn put(at: &std::path::Path, text: &str) {
    fs::create_dir_all(at.parent().unwrap()).and_then(|()| fs::write(at, text)).unwrap();
}

/// Returns every folder of the tree.
fn folders(rig: &TestWorkspaces) -> Vec<PathBuf> {
    let (mut found, mut next) = (Vec::new(), vec![rig.repo("r")]);
    while let Some(folder) = next.pop() {
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
        next.extend(entries.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.path()));
        found.push(folder);
    }
    found
}

fn tmp_names(rig: &TestWorkspaces) -> usize {
    fs::read_dir(rig.run("r").join("tmp")).unwrap().count()
}

/// Returns the texts of the tree.
fn texts(rig: &TestWorkspaces) -> BTreeMap<PathBuf, String> {
    tree_of(&rig.repo("r")).into_iter().map(|(path, (_, bytes))| (path, String::from_utf8(bytes).unwrap())).collect()
}

#[test]
fn what_came_in_between_is_put_back() {
    type Swap = fn(&std::path::Path);
    let swaps: [(&str, Swap); 5] = [
        ("a folder", |at| fs::remove_file(at).and_then(|()| fs::create_dir(at)).unwrap()),
        ("a link", |at| fs::remove_file(at).and_then(|()| symlink("elsewhere", at)).unwrap()),
        ("another name of it", |at| fs::hard_link(at, at.with_file_name("alias")).unwrap()),
        ("another file", |at| {
            fs::write(at.with_file_name("b"), "a").and_then(|()| fs::rename(at.with_file_name("b"), at)).unwrap();
        }),
        ("other bytes", |at| fs::write(at, "other").unwrap()),
    ];
    for (what, swap) in swaps {
        for replaces in [true, false] {
            let rig = TestWorkspaces::new();
            let workspace = rig.with_own_files("r", &[("a", "a")]);
            let root = &workspace.tree().root;
            let TargetState::File(TargetFile { stamp, .. }) =
                target_state(root, &path("a"), &RemovedPaths::new()).unwrap()
            else {
                panic!("no file")
            };
            swap(&rig.repo("r").join("a"));
            let there = tree_of(&rig.repo("r"));
            let replaced = Replaced::File(Some(stamp));
            let mut applied = Applied::new(&workspace);
            let moved = if replaces {
                let (file, _) = TempEntry::create_file(workspace.tmp(), "new-").unwrap();
                applied.move_in(file, &path("a"), Some(replaced))
            } else {
                applied.move_out(&path("a"), replaced)
            };
            assert!(matches!(moved, Err(GuardError::Occupied)), "{what}");
            assert_eq!(tree_of(&rig.repo("r")), there, "{what}");
            assert_eq!(tmp_names(&rig), 0, "{what}");
            applied.sync().unwrap();
            assert_eq!(tree_of(&rig.repo("r")), there, "{what}");
        }
    }
}

#[test]
fn steps_create_replace_delete_and_move() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_own_files("r", &[("a", "a"), ("b", "b"), ("d/old", "moved")]);
    fs::set_permissions(rig.repo("r").join("a"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut replace = write("a", Some("a"), "a2");
    replace.after.as_mut().unwrap().mode = 0o755;
    let steps = [
        delete("b", "b"),
        delete("d/old", "moved"),
        replace,
        write("new/deep/c", None, "c"),
        write("e/new", None, "moved"),
    ];
    carry_out(&workspace, &steps);
    let tree = tree_of(&rig.repo("r"));
    let found: Vec<_> = tree
        .iter()
        .map(|(path, (mode, bytes))| (path.to_str().unwrap(), *mode, std::str::from_utf8(bytes).unwrap()))
        .collect();
    assert_eq!(found, [("a", 0o755, "a2"), ("e/new", 0o644, "moved"), ("new/deep/c", 0o644, "c")]);
    assert!(!rig.repo("r").join("d").exists(), "a folder that became empty is removed");
    assert_eq!(tmp_names(&rig), 0);
}

#[test]
fn staging_moves_nothing_and_what_is_dropped_leaves_nothing() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_own_files("r", &[("a", "a")]);
    let before = tree_of(&rig.repo("r"));
    let staged = workspace.stage(&[write("a", Some("a"), "a2"), write("b", None, "b")], &BTreeMap::new()).unwrap();
    assert_eq!(tmp_names(&rig), 2);
    assert_eq!(tree_of(&rig.repo("r")), before);
    drop(staged);
    assert_eq!(tmp_names(&rig), 0);
}

/// A change to a target from outside, and the steps that must then change nothing.
type Meddling = (&'static str, fn(&std::path::Path), Step);

fn meddlings() -> Vec<Meddling> {
    vec![
        ("other bytes", |repo| fs::write(repo.join("a"), "x").unwrap(), write("a", Some("a"), "a2")),
        ("gone", |repo| fs::remove_file(repo.join("a")).unwrap(), write("a", Some("a"), "a2")),
        ("a created file exists", |repo| fs::write(repo.join("n"), "x").unwrap(), write("n", None, "n")),
        ("a hard link", |repo| fs::hard_link(repo.join("a"), repo.join("twin")).unwrap(), write("a", Some("a"), "a2")),
        (
            "a link instead of the file",
            |repo| {
                fs::rename(repo.join("a"), repo.join("real")).unwrap();
                symlink("real", repo.join("a")).unwrap();
            },
            write("a", Some("a"), "a2"),
        ),
        (
            "a folder became a link",
            |repo| {
                fs::rename(repo.join("d"), repo.join("real")).unwrap();
                symlink("real", repo.join("d")).unwrap();
            },
            delete("d/x", "x"),
        ),
        ("a file in place of a folder", |repo| fs::write(repo.join("n"), "x").unwrap(), write("n/m", None, "m")),
        ("a dangling link", |repo| symlink("/nowhere", repo.join("n")).unwrap(), write("n", None, "n")),
        (
            "a folder in place of a file",
            |repo| fs::remove_file(repo.join("a")).and_then(|()| fs::create_dir(repo.join("a"))).unwrap(),
            write("a", Some("a"), "a2"),
        ),
        ("a folder with a file", |repo| put(&repo.join("n/deep/x"), "x"), write("n", None, "n")),
        (
            "a folder with a link",
            |repo| {
                fs::create_dir(repo.join("n")).unwrap();
                symlink("/nowhere", repo.join("n/link")).unwrap();
            },
            write("n", None, "n"),
        ),
        ("a folder of git's", |repo| fs::create_dir_all(repo.join("n/.git")).unwrap(), write("n", None, "n")),
        (
            "a folder too deep",
            |repo| fs::create_dir_all(repo.join("n").join("d/".repeat(80))).unwrap(),
            write("n", None, "n"),
        ),
        (
            "a folder with too many",
            |repo| (0..=1000).for_each(|number| fs::create_dir_all(repo.join(format!("n/{number}"))).unwrap()),
            write("n", None, "n"),
        ),
    ]
}

#[test]
fn what_was_changed_from_outside_is_left_alone() {
    for (name, meddle, step) in meddlings() {
        for late in [false, true] {
            let rig = TestWorkspaces::new();
            let workspace = rig.with_own_files("r", &[("a", "a"), ("d/x", "x"), ("other", "o")]);
            let steps = [write("first", None, "1"), step.clone(), write("other", Some("o"), "o2")];
            let (staged, before) = if late {
                let staged = workspace.stage(&steps, &BTreeMap::new()).unwrap();
                assert!(staged.changed_outside().is_empty());
                meddle(&rig.repo("r"));
                (staged, tree_of(&rig.repo("r")))
            } else {
                meddle(&rig.repo("r"));
                let staged = workspace.stage(&steps, &BTreeMap::new()).unwrap();
                assert_eq!(staged.changed_outside(), std::slice::from_ref(&step.path), "{name}");
                (staged, tree_of(&rig.repo("r")))
            };
            let there = folders(&rig);
            match workspace.apply(staged) {
                Err(ApplyError::ChangedOutside(paths)) => assert_eq!(paths, std::slice::from_ref(&step.path), "{name}"),
                other => panic!("{name}: {other:?}"),
            }
            assert_eq!(tree_of(&rig.repo("r")), before, "{name}, late: {late}");
            assert_eq!(tmp_names(&rig), 0, "{name}");
            match workspace.replay(&steps).unwrap() {
                Replay::ChangedOutside(paths) => assert_eq!(paths, std::slice::from_ref(&step.path), "{name}"),
                Replay::Done(_) => panic!("{name}: done again over somebody's change"),
            }
            assert_eq!(tree_of(&rig.repo("r")), before, "{name}, redo");
            assert_eq!(folders(&rig), there, "{name}");
        }
    }
}

#[test]
fn another_stamp_with_the_same_bytes_is_no_change() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_own_files("r", &[("a", "a")]);
    let staged = workspace.stage(&[write("a", Some("a"), "a2")], &BTreeMap::new()).unwrap();
    fs::write(rig.repo("r").join("copy"), "a").unwrap();
    fs::rename(rig.repo("r").join("copy"), rig.repo("r").join("a")).unwrap();
    workspace.apply(staged).unwrap();
    assert_eq!(texts(&rig)[&PathBuf::from("a")], "a2");
}

#[test]
fn steps_that_were_begun_are_finished_from_wherever_they_stopped() {
    let steps = [
        delete("gone", "g"),
        delete("from", "moved"),
        write("a", Some("a"), "a2"),
        write("deep/er/new", None, "n"),
        write("to", None, "moved"),
    ];
    for done in 0..=steps.len() {
        let rig = TestWorkspaces::new();
        let workspace = rig.with_own_files("r", &[("gone", "g"), ("from", "moved"), ("a", "a"), ("kept", "k")]);
        // A crash leaves the first steps applied and the others staged.
        carry_out(&workspace, &steps[..done]);
        std::mem::forget(workspace.stage(&steps[done..], &BTreeMap::new()).unwrap());
        let reopened = rig.workspaces.get(&model::RunId::parse("r").unwrap()).unwrap();
        for round in 0..2 {
            match reopened.replay(&steps).unwrap() {
                Replay::Done(applied) => applied.sync().unwrap(),
                Replay::ChangedOutside(paths) => panic!("{done} done, round {round}: {paths:?}"),
            }
            let expected = [("a", "a2"), ("deep/er/new", "n"), ("kept", "k"), ("to", "moved")];
            let expected: BTreeMap<_, _> =
                expected.into_iter().map(|(path, text)| (PathBuf::from(path), text.to_owned())).collect();
            assert_eq!(texts(&rig), expected, "{done} done, round {round}");
        }
        reopened.clear_tmp(&[]).unwrap();
        assert_eq!(tmp_names(&rig), 0);
    }
}

#[test]
fn several_steps_of_one_file_are_finished_from_any_state_between() {
    let steps = [
        write("f", None, "1"),
        write("f", Some("1"), "2"),
        delete("f", "2"),
        write("f", None, "4"),
        write("g", Some("g"), "5"),
        write("g", Some("5"), "6"),
    ];
    for (f, g) in [(None, "g"), (Some("1"), "g"), (Some("2"), "5"), (Some("4"), "6"), (None, "6")] {
        let rig = TestWorkspaces::new();
        let workspace = rig.with_own_files("r", &[("g", g)]);
        if let Some(text) = f {
            fs::write(rig.repo("r").join("f"), text).unwrap();
        }
        assert!(matches!(workspace.replay(&steps).unwrap(), Replay::Done(_)), "{f:?} {g}");
        let found = texts(&rig);
        assert_eq!((found[&PathBuf::from("f")].as_str(), found[&PathBuf::from("g")].as_str()), ("4", "6"));
    }
}

#[test]
fn what_a_power_cut_leaves_of_unsynced_bytes_is_finished() {
    let text = "some bytes that were not all written";
    for torn in ["", "some bytes", "some bytes\0\0\0\0\0 were not", &"\0".repeat(text.len())] {
        let rig = TestWorkspaces::new();
        let workspace = rig.with_own_files("r", &[("f", torn)]);
        for steps in [[write("f", Some("before"), text)], [write("f", None, text)]] {
            fs::write(rig.repo("r").join("f"), torn).unwrap();
            assert!(matches!(workspace.replay(&steps).unwrap(), Replay::Done(_)), "{torn:?}");
            assert_eq!(texts(&rig)[&PathBuf::from("f")], text);
        }
    }
    let rig = TestWorkspaces::new();
    let workspace = rig.with_own_files("r", &[("f", "some other")]);
    assert!(matches!(workspace.replay(&[write("f", None, text)]).unwrap(), Replay::ChangedOutside(_)));
}

#[test]
fn a_large_file_is_staged_once_and_found_again_by_name() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_own_files("r", &[("a", "a")]);
    let bytes = "large ".repeat(200_000).into_bytes();
    let mut contents = workspace.staged_contents();
    let unused = contents.stage(&mut &b"unused"[..], u64::MAX).unwrap();
    let large = contents.stage(&mut &bytes[..], u64::MAX).unwrap();
    assert_eq!(tmp_names(&rig), 2);
    contents.hand_over(std::slice::from_ref(&large.name)).unwrap();
    assert!(workspace.open_staged(&unused.name).is_err(), "no journal names it");
    assert_eq!((large.sha256, large.size_bytes), (Sha256::of(&bytes), bytes.len() as u64));
    assert_eq!(large.head, bytes[..8192]);
    let content = StepContent { sha256: large.sha256, mode: 0o640, bytes: StepBytes::Staged(large.name.clone()) };
    let steps = [Step { path: path("big/file"), before: None, after: Some(content) }];
    drop(workspace.stage(&steps, &BTreeMap::new()).unwrap());
    assert_eq!(tmp_names(&rig), 1, "what the journal may name is not ours to remove");
    carry_out(&workspace, &steps);
    assert_eq!(fs::read(rig.repo("r").join("big/file")).unwrap(), bytes);
    assert_eq!(fs::metadata(rig.repo("r").join("big/file")).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(
        matches!(workspace.replay(&steps).unwrap(), Replay::Done(_)),
        "the staged file is gone, but the tree has its bytes"
    );
    fs::remove_file(rig.repo("r").join("big/file")).unwrap();
    assert!(matches!(workspace.replay(&steps).unwrap(), Replay::ChangedOutside(_)), "and now they are lost");
}

#[test]
fn a_large_file_past_its_bound_or_from_a_broken_stream_leaves_nothing() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let rig = TestWorkspaces::new();
    let workspace = rig.with_own_files("r", &[]);
    let mut contents = workspace.staged_contents();
    let error = contents.stage(&mut &[0; 1001][..], 1000).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    let error = contents.stage(&mut (&b"begun"[..]).chain(Broken), 1000).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(tmp_names(&rig), 0);
    contents.stage(&mut &b"whole"[..], 1000).unwrap();
    drop(contents);
    assert_eq!(tmp_names(&rig), 0, "a content that nobody has taken over");
    let spooled = workspace.spool(&mut &b"spooled"[..], 7).unwrap();
    assert_eq!((spooled.sha256, spooled.size_bytes), (Sha256::of(b"spooled"), 7));
    assert_eq!(io::read_to_string(spooled.reader()).unwrap(), "spooled");
    assert_eq!(workspace.spool(&mut &b"spooled"[..], 6).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(tmp_names(&rig), 0);
}

#[test]
fn many_are_synced_at_once_also_when_later_steps_took_their_files_away() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_own_files("r", &[("a", "0")]);
    let mut applied = Vec::new();
    for n in 0..50_usize {
        let steps = [write("a", Some(&n.to_string()), &(n + 1).to_string()), write(&format!("d{n}/e/f"), None, "x")];
        applied.push(workspace.apply(workspace.stage(&steps, &BTreeMap::new()).unwrap()).unwrap());
    }
    applied.push(workspace.apply(workspace.stage(&[delete("d1/e/f", "x")], &BTreeMap::new()).unwrap()).unwrap());
    fs::remove_dir_all(rig.repo("r").join("d2")).unwrap();
    Applied::sync_all(&applied).unwrap();
    assert_eq!(texts(&rig)[&PathBuf::from("a")], "50");
}

/// A tree of a few files, and changes to some of them.
fn trees() -> impl Strategy<Value = (BTreeMap<String, String>, BTreeMap<String, Option<String>>)> {
    let names = vec!["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/g/h"];
    let name = prop::sample::select(names).prop_map(str::to_owned);
    let text = prop::sample::select(vec!["", "1", "2", "long\ntext\n"]).prop_map(str::to_owned);
    let tree = prop::collection::btree_map(name.clone(), text.clone(), 0..5);
    let changes = prop::collection::btree_map(name, prop::option::of(text), 1..5);
    let without_nested = |tree: BTreeMap<String, String>| {
        tree.into_iter().fold(BTreeMap::new(), |mut tree, (name, text)| {
            insert(&mut tree, name, text);
            tree
        })
    };
    (tree.prop_map(without_nested), changes)
}

/// Adds a file to a tree, and removes every file above or under it.
fn insert(tree: &mut BTreeMap<String, String>, name: String, text: String) {
    let at = path(&name);
    tree.retain(|other, _| !path(other).is_under(&at) && !at.is_under(&path(other)));
    tree.insert(name, text);
}

/// Returns the steps from one tree to another.
fn steps_between(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> Vec<Step> {
    let gone = from.iter().filter(|(name, _)| !to.contains_key(*name)).map(|(name, text)| delete(name, text));
    let there = to.iter().filter(|(name, text)| from.get(*name) != Some(*text));
    gone.chain(there.map(|(name, text)| write(name, from.get(name).map(String::as_str), text))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn steps_and_their_reverse_give_the_tree_back((from, changes) in trees()) {
        let rig = TestWorkspaces::new();
        let files: Vec<_> = from.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let workspace: Arc<Workspace> = rig.with_own_files("r", &files);
        let mut to = from.clone();
        for (name, text) in changes {
            match text {
                Some(text) => insert(&mut to, name, text),
                None => drop(to.remove(&name)),
            }
        }
        let before = texts(&rig);
        carry_out(&workspace, &steps_between(&from, &to));
        let expected: BTreeMap<_, _> = to.iter().map(|(name, text)| (PathBuf::from(name), text.clone())).collect();
        prop_assert_eq!(texts(&rig), expected);
        carry_out(&workspace, &steps_between(&to, &from));
        prop_assert_eq!(texts(&rig), before);
    }
}
