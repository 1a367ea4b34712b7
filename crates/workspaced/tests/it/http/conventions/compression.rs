//! Responses compressed by `Accept-Encoding`, and those that never are.

use std::io::Read as _;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server};

async fn get(client: &Client, path: &str, encodings: &str) -> Answer {
    client.send(client.request(Method::GET, path).header("accept-encoding", encodings)).await
}

/// Returns the decoded body of a gzip answer.
#[track_caller]
fn gunzip(answer: &Answer) -> Vec<u8> {
    assert_eq!((answer.status, answer.header("content-encoding")), (200, "gzip"), "{}", answer.what);
    let mut decoded = Vec::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut decoded).unwrap();
    decoded
}

fn varies(answer: &Answer) -> bool {
    answer.headers.get_all("vary").iter().any(|vary| vary.to_str().unwrap().contains("accept-encoding"))
}

#[rstest]
#[tokio::test]
async fn documents_lists_diffs_and_exports_are_compressed(#[values(Backend::Sqlite)] backend: Backend) {
    let files: Vec<_> = (0..200).map(|number| format!("folder/file-{number:03}.txt")).collect();
    let files: Vec<_> = files.iter().map(|path| (path.as_str(), "text\n")).collect();
    let (server, run) = Run::shared(backend, &files).await;
    run.create("new.txt", &"line\n".repeat(700)).await;
    for _ in 0..5 {
        run.ok("list_dir", json!({})).await;
    }
    let nobody = server.nobody();
    for (client, path) in [
        (&nobody, "/openapi.json".to_owned()),
        (&nobody, "/docs/".to_owned()),
        (&run.agent, "/v1/tools".to_owned()),
        (&run.operator, format!("/v1/runs/{}", run.id)),
        (&run.operator, format!("/v1/runs/{}/audit", run.id)),
        (&run.agent, format!("/v1/runs/{}/patch", run.id)),
    ] {
        let mut client = client.clone();
        client.files_contain_local_paths = true;
        let client = &client;
        let plain = get(client, &path, "identity").await;
        assert_eq!((plain.status, plain.header("content-encoding")), (200, ""), "{path}");
        assert!(varies(&plain), "{path}");
        let gzip = get(client, &path, "gzip").await;
        assert!(varies(&gzip) && gzip.body.len() < plain.body.len(), "{path}");
        let decoded = gunzip(&gzip);
        if !path.ends_with("/audit") {
            assert!(decoded == plain.body, "{path}: another text");
        }
        let zstd = get(client, &path, "gzip;q=0.5, zstd").await;
        assert_eq!(zstd.header("content-encoding"), "zstd", "{path}");
        assert_eq!(zstd.body[..4], [0x28, 0xb5, 0x2f, 0xfd], "{path}");
        assert_eq!(get(client, &path, "br, gzip;q=0").await.header("content-encoding"), "", "{path}");
        assert_eq!(client.get(&path).await.header("content-encoding"), "", "{path}");
    }
    for (tool, member) in [("list_dir", "entries"), ("diff_workspace", "diff")] {
        let request = run.agent.request(Method::POST, &format!("/v1/runs/{}/tools/{tool}", run.id));
        let answer = run.agent.send(request.header("accept-encoding", "gzip").json(&json!({}))).await;
        let decoded: Value = serde_json::from_slice(&gunzip(&answer)).unwrap();
        assert!(decoded[member].to_string().len() > 1024, "{decoded:#}");
    }
}

#[rstest]
#[tokio::test]
async fn files_archives_streams_and_small_answers_are_sent_as_they_are(#[values(Backend::Sqlite)] backend: Backend) {
    let text = "line\n".repeat(1000);
    let server = Server::shared(backend).await;
    let (run, _) = server.run_from_git(&[("a.txt", &text)], json!({})).await;
    let all = "gzip, zstd";
    let file = get(&run.agent, &format!("/v1/runs/{}/files/a.txt", run.id), all).await;
    assert_eq!((file.text(), file.header("content-encoding")), (text.clone(), ""));
    assert_eq!(file.header("etag"), format!("\"{}\"", crate::harness::sha256(&text)));
    assert_eq!((file.header("accept-ranges"), file.header("content-length")), ("bytes", "5000"));
    assert!(!varies(&file));
    let part =
        run.agent.request(Method::GET, &format!("/v1/runs/{}/files/a.txt", run.id)).header("range", "bytes=0-1999");
    let part = run.agent.send(part.header("accept-encoding", all)).await;
    assert_eq!((part.status, part.body.len(), part.header("content-encoding")), (206, 2000, ""));
    let archive = get(&run.agent, &format!("/v1/runs/{}/archive", run.id), all).await;
    assert_eq!((archive.header("content-type"), archive.header("content-encoding")), ("application/gzip", ""));
    let bundle = get(&run.agent, &format!("/v1/runs/{}/bundle", run.id), all).await;
    assert_eq!((bundle.status, bundle.header("content-encoding")), (200, ""));
    let small = get(&server.nobody(), "/healthz", all).await;
    assert_eq!((small.ok()["ok"].clone(), small.header("content-encoding")), (json!(true), ""));
    let stream = run.operator.request(Method::GET, &format!("/v1/audit/stream?run={}", run.id));
    let stream = stream.header("accept-encoding", all).send().await.unwrap();
    assert!(stream.status() == 200 && !stream.headers().contains_key("content-encoding"));
}

#[rstest]
#[tokio::test]
async fn the_catalogue_is_known_by_its_etag_in_each_encoding(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let known = async |etag: &str, encoding: &str| {
        let request = run.agent.request(Method::GET, "/v1/tools").header("if-none-match", etag);
        let answer = run.agent.send(request.header("accept-encoding", encoding)).await;
        assert_eq!(answer.body.is_empty(), answer.status == 304, "{etag}");
        answer.status == 304
    };
    let strong = get(&run.agent, "/v1/tools", "identity").await.header("etag").to_owned();
    for encoding in ["identity", "gzip", "zstd"] {
        // A compressed answer has a weak one.
        let etag = get(&run.agent, "/v1/tools", encoding).await.header("etag").to_owned();
        for list in [&etag, &strong, &format!("W/{strong}"), &format!("\"other\", {etag}"), "*"] {
            assert!(known(list, encoding).await, "{encoding}: {list}");
        }
        assert!(!known("\"other\"", encoding).await);
    }
    let model = get(&run.agent, "/v1/tools?audience=model", "identity").await;
    assert_ne!(model.header("etag"), strong);
}
