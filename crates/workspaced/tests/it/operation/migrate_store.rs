//! `workspaced migrate-store` moves the data of one service on SQLite to PostgreSQL and an object store.

mod refusals;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Output;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, Server, Setup, incompressible, items, sha256, snapshot};
use crate::operation::backup::steps::{self, json_of, until_signed};
use crate::operation::nodes;
use crate::operation::replay_and_repair::{assert_ends, output_of, put};

/// A service on SQLite that was stopped, and what callers have seen of it.
struct Stopped {
    server: Server,
    /// The runs that can be opened, and at the end the one whose call waits for an approval.
    runs: Vec<Run>,
    approval: String,
    /// The approval of a content over 1 MiB, and that content.
    large: (String, Vec<u8>),
    operator: Client,
    trees: BTreeMap<String, BTreeMap<String, String>>,
    records: Vec<Value>,
    deliveries: Vec<Value>,
}

/// What serves the migrated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    /// A service that is the only one.
    Single,
    /// A node.
    Node,
}

/// Fills a service with runs of every kind, and stops it.
async fn stopped() -> Stopped {
    let mut server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    configure_webhook(&mut server);
    server.restart();
    let mut runs = steps::runs(&server).await;
    runs[0].replace("old.log", "written\n", &sha256("ignored\n")).await.ok();
    // What a program has put where git ignores it is no file of the run's history.
    std::fs::remove_file(runs[0].repo.join("other.log")).unwrap();
    let empty = server.run(json!({"runId": "empty"})).await;
    empty.create("first.txt", "1\n").await;
    empty.edit("first.txt", "1", "2", json!({})).await.ok();
    // As long as a path may be, and with no text that compresses well.
    empty.create(&long_path(4096), "long\n").await;
    let pending = server.run_with_files(&[("Cargo.lock", "old\n")], json!({"runId": "pending"})).await;
    let input = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
    let refused = pending.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    let content = incompressible(steps::LARGE);
    let request =
        pending.agent.request(reqwest::Method::PUT, "/v1/runs/pending/files/yarn.lock").header("x-reason", "r");
    let asked = pending.agent.send(request.header("if-none-match", "*").body(content.clone())).await;
    let large = (asked.refused("APPROVAL_REQUIRED")["approvalId"].as_str().unwrap().to_owned(), content);
    runs.extend([empty, pending]);
    let operator = server.named_operator("grace", &["orchestrate"]).await.1;
    until_signed(&server).await;
    let records = items(&server.auditor(), "/v1/audit").await;
    let deliveries = deliveries(&server).await;
    assert!(!deliveries.is_empty());
    assert!(server.stop().success());
    Stopped {
        trees: steps::trees(&server, &runs),
        approval: refused["approvalId"].as_str().unwrap().to_owned(),
        large,
        server,
        runs,
        operator,
        records,
        deliveries,
    }
}

/// Returns a path of `bytes` bytes.
pub(crate) fn long_path(bytes: usize) -> String {
    let mut path = String::new();
    while path.len() < bytes {
        for part in 0..3 {
            path.push_str(&sha256(format!("{part} {}", path.len())));
        }
        path.push('/');
    }
    path.truncate(bytes);
    path
}

/// Configures a webhook whose receiver never answers.
fn configure_webhook(server: &mut Server) {
    let secret = server.home.join("webhook-secret");
    std::fs::write(&secret, "whsec_bmV3LXNlY3JldC1vZi0zMi1ieXRlcy0wMTIzNDU2Nzg=").unwrap();
    let config = format!(
        "[[webhook]]\nname = \"hook\"\nurl = \"http://127.0.0.1:9/\"\nsecret_file = \"{}\"\n",
        secret.display()
    );
    let file = server.home.join("config.toml");
    std::fs::write(&file, config).unwrap();
    server.setup = server.setup.clone().arg("--config", file.display());
}

async fn deliveries(server: &Server) -> Vec<Value> {
    let list = server.operator().get("/v1/webhooks/hook/deliveries").await.ok();
    list["items"].as_array().unwrap().iter().map(|delivery| delivery["messageId"].clone()).collect()
}

/// Prepares an empty database, an empty data folder and an object store.
async fn target(source: &Server) -> Server {
    let mut target = Server::prepare_empty(Setup::new(Backend::Postgres)).await;
    target.operator_token.clone_from(&source.operator_token);
    target.audit_token.clone_from(&source.audit_token);
    std::fs::create_dir(objects(&target)).unwrap();
    target.setup = target.setup.clone().arg("--object-store-url", store_url(&target));
    configure_webhook(&mut target);
    target
}

fn objects(target: &Server) -> PathBuf {
    target.home.join("objects")
}

fn store_url(target: &Server) -> String {
    format!("file://{}", objects(target).display())
}

/// Runs the command from the data of `source` to those of `target`.
fn migrate(source: &Server, target: &Server, args: &[&str], failpoint: &str) -> Output {
    let mut command = source.command("migrate-store");
    command.env("WORKSPACED_DATABASE_URL", &target.database.url).env("WORKSPACED_FAILPOINT", failpoint);
    command.args(["--object-store-url", &store_url(target)]).args(args).output().unwrap()
}

/// Starts what serves the migrated data, with the files of the data folder that are in no database.
fn serve(source: &Server, target: &mut Server, mode: As) {
    let from = source.data_dir();
    match mode {
        As::Single => {
            for name in ["identity", "checkpoint.key", "checkpoints.log"] {
                std::fs::copy(from.join(name), target.data_dir().join(name)).unwrap();
            }
            target.restart();
        }
        As::Node => {
            let key = std::fs::read_to_string(from.join("checkpoint.key")).unwrap();
            target.setup = target.setup.clone().env("WORKSPACED_CHECKPOINT_KEY", key.trim());
            std::fs::write(target.home.join("secret"), nodes::SECRET).unwrap();
            nodes::start(target);
        }
    }
}

/// Returns the number of rows of every table, except for the list of migrations.
fn counted(source: &Server) -> BTreeMap<String, i64> {
    let path = source.data_dir().join("workspaced.db");
    let connection = rusqlite::Connection::open(path).unwrap();
    let sql = "select name from sqlite_schema where type = 'table' and name <> 'schema_migration'";
    let mut query = connection.prepare(sql).unwrap();
    let names: Vec<String> = query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let count = |name: &String| connection.query_row(&format!("select count(*) from {name}"), [], |row| row.get(0));
    names.iter().map(|name| (name.clone(), count(name).unwrap())).collect()
}

/// Checks that callers see of `target` what they have seen of `stopped`, and that all of it goes on.
async fn assert_served(stopped: &Stopped, target: &Server) {
    let records = items(&target.auditor(), "/v1/audit").await;
    assert!(records.len() >= stopped.records.len(), "records are missing");
    assert_eq!(records[..stopped.records.len()], stopped.records);
    for run in &stopped.runs {
        let run = Run { repo: target.repo(&run.id), ..target.reconnect(run) };
        let patch = run.agent.get(&format!("/v1/runs/{}/patch", run.id)).await;
        assert_eq!(patch.status, 200, "{}: {}", run.id, patch.text());
        assert_eq!(snapshot(&run.repo), stopped.trees[&run.id], "{}", run.id);
        assert_eq!(run.verify().await["intact"], true, "{}", run.id);
        if run.get().await["state"] != "closed" {
            run.create("goes/on.txt", "on\n").await;
        }
    }
    let pending = target.reconnect(stopped.runs.last().unwrap());
    let approve = format!("/v1/approvals/{}/approve", stopped.approval);
    pending.operator.post(&approve, json!({"decidedBy": "ada"})).await.ok();
    assert_eq!(std::fs::read_to_string(target.repo("pending").join("Cargo.lock")).unwrap(), "new\n");
    let (large, content) = &stopped.large;
    let decided =
        pending.operator.post(&format!("/v1/approvals/{large}/approve"), json!({"onBehalfOf": "ada"})).await.ok();
    assert_eq!(decided["state"], "approved", "{decided:#}");
    assert!(std::fs::read(target.repo("pending").join("yarn.lock")).unwrap() == *content, "another content");
    let first = target.reconnect(&stopped.runs[0]);
    let large = std::fs::read(target.repo("one").join("large")).unwrap();
    put(&first, "large", Some(&large), b"small now\n").await;
    assert_eq!(target.operator().get("/v1/runs/gone").await.ok()["state"], "deleted");
    assert_eq!(target.operator().get("/v1/runs/waiting").await.status, 200);
    Client::new(&target.base, stopped.operator.token.as_deref()).get("/v1/runs").await.ok();
    let now = deliveries(target).await;
    assert!(stopped.deliveries.iter().all(|message| now.contains(message)), "{:?}: {now:?}", stopped.deliveries);
    let run = target.run(json!({})).await;
    run.create("n.txt", "n\n").await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_service_on_sqlite_goes_on_with_what_nodes_share(#[values(As::Single, As::Node)] mode: As) {
    let stopped = stopped().await;
    let mut target = target(&stopped.server).await;
    let report = json_of(&migrate(&stopped.server, &target, &["--json"], ""));
    assert_eq!(report["tables"], json!(counted(&stopped.server)));
    assert_eq!((&report["problems"], &report["broken"]), (&json!([]), &json!([])), "{report}");
    // Every run was recorded with what it started from.
    assert_eq!((&report["recorded"], &report["withoutFiles"]), (&json!([]), &json!(2)), "{report}");
    assert!(report["files"].as_array().unwrap().contains(&json!("checkpoint.key")), "{report}");
    serve(&stopped.server, &mut target, mode);
    assert_served(&stopped, &target).await;
    assert!(target.stop().success());
    let key = stopped.server.data_dir().join("checkpoint.key").display().to_string();
    assert_ends(&target.verify(&["--checkpoint-key-file", &key]), 0, &[" 0 broken"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_needs_no_room_for_temporary_files() {
    let mut server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    run.create("b", "b\n").await;
    assert!(server.stop().success());
    let target = target(&server).await;
    let mut command = server.command("migrate-store");
    command.env("WORKSPACED_DATABASE_URL", &target.database.url).env("TMPDIR", "/none");
    command.args(["--object-store-url", &store_url(&target)]);
    assert_ends(&command.output().unwrap(), 0, &["0 not migrated"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_migration_is_not_served_and_can_be_repeated() {
    let stopped = stopped().await;
    let mut target = target(&stopped.server).await;
    let points = [
        ("migrate.run:2", false),
        ("base.part_put:3", false),
        ("migrate.objects", false),
        ("load.table:7", false),
        ("load.complete", false),
        ("migrate.database", true),
        ("migrate.record", true),
        ("migrate.verified", true),
    ];
    for (point, is_copied) in points {
        let killed = migrate(&stopped.server, &target, &[], point);
        assert_eq!(killed.status.signal(), Some(9), "{point}: {}", output_of(&killed));
        if is_copied {
            let refused = target.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
            assert_ends(&refused, 2, &["has not finished: repeat `workspaced migrate-store`"]);
        }
    }
    assert_ends(&migrate(&stopped.server, &target, &[], ""), 0, &["0 not migrated"]);
    serve(&stopped.server, &mut target, As::Node);
    assert_served(&stopped, &target).await;
}
