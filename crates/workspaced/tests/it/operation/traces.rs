//! Traces: what a collector receives, and a collector that does not answer.

use std::net::TcpListener;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, Setup, free_port};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// The messages that a collector has received.
type Messages = Arc<Mutex<Vec<Bytes>>>;

/// Starts a collector. Returns its address and what it receives.
async fn collector() -> (String, Messages) {
    let messages = Messages::default();
    let receive = async |State(messages): State<Messages>, body: Bytes| messages.lock().push(body);
    let router = axum::Router::new().route("/v1/traces", post(receive)).with_state(Arc::clone(&messages));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, messages)
}

fn spans(messages: &Messages) -> Vec<Span> {
    let messages = messages.lock();
    let requests = messages.iter().map(|body| ExportTraceServiceRequest::decode(&body[..]).unwrap());
    let resources: Vec<_> = requests.flat_map(|request| request.resource_spans).collect();
    for resource in &resources {
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        let name = attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
        assert_eq!(name.value.as_ref().unwrap().value, Some(Value::StringValue("workspaced".to_owned())));
    }
    resources.into_iter().flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()).and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{key} of {}: {other:?}", span.name),
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn only<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} of {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>());
    found[0]
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_part_of_the_callers_trace(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("info", "warn")] log: &str,
) {
    let (address, messages) = collector().await;
    let setup = Setup::new(backend).env("OTEL_EXPORTER_OTLP_ENDPOINT", &address).arg("--log", log);
    let mut server = Server::start_with(setup.env("OTEL_TRACES_SAMPLER_ARG", "0")).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let input = json!({"path": "folder/secret-name.txt", "content": "the-content\n", "reason": "the-reason"});
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    for (flags, content) in [("00", "not sampled"), ("01", "sampled")] {
        let mut input = input.clone();
        input["path"] = format!("folder/secret-name-{content}.txt").into();
        let request = run.agent.request(Method::POST, &path).json(&input);
        let parent = format!("00-{TRACE}-{PARENT}-{flags}");
        run.agent.send(request.header("traceparent", parent).header("x-request-id", "the-request")).await.ok();
    }
    server.nobody().get("/readyz").await.ok();
    assert!(server.stop().success(), "{}", server.log());

    let spans = spans(&messages);
    assert!(!spans.is_empty(), "no spans\n{}", server.log());
    let request = only(&spans, "POST /v1/runs/{run}/tools/{tool}");
    assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    assert_eq!(request.kind, 2, "a span of a server");
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("request.id", "the-request"),
        ("run.id", &run.id),
    ] {
        assert_eq!(attribute(request, key), value, "{key}");
    }
    let call = only(&spans, "tool_call");
    assert_eq!(call.parent_span_id, request.span_id);
    for (key, value) in [("tool.name", "write_file"), ("decision", "ALLOW"), ("outcome", "ok"), ("run.id", &run.id)] {
        assert_eq!(attribute(call, key), value, "{key}");
    }
    assert!(attribute(call, "seq").parse::<u64>().unwrap() > 1);
    for name in ["commit", "apply"] {
        assert_eq!(only(&spans, name).parent_span_id, call.span_id, "{name}");
    }
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE && span.events.is_empty()));
    assert_eq!(spans.len(), 4, "nothing that is not sampled is sent");
    let token = run.agent.token.clone().unwrap();
    for body in messages.lock().iter() {
        let text = String::from_utf8_lossy(body);
        for private in ["the-content", "the-reason", "secret-name", &token, server.home.to_str().unwrap()] {
            assert!(!text.contains(private), "{private}");
        }
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_and_a_refusal_have_their_decisions(#[values(Backend::Sqlite)] backend: Backend) {
    let (address, messages) = collector().await;
    // The whole address, which counts more than that of all signals.
    let setup = Setup::new(backend).env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let setup = setup.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &format!("{address}/v1/traces"));
    let mut server = Server::start_with(setup).await;
    let run = server.run_with_files(&[(".env", "A=b\n")], json!({})).await;
    let write = |path: &str| json!({"tool": "write_file", "input": {"path": path, "content": "x\n", "reason": "r"}});
    run.batch(json!([write("a.txt"), write("b.txt")])).await.ok();
    run.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    assert!(server.stop().success(), "{}", server.log());

    let spans = spans(&messages);
    let batch = only(&spans, "batch");
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "tool_call").collect();
    let of_batch: Vec<_> = calls.iter().filter(|call| call.parent_span_id == batch.span_id).collect();
    assert_eq!(of_batch.len(), 2);
    assert_ne!(attribute(of_batch[0], "seq"), attribute(of_batch[1], "seq"));
    let read = calls.iter().find(|call| attribute(call, "tool.name") == "read_file").unwrap();
    assert_eq!((attribute(read, "decision"), attribute(read, "outcome")), ("DENY".to_owned(), "refused".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_span_for_this_machine_takes_a_proxy() {
    let ((address, messages), (proxy, proxied)) = (collector().await, collector().await);
    let setup = Setup::new(Backend::Sqlite).env("OTEL_EXPORTER_OTLP_ENDPOINT", &address).env("http_proxy", &proxy);
    let mut server = Server::start_with(setup).await;
    server.run(json!({})).await;
    assert!(server.stop().success(), "{}", server.log());
    assert!(!spans(&messages).is_empty() && proxied.lock().is_empty(), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_without_a_token_invents_is_not_held_until_spans_are_sent() {
    let (address, messages) = collector().await;
    let setup =
        Setup::new(Backend::Sqlite).env("OTEL_EXPORTER_OTLP_ENDPOINT", &address).arg("--log", "info,workspaced=debug");
    let mut server = Server::start_with(setup).await;
    let method = Method::from_bytes("INVENTED".repeat(4096).as_bytes()).unwrap();
    let client = server.nobody();
    let answer = client.send(client.request(method, "/v1/runs")).await;
    assert_eq!(answer.status, 405, "{}", answer.text());
    assert!(server.stop().success());
    // The fields of a span are those that the log shows, and are cut only when it is sent.
    assert!(!server.log().contains("INVENTED"), "a span has the method");
    assert!(server.log().contains("_OTHER"), "{}", server.log());
    assert_eq!(attribute(only(&spans(&messages), "_OTHER /v1/runs"), "http.request.method"), "_OTHER");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_does_not_answer_delays_neither_calls_nor_the_end() {
    // Connections are accepted by the kernel, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let mut server = Server::start_with(Setup::new(Backend::Sqlite).env("OTEL_EXPORTER_OTLP_ENDPOINT", &address)).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "a\n").await;
    // A message is under way.
    let connection = tokio::task::spawn_blocking(move || silent.accept().map(|(stream, _)| (silent, stream)));
    let _open = connection.await.unwrap().unwrap();
    run.create("b.txt", "b\n").await;
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success(), "{}", server.log());
    assert!(server.log().contains("the last spans were not sent"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_is_a_warning() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let setup = Setup::new(Backend::Sqlite).env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
    let mut server = Server::start_with(setup).await;
    let run = server.run(json!({})).await;
    let is_warned = async || {
        run.ok("list_dir", json!({"path": "."})).await;
        server.log().contains("spans cannot be sent")
    };
    server.until("the log has a warning", is_warned).await;
    assert!(server.stop().success(), "{}", server.log());
}

#[tokio::test]
async fn an_invalid_collector_ends_the_start() {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    for (name, value, problem) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318", "expected http:// or https://"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:secret@127.0.0.1", "expected"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "127.0.0.1:4318/v1/traces", "expected http:// or https://"),
    ] {
        let done = server.command("serve").env(name, value).output().unwrap();
        let stderr = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(2) && stderr.contains(&format!("{name}: {problem}")), "{value}: {stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
    let done = server.command("serve").env("OTEL_TRACES_SAMPLER_ARG", "1.5").output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(
        done.status.code() == Some(2) && stderr.contains("OTEL_TRACES_SAMPLER_ARG `1.5`: expected 0 to 1"),
        "{stderr}"
    );
}
