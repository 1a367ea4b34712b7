//! `Idempotency-Key` and `Location` of `POST /v1/runs`, `POST /v1/runs/{run}/tokens` and `POST /v1/operators`.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Server, Setup, exhaustive, items};

async fn post(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    client.send(client.request(Method::POST, path).header("idempotency-key", key).json(body)).await
}

async fn create(server: &Server, key: &str, body: &Value) -> Answer {
    post(&server.operator(), "/v1/runs", key, body).await
}

fn secret(answer: &Answer) -> String {
    let body = answer.is(201);
    let token = if body["run"].is_object() { &body["token"]["token"] } else { &body["token"] };
    token.as_str().unwrap().to_owned()
}

/// Returns the run of a creation.
fn run_of(answer: &Answer) -> Value {
    answer.is(201)["run"].clone()
}

#[rstest]
#[tokio::test]
async fn a_repeated_creation_returns_the_run_with_another_token(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let body = json!({"source": {"type": "empty"}, "labels": {"ticket": "4711"}});
    let first = create(&server, "key-1", &body).await;
    let run = first.is(201)["run"]["runId"].as_str().unwrap().to_owned();
    assert_eq!(first.header("location"), format!("/v1/runs/{run}"));
    server.operator().get(first.header("location")).await.ok();
    let tokens = format!("/v1/runs/{run}/tokens");
    let permissions = json!({"permissions": ["file:list"], "expiresAt": "2090-01-01T00:00:00Z"});
    let token = post(&server.operator(), &tokens, "key-2", &permissions).await;
    let id = token.is(201)["tokenId"].as_str().unwrap().to_owned();
    assert_eq!(token.header("location"), format!("{tokens}/{id}"));

    // The stored answers have no secret, and a restart keeps them.
    let mut secrets = std::collections::BTreeSet::from([secret(&first), secret(&token)]);
    for _ in 0..2 {
        let again = create(&server, "key-1", &body).await;
        assert_eq!((run_of(&again), again.header("location")), (run_of(&first), first.header("location")));
        let second = post(&server.operator(), &tokens, "key-2", &permissions).await;
        assert_ne!(second.header("location"), token.header("location"));
        assert_eq!(second.is(201)["expiresAt"], token.json()["expiresAt"]);
        secrets.extend([secret(&again), secret(&second)]);
        for secret in &secrets {
            let agent = server.operator().with_token(Some(secret));
            agent.post(&format!("/v1/runs/{run}/tools/list_dir"), json!({})).await.ok();
        }
        assert_eq!(items(&server.operator(), "/v1/runs").await.len(), 1);
        server.stop();
        for secret in &secrets {
            assert!(!server.database.contains(secret).await, "the database contains a secret");
        }
        assert!(server.database.contains("4711").await, "the search finds what is stored");
        server.restart();
    }
    assert_eq!(secrets.len(), 6);
    // The same JSON is the same body. Without a key, or under another one, it is another run.
    let spaced = server.operator().request(Method::POST, "/v1/runs").header("idempotency-key", "key-1");
    let spaced = spaced.body("{ \"labels\": {\"ticket\": \"4711\"},\n\"source\": {\"type\": \"empty\"} }");
    assert_eq!(run_of(&server.operator().send(spaced).await), run_of(&first));
    create(&server, "key-3", &body).await.is(201);
    server.operator().post("/v1/runs", body).await.is(201);
    assert_eq!(items(&server.operator(), "/v1/runs").await.len(), 3);
    // The creation is recorded once, each token too, and the answer has the head of the run after the creation.
    let records = items(&server.operator(), &format!("/v1/runs/{run}/audit")).await;
    let recorded = |tool: &str| records.iter().filter(|record| record["tool"] == tool).count();
    assert_eq!((recorded("run.create"), recorded("token.issue")), (1, 6), "{records:#?}");
    let created = &first.json()["run"];
    assert_eq!((&created["headSeq"], &created["headHash"]), (&records[0]["seq"], &records[0]["hash"]));
    assert_eq!((&records[1]["tool"], &records[1]["input"]["tokenId"]), (&json!("token.issue"), &json!(id)));
    assert_eq!(records[0]["input"]["token"]["tokenId"], first.json()["token"]["tokenId"]);
    // A revoked token stays revoked, and so do those of a deleted run.
    server.operator().delete(&format!("{tokens}/{id}")).await;
    post(&server.operator(), &tokens, "key-2", &permissions).await.is(201);
    let agent = server.operator().with_token(Some(&secret(&token)));
    agent.post(&format!("/v1/runs/{run}/tools/list_dir"), json!({})).await.refused("UNAUTHENTICATED");
    server.operator().delete(&format!("/v1/runs/{run}")).await.ok();
    create(&server, "key-1", &json!({"source": {"type": "empty"}, "labels": {"ticket": "4711"}}))
        .await
        .refused("RUN_CLOSED");
}

#[rstest]
#[tokio::test]
async fn a_repeated_creation_of_an_operator_replaces_its_token(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let body = json!({"name": "ada@example.org", "scopes": ["audit"]});
    let first = post(&server.operator(), "/v1/operators", "key", &body).await;
    assert_eq!((first.status, first.header("location")), (201, "/v1/operators/ada@example.org"));
    server.stop();
    assert!(!server.database.contains(&secret(&first)).await, "the database contains the secret");
    server.restart();
    let again = post(&server.operator(), "/v1/operators", "key", &body).await;
    assert_eq!(
        (&again.is(201)["name"], again.header("location")),
        (&json!("ada@example.org"), first.header("location"))
    );
    assert_ne!(secret(&again), secret(&first));
    for answer in [&first, &again] {
        server.nobody().with_token(Some(&secret(answer))).get("/v1/runs").await.ok();
    }
    assert_eq!(items(&server.operator(), "/v1/audit?run=_service&tool=operator.rotate").await.len(), 1);
    post(&server.operator(), "/v1/operators", "other", &body).await.refused("ALREADY_EXISTS");
    let other = json!({"name": "bob", "scopes": ["audit"]});
    post(&server.operator(), "/v1/operators", "key", &other).await.refused("IDEMPOTENCY_KEY_REUSED");
    // The path of `Location` revokes the operator.
    assert_eq!(server.operator().delete(first.header("location")).await.status, 204);
    post(&server.operator(), "/v1/operators", "key", &body).await.refused("NOT_FOUND");
    for answer in [&first, &again] {
        server.nobody().with_token(Some(&secret(answer))).get("/v1/runs").await.refused("UNAUTHENTICATED");
    }
    post(&server.operator(), "/v1/operators", "second", &body).await.is(201);
}

#[rstest]
#[tokio::test]
async fn a_key_belongs_to_one_request(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let body = json!({"source": {"type": "empty"}});
    let first = create(&server, "key", &body).await.is(201);
    let other = create(&server, "other", &body).await.is(201);
    let labelled = json!({"source": {"type": "empty"}, "labels": {"a": "b"}});
    let problem = create(&server, "key", &labelled).await.refused("IDEMPOTENCY_KEY_REUSED");
    assert!(problem["message"].as_str().unwrap().contains("`key`"), "{problem:#}");
    // The key of a run's creation cannot be that of a token, and a token's key belongs to its run.
    let tokens = |run: &Value| format!("/v1/runs/{}/tokens", run["run"]["runId"].as_str().unwrap());
    let operator = server.operator();
    post(&operator, &tokens(&first), "key", &json!({})).await.refused("IDEMPOTENCY_KEY_REUSED");
    post(&operator, &tokens(&first), "token", &json!({})).await.is(201);
    post(&operator, &tokens(&other), "token", &json!({})).await.refused("IDEMPOTENCY_KEY_REUSED");
    // A refused creation leaves the key free.
    create(&server, "free", &json!({"source": {"type": "none"}})).await.refused("INVALID_REQUEST");
    let run_id = first["run"]["runId"].clone();
    create(&server, "free", &json!({"runId": run_id, "source": {"type": "empty"}})).await.refused("ALREADY_EXISTS");
    create(&server, "free", &body).await.is(201);
    for invalid in ["", "a b", &"x".repeat(129), "\u{e9}"] {
        create(&server, invalid, &body).await.refused("INVALID_REQUEST");
    }
    create(&server, &"x".repeat(128), &body).await.is(201);
    let twice =
        operator.request(Method::POST, "/v1/runs").header("idempotency-key", "a").header("idempotency-key", "b");
    operator.send(twice.json(&body)).await.refused("INVALID_REQUEST");
    post(&server.auditor(), "/v1/runs", "key", &body).await.refused("FORBIDDEN");
    assert_eq!(items(&operator, "/v1/runs").await.len(), 4);
}

#[rstest]
#[tokio::test]
async fn a_key_belongs_to_one_operator(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let (ada, client) = server.named_operator("ada", &["orchestrate"]).await;
    let body = json!({"source": {"type": "empty"}});
    let first = create(&server, "key", &body).await;
    let own = post(&client, "/v1/runs", "key", &body).await;
    assert_eq!(first.is(201)["run"]["createdBy"], "operator");
    assert_eq!(own.is(201)["run"]["createdBy"], ada);
    assert_ne!(secret(&first), secret(&own));
    assert_eq!(run_of(&post(&client, "/v1/runs", "key", &body).await), run_of(&own));
    assert_eq!(run_of(&create(&server, "key", &body).await), run_of(&first));
    let stored = items(&server.operator(), "/v1/runs").await;
    let creators: Vec<_> = stored.iter().map(|run| run["createdBy"].as_str().unwrap()).collect();
    assert_eq!(creators, ["operator", ada.as_str()]);
}

#[rstest]
#[tokio::test]
async fn concurrent_repetitions_create_one_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let template = server.template(&[("a.txt", "a\n")]);
    let named = json!({"runId": "named", "source": {"type": "directory", "path": template}});
    let unnamed = json!({"source": {"type": "directory", "path": template}});
    for (key, body) in [("named", named), ("unnamed", unnamed)] {
        let sent: Vec<_> = (0..8)
            .map(|_| {
                let (client, body) = (server.operator(), body.clone());
                tokio::spawn(async move { post(&client, "/v1/runs", key, &body).await })
            })
            .collect();
        let mut answers = std::collections::BTreeSet::new();
        for answer in sent {
            let answer = answer.await.unwrap();
            answers.insert(run_of(&answer).to_string());
        }
        assert_eq!(answers.len(), 1);
    }
    assert_eq!(items(&server.operator(), "/v1/runs").await.len(), 2);
}

#[rstest]
#[tokio::test]
async fn a_key_is_free_again_after_a_day(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, clock) = Server::start_with_clock(Setup::new(backend)).await;
    let body = json!({"source": {"type": "empty"}});
    let first = create(&server, "key", &body).await;
    std::fs::write(&clock, (24 * 3600 - 60).to_string()).unwrap();
    assert_eq!(run_of(&create(&server, "key", &body).await), run_of(&first));
    std::fs::write(&clock, (24 * 3600 + 1).to_string()).unwrap();
    let second = create(&server, "key", &json!({"source": {"type": "empty"}, "ttlSeconds": 60})).await;
    assert_ne!(secret(&second), secret(&first));
    assert_eq!(items(&server.operator(), "/v1/runs").await.len(), 2);
}

#[rstest]
#[tokio::test]
async fn a_creation_goes_on_when_its_caller_disconnects_or_the_service_is_killed(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let files: Vec<_> = (0..400).map(|number| (format!("{number}.txt"), "text\n")).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let body = json!({"runId": "large", "source": {"type": "directory", "path": server.template(&files)}});
    for pause in [0, 5, 20, 60] {
        let (client, sent) = (server.operator(), body.clone());
        let under_way = tokio::spawn(async move { post(&client, "/v1/runs", "key", &sent).await });
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        under_way.abort();
        if pause == 20 {
            server.kill();
            server.restart();
        }
    }
    let first = create(&server, "key", &body).await;
    let run = server.run_from(&first.is(201)).await;
    assert_eq!(run.files().len(), 400);
    assert_eq!(run_of(&create(&server, "key", &body).await), run_of(&first));
    assert_eq!(items(&server.operator(), "/v1/runs").await.len(), 1);
}
