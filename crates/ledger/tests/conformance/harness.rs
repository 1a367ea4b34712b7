//! A separate database for each test, and entries to append.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ledger::{Appended, Entry, EntryObject, Ledger, LedgerError, ObjectHolder, Reply, RunTransition, StoredRun};
use model::{
    Budget, Draft, ImportReport, LogicalPath, Mount, PeopleCounts, Permission, Policy, Record, Run, RunCounts, RunId,
    RunState, Sha256, Source, Token, TokenId, ToolCallId, Usage, Verdict,
};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::sync::OnceCell;

/// The database system that a test runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

/// An open ledger in a separate database, which is deleted with its storage.
pub(crate) struct TestDatabase {
    pub(crate) ledger: Arc<dyn Ledger>,
    url: String,
    storage: Storage,
}

pub(crate) enum Storage {
    Folder(tempfile::TempDir),
    Database { admin: String, name: String },
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Backend {
    /// Opens an empty ledger.
    pub(crate) async fn open(self) -> TestDatabase {
        let created = match self {
            Self::Sqlite => self.create().await,
            Self::Postgres => create_postgres(&format!("TEMPLATE {} STRATEGY file_copy", template().await)).await,
        };
        TestDatabase::of(created).await
    }

    /// Creates a database without tables. Returns its URL and where it is stored.
    pub(crate) async fn create(self) -> (String, Storage) {
        match self {
            Self::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                std::fs::create_dir(folder.path().join("data")).unwrap();
                (format!("sqlite://{}/data/workspaced.db", folder.path().display()), Storage::Folder(folder))
            }
            Self::Postgres => create_postgres("").await,
        }
    }
}

/// Creates a PostgreSQL database. Returns its URL and where it is stored.
async fn create_postgres(options: &str) -> (String, Storage) {
    let admin = postgres_url();
    // Unique among concurrent and earlier runs of the tests.
    let random = RandomState::new().build_hasher().finish();
    let name = format!("ledger_{}_{random:x}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut connection = PgConnection::connect(&admin).await.unwrap();
    connection.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name} {options}"))).await.unwrap();
    (with_database(&admin, &name), Storage::Database { admin, name })
}

/// Returns the name of a migrated database. Copying it takes a fraction of the time of a migration.
async fn template() -> &'static str {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    TEMPLATE
        .get_or_init(async || {
            let (url, storage) = create_postgres("").await;
            ledger::open(&url).await.unwrap().close().await;
            let Storage::Database { name, .. } = &storage else { panic!("{url}") };
            let name = name.clone();
            // The drop would delete the database.
            std::mem::forget(storage);
            name
        })
        .await
}

impl TestDatabase {
    /// Opens the ledger in a database that was created.
    pub(crate) async fn of((url, storage): (String, Storage)) -> Self {
        Self { ledger: ledger::open(&url).await.unwrap(), url, storage }
    }

    /// Closes the ledger and opens it again, as a restart does.
    pub(crate) async fn reopen(&mut self) {
        self.ledger.close().await;
        self.ledger = ledger::open(&self.url).await.unwrap();
    }

    /// Closes the ledger and opens it again as another PostgreSQL role.
    pub(crate) async fn reopen_as(&mut self, role: &str) {
        self.ledger.close().await;
        self.ledger = ledger::open(&format!("{}&options=-c%20role%3D{role}", self.url)).await.unwrap();
    }

    /// Returns the name of the PostgreSQL database.
    pub(crate) fn name(&self) -> &str {
        match &self.storage {
            Storage::Folder(_) => panic!("SQLite has no server"),
            Storage::Database { name, .. } => name,
        }
    }

    /// Executes SQL in the administration database of the PostgreSQL server.
    pub(crate) async fn execute_as_admin(&self, sql: &str) {
        let Storage::Database { admin, .. } = &self.storage else { panic!("SQLite has no server") };
        let mut connection = PgConnection::connect(admin).await.unwrap();
        connection.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    /// Returns the URL of the ledger.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Executes SQL directly in the database, bypassing the ledger.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), String> {
        self.storage.execute(&self.url, sql).await
    }

    /// Drops the triggers and constraints that prevent the deletion of runs.
    pub(crate) async fn drop_run_triggers(&self) {
        let sql = match &self.storage {
            Storage::Folder(_) => "DROP TRIGGER run_no_delete; DROP TRIGGER run_head_no_delete".to_owned(),
            Storage::Database { .. } => {
                "DROP TRIGGER run_no_delete ON run; DROP TRIGGER run_head_no_delete ON run_head; \
                ALTER TABLE audit_record DROP CONSTRAINT audit_record_run_no_fkey"
                    .to_owned()
            }
        };
        self.execute(&sql).await.unwrap();
    }

    /// Drops the triggers and constraints that make a table append-only, and stores its records as plain text.
    pub(crate) async fn drop_triggers(&self, table: &str) {
        self.drop_triggers_only(table).await;
        if table == "audit_record" {
            self.store_plain_records().await;
        }
    }

    /// Drops the triggers and constraints that make a table append-only.
    pub(crate) async fn drop_triggers_only(&self, table: &str) {
        let sql = match &self.storage {
            Storage::Folder(_) => format!("DROP TRIGGER {table}_no_update; DROP TRIGGER {table}_no_delete"),
            Storage::Database { .. } => format!(
                "DROP TRIGGER {table}_no_change ON {table}; DROP TRIGGER IF EXISTS {table}_no_delete ON {table}; ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_from_one"
            ),
        };
        self.execute(&sql).await.unwrap();
    }

    /// Returns bytes as an SQL literal.
    pub(crate) fn literal(&self, bytes: &[u8]) -> String {
        let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        match &self.storage {
            Storage::Folder(_) => format!("x'{hex}'"),
            Storage::Database { .. } => format!("'\\x{hex}'::bytea"),
        }
    }

    /// Waits until `count` connections wait for locks.
    pub(crate) async fn until_waiting(&self, count: i64) {
        const WAITING: &str =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until(&format!("{count} connections wait for locks"), async || self.count(WAITING).await >= count).await;
    }

    /// Returns the number that a query selects.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        match &self.storage {
            Storage::Folder(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join("data/workspaced.db")).unwrap();
                connection.query_row(sql, [], |row| row.get(0)).unwrap()
            }
            Storage::Database { .. } => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                let row = connection.fetch_one(sqlx::AssertSqlSafe(sql.to_owned())).await.unwrap();
                sqlx::Row::get(&row, 0)
            }
        }
    }
}

impl Storage {
    async fn execute(&self, url: &str, sql: &str) -> Result<(), String> {
        match self {
            Self::Folder(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join("data/workspaced.db")).unwrap();
                connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
                // As in the SQLite shell.
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

impl Drop for Storage {
    fn drop(&mut self) {
        let Self::Database { admin, name } = self else { return };
        let (admin, sql) = (admin.clone(), format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&admin).await.unwrap();
                connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
            });
        });
        // A second panic would abort the process and hide the first.
        let dropped = dropped.join().is_ok();
        assert!(dropped || std::thread::panicking(), "the test's database could not be dropped");
    }
}

#[expect(clippy::disallowed_methods, reason = "the test command passes the URL of PostgreSQL")]
#[expect(clippy::expect_used, reason = "a test must not be skipped silently")]
fn postgres_url() -> String {
    std::env::var("WORKSPACED_TEST_POSTGRES_URL")
        .expect("WORKSPACED_TEST_POSTGRES_URL is not set: run `.ci/test`, which starts PostgreSQL for the tests")
}

/// Returns `url` with another database name.
fn with_database(url: &str, name: &str) -> String {
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let (server, _) = address.rsplit_once('/').unwrap();
    format!("{server}/{name}?{options}")
}

/// Waits until `condition` holds. Panics with `what` it has waited for.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !condition().await {
        assert!(Instant::now() < deadline, "waited for a minute: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
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
        ask: vec![],
        not_secret: vec![],
        kinds: BTreeMap::new(),
        budget: Budget::default(),
        command_budget: Budget::of_command(),
        run_budget: None,
        quota: model::Quota::default(),
        max_file_bytes: 1 << 20,
        max_transfer_bytes: 1 << 30,
        require_approval_if: BTreeSet::new(),
        approval: model::ApprovalRule::default(),
        allow_mode_change: false,
        ignored_files: Verdict::Deny,
        symbolic_links: Verdict::Deny,
        outside_changes: model::OutsideChanges::Refuse,
        commands: model::CommandPolicy::default(),
        file_budget: Verdict::RequireApproval,
    }
}

/// Returns a new open run.
pub(crate) fn new_run(id: &str) -> StoredRun {
    let mut run = Run {
        run_id: run_id(id),
        state: RunState::Open,
        created_at: "2026-01-01T00:00:00.000000Z".into(),
        created_by: Some(model::OperatorName::parse("ada").unwrap()),
        closed_at: None,
        expires_at: Some("2026-02-01T00:00:00.000000Z".into()),
        parent: None,
        forks: None,
        more_forks: false,
        archived_at: None,
        archive_uri: None,
        base_commit: Some("c0ffee".into()),
        source: Source::Git {
            url: "https://example.org/ü.git".into(),
            reference: Some("main".into()),
            credential: None,
        },
        policy: policy(),
        mounts: vec![Mount { name: "docs".into(), description: "nul \0 and more".into(), entries: vec!["a".into()] }],
        labels: BTreeMap::from([("ticket".into(), "A-1 \"x\" \0".into())]),
        import: ImportReport { files: 3, bytes: 9, progress: "done".into(), ..ImportReport::default() },
        counts: RunCounts::default(),
        people: PeopleCounts::default(),
        disk: model::DiskUse::default(),
        head_seq: 0,
        head_hash: Sha256::ZERO,
        last_activity_at: None,
        repository: None,
        agent: None,
        prompt: None,
    };
    run.name_by_labels();
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

/// Changes of runs, each with a record.
pub(crate) trait RunChanges {
    /// Opens a run. Returns whether it was being prepared.
    async fn open_run(&self, run: &RunId, base_commit: &str, import: &ImportReport) -> Result<bool, LedgerError>;
    /// Closes or deletes a run. Returns whether it was neither.
    async fn set_run_state(&self, run: &RunId, state: RunState, at: Option<&str>) -> Result<bool, LedgerError>;
    /// Stores another token.
    async fn create_token(&self, token: &Token) -> Result<(), LedgerError>;
    /// Revokes a token. Returns whether the run has it.
    async fn revoke_token(&self, run: &RunId, token: &TokenId) -> Result<bool, LedgerError>;
}

impl RunChanges for dyn Ledger {
    async fn open_run(&self, run: &RunId, base_commit: &str, import: &ImportReport) -> Result<bool, LedgerError> {
        let change = RunTransition::Open { base_commit: base_commit.into(), import: import.clone() };
        let appended = self.append(vec![change_of(run.as_str(), "run.import", change)]).await?;
        Ok(matches!(appended, Appended::Recorded(_)))
    }

    async fn set_run_state(&self, run: &RunId, state: RunState, at: Option<&str>) -> Result<bool, LedgerError> {
        let at = at.unwrap_or("2026-01-09T00:00:00Z").to_owned();
        let (tool, change) = match state {
            RunState::Closed => ("run.close", RunTransition::Close { at }),
            RunState::Deleted => ("run.delete", RunTransition::Delete { at }),
            other => panic!("{other:?}"),
        };
        let appended = self.append(vec![change_of(run.as_str(), tool, change)]).await?;
        Ok(matches!(appended, Appended::Recorded(_)))
    }

    async fn create_token(&self, token: &Token) -> Result<(), LedgerError> {
        let change = RunTransition::IssueToken(token.clone());
        self.append(vec![change_of(token.run_id.as_str(), "token.issue", change)]).await.map(drop)
    }

    async fn revoke_token(&self, run: &RunId, token: &TokenId) -> Result<bool, LedgerError> {
        let change = RunTransition::RevokeToken(token.clone());
        let appended = self.append(vec![change_of(run.as_str(), "token.revoke", change)]).await?;
        Ok(!matches!(appended, Appended::NoSuchToken))
    }
}

/// The entry of a change of a run.
pub(crate) fn change_of(run: &str, tool: &str, change: RunTransition) -> Entry {
    let mut entry = read(run, "a");
    entry.draft.tool = tool.into();
    entry.draft.paths_read = vec![];
    entry.draft.input = serde_json::json!({ "why": tool }).as_object().cloned();
    entry.run_change = Some(change);
    entry
}

impl TestDatabase {
    /// Stores an open run with a token.
    pub(crate) async fn run(&self, id: &str) -> RunId {
        self.ledger.create_run(&new_run(id), &new_token(id, &format!("tok-{id}")), vec![]).await.unwrap();
        run_id(id)
    }

    /// Appends one entry.
    pub(crate) async fn try_append(&self, entry: Entry) -> Result<Appended, LedgerError> {
        self.ledger.append(vec![entry]).await
    }

    /// Reserves an object that lasts as long as its run.
    pub(crate) async fn reserved(&self, object: &str, size_bytes: u64) -> EntryObject {
        let reservation = self.ledger.reserve_object(object).await.unwrap().unwrap();
        EntryObject { name: object.to_owned(), reservation, size_bytes, holder: ObjectHolder::Run }
    }

    /// Appends an entry that must be recorded.
    pub(crate) async fn append(&self, entry: Entry) -> Record {
        only_record(self.try_append(entry).await.unwrap())
    }
}

/// Returns the record of the one entry that was appended.
pub(crate) fn only_record(appended: Appended) -> Record {
    match appended {
        Appended::Recorded(records) if records.len() == 1 => Vec::from(records).remove(0),
        other => panic!("{other:?}"),
    }
}

/// Returns a read of `file` under a generated ID.
pub(crate) fn read(run: &str, file: &str) -> Entry {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let timestamp = "2026-01-01T00:00:01.000000Z".into();
    let call = call_id(&format!("tc_{id:06}"));
    let mut draft = Draft::new(run_id(run), "run-token:tok_1".into(), "read_file", call, timestamp);
    draft.duration_micros = 12;
    draft.paths_read = vec![path(file)];
    Entry::new(draft, Sha256::ZERO)
}

/// Returns a successful write of `file` under the client-supplied ID `id`. Without steps, as after a dry run.
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
