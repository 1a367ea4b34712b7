//! The limits of HTTP: of connections, bodies and answers.

use std::time::Duration;

/// What the service accepts over HTTP. The engine has the limits of what calls do.
#[derive(Clone, Debug)]
pub struct HttpLimits {
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
    /// Maximum size of a JSON body.
    pub max_body_bytes: u64,
    /// Maximum memory for large responses to all requests.
    pub max_answer_memory_bytes: u64,
    /// Maximum size of an uploaded archive.
    pub max_archive_bytes: u64,
    /// Maximum requests per minute from one address without a valid token; 0 if there is no limit.
    pub auth_failures_per_minute: u32,
    /// Maximum time to drain requests at shutdown.
    pub drain: Duration,
}
