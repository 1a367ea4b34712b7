//! What the service tells of itself: log lines and numbers. Never a token, a body, or a path of this machine's disk.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::Method;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use model::{Draft, Outcome, Verdict};
use tracing_subscriber::EnvFilter;

use crate::config::{BadSetting, Config, LogFormat};

/// Bounds of the histograms of seconds.
const SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Runs that could not be opened.
const BROKEN: &str = "workspaced_runs_broken_total";

static NUMBERS: OnceLock<PrometheusHandle> = OnceLock::new();

/// Crates that tell what is searched for, and where, when they are asked for details: nobody's business but the caller's.
const TELLING: [&str; 5] = ["globset=info", "grep_regex=info", "grep_searcher=info", "ignore=info", "regex=info"];

/// Starts logging, on standard error.
///
/// # Errors
///
/// Where the filter of the settings is none.
pub(crate) fn start_log(config: &Config) -> Result<(), BadSetting> {
    let bad = |error: &dyn std::fmt::Display| BadSetting(format!("--log `{}`: {error}", config.log));
    let mut filter = EnvFilter::try_new(&config.log).map_err(|error| bad(&error))?;
    for telling in TELLING {
        filter = filter.add_directive(telling.parse().map_err(|error| bad(&error))?);
    }
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let started = match config.log_format {
        LogFormat::Text => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init(),
    };
    if started.is_err() {
        // Only where another service of the same process has started it, which serves as well.
        tracing::debug!("logging had been started");
    }
    Ok(())
}

/// Starts counting.
pub(crate) fn start_numbers() {
    NUMBERS.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        let seconds = Matcher::Suffix("_seconds".to_owned());
        // The list of bounds is not empty, the only thing that it could be refused for.
        let builder = builder.set_buckets_for_metric(seconds, &SECONDS).unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("numbers are counted elsewhere");
        }
        describe();
        handle
    });
}

fn describe() {
    metrics::describe_counter!("workspaced_requests_total", "Requests by route, method and status.");
    metrics::describe_histogram!("workspaced_request_duration_seconds", "Time to the head of the answer, by route.");
    metrics::describe_counter!("workspaced_tool_calls_total", "Recorded calls by tool, decision and outcome.");
    metrics::describe_histogram!("workspaced_tool_call_duration_seconds", "Time of a call until its record, by tool.");
    metrics::describe_histogram!("workspaced_record_duration_seconds", "Time until a record is durable.");
    metrics::describe_gauge!("workspaced_connections", "Connections that are open.");
    metrics::describe_counter!("workspaced_connections_refused_total", "Connections for which there was no place.");
    metrics::describe_counter!("workspaced_rate_limited_total", "Requests that a token made too many.");
    metrics::describe_counter!("workspaced_reads_cancelled_total", "Looks broken off before their end, by tool.");
    metrics::describe_counter!(BROKEN, "Times that a run could not be opened, since its data is missing or damaged.");
    metrics::describe_gauge!("workspaced_live_runs", "Runs whose folders are held open.");
    metrics::describe_gauge!("workspaced_imports", "Imports under way.");
    metrics::describe_gauge!("workspaced_lost_folders", "Folders in lost+found, whose runs the database did not know.");
}

/// Every number, in Prometheus' text form.
pub(crate) fn numbers() -> String {
    NUMBERS.get().map(PrometheusHandle::render).unwrap_or_default()
}

/// Folds what was counted lately into the histograms. Called now and then, so that they do not grow.
pub(crate) fn tidy_numbers() {
    if let Some(handle) = NUMBERS.get() {
        handle.run_upkeep();
    }
}

/// A request was answered. `route` is the pattern, never the path: paths hold IDs.
pub(crate) fn request_answered(route: &str, method: &Method, status: u16, took: Duration) {
    let labels =
        [("route", route.to_owned()), ("method", method_name(method).to_owned()), ("status", status.to_string())];
    metrics::counter!("workspaced_requests_total", &labels).increment(1);
    metrics::histogram!("workspaced_request_duration_seconds", &labels[..1]).record(took);
}

/// A client may make methods up; labels may not.
fn method_name(method: &Method) -> &'static str {
    const KNOWN: [Method; 7] =
        [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::HEAD, Method::OPTIONS, Method::PATCH];
    const NAMES: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
    KNOWN.iter().position(|known| known == method).map_or("other", |at| NAMES[at])
}

/// So many connections more.
pub(crate) fn connections(more: f64) {
    metrics::gauge!("workspaced_connections").increment(more);
}

/// There was no place for a connection.
pub(crate) fn connection_refused() {
    metrics::counter!("workspaced_connections_refused_total").increment(1);
}

/// How many folders are in `lost+found/`.
pub(crate) fn lost_folders(count: usize) {
    #[expect(clippy::cast_precision_loss, reason = "folders that an operator looks at one by one")]
    metrics::gauge!("workspaced_lost_folders").set(count as f64);
}
