//! The bounds of the service.

use std::time::Duration;

/// Every bound of the service.
#[derive(Clone, Debug)]
pub struct Limits {
    pub max_connections: usize,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    /// What has to come in or go out in a second, while it is waited for.
    pub min_bytes_per_second: u64,
    pub idle_timeout: Duration,
    pub request_timeout: Duration,
    pub max_body_bytes: u64,
    /// Bytes of bodies in memory at a time.
    pub max_body_memory_bytes: u64,
    /// Bytes of large answers in memory at a time.
    pub max_answer_memory_bytes: u64,
    pub max_archive_bytes: u64,
    /// Requests a second of one token, and how many at once.
    pub rate: Option<(u32, u32)>,
    /// Requests a minute from one address without a valid token; 0 is no limit.
    pub auth_failures_per_minute: u32,
    pub token_concurrency: usize,
    pub read_threads: usize,
    pub search_threads: usize,
    pub export_threads: usize,
    pub write_threads: usize,
    pub import_threads: usize,
    pub max_live_runs: usize,
    /// Runs that are not deleted; `None` where they are not bounded.
    pub max_runs: Option<u64>,
    /// Bytes of all runs' files; `None` where they are not bounded.
    pub max_disk_bytes: Option<u64>,
    pub drain: Duration,
}
