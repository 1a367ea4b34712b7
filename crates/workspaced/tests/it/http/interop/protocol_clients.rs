//! The official clients and the conformance suite of the Model Context Protocol.

use rstest::rstest;
use serde_json::json;

use super::assert_done;
use crate::harness::{Backend, Issuer, Run, Server, client_python, client_script, clients, third_party};
use crate::operation::guides::{blocks_of, succeed};

const FILES: [(&str, &str); 2] = [("src/a.py", "def add(a, b):\n\treturn a - b\n"), (".env", "KEY=value\n")];

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_conformance_suite_finds_only_what_is_expected(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &FILES).await;
    let mut node = third_party("node");
    node.arg(client_script("mcp_conformance.mjs"))
        .arg(clients().join("node/node_modules"))
        .arg(&server.operator().base);
    node.arg(run.agent.token.as_ref().unwrap()).arg(client_script("mcp_conformance.yaml"));
    assert_done(&tokio::task::spawn_blocking(move || node.output().unwrap()).await.unwrap());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_official_python_client_works(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &FILES).await;
    let mut python = client_python();
    python.arg(client_script("mcp_python.py")).arg(&server.operator().base).arg(run.agent.token.as_ref().unwrap());
    assert_done(&tokio::task::spawn_blocking(move || python.output().unwrap()).await.unwrap());
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_official_typescript_client_works(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &FILES).await;
    let mut node = third_party("node");
    node.arg(client_script("mcp_typescript.mjs")).arg(&server.operator().base).arg(run.agent.token.as_ref().unwrap());
    node.arg(clients().join("node"));
    assert_done(&tokio::task::spawn_blocking(move || node.output().unwrap()).await.unwrap());
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_official_python_client_finds_the_issuer_by_itself(#[values(Backend::Sqlite)] backend: Backend) {
    let issuer = Issuer::start().await;
    let server = Server::start_with(issuer.setup(backend)).await;
    let run = server.run_with_files(&[("src/a.py", "a = 1\n")], json!({})).await;
    issuer.set_claims(json!({"run": run.id, "scope": "file:read file:list"}));
    let mut python = client_python();
    python.arg(client_script("mcp_oauth_python.py")).arg(&server.base);
    assert_done(&tokio::task::spawn_blocking(move || python.output().unwrap()).await.unwrap());
    assert_eq!(issuer.resources(), [format!("{}/mcp", server.base)]);
    assert!(run.last_record().await["actor"].as_str().unwrap().starts_with("run-token:oauth-ada-"));
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_official_python_client_starts_it_as_a_process(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, used) = Run::shared(backend, &FILES).await;
    let mut python = client_python();
    python.arg(client_script("mcp_stdio.py")).arg(env!("CARGO_BIN_EXE_workspaced"));
    python.arg(&server.base).arg(used.agent.token.as_ref().unwrap());
    assert_done(&tokio::task::spawn_blocking(move || python.output().unwrap()).await.unwrap());
    assert_eq!(used.verify().await["intact"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_of_the_page_reads_a_file() {
    let (server, run) = Run::shared(Backend::Sqlite, &[("src/main.rs", "fn main() {}\n")]).await;
    let indented = blocks_of("mcp.md", "python")[0].replace('\n', "\n    ");
    let program = format!(
        "import asyncio, sys, httpx2\nfrom mcp import Client\nfrom mcp.client.streamable_http import \
         streamable_http_client\nasync def main(url, token):\n    {indented}\nasyncio.run(main(*sys.argv[1:]))\n"
    );
    let mut python = client_python();
    python.args(["-c", &program, &server.base, run.agent.token.as_ref().unwrap()]);
    let out = tokio::task::spawn_blocking(move || succeed(python, "mcp.md")).await.unwrap();
    assert_eq!(out, "1  fn main() {}\n\n");
}
