//! Copies of the database file while a service has it open.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::connection::{failed, select, unavailable, with_suffix};
use crate::copy::{self, DatabaseCopy};
use crate::migrate;
use crate::{LedgerError, Result};

/// Timeout for the short locks of the service, such as that of a new write-ahead log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes a copy of the database at `path` to the new file `to`, and returns what it contains. Blocks.
///
/// One read transaction, which in write-ahead mode stops no commit. The log cannot be reset until it ends. The copy has no free
/// pages, so that it contains nothing of deleted rows.
pub(crate) fn write(path: &Path, to: &Path) -> Result<DatabaseCopy> {
    let connection = open(path)?;
    check_schema(&connection)?;
    connection.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map_err(failed)?;
    File::open(to).and_then(|copy| copy.sync_all()).map_err(unavailable)?;
    let copied = open(to)?;
    Ok(DatabaseCopy {
        runs: select(&copied, &copy::RUNS)?,
        checkpoint: select(&copied, &copy::CHECKPOINT)?.pop(),
        settings: select(&copied, &copy::SETTINGS)?.into_iter().collect(),
    })
}

/// Fails if the database at `path` has another schema than this program. Blocks.
pub(crate) fn check(path: &Path) -> Result<()> {
    check_schema(&open(path)?)
}

fn check_schema(connection: &Connection) -> Result<()> {
    let applied = select(connection, &migrate::LIST)?;
    if migrate::missing(migrate::SQLITE, &applied)?.is_empty() {
        return Ok(());
    }
    Err(LedgerError::Internal(migrate::OLDER.into()))
}

fn open(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    Ok(connection)
}

/// Copies the file `from` to `path`, replaces an existing one, and syncs it. Blocks.
pub(crate) fn restore(path: &Path, from: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unavailable)?;
    for suffix in ["-wal", "-shm"] {
        match std::fs::remove_file(with_suffix(path, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(unavailable(error)),
            _ => {}
        }
    }
    let copied = File::open(from).and_then(|mut from| {
        let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        std::io::copy(&mut from, &mut to)?;
        to.sync_all()?;
        File::open(folder)?.sync_all()
    });
    copied.map_err(unavailable)
}
