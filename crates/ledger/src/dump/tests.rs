//! What both databases load in their own tests: rows of an older schema than this program's.

use super::*;
use crate::migrate::Migration;

/// A schema with a table that this program does not know.
const OLDER: Migration = Migration {
    version: 1,
    name: "0001_older",
    sql: "CREATE TABLE lamp (lamp_no BIGINT NOT NULL, name TEXT NOT NULL)",
};
/// What a later version makes of it.
pub(crate) const NEWER: &[Migration] =
    &[OLDER, Migration { version: 2, name: "0002_newer", sql: "ALTER TABLE lamp RENAME TO light" }];
/// Selects the name of the loaded row after the second migration.
pub(crate) const NAME: &str = "SELECT name FROM light WHERE lamp_no = 7";

/// Loads a row with the name `desk` into a database of the first migration.
pub(crate) async fn load_older(mut to: Box<dyn DatabaseLoad>) {
    let mut part = b"{\"table\":\"lamp\",\"columns\":[\"lamp_no\",\"name\"]}\n".to_vec();
    begin_row(2, &mut part);
    put(Some(&7_i64.to_be_bytes()), &mut part).unwrap();
    put(Some(b"desk"), &mut part).unwrap();
    end_table(&mut part).unwrap();
    to.read(&mut &*part).await.unwrap();
    assert_eq!(to.finish().await.unwrap(), RowCounts::from([("lamp".to_owned(), 1)]));
}
