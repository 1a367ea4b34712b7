//! Exports of a run: the patch from its base, and a git bundle with one commit.

use std::path::{Path, PathBuf};

use rstest::rstest;
use serde_json::json;

use crate::harness::{Answer, Backend, Run, Server, assert_growth, commit_all, git, sha256};

async fn get(run: &Run, what: &str) -> Answer {
    run.agent.get(&format!("/v1/runs/{}/{what}", run.id)).await
}

/// Writes a bundle next to `folder` and returns its path.
fn save(folder: &Path, answer: &Answer) -> PathBuf {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/x-git-bundle");
    let file = folder.with_extension("bundle");
    std::fs::write(&file, &answer.body).unwrap();
    file
}

async fn git_run(server: &Server, files: &[(&str, &str)]) -> (Run, PathBuf) {
    let (folder, _) = server.repository(files);
    (server.run(json!({"source": {"type": "git", "url": folder}})).await, folder)
}

#[rstest]
#[tokio::test]
async fn a_bundle_is_one_commit_on_the_base_of_a_git_run(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let files = [
        ("a.txt", "one\n"),
        ("gone.txt", "g\n"),
        (".env", "A=1\n"),
        (".gitignore", "*.log\n"),
        ("run.sh", "#!/bin/sh\n"),
    ];
    let (run, folder) = git_run(&server, &files).await;
    let input = json!({"path": "a.txt", "content": "two\n", "expectedSha256": sha256("one\n"), "reason": "count on"});
    run.ok("write_file", input).await;
    let gone = json!({"path": "gone.txt", "expectedSha256": sha256("g\n"), "reason": "no longer used"});
    run.ok("delete_file", gone).await;
    run.ok("write_file", json!({"path": "new/ü.txt", "content": "n\n", "reason": "count on"})).await;
    run.put(".env", "A=2\n");
    run.put("id_rsa", "secret\n");
    run.put("x.log", "ignored\n");
    run.put("sub/.git/config", "[core]\n");
    let file = save(&folder, &get(&run, "bundle").await);
    let file = file.to_str().unwrap();
    git(&folder, &["bundle", "verify", "-q", file]);
    git(&folder, &["fetch", "-q", file, &format!("workspaced/{}:agent", run.id)]);
    let base = git(&folder, &["rev-parse", "HEAD"]);
    assert_eq!(run.get().await["baseCommit"], base.as_str());
    assert_eq!(git(&folder, &["rev-parse", "agent^"]), base);
    assert_eq!(
        git(&folder, &["-c", "core.quotepath=false", "ls-tree", "-r", "--name-only", "agent"]),
        ".env\n.gitignore\na.txt\nnew/ü.txt\nrun.sh"
    );
    assert_eq!(git(&folder, &["show", "agent:.env"]), "A=1", "a denied file changed");
    assert_eq!(git(&folder, &["show", "agent:a.txt"]), "two");
    assert_eq!(git(&folder, &["show", "agent:new/ü.txt"]), "n");
    assert_eq!(git(&folder, &["log", "-1", "--format=%an|%ae", "agent"]), "workspaced|agent@workspaced.invalid");
    let message = git(&folder, &["log", "-1", "--format=%B", "agent"]);
    assert_eq!(message.trim_end(), format!("Changes of run {}\n\n- count on\n- no longer used", run.id));
    let record = run.last_record().await;
    assert_eq!(
        (&record["tool"], &record["pathsRead"], &record["outcome"]),
        (&json!("bundle"), &json!(["."]), &json!("ok"))
    );
    // A fast-forward merge of the bundle gives the tree of the run.
    git(&folder, &["merge", "-q", "--ff-only", "agent"]);
    assert_eq!(std::fs::read_to_string(folder.join("new/ü.txt")).unwrap(), "n\n");
    assert!(!folder.join("gone.txt").exists() && !folder.join("id_rsa").exists() && !folder.join("x.log").exists());
}

#[rstest]
#[tokio::test]
async fn the_author_branch_and_message_of_a_bundle_can_be_set(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (run, folder) = git_run(&server, &[("a.txt", "a\n")]).await;
    run.create("n.txt", "n\n").await;
    let query = "bundle?authorName=An%20Agent&authorEmail=an@agent.example&branch=fix/it&message=Say%20n%0A%0Abecause";
    let file = save(&folder, &get(&run, query).await);
    git(&folder, &["fetch", "-q", file.to_str().unwrap(), "fix/it:agent"]);
    let commit = git(&folder, &["log", "-1", "--format=%an|%ae|%cn|%s|%b", "agent"]);
    assert_eq!(commit.trim_end(), "An Agent|an@agent.example|An Agent|Say n|because");
    // A single reason that fits one line is the message.
    let file = save(&folder, &get(&run, "bundle?branch=b").await);
    git(&folder, &["fetch", "-q", file.to_str().unwrap(), "b:b"]);
    assert_eq!(git(&folder, &["log", "-1", "--format=%B", "b"]).trim_end(), "test");
    for bad in [
        "authorName=",
        "authorName=a%3Cb",
        "authorName=a%0Ab",
        "authorEmail=%3Ea",
        "branch=a..b",
        "branch=-x",
        "branch=a%20b",
        "message=",
        "surprise=1",
    ] {
        get(&run, &format!("bundle?{bad}")).await.refused("INVALID_REQUEST");
    }
    let long = format!("bundle?authorName={}", "a".repeat(257));
    get(&run, &long).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn a_bundle_of_a_run_without_git_contains_its_base(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    let folder = server.template(&[]);
    let file = save(&folder, &get(&run, "bundle").await);
    let clone = folder.with_extension("clone");
    git(&folder, &["clone", "-q", file.to_str().unwrap(), clone.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(clone.join("a.txt")).unwrap(), "b\n");
    let base = run.get().await["baseCommit"].as_str().unwrap().to_owned();
    assert_eq!(git(&clone, &["rev-list", "HEAD^"]), base);
    assert_eq!(git(&clone, &["show", "HEAD^:a.txt"]), "a");
    assert!(commit_all(&clone, "second").len() == 40);
}

#[rstest]
#[tokio::test]
async fn a_bundle_contains_no_denied_file_of_the_base(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files =
        [(".env", "KEY=marked\n"), ("keys/id_rsa", "marked\n"), ("private/p.txt", "marked\n"), ("a.txt", "a\n")];
    let policy = json!({"policy": {"deny": ["private/**"]}});
    let (server, run) = Run::shared_with(backend, &files, policy).await;
    run.create("sub/n.txt", "n\n").await;
    let folder = server.template(&[]);
    let file = save(&folder, &get(&run, "bundle").await);
    let clone = folder.with_extension("clone");
    git(&folder, &["clone", "-q", file.to_str().unwrap(), clone.to_str().unwrap()]);
    assert_eq!(git(&clone, &["ls-tree", "-r", "--name-only", "HEAD"]), "a.txt\nsub/n.txt");
    assert_eq!(git(&clone, &["ls-tree", "-r", "--name-only", "HEAD^"]), "a.txt");
    let all = git(&clone, &["cat-file", "--batch-all-objects", "--batch"]);
    assert!(all.contains("a.txt") && !all.contains("marked"), "{all}");
}

#[rstest]
#[tokio::test]
async fn each_export_needs_its_permission(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let both = ["file:diff", "file:read"];
    for (what, held, may) in [
        ("archive", &both[1..], true),
        ("archive", &both[..1], false),
        ("bundle", &both[1..], true),
        ("bundle", &both[..1], false),
        ("patch", &both[..], true),
        ("patch", &both[..1], false),
        ("patch", &both[1..], false),
    ] {
        let path = format!("/v1/runs/{}/tokens", run.id);
        let token = run.operator.post(&path, json!({"permissions": held})).await.is(201);
        let client = run.agent.with_token(token["token"].as_str());
        let answer = client.get(&format!("/v1/runs/{}/{what}", run.id)).await;
        if may {
            assert_eq!(answer.status, 200);
        } else {
            answer.refused("FORBIDDEN");
        }
        let record = run.last_record().await;
        let outcome = if may { "ok" } else { "refused" };
        assert_eq!((&record["tool"], &record["outcome"]), (&json!(what), &json!(outcome)));
        // An auditor sees what has changed, and takes no tree.
        let audited = server.auditor().get(&format!("/v1/runs/{}/{what}", run.id)).await;
        assert_eq!(audited.status, if what == "patch" { 200 } else { 403 }, "{what}");
        run.operator.get(&format!("/v1/runs/none-such/{what}")).await.refused("RUN_NOT_FOUND");
    }
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await;
    for what in ["bundle", "patch"] {
        run.operator.get(&format!("/v1/runs/{}/{what}", run.id)).await.refused("RUN_CLOSED");
    }
}

#[rstest]
#[tokio::test]
async fn a_patch_is_streamed_in_constant_memory(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    // The first export loads state that later ones share.
    assert_eq!(get(&run, "patch").await.status, 200);
    let line = format!("{}\n", "x".repeat(99));
    for file in 0..12 {
        run.put(&format!("big/{file:02}.txt"), line.repeat(80 * 1024));
    }
    let (patch, growth) = server.peak_growth(get(&run, "patch")).await;
    assert_eq!(patch.status, 200);
    assert!(patch.body.len() > 90 << 20, "{}", patch.body.len());
    let added = patch.body.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"+x"));
    assert_eq!(added.count(), 12 * 80 * 1024);
    assert_growth(&format!("a patch of {} MiB", patch.body.len() >> 20), growth, 80);
    server.stop();
}
