//! Limits in bytes of lists, event streams and records.

use reqwest::Method;
use rstest::rstest;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, assert_growth, sha256};

/// Bytes added to each row.
const PADDING: usize = 3 << 20;
/// Number of padded rows.
const ROWS: usize = 12;

/// Returns a path of the maximum length that ends with `number`.
fn long_path(number: usize) -> String {
    format!("{}{number:08}", format!("{}/", "d".repeat(250)).repeat(16))
}

#[rstest]
#[tokio::test]
async fn a_record_of_a_refused_patch_is_truncated(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let section = |number| format!("--- a/{}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", long_path(number));
    let patch = (0..900).map(section).collect::<Vec<_>>().concat();
    assert!(run.patch(&patch).await.status >= 400);
    let record = run.last_record().await;
    assert_eq!(record["outcome"], "refused");
    assert!(record.to_string().len() < 256 << 10, "{} bytes", record.to_string().len());
    let (files, reasons) = (record["files"].as_array().unwrap(), record["reasons"].as_array().unwrap());
    if !files.is_empty() {
        assert_eq!(*reasons.last().unwrap(), json!(format!("and {} more in files", 900 - files.len())));
    }
    assert_eq!(run.verify().await["intact"], true);

    // Neither the answer nor the record repeats an unknown member in full.
    let answer = run.call("read_file", json!({"path": "a", "x".repeat(2 << 20): 1})).await;
    answer.refused("INVALID_REQUEST");
    assert!(answer.body.len() < 64 << 10, "{} bytes", answer.body.len());
    assert!(run.last_record().await.to_string().len() < 64 << 10);
}

/// Pads every record and approval with `PADDING` bytes.
async fn pad(server: &Server) {
    server.database.drop_triggers().await;
    let padding = match server.database.backend {
        Backend::Sqlite => format!("hex(zeroblob({}))", PADDING / 2),
        Backend::Postgres => format!("repeat('0', {PADDING})"),
    };
    let members = [("audit_record", "\"reason\":\""), ("approval", "\"diff\":\"")];
    for (table, member) in members {
        let sql = format!("update {table} set body = replace(body, '{member}', '{member}' || {padding})");
        server.database.tamper(&sql).await.unwrap();
    }
}

/// Starts a server with a run of [`ROWS`] changes and a run of as many approvals, all padded.
async fn padded(backend: Backend) -> (Server, Run, Run) {
    let server = Server::start(backend).await;
    let policy = json!({"policy": {"profile": "SUPERVISED_PR"}});
    let changed = server.run(policy.clone()).await;
    let asking = server.run_with_files(&[("Cargo.lock", "old\n")], policy).await;
    for number in 0..ROWS {
        changed.create(&format!("{number}.txt"), "text\n").await;
        let input = json!({"path": "Cargo.lock", "content": format!("{number}\n"), "reason": "test",
            "expectedSha256": sha256("old\n")});
        asking.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    }
    pad(&server).await;
    (server, changed, asking)
}

/// An item of a list. Only records have a number.
#[derive(Deserialize)]
struct Item {
    seq: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<Item>,
    next_cursor: Option<String>,
}

/// Returns the number of items on each page of a list, and the numbers of all items. Does not use `Client::get`, which
/// searches the whole answer.
async fn pages(server: &Server, path: &str) -> (Vec<usize>, Vec<Option<u64>>) {
    let (mut lengths, mut seqs, mut cursor) = (Vec::new(), Vec::new(), String::new());
    loop {
        let request = server.operator().request(Method::GET, &format!("{path}{cursor}"));
        let answer = request.send().await.unwrap().bytes().await.unwrap();
        assert!(answer.len() < (4 << 20) + 2 * PADDING, "{path}: a page of {} bytes", answer.len());
        let page: Page = serde_json::from_slice(&answer).unwrap();
        lengths.push(page.items.len());
        seqs.extend(page.items.into_iter().map(|item| item.seq));
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (lengths, seqs),
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_page_is_limited_in_bytes_and_the_next_page_continues(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, changed, asking) = padded(backend).await;
    let operator = server.operator();
    let all: Vec<_> = (1..=ROWS as u64 + 1).collect();
    for path in [
        format!("/v1/runs/{}/audit?limit=1000", changed.id),
        format!("/v1/audit?limit=1000&run={}&since=2020-01-01T00:00:00Z", changed.id),
        format!("/v1/approvals?limit=1000&run={}&state=pending", asking.id),
    ] {
        let ((lengths, seqs), growth) = server.peak_growth(pages(&server, &path)).await;
        if path.contains("audit") {
            // `run.create` is small, and shares the first page with two others.
            assert_eq!((lengths[0], &lengths[1..]), (3, &[2; ROWS / 2 - 1][..]), "{path}");
            assert_eq!(seqs.into_iter().flatten().collect::<Vec<_>>(), all, "{path}");
        } else {
            assert_eq!(lengths, [2; ROWS / 2], "{path}");
        }
        assert_growth(&path, growth, 96);
    }
    let (mut since, mut found) = (0, Vec::new());
    loop {
        let path = format!("/v1/runs/{}/changes?limit=1000&since={since}", changed.id);
        let page = operator.get(&path).await.ok();
        found.extend(page["items"].as_array().unwrap().iter().map(|change| change["seq"].as_u64().unwrap()));
        since = page["nextSince"].as_u64().unwrap();
        if page["more"] == json!(false) {
            break;
        }
    }
    assert_eq!(found, all[1..]);
}

#[rstest]
#[tokio::test]
async fn reading_all_records_of_a_run_needs_memory_for_one_page(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, changed, _) = padded(backend).await;
    let run = format!("/v1/runs/{}", changed.id);
    let stream = async || {
        let mut stream = server.operator().stream("/v1/audit/stream?since=2020-01-01T00:00:00Z", None).await;
        // A stream that is not read buffers only a small part.
        stream.chunk().await.unwrap();
        let text = changed.agent.stream(&format!("{run}/changes"), None).await.chunk().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&text).contains("event: change"));
    };
    stream().await;
    let ((), growth) = server.peak_growth(stream()).await;
    assert_growth("streams", growth, 64);
    let all = async || {
        server.operator().get(&format!("{run}/audit/verify")).await.ok();
        assert_eq!(server.operator().get("/v1/audit/export").await.status, 200);
        changed.call("list_dir", json!({"atSeq": ROWS})).await.ok();
        let undone = json!({"toSeq": 0, "reason": "test", "dryRun": true});
        changed.call("revert_calls", undone).await.refused("PATCH_BUDGET_EXCEEDED");
    };
    let ((), growth) = server.peak_growth(all()).await;
    assert_growth("whole histories", growth, 64);
}

#[rstest]
#[tokio::test]
async fn a_revert_of_many_calls_loads_no_diffs(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let budget = json!({"maxInsertions": 1_000_000, "maxDeletions": 1_000_000, "maxBytes": 100_000_000});
    let run = server.run(json!({"policy": {"budget": budget}})).await;
    let text = |number: usize| format!("{number}{}\n", "x".repeat(900_000));
    let calls = 40;
    let mut known: Option<String> = None;
    for number in 0..calls {
        let mut input = json!({"path": "a.txt", "content": text(number), "reason": "test"});
        if let Some(known) = &known {
            input["expectedSha256"] = Value::from(known.clone());
        }
        known = run.ok("write_file", input).await["newSha256"].as_str().map(str::to_owned);
    }
    let undo = |dry_run: bool| run.ok("revert_calls", json!({"toSeq": 2, "reason": "test", "dryRun": dry_run}));
    undo(true).await;
    let (undone, growth) = server.peak_growth(undo(true)).await;
    assert_eq!(undone["reverted"].as_array().unwrap().len(), calls - 1);
    assert_growth("a revert", growth, 24);
    undo(false).await;
    assert_eq!(run.on_disk("a.txt"), text(0));
}
