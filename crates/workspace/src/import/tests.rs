use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use model::Code;
use rustix::fs::Mode;

use model::RunId;

use super::*;
use crate::test_support::{TestWorkspaces, git, rules, tree_of};
use crate::{RunFolder, WorkspaceError};

#[test]
fn nothing_makes_an_empty_tree_with_a_commit_that_is_always_the_same() {
    let rig = TestWorkspaces::new();
    let a = rig.import("a", ImportSource::Empty).unwrap();
    let b = rig.import("b", ImportSource::Empty).unwrap();
    assert_eq!((a.files, a.bytes), (0, 0));
    assert_eq!(a.base_commit, b.base_commit);
    assert_eq!(a.workspace.base_commit(), a.base_commit);
    assert!(tree_of(&rig.imported("a")).is_empty());
    let tree = rig.base_git("a", &["rev-parse", &format!("{}^{{tree}}", a.base_commit)]);
    assert_eq!(tree.trim(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    let mut folders: Vec<_> =
        fs::read_dir(rig.run("a")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort_unstable();
    assert_eq!(folders, [".reached", ".unfinished", "artifacts", "base", "repo", "tmp", "tool-cache"]);
    assert_eq!(fs::metadata(rig.run("a")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_directory_is_copied_without_entries_that_a_tree_cannot_have() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    fs::create_dir_all(source.join("src/.GIT/hooks")).unwrap();
    fs::create_dir_all(source.join("empty")).unwrap();
    fs::write(source.join("src/.GIT/config"), "[core]").unwrap();
    fs::write(source.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(source.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(source.join("run.sh"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::write(source.join(".env"), "A=1").unwrap();
    fs::write(source.join(".git"), "gitdir: /elsewhere").unwrap();
    fs::hard_link(source.join("run.sh"), source.join("twin.sh")).unwrap();
    symlink("src/main.rs", source.join("inside")).unwrap();
    symlink("../outside", source.join("up")).unwrap();
    symlink("/etc/passwd", source.join("absolute")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, source.join("pipe"), Mode::RWXU).unwrap();
    let odd: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(b"odd\xff".to_vec());
    fs::write(source.join(&odd), "x").unwrap();

    let done = rig.import("r", ImportSource::Directory(source)).unwrap();
    let left_out: BTreeMap<_, _> = done.left_out.iter().map(|one| (one.path.as_str(), one.reason.as_str())).collect();
    assert_eq!(left_out.keys().copied().collect::<Vec<_>>(), [".git", "pipe", "run.sh", "src/.GIT"]);
    assert!(left_out["run.sh"].starts_with("only its permissions 4711, and those of 1 more:"), "{left_out:?}");
    assert_eq!(left_out[".git"], "a Git-internal path");
    assert_eq!(done.files, 8);
    let repo = rig.imported("r");
    let mode = |name: &str| fs::symlink_metadata(repo.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("run.sh"), mode("src/main.rs")), (0o711, 0o644), "no wider than it was");
    for (name, target) in [("inside", "src/main.rs"), ("up", "../outside"), ("absolute", "/etc/passwd")] {
        assert_eq!(fs::read_link(repo.join(name)).unwrap(), Path::new(target), "as it is, and followed by nothing");
    }
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&fs::metadata(repo.join("twin.sh")).unwrap()), 1);
    assert!(repo.join("empty").is_dir() && repo.join(".env").is_file() && repo.join(odd).is_file());
    let listed = rig.base_git("r", &["ls-tree", "-r", "--name-only", &done.base_commit]);
    assert_eq!(
        listed.lines().collect::<Vec<_>>(),
        [".env", "absolute", "inside", "\"odd\\377\"", "run.sh", "src/main.rs", "twin.sh", "up"]
    );
}

#[test]
fn the_base_of_a_directory_is_what_git_add_would_take() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    for (path, text) in [
        (".gitignore", "*.log\n/out/\n!keep.log\nnode_modules\n"),
        ("a.log", "1"),
        ("keep.log", "2"),
        ("out/a.txt", "3"),
        ("sub/out/a.txt", "4"),
        ("sub/.gitignore", "!*.log\ndeep/*\n!deep/yes\n"),
        ("sub/b.log", "5"),
        ("sub/deep/no", "6"),
        ("sub/deep/yes", "7"),
        ("sub/node_modules/x/index.js", "8"),
        ("sub/node_modules/.gitignore", "!*\n"),
    ] {
        fs::create_dir_all(source.join(path).parent().unwrap()).unwrap();
        fs::write(source.join(path), text).unwrap();
    }
    let done = rig.import("r", ImportSource::Directory(source.clone())).unwrap();
    assert_eq!(tree_of(&rig.imported("r")), tree_of(&source), "what is ignored stays in the tree");
    git(&source, &["init", "-q"]);
    git(&source, &["add", "-A"]);
    let expected = git(&source, &["write-tree"]);
    let tree = rig.base_git("r", &["rev-parse", &format!("{}^{{tree}}", done.base_commit)]);
    assert_eq!(tree, expected);
}

#[test]
fn the_same_files_give_the_same_commit_from_every_kind_of_source() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::write(source.join("a/b/c"), "text").unwrap();
    symlink("b/c", source.join("a/link")).unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    tar.follow_symlinks(false);
    tar.append_dir_all("", &source).unwrap();
    let tar = tar.into_inner().unwrap();
    let directory = rig.import("d", ImportSource::Directory(source)).unwrap();
    let archive = rig.import("t", ImportSource::Archive(&mut &tar[..])).unwrap();
    assert_eq!(directory.base_commit, archive.base_commit);
    assert_eq!(tree_of(&rig.imported("d")), tree_of(&rig.imported("t")));
}

#[test]
fn a_run_is_made_once() {
    let rig = TestWorkspaces::new();
    rig.import("r", ImportSource::Empty).unwrap();
    let again = rig.import("r", ImportSource::Empty).unwrap_err();
    assert!(matches!(again, WorkspaceError::Refused(refusal) if refusal.code == Code::AlreadyExists));
    assert_eq!(rig.names(), [".git-home", "r"]);
}

#[test]
fn a_refused_import_leaves_nothing() {
    let rig = TestWorkspaces::new();
    let error = rig.import("r", ImportSource::Archive(&mut &b"no archive at all"[..])).unwrap_err();
    assert!(matches!(error, WorkspaceError::Refused(refusal) if refusal.code == Code::InvalidRequest));
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn a_cancelled_import_leaves_nothing() {
    struct Gone(AtomicBool);
    impl ImportObserver for Gone {
        fn progress(&self, _: &'static str, files: u64, _: u64) {
            if files > 300 {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        fn cancelled(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    for n in 0..600 {
        fs::write(source.join(n.to_string()), "x").unwrap();
    }
    let run = RunId::parse("r").unwrap();
    let error = rig
        .workspaces
        .import(&run, ImportSource::Directory(source), &rules(), &Gone(AtomicBool::new(false)))
        .unwrap_err();
    assert!(matches!(error, WorkspaceError::Cancelled), "{error:?}");
    assert_eq!(rig.names(), [".git-home"]);
}

#[test]
fn every_stage_reports_progress() {
    struct Progress(Mutex<Vec<(&'static str, u64)>>);
    impl ImportObserver for Progress {
        fn progress(&self, stage: &'static str, files: u64, _: u64) {
            self.0.lock().unwrap().push((stage, files));
        }
        fn cancelled(&self) -> bool {
            false
        }
    }
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    for n in 0..600 {
        fs::write(source.join(n.to_string()), n.to_string()).unwrap();
    }
    let progress = Progress(Mutex::default());
    rig.workspaces.import(&RunId::parse("r").unwrap(), ImportSource::Directory(source), &rules(), &progress).unwrap();
    let reports = progress.0.into_inner().unwrap();
    let of =
        |stage| reports.iter().filter(|(reported, _)| *reported == stage).map(|(_, files)| *files).collect::<Vec<_>>();
    assert!(of("writing").len() >= 3 && of("writing").is_sorted());
    assert!(!of("committing").is_empty());
    assert_eq!(of("done"), [600]);
}

#[test]
fn limits_refuse_the_whole_source() {
    let rig = TestWorkspaces::with_limits(ImportLimits { max_entries: 3, max_bytes: 10, ..ImportLimits::default() });
    let source = rig.root("source");
    fs::write(source.join("a"), "12345").unwrap();
    fs::write(source.join("b"), "12345").unwrap();
    rig.import("fits", ImportSource::Directory(source.clone())).unwrap();
    fs::write(source.join("c"), "1").unwrap();
    let bytes = rig.import("bytes", ImportSource::Directory(source.clone())).unwrap_err();
    assert!(matches!(bytes, WorkspaceError::Refused(refusal) if refusal.details.limit == Some(10)));
    for name in ["a", "b", "c", "d"] {
        fs::write(source.join(name), "").unwrap();
    }
    let entries = rig.import("entries", ImportSource::Directory(source)).unwrap_err();
    assert!(matches!(entries, WorkspaceError::Refused(refusal) if refusal.details.limit == Some(3)));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test compares with what it should be")]
fn only_what_lies_under_an_import_root_is_allowed_and_every_refusal_is_the_same() {
    let rig = TestWorkspaces::new();
    let root = rig.root("");
    fs::create_dir_all(root.join("in/side")).unwrap();
    let evil = root.parent().unwrap().join("roots_evil");
    fs::create_dir_all(&evil).unwrap();
    symlink(&evil, root.join("out")).unwrap();
    let real = root.canonicalize().unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    assert_eq!(rig.workspaces.allow(&text(&root.join("in/./side/../side"))).unwrap(), real.join("in/side"));
    assert_eq!(rig.workspaces.allow(&text(&root)).unwrap(), real);
    let refused = [
        text(&root.join("missing")),
        text(&root.join("out")),
        text(&root.join("in/../../roots_evil")),
        text(&evil),
        "/".to_owned(),
        "/etc".to_owned(),
        "in/side".to_owned(),
        "a\0b".to_owned(),
        String::new(),
    ];
    let first = rig.workspaces.allow(&refused[0]).unwrap_err();
    for raw in refused {
        assert_eq!(rig.workspaces.allow(&raw).unwrap_err(), first, "{raw:?}");
    }
}

#[test]
fn the_services_own_folder_comes_in_by_no_way() {
    let rig = TestWorkspaces::new();
    fs::write(rig.data().join("checkpoint.key"), "secret").unwrap();
    // As if it were mounted at a path that does not show it.
    let everything = rig.data().parent().unwrap().to_owned();
    let done = rig.import("r", ImportSource::Directory(everything)).unwrap();
    assert!(done.left_out.iter().any(|one| one.path == "data"), "{:?}", done.left_out);
    assert!(!rig.imported("r").join("data/checkpoint.key").exists());
    for own in [rig.data(), rig.data().join("workspaces")] {
        let refused = rig.import("s", ImportSource::Directory(own));
        assert!(matches!(refused, Err(WorkspaceError::Refused(refusal)) if refusal.code == Code::InvalidRequest));
    }
}

#[test]
fn removing_takes_everything_however_deep_or_locked_and_follows_no_link() {
    let rig = TestWorkspaces::new();
    rig.import("r", ImportSource::Empty).unwrap();
    let kept = rig.root("kept");
    fs::write(kept.join("file"), "stays").unwrap();
    let repo = rig.repo("r");
    symlink(&kept, repo.join("link")).unwrap();
    fs::create_dir_all(repo.join("locked/inner")).unwrap();
    fs::write(repo.join("locked/inner/file"), "x").unwrap();
    fs::set_permissions(repo.join("locked/inner"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(repo.join("locked"), fs::Permissions::from_mode(0o500)).unwrap();
    let mut dir = rustix::fs::open(&repo, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..1_500 {
        rustix::fs::mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "d", rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let run = RunId::parse("r").unwrap();
    rig.workspaces.remove(&run).unwrap();
    assert_eq!(rig.names(), [".git-home"]);
    assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "stays");
    rig.workspaces.remove(&run).unwrap();
    assert!(rig.workspaces.get(&run).is_err());
}

#[test]
fn a_sweep_removes_what_was_killed_half_made_and_no_run() {
    let rig = TestWorkspaces::new();
    rig.import("known", ImportSource::Empty).unwrap();
    let workspaces = rig.data().join("workspaces");
    fs::create_dir_all(workspaces.join(".import-0123/repo/a")).unwrap();
    fs::create_dir_all(workspaces.join(".trash-0123/repo/.up-1/b")).unwrap();
    for name in [".new-0123/tree/a", ".trash-0123/git"] {
        fs::create_dir_all(rig.data().join("bases").join(name)).unwrap();
    }
    assert_eq!(rig.workspaces.sweep().unwrap(), 4);
    assert_eq!(fs::read_dir(rig.data().join("bases")).unwrap().count(), 3, "the base, the segments and the sources");
    assert_eq!(rig.names(), [".git-home", "known"]);
    assert_eq!(rig.workspaces.sweep().unwrap(), 0);
}

#[test]
fn a_folder_is_unfinished_until_it_is_confirmed() {
    let rig = TestWorkspaces::new();
    let run = RunId::parse("r").unwrap();
    rig.import("r", ImportSource::Empty).unwrap();
    fs::write(rig.data().join("workspaces/file"), "no folder").unwrap();
    assert_eq!(rig.workspaces.folders().unwrap(), [RunFolder { run: run.clone(), is_unfinished: true }]);
    for _ in 0..2 {
        rig.workspaces.confirm(&run).unwrap();
        assert_eq!(rig.workspaces.folders().unwrap(), [RunFolder { run: run.clone(), is_unfinished: false }]);
    }
}

#[test]
fn what_is_set_aside_is_kept_whole_under_a_name_of_its_own() {
    let rig = TestWorkspaces::new();
    let run = RunId::parse("r").unwrap();
    assert!(rig.workspaces.lost().unwrap().is_empty());
    let mut names = Vec::new();
    for text in ["first", "second"] {
        rig.import("r", ImportSource::Empty).unwrap();
        fs::write(rig.data().join("workspaces/r/repo/a.txt"), text).unwrap();
        names.push(rig.workspaces.set_aside(&run).unwrap());
        let kept = rig.data().join("lost+found").join(names.last().unwrap()).join("repo/a.txt");
        assert_eq!(fs::read_to_string(kept).unwrap(), text);
    }
    assert_eq!(names[0], "r");
    assert!(names[1].starts_with("r."));
    fs::create_dir_all(rig.data().join("lost+found/#1234")).unwrap();
    assert_eq!(rig.workspaces.lost().unwrap(), names);
    assert!(rig.workspaces.folders().unwrap().is_empty());
    assert!(rig.workspaces.set_aside(&run).is_err(), "the folder is missing");
}

#[test]
fn a_secret_of_a_folder_comes_in_under_no_other_name() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    // Names that sort before and after the secret's name.
    fs::write(source.join("-first.txt"), "K").unwrap();
    for name in [".env", ".env.local", "zz.txt"] {
        fs::hard_link(source.join("-first.txt"), source.join(name)).unwrap();
    }
    fs::write(source.join("plain"), "x").unwrap();
    fs::hard_link(source.join("plain"), source.join("twin")).unwrap();
    let done = rig.import("r", ImportSource::Directory(source)).unwrap();
    let left_out: Vec<_> = done.left_out.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(left_out, ["-first.txt", "zz.txt"]);
    let tree: Vec<_> = tree_of(&rig.imported("r")).into_keys().collect();
    assert_eq!(tree, [".env", ".env.local", "plain", "twin"].map(PathBuf::from));
}

#[test]
fn what_a_folder_holds_is_bounded_before_it_is_listed() {
    let rig = TestWorkspaces::with_limits(ImportLimits { max_entries: 20, ..ImportLimits::default() });
    let source = rig.root("source");
    for n in 0..21 {
        fs::create_dir(source.join(format!("{n}"))).unwrap();
        fs::write(source.join(format!("{n}/.git")), "x").unwrap();
    }
    let refused = rig.import("r", ImportSource::Directory(source.clone()));
    assert!(matches!(refused, Err(WorkspaceError::Refused(refusal)) if refusal.details.limit == Some(20)));
    let rig = TestWorkspaces::with_limits(ImportLimits { max_name_bytes: 1000, ..ImportLimits::default() });
    for n in 0..5 {
        fs::write(source.join(format!("{n}/{}", "n".repeat(250))), "x").unwrap();
    }
    let refused = rig.import("r", ImportSource::Directory(source));
    assert!(matches!(refused, Err(WorkspaceError::Refused(refusal)) if refusal.details.limit == Some(1000)));
}

#[test]
fn the_ignore_rules_of_a_source_are_bounded_together() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    let rules = "# a comment\n".repeat(21_000);
    for n in 0..40 {
        fs::create_dir(source.join(format!("{n}"))).unwrap();
        fs::write(source.join(format!("{n}/.gitignore")), &rules).unwrap();
    }
    let refused = rig.import("r", ImportSource::Directory(source));
    assert!(matches!(refused, Err(WorkspaceError::Refused(refusal)) if refusal.details.limit == Some(8 << 20)));
}
