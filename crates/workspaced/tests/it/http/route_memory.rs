//! The memory cost of the most expensive request that each route of the API document accepts.

use std::collections::BTreeSet;

use reqwest::{Method, RequestBuilder};
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Setup, assert_growth, gzip, put, sha256, tar_of};

const MIB: usize = 1 << 20;
const DOCUMENT: &str = include_str!("../../../../../openapi/workspaced.json");
const EXPORTS: &str = include_str!("../runs/exports.rs");
const MEMORY: &str = include_str!("memory_limits.rs");
const PAGES: &str = include_str!("page_limits.rs");
const UPLOADS: &str = include_str!("../files/large_uploads.rs");

/// Routes that other tests measure: the source, the test, and the limit that it asserts.
const ELSEWHERE: [(&str, &str, &str, &str); 10] = [
    ("get /v1/runs/{run}/bundle", EXPORTS, "a_patch_is_streamed_in_constant_memory", "80"),
    ("get /v1/runs/{run}/patch", EXPORTS, "a_patch_is_streamed_in_constant_memory", "80"),
    ("put /v1/runs/{run}/files/{path}", UPLOADS, LARGE_FILE, "24"),
    ("get /v1/runs/{run}/files/{path}", UPLOADS, LARGE_FILE, "24"),
    ("delete /v1/runs/{run}/files/{path}", UPLOADS, LARGE_FILE, "16"),
    ("post /v1/runs/{run}/batch", MEMORY, "a_batch_loads_no_more_content_than_the_limit_of_a_call", "160"),
    ("get /v1/audit", PAGES, "a_page_is_limited_in_bytes_and_the_next_page_continues", "96"),
    ("get /v1/audit/stream", PAGES, HISTORIES, "64"),
    ("get /v1/audit/export", PAGES, HISTORIES, "64"),
    ("get /v1/runs/{run}/audit/verify", PAGES, HISTORIES, "64"),
];
const LARGE_FILE: &str = "a_large_file_is_transferred_in_little_memory";
const HISTORIES: &str = "reading_all_records_of_a_run_needs_memory_for_one_page";

/// A webhook that nobody answers.
const WEBHOOK: &str = "[[webhook]]\nname = \"hook\"\nurl = \"http://127.0.0.1:9/\"\nsecret_env = \"SECRET\"\n";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// More deliveries than a page has, which do not become old during a long test.
const DELIVERIES: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
    INSERT INTO webhook_delivery (webhook, message_id, event_type, run_id, body, state, attempts, last_error, \
    next_attempt_at, created_at) SELECT 'hook', 'msg_' || i, 'run.closed', 'r', '{}', 'delivered', 1, 'an error', \
    '2026-01-01T00:00:00.000000Z', '2099-01-01T00:00:00.000000Z' FROM n";

/// Number of files that every search and listing visits.
const FILES: usize = 3_000;

/// Number of tokens of the run, which are one page.
const TOKENS: usize = 300;

/// A request, its documented route, and the maximum growth of memory.
struct MeasuredRequest {
    route: &'static str,
    request: RequestBuilder,
    status: u16,
    most_mib: u64,
}

fn documented() -> BTreeSet<String> {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let routes = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.filter(|method| *method != "parameters").map(move |method| format!("{method} {path}"))
    });
    routes.collect()
}

fn long_name(number: usize) -> String {
    format!("{}/{}/{number}-{}.txt", "d".repeat(200), "e".repeat(200), "n".repeat(200))
}

/// Creates a run with many long names, a text of the largest size that is searched, changes and approvals.
async fn fill(server: &Server) -> Run {
    let policy = json!({"budget": {"maxFilesTouched": 100, "maxInsertions": 1_000_000, "maxDeletions": 1_000_000,
        "maxFilesDeleted": 100, "maxBytes": 100_000_000}, "quota": {"pendingApprovals": 1_000}});
    let run = server.run(json!({"policy": policy})).await;
    for number in 0..FILES {
        run.put(&long_name(number), "needle in a line\n");
    }
    run.put("large.txt", "a needle in one of many lines of this text\n".repeat(16 * MIB / 43));
    for number in 0..8 {
        run.create(&format!("changed/{number}.txt"), &"a line of a changed text\n".repeat(MIB / 26)).await;
    }
    for number in 0..8 {
        let content = "a line of a lock file\n".repeat(MIB / 23);
        let input = json!({"path": format!("w{number}/yarn.lock"), "content": content, "reason": "r"});
        run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    }
    for _ in 0..TOKENS {
        run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    }
    run
}

fn of_run(run: &Run, route: &'static str, body: &Value, most_mib: u64) -> MeasuredRequest {
    let (method, path) = route.split_once(' ').unwrap();
    let path = path.replace("{run}", &run.id);
    let request = run.operator.request(method.to_uppercase().parse().unwrap(), &path);
    let request = if body.is_null() { request } else { request.json(body) };
    MeasuredRequest { route, request, status: 200, most_mib }
}

fn tool_calls(run: &Run) -> Vec<MeasuredRequest> {
    let content = "x".repeat(MIB - 1) + "\n";
    let most = json!(1_000_000);
    let changed = |number: usize| format!("changed/{number}.txt");
    let hash = json!(sha256("a line of a changed text\n".repeat(MIB / 26)));
    let mut globs: Vec<_> = (0..90).map(|number| format!("**/{}{number}*", "?".repeat(100))).collect();
    globs.push("**".to_owned());
    let patch =
        format!("--- /dev/null\n+++ b/patched.txt\n@@ -0,0 +1,45000 @@\n{}", "+a line of a new text\n".repeat(45_000));
    let edit = json!({"toolCallId": "edit", "path": changed(2), "oldString": "changed", "newString": "altered",
        "replaceAll": true, "reason": "r"});
    let range = json!({"path": "w.txt", "startLine": 1, "endLine": 1, "content": "y".repeat(MIB - 2), "expectedSha256": "seen",
        "reason": "r"});
    let paths: Vec<_> = (0..50).map(|number| changed(number % 8)).collect();
    let calls = [
        ("post /v1/runs/{run}/tools/list_dir", json!({"path": ".", "maxDepth": most, "maxEntries": most}), 48),
        ("post /v1/runs/{run}/tools/find_files", json!({"glob": globs, "maxResults": most}), 48),
        ("post /v1/runs/{run}/tools/read_file", json!({"path": "large.txt", "startLine": 1, "maxLines": most}), 64),
        ("post /v1/runs/{run}/tools/read_files", json!({"paths": paths}), 48),
        ("post /v1/runs/{run}/tools/stat_path", json!({"path": "large.txt"}), 48),
        (
            "post /v1/runs/{run}/tools/search_text",
            json!({"query": "needle", "maxMatches": most, "contextLines": 3}),
            64,
        ),
        ("post /v1/runs/{run}/tools/tree_stats", json!({}), 48),
        ("post /v1/runs/{run}/tools/diff_workspace", json!({"maxBytes": 100_000_000}), 96),
        (
            "post /v1/runs/{run}/tools/write_file",
            json!({"path": "w.txt", "content": content, "reason": "r".repeat(2000)}),
            64,
        ),
        ("post /v1/runs/{run}/tools/edit_file", edit, 96),
        ("post /v1/runs/{run}/tools/apply_patch", json!({"patch": patch, "reason": "r"}), 96),
        ("post /v1/runs/{run}/tools/revert_calls", json!({"toolCallIds": ["edit"], "reason": "r"}), 96),
        (
            "post /v1/runs/{run}/tools/move_file",
            json!({"from": changed(0), "to": "moved.txt", "expectedSha256": hash, "reason": "r"}),
            64,
        ),
        ("post /v1/runs/{run}/tools/replace_range", range, 64),
        (
            "post /v1/runs/{run}/tools/delete_file",
            json!({"path": changed(1), "expectedSha256": hash, "reason": "r"}),
            64,
        ),
    ];
    calls
        .into_iter()
        .map(|(route, body, most_mib)| {
            let path = route.trim_start_matches("post ").replace("{run}", &run.id);
            MeasuredRequest {
                route,
                request: run.agent.request(Method::POST, &path).json(&body),
                status: 200,
                most_mib,
            }
        })
        .collect()
}

/// The largest change set, which unpacks to 64 MiB.
fn changeset(run: &Run) -> reqwest::RequestBuilder {
    let binary = [&[0][..], &vec![b'x'; 8 * MIB - 1]].concat();
    let files: Vec<_> = (0..8).map(|number| format!("d{number}/x.bin")).collect();
    let files: Vec<_> = files.iter().map(|path| (path.as_str(), &binary[..])).collect();
    let layer = zstd::encode_all(&tar_of(&files)[..], 1).unwrap();
    let set = json!({"basedOnSeq": 1, "reason": "r", "dryRun": true});
    let part = |name: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    let head = format!("{}{set}\r\n{}", part("changeset"), part("layer"));
    let body = [head.as_bytes(), &layer, b"\r\n--b--\r\n"].concat();
    let request = run.operator.request(Method::POST, &format!("/v1/runs/{}/changesets", run.id));
    request.header("content-type", "multipart/form-data; boundary=b").body(body)
}

/// Records a command with the largest output, and returns its ID.
async fn commanded(run: &Run) -> &'static str {
    let output = "a line of an output\n".repeat(16 * MIB / 20);
    let digest = sha256(&output);
    run.operator.put(&format!("/v1/runs/{}/artifacts/sha256/{digest}", run.id), output).await.is(201);
    let event = json!({"eventId": "measured", "kind": "command", "summary": "s", "data": {"outputSha256": digest}});
    run.operator.post(&format!("/v1/runs/{}/events", run.id), event).await.is(201);
    "measured"
}

/// The largest result of a command.
fn command_result(run: &Run) -> reqwest::RequestBuilder {
    let part = |name: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    let result = json!({"runner": "r", "output": "o".repeat(65_536), "basedOnSeq": 1});
    let head = format!("{}{result}\r\n{}", part("result"), part("layer"));
    let body = [head.as_bytes(), &vec![b'x'; 15 * MIB], b"\r\n--b--\r\n"].concat();
    let request = run.operator.request(Method::POST, &format!("/v1/runs/{}/commands/c1/result", run.id));
    request.header("content-type", "multipart/form-data; boundary=b").body(body)
}

async fn other_calls(server: &Server, run: &Run) -> Vec<MeasuredRequest> {
    let pending = run.operator.get("/v1/approvals?state=pending").await.ok();
    let approval = |number: usize| pending["items"][number]["approvalId"].as_str().unwrap().to_owned();
    let file_of_approval = |number: usize| pending["items"][number]["files"][0]["path"].as_str().unwrap().to_owned();
    let record = run.audit().await.into_iter().find(|record| !record["artifactUris"].as_array().unwrap().is_empty());
    let record = record.unwrap();
    let artifact = record["artifactUris"][0].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    let (doomed, closing) = (server.run(json!({})).await, server.run(json!({})).await);
    let globs: Vec<_> = (0..100).map(|number| format!("**/{}{number}/**", "?".repeat(400))).collect();
    let excepted: Vec<_> = (0..50).map(|number| format!("**/{}{number}/**", "x".repeat(40))).collect();
    let labels: serde_json::Map<_, _> = (0..64).map(|number| (format!("l{number}"), json!("v".repeat(1024)))).collect();
    let coming = server.run(json!({"source": {"type": "archive"}})).await;
    let entries: Vec<_> = (0..20_000).map(|number| format!("{}/{number}", "a".repeat(200))).collect();
    let entries: Vec<_> = entries.iter().map(|name| (name.as_str(), &b"a file of an archive\n"[..])).collect();
    let mut archive = of_run(&coming, "put /v1/runs/{run}/archive", &Value::Null, 96);
    archive.request = archive.request.body(gzip(&tar_of(&entries)));
    let note = json!({"decidedBy": "p", "note": "n".repeat(2000)});
    let explained = format!(
        "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,{0} @@\n{1}",
        40_000,
        "+a line of a new text\n".repeat(40_000)
    );
    let none = Value::Null;
    let with = |route: &'static str, name: &str, value: &str, body: &Value| {
        let mut worst = of_run(run, route, body, 64);
        let path = route.split_once(' ').unwrap().1.replace("{run}", &run.id).replace(name, value);
        worst.request = run.operator.request(route.split_once(' ').unwrap().0.to_uppercase().parse().unwrap(), &path);
        worst.request = if body.is_null() { worst.request } else { worst.request.json(body) };
        worst
    };
    let size = |query: &str| run.operator.request(Method::GET, query);
    let event = json!({"kind": "test", "summary": "s".repeat(500), "data": {"log": "l".repeat(60_000)}});
    let upload = vec![b'u'; 16 * MIB];
    let uploaded = format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(&upload));
    let mut drifted: Vec<_> = (0..400).map(long_name).collect();
    drifted.push("large.txt".to_owned());
    let settled = json!({"accept": "tree", "paths": drifted, "reason": "r"});
    let read_output = json!({"outputOf": commanded(run).await, "startLine": 100_000});
    let (next, result) = ("post /v1/runs/{run}/commands/next", "post /v1/runs/{run}/commands/{commandId}/result");
    let mut all = vec![
        of_run(run, "post /v1/runs/{run}/tools/run_command", &read_output, 96),
        of_run(run, next, &json!({"runner": "r".repeat(128), "waitSeconds": 0}), 16),
        // One that nobody waits for: what is applied is measured as a change set.
        MeasuredRequest { status: 404, request: command_result(run), ..of_run(run, result, &none, 64) },
        of_run(run, "post /v1/runs/{run}/drift", &settled, 96),
        MeasuredRequest {
            status: 201,
            ..of_run(
                run,
                "post /v1/runs",
                &json!({"source": {"type": "empty"}, "labels": labels,
                    "policy": {"write": globs, "deny": globs, "read": globs, "notSecret": excepted}}),
                192,
            )
        },
        MeasuredRequest {
            most_mib: 112,
            ..with(
                "post /v1/runs/{run}/formats/{format}/{tool}",
                "{format}/{tool}",
                "openai-apply-patch/apply_patch",
                &json!({"operation": {"type": "create_file", "path": "formatted.txt",
                    "diff": "+a line of a new text\n".repeat(45_000)}}),
            )
        },
        MeasuredRequest { request: size("/v1/runs?limit=1000"), ..of_run(run, "get /v1/runs", &none, 32) },
        MeasuredRequest { request: size("/v1/approvals?limit=1000"), ..of_run(run, "get /v1/approvals", &none, 96) },
        with("get /v1/approvals/{approvalId}", "{approvalId}", &approval(0), &none),
        // A file that the call would create, which there was not.
        MeasuredRequest {
            status: 404,
            request: size(&format!("/v1/approvals/{}/file?path={}", approval(0), file_of_approval(0))),
            ..of_run(run, "get /v1/approvals/{approvalId}/file", &none, 32)
        },
        with("post /v1/approvals/{approvalId}/approve", "{approvalId}", &approval(1), &note),
        with("post /v1/approvals/{approvalId}/deny", "{approvalId}", &approval(2), &note),
        with("get /v1/runs/{run}/artifacts/{artifactId}", "{artifactId}", &artifact, &none),
        with(
            "get /v1/runs/{run}/tool-calls/{toolCallId}",
            "{toolCallId}",
            record["toolCallId"].as_str().unwrap(),
            &none,
        ),
        MeasuredRequest {
            status: 204,
            ..with("delete /v1/runs/{run}/tokens/{tokenId}", "{tokenId}", token["tokenId"].as_str().unwrap(), &none)
        },
        MeasuredRequest {
            status: 201,
            ..of_run(run, "post /v1/runs/{run}/tokens", &json!({"permissions": ["file:read"]}), 16)
        },
        MeasuredRequest {
            request: size(&format!("/v1/runs/{}/tokens?limit=1000", run.id)),
            ..of_run(run, "get /v1/runs/{run}/tokens", &none, 32)
        },
        of_run(run, "patch /v1/runs/{run}", &json!({"labels": labels}), 16),
        of_run(run, "post /v1/runs/{run}/policy/explain", &json!({"patch": explained}), 128),
        MeasuredRequest {
            request: size("/v1/checkpoint/consistency?from=1"),
            ..of_run(run, "get /v1/checkpoint/consistency", &none, 32)
        },
        MeasuredRequest {
            request: size(&format!("/v1/runs/{}/audit?limit=1000", run.id)),
            ..of_run(run, "get /v1/runs/{run}/audit", &none, 64)
        },
        MeasuredRequest {
            request: size(&format!("/v1/runs/{}/changes?limit=1000", run.id)),
            ..of_run(run, "get /v1/runs/{run}/changes", &none, 64)
        },
        MeasuredRequest {
            request: size(&format!("/v1/runs/{}/audit/inclusion?seq=1", run.id)),
            ..of_run(run, "get /v1/runs/{run}/audit/inclusion", &none, 64)
        },
        archive,
        MeasuredRequest { request: changeset(run), ..of_run(run, "post /v1/runs/{run}/changesets", &none, 320) },
        MeasuredRequest { status: 201, ..of_run(run, "post /v1/runs/{run}/events", &event, 32) },
        MeasuredRequest {
            status: 201,
            ..of_run(run, "post /v1/runs/{run}/comments", &json!({"text": "x", "onBehalfOf": "ada"}), 32)
        },
        MeasuredRequest {
            status: 201,
            ..of_run(run, "post /v1/runs/{run}/events/batch", &json!({"events": vec![event.clone(); 50]}), 192)
        },
        MeasuredRequest {
            status: 201,
            request: run.operator.request(Method::PUT, &uploaded).body(upload.clone()),
            ..of_run(run, "put /v1/runs/{run}/artifacts/sha256/{digest}", &none, 96)
        },
        MeasuredRequest {
            request: size(&uploaded),
            ..of_run(run, "get /v1/runs/{run}/artifacts/sha256/{digest}", &none, 96)
        },
        MeasuredRequest {
            status: 201,
            ..of_run(run, "post /v1/operators", &json!({"name": "measured", "scopes": ["audit"]}), 32)
        },
        MeasuredRequest {
            status: 201,
            ..with("post /v1/operators/{name}/tokens", "{name}", "measured", &json!({"overlapSeconds": 60}))
        },
        with("delete /v1/operators/{name}", "{name}", "measured", &none),
        with("get /v1/operators/{name}", "{name}", "self", &none),
        MeasuredRequest {
            request: size("/v1/webhooks/hook/deliveries?limit=1000"),
            ..of_run(run, "get /v1/webhooks/{name}/deliveries", &none, 32)
        },
        MeasuredRequest {
            status: 202,
            request: run.operator.request(Method::POST, "/v1/webhooks/hook/deliveries/msg_1/redeliver"),
            ..of_run(run, "post /v1/webhooks/{name}/deliveries/{id}/redeliver", &none, 16)
        },
        with("get /problems/{code}", "{code}", "WRITE_CONFLICT", &none),
        of_run(&doomed, "delete /v1/runs/{run}", &none, 32),
        of_run(&closing, "post /v1/runs/{run}/close", &none, 32),
        of_run(&closing, "post /v1/runs/{run}/stop", &json!({"reason": "r".repeat(2000)}), 32),
    ];
    let plain = [
        "get /v1/runs/{run}",
        "get /v1/runs/{run}/archive",
        "get /v1/runs/{run}/drift",
        "get /v1/runs/{run}/report",
        "get /v1/runs/{run}/usage",
        "get /v1/nodes",
        "get /v1/stats",
        "get /v1/operators",
        "get /v1/webhooks",
        "get /problems",
        "get /v1/checkpoint",
        "get /v1/checkpoint/key",
        "get /v1/checkpoint/key/changes",
        "get /v1/limits",
        "get /v1/tools",
        "get /docs",
        "get /healthz",
        "get /metrics",
        "get /openapi.json",
        "get /readyz",
    ];
    all.extend(plain.map(|route| of_run(run, route, &none, 96)));
    // Without an issuer there is none to be found.
    let missing = ["get /.well-known/oauth-protected-resource", "get /.well-known/oauth-protected-resource/mcp"];
    all.extend(missing.map(|route| MeasuredRequest { status: 404, ..of_run(run, route, &none, 16) }));
    let arguments = json!({"name": "read_file", "arguments": {"path": "large.txt"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments});
    let request = run.agent.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    all.push(MeasuredRequest { route: "post /mcp", request: request.json(&message), status: 200, most_mib: 64 });
    all
}

#[test]
fn every_referenced_test_exists() {
    for (route, source, test, most_mib) in ELSEWHERE {
        let body = source.split_once(&format!("async fn {test}(")).map(|(_, body)| body);
        let body = body.unwrap_or_else(|| panic!("{route}: no test `{test}`"));
        assert!(
            body.split("#[rstest]").next().unwrap().contains(most_mib),
            "{route}: `{test}` does not assert {most_mib} MiB"
        );
    }
}

#[rstest]
#[tokio::test]
async fn every_route_has_a_memory_limit(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::prepare(Setup::new(backend).arg("--checkpoint-seconds", 1)).await;
    put(&server.home, "config.toml", WEBHOOK);
    let config = server.home.join("config.toml");
    server.setup = server.setup.clone().arg("--config", config.display()).env("SECRET", SECRET);
    server.restart();
    let run = fill(&server).await;
    server.database.tamper(DELIVERIES).await.unwrap();
    let mut tried: BTreeSet<String> = ELSEWHERE.iter().map(|(route, ..)| (*route).to_owned()).collect();
    let mut worst = tool_calls(&run);
    // The first call loads state that later calls share.
    run.ok("list_dir", json!({})).await;
    worst.extend(other_calls(&server, &run).await);
    for MeasuredRequest { route, request, status, most_mib } in worst {
        let (answer, growth) = server.peak_growth(run.operator.send(request)).await;
        let fits = answer.status == status || (status == 200 && [204, 303].contains(&answer.status));
        assert!(fits, "{route}: {} {}", answer.status, answer.text().chars().take(500).collect::<String>());
        assert_growth(route, growth, most_mib);
        println!("{route}: {} KiB of at most {most_mib} MiB", growth >> 10);
        assert!(tried.insert(route.to_owned()), "{route} is measured twice");
    }
    assert_eq!(tried, documented());
}

#[rstest]
#[tokio::test]
async fn many_long_names_do_not_exceed_the_memory_limit(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "a\n").await;
    let folder = vec!["d".repeat(200); 17].join("/");
    for number in 0..6_000 {
        run.put(&format!("{folder}/{number:04}{}", "n".repeat(200)), "");
    }
    let most = json!(1_000_000);
    let edit = json!({"path": "a.txt", "oldString": "a", "newString": "b", "reason": "r", "dryRun": true});
    let patch = json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n", "reason": "r", "dryRun": true});
    let of = |tool: &str, input: Value| (format!("post /v1/runs/{}/tools/{tool}", run.id), input, 2);
    let find = |sort: &str| of("find_files", json!({"glob": ["**"], "maxResults": most, "sort": sort}));
    let calls = [
        of("list_dir", json!({"path": folder, "maxDepth": 1, "maxEntries": most})),
        of("list_dir", json!({"maxDepth": most, "maxEntries": most})),
        find("path"),
        find("modified"),
        of("diff_workspace", json!({"statOnly": true})),
        of("diff_workspace", json!({"checkTree": false, "maxBytes": 1})),
        (format!("get /v1/runs/{}/drift", run.id), Value::Null, 2),
        of("edit_file", edit),
        of("apply_patch", patch),
    ];
    for (route, body, most_mib) in calls {
        let (method, path) = route.split_once(' ').unwrap();
        let request = run.operator.request(method.to_uppercase().parse().unwrap(), path);
        let request = if body.is_null() { request } else { request.json(&body) };
        let (answer, growth) = server.peak_growth(run.operator.send(request)).await;
        println!("{route}: {} bytes, {} KiB", answer.body.len(), growth >> 10);
        assert!(answer.body.len() < (most_mib << 20) + 262_144, "{route}: {} bytes", answer.body.len());
        let answer = answer.ok();
        assert!(answer.get("truncated").is_none_or(|truncated| *truncated == json!(true)), "{route}");
        assert_growth(&route, growth, 64);
    }
}
