//! Compressed values: what is restored, what damage affects, and the values of earlier versions.

use ledger::{Artifact, Entry, LedgerError, PageSize, RecordData, RecordFilter, Reply, UploadedContent};
use model::{ArtifactId, Sha256, Step, StepBytes, StepContent};
use rstest::rstest;

use crate::harness::{Backend, TestDatabase, call_id, path, read, run_id, write};

const ART: &str = "art_1";

fn source() -> String {
    let line = |line| format!("pub fn compute_{line}(value: u64) -> u64 {{ value * {} }}", line * line);
    (0..120).map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn diff() -> Vec<u8> {
    let lines = source().lines().map(|line| format!("+{line}")).collect::<Vec<_>>().join("\n");
    format!("--- /dev/null\n+++ b/src/a.rs\n@@ -0,0 +1,120 @@\n{lines}\n").into_bytes()
}

fn reply() -> Reply {
    Reply { status: 200, body: format!("{{\"path\":\"src/a.rs\",\"warnings\":[{:?}]}}", "long ".repeat(50)) }
}

/// Returns a write of [`source`], with an upload so that one entry has every kind of value.
fn new_file(run: &str) -> Entry {
    let mut entry = write(run, "new", "src/a.rs");
    let sha256 = Sha256::of(source().as_bytes());
    let after = StepContent { sha256, mode: 0o644, bytes: StepBytes::Inline(source().into_bytes()) };
    entry.steps = vec![Step { path: path("src/a.rs"), before: None, after: Some(after) }];
    entry.draft.artifact_uris = vec![format!("artifact://{run}/{ART}")];
    entry.draft.diff_sha256 = Some(Sha256::of(&diff()));
    entry.artifact = Some(Artifact { artifact_id: ArtifactId::parse(ART).unwrap(), diff: diff() });
    entry.reply = Some(reply());
    let bytes = source().repeat(2).into_bytes();
    entry.upload = Some(UploadedContent { sha256: Sha256::of(&bytes), bytes });
    entry
}

/// Returns a run with a read, a [`new_file`] and a read.
async fn three_records(backend: Backend) -> TestDatabase {
    let db = backend.open().await;
    db.run("r1").await;
    db.append(read("r1", "a")).await;
    db.append(new_file("r1")).await;
    db.append(read("r1", "c")).await;
    db
}

async fn texts(db: &TestDatabase) -> Vec<String> {
    let size = PageSize::rows(10).bytes(u64::MAX);
    let page = db.ledger.records(&RecordFilter::default(), None, size).await.unwrap();
    page.items.into_iter().map(|record| record.text).collect()
}

async fn content(db: &TestDatabase) -> Option<Vec<u8>> {
    db.ledger.content(&run_id("r1"), 2, &Sha256::of(source().as_bytes())).await.unwrap()
}

/// Asserts that every method returns what [`three_records`] stored.
async fn assert_restored(db: &TestDatabase) {
    let run = run_id("r1");
    assert_eq!(content(db).await, Some(source().into_bytes()));
    let stored = db.ledger.artifact(&run, &ArtifactId::parse(ART).unwrap()).await.unwrap();
    assert_eq!(stored, Some(diff()));
    let upload = source().repeat(2).into_bytes();
    assert_eq!(db.ledger.upload(&run, &Sha256::of(&upload)).await.unwrap(), Some(upload.clone()));
    let call = db.ledger.call(&run, &call_id("new")).await.unwrap().unwrap();
    assert_eq!((call.seq, call.reply), (2, Some(reply())));
    let text = db.ledger.record(&run, 2).await.unwrap().unwrap().text;
    assert_eq!(call.record, text);
    assert_eq!(texts(db).await[1], text);
    let data = db.ledger.record_data(&run, 2).await.unwrap();
    let expected = [
        RecordData::Content { sha256: Sha256::of(source().as_bytes()), bytes: source().into_bytes() },
        RecordData::Diff { artifact_id: ART.into(), bytes: diff() },
        RecordData::Upload { sha256: Sha256::of(&upload), bytes: upload },
        RecordData::Reply(reply()),
    ];
    assert_eq!(data, expected);
    let journal = db.ledger.pending_journal(Some(&run)).await.unwrap();
    assert_eq!(journal[0].steps, new_file("r1").steps);
    let changes = db.ledger.changes(&run, 0, PageSize::rows(10)).await.unwrap();
    assert_eq!(changes.items[0].text, text);
    let last = db.ledger.last_change(&run, &path("src/a.rs"), 9).await.unwrap().unwrap();
    assert_eq!(last.text, text);
    let report = db.ledger.verify(&run).await.unwrap();
    assert!(report.intact && report.records == 3 && report.missing_diffs == 0, "{report:?}");
}

/// Replaces each compressed value by what a version before 16 stored.
async fn store_as_earlier(db: &TestDatabase) {
    for table in ["audit_record", "call_reply", "artifact", "content", "upload"] {
        db.drop_triggers(table).await;
    }
    let literal = |bytes: &[u8]| db.literal(bytes);
    let reply = reply().body;
    for sql in [
        format!("UPDATE call_reply SET body = '{reply}', body_bytes = NULL, packed = NULL"),
        format!("UPDATE artifact SET diff = {}, diff_bytes = NULL", literal(&diff())),
        format!("UPDATE content SET bytes = {}, raw_bytes = NULL, needs_diff = NULL", literal(source().as_bytes())),
        format!("UPDATE upload SET bytes = {}, raw_bytes = NULL", literal(source().repeat(2).as_bytes())),
    ] {
        db.execute(&sql).await.unwrap();
    }
}

#[rstest]
#[tokio::test]
async fn every_kind_of_value_is_compressed_and_restored(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = three_records(backend).await;
    for (table, packed) in [
        ("audit_record", "body = '' AND length(packed) < body_bytes"),
        ("call_reply", "body = '' AND length(packed) < body_bytes"),
        ("artifact", "length(diff) < diff_bytes"),
        ("content", "needs_diff AND length(bytes) < raw_bytes / 10"),
        ("upload", "length(bytes) < raw_bytes"),
    ] {
        let [all, packed] =
            [format!("SELECT count(*) FROM {table}"), format!("SELECT count(*) FROM {table} WHERE {packed}")];
        assert_eq!(db.count(&packed).await, db.count(&all).await, "{table}");
    }
    assert_restored(&db).await;
    db.reopen().await;
    assert_restored(&db).await;
}

#[rstest]
#[tokio::test]
async fn values_of_earlier_versions_are_read(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = three_records(backend).await;
    store_as_earlier(&db).await;
    db.reopen().await;
    assert_restored(&db).await;
    db.append(read("r1", "d")).await;
    let report = db.ledger.verify(&run_id("r1")).await.unwrap();
    assert!(report.intact && report.records == 4, "{report:?}");
}

/// Another byte, a cut, another size, and a frame of 64 MiB under the size of the record.
#[rstest]
#[case::another_byte("packed = CASE WHEN length(packed) > 0 THEN (SELECT packed FROM call_reply) END")]
#[case::cut("packed = substr(packed, 1, 40)")]
#[case::empty("packed = substr(packed, 1, 0)")]
#[case::removed("packed = NULL")]
#[case::smaller("body_bytes = body_bytes - 1")]
#[case::negative("body_bytes = -1")]
#[case::over_the_maximum("body_bytes = 9223372036854775807")]
#[case::bomb("packed = BOMB")]
#[case::bomb_of_its_size("packed = BOMB, body_bytes = 67108864")]
#[tokio::test]
async fn a_damaged_record_is_reported_and_affects_no_other(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] change: &str,
) {
    let mut db = three_records(backend).await;
    db.drop_triggers_only("audit_record").await;
    let bomb = [&[1][..], &zstd::bulk::compress(&vec![b' '; 64 << 20], 19).unwrap()].concat();
    let change = change.replace("BOMB", &db.literal(&bomb));
    db.execute(&format!("UPDATE audit_record SET {change} WHERE seq = 2")).await.unwrap();
    db.reopen().await;
    let run = run_id("r1");
    let report = db.ledger.verify(&run).await.unwrap();
    let found = report.first_break.unwrap();
    assert_eq!((found.seq, found.problem.as_str()), (2, "the stored record cannot be decompressed"));
    let texts = texts(&db).await;
    assert_eq!((texts.len(), texts[1].as_str()), (3, "null"));
    assert!(texts[0].contains("\"seq\":1") && texts[2].contains("\"seq\":3"), "{texts:?}");
    let call = db.ledger.call(&run, &call_id("new")).await;
    assert!(matches!(call, Err(LedgerError::Internal(_))), "{call:?}");
    assert_eq!(content(&db).await, Some(source().into_bytes()), "what the record wrote is still there");
    db.append(read("r1", "d")).await;
}

/// The diff is hashed in its record, and content refers to it.
#[rstest]
#[case::cut("UPDATE artifact SET diff = substr(diff, 1, 100)")]
#[case::another_size("UPDATE artifact SET diff_bytes = diff_bytes + 1")]
#[case::bomb("UPDATE artifact SET diff = BOMB, diff_bytes = 67108865")]
#[tokio::test]
async fn a_damaged_diff_is_reported(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend, #[case] sql: &str) {
    let db = three_records(backend).await;
    db.drop_triggers_only("artifact").await;
    let bomb = [&[1][..], &zstd::bulk::compress(&vec![b' '; (64 << 20) + 1], 19).unwrap()].concat();
    db.execute(&sql.replace("BOMB", &db.literal(&bomb))).await.unwrap();
    let run = run_id("r1");
    let found = db.ledger.verify(&run).await.unwrap().first_break.unwrap();
    assert_eq!(found.seq, 2, "{found:?}");
    assert!(found.problem.contains("the stored diff"), "{found:?}");
    let diff = db.ledger.artifact(&run, &ArtifactId::parse(ART).unwrap()).await;
    assert!(matches!(diff, Err(LedgerError::Internal(_))), "{diff:?}");
    assert_ne!(content(&db).await.map(|bytes| Sha256::of(&bytes)), Some(Sha256::of(source().as_bytes())));
    assert!(db.ledger.record_data(&run, 2).await.is_err(), "an archive must not be made of it");
    assert_eq!(texts(&db).await.len(), 3);
}

#[rstest]
#[case::content("content", "bytes = substr(bytes, 1, 30)")]
#[case::content_size("content", "raw_bytes = raw_bytes - 1")]
#[case::content_of_another_diff("content", "content_no = content_no + 1048576")]
#[case::upload("upload", "bytes = substr(bytes, 1, 30)")]
#[case::reply("call_reply", "packed = substr(packed, 1, 30)")]
#[tokio::test]
async fn a_damaged_value_is_not_returned(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] table: &str,
    #[case] change: &str,
) {
    let db = three_records(backend).await;
    db.drop_triggers_only(table).await;
    db.execute(&format!("UPDATE {table} SET {change}")).await.unwrap();
    let run = run_id("r1");
    let upload = source().repeat(2).into_bytes();
    match table {
        "content" => {
            assert_ne!(content(&db).await, Some(source().into_bytes()));
            let journal = db.ledger.pending_journal(Some(&run)).await.unwrap();
            assert_ne!(journal[0].steps, new_file("r1").steps);
        }
        "upload" => assert!(db.ledger.upload(&run, &Sha256::of(&upload)).await.is_err()),
        _ => assert!(db.ledger.call(&run, &call_id("new")).await.is_err()),
    }
    if change.contains("substr") {
        assert!(db.ledger.record_data(&run, 2).await.is_err(), "an archive must not be made of it");
    }
}

#[rstest]
#[tokio::test]
async fn a_page_is_limited_by_the_texts_and_not_by_their_compressed_sizes(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r1").await;
    for number in 0..6 {
        let mut entry = read("r1", &format!("f{number}"));
        entry.draft.reasons = vec!["repeated ".repeat(2_000)];
        db.append(entry).await;
    }
    let size = PageSize::rows(100).bytes(40_000);
    let page = db.ledger.records(&RecordFilter::default(), None, size).await.unwrap();
    assert_eq!((page.items.len(), page.more), (3, true));
}

/// Several contents, with and without most of their bytes in the diff, and one that does not become smaller.
#[rstest]
#[tokio::test]
async fn each_content_of_a_record_is_restored(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    let large = source().repeat(20).into_bytes();
    let contents = [source().into_bytes(), large, b"short".to_vec(), Vec::new(), diff()];
    let mut entry = new_file("r1");
    entry.steps = contents
        .iter()
        .enumerate()
        .map(|(number, bytes)| Step {
            path: path(&format!("f{number}")),
            before: None,
            after: Some(StepContent {
                sha256: Sha256::of(bytes),
                mode: 0o644,
                bytes: StepBytes::Inline(bytes.clone()),
            }),
        })
        .collect();
    let steps = entry.steps.clone();
    db.append(entry).await;
    for bytes in &contents {
        assert_eq!(db.ledger.content(&run_id("r1"), 1, &Sha256::of(bytes)).await.unwrap().as_ref(), Some(bytes));
    }
    assert_eq!(db.ledger.pending_journal(None).await.unwrap()[0].steps, steps);
    assert_eq!(db.ledger.record_data(&run_id("r1"), 1).await.unwrap().len(), contents.len() + 3);
}
