//! A load of calls that survives restarts of the server and records every acknowledgement.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Run, Server, Snapshot, assert_consistent, assert_tmp_is_empty, sha256, until};

const FILES: [(&str, &str); 2] = [("a.txt", "a\n"), ("b.txt", "b\n")];

/// Reads that were answered in this time before a power cut may be lost.
const READS_AT_RISK: Duration = Duration::from_millis(50);

/// A call that was answered with success.
#[derive(Debug)]
struct Acknowledged {
    id: String,
    /// Only answers to mutations contain `seq`.
    seq: Option<u64>,
    path: String,
    sha256: String,
    at: Instant,
}

/// A run under load, over any number of restarts.
#[derive(Debug)]
pub(crate) struct LoadedRun {
    run: Run,
    start: Snapshot,
    received: Arc<Mutex<Received>>,
    round: usize,
}

/// The answers received so far.
#[derive(Debug, Default)]
struct Received {
    acknowledged: Vec<Acknowledged>,
    /// When the power was about to be cut. Later answers are ignored.
    cut: Option<Instant>,
}

impl LoadedRun {
    pub(crate) async fn new(server: &Server) -> Self {
        let run = server.run_with_files(&FILES, json!({})).await;
        Self { start: run.snapshot(), run, received: Arc::default(), round: 0 }
    }

    /// Starts calls until the server stops or refuses: new files, replacements of one file, patches of two files, reads.
    pub(crate) fn start(&mut self, server: &Server) -> tokio::task::JoinHandle<()> {
        self.round += 1;
        self.received.lock().unwrap().cut = None;
        let (run, round, received) = (server.reconnect(&self.run), self.round, Arc::clone(&self.received));
        tokio::spawn(async move {
            let mut version = sha256(run.on_disk("b.txt"));
            for number in 0.. {
                let (tool, path, input) = call(&format!("c{round}-{number}"), number, &version);
                let target = format!("/v1/runs/{}/tools/{tool}", run.id);
                let request = run.agent.request(reqwest::Method::POST, &target).json(&input);
                let Ok(answer) = run.agent.try_send(request).await else { return };
                if answer.status != 200 {
                    // The disk or the database failed during the call, which promises nothing.
                    assert!([500, 503].contains(&answer.status), "{}: {}", answer.what, answer.text());
                    return;
                }
                let content = format!("{}\n", input["toolCallId"].as_str().unwrap());
                if path == "b.txt" {
                    version = sha256(&content);
                }
                let id = input["toolCallId"].as_str().unwrap().to_owned();
                let seq = answer.ok()["seq"].as_u64();
                let call = Acknowledged { id, seq, path, sha256: sha256(content), at: Instant::now() };
                let mut received = received.lock().unwrap();
                if received.cut.is_some() {
                    return;
                }
                received.acknowledged.push(call);
            }
        })
    }

    /// Asserts, after a restart, that every acknowledged call is recorded as answered and that the run is consistent.
    pub(crate) async fn assert_nothing_lost(&self, server: &Server) {
        let run = server.reconnect(&self.run);
        let records = assert_consistent(&run, &self.start).await;
        {
            let mut received = self.received.lock().unwrap();
            let mut lost = Vec::new();
            let may_be_lost = |index: usize, call: &Acknowledged| {
                let is_recent = received.cut.is_some_and(|cut| cut.saturating_duration_since(call.at) < READS_AT_RISK);
                is_recent && received.acknowledged[index..].iter().all(|later| later.seq.is_none())
            };
            for (index, call) in received.acknowledged.iter().enumerate() {
                let mut found = records.iter().filter(|record| record["toolCallId"] == call.id.as_str());
                let Some(record) = found.next() else {
                    assert!(may_be_lost(index, call), "{call:?} was acknowledged and is not in the audit");
                    lost.push(call.id.clone());
                    continue;
                };
                assert_eq!(record["outcome"], "ok", "{call:?}: {record:#}");
                if let Some(seq) = call.seq {
                    assert_eq!(record["seq"], seq, "{call:?}");
                    let file =
                        record["files"].as_array().unwrap().iter().find(|file| file["path"] == call.path.as_str());
                    assert_eq!(file.unwrap()["newSha256"], call.sha256.as_str(), "{call:?}");
                }
            }
            // The next cut has no part in them.
            received.acknowledged.retain(|call| !lost.contains(&call.id));
        }
        assert_tmp_is_empty(server, &run).await;
    }

    /// Ignores every answer from now on. The power cut that follows may lose the newest reads.
    pub(crate) fn expect_power_cut(&self) {
        self.received.lock().unwrap().cut = Some(Instant::now());
    }

    /// Reads from the run, which completes changes that a failed database left pending.
    pub(crate) async fn read_once(&self, server: &Server) {
        server.reconnect(&self.run).ok("list_dir", json!({})).await;
    }

    /// Waits until a call of this round is acknowledged, so that even a slow machine has something to lose.
    pub(crate) async fn until_acknowledged(&self) {
        let id = format!("c{}-", self.round);
        let is_of_round = |call: &Acknowledged| call.id.starts_with(&id);
        let last = || self.received.lock().unwrap().acknowledged.last().is_some_and(is_of_round);
        until("a call is acknowledged", async || last()).await;
    }

    /// Returns the number of acknowledged calls.
    pub(crate) fn acknowledged(&self) -> usize {
        self.received.lock().unwrap().acknowledged.len()
    }

    pub(crate) fn id(&self) -> &str {
        &self.run.id
    }
}

/// Returns the tool, the path of the file that the call writes with its ID as content, and the input of call `id`.
fn call(id: &str, number: usize, version: &str) -> (&'static str, String, Value) {
    let content = format!("{id}\n");
    let (tool, path, mut input) = match number % 4 {
        0 => {
            let path = format!("dir{number}/{id}.txt");
            ("write_file", path.clone(), json!({"path": path, "content": content}))
        }
        1 => {
            ("write_file", "b.txt".to_owned(), json!({"path": "b.txt", "content": content, "expectedSha256": version}))
        }
        2 => return ("read_file", "a.txt".to_owned(), json!({"toolCallId": id, "path": "a.txt"})),
        _ => {
            let path = format!("p/{id}.txt");
            let file = |path: &str| format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{content}");
            ("apply_patch", path.clone(), json!({"patch": file(&path) + &file(&format!("q/{number}/{id}.txt"))}))
        }
    };
    input["toolCallId"] = json!(id);
    input["reason"] = json!("load");
    (tool, path, input)
}
