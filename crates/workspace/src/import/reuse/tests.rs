use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use super::NAME;
use crate::ImportSource;
use crate::test_support::{TestWorkspaces, git, tree_of};

fn repository(rig: &TestWorkspaces) -> PathBuf {
    let source = rig.root("source");
    git(&source, &["init", "-q", "-b", "main"]);
    fs::create_dir_all(source.join("src/deep")).unwrap();
    for n in 0..40 {
        fs::write(source.join(format!("src/{n}.txt")), format!("{n}\n")).unwrap();
    }
    fs::write(source.join("src/deep/large"), vec![7; 300_000]).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    fs::write(source.join(".gitignore"), "*.log\n").unwrap();
    symlink("src/1.txt", source.join("link")).unwrap();
    git(&source, &["add", "."]);
    git(&source, &["commit", "-qm", "one"]);
    source
}

fn head(source: &Path) -> ImportSource<'static> {
    ImportSource::GitLocal { path: source.to_owned(), reference: None }
}

/// The inodes of the packs of a run's base.
fn packs(rig: &TestWorkspaces, run: &str) -> Vec<u64> {
    let found = fs::read_dir(rig.run(run).join("base.git/objects/pack")).unwrap();
    let mut inodes: Vec<_> = found.map(|entry| entry.unwrap().metadata().unwrap().ino()).collect();
    inodes.sort_unstable();
    inodes
}

#[test]
fn the_second_run_has_the_packs_of_the_first_and_files_of_its_own() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig);
    let first = rig.import("a", head(&source)).unwrap();
    let second = rig.import("b", head(&source)).unwrap();
    assert_eq!(packs(&rig, "a"), packs(&rig, "b"), "objects were fetched again");
    assert_eq!(
        (&first.base_commit, first.manifest_sha256, first.files, first.bytes),
        (&second.base_commit, second.manifest_sha256, second.files, second.bytes)
    );
    assert_eq!(tree_of(&rig.repo("a")), tree_of(&rig.repo("b")));
    let (a, b) = (rig.repo("a").join("src/1.txt"), rig.repo("b").join("src/1.txt"));
    assert!(
        fs::metadata(&a).unwrap().nlink() == 1 && fs::metadata(&a).unwrap().ino() != fs::metadata(&b).unwrap().ino()
    );
    assert_eq!(fs::read_link(rig.repo("b").join("link")).unwrap(), Path::new("src/1.txt"));
    rig.base_git("b", &["fsck", "--strict"]);
    assert_eq!(rig.base_git("b", &["rev-parse", "refs/workspaced/base"]).trim(), first.base_commit);
}

#[test]
fn what_the_first_run_has_changed_is_as_in_the_commit() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig);
    rig.import("a", head(&source)).unwrap();
    let before = tree_of(&rig.repo("a"));
    let repo = rig.repo("a");
    fs::write(repo.join("src/1.txt"), "changed\n").unwrap();
    fs::remove_file(repo.join("src/2.txt")).unwrap();
    fs::remove_file(repo.join("link")).unwrap();
    symlink("/etc/passwd", repo.join("link")).unwrap();
    fs::remove_dir_all(repo.join("src/deep")).unwrap();
    symlink("/etc", repo.join("src/deep")).unwrap();
    fs::write(repo.join("added"), "of the first run\n").unwrap();
    rig.import("b", head(&source)).unwrap();
    assert_eq!(tree_of(&rig.repo("b")), before);
    assert_eq!(packs(&rig, "a"), packs(&rig, "b"));
}

#[test]
fn a_base_lives_as_long_as_a_run_has_it() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig);
    for run in ["a", "b", "c"] {
        let first = rig.import(run, head(&source)).unwrap();
        rig.base_git(run, &["fsck", "--strict"]);
        if run != "a" {
            assert_eq!(packs(&rig, "a"), packs(&rig, run));
        }
        assert_eq!(first.files, 43 + 1);
    }
    let shared = packs(&rig, "a");
    for run in ["a", "b"] {
        rig.workspaces.remove(&model::RunId::parse(run).unwrap()).unwrap();
    }
    rig.base_git("c", &["fsck", "--strict"]);
    rig.import("d", head(&source)).unwrap();
    assert_eq!(packs(&rig, "d"), shared);
    for run in ["c", "d"] {
        rig.workspaces.remove(&model::RunId::parse(run).unwrap()).unwrap();
    }
    assert_eq!(rig.names(), [".git-home"], "a base remained");
    rig.import("e", head(&source)).unwrap();
    rig.base_git("e", &["fsck", "--strict"]);
}

#[test]
fn another_commit_or_a_damaged_base_is_fetched() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig);
    let first = rig.import("a", head(&source)).unwrap();
    fs::write(source.join("src/1.txt"), "next\n").unwrap();
    git(&source, &["commit", "-qam", "two"]);
    let moved = rig.import("b", head(&source)).unwrap();
    assert_ne!(moved.base_commit, first.base_commit);
    assert_eq!(fs::read_to_string(rig.repo("b").join("src/1.txt")).unwrap(), "next\n");
    let manifest = rig.run("b").join("base.manifest");
    let mut bytes = fs::read(&manifest).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&manifest, bytes).unwrap();
    let again = rig.import("c", head(&source)).unwrap();
    assert_eq!((again.base_commit, again.manifest_sha256), (moved.base_commit.clone(), moved.manifest_sha256));
    assert_ne!(packs(&rig, "b"), packs(&rig, "c"));
    // An intact manifest of other files.
    fs::copy(rig.run("a").join("base.manifest"), rig.run("c").join("base.manifest")).unwrap();
    let last = rig.import("d", head(&source)).unwrap();
    assert_eq!(last.manifest_sha256, moved.manifest_sha256);
    assert_eq!(fs::read_to_string(rig.repo("d").join("src/1.txt")).unwrap(), "next\n");
}

#[test]
fn a_description_that_is_not_readable_is_ignored() {
    let rig = TestWorkspaces::new();
    let source = repository(&rig);
    rig.import("a", head(&source)).unwrap();
    fs::write(rig.run("a").join(NAME), "{").unwrap();
    rig.import("b", head(&source)).unwrap();
    rig.import("c", head(&source)).unwrap();
    assert_ne!(packs(&rig, "a"), packs(&rig, "b"));
    assert_eq!(packs(&rig, "b"), packs(&rig, "c"));
}
