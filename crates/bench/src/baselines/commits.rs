//! Commits of `SQLite` in WAL mode with `synchronous=FULL` and rows of about 600 bytes.

use std::path::Path;

use rusqlite::Connection;

use crate::baselines::ThreadLoop;

/// Returns a baseline that commits `rows` rows at a time on one thread. The rate counts rows.
pub(crate) fn sqlite(folder: &Path, rows: u32) -> ThreadLoop<'_> {
    let name = match rows {
        1 => "SQLite (WAL, FULL), one row per commit".to_owned(),
        rows => format!("SQLite (WAL, FULL), {rows} rows per commit"),
    };
    let baseline = ThreadLoop::new(name, move |_| {
        let mut database = Connection::open(folder.join(format!("commits-of-{rows}.db")))?;
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "FULL")?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS record (run TEXT, seq INTEGER, body BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID",
        )?;
        let mut seq: i64 = database.query_row("SELECT coalesce(max(seq), 0) FROM record", [], |row| row.get(0))?;
        let body = vec![b'r'; 600];
        Ok(Box::new(move || {
            let transaction = database.transaction()?;
            let mut insert = transaction.prepare_cached("INSERT INTO record VALUES ('run', ?1, ?2)")?;
            for _ in 0..rows {
                seq += 1;
                insert.execute((seq, &body))?;
            }
            drop(insert);
            Ok(transaction.commit()?)
        }))
    });
    ThreadLoop { weight: rows, max_threads: 1, ..baseline }
}
