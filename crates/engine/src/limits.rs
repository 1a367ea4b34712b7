//! The limits of the service.

use std::time::Duration;

/// Every limit of the service.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum concurrent connections.
    pub max_connections: usize,
    /// Maximum time to receive the head of a request.
    pub header_timeout: Duration,
    /// Maximum time to receive a JSON body, and maximum stall of an upload or a download.
    pub body_timeout: Duration,
    /// Minimum rate of an upload or a download while the service waits for the client.
    pub min_bytes_per_second: u64,
    /// Maximum idle time of a connection between two requests.
    pub idle_timeout: Duration,
    /// Maximum duration of a read.
    pub request_timeout: Duration,
    /// Maximum size of a JSON body.
    pub max_body_bytes: u64,
    /// Maximum memory for JSON bodies of all requests.
    pub max_body_memory_bytes: u64,
    /// Maximum memory for large responses to all requests.
    pub max_answer_memory_bytes: u64,
    /// Maximum size of an uploaded archive.
    pub max_archive_bytes: u64,
    /// Maximum requests per second of one token, and maximum burst; `None` if there is no limit.
    pub rate: Option<(u32, u32)>,
    /// Maximum requests per minute from one address without a valid token; 0 if there is no limit.
    pub auth_failures_per_minute: u32,
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
    /// Maximum time to drain requests at shutdown.
    pub drain: Duration,
}
