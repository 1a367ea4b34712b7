//! Folders that steps create, empty or replace.

use super::*;

#[test]
fn files_and_folders_that_replace_each_other_are_completed_from_every_step() {
    let steps = [
        delete("f", "f"),
        delete("full/deep/x", "x"),
        delete("full/y", "y"),
        write("empty", None, "1"),
        write("f/n/m", None, "2"),
        write("full", None, "3"),
    ];
    let files = [("f", "f"), ("full/deep/x", "x"), ("full/y", "y"), ("empty/x/y", "z")];
    for done in 0..=steps.len() {
        let rig = TestWorkspaces::new();
        let workspace = rig.with_own_files("r", &files);
        fs::remove_file(rig.repo("r").join("empty/x/y")).unwrap();
        let staged = workspace.stage(&steps, &BTreeMap::new()).unwrap();
        assert!(staged.changed_outside().is_empty());
        if done == 0 {
            drop(workspace.apply(staged).unwrap());
        } else {
            std::mem::forget(staged);
            carry_out(&workspace, &steps[..done]);
        }
        for round in 0..2 {
            assert!(!workspace.is_partially_applied(&steps).unwrap() || round == 0 && (1..steps.len()).contains(&done));
            match workspace.replay(&steps).unwrap() {
                Replay::Done(applied) => applied.sync().unwrap(),
                Replay::ChangedOutside(paths) => panic!("{done} done, round {round}: {paths:?}"),
            }
            let expected = [("empty", "1"), ("f/n/m", "2"), ("full", "3")];
            let expected: BTreeMap<_, _> =
                expected.into_iter().map(|(path, text)| (PathBuf::from(path), text.to_owned())).collect();
            assert_eq!(texts(&rig), expected, "{done} done, round {round}");
        }
        workspace.clear_tmp(&[]).unwrap();
    }
}

#[test]
fn folders_that_a_change_empties_go_and_no_others() {
    let files = [("a/b/c/x", "x"), ("a/b/y", "y"), ("d/e/x", "x"), ("f/x", "x"), ("a-b/x", "x")];
    let steps = [
        delete("a-b/x", "x"),
        delete("a/b/c/x", "x"),
        delete("a/b/y", "y"),
        delete("d/e/x", "x"),
        delete("f/x", "x"),
        write("f/g/x", None, "x"),
    ];
    // Whether the steps are applied at once, or replayed after a crash that followed any number of them.
    let left = ["", "a/b/c", "a/b", "a-b"];
    for done in 0..=steps.len() + left.len() {
        let rig = TestWorkspaces::new();
        let workspace = rig.with_own_files("r", &files);
        let repo = rig.repo("r");
        fs::create_dir_all(repo.join("d/empty/deep")).unwrap();
        fs::create_dir(repo.join("empty")).unwrap();
        if done == 0 {
            carry_out(&workspace, &steps);
        } else {
            for step in &steps[..done.min(steps.len())] {
                let at = repo.join(step.path.as_str());
                if step.after.is_some() { put(&at, "x") } else { fs::remove_file(at).unwrap() }
            }
            for folder in left.iter().take(done.saturating_sub(steps.len())).skip(1) {
                fs::remove_dir(repo.join(folder)).unwrap();
            }
            for _ in 0..2 {
                let Replay::Done(applied) = workspace.replay(&steps).unwrap() else {
                    panic!("{done}: changed outside")
                };
                applied.sync().unwrap();
            }
        }
        let mut found = folders(&rig);
        found.sort();
        let expected = ["", "d", "d/empty", "d/empty/deep", "empty", "f", "f/g"];
        assert_eq!(found, expected.map(|folder| repo.join(folder)), "{done}");
        assert_eq!(texts(&rig).len(), 1);
    }
}

#[test]
fn a_folder_that_others_empty_at_the_same_time_is_made_again() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_own_files("r", &[]);
    std::thread::scope(|scope| {
        for name in ["d/e/f/1", "d/e/f/2", "d/e/3", "d/4"] {
            let workspace = &workspace;
            scope.spawn(move || {
                for _ in 0..400 {
                    carry_out(workspace, &[write(name, None, name)]);
                    carry_out(workspace, &[delete(name, name)]);
                }
            });
        }
    });
    assert_eq!(folders(&rig), [rig.repo("r")]);
    assert_eq!(tmp_names(&rig), 0);
}

#[test]
fn a_new_file_in_a_folder_that_a_file_replaces_is_not_removed() {
    for late in [false, true] {
        let rig = TestWorkspaces::new();
        let workspace = rig.with_own_files("r", &[("d/x", "x")]);
        let steps = [delete("d/x", "x"), write("d", None, "1")];
        let staged = workspace.stage(&steps, &BTreeMap::new()).unwrap();
        if late {
            // After the last check: only the kernel can detect it.
            let root = &workspace.tree().root;
            let parent = root.open_parent(&path("d")).unwrap();
            fs::create_dir_all(rig.repo("r").join("d/empty")).unwrap();
            put(&rig.repo("r").join("d/new"), "new");
            Root::remove_empty_tree(&parent).unwrap_err();
        } else {
            put(&rig.repo("r").join("d/new"), "new");
            assert!(matches!(workspace.apply(staged), Err(ApplyError::ChangedOutside(at)) if at == [path("d")]));
        }
        assert_eq!(texts(&rig)[&PathBuf::from("d/new")], "new");
        assert_eq!(texts(&rig)[&PathBuf::from("d/x")], "x");
        assert!(matches!(workspace.replay(&steps).unwrap(), Replay::ChangedOutside(at) if at == [path("d")]));
        fs::remove_file(rig.repo("r").join("d/new")).unwrap();
        assert!(matches!(workspace.replay(&steps).unwrap(), Replay::Done(_)));
        assert_eq!(texts(&rig)[&PathBuf::from("d")], "1");
    }
}
