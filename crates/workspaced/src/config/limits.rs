//! The limits of the settings, with their defaults and ranges.

use engine::limits::Limits;

use crate::config::error::ConfigError;
use crate::config::http_limits::HttpLimits;
use crate::config::range::{count, seconds, within};
use crate::config::settings::Settings;

/// Checks the limits of HTTP in `settings`.
///
/// # Errors
///
/// Fails if a number is outside its range.
pub(crate) fn http_limits(settings: &Settings) -> Result<HttpLimits, ConfigError> {
    Ok(HttpLimits {
        max_connections: count("max-connections", settings.max_connections, 4096, 1_000_000)?,
        header_timeout: seconds("header-timeout-seconds", settings.header_timeout_seconds, 10)?,
        body_timeout: seconds("body-timeout-seconds", settings.body_timeout_seconds, 30)?,
        min_bytes_per_second: within("min-bytes-per-second", settings.min_bytes_per_second, 1024, 1 << 30)?,
        idle_timeout: seconds("idle-timeout-seconds", settings.idle_timeout_seconds, 75)?,
        max_body_bytes: within("max-body-bytes", settings.max_body_bytes, 4 << 20, 1 << 30)?,
        max_answer_memory_bytes: within(
            "max-answer-memory-bytes",
            settings.max_answer_memory_bytes,
            256 << 20,
            4 << 30,
        )?,
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
    Ok(Limits {
        request_timeout: seconds("request-timeout-seconds", settings.request_timeout_seconds, 60)?,
        max_body_memory_bytes: max_body_memory_bytes(settings.max_body_memory_bytes, http.max_body_bytes)?,
        rate: rate(settings)?,
        token_concurrency: count("token-concurrency", settings.token_concurrency, 256, 1_000_000)?,
        read_concurrency: count("read-concurrency", settings.read_concurrency, 4 * cores, 1024)?,
        search_concurrency: count("search-concurrency", settings.search_concurrency, 4 * cores, 1024)?,
        export_concurrency: count("export-concurrency", settings.export_concurrency, (4 * cores).max(8), 1024)?,
        write_concurrency: count("write-concurrency", settings.write_concurrency, 8 * cores, 1024)?,
        import_concurrency: count("import-concurrency", settings.import_concurrency, 8, 1024)?,
        max_requests: http.max_connections,
        // The other half of the connections stays for calls.
        max_streams: (http.max_connections / 2).max(1),
        max_live_runs: count("max-live-runs", settings.max_live_runs, 1024, 1_000_000)?,
        max_runs: settings.max_runs.filter(|runs| *runs > 0),
        max_disk_bytes: settings.max_disk_bytes.filter(|bytes| *bytes > 0),
    })
}

fn rate(settings: &Settings) -> Result<Option<(u32, u32)>, ConfigError> {
    let rate = settings.rate_limit_per_second.unwrap_or(0);
    let burst = settings.rate_limit_burst.unwrap_or(rate.saturating_mul(2));
    if rate > 0 && burst == 0 {
        return Err(ConfigError("--rate-limit-burst 0: expected at least 1".to_owned()));
    }
    Ok((rate > 0).then_some((rate, burst)))
}

/// Memory for bodies: 256 MiB by default, and at least twice the largest body.
fn max_body_memory_bytes(given: Option<u64>, max_body_bytes: u64) -> Result<u64, ConfigError> {
    let min = 2 * max_body_bytes;
    let bytes = within("max-body-memory-bytes", given, min.max(256 << 20), 1 << 40)?;
    if bytes < min {
        return Err(ConfigError(format!(
            "--max-body-memory-bytes {bytes}: expected at least twice --max-body-bytes, which is {min}"
        )));
    }
    Ok(bytes)
}
