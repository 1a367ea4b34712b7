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
    /// Maximum concurrent requests, of which one token or run gets at most a quarter.
    pub max_requests: usize,
    /// Maximum open event streams.
    pub max_streams: usize,
    /// Maximum open runs.
    pub max_live_runs: usize,
    /// Maximum number of runs that are not deleted; `None` if there is no limit.
    pub max_runs: Option<u64>,
    /// Maximum size of the files of all runs; `None` if there is no limit.
    pub max_disk_bytes: Option<u64>,
}

#[cfg(test)]
impl Limits {
    /// Limits that no test reaches.
    pub(crate) fn for_tests() -> Self {
        Self {
            request_timeout: Duration::from_secs(10),
            max_body_memory_bytes: 1 << 20,
            rate: None,
            read_concurrency: 64,
            search_concurrency: 64,
            export_concurrency: 64,
            write_concurrency: 64,
            import_concurrency: 64,
            max_requests: 1024,
            max_streams: 64,
            max_live_runs: 64,
            max_runs: None,
            max_disk_bytes: None,
        }
    }
}
