//! Operators: scopes, their tokens from the API, the configuration and the command line, revocation and expiry.

mod rotation;

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{
    Answer, Backend, Client, Run, Server, Setup, in_time, items, members, rfc3339, sha256, status_of_call,
};

const SCOPES: [&str; 4] = ["orchestrate", "approve", "audit", "metrics"];

async fn read(client: &Client, run: &Run) -> Answer {
    client.post(&format!("/v1/runs/{}/tools/read_file", run.id), json!({"path": "a.txt"})).await
}

/// Removes an operator from the list that may be in the configuration.
fn names(listed: &[Value]) -> Vec<&str> {
    listed.iter().map(|operator| operator["name"].as_str().unwrap()).collect()
}

/// Every permission, those that a run's first token lacks too.
const PERMISSIONS: [&str; 14] = [
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
    "event:append",
    "evidence:attest",
    "changeset:apply",
    "command:serve",
];

#[rstest]
#[tokio::test]
async fn each_operation_accepts_the_scopes_that_the_document_lists(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start_with(Setup::new(backend).arg("--protect-metrics", true)).await;
    let run = server.run(json!({})).await;
    let document = server.nobody().get("/openapi.json").await.ok();
    let mut clients = Vec::new();
    for scope in SCOPES {
        clients.push((scope, server.named_operator(scope, &[scope]).await.1));
    }
    let mut checked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(scopes) = operation["x-scopes"].as_array() else { continue };
            let listed: Vec<_> = scopes.iter().map(|scope| scope.as_str().unwrap()).collect();
            let description = operation["description"].as_str().unwrap();
            for (scope, client) in &clients {
                let (is_listed, own) = (listed.contains(scope), server.run(json!({})).await);
                let status = status_of_call(client, method, path, &own.id).await;
                assert_eq!(status != 403, is_listed, "{scope} on {method} {path}: {status}");
                assert_ne!(status, 401, "{scope} on {method} {path}");
                let is_described = description.rsplit("Callers: ").next().unwrap().contains(&format!("`{scope}`"));
                assert_eq!(is_described, is_listed, "{method} {path}: {description}");
                checked += 1;
            }
            let own = server.run(json!({})).await;
            let tokens = format!("/v1/runs/{}/tokens", own.id);
            let issued = server.operator().post(&tokens, json!({"permissions": PERMISSIONS})).await.is(201);
            let agent = own.agent.with_token(issued["token"].as_str());
            let status = status_of_call(&agent, method, path, &own.id).await;
            assert_eq!(status != 403, operation["x-run-token"] == true, "a run token on {method} {path}: {status}");
        }
    }
    assert!(checked > 150, "{checked}");
    run.ok("list_dir", json!({})).await;
}

#[rstest]
#[tokio::test]
async fn an_operator_is_created_listed_and_revoked(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let operator = server.operator();
    let created =
        operator.post("/v1/operators", json!({"name": "Ada@example.org", "scopes": ["audit", "approve", "audit"]}));
    let created = created.await.is(201);
    let token = created["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("wso_") && token.len() == 4 + 43 + 6, "{token}");
    let shown = members(&created, &["name", "scopes", "createdBy", "expiresAt", "revokedAt"]);
    let expected = json!({"name": "Ada@example.org", "scopes": ["approve", "audit"], "createdBy": "operator",
        "expiresAt": null, "revokedAt": null});
    assert_eq!(shown, expected);
    let ada = server.nobody().with_token(Some(&token));
    read(&ada, &run).await.ok();
    assert_eq!(run.last_record().await["actor"], "operator:Ada@example.org");

    for taken in ["Ada@example.org", "ada@EXAMPLE.org"] {
        let again = json!({"name": taken, "scopes": ["audit"]});
        operator.post("/v1/operators", again).await.refused("ALREADY_EXISTS");
    }
    let listed = items(&operator, "/v1/operators?limit=1").await;
    assert_eq!(names(&listed), ["operator", "audit", "Ada@example.org"]);
    assert!(!json!(listed).to_string().contains(&token[4..]) && !json!(listed).to_string().contains(&sha256(&token)));

    // Operators survive a restart, and so does a revocation.
    server.kill();
    server.restart();
    let (ada, operator, run) = (server.nobody().with_token(Some(&token)), server.operator(), server.reconnect(&run));
    read(&ada, &run).await.ok();
    for _ in 0..2 {
        assert_eq!(operator.delete("/v1/operators/ADA@example.org").await.status, 204);
        read(&ada, &run).await.refused("UNAUTHENTICATED");
    }
    operator.delete("/v1/operators/none-such").await.refused("NOT_FOUND");
    operator.delete("/v1/operators/a%20b").await.refused("NOT_FOUND");
    server.kill();
    server.restart();
    let operator = server.operator();
    server.nobody().with_token(Some(&token)).get("/v1/runs").await.refused("UNAUTHENTICATED");
    let again = operator.post("/v1/operators", json!({"name": "ada@example.org", "scopes": ["audit"]})).await.is(201);
    assert_ne!(again["token"], token);
    let listed = items(&operator, "/v1/operators?limit=2").await;
    assert_eq!(names(&listed), ["operator", "audit", "Ada@example.org", "ada@example.org"]);
    assert!(listed[2]["revokedAt"].is_string() && listed[3].get("revokedAt").is_none(), "{listed:#?}");
}

#[rstest]
#[tokio::test]
async fn an_invalid_operator_is_refused(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let before = items(&server.operator(), "/v1/operators").await;
    for bad in [
        json!({}),
        json!({"name": "x"}),
        json!({"scopes": ["audit"]}),
        json!({"name": "x", "scopes": []}),
        json!({"name": "x", "scopes": ["root"]}),
        json!({"name": "x", "scopes": "audit"}),
        json!({"name": "", "scopes": ["audit"]}),
        json!({"name": "a b", "scopes": ["audit"]}),
        json!({"name": "a/b", "scopes": ["audit"]}),
        json!({"name": "x".repeat(65), "scopes": ["audit"]}),
        json!({"name": "operator", "scopes": ["audit"]}),
        json!({"name": "Audit", "scopes": ["audit"]}),
        json!({"name": "service", "scopes": ["audit"]}),
        json!({"name": "repair", "scopes": ["audit"]}),
        json!({"name": "x", "scopes": ["audit"], "expiresAt": "2001-01-01T00:00:00Z"}),
        json!({"name": "x", "scopes": ["audit"], "expiresAt": "soon"}),
        json!({"name": "x", "scopes": ["audit"], "token": "mine"}),
    ] {
        server.operator().post("/v1/operators", bad).await.refused("INVALID_REQUEST");
    }
    for fixed in ["operator", "AUDIT"] {
        let refused = server.operator().delete(&format!("/v1/operators/{fixed}")).await.refused("INVALID_REQUEST");
        assert!(refused["hint"].as_str().unwrap().contains("configuration"), "{refused:#}");
    }
    let after = items(&server.operator(), "/v1/operators").await;
    assert!(names(&after).iter().all(|name| *name != "x") && after.len() >= before.len());
}

#[rstest]
#[tokio::test]
async fn scopes_add_up(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let (_, approver) = server.named_operator("approver", &["approve"]).await;
    let (_, both) = server.named_operator("both", &["approve", "audit"]).await;
    let decide = json!({"onBehalfOf": "x"});
    for (client, reads) in [(&approver, false), (&both, true)] {
        client.post("/v1/approvals/none-such/approve", decide.clone()).await.refused("NOT_FOUND");
        assert_eq!(read(client, &run).await.status, if reads { 200 } else { 403 });
        assert_eq!(client.get("/v1/audit").await.status, if reads { 200 } else { 403 });
        client.post("/v1/runs", json!({"source": {"type": "empty"}})).await.refused("FORBIDDEN");
    }
}

#[rstest]
#[tokio::test]
async fn an_auditor_reads_files_by_recorded_calls_and_changes_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let files = [("a.txt", "a\n"), (".env", "A=secret-value\n")];
    let (server, run) = Run::shared(backend, &files).await;
    run.create("b.txt", "b\n").await;
    let (name, auditor) = server.named_operator("auditor", &["audit"]).await;
    let before = run.snapshot();
    let path = |rest: &str| format!("/v1/runs/{}/{rest}", run.id);
    assert_eq!(auditor.get(&path("files/a.txt")).await.text(), "a\n");
    auditor.get(&path("files/.env")).await.refused("POLICY_DENIED_SECRET");
    assert!(auditor.get(&path("patch")).await.text().contains("+b"));
    let diff = auditor.post(&path("tools/diff_workspace"), json!({})).await.ok();
    assert!(diff["diff"].as_str().unwrap().contains("+b"), "{diff:#}");
    auditor.post(&path("tools/list_dir"), json!({})).await.ok();
    assert_eq!(read(&auditor, &run).await.ok()["totalLines"], 1);
    let records = run.audit().await;
    let own: Vec<_> = records.iter().filter(|one| one["actor"] == format!("operator:{name}")).collect();
    let tools: Vec<_> = own.iter().map(|one| one["tool"].as_str().unwrap()).collect();
    assert_eq!(tools.len(), 6, "{tools:?}");
    assert_eq!(own[1]["code"], "POLICY_DENIED_SECRET");
    for (tool, input) in [
        ("write_file", json!({"path": "x", "content": "", "reason": "r"})),
        ("write_file", json!({"path": "x", "content": "", "reason": "r", "dryRun": true})),
        ("delete_file", json!({"path": "a.txt", "reason": "r"})),
        ("revert_calls", json!({"toSeq": 0, "reason": "r"})),
    ] {
        auditor.post(&path(&format!("tools/{tool}")), input).await.refused("FORBIDDEN");
    }
    auditor.put(&path("files/x"), "x").await.refused("FORBIDDEN");
    auditor
        .post(&path("batch"), json!({"calls": [{"tool": "read_file", "input": {"path": "a.txt"}}]}))
        .await
        .refused("FORBIDDEN");
    auditor.get(&path("archive")).await.refused("FORBIDDEN");
    assert_eq!(run.snapshot(), before);

    let (_, approver) = server.named_operator("approver", &["approve"]).await;
    assert!(approver.get(&path("patch")).await.text().contains("+b"));
    let diff = approver.post(&path("tools/diff_workspace"), json!({})).await.ok();
    assert!(diff["diff"].as_str().unwrap().contains("+b"), "{diff:#}");
    approver.get(&path("files/a.txt")).await.refused("FORBIDDEN");
    read(&approver, &run).await.refused("FORBIDDEN");
}

#[rstest]
#[tokio::test]
async fn a_reviewer_sees_the_story_of_a_run_and_no_file(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let path = |rest: &str| format!("/v1/runs/{}/{rest}", run.id);
    let log = "test log\n";
    let digest = sha256(log);
    run.operator.put(&path(&format!("artifacts/sha256/{digest}")), log).await.is(201);
    let event = json!({"kind": "prompt", "summary": "Fix the login", "data": {"text": "all of it"}});
    let event = run.operator.post(&path("events"), event).await;
    assert!(event.status < 300, "{event:?}");
    run.create("b.txt", "b\n").await;
    let (_, approver) = server.named_operator("approver", &["approve"]).await;
    let records = items(&approver, &path("audit")).await;
    let prompt = records.iter().find(|record| record["tool"] == "event.prompt").unwrap();
    assert_eq!(prompt["input"]["data"]["text"], "all of it");
    assert_eq!(approver.get(&path("audit/verify")).await.ok()["intact"], true);
    approver.get(&path("report")).await.ok();
    assert_eq!(approver.get(&path(&format!("artifacts/sha256/{digest}"))).await.text(), log);
    assert!(approver.get("/v1/checkpoint/key").await.text().contains('+'));

    let of_run = format!("?run={}", run.id);
    assert_eq!(items(&approver, &format!("/v1/audit{of_run}")).await.len(), records.len());
    let mut stream = approver.stream(&format!("/v1/audit/stream{of_run}&since=2026-01-01T00:00:00Z"), None).await;
    assert!(stream.chunk().await.unwrap().is_some());
    for all in ["", "?run=_service"] {
        approver.get(&format!("/v1/audit{all}")).await.refused("FORBIDDEN");
        approver.get(&format!("/v1/audit/stream{all}")).await.refused("FORBIDDEN");
    }
    approver.get("/v1/nodes").await.refused("FORBIDDEN");
}

#[rstest]
#[tokio::test]
async fn an_operator_token_expires(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, clock) = Server::start_with_clock(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let soon = rfc3339(std::time::SystemTime::now() + Duration::from_mins(30));
    let name = format!("short-{}", run.id);
    let body = json!({"name": name, "scopes": ["orchestrate"], "expiresAt": soon});
    let created = server.operator().post("/v1/operators", body).await.is(201);
    assert!(created["expiresAt"].is_string());
    let client = server.nobody().with_token(created["token"].as_str());
    read(&client, &run).await.ok();
    let mut stream = client.stream("/v1/audit/stream", None).await;
    std::fs::write(&clock, "3600").unwrap();
    read(&client, &run).await.refused("UNAUTHENTICATED");
    let end = async { while stream.chunk().await.unwrap().is_some() {} };
    in_time("the end of the stream", end).await;
    let again = json!({"name": name, "scopes": ["audit"]});
    server.operator().post("/v1/operators", again.clone()).await.refused("ALREADY_EXISTS");
    server.revoke_operator(&name).await;
    server.operator().post("/v1/operators", again).await.is(201);
}

#[rstest]
#[tokio::test]
async fn streams_end_with_their_operator(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let (gone, leaving) = server.named_operator("leaving", &["audit"]).await;
    let (_, staying) = server.named_operator("staying", &["audit"]).await;
    let mut ends = leaving.stream("/v1/audit/stream", None).await;
    let mut stays = staying.stream(&format!("/v1/audit/stream?run={}", run.id), None).await;
    server.revoke_operator(&gone).await;
    let end = async { while ends.chunk().await.unwrap().is_some() {} };
    in_time("the end of the stream", end).await;
    run.create("b.txt", "b\n").await;
    assert!(stays.chunk().await.unwrap().is_some());
}

/// A file of settings with operators.
fn config_of(server: &Server, operators: &str) -> String {
    let path = server.home.join("config.toml");
    std::fs::write(&path, operators).unwrap();
    path.display().to_string()
}

#[rstest]
#[tokio::test]
async fn operators_come_from_the_configuration(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let config = config_of(
        &server,
        &format!(
            "[[operator]]\nname = \"ada\"\ntoken_sha256 = \"{}\"\nscopes = [\"approve\", \"audit\"]\n\
             [[operator]]\nname = \"ci\"\ntoken-sha256 = \"{}\"\nscopes = [\"orchestrate\"]\n",
            sha256("secret of ada"),
            sha256("secret-of-ci")
        ),
    );
    server.setup = server.setup.clone().arg("--config", config);
    server.restart();
    let ci = server.nobody().with_token(Some("secret-of-ci"));
    let created = ci.post("/v1/runs", json!({"runId": "by-ci", "source": {"type": "empty"}})).await.is(201);
    assert_eq!(created["run"]["createdBy"], "ci");
    let listed = items(&ci, "/v1/operators").await;
    assert_eq!(names(&listed), ["operator", "audit", "ada", "ci"]);
    assert_eq!(listed[2], json!({"name": "ada", "scopes": ["approve", "audit"]}));
    ci.delete("/v1/operators/ada").await.refused("INVALID_REQUEST");
    ci.post("/v1/operators", json!({"name": "ADA", "scopes": ["audit"]})).await.refused("ALREADY_EXISTS");
    assert!(server.stop().success());

    for (bad, needle) in [
        ("name = \"a b\"\ntoken_sha256 = \"0\"\nscopes = [\"audit\"]", "operator `a b`"),
        ("name = \"ada\"\ntoken_sha256 = \"0\"\nscopes = [\"audit\"]", "token_sha256 is not a SHA-256"),
        ("name = \"ada\"\nscopes = [\"audit\"]", "missing field `token_sha256`"),
        ("name = \"ada\"\ntoken = \"x\"\nscopes = [\"audit\"]", "unknown field `token`"),
        (&format!("name = \"ada\"\ntoken_sha256 = \"{}\"\nscopes = []", sha256("x")), "scopes is empty"),
        (&format!("name = \"ada\"\ntoken_sha256 = \"{}\"\nscopes = [\"root\"]", sha256("x")), "unknown variant `root`"),
        (&format!("name = \"operator\"\ntoken_sha256 = \"{}\"\nscopes = [\"audit\"]", sha256("x")), "reserved"),
        (
            &format!("name = \"ada\"\ntoken_sha256 = \"{}\"\nscopes = [\"audit\"]", sha256(&server.operator_token)),
            "the same token",
        ),
    ] {
        config_of(&server, &format!("[[operator]]\n{bad}\n"));
        let done = server.command("serve").args(&server.setup.args).output().unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!((done.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains(needle), "{needle}: {stderr}");
    }
}

#[rstest]
#[tokio::test]
async fn a_stored_operator_is_not_in_the_configuration_too(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let body = json!({"name": "eve", "scopes": ["audit"]});
    let token = server.operator().post("/v1/operators", body).await.is(201)["token"].as_str().unwrap().to_owned();
    assert!(server.stop().success());
    let operators = format!("[[operator]]\nname = \"Eve\"\ntoken_sha256 = \"{}\"\nscopes = [\"audit\"]\n", sha256("x"));
    let config = config_of(&server, &operators);
    let done = server.command("serve").args(["--config", &config, "--listen", "127.0.0.1:0"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(2) && stderr.contains("workspaced operator revoke eve"), "{stderr}");
    server.restart();
    server.nobody().with_token(Some(&token)).get("/v1/audit").await.ok();
}

#[rstest]
#[tokio::test]
async fn metrics_require_a_token_only_where_they_are_protected(#[values(Backend::Sqlite)] backend: Backend) {
    let open = Server::shared(backend).await;
    assert_eq!(open.nobody().get("/metrics").await.status, 200);
    assert_eq!(open.nobody().with_token(Some("unknown")).get("/metrics").await.status, 200);
    let server = Server::start_with(Setup::new(backend).env("WORKSPACED_PROTECT_METRICS", "true")).await;
    server.nobody().get("/metrics").await.refused("UNAUTHENTICATED");
    server.auditor().get("/metrics").await.refused("FORBIDDEN");
    let (_, scraper) = server.named_operator("scraper", &["metrics"]).await;
    for client in [&scraper, &server.operator()] {
        assert!(client.get("/metrics").await.text().contains("workspaced_"));
    }
    scraper.get("/v1/runs").await.refused("FORBIDDEN");
    server.nobody().get("/healthz").await.is(200);
}
