//! The pages that the `type` of a problem document names.

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{Answer, Backend, Client, Run, Server};

async fn page(client: &Client, path: &str, accept: &str) -> Answer {
    client.send(client.request(Method::GET, path).header("accept", accept)).await
}

#[rstest]
#[tokio::test]
async fn the_type_of_a_refusal_is_a_page_that_explains_it(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    let problem = run.call("read_file", json!({"path": "../x"})).await.refused("PATH_REJECTED");
    assert_eq!(problem["type"], "/problems/PATH_REJECTED");
    let text = page(&server.nobody(), problem["type"].as_str().unwrap(), "*/*").await;
    assert_eq!(text.status, 200, "{}", text.text());
    assert!(text.header("content-type").starts_with("text/plain"));
    for accept in ["text/plain, text/html;q=0.5", "text/html;q=0, */*"] {
        let plain = page(&server.nobody(), "/problems/PATH_REJECTED", accept).await;
        assert!(plain.header("content-type").starts_with("text/plain"), "{accept}");
    }
    for part in ["Path rejected", "Code: PATH_REJECTED, status 400", "\nCause: ", "\nRemedy: ", "\nExample: "] {
        assert!(text.text().contains(part), "{part}: {}", text.text());
    }
    let html = page(&server.nobody(), "/problems/PATH_REJECTED", "text/html,*/*;q=0.8").await;
    assert!(html.header("content-type").starts_with("text/html"));
    assert!(html.header("content-security-policy").contains("default-src 'none'"));
    assert_eq!((html.header("vary"), html.header("x-content-type-options")), ("accept", "nosniff"));
    assert!(html.text().starts_with("<!doctype html>") && html.text().contains("<h2>Remedy</h2>"), "{}", html.text());
}

#[rstest]
#[tokio::test]
async fn every_code_of_the_api_document_has_a_page(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let nobody = server.nobody();
    let list = page(&nobody, "/problems", "text/plain").await.text();
    let document = nobody.get("/openapi.json").await.ok();
    let codes = document["components"]["schemas"]["Code"]["enum"].as_array().unwrap().clone();
    assert!(codes.len() > 30, "{codes:?}");
    for code in codes {
        let code = code.as_str().unwrap();
        assert!(list.lines().any(|line| line.ends_with(&format!(" {code}"))), "{code}: {list}");
        for accept in ["text/html", "text/plain"] {
            let page = page(&nobody, &format!("/problems/{code}"), accept).await;
            assert_eq!(page.status, 200, "{code}");
            assert!(page.text().contains(code) && page.text().len() < 4096, "{code}: {}", page.text());
        }
    }
    for none in ["/problems/NONE", "/problems/not_found", "/problems/%00"] {
        nobody.get(none).await.refused("NOT_FOUND");
    }
}
