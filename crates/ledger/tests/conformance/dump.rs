//! Snapshots of a database: each row is in one part, and either database reads what either has written.

use std::io::Write;

use ledger::{DumpPart, RestoreTarget};
use model::Sha256;
use rstest::rstest;

use crate::approvals::approval_request;
use crate::harness::{Backend, RunChanges as _, TestDatabase, read};
use crate::journal::mutation;

/// Returns the bytes of every part, the service's last.
async fn parts(url: &str) -> Vec<Vec<u8>> {
    let mut snapshot = ledger::open_snapshot(url).await.unwrap();
    let runs = snapshot.contents().runs.clone();
    let mut parts = Vec::new();
    for part in runs.iter().map(DumpPart::Run).chain([DumpPart::Service]) {
        let mut bytes = Vec::new();
        snapshot.write(part, &mut bytes).await.unwrap();
        parts.push(bytes);
    }
    snapshot.finish().await.unwrap();
    parts
}

/// A database with runs in several states, and rows in most tables.
async fn filled(backend: Backend) -> TestDatabase {
    let db = backend.open().await;
    let (mut size, _) = (0, db.run("r1").await);
    db.run("r2").await;
    db.run("gone").await;
    for number in 0..20 {
        db.append(mutation("r1", &format!("id-{number}"), "src/a")).await;
        db.append(read("r2", "a")).await;
        db.append(mutation("gone", &format!("id-{number}"), "b")).await;
    }
    db.append(approval_request("r1", "ap-1")).await;
    db.checkpoint(&mut size, 0).await;
    db.ledger.set_run_state(&crate::harness::run_id("gone"), model::RunState::Deleted, None).await.unwrap();
    db
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_loaded_from_either_kind_has_the_same_rows(
    #[values(Backend::Sqlite, Backend::Postgres)] from: Backend,
    #[values(Backend::Sqlite, Backend::Postgres)] to: Backend,
) {
    let db = filled(from).await;
    let written = parts(db.url()).await;
    assert_eq!(written, parts(db.url()).await, "the same rows give other bytes");
    let target = to.create().await;
    assert_eq!(ledger::restore_target(&target.0).await.unwrap(), RestoreTarget::Empty);
    let mut load = ledger::begin_load(&target.0, ledger::schema()).await.unwrap();
    for part in &written {
        load.read(&mut &**part).await.unwrap();
    }
    let rows = load.finish().await.unwrap();
    assert!(rows["audit_record"] > 60 && rows["content"] > 0 && rows["checkpoint_leaf"] > 0, "{rows:?}");
    assert_eq!(parts(&target.0).await, written);
    // New rows go on after the loaded ones.
    let loaded = TestDatabase::of(target).await;
    loaded.append(mutation("r1", "later", "src/a")).await;
    loaded.run("new").await;
    let chain = loaded.ledger.verify(&crate::harness::run_id("r1")).await.unwrap();
    assert!(chain.intact, "{chain:?}");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_end_early_or_are_of_another_schema_are_refused(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = filled(backend).await;
    let written = parts(db.url()).await.concat();
    let half = &written[..written.len() / 2];
    let mut renamed = written.clone();
    let name = b"\"head_seq\"";
    let at = renamed.windows(name.len()).position(|window| window == name).unwrap();
    renamed[at + 1] = b'_';
    for (bytes, says) in [(half, "UnexpectedEof"), (&*renamed, "the schemas of the databases differ")] {
        let target = backend.create().await;
        let mut load = ledger::begin_load(&target.0, ledger::schema()).await.unwrap();
        let error = format!("{:?}", load.read(&mut &*bytes).await.unwrap_err());
        assert!(error.contains(says), "{error}");
    }
    let target = backend.create().await;
    assert!(ledger::begin_load(&target.0, ledger::schema() + 1).await.is_err(), "a newer schema");
}

/// Returns a part of one table.
fn part(table: &str, columns: &[&str], rows: &[&[&[u8]]]) -> Vec<u8> {
    let mut part = serde_json::to_vec(&serde_json::json!({"table": table, "columns": columns})).unwrap();
    part.push(b'\n');
    for row in rows {
        part.extend(i16::try_from(row.len()).unwrap().to_be_bytes());
        for value in *row {
            part.extend(i32::try_from(value.len()).unwrap().to_be_bytes());
            part.extend(*value);
        }
    }
    part.extend((-1_i16).to_be_bytes());
    part
}

/// Reads `part` into an empty database. Returns the error.
async fn refused(backend: Backend, part: &[u8]) -> String {
    let target = backend.create().await;
    let mut load = ledger::begin_load(&target.0, ledger::schema()).await.unwrap();
    match load.read(&mut &*part).await {
        Ok(()) => "nothing".to_owned(),
        Err(error) => std::error::Error::source(&error).unwrap().to_string(),
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn no_name_of_a_dump_reaches_a_statement(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let injected = "setting\" (name, value) VALUES ('a', 'b'); --";
    let long = "x".repeat(1000);
    let table: [(&str, &[&str], &str); 6] = [
        (injected, &[], "there is no table `setting\\\" (name"),
        ("nothing", &[], "there is no table `nothing`"),
        (&long, &[], &format!("there is no table `{}`", "x".repeat(64))),
        ("setting", &[], "the table `setting` has other columns"),
        ("setting", &["name", "name"], "the table `setting` has other columns"),
        ("setting", &["name", "value\" text); --"], "the table `setting` has other columns"),
    ];
    for (name, columns, says) in table {
        let error = refused(backend, &part(name, columns, &[])).await;
        assert!(error.contains(says) && error.contains("the schemas of the databases differ"), "{name}: {error}");
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_does_not_fit_its_table_is_refused_by_its_name(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let setting = |row: &[&[u8]]| part("setting", &["name", "value"], &[&[b"a", b"1"], row]);
    let mut negative = setting(&[b"b", b"2"]);
    let end = negative.len() - 2;
    negative.splice(end - 5..end - 1, (-2_i32).to_be_bytes());
    let mut large = setting(&[b"b", b"2"]);
    large.splice(end - 5..end - 1, i32::MAX.to_be_bytes());
    let node = |place: &[u8]| part("checkpoint_node", &["hash", "place"], &[&[b"h", place]]);
    for (part, says) in [
        (setting(&[b"b"]), "row 2 of the table setting: it has 1 values for 2 columns"),
        (setting(&[b"b", b"2", b"3"]), "row 2 of the table setting: it has 3 values for 2 columns"),
        (setting(&[]), "row 2 of the table setting: it has 0 values for 2 columns"),
        (negative, "row 2 of the table setting: it has more than 1073741824 bytes"),
        (large, "row 2 of the table setting: it has more than 1073741824 bytes"),
        (setting(&[b"b", b"\xff"]), "row 2 of the table setting: the column value: it is not UTF-8"),
        (node(b"1"), "row 1 of the table checkpoint_node: the column place: it is not an integer of eight bytes"),
        (node(b""), "row 1 of the table checkpoint_node: the column place: it is not an integer of eight bytes"),
    ] {
        let error = refused(backend, &part).await;
        assert!(error.contains(says), "{error}, instead of {says}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_sqlite_can_store_is_refused_by_its_name() {
    let nul = part("setting", &["name", "value"], &[&[b"a", b"1"], &[b"b", b"a\0b"]]);
    assert_eq!(refused(Backend::Sqlite, &nul).await, "nothing");
    let error = refused(Backend::Postgres, &nul).await;
    assert!(error.contains("row 2 of the table setting: the column value: it has a NUL character"), "{error}");
    let run = |needs_repair: i64| {
        let text: &[u8] = b"{}";
        let columns = [
            "run_no",
            "needs_repair",
            "purged_seq",
            "run_id",
            "state",
            "created_at",
            "closed_at",
            "expires_at",
            "base_commit",
            "body",
            "import_report",
            "mount_paths",
            "labels",
            "archived_at",
            "archive_uri",
            "source_url",
            "repository",
            "agent",
            "prompt",
            "parent_id",
            "archived_seq",
            "forked_at",
            "merged_seq",
        ];
        let (one, flag) = (1_i64.to_be_bytes(), needs_repair.to_be_bytes());
        let mut row: Vec<&[u8]> = vec![&one, &flag, &one];
        row.resize(columns.len() - 3, text);
        row.extend([&one[..]; 3]);
        part("run", &columns, &[&row])
    };
    assert_eq!(refused(Backend::Postgres, &run(1)).await, "nothing");
    let error = refused(Backend::Postgres, &run(2)).await;
    assert!(error.contains("row 1 of the table run: the column needs_repair: it is neither 0 nor 1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_a_part_do_not_depend_on_the_locale_of_the_database() {
    let db = filled(Backend::Sqlite).await;
    for name in ["b", "A", "a", "B"] {
        db.ledger.set_setting_once(name, "x").await.unwrap();
    }
    let written = parts(db.url()).await;
    let target = Backend::Postgres.create().await;
    let mut load = ledger::begin_load(&target.0, ledger::schema()).await.unwrap();
    for part in &written {
        load.read(&mut &**part).await.unwrap();
    }
    load.finish().await.unwrap();
    let loaded = TestDatabase::of(target).await;
    loaded.execute("ALTER TABLE setting ALTER name TYPE TEXT COLLATE \"und-x-icu\"").await.unwrap();
    loaded.execute("ALTER TABLE token ALTER token_id TYPE TEXT COLLATE \"und-x-icu\"").await.unwrap();
    assert!(parts(loaded.url()).await == written, "the order is that of the locale");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_load_is_begun_again(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = filled(backend).await;
    let written = parts(db.url()).await;
    let target = backend.create().await;
    for part_count in [1, written.len()] {
        let mut load = ledger::begin_load(&target.0, ledger::schema()).await.unwrap();
        for part in &written[..part_count] {
            load.read(&mut &**part).await.unwrap();
        }
        if part_count == written.len() {
            load.finish().await.unwrap();
        }
    }
    assert_eq!(parts(&target.0).await, written);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_does_not_have_what_is_written_after_it(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = filled(backend).await;
    let before = parts(db.url()).await;
    let mut snapshot = ledger::open_snapshot(db.url()).await.unwrap();
    db.append(mutation("r1", "later", "src/a")).await;
    let runs = snapshot.contents().runs.clone();
    let mut after = Vec::new();
    for part in runs.iter().map(DumpPart::Run).chain([DumpPart::Service]) {
        snapshot.write(part, &mut after).await.unwrap();
        after.flush().unwrap();
    }
    assert!(after == before.concat(), "{} {}", Sha256::of(&after), Sha256::of(&before.concat()));
}
