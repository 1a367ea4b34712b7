//! Keys of secret files of settings, under the decision `REDACT`.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, sha256};

const SECRET: &str = "zq-secret-value-4711";

fn files() -> Vec<(String, String)> {
    let file = |path: &str, text: String| (path.to_owned(), text);
    vec![
        file(".env", format!("# {SECRET}\nTOKEN={SECRET}\nKEY=\"{SECRET}\nX={SECRET}\"\n")),
        file("secrets.yml", format!("db:\n  pass: {SECRET}\n  pem: |\n    {SECRET}\n")),
        file("credentials.json", format!("{{\"a\": {{\"b\": [\"{SECRET}\"]}}}}")),
        file("application-prod.properties", format!("db.pass={SECRET}\n")),
        file("id_rsa", format!("{SECRET}\n")),
        file("a.txt", "a\n".to_owned()),
    ]
}

async fn run(backend: Backend, kinds: Value) -> Run {
    let files = files();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    Run::shared_with(backend, &files, json!({"policy": {"kinds": kinds}})).await.1
}

#[rstest]
#[tokio::test]
async fn the_keys_are_shown_without_values(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run(backend, json!({"SECRET_LIKE": "REDACT"})).await;
    let read = run.call("read_file", json!({"path": ".env", "format": "raw"})).await.ok();
    assert_eq!(read["content"], "[redacted]\nTOKEN=[redacted]\nKEY=[redacted]\n[redacted]\n");
    assert_eq!((&read["redacted"], read.get("sha256"), &read["totalLines"]), (&json!(true), None, &json!(4)));
    let record = run.last_record().await;
    assert_eq!((record["files"][0].get("newSha256"), record["files"][0].get("oldSha256")), (None, None), "{record:#}");
    assert_eq!(record["reasons"], json!(["redacted: .env"]));
    let paths = ["secrets.yml", "credentials.json", "id_rsa", "a.txt"];
    let read = run.call("read_files", json!({"paths": paths})).await.ok();
    let file = |path: &str| read["files"][path].clone();
    assert_eq!(file("secrets.yml")["content"], "db:\n  pass: [redacted]\n  pem: [redacted]\n");
    assert_eq!(file("credentials.json")["content"], "{\n  \"a\": {\n    \"b\": \"[redacted]\"\n  }\n}\n");
    for path in ["secrets.yml", "credentials.json"] {
        let file = file(path);
        assert_eq!((&file["redacted"], file.get("sha256"), file.get("sizeBytes")), (&json!(true), None, None));
    }
    assert_eq!(file("id_rsa")["status"], "POLICY_DENIED_SECRET");
    assert_eq!((file("a.txt").get("redacted"), &file("a.txt")["sha256"]), (None, &json!(sha256("a\n"))));
    let text = run.text("read_file", json!({"path": "application-prod.properties"})).await;
    assert_eq!(text.text(), "1  db.pass=[redacted]\n");
    assert_eq!(text.header("workspaced-sha256"), "");
}

#[rstest]
#[tokio::test]
async fn no_other_call_shows_anything(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run(backend, json!({"SECRET_LIKE": "REDACT"})).await;
    let listed = run.call("list_dir", json!({"includeHidden": true})).await.ok();
    for entry in listed["entries"].as_array().unwrap() {
        let is_redacted = ["a.txt", "id_rsa"].iter().all(|path| entry["path"] != *path);
        assert_eq!(entry.get("redacted"), is_redacted.then_some(&json!(true)), "{entry:#}");
        assert_eq!(entry["readable"], entry["path"] == "a.txt", "{entry:#}");
    }
    let stat = run.call("stat_path", json!({"path": ".env"})).await.ok();
    assert_eq!((&stat["redacted"], &stat["readable"], stat.get("sha256")), (&json!(true), &json!(false), None));
    let text = run.text("list_dir", json!({"includeHidden": true})).await.text();
    assert!(text.contains(".env [secret, keys only]\n") && text.contains("id_rsa [secret]\n"), "{text}");
    let found = run.call("search_text", json!({"query": "TOKEN"})).await.ok();
    assert_eq!(found["matches"], json!([]), "{found:#}");
    let guess = &files()[0].1;
    for (tool, input) in [
        ("write_file", json!({"path": ".env", "content": "A=1\n", "expectedSha256": sha256(guess), "reason": "r"})),
        ("edit_file", json!({"path": ".env", "oldString": "TOKEN", "newString": "x", "reason": "r"})),
        ("edit_file", json!({"path": ".env", "oldString": SECRET, "newString": "x", "reason": "r"})),
        ("delete_file", json!({"path": ".env", "expectedSha256": sha256(guess), "reason": "r"})),
        ("move_file", json!({"from": ".env", "to": "b.txt", "expectedSha256": sha256(guess), "reason": "r"})),
        ("read_file", json!({"path": "id_rsa"})),
        ("read_file", json!({"path": ".env.missing"})),
    ] {
        let refused = run.call(tool, input).await;
        refused.refused("POLICY_DENIED_SECRET");
        assert!(!refused.contains(SECRET), "{tool}: {}", refused.text());
    }
    run.agent.get(&format!("/v1/runs/{}/files/.env", run.id)).await.refused("POLICY_DENIED_SECRET");
    run.put(".env", format!("TOKEN={SECRET}\nNEW={SECRET}\n").as_bytes());
    let diff = run.call("diff_workspace", json!({})).await;
    assert!(!diff.contains(SECRET) && !diff.contains("TOKEN"), "{}", diff.text());
}

#[rstest]
#[tokio::test]
async fn other_rules_and_other_kinds_are_as_before(#[values(Backend::Sqlite)] backend: Backend) {
    let plain = run(backend, json!({})).await;
    plain.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    assert_eq!(plain.call("stat_path", json!({"path": ".env"})).await.ok().get("redacted"), None);
    let policy = json!({"kinds": {"SECRET_LIKE": "REDACT"}, "deny": [".env"]});
    let (server, denied) = Run::shared_with(backend, &[(".env", "A=1\n")], json!({"policy": policy})).await;
    denied.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    for (kind, decision, hint) in [
        ("TEXT_CONFIG", "REDACT", "ALLOW, REQUIRE_APPROVAL, DENY"),
        ("VENDORED", "REQUIRE_EVIDENCE", "ALLOW, REQUIRE_APPROVAL, DENY"),
        ("SECRET_LIKE", "ALLOW", "DENY, REDACT"),
        ("SECRET_LIKE", "REQUIRE_EVIDENCE", "DENY, REDACT"),
        ("LOCKFILE", "REDACT", "ALLOW, REQUIRE_EVIDENCE, REQUIRE_APPROVAL, DENY"),
    ] {
        refuses(&server, kind, decision, hint).await;
    }
    refuses(&server, "GIT_INTERNAL", "REDACT", "Remove it").await;
}

async fn refuses(server: &Server, kind: &str, decision: &str, hint: &str) {
    let body = json!({"source": {"type": "empty"}, "policy": {"kinds": {kind: decision}}});
    let refused = server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    assert!(refused["hint"].as_str().unwrap().contains(hint), "{refused:#}");
}
