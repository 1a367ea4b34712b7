//! Checkpoints: advanced heads, the leaves and nodes of the tree, signed notes.

use ledger::{AdvancedHead, LedgerError, NewCheckpoint, StoredCheckpoint};
use model::{CheckpointLeaf, Record};
use rstest::rstest;

use crate::harness::{Backend, TestDatabase, read, run_id};

fn leaf(record: &Record) -> CheckpointLeaf {
    CheckpointLeaf { head_hash: record.hash.unwrap(), head_seq: record.seq, run_id: record.run_id.clone() }
}

/// Returns a head that extends the last leaf of its run.
fn advanced(record: &Record) -> AdvancedHead {
    AdvancedHead { leaf: leaf(record), extends_last_leaf: true }
}

/// Returns a checkpoint that appends `leaves` to a tree of `size` leaves, and updates `size`. Each leaf completes one node.
fn new_checkpoint(size: &mut u64, leaves: Vec<CheckpointLeaf>, position: i64) -> NewCheckpoint {
    let nodes = (*size..).zip(leaves.iter().map(|leaf| leaf.head_hash)).collect();
    *size += leaves.len() as u64;
    let note = format!("note {size}");
    NewCheckpoint { leaves, nodes, checkpoint: StoredCheckpoint { size: *size, position, note } }
}

impl TestDatabase {
    /// Appends a checkpoint of all heads that advanced after position `after`. Returns the new leaves and the newest position.
    pub(crate) async fn checkpoint(&self, size: &mut u64, after: i64) -> (Vec<CheckpointLeaf>, i64) {
        let newest = *self.ledger.newest_position().borrow();
        let advanced = self.ledger.advanced_heads(after, newest).await.unwrap();
        assert!(advanced.iter().all(|head| head.extends_last_leaf), "{advanced:?}");
        let leaves: Vec<_> = advanced.into_iter().map(|head| head.leaf).collect();
        self.ledger.append_checkpoint(new_checkpoint(size, leaves.clone(), newest)).await.unwrap();
        (leaves, newest)
    }
}

#[rstest]
#[tokio::test]
async fn a_head_is_advanced_until_a_leaf_covers_it(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    for run in ["r1", "r2", "r3"] {
        db.run(run).await;
    }
    let (mut size, ledger) = (0, &db.ledger);
    assert_eq!(ledger.advanced_heads(0, i64::MAX).await.unwrap(), []);
    assert_eq!(ledger.latest_checkpoint().await.unwrap(), None);
    db.append(read("r2", "a")).await;
    let first = db.append(read("r1", "a")).await;
    let second = db.append(read("r2", "b")).await;
    let (leaves, position) = db.checkpoint(&mut size, 0).await;
    assert_eq!(leaves, [leaf(&first), leaf(&second)], "the current head of each run");
    assert_eq!(ledger.advanced_heads(0, i64::MAX).await.unwrap(), [], "all are covered");

    let third = db.append(read("r3", "a")).await;
    let fourth = db.append(read("r1", "b")).await;
    assert_eq!(ledger.advanced_heads(position, i64::MAX).await.unwrap(), [advanced(&fourth), advanced(&third)]);
    assert_eq!(
        ledger.advanced_heads(position, position + 1).await.unwrap(),
        [advanced(&third)],
        "limited by the second position"
    );
    assert_eq!(ledger.advanced_heads(position + 2, i64::MAX).await.unwrap(), []);
}

/// A head that contradicts a signed leaf of its run is reported, so that it is not signed.
#[rstest]
#[case::removed("DELETE FROM audit_record WHERE seq >= 2", 1)]
#[case::replaced("UPDATE audit_record SET body = (SELECT body FROM audit_record r WHERE r.seq = 1) WHERE seq = 2", 2)]
#[tokio::test]
async fn a_head_that_does_not_extend_its_last_leaf_is_reported(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] sql: &str,
    #[case] head: u64,
) {
    let mut db = backend.open().await;
    db.run("r1").await;
    db.append(read("r1", "a")).await;
    db.append(read("r1", "b")).await;
    let (_, position) = db.checkpoint(&mut 0, 0).await;
    db.drop_triggers("audit_record").await;
    db.execute(sql).await.unwrap();
    db.execute(&format!("UPDATE run_head SET head_seq = {head}")).await.unwrap();
    db.reopen().await;
    db.append(read("r1", "c")).await;
    let advanced = db.ledger.advanced_heads(position - 1, i64::MAX).await.unwrap();
    assert_eq!(
        advanced.iter().map(|head| (head.leaf.head_seq, head.extends_last_leaf)).collect::<Vec<_>>(),
        [(head + 1, false)]
    );
}

#[rstest]
#[tokio::test]
async fn leaves_nodes_and_notes_are_read_as_they_were_stored(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    let (mut size, mut after, mut all) = (0, 0, Vec::new());
    for run in ["r1", "r2"] {
        db.run(run).await;
    }
    for number in 0..7 {
        db.append(read("r1", &format!("f{number}"))).await;
        if number % 3 == 0 {
            db.append(read("r2", "a")).await;
        }
        let (leaves, position) = db.checkpoint(&mut size, after).await;
        after = position;
        all.extend(leaves);
    }
    db.reopen().await;
    let ledger = &db.ledger;
    assert_eq!((all.len(), size), (10, 10));
    let latest = ledger.latest_checkpoint().await.unwrap().unwrap();
    assert_eq!(latest, StoredCheckpoint { size: 10, position: after, note: "note 10".into() });
    let sizes: Vec<_> = ledger.checkpoints(2, 3).await.unwrap().into_iter().map(|checkpoint| checkpoint.size).collect();
    assert_eq!(sizes, [3, 4, 6]);

    let stored = ledger.leaves(None, 0, 100).await.unwrap();
    assert_eq!(stored.iter().map(|leaf| leaf.leaf().unwrap()).collect::<Vec<_>>(), all);
    assert!(stored.iter().all(|leaf| leaf.recorded == Some(leaf.head_hash)));
    assert_eq!(ledger.leaves(None, 4, 2).await.unwrap(), stored[4..6]);
    let of_second: Vec<_> = stored.iter().filter(|leaf| leaf.run_id == Some(run_id("r2"))).cloned().collect();
    assert_eq!(ledger.leaves(Some(&run_id("r2")), 0, 100).await.unwrap(), of_second);

    let indexes: Vec<_> = (0..11).collect();
    let hashes = ledger.node_hashes(&indexes).await.unwrap();
    assert_eq!(hashes, (0..).zip(&all).map(|(index, leaf)| (index, leaf.head_hash)).collect());
    assert_eq!(ledger.node_hashes(&[3, 10]).await.unwrap(), [(3, all[3].head_hash)].into());
}

#[rstest]
#[tokio::test]
async fn a_checkpoint_for_an_outdated_tree_is_rejected(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    let record = db.append(read("r1", "a")).await;
    db.checkpoint(&mut 0, 0).await;
    let error = db.ledger.append_checkpoint(new_checkpoint(&mut 0, vec![leaf(&record)], 9)).await.unwrap_err();
    assert!(matches!(error, LedgerError::AlreadyExists), "{error:?}");
    assert_eq!(db.ledger.latest_checkpoint().await.unwrap().unwrap().position, 1);
    let unknown = CheckpointLeaf { run_id: run_id("none"), ..leaf(&record) };
    assert!(db.ledger.append_checkpoint(new_checkpoint(&mut 1, vec![unknown], 9)).await.is_err());
    assert_eq!(db.ledger.leaves(None, 0, 100).await.unwrap().len(), 1);
}

#[rstest]
#[tokio::test]
async fn the_covering_leaf_is_the_first_at_or_after_the_record(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (run, other) = (db.run("r1").await, db.run("r2").await);
    let mut size = 0;
    for count in [2, 3] {
        for number in 0..count {
            db.append(read("r1", &format!("f{number}"))).await;
        }
        db.checkpoint(&mut size, 0).await;
    }
    db.append(read("r1", "uncovered")).await;
    let covering = async |run, seq, size| {
        let found = db.ledger.covering_leaf(run, seq, size).await.unwrap();
        found.map(|leaf| (leaf.index, leaf.head_seq))
    };
    for (seq, size, expected) in [
        (1, 2, Some((0, 2))),
        (2, 2, Some((0, 2))),
        (3, 2, Some((1, 5))),
        (5, 2, Some((1, 5))),
        (6, 2, None),
        (3, 1, None),
        (1, 0, None),
    ] {
        assert_eq!(covering(&run, seq, size).await, expected, "{seq} among {size}");
    }
    assert_eq!(covering(&other, 1, 2).await, None);
    let seqs = |records: ledger::LedgerPage<ledger::StoredRecord>| -> Vec<u64> {
        records.iter().map(|record| serde_json::from_str::<Record>(&record.text).unwrap().seq).collect()
    };
    assert_eq!(seqs(db.ledger.record_range(&run, 2, 5, 100.into()).await.unwrap()), [2, 3, 4, 5]);
    assert_eq!(seqs(db.ledger.record_range(&run, 2, 5, 3.into()).await.unwrap()), [2, 3, 4]);
    assert!(db.ledger.record_range(&other, 1, 5, 3.into()).await.unwrap().is_empty());
}

#[rstest]
#[tokio::test]
async fn checkpoint_tables_are_append_only_and_leaves_show_removed_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r1").await;
    db.append(read("r1", "a")).await;
    db.append(read("r1", "b")).await;
    db.checkpoint(&mut 0, 0).await;
    for (table, column) in
        [("checkpoint_leaf", "head_seq = 9"), ("checkpoint_node", "place = 9"), ("checkpoint", "note = 'x'")]
    {
        for sql in [format!("UPDATE {table} SET {column}"), format!("DELETE FROM {table}")] {
            let error = db.execute(&sql).await.unwrap_err();
            assert!(error.contains("only grows"), "{sql}: {error}");
        }
    }
    db.drop_triggers("audit_record").await;
    db.execute("UPDATE audit_record SET body = '{\"hash\":\"none\"}' WHERE seq = 2").await.unwrap();
    assert_eq!(db.ledger.leaves(None, 0, 1).await.unwrap()[0].recorded, None);
    db.execute("DELETE FROM audit_record WHERE seq = 2").await.unwrap();
    assert_eq!(db.ledger.leaves(None, 0, 1).await.unwrap()[0].recorded, None);
}
