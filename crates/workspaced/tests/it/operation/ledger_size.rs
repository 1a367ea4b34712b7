//! How much the database grows with a call.

use std::path::Path;

use rstest::rstest;
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};

use crate::harness::{Backend, Database, Server, exhaustive};

/// Maximum bytes of the database for a read of a file, with its indexes.
const MAX_READ_BYTES: u64 = 800;
/// Maximum bytes of the database for a new source file of 4 kB.
const MAX_NEW_FILE_BYTES: u64 = 5000;
/// The size of a new file.
const FILE_BYTES: usize = 4096;

/// Selects the bytes of the tables that grow with each call, of their indexes and of their large values, without the maps that
/// PostgreSQL creates beside a table.
const POSTGRES_BYTES: &str = "with grown as (select oid, reltoastrelid from pg_class where relname in \
    ('audit_record', 'record_path', 'call_reply', 'artifact', 'content')), \
    stored as (select oid from grown union all select reltoastrelid from grown where reltoastrelid <> 0), \
    relation as (select oid from stored union all select indexrelid from pg_index join stored on oid = indrelid) \
    select sum(pg_relation_size(oid))::bigint from relation";

impl Database {
    /// Returns the bytes of the tables that grow with each call, and of their indexes. No server may have the database open.
    async fn bytes_of_calls(&self) -> u64 {
        let bytes: i64 = match self.backend {
            Backend::Sqlite => {
                let connection = rusqlite::Connection::open(self.url.strip_prefix("sqlite://").unwrap()).unwrap();
                let read = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
                (read("pragma page_count") - read("pragma freelist_count")) * read("pragma page_size")
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                connection.fetch_one(POSTGRES_BYTES).await.unwrap().get(0)
            }
        };
        u64::try_from(bytes).unwrap()
    }
}

/// Returns the starts of the source files under `folder`, each of [`FILE_BYTES`].
fn sources(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if let Ok(text) = std::fs::read_to_string(&path)
            && text.len() >= FILE_BYTES
        {
            found.push(text[..text.floor_char_boundary(FILE_BYTES)].to_owned());
        }
    }
    found
}

#[rstest]
#[tokio::test]
async fn a_call_takes_little_of_the_database(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("src/main.rs", "fn main() {}\n")], json!({})).await;
    run.create("src/first.rs", "//! The first.\n").await;
    assert!(server.stop().success());
    let before = server.database.bytes_of_calls().await;

    server.restart();
    let run = server.reconnect(&run);
    // So many that a page that is not full yet, of each table and index, is a few bytes of each.
    let reads = 1500;
    for _ in 0..reads {
        run.ok("read_file", json!({"path": "src/main.rs"})).await;
    }
    assert!(server.stop().success());
    let read = server.database.bytes_of_calls().await;

    server.restart();
    let run = server.reconnect(&run);
    let mut writes = 0;
    for (number, content) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).iter().take(150).enumerate() {
        let path = format!("src/module_{number}.rs");
        let input = json!({"path": path, "content": content, "mode": "CREATE_NEW", "reason": "Add the next module"});
        // Some contain what looks like a secret.
        writes += u64::from(run.call("write_file", input).await.status == 200);
    }
    assert!(server.stop().success());
    let written = server.database.bytes_of_calls().await;

    let (of_read, of_new_file) = ((read - before) / reads, (written - read) / writes);
    println!("{backend:?}: {of_read} bytes a read, {of_new_file} bytes each of {writes} new files");
    assert!(writes > 50, "{writes} new files");
    assert!(of_read <= MAX_READ_BYTES, "{of_read} bytes a read");
    assert!(of_new_file <= MAX_NEW_FILE_BYTES, "{of_new_file} bytes a new file");
}
