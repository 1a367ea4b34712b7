//! Round trips: what a command has made of a folder is what the run has then, for the commits of a real history.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rstest::rstest;
use serde_json::{Value, json};

use super::{Printed, command, run};
use crate::harness::{Backend, Server, exhaustive, git, git_command, setting};

/// The repository of this project; `None` where it was not built from one, or from one that fetches files when they are needed.
fn own_history() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let is_partial = git_command(&root).args(["config", "extensions.partialClone"]).output().unwrap().status.success();
    (root.join(".git").exists() && !is_partial).then_some(root)
}

/// Returns the tree of all files in `folder`, ignored ones included, as git names it.
fn tree_of(repository: &Path, folder: &Path, index: &Path) -> String {
    let run = |args: &[&str]| {
        let mut git = git_command(folder);
        git.arg("--git-dir").arg(repository).arg("--work-tree").arg(folder).args(args);
        let done = git.env("GIT_INDEX_FILE", index).output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    run(&["add", "-A", "-f", "."]);
    run(&["write-tree"])
}

/// `WORKSPACED_TEST_COMMITS` sets the number of commits.
#[rstest]
#[case::a_few(8)]
#[case::exhaustive(setting("WORKSPACED_TEST_COMMITS", 200))]
#[tokio::test]
async fn each_commit_of_a_history_goes_through_a_command_and_a_pull_as_it_is(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[case] count: usize,
) {
    let Some(root) = own_history() else {
        eprintln!("SKIPPED: this was not built from a repository with all of its files");
        return;
    };
    let server = Server::start(backend).await;
    let history = server.import_root().join("history.git");
    let (from, to) = (format!("file://{}", root.display()), history.display().to_string());
    git(&root, &["clone", "-q", "--bare", "--depth", &(count + 1).to_string(), &from, &to]);
    let commits = git(&history, &["rev-list", "--first-parent", "--reverse", "HEAD"]);
    let commits: Vec<&str> = commits.lines().collect();
    let commits = &commits[commits.len().saturating_sub(count + 1)..];
    git(&history, &["branch", "start", commits[0]]);
    // The command has a repository of its own, outside of the folder, whose state it changes.
    let repository = server.home.join("repository.git");
    git(&history, &["clone", "-q", "--mirror", &to, &repository.display().to_string()]);
    git(&repository, &["config", "core.bare", "false"]);

    let budget = json!({"maxFilesTouched": 100_000, "maxInsertions": 10_000_000, "maxDeletions": 10_000_000,
        "maxFilesDeleted": 100_000, "maxBytes": 1_000_000_000});
    let policy = json!({"kinds": {"LOCKFILE": "ALLOW", "BINARY": "ALLOW"}, "requireApprovalIf": [], "notSecret": ["**"],
        "allowModeChange": true, "commandBudget": budget, "runBudget": budget});
    let source = json!({"type": "git", "url": history, "ref": "start"});
    let created = server.operator().post("/v1/runs", json!({"source": source, "policy": policy})).await.is(201);
    let of_run = server.run_from(&created).await;

    let client = |args: &[&str]| -> Printed {
        let mut command = command(&server.base, &server.operator_token, args);
        command.env("XDG_STATE_HOME", server.home.join("state"));
        run(command)
    };
    let path = |name: &str| server.home.join(name);
    let (pushing, pulling) = (path("pushing").display().to_string(), path("pulling").display().to_string());
    client(&["checkout", &of_run.id, &pulling]).ok();
    // Files whose texts have what looks like a credential are denied, and stay as they were.
    let mut denied = BTreeSet::new();
    let differing = |found: &str, wanted: &str| -> BTreeSet<String> {
        let names = git(&repository, &["diff-tree", "-r", "--no-renames", "--name-only", found, wanted]);
        names.lines().map(str::to_owned).collect()
    };
    for (number, commit) in commits.iter().enumerate() {
        let to = repository.display().to_string();
        let checkout = ["git", "--git-dir", &to, "--work-tree", ".", "checkout", "-q", "-f", commit];
        let options = ["exec", &of_run.id, "--dir", &pushing, "--push", "--leave-denied", "--json", "--"];
        let printed = client(&[&options[..], &checkout].concat());
        assert_eq!(printed.code, 0, "{commit}: {printed:?}");
        let answer: Value = serde_json::from_str(&printed.out).unwrap();
        let set = &answer["changeset"];
        assert!(answer["left"] == json!([]) && answer["notWalked"] == json!([]), "{commit}: {answer:#}");
        assert!(set.is_null() || set["notTaken"] == json!({}), "{commit}: {set:#}");
        for left in set["left"].as_array().into_iter().flatten() {
            let rule = left["rule"].as_str().unwrap();
            assert!(rule.starts_with("credential:"), "{commit}: {left}");
            denied.insert(left["path"].as_str().unwrap().to_owned());
        }
        let wanted = git(&repository, &["rev-parse", &format!("{commit}^{{tree}}")]);
        let archive = of_run.operator.get(&format!("/v1/runs/{}/archive", of_run.id)).await;
        let unpacked = path(&format!("archive-{number}"));
        tar::Archive::new(flate2::read::GzDecoder::new(&archive.body[..])).unpack(&unpacked).unwrap();
        let found = tree_of(&repository, &unpacked, &path("index-of-run"));
        std::fs::remove_dir_all(unpacked).unwrap();
        let differing_paths = differing(&found, &wanted);
        assert!(differing_paths.is_subset(&denied), "{commit}: {differing_paths:?} differ, {denied:?} were denied");
        // Another folder, which follows, has all that the run has.
        if number % 5 == 0 || number + 1 == commits.len() {
            client(&["pull", &pulling]).ok();
            std::fs::rename(path("pulling/.workspaced"), path("own")).unwrap();
            assert_eq!(tree_of(&repository, &path("pulling"), &path("index-of-pulling")), found, "{commit}");
            std::fs::rename(path("own"), path("pulling/.workspaced")).unwrap();
        }
    }
    assert!(denied.len() <= commits.len() / 10 + 2, "{denied:?}");
    assert_eq!(of_run.verify().await["intact"], true);
}
