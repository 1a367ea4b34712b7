//! Nodes that are cut off or killed while they are used, and a check of what callers were answered against the chains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{LEASE, ROLES, prepare, start, start_at, two};
use crate::harness::{Answer, Client, Run, Server, assert_chain, items, sha256};

/// What happens on the way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections stay open, and nothing is forwarded on them again.
    Silent,
    Cut,
}

/// The way to a node, which the test can cut.
struct Link {
    address: String,
    way: watch::Sender<Way>,
    task: tokio::task::JoinHandle<()>,
}

impl Link {
    /// Forwards connections to `to`.
    async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (way, watched) = watch::channel(Way::Open);
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (to, mut way) = (to.clone(), watched.clone());
                if *way.borrow() == Way::Cut {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(to).await else { return };
                    let is_silent = tokio::select! {
                        biased;
                        way = way.wait_for(|way| *way != Way::Open) => way.is_ok_and(|way| *way == Way::Silent),
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => false,
                    };
                    if is_silent {
                        let _ = way.wait_for(|way| *way == Way::Cut).await;
                    }
                });
            }
        });
        Self { address, way, task }
    }

    fn set(&self, way: Way) {
        self.way.send(way).unwrap();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts two nodes. The second one reaches the first through the returned link.
async fn two_with_link() -> ([Server; 2], Link) {
    let mut first = prepare(None).await;
    let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let link = Link::start(listen.clone()).await;
    start_at(&mut first, &listen, &format!("http://{}", link.address));
    let mut second = prepare(Some(&first)).await;
    start(&mut second);
    ([first, second], link)
}

#[tokio::test]
async fn a_node_that_does_not_reach_the_owner_answers_for_nobody() {
    let ([first, second], link) = two_with_link().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    away.ok("read_file", json!({"path": "a.txt"})).await;
    link.set(Way::Cut);
    // Longer than a lease: the owner is alive, so that nobody takes the run.
    let until = Instant::now() + LEASE + Duration::from_secs(2);
    while Instant::now() < until {
        let refused = away.call("read_file", json!({"path": "a.txt"})).await;
        refused.refused("UNAVAILABLE");
        assert!(!refused.header("retry-after").is_empty());
        run.ok("read_file", json!({"path": "a.txt"})).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    link.set(Way::Open);
    away.create("b.txt", "b\n").await;
    assert_eq!(run.on_disk("b.txt"), "b\n");
    assert_chain(&run.id, &run.audit().await);
}

#[tokio::test]
async fn a_caller_does_not_wait_for_an_owner_that_is_alive_and_does_not_answer() {
    let ([first, second], link) = two_with_link().await;
    let run = first.run_with_files(&[("Cargo.lock", "old\n")], json!({})).await;
    let away = second.reconnect(&run);
    let input = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
    let asked = away.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    // One request is with the owner already, which waits for an approval: that may take longer than an answer.
    let call = asked["toolCallId"].as_str().unwrap();
    let path = format!("/v1/runs/{}/tool-calls/{call}?waitSeconds=20", run.id);
    let waiting = away.operator.get(&path);
    let after = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        link.set(Way::Silent);
        let started = Instant::now();
        let refused = away.call("read_file", json!({"path": "Cargo.lock"})).await;
        refused.refused("UNAVAILABLE");
        assert!(!refused.header("retry-after").is_empty());
        assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    };
    let started = Instant::now();
    let (waited, ()) = tokio::join!(waiting, after);
    waited.refused("UNAVAILABLE");
    assert!(started.elapsed() > Duration::from_secs(8) && started.elapsed() < Duration::from_secs(19));
    link.set(Way::Cut);
    link.set(Way::Open);
    until_answered(|| async { Some(away.call("read_file", json!({"path": "Cargo.lock"})).await) }).await.ok();
}

#[tokio::test]
async fn calls_over_a_way_that_is_cut_again_and_again_run_once() {
    let ([first, second], link) = two_with_link().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let link = Arc::new(link);
    let cutter = {
        let link = Arc::clone(&link);
        tokio::spawn(async move {
            for cut in 0..60_u64 {
                tokio::time::sleep(Duration::from_millis(20 + cut * 7 % 60)).await;
                link.set(if cut % 2 == 1 { Way::Open } else { Way::Cut });
            }
            link.set(Way::Open);
        })
    };
    let away = second.reconnect(&run);
    let mut acknowledged = Vec::new();
    let mut number = 0;
    while !cutter.is_finished() || number < 10 {
        let id = format!("call-{number}");
        let input = json!({"path": format!("{number}.txt"), "content": "x\n", "mode": "CREATE_NEW", "reason": "r",
            "toolCallId": id});
        let answer = until_answered(|| async { Some(away.call("write_file", input.clone()).await) }).await;
        acknowledged.push((id, answer.ok()["seq"].clone()));
        number += 1;
    }
    let records = run.audit().await;
    assert_chain(&run.id, &records);
    for (id, seq) in acknowledged {
        let of_call: Vec<_> = records.iter().filter(|record| record["toolCallId"] == id.as_str()).collect();
        assert_eq!(of_call.len(), 1, "{id}");
        assert_eq!(of_call[0]["seq"], seq, "{id}");
    }
}

/// Repeats a request, which must be one that can be repeated, until a node answers it.
async fn until_answered<F: Future<Output = Option<Answer>>>(send: impl Fn() -> F) -> Answer {
    let deadline = Instant::now() + LEASE * 4;
    loop {
        let answer = send().await;
        if let Some(answer) = answer.filter(|answer| answer.status != 503) {
            return answer;
        }
        assert!(Instant::now() < deadline, "nobody answers");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a caller was answered.
struct Done {
    call: String,
    seq: u64,
    /// The version that was written or read.
    version: u64,
    is_write: bool,
    started: Instant,
    ended: Instant,
}

/// Sends a call of a run to one of the nodes after the other.
async fn call(addresses: &[String], run: &Run, turn: usize, tool: &str, input: &Value) -> Option<Answer> {
    let client = Client::new(&addresses[turn % addresses.len()], run.agent.token.as_deref());
    let request = client.request(reqwest::Method::POST, &format!("/v1/runs/{}/tools/{tool}", run.id));
    client.try_send(request.json(input)).await.ok()
}

/// Writes version after version of a file, each by way of another node, and reads it by way of yet another.
async fn use_file(addresses: Vec<String>, run: Run, path: String, stop: Arc<AtomicBool>) -> Vec<Done> {
    let text = |version: u64| format!("version {version}\n");
    let mut done = Vec::new();
    let mut version = 0;
    while !stop.load(Ordering::Relaxed) {
        let write = json!({"path": path, "content": text(version + 1), "expectedSha256": sha256(text(version)),
            "reason": "r", "toolCallId": format!("{path}-{}", version + 1)});
        let turn = AtomicUsize::new(usize::try_from(version).unwrap());
        let next = || turn.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let answer = until_answered(|| call(&addresses, &run, next(), "write_file", &write)).await.ok();
        version += 1;
        let of = |answer: &Value, version, is_write, started| Done {
            call: answer["toolCallId"].as_str().unwrap().to_owned(),
            seq: answer["seq"].as_u64().unwrap(),
            version,
            is_write,
            started,
            ended: Instant::now(),
        };
        done.push(of(&answer, version, true, started));
        let (started, read) = (Instant::now(), json!({"path": path, "format": "raw"}));
        let answer = until_answered(|| call(&addresses, &run, next(), "read_file", &read)).await.ok();
        let seen = answer["content"].as_str().unwrap().trim().rsplit(' ').next().unwrap().parse().unwrap();
        if answer.get("seq").is_some() {
            done.push(of(&answer, seen, false, started));
        }
        assert_eq!(seen, version, "{path}: a read that began after the answer to a write does not see it");
    }
    done
}

/// Checks what the callers of a run were answered against its chain.
fn check(run: &Run, records: &[Value], mut done: Vec<Done>) {
    assert_chain(&run.id, records);
    for Done { call, seq, is_write, version, .. } in &done {
        let of_call: Vec<_> = records.iter().filter(|record| record["toolCallId"] == call.as_str()).collect();
        assert!(!of_call.is_empty(), "{call} was answered and is not in the chain");
        assert!(of_call.iter().any(|record| record["seq"] == *seq), "{call} has another number: {of_call:#?}");
        if *is_write {
            assert_eq!(of_call.len(), 1, "version {version} was written twice: {of_call:#?}");
            assert_eq!(of_call[0]["outcome"], "ok");
        }
    }
    // What ended before something else began has a smaller number.
    done.sort_by_key(|done| done.seq);
    let mut latest_start = None;
    for Done { call, started, ended, .. } in &done {
        if let Some(latest) = latest_start {
            assert!(*ended > latest, "{call} has a larger number than what began after its end");
        }
        latest_start = latest_start.max(Some(*started));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_callers_were_answered_agrees_with_the_chains_while_nodes_are_killed_and_paused() {
    let [mut first, mut second] = two().await;
    let files: Vec<_> = (0..3).map(|number| format!("f{number}.txt")).collect();
    let texts: Vec<_> = files.iter().map(|path| (path.as_str(), "version 0\n")).collect();
    let budget = json!({"maxInsertions": 1_000_000, "maxDeletions": 1_000_000, "maxFilesTouched": 1000});
    let policy = json!({"policy": {"budget": budget}});
    let runs = [first.run_with_files(&texts, policy.clone()).await, second.run_with_files(&texts, policy).await];
    let addresses = [first.base.clone(), second.base.clone()];
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for run in &runs {
        for path in &files {
            let used = use_file(addresses.to_vec(), run.clone(), path.clone(), Arc::clone(&stop));
            callers.push((run.id.clone(), tokio::spawn(used)));
        }
    }
    let seconds = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
    let again = |node: &mut Server, address: &String| {
        start_at(node, address.trim_start_matches("http://"), address);
    };
    seconds(2).await;
    first.kill();
    seconds(14).await;
    again(&mut first, &addresses[0]);
    seconds(2).await;
    second.signal(Signal::STOP);
    seconds(14).await;
    second.signal(Signal::CONT);
    seconds(2).await;
    second.kill();
    again(&mut second, &addresses[1]);
    seconds(2).await;
    assert!(first.stop().success());
    again(&mut first, &addresses[0]);
    seconds(2).await;
    stop.store(true, Ordering::Relaxed);
    let mut by_run = runs.each_ref().map(|_| Vec::new());
    for (id, caller) in callers {
        let at = runs.iter().position(|run| run.id == id).unwrap();
        by_run[at].extend(caller.await.unwrap());
    }
    for (run, done) in runs.iter().zip(by_run) {
        let run = first.reconnect(run);
        println!("{} answers of one run", done.len());
        assert!(done.len() > 50, "{}", done.len());
        let records =
            until_answered(|| async { Some(run.operator.get(&format!("/v1/runs/{}/audit/verify", run.id)).await) });
        assert_eq!(records.await.ok()["intact"], true);
        check(&run, &run.audit().await, done);
        let drift = run.agent.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
        assert_eq!(drift["items"], json!([]), "{drift:#}");
    }
}

#[tokio::test]
async fn the_roles_of_a_killed_node_move() {
    let [mut first, second] = two().await;
    let run = first.run(json!({"ttlSeconds": 3})).await;
    first.kill();
    let deadline = Instant::now() + LEASE * 2 + Duration::from_secs(20);
    // Reading the run would close it, too. The audit of all runs closes nothing.
    let closed = loop {
        let closed = items(&second.auditor(), &format!("/v1/audit?run={}&tool=run.close", run.id)).await;
        if !closed.is_empty() {
            break closed;
        }
        assert!(Instant::now() < deadline, "{}", second.log());
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert_eq!(closed.len(), 1, "{closed:#?}");
    for role in ROLES {
        assert!(second.log().contains(&format!("role=\"{role}\" held=true")), "{role}\n{}", second.log());
    }
}
