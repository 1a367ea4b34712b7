//! Many writers of one run at a time, each with a file of its own that it replaces again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{Run, Server, Snapshot, sha256};

/// So many write at a time: more than the service asks for before the tree may be behind the answers.
pub(crate) const WRITERS: usize = 40;

/// Calls under way until they are told to stop, or the server is gone.
#[derive(Debug)]
pub(crate) struct Storm {
    writers: Vec<JoinHandle<Wrote>>,
    told: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
}

/// What came of one writer.
#[derive(Debug)]
pub(crate) struct Wrote {
    /// Its file.
    pub(crate) path: String,
    /// The last version whose change was acknowledged.
    pub(crate) told: u64,
    /// The code of the refusal that it ended with.
    pub(crate) refused: Option<String>,
}

/// The file of writer `number`.
pub(crate) fn stormy(number: usize) -> String {
    format!("storm/f{number}.txt")
}

/// What the file of writer `number` holds in a version.
pub(crate) fn stormy_text(number: usize, version: u64) -> String {
    format!("writer {number} version {version}.\nand more\n")
}

/// The version of writer `number`'s file that `text` shows, wherever it stands there.
#[track_caller]
pub(crate) fn stormy_version(number: usize, text: &str) -> u64 {
    let mark = format!("writer {number} version ");
    let shown = text.match_indices(&mark).filter_map(|(at, _)| {
        let rest = &text[at + mark.len()..];
        rest[..rest.find('.')?].parse().ok()
    });
    shown.max().unwrap_or_else(|| panic!("no version of writer {number} in {text}"))
}

impl Storm {
    /// A run for a storm.
    pub(crate) async fn prepare(server: &Server) -> (Run, Snapshot) {
        let files: Vec<_> = (0..WRITERS).map(|number| (stormy(number), stormy_text(number, 0))).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let run = server.run_with_files(&files, json!({})).await;
        let start = run.snapshot();
        (run, start)
    }

    /// Begins, from the versions that are on the disk; waits until every writer was told something, or has ended.
    pub(crate) async fn begin(server: &Server, run: &Run) -> Self {
        let version = |number| stormy_version(number, &run.on_disk(&stormy(number)));
        let told: Arc<Vec<_>> = Arc::new((0..WRITERS).map(|number| AtomicU64::new(version(number))).collect());
        let first: Vec<_> = told.iter().map(|told| told.load(Ordering::SeqCst)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let writers = (0..WRITERS).map(|number| {
            let (run, told, stop) = (server.reconnect(run), Arc::clone(&told), Arc::clone(&stop));
            tokio::spawn(write(run, number, told, stop))
        });
        let storm = Self { writers: writers.collect(), told, stop };
        let deadline = Instant::now() + Duration::from_secs(30);
        let begun = |storm: &Self| {
            let told = |number: usize| storm.told(number) > first[number] || storm.writers[number].is_finished();
            (0..WRITERS).all(told)
        };
        while !begun(&storm) {
            assert!(Instant::now() < deadline, "some writer hears nothing");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        storm
    }

    /// The last version of writer `number` that was acknowledged by now.
    pub(crate) fn told(&self, number: usize) -> u64 {
        self.told[number].load(Ordering::SeqCst)
    }

    /// Stops, and waits for the answers that are under way.
    pub(crate) async fn end(self) -> Vec<Wrote> {
        self.stop.store(true, Ordering::SeqCst);
        let mut wrote = Vec::new();
        for writer in self.writers {
            wrote.push(writer.await.unwrap());
        }
        wrote
    }
}

async fn write(run: Run, number: usize, told: Arc<Vec<AtomicU64>>, stop: Arc<AtomicBool>) -> Wrote {
    let path = stormy(number);
    let target = format!("/v1/runs/{}/tools/write_file", run.id);
    let mut refused = None;
    while !stop.load(Ordering::SeqCst) {
        let version = told[number].load(Ordering::SeqCst);
        let seen = sha256(stormy_text(number, version));
        let input = json!({"path": path, "content": stormy_text(number, version + 1), "expectedSha256": seen,
            "reason": "storm"});
        let Ok(answer) = run.agent.try_send(run.agent.request(Method::POST, &target).json(&input)).await else { break };
        if answer.status != 200 {
            refused = Some(answer.refusal());
            break;
        }
        told[number].store(version + 1, Ordering::SeqCst);
    }
    Wrote { path, told: told[number].load(Ordering::SeqCst), refused }
}
