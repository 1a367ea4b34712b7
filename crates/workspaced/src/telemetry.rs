//! Logs and metrics. Neither ever contains a token, a body, or a physical path.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::Method;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::{Config, ConfigError, LogFormat};

/// Bucket boundaries of histograms, in seconds.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Crates whose debug output contains search patterns and file paths. Their level is at most `info`.
const PRIVATE_CRATES: [&str; 5] =
    ["globset=info", "grep_regex=info", "grep_searcher=info", "ignore=info", "regex=info"];

/// Starts logging to standard error.
///
/// # Errors
///
/// Fails if the log filter of the settings is invalid.
pub(crate) fn start_log(config: &Config) -> Result<(), ConfigError> {
    let bad = |error: &dyn std::fmt::Display| ConfigError(format!("--log `{}`: {error}", config.log));
    let mut filter = EnvFilter::try_new(&config.log).map_err(|error| bad(&error))?;
    for directive in PRIVATE_CRATES {
        filter = filter.add_directive(directive.parse().map_err(|error| bad(&error))?);
    }
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let started = match config.log_format {
        LogFormat::Text => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init(),
    };
    if started.is_err() {
        // Another service in the same process has started it, as in tests.
        tracing::debug!("logging is already started");
    }
    Ok(())
}

/// Starts recording metrics.
pub(crate) fn start_metrics() {
    RECORDER.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        let seconds = Matcher::Suffix("_seconds".to_owned());
        // Fails only for an empty list of buckets.
        let builder = builder.set_buckets_for_metric(seconds, &BUCKETS).unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("metrics are not recorded: the process has another recorder");
        }
        describe();
        handle
    });
}

fn describe() {
    metrics::describe_counter!("workspaced_requests_total", "Requests by route, method and status.");
    metrics::describe_histogram!("workspaced_request_duration_seconds", "Time to the response head, by route.");
    metrics::describe_counter!("workspaced_tool_calls_total", "Recorded calls by tool, decision and outcome.");
    metrics::describe_histogram!("workspaced_tool_call_duration_seconds", "Time from a call to its record, by tool.");
    metrics::describe_histogram!("workspaced_record_duration_seconds", "Time to commit a record.");
    metrics::describe_gauge!("workspaced_connections", "Open connections.");
    metrics::describe_counter!("workspaced_connections_refused_total", "Connections over the limit.");
    metrics::describe_counter!("workspaced_rate_limited_total", "Requests refused by a rate or concurrency limit.");
    metrics::describe_counter!("workspaced_authentication_failures_total", "Requests without a valid token.");
    metrics::describe_counter!("workspaced_reads_cancelled_total", "Reads cancelled before their end, by tool.");
    metrics::describe_counter!("workspaced_runs_broken_total", "Failures to open a run with missing or damaged data.");
    metrics::describe_gauge!("workspaced_live_runs", "Open runs.");
    metrics::describe_gauge!("workspaced_imports", "Imports in progress.");
    metrics::describe_gauge!("workspaced_lost_folders", "Folders in lost+found: runs that the database does not know.");
}

/// Returns all metrics in Prometheus text format.
pub(crate) fn render_metrics() -> String {
    RECORDER.get().map(PrometheusHandle::render).unwrap_or_default()
}

/// Folds recent samples into the histograms. Called periodically to bound their memory.
pub(crate) fn trim_metrics() {
    if let Some(handle) = RECORDER.get() {
        handle.run_upkeep();
    }
}

/// Counts a request. `route` is the pattern, never the path, which contains IDs.
pub(crate) fn request_answered(route: &str, method: &Method, status: u16, duration: Duration) {
    let labels =
        [("route", route.to_owned()), ("method", method_label(method).to_owned()), ("status", status.to_string())];
    metrics::counter!("workspaced_requests_total", &labels).increment(1);
    metrics::histogram!("workspaced_request_duration_seconds", &labels[..1]).record(duration);
}

/// Returns the name of a standard method. Clients may invent methods, which must not become labels.
fn method_label(method: &Method) -> &'static str {
    const STANDARD: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
    STANDARD.into_iter().find(|standard| *standard == method.as_str()).unwrap_or("other")
}

/// Adds to the number of open connections.
pub(crate) fn add_connections(difference: f64) {
    metrics::gauge!("workspaced_connections").increment(difference);
}

/// Counts a connection over the limit.
pub(crate) fn connection_refused() {
    metrics::counter!("workspaced_connections_refused_total").increment(1);
}

/// Sets the number of folders in `lost+found/`.
pub(crate) fn set_lost_folders(count: usize) {
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    metrics::gauge!("workspaced_lost_folders").set(count as f64);
}
