//! The steps of the tests of backups.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Database, Run, Server, files_in, incompressible, sha256, snapshot, until, until_blocking};
use crate::operation::replay_and_repair::{assert_ends, offline, output_of, put};

/// More than the ledger stores of a file.
pub(crate) const LARGE: usize = 1_200_000;

/// The folder of backups.
pub(crate) fn backups(server: &Server) -> PathBuf {
    server.home.join("backups")
}

/// Returns the objects of all backups that are archives, or those that are not.
pub(crate) fn objects(server: &Server, are_archives: bool) -> Vec<PathBuf> {
    let folder = backups(server).join("objects");
    let files = files_in(&folder).into_keys().map(|path| folder.join(path));
    files.filter(|path| std::fs::read(path).unwrap().starts_with(b"manifest.json\0") == are_archives).collect()
}

pub(crate) fn backup(server: &Server, args: &[&str]) -> Output {
    let folder = backups(server);
    offline(server, "backup", &[&[folder.to_str().unwrap()], args].concat())
}

pub(crate) fn restore(server: &Server, args: &[&str]) -> Output {
    let folder = backups(server);
    offline(server, "restore", &[&[folder.to_str().unwrap()], args].concat())
}

#[track_caller]
pub(crate) fn json_of(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", output_of(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Removes the data folder and the database. The server goes on with an empty database.
pub(crate) async fn destroy(server: &mut Server) {
    server.kill();
    std::fs::remove_dir_all(server.data_dir()).unwrap();
    server.database = Database::create(server.setup.backend, &server.data_dir()).await;
}

/// Creates runs with all that base and ledger contain, and all that they do not.
pub(crate) async fn runs(server: &Server) -> Vec<Run> {
    let files =
        [("a.txt", "a\n"), (".gitignore", "*.log\n"), ("old.log", "ignored\n"), ("b.txt", "b\n"), ("dir/c", "c\n")];
    let template = server.template(&files);
    std::fs::create_dir_all(template.join("empty/folder")).unwrap();
    std::os::unix::fs::symlink("dir/c", template.join("link")).unwrap();
    let source = json!({"type": "directory", "path": template});
    let one = server.run(json!({"runId": "one", "source": source, "policy": {"ignoredFiles": "ALLOW"}})).await;
    one.replace("a.txt", "changed\n", &sha256("a\n")).await.ok();
    one.create("new/n.txt", "n\n").await;
    put(&one, "binary", None, &[0, 7, 0xff]).await;
    put(&one, "large", None, &incompressible(LARGE)).await;
    one.put("other.log", "never imported\n");
    let (repository, _) = server.repository(&[("src/lib.rs", "//\n"), ("run.sh", "#!/bin/sh\n")]);
    let source = json!({"type": "git", "url": repository});
    let git = server.run(json!({"runId": "git", "source": source})).await;
    git.ok("delete_file", json!({"path": "run.sh", "expectedSha256": sha256("#!/bin/sh\n"), "reason": "r"})).await;
    let closed = server.run_with_files(&[("x", "x\n")], json!({"runId": "closed"})).await;
    closed.create("y", "y\n").await;
    server.operator().post("/v1/runs/closed/close", json!({})).await.ok();
    let gone = server.run_with_files(&[("x", "x\n")], json!({"runId": "gone"})).await;
    gone.operator.delete("/v1/runs/gone").await.ok();
    let waiting = json!({"runId": "waiting", "source": {"type": "archive"}});
    server.operator().post("/v1/runs", waiting).await.is(201);
    vec![one, git, closed]
}

/// Waits until a checkpoint is signed.
pub(crate) async fn until_signed(server: &Server) {
    let log = server.data_dir().join("checkpoints.log");
    let is_signed = async || std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    server.until("a checkpoint is signed", is_signed).await;
}

pub(crate) fn trees(server: &Server, runs: &[Run]) -> BTreeMap<String, BTreeMap<String, String>> {
    runs.iter().map(|run| (run.id.clone(), snapshot(&server.repo(&run.id)))).collect()
}

/// Creates one file after the other, until it is stopped.
pub(crate) struct Writer {
    pub(crate) written: Arc<Mutex<Vec<(String, String)>>>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) task: JoinHandle<()>,
    pub(crate) run: Run,
}

impl Writer {
    pub(crate) async fn start(server: &Server, number: usize) -> Self {
        let run = server.run(json!({"runId": format!("busy{number}")})).await;
        let (written, stop) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (run_, written_, stop_) = (run.clone(), Arc::clone(&written), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            for count in 0.. {
                if stop_.load(Ordering::SeqCst) {
                    return;
                }
                let (path, content) = (format!("d{}/f{count}.txt", count % 7), format!("{number} {count}\n"));
                run_.create(&path, &content).await;
                written_.lock().unwrap().push((path, content));
            }
        });
        let writer = Self { written, stop, task, run };
        until("three writes are acknowledged", async || writer.acknowledged() >= 3).await;
        writer
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.written.lock().unwrap().len()
    }
}

/// Verifies all chains and the checkpoints, and rebuilds each run.
pub(crate) fn assert_sound(server: &Server, runs: &[Run], what: &str) {
    let key = std::fs::read(server.data_dir().join("checkpoint.key"));
    if key.is_ok() {
        assert_ends(&server.verify(&[]), 0, &[" 0 broken"]);
    }
    for run in runs {
        let to = server.home.join(format!("replayed-{what}-{}", run.id));
        assert_ends(
            &offline(server, "replay", &["--run", &run.id, "--to", to.to_str().unwrap()]),
            0,
            &["the workspace is equal"],
        );
    }
}

/// Starts a backup that waits after the copy of the database.
pub(crate) fn paused_backup(server: &Server) -> (Child, PathBuf) {
    let file = server.home.join("pause");
    std::fs::write(&file, "backup.database:1:pause").unwrap();
    let mut command = server.command("backup");
    command.arg(backups(server)).arg("--include-key").env("WORKSPACED_FAILPOINT", format!("@{}", file.display()));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_blocking("the backup pauses at the failpoint", || file.with_extension("paused").exists());
    (child, file)
}

pub(crate) fn killed_at(server: &Server, name: &str, point: &str, args: &[&str]) {
    let folder = backups(server);
    let output = server.command(name).arg(folder).args(args).env("WORKSPACED_FAILPOINT", point).output().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&output.status),
        Some(9),
        "{point}: {}",
        output_of(&output)
    );
}
