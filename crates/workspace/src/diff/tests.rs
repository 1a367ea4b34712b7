use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use model::{Code, PolicyOverrides, Profiles};

use super::*;
use crate::test_support::{TestWorkspaces, git, git_on_base, rules};
use crate::{ImportSource, StoredContents};

const ALL: DiffQuery = DiffQuery { path: None, stat_only: false, max_bytes: usize::MAX };

fn diff(workspace: &Workspace) -> WorkspaceDiff {
    workspace.diff(&rules(), &ALL, &AtomicBool::new(false)).unwrap()
}

fn diff_of(workspace: &Workspace, path: &str) -> Result<WorkspaceDiff, WorkspaceError> {
    let query = DiffQuery { path: Some(LogicalPath::parse(path).unwrap()), ..ALL };
    workspace.diff(&rules(), &query, &AtomicBool::new(false))
}

/// Returns git's diff of `repo` against the run's base, new files included.
fn git_says(rig: &TestWorkspaces, run: &str, args: &[&str]) -> String {
    let repo = rig.repo(run);
    let index = rig.outside().join("index");
    let _ = fs::remove_file(&index);
    let run_git = |args: &[&str]| git_on_base(rig, run, &repo, args);
    let base = rig.workspaces.get(&model::RunId::parse(run).unwrap()).unwrap().base_commit().to_owned();
    run_git(&["read-tree", &base]);
    run_git(&["add", "-A"]);
    run_git(&[&["diff", "--cached", "--no-renames", "--no-color"], args, &[&base]].concat())
}

fn without_index_lines(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with("index ")).collect()
}

/// Returns the statistics with git's counts. Git has none for the binary file.
fn stat_of(numstat: &str, binary: &str) -> String {
    let (mut lines, mut sum) = (Vec::new(), [0, 0]);
    for line in numstat.lines() {
        let [added, removed, name] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        if let (Ok(added), Ok(removed)) = (added.parse::<u64>(), removed.parse::<u64>()) {
            sum = [sum[0] + added, sum[1] + removed];
            lines.push(format!("{name} | +{added} -{removed}\n"));
        } else {
            lines.push(format!("{name} | {binary}\n"));
        }
    }
    let all = format!("{} files changed | +{} -{}\n", lines.len(), sum[0], sum[1]);
    lines.concat() + &all
}

#[test]
fn an_untouched_tree_does_not_differ() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "1\n"), ("b/c", "2\n"), (".gitignore", "*.log\n"), ("x.log", "3\n")]);
    let diff = diff(&workspace);
    assert_eq!((diff.files.len(), diff.diff.as_str(), diff.stat.as_str()), (0, "", ""));
    assert_eq!(diff.diff_sha256, Sha256::of(b""));
}

#[test]
fn the_text_and_the_counts_are_gits_own() {
    let rig = TestWorkspaces::new();
    let many: String = (0..300).fold(String::new(), |text, n| text + &format!("line {n}\n"));
    let workspace = rig.with_files(
        "r",
        &[
            ("src/main.rs", "fn main() {\n    old();\n}\n"),
            ("src/gone.rs", "mod a;\nmod b;\n"),
            ("docs/a name with spaces.md", &many),
            ("docs/ümlaut.md", "alt\n"),
            ("run.sh", "#!/bin/sh\n"),
            ("no-newline", "a\nb"),
            ("binary.bin", "a\0b"),
            ("a/very/long/path/that/does/not/fit/into/the/table/because/it/is/so/long/file.txt", "x\n"),
            ("same", "same\n"),
        ],
    );
    let repo = rig.repo("r");
    fs::write(repo.join("src/main.rs"), "fn main() {\n    new();\n    more();\n}\n").unwrap();
    fs::remove_file(repo.join("src/gone.rs")).unwrap();
    fs::write(repo.join("docs/a name with spaces.md"), many.replace("line 1", "row 1")).unwrap();
    fs::write(repo.join("docs/ümlaut.md"), "neu\n").unwrap();
    fs::set_permissions(repo.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(repo.join("no-newline"), "a\nc").unwrap();
    fs::write(repo.join("binary.bin"), "a\0cd").unwrap();
    fs::write(repo.join("a/very/long/path/that/does/not/fit/into/the/table/because/it/is/so/long/file.txt"), "y\n")
        .unwrap();
    fs::create_dir(repo.join("new")).unwrap();
    fs::write(repo.join("new/file"), "new\n").unwrap();
    fs::write(repo.join("new/empty"), "").unwrap();
    symlink("file", repo.join("new/link")).unwrap();
    fs::write(repo.join("same"), "same\n").unwrap();
    rig.hide_missing("r", &workspace);

    let report = diff(&workspace);
    let of_git = git_says(&rig, "r", &["--full-index"]);
    assert_eq!(without_index_lines(&report.diff), without_index_lines(&of_git));
    // Of a replaced binary file there is one.
    let index: Vec<_> = report.diff.lines().filter(|line| line.starts_with("index ")).collect();
    assert!(index.len() == 1 && of_git.contains(&format!("{}\nBinary files a/binary.bin", index[0])), "{index:?}");
    assert_eq!(report.stat, stat_of(&git_says(&rig, "r", &["--numstat"]), "Bin 3 -> 4 bytes"));
    assert_eq!(report.diff_sha256, Sha256::of(report.diff.as_bytes()));
    let numbers: Vec<_> =
        report.files.iter().map(|file| (file.path.as_str(), &*file.status, file.insertions)).collect();
    assert!(numbers.is_sorted());
    assert!(numbers.contains(&("src/gone.rs", "deleted", 0)) && numbers.contains(&("new/file", "created", 1)));
    let main = report.files.iter().find(|file| file.path == "src/main.rs").unwrap();
    assert_eq!(main.old_sha256, Some(Sha256::of(b"fn main() {\n    old();\n}\n")));
    assert_eq!(main.new_sha256, Some(Sha256::of(&fs::read(repo.join("src/main.rs")).unwrap())));
    assert_eq!(report.insertions, report.files.iter().map(|file| file.insertions).sum::<u64>());
    assert!(!report.files.iter().any(|file| file.path == "same"));

    let again = diff(&workspace);
    assert_eq!((again.diff, again.stat, again.files), (report.diff, report.stat, report.files));
}

#[test]
fn a_file_that_becomes_a_link_goes_and_comes() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "text\n"), ("b", "other\n")]);
    let repo = rig.repo("r");
    fs::remove_file(repo.join("a")).unwrap();
    symlink("b", repo.join("a")).unwrap();
    symlink("/etc/passwd", repo.join("leaves")).unwrap();
    rig.hide_missing("r", &workspace);
    let report = diff(&workspace);
    let says = git_says(&rig, "r", &["--", "a"]);
    assert!(report.diff.starts_with(&without_index_lines(&says)), "{}\n--\n{says}", report.diff);
    assert!(!report.diff.contains("/etc/passwd"), "{}", report.diff);
    let leaves = report.files.iter().find(|file| file.path == "leaves").unwrap();
    assert!(leaves.binary);
}

#[test]
fn secrets_ignored_files_and_files_that_policy_denies_are_never_in_a_diff() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files(
        "r",
        &[(".env", "A=1\n"), ("keys/id_rsa", "1\n"), (".gitignore", "*.log\n"), ("hidden/a", "1\n"), ("seen", "1\n")],
    );
    let repo = rig.repo("r");
    for path in [".env", "keys/id_rsa", "hidden/a", "new.log", ".env.local", "hidden/b", "seen"] {
        fs::write(repo.join(path), "the secret\n").unwrap();
    }
    fs::hard_link(repo.join(".env"), repo.join("alias")).unwrap();
    // Other rules do not reveal an ignored file.
    fs::write(repo.join(".gitignore"), "").unwrap();
    let overrides = PolicyOverrides { deny: Some(vec!["hidden/**".to_owned()]), ..PolicyOverrides::default() };
    let rules = Profiles::built_in().resolve(&overrides).unwrap();
    let report = workspace.diff(&rules, &ALL, &AtomicBool::new(false)).unwrap();
    let paths: Vec<_> = report.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, [".gitignore", "seen"]);
    for path in [".env", "hidden/a", "new.log"] {
        let query = DiffQuery { path: Some(LogicalPath::parse(path).unwrap()), ..ALL };
        let refused = workspace.diff(&rules, &query, &AtomicBool::new(false));
        assert!(
            matches!(&refused, Err(WorkspaceError::Refused(refusal)) if matches!(refusal.code, Code::PolicyDenied | Code::PolicyDeniedSecret)),
            "{path}: {refused:?}"
        );
    }
}

#[test]
fn a_path_narrows_the_diff_to_a_folder_or_a_file() {
    let rig = TestWorkspaces::new();
    let workspace =
        rig.with_files("r", &[("a/b/x", "1\n"), ("a/y", "1\n"), ("ab/z", "1\n"), ("gone/deep/q", "1\n"), ("t", "1\n")]);
    let repo = rig.repo("r");
    for path in ["a/b/x", "a/y", "ab/z"] {
        fs::write(repo.join(path), "22\n").unwrap();
    }
    fs::remove_dir_all(repo.join("gone")).unwrap();
    rig.hide_missing("r", &workspace);
    fs::write(repo.join("a/b/new"), "1\n").unwrap();
    symlink("a/b", repo.join("link")).unwrap();
    let paths = |path: &str| {
        let report = diff_of(&workspace, path).unwrap();
        report.files.into_iter().map(|file| file.path).collect::<Vec<_>>()
    };
    assert_eq!(paths("a"), ["a/b/new", "a/b/x", "a/y"]);
    assert_eq!(paths("a/b"), ["a/b/new", "a/b/x"]);
    assert_eq!(paths("link"), ["a/b/new", "a/b/x"]);
    assert_eq!(paths("a/y"), ["a/y"]);
    assert_eq!(paths("gone"), ["gone/deep/q"]);
    assert_eq!(paths("gone/deep/q"), ["gone/deep/q"]);
    assert_eq!(paths("t"), [""; 0]);
    assert_eq!(paths("."), ["a/b/new", "a/b/x", "a/y", "ab/z", "gone/deep/q", "link"]);
    for path in ["nothing", "a/nothing", "t/x"] {
        let refused = diff_of(&workspace, path);
        assert!(
            matches!(&refused, Err(WorkspaceError::Refused(refusal)) if refusal.code == Code::NotFound),
            "{refused:?}"
        );
    }
}

#[test]
fn a_folder_in_place_of_a_file_and_a_file_in_place_of_a_folder_are_reported() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "1\n"), ("b/c", "2\n"), ("p", "3\n")]);
    let repo = rig.repo("r");
    fs::remove_file(repo.join("a")).unwrap();
    fs::create_dir(repo.join("a")).unwrap();
    fs::write(repo.join("a/x"), "1\n").unwrap();
    fs::remove_dir_all(repo.join("b")).unwrap();
    fs::write(repo.join("b"), "2\n").unwrap();
    fs::remove_file(repo.join("p")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, repo.join("p"), rustix::fs::Mode::RWXU).unwrap();
    // Somebody else than a call has done all that: the base is as it was.
    let report = diff(&workspace);
    let files: Vec<_> = report.files.iter().map(|file| (file.path.as_str(), file.status.as_str())).collect();
    assert_eq!(files, [("a", "deleted"), ("a/x", "created"), ("b", "created"), ("b/c", "deleted"), ("p", "deleted")]);
    for (path, want) in [("a", &files[..2]), ("a/x", &files[1..2]), ("b", &files[2..4]), ("b/c", &files[3..4])] {
        let report = diff_of(&workspace, path).unwrap();
        let files: Vec<_> = report.files.iter().map(|file| (file.path.as_str(), file.status.as_str())).collect();
        assert_eq!(files, want, "{path}");
    }
}

#[test]
fn text_is_cut_at_a_lines_end_and_the_hash_is_of_all_of_it() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[]);
    for n in 0..10 {
        fs::write(rig.repo("r").join(n.to_string()), "ä line\n".repeat(20)).unwrap();
    }
    let whole = diff(&workspace);
    for max_bytes in [0, 1, 100, 500, 1000, whole.diff.len() - 1, whole.diff.len()] {
        let query = DiffQuery { max_bytes, ..ALL };
        let cut = workspace.diff(&rules(), &query, &AtomicBool::new(false)).unwrap();
        assert!(cut.diff.len() <= max_bytes && whole.diff.starts_with(&cut.diff));
        assert!(cut.diff.is_empty() || cut.diff.ends_with('\n'));
        assert_eq!(cut.truncated, max_bytes < whole.diff.len());
        assert_eq!((cut.diff_sha256, cut.files.len(), &cut.stat), (whole.diff_sha256, 10, &whole.stat));
    }
    let query = DiffQuery { stat_only: true, ..ALL };
    let stat = workspace.diff(&rules(), &query, &AtomicBool::new(false)).unwrap();
    assert_eq!((stat.diff.as_str(), stat.truncated, stat.diff_sha256), ("", false, whole.diff_sha256));
}

#[test]
fn a_change_that_keeps_size_and_times_is_found() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "old\n"), ("b", "b\n")]);
    let file = rig.repo("r").join("a");
    let times = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "new\n").unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(times).unwrap();
    assert_eq!(diff(&workspace).files.len(), 1);
    // And with the base's content, under another stamp.
    fs::write(&file, "old\n").unwrap();
    assert_eq!(diff(&workspace).files.len(), 0);
}

#[test]
fn a_cached_diff_equals_a_fresh_one() {
    const BASE: &[(&str, &str)] = &[("a", "1\n2\n3\n")];
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", BASE);
    let states = [
        (Some("1\nx\n3\n"), 0o644),
        (Some("1\nx\n3\n"), 0o755),
        (Some("1\n2\n3\n"), 0o755),
        (None, 0),
        (Some("1\n2\n3\n"), 0o644),
        (Some("1\nx\n3\n"), 0o600),
        (Some(""), 0o644),
    ];
    for (number, (text, mode)) in states.into_iter().enumerate() {
        let bring = |run: &str| {
            let file = rig.repo(run).join("a");
            let _ = fs::remove_file(&file);
            if let Some(text) = text {
                fs::write(&file, text).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            }
        };
        let fresh = rig.with_files(&format!("r{number}"), BASE);
        bring(&format!("r{number}"));
        bring("r");
        rig.hide_missing("r", &workspace);
        rig.hide_missing(&format!("r{number}"), &fresh);
        let (report, expected) = (diff(&workspace), diff(&fresh));
        assert_eq!(
            (&report.diff, &report.files, &report.stat),
            (&expected.diff, &expected.files, &expected.stat),
            "{number}"
        );
        assert_eq!(report.diff_sha256, expected.diff_sha256, "{number}");
        let paths = [LogicalPath::parse("a").unwrap()];
        let named = workspace.diff_paths(&rules(), &ALL, Some(&paths), &AtomicBool::new(false)).unwrap();
        assert_eq!((named.diff, named.files), (report.diff, report.files), "{number}");
    }
}

#[test]
fn a_huge_file_is_shown_as_binary() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "1\n")]);
    let file = fs::File::create(rig.repo("r").join("huge")).unwrap();
    file.set_len(64 << 20).unwrap();
    fs::write(rig.repo("r").join("text"), "a line of text\n".repeat(2 << 20)).unwrap();
    let report = diff(&workspace);
    assert!(report.files.iter().all(|file| file.binary && file.new_sha256.is_some()));
    assert!(
        report.diff.contains("Binary files /dev/null and b/text differ\n") && report.diff.len() < 500,
        "{}",
        report.diff
    );
    assert!(report.stat.contains("Bin 0 -> 67108864 bytes"), "{}", report.stat);
}

#[test]
fn a_cancelled_diff_stops() {
    let rig = TestWorkspaces::new();
    let workspace = rig.with_files("r", &[("a", "1\n")]);
    assert!(matches!(workspace.diff(&rules(), &ALL, &AtomicBool::new(true)), Err(WorkspaceError::Cancelled)));
}

#[test]
fn a_git_run_differs_from_its_commit() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    git(&source, &["init", "-q"]);
    fs::write(source.join("a"), "1\n").unwrap();
    fs::write(source.join("tracked.log"), "1\n").unwrap();
    fs::write(source.join(".gitignore"), "*.log\n").unwrap();
    git(&source, &["add", "-f", "."]);
    git(&source, &["commit", "-qm", "one"]);
    let git_dir = ImportSource::GitLocal { path: source, reference: None };
    let workspace = rig.import("r", git_dir).unwrap().workspace;
    fs::write(rig.repo("r").join("tracked.log"), "22\n").unwrap();
    fs::write(rig.repo("r").join("new.log"), "22\n").unwrap();
    let report = diff(&workspace);
    assert_eq!(report.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["tracked.log"]);
    let _: &Path = rig.outside();
}

#[test]
fn new_files_in_a_folder_without_tracked_files_are_reported() {
    let rig = TestWorkspaces::new();
    let source = rig.root("source");
    fs::create_dir_all(source.join("empty/deep")).unwrap();
    fs::create_dir_all(source.join("logs")).unwrap();
    fs::write(source.join("logs/old.log"), "1\n").unwrap();
    fs::write(source.join(".gitignore"), "*.log\n").unwrap();
    let workspace = rig.import("r", ImportSource::Directory(source)).unwrap().workspace;
    assert_eq!(diff(&workspace).files.len(), 0);
    for path in ["empty/deep/new", "logs/new", "logs/new.log"] {
        fs::create_dir_all(rig.repo("r").join(path).parent().unwrap()).unwrap();
        fs::write(rig.repo("r").join(path), "1\n").unwrap();
    }
    let report = diff(&workspace);
    let paths: Vec<_> = report.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["empty/deep/new", "logs/new"]);
}

/// A ledger without contents.
struct NoContents;

impl StoredContents for NoContents {
    fn content(&self, _seq: u64, _sha256: &Sha256) -> std::io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

#[test]
fn drift_is_found_and_shown_as_far_as_policy_allows() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    let rig = TestWorkspaces::new();
    let files = [
        (".env", "A=1\n"),
        (".gitignore", "*.log\n"),
        ("a", "old\n"),
        ("folder", "x\n"),
        ("gone", "x\n"),
        ("key.txt", key),
        ("run.sh", "x\n"),
        ("same", "x\n"),
    ];
    let workspace = rig.with_files("r", &files);
    let repo = rig.repo("r");
    let snapshot = Snapshot::of_base(workspace.base()).unwrap();
    for (name, text) in [(".env", "A=2\n"), ("a", "new\n"), ("key.txt", "plain\n"), ("x.log", "x\n"), ("same", "x\n")] {
        fs::write(repo.join(name), text).unwrap();
    }
    fs::remove_file(repo.join("gone")).unwrap();
    rig.hide_missing("r", &workspace);
    fs::remove_file(repo.join("folder")).unwrap();
    fs::create_dir(repo.join("folder")).unwrap();
    fs::set_permissions(repo.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("/etc/passwd", repo.join("out")).unwrap();

    let found = workspace.find_drift(&snapshot).unwrap();
    let names: Vec<_> = found.iter().map(|drift| drift.path.as_str()).collect();
    assert_eq!(names, [".env", "a", "folder", "gone", "key.txt", "out", "run.sh"]);
    let inspect =
        |drift: &Drift, max_bytes| workspace.inspect_drift(&rules(), &snapshot, drift.clone(), &NoContents, max_bytes);
    for drift in &found {
        let seen = inspect(drift, 1000).unwrap();
        let diff = String::from_utf8(seen.diff).unwrap();
        let (state, bytes) = match drift.path.as_str() {
            "a" => {
                assert!(diff.ends_with("-old\n+new\n"), "{diff}");
                (EntryState::File { sha256: Sha256::of(b"new\n"), executable: false }, Some("new\n"))
            }
            "run.sh" => {
                assert!(diff.ends_with("old mode 100644\nnew mode 100755\n"), "{diff}");
                (EntryState::File { sha256: Sha256::of(b"x\n"), executable: true }, Some("x\n"))
            }
            "out" => (EntryState::Link { sha256: Sha256::of(b"/etc/passwd") }, Some("/etc/passwd")),
            "folder" => (EntryState::Folder, None),
            "gone" => (EntryState::Nothing, None),
            ".env" => (EntryState::File { sha256: Sha256::of(b"A=2\n"), executable: false }, Some("A=2\n")),
            _ => (EntryState::File { sha256: Sha256::of(b"plain\n"), executable: false }, Some("plain\n")),
        };
        for hidden in ["A=", "b3BlbnNzaC1rZXktdjE", "plain", "passwd"] {
            assert!(!diff.contains(hidden), "{diff}");
        }
        assert_eq!((drift.found, seen.new, seen.bytes.as_deref()), (state, state, bytes.map(str::as_bytes)), "{diff}");
    }
    assert_eq!(inspect(&found[1], 3).unwrap().bytes, None);
    fs::write(repo.join("a"), "other\n").unwrap();
    inspect(&found[1], 1000).unwrap_err();
}
