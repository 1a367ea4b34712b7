//! The databases under test: SQLite and PostgreSQL.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::sync::OnceCell;

use super::until;

/// The kind of database of a server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

/// Values of tests that the first ring leaves to the second: `.ci/test` without arguments skips what has this word in its name.
pub(crate) mod exhaustive {
    use super::Backend;

    pub(crate) const POSTGRES: Backend = Backend::Postgres;
    pub(crate) const SQLITE: Backend = Backend::Sqlite;
}

/// The database of one server.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) backend: Backend,
    pub(crate) url: String,
}

impl Database {
    /// Creates an empty database. The SQLite file has its default path in `data_dir`.
    pub(crate) async fn create(backend: Backend, data_dir: &Path) -> Self {
        let url = match backend {
            Backend::Sqlite => format!("sqlite://{}/workspaced.db", data_dir.display()),
            Backend::Postgres => create_postgres("").await,
        };
        Self { backend, url }
    }

    /// Creates the database of a new server. A PostgreSQL database is a copy of a migrated one, which takes a fraction of the
    /// time of a migration.
    pub(crate) async fn create_for_server(backend: Backend, data_dir: &Path) -> Self {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        if backend == Backend::Sqlite {
            return Self::create(backend, data_dir).await;
        }
        let template = TEMPLATE
            .get_or_init(async || {
                let empty = Self::create(backend, data_dir).await;
                ledger::open(&empty.url).await.unwrap().close().await;
                empty.name().to_owned()
            })
            .await;
        Self { backend, url: create_postgres(&format!("template {template} strategy file_copy")).await }
    }

    /// Executes `sql` directly, as an attacker with access to the database could.
    pub(crate) async fn tamper(&self, sql: &str) -> Result<u64, String> {
        match self.backend {
            Backend::Sqlite => {
                let path = self.url.strip_prefix("sqlite://").unwrap();
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
                connection.execute(sql, []).map(|rows| rows as u64).map_err(|error| error.to_string())
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                let done = connection.execute(AssertSqlSafe(sql.to_owned())).await;
                done.map(|done| done.rows_affected()).map_err(|error| error.to_string())
            }
        }
    }
}

impl Database {
    /// Returns the number of steps in the journal.
    pub(crate) async fn pending_steps(&self) -> u64 {
        let sql = "select count(*) from step";
        let count: i64 = match self.backend {
            Backend::Sqlite => {
                let connection = rusqlite::Connection::open(self.url.strip_prefix("sqlite://").unwrap()).unwrap();
                connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
                connection.query_row(sql, [], |row| row.get(0)).unwrap()
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                sqlx::Row::get(&connection.fetch_one(sql).await.unwrap(), 0)
            }
        };
        u64::try_from(count).unwrap()
    }
}

impl Database {
    /// Returns whether a value of any table contains `needle`, as it is stored or compressed. No server may have the database open.
    pub(crate) async fn contains(&self, needle: &str) -> bool {
        let finder = memchr::memmem::Finder::new(needle);
        let has_needle = |bytes: &[u8]| finder.find(bytes).is_some();
        if self.compressed_values().await.iter().any(|value| has_needle(value)) {
            return true;
        }
        match self.backend {
            Backend::Sqlite => {
                let path = self.url.strip_prefix("sqlite://").unwrap();
                // `vacuum into` includes the content of the write-ahead log.
                let copy = format!("{path}.searched");
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute("vacuum into ?1", [&copy]).unwrap();
                let bytes = std::fs::read(&copy).unwrap();
                std::fs::remove_file(&copy).unwrap();
                has_needle(&bytes)
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                let tables = "select table_name::text from information_schema.tables where table_schema = 'public'";
                for table in connection.fetch_all(tables).await.unwrap() {
                    let table: String = sqlx::Row::get(&table, 0);
                    let sql = format!("select count(*) from {table} t where position('{needle}' in t::text) > 0");
                    let found: i64 = sqlx::Row::get(&connection.fetch_one(AssertSqlSafe(sql)).await.unwrap(), 0);
                    if found > 0 {
                        return true;
                    }
                }
                false
            }
        }
    }
}

/// SQLite's write lock, released on drop.
pub(crate) struct WriteLock(#[expect(dead_code, reason = "the drop releases the lock")] rusqlite::Connection);

impl Database {
    /// Takes SQLite's write lock, so that the server's writes time out.
    pub(crate) fn lock_writes(&self) -> WriteLock {
        let connection = rusqlite::Connection::open(self.url.strip_prefix("sqlite://").unwrap()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        connection.execute_batch("begin immediate").unwrap();
        WriteLock(connection)
    }

    /// Makes every update of a row of `table` fail.
    pub(crate) async fn refuse_updates(&self, table: &str) {
        let trigger = match self.backend {
            Backend::Sqlite => format!(
                "create trigger refused before update on {table} begin select raise(abort, 'updates are refused'); end"
            ),
            Backend::Postgres => format!(
                "do $$ begin create function refuse() returns trigger language plpgsql as \
                 'begin raise exception ''updates are refused''; end'; create trigger refused before update on {table} \
                 for each row execute function refuse(); end $$"
            ),
        };
        self.tamper(&trigger).await.unwrap();
    }

    /// Ends what [`Database::refuse_updates`] began.
    pub(crate) async fn permit_updates(&self, table: &str) {
        let drop = match self.backend {
            Backend::Sqlite => "drop trigger refused".to_owned(),
            Backend::Postgres => format!("drop trigger refused on {table}"),
        };
        self.tamper(&drop).await.unwrap();
    }

    /// Drops every trigger, as the database owner can, and stores every record as plain text, so that SQL can change it.
    pub(crate) async fn drop_triggers(&self) {
        match self.backend {
            Backend::Sqlite => {
                let connection = rusqlite::Connection::open(self.url.strip_prefix("sqlite://").unwrap()).unwrap();
                let mut query = connection.prepare("select name from sqlite_master where type = 'trigger'").unwrap();
                let names: Vec<String> = query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
                for name in names {
                    connection.execute_batch(&format!("drop trigger {name}")).unwrap();
                }
            }
            Backend::Postgres => {
                let all = "do $$ declare t record; begin
                    for t in select tgname, tgrelid::regclass as relation from pg_trigger where not tgisinternal loop
                        execute format('drop trigger %I on %s', t.tgname, t.relation);
                    end loop; alter table audit_record drop constraint if exists audit_record_from_one; end $$";
                // The service may hold some of the locks, and wait for others.
                while let Err(error) = self.tamper(all).await {
                    assert!(error.contains("deadlock detected"), "{error}");
                }
            }
        }
        self.store_plain_records().await;
    }
}

impl Database {
    /// Copies the database. No connection may be open.
    pub(crate) async fn copy(&self) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let url = match self.backend {
            Backend::Sqlite => {
                let path = self.url.strip_prefix("sqlite://").unwrap();
                let copy = format!("{path}.copy-{number}");
                // `vacuum into` includes the content of the write-ahead log.
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute("vacuum into ?1", [&copy]).unwrap();
                format!("sqlite://{copy}")
            }
            Backend::Postgres => {
                let copy = format!("{}_copy_{number}", self.name());
                self.in_cluster(&format!("create database {copy} template {}", self.name())).await;
                in_cluster(&cluster_url(), &copy)
            }
        };
        Self { backend: self.backend, url }
    }

    /// Closes the connections of a server that is stopped by a signal, so that the database can be copied.
    pub(crate) async fn close_connections(&self) {
        if self.backend == Backend::Postgres {
            let name = self.name();
            let sql = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'");
            self.in_cluster(&sql).await;
        }
    }

    /// Replaces this database with `other`. The server may not have either open. Open PostgreSQL connections are closed.
    pub(crate) async fn replace_by(&self, other: Self) {
        match self.backend {
            Backend::Sqlite => {
                let [path, other] = [self, &other].map(|one| one.url.strip_prefix("sqlite://").unwrap());
                for log in ["-wal", "-shm"] {
                    let _ = std::fs::remove_file(format!("{path}{log}"));
                }
                std::fs::rename(other, path).unwrap();
            }
            Backend::Postgres => {
                let (name, other) = (self.name(), other.name());
                for sql in [
                    format!("alter database {name} allow_connections false"),
                    format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"),
                    format!("drop database {name} with (force)"),
                    format!("alter database {other} rename to {name}"),
                ] {
                    self.in_cluster(&sql).await;
                }
            }
        }
    }

    /// Returns the database's name.
    fn name(&self) -> &str {
        let before = self.url.split('?').next().unwrap();
        before.rsplit('/').next().unwrap()
    }

    /// Executes `sql` in another database of the cluster. Retries while connections are closing.
    async fn in_cluster(&self, sql: &str) {
        let execute = async || {
            let mut connection = PgConnection::connect(&cluster_url()).await.unwrap();
            match connection.execute(AssertSqlSafe(sql.to_owned())).await {
                Err(error) if error.to_string().contains("being accessed by other users") => Err(error),
                done => Ok(done.unwrap()),
            }
        };
        until("no other connection is open", execute).await;
    }
}

/// Creates a database in the cluster of the tests and returns its URL.
async fn create_postgres(options: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let cluster = cluster_url();
    // Process IDs repeat, and a cluster may contain databases of earlier test runs.
    let random = RandomState::new().build_hasher().finish();
    let name = format!("it_{}_{random:x}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut connection = PgConnection::connect(&cluster).await.expect("a connection to PostgreSQL");
    connection.execute(AssertSqlSafe(format!("create database {name} {options}"))).await.unwrap();
    connection.close().await.unwrap();
    in_cluster(&cluster, &name)
}

fn cluster_url() -> String {
    std::env::var("WORKSPACED_TEST_POSTGRES_URL").expect(
        "WORKSPACED_TEST_POSTGRES_URL is not set. Run `.ci/test`, which starts a PostgreSQL server, or set it to a \
         server on which the tests may create databases.",
    )
}

/// Returns the URL of database `name` in the cluster of `url`.
fn in_cluster(url: &str, name: &str) -> String {
    let (before, query) =
        url.split_once('?').map_or((url, String::new()), |(before, query)| (before, format!("?{query}")));
    let authority = before.split('/').nth(2).unwrap_or_default();
    format!("postgres://{authority}/{name}{query}")
}

#[test]
fn the_database_name_in_a_url_is_replaced() {
    let table = [
        ("postgres:///postgres?host=/tmp/x&user=postgres", "postgres:///it?host=/tmp/x&user=postgres"),
        ("postgres://me:secret@db.example:5433/postgres", "postgres://me:secret@db.example:5433/it"),
        ("postgres://db.example", "postgres://db.example/it"),
    ];
    for (url, want) in table {
        assert_eq!(in_cluster(url, "it"), want);
    }
}
