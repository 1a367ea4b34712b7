//! Exports of a run: the patch from its base, a git bundle with one commit, and the archive.

use std::path::{Path, PathBuf};

use reqwest::Method;
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

#[rstest]
#[tokio::test]
async fn a_bundle_is_one_commit_on_the_base_of_a_git_run(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let files = [
        ("a.txt", "one\n"),
        ("gone.txt", "g\n"),
        (".env", "A=1\n"),
        (".gitignore", "*.log\n"),
        ("run.sh", "#!/bin/sh\n"),
    ];
    let (run, folder) = server.run_from_git(&files, json!({})).await;
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
    let (run, folder) = server.run_from_git(&[("a.txt", "a\n")], json!({})).await;
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
async fn a_run_that_does_not_come_from_git_has_no_bundle(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    let refused = get(&run, "bundle").await.refused("INVALID_REQUEST");
    let hint = refused["hint"].as_str().unwrap();
    assert!(hint.contains("patch") && hint.contains("archive"), "{refused}");
    let record = run.last_record().await;
    assert_eq!((&record["tool"], &record["outcome"]), (&json!("bundle"), &json!("refused")));
    assert!(get(&run, "patch").await.text().contains("-a\n+b\n"));
}

#[rstest]
#[tokio::test]
async fn a_patch_contains_no_denied_file_of_the_base(#[values(Backend::Sqlite)] backend: Backend) {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEmarked0123456789\n-----END PRIVATE KEY-----\n";
    let files = [(".env", "KEY=marked\n"), ("notes", key), ("private/p.txt", "marked\n"), ("a.txt", "a\n")];
    let policy = json!({"policy": {"deny": ["private/**"]}});
    let (_server, run) = Run::shared_with(backend, &files, policy).await;
    run.create("sub/n.txt", "n\n").await;
    for path in [".env", "notes", "private/p.txt"] {
        run.put(path, "other\n");
    }
    let patch = get(&run, "patch").await.text();
    assert!(patch.contains("sub/n.txt") && !patch.contains("marked"), "{patch}");
    assert!(!patch.contains(".env") && !patch.contains("private/"), "{patch}");
}

#[rstest]
#[tokio::test]
async fn each_export_needs_its_permission(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (run, _) = server.run_from_git(&[("a.txt", "a\n")], json!({})).await;
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
    let (run, _) = server.run_from_git(&[("a.txt", "a\n")], json!({})).await;
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
    let (bundle, growth) = server.peak_growth(get(&run, "bundle")).await;
    assert_eq!(bundle.status, 200);
    assert_growth("a bundle of its files", growth, 80);
    server.stop();
}

#[rstest]
#[tokio::test]
async fn git_takes_the_patch_with_binaries_modes_and_renames(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (run, folder) =
        server.run_from_git(&[("a.txt", "one\n"), ("b/moved.txt", "1\n2\n3\n4\n"), ("run.sh", "x\n")], json!({})).await;
    assert_eq!(get(&run, "patch").await.body, b"");
    get(&run, "patch?format=mbox").await.refused("INVALID_REQUEST");
    let moved = json!({"from": "b/moved.txt", "to": "c/ü \"x\".txt", "expectedSha256": sha256("1\n2\n3\n4\n"), "reason": "move it"});
    run.ok("move_file", moved).await;
    run.ok("write_file", json!({"path": "empty", "content": "", "reason": "move it"})).await;
    run.put("icon.png", [0x89, b'P', b'N', b'G', 0, 1, 2, 0xff]);
    let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain("wide\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    run.put("wide.txt", wide);
    run.accept_tree().await;
    let patch = get(&run, "patch").await;
    assert_eq!(patch.header("content-type"), "text/x-diff");
    let text = patch.text();
    assert!(text.contains("GIT binary patch") && text.contains("rename from b/moved.txt"), "{text}");
    let file = folder.with_extension("diff");
    std::fs::write(&file, &patch.body).unwrap();
    git(&folder, &["apply", "--index", file.to_str().unwrap()]);
    for path in ["c/ü \"x\".txt", "empty", "icon.png", "wide.txt", "run.sh"] {
        assert_eq!(std::fs::read(folder.join(path)).unwrap(), std::fs::read(run.file(path)).unwrap(), "{path}");
    }
    assert!(!folder.join("b/moved.txt").exists());
}

#[rstest]
#[tokio::test]
async fn a_submodule_is_named_and_stays_in_every_export(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (folder, _) = server.repository(&[("a.txt", "one\n"), ("libs/own.txt", "own\n")]);
    let nested = folder.join("libs/x");
    std::fs::create_dir(&nested).unwrap();
    std::fs::write(nested.join("n.txt"), "n\n").unwrap();
    git(&nested, &["init", "-q"]);
    commit_all(&nested, "nested");
    commit_all(&folder, "submodule");
    // The second run copies the base of the first one.
    for _ in 0..2 {
        let run = server.run(json!({"source": {"type": "git", "url": folder}})).await;
        let listed = run.ok("list_dir", json!({"path": "libs"})).await;
        let entry = json!({"path": "libs/x", "type": "directory", "kind": "SUBMODULE", "readable": false, "reason": "PATH_REJECTED"});
        assert!(listed["entries"].as_array().unwrap().contains(&entry), "{listed}");
        let view = run.text("list_dir", json!({})).await.text();
        assert!(view.contains("x/ [submodule]\n"), "{view}");
        for (tool, path) in [
            ("read_file", "libs/x/n.txt"),
            ("read_file", "libs/x"),
            ("list_dir", "libs/x"),
            ("list_dir", "libs/x/src"),
            ("search_text", "libs/x"),
            ("stat_path", "libs/x/n.txt"),
        ] {
            let mut input = json!({"path": path});
            if tool == "search_text" {
                input["query"] = json!("n");
            }
            let refused = run.call(tool, input).await.refused("PATH_REJECTED");
            assert!(refused["detail"].as_str().unwrap().contains("submodule"), "{tool} {path}: {refused}");
        }
        for globs in [json!(["libs/x"]), json!(["libs/x/**"])] {
            let note = json!(["the glob `".to_owned()
                + globs[0].as_str().unwrap()
                + "` names a submodule, whose files this run does not have"]);
            assert_eq!(run.ok("find_files", json!({"glob": globs})).await["notes"], note);
            let found = run.ok("search_text", json!({"query": "n", "includeGlob": globs})).await;
            assert!(found["notes"].as_array().unwrap().contains(&note[0]), "{found}");
        }
        let sha = sha256("own\n");
        for (tool, input) in [
            ("write_file", json!({"path": "libs/x/n.txt", "content": "n\n"})),
            ("write_file", json!({"path": "libs/x", "content": "n\n"})),
            ("move_file", json!({"from": "libs/own.txt", "to": "libs/x/own.txt", "expectedSha256": sha})),
            ("move_file", json!({"from": "libs/x", "to": "y", "recursive": true})),
            ("delete_file", json!({"path": "libs/x", "recursive": true})),
            // The submodule would stay.
            ("move_file", json!({"from": "libs", "to": "others", "recursive": true})),
            ("delete_file", json!({"path": "libs", "recursive": true})),
            ("apply_patch", json!({"patch": "--- /dev/null\n+++ b/libs/x/n.txt\n@@ -0,0 +1 @@\n+n\n"})),
            // The folder would have to give way to the file.
            (
                "apply_patch",
                json!({"patch": "--- a/libs/own.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-own\n--- /dev/null\n+++ b/libs\n@@ -0,0 +1 @@\n+n\n"}),
            ),
        ] {
            let mut input = input;
            input["reason"] = json!("vendor it");
            run.call(tool, input).await.refused("PATH_REJECTED");
        }
        let put = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/libs/x/n.txt", run.id));
        let put = put.header("if-none-match", "*").header("x-reason", "vendor it").body("n\n");
        run.agent.send(put).await.refused("PATH_REJECTED");

        // What something else puts there is not exported either.
        std::fs::create_dir_all(run.repo.join("libs/x")).unwrap();
        run.put("libs/x/outside.txt", "o\n");
        run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
        let patch = get(&run, "patch").await.text();
        assert!(patch.contains("+two") && !patch.contains("libs/x"), "{patch}");
        let file = save(&folder, &get(&run, "bundle").await);
        git(&folder, &["fetch", "-q", "-f", file.to_str().unwrap(), &format!("workspaced/{}:agent", run.id)]);
        assert_eq!(git(&folder, &["diff-tree", "-r", "--name-only", "main", "agent"]), "a.txt");
        assert!(git(&folder, &["ls-tree", "agent", "libs/x"]).starts_with("160000 commit"));
    }
}

/// The files of an archive, each with its time in microseconds.
fn times_of(archive: &[u8]) -> Vec<(String, u64)> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut micros = entry.header().mtime().unwrap() * 1_000_000;
        if let Some(extensions) = entry.pax_extensions().unwrap() {
            for extension in extensions.map(Result::unwrap).filter(|extension| extension.key() == Ok("mtime")) {
                let (seconds, fraction) = extension.value().unwrap().split_once('.').unwrap();
                micros = seconds.parse::<u64>().unwrap() * 1_000_000 + fraction.parse::<u64>().unwrap();
            }
        }
        (path, micros)
    });
    entries.collect()
}

#[rstest]
#[tokio::test]
async fn the_times_of_an_archive_are_those_of_the_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n"), ("d/b.txt", "b\n")]).await;
    let micros = |time: &serde_json::Value| {
        u64::try_from(time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_microsecond()).unwrap()
    };
    let created = micros(&run.get().await["createdAt"]) / 1_000_000 * 1_000_000;
    let archive = async || get(&run, "archive").await.body;
    let first = archive().await;
    assert_eq!(
        times_of(&first),
        [("a.txt", created), ("d/", created), ("d/b.txt", created)].map(|(path, time)| (path.to_owned(), time))
    );
    assert_eq!(archive().await, first);
    let mut before = created;
    // An edit, and its undoing: each makes the file newer.
    for step in 0..2 {
        if step == 0 {
            run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
        } else {
            run.ok("revert_calls", json!({"last": 1, "reason": "undo"})).await;
        }
        let record = run.audit().await.into_iter().rev().find(|record| record["mutates"] == true).unwrap();
        let exported = archive().await;
        let times = times_of(&exported);
        assert_eq!(times[0], ("a.txt".to_owned(), micros(&record["timestamp"])), "{record:#}");
        assert_eq!(times[2], ("d/b.txt".to_owned(), created));
        assert!(times[0].1 > before);
        before = times[0].1;
        assert_eq!(archive().await, exported);
    }
}
