//! The client's own types agree with the API document.

use std::collections::BTreeSet;

use model::{EventKind, Permission, PolicyOverrides, RunId, Scope, Sha256, Source};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::*;

/// Returns the names of all members of a schema, and of those that are required.
fn members(document: &Value, schema: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        return members(document, &document["components"]["schemas"][reference.rsplit('/').next().unwrap()]);
    }
    let (mut all, mut required) = (BTreeSet::new(), BTreeSet::new());
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let (more, more_required) = members(document, part);
        all.extend(more);
        required.extend(more_required);
    }
    all.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
    let names = schema["required"].as_array().into_iter().flatten();
    required.extend(names.map(|name| name.as_str().unwrap().to_owned()));
    (all, required)
}

/// Checks that the members of `value` are members of the schema `name`, and include the required ones but for `unused`.
#[track_caller]
fn assert_agrees(name: &str, value: impl Serialize, unused: &[&str]) {
    let document: Value = serde_json::from_str(include_str!("../../../openapi/workspaced.json")).unwrap();
    let schema = &document["components"]["schemas"][name];
    assert!(schema.is_object(), "the API document has no schema {name}");
    let (all, required) = members(&document, schema);
    let value = serde_json::to_value(value).unwrap();
    let own: BTreeSet<_> = value.as_object().unwrap().keys().cloned().collect();
    assert!(own.is_subset(&all), "{name}: {:?} are no members", own.difference(&all));
    let missing: Vec<_> = required.difference(&own).filter(|name| !unused.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "{name}: {missing:?} are missing");
}

fn run() -> RunId {
    RunId::parse("run-1").unwrap()
}

#[test]
fn requests_agree_with_the_api_document() {
    let mount = MountRequest { name: "docs".into(), description: "d".into(), path: "/d".into() };
    let new = NewRun {
        run_id: Some(run()),
        policy: Some(PolicyOverrides::default()),
        mounts: vec![mount.clone()],
        labels: [("a".to_owned(), "b".to_owned())].into(),
        ttl_seconds: Some(1),
        ..NewRun::from(Source::Empty {})
    };
    assert_agrees("CreateRunRequest", new, &[]);
    assert_agrees("MountRequest", mount, &[]);
    let expires_at = Some("2030-01-01T00:00:00Z".to_owned());
    let permissions = Some(vec![Permission::FileRead]);
    assert_agrees("IssueTokenRequest", NewToken { permissions, expires_at: expires_at.clone() }, &[]);
    let call = BatchCall { tool: "read_file".into(), input: Map::new() };
    assert_agrees("BatchCall", &call, &[]);
    assert_agrees("BatchRequest", Batch { calls: vec![call], ..Batch::default() }, &[]);
    let mut event = NewEvent::from(&CommandEvent { command: "make", exit_code: Some(1), ..CommandEvent::default() });
    (event.event_id, event.step_id) = (Some("e".into()), Some("s".into()));
    (event.started_at, event.duration_micros) = (expires_at.clone(), Some(1));
    assert_agrees("AppendEventRequest", event, &[]);
    let edit = ApprovalEdit { path: "a".into(), old_string: "o".into(), new_string: "n".into() };
    assert_agrees("ApprovalEdit", &edit, &[]);
    let decision = ApprovalDecision { on_behalf_of: Some("ada".into()), note: Some("n".into()), edits: vec![edit] };
    assert_agrees("ApprovalDecision", decision, &[]);
    let name = OperatorName::parse("ada").unwrap();
    assert_agrees("CreateOperatorRequest", NewOperator { name, scopes: vec![Scope::Audit], expires_at }, &[]);
}

#[test]
fn answers_agree_with_the_api_document() {
    let hash = Sha256::of(b"");
    let token =
        json!({"tokenId": "tok_1", "token": "t", "permissions": ["file:read"], "expiresAt": "2030-01-01T00:00:00Z"});
    assert_agrees("IssuedToken", serde_json::from_value::<IssuedToken>(token).unwrap(), &[]);
    let stored = json!({"path": "a", "created": true, "oldSha256": hash, "newSha256": hash, "sizeBytes": 1, "seq": 1,
        "headHash": hash, "artifactUris": [], "summary": "s", "warnings": []});
    assert_agrees("StoredFile", serde_json::from_value::<StoredFile>(stored).unwrap(), &["ok", "toolCallId"]);
    let event = AppendedEvent { event_id: ToolCallId::parse("e").unwrap(), seq: 1, head_hash: hash };
    assert_agrees("AppendedEvent", event, &["ok"]);
    let upload = UploadedArtifact { uri: "artifact://r/sha256/0".into(), sha256: hash, size_bytes: 1 };
    assert_agrees("UploadedArtifact", upload, &["ok"]);
    let result = BatchResult { tool: "t".into(), status: 200, answer: json!({}) };
    assert_agrees("BatchResult", &result, &[]);
    let answer = BatchAnswer { ok: true, results: vec![result], skipped: 0, failed_call: Some(0) };
    assert_agrees("BatchResponse", answer, &[]);
    let report =
        json!({"runId": "r", "intact": true, "records": 1, "headSeq": 1, "headHash": hash, "checkpointedSeq": 1});
    assert_agrees("AuditVerification", serde_json::from_value::<Verification>(report).unwrap(), &[]);
    let operator = json!({"name": "ada", "scopes": ["audit"], "token": "t"});
    assert_agrees("CreatedOperator", serde_json::from_value::<CreatedOperator>(operator).unwrap(), &[]);
}

#[test]
fn a_refusal_is_the_same_in_json_and_as_text() {
    let document = json!({"status": 404, "code": "NOT_FOUND", "detail": "no", "hint": "list", "path": "a",
        "instance": "urn:workspaced:request:r-1"});
    let problem: Problem = serde_json::from_value(document.clone()).unwrap();
    assert_eq!((problem.request_id(), problem.known_code()), (Some("r-1"), Some(Code::NotFound)));
    assert_eq!(problem.to_json(), document);
    let status = reqwest::StatusCode::NOT_FOUND;
    let text = Problem::from_text(status, "NOT_FOUND: no\nlist\nmore\n").unwrap();
    assert_eq!((text.code.as_str(), text.detail.as_str(), text.hint.as_str()), ("NOT_FOUND", "no", "list"));
    assert_eq!(text.text, "more\n");
    assert!(Problem::from_text(status, "<html>: x").is_none());
}

#[test]
fn paths_cannot_leave_their_operation() {
    let client = Client::new("http://127.0.0.1:1/prefix/", "token").unwrap();
    for tool in ["..", ".", ""] {
        assert!(client.request(reqwest::Method::GET, ["v1", tool]).is_err(), "{tool}");
    }
    for url in ["file:///etc", "http://user@host", "http://host/?a=b", "host"] {
        assert!(Client::new(url, "token").is_err(), "{url}");
    }
    assert!(Client::new("http://host", "to\nken").is_err());
    assert!(!format!("{client:?}").contains("token"), "{client:?}");
    assert_eq!(NewEvent::new(EventKind::Link, "x").summary, "x");
}

#[test]
fn a_long_command_is_cut_in_the_summary_only() {
    let command = "é".repeat(2000);
    let event = NewEvent::from(&CommandEvent { command: &command, ..CommandEvent::default() });
    assert!(event.summary.chars().count() <= model::MAX_SUMMARY_CHARS, "{}", event.summary.len());
    assert_eq!(event.data["command"], command);
}
