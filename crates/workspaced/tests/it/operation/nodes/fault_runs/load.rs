//! Agents that use runs by way of all nodes, and write down what they are answered.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::checker::{Call, Operation, Reply};
use super::cluster::NODES;
use crate::harness::{Answer, Client, Run, sha256};

/// How long an agent waits for an answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// More than the ledger stores in itself, so that it becomes an object.
const LARGE_BYTES: usize = 200 * 1024;
pub(crate) const AGENTS: usize = 3;
/// The file that all agents of a run change.
pub(crate) const SHARED: &str = "shared.txt";

/// What agents do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Work,
    /// Each agent repeats its call until it is answered, and ends.
    Finish,
    /// Nothing is in the way any more, and has not been for long.
    GiveUp,
}

/// How much was sent.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
}

/// What all agents of a cluster share.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) began: Instant,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) counts: Arc<Counts>,
}

/// An agent with its own folder in a run.
pub(crate) struct Agent {
    load: Load,
    run: Run,
    number: usize,
    nodes: Vec<Client>,
    random: StdRng,
    calls: Vec<Call>,
    /// Its own files, which nobody else changes.
    own: BTreeMap<String, String>,
    /// What it knows of the shared file.
    shared: String,
    /// How often it has edited its first file.
    edits: u64,
}

/// Returns the file that an agent finds in its folder.
pub(crate) fn first_file(agent: usize) -> (String, String) {
    (format!("agent{agent}/first.txt"), count(0))
}

fn count(edits: u64) -> String {
    format!("edited {edits} times\n")
}

impl Agent {
    pub(crate) fn new(load: Load, run: &Run, addresses: &[String], number: usize, seed: u64) -> Self {
        let nodes = addresses.iter().map(|address| Client::new(address, run.agent.token.as_deref())).collect();
        let random = StdRng::seed_from_u64(seed);
        let shared = sha256("shared\n");
        Self {
            load,
            run: run.clone(),
            number,
            nodes,
            random,
            calls: Vec::new(),
            own: BTreeMap::new(),
            shared,
            edits: 0,
        }
    }

    /// Calls until the phase changes. Returns the calls with their answers.
    pub(crate) async fn work(mut self) -> Vec<Call> {
        for turn in 0.. {
            if *self.load.phase.borrow() != Phase::Work {
                break;
            }
            let id = format!("agent{}-{turn}", self.number);
            let (tool, input, operation) = self.choose(&id);
            let reply = self.call(id, tool, input, operation.clone()).await;
            if reply == Reply::Nothing {
                break;
            }
            self.learn(&operation, &reply);
            let pause = self.random.random_range(30..300);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        self.calls
    }

    fn content(&mut self, id: &str) -> String {
        let mut content = format!("{id}\n");
        if self.random.random_ratio(1, 8) {
            while content.len() < LARGE_BYTES {
                let [one, two]: [u128; 2] = self.random.random();
                writeln!(content, "{one:032x}{two:032x}").unwrap();
            }
        }
        content
    }

    /// Chooses the next call.
    fn choose(&mut self, id: &str) -> (&'static str, Value, Operation) {
        let mine = self.own.iter().map(|(path, hash)| (path.clone(), hash.clone())).collect::<Vec<_>>();
        let mine = mine.choose(&mut self.random).cloned();
        let others = self.random.random_range(0..AGENTS);
        let write = |path: String, expected: Option<String>, content: Option<&str>| Operation::Write {
            path,
            expected,
            new: content.map(sha256),
        };
        match (self.random.random_range(0..100), mine) {
            (0..15, Some((path, hash))) => {
                let content = self.content(id);
                let input = json!({"path": path, "content": content, "expectedSha256": hash, "reason": "r"});
                ("write_file", input, write(path, Some(hash), Some(&content)))
            }
            (15..25, Some((path, hash))) => {
                let input = json!({"path": path, "expectedSha256": hash, "reason": "r"});
                ("delete_file", input, write(path, Some(hash), None))
            }
            (0..40, _) => {
                let (path, content) = (format!("agent{}/{id}.txt", self.number), self.content(id));
                let input = json!({"path": path, "content": content, "mode": "CREATE_NEW", "reason": "r"});
                ("write_file", input, write(path, None, Some(&content)))
            }
            (40..55, _) => {
                let (hash, content) = (self.shared.clone(), format!("shared by {id}\n"));
                let input = json!({"path": SHARED, "content": content, "expectedSha256": hash, "reason": "r"});
                ("write_file", input, write(SHARED.to_owned(), Some(hash), Some(&content)))
            }
            (55..65, _) => {
                let folder = format!("agent{others}");
                ("list_dir", json!({"path": folder, "maxDepth": 1, "maxEntries": 10_000}), Operation::List { folder })
            }
            (65..75, Some((path, _))) => ("read_file", json!({"path": path, "maxLines": 1}), Operation::Read { path }),
            (65..80, _) => {
                let path = first_file(others).0;
                ("read_file", json!({"path": path, "maxLines": 1}), Operation::Read { path })
            }
            (80..88, _) => {
                let path = first_file(self.number).0;
                let [old, new] = [self.edits, self.edits + 1].map(count);
                let input = json!({"path": path, "oldString": old.trim(), "newString": new.trim(), "reason": "r"});
                ("edit_file", input, write(path, Some(sha256(&old)), Some(&new)))
            }
            _ => {
                let path = SHARED.to_owned();
                ("read_file", json!({"path": path, "maxLines": 1}), Operation::Read { path })
            }
        }
    }

    /// Sends a call, at times to two nodes at once, and writes down what it is answered.
    async fn call(&mut self, id: String, tool: &'static str, mut input: Value, operation: Operation) -> Reply {
        input["toolCallId"] = id.as_str().into();
        let started = self.load.began.elapsed();
        let first = self.random.random_range(0..NODES);
        let next = self.random.random_range(1..NODES);
        let seeds: [u64; 2] = self.random.random();
        let is_doubled = self.random.random_ratio(1, 6);
        let send = |node: usize, seed: u64| self.until_answered(node, seed, tool, &input);
        let replies = if is_doubled {
            let (one, two) = tokio::join!(send(first, seeds[0]), send(first + next, seeds[1]));
            vec![one, two]
        } else {
            vec![send(first, seeds[0]).await]
        };
        let reply = replies[0].0.clone();
        for (reply, ended) in replies {
            let (id, operation) = (id.clone(), operation.clone());
            self.calls.push(Call { id, operation, started, ended, reply });
        }
        reply
    }

    /// Repeats a call at one node after the other until it is answered. Returns when it was.
    async fn until_answered(&self, first: usize, seed: u64, tool: &str, input: &Value) -> (Reply, Duration) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut node = first;
        loop {
            let client = &self.nodes[node % NODES];
            let request = client.request(Method::POST, &format!("/v1/runs/{}/tools/{tool}", self.run.id));
            self.load.counts.requests.fetch_add(1, Ordering::Relaxed);
            let answer = client.try_send(request.timeout(PATIENCE).json(input)).await;
            let ended = self.load.began.elapsed();
            if let Some(reply) = answer.ok().and_then(|answer| reply_of(tool, &answer)) {
                self.load.counts.acknowledged.fetch_add(1, Ordering::Relaxed);
                return (reply, ended);
            }
            if *self.load.phase.borrow() == Phase::GiveUp {
                return (Reply::Nothing, ended);
            }
            tokio::time::sleep(Duration::from_millis(random.random_range(50..400))).await;
            node = random.random_range(0..NODES);
        }
    }

    /// Remembers what a call has changed.
    fn learn(&mut self, operation: &Operation, reply: &Reply) {
        match (operation, reply) {
            (Operation::Read { path }, Reply::Content(Some(hash))) if path == SHARED => self.shared.clone_from(hash),
            (Operation::Write { path, new: Some(hash), .. }, Reply::Done { .. }) if path == SHARED => {
                self.shared.clone_from(hash);
            }
            (Operation::Write { path, .. }, Reply::Done { .. }) if *path == first_file(self.number).0 => {
                self.edits += 1;
            }
            (Operation::Write { path, new: Some(hash), .. }, Reply::Done { .. }) => {
                self.own.insert(path.clone(), hash.clone());
            }
            (Operation::Write { path, .. }, Reply::Done { .. }) => drop(self.own.remove(path)),
            _ => {}
        }
    }
}

/// Returns what an answer says, unless it says that the call should be repeated.
fn reply_of(tool: &str, answer: &Answer) -> Option<Reply> {
    if [408, 429, 502, 503, 504].contains(&answer.status) {
        return None;
    }
    let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else {
        return Some(Reply::Refused { code: format!("{}: {}", answer.status, answer.text()), seq: None });
    };
    let seq = body["seq"].as_u64();
    Some(match (answer.status, tool, seq) {
        (200, "read_file", _) => Reply::Content(body["sha256"].as_str().map(str::to_owned)),
        (200, "list_dir", _) => {
            let entries = body["entries"].as_array().into_iter().flatten();
            let name =
                |entry: &Value| entry["path"].as_str().unwrap_or_default().rsplit('/').next().unwrap().to_owned();
            Reply::Names(entries.map(name).collect())
        }
        (200, _, Some(seq)) => Reply::Done { seq },
        (404, "read_file", _) if body["code"] == "NOT_FOUND" => Reply::Content(None),
        _ => Reply::Refused { code: body["code"].as_str().map_or_else(|| answer.text(), str::to_owned), seq },
    })
}
