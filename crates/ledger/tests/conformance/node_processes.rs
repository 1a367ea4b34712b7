//! Several nodes, each a process of its own, on one PostgreSQL database.

use std::sync::Arc;
use std::time::Duration;

use ledger::{Entry, Epoch, Fence, Ledger, LedgerError, Taken};
use model::Disk;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::task::JoinHandle;

use crate::harness::{Backend, TestDatabase, only_record, read, run_id};
use crate::journal::mutation;
use crate::nodes::{INSTANCE, LEASE, assert_moved, identity, owned, process, under};

/// The records of the run `r1` wait for a lock that a test holds when their transaction is being committed.
const HOLD_COMMIT: &str = "CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    IF NEW.run_no = (SELECT run_no FROM run WHERE run_id = 'r1') THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN NULL; END $$; \
    CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON audit_record DEFERRABLE INITIALLY DEFERRED \
    FOR EACH ROW EXECUTE FUNCTION hold_commit()";
const TERMINATE_COMMIT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
    AND wait_event_type = 'Lock' AND query LIKE 'COMMIT%'";

/// A database with the runs `r1` and `r2` of the node `a`, and the node `b`.
struct Nodes {
    a: TestDatabase,
    b: Arc<dyn Ledger>,
}

async fn start(db: &TestDatabase, name: &str) -> Arc<dyn Ledger> {
    let ledger = ledger::open(db.url()).await.unwrap();
    ledger.join(&identity(name), Some(INSTANCE), INSTANCE, LEASE).await.unwrap().unwrap();
    ledger
}

impl Nodes {
    async fn start() -> Self {
        let mut a = Backend::Postgres.open().await;
        a.start_node("a").await;
        for run in ["r1", "r2"] {
            a.run(run).await;
        }
        let b = start(&a, "b").await;
        Self { a, b }
    }

    /// Lets the heartbeat of `a` expire, as if it were paused, and gives the run `r1` to `b`.
    async fn pause_a(&self) -> Epoch {
        self.a.expire("a").await;
        owned(self.b.take_run(&run_id("r1")).await.unwrap())
    }

    async fn begin(&self, sql: &str) -> PgConnection {
        let mut connection = PgConnection::connect(self.a.url()).await.unwrap();
        connection.execute("BEGIN").await.unwrap();
        connection.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.unwrap();
        connection
    }

    /// Holds the commits of records of the run `r1`.
    async fn hold_commits(&self) -> PgConnection {
        self.a.execute(HOLD_COMMIT).await.unwrap();
        self.begin("SELECT pg_advisory_xact_lock(1)").await
    }

    /// Starts to take the run `r1` for `b`, and returns once that waits for a commit.
    async fn taking(&self) -> JoinHandle<Result<Taken, LedgerError>> {
        self.a.expire("a").await;
        let b = Arc::clone(&self.b);
        let taking = tokio::spawn(async move { b.take_run(&run_id("r1")).await });
        self.a.until_waiting(2).await;
        assert!(!taking.is_finished());
        taking
    }

    async fn assert_chain(&self, run: &str, records: u64) {
        let report = self.b.verify(&run_id(run)).await.unwrap();
        assert!(report.intact && report.records == records, "{report:?}");
    }
}

fn appending(ledger: &Arc<dyn Ledger>, entry: Entry) -> JoinHandle<Result<ledger::Appended, LedgerError>> {
    let ledger = Arc::clone(ledger);
    tokio::spawn(async move { ledger.append(vec![entry]).await })
}

#[tokio::test]
async fn a_paused_node_that_wakes_commits_nothing_to_a_run_that_was_taken() {
    let nodes = Nodes::start().await;
    nodes.a.append(under(Epoch::FIRST, mutation("r1", "one", "a"))).await;
    let epoch = nodes.pause_a().await;
    only_record(nodes.b.append(vec![under(epoch, mutation("r1", "two", "a"))]).await.unwrap());
    // It wakes, and has noticed nothing.
    assert!(nodes.a.ledger.heartbeat(LEASE).await.unwrap());
    let a = &nodes.a.ledger;
    assert_moved(&a.append(vec![under(Epoch::FIRST, mutation("r1", "three", "a"))]).await, "r1");
    assert_moved(&a.append(vec![under(Epoch::FIRST, read("r1", "a"))]).await, "r1");
    // The epoch alone does not make it the owner.
    assert_moved(&a.append(vec![under(epoch, read("r1", "a"))]).await, "r1");
    assert_moved(&a.set_needs_repair(&run_id("r1"), true, "2026-01-01T00:00:00.000000Z").await, "r1");
    assert_moved(&a.set_disk_usage(&run_id("r1"), Disk::default()).await, "r1");
    a.prune(&[(run_id("r1"), 1), (run_id("r1"), 2)]).await.unwrap();
    a.give_back(&[(run_id("r1"), Epoch::FIRST), (run_id("r1"), epoch)]).await.unwrap();
    let settled = nodes.b.settled_run(&run_id("r1")).await.unwrap().unwrap();
    assert_eq!((settled.journal.len(), settled.stored.needs_repair), (2, false));
    match a.take_run(&run_id("r1")).await.unwrap() {
        Taken::OwnedBy(owner) => assert_eq!((owner.node, owner.epoch), (process("b", 1), epoch)),
        Taken::Owned(_) => panic!("the owner is alive"),
    }
    // What was not taken is still its own.
    nodes.a.append(under(Epoch::FIRST, read("r2", "a"))).await;
    nodes.assert_chain("r1", 2).await;
    // When it owns the run again, calls from before do not count.
    nodes.a.expire("b").await;
    let again = owned(a.take_run(&run_id("r1")).await.unwrap());
    assert!(again > epoch);
    assert_moved(&a.append(vec![under(Epoch::FIRST, read("r1", "a"))]).await, "r1");
    nodes.a.append(under(again, read("r1", "a"))).await;
    assert_moved(&nodes.b.append(vec![under(epoch, read("r1", "a"))]).await, "r1");
    nodes.assert_chain("r1", 3).await;
}

#[tokio::test]
async fn a_group_commits_without_the_runs_that_were_taken() {
    let nodes = Nodes::start().await;
    nodes.pause_a().await;
    // The jobs that arrive while a commit is held are the next group.
    let lock =
        nodes.begin("SELECT FROM run_head JOIN run USING (run_no) WHERE run_id = 'r2' FOR UPDATE OF run_head").await;
    let first = appending(&nodes.a.ledger, under(Epoch::FIRST, read("r2", "a")));
    nodes.a.until_waiting(1).await;
    let moved: Vec<_> = (0..3).map(|_| appending(&nodes.a.ledger, under(Epoch::FIRST, read("r1", "a")))).collect();
    let kept: Vec<_> = (0..3).map(|_| appending(&nodes.a.ledger, under(Epoch::FIRST, read("r2", "a")))).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(lock);
    only_record(first.await.unwrap().unwrap());
    for append in moved {
        assert_moved(&append.await.unwrap(), "r1");
    }
    for append in kept {
        only_record(append.await.unwrap().unwrap());
    }
    nodes.assert_chain("r1", 0).await;
    nodes.assert_chain("r2", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_being_made_is_visible_to_the_node_that_takes_the_run() {
    let nodes = Nodes::start().await;
    let held = nodes.hold_commits().await;
    let append = appending(&nodes.a.ledger, under(Epoch::FIRST, mutation("r1", "one", "a")));
    nodes.a.until_waiting(1).await;
    let taking = nodes.taking().await;
    drop(held);
    assert_eq!(only_record(append.await.unwrap().unwrap()).seq, 1);
    let epoch = owned(taking.await.unwrap().unwrap());
    assert!(epoch > Epoch::FIRST);
    let settled = nodes.b.settled_run(&run_id("r1")).await.unwrap().unwrap();
    assert_eq!((settled.stored.run.head_seq, settled.journal.len()), (1, 1));
    assert_eq!(only_record(nodes.b.append(vec![under(epoch, read("r1", "a"))]).await.unwrap()).seq, 2);
    nodes.assert_chain("r1", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_a_killed_node_is_decided_before_the_run_is_taken() {
    let mut nodes = Nodes::start().await;
    // A process of its own, so that it can be killed.
    let killed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = nodes.a.url().to_owned();
    let joined = killed.spawn(async move {
        let ledger = ledger::open(&url).await.unwrap();
        ledger.join(&identity("a"), Some(INSTANCE), INSTANCE, LEASE).await.unwrap().unwrap();
        let epoch = owned(ledger.take_run(&run_id("r1")).await.unwrap());
        (ledger, epoch)
    });
    let (ledger, epoch) = joined.await.unwrap();
    let held = nodes.hold_commits().await;
    let repeated = mutation("r1", "one", "a");
    let entry = under(epoch, repeated.clone());
    killed.spawn(async move { ledger.append(vec![entry]).await });
    nodes.a.until_waiting(1).await;
    killed.shutdown_background();
    let taking = nodes.taking().await;
    drop(held);
    let epoch = owned(taking.await.unwrap().unwrap());
    nodes.assert_chain("r1", 1).await;
    // The client repeats its call.
    let again = nodes.b.append(vec![under(epoch, repeated)]).await.unwrap();
    assert!(matches!(again, ledger::Appended::Repeated(0)), "{again:?}");
    nodes.a.start_node("c").await;
    nodes.assert_chain("r1", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_in_doubt_that_was_rolled_back_fails_after_the_run_is_taken() {
    let nodes = Nodes::start().await;
    let held = nodes.hold_commits().await;
    let entry = under(Epoch::FIRST, mutation("r1", "one", "a"));
    let append = appending(&nodes.a.ledger, entry.clone());
    nodes.a.until_waiting(1).await;
    let taking = nodes.taking().await;
    nodes.a.execute(TERMINATE_COMMIT).await.unwrap();
    let appended = append.await.unwrap();
    assert!(matches!(appended, Err(LedgerError::InDoubt(_))), "{appended:?}");
    let epoch = owned(taking.await.unwrap().unwrap());
    // What the old owner reads to resolve its doubt is what the new one has.
    let settled = nodes.a.ledger.settled_run(&run_id("r1")).await.unwrap().unwrap();
    assert_eq!((settled.stored.run.head_seq, settled.journal.len()), (0, 0));
    drop(held);
    assert_moved(&nodes.a.try_append(entry.clone()).await, "r1");
    let again = Entry { epoch: Some(epoch), ..entry };
    assert_eq!(only_record(nodes.b.append(vec![again]).await.unwrap()).seq, 1);
    nodes.assert_chain("r1", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_after_the_one_who_takes_the_run_fails() {
    let nodes = Nodes::start().await;
    let lock =
        nodes.begin("SELECT FROM run_head JOIN run USING (run_no) WHERE run_id = 'r1' FOR UPDATE OF run_head").await;
    nodes.a.expire("a").await;
    let b = Arc::clone(&nodes.b);
    let taking = tokio::spawn(async move { b.take_run(&run_id("r1")).await });
    nodes.a.until_waiting(1).await;
    let append = appending(&nodes.a.ledger, under(Epoch::FIRST, read("r1", "a")));
    nodes.a.until_waiting(2).await;
    drop(lock);
    let epoch = owned(taking.await.unwrap().unwrap());
    assert_moved(&append.await.unwrap(), "r1");
    only_record(nodes.b.append(vec![under(epoch, read("r1", "a"))]).await.unwrap());
    nodes.assert_chain("r1", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_does_not_wait_for_other_calls() {
    let nodes = Nodes::start().await;
    assert!(nodes.a.ledger.heartbeat(LEASE).await.unwrap());
    let lock =
        nodes.begin("SELECT FROM run_head JOIN run USING (run_no) WHERE run_id = 'r1' FOR UPDATE OF run_head").await;
    let settle = |_| {
        let ledger = Arc::clone(&nodes.a.ledger);
        tokio::spawn(async move { ledger.settled_run(&run_id("r1")).await })
    };
    let settling: Vec<_> = (0..20).map(settle).collect();
    nodes.a.until_waiting(8).await;
    let beat = tokio::time::timeout(Duration::from_secs(30), nodes.a.ledger.heartbeat(LEASE)).await;
    assert!(beat.expect("a heartbeat while others wait for the lock").unwrap());
    drop(lock);
    for settled in settling {
        drop(settled.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_the_nodes_that_take_a_run_at_the_same_time_gets_it() {
    let nodes = Nodes::start().await;
    let c = start(&nodes.a, "c").await;
    for _ in 0..20 {
        nodes.a.execute("UPDATE run_head SET owner_node = NULL, owner_incarnation = NULL").await.unwrap();
        let take = |ledger: &Arc<dyn Ledger>| {
            let ledger = Arc::clone(ledger);
            tokio::spawn(async move { ledger.take_run(&run_id("r1")).await.unwrap() })
        };
        let taken = [take(&nodes.a.ledger), take(&nodes.b), take(&c)];
        let mut owners = 0;
        for taken in taken {
            owners += i32::from(matches!(taken.await.unwrap(), Taken::Owned(_)));
        }
        assert_eq!(owners, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_join_under_one_name_are_different() {
    let nodes = Nodes::start().await;
    let mut joins = Vec::new();
    for _ in 0..5 {
        let ledger = ledger::open(nodes.a.url()).await.unwrap();
        joins.push(tokio::spawn(async move { ledger.join(&identity("d"), Some(INSTANCE), INSTANCE, LEASE).await }));
    }
    let mut incarnations = Vec::new();
    for join in joins {
        match join.await.unwrap() {
            Ok(node) => incarnations.push(node.unwrap().incarnation),
            Err(LedgerError::Unavailable(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    incarnations.sort_unstable();
    assert!(!incarnations.is_empty() && incarnations.windows(2).all(|pair| pair[0] < pair[1]), "{incarnations:?}");
}

#[tokio::test]
async fn nodes_and_single_processes_exclude_each_other() {
    let db = Backend::Postgres.open().await;
    db.run("r1").await;
    assert!(db.ledger.take_over(None, "6 single").await.unwrap());
    let a = ledger::open(db.url()).await.unwrap();
    a.join(&identity("a"), Some("6 single"), INSTANCE, LEASE).await.unwrap().unwrap();
    let fenced = db.try_append(read("r1", "a")).await;
    assert!(matches!(fenced, Err(LedgerError::Fenced(Fence::TakenOver))), "{fenced:?}");
    let b = start(&db, "b").await;
    let epoch = owned(a.take_run(&run_id("r1")).await.unwrap());
    only_record(a.append(vec![under(epoch, read("r1", "a"))]).await.unwrap());
    let single = ledger::open(db.url()).await.unwrap();
    let refused = single.take_over(Some(INSTANCE), "8 single").await;
    assert!(matches!(refused, Err(LedgerError::Fenced(Fence::HasNodes))), "{refused:?}");
    // Nodes that are paused for so long are fenced, however late they wake.
    db.expire("a").await;
    b.leave().await.unwrap();
    assert!(single.take_over(Some(INSTANCE), "8 single").await.unwrap());
    only_record(single.append(vec![read("r1", "a")]).await.unwrap());
    let heartbeat = a.heartbeat(LEASE).await;
    assert!(matches!(heartbeat, Err(LedgerError::Fenced(Fence::TakenOver))), "{heartbeat:?}");
    let fenced = a.append(vec![under(epoch, read("r1", "a"))]).await;
    assert!(matches!(fenced, Err(LedgerError::Fenced(Fence::TakenOver))), "{fenced:?}");
    only_record(single.append(vec![read("r1", "a")]).await.unwrap());
}
