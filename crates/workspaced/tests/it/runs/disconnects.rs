//! Clients that disconnect before their answer: what they asked for is done all the same, and harms no other call.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::harness::{Answer, Backend, Client, Run, Server, Setup, incompressible, sha256, until};

/// Pauses the next request that reaches the failpoint `point`.
fn pause_next(file: &Path, point: &str) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // A new text each time, because the failpoint counts passes by its text.
    std::fs::write(file, format!("{point}:1:pause:{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap();
}

/// Sends a request, and disconnects while it is paused at `point`. Returns once the server has noticed and the request continues.
async fn disconnect_at(server: &Server, file: &Path, point: &str, send: impl Future<Output = Answer> + Send + 'static) {
    pause_next(file, point);
    let sending = tokio::spawn(send);
    server.until_paused(file).await;
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    // The server has nothing to show that it has noticed the end of the connection.
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::fs::write(file, "").unwrap();
}

#[rstest]
#[tokio::test]
async fn a_caller_that_leaves_while_a_run_is_opened_harms_no_upload_of_another(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (mut server, file) = Server::start_armed(Setup::new(backend)).await;
    let mut run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    // The run is cold.
    assert!(server.stop().success());
    server.restart();
    (run.agent.base, run.operator.base) = (server.base.clone(), server.base.clone());

    pause_next(&file, "open.loading");
    let opening = tokio::spawn({
        let run = run.clone();
        async move { run.call("read_file", json!({"path": "a.txt"})).await }
    });
    server.until_paused(&file).await;
    opening.abort();
    assert!(opening.await.unwrap_err().is_cancelled());

    let content = incompressible(3 << 20);
    let (send, pieces) = mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    let upload = tokio::spawn({
        let (agent, path) = (run.agent.clone(), format!("/v1/runs/{}/files/large.bin", run.id));
        let body = reqwest::Body::wrap_stream(ReceiverStream::new(pieces));
        async move {
            let request = agent.request(Method::PUT, &path).header("x-reason", "r").header("if-none-match", "*");
            agent.send(request.body(body)).await
        }
    });
    send.send(Ok(Bytes::copy_from_slice(&content[..2 << 20]))).await.unwrap();
    // If a second call could open the run meanwhile, its upload would be in `tmp/` by now.
    tokio::time::sleep(Duration::from_millis(500)).await;
    std::fs::write(&file, "").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    send.send(Ok(Bytes::copy_from_slice(&content[2 << 20..]))).await.unwrap();
    drop(send);
    upload.await.unwrap().is(201);
    assert_eq!(std::fs::read(run.file("large.bin")).unwrap(), content);
    assert_eq!(run.verify().await["intact"], true);
    run.create("b.txt", "b\n").await;
}

/// A change of state that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Close,
    Delete,
    Deny,
    Vote,
    Approve,
    Revoke,
    Label,
}

impl Change {
    /// Returns the failpoint at which the request is paused.
    fn point(self) -> &'static str {
        match self {
            Self::Deny | Self::Vote | Self::Approve => "decision.begin",
            Self::Close | Self::Delete | Self::Revoke | Self::Label => "record.begin",
        }
    }

    fn request(self, run: &Run, approval: &str, token: &str) -> (Method, String, Value) {
        let path = format!("/v1/runs/{}", run.id);
        let decision = |name: &str| format!("/v1/approvals/{approval}/{name}");
        let decided = json!({"decidedBy": "ada"});
        match self {
            Self::Close => (Method::POST, format!("{path}/close"), json!({})),
            Self::Delete => (Method::DELETE, path, json!({})),
            Self::Deny => (Method::POST, decision("deny"), decided),
            Self::Vote | Self::Approve => (Method::POST, decision("approve"), decided),
            Self::Revoke => (Method::DELETE, format!("{path}/tokens/{token}"), json!({})),
            Self::Label => (Method::PATCH, path, json!({"labels": {"state": "done"}})),
        }
    }

    /// Returns whether a caller sees that it is done.
    async fn is_done(self, run: &Run, approval: &str, revoked: &Client) -> bool {
        let shown = run.get().await;
        let approval = run.operator.get(&format!("/v1/approvals/{approval}")).await.ok();
        let (state, decided) = (shown["state"].as_str().unwrap(), approval["state"].as_str().unwrap());
        match self {
            Self::Close => state == "closed" && decided == "failed" && shown["counts"]["pendingApprovals"] == 0,
            Self::Delete => state == "deleted" && decided == "failed" && !run.repo.exists(),
            Self::Deny => state == "open" && decided == "denied",
            Self::Vote => decided == "pending" && approval["approvedBy"].as_array().is_some_and(|by| by.len() == 1),
            Self::Approve => state == "open" && decided == "approved" && run.on_disk("Cargo.lock") == "new\n",
            Self::Revoke => revoked.get(&format!("/v1/runs/{}", run.id)).await.status == 401,
            Self::Label => shown["labels"]["state"] == "done",
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_change_of_state_is_completed_when_its_client_disconnects(#[values(Backend::Sqlite)] backend: Backend) {
    use Change::{Approve, Close, Delete, Deny, Label, Revoke, Vote};

    let (server, file) = Server::start_armed(Setup::new(backend)).await;
    for change in [Close, Delete, Deny, Vote, Approve, Revoke, Label] {
        let approvers = if change == Vote { 2 } else { 1 };
        let policy = json!({"policy": {"approval": {"approvers": approvers}}});
        let run = server.run_with_files(&[("Cargo.lock", "old\n")], policy).await;
        let input = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
        let asked = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
        let approval = asked["approvalId"].as_str().unwrap().to_owned();
        let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
        let revoked = run.agent.with_token(token["token"].as_str());
        revoked.get(&format!("/v1/runs/{}", run.id)).await.ok();

        let (method, path, body) = change.request(&run, &approval, token["tokenId"].as_str().unwrap());
        let operator = run.operator.clone();
        let send = async move { operator.send(operator.request(method, &path).json(&body)).await };
        disconnect_at(&server, &file, change.point(), send).await;
        let failure = format!("{change:?} was not completed");
        until(&failure, async || change.is_done(&run, &approval, &revoked).await).await;

        // What the process knows agrees with the database.
        let write = run.call("write_file", json!({"path": "n.txt", "content": "n\n", "reason": "r"})).await;
        match change {
            Close | Delete => drop(write.refused("RUN_CLOSED")),
            _ => drop(write.ok()),
        }
        assert_eq!(run.verify().await["intact"], true, "{change:?}");
    }
}
