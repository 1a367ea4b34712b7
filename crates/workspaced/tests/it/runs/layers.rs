//! Layers: what has changed in a run after a record.

use std::collections::BTreeMap;
use std::io::Read as _;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, sha256};

/// An entry of a layer: its content, mode and time in seconds.
type Entry = (String, u32, u64);

async fn layer(run: &Run, since: u64) -> Answer {
    let answer = run.agent.get(&format!("/v1/runs/{}/archive?since={since}", run.id)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/x-tar");
    answer
}

fn entries(tar: impl std::io::Read) -> BTreeMap<String, Entry> {
    let mut tar = tar::Archive::new(tar);
    let mut entries = BTreeMap::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let (mode, time) = (entry.header().mode().unwrap(), entry.header().mtime().unwrap());
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        entries.insert(path, (text, mode, time));
    }
    entries
}

fn seq_of(answer: &Answer) -> u64 {
    answer.header("workspaced-seq").parse().unwrap()
}

fn seconds(record: &Value) -> u64 {
    let time: jiff::Timestamp = record["timestamp"].as_str().unwrap().parse().unwrap();
    u64::try_from(time.as_second()).unwrap()
}

#[rstest]
#[tokio::test]
async fn a_layer_has_what_changed_after_a_record(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("a.txt", "a\n"), ("b/b.txt", "b\n"), ("b/same.txt", "s\n"), ("gone.txt", "g\n")];
    let (_, run) = Run::shared(backend, &files).await;
    let whole = run.agent.get(&format!("/v1/runs/{}/archive", run.id)).await;
    assert_eq!(whole.header("content-type"), "application/gzip");
    let start = seq_of(&whole);
    run.replace("a.txt", "early\n", &sha256("a\n")).await.ok();
    let since = seq_of(&layer(&run, start).await);
    run.replace("b/b.txt", "b2\n", &sha256("b\n")).await.ok();
    run.ok("move_file", json!({"from": "gone.txt", "to": "n/new.txt", "expectedSha256": sha256("g\n"), "reason": "r"}))
        .await;
    let written = run.last_record().await;

    let answer = layer(&run, since).await;
    assert_eq!(seq_of(&answer), written["seq"].as_u64().unwrap(), "the state that the layer leads to");
    assert_eq!(answer.header("workspaced-head-hash"), written["hash"].as_str().unwrap());
    assert_eq!(answer.header("workspaced-left-out"), "0");
    let found = entries(&answer.body[..]);
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, [".wh.gone.txt", "b/b.txt", "n/new.txt"]);
    assert_eq!(found["b/b.txt"].0, "b2\n");
    assert_eq!(found["n/new.txt"], ("g\n".to_owned(), 0o644, seconds(&written)));
    let record = run.last_record().await;
    assert_eq!((&record["tool"], &record["pathsRead"]), (&json!("archive"), &json!(["."])), "one read");

    // All of it, and nothing.
    let all = entries(&layer(&run, 0).await.body[..]);
    assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), [".wh.gone.txt", "a.txt", "b/b.txt", "n/new.txt"]);
    let head = run.last_record().await["seq"].as_u64().unwrap();
    assert!(entries(&layer(&run, head).await.body[..]).is_empty());
    let ahead = run.agent.get(&format!("/v1/runs/{}/archive?since={}", run.id, head + 1000)).await;
    ahead.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn a_layer_leaves_out_what_an_archive_does_and_says_how_much(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[("a.txt", "a\n"), ("script.sh", "#!/bin/sh\n")]).await;
    run.create("notes.txt", "n\n").await;
    // A key that nobody wrote by a call.
    run.put("notes.txt", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    run.put(".env", "A=1\n");
    let answer = layer(&run, 0).await;
    assert_eq!(answer.header("workspaced-left-out"), "1", "of the paths that calls have written");
    assert!(entries(&answer.body[..]).is_empty());
    let whole = run.agent.get(&format!("/v1/runs/{}/archive", run.id)).await;
    assert_eq!(whole.header("workspaced-left-out"), "2", ".env by its name, the key by its content");
    assert_eq!(whole.header("workspaced-left-out-paths"), "%2Eenv,notes%2Etxt");
}

#[rstest]
#[tokio::test]
async fn a_layer_is_compressed_as_its_reader_prefers(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[]).await;
    run.create("long.txt", &"the same line\n".repeat(700)).await;
    let url = format!("/v1/runs/{}/archive?since=0", run.id);
    for encoding in ["zstd", "gzip"] {
        let request = run.agent.request(reqwest::Method::GET, &url).header("Accept-Encoding", encoding);
        let answer = run.agent.send(request).await;
        assert_eq!(answer.header("content-encoding"), encoding);
        let bytes = answer.body;
        assert!(bytes.len() < 4000, "{} bytes", bytes.len());
        let tar: Box<dyn std::io::Read> = match encoding {
            "zstd" => Box::new(zstd::stream::read::Decoder::new(&bytes[..]).unwrap()),
            _ => Box::new(flate2::read::GzDecoder::new(&bytes[..])),
        };
        assert_eq!(entries(tar)["long.txt"].0.lines().count(), 700);
    }
}

#[rstest]
#[tokio::test]
async fn a_whole_tree_is_a_tar_where_its_reader_asks_for_one(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[("a.txt", "a\n"), ("d/long.txt", &"the same line\n".repeat(700))]).await;
    let url = format!("/v1/runs/{}/archive", run.id);
    let get = async |accept: &str, encoding: &str| {
        let request = run.agent.request(reqwest::Method::GET, &url).header("Accept", accept);
        let answer = run.agent.send(request.header("Accept-Encoding", encoding)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(seq_of(&answer) > 0 && answer.headers.contains_key("workspaced-head-hash"));
        answer
    };
    let gzip = get("*/*", "zstd").await;
    assert_eq!(
        (gzip.header("content-type"), gzip.headers.contains_key("content-encoding")),
        ("application/gzip", false)
    );
    let expected = entries(flate2::read::GzDecoder::new(&gzip.body[..]));
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["a.txt", "d/", "d/long.txt"]);
    for accept in ["application/x-tar", "text/html, application/x-tar;q=0.9"] {
        let tar = get(accept, "identity").await;
        assert_eq!(tar.header("content-type"), "application/x-tar");
        assert_eq!(entries(&tar.body[..]), expected);
        let packed = get(accept, "zstd").await;
        assert_eq!(packed.header("content-encoding"), "zstd");
        assert_eq!(entries(zstd::stream::read::Decoder::new(&packed.body[..]).unwrap()), expected);
    }
}

#[rstest]
#[tokio::test]
async fn no_new_name_can_be_taken_for_a_deletion(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[]).await;
    for path in [".wh.a.txt", "d/.wh..wh..opq/a.txt"] {
        run.call("write_file", json!({"path": path, "content": "x\n", "reason": "r"})).await.refused("PATH_REJECTED");
    }
}
