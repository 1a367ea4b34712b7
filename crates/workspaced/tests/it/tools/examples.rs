//! The example of every tool in the API document: sent as it is, and answered as documented.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Runner, Server};

const MAIN: &str = "fn main() {\n    start();\n    let limit = 10;\n    stop(limit);\n}\n";

/// The files that the examples name.
const FILES: [(&str, &str); 5] = [
    ("README.md", "A program.\n"),
    ("hello.txt", "hello\n"),
    ("src/main.rs", MAIN),
    ("src/old.txt", "hello\n"),
    ("src/a.txt", "hello\n"),
];

fn document() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/workspaced.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let only = schema
        .get("allOf")
        .filter(|_| schema.get("properties").is_none())
        .and_then(Value::as_array)
        .filter(|parts| parts.len() == 1)
        .map(|parts| &parts[0]);
    match only.unwrap_or(schema)["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => only.unwrap_or(schema),
    }
}

/// The members of a schema and of the parts that it consists of.
fn properties(document: &Value, schema: &Value) -> serde_json::Map<String, Value> {
    let schema = resolved(document, schema);
    let mut all = schema["properties"].as_object().cloned().unwrap_or_default();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        all.extend(properties(document, part));
    }
    all
}

/// Checks the members of a value by its schema: those that are required are there, none is unknown, and their types agree.
fn check(document: &Value, schema: &Value, value: &Value, at: &str) {
    let schema = resolved(document, schema);
    if let Some(forms) = schema.get("oneOf").and_then(Value::as_array) {
        let form = forms.iter().find(|form| (form["type"] == "null") == value.is_null()).unwrap();
        return check(document, form, value, at);
    }
    let kinds = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(kinds.is_empty() || kinds.contains(&kind), "{at} is {value}, not of {kinds:?}");
    if let Some(known) = schema["enum"].as_array() {
        assert!(known.contains(value), "{at} is {value}, not of {known:?}");
    }
    if let Value::Array(items) = value {
        for item in items {
            check(document, &schema["items"], item, at);
        }
    }
    let known = properties(document, schema);
    if let (Value::Object(members), false) = (value, known.is_empty()) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(members.contains_key(name), "{at} lacks {name}: {value}");
        }
        for (name, member) in members {
            let documented = known.get(name).unwrap_or_else(|| panic!("{at} has {name}, which is not documented"));
            check(document, documented, member, &format!("{at}.{name}"));
        }
    }
}

/// Creates a run with the files, which its token has read, and with the call that an example reverts.
async fn run(server: &Server) -> Run {
    let run =
        server.run_with_files(&FILES, json!({"policy": {"profile": "AUTONOMOUS", "requireApprovalIf": []}})).await;
    run.ok("read_files", json!({"paths": FILES.map(|(path, _)| path)})).await;
    let input = json!({"path": "src/broken.rs", "content": "fn\n", "reason": "to be reverted", "toolCallId": "tc_7"});
    run.ok("write_file", input).await;
    run
}

#[rstest]
#[tokio::test]
async fn the_example_of_every_tool_is_answered_as_documented(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let document = document();
    let mut tools = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(tool) = path.strip_prefix("/v1/runs/{run}/tools/") else { continue };
        let body = &item["post"]["requestBody"]["content"]["application/json"]["schema"];
        let schema = resolved(&document, body);
        let example = schema.get("example").unwrap_or_else(|| panic!("{tool} has no example"));
        check(&document, schema, example, tool);
        let run = run(&server).await;
        let serving = if tool == "run_command" { Some(serve_one(&run).await) } else { None };
        let answer = run.call(tool, example.clone()).await.is(200);
        if let Some(serving) = serving {
            serving.await.unwrap();
        }
        let output = &item["post"]["responses"]["200"]["content"]["application/json"]["schema"];
        check(&document, output, &answer, tool);
        assert_eq!(answer["ok"], true, "{tool}");
        tools += 1;
    }
    // All but `run_command`, which is offered where a runner is attached.
    assert_eq!(tools, server.operator().get("/v1/tools").await.ok()["items"].as_array().unwrap().len() + 1);
}

/// Attaches a runner that takes one command, which prints something and changes nothing.
async fn serve_one(run: &Run) -> tokio::task::JoinHandle<()> {
    let runner = Runner::new(run).await;
    runner.attach().await;
    tokio::spawn(async move {
        let order = runner.next().await;
        let result = json!({"exitCode": 0, "output": "passed\n"});
        runner.report(order["commandId"].as_str().unwrap(), result, None).await.ok();
    })
}

#[rstest]
#[tokio::test]
async fn the_answers_of_the_files_plane_have_the_documented_members(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_, run) =
        Run::shared_with(backend, &[], json!({"policy": {"profile": "AUTONOMOUS", "requireApprovalIf": []}})).await;
    let document = document();
    let path = format!("/v1/runs/{}/files/a.txt", run.id);
    let operation = &document["paths"]["/v1/runs/{run}/files/{path}"];
    let mut tag = None;
    for (method, status) in [("PUT", 201), ("PUT", 200), ("DELETE", 200)] {
        let request = run.agent.request(method.parse().unwrap(), &path).header("x-reason", "to try");
        let request = match &tag {
            None => request.header("if-none-match", "*"),
            Some(tag) => request.header("if-match", format!("\"{tag}\"")),
        };
        let request = if method == "PUT" { request.body(format!("{status}\n")) } else { request };
        let answer = run.agent.send(request).await.is(status);
        let schema =
            operation[method.to_lowercase()]["responses"][status.to_string()]["content"]["application/json"]["schema"]
                .clone();
        assert!(schema.is_object(), "{method} {status}");
        check(&document, &schema, &answer, method);
        tag = answer["newSha256"].as_str().map(str::to_owned);
    }
}
