//! The limits of what calls do.

use std::time::Duration;

/// The limits of what calls do, over all runs. Those of a run are in its policy.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum duration of a read.
    pub request_timeout: Duration,
    /// Maximum memory for JSON bodies of all requests.
    pub max_body_memory_bytes: u64,
    /// Maximum requests per second of one token, and maximum burst; `None` if there is no limit.
    pub rate: Option<(u32, u32)>,
    /// Maximum concurrent requests of one token.
    pub token_concurrency: usize,
    /// Maximum concurrent reads.
    pub read_concurrency: usize,
    /// Maximum concurrent searches and diffs.
    pub search_concurrency: usize,
    /// Maximum concurrent exports.
    pub export_concurrency: usize,
    /// Maximum concurrent mutations, and separately uploads of large files.
    pub write_concurrency: usize,
    /// Maximum concurrent imports, and separately archive uploads.
    pub import_concurrency: usize,
    /// Maximum open runs.
    pub max_live_runs: usize,
    /// Maximum number of runs that are not deleted; `None` if there is no limit.
    pub max_runs: Option<u64>,
    /// Maximum size of the files of all runs; `None` if there is no limit.
    pub max_disk_bytes: Option<u64>,
}
