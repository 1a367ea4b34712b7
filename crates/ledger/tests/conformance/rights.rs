//! What the role may do that serves without owning the tables, as `deploy/roles.sql` makes it.

use model::{ApprovalState, RunState, Sha256};

use crate::approvals::{asking, deciding};
use crate::harness::{Backend, World, read, run_id};
use crate::steps::change;

const ROLES: &str = include_str!("../../../../deploy/roles.sql");

/// A ledger whose owner has made the tables, opened by the role that serves.
async fn world() -> World {
    let mut world = Backend::Postgres.open().await;
    world.raw(ROLES).await.unwrap();
    // An operator says it again after every new version.
    world.raw(ROLES).await.unwrap();
    world.reopen_as("workspaced_service").await;
    world
}

#[tokio::test]
async fn the_service_needs_no_more_than_its_role_has() {
    let mut world = world().await;
    let run = world.run("r1").await;
    world.append(read("r1", "a")).await;
    world.append(change("r1", "one", "src/a")).await;
    world.append(asking("r1", "ap-1")).await;
    world.append(deciding("r1", "ap-1", ApprovalState::Denied)).await;
    let (leaves, _) = world.checkpoint(&mut 0, 0).await;
    assert_eq!(leaves.len(), 1);
    world.ledger.set_setting_once("name", "value").await.unwrap();
    assert!(world.ledger.verify(&run).await.unwrap().intact);
    world.ledger.prune(&[(run.clone(), 2)]).await.unwrap();
    world.ledger.set_run_state(&run, RunState::Deleted, None).await.unwrap();
    world.ledger.purge_content(&run).await.unwrap();
    assert_eq!(world.ledger.content(&run, 2, &Sha256::of(b"new\0")).await.unwrap(), None);
    world.reopen_as("workspaced_service").await;
    assert!(world.ledger.verify(&run_id("r1")).await.unwrap().intact);
}

#[tokio::test]
async fn the_role_that_serves_cannot_change_what_only_grows() {
    let world = world().await;
    world.run("r1").await;
    world.append(change("r1", "one", "src/a")).await;
    let records = ["audit_record", "record_path", "call_reply", "artifact", "audit_zone", "schema_migration"];
    for table in records.into_iter().chain(["checkpoint", "checkpoint_leaf", "checkpoint_node"]) {
        for sql in [
            format!("UPDATE {table} SET {} = NULL", if table == "schema_migration" { "name" } else { column(table) }),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
            format!("ALTER TABLE {table} DISABLE TRIGGER ALL"),
            format!("DROP TABLE {table}"),
        ] {
            let error = world.raw(&format!("SET ROLE workspaced_service; {sql}")).await.unwrap_err();
            let denied = error.contains("permission denied") || error.contains("must be owner");
            assert!(denied, "{sql}: {error}");
        }
    }
    for sql in [
        "UPDATE content SET run_no = 9",
        "TRUNCATE content",
        "TRUNCATE run, run_head, step CASCADE",
        "CREATE TABLE x ()",
    ] {
        let error = world.raw(&format!("SET ROLE workspaced_service; {sql}")).await.unwrap_err();
        assert!(error.contains("permission denied"), "{sql}: {error}");
    }
    assert!(world.ledger.verify(&run_id("r1")).await.unwrap().intact);
}

/// A column of `table`.
fn column(table: &str) -> &str {
    match table {
        "audit_record" | "call_reply" => "body",
        "record_path" => "path",
        "artifact" => "diff",
        "checkpoint" => "note",
        "checkpoint_leaf" => "head_hash",
        "checkpoint_node" => "hash",
        _ => "max_timestamp",
    }
}
