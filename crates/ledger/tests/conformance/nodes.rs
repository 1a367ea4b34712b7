//! Nodes, the runs that they own, and roles. A ledger that is opened again is as a process that starts.

use std::time::Duration;

use ledger::{
    Appended, Entry, Epoch, Fence, JournalledRun, LedgerError, Node, NodeIdentity, Role, RunOwner, Taken, TakenRole,
};
use model::{Disk, RunId};
use rstest::rstest;

use crate::harness::{Backend, TestDatabase, new_run, new_token, only_record, read, run_id};
use crate::journal::mutation;

pub(crate) const INSTANCE: &str = "7 cluster";
pub(crate) const LEASE: Duration = Duration::from_mins(10);
const NOON: &str = "2026-01-01T12:00:00.000000Z";

pub(crate) fn identity(name: &str) -> NodeIdentity {
    NodeIdentity { node_id: name.to_owned(), url: format!("http://{name}:1") }
}

pub(crate) fn process(name: &str, incarnation: u64) -> Node {
    Node { node_id: name.to_owned(), incarnation }
}

/// Returns `entry` with the epoch of its run.
pub(crate) fn under(epoch: Epoch, entry: Entry) -> Entry {
    Entry { epoch: Some(epoch), ..entry }
}

pub(crate) fn assert_moved<T: std::fmt::Debug>(result: &Result<T, LedgerError>, expected: &str) {
    assert!(matches!(result, Err(LedgerError::RunMoved(run)) if *run == run_id(expected)), "{result:?}");
}

/// Returns the epoch of a run that was taken.
pub(crate) fn owned(taken: Taken) -> Epoch {
    match taken {
        Taken::Owned(epoch) => epoch,
        other @ Taken::OwnedBy(_) => panic!("{other:?}"),
    }
}

impl TestDatabase {
    /// Opens the ledger as the node `name`, as a process that starts after the one before was killed.
    pub(crate) async fn start_node(&mut self, name: &str) -> Node {
        self.reopen().await;
        self.join(name).await
    }

    async fn join(&self, name: &str) -> Node {
        let known = self.ledger.setting(ledger::INSTANCE).await.unwrap();
        self.ledger.join(&identity(name), known.as_deref(), INSTANCE, LEASE).await.unwrap().unwrap()
    }

    /// Lets the heartbeat of a node expire.
    pub(crate) async fn expire(&self, name: &str) {
        self.execute(&format!("UPDATE node SET expires_at_ms = 1 WHERE node_id = '{name}'")).await.unwrap();
    }

    pub(crate) async fn take(&self, run: &RunId) -> Taken {
        self.ledger.take_run(run).await.unwrap()
    }

    async fn owner(&self, run: &RunId) -> Option<RunOwner> {
        self.ledger.owner(run).await.unwrap()
    }
}

#[rstest]
#[tokio::test]
async fn a_new_run_belongs_to_the_node_that_creates_it(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    assert_eq!(db.start_node("a").await, process("a", 1));
    assert_eq!(db.ledger.node(), Some(&process("a", 1)));
    let created = db.ledger.create_run(&new_run("r1"), &new_token("r1", "tok"), vec![read("r1", "a")]).await.unwrap();
    assert_eq!(created.len(), 1);
    let run = run_id("r1");
    let owner = db.owner(&run).await.unwrap();
    assert_eq!((&owner.node, owner.epoch, owner.url.as_deref()), (&process("a", 1), Epoch::FIRST, Some("http://a:1")));
    let lease = i64::try_from(LEASE.as_millis()).unwrap();
    assert!(owner.is_alive() && owner.expires_in_ms <= lease && owner.expires_in_ms > lease - 60_000, "{owner:?}");
    assert_eq!(owned(db.take(&run).await), Epoch::FIRST);
    assert_eq!(db.append(under(Epoch::FIRST, read("r1", "a"))).await.seq, 2);
    assert_moved(&db.try_append(read("r1", "a")).await, "r1");
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test]
async fn a_run_is_taken_once_its_owner_is_not_alive(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let run = db.run("r1").await;
    db.append(under(Epoch::FIRST, read("r1", "a"))).await;
    db.start_node("b").await;
    match db.take(&run).await {
        Taken::OwnedBy(owner) => assert_eq!((owner.node, owner.epoch), (process("a", 1), Epoch::FIRST)),
        Taken::Owned(epoch) => panic!("taken from a node that is alive, under {epoch}"),
    }
    assert_moved(&db.try_append(under(Epoch::FIRST, read("r1", "a"))).await, "r1");
    db.expire("a").await;
    assert!(!db.owner(&run).await.unwrap().is_alive());
    // Not before it is taken.
    assert_moved(&db.try_append(under(Epoch::FIRST, read("r1", "a"))).await, "r1");
    let epoch = owned(db.take(&run).await);
    assert!(epoch > Epoch::FIRST);
    assert_eq!(db.owner(&run).await.unwrap().node, process("b", 1));
    assert_moved(&db.try_append(under(Epoch::FIRST, read("r1", "a"))).await, "r1");
    assert_eq!(db.append(under(epoch, read("r1", "a"))).await.seq, 2);
    assert_eq!(owned(db.take(&run).await), epoch, "a run that is owned stays as it is");
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test]
async fn a_node_that_restarts_takes_its_runs_at_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let run = db.run("r1").await;
    assert_eq!(db.start_node("a").await, process("a", 2));
    let owner = db.owner(&run).await.unwrap();
    assert!(owner.node == process("a", 1) && !owner.is_alive() && owner.url.is_none(), "{owner:?}");
    assert_moved(&db.try_append(under(Epoch::FIRST, read("r1", "a"))).await, "r1");
    let epoch = owned(db.take(&run).await);
    assert!(epoch > Epoch::FIRST);
    db.append(under(epoch, read("r1", "a"))).await;
    let nodes = db.ledger.nodes().await.unwrap();
    assert_eq!(nodes.iter().map(|node| node.node.clone()).collect::<Vec<_>>(), [process("a", 2)]);
    assert_eq!(nodes[0].owned_runs, 1);
    assert!(nodes[0].expires_in_ms > 0 && nodes[0].started_at_ms > 1_700_000_000_000 && nodes[0].url == "http://a:1");
}

#[rstest]
#[tokio::test]
async fn runs_that_are_given_back_have_no_owner(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let (r1, r2) = (db.run("r1").await, db.run("r2").await);
    db.append(under(Epoch::FIRST, read("r1", "a"))).await;
    db.ledger.give_back(&[(r1.clone(), Epoch::FIRST)]).await.unwrap();
    assert_eq!((db.owner(&r1).await, db.owner(&r2).await.unwrap().epoch), (None, Epoch::FIRST));
    assert_eq!(db.ledger.current_epochs(&r1).await.unwrap(), 1..=1, "a run without an owner keeps its epoch");
    assert_moved(&db.try_append(under(Epoch::FIRST, read("r1", "a"))).await, "r1");
    let epoch = owned(db.take(&r1).await);
    // An earlier call that gives it back has no effect.
    db.ledger.give_back(&[(r1.clone(), Epoch::FIRST)]).await.unwrap();
    db.append(under(epoch, read("r1", "a"))).await;
    db.ledger.leave().await.unwrap();
    db.start_node("b").await;
    for run in [&r1, &r2] {
        owned(db.take(run).await);
    }
}

#[rstest]
#[tokio::test]
async fn all_runs_but_some_are_given_back_at_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let (r1, r2, r3) = (db.run("r1").await, db.run("r2").await, db.run("r3").await);
    db.ledger.give_back_except(std::slice::from_ref(&r2)).await.unwrap();
    assert_eq!((db.owner(&r1).await, db.owner(&r3).await), (None, None));
    db.append(under(Epoch::FIRST, read("r2", "a"))).await;
    assert_moved(&db.try_append(under(Epoch::FIRST, read("r1", "a"))).await, "r1");
    db.ledger.give_back_except(&[]).await.unwrap();
    assert_eq!(db.owner(&r2).await, None);
    // Those of other processes stay theirs.
    let epoch = owned(db.take(&r1).await);
    db.execute("UPDATE run_head SET owner_incarnation = 2").await.unwrap();
    db.ledger.give_back_except(&[]).await.unwrap();
    assert_eq!(db.owner(&r1).await.map(|owner| owner.epoch), Some(epoch));
}

/// After an outage of the database every heartbeat has expired, and the node that comes first must not take what the others own.
#[rstest]
#[tokio::test]
async fn after_an_outage_of_the_database_runs_stay_where_they_are(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let run = db.run("r1").await;
    db.start_node("dead").await;
    let lost = db.run("r2").await;
    db.start_node("b").await;
    db.expire("dead").await;
    // The outage began after the last heartbeats of `a` and `b`, which were 2 seconds apart.
    let past = db.ledger.nodes().await.unwrap()[0].started_at_ms - 60_000;
    for (name, expired) in [("a", past), ("b", past + 2_000)] {
        db.execute(&format!("UPDATE node SET expires_at_ms = {expired} WHERE node_id = '{name}'")).await.unwrap();
    }
    for run in [&run, &lost] {
        let taken = db.ledger.take_run(run).await;
        assert!(matches!(taken, Err(LedgerError::Unavailable(_))), "{taken:?}");
    }
    assert!(db.ledger.heartbeat(LEASE).await.unwrap());
    let alive: Vec<_> = db.ledger.nodes().await.unwrap().iter().map(|node| node.expires_in_ms > 0).collect();
    assert_eq!(alive, [true, true, false], "a, b and dead");
    assert!(matches!(db.take(&run).await, Taken::OwnedBy(owner) if owner.node == process("a", 1)));
    assert!(matches!(db.take(&lost).await, Taken::Owned(_)));
    // While it is alive itself, it revives nobody.
    db.expire("a").await;
    assert!(db.ledger.heartbeat(LEASE).await.unwrap());
    assert!(matches!(db.take(&run).await, Taken::Owned(_)));
}

#[rstest]
#[tokio::test]
async fn a_database_clock_that_is_set_back_keeps_no_dead_node_alive(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.start_node("dead").await;
    let run = db.run("r1").await;
    assert!(matches!(db.ledger.take_role(Role::Signing).await.unwrap(), TakenRole::Held(_)));
    db.start_node("a").await;
    let kept = db.run("r2").await;
    db.start_node("b").await;
    // As if the clock had been set back by a day: `dead` sent its last heartbeat an hour before, and `a` and `b` a moment before.
    let day = 24 * 60 * 60 * 1000;
    for (name, ahead) in [("dead", day - 60 * 60 * 1000), ("a", day - 2000), ("b", day)] {
        let sql = format!("UPDATE node SET expires_at_ms = expires_at_ms + {ahead} WHERE node_id = '{name}'");
        db.execute(&sql).await.unwrap();
    }
    let alive = |nodes: Vec<ledger::StoredNode>| nodes.iter().map(|node| node.expires_in_ms > 0).collect::<Vec<_>>();
    assert_eq!(alive(db.ledger.nodes().await.unwrap()), [false; 3], "a, b and dead");
    let taken = db.ledger.take_run(&run).await;
    assert!(matches!(taken, Err(LedgerError::Unavailable(_))), "{taken:?}");
    // The first heartbeat is for all who were alive.
    assert!(db.ledger.heartbeat(LEASE).await.unwrap());
    assert_eq!(alive(db.ledger.nodes().await.unwrap()), [true, true, false], "a, b and dead");
    assert!(!db.owner(&run).await.unwrap().is_alive());
    assert!(matches!(db.take(&run).await, Taken::Owned(_)));
    assert!(matches!(db.ledger.take_role(Role::Signing).await.unwrap(), TakenRole::Held(_)));
    assert!(matches!(db.take(&kept).await, Taken::OwnedBy(owner) if owner.node == process("a", 1)));
}

#[rstest]
#[tokio::test]
async fn a_newer_process_of_a_node_ends_the_heartbeat_of_the_one_before(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let run = db.run("r1").await;
    assert!(db.ledger.heartbeat(LEASE).await.unwrap());
    db.expire("a").await;
    assert!(db.ledger.heartbeat(LEASE).await.unwrap());
    assert!(db.owner(&run).await.unwrap().is_alive());
    db.execute("UPDATE node SET incarnation = 2").await.unwrap();
    assert!(!db.ledger.heartbeat(LEASE).await.unwrap());
    // Its own runs are its own until they are taken, but it takes no others.
    db.append(under(Epoch::FIRST, read("r1", "a"))).await;
    db.ledger.give_back(&[(run.clone(), Epoch::FIRST)]).await.unwrap();
    let taken = db.ledger.take_run(&run).await;
    assert!(matches!(taken, Err(LedgerError::Fenced(Fence::Superseded))), "{taken:?}");
    let taken = db.ledger.take_role(Role::Signing).await;
    assert!(matches!(taken, Err(LedgerError::Fenced(Fence::Superseded))), "{taken:?}");
}

#[rstest]
#[tokio::test]
async fn only_the_owner_changes_the_state_of_a_tree(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let (r1, r2) = (db.run("r1").await, db.run("r2").await);
    for run in ["r1", "r2"] {
        db.append(under(Epoch::FIRST, mutation(run, &format!("c-{run}"), "a"))).await;
    }
    db.start_node("b").await;
    db.ledger.take_run(&r2).await.unwrap();
    db.expire("a").await;
    let epoch = owned(db.take(&r2).await);
    assert_moved(&db.ledger.set_needs_repair(&r1, true, NOON).await, "r1");
    assert_moved(&db.ledger.set_disk_usage(&r1, Disk { bytes: 5, files: 1 }).await, "r1");
    db.ledger.prune(&[(r1.clone(), 1), (r2.clone(), 1), (run_id("unknown"), 1)]).await.unwrap();
    let pending = db.ledger.pending_journal(None).await.unwrap();
    assert_eq!(pending.iter().map(|entry| &entry.run_id).collect::<Vec<_>>(), [&r1]);
    let stored = db.ledger.run(&r1).await.unwrap().unwrap();
    assert!(!stored.needs_repair && stored.run.disk.tree() == Disk::default(), "{stored:?}");

    db.ledger.set_needs_repair(&r2, true, NOON).await.unwrap();
    db.ledger.set_disk_usage(&r2, Disk { bytes: 5, files: 1 }).await.unwrap();
    let stored = db.ledger.run(&r2).await.unwrap().unwrap();
    assert!(stored.needs_repair && stored.run.disk.tree() == Disk { bytes: 5, files: 1 }, "{stored:?}");
    db.append(under(epoch, read("r2", "a"))).await;
}

#[rstest]
#[tokio::test]
async fn runs_from_before_there_were_nodes_are_taken(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    assert!(db.ledger.take_over(None, "6 single").await.unwrap());
    let run = db.run("r1").await;
    db.append(read("r1", "a")).await;
    assert_eq!((db.owner(&run).await, db.ledger.node()), (None, None));
    // Epochs mean nothing to a process that has not joined.
    db.append(under(Epoch::FIRST, read("r1", "a"))).await;
    for result in [db.ledger.take_run(&run).await.map(drop), db.ledger.heartbeat(LEASE).await.map(drop)] {
        assert!(matches!(result, Err(LedgerError::Internal(_))), "{result:?}");
    }
    db.start_node("a").await;
    let epoch = owned(db.take(&run).await);
    assert_eq!(db.append(under(epoch, read("r1", "a"))).await.seq, 3);
    for result in
        [db.ledger.take_run(&run_id("none")).await.map(drop), db.ledger.owner(&run_id("none")).await.map(drop)]
    {
        assert!(matches!(result, Err(LedgerError::NoSuchRun)), "{result:?}");
    }
}

#[rstest]
#[tokio::test]
async fn a_single_process_takes_over_only_after_all_nodes(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    assert!(db.ledger.take_over(None, "6 single").await.unwrap());
    db.reopen().await;
    for known in [None, Some("5 other")] {
        assert_eq!(db.ledger.join(&identity("a"), known, INSTANCE, LEASE).await.unwrap(), None, "{known:?}");
    }
    assert!(db.ledger.nodes().await.unwrap().is_empty() && db.ledger.node().is_none());
    db.start_node("a").await;
    let again = db.ledger.join(&identity("a"), Some(INSTANCE), INSTANCE, LEASE).await;
    assert!(matches!(again, Err(LedgerError::Internal(_))), "{again:?}");
    db.start_node("b").await;
    db.ledger.leave().await.unwrap();
    db.reopen().await;
    let refused = db.ledger.take_over(Some(INSTANCE), "8 single").await;
    assert!(matches!(refused, Err(LedgerError::Fenced(Fence::HasNodes))), "{refused:?}");
    assert_eq!(db.ledger.setting(ledger::INSTANCE).await.unwrap().as_deref(), Some(INSTANCE));
    db.expire("a").await;
    assert!(!db.ledger.take_over(Some("6 single"), "8 single").await.unwrap());
    assert!(db.ledger.take_over(Some(INSTANCE), "8 single").await.unwrap());
}

#[rstest]
#[tokio::test]
async fn a_role_has_one_holder_at_a_time(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    for role in [Role::Expiry, Role::Retention, Role::Webhooks, Role::Signing] {
        assert_eq!(db.ledger.take_role(role).await.unwrap(), TakenRole::Held(Epoch::FIRST), "{role:?}");
        assert_eq!(db.ledger.take_role(role).await.unwrap(), TakenRole::Held(Epoch::FIRST), "{role:?}");
    }
    db.ledger.give_back_role(Role::Signing, Epoch::FIRST).await.unwrap();
    db.start_node("b").await;
    let held = |taken: TakenRole| match taken {
        TakenRole::Held(epoch) => epoch,
        TakenRole::HeldBy(node) => panic!("held by {node}"),
    };
    assert!(held(db.ledger.take_role(Role::Signing).await.unwrap()) > Epoch::FIRST);
    assert_eq!(db.ledger.take_role(Role::Expiry).await.unwrap(), TakenRole::HeldBy(process("a", 1)));
    db.ledger.give_back_role(Role::Expiry, Epoch::FIRST).await.unwrap();
    assert_eq!(db.ledger.take_role(Role::Expiry).await.unwrap(), TakenRole::HeldBy(process("a", 1)));
    db.expire("a").await;
    let epoch = held(db.ledger.take_role(Role::Expiry).await.unwrap());
    assert!(epoch > Epoch::FIRST);
    assert_eq!(held(db.ledger.take_role(Role::Expiry).await.unwrap()), epoch);
}

#[rstest]
#[tokio::test]
async fn a_node_that_has_ended_is_listed_for_a_day_and_while_it_owns_runs(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let run = db.run("r1").await;
    db.start_node("b").await;
    db.start_node("c").await;
    let listed = async |db: &TestDatabase| -> Vec<String> {
        db.ledger.nodes().await.unwrap().into_iter().map(|stored| stored.node.to_string()).collect()
    };
    db.ledger.leave().await.unwrap();
    assert_eq!(listed(&db).await, ["a/1", "b/1", "c/1"]);
    db.start_node("d").await;
    for name in ["a", "c"] {
        db.expire(name).await;
    }
    assert_eq!(listed(&db).await, ["a/1", "b/1", "d/1"]);
    owned(db.take(&run).await);
    assert_eq!(listed(&db).await, ["b/1", "d/1"]);
    // It is remembered which processes had its name.
    db.start_node("c").await;
    assert_eq!(listed(&db).await, ["b/1", "c/2", "d/1"]);
}

#[rstest]
#[tokio::test]
async fn entries_of_a_run_that_has_moved_do_not_disturb_others(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    for run in ["r1", "r2", "r3"] {
        db.run(run).await;
    }
    db.ledger.give_back(&[(run_id("r2"), Epoch::FIRST)]).await.unwrap();
    let mut appends = Vec::new();
    for round in 0..20 {
        for run in ["r1", "r2", "r3"] {
            let (ledger, entry) =
                (db.ledger.clone(), under(Epoch::FIRST, mutation(run, &format!("{run}-{round}"), "a")));
            appends.push((run, tokio::spawn(async move { ledger.append(vec![entry]).await })));
        }
    }
    for (run, append) in appends {
        let appended = append.await.unwrap();
        if run == "r2" {
            assert_moved(&appended, "r2");
        } else {
            only_record(appended.unwrap());
        }
    }
    for (run, records) in [("r1", 20), ("r2", 0), ("r3", 20)] {
        let report = db.ledger.verify(&run_id(run)).await.unwrap();
        assert!(report.intact && report.records == records, "{report:?}");
    }
    let entries = vec![under(Epoch::FIRST, read("r1", "a")), read("r1", "a")];
    assert_moved(&db.ledger.append(entries).await, "r1");
    assert!(matches!(
        db.ledger.append(vec![under(Epoch::FIRST, read("r1", "a"))]).await.unwrap(),
        Appended::Recorded(_)
    ));
}

#[rstest]
#[tokio::test]
async fn the_epochs_in_which_nobody_has_opened_the_files_are_known(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.start_node("a").await;
    let run = db.run("r1").await;
    let ledger = db.ledger.clone();
    let epochs = async || ledger.current_epochs(&run).await.unwrap();
    assert_eq!(epochs().await, 1..=1, "who creates a run has its files");
    db.ledger.give_back(&[(run.clone(), Epoch::FIRST)]).await.unwrap();
    for taken in 2..=3 {
        let epoch = owned(db.take(&run).await);
        db.ledger.give_back(&[(run.clone(), epoch)]).await.unwrap();
        assert_eq!(epochs().await, 1..=taken);
    }
    let epoch = owned(db.take(&run).await);
    assert_moved(&db.ledger.open_files(&run, Epoch::FIRST).await, "r1");
    db.ledger.open_files(&run, epoch).await.unwrap();
    assert_eq!(epochs().await, 4..=4);
    db.ledger.give_back(&[(run.clone(), epoch)]).await.unwrap();
    let journalled = async || ledger.journalled(std::slice::from_ref(&run)).await.unwrap();
    assert!(journalled().await.is_empty(), "nobody owns the run");
    let epoch = owned(db.take(&run).await);
    assert_eq!(epochs().await, 4..=5);
    assert_eq!(journalled().await, [JournalledRun { run: run.clone(), epoch, seqs: Vec::new() }]);
}
