//! No value of a redacted file of settings, and no hash of it, is part of any answer: of no tool, and of no other route.

use std::collections::BTreeSet;
use std::sync::Arc;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server, git, names_in, put, sha256};

/// In every secret file, on every line with a value.
const VALUE: &str = "zq-value-4711";
/// The value in files that were changed on the disk.
const CHANGED: &str = "zq-changed-4712";
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The secret files with keys that can be shown.
fn settings(value: &str) -> Vec<(&'static str, String)> {
    vec![
        (".env", format!("# {value}\nTOKEN={value}\nexport KEY=\"{value}\nX={value}\"\n")),
        ("sub/.env.local", format!("A={value}\\\nB={value}\nC='{value}'\n")),
        ("secrets.yml", format!("db: # {value}\n  pass: {value}\n  pem: |\n    {value}\n  list:\n    - {value}\n")),
        ("credentials.json", format!("{{\"a\": {{\"b\": [\"{value}\"], \"c\": \"{value}\"}}, \"{value} x\": 1}}\n")),
        (".env.toml", format!("a = \"{value}\" # {value}\n[b]\nc = '''\n{value}\n'''\n\"{value} x\" = 1\n")),
        ("application-prod.properties", format!("db.pass={value}\\\n  {value}\ndb.user: {value}\n")),
    ]
}

fn files(value: &str) -> Vec<(&'static str, String)> {
    let others = [("id_rsa", format!("{value}\n")), ("a.txt", "a\n".to_owned()), ("src/b.rs", "b\n".to_owned())];
    settings(value).into_iter().chain(others).collect()
}

/// What no answer may contain.
fn markers() -> Vec<String> {
    let hashes = [VALUE, CHANGED].into_iter().flat_map(settings).map(|(_, text)| sha256(text));
    [VALUE, CHANGED].map(str::to_owned).into_iter().chain(hashes).collect()
}

#[track_caller]
fn check(answer: &Answer, markers: &[String]) {
    assert!(answer.status < 500, "{}: {}", answer.what, answer.text());
    for marker in markers {
        assert!(!answer.contains(marker), "{} has {marker}: {}", answer.what, answer.text());
    }
}

async fn start(backend: Backend) -> (Arc<Server>, Run) {
    let server = Server::shared(backend).await;
    let files = files(VALUE);
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let policy = json!({"kinds": {"SECRET_LIKE": "REDACT"}});
    let mounts = json!([{"name": "docs", "description": "Settings", "path": server.template(&files)}]);
    let run = server.run_with_files(&files, json!({"policy": policy, "mounts": mounts})).await;
    (server, run)
}

/// The calls of every tool on `path`, at the last record `seq`.
fn calls(path: &str, seq: u64) -> Vec<(&'static str, Value)> {
    let patch = format!("--- a/{path}\n+++ b/{path}\n@@ -1,2 +1,2 @@\n TOKEN=guess\n-KEY=guess\n+KEY=x\n");
    let edit = json!({"path": path, "oldString": "TOKEN=zq-", "newString": "x", "reason": "r"});
    let write =
        json!({"path": path, "content": "A=1\n", "expectedSha256": NO_HASH, "onConflict": "merge", "reason": "r"});
    vec![
        ("read_file", json!({"path": path})),
        ("read_file", json!({"path": path, "format": "raw", "startLine": 2, "maxLines": 1})),
        ("read_file", json!({"path": path, "atSeq": seq})),
        ("read_file", json!({"path": path, "atSeq": 1})),
        ("read_file", json!({"path": path, "mount": "docs"})),
        ("read_files", json!({"paths": [path, "a.txt"]})),
        ("read_files", json!({"paths": [path], "mount": "docs"})),
        ("stat_path", json!({"path": path})),
        ("stat_path", json!({"path": path, "mount": "docs"})),
        ("list_dir", json!({"path": path})),
        ("search_text", json!({"query": "4711", "path": path})),
        ("write_file", write.clone()),
        ("write_file", json!({"path": path, "content": "A=1\n", "mode": "CREATE_NEW", "reason": "r"})),
        ("edit_file", edit.clone()),
        (
            "replace_range",
            json!({"path": path, "startLine": 1, "endLine": 1, "content": "x", "expectedSha256": NO_HASH,
            "reason": "r"}),
        ),
        ("apply_patch", json!({"patch": patch, "reason": "r"})),
        ("apply_patch", json!({"patch": patch, "dryRun": true, "reason": "r"})),
        ("delete_file", json!({"path": path, "expectedSha256": NO_HASH, "reason": "r"})),
        ("move_file", json!({"from": path, "to": "moved.txt", "expectedSha256": NO_HASH, "reason": "r"})),
        ("move_file", json!({"from": "a.txt", "to": path, "expectedSha256": sha256("a\n"), "reason": "r"})),
        ("diff_workspace", json!({"path": path})),
    ]
}

/// The calls on the whole tree.
fn calls_on_all(seq: u64) -> Vec<(&'static str, Value)> {
    vec![
        ("list_dir", json!({"includeHidden": true, "maxDepth": 5})),
        ("list_dir", json!({"includeHidden": true, "atSeq": seq})),
        ("list_dir", json!({"includeHidden": true, "mount": "docs"})),
        ("find_files", json!({"glob": ["**"]})),
        ("find_files", json!({"glob": ["**/.env*", "*.yml"]})),
        ("search_text", json!({"query": "zq-"})),
        ("search_text", json!({"query": "v[a]lue-4711", "mode": "regex", "contextLines": 2})),
        ("search_text", json!({"query": "zq-", "mount": "docs"})),
        ("tree_stats", json!({})),
        ("diff_workspace", json!({})),
        ("diff_workspace", json!({"checkTree": true})),
        ("diff_workspace", json!({"atSeq": seq})),
        ("revert_calls", json!({"toSeq": 1, "dryRun": true, "reason": "r"})),
    ]
}

/// Makes a call by its route; `in_all_forms` also for a model, and by MCP.
async fn call(client: &Client, run: &Run, (tool, input): (&str, Value), in_all_forms: bool, markers: &[String]) {
    let path = format!("/v1/runs/{}/tools/{tool}", run.id);
    let answer = client.post(&path, input.clone()).await;
    assert!(!answer.contains("INVALID_REQUEST"), "{tool} {input}: {}", answer.text());
    check(&answer, markers);
    if in_all_forms {
        let text = client.request(Method::POST, &path).header("accept", "text/plain").json(&input);
        check(&client.send(text).await, markers);
        mcp(client, "tools/call", json!({"name": tool, "arguments": input}), markers).await;
    }
}

async fn mcp(client: &Client, method: &str, params: Value, markers: &[String]) -> Answer {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let request = client.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    let answer = client.send(request.header("mcp-protocol-version", "2025-06-18").json(&body)).await;
    check(&answer, markers);
    answer
}

/// The routes that show something of a run, besides those of files.
async fn routes(run: &Run) -> Vec<String> {
    let id = &run.id;
    let mut routes: Vec<_> = [
        "",
        "/audit?limit=1000",
        "/audit/verify",
        "/changes",
        "/drift",
        "/report",
        "/report?format=markdown",
        "/patch",
    ]
    .map(|route| format!("/v1/runs/{id}{route}"))
    .into();
    // All records are in the audit; their calls are asked for once for each tool and outcome.
    let mut seen = BTreeSet::new();
    for record in run.audit().await {
        if !seen.insert(format!("{} {} {}", record["tool"], record["outcome"], record["code"])) {
            continue;
        }
        routes.push(format!("/v1/runs/{id}/tool-calls/{}", record["toolCallId"].as_str().unwrap()));
        let uris = record["artifactUris"].as_array().into_iter().flatten();
        let ids = uris.map(|uri| uri.as_str().unwrap().rsplit_once('/').unwrap().1.to_owned());
        routes.extend(ids.map(|artifact| format!("/v1/runs/{id}/artifacts/{artifact}")));
    }
    routes.extend([format!("/v1/audit?run={id}&limit=1000"), format!("/v1/approvals?run={id}")]);
    routes
}

#[rstest]
#[case::of_some_files(&[".env", "secrets.yml", "id_rsa"])]
#[case::exhaustive(
    &["sub/.env.local", "credentials.json", ".env.toml", "application-prod.properties", "alias.txt", ".env.missing"]
)]
#[tokio::test]
async fn no_answer_contains_a_value(#[case] paths: &[&str]) {
    let (server, run) = start(Backend::Sqlite).await;
    let markers = markers();
    let (_, auditor) = server.named_operator("auditor", &["audit"]).await;
    let (_, approver) = server.named_operator("approver", &["approve"]).await;
    run.link("alias.txt", ".env");
    // A recorded change, a call that waits for approval, and changes on the disk that the service has not made.
    run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    run.call("write_file", json!({"path": "Cargo.lock", "content": "l\n", "reason": "r"}))
        .await
        .refused("APPROVAL_REQUIRED");
    for round in 0..2 {
        let seq = run.last_record().await["seq"].as_u64().unwrap();
        for path in paths {
            for made in calls(path, seq) {
                call(&run.agent, &run, made, *path == ".env", &markers).await;
            }
            let file = format!("/v1/runs/{}/files/{path}", run.id);
            for client in [&run.agent, &run.operator, &auditor] {
                check(&client.get(&file).await, &markers);
                check(&client.send(client.request(Method::GET, &file).header("range", "bytes=2-30")).await, &markers);
                check(
                    &client.post(&format!("/v1/runs/{}/tools/read_file", run.id), json!({"path": path})).await,
                    &markers,
                );
            }
            let delete = run.agent.request(Method::DELETE, &file).header("if-match", format!("\"{NO_HASH}\""));
            check(&run.agent.send(delete.header("x-reason", "r")).await, &markers);
            let explain = json!({"path": path});
            check(&run.agent.post(&format!("/v1/runs/{}/policy/explain", run.id), explain).await, &markers);
            let edit = json!({"path": path, "oldString": "TOKEN=zq-", "newString": "x", "reason": "r"});
            check(&run.batch(json!([{"tool": "edit_file", "input": edit}])).await, &markers);
            let uri = format!("workspace:///{path}");
            mcp(&run.agent, "resources/read", json!({"uri": uri}), &markers).await;
        }
        for made in calls_on_all(seq) {
            call(&run.agent, &run, made, true, &markers).await;
        }
        mcp(&run.agent, "resources/list", json!({}), &markers).await;
        for route in routes(&run).await {
            for client in [&run.agent, &run.operator, &auditor, &approver] {
                check(&client.get(&route).await, &markers);
            }
        }
        for (path, text) in settings(CHANGED).iter().filter(|_| round == 0) {
            run.put(path, text);
        }
    }
    let read = run.ok("read_file", json!({"path": "alias.txt", "format": "raw"})).await;
    assert!(
        read["content"].as_str().unwrap().contains("TOKEN=[redacted]"),
        "the link leads to a redacted file: {read:#}"
    );
}

#[rstest]
#[tokio::test]
async fn no_export_contains_a_redacted_file(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = start(backend).await;
    run.create("n.txt", "n\n").await;
    for (path, text) in settings(CHANGED) {
        run.put(path, text);
    }
    for client in [&run.agent, &run.operator] {
        let archive = client.get(&format!("/v1/runs/{}/archive", run.id)).await;
        assert_eq!(archive.status, 200, "{}", archive.text());
        let mut names = names_in(&archive.body);
        names.retain(|name| !name.ends_with('/') && !name.is_empty());
        names.sort();
        assert_eq!(names, ["a.txt", "n.txt", "src/b.rs"]);
        let patch = client.get(&format!("/v1/runs/{}/patch", run.id)).await;
        assert_eq!(patch.status, 200, "{}", patch.text());
        assert!(patch.text().contains("n.txt") && !patch.text().contains("zq-"), "{}", patch.text());
    }
}

#[rstest]
#[tokio::test]
async fn a_bundle_of_a_git_run_adds_no_redacted_file(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let files = files(VALUE);
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let (folder, _) = server.repository(&files);
    let policy = json!({"kinds": {"SECRET_LIKE": "REDACT"}});
    let run = server.run(json!({"source": {"type": "git", "url": folder}, "policy": policy})).await;
    run.create("n.txt", "n\n").await;
    for (path, text) in settings(CHANGED) {
        run.put(path, text);
    }
    let bundle = run.agent.get(&format!("/v1/runs/{}/bundle", run.id)).await;
    assert_eq!(bundle.status, 200, "{}", bundle.text());
    // The base, without its secret files, is what a receiver has: the objects of the bundle are searched beside it.
    put(&folder, "run.bundle", &bundle.body);
    git(
        &folder,
        &["fetch", "-q", folder.join("run.bundle").to_str().unwrap(), &format!("workspaced/{}:agent", run.id)],
    );
    let all = git(&folder, &["cat-file", "--batch-all-objects", "--batch"]);
    assert!(all.contains("n.txt") && !all.contains(CHANGED), "{all}");
    assert_eq!(git(&folder, &["diff", "--name-only", "agent^", "agent"]), "n.txt");
}
