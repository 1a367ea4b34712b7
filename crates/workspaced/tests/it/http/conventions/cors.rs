//! Requests of scripts on pages of other origins.

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{Answer, Backend, Client, Run, Server, Setup};

const CONSOLE: &str = "https://console.example";

async fn preflight(client: &Client, path: &str, origin: &str) -> Answer {
    let request = client.request(Method::OPTIONS, path).header("origin", origin);
    let request = request.header("access-control-request-method", "PUT");
    client.send(request.header("access-control-request-headers", "authorization,if-match,x-reason")).await
}

#[rstest]
#[tokio::test]
async fn only_pages_of_configured_origins_may_call(#[values(Backend::Sqlite)] backend: Backend) {
    let setup = Setup::new(backend).arg("--cors-origin", CONSOLE).arg("--cors-origin", "http://localhost:3000");
    let server = Server::start_with(setup).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let file = format!("/v1/runs/{}/files/a.txt", run.id);
    for origin in [CONSOLE, "http://localhost:3000"] {
        // A browser sends no token with a preflight request.
        let answer = preflight(&server.nobody(), &file, origin).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        assert!(answer.header("access-control-allow-methods").contains("PUT"));
        assert_eq!(answer.header("access-control-allow-headers"), "authorization,if-match,x-reason");
        assert_eq!(answer.header("access-control-max-age"), "3600");
        assert_eq!(answer.header("access-control-allow-credentials"), "");
        assert!(!answer.header("x-request-id").is_empty());
        let get = run.agent.request(Method::GET, &file).header("origin", origin);
        let answer = run.agent.send(get).await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, origin));
        let exposed = answer.header("access-control-expose-headers");
        for name in ["etag", "location", "retry-after", "x-request-id", "ratelimit"] {
            assert!(exposed.split(',').any(|one| one.trim() == name), "{name}: {exposed}");
        }
        assert!(answer.headers.get_all("vary").iter().any(|vary| vary.to_str().unwrap().contains("origin")));
    }
    // A script may read why its request was refused, also before a route is reached.
    for path in ["/v1/runs", "/v1//runs"] {
        let request = server.nobody().request(Method::GET, path).header("origin", CONSOLE);
        let refused = server.nobody().send(request).await;
        assert!(refused.status >= 400 && refused.header("access-control-allow-origin") == CONSOLE, "{path}");
    }
    for other in ["https://other.example", "https://console.example.other", "http://console.example", "null"] {
        assert_eq!(
            preflight(&server.nobody(), &file, other).await.header("access-control-allow-origin"),
            "",
            "{other}"
        );
        let get = run.agent.request(Method::GET, &file).header("origin", other);
        assert_eq!(run.agent.send(get).await.header("access-control-allow-origin"), "", "{other}");
    }
}

#[rstest]
#[tokio::test]
async fn no_origin_may_call_by_default(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let file = format!("/v1/runs/{}/files/a.txt", run.id);
    let answer = preflight(&server.nobody(), &file, CONSOLE).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, ""));
    let get = run.agent.request(Method::GET, &file).header("origin", CONSOLE);
    assert_eq!(run.agent.send(get).await.header("access-control-allow-origin"), "");
}
