//! Copies of the database by PostgreSQL's own programs, which know every kind of object that a database can contain.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::process::Stdio;

use percent_encoding::percent_decode_str;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::process::Command;

use super::connection::failed;
use super::open;
use crate::copy::{self, DatabaseCopy, RestoreTarget};
use crate::statement::{RowReader, Select};
use crate::{LedgerError, Result};

/// Begins the transaction of the copy, which waits while `pg_dump` runs.
const BEGIN: [&str; 3] = [
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    "SET LOCAL statement_timeout = 0",
];
/// Counts the tables, views and sequences of a database.
const RELATIONS: &str = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%' AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')";
/// The major version of the server.
const SERVER_VERSION: &str = "SELECT CAST(current_setting('server_version_num') AS BIGINT) / 10000";
const HAS_SETTINGS: &str = "SELECT to_regclass('setting') IS NOT NULL";

/// Writes a copy of the database at `url` to the new file `to`, and returns what it contains: both are read from one snapshot.
pub(crate) async fn write(url: &str, to: &Path) -> Result<DatabaseCopy> {
    let mut connection = connect(url).await?;
    open::check_schema(&mut connection).await?;
    check_version(&mut connection).await?;
    let mut tx = connection.begin().await.map_err(failed)?;
    for sql in BEGIN {
        sqlx::raw_sql(sql).execute(&mut *tx).await.map_err(failed)?;
    }
    let exported = sqlx::query("SELECT pg_export_snapshot()").fetch_one(&mut *tx).await;
    let snapshot: String = exported.and_then(|row| row.try_get(0)).map_err(failed)?;
    let copied = DatabaseCopy {
        runs: fetch(&mut tx, copy::RUNS).await?,
        checkpoint: fetch(&mut tx, copy::CHECKPOINT).await?.pop(),
        settings: fetch(&mut tx, copy::SETTINGS).await?.into_iter().collect(),
    };
    let mut command = program("pg_dump", url);
    command.args(["--format=custom", "--snapshot", &snapshot, "--file"]).arg(to);
    run("pg_dump", command).await?;
    tx.rollback().await.map_err(failed)?;
    let to = to.to_owned();
    let synced = tokio::task::spawn_blocking(move || std::fs::File::open(to)?.sync_all()).await;
    synced.map_err(io::Error::other).flatten().map_err(unavailable)?;
    Ok(copied)
}

/// Returns host, port and name of the database at `url`.
pub(crate) fn address(url: &str) -> Result<String> {
    let options = open::parse(url)?;
    let host = options.get_socket().map_or_else(|| options.get_host().into(), |socket| socket.to_string_lossy());
    let name = options.get_database().unwrap_or(options.get_username());
    Ok(format!("{host}:{}/{name}", options.get_port()))
}

/// Returns whether the database at `url` has tables.
pub(crate) async fn target(url: &str) -> Result<RestoreTarget> {
    let mut connection = connect(url).await?;
    let count: i64 = one(&mut connection, RELATIONS, |row| row.int(0)).await?;
    if count == 0 {
        return Ok(RestoreTarget::Empty);
    }
    let instance = if one(&mut connection, HAS_SETTINGS, |row| row.bool(0)).await? {
        fetch(&mut connection, copy::INSTANCE_NAME).await?.pop()
    } else {
        None
    };
    Ok(RestoreTarget::Used { instance })
}

/// Restores the copy `from` in one transaction.
pub(crate) async fn restore(url: &str, from: &Path) -> Result<()> {
    let mut command = program("pg_restore", url);
    command.args(["--single-transaction", "--exit-on-error"]).arg(from);
    run("pg_restore", command).await
}

async fn connect(url: &str) -> Result<PgConnection> {
    open::connect(&open::parse(url)?).await.map_err(failed)
}

async fn fetch<T>(connection: &mut PgConnection, select: Select<T>) -> Result<Vec<T>> {
    let rows = sqlx::query(select.sql).fetch_all(connection).await.map_err(failed)?;
    rows.iter().map(|row| (select.read)(row)).collect()
}

async fn one<T>(connection: &mut PgConnection, sql: &'static str, read: fn(&dyn RowReader) -> Result<T>) -> Result<T> {
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await.map_err(failed)?;
    read(&row)
}

/// Returns the command of a client program. Rights and owners are those of the user who restores: the service's role need not
/// exist there.
fn program(name: &str, url: &str) -> Command {
    let (url, password) = without_password(url);
    let mut command = Command::new(name);
    command.args(["--no-owner", "--no-privileges", "--no-password", "--dbname"]).arg(url);
    // Every user of the machine can see the arguments of a process, and only its own user the environment.
    if let Some(password) = password {
        command.env("PGPASSWORD", password);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Fails if the program `pg_dump` is older than the server, whose database it would refuse to copy.
async fn check_version(connection: &mut PgConnection) -> Result<()> {
    let server = one(connection, SERVER_VERSION, |row| row.int(0)).await?;
    let output = Command::new("pg_dump").arg("--version").stdin(Stdio::null()).output().await;
    let output = output.map_err(|error| not_started("pg_dump", error))?;
    match major_version(&String::from_utf8_lossy(&output.stdout)) {
        Some(program) if program < server => {
            let message = format!(
                "the program pg_dump in the PATH has version {program} and the server has version {server}: install \
                 PostgreSQL's client programs of version {server} or newer"
            );
            Err(LedgerError::Unavailable(message.into()))
        }
        // An unknown text is no reason not to try.
        _ => Ok(()),
    }
}

/// Returns the major version in the answer of a client program to `--version`.
fn major_version(text: &str) -> Option<i64> {
    let version = text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    version.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
}

fn not_started(name: &str, error: io::Error) -> LedgerError {
    if error.kind() != io::ErrorKind::NotFound {
        return unavailable(error);
    }
    let message = format!(
        "the program {name} is not in the PATH: install PostgreSQL's client programs, of the server's version or newer"
    );
    LedgerError::Unavailable(message.into())
}

async fn run(name: &str, mut command: Command) -> Result<()> {
    let output = command.output().await.map_err(|error| not_started(name, error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(5).collect();
    Err(LedgerError::Unavailable(format!("{name} failed ({}): {}", output.status, lines.join("; ")).into()))
}

/// Returns `url` without its password, and the password.
fn without_password(url: &str) -> (String, Option<String>) {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(Cow::into_owned).ok();
    let (rest, query) = url.split_once('?').map_or((url, None), |(rest, query)| (rest, Some(query)));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("postgres", rest));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let (name, mut password) = match user.and_then(|user| user.split_once(':')) {
        Some((name, password)) => (Some(name), decoded(password)),
        None => (user, None),
    };
    let at = name.map_or_else(String::new, |name| format!("{name}@"));
    let mut pairs: Vec<_> = query.into_iter().flat_map(|query| query.split('&')).collect();
    pairs.retain(|pair| match pair.strip_prefix("password=") {
        Some(given) => {
            password = decoded(given);
            false
        }
        None => true,
    });
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    (format!("{scheme}://{at}{host}{path}{query}"), password)
}

fn unavailable(error: io::Error) -> LedgerError {
    LedgerError::Unavailable(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::{address, major_version, without_password};

    #[test]
    fn an_address_names_the_database_and_no_user() {
        let table = [
            ("postgres:///db?host=/tmp/x&user=postgres", "/tmp/x:5432/db"),
            ("postgres://me:s%40cret@db.example:5433/db", "db.example:5433/db"),
            ("postgres://other@db.example:5433/db?sslmode=require", "db.example:5433/db"),
            ("postgresql://me@db.example", "db.example:5432/me"),
        ];
        for (url, want) in table {
            assert_eq!(address(url).unwrap(), want);
        }
    }

    #[test]
    fn the_major_version_of_a_program_is_read() {
        let table = [
            ("pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some(15)),
            ("pg_dump (PostgreSQL) 18beta1\n", Some(18)),
            ("pg_dump (PostgreSQL) 9.6.24\n", Some(9)),
            ("nothing", None),
        ];
        for (text, want) in table {
            assert_eq!(major_version(text), want, "{text}");
        }
    }

    #[test]
    fn a_password_is_not_among_the_arguments() {
        let table = [
            ("postgres:///db?host=/tmp/x&user=postgres", "postgres:///db?host=/tmp/x&user=postgres", None),
            ("postgres://me:s%40cret@db.example:5433/db", "postgres://me@db.example:5433/db", Some("s@cret")),
            ("postgresql://me@db.example", "postgresql://me@db.example", None),
            ("postgres://db/x?password=p&sslmode=require", "postgres://db/x?sslmode=require", Some("p")),
        ];
        for (url, without, password) in table {
            assert_eq!(without_password(url), (without.to_owned(), password.map(str::to_owned)));
        }
    }
}
