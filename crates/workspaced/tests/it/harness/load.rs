//! Load that runs until the server goes away, and remembers what it was told.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{Run, Server, Snapshot, assert_sound, assert_swept, sha256};

const FILES: [(&str, &str); 2] = [("a.txt", "a\n"), ("b.txt", "b\n")];

/// A call that was answered `ok`.
#[derive(Debug)]
struct Told {
    id: String,
    /// Only mutations are told their `seq`.
    seq: Option<u64>,
    path: String,
    sha256: String,
}

/// A run under load, over any number of restarts.
#[derive(Debug)]
pub(crate) struct Loaded {
    run: Run,
    start: Snapshot,
    heard: Arc<Mutex<Heard>>,
    round: usize,
}

/// What was answered.
#[derive(Debug, Default)]
struct Heard {
    told: Vec<Told>,
    /// Whether nobody listens any more.
    deaf: bool,
}

impl Loaded {
    pub(crate) async fn new(server: &Server) -> Self {
        let run = server.run_with_files(&FILES, json!({})).await;
        Self { start: run.snapshot(), run, heard: Arc::default(), round: 0 }
    }

    /// Calls until the server is gone, or refuses to go on: new files, one file again and again, patches of two, reads.
    pub(crate) fn begin(&mut self, server: &Server) -> tokio::task::JoinHandle<()> {
        self.round += 1;
        self.heard.lock().unwrap().deaf = false;
        let (run, round, heard) = (server.reconnect(&self.run), self.round, Arc::clone(&self.heard));
        tokio::spawn(async move {
            let mut version = sha256(run.on_disk("b.txt"));
            for number in 0.. {
                let (tool, path, input) = call(&format!("c{round}-{number}"), number, &version);
                let target = format!("/v1/runs/{}/tools/{tool}", run.id);
                let request = run.agent.request(reqwest::Method::POST, &target).json(&input);
                let Ok(answer) = run.agent.try_send(request).await else { return };
                if answer.status != 200 {
                    // A disk that went away under it: nothing is promised.
                    assert!([500, 503].contains(&answer.status), "{}: {}", answer.what, answer.text());
                    return;
                }
                let content = format!("{}\n", input["toolCallId"].as_str().unwrap());
                if path == "b.txt" {
                    version = sha256(&content);
                }
                let id = input["toolCallId"].as_str().unwrap().to_owned();
                let told = Told { id, seq: answer.ok()["seq"].as_u64(), path, sha256: sha256(content) };
                let mut heard = heard.lock().unwrap();
                if heard.deaf {
                    return;
                }
                heard.told.push(told);
            }
        })
    }

    /// Right after a restart: all that was acknowledged is there, as it was told; the run is sound.
    pub(crate) async fn assert_kept(&self, server: &Server) {
        let run = server.reconnect(&self.run);
        let records = assert_sound(&run, &self.start).await;
        for told in &self.heard.lock().unwrap().told {
            let mut found = records.iter().filter(|record| record["toolCallId"] == told.id.as_str());
            let record = found.next().unwrap_or_else(|| panic!("{told:?} was acknowledged and is not in the audit"));
            assert_eq!(record["outcome"], "ok", "{told:?}: {record:#}");
            if let Some(seq) = told.seq {
                assert_eq!(record["seq"], seq, "{told:?}");
                let file = record["files"].as_array().unwrap().iter().find(|file| file["path"] == told.path.as_str());
                assert_eq!(file.unwrap()["newSha256"], told.sha256.as_str(), "{told:?}");
            }
        }
        assert_swept(server, &run).await;
    }

    /// Hears no answer from here on.
    pub(crate) fn listen_no_more(&self) {
        self.heard.lock().unwrap().deaf = true;
    }

    /// Calls the run once, which finishes what a store that was away has left.
    pub(crate) async fn look(&self, server: &Server) {
        server.reconnect(&self.run).ok("list_dir", json!({})).await;
    }

    /// Waits until some call of this round was answered, so that on a slow machine too there is something to lose.
    pub(crate) async fn until_told(&self) {
        let id = format!("c{}-", self.round);
        for _ in 0..2000 {
            if self.heard.lock().unwrap().told.last().is_some_and(|told| told.id.starts_with(&id)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("nobody answers {}", self.run.id);
    }

    /// How many calls were acknowledged.
    pub(crate) fn acknowledged(&self) -> usize {
        self.heard.lock().unwrap().told.len()
    }

    pub(crate) fn id(&self) -> &str {
        &self.run.id
    }
}

/// The tool, the file that it leaves with its ID as content, and the input of the call `id`.
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
