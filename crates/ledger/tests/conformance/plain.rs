//! Records as earlier versions stored them, decompressed without the ledger's code.

use sqlx::{Connection as _, PgConnection, Row as _};

use crate::harness::TestDatabase;

const DICTIONARY: &[u8] = include_bytes!("../../src/packed/dictionary.zdict");
const PACKED: &str = "SELECT position, packed FROM audit_record WHERE packed IS NOT NULL";

/// Returns the text of a compressed record.
fn text(packed: &[u8]) -> String {
    let (format, frame) = packed.split_first().unwrap();
    assert_eq!(*format, 4, "the format of records");
    let mut decoder = zstd::bulk::Decompressor::with_dictionary(DICTIONARY).unwrap();
    String::from_utf8(decoder.decompress(frame, 1 << 20).unwrap()).unwrap()
}

impl TestDatabase {
    /// Replaces every compressed record by its text, so that SQL can read and change it. The triggers must have been dropped.
    pub(crate) async fn store_plain_records(&self) {
        if let Some(path) = self.url().strip_prefix("sqlite://") {
            let connection = rusqlite::Connection::open(path).unwrap();
            connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
            let mut query = connection.prepare(PACKED).unwrap();
            let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            let rows: Vec<(i64, Vec<u8>)> = rows.map(Result::unwrap).collect();
            for (position, packed) in rows {
                let sql = "UPDATE audit_record SET body = ?2, body_bytes = NULL, packed = NULL WHERE position = ?1";
                connection.execute(sql, (position, text(&packed))).unwrap();
            }
            return;
        }
        let mut connection = PgConnection::connect(self.url()).await.unwrap();
        for row in sqlx::query(PACKED).fetch_all(&mut connection).await.unwrap() {
            let sql = "UPDATE audit_record SET body = $2, body_bytes = NULL, packed = NULL WHERE position = $1";
            let text = text(&row.get::<Vec<u8>, _>(1));
            sqlx::query(sql).bind(row.get::<i64, _>(0)).bind(text).execute(&mut connection).await.unwrap();
        }
    }
}
