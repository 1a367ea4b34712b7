//! `RateLimit`, `RateLimit-Policy` and `Retry-After`.

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Server, Setup};

#[rstest]
#[tokio::test]
async fn a_token_sees_the_state_of_its_rate_limit(#[values(Backend::Sqlite)] backend: Backend) {
    let setup = Setup::new(backend).arg("--rate-limit", "1:4");
    let server = Server::start_with(setup).await;
    let run = server.run(json!({})).await;
    let list = format!("/v1/runs/{}/tools/list_dir", run.id);
    for remaining in [3, 2, 1, 0] {
        let answer = run.agent.post(&list, json!({})).await;
        answer.ok();
        assert_eq!(answer.header("ratelimit-policy"), "\"token\";q=4;w=4");
        assert_eq!(answer.header("ratelimit"), format!("\"token\";r={remaining};t={}", 4 - remaining));
    }
    let refused = run.agent.post(&list, json!({})).await;
    refused.refused("RATE_LIMITED");
    assert_eq!(refused.header("ratelimit"), "\"token\";r=0;t=1");
    assert_eq!(refused.header("retry-after"), "1");
    // A request without a token counts for no token.
    for path in ["/healthz", "/v1/runs"] {
        assert_eq!(server.nobody().get(path).await.header("ratelimit"), "", "{path}");
    }
}

#[rstest]
#[tokio::test]
async fn there_are_no_such_headers_without_a_limit(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let answer = run.call("list_dir", json!({})).await;
    assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), ("", ""));
}
