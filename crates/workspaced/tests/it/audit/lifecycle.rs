//! Records of operations on a run and its tokens.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, assert_chain, canonical, sha256, tar_of, until};

/// Returns the hash of a base with files of mode 644, as the contract describes it.
fn manifest_of(files: &[(&str, &str)]) -> String {
    let mut lines: Vec<_> =
        files.iter().map(|(path, content)| format!("{path}\0100644\0{}\n", sha256(content))).collect();
    lines.sort();
    sha256(lines.concat())
}

fn of_tool<'a>(records: &'a [Value], tool: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["tool"] == tool).collect()
}

#[rstest]
#[tokio::test]
async fn a_chain_begins_with_the_creation_of_its_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let files = [("b.txt", "b\n"), ("a/z.txt", "z\n"), ("a.txt", "a\n")];
    let (folder, commit) = server.repository(&files);
    let secret = format!("ghp_{}", "aB3dE5gH7j".repeat(4));
    let labels = json!({"ticket": "A-1", "note": format!("key {secret}")});
    let run = server.run(json!({"source": {"type": "git", "url": folder, "ref": "main"}, "labels": labels})).await;
    let records = run.audit().await;
    let (first, input) = (&records[0], &records[0]["input"]);
    assert_eq!((&first["seq"], &first["tool"], &first["mutates"]), (&json!(1), &json!("run.create"), &json!(false)));
    assert_eq!(first["prevHash"], "0".repeat(64));
    assert_eq!(first["actor"], input["creator"], "{first:#}");
    assert!(first["actor"].as_str().unwrap().starts_with("operator:"), "{first:#}");
    assert_eq!((&input["baseCommit"], &input["manifestSha256"]), (&json!(commit), &json!(manifest_of(&files))));
    let shown = run.get().await;
    assert_eq!(input["policy"], shown["policy"]);
    assert_eq!(input["policySha256"], sha256(canonical(&shown["policy"])));
    assert_eq!(input["labels"], json!({"ticket": "A-1", "note": "key [redacted: GitHub token]"}));
    let source = json!({"type": "git", "pathSha256": sha256(folder.to_str().unwrap()), "ref": "main"});
    assert_eq!(input["source"], source, "a run token may read it: it has no path of the service");
    assert_eq!(input["token"]["tokenId"], run.created["token"]["tokenId"]);
    assert!(!json!(records).to_string().contains(run.created["token"]["token"].as_str().unwrap()));
    assert_eq!((&run.created["run"]["headSeq"], &run.created["run"]["headHash"]), (&json!(1), &first["hash"]));
    assert_chain(&run.id, &records);

    // The same files give the same hash from every kind of source.
    let folder = server.run_with_files(&files, json!({})).await;
    assert_eq!(folder.audit().await[0]["input"]["manifestSha256"], manifest_of(&files));
    let empty = server.run(json!({})).await;
    assert_eq!(empty.audit().await[0]["input"]["manifestSha256"], sha256(""));
}

#[rstest]
#[tokio::test]
async fn the_upload_of_an_archive_records_its_manifest(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({"source": {"type": "archive"}})).await;
    let first = &run.audit().await[0];
    assert_eq!((&first["tool"], first["input"].get("manifestSha256")), (&json!("run.create"), None), "{first:#}");
    run.operator.put(&format!("/v1/runs/{}/archive", run.id), "no archive").await.refused("INVALID_REQUEST");
    assert_eq!(run.audit().await.len(), 1, "a refused archive leaves nothing");
    let tar = tar_of(&[("a.txt", b"a\n")]);
    let open = run.operator.put(&format!("/v1/runs/{}/archive", run.id), tar).await.ok();
    let records = run.audit().await;
    let import = &records[1];
    assert_eq!((records.len(), &import["tool"], &import["seq"]), (2, &json!("run.import"), &json!(2)));
    assert_eq!(import["input"]["manifestSha256"], manifest_of(&[("a.txt", "a\n")]));
    assert_eq!((&import["input"]["baseCommit"], &open["headSeq"]), (&open["baseCommit"], &json!(2)));
    assert_chain(&run.id, &records);
}

#[rstest]
#[tokio::test]
async fn tokens_closing_and_deletion_are_recorded_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let tokens = format!("/v1/runs/{}/tokens", run.id);
    let body = json!({"permissions": ["event:append", "audit:read"], "expiresAt": "2099-01-01T00:00:00Z"});
    let issued = run.operator.post(&tokens, body).await.is(201);
    let path = format!("{tokens}/{}", issued["tokenId"].as_str().unwrap());
    run.operator.delete(&path).await.is(204);
    run.operator.delete(&path).await.is(204);
    run.operator.delete(&format!("{tokens}/none-such")).await.refused("NOT_FOUND");
    run.operator.post(&tokens, json!({"permissions": []})).await.refused("INVALID_REQUEST");
    let close = format!("/v1/runs/{}/close", run.id);
    for _ in 0..2 {
        run.operator.post(&close, json!({})).await.ok();
    }
    for _ in 0..2 {
        run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
    }
    run.operator.post(&tokens, json!({})).await.refused("RUN_CLOSED");
    let records = run.audit().await;
    let tools: Vec<_> = records.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["run.create", "token.issue", "token.revoke", "run.close", "run.delete"], "{records:#?}");
    for record in &records {
        assert_eq!((&record["mutates"], &record["outcome"]), (&json!(false), &json!("ok")), "{record:#}");
        assert!(record["actor"].as_str().unwrap().starts_with("operator:"), "{record:#}");
        assert!(record["requestId"].is_string(), "{record:#}");
    }
    let input = &records[1]["input"];
    assert_eq!(input["tokenId"], issued["tokenId"]);
    assert_eq!(input["permissions"], issued["permissions"]);
    assert_eq!(input["expiresAt"], issued["expiresAt"]);
    assert_eq!(records[2]["input"], json!({"tokenId": issued["tokenId"]}));
    assert!(!json!(records).to_string().contains(issued["token"].as_str().unwrap()), "the secret is recorded");
    assert_chain(&run.id, &records);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_run_that_expires_records_its_end(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({"ttlSeconds": 1})).await;
    let closed = async || Some(run.get().await).filter(|run| run["state"] == "closed");
    let shown = until("the run is closed", closed).await;
    let records = run.audit().await;
    let closed = of_tool(&records, "run.close");
    assert_eq!(closed.len(), 1, "{records:#?}");
    assert_eq!((&closed[0]["actor"], &closed[0]["input"]["cause"]), (&json!("service"), &json!("expiry")));
    assert_eq!((&shown["headSeq"], &shown["headHash"]), (&closed[0]["seq"], &closed[0]["hash"]));
    assert_eq!(closed[0].get("requestId"), None, "no request has closed it");
}
