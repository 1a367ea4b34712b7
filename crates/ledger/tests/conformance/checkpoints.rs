//! Checkpoints: heads that moved, the tree's leaves and nodes, what was signed.

use ledger::{AdvancedHead, LedgerError, NewCheckpoint, StoredCheckpoint};
use model::{CheckpointLeaf, Record};
use rstest::rstest;

use crate::harness::{Backend, World, read, run_id};

fn leaf(record: &Record) -> CheckpointLeaf {
    CheckpointLeaf { head_hash: record.hash.unwrap(), head_seq: record.seq, run_id: record.run_id.clone() }
}

/// A head that goes on where its run's leaf before was.
fn moved(record: &Record) -> AdvancedHead {
    AdvancedHead { leaf: leaf(record), extends_last_leaf: true }
}

/// The checkpoint that appends `leaves` to a tree of `size` leaves, which grows. Each leaf completes one node.
fn round(size: &mut u64, leaves: Vec<CheckpointLeaf>, position: i64) -> NewCheckpoint {
    let nodes = (*size..).zip(leaves.iter().map(|leaf| leaf.head_hash)).collect();
    *size += leaves.len() as u64;
    let note = format!("note {size}");
    NewCheckpoint { leaves, nodes, checkpoint: StoredCheckpoint { size: *size, position, note } }
}

impl World {
    /// Appends a checkpoint over all heads that advanced after position `after`; returns the leaves and the new position.
    pub(crate) async fn checkpoint(&self, size: &mut u64, after: i64) -> (Vec<CheckpointLeaf>, i64) {
        let newest = *self.ledger.newest_position().borrow();
        let moved = self.ledger.advanced_heads(after, newest).await.unwrap();
        assert!(moved.iter().all(|moved| moved.extends_last_leaf), "{moved:?}");
        let leaves: Vec<_> = moved.into_iter().map(|moved| moved.leaf).collect();
        self.ledger.append_checkpoint(round(size, leaves.clone(), newest)).await.unwrap();
        (leaves, newest)
    }
}

#[rstest]
#[tokio::test]
async fn a_head_has_moved_until_a_leaf_holds_it(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    for run in ["r1", "r2", "r3"] {
        world.run(run).await;
    }
    let (mut size, ledger) = (0, &world.ledger);
    assert_eq!(ledger.advanced_heads(0, i64::MAX).await.unwrap(), []);
    assert_eq!(ledger.latest_checkpoint().await.unwrap(), None);
    world.append(read("r2", "a")).await;
    let first = world.append(read("r1", "a")).await;
    let second = world.append(read("r2", "b")).await;
    let (leaves, position) = world.checkpoint(&mut size, 0).await;
    assert_eq!(leaves, [leaf(&first), leaf(&second)], "one a run, as it stands now");
    assert_eq!(ledger.advanced_heads(0, i64::MAX).await.unwrap(), [], "they are held");

    let third = world.append(read("r3", "a")).await;
    let fourth = world.append(read("r1", "b")).await;
    assert_eq!(ledger.advanced_heads(position, i64::MAX).await.unwrap(), [moved(&fourth), moved(&third)]);
    assert_eq!(ledger.advanced_heads(position, position + 1).await.unwrap(), [moved(&third)], "only up to there");
    assert_eq!(ledger.advanced_heads(position + 2, i64::MAX).await.unwrap(), []);
}

/// Nobody signs a head that contradicts what was signed of its run before.
#[rstest]
#[case::cut_off("DELETE FROM audit_record WHERE seq >= 2", 1)]
#[case::another("UPDATE audit_record SET body = (SELECT body FROM audit_record r WHERE r.seq = 1) WHERE seq = 2", 2)]
#[tokio::test]
async fn a_head_follows_what_a_leaf_holds(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] sql: &str,
    #[case] head: u64,
) {
    let mut world = backend.open().await;
    world.run("r1").await;
    world.append(read("r1", "a")).await;
    world.append(read("r1", "b")).await;
    let (_, position) = world.checkpoint(&mut 0, 0).await;
    world.unguard("audit_record").await;
    world.raw(sql).await.unwrap();
    world.raw(&format!("UPDATE run_head SET head_seq = {head}")).await.unwrap();
    world.reopen().await;
    world.append(read("r1", "c")).await;
    let moved = world.ledger.advanced_heads(position - 1, i64::MAX).await.unwrap();
    assert_eq!(
        moved.iter().map(|moved| (moved.leaf.head_seq, moved.extends_last_leaf)).collect::<Vec<_>>(),
        [(head + 1, false)]
    );
}

#[rstest]
#[tokio::test]
async fn a_round_is_stored_whole_and_found_again(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut world = backend.open().await;
    let (mut size, mut after, mut all) = (0, 0, Vec::new());
    for run in ["r1", "r2"] {
        world.run(run).await;
    }
    for number in 0..7 {
        world.append(read("r1", &format!("f{number}"))).await;
        if number % 3 == 0 {
            world.append(read("r2", "a")).await;
        }
        let (leaves, position) = world.checkpoint(&mut size, after).await;
        after = position;
        all.extend(leaves);
    }
    world.reopen().await;
    let ledger = &world.ledger;
    assert_eq!((all.len(), size), (10, 10));
    let latest = ledger.latest_checkpoint().await.unwrap().unwrap();
    assert_eq!(latest, StoredCheckpoint { size: 10, position: after, note: "note 10".into() });
    let sizes: Vec<_> = ledger.checkpoints(2, 3).await.unwrap().into_iter().map(|one| one.size).collect();
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
async fn a_round_on_another_tree_than_there_is_stores_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    world.run("r1").await;
    let record = world.append(read("r1", "a")).await;
    world.checkpoint(&mut 0, 0).await;
    let error = world.ledger.append_checkpoint(round(&mut 0, vec![leaf(&record)], 9)).await.unwrap_err();
    assert!(matches!(error, LedgerError::AlreadyExists), "{error:?}");
    assert_eq!(world.ledger.latest_checkpoint().await.unwrap().unwrap().position, 1);
    let unknown = CheckpointLeaf { run_id: run_id("none"), ..leaf(&record) };
    assert!(world.ledger.append_checkpoint(round(&mut 1, vec![unknown], 9)).await.is_err());
    assert_eq!(world.ledger.leaves(None, 0, 100).await.unwrap().len(), 1);
}

#[rstest]
#[tokio::test]
async fn a_record_is_covered_by_the_first_leaf_behind_it(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    let (run, other) = (world.run("r1").await, world.run("r2").await);
    let mut size = 0;
    for count in [2, 3] {
        for number in 0..count {
            world.append(read("r1", &format!("f{number}"))).await;
        }
        world.checkpoint(&mut size, 0).await;
    }
    world.append(read("r1", "uncovered")).await;
    let covering = async |run, seq, size| {
        let found = world.ledger.covering_leaf(run, seq, size).await.unwrap();
        found.map(|leaf| (leaf.index, leaf.head_seq))
    };
    for (seq, size, want) in [
        (1, 2, Some((0, 2))),
        (2, 2, Some((0, 2))),
        (3, 2, Some((1, 5))),
        (5, 2, Some((1, 5))),
        (6, 2, None),
        (3, 1, None),
        (1, 0, None),
    ] {
        assert_eq!(covering(&run, seq, size).await, want, "{seq} among {size}");
    }
    assert_eq!(covering(&other, 1, 2).await, None);
    let seqs = |records: ledger::Page<ledger::StoredRecord>| -> Vec<u64> {
        records.iter().map(|one| serde_json::from_str::<Record>(&one.text).unwrap().seq).collect()
    };
    assert_eq!(seqs(world.ledger.record_range(&run, 2, 5, 100.into()).await.unwrap()), [2, 3, 4, 5]);
    assert_eq!(seqs(world.ledger.record_range(&run, 2, 5, 3.into()).await.unwrap()), [2, 3, 4]);
    assert!(world.ledger.record_range(&other, 1, 5, 3.into()).await.unwrap().is_empty());
}

#[rstest]
#[tokio::test]
async fn checkpoints_only_grow_and_tell_what_is_gone(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    world.run("r1").await;
    world.append(read("r1", "a")).await;
    world.append(read("r1", "b")).await;
    world.checkpoint(&mut 0, 0).await;
    for (table, column) in
        [("checkpoint_leaf", "head_seq = 9"), ("checkpoint_node", "place = 9"), ("checkpoint", "note = 'x'")]
    {
        for sql in [format!("UPDATE {table} SET {column}"), format!("DELETE FROM {table}")] {
            let error = world.raw(&sql).await.unwrap_err();
            assert!(error.contains("only grows"), "{sql}: {error}");
        }
    }
    world.unguard("audit_record").await;
    world.raw("UPDATE audit_record SET body = '{\"hash\":\"none\"}' WHERE seq = 2").await.unwrap();
    assert_eq!(world.ledger.leaves(None, 0, 1).await.unwrap()[0].recorded, None);
    world.raw("DELETE FROM audit_record WHERE seq = 2").await.unwrap();
    assert_eq!(world.ledger.leaves(None, 0, 1).await.unwrap()[0].recorded, None);
}
