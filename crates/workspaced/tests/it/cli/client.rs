//! The client crate: streams, repetitions, limits and errors.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use workspaced_client::{
    AuditFilter, Batch, BatchCall, ByteRange, Client, CommandEvent, Error, NewRun, NewToken, Permission, Precondition,
    RetryPolicy, RunId, RunView, Sha256, Source, body_of,
};

use super::relay::Relay;
use crate::harness::{Backend, Run, Server, incompressible};

fn client(url: &str, token: Option<&String>) -> (Client, RetryPolicy) {
    let retry = RetryPolicy { base_delay: Duration::from_millis(5), ..RetryPolicy::default() };
    (Client::new(url, token.unwrap()).unwrap().with_retry(retry), retry)
}

#[rstest]
#[tokio::test]
async fn files_are_streams_in_both_directions(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, used) = Run::shared(backend, &[]).await;
    let (agent, _) = client(&server.base, used.agent.token.as_ref());
    let run = RunId::parse(&used.id).unwrap();
    let content = incompressible(3 << 20);
    let body = body_of(std::io::Cursor::new(content.clone()));
    let stored = agent.upload(&run, "d/ä ?#%.bin", Precondition::Absent, "naïve", body).await.unwrap();
    assert!(stored.created && stored.new_sha256 == Some(Sha256::of(&content)), "{stored:?}");
    let download = agent.download(&run, "d/ä ?#%.bin", None).await.unwrap();
    assert_eq!((download.len(), download.sha256()), (Some(content.len() as u64), stored.new_sha256));
    let mut read = Vec::new();
    download.copy_to(&mut read).await.unwrap();
    assert!(read == content);
    for (range, part) in [
        (ByteRange::Bytes(5..=9), &content[5..10]),
        (ByteRange::From(3_000_000), &content[3_000_000..]),
        (ByteRange::Last(7), &content[content.len() - 7..]),
    ] {
        let mut read = Vec::new();
        agent.download(&run, "d/ä ?#%.bin", Some(range)).await.unwrap().copy_to(&mut read).await.unwrap();
        assert!(read == part);
    }
    let version = stored.new_sha256.unwrap();
    let stale = agent.upload(&run, "d/ä ?#%.bin", Precondition::Absent, "r", "x").await.unwrap_err();
    assert_eq!(stale.problem().unwrap().code, "ALREADY_EXISTS");
    agent.upload(&run, "d/ä ?#%.bin", Precondition::Version(version), "r", "x").await.unwrap();
    agent.delete_file(&run, "d/ä ?#%.bin", &Sha256::of(b"x"), "r").await.unwrap();
    let gone = agent.download(&run, "d/ä ?#%.bin", None).await.unwrap_err();
    assert_eq!(gone.problem().unwrap().known_code(), Some(workspaced_client::Code::NotFound));
    assert!(matches!(agent.download(&run, "../a", None).await, Err(Error::Invalid(_))));
}

#[rstest]
#[tokio::test]
async fn a_command_without_a_runner_is_refused_at_once(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, used) = Run::shared(backend, &[]).await;
    let (agent, _) = client(&server.base, used.agent.token.as_ref());
    let run = RunId::parse(&used.id).unwrap();
    let input = json!({"command": "make", "reason": "r"});
    let refused = agent.call::<_, Value>(&run, "run_command", &input).await.unwrap_err();
    let refused_as_text = agent.call_as_text(&run, "run_command", &input).await.unwrap_err();
    for error in [refused, refused_as_text] {
        let problem = error.problem().unwrap();
        assert_eq!((problem.code.as_str(), problem.status), ("UNAVAILABLE", 503));
        assert!(problem.members["seq"].is_u64() && problem.hint.contains("workspaced runner"), "{problem:?}");
    }
    let filter = AuditFilter { tool: Some("run_command".into()), ..AuditFilter::default() };
    let (operator, _) = client(&server.base, Some(&server.operator_token));
    assert_eq!(operator.run_audit(&run, &filter).try_collect::<Vec<_>>().await.unwrap().len(), 2);
}

#[rstest]
#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_the_change_made_once(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let relay = Relay::start(&server.base).await;
    relay.lose_answers(2);
    let (operator, retry) = client(&relay.url, Some(&server.operator_token));
    let created = operator.create_run(&NewRun::from(Source::Empty {})).await.unwrap();
    let run = created.run.run_id;
    assert_eq!(operator.runs(None).try_collect::<Vec<_>>().await.unwrap().len(), 1);

    let permissions = Some([Permission::DEFAULT.to_vec(), vec![Permission::EventAppend]].concat());
    let token = operator.issue_token(&run, &NewToken { permissions, expires_at: None }).await.unwrap();
    // Each client has connections of its own, so that the next one is new.
    let agent = || Client::new(&relay.url, &token.token).unwrap().with_retry(retry);
    relay.lose_answers(1);
    let input = json!({"path": "a.txt", "content": "one\n", "reason": "r"});
    let written: Value = agent().call(&run, "write_file", &input).await.unwrap();
    assert_eq!(written["created"], true);
    relay.lose_answers(1);
    let make = CommandEvent { command: "make", exit_code: Some(2), ..CommandEvent::default() };
    let event = agent().record_command(&run, &make).await.unwrap();
    relay.lose_answers(1);
    let input = json!({"path": "b.txt", "content": "one\n", "reason": "r"}).as_object().unwrap().clone();
    let calls = vec![BatchCall { tool: "write_file".into(), input }];
    assert!(agent().batch(&run, &Batch { calls, ..Batch::default() }).await.unwrap().ok);
    let records: Vec<_> = operator.run_audit(&run, &AuditFilter::default()).try_collect().await.unwrap();
    let tools: Vec<_> = records.iter().map(|record| record.tool.as_str()).collect();
    // Each repetition of the creation returns the run with another token.
    let issued = ["token.issue"; 3];
    assert_eq!(tools[..4], [&["run.create"], &issued[..]].concat());
    assert_eq!(tools[4..], ["write_file", "event.command", "write_file"]);
    assert_eq!(records[5].seq, event.seq);
    assert!(operator.verify(&run).await.unwrap().report.intact);

    // Without repetitions, the loss is an error.
    relay.lose_answers(1);
    let never = agent().with_retry(RetryPolicy::NEVER).run(&run).await;
    assert!(never.as_ref().is_err_and(Error::is_transport), "{never:?}");
}

#[tokio::test]
async fn refusals_are_not_repeated_and_answers_have_a_limit() {
    let (server, used) = Run::shared(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    let (agent, _) = client(&server.base, used.agent.token.as_ref());
    let run = RunId::parse(&used.id).unwrap();
    let before = used.audit().await.len();
    let refused = agent.call::<_, Value>(&run, "read_file", &json!({"path": "none"})).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!((problem.status, problem.code.as_str()), (404, "NOT_FOUND"));
    assert!(!problem.hint.is_empty() && problem.request_id().is_some() && problem.members["path"] == "none");
    assert_eq!(used.audit().await.len(), before + 1);
    let text = agent.call_as_text(&run, "read_file", &json!({"path": "a.txt"})).await.unwrap();
    assert_eq!((text.text.as_str(), text.sha256), ("1  one\n", Some(Sha256::of(b"one\n"))));
    assert!(matches!(agent.run(&run).await.unwrap(), RunView::OwnRun(_)));
    let small = agent.with_max_answer_bytes(100);
    assert!(matches!(small.run(&run).await, Err(Error::Protocol(_))));
}
