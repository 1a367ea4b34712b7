//! Quotas: bytes and files of one run and of all runs, and pending approvals.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tar::EntryType;

use crate::harness::{Answer, Backend, Run, Server, Setup, exhaustive, gzip, sha256, tar_of, until};

const MIB: usize = 1 << 20;

async fn put(run: &Run, path: &str, body: Vec<u8>) -> Answer {
    let request = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/{path}", run.id));
    run.agent.send(request.header("x-reason", "because").header("if-none-match", "*").body(body)).await
}

/// Uploads a file without a declared length.
async fn stream(run: &Run, path: &str, body: Vec<u8>) -> Answer {
    let pieces: Vec<_> = body.chunks(64 * 1024).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let request = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/{path}", run.id));
    run.agent.send(request.header("x-reason", "because").header("if-none-match", "*").body(body)).await
}

fn write(path: &str, bytes: usize) -> Value {
    json!({"path": path, "content": "x".repeat(bytes), "mode": "CREATE_NEW", "reason": "r"})
}

async fn disk(run: &Run) -> (u64, u64) {
    let disk = run.get().await["disk"].clone();
    (disk["bytes"].as_u64().unwrap(), disk["files"].as_u64().unwrap())
}

#[track_caller]
fn assert_over(answer: &Answer, reason: &str, limit: usize, actual: usize) {
    let problem = answer.refused("QUOTA_EXCEEDED");
    let found = (&problem["reasons"], &problem["limit"], &problem["actual"]);
    assert_eq!(found, (&json!([reason]), &json!(limit), &json!(actual)), "{problem:#}");
}

#[rstest]
#[tokio::test]
async fn every_byte_and_file_of_a_run_counts_until_it_is_deleted(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let quota = json!({"policy": {"quota": {"maxTreeBytes": 1000, "maxFiles": 3}}});
    let run = server.run_with_files(&[("a.txt", &"a".repeat(400))], quota).await;
    assert_eq!(disk(&run).await, (400, 1));
    run.ok("write_file", write("b.txt", 500)).await;
    assert_eq!(disk(&run).await, (900, 2));
    let mut dry = write("c.txt", 200);
    assert_over(&run.call("write_file", dry.clone()).await, "quota:maxTreeBytes", 1000, 1100);
    dry["dryRun"] = json!(true);
    assert_over(&run.call("write_file", dry).await, "quota:maxTreeBytes", 1000, 1100);
    let record = run.last_record().await;
    assert_eq!((&record["code"], &record["decision"]), (&json!("QUOTA_EXCEEDED"), &json!("DENY")));
    assert_over(&put(&run, "c.bin", vec![0; 101]).await, "quota:maxTreeBytes", 1000, 1001);
    let edit = json!({"path": "a.txt", "oldString": "a", "newString": "bb", "replaceAll": true, "reason": "r"});
    assert_over(&run.call("edit_file", edit).await, "quota:maxTreeBytes", 1000, 1300);
    put(&run, "c.bin", vec![0; 100]).await.is(201);
    assert_eq!(disk(&run).await, (1000, 3));
    assert_over(&put(&run, "d.bin", vec![]).await, "quota:maxFiles", 3, 4);
    // A change that shrinks or moves a file is never refused.
    run.replace("a.txt", "a", &sha256("a".repeat(400))).await.ok();
    let moved = json!({"from": "b.txt", "to": "d.txt", "expectedSha256": sha256("x".repeat(500)), "reason": "r"});
    run.ok("move_file", moved).await;
    run.ok("delete_file", json!({"path": "d.txt", "expectedSha256": sha256("x".repeat(500)), "reason": "r"})).await;
    assert_eq!(disk(&run).await, (101, 2));
    server.stop();
    server.restart();
    let run = server.reconnect(&run);
    assert_over(&run.call("write_file", write("e.txt", 900)).await, "quota:maxTreeBytes", 1000, 1001);
    run.ok("write_file", write("e.txt", 899)).await;
    assert_eq!(disk(&run).await, (1000, 3));
}

#[rstest]
#[tokio::test]
async fn emptied_folders_are_removed(#[values(Backend::Sqlite)] backend: Backend) {
    let quota = json!({"policy": {"quota": {"maxTreeBytes": 65_536, "maxFiles": 10}}});
    let (_server, run) = Run::shared_with(backend, &[("kept/a.txt", "a\n")], quota).await;
    let before = run.snapshot();
    let deep = |number: usize| format!("{number}{}", "/d".repeat(20));
    let x = sha256("x\n");
    let gone = |path: &str| json!({"path": path, "expectedSha256": x, "reason": "r"});
    let path = format!("/v1/runs/{}", run.id);
    for number in 0..3 {
        let file = format!("{}/f.txt", deep(number));
        // By a patch.
        run.patch(&format!("--- /dev/null\n+++ b/{file}\n@@ -0,0 +1 @@\n+x\n")).await.ok();
        run.patch(&format!("--- a/{file}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n")).await.ok();
        assert_eq!(run.snapshot(), before);
        // By a move, and its way back.
        run.create(&file, "x\n").await;
        let to = format!("kept/{}/f.txt", deep(number));
        let moved = json!({"from": file, "to": to, "expectedSha256": x, "reason": "r"});
        let moved = run.ok("move_file", moved).await;
        assert!(!run.repo.join(number.to_string()).exists());
        run.ok("revert_calls", json!({"toolCallIds": [moved["toolCallId"]], "reason": "r"})).await;
        assert!(!run.repo.join(format!("kept/{number}")).exists());
        // By a batch.
        let call = json!({"tool": "delete_file", "input": gone(&file)});
        run.agent.post(&format!("{path}/batch"), json!({"calls": [call], "atomic": true})).await.ok();
        assert_eq!(run.snapshot(), before);
        // By the file routes.
        put(&run, &file, b"x\n".to_vec()).await.is(201);
        let request = run.agent.request(Method::DELETE, &format!("{path}/files/{file}"));
        let answer = run.agent.send(request.header("x-reason", "r").header("if-match", format!("\"{x}\""))).await;
        assert!(answer.status < 300, "{answer:?}");
        assert_eq!(run.snapshot(), before);
    }
    // A folder that contains an originally empty folder is not removed.
    std::fs::create_dir_all(run.repo.join("parent/empty")).unwrap();
    run.create("parent/x.txt", "x\n").await;
    run.ok("delete_file", gone("parent/x.txt")).await;
    assert!(run.repo.join("parent/empty").is_dir());
}

#[rstest]
#[tokio::test]
async fn the_quota_applies_to_an_atomic_batch_as_a_whole(#[values(Backend::Sqlite)] backend: Backend) {
    let quota = json!({"policy": {"quota": {"maxTreeBytes": 1000}}});
    let (_server, run) = Run::shared_with(backend, &[("a.txt", &"a".repeat(600))], quota).await;
    let call = |tool: &str, input: Value| json!({"tool": tool, "input": input});
    let gone = json!({"path": "a.txt", "expectedSha256": sha256("a".repeat(600)), "reason": "r"});
    let path = format!("/v1/runs/{}/batch", run.id);
    let calls = [call("write_file", write("b.txt", 300)), call("write_file", write("c.txt", 300))];
    let body = json!({"calls": calls, "atomic": true});
    let answer = run.agent.post(&path, body).await.json();
    assert!(answer.to_string().contains("QUOTA_EXCEEDED"), "{answer:#}");
    assert_eq!(disk(&run).await, (600, 1));
    let calls = [call("delete_file", gone), call("write_file", write("b.txt", 900))];
    let answer = run.agent.post(&path, json!({"calls": calls, "atomic": true})).await.ok();
    assert!(!answer.to_string().contains("QUOTA_EXCEEDED"), "{answer:#}");
    assert_eq!(disk(&run).await, (900, 1));
    let patch = format!("--- /dev/null\n+++ b/p.txt\n@@ -0,0 +1 @@\n+{}\n", "p".repeat(100));
    assert_over(&run.patch(&patch).await, "quota:maxTreeBytes", 1000, 1001);
    let id =
        run.audit().await.into_iter().rfind(|record| record["tool"] == "delete_file").unwrap()["toolCallId"].clone();
    let answer = run.call("revert_calls", json!({"toolCallIds": [id], "reason": "r"})).await;
    assert_over(&answer, "quota:maxTreeBytes", 1000, 1500);
}

/// Sends the head of an upload and the first `sent` bytes, and keeps the connection open.
fn begin(server: &Server, run: &Run, path: &str, announced: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let token = run.agent.token.as_deref().unwrap();
    let head = format!(
        "PUT /v1/runs/{}/files/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         X-Reason: r\r\nIf-None-Match: *\r\nContent-Length: {announced}\r\n\r\n",
        run.id
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![0; sent]).unwrap();
    stream
}

#[rstest]
#[tokio::test]
async fn unfinished_uploads_count_as_they_grow(#[values(Backend::Sqlite)] backend: Backend) {
    let quota = json!({"policy": {"quota": {"maxTreeBytes": 5 * MIB}, "budget": {"maxBytes": MIB}}});
    // Its own server: an upload that waits for those of others would end, because it sends nothing more.
    let server = Server::start(backend).await;
    let run = server.run(quota).await;
    // An upload with a declared length is refused before its body.
    let mut stream_of_head = begin(&server, &run, "a.bin", 6 * MIB, 0);
    let mut answer = [0; 4096];
    let read = stream_of_head.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 507") && answer.contains("QUOTA_EXCEEDED"), "{answer}");
    put(&run, "b.bin", vec![0; 2 * MIB]).await.is(201);
    assert_eq!(disk(&run).await, (2 * MIB as u64, 1));
    // The received part of an upload counts.
    let half = begin(&server, &run, "c.bin", 3 * MIB, 5 * MIB / 2);
    let mut probe = write("probe.txt", 900_000);
    probe["dryRun"] = json!(true);
    // If it was answered, it is over, and will never count.
    half.set_nonblocking(true).unwrap();
    let is_refused = async || {
        let is_refused = run.call("write_file", probe.clone()).await.status != 200;
        let mut answer = [0; 1024];
        let length = half.peek(&mut answer).unwrap_or(0);
        is_refused.then_some(()).ok_or(format!("its answer: {}", String::from_utf8_lossy(&answer[..length])))
    };
    until("what was received of an upload counts", is_refused).await;
    run.call("write_file", probe).await.refused("QUOTA_EXCEEDED");
    stream(&run, "d.bin", vec![0; 5 * MIB / 2]).await.refused("QUOTA_EXCEEDED");
    drop(half);
    let store = async || {
        let answer = put(&run, "e.bin", vec![0; 3 * MIB]).await;
        if answer.status == 201 { Ok(()) } else { Err(answer.refused("QUOTA_EXCEEDED")) }
    };
    until("an aborted upload does not count", store).await;
    assert_eq!(disk(&run).await, (5 * MIB as u64, 2));
    assert_eq!(std::fs::read_dir(run.repo.parent().unwrap().join("tmp")).unwrap().count(), 0);
}

/// Asserts that a call is refused by the limit of all runs. The history of the runs counts too, so that the sum is known only roughly.
#[track_caller]
fn assert_over_disk(answer: &Answer, limit: usize, least: usize) {
    let problem = answer.refused("QUOTA_EXCEEDED");
    assert_eq!((&problem["reasons"], &problem["limit"]), (&json!(["maxDiskBytes"]), &json!(limit)), "{problem:#}");
    let actual = usize::try_from(problem["actual"].as_u64().unwrap()).unwrap();
    assert!((least.max(limit)..least + MIB).contains(&actual), "{problem:#}");
}

#[rstest]
#[tokio::test]
async fn all_runs_together_have_a_quota(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    // The history of a test is far smaller than a step.
    const STEP: usize = 1 << 18;
    let of = |name: &str, steps: usize| (name.to_owned(), "x".repeat(steps * STEP));
    let limit = 10 * STEP;
    let setup = Setup::new(backend).arg("--max-disk-bytes", limit).arg("--max-runs", 3);
    let mut server = Server::start_with(setup).await;
    let one = server.run_with_files(&[("a.txt", &of("a", 6).1)], json!({})).await;
    let two = server.run(json!({})).await;
    put(&two, "b.bin", vec![0; 5 * STEP]).await.refused("QUOTA_EXCEEDED");
    assert_over_disk(&put(&two, "b.bin", vec![0; 5 * STEP]).await, limit, 11 * STEP);
    put(&two, "b.bin", vec![0; 2 * STEP]).await.is(201);
    assert_over_disk(&put(&two, "c.bin", vec![0; 3 * STEP]).await, limit, 11 * STEP);
    // A refused import leaves no files.
    let template = server.template(&[("a.txt", &of("a", 1).1), ("b.txt", &of("b", 1).1)]);
    let source = json!({"runId": "big", "source": {"type": "directory", "path": template}});
    assert_over_disk(&server.operator().post("/v1/runs", source.clone()).await, limit, 10 * STEP);
    server.operator().get("/v1/runs/big").await.refused("RUN_NOT_FOUND");
    let three = server.run(json!({"source": {"type": "archive"}})).await;
    let empty = json!({"source": {"type": "empty"}});
    assert_over(&server.operator().post("/v1/runs", empty.clone()).await, "maxRuns", 3, 4);
    let tar = gzip(&tar_of(&[("a", &vec![b'x'; STEP]), ("b", &vec![b'x'; STEP])]));
    let path = format!("/v1/runs/{}/archive", three.id);
    assert_over_disk(&server.operator().put(&path, tar).await, limit, 10 * STEP);
    assert_eq!(three.get().await["state"], "preparing");
    // After a restart, the ledger has the counts.
    server.stop();
    server.restart();
    let (one, two, three) = (server.reconnect(&one), server.reconnect(&two), server.reconnect(&three));
    assert_over_disk(&put(&two, "c.bin", vec![0; 3 * STEP]).await, limit, 11 * STEP);
    assert_over(&server.operator().post("/v1/runs", empty.clone()).await, "maxRuns", 3, 4);
    for _ in 0..2 {
        server.operator().delete(&format!("/v1/runs/{}", one.id)).await.ok();
    }
    put(&two, "c.bin", vec![0; 3 * STEP]).await.is(201);
    let fits = tar_of(&[("a", &vec![b'x'; 4 * STEP])]);
    server.operator().put(&format!("/v1/runs/{}/archive", three.id), fits).await.ok();
    assert_eq!(disk(&three).await, (4 * STEP as u64, 1));
    assert_over_disk(&put(&two, "d.bin", vec![0; STEP]).await, limit, 10 * STEP);
    let four = server.operator().post("/v1/runs", empty.clone()).await;
    four.is(201);
    assert_over(&server.operator().post("/v1/runs", empty).await, "maxRuns", 3, 4);
    server.operator().post("/v1/runs", source).await.refused("QUOTA_EXCEEDED");
}

#[rstest]
#[tokio::test]
async fn a_source_over_the_quota_is_refused_and_leaves_nothing(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let template = server.template(&[("a.txt", &"a".repeat(60)), ("d/b.txt", &"b".repeat(60))]);
    let (repository, _) = server.repository(&[("a.txt", &"a".repeat(60)), ("d/b.txt", &"b".repeat(60))]);
    for source in [json!({"type": "directory", "path": template}), json!({"type": "git", "url": repository})] {
        let body = |quota: Value| json!({"runId": "r", "source": source, "policy": {"quota": quota}});
        let answer = server.operator().post("/v1/runs", body(json!({"maxFiles": 1}))).await;
        assert_over(&answer, "quota:maxFiles", 1, 2);
        if source["type"] == "directory" {
            // A folder counts as 4 KiB.
            let answer = server.operator().post("/v1/runs", body(json!({"maxTreeBytes": 4200}))).await;
            assert_over(&answer, "quota:maxTreeBytes", 4200, 4216);
        }
        server.operator().get("/v1/runs/r").await.refused("RUN_NOT_FOUND");
    }
    let left = std::fs::read_dir(server.data_dir().join("workspaces")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).filter(|name| name != ".git-home").collect();
    assert!(left.is_empty(), "{left:?}");
    // The import of a small archive with large content is aborted.
    let quota = json!({"source": {"type": "archive"}, "policy": {"quota": {"maxTreeBytes": 2 * MIB}}});
    let run = server.run(quota).await;
    let bomb = gzip(&tar_of(&[("a", &vec![0; MIB]), ("b", &vec![0; MIB]), ("c", &vec![0; 8 * MIB])]));
    let answer = run.operator.put(&format!("/v1/runs/{}/archive", run.id), bomb).await;
    assert_over(&answer, "quota:maxTreeBytes", 2 * MIB, 10 * MIB);
    assert_eq!(run.get().await["state"], "preparing");
}

#[rstest]
#[tokio::test]
async fn max_files_counts_files_and_links_but_not_folders(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let entries = |kind: EntryType| {
        let mut tar = tar::Builder::new(Vec::new());
        for number in 0..12 {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(kind);
            header.set_size(0);
            match kind {
                EntryType::Symlink => tar.append_link(&mut header, format!("l{number}"), "target").unwrap(),
                _ => tar.append_data(&mut header, format!("d/{number}"), &[][..]).unwrap(),
            }
        }
        tar.into_inner().unwrap()
    };
    for (kind, quota, reason, limit, actual) in [
        (EntryType::Symlink, json!({"maxFiles": 10}), "quota:maxFiles", 10, 11),
        (EntryType::Directory, json!({"maxTreeBytes": 40_000}), "quota:maxTreeBytes", 40_000, 10 * 4096),
        (EntryType::Symlink, json!({"maxTreeBytes": 40_000}), "quota:maxTreeBytes", 40_000, 10 * 4096),
    ] {
        let run = server.run(json!({"source": {"type": "archive"}, "policy": {"quota": quota}})).await;
        let answer = run.operator.put(&format!("/v1/runs/{}/archive", run.id), entries(kind)).await;
        assert_over(&answer, reason, limit, actual);
        assert_eq!(run.get().await["state"], "preparing");
    }
    let run = server.run(json!({"source": {"type": "archive"}, "policy": {"quota": {"maxFiles": 2}}})).await;
    let path = format!("/v1/runs/{}/archive", run.id);
    assert_over(&run.operator.put(&path, tar_of(&[("a", b""), ("b", b""), ("c", b"")])).await, "quota:maxFiles", 2, 3);
    // Neither explicit nor implicit folders count: as for a write, which makes missing folders. The reported size is that of the files.
    run.operator.put(&path, tar_of(&[("a/b/c", b"c")])).await.ok();
    assert_eq!(disk(&run).await, (1, 1));
    run.ok("write_file", write("d/e/f", 1)).await;
    assert_over(&run.call("write_file", write("g", 1)).await, "quota:maxFiles", 2, 3);
    let empty = server.run(json!({"source": {"type": "archive"}, "policy": {"quota": {"maxFiles": 2}}})).await;
    empty.operator.put(&format!("/v1/runs/{}/archive", empty.id), entries(EntryType::Directory)).await.ok();
    // A base that is used again counts the same.
    let template = server.template(&[("a/b/c.txt", "c"), ("d/e.txt", "e")]);
    for _ in 0..2 {
        let source = json!({"type": "directory", "path": template});
        server.run(json!({"source": source, "policy": {"quota": {"maxFiles": 2}}})).await;
    }
}

#[rstest]
#[tokio::test]
async fn the_number_of_pending_approvals_is_limited(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let policy = json!({"policy": {"quota": {"pendingApprovals": 2}}});
    let run = server.run(policy).await;
    let ask = |path: &str| write(&format!("{path}/Cargo.lock"), 10);
    let first = run.call("write_file", ask("a")).await.refused("APPROVAL_REQUIRED");
    run.call("write_file", ask("b")).await.refused("APPROVAL_REQUIRED");
    assert_over(&run.call("write_file", ask("c")).await, "quota:pendingApprovals", 2, 3);
    let mut dry = ask("c");
    dry["dryRun"] = json!(true);
    assert_over(&run.call("write_file", dry).await, "quota:pendingApprovals", 2, 3);
    let calls = json!([{"tool": "write_file", "input": ask("c")}, {"tool": "write_file", "input": write("d", 1)}]);
    let batch = json!({"calls": calls, "atomic": true});
    let path = format!("/v1/runs/{}/batch", run.id);
    let answer = run.agent.post(&path, batch.clone()).await.json();
    assert!(answer.to_string().contains("QUOTA_EXCEEDED"), "{answer:#}");
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 2);
    // Calls that need no approval still work.
    run.ok("write_file", write("d.txt", 1)).await;
    server.stop();
    server.restart();
    let run = server.reconnect(&run);
    assert_over(&run.call("write_file", ask("c")).await, "quota:pendingApprovals", 2, 3);
    let path = format!("/v1/approvals/{}/deny", first["approvalId"].as_str().unwrap());
    run.operator.post(&path, json!({"decidedBy": "someone"})).await.ok();
    let answer = run.agent.post(&format!("/v1/runs/{}/batch", run.id), batch).await.json();
    assert!(answer.to_string().contains("APPROVAL_REQUIRED"), "{answer:#}");
    assert_over(&run.call("write_file", ask("e")).await, "quota:pendingApprovals", 2, 3);
    let pending = run.operator.get(&format!("/v1/approvals?state=pending&run={}", run.id)).await.ok();
    let id = pending["items"][0]["approvalId"].as_str().unwrap();
    run.operator.post(&format!("/v1/approvals/{id}/approve"), json!({"decidedBy": "someone"})).await.ok();
    run.call("write_file", ask("e")).await.refused("APPROVAL_REQUIRED");
    assert_eq!(run.verify().await["intact"], true);
}
