//! Many concurrent writers in one run, each of which replaces a file of its own again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{Run, Server, Snapshot, sha256};

/// Number of concurrent writers.
pub(crate) const WRITERS: usize = 40;

/// The `reason` of every write.
pub(crate) const WRITER_REASON: &str = "concurrent write";

/// Writers that run until [`ConcurrentWriters::stop`], a refusal, or the end of the server.
#[derive(Debug)]
pub(crate) struct ConcurrentWriters {
    tasks: Vec<JoinHandle<WriterResult>>,
    acknowledged: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
}

/// The outcome of one writer.
#[derive(Debug)]
pub(crate) struct WriterResult {
    /// The writer's file.
    pub(crate) path: String,
    /// The last acknowledged version.
    pub(crate) acknowledged: u64,
    /// The code of the refusal that ended the writer.
    pub(crate) refused: Option<String>,
}

/// Returns the path of the file of writer `number`.
pub(crate) fn writer_path(number: usize) -> String {
    format!("writers/f{number}.txt")
}

/// Returns the content of the file of writer `number` at `version`.
pub(crate) fn writer_text(number: usize, version: u64) -> String {
    format!("writer {number} version {version}.\nand more\n")
}

/// Returns the newest version of writer `number`'s file that occurs anywhere in `text`.
#[track_caller]
pub(crate) fn newest_version_in(text: &str, number: usize) -> u64 {
    let mark = format!("writer {number} version ");
    let versions = text.match_indices(&mark).filter_map(|(at, _)| {
        let rest = &text[at + mark.len()..];
        rest[..rest.find('.')?].parse().ok()
    });
    versions.max().unwrap_or_else(|| panic!("no version of writer {number} in {text}"))
}

impl ConcurrentWriters {
    /// Creates a run with one file for each writer.
    pub(crate) async fn prepare(server: &Server) -> (Run, Snapshot) {
        let files: Vec<_> = (0..WRITERS).map(|number| (writer_path(number), writer_text(number, 0))).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let run = server.run_with_files(&files, json!({})).await;
        let start = run.snapshot();
        (run, start)
    }

    /// Starts the writers at the versions on disk. Returns when each writer has an acknowledgement or has ended.
    pub(crate) async fn start(server: &Server, run: &Run) -> Self {
        let version = |number| newest_version_in(&run.on_disk(&writer_path(number)), number);
        let acknowledged: Arc<Vec<_>> = Arc::new((0..WRITERS).map(|number| AtomicU64::new(version(number))).collect());
        let first: Vec<_> = acknowledged.iter().map(|version| version.load(Ordering::SeqCst)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..WRITERS).map(|number| {
            let (run, acknowledged, stop) = (server.reconnect(run), Arc::clone(&acknowledged), Arc::clone(&stop));
            tokio::spawn(write(run, number, acknowledged, stop))
        });
        let writers = Self { tasks: tasks.collect(), acknowledged, stop };
        let has_begun =
            |number: usize| writers.acknowledged(number) > first[number] || writers.tasks[number].is_finished();
        server.until("each writer has an acknowledgement", async || (0..WRITERS).all(has_begun)).await;
        writers
    }

    /// Returns the last acknowledged version of writer `number`.
    pub(crate) fn acknowledged(&self, number: usize) -> u64 {
        self.acknowledged[number].load(Ordering::SeqCst)
    }

    /// Stops the writers after their calls in flight.
    pub(crate) async fn stop(self) -> Vec<WriterResult> {
        self.stop.store(true, Ordering::SeqCst);
        let mut results = Vec::new();
        for task in self.tasks {
            results.push(task.await.unwrap());
        }
        results
    }
}

async fn write(run: Run, number: usize, acknowledged: Arc<Vec<AtomicU64>>, stop: Arc<AtomicBool>) -> WriterResult {
    let path = writer_path(number);
    let target = format!("/v1/runs/{}/tools/write_file", run.id);
    let mut refused = None;
    while !stop.load(Ordering::SeqCst) {
        let version = acknowledged[number].load(Ordering::SeqCst);
        let expected = sha256(writer_text(number, version));
        let input = json!({"path": path, "content": writer_text(number, version + 1), "expectedSha256": expected,
            "reason": WRITER_REASON});
        let Ok(answer) = run.agent.try_send(run.agent.request(Method::POST, &target).json(&input)).await else { break };
        if answer.status != 200 {
            refused = Some(answer.refusal());
            break;
        }
        acknowledged[number].store(version + 1, Ordering::SeqCst);
    }
    WriterResult { path, acknowledged: acknowledged[number].load(Ordering::SeqCst), refused }
}
