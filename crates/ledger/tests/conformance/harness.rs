//! A ledger of its own for each test, and entries to append.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ledger::{Appended, Entry, Ledger, LedgerError, Preconditions, Reply, StoredRun};
use model::{
    Budget, Draft, ImportReport, LogicalPath, Mount, Outcome, Permission, Policy, Record, Run, RunCounts, RunId,
    RunState, Sha256, Source, Token, TokenId, ToolCallId, Usage, Verdict,
};
use sqlx::{Connection as _, Executor as _, PgConnection};

/// The databases that a test runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

/// An open ledger in a database of its own, which goes with it.
pub(crate) struct World {
    pub(crate) ledger: Arc<dyn Ledger>,
    url: String,
    place: Place,
}

enum Place {
    Folder(tempfile::TempDir),
    Database { admin: String, name: String },
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Backend {
    /// An empty ledger.
    pub(crate) async fn open(self) -> World {
        let (url, place) = self.place().await;
        World { ledger: ledger::open(&url).await.unwrap(), url, place }
    }

    /// A ledger on a database that `sql` has made before.
    pub(crate) async fn open_after(self, sql: &str) -> World {
        let (url, place) = self.place().await;
        place.raw(&url, sql).await.unwrap();
        World { ledger: ledger::open(&url).await.unwrap(), url, place }
    }

    /// A database of the test's own.
    async fn place(self) -> (String, Place) {
        match self {
            Self::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                std::fs::create_dir(folder.path().join("data")).unwrap();
                (format!("sqlite://{}/data/workspaced.db", folder.path().display()), Place::Folder(folder))
            }
            Self::Postgres => {
                let admin = postgres_url();
                // Process ids come again, and a cluster may know many runs of the tests.
                let chance = RandomState::new().build_hasher().finish();
                let name = format!("ledger_{}_{chance:x}", NEXT.fetch_add(1, Ordering::Relaxed));
                let mut connection = PgConnection::connect(&admin).await.unwrap();
                let create = format!("CREATE DATABASE {name}");
                connection.execute(sqlx::AssertSqlSafe(create)).await.unwrap();
                (with_database(&admin, &name), Place::Database { admin, name })
            }
        }
    }
}

impl World {
    /// Ends the ledger and opens it again, as a restart does.
    pub(crate) async fn reopen(&mut self) {
        self.ledger.close().await;
        self.ledger = ledger::open(&self.url).await.unwrap();
    }

    /// The same, as another role of PostgreSQL's.
    pub(crate) async fn reopen_as(&mut self, role: &str) {
        self.ledger.close().await;
        self.ledger = ledger::open(&format!("{}&options=-c%20role%3D{role}", self.url)).await.unwrap();
    }

    /// The name of the database on PostgreSQL's server.
    pub(crate) fn database(&self) -> &str {
        match &self.place {
            Place::Folder(_) => panic!("SQLite has no server"),
            Place::Database { name, .. } => name,
        }
    }

    /// Carries out SQL on PostgreSQL's server, but in another database.
    pub(crate) async fn elsewhere(&self, sql: &str) {
        let Place::Database { admin, .. } = &self.place else { panic!("SQLite has no server") };
        let mut connection = PgConnection::connect(admin).await.unwrap();
        connection.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    /// Where the ledger is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Carries out SQL past the ledger, as somebody with access to the database would.
    pub(crate) async fn raw(&self, sql: &str) -> Result<(), String> {
        self.place.raw(&self.url, sql).await
    }

    /// Lets runs be removed, with whatever refers to them.
    pub(crate) async fn unguard_runs(&self) {
        let sql = match &self.place {
            Place::Folder(_) => "DROP TRIGGER run_no_delete; DROP TRIGGER run_head_no_delete".to_owned(),
            Place::Database { .. } => {
                "DROP TRIGGER run_no_delete ON run; DROP TRIGGER run_head_no_delete ON run_head; \
                ALTER TABLE audit_record DROP CONSTRAINT audit_record_run_no_fkey"
                    .to_owned()
            }
        };
        self.raw(&sql).await.unwrap();
    }

    /// Takes the guard off a table that only grows.
    pub(crate) async fn unguard(&self, table: &str) {
        let sql = match &self.place {
            Place::Folder(_) => format!("DROP TRIGGER {table}_no_update; DROP TRIGGER {table}_no_delete"),
            Place::Database { .. } => format!(
                "DROP TRIGGER {table}_no_change ON {table}; ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_from_one"
            ),
        };
        self.raw(&sql).await.unwrap();
    }
}

impl Place {
    async fn raw(&self, url: &str, sql: &str) -> Result<(), String> {
        match self {
            Self::Folder(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join("data/workspaced.db")).unwrap();
                connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
                // As in a shell.
                connection.pragma_update(None, "foreign_keys", false).unwrap();
                connection.execute_batch(sql).map_err(|error| error.to_string())
            }
            Self::Database { .. } => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let sql = sqlx::AssertSqlSafe(sql.to_owned());
                connection.execute(sql).await.map(drop).map_err(|error| error.to_string())
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let Place::Database { admin, name } = &self.place else { return };
        let (admin, sql) = (admin.clone(), format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&admin).await.unwrap();
                connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
            });
        });
        // A second panic would hide the first.
        let dropped = dropped.join().is_ok();
        assert!(dropped || std::thread::panicking(), "the test's database could not be dropped");
    }
}

#[expect(clippy::disallowed_methods, reason = "how the test command tells where PostgreSQL is")]
#[expect(clippy::expect_used, reason = "a test that is left out unseen proves nothing")]
fn postgres_url() -> String {
    std::env::var("WORKSPACED_TEST_POSTGRES_URL")
        .expect("WORKSPACED_TEST_POSTGRES_URL is not set: run `.ci/test`, which starts a PostgreSQL for the tests")
}

/// `url` with another database.
fn with_database(url: &str, name: &str) -> String {
    let (place, options) = url.split_once('?').unwrap_or((url, ""));
    let (server, _) = place.rsplit_once('/').unwrap();
    format!("{server}/{name}?{options}")
}

pub(crate) fn run_id(id: &str) -> RunId {
    RunId::parse(id).unwrap()
}

pub(crate) fn call_id(id: &str) -> ToolCallId {
    ToolCallId::parse(id).unwrap()
}

pub(crate) fn path(path: &str) -> LogicalPath {
    LogicalPath::parse(path).unwrap()
}

pub(crate) fn policy() -> Policy {
    Policy {
        profile: "SUPERVISED_PR".into(),
        read: vec!["**".into()],
        write: vec!["src/**".into()],
        deny: vec![],
        not_secret: vec![],
        kinds: BTreeMap::new(),
        budget: Budget::default(),
        run_budget: None,
        quota: model::Quota::default(),
        max_file_bytes: 1 << 20,
        max_transfer_bytes: 1 << 30,
        require_approval_if: BTreeSet::new(),
        allow_mode_change: false,
        ignored_files: Verdict::Deny,
    }
}

/// A run that has just been made, open.
pub(crate) fn new_run(id: &str) -> StoredRun {
    let run = Run {
        run_id: run_id(id),
        state: RunState::Open,
        created_at: "2026-01-01T00:00:00.000000Z".into(),
        closed_at: None,
        expires_at: Some("2026-02-01T00:00:00.000000Z".into()),
        base_commit: Some("c0ffee".into()),
        source: Source::Git { url: "https://example.org/ü.git".into(), reference: Some("main".into()) },
        policy: policy(),
        mounts: vec![Mount { name: "docs".into(), description: "nul \0 and more".into(), entries: vec!["a".into()] }],
        labels: BTreeMap::from([("ticket".into(), "A-1 \"x\" \0".into())]),
        import: ImportReport { files: 3, bytes: 9, left_out: vec![], left_out_more: 0, progress: "done".into() },
        counts: RunCounts::default(),
        disk: model::Disk::default(),
        head_seq: 0,
        head_hash: Sha256::ZERO,
    };
    StoredRun {
        run,
        usage: Usage::default(),
        mount_paths: vec![("docs".into(), "/srv/docs".into())],
        needs_repair: false,
    }
}

pub(crate) fn new_token(run: &str, id: &str) -> Token {
    Token {
        token_id: TokenId::parse(id).unwrap(),
        run_id: run_id(run),
        secret_sha256: Sha256::of(format!("{run}/{id}").as_bytes()),
        permissions: vec![Permission::FileRead, Permission::FilePatchApply],
        expires_at: Some("2027-01-01T00:00:00.000000Z".into()),
        revoked: false,
    }
}

impl World {
    /// Stores an open run with a token.
    pub(crate) async fn run(&self, id: &str) -> RunId {
        self.ledger.create_run(&new_run(id), &new_token(id, &format!("tok-{id}"))).await.unwrap();
        run_id(id)
    }

    /// Appends one entry.
    pub(crate) async fn try_append(&self, entry: Entry) -> Result<Appended, LedgerError> {
        self.ledger.append(vec![entry]).await
    }

    /// Appends an entry that must be recorded.
    pub(crate) async fn append(&self, entry: Entry) -> Record {
        only_record(self.try_append(entry).await.unwrap())
    }
}

/// Returns the record of the one entry that was appended.
pub(crate) fn only_record(appended: Appended) -> Record {
    match appended {
        Appended::Recorded(mut records) if records.len() == 1 => records.remove(0),
        other => panic!("{other:?}"),
    }
}

/// A read of `file` under an ID of the server's.
pub(crate) fn read(run: &str, file: &str) -> Entry {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    Entry {
        draft: Draft {
            actor: "run-token:tok_1".into(),
            artifact_uris: vec![],
            code: None,
            decision: Verdict::Allow,
            diff_sha256: None,
            duration_micros: 12,
            files: vec![],
            mutates: false,
            outcome: Outcome::Ok,
            paths_read: vec![path(file)],
            paths_written: vec![],
            reason: None,
            reasons: vec![],
            run_id: run_id(run),
            step_id: None,
            timestamp: "2026-01-01T00:00:01.000000Z".into(),
            tool: "read_file".into(),
            tool_call_id: call_id(&format!("tc_{id:06}")),
        },
        input_sha256: Sha256::ZERO,
        client_supplied_id: false,
        reply: None,
        steps: vec![],
        artifact: None,
        approval: None,
        approval_decision: None,
        usage: Usage::default(),
        disk: model::DiskChange::default(),
        preconditions: Preconditions::default(),
    }
}

/// A write of `file` under the caller's ID `id`.
pub(crate) fn write(run: &str, id: &str, file: &str) -> Entry {
    let mut entry = read(run, file);
    entry.draft.tool = "write_file".into();
    entry.draft.tool_call_id = call_id(id);
    entry.draft.mutates = true;
    entry.draft.paths_read = vec![];
    entry.draft.paths_written = vec![path(file)];
    entry.draft.reason = Some("because, with a nul: \0 and ü".into());
    entry.client_supplied_id = true;
    entry.input_sha256 = Sha256::of(file.as_bytes());
    entry.reply = Some(Reply { status: 200, body: format!("{{\"path\":\"{file}\"}}") });
    entry
}
