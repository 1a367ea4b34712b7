//! Nodes that are killed, paused, stopped and replaced.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use transparency::{SignerKey, SigningKeys};

use super::{LEASE, events, prepare, signer_key, start, start_at, two, until_recorded};
use crate::audit::checkpoints::until_covered;
use crate::harness::{Run, Server, assert_chain, incompressible, put, sha256, until};
use crate::operation::replay_and_repair::{assert_ends, offline};

#[tokio::test]
async fn the_runs_of_a_killed_node_are_taken_over_after_its_lease() {
    let [mut first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    let mut acknowledged = Vec::new();
    for number in 0..5 {
        acknowledged.push(away.create(&format!("{number}.txt"), "x\n").await["seq"].clone());
    }
    first.kill();
    // The owner counts as alive: nobody answers for it.
    let refused = away.call("read_file", json!({"path": "a.txt"})).await;
    refused.refused("UNAVAILABLE");
    assert!(!refused.header("retry-after").is_empty());
    let took = until_recorded(&away.operator, &away, "after", LEASE * 2).await;
    println!("taken over {took:?} after the kill");
    assert!(took < LEASE + Duration::from_secs(5), "{took:?}");

    let records = away.audit().await;
    assert_chain(&run.id, &records);
    for seq in acknowledged {
        assert!(records.iter().any(|record| record["seq"] == seq), "{seq} was lost");
    }
    assert_eq!(away.verify().await["intact"], true);
    // Every acknowledged change is in the files, and the node that starts again gets the run once the other one gives it back.
    for number in 0..5 {
        assert_eq!(away.ok("read_file", json!({"path": format!("{number}.txt")})).await["totalLines"], 1);
    }
    away.create("second.txt", "x\n").await;
    start(&mut first);
    let back = first.reconnect(&run);
    until_recorded(&back.operator, &back, "through", Duration::from_secs(5)).await;
    let mut second = second;
    assert!(second.stop().success());
    for path in ["a.txt", "4.txt", "second.txt"] {
        assert_eq!(back.ok("read_file", json!({"path": path})).await["totalLines"], 1);
    }
    back.create("last.txt", "x\n").await;
    assert_chain(&run.id, &back.audit().await);
}

#[tokio::test]
async fn two_nodes_that_take_over_the_same_run_at_once_agree() {
    let [mut first, second] = two().await;
    let mut third = prepare(Some(&first)).await;
    start(&mut third);
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    first.kill();
    let others = [second.reconnect(&run), third.reconnect(&run)];
    let send = async |node: usize| {
        for number in 0..10 {
            let id = format!("node-{node}-{number}");
            until_recorded(&others[node].operator, &others[node], &id, LEASE * 3).await;
        }
    };
    tokio::join!(send(0), send(1));
    let records = others[0].audit().await;
    assert_chain(&run.id, &records);
    for node in 0..2 {
        for number in 0..10 {
            let id = format!("node-{node}-{number}");
            assert_eq!(records.iter().filter(|record| record["toolCallId"] == id).count(), 1, "{id}");
        }
    }
}

#[tokio::test]
async fn a_node_that_was_paused_for_longer_than_its_lease_records_nothing_of_its_own() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let away = second.reconnect(&run);
    first.signal(Signal::STOP);
    // A call that the paused node receives, and finds when it wakes.
    let late = {
        let run = run.clone();
        tokio::spawn(async move {
            let input = json!({"toolCallId": "late", "path": "late.txt", "content": "x\n", "mode": "CREATE_NEW", "reason": "r"});
            let answer = run.call("write_file", input.clone()).await;
            // The database has closed the connection with which the node was asking for the owner of the run.
            if answer.status == 503 { run.call("write_file", input).await } else { answer }
        })
    };
    until_recorded(&away.operator, &away, "taken", LEASE * 3).await;
    away.ok("read_file", json!({"path": "a.txt"})).await;
    first.signal(Signal::CONT);
    let late = late.await.unwrap();
    // It is answered by the new owner. The paused node has changed nothing of its own.
    let late = late.ok();
    assert!(!run.repo.join("late.txt").exists());
    assert_eq!(std::fs::read_to_string(second.repo(&run.id).join("late.txt")).unwrap(), "x\n");
    run.operator.post(&events(&run), json!({"eventId": "woken", "kind": "message", "summary": "s"})).await.is(201);
    let records = away.audit().await;
    assert_chain(&run.id, &records);
    let written = records.iter().filter(|record| record["tool"] == "write_file").collect::<Vec<_>>();
    assert_eq!((written.len(), &written[0]["seq"]), (1, &late["seq"]), "{records:#?}");
}

#[tokio::test]
async fn what_the_database_knows_of_a_run_is_answered_while_its_killed_owner_counts_as_alive() {
    let [mut first, second] = two().await;
    let run = first.run_with_files(&[("Cargo.lock", "old\n")], json!({})).await;
    run.create("a.txt", "a\n").await;
    let input = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
    let asked = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    first.kill();
    let operator = second.operator();
    let path = format!("/v1/runs/{}", run.id);
    let shown = operator.get(&path).await.ok();
    assert_eq!((&shown["runId"], &shown["state"]), (&json!(run.id), &json!("awaiting_approval")));
    assert_eq!(operator.get(&format!("{path}/audit/verify")).await.ok()["intact"], true);
    let records = operator.get(&format!("{path}/audit")).await.ok();
    assert_eq!(records["items"].as_array().unwrap().len() as u64, shown["headSeq"].as_u64().unwrap());
    operator.get(&format!("/v1/approvals/{}", asked["approvalId"].as_str().unwrap())).await.ok();
    assert_eq!(operator.get(&format!("{path}/changes")).await.ok()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_import_of_a_killed_node_is_resumed_by_another_one() {
    let mut first = prepare(None).await;
    first.setup = first.setup.clone().env("WORKSPACED_FAILPOINT", "base.part_put");
    start(&mut first);
    let mut second = prepare(Some(&first)).await;
    // As on machines that mount the same folder.
    second.setup = second.setup.clone().env("WORKSPACED_IMPORT_ROOTS", first.import_root().to_str().unwrap());
    start(&mut second);
    let template = first.template(&[("a.txt", "a\n")]);
    let body = json!({"runId": "imported", "source": {"type": "directory", "path": template}});
    let request = first.operator().request(reqwest::Method::POST, "/v1/runs").header("prefer", "respond-async");
    let created = first.operator().try_send(request.json(&body)).await.expect("an answer before the kill").is(202);
    first.wait();
    let operator = second.operator();
    let imported = async || {
        let answer = operator.get("/v1/runs/imported").await;
        // The killed node counts as alive for a while.
        let is_imported = answer.status != 503 && answer.ok()["state"] != "preparing";
        if is_imported { Ok(answer.json()) } else { Err(answer.text()) }
    };
    let run = until("the import is complete", imported).await;
    assert_eq!((&run["state"], &run["import"]["files"]), (&json!("open"), &json!(1)), "{run:#}");
    first.setup.env.pop();
    start(&mut first);
    let agent = first.run_from(&created).await;
    assert_eq!(agent.ok("read_file", json!({"path": "a.txt"})).await["totalLines"], 1);
    let records = agent.audit().await;
    let names: Vec<_> = records.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["run.create", "run.resume_import", "run.import"]);
    assert_eq!(agent.verify().await["intact"], true);
}

#[tokio::test]
async fn the_artifacts_of_a_run_go_with_it_to_another_node() {
    let [mut first, mut second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    put(&first.workspace(&run.id), "artifacts/logs/build.txt", "built\n");
    std::os::unix::fs::symlink("logs/build.txt", first.workspace(&run.id).join("artifacts/latest")).unwrap();
    let is_kept = async || run.audit().await.iter().any(|record| record["tool"] == "run.keep_artifacts");
    first.until("the artifacts are kept", is_kept).await;
    first.kill();
    let away = second.reconnect(&run);
    until_recorded(&away.operator, &away, "after-kill", LEASE * 2 + Duration::from_secs(15)).await;
    // An event is recorded without opening the files.
    away.ok("read_file", json!({"path": "a.txt"})).await;
    let artifacts = second.workspace(&run.id).join("artifacts");
    assert_eq!(
        std::fs::read_to_string(artifacts.join("latest")).unwrap_or_else(|error| panic!(
            "{error}: {:?} {}",
            run.id,
            second.log()
        )),
        "built\n"
    );
    assert!(artifacts.join("latest").is_symlink());

    // A node that stops keeps the newest ones before it gives its runs back.
    put(&artifacts, "report.txt", "passed\n");
    start(&mut first);
    assert!(second.stop().success());
    let back = first.reconnect(&run);
    until_recorded(&back.operator, &back, "after-stop", Duration::from_secs(15)).await;
    back.ok("read_file", json!({"path": "a.txt"})).await;
    let artifacts = first.workspace(&run.id).join("artifacts");
    assert_eq!(std::fs::read_to_string(artifacts.join("report.txt")).unwrap(), "passed\n");
    assert_eq!(std::fs::read_to_string(artifacts.join("logs/build.txt")).unwrap(), "built\n");
    assert_eq!(back.verify().await["intact"], true);
}

#[tokio::test]
async fn a_node_that_stops_gives_its_runs_back_at_once() {
    let [mut first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("b.txt", "b\n").await;
    let away = second.reconnect(&run);
    assert!(first.stop().success());
    let started = Instant::now();
    until_recorded(&away.operator, &away, "after", Duration::from_secs(5)).await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert_chain(&run.id, &away.audit().await);
}

#[tokio::test]
async fn a_node_that_has_left_owns_no_run() {
    let [mut first, second] = two().await;
    let mut writers = Vec::new();
    for _ in 0..8 {
        let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
        // Until the node takes no more calls.
        writers.push(tokio::spawn(async move {
            for number in 0.. {
                let input = json!({"path": format!("{number}.txt"), "content": "x\n", "reason": "r"});
                let path = format!("/v1/runs/{}/tools/write_file", run.id);
                let request = run.agent.request(reqwest::Method::POST, &path).json(&input);
                if !run.agent.try_send(request).await.is_ok_and(|answer| answer.status < 300) {
                    return number;
                }
            }
            unreachable!("a node never stops")
        }));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(first.stop().success());
    for writer in writers {
        assert!(writer.await.unwrap() > 0, "a run was not used");
    }
    let nodes = second.auditor().get("/v1/nodes").await.ok();
    let owned: Vec<_> =
        nodes["items"].as_array().unwrap().iter().map(|node| (&node["isThis"], &node["ownedRuns"])).collect();
    assert!(owned.iter().all(|(is_this, runs)| **is_this == json!(true) || **runs == json!(0)), "{nodes:#}");
}

#[tokio::test]
async fn a_process_whose_name_another_one_takes_ends() {
    let mut first = prepare(None).await;
    first.setup = first.setup.clone().arg("--node-id", "same");
    start(&mut first);
    let mut second = prepare(Some(&first)).await;
    second.setup = second.setup.clone().arg("--node-id", "same");
    start(&mut second);
    let status = first.wait();
    assert_eq!(status.code(), Some(1), "{}", first.log());
    assert!(first.log().contains("a newer process of this node has started"), "{}", first.log());
    second.nobody().get("/readyz").await.is(200);
}

#[tokio::test]
async fn one_node_signs_and_another_continues() {
    let [mut first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("b.txt", "b\n").await;
    let covers = async |at_least: u64| {
        let covered = async || {
            assert!(!second.log().contains("no checkpoints are signed any more"), "{}", second.log());
            let checkpoint = second.auditor().get("/v1/checkpoint").await.text();
            let size = checkpoint.lines().nth(1).and_then(|line| line.parse::<u64>().ok()).unwrap_or(0);
            if size >= at_least { Ok(size) } else { Err(checkpoint) }
        };
        second.until(&format!("a checkpoint covers {at_least} records"), covered).await
    };
    let size = covers(1).await;
    assert!(first.stop().success());
    let away = second.reconnect(&run);
    until_recorded(&away.operator, &away, "more", Duration::from_secs(5)).await;
    let size = covers(size + 1).await;
    until_recorded(&away.operator, &away, "last", Duration::from_secs(5)).await;
    covers(size + 1).await;

    // The file of a node lacks what others have signed since it has stopped.
    let (file, lacks) = (first.data_dir().join("checkpoints.log"), "entries of other nodes, which the next start adds");
    let key = signer_key().verifier_key().to_text();
    let verify = |node: &Server| offline(node, "verify", &["--checkpoint-verifier-key", &key]);
    assert_ends(&verify(&first), 0, &["checkpoints: intact", "the file ends at", lacks]);
    std::fs::remove_file(&file).unwrap();
    assert_ends(&verify(&first), 0, &["checkpoints: intact", "the file ends at 0 leaves", lacks]);
    start(&mut first);
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().next(), Some("nodes.example/log"), "{}", first.log());
    assert!(first.stop().success());
    first.database.drop_triggers().await;
    let change = "update audit_record set body = replace(body, 'b.txt', 'c.txt') where seq = 2 and run_no = {run}";
    first.rewrite(&run, &[change]).await;
    assert_ends(&verify(&first), 1, &["BROKEN at seq 2"]);
}

/// Starts a prepared node with these keys.
fn start_with(node: &mut Server, keys: &SigningKeys) {
    node.setup.env.retain(|(name, _)| name != "WORKSPACED_CHECKPOINT_KEY");
    node.setup = node.setup.clone().env("WORKSPACED_CHECKPOINT_KEY", &keys.to_text());
    start(node);
}

/// The newest checkpoint that a node has once it covers `seq`.
async fn covering(run: &Run, seq: u64) -> String {
    until_covered(run, seq).await;
    run.operator.get("/v1/checkpoint").await.text()
}

#[tokio::test]
async fn nodes_replace_their_key_one_after_the_other() {
    let old = SigningKeys::new(signer_key());
    let successor = SignerKey::from_seed("nodes.example/log", &[8; 32]).unwrap();
    let both = SigningKeys::with_successor(signer_key(), successor.clone()).unwrap();
    let alone = SigningKeys::new(successor.clone());
    let [by_old, by_new] = [signer_key(), successor].map(|key| key.verifier_key());
    let signed_by = |note: &str| [&by_old, &by_new].map(|key| key.verify(note).is_ok());

    let mut first = prepare(None).await;
    let mut second = prepare(Some(&first)).await;
    for node in [&mut first, &mut second] {
        node.setup = node.setup.clone().arg("--checkpoint-seconds", 1);
    }
    start_with(&mut first, &both);
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("b.txt", "b\n").await;
    let note = covering(&run, 2).await;
    assert_eq!(signed_by(&note), [true, true], "{note}");
    // A node that has only the old key would sign what no verifier of the new one accepts.
    let refused = second
        .command("serve")
        .args(["--listen", "127.0.0.1:0", "--node-url", "http://127.0.0.1:9"])
        .arg("--cluster-secret-file")
        .arg(second.home.join("secret"))
        .args(&second.setup.args)
        .env("WORKSPACED_CHECKPOINT_KEY", old.to_text())
        .output()
        .unwrap();
    assert_ends(&refused, 2, &["was replaced from 1 leaves on", &by_new.to_text()]);
    start_with(&mut second, &both);
    assert!(first.stop().success());
    let away = second.reconnect(&run);
    until_recorded(&away.operator, &away, "both", Duration::from_secs(5)).await;
    let note = covering(&away, 3).await;
    assert_eq!(signed_by(&note), [true, true], "{note}");
    // The first node retires the old key while the second one still has it.
    start_with(&mut first, &alone);
    assert!(second.stop().success());
    let back = first.reconnect(&run);
    until_recorded(&back.operator, &back, "alone", Duration::from_secs(5)).await;
    let note = covering(&back, 4).await;
    assert_eq!(signed_by(&note), [false, true], "{note}");
    start_with(&mut second, &both);
    assert!(first.stop().success());
    let away = second.reconnect(&run);
    until_recorded(&away.operator, &away, "still-both", Duration::from_secs(5)).await;
    let note = covering(&away, 5).await;
    assert_eq!(signed_by(&note), [false, true], "the old key signs again: {note}");
    assert!(second.stop().success());
    for key in [&by_old, &by_new] {
        let done = offline(&second, "verify", &["--checkpoint-verifier-key", &key.to_text()]);
        assert_ends(&done, 0, &["checkpoints: intact", "by 2 keys in turn"]);
    }
    for node in [&first, &second] {
        assert!(!node.log().contains("no checkpoints are signed any more"), "{}", node.log());
    }
}

/// The role goes to a node that was started before the others had the new key.
#[tokio::test]
async fn a_node_that_lacks_the_new_key_signs_nothing() {
    let both = SigningKeys::with_successor(signer_key(), SignerKey::from_seed("nodes.example/log", &[8; 32]).unwrap());
    let both = both.unwrap();
    let mut first = prepare(None).await;
    let mut second = prepare(Some(&first)).await;
    for node in [&mut first, &mut second] {
        node.setup = node.setup.clone().arg("--checkpoint-seconds", 1);
    }
    start_with(&mut first, &both);
    start(&mut second);
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("b.txt", "b\n").await;
    let size = covering(&run, 2).await.lines().nth(1).map(str::to_owned);
    assert!(first.stop().success());
    let away = second.reconnect(&run);
    until_recorded(&away.operator, &away, "late", Duration::from_secs(5)).await;
    second.until_logged("which this node lacks").await;
    let newest = away.operator.get("/v1/checkpoint").await.text();
    assert_eq!(newest.lines().nth(1).map(str::to_owned), size, "{newest}");
    assert!(second.stop().success());
    start_with(&mut first, &both);
    let back = first.reconnect(&run);
    covering(&back, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_while_another_one_signs_can_sign_too() {
    let [first, mut second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    // With another name, it waits until the address of the killed process is free. The other node goes on meanwhile.
    let base = second.base.clone();
    second.kill();
    std::fs::remove_dir_all(second.data_dir()).unwrap();
    std::fs::create_dir(second.data_dir()).unwrap();
    let writer = {
        let run = run.clone();
        tokio::spawn(async move {
            for number in 0.. {
                run.create(&format!("{number}.txt"), "x\n").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    };
    tokio::task::block_in_place(|| start_at(&mut second, base.trim_start_matches("http://"), &base));
    assert!(second.log().contains("waiting for another node with the address of this one"), "{}", second.log());
    assert!(!second.log().contains("no checkpoints are signed any more"), "{}", second.log());
    writer.abort();
}

/// A commit in flight holds back what nodes see as settled for as long as it lasts, also what another one has signed already.
#[tokio::test]
async fn a_node_that_sees_late_what_another_one_has_signed_goes_on_to_sign() {
    let mut first = prepare(None).await;
    first.setup = first.setup.clone().arg("--checkpoint-seconds", 1);
    start(&mut first);
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("b.txt", "b\n").await;
    until_covered(&run, 2).await;
    // The mark of a transaction that began before the first record: see `positions.rs` of the ledger.
    let mut in_flight = PgConnection::connect(&first.database.url).await.unwrap();
    let tag = "(8192 + ('record_position'::regclass::oid::bigint & 8191)) << 48";
    for position in ["0", "281474976710655"] {
        let mark = format!("SELECT pg_advisory_lock_shared(({tag}) | {position})");
        in_flight.execute(AssertSqlSafe(mark)).await.unwrap();
    }
    let mut second = prepare(Some(&first)).await;
    second.setup = second.setup.clone().arg("--checkpoint-seconds", 1);
    start(&mut second);
    in_flight.close().await.unwrap();
    assert!(first.stop().success());
    let away = second.reconnect(&run);
    away.create("c.txt", "c\n").await;
    until_covered(&away, 3).await;
    assert!(!second.log().contains("no checkpoints are signed any more"), "{}", second.log());
}

#[tokio::test]
async fn a_large_content_that_waits_is_approved_on_the_node_that_takes_over() {
    let [mut first, second] = two().await;
    let policy = json!({"policy": {"kinds": {"BINARY": "REQUIRE_APPROVAL"}}});
    let run = first.run_with_files(&[("a.txt", "a\n"), ("pic.bin", "\0old"), ("other.bin", "\0old")], policy).await;
    let ask = async |path: &str, content: &[u8]| {
        let request = run.agent.request(reqwest::Method::PUT, &format!("/v1/runs/{}/files/{path}", run.id));
        let request = request.header("x-reason", "r").header("if-match", format!("\"{}\"", sha256("\0old")));
        let asked = run.agent.send(request.body(content.to_vec())).await.refused("APPROVAL_REQUIRED");
        asked["approvalId"].as_str().unwrap().to_owned()
    };
    let (new, other) = (incompressible(2 << 20), incompressible(3 << 20));
    let (approved, denied) = (ask("pic.bin", &new).await, ask("other.bin", &other).await);
    first.kill();
    let away = second.reconnect(&run);
    until_recorded(&away.operator, &away, "after", LEASE * 2).await;
    let decide = async |id: &str, verb: &str| {
        away.operator.post(&format!("/v1/approvals/{id}/{verb}"), json!({"onBehalfOf": "ada"})).await.ok()
    };
    assert_eq!(decide(&approved, "approve").await["state"], "approved");
    assert_eq!(decide(&denied, "deny").await["state"], "denied");
    assert!(std::fs::read(second.repo(&run.id).join("pic.bin")).unwrap() == new, "another content");
    assert!(!second.repo(&run.id).join("other.bin").exists(), "a change that was denied has been made");
    assert_eq!(away.verify().await["intact"], true);
    // The first node gets the run back, and has nothing of what was decided elsewhere.
    start(&mut first);
    let mut second = second;
    assert!(second.stop().success());
    let back = first.reconnect(&run);
    until_recorded(&back.operator, &back, "back", LEASE * 2).await;
    back.ok("read_file", json!({"path": "a.txt"})).await;
    assert!(std::fs::read(first.repo(&run.id).join("pic.bin")).unwrap() == new, "another content");
}
