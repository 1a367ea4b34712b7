//! The limits of the settings, with their defaults and ranges.

use std::time::Duration;

use engine::Limits;

use crate::error::ConfigError;
use crate::http_limits::HttpLimits;
use crate::range::{count, seconds, within};
use crate::settings::Settings;

/// Minimum rate of an upload or a download, averaged over four client timeouts of waiting.
const MIN_BYTES_PER_SECOND: u64 = 1024;
/// Maximum open runs. Others are opened on demand.
const MAX_LIVE_RUNS: usize = 1024;
/// Default of the memory for requests.
const MEMORY_BYTES: u64 = 512 << 20;
/// Maximum concurrent imports: they wait for disks and other machines rather than for cores.
const MAX_IMPORTS: u64 = 8;

/// Checks the limits of HTTP in `settings`.
///
/// # Errors
///
/// Fails if a number is outside its range.
pub(crate) fn http_limits(settings: &Settings) -> Result<HttpLimits, ConfigError> {
    let max_body_bytes = within("max-body-bytes", settings.max_body_bytes, 4 << 20, 1 << 30)?;
    let client_timeout = seconds("client-timeout-seconds", settings.client_timeout_seconds, 30)?;
    Ok(HttpLimits {
        max_connections: count("max-connections", settings.max_connections, 4096, 1_000_000)?,
        header_timeout: (client_timeout / 3).max(Duration::from_secs(1)),
        body_timeout: client_timeout,
        min_bytes_per_second: MIN_BYTES_PER_SECOND,
        idle_timeout: client_timeout * 5 / 2,
        max_body_bytes,
        max_answer_memory_bytes: memory_bytes(settings, max_body_bytes)? / 2,
        max_archive_bytes: within("max-archive-bytes", settings.max_archive_bytes, 1 << 30, 1 << 40)?,
        auth_failures_per_minute: settings.auth_failures_per_minute.unwrap_or(6000),
        drain: seconds("drain-seconds", settings.drain_seconds, 20)?,
    })
}

/// Checks the other limits of `settings`, besides those of HTTP.
///
/// # Errors
///
/// Fails if a number is outside its range.
pub(crate) fn limits(settings: &Settings, http: &HttpLimits) -> Result<Limits, ConfigError> {
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
    let concurrency = within("concurrency", settings.concurrency, 4 * cores, 1024)?;
    let permits = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Limits {
        request_timeout: seconds("request-timeout-seconds", settings.request_timeout_seconds, 60)?,
        max_body_memory_bytes: memory_bytes(settings, http.max_body_bytes)?.div_ceil(2),
        rate: settings.rate_limit.filter(|limit| limit.per_second > 0).map(|limit| (limit.per_second, limit.burst)),
        read_concurrency: permits(concurrency),
        search_concurrency: permits(concurrency),
        export_concurrency: permits(concurrency),
        write_concurrency: permits(2 * concurrency),
        import_concurrency: permits(concurrency.min(MAX_IMPORTS)),
        max_requests: http.max_connections,
        // The other half of the connections stays for calls.
        max_streams: (http.max_connections / 2).max(1),
        max_live_runs: MAX_LIVE_RUNS,
        max_runs: settings.max_runs.filter(|runs| *runs > 0),
        max_disk_bytes: settings.max_disk_bytes.filter(|bytes| *bytes > 0),
    })
}

/// Memory for requests: 512 MiB by default. The half that is for bodies has at least twice the largest body.
fn memory_bytes(settings: &Settings, max_body_bytes: u64) -> Result<u64, ConfigError> {
    let min = 4 * max_body_bytes;
    let bytes = within("max-memory-bytes", settings.max_memory_bytes, min.max(MEMORY_BYTES), 1 << 41)?;
    if bytes < min {
        return Err(ConfigError(format!(
            "--max-memory-bytes {bytes}: expected at least four times --max-body-bytes, which is {min}"
        )));
    }
    Ok(bytes)
}
