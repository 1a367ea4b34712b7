//! `kill -9` at any moment: what was answered is there, what is there is in the audit, nothing is half done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Snapshot, Strace, assert_chain, becomes_empty, items, sha256};

const FILES: [(&str, &str); 3] = [("a.txt", "one\ntwo\nthree\n"), ("b.txt", "b\n"), ("gone.txt", "g\n")];

/// Mutations that change one file, several, and folders too; each with an ID, so that it can be sent again.
fn mutations() -> [(&'static str, Value); 4] {
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n--- /dev/null\n+++ b/new/dir/n.txt\n@@ -0,0 +1 @@\n+n\n\
                 --- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n\
                 diff --git a/b.txt b/moved/b.txt\nsimilarity index 100%\nrename from b.txt\nrename to moved/b.txt\n";
    let large = (0..700).map(|line| format!("{line} {}\n", "x".repeat(250))).collect::<Vec<_>>().concat();
    [
        ("write_file", json!({"toolCallId": "m", "path": "new/c.txt", "content": "c\n", "reason": "r"})),
        (
            "write_file",
            json!({"toolCallId": "m", "path": "a.txt", "content": "ONE\n", "expectedSha256": sha256(FILES[0].1), "reason": "r"}),
        ),
        ("write_file", json!({"toolCallId": "m", "path": "large.txt", "content": large, "reason": "r"})),
        ("apply_patch", json!({"toolCallId": "m", "patch": patch, "reason": "r"})),
    ]
}

/// What the audit says stands in the tree: the start, and then every mutation in order.
fn tree_by_audit(start: &Snapshot, records: &[Value]) -> BTreeMap<String, String> {
    let hash = |told: &str| told.split_once(' ').map(|(_, hash)| hash.to_owned());
    let mut tree: BTreeMap<String, String> =
        start.iter().filter_map(|(path, told)| Some((path.clone(), hash(told)?))).collect();
    for record in records.iter().filter(|record| record["outcome"] == "ok" && record["mutates"] == true) {
        for file in record["files"].as_array().unwrap() {
            let path = file["path"].as_str().unwrap().to_owned();
            match file["newSha256"].as_str() {
                Some(hash) => tree.insert(path, hash.to_owned()),
                None => tree.remove(&path),
            };
        }
    }
    tree
}

/// Holds a run to all that must be true of it right after a restart.
async fn assert_sound(run: &Run, start: &Snapshot) -> Vec<Value> {
    let records = run.audit().await;
    assert_chain(&run.id, &records);
    let report = run.verify().await;
    assert_eq!(report["intact"], true, "{report:#}");
    let files = |snapshot: Snapshot| {
        let file = |(path, told): (String, String)| Some((path, told.split_once(' ')?.1.to_owned()));
        snapshot.into_iter().filter_map(file).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(files(run.snapshot()), tree_by_audit(start, &records), "the tree is not what the audit says");
    records
}

/// Nothing of a killed call is left beside the tree once somebody has called the run.
async fn assert_swept(server: &Server, run: &Run) {
    run.ok("list_dir", json!({})).await;
    assert!(becomes_empty(&server.workspace(&run.id).join("tmp")).await, "something is left in tmp/");
}

/// Restarts twice: the second recovery finds nothing to do.
async fn recover(server: &mut Server, run: &Run, start: &Snapshot) -> (Run, Vec<Value>) {
    server.restart();
    let run = server.reconnect(run);
    let records = assert_sound(&run, start).await;
    let tree = run.snapshot();
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(run.snapshot(), tree, "a second recovery changed something");
    assert_eq!(assert_sound(&run, start).await, records);
    (run, records)
}

/// Sends the same call again after a crash: it is answered, and it has happened once.
async fn assert_settles(run: &Run, start: &Snapshot, tool: &str, input: Value) {
    run.ok(tool, input.clone()).await;
    run.ok(tool, input).await;
    let records = assert_sound(run, start).await;
    let done = records.iter().filter(|record| record["toolCallId"] == "m" && record["outcome"] == "ok");
    assert_eq!(done.count(), 1, "{records:#?}");
}

async fn call_that_may_die(run: &Run, tool: &str, input: &Value) -> Option<u16> {
    let path = format!("/v1/runs/{}/tools/{tool}", run.id);
    let request = run.agent.request(reqwest::Method::POST, &path).json(input);
    run.agent.try_send(request).await.ok().map(|answer| answer.status)
}

#[rstest]
#[tokio::test]
async fn a_kill_between_two_steps_leaves_all_or_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("pipeline.staged", "pipeline.journalled", "pipeline.applied")] place: &str,
) {
    let mut server = Server::start(backend).await;
    for (tool, input) in mutations() {
        let run = server.run_with_files(&FILES, json!({})).await;
        let start = run.snapshot();
        server.kill();
        server.setup.env = vec![("WORKSPACED_FAILPOINT".into(), place.into())];
        server.restart();
        server.setup.env.clear();
        assert_eq!(call_that_may_die(&server.reconnect(&run), tool, &input).await, None, "it lived through {place}");
        server.wait(Duration::from_secs(10));

        let (run, records) = recover(&mut server, &run, &start).await;
        // Before the commit nothing has happened, and after it everything.
        assert_eq!(records.len(), usize::from(place != "pipeline.staged"), "{place}: {tool}");
        assert_settles(&run, &start, tool, input).await;
        assert_swept(&server, &run).await;
    }
}

#[rstest]
#[case::files("renameat2,renameat,unlinkat,mkdirat,linkat")]
#[case::writes("pwrite64,write,writev,ftruncate")]
#[case::syncs("fsync,fdatasync,sync_file_range")]
#[tokio::test]
async fn a_kill_at_a_system_call_leaves_all_or_nothing(#[case] syscalls: &str) {
    let mut server = Server::start(Backend::Sqlite).await;
    let mut killed = 0;
    for (tool, input) in mutations() {
        for nth in 1..=12 {
            let run = server.run_with_files(&FILES, json!({})).await;
            let start = run.snapshot();
            let strace = Strace::attach(&server, syscalls, &format!("signal=KILL:when={nth}"));
            let answered = call_that_may_die(&run, tool, &input).await;
            // Files are synced behind the answer, and the ledger forgets; a kill may come there too.
            tokio::time::sleep(Duration::from_millis(if answered.is_some() { 150 } else { 0 })).await;
            let dead = answered.is_none() || server.was_killed();
            if dead && answered.is_none() {
                server.wait(Duration::from_secs(10));
            }
            drop(strace);
            if !dead {
                break;
            }
            killed += 1;
            let (run, records) = recover(&mut server, &run, &start).await;
            assert!(answered.is_none() || records.len() == 1, "{tool} was acknowledged and is lost");
            assert_settles(&run, &start, tool, input.clone()).await;
            assert_swept(&server, &run).await;
        }
    }
    assert!(killed > 0, "no kill took place at {syscalls}");
}

/// What a writer was told, for one run.
#[derive(Default)]
struct Told {
    /// Calls that were answered `ok`: ID, `seq`, path, hash.
    acknowledged: Vec<(String, u64, String, String)>,
}

/// Writes until the server is gone: new files, the same file again and again, patches of two files.
async fn write_until_it_dies(run: Run, cycle: usize, told: Arc<Mutex<Told>>) {
    let mut version = sha256(FILES[1].1);
    if cycle > 0 {
        version = sha256(run.on_disk("b.txt"));
    }
    for number in 0.. {
        let id = format!("c{cycle}-{number}");
        let content = format!("{id}\n");
        let (tool, path, input) = match number % 3 {
            0 => ("write_file", format!("dir{number}/{id}.txt"), json!({})),
            1 => ("write_file", "b.txt".to_owned(), json!({"expectedSha256": version})),
            _ => ("apply_patch", format!("p/{id}.txt"), json!({})),
        };
        let mut input = input;
        input["toolCallId"] = json!(id);
        input["reason"] = json!("load");
        if tool == "write_file" {
            input["path"] = json!(path);
            input["content"] = json!(content);
        } else {
            input["patch"] = json!(format!(
                "--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{content}--- /dev/null\n+++ b/q/{id}.txt\n@@ -0,0 +1 @@\n+{content}"
            ));
        }
        let call = run.agent.request(reqwest::Method::POST, &format!("/v1/runs/{}/tools/{tool}", run.id)).json(&input);
        let Ok(answer) = run.agent.try_send(call).await else { return };
        let seq = answer.ok()["seq"].as_u64().unwrap();
        if path == "b.txt" {
            version = sha256(&content);
        }
        told.lock().unwrap().acknowledged.push((id, seq, path, sha256(&content)));
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_random_under_load_lose_nothing_that_was_acknowledged(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let extra = json!({"policy": {"profile": "SUPERVISED_PR"}});
    let mut runs = Vec::new();
    for _ in 0..4 {
        let run = server.run_with_files(&FILES, extra.clone()).await;
        runs.push((run.snapshot(), run, Arc::new(Mutex::new(Told::default()))));
    }
    for cycle in 0..10 {
        let load: Vec<_> = runs
            .iter()
            .map(|(_, run, told)| tokio::spawn(write_until_it_dies(server.reconnect(run), cycle, Arc::clone(told))))
            .collect();
        tokio::time::sleep(Duration::from_millis(60 + 37 * cycle as u64)).await;
        server.kill();
        for task in load {
            task.await.unwrap();
        }
        server.restart();
        for (start, run, told) in &runs {
            let run = server.reconnect(run);
            let records = assert_sound(&run, start).await;
            assert_swept(&server, &run).await;
            let told = told.lock().unwrap();
            for (id, seq, path, hash) in &told.acknowledged {
                let record = &records[usize::try_from(*seq).unwrap() - 1];
                assert_eq!(
                    (&record["toolCallId"], &record["outcome"]),
                    (&json!(id), &json!("ok")),
                    "{id} was acknowledged as {seq}"
                );
                let file = record["files"].as_array().unwrap().iter().find(|file| file["path"] == path.as_str());
                assert_eq!(file.unwrap()["newSha256"], hash.as_str());
            }
        }
    }
    let acknowledged: usize = runs.iter().map(|(.., told)| told.lock().unwrap().acknowledged.len()).sum();
    assert!(acknowledged > 100, "{acknowledged} calls are no load");
}

#[rstest]
#[tokio::test]
async fn a_killed_import_leaves_no_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let template = server.template(&[]);
    for number in 0..3000 {
        crate::harness::put(&template, &format!("d{}/f{number}.txt", number % 50), format!("{number}\n"));
    }
    let body = json!({"runId": "big", "source": {"type": "directory", "path": template}});
    let (mut cut_short, mut wait) = (0, 5);
    while wait < 2000 && cut_short < 4 {
        let operator = server.operator();
        let request = operator.request(reqwest::Method::POST, "/v1/runs").json(&body);
        let call = tokio::spawn(async move { operator.try_send(request).await.map(|answer| answer.status) });
        tokio::time::sleep(Duration::from_millis(wait)).await;
        server.kill();
        let answered = call.await.unwrap();
        server.restart();
        let answer = server.operator().get("/v1/runs/big").await;
        if answer.status == 404 {
            assert!(answered.is_err(), "a run that was answered is gone");
            cut_short += 1;
            let mut left = crate::harness::snapshot(&server.data_dir().join("workspaces"));
            left.retain(|path, _| !path.starts_with(".git-home"));
            assert!(left.is_empty(), "a killed import left something on disk: {left:#?}");
            assert_eq!(items(&server.operator(), "/v1/runs").await.len(), 0);
        } else {
            assert_eq!(answer.ok()["state"], "open", "{}", answer.text());
            break;
        }
        wait = wait * 3 / 2;
    }
    assert!(cut_short > 0, "no import was cut short");
    if server.operator().get("/v1/runs/big").await.status == 404 {
        let run = server.run_of(&server.operator().post("/v1/runs", body).await.is(201)).await;
        assert_eq!(run.get().await["import"]["files"], 3000);
    }
}

#[rstest]
#[case::no_room_for_a_name("renameat2,renameat,linkat", "ENOSPC")]
#[case::no_room_for_a_folder("mkdirat", "ENOSPC")]
#[case::a_disk_that_cannot_be_written("renameat2,renameat,mkdirat,unlinkat", "EROFS")]
#[case::no_room_to_look("openat2", "ENOSPC")]
#[case::no_room_for_the_record("pwrite64", "ENOSPC")]
#[case::a_log_that_cannot_be_synced("fdatasync", "EIO")]
#[tokio::test]
async fn a_disk_that_fails_for_a_while_loses_nothing(#[case] syscalls: &str, #[case] error: &str) {
    let mut server = Server::start(Backend::Sqlite).await;
    for (tool, input) in mutations() {
        let run = server.run_with_files(&FILES, json!({})).await;
        run.ok("read_file", json!({"path": "b.txt"})).await;
        let start = run.snapshot();
        let strace = Strace::attach(&server, syscalls, &format!("error={error}"));
        let answer = call_that_may_die(&run, tool, &input).await;
        assert!(answer.is_none_or(|status| [200, 503].contains(&status)), "{tool} under {error}: {answer:?}");
        if answer.is_some() && syscalls.contains("dirat") {
            run.ok("read_file", json!({"path": "a.txt"})).await;
        }
        drop(strace);
        // A sync that failed cannot be trusted again: the process may have ended for it, and is started anew.
        if answer.is_none() {
            server.wait(Duration::from_secs(10));
            server.restart();
        }
        let run = server.reconnect(&run);
        assert_settles(&run, &start, tool, input).await;
        // What could not be removed then is removed by whoever opens the run next.
        server.kill();
        server.restart();
        assert_swept(&server, &server.reconnect(&run)).await;
    }
}

#[rstest]
#[tokio::test]
async fn a_killed_deletion_is_finished_by_the_next_start(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    let other = server.run_with_files(&FILES, json!({})).await;
    other.create("kept.txt", "kept\n").await;
    server.kill();
    server.setup.env = vec![("WORKSPACED_FAILPOINT".into(), "pipeline.journalled".into())];
    server.restart();
    server.setup.env.clear();
    let (tool, input) = &mutations()[0];
    assert_eq!(call_that_may_die(&server.reconnect(&run), tool, input).await, None, "it lived on");
    server.wait(Duration::from_secs(10));

    // The deletion came as far as its state; the change before it was not even applied.
    let of_run = format!("run_no = (SELECT run_no FROM run WHERE run_id = '{}')", run.id);
    let deleted = server.database.tamper(&format!("UPDATE run SET state = 'deleted' WHERE {of_run}")).await;
    assert_eq!(deleted, Ok(1));
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(run.get().await["state"], "deleted");
    assert!(!server.workspace(&run.id).exists());
    for table in ["content", "step"] {
        let left = server.database.tamper(&format!("DELETE FROM {table} WHERE {of_run}")).await;
        assert_eq!(left, Ok(0), "{table}");
    }
    let kept = server.database.tamper("DELETE FROM content").await.unwrap_err();
    assert!(kept.contains("only grows until its run is deleted"), "{kept}");
    assert_eq!(run.verify().await["intact"], true);
}
