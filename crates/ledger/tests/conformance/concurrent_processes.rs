//! Several processes of one instance that commit to one PostgreSQL database at the same time. Each ledger is as one process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ledger::{Appended, Entry, FailedPrecondition, Ledger, LedgerError, RecordFilter};
use model::{Disk, Record, RunId};
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use tokio::task::{JoinHandle, JoinSet};

use crate::harness::{Backend, TestDatabase, only_record, read, run_id, until, write};
use crate::operators::{ChangeOperators as _, name, new_operator, requiring_operator};

/// Runs of a test with many records, and the records that each process appends to each of them.
const RUNS: usize = 8;
const RECORDS: usize = 125;
/// The records of the run `r1` wait, after they have their positions, for a lock that a test holds.
const HOLD_R1: &str = "CREATE FUNCTION hold_r1() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    IF NEW.run_no = (SELECT run_no FROM run WHERE run_id = 'r1') THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN NEW; END $$; \
    CREATE TRIGGER hold_r1 BEFORE INSERT ON audit_record FOR EACH ROW EXECUTE FUNCTION hold_r1()";
/// Each transaction pauses after it has its positions, so that many commit in another order.
const PAUSE: &str = "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    PERFORM pg_sleep(random() * 0.02); RETURN NULL; END $$; \
    CREATE TRIGGER pause BEFORE INSERT ON audit_record FOR EACH STATEMENT EXECUTE FUNCTION pause()";
/// The first transaction that updates a head is the victim of a deadlock.
const DEADLOCK_ONCE: &str = "CREATE SEQUENCE attempts; GRANT USAGE ON SEQUENCE attempts TO PUBLIC; \
    CREATE FUNCTION deadlock_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    IF nextval('attempts') = 1 THEN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END IF; RETURN NULL; END $$; \
    CREATE TRIGGER deadlock_once BEFORE UPDATE ON run_head FOR EACH STATEMENT EXECUTE FUNCTION deadlock_once()";

/// A database with the runs `r1` and `r2`, which two processes use.
struct Processes {
    db: TestDatabase,
    other: Arc<dyn Ledger>,
}

impl Processes {
    async fn start() -> Self {
        let db = Backend::Postgres.open().await;
        for run in ["r1", "r2"] {
            db.run(run).await;
        }
        let other = ledger::open(db.url()).await.unwrap();
        Self { db, other }
    }

    /// Starts a transaction of the test itself.
    async fn begin(&self, sql: &str) -> PgConnection {
        let mut connection = PgConnection::connect(self.db.url()).await.unwrap();
        connection.execute("BEGIN").await.unwrap();
        connection.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.unwrap();
        connection
    }

    /// Holds the lock of the head of the run `r1`.
    async fn lock_r1(&self) -> PgConnection {
        self.begin("SELECT FROM run_head JOIN run USING (run_no) WHERE run_id = 'r1' FOR UPDATE OF run_head").await
    }

    /// Holds what [`HOLD_R1`] waits for.
    async fn hold_r1(&self) -> PgConnection {
        self.db.execute(HOLD_R1).await.unwrap();
        self.begin("SELECT pg_advisory_xact_lock(1)").await
    }

    /// Appends an entry, and returns once its transaction waits for a lock.
    async fn append_held(&self, ledger: &Arc<dyn Ledger>, entry: Entry) -> JoinHandle<Appended> {
        let ledger = Arc::clone(ledger);
        let appending = tokio::spawn(async move { ledger.append(vec![entry]).await.unwrap() });
        self.db.until_waiting(1).await;
        assert!(!appending.is_finished());
        appending
    }

    /// Lists all records.
    async fn list(&self, newest_first: bool) -> Vec<(RunId, u64)> {
        let filter = RecordFilter { newest_first, ..RecordFilter::default() };
        let found = self.other.records(&filter, None, 1000.into()).await.unwrap();
        found.iter().map(|stored| identity(&stored.text)).collect()
    }
}

fn identity(text: &str) -> (RunId, u64) {
    let record: Record = serde_json::from_str(text).unwrap();
    (record.run_id, record.seq)
}

async fn wait_until(newest: &mut tokio::sync::watch::Receiver<i64>, position: i64) {
    let reached = newest.wait_for(|newest| *newest >= position);
    let reached = tokio::time::timeout(Duration::from_secs(30), reached).await;
    reached.unwrap_or_else(|_| panic!("position {position} is not published")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_does_not_wait_for_that_of_another_run() {
    let processes = Processes::start().await;
    let lock = processes.lock_r1().await;
    let held = processes.append_held(&processes.db.ledger, read("r1", "a")).await;
    let record = only_record(processes.other.append(vec![read("r2", "a")]).await.unwrap());
    assert!(!held.is_finished());
    // The other one has no position yet.
    assert_eq!(processes.list(false).await, [(run_id("r2"), record.seq)]);
    drop(lock);
    assert_eq!(only_record(held.await.unwrap()).seq, 1);
    assert_eq!(processes.list(false).await, [(run_id("r2"), 1), (run_id("r1"), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_read_forward_ends_before_a_record_with_a_lower_position() {
    let processes = Processes::start().await;
    let mut newest = processes.other.newest_position();
    let lock = processes.hold_r1().await;
    let held = processes.append_held(&processes.db.ledger, read("r1", "a")).await;
    let record = only_record(processes.other.append(vec![read("r2", "a")]).await.unwrap());
    let stored = processes.other.record(&run_id("r2"), record.seq).await.unwrap().unwrap();
    assert_eq!(identity(&stored.text), (run_id("r2"), 1));
    let of_run = RecordFilter { run: Some(run_id("r2")), ..RecordFilter::default() };
    assert_eq!(processes.other.records(&of_run, None, 10.into()).await.unwrap().len(), 1);
    assert_eq!(processes.list(true).await, [(run_id("r2"), 1)]);
    assert_eq!(processes.list(false).await, []);
    assert!(*newest.borrow() < stored.position);
    assert!(!held.is_finished());
    drop(lock);
    assert_eq!(only_record(held.await.unwrap()).seq, 1);
    wait_until(&mut newest, stored.position).await;
    assert_eq!(processes.list(false).await, [(run_id("r1"), 1), (run_id("r2"), 1)]);
}

#[tokio::test]
async fn a_mark_that_is_older_than_its_positions_hides_nothing_that_was_published() {
    let processes = Processes::start().await;
    for _ in 0..3 {
        processes.other.append(vec![read("r2", "a")]).await.unwrap();
    }
    let key =
        |position: &str| format!("((8192 + ('record_position'::regclass::oid::bigint & 8191)) << 48) | {position}");
    let mark = ["281474976710655", "1"].map(|position| format!("pg_advisory_xact_lock_shared({})", key(position)));
    let in_flight = processes.begin(&format!("SELECT {}", mark.join(", "))).await;
    assert_eq!(processes.list(false).await.len(), 3);
    let record = only_record(processes.other.append(vec![read("r1", "a")]).await.unwrap());
    assert_eq!(processes.list(false).await.len(), 3);
    let mut newest = processes.other.newest_position();
    let position = processes.other.record(&record.run_id, 1).await.unwrap().unwrap().position;
    assert!(*newest.borrow() < position);
    drop(in_flight);
    wait_until(&mut newest, position).await;
    assert_eq!(processes.list(false).await.len(), 4);
}

/// Appends records to each run from tasks of their own.
fn append_many(ledger: &Arc<dyn Ledger>, writers: &mut JoinSet<()>) {
    for run in 0..RUNS {
        let ledger = Arc::clone(ledger);
        writers.spawn(async move {
            for _ in 0..RECORDS {
                only_record(ledger.append(vec![read(&format!("many-{run}"), "a")]).await.unwrap());
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_every_record_of_all_processes_once_and_in_order() {
    let processes = Processes::start().await;
    for run in 0..RUNS {
        processes.db.run(&format!("many-{run}")).await;
    }
    processes.db.execute(PAUSE).await.unwrap();
    let mut writers = JoinSet::new();
    append_many(&processes.db.ledger, &mut writers);
    append_many(&processes.other, &mut writers);
    let reader = ledger::open(processes.db.url()).await.unwrap();
    let (mut newest, mut after, mut covered) = (reader.newest_position(), 0, 0);
    let (mut seen, mut heads) = (Vec::new(), BTreeMap::new());
    while seen.len() < 2 * RUNS * RECORDS || covered < after {
        let settled = *newest.borrow_and_update();
        // As the signer.
        for head in reader.advanced_heads(covered, settled).await.unwrap() {
            heads.insert(head.leaf.run_id, head.leaf.head_seq);
        }
        covered = settled;
        let found = reader.records(&RecordFilter::default(), Some(after), 100.into()).await.unwrap();
        if found.is_empty() {
            // As a stream: nothing up to here matches.
            after = after.max(settled);
            if seen.len() == 2 * RUNS * RECORDS && covered == after {
                break;
            }
            let changed = tokio::time::timeout(Duration::from_secs(30), newest.changed()).await;
            assert!(changed.is_ok(), "{} records after 30 seconds without another one", seen.len());
        }
        for stored in found {
            assert!(stored.position > after);
            after = stored.position;
            seen.push(identity(&stored.text));
        }
    }
    writers.join_all().await;
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 2 * RUNS * RECORDS);
    let mut of_runs = BTreeMap::<RunId, Vec<u64>>::new();
    for (run, seq) in seen {
        of_runs.entry(run).or_default().push(seq);
    }
    let all: Vec<u64> = (1..=2 * RECORDS as u64).collect();
    assert!(of_runs.values().all(|seqs| *seqs == all), "{of_runs:?}");
    assert_eq!(heads, of_runs.keys().map(|run| (run.clone(), 2 * RECORDS as u64)).collect());
    for run in of_runs.keys() {
        assert!(reader.verify(run).await.unwrap().intact);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_another_process_revokes_during_a_commit_is_refused() {
    let processes = Processes::start().await;
    processes.db.ledger.create_operator(&new_operator("ada", 1), None).await.unwrap();
    let lock = processes.lock_r1().await;
    let entry = requiring_operator(1, read("r1", "a"));
    let held = processes.append_held(&processes.other, entry.clone()).await;
    assert!(processes.db.ledger.revoke_operator(&name("ada"), "2026-01-01T00:00:00Z").await.unwrap());
    drop(lock);
    let refused = held.await.unwrap();
    assert!(matches!(refused, Appended::PreconditionFailed(FailedPrecondition::Token)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_waits_for_a_commit_of_the_operator() {
    let processes = Processes::start().await;
    processes.db.ledger.create_operator(&new_operator("ada", 1), None).await.unwrap();
    let lock = processes.hold_r1().await;
    let held = processes.append_held(&processes.other, requiring_operator(1, read("r1", "a"))).await;
    let ledger = Arc::clone(&processes.db.ledger);
    let revoking = tokio::spawn(async move { ledger.revoke_operator(&name("ada"), "2026-01-01T00:00:00Z").await });
    processes.db.until_waiting(2).await;
    assert!(!revoking.is_finished());
    drop(lock);
    only_record(held.await.unwrap());
    assert!(revoking.await.unwrap().unwrap());
}

/// Sends the same calls to both processes, each of which must be recorded once.
async fn assert_recorded_once(processes: &Processes) {
    for index in 0..20 {
        let entry = write("r1", &format!("call-{index}"), "a");
        let append = |ledger: &Arc<dyn Ledger>| {
            let (ledger, entry) = (Arc::clone(ledger), entry.clone());
            tokio::spawn(async move { ledger.append(vec![entry]).await.unwrap() })
        };
        let appends = [append(&processes.db.ledger), append(&processes.other)];
        let mut recorded = 0;
        for append in appends {
            match append.await.unwrap() {
                Appended::Recorded(_) => recorded += 1,
                Appended::Repeated(0) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(recorded, 1);
    }
    let report = processes.other.verify(&run_id("r1")).await.unwrap();
    assert!(report.intact, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_two_processes_receive_is_recorded_once() {
    assert_recorded_once(&Processes::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_isolation_that_the_server_is_configured_with_does_not_matter() {
    let mut processes = Processes::start().await;
    let name = processes.db.name().to_owned();
    let isolation = format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'");
    processes.db.execute(&isolation).await.unwrap();
    processes.db.reopen().await;
    processes.other = ledger::open(processes.db.url()).await.unwrap();
    assert_recorded_once(&processes).await;
    processes.other.set_needs_repair(&run_id("r1"), true, "2026-01-01T00:00:00.000000Z").await.unwrap();
    assert!(processes.other.settled_run(&run_id("r1")).await.unwrap().unwrap().stored.needs_repair);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_two_processes_create_exists_once() {
    let processes = Processes::start().await;
    for index in 0..10 {
        let id = format!("new-{index}");
        let create = |ledger: &Arc<dyn Ledger>| {
            let (ledger, id) = (Arc::clone(ledger), id.clone());
            tokio::spawn(async move {
                let (run, token) = (crate::harness::new_run(&id), crate::harness::new_token(&id, "tok"));
                ledger.create_run(&run, &token, vec![read(&id, "a")]).await
            })
        };
        let (one, two) = (create(&processes.db.ledger), create(&processes.other));
        let results = [one.await.unwrap(), two.await.unwrap()];
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        assert!(results.iter().any(|result| matches!(result, Err(LedgerError::AlreadyExists))), "{results:?}");
        assert!(processes.other.verify(&run_id(&id)).await.unwrap().intact);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_instance_takes_over_between_commits() {
    let processes = Processes::start().await;
    assert!(processes.db.ledger.take_over(None, "one").await.unwrap());
    let lock = processes.hold_r1().await;
    let held = processes.append_held(&processes.db.ledger, read("r1", "a")).await;
    let other = Arc::clone(&processes.other);
    let taking = tokio::spawn(async move { other.take_over(Some("one"), "two").await.unwrap() });
    processes.db.until_waiting(2).await;
    assert!(!taking.is_finished(), "a commit in flight is fenced or done");
    drop(lock);
    only_record(held.await.unwrap());
    assert!(taking.await.unwrap());
    let fenced = processes.db.ledger.append(vec![read("r2", "a")]).await;
    assert!(matches!(fenced, Err(LedgerError::Fenced(ledger::Fence::TakenOver))), "{fenced:?}");
}

#[tokio::test]
async fn positions_continue_after_those_in_the_tables() {
    let mut processes = Processes::start().await;
    for _ in 0..5 {
        processes.db.append(read("r1", "a")).await;
    }
    let last = processes.other.record(&run_id("r1"), 5).await.unwrap().unwrap().position;
    // As after a restore of the tables alone, and as after commits of an earlier version, which has no sequence.
    processes.db.execute("SELECT setval('record_position', 0)").await.unwrap();
    processes.db.reopen().await;
    processes.db.append(read("r1", "a")).await;
    processes.db.execute("SELECT setval('record_position', 0)").await.unwrap();
    assert!(processes.other.take_over(None, "one").await.unwrap());
    processes.other.append(vec![read("r1", "a")]).await.unwrap();
    for (seq, more) in [(6, 1), (7, 2)] {
        let stored = processes.other.record(&run_id("r1"), seq).await.unwrap().unwrap();
        assert_eq!(stored.position, last + more);
    }
    assert_eq!(processes.list(false).await.len(), 7);
}

#[tokio::test]
async fn the_victim_of_a_deadlock_is_repeated() {
    let processes = Processes::start().await;
    processes.db.execute(DEADLOCK_ONCE).await.unwrap();
    assert_eq!(processes.db.append(read("r1", "a")).await.seq, 1);
    processes.db.execute("SELECT setval('attempts', 1, false)").await.unwrap();
    let disk = Disk { bytes: 7, files: 1 };
    processes.other.set_disk_usage(&run_id("r1"), disk).await.unwrap();
    assert_eq!(processes.other.run(&run_id("r1")).await.unwrap().unwrap().run.disk.tree(), disk);
}

#[tokio::test]
async fn zones_are_added_to_the_zone_map_once_they_are_complete() {
    let processes = Processes::start().await;
    let zones = async || {
        let mut connection = PgConnection::connect(processes.db.url()).await.unwrap();
        let rows = sqlx::query("SELECT zone FROM audit_zone ORDER BY zone").fetch_all(&mut connection).await.unwrap();
        rows.iter().map(|row| row.get::<i64, _>(0)).collect::<Vec<_>>()
    };
    // The zone has a gap, as after transactions that were rolled back.
    processes.db.execute("SELECT setval('record_position', 4000)").await.unwrap();
    for ledger in [&processes.db.ledger, &processes.other].repeat(5) {
        assert!(zones().await.is_empty());
        let entries = (0..30).map(|_| read("r1", "a")).collect();
        assert!(matches!(ledger.append(entries).await.unwrap(), Appended::Recorded(_)));
        if *ledger.newest_position().borrow() >= 4095 {
            break;
        }
    }
    until("a zone is complete", async || !zones().await.is_empty()).await;
    assert_eq!(zones().await, [0]);
}
