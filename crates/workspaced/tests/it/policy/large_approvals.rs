//! Contents over 1 MiB of calls that need approval: stored with the approval, up to 16 MiB.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, Server, Setup, assert_chain, assert_tmp_is_empty, exhaustive, sha256};
use crate::operation::replay_and_repair::{assert_ends, offline};

const MIB: usize = 1 << 20;

/// Returns a lock file of `bytes` bytes.
fn lock_file(bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 100);
    while text.len() < bytes {
        text.extend_from_slice(format!("name = \"crate-{}\"\nversion = \"1.0.0\"\n", text.len()).as_bytes());
    }
    text.truncate(bytes - 1);
    text.push(b'\n');
    text
}

fn generous() -> Value {
    let budget = json!({"maxInsertions": 1_000_000, "maxDeletions": 1_000_000, "maxBytes": 1_000_000_000});
    json!({"policy": {"budget": budget}})
}

async fn run_with_lock_file(server: &Server) -> Run {
    server.run_with_files(&[("Cargo.lock", "old\n"), ("a.txt", "a\n")], generous()).await
}

/// Sends a new `Cargo.lock` in place of the `old` one.
async fn send(run: &Run, call: &str, old: &[u8], new: &[u8]) -> Answer {
    let path = format!("/v1/runs/{}/files/Cargo.lock", run.id);
    let request = run.agent.request(Method::PUT, &path).header("x-reason", "because").header("x-tool-call-id", call);
    run.agent.send(request.header("if-match", format!("\"{}\"", sha256(old))).body(new.to_vec())).await
}

async fn ask(run: &Run, call: &str, old: &[u8], new: &[u8]) -> String {
    let asked = send(run, call, old, new).await.refused("APPROVAL_REQUIRED");
    asked["approvalId"].as_str().unwrap().to_owned()
}

async fn decide(run: &Run, id: &str, verb: &str) -> Answer {
    run.operator.post(&format!("/v1/approvals/{id}/{verb}"), json!({"onBehalfOf": "ada"})).await
}

async fn state(run: &Run, id: &str) -> Value {
    run.operator.get(&format!("/v1/approvals/{id}")).await.ok()
}

#[rstest]
#[tokio::test]
async fn a_large_lock_file_asks_is_approved_and_is_written(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = run_with_lock_file(&server).await;
    let new = lock_file(3 * MIB);
    let id = ask(&run, "one", b"old\n", &new).await;
    assert_eq!(run.on_disk("Cargo.lock"), "old\n");
    assert_tmp_is_empty(&server, &run).await;
    let asked = state(&run, &id).await;
    assert_eq!(
        (&asked["files"][0]["path"], &asked["files"][0]["newSha256"], &asked["state"]),
        (&json!("Cargo.lock"), &json!(sha256(&new)), &json!("pending"))
    );
    assert!(asked["diff"].as_str().unwrap().contains("+name = \"crate-0\"\n"), "the diff is not shown");
    // The same change again waits already, and the same call is answered as before.
    assert_eq!(ask(&run, "two", b"old\n", &new).await, id);
    assert_eq!(ask(&run, "one", b"old\n", &new).await, id);
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let decided = decide(&run, &id, "approve").await.ok();
    assert_eq!(decided["state"], "approved", "{decided:#}");
    assert_eq!(std::fs::read(run.file("Cargo.lock")).unwrap(), new);
    let record = run.last_record().await;
    let file = &record["files"][0];
    assert_eq!((&record["outcome"], &file["newSha256"]), (&json!("ok"), &json!(sha256(&new))), "{record:#}");
    server.until_journal_is_empty().await;
    assert_tmp_is_empty(&server, &run).await;
    // A person sees what changes in a large text.
    let next =
        String::from_utf8(new.clone()).unwrap().replacen("version = \"1.0.0\"", "version = \"1.0.1\"", 1).into_bytes();
    let id = ask(&run, "next", &new, &next).await;
    let diff = state(&run, &id).await["diff"].as_str().unwrap().to_owned();
    assert!(diff.contains("-version = \"1.0.0\"\n+version = \"1.0.1\"\n") && diff.len() < 1000, "{diff:.1000}");
    decide(&run, &id, "approve").await.ok();
    assert!(std::fs::read(run.file("Cargo.lock")).unwrap() == next, "another content");
    assert_chain(&run.id, &run.audit().await);
    assert_eq!(run.verify().await["intact"], true);
    assert!(server.stop().success());
    let to = server.home.join("replayed");
    let replayed = offline(&server, "replay", &["--run", &run.id, "--to", to.to_str().unwrap()]);
    assert_ends(&replayed, 0, &["the workspace is equal"]);
}

#[rstest]
#[tokio::test]
async fn a_content_over_16_mib_is_refused_before_it_is_stored(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let run = run_with_lock_file(&server).await;
    let largest = lock_file(16 * MIB);
    let too_large = [&largest[..], b"\n"].concat();
    let refused = send(&run, "one", b"old\n", &too_large).await.refused("FILE_TOO_LARGE");
    assert_eq!(
        (&refused["limit"], &refused["actual"], &refused["path"]),
        (&json!(16 * MIB), &json!(16 * MIB + 1), &json!("Cargo.lock")),
        "{refused:#}"
    );
    assert!(refused["hint"].as_str().unwrap().starts_with("Send a smaller file"), "{refused:#}");
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 0);
    assert_tmp_is_empty(&server, &run).await;
    let id = ask(&run, "two", b"old\n", &largest).await;
    assert_tmp_is_empty(&server, &run).await;
    assert_eq!(decide(&run, &id, "approve").await.ok()["state"], "approved");
    assert!(std::fs::read(run.file("Cargo.lock")).unwrap() == largest, "another content");
    server.until_journal_is_empty().await;
    assert_tmp_is_empty(&server, &run).await;
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_large_content_is_not_written_if_its_call_is_not_approved(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let new = lock_file(2 * MIB);
    // Denied: and the same change is denied again.
    let run = run_with_lock_file(&server).await;
    let id = ask(&run, "one", b"old\n", &new).await;
    decide(&run, &id, "deny").await.ok();
    send(&run, "two", b"old\n", &new).await.refused("POLICY_DENIED");
    assert_eq!(run.on_disk("Cargo.lock"), "old\n");
    assert_tmp_is_empty(&server, &run).await;
    // Failed: the file has changed meanwhile.
    let run = run_with_lock_file(&server).await;
    let id = ask(&run, "one", b"old\n", &new).await;
    run.put("Cargo.lock", "changed meanwhile\n");
    decide(&run, &id, "approve").await.ok();
    assert_eq!(state(&run, &id).await["state"], "failed");
    assert_eq!(run.on_disk("Cargo.lock"), "changed meanwhile\n");
    assert_tmp_is_empty(&server, &run).await;
}

#[rstest]
#[tokio::test]
async fn a_kill_at_any_step_of_a_large_approval_leaves_its_content_as_long_as_it_waits(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let new = lock_file(2 * MIB);
    let steps = [
        ("deny", "decision.begin", false),
        ("approve", "transaction.staged", false),
        ("approve", "transaction.committed", true),
        ("approve", "apply.step", true),
    ];
    for (verb, failpoint, is_decided) in steps {
        let context = format!("{verb} at {failpoint}");
        let run = run_with_lock_file(&server).await;
        let id = ask(&run, "one", b"old\n", &new).await;
        server.until_journal_is_empty().await;
        std::fs::write(&armed, failpoint).unwrap();
        let request = run.operator.request(Method::POST, &format!("/v1/approvals/{id}/{verb}"));
        let request = request.json(&json!({"onBehalfOf": "ada"}));
        assert!(run.operator.try_send(request).await.is_err(), "{context} was not passed");
        server.wait();
        std::fs::remove_file(&armed).unwrap();
        server.restart();
        let run = server.reconnect(&run);
        run.ok("read_file", json!({"path": "a.txt"})).await;
        if !is_decided {
            assert_eq!(run.on_disk("Cargo.lock"), "old\n", "{context}");
            decide(&run, &id, verb).await.ok();
        }
        let expected = if verb == "approve" { new.clone() } else { b"old\n".to_vec() };
        assert_eq!(std::fs::read(run.file("Cargo.lock")).unwrap(), expected, "{context}");
        server.until_journal_is_empty().await;
        assert_tmp_is_empty(&server, &run).await;
        assert_eq!(run.verify().await["intact"], true, "{context}");
    }
}

#[rstest]
#[tokio::test]
async fn a_large_content_that_waits_is_in_the_history_of_its_run(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let mut policy = generous();
    policy["policy"]["quota"] = json!({"maxHistoryBytes": 10 * MIB});
    let run = server.run_with_files(&[("Cargo.lock", "old\n"), ("a.txt", "a\n")], policy).await;
    // In Base64 it has 4 MiB, and its diff, which is stored too, almost as much.
    let id = ask(&run, "one", b"old\n", &lock_file(3 * MIB)).await;
    let bytes = run.get().await["disk"]["historyBytes"].as_u64().unwrap();
    assert!(bytes > 7 * MIB as u64, "{bytes}");
    let refused = send(&run, "two", b"old\n", &lock_file(2 * MIB)).await.refused("QUOTA_EXCEEDED");
    assert_eq!(refused["reasons"], json!(["quota:maxHistoryBytes"]));
    assert_tmp_is_empty(&server, &run).await;
    decide(&run, &id, "approve").await.ok();
    assert_eq!(run.on_disk("Cargo.lock").len(), 3 * MIB);
}

#[rstest]
#[tokio::test]
async fn every_mutation_that_asks_with_a_large_content_is_executed_once_it_is_approved(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let mut policy = generous();
    policy["policy"]["maxFileBytes"] = json!(8 * MIB);
    policy["policy"]["outsideChanges"] = json!("RECORD");
    let (_server, run) = Run::shared_with(backend, &[("Cargo.lock", "old\n")], policy).await;
    let new = String::from_utf8(lock_file(2 * MIB)).unwrap();
    let mut old = "old\n".to_owned();
    let approve = async |answer: Answer| {
        let asked = answer.refused("APPROVAL_REQUIRED");
        let decided = decide(&run, asked["approvalId"].as_str().unwrap(), "approve").await.ok();
        assert_eq!(decided["state"], "approved", "{decided:#}");
    };
    let input = json!({"path": "Cargo.lock", "content": new, "expectedSha256": sha256(&old), "reason": "r"});
    approve(run.call("write_file", input).await).await;
    old.clone_from(&new);
    approve(run.edit("Cargo.lock", "crate-0\"", "first\"", json!({"expectedSha256": sha256(&old)})).await).await;
    let edited = old.replacen("crate-0\"", "first\"", 1);
    assert_eq!(run.on_disk("Cargo.lock"), edited);
    let patch = "--- a/Cargo.lock\n+++ b/Cargo.lock\n@@ -1,2 +1,2 @@\n-name = \"first\"\n+name = \"second\"\n version = \"1.0.0\"\n";
    approve(run.patch(patch).await).await;
    let patched = edited.replacen("first\"", "second\"", 1);
    assert_eq!(run.on_disk("Cargo.lock"), patched);
    let moved =
        json!({"from": "Cargo.lock", "to": "package-lock.json", "expectedSha256": sha256(&patched), "reason": "r"});
    approve(run.call("move_file", moved).await).await;
    assert_eq!(run.on_disk("package-lock.json"), patched);
    assert_eq!(run.verify().await["intact"], true);
}
