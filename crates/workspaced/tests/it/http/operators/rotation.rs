//! Replacing an operator's token: which tokens end and when, before and after a restart, and repetitions, disconnected callers
//! and uncertain commits.

use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::harness::{Answer, Backend, Server, Setup, exhaustive, items, rfc3339, sha256};
use crate::operation::secret_rotation::is_accepted;
use crate::operation::uncertain_commits::{decide, start_with_proxy};

const PATH: &str = "/v1/operators/ada/tokens";

fn token(answer: &Value) -> String {
    answer["token"].as_str().unwrap().to_owned()
}

/// Creates the operator `ada`, and returns its token.
async fn create(server: &Server, mut body: Value) -> String {
    body["name"] = json!("ada");
    body["scopes"] = json!(["audit"]);
    token(&server.operator().post("/v1/operators", body).await.is(201))
}

async fn rotate(server: &Server, body: Value) -> Answer {
    server.operator().post(PATH, body).await
}

/// Replaces the token of `ada`, and returns the new one.
async fn replace(server: &Server, overlap_seconds: u64) -> String {
    token(&rotate(server, json!({"overlapSeconds": overlap_seconds})).await.is(201))
}

/// Returns when the tokens of `ada` were or are revoked, in order of creation.
async fn ends(server: &Server) -> Vec<Option<String>> {
    let listed = items(&server.operator(), "/v1/operators").await;
    let own = listed.iter().filter(|one| one["name"] == "ada");
    own.map(|one| one["revokedAt"].as_str().map(str::to_owned)).collect()
}

async fn until_refused(server: &Server, token: &str) {
    server.until("the token is refused", async || !is_accepted(server, token).await).await;
}

#[rstest]
#[tokio::test]
async fn without_an_overlap_every_earlier_token_ends(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let leaked = create(&server, json!({})).await;
    let second = replace(&server, 3600).await;
    assert!(is_accepted(&server, &leaked).await && is_accepted(&server, &second).await);
    let third = replace(&server, 0).await;
    for after in ["", " after a restart"] {
        for refused in [&leaked, &second] {
            assert!(!is_accepted(&server, refused).await, "an ended token is accepted{after}");
        }
        assert!(is_accepted(&server, &third).await, "the token in force is refused{after}");
        server.kill();
        server.restart();
    }
}

#[rstest]
#[tokio::test]
async fn an_overlap_changes_the_end_of_the_token_in_force_only(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let first = create(&server, json!({})).await;
    let second = replace(&server, 3600).await;
    let end = ends(&server).await.remove(0);
    let third = replace(&server, 1).await;
    until_refused(&server, &second).await;
    let fourth = replace(&server, 604_800).await;
    for after in ["", " after a restart"] {
        assert!(is_accepted(&server, &first).await, "a shorter overlap has shortened an earlier one{after}");
        assert!(!is_accepted(&server, &second).await, "a longer overlap has lengthened an earlier one{after}");
        assert!(is_accepted(&server, &third).await && is_accepted(&server, &fourth).await, "{after}");
        assert_eq!(ends(&server).await[0], end);
        server.kill();
        server.restart();
    }
}

#[rstest]
#[tokio::test]
async fn a_replaced_token_that_has_expired_does_not_reserve_its_name(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(false, true)] is_expired: bool,
) {
    let mut server = Server::start(backend).await;
    let first = create(&server, json!({})).await;
    rotate(&server, json!({"overlapSeconds": 1})).await.is(201);
    until_refused(&server, &first).await;
    if is_expired {
        let soon = rfc3339(std::time::SystemTime::now() + Duration::from_secs(2));
        let present = token(&rotate(&server, json!({"overlapSeconds": 1, "expiresAt": soon})).await.is(201));
        until_refused(&server, &present).await;
    }
    assert_eq!(server.operator().delete("/v1/operators/ada").await.status, 204);
    assert!(server.stop().success());
    let config = server.home.join("config.toml");
    let configured = sha256("a configured token");
    let text =
        format!("[[operator]]\nname = \"ada\"\ntoken_sha256 = \"{}\"\nscopes = [\"audit\"]\n", sha256(&configured));
    std::fs::write(&config, text).unwrap();
    server.setup = server.setup.clone().arg("--config", config.display());
    server.restart();
    assert!(is_accepted(&server, &configured).await && !is_accepted(&server, &first).await);
}

#[rstest]
#[tokio::test]
async fn tokens_that_have_expired_do_not_count_as_operators(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(false, true)] is_replaced: bool,
) {
    let mut server = Server::start(backend).await;
    let first = create(&server, json!({})).await;
    assert!(server.stop().success());
    let end = "2026-01-01T00:00:00.000000Z";
    let values = |number: &str, secret: &str| {
        let name = if is_replaced { "'ada'".to_owned() } else { format!("'old' || {number}") };
        let revoked_at = if is_replaced { format!("'{end}'") } else { "null".to_owned() };
        format!("{name}, {secret}, '[\"audit\"]', '{end}', 'command line', '{end}', {revoked_at}")
    };
    let rows = match backend {
        Backend::Sqlite => format!(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000) select {} from n",
            values("i", "randomblob(32)")
        ),
        Backend::Postgres => {
            format!("select {} from generate_series(1, 1000) i", values("i", "sha256(convert_to(i::text, 'UTF8'))"))
        }
    };
    let columns = "name, secret_sha256, scopes, created_at, created_by, expires_at, revoked_at";
    assert_eq!(server.database.tamper(&format!("insert into operator_token ({columns}) {rows}")).await, Ok(1000));
    server.restart();
    assert!(is_accepted(&server, &first).await);
    server.operator().post("/v1/operators", json!({"name": "bob", "scopes": ["audit"]})).await.is(201);
    server.operator().post("/v1/operators/bob/tokens", json!({})).await.is(201);
}

#[rstest]
#[tokio::test]
async fn a_token_that_has_expired_is_replaced_only_with_an_end(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let soon = rfc3339(std::time::SystemTime::now() + Duration::from_secs(2));
    let first = create(&server, json!({"expiresAt": soon})).await;
    until_refused(&server, &first).await;
    for body in [json!({}), json!({"overlapSeconds": 0})] {
        let refusal = rotate(&server, body).await.refused("INVALID_REQUEST");
        assert!(refusal["hint"].as_str().unwrap().contains("`expiresAt`"), "{refusal}");
    }
    assert_eq!(ends(&server).await, [None]);
    let second = token(&rotate(&server, json!({"expiresAt": "2099-01-01T00:00:00Z"})).await.is(201));
    assert!(is_accepted(&server, &second).await && !is_accepted(&server, &first).await);
}

#[rstest]
#[tokio::test]
async fn a_replacement_under_a_key_happens_once(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let first = create(&server, json!({})).await;
    let keyed = async |server: &Server, path: &str, key: &str, body: Option<Value>| {
        let client = server.operator();
        let request = client.request(Method::POST, path).header("idempotency-key", key);
        client.send(body.iter().fold(request, reqwest::RequestBuilder::json)).await
    };
    let body = json!({"overlapSeconds": 3600});
    let answer = keyed(&server, PATH, "k1", Some(body.clone())).await;
    let second = token(&answer.is(201));
    let again = token(&keyed(&server, PATH, "k1", Some(body.clone())).await.is(201));
    assert_eq!(ends(&server).await.len(), 3, "the repetition gives one more token");
    keyed(&server, PATH, "k1", Some(json!({"overlapSeconds": 1}))).await.refused("IDEMPOTENCY_KEY_REUSED");
    keyed(&server, "/v1/operators/bob/tokens", "k1", Some(body.clone())).await.refused("IDEMPOTENCY_KEY_REUSED");
    keyed(&server, PATH, "not a key", Some(body.clone())).await.refused("INVALID_REQUEST");
    // A refused request leaves no answer.
    keyed(&server, "/v1/operators/bob/tokens", "k2", None).await.refused("NOT_FOUND");
    server.kill();
    server.restart();
    let last = token(&keyed(&server, PATH, "k1", Some(body)).await.is(201));
    for token in [&first, &second, &again, &last] {
        assert!(is_accepted(&server, token).await);
        assert!(!server.database.contains(token).await, "the database has the secret");
    }
    assert_eq!(ends(&server).await.len(), 4);
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Rotation,
    Revocation,
}

impl Change {
    async fn send(self, server: &Server) -> Answer {
        match self {
            Self::Rotation => rotate(server, json!({"overlapSeconds": 0})).await,
            Self::Revocation => server.operator().delete("/v1/operators/ada").await,
        }
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_complete_if_its_caller_disconnects(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(Change::Rotation, Change::Revocation)] change: Change,
) {
    let server = Server::start_with(Setup::new(backend).arg("--checkpoint-seconds", 3600)).await;
    let first = create(&server, json!({})).await;
    let server = std::sync::Arc::new(server);
    let disconnect = async || {
        let sent = tokio::spawn({
            let server = std::sync::Arc::clone(&server);
            async move { change.send(&server).await }
        });
        tokio::time::sleep(Duration::from_millis(700)).await;
        sent.abort();
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    // The caller disconnects while the commit waits.
    match backend {
        Backend::Sqlite => {
            let _lock = server.database.lock_writes();
            disconnect().await;
        }
        Backend::Postgres => {
            let mut holder = PgConnection::connect(&server.database.url).await.unwrap();
            holder.execute("begin; lock table operator_token in share row exclusive mode").await.unwrap();
            disconnect().await;
            holder.execute("commit").await.unwrap();
        }
    }
    until_refused(&server, &first).await;
    assert!(ends(&server).await[0].is_some());
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_commit_is_uncertain_is_in_force_once_it_is_stored(
    #[values(Change::Rotation, Change::Revocation)] change: Change,
    #[values(true, false)] lands: bool,
) {
    let (server, proxy) = start_with_proxy().await;
    let first = create(&server, json!({})).await;
    proxy.set(crate::harness::ProxyMode::HoldCommit);
    change.send(&server).await.refused("UNAVAILABLE");
    decide(&server.database, &proxy, "operator_token", lands).await;
    if lands {
        until_refused(&server, &first).await;
    } else {
        // A change that is made afterwards waits until the outcome is known.
        server.operator().post("/v1/operators", json!({"name": "bob", "scopes": ["audit"]})).await.is(201);
        assert!(is_accepted(&server, &first).await);
    }
    assert_eq!(ends(&server).await[0].is_some(), lands);
}
