//! What is not migrated, and what is named instead.

use serde_json::json;

use super::{As, migrate, objects, serve, store_url, target};
use crate::harness::{Backend, Server, Setup, incompressible};
use crate::operation::backup::steps::{LARGE, until_signed};
use crate::operation::replay_and_repair::{assert_ends, put};

#[tokio::test(flavor = "multi_thread")]
async fn data_in_use_and_targets_that_are_not_empty_are_refused() {
    let mut server = Server::start(Backend::Sqlite).await;
    let run = server.run(json!({})).await;
    let target = target(&server).await;
    assert_ends(&migrate(&server, &target, &[], ""), 2, &["another workspaced is using this folder"]);
    let input = json!({"path": "a.txt", "content": "a\n", "reason": "r"});
    server.kill_before_apply(&run, "write_file", &input).await;
    assert_ends(&migrate(&server, &target, &[], ""), 2, &["are pending: start the service with this data once"]);
    server.restart();
    server.until_journal_is_empty().await;
    assert!(server.stop().success());
    let sqlite = server.command("migrate-store").arg("--object-store-url").arg("file:///").output().unwrap();
    assert_ends(&sqlite, 2, &["--database-url: give the database to move to"]);
    let mut without = server.command("migrate-store");
    let without = without.env("WORKSPACED_DATABASE_URL", &target.database.url).output().unwrap();
    assert_ends(&without, 2, &["--object-store-url is missing"]);
    assert_ends(&migrate(&server, &target, &["--from", "/none"], ""), 2, &["there is no database to read at /none"]);
    let mut used = Server::start(Backend::Postgres).await;
    std::fs::create_dir(objects(&used)).unwrap();
    used.kill();
    assert_ends(&migrate(&server, &used, &[], ""), 2, &["--database-url: the database is not empty"]);
    // An unfinished copy of an earlier state is not continued.
    migrate(&server, &target, &[], "migrate.database");
    server.restart();
    assert!(server.stop().success());
    assert_ends(&migrate(&server, &target, &[], ""), 2, &["--database-url: the database is not empty"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_cannot_be_opened_elsewhere_are_named_and_the_others_are_migrated() {
    let mut server = Server::start(Backend::Sqlite).await;
    let files = [("a.txt", "a\n")];
    let changed = server.run_with_files(&files, json!({"runId": "changed"})).await;
    let missing = server.run_with_files(&files, json!({"runId": "missing"})).await;
    let whole = server.run_with_files(&files, json!({"runId": "whole"})).await;
    until_signed(&server).await;
    assert!(server.stop().success());
    changed.put("a.txt", "changed by nobody\n");
    std::fs::remove_dir_all(server.workspace("missing")).unwrap();
    let mut target = target(&server).await;
    let named =
        ["changed: NOT MIGRATED: 1 of its files, such as a.txt, differ", "missing: NOT MIGRATED", "2 not migrated"];
    assert_ends(&migrate(&server, &target, &[], ""), 1, &named);
    serve(&server, &mut target, As::Single);
    target.reconnect(&whole).create("n.txt", "n\n").await;
    for run in [&changed, &missing] {
        let run = target.reconnect(run);
        let input = json!({"path": "b.txt", "content": "b\n", "reason": "r"});
        run.call("write_file", input).await.refused("RUN_NEEDS_REPAIR");
        assert_eq!(run.verify().await["intact"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_source_with_an_object_store_refers_to_must_be_in_that_of_the_target() {
    let mut server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    std::fs::create_dir(objects(&server)).unwrap();
    server.setup = server.setup.clone().arg("--object-store-url", store_url(&server));
    server.restart();
    let run = server.run(json!({"runId": "large"})).await;
    let (first, second) = (incompressible(LARGE), incompressible(LARGE + 80));
    put(&run, "large", None, &first).await;
    put(&run, "large", Some(&first), &second).await;
    until_signed(&server).await;
    assert!(server.stop().success());
    let other = target(&server).await;
    assert_ends(&migrate(&server, &other, &[], ""), 1, &["large: NOT MIGRATED: cas/", "is missing"]);
    // The files of the run were made from the store, and can be made again.
    std::fs::remove_dir_all(server.workspace("large")).unwrap();
    let mut target = target(&server).await;
    std::fs::remove_dir(objects(&target)).unwrap();
    std::fs::rename(objects(&server), objects(&target)).unwrap();
    assert_ends(&migrate(&server, &target, &[], ""), 0, &["0 not migrated", "0 runs got a record"]);
    serve(&server, &mut target, As::Single);
    let run = target.reconnect(&run);
    put(&run, "large", Some(&second), b"small now\n").await;
    let earlier = run.ok("list_dir", json!({"path": ".", "atSeq": 2})).await;
    assert!(earlier.to_string().contains("large"), "{earlier}");
}
