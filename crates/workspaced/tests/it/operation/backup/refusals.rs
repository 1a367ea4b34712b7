//! What a backup and a restore refuse, and leave unchanged.

use std::path::Path;

use rstest::rstest;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::steps::{backup, backups, destroy, json_of, killed_at, objects, restore};
use crate::harness::{Backend, Database, Server, Setup, exhaustive, sha256, snapshot};
use crate::operation::replay_and_repair::{assert_ends, offline};

/// Executes statements that an earlier version would.
async fn execute(database: &Database, sql: &str) {
    match database.backend {
        Backend::Sqlite => {
            let connection = rusqlite::Connection::open(database.url.strip_prefix("sqlite://").unwrap()).unwrap();
            connection.execute_batch(sql).unwrap();
        }
        Backend::Postgres => {
            let mut connection = PgConnection::connect(&database.url).await.unwrap();
            connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap();
        }
    }
}

/// Returns the texts of all migrations but the newest, each with the row that notes it.
fn earlier_migrations(backend: Backend) -> Vec<String> {
    let dialect = if backend == Backend::Sqlite { "sqlite" } else { "postgres" };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(dialect);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.pop();
    let texts = files.iter().enumerate().map(|(index, file)| {
        let text = std::fs::read_to_string(file).unwrap();
        let (name, hash) = (file.file_stem().unwrap().to_str().unwrap(), sha256(&text));
        format!("{text};\nINSERT INTO schema_migration VALUES ({}, '{name}', '{hash}', 'then')", index + 1)
    });
    let table = "CREATE TABLE schema_migration \
        (version BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TEXT NOT NULL)";
    [table.to_owned()].into_iter().chain(texts).collect()
}

#[rstest]
#[tokio::test]
async fn a_backup_migrates_no_older_schema(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::prepare_empty(Setup::new(backend)).await;
    let migrations = earlier_migrations(backend);
    for migration in &migrations {
        execute(&server.database, migration).await;
    }
    assert_ends(&backup(&server, &[]), 1, &["the database has an older schema than this program"]);
    let newest = migrations.len();
    let later = format!("DELETE FROM schema_migration WHERE version >= {newest}");
    assert_eq!(server.database.tamper(&later).await, Ok(0), "the schema was migrated");
}

#[tokio::test]
async fn a_repeated_restore_into_another_database_is_refused() {
    let server = Server::start(Backend::Postgres).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    json_of(&backup(&server, &["--json"]));
    let fresh = server.home.join("fresh");
    let fresh = fresh.to_str().unwrap();
    let target = Database::create(Backend::Postgres, &server.data_dir()).await;
    let into = |url| restore(&server, &["--data-dir", fresh, "--database-url", url]);
    killed_at(&server, "restore", "restore.database", &["--data-dir", fresh, "--database-url", &target.url]);
    // The service's own database has the same instance as the backup.
    assert_ends(&into(&server.database.url), 2, &["the database is not empty"]);
    let mark = std::fs::read_to_string(server.home.join("fresh/restoring")).unwrap();
    assert!(!mark.contains("postgres://"), "a password may be in the mark: {mark}");
    assert_ends(&into(&target.url), 0, &["1 runs were restored"]);
    run.create("goes-on.txt", "on\n").await;
}

#[rstest]
#[tokio::test]
async fn a_new_folder_in_the_data_folder_is_refused(#[values("a/b", "../new/../data/a", "a/../b")] path: &str) {
    let server = Server::start(Backend::Sqlite).await;
    server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let before: Vec<_> = snapshot(&server.data_dir()).into_keys().collect();
    let inside = server.data_dir().join(path);
    let inside = inside.to_str().unwrap();
    assert_ends(&offline(&server, "backup", &[inside]), 2, &["lies in the data folder"]);
    let replayed = offline(&server, "replay", &["--run", "r", "--to", inside]);
    assert_ends(&replayed, 2, &["lies in the data folder"]);
    assert_eq!(snapshot(&server.data_dir()).into_keys().collect::<Vec<_>>(), before, "something was written");
}

#[tokio::test]
async fn a_backup_of_another_version_is_named() {
    let server = Server::start(Backend::Sqlite).await;
    server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let written = json_of(&backup(&server, &["--json"]));
    let folder = Path::new(written["backup"].as_str().unwrap());
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let fresh = server.home.join("fresh");
    for (from, to, says) in [
        ("\"format\":5", "\"format\":2", "it has format 2; this program reads format 5"),
        ("\"schema\":1", "\"schema\":999", "the rows are of a newer schema than this program"),
    ] {
        let changed = manifest.replace(from, to);
        assert_ne!(changed, manifest);
        std::fs::write(folder.join("manifest.sha256"), format!("{}  manifest.json\n", sha256(&changed))).unwrap();
        std::fs::write(folder.join("manifest.json"), changed).unwrap();
        let url = format!("sqlite://{}/x.db", fresh.display());
        let into = ["--data-dir", fresh.to_str().unwrap(), "--database-url", &url];
        assert_ends(&restore(&server, &into), 1, &[says]);
    }
}

/// Writes the manifest of a backup with its hash.
fn write_manifest(folder: &Path, manifest: &Value) {
    let text = manifest.to_string();
    std::fs::write(folder.join("manifest.sha256"), format!("{}  manifest.json\n", sha256(&text))).unwrap();
    std::fs::write(folder.join("manifest.json"), text).unwrap();
}

#[tokio::test]
async fn what_a_manifest_names_must_be_in_its_backup_and_of_its_run() {
    let server = Server::start(Backend::Sqlite).await;
    for run in ["one", "two"] {
        server.run_with_files(&[("a", "a\n")], json!({"runId": run})).await;
    }
    let written = json_of(&backup(&server, &["--json"]));
    let folder = Path::new(written["backup"].as_str().unwrap());
    let manifest: Value = serde_json::from_slice(&std::fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    for name in ["/dev/zero", "../x", "..", "a/b", ""] {
        let mut changed = manifest.clone();
        changed["files"][0]["name"] = json!(name);
        write_manifest(folder, &changed);
        let says = format!("names `{name}`, which is no file of the backup");
        assert_ends(&restore(&server, &["--check"]), 1, &[&says]);
    }
    let mut swapped = manifest.clone();
    swapped["runs"][0]["archive"] = manifest["runs"][1]["archive"].clone();
    write_manifest(folder, &swapped);
    assert_ends(&restore(&server, &["--check"]), 1, &["it is the archive of two, not of one"]);
    write_manifest(folder, &manifest);
    assert_ends(&restore(&server, &["--check"]), 0, &["intact"]);
}

#[tokio::test]
async fn a_run_whose_files_are_newer_than_its_rows_needs_repair() {
    let mut server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    json_of(&backup(&server, &["--json"]));
    let older = std::fs::File::open(objects(&server, true).remove(0)).unwrap();
    run.create("b", "b\n").await;
    let newer = json_of(&backup(&server, &["--json"]));
    let folder = Path::new(newer["backup"].as_str().unwrap());
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    let saved = manifest["runs"][0]["archive"]["sha256"].as_str().unwrap().to_owned();
    let objects = backups(&server).join("objects");
    let newer = std::fs::File::open(objects.join(&saved[..2]).join(&saved[2..])).unwrap();
    // The rows of the first backup with the files of the second.
    let mut mixed = archive::ArchiveWriter::new(&server.home);
    let mut rows = archive::Part::rows(std::fs::File::create(server.home.join("rows")).unwrap()).unwrap();
    std::io::copy(&mut archive::open_member(older, archive::ROWS).unwrap(), &mut rows).unwrap();
    let member = rows.finish().unwrap().0;
    mixed.add_finished(member, std::fs::File::open(server.home.join("rows")).unwrap());
    let mut entries = mixed.begin(archive::ENTRIES).unwrap();
    std::io::copy(&mut archive::open_member(newer, archive::ENTRIES).unwrap(), &mut entries).unwrap();
    mixed.add(entries).unwrap();
    let mut built = mixed.finish(model::RunId::parse("r").unwrap(), 2, model::Sha256::ZERO).unwrap();
    let name = built.sha256.to_string();
    std::fs::create_dir_all(objects.join(&name[..2])).unwrap();
    let mut object = std::fs::File::create(objects.join(&name[..2]).join(&name[2..])).unwrap();
    std::io::copy(&mut built.file, &mut object).unwrap();
    manifest["runs"][0]["archive"] = json!({"sha256": name, "size": built.bytes});
    write_manifest(folder, &manifest);
    destroy(&mut server).await;
    let says = "r: needs repair: its rows end with record 1, and its files are those of record 2";
    assert_ends(&restore(&server, &[]), 1, &[says]);
}
