//! Compressed values of the database, decompressed without the service's code.

use sqlx::{Connection as _, PgConnection, Row as _};
use zstd::zstd_safe::DCtx;

use super::database::{Backend, Database};

const DICTIONARY: &[u8] = include_bytes!("../../../../ledger/src/packed/dictionary.zdict");
/// Maximum size of a value in the tests.
const MAX_BYTES: usize = 64 << 20;
const RECORDS: &str = "select position, packed, null from audit_record where packed is not null";
/// Each with the diff that it may need, which is compressed too.
const VALUES: [&str; 5] = [
    RECORDS,
    "select position, packed, null from call_reply where packed is not null",
    "select position, diff, null from artifact where diff_bytes is not null",
    "select position, bytes, null from upload where raw_bytes is not null",
    "select content_no, bytes, (select a.diff from artifact a where a.position = c.content_no >> 20) from content c \
     where raw_bytes is not null",
];

/// A value with its number, and the diff of its record.
type Value = (i64, Vec<u8>, Option<Vec<u8>>);

fn decompress(value: &[u8], diff: Option<&[u8]>) -> Vec<u8> {
    let (format, frame) = value.split_first().unwrap();
    let diff = diff.filter(|_| *format == 3).map(|diff| decompress(diff, None));
    let (mut decoder, mut bytes) = (DCtx::create(), Vec::with_capacity(MAX_BYTES));
    match *format {
        1 => decoder.ref_prefix(&[]),
        3 => decoder.ref_prefix(diff.as_deref().unwrap()),
        4 => decoder.load_dictionary(DICTIONARY),
        other => panic!("unknown format {other}"),
    }
    .unwrap();
    decoder.decompress(&mut bytes, frame).unwrap();
    bytes
}

impl Database {
    async fn values(&self, sql: &'static str) -> Vec<Value> {
        match self.backend {
            Backend::Sqlite => {
                let connection = rusqlite::Connection::open(self.url.strip_prefix("sqlite://").unwrap()).unwrap();
                connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
                let mut query = connection.prepare(sql).unwrap();
                let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
                rows.map(Result::unwrap).collect()
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                let sql = sql.replace("null from", "null::bytea from");
                let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
                rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
            }
        }
    }

    /// Returns every compressed value of the tables, decompressed.
    pub(crate) async fn compressed_values(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for sql in VALUES {
            found.extend(self.values(sql).await.iter().map(|(_, value, diff)| decompress(value, diff.as_deref())));
        }
        found
    }

    /// Stores every record as plain text, as earlier versions did. No trigger may be left.
    pub(crate) async fn store_plain_records(&self) {
        for (position, packed, _) in self.values(RECORDS).await {
            let text = String::from_utf8(decompress(&packed, None)).unwrap().replace('\'', "''");
            let set = format!("body = '{text}', body_bytes = null, packed = null");
            let sql = format!("update audit_record set {set} where position = {position}");
            assert_eq!(self.tamper(&sql).await, Ok(1));
        }
    }
}
