//! Authentication and authorization: operator scopes, run tokens, permissions, expiry, revocation, and uniform refusals.

use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, Server, Setup, sha256};

const EVERY_PERMISSION: [&str; 10] = [
    "file:list",
    "file:read",
    "file:search",
    "file:diff",
    "file:write:create",
    "file:write:replace",
    "file:patch:apply",
    "file:delete",
    "file:move",
    "audit:read",
];

/// Creates a token of `run` with the members of `body`.
async fn token(run: &Run, body: Value) -> Value {
    run.operator.post(&format!("/v1/runs/{}/tokens", run.id), body).await.is(201)
}

fn client(run: &Run, token: &Value) -> Client {
    run.agent.with_token(Some(token["token"].as_str().unwrap()))
}

async fn list(client: &Client, run: &str) -> crate::harness::Answer {
    client.post(&format!("/v1/runs/{run}/tools/list_dir"), json!({})).await
}

#[rstest]
#[tokio::test]
async fn every_request_without_a_valid_token_gets_the_same_refusal(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[]).await;
    let good = run.agent.token.clone().unwrap();
    let mut refusals = Vec::new();
    for path in [
        format!("/v1/runs/{}", run.id),
        "/v1/runs/none-such".into(),
        "/v1/runs".into(),
        "/v1/audit".into(),
        "/v1/tools".into(),
    ] {
        for bad in [None, Some(""), Some("x"), Some(&good[1..]), Some(&good.to_uppercase()), Some(&good.repeat(50))] {
            let answer = server.nobody().with_token(bad).get(&path).await;
            refusals.push(answer.refused("UNAUTHENTICATED").to_string());
        }
        let mut forms = vec![("Authorization", format!("Basic {good}")), ("Authorization", good.clone())];
        forms.extend([("X-Api-Key", good.clone()), ("Cookie", format!("token={good}"))]);
        for (name, value) in forms {
            let request = server.nobody().request(Method::GET, &path).header(name, value);
            refusals.push(server.nobody().send(request).await.refused("UNAUTHENTICATED").to_string());
        }
        for query in ["token", "access_token", "Authorization"] {
            server.nobody().get(&format!("{path}?{query}={good}")).await.refused("UNAUTHENTICATED");
        }
    }
    refusals.dedup();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
}

#[rstest]
#[tokio::test]
async fn a_run_token_is_refused_elsewhere_and_does_not_disclose_which_runs_exist(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[("a.txt", "mine\n")]).await;
    let other = server.run_with_files(&[("a.txt", "other\n")], json!({})).await;
    for rest in ["", "/audit", "/audit/verify", "/archive", "/tool-calls/x", "/artifacts/x"] {
        let there = run.agent.get(&format!("/v1/runs/{}{rest}", other.id)).await.refused("FORBIDDEN");
        let not_there = run.agent.get(&format!("/v1/runs/none-such{rest}")).await.refused("FORBIDDEN");
        assert_eq!(there, not_there, "{rest}");
    }
    for tool in ["list_dir", "read_file", "write_file", "none_such"] {
        let call = |id: &str| format!("/v1/runs/{id}/tools/{tool}");
        let there = run.agent.post(&call(&other.id), json!({"path": "a.txt"})).await.refused("FORBIDDEN");
        assert_eq!(there, run.agent.post(&call("none-such"), json!({"path": "../x"})).await.refused("FORBIDDEN"));
        assert_eq!(there, run.agent.post(&call("a%2fb"), json!([])).await.refused("FORBIDDEN"), "an invalid ID");
    }
    assert_eq!(other.calls().await, Vec::<Value>::new());
}

#[rstest]
#[tokio::test]
async fn a_run_token_may_not_call_operator_routes(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let id = &run.id;
    for path in ["/v1/runs", "/v1/approvals", "/v1/audit", "/v1/audit/stream", "/v1/approvals/x"] {
        run.agent.get(path).await.refused("FORBIDDEN");
    }
    for path in [
        "/v1/runs".to_owned(),
        format!("/v1/runs/{id}/close"),
        format!("/v1/runs/{id}/tokens"),
        "/v1/approvals/x/approve".into(),
        "/v1/approvals/x/deny".into(),
    ] {
        run.agent.post(&path, json!({"source": {"type": "empty"}, "decidedBy": "me"})).await.refused("FORBIDDEN");
    }
    for path in [format!("/v1/runs/{id}"), format!("/v1/runs/{id}/tokens/x")] {
        run.agent.delete(&path).await.refused("FORBIDDEN");
    }
    assert_eq!(run.get().await["state"], "open");
}

#[rstest]
#[tokio::test]
async fn an_auditor_reads_runs_records_artifacts_approvals_and_files_only(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[("a.txt", "x\n")]).await;
    let written = run.create("b.txt", "y\n").await;
    let (id, auditor) = (&run.id, server.auditor());
    let artifact = written["artifactUris"][0].as_str().unwrap().rsplit('/').next().unwrap();
    for path in [
        "/v1/runs".to_owned(),
        format!("/v1/runs/{id}"),
        format!("/v1/audit?run={id}"),
        format!("/v1/runs/{id}/audit"),
        format!("/v1/runs/{id}/audit/verify"),
        format!("/v1/runs/{id}/artifacts/{artifact}"),
        format!("/v1/runs/{id}/tool-calls/{}", written["toolCallId"].as_str().unwrap()),
        "/v1/approvals?state=pending".into(),
    ] {
        assert_eq!(auditor.get(&path).await.status, 200, "{path}");
    }
    auditor.get(&format!("/v1/runs/{id}/archive")).await.refused("FORBIDDEN");
    for tool in ["write_file", "edit_file", "apply_patch", "delete_file", "move_file", "revert_calls"] {
        auditor.post(&format!("/v1/runs/{id}/tools/{tool}"), json!({"path": "a.txt"})).await.refused("FORBIDDEN");
    }
    for path in [
        "/v1/runs".to_owned(),
        format!("/v1/runs/{id}/close"),
        format!("/v1/runs/{id}/tokens"),
        "/v1/approvals/x/approve".into(),
    ] {
        auditor.post(&path, json!({"source": {"type": "empty"}, "decidedBy": "me"})).await.refused("FORBIDDEN");
    }
    auditor.delete(&format!("/v1/runs/{id}")).await.refused("FORBIDDEN");
    auditor.put(&format!("/v1/runs/{id}/archive"), "x").await.refused("FORBIDDEN");
    assert_eq!(run.get().await["state"], "open");
}

#[rstest]
#[tokio::test]
async fn each_permission_allows_only_its_own_calls(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "x\n")]).await;
    let version = crate::harness::sha256("x\n");
    let write = |path: &str| json!({"path": path, "content": "y\n", "reason": "r", "dryRun": true});
    let mut replace = write("a.txt");
    replace["expectedSha256"] = json!(version);
    let patch = json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+y\n", "reason": "r", "dryRun": true});
    let calls = [
        ("file:list", "list_dir", json!({})),
        ("file:read", "read_file", json!({"path": "a.txt"})),
        ("file:search", "search_text", json!({"query": "x"})),
        ("file:diff", "diff_workspace", json!({})),
        ("file:write:create", "write_file", write("new.txt")),
        ("file:write:replace", "write_file", replace),
        ("file:patch:apply", "apply_patch", patch),
    ];
    for held in EVERY_PERMISSION {
        let issued = token(&run, json!({"permissions": [held]})).await;
        assert_eq!(issued["permissions"], json!([held]));
        let client = client(&run, &issued);
        for (needed, tool, input) in &calls {
            let answer = client.post(&format!("/v1/runs/{}/tools/{tool}", run.id), input.clone()).await;
            if needed == &held {
                answer.ok();
            } else {
                answer.refused("FORBIDDEN");
            }
        }
        let answer = client.get(&format!("/v1/runs/{}/audit", run.id)).await;
        assert_eq!(answer.status, if held == "audit:read" { 200 } else { 403 }, "{held}: {}", answer.text());
    }
    let forbidden = run.audit().await.into_iter().filter(|record| record["code"] == "FORBIDDEN");
    assert_eq!(forbidden.count(), 10 * 7 - 7, "refused calls are recorded");
}

#[rstest]
#[tokio::test]
async fn a_patch_needs_the_permission_of_what_it_does(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "x\n")]).await;
    let issued = token(&run, json!({"permissions": ["file:read"]})).await;
    let patch = json!({"patch": "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "reason": "r"});
    client(&run, &issued).post(&format!("/v1/runs/{}/tools/apply_patch", run.id), patch).await.refused("FORBIDDEN");
    assert_eq!(run.on_disk("a.txt"), "x\n");
}

#[rstest]
#[tokio::test]
async fn unknown_permissions_and_past_expiry_times_are_refused(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for bad in [
        json!({"permissions": ["file:everything"]}),
        json!({"permissions": "file:read"}),
        json!({"expiresAt": "tomorrow"}),
        json!({"expiresAt": "2001-01-01T00:00:00Z"}),
        json!({"surprise": 1}),
    ] {
        run.operator.post(&format!("/v1/runs/{}/tokens", run.id), bad).await.refused("INVALID_REQUEST");
    }
    // The end of the last year, which is written for "never".
    let last = token(&run, json!({"expiresAt": "9999-12-31T23:59:59Z"})).await;
    assert!(last["expiresAt"].as_str().unwrap().starts_with("9999-12-30T"), "{last:#}");
    list(&client(&run, &last), &run.id).await.ok();
    run.operator.get("/v1/audit?limit=1&until=9999-12-31T23:59:59.999%2B00:00").await.ok();
    run.operator.get("/v1/audit?limit=1&until=9999-12-32T23:59:59Z").await.refused("INVALID_REQUEST");
    let all = token(&run, json!({})).await;
    assert_eq!(all["permissions"].as_array().unwrap().len(), EVERY_PERMISSION.len());
    assert!(all.get("expiresAt").is_none_or(Value::is_null));
}

#[rstest]
#[tokio::test]
async fn a_token_expires(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, clock) = Server::start_with_clock(Setup::new(backend)).await;
    let run = server.run(json!({})).await;
    let soon = std::time::SystemTime::now() + Duration::from_mins(30);
    let issued = token(&run, json!({"expiresAt": crate::harness::rfc3339(soon)})).await;
    assert!(issued["expiresAt"].is_string());
    let client = client(&run, &issued);
    list(&client, &run.id).await.ok();
    std::fs::write(&clock, "3600").unwrap();
    list(&client, &run.id).await.refused("UNAUTHENTICATED");
    list(&run.agent, &run.id).await.ok();
}

#[rstest]
#[tokio::test]
async fn a_revoked_token_is_refused_at_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    let issued = token(&run, json!({})).await;
    let client = client(&run, &issued);
    list(&client, &run.id).await.ok();
    let path = format!("/v1/runs/{}/tokens/{}", run.id, issued["tokenId"].as_str().unwrap());
    let elsewhere = server.run(json!({})).await;
    let wrong = format!("/v1/runs/{}/tokens/{}", elsewhere.id, issued["tokenId"].as_str().unwrap());
    run.operator.delete(&wrong).await.refused("NOT_FOUND");
    list(&client, &run.id).await.ok();

    let answer = run.operator.delete(&path).await;
    assert!([200, 204].contains(&answer.status), "{}", answer.text());
    list(&client, &run.id).await.refused("UNAUTHENTICATED");
    list(&run.agent, &run.id).await.ok();
    run.operator.delete(&format!("/v1/runs/{}/tokens/none-such", run.id)).await.refused("NOT_FOUND");
}

#[rstest]
#[tokio::test]
async fn a_token_is_stored_nowhere(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    let issued = token(&run, json!({})).await;
    let client = client(&run, &issued);
    list(&client, &run.id).await.ok();
    client.get(&format!("/v1/runs/{}?token={}", run.id, issued["token"].as_str().unwrap())).await;
    assert!(server.stop().success());
    let secrets = [
        issued["token"].as_str().unwrap(),
        run.agent.token.as_deref().unwrap(),
        &server.operator_token,
        &server.audit_token,
    ];
    let mut files = vec![("the log".to_owned(), server.log().into_bytes())];
    for entry in std::fs::read_dir(server.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            files.push((path.display().to_string(), std::fs::read(path).unwrap()));
        }
    }
    assert!(files.len() > 1);
    for (file, bytes) in files {
        for secret in secrets {
            assert!(!String::from_utf8_lossy(&bytes).contains(secret), "{file} contains a token");
        }
    }
}

#[rstest]
#[tokio::test]
async fn tokens_survive_a_restart(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    let issued = token(&run, json!({"permissions": ["file:list"]})).await;
    let gone = token(&run, json!({})).await;
    run.operator.delete(&format!("/v1/runs/{}/tokens/{}", run.id, gone["tokenId"].as_str().unwrap())).await;
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    list(&run.agent, &run.id).await.ok();
    list(&client(&run, &issued), &run.id).await.ok();
    list(&client(&run, &gone), &run.id).await.refused("UNAUTHENTICATED");
}

#[rstest]
#[tokio::test]
async fn failed_authentications_are_limited_by_address_and_affect_no_valid_token(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let server = Server::start_with(Setup::new(backend).arg("--auth-failures-per-minute", 20)).await;
    let run = server.run(json!({})).await;
    let nobody = server.nobody();
    let (mut unauthenticated, mut limited) = (0, 0);
    for number in 0..60 {
        let token = [
            None,
            Some("x".to_owned()),
            Some(format!("wsr_{number:064x}")),
            run.agent.token.as_ref().map(|token| token[1..].to_owned()),
        ];
        let answer = nobody.with_token(token[number % 4].as_deref()).get("/v1/runs").await;
        match answer.refusal().as_str() {
            "UNAUTHENTICATED" => unauthenticated += 1,
            "RATE_LIMITED" => limited += 1,
            other => panic!("{other}: {}", answer.text()),
        }
        list(&run.agent, &run.id).await.ok();
    }
    assert!((20..30).contains(&unauthenticated) && limited > 30, "{unauthenticated} and {limited}");
    list(&client(&run, &token(&run, json!({})).await), &run.id).await.ok();
    server.auditor().get("/v1/runs").await.ok();
    nobody.get("/healthz").await.is(200);
    let numbers = nobody.get("/metrics").await.text();
    assert!(numbers.contains("workspaced_authentication_failures_total 60"), "{numbers}");
}

#[rstest]
#[tokio::test]
async fn an_operator_lists_the_tokens_and_the_usage_of_a_run(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let expires_at = "2099-01-01T00:00:00Z";
    let reader = token(&run, json!({"permissions": ["file:read"], "expiresAt": expires_at})).await;
    let unused = token(&run, json!({})).await;
    client(&run, &reader).post(&format!("/v1/runs/{}/tools/read_file", run.id), json!({"path": "a.txt"})).await.ok();
    let path = format!("/v1/runs/{}/tokens/{}", run.id, reader["tokenId"].as_str().unwrap());
    assert_eq!(run.operator.delete(&path).await.status, 204);
    let path = format!("/v1/runs/{}/tokens", run.id);
    let list = run.operator.get(&path).await.ok();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 3, "{list:#}");
    assert!(items[0]["issuedBy"].as_str().unwrap().starts_with("operator:"), "{list:#}");
    assert_eq!((&items[1]["tokenId"], &items[1]["permissions"]), (&reader["tokenId"], &json!(["file:read"])));
    assert!(items[1]["expiresAt"].as_str().unwrap().starts_with("2099-01-01T00:00:00"));
    assert!(items[1]["revokedAt"].as_str() > items[1]["lastUsedAt"].as_str(), "{list:#}");
    assert!(items[1]["lastUsedAt"].as_str() > items[1]["createdAt"].as_str(), "{list:#}");
    assert_eq!(
        (&items[2]["tokenId"], items[2].get("lastUsedAt"), items[2].get("revokedAt")),
        (&unused["tokenId"], None, None)
    );
    for secret in [&reader["token"], &unused["token"]] {
        assert!(!list.to_string().contains(secret.as_str().unwrap()));
    }
    // Page after page.
    let (mut ids, mut query) = (Vec::new(), "?limit=1".to_owned());
    loop {
        let page = run.operator.get(&format!("{path}{query}")).await.ok();
        ids.extend(page["items"].as_array().unwrap().iter().map(|item| item["tokenId"].clone()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        query = format!("?limit=1&cursor={cursor}");
    }
    let all: Vec<_> = items.iter().map(|item| item["tokenId"].clone()).collect();
    assert_eq!(ids, all);

    run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    let usage = run.operator.get(&format!("/v1/runs/{}/usage", run.id)).await.ok();
    let own = run.agent.get(&format!("/v1/runs/{}", run.id)).await.ok();
    assert_eq!((&usage["usage"], &usage["remaining"]), (&own["usage"], &own["remaining"]));
    assert_eq!(usage["usage"]["runBudget"]["filesTouched"], 1, "{usage:#}");
    for path in [path, format!("/v1/runs/{}/usage", run.id)] {
        run.agent.get(&path).await.refused("FORBIDDEN");
    }
    run.operator.get("/v1/runs/none-such/tokens").await.refused("RUN_NOT_FOUND");
}
