//! Calls in flight when their run is closed or their token ends: nothing is recorded or applied after the answer to the
//! close, and streams end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{
    Answer, Backend, Client, Run, Server, Setup, exhaustive, in_time, incompressible, sha256, tar_of, until,
};

/// Starts a server on which a call can be paused immediately before it is recorded.
async fn start_with_pause(backend: Backend) -> (Server, PathBuf) {
    Server::start_armed(Setup::new(backend)).await
}

/// Pauses the next call that reaches its record.
fn pause_next(file: &Path) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // A new text each time, because the failpoint counts passes by its text.
    std::fs::write(file, format!("record.begin:1:pause:{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap();
}

/// Waits until the run is in `state`.
async fn until_state(run: &Run, state: &str) {
    until(&format!("the run is {state}"), async || run.get().await["state"] == state).await;
}

/// The kind of call in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Write,
    LargeUpload,
    DryRun,
    Batch,
    PendingWrite,
    PendingBatch,
    Approval,
}

const LOCKFILE: &str = "Cargo.lock";

fn write(path: &str) -> Value {
    json!({"path": path, "content": "new\n", "reason": "r"})
}

/// Requests a change of the lockfile. Returns the approval.
async fn ask(run: &Run) -> String {
    let asked = run.call("write_file", write(LOCKFILE)).await.refused("APPROVAL_REQUIRED");
    asked["approvalId"].as_str().unwrap().to_owned()
}

impl InFlight {
    /// Sends the call. Prepares what the call needs before the server pauses calls.
    async fn send(self, run: &Run, file: &Path) -> JoinHandle<Answer> {
        let approval = if self == Self::Approval { ask(run).await } else { String::new() };
        pause_next(file);
        let run = run.clone();
        tokio::spawn(async move {
            let batch = |path: &str| json!({"atomic": true, "calls": [{"tool": "write_file", "input": write(path)}]});
            match self {
                Self::Write => run.call("write_file", write("new.txt")).await,
                Self::DryRun => {
                    let mut dry = write("new.txt");
                    dry["dryRun"] = json!(true);
                    run.call("write_file", dry).await
                }
                Self::LargeUpload => {
                    let path = format!("/v1/runs/{}/files/new.txt", run.id);
                    let upload =
                        run.agent.request(Method::PUT, &path).header("x-reason", "r").header("if-none-match", "*");
                    run.agent.send(upload.body(vec![b'x'; 2 << 20])).await
                }
                Self::Batch => run.agent.post(&format!("/v1/runs/{}/batch", run.id), batch("new.txt")).await,
                Self::PendingBatch => run.agent.post(&format!("/v1/runs/{}/batch", run.id), batch(LOCKFILE)).await,
                Self::PendingWrite => run.call("write_file", write(LOCKFILE)).await,
                Self::Approval => {
                    let path = format!("/v1/approvals/{approval}/approve");
                    run.operator.post(&path, json!({"decidedBy": "ada"})).await
                }
            }
        })
    }
}

#[rstest]
#[tokio::test]
async fn nothing_is_recorded_or_applied_after_the_answer_to_a_close(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values("closed", "deleted")] end: &str,
) {
    use InFlight::{Approval, Batch, DryRun, LargeUpload, PendingBatch, PendingWrite, Write};

    let (server, file) = start_with_pause(backend).await;
    for under_way in [Write, LargeUpload, DryRun, Batch, PendingWrite, PendingBatch, Approval] {
        let large_budget = json!({"policy": {"budget": {"maxBytes": 8 << 20}}});
        let run = server.run_with_files(&[("a.txt", "a\n")], large_budget).await;
        run.create("before.txt", "x\n").await;
        let call = under_way.send(&run, &file).await;
        server.until_paused(&file).await;
        let ending = tokio::spawn({
            let (run, end) = (run.clone(), end.to_owned());
            async move {
                let path = format!("/v1/runs/{}", run.id);
                if end == "closed" {
                    run.operator.post(&format!("{path}/close"), json!({})).await
                } else {
                    run.operator.delete(&path).await
                }
            }
        });
        until_state(&run, end).await;
        std::fs::write(&file, "").unwrap();
        let (call, ended) = (call.await.unwrap(), ending.await.unwrap().ok());
        assert_eq!(ended["state"], end, "{under_way:?}");
        match under_way {
            // A batch reports the refusal for each of its calls.
            Batch | PendingBatch => assert!(call.text().contains("RUN_CLOSED"), "{under_way:?}: {}", call.text()),
            // The decision that came first has ended the approval.
            Approval => assert!(!call.text().contains("\"approved\""), "{}", call.text()),
            _ => drop(call.refused("RUN_CLOSED")),
        }
        assert!(!run.repo.join("new.txt").exists() && !run.repo.join(LOCKFILE).exists(), "{under_way:?}");
        let records = run.audit().await;
        let done: Vec<_> = records.iter().filter(|one| one["mutates"] == true && one["outcome"] == "ok").collect();
        assert_eq!(done.len(), 1, "{under_way:?}: {records:#?}");
        let refused = records.iter().filter(|one| one["code"] == "RUN_CLOSED").count();
        assert!(refused >= 1, "{under_way:?} is not in the audit: {records:#?}");
        let pending = run.operator.get(&format!("/v1/approvals?state=pending&run={}", run.id)).await.ok();
        assert_eq!(pending["items"], json!([]), "{under_way:?}");
        assert_eq!(run.get().await["counts"]["pendingApprovals"], 0, "{under_way:?}");
        assert_eq!(run.verify().await["intact"], true);
    }
}

#[rstest]
#[tokio::test]
async fn an_import_that_completes_after_the_close_leaves_no_files(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let run = server.run(json!({"source": {"type": "archive"}})).await;
    let archive = tar_of(&[("a.txt", b"a\n")]);
    let (send, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    send.send(Ok(Bytes::copy_from_slice(&archive[..600]))).await.unwrap();
    let body = reqwest::Body::wrap_stream(tokio_stream::wrappers::ReceiverStream::new(pieces));
    let import = tokio::spawn({
        let (operator, path) = (server.operator(), format!("/v1/runs/{}/archive", run.id));
        async move { operator.put(&path, body).await }
    });
    let staged = || {
        let bases = std::fs::read_dir(server.data_dir().join("bases")).unwrap();
        bases.filter(|base| base.as_ref().unwrap().file_name().to_str().unwrap().starts_with(".new-")).count()
    };
    until("the import has begun", async || staged() > 0).await;
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    send.send(Ok(Bytes::copy_from_slice(&archive[600..]))).await.unwrap();
    drop(send);
    import.await.unwrap().refused("RUN_CLOSED");
    let shown = run.get().await;
    assert_eq!(
        (&shown["state"], shown.get("baseCommit").unwrap_or(&Value::Null)),
        (&json!("closed"), &Value::Null),
        "{shown}"
    );
    assert!(!server.workspace(&run.id).exists() && staged() == 0);
    run.call("list_dir", json!({})).await.refused("RUN_CLOSED");
}

/// Creates a token of `run`. Returns its ID and a client with it.
async fn token(run: &Run, expires_at: Option<&str>) -> (String, Client) {
    let body = expires_at.map_or(json!({}), |expires_at| json!({"expiresAt": expires_at}));
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), body).await.is(201);
    let id = token["tokenId"].as_str().unwrap().to_owned();
    (id, run.agent.with_token(Some(token["token"].as_str().unwrap())))
}

async fn revoke(run: &Run, token: &str) {
    let answer = run.operator.delete(&format!("/v1/runs/{}/tokens/{token}", run.id)).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
}

#[rstest]
#[tokio::test]
async fn a_call_in_flight_is_refused_when_its_token_ends(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(true, false)] by_revocation: bool,
) {
    let (mut server, file) = start_with_pause(backend).await;
    server.stop();
    let clock = server.add_clock();
    server.restart();
    let run = server.run_with_files(&[("a.txt", "content\n")], json!({})).await;
    let (tools, batch) = (format!("/v1/runs/{}/tools", run.id), format!("/v1/runs/{}/batch", run.id));
    let (mut seconds, calls) = (0_i64, 5);
    for call in 0..calls {
        let expires_at = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds + 1800)).to_string();
        let (id, client) = token(&run, (!by_revocation).then_some(&expires_at)).await;
        pause_next(&file);
        let (tools, batch, export) = (tools.clone(), batch.clone(), format!("/v1/runs/{}/archive", run.id));
        let under_way = tokio::spawn(async move {
            match call {
                0 => client.post(&format!("{tools}/read_file"), json!({"path": "a.txt"})).await,
                1 => client.post(&format!("{tools}/write_file"), write("new.txt")).await,
                2 => client.post(&format!("{tools}/write_file"), write(LOCKFILE)).await,
                3 => {
                    let calls = json!([{"tool": "read_file", "input": {"path": "a.txt"}}]);
                    client.post(&batch, json!({"atomic": true, "calls": calls})).await
                }
                _ => client.get(&export).await,
            }
        });
        server.until_paused(&file).await;
        if by_revocation {
            revoke(&run, &id).await;
        } else {
            seconds += 3600;
            std::fs::write(&clock, seconds.to_string()).unwrap();
        }
        std::fs::write(&file, "").unwrap();
        let answer = under_way.await.unwrap();
        assert!(!answer.text().contains("content"), "{call}: {}", answer.text());
        if call == 3 {
            assert!(answer.text().contains("UNAUTHENTICATED"), "{}", answer.text());
        } else {
            answer.refused("UNAUTHENTICATED");
            assert_eq!(answer.headers["www-authenticate"], r#"Bearer realm="workspaced", error="invalid_token""#);
        }
        let newest = run.last_record().await;
        assert_eq!((&newest["outcome"], &newest["code"]), (&json!("refused"), &json!("UNAUTHENTICATED")), "{newest}");
    }
    assert!(!run.repo.join("new.txt").exists());
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 0);
    assert_eq!(run.calls().await.len(), calls);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn downloads_and_streams_end_with_their_token(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(true, false)] by_revocation: bool,
) {
    let (server, clock) = Server::start_with_clock(Setup::new(backend)).await;
    let folder = server.template(&[("a.txt", "a\n")]);
    std::fs::write(folder.join("large.bin"), incompressible(48 << 20)).unwrap();
    let run = server.run(json!({"source": {"type": "directory", "path": folder}})).await;
    let expires_at = (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30)).to_string();
    let (id, client) = token(&run, (!by_revocation).then_some(&expires_at)).await;
    let mut events = client.stream(&format!("/v1/runs/{}/changes", run.id), None).await;
    run.create("b.txt", "b\n").await;
    assert!(events.chunk().await.unwrap().is_some());
    let mut downloads = Vec::new();
    for rest in ["files/large.bin", "archive"] {
        let request = client.request(Method::GET, &format!("/v1/runs/{}/{rest}", run.id));
        let mut download = request.send().await.unwrap();
        assert_eq!(download.status(), 200);
        assert!(download.chunk().await.unwrap().is_some());
        downloads.push(download);
    }
    // A download by the operator continues.
    let request = run.operator.request(Method::GET, &format!("/v1/runs/{}/files/large.bin", run.id));
    let unaffected = request.send().await.unwrap();

    if by_revocation {
        revoke(&run, &id).await;
    } else {
        std::fs::write(&clock, "3600").unwrap();
        // Downloads and streams check the clock once a second.
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
    let end = async { while events.chunk().await.unwrap().is_some() {} };
    in_time("the end of the stream", end).await;
    for mut download in downloads {
        let rest = async {
            while let Some(piece) = download.chunk().await? {
                drop(piece);
            }
            Ok::<(), reqwest::Error>(())
        };
        let rest = in_time("the end of the download", rest).await;
        assert!(rest.is_err(), "an aborted download looked complete");
    }
    assert_eq!(unaffected.bytes().await.unwrap().len(), 48 << 20);
}

#[rstest]
#[tokio::test]
async fn a_call_that_waits_for_a_decision_ends_with_its_token(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let mut question = write(LOCKFILE);
    question["toolCallId"] = json!("ask");
    run.call("write_file", question).await.refused("APPROVAL_REQUIRED");
    let (id, client) = token(&run, None).await;
    let path = format!("/v1/runs/{}/tool-calls/ask?waitSeconds=50", run.id);
    let waiting = tokio::spawn(async move { client.get(&path).await });
    // It waits by now.
    tokio::time::sleep(Duration::from_millis(300)).await;
    revoke(&run, &id).await;
    waiting.await.unwrap().refused("UNAUTHENTICATED");
}

/// A valid token of a run works after other tokens of the run were revoked.
#[rstest]
#[tokio::test]
async fn revoking_a_token_does_not_affect_others(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let (first, gone) = token(&run, None).await;
    let (_, stays) = token(&run, None).await;
    revoke(&run, &first).await;
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    gone.post(&path, write("x.txt")).await.refused("UNAUTHENTICATED");
    let replaced = json!({"path": "a.txt", "content": "b\n", "expectedSha256": sha256("a\n"), "reason": "r"});
    stays.post(&path, replaced).await.ok();
}
