//! The privileges of the service's role, which does not own the tables, as `deploy/roles.sql` creates it.

use ledger::{Epoch, Role};
use model::{ApprovalState, Disk, RunState, Sha256};

use crate::approvals::{approval_decision, approval_request};
use crate::harness::{Backend, RunChanges as _, TestDatabase, read, run_id};
use crate::journal::mutation;
use crate::nodes::{INSTANCE, LEASE, identity, owned, under};
use crate::operators::{ChangeOperators as _, name, new_operator, vote};

const ROLES: &str = include_str!("../../../../deploy/roles.sql");

/// Opens a ledger as the service's role. Another role owns the tables.
pub(crate) async fn open_as_service() -> TestDatabase {
    let mut db = Backend::Postgres.open().await;
    db.execute(ROLES).await.unwrap();
    // Operators run the script again after every upgrade.
    db.execute(ROLES).await.unwrap();
    db.reopen_as("workspaced_service").await;
    db
}

#[tokio::test]
async fn the_privileges_of_the_service_role_are_sufficient() {
    let mut db = open_as_service().await;
    let run = db.run("r1").await;
    db.append(read("r1", "a")).await;
    db.append(mutation("r1", "one", "src/a")).await;
    db.append(approval_request("r1", "ap-1")).await;
    db.append(approval_decision("r1", "ap-1", ApprovalState::Denied)).await;
    let (leaves, _) = db.checkpoint(&mut 0, 0).await;
    assert_eq!(leaves.len(), 1);
    db.ledger.set_setting_once("name", "value").await.unwrap();
    db.ledger.create_operator(&new_operator("ada", 1), None).await.unwrap();
    db.append(approval_request("r1", "ap-2")).await;
    db.append(vote("r1", "ap-2", "ada")).await;
    assert!(db.ledger.revoke_operator(&name("ada"), "2026-01-01T00:00:00Z").await.unwrap());
    assert!(db.ledger.verify(&run).await.unwrap().intact);
    db.ledger.prune(&[(run.clone(), 2)]).await.unwrap();
    db.ledger.set_run_state(&run, RunState::Deleted, None).await.unwrap();
    db.ledger.purge_content(&run).await.unwrap();
    assert_eq!(db.ledger.content(&run, 2, &Sha256::of(b"new\0")).await.unwrap(), None);
    db.reopen_as("workspaced_service").await;
    assert!(db.ledger.verify(&run_id("r1")).await.unwrap().intact);
}

#[tokio::test]
async fn the_privileges_of_the_service_role_are_sufficient_for_a_node() {
    let mut db = open_as_service().await;
    db.run("r0").await;
    db.ledger.join(&identity("a"), None, INSTANCE, LEASE).await.unwrap().unwrap();
    assert!(db.ledger.heartbeat(LEASE).await.unwrap());
    let (run, epoch) = (db.run("r1").await, owned(db.ledger.take_run(&run_id("r0")).await.unwrap()));
    db.append(under(epoch, read("r0", "a"))).await;
    db.append(under(Epoch::FIRST, mutation("r1", "one", "src/a"))).await;
    db.ledger.prune(&[(run.clone(), 1)]).await.unwrap();
    db.ledger.set_disk_usage(&run, Disk::default()).await.unwrap();
    db.ledger.give_back(&[(run, Epoch::FIRST)]).await.unwrap();
    db.ledger.take_role(Role::Signing).await.unwrap();
    db.ledger.give_back_role(Role::Signing, Epoch::FIRST).await.unwrap();
    db.ledger.leave().await.unwrap();
    assert_eq!(db.ledger.nodes().await.unwrap().len(), 1);
    db.reopen_as("workspaced_service").await;
    assert!(db.ledger.take_over(Some(INSTANCE), "8 single").await.unwrap());
}

#[tokio::test]
async fn the_service_role_cannot_change_append_only_tables() {
    let db = open_as_service().await;
    db.run("r1").await;
    db.append(mutation("r1", "one", "src/a")).await;
    let records = ["audit_record", "record_path", "call_reply", "artifact", "upload", "audit_zone", "schema_migration"];
    for table in records.into_iter().chain(["checkpoint", "checkpoint_leaf", "checkpoint_node"]) {
        for sql in [
            format!("UPDATE {table} SET {} = NULL", column(table)),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
            format!("ALTER TABLE {table} DISABLE TRIGGER ALL"),
            format!("DROP TABLE {table}"),
        ] {
            let error = db.execute(&format!("SET ROLE workspaced_service; {sql}")).await.unwrap_err();
            let denied = error.contains("permission denied") || error.contains("must be owner");
            assert!(denied, "{sql}: {error}");
        }
    }
    for sql in [
        "DELETE FROM operator_token",
        "DELETE FROM node",
        "DELETE FROM node_role",
        "DELETE FROM approval_vote",
        "UPDATE approval_vote SET voter = 'bob'",
        "UPDATE content SET run_no = 9",
        "TRUNCATE content",
        "TRUNCATE run, run_head, step CASCADE",
        "CREATE TABLE x ()",
    ] {
        let error = db.execute(&format!("SET ROLE workspaced_service; {sql}")).await.unwrap_err();
        assert!(error.contains("permission denied"), "{sql}: {error}");
    }
    assert!(db.ledger.verify(&run_id("r1")).await.unwrap().intact);
}

/// Returns the name of a column of `table`.
fn column(table: &str) -> &str {
    match table {
        "audit_record" | "call_reply" => "body",
        "record_path" => "path",
        "artifact" => "diff",
        "upload" => "bytes",
        "checkpoint" => "note",
        "checkpoint_leaf" => "head_hash",
        "checkpoint_node" => "hash",
        "schema_migration" => "name",
        _ => "max_timestamp",
    }
}
