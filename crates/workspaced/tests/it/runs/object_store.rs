//! Bases and large contents in an object store: a run whose files are gone is opened from it and from the ledger.

mod collection;
mod lost_folder;

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::{
    Answer, Backend, Run, S3, Server, Setup, Snapshot, exhaustive, free_port, incompressible, sha256,
};
use crate::operation::replay_and_repair::{assert_ends, put};

const MIB: usize = 1 << 20;

/// A server with a folder as its object store, and that folder.
pub(super) async fn storing(setup: Setup) -> (Server, PathBuf) {
    let mut server = Server::prepare(setup).await;
    let folder = server.home.join("objects");
    std::fs::create_dir(&folder).unwrap();
    server.setup = server.setup.clone().arg("--object-store-url", format!("file://{}", folder.display()));
    server.restart();
    (server, folder)
}

/// Stops the server, removes the files of `run`, and starts the server again.
pub(super) fn lose_files(server: &mut Server, run: &Run) -> Run {
    assert!(server.stop().success());
    std::fs::remove_dir_all(server.workspace(&run.id)).unwrap();
    server.restart();
    server.reconnect(run)
}

/// Removes the bases on this machine, and their contents.
pub(super) fn remove_bases(server: &Server) {
    let bases = server.data_dir().join("bases");
    for base in std::fs::read_dir(&bases).unwrap().map(Result::unwrap) {
        if base.file_name() != "sources" && base.file_name() != "segments" {
            std::fs::remove_dir_all(base.path()).unwrap();
        }
    }
    for segment in std::fs::read_dir(bases.join("segments")).unwrap() {
        std::fs::remove_file(segment.unwrap().path()).unwrap();
    }
}

/// Creates a run from a folder with files of every kind.
async fn imported_run(server: &Server) -> Run {
    let files = [
        ("a.txt", "a\n"),
        ("dir/b.txt", "b\r\n"),
        ("run.sh", "#!/bin/sh\n"),
        ("pic.bin", "\0base"),
        (".env", "SECRET=1\n"),
        (".gitignore", "*.log\nout/\n"),
        ("empty", ""),
        ("x.log", "ignored\n"),
        ("y.log", "ignored too\n"),
        ("z.log", "deleted\n"),
        ("out/deep/o.bin", "\0built"),
        ("gone/g.txt", "g\n"),
        ("swap", "a file\n"),
    ];
    let folder = server.template(&files);
    std::fs::set_permissions(folder.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(folder.join("y.log"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("dir/b.txt", folder.join("link")).unwrap();
    std::fs::create_dir_all(folder.join("hollow/inner")).unwrap();
    std::fs::write(folder.join(std::ffi::OsStr::from_bytes(b"odd\xff")), "not UTF-8\n").unwrap();
    let budget = json!({"maxInsertions": 1_000_000, "maxDeletions": 1_000_000, "maxBytes": 1_000_000_000});
    let policy =
        json!({"allowModeChange": true, "ignoredFiles": "ALLOW", "maxTransferBytes": 64 * MIB, "budget": budget});
    server.run(json!({"source": {"type": "directory", "path": folder}, "policy": policy})).await
}

/// Makes every kind of change.
async fn change(run: &Run) {
    run.replace("a.txt", "A\n", &sha256("a\n")).await.ok();
    let made = run.create("new/deep/n.txt", "n\n").await;
    put(run, "pic.bin", Some(b"\0base"), b"\0second\xff").await;
    put(run, "new/raw.bin", None, &[7, 0, 9]).await;
    let large = incompressible(2 * MIB);
    put(run, "new/large.bin", None, &large).await;
    // Sent in parts.
    let larger = incompressible(9 * MIB);
    put(run, "new/large.bin", Some(&large), &larger).await;
    let text = large_text();
    put(run, "moved.txt", None, &text).await;
    let input = json!({"from": "moved.txt", "to": "there/moved.txt", "expectedSha256": sha256(&text), "reason": "r"});
    run.ok("move_file", input).await;
    run.patch("diff --git a/run.sh b/bin2/run\nold mode 100755\nnew mode 100644\nsimilarity index 100%\nrename from run.sh\nrename to bin2/run\n")
        .await
        .ok();
    run.patch(
        "diff --git a/tool.sh b/tool.sh\nnew file mode 100755\n--- /dev/null\n+++ b/tool.sh\n@@ -0,0 +1 @@\n+x\n",
    )
    .await
    .ok();
    run.edit("tool.sh", "x", "y", json!({})).await.ok();
    let moved = json!({"from": "dir/b.txt", "to": "dir/c.txt", "expectedSha256": sha256("b\r\n"), "reason": "r"});
    run.ok("move_file", moved).await;
    for (path, content) in [("empty", ""), ("gone/g.txt", "g\n"), ("swap", "a file\n"), ("z.log", "deleted\n")] {
        run.ok("delete_file", json!({"path": path, "expectedSha256": sha256(content), "reason": "r"})).await;
    }
    run.create("swap/inside.txt", "a folder now\n").await;
    run.edit("y.log", "too", "as well", json!({})).await.ok();
    run.ok("revert_calls", json!({"toolCallIds": [made["toolCallId"]], "reason": "r"})).await;
}

/// What callers see of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    tree: Snapshot,
    diff: String,
    patch: String,
    earlier: Vec<Value>,
    head: Value,
}

async fn seen(run: &Run, seqs: &[u64]) -> Seen {
    let mut earlier = Vec::new();
    for at in seqs {
        for (tool, input) in [
            ("list_dir", json!({"path": ".", "maxDepth": 10, "includeIgnored": true, "atSeq": at})),
            ("read_file", json!({"path": "a.txt", "atSeq": at})),
            ("diff_workspace", json!({"atSeq": at})),
        ] {
            let mut answer = run.ok(tool, input).await;
            for own in ["toolCallId", "seq", "headHash"] {
                answer.as_object_mut().unwrap().remove(own);
            }
            earlier.push(answer);
        }
    }
    let patch = run.agent.get(&format!("/v1/runs/{}/patch", run.id)).await;
    let head = run.get().await;
    Seen {
        tree: run.snapshot(),
        diff: run.diff_sha256().await,
        patch: patch.text(),
        earlier,
        head: json!([head["baseCommit"], head["disk"]["bytes"], head["disk"]["files"], head["state"]]),
    }
}

/// Reads `a.txt` by a call, and then from the disk.
pub(super) async fn read(run: &Run) -> String {
    let content = run.ok("read_file", json!({"path": "a.txt"})).await["content"].as_str().unwrap().to_owned();
    let on_disk = run.on_disk("a.txt");
    assert!(content.ends_with(&on_disk), "{content}");
    on_disk
}

/// Returns a text of more than 2 MiB, which is moved as a file.
fn large_text() -> Vec<u8> {
    "a line of a text\n".repeat(2 * MIB / 16).into_bytes()
}

async fn assert_no_drift(run: &Run) {
    let drift = run.agent.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
    assert_eq!(drift["items"], json!([]), "{drift:#}");
}

/// Loses the files of a changed run twice, and compares all that callers see.
async fn comes_back(mut server: Server, url: &str, env: &[(String, String)]) {
    let run = imported_run(&server).await;
    change(&run).await;
    server.until_journal_is_empty().await;
    let seqs = [1, 2, run.get().await["headSeq"].as_u64().unwrap()];
    let before = seen(&run, &seqs).await;
    for times in 1..=2 {
        let run = lose_files(&mut server, &run);
        // Also the calls that come meanwhile open it once.
        let reads = (0..8).map(|_| run.call("stat_path", json!({"path": "a.txt"})));
        for read in futures_util::future::join_all(reads).await {
            read.ok();
        }
        assert_eq!(server.log().matches("the files of a run were fetched").count(), times, "{}", server.log());
        assert_eq!(seen(&run, &seqs).await, before);
        assert_no_drift(&run).await;
        assert_eq!(run.verify().await["intact"], true);
    }
    let run = server.reconnect(&run);
    // An earlier version of a large file.
    let text = large_text();
    let input = json!({"path": "there/moved.txt", "expectedSha256": sha256(&text), "reason": "r"});
    let deleted = run.ok("delete_file", input).await;
    run.ok("revert_calls", json!({"toolCallIds": [deleted["toolCallId"]], "reason": "r"})).await;
    assert_eq!(std::fs::read(run.file("there/moved.txt")).unwrap(), text);
    run.edit("a.txt", "A", "again", json!({})).await.ok();
    assert!(server.stop().success());
    let to = server.home.join("rebuilt").display().to_string();
    let mut replay = server.command("replay");
    replay.args(["--run", &run.id, "--to", &to, "--object-store-url", url]).envs(env.iter().cloned());
    assert_ends(&replay.output().unwrap(), 0, &["every hash matches the ledger", "the workspace is equal"]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_files_are_gone_is_opened_from_a_folder(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, folder) = storing(Setup::new(backend)).await;
    comes_back(server, &format!("file://{}", folder.display()), &[]).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_files_are_gone_is_opened_from_a_bucket(
    #[values(exhaustive::SQLITE, exhaustive::POSTGRES)] backend: Backend,
) {
    let port = free_port();
    let _s3 = S3::start(port).await;
    let (url, env) = ("s3://archives/of/nodes", S3::env(port));
    let mut setup = Setup::new(backend).arg("--object-store-url", url);
    setup.env.clone_from(&env);
    comes_back(Server::start_with(setup).await, url, &env).await;
}

/// Returns the objects under `folder`.
pub(super) fn objects(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found.sort();
    found
}

#[rstest]
#[tokio::test]
async fn runs_with_the_same_base_store_it_once(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, folder) = storing(Setup::new(backend)).await;
    let (repository, commit) = server.repository(&[("a.txt", "a\n"), ("dir/b.txt", "b\n")]);
    let source = json!({"source": {"type": "git", "url": repository}});
    let one = server.run(source.clone()).await;
    let stored = objects(&folder);
    let named = |name: &str| stored.iter().filter(|object| object.display().to_string().contains(name)).count();
    let counts = [named(&format!("/bases/{commit}-")), named("/cas/")];
    assert_eq!((counts[0], counts[0] + counts[1]), (1, stored.len()), "{stored:?}");
    let two = server.run(source).await;
    assert_eq!(objects(&folder), stored);
    server.run(json!({})).await;
    assert!(objects(&folder).len() > stored.len());
    one.edit("a.txt", "a", "one", json!({})).await.ok();
    two.edit("a.txt", "a", "two", json!({})).await.ok();
    server.until_journal_is_empty().await;
    let two = lose_files(&mut server, &two);
    let one = server.reconnect(&one);
    assert_eq!(read(&two).await, "two\n");
    assert_eq!(read(&one).await, "one\n");
    let diffs = [one.diff_sha256().await, two.diff_sha256().await];
    assert_ne!(diffs[0], diffs[1]);
}

/// The tail of the journal: a commit that the lost tree never had.
#[rstest]
#[tokio::test]
async fn a_change_that_was_only_committed_is_in_the_tree_that_is_made(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, _folder) = storing(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let input = json!({"path": "a.txt", "content": "b\n", "expectedSha256": sha256("a\n"), "reason": "r"});
    server.kill_before_apply(&run, "write_file", &input).await;
    std::fs::remove_dir_all(server.workspace(&run.id)).unwrap();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(read(&run).await, "b\n");
    run.edit("a.txt", "b", "c", json!({})).await.ok();
    assert_no_drift(&run).await;
    server.until_journal_is_empty().await;
}

#[rstest]
#[tokio::test]
async fn a_run_that_is_elsewhere_is_closed_and_deleted(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, folder) = storing(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let run = lose_files(&mut server, &run);
    let path = format!("/v1/runs/{}", run.id);
    run.operator.post(&format!("{path}/close"), json!({})).await.is(200);
    assert!(!server.workspace(&run.id).exists());
    assert_eq!(read(&run).await, "a\n");
    let run = lose_files(&mut server, &run);
    run.operator.delete(&path).await.is(200);
    assert!(!server.workspace(&run.id).exists());
    run.call("read_file", json!({"path": "a.txt"})).await.refused("RUN_CLOSED");
    assert!(!objects(&folder).is_empty(), "objects are deleted later");
}

#[rstest]
#[tokio::test]
async fn an_altered_object_is_refused(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(false, true)] from_git: bool,
) {
    let (mut server, folder) = storing(Setup::new(backend)).await;
    let run = if from_git {
        let (repository, _) = server.repository(&[("a.txt", "a\n")]);
        server.run(json!({"source": {"type": "git", "url": repository}})).await
    } else {
        let template = server.template(&[("a.txt", "a\n"), (".gitignore", "*.log\n"), ("x.log", "ignored\n")]);
        server.run(json!({"source": {"type": "directory", "path": template}})).await
    };
    put(&run, "large.bin", None, &incompressible(2 * MIB)).await;
    server.until_journal_is_empty().await;
    let tree = run.snapshot();
    let mut stored = objects(&folder);
    // The index is checked by what it leads to.
    stored.retain(|object| !object.ends_with("index"));
    // The list, the places and the bytes of the files, and the upload; with git also a pack, its index and the name of its commit.
    assert!(stored.len() >= if from_git { 7 } else { 4 }, "{stored:?}");
    let mut run = lose_files(&mut server, &run);
    for object in &stored {
        let bytes = std::fs::read(object).unwrap();
        let mut altered = bytes.clone();
        let middle = altered.len() / 2;
        altered[middle] ^= 1;
        std::fs::write(object, altered).unwrap();
        // A base that is here would be used.
        remove_bases(&server);
        let refused = run.call("read_file", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
        assert!(refused["message"].as_str().unwrap().contains("object store"), "{}: {refused}", object.display());
        assert!(!server.workspace(&run.id).exists(), "{}", object.display());
        std::fs::remove_file(object).unwrap();
        remove_bases(&server);
        run.call("read_file", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
        std::fs::write(object, bytes).unwrap();
    }
    run = server.reconnect(&run);
    run.ok("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(run.snapshot(), tree);
    assert!(std::fs::read_dir(server.data_dir().join("workspaces")).unwrap().count() <= 2, "staging folders remain");
}

/// Forwards connections to a port, while it is open.
struct Gate {
    port: u16,
    is_open: watch::Sender<bool>,
}

impl Gate {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (is_open, watched) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut watched = watched.clone();
                tokio::spawn(async move {
                    if !*watched.borrow() {
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = watched.wait_for(|is_open| !*is_open) => {}
                    }
                });
            }
        });
        Self { port: own, is_open }
    }
}

async fn upload(run: &Run, path: &str, bytes: &[u8]) -> Answer {
    let request = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/{path}", run.id));
    run.agent.send(request.header("if-none-match", "*").header("x-reason", "r").body(bytes.to_vec())).await
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_only_calls_that_need_an_object_are_refused(
    #[values(exhaustive::SQLITE, exhaustive::POSTGRES)] backend: Backend,
) {
    let port = free_port();
    let _s3 = S3::start(port).await;
    let gate = Gate::to(port).await;
    let mut setup = Setup::new(backend).arg("--object-store-url", "s3://archives/x");
    setup.env = S3::env(gate.port);
    let mut server = Server::start_with(setup).await;
    let here = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "here"})).await;
    let lost = server.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n")], json!({"runId": "lost"})).await;
    std::fs::remove_dir_all(lost.base()).unwrap();
    let lost = lose_files(&mut server, &lost);
    let here = server.reconnect(&here);
    gate.is_open.send(false).unwrap();

    here.edit("a.txt", "a", "b", json!({})).await.ok();
    put(&here, "small.bin", None, &[0; 1000]).await;
    let tree = here.snapshot();
    let large = incompressible(2 * MIB);
    let refused = upload(&here, "large.bin", &large).await;
    refused.refused("UNAVAILABLE");
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(here.snapshot(), tree);
    assert_eq!(std::fs::read_dir(server.workspace("here").join("tmp")).unwrap().count(), 0);
    let refused = lost.call("read_file", json!({"path": "a.txt"})).await;
    refused.refused("UNAVAILABLE");
    assert!(!refused.header("retry-after").is_empty());
    assert!(!server.workspace("lost").exists());
    let template = server.template(&[("other.txt", "other\n")]);
    let body = json!({"runId": "new", "source": {"type": "directory", "path": template}});
    server.operator().post("/v1/runs", body.clone()).await.refused("UNAVAILABLE");
    server.operator().get("/v1/runs/new").await.refused("RUN_NOT_FOUND");
    assert!(!server.workspace("new").exists());

    gate.is_open.send(true).unwrap();
    assert_eq!(upload(&here, "large.bin", &large).await.status, 201);
    assert_eq!(read(&lost).await, "a\n");
    server.operator().post("/v1/runs", body).await.is(201);
    assert_no_drift(&here).await;
}

#[rstest]
#[tokio::test]
async fn the_store_must_be_usable(
    #[values("file://relative", "file:///missing/folder", "gs://bucket", "s3://")] url: &str,
) {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let mut command = server.command("serve");
    let output = command.args(["--listen", "127.0.0.1:0", "--object-store-url", url]).output().unwrap();
    assert_ends(&output, 2, &["--object-store-url"]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_has_every_version_of_a_large_file(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let [objects, archives] = ["objects", "archives"].map(|name| server.home.join(name));
    std::fs::create_dir(&objects).unwrap();
    std::fs::create_dir(&archives).unwrap();
    let setup = server.setup.clone().arg("--object-store-url", format!("file://{}", objects.display()));
    server.setup = setup.arg("--archive-after", "1s").arg("--archive-to", archives.display());
    server.restart();
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    let (old, new) = (incompressible(2 * MIB), incompressible(2 * MIB + 8));
    put(&run, "large.bin", None, &old).await;
    put(&run, "large.bin", Some(&old), &new).await;
    run.operator.post("/v1/runs/r/close", json!({})).await.is(200);
    server.until("the run is archived", async || run.get().await["archivedAt"].is_string()).await;
    let to = server.home.join("read").display().to_string();
    let mut read = crate::harness::workspaced();
    let from = archives.display().to_string();
    let read = read.args(["archive", "read", "r", "--from", &from, "--to", &to]).output().unwrap();
    assert_ends(&read, 3, &["r: "]);
    for bytes in [&old, &new] {
        let hash = sha256(bytes);
        let contents = std::fs::read_dir(Path::new(&to).join("contents")).unwrap().map(|entry| entry.unwrap().path());
        let stored: Vec<_> = contents.map(|seq| seq.join(&hash)).filter(|file| file.exists()).collect();
        assert_eq!(stored.len(), 1, "{hash}");
        assert_eq!(&std::fs::read(&stored[0]).unwrap(), bytes);
    }
}

/// A kill between the store and the commit leaves an object that nothing refers to, and nothing else.
#[rstest]
#[tokio::test]
async fn a_kill_before_the_commit_leaves_only_objects(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let (folder, armed) = (server.home.join("objects"), server.data_dir().join("failpoint"));
    std::fs::create_dir(&folder).unwrap();
    let setup = server.setup.clone().arg("--object-store-url", format!("file://{}", folder.display()));
    server.setup = setup.env("WORKSPACED_FAILPOINT", &format!("@{}", armed.display()));
    server.restart();
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    let tree = run.snapshot();
    let large = incompressible(2 * MIB);

    std::fs::write(&armed, "transaction.stored").unwrap();
    let request = run.agent.request(Method::PUT, "/v1/runs/r/files/large.bin").header("if-none-match", "*");
    assert!(run.agent.try_send(request.header("x-reason", "r").body(large.clone())).await.is_err());
    server.wait();
    std::fs::remove_file(&armed).unwrap();
    assert!(folder.join("cas").join(sha256(&large)).exists());
    server.restart();
    let run = server.reconnect(&run);
    run.call("stat_path", json!({"path": "large.bin"})).await.ok();
    assert_eq!(run.snapshot(), tree);
    assert_no_drift(&run).await;
    put(&run, "large.bin", None, &large).await;

    std::fs::write(&armed, "base.part_put").unwrap();
    let template = server.template(&[("other.txt", "other\n")]);
    let body = json!({"runId": "new", "source": {"type": "directory", "path": template}});
    let request = server.operator().request(Method::POST, "/v1/runs").json(&body);
    assert!(server.operator().try_send(request).await.is_err());
    server.wait();
    std::fs::remove_file(&armed).unwrap();
    server.restart();
    server.operator().get("/v1/runs/new").await.refused("RUN_NOT_FOUND");
    assert!(!server.workspace("new").exists());
    let new = server.run(json!({"runId": "new", "source": body["source"]})).await;
    let new = lose_files(&mut server, &new);
    new.ok("read_file", json!({"path": "other.txt"})).await;
}
