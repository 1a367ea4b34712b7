//! Commits of the database, bare: `SQLite` in WAL mode with `synchronous=FULL`, rows of about 600 bytes.

use std::path::Path;

use rusqlite::Connection;

use crate::limits::OnThreads;

/// Commits groups of `rows` rows from one thread; the rate counts rows.
pub(crate) fn sqlite(folder: &Path, rows: u32) -> OnThreads<'_> {
    let name = match rows {
        1 => "SQLite (WAL, FULL), a commit for each row".to_owned(),
        rows => format!("SQLite (WAL, FULL), a commit for {rows} rows"),
    };
    let limit = OnThreads::new(name, move |_| {
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
    OnThreads { weight: rows, most: 1, ..limit }
}
