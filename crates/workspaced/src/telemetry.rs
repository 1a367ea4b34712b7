//! Logs and metrics. Neither ever contains a token, a body, or a physical path.

pub(crate) mod process;
pub(crate) mod trace_parent;
#[cfg_attr(not(feature = "otlp"), path = "telemetry/no_traces.rs")]
pub(crate) mod traces;

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::Method;
use ledger::Role;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::telemetry::traces::Traces;
use config::{Config, ConfigError, LogFormat};

/// Bucket boundaries of histograms, in seconds.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Bucket boundaries of the sizes of commits, in jobs.
const JOB_BUCKETS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 512.0];

static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Crates whose debug output contains search patterns and file paths. Their level is at most `info`.
const PRIVATE_CRATES: [&str; 5] =
    ["globset=info", "grep_regex=info", "grep_searcher=info", "ignore=info", "regex=info"];

/// Starts logging to standard error, and sending spans if the settings name a collector.
///
/// # Errors
///
/// Fails if the log filter of the settings is invalid, or if the collector's address cannot be used.
pub(crate) fn start_log(config: &Config) -> Result<Option<Traces>, ConfigError> {
    let bad = |error: &dyn std::fmt::Display| ConfigError(format!("--log `{}`: {error}", config.log));
    let mut filter = EnvFilter::try_new(&config.log).map_err(|error| bad(&error))?;
    for directive in PRIVATE_CRATES {
        filter = filter.add_directive(directive.parse().map_err(|error| bad(&error))?);
    }
    // The library of MCP logs several lines for each request.
    if !config.log.contains("rmcp") {
        filter = filter.add_directive("rmcp=warn".parse().map_err(|error| bad(&error))?);
    }
    let traces = config.otlp.as_ref().map(Traces::start).transpose()?;
    if let Some(traces) = traces {
        start_log_and_traces(config.log_format, filter, &traces);
        return Ok(Some(traces));
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
    Ok(None)
}

/// As [`start_log`], where the filter is that of the log alone: traces need spans that it leaves out.
fn start_log_and_traces(format: LogFormat, filter: EnvFilter, traces: &Traces) {
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false);
    let log = match format {
        LogFormat::Text => log.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(log.with_filter(filter)).with(traces.layer());
    if subscriber.try_init().is_err() {
        tracing::debug!("logging is already started");
    }
}

/// Starts recording metrics. `database` is the kind of the database.
pub(crate) fn start_metrics(database: &'static str) {
    RECORDER.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        let seconds = Matcher::Suffix("_seconds".to_owned());
        // Fails only for an empty list of buckets.
        let jobs = Matcher::Suffix("_jobs".to_owned());
        let builder = builder.set_buckets_for_metric(seconds, &BUCKETS);
        let builder = builder.and_then(|builder| builder.set_buckets_for_metric(jobs, &JOB_BUCKETS));
        let builder = builder.unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("metrics are not recorded: the process has another recorder");
        }
        describe();
        describe_stores();
        start_at_zero();
        handle
    });
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("database", database)];
    metrics::gauge!("workspaced_build_info", &labels).set(1.0);
}

/// Creates the metrics without labels, so that an alert distinguishes "none yet" from "not measured".
fn start_at_zero() {
    for counter in [
        "workspaced_archive_errors_total",
        "workspaced_archived_runs_total",
        "workspaced_authentication_failures_total",
        "workspaced_base_parts_total",
        "workspaced_connections_refused_total",
        "workspaced_connections_evicted_total",
        "workspaced_forwarded_requests_total",
        "workspaced_heartbeat_failures_total",
        "workspaced_rate_limited_total",
        "workspaced_runs_broken_total",
        "workspaced_unrecorded_refusals_total",
    ] {
        metrics::counter!(counter).absolute(0);
    }
    for outcome in ["delivered", "retried", "failed", "gone"] {
        metrics::counter!("workspaced_webhook_deliveries_total", "outcome" => outcome).absolute(0);
    }
    for role in Role::ALL {
        // A node sets them when it joins.
        metrics::gauge!("workspaced_node_role", "role" => role.as_str()).set(1.0);
    }
    for reason in ["too_old", "too_many"] {
        metrics::counter!("workspaced_webhook_dropped_total", "reason" => reason).absolute(0);
    }
    for gauge in
        ["workspaced_connections", "workspaced_streams", "workspaced_lost_folders", "workspaced_webhook_pending"]
    {
        metrics::gauge!(gauge).increment(0.0);
    }
}

fn describe() {
    metrics::describe_counter!("workspaced_requests_total", "Requests by route, method and status.");
    metrics::describe_histogram!("workspaced_request_duration_seconds", "Time to the response head, by route.");
    metrics::describe_counter!("workspaced_tool_calls_total", "Recorded calls by tool, decision and outcome.");
    metrics::describe_histogram!("workspaced_tool_call_duration_seconds", "Time from a call to its record, by tool.");
    metrics::describe_histogram!("workspaced_record_duration_seconds", "Time to commit a record.");
    metrics::describe_gauge!("process_cpu_seconds_total", "Processor time of the process in seconds.");
    metrics::describe_gauge!("process_resident_memory_bytes", "Memory of the process in RAM.");
    metrics::describe_gauge!("process_open_fds", "Open files and connections of the process.");
    metrics::describe_gauge!("process_max_fds", "Open files and connections that the process may have.");
    metrics::describe_gauge!("process_start_time_seconds", "When the process started, in seconds since 1970.");
    metrics::describe_gauge!("workspaced_connections", "Open connections.");
    metrics::describe_counter!("workspaced_connections_refused_total", "Connections over the limit.");
    metrics::describe_counter!(
        "workspaced_connections_evicted_total",
        "Connections that were ended because others needed them."
    );
    metrics::describe_counter!("workspaced_forwarded_requests_total", "Requests forwarded to the owner of their run.");
    metrics::describe_counter!("workspaced_base_parts_total", "Parts of bases fetched from the object store.");
    metrics::describe_gauge!("workspaced_node_role", "Whether this process has a role, by role.");
    metrics::describe_counter!("workspaced_heartbeat_failures_total", "Heartbeats of the node that were not stored.");
    metrics::describe_counter!("workspaced_rate_limited_total", "Requests refused by a rate or concurrency limit.");
    metrics::describe_counter!("workspaced_authentication_failures_total", "Requests without a valid token.");
    metrics::describe_counter!("workspaced_reads_cancelled_total", "Reads cancelled before their end, by tool.");
    metrics::describe_counter!("workspaced_runs_broken_total", "Calls that found a run's data missing or damaged.");
    metrics::describe_counter!("workspaced_webhook_deliveries_total", "Attempts to deliver a message, by outcome.");
    metrics::describe_counter!("workspaced_webhook_dropped_total", "Messages given up as too old or too many.");
    metrics::describe_gauge!("workspaced_webhook_pending", "Messages that no receiver has accepted yet.");
    metrics::describe_gauge!("workspaced_live_runs", "Open runs.");
    metrics::describe_gauge!("workspaced_imports", "Imports in progress.");
    metrics::describe_gauge!("workspaced_lost_folders", "Folders in lost+found: runs that the database does not know.");
}

fn describe_stores() {
    metrics::describe_gauge!("workspaced_tls_certificate_expires_timestamp_seconds", "Expiry of the certificate.");
    metrics::describe_counter!("workspaced_refusals_total", "Recorded refusals by code.");
    metrics::describe_counter!("workspaced_rule_refusals_total", "Recorded refusals by the policy rule that decided.");
    metrics::describe_gauge!("workspaced_runs", "Runs by state.");
    metrics::describe_gauge!("workspaced_runs_bytes", "Bytes of all runs' files, with work in progress.");
    metrics::describe_gauge!(
        "workspaced_history_bytes",
        "Bytes of all runs' history in the database and the object store."
    );
    metrics::describe_counter!(
        "workspaced_unrecorded_refusals_total",
        "Refusals without a record: the reserve is used up."
    );
    metrics::describe_gauge!("workspaced_approvals_pending", "Calls that wait for approval.");
    metrics::describe_gauge!("workspaced_approvals_oldest_seconds", "Age of the oldest pending approval.");
    metrics::describe_gauge!("workspaced_permits", "Permits for concurrent work, by pool.");
    metrics::describe_gauge!("workspaced_permits_free", "Free permits, by pool.");
    metrics::describe_histogram!("workspaced_permit_wait_seconds", "Time until a permit was taken, by pool.");
    metrics::describe_histogram!("workspaced_commit_group_jobs", "Jobs that shared a commit.");
    metrics::describe_histogram!("workspaced_commit_duration_seconds", "Time of a commit of the database.");
    metrics::describe_histogram!("workspaced_fsync_duration_seconds", "Time to sync changed files, by batch.");
    metrics::describe_gauge!("workspaced_checkpoint_lag_records", "Records that no checkpoint covers.");
    metrics::describe_gauge!("workspaced_checkpoint_lag_seconds", "Time for which records wait for a checkpoint.");
    metrics::describe_gauge!("workspaced_signing_stopped", "1 if the database contradicts the checkpoints, else 0.");
    metrics::describe_gauge!("workspaced_disk_bytes", "Size of the data folder's disk.");
    metrics::describe_gauge!("workspaced_disk_free_bytes", "Free bytes of the data folder's disk.");
    metrics::describe_gauge!("workspaced_disk_reserve_bytes", "Free bytes below which the service warns.");
    metrics::describe_gauge!("workspaced_streams", "Open streams.");
    metrics::describe_gauge!("workspaced_database_connections", "Connections to the database, by state.");
    metrics::describe_gauge!("workspaced_database_connections_max", "Maximum connections to the database.");
    metrics::describe_counter!("workspaced_archived_runs_total", "Runs that were archived.");
    metrics::describe_counter!("workspaced_archive_errors_total", "Failed attempts to archive a run.");
    metrics::describe_gauge!("workspaced_build_info", "1; the labels have the version and the kind of the database.");
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
    standard_method(method).unwrap_or("other")
}

/// Returns the name of a standard method; `_OTHER`, as in OpenTelemetry's conventions, for one that a client invents. That could
/// have tens of kibibytes, which its span would hold until it is sent.
pub(crate) fn method_name(method: &Method) -> &'static str {
    standard_method(method).unwrap_or("_OTHER")
}

fn standard_method(method: &Method) -> Option<&'static str> {
    const STANDARD: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
    STANDARD.into_iter().find(|standard| *standard == method.as_str())
}

/// Adds to the number of open connections.
pub(crate) fn add_connections(difference: f64) {
    metrics::gauge!("workspaced_connections").increment(difference);
}

/// Counts a connection over the limit.
pub(crate) fn connection_refused() {
    metrics::counter!("workspaced_connections_refused_total").increment(1);
}

/// Counts a connection that ended for another one.
pub(crate) fn connection_evicted() {
    metrics::counter!("workspaced_connections_evicted_total").increment(1);
}

/// Counts a request that is forwarded to the owner of its run.
pub(crate) fn request_forwarded() {
    metrics::counter!("workspaced_forwarded_requests_total").increment(1);
}

/// Counts an attempt to deliver a message to a webhook.
pub(crate) fn webhook_attempted(outcome: &'static str) {
    metrics::counter!("workspaced_webhook_deliveries_total", "outcome" => outcome).increment(1);
}

/// Counts messages to a webhook that are given up without an answer of its receiver.
pub(crate) fn webhook_dropped(reason: &'static str, count: u64) {
    metrics::counter!("workspaced_webhook_dropped_total", "reason" => reason).increment(count);
}

/// Sets when the certificate expires, in seconds since 1970, if that is known.
#[expect(clippy::cast_precision_loss, reason = "an error of one in 2^52 does not matter in a metric")]
pub(crate) fn set_certificate_expiry(expires_at: Option<i64>) {
    if let Some(expires_at) = expires_at {
        metrics::gauge!("workspaced_tls_certificate_expires_timestamp_seconds").set(expires_at as f64);
    }
}

/// Sets the number of messages that wait for delivery.
#[expect(clippy::cast_precision_loss, reason = "an error of one in 2^52 does not matter in a metric")]
pub(crate) fn set_webhook_pending(count: u64) {
    metrics::gauge!("workspaced_webhook_pending").set(count as f64);
}

/// Sets the number of folders in `lost+found/`.
pub(crate) fn set_lost_folders(count: usize) {
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    metrics::gauge!("workspaced_lost_folders").set(count as f64);
}

/// Sets the gauges of the data folder's disk, in bytes.
#[expect(clippy::cast_precision_loss, reason = "an error of one in 2^52 does not matter in a metric")]
pub(crate) fn set_disk(total: u64, free: u64, reserve: u64) {
    metrics::gauge!("workspaced_disk_bytes").set(total as f64);
    metrics::gauge!("workspaced_disk_free_bytes").set(free as f64);
    metrics::gauge!("workspaced_disk_reserve_bytes").set(reserve as f64);
}

/// Sets whether signing has stopped.
pub(crate) fn set_signing_stopped(has_stopped: bool) {
    metrics::gauge!("workspaced_signing_stopped").set(f64::from(u8::from(has_stopped)));
}

/// Sets the number of records that no checkpoint covers, and for how long they have waited.
#[expect(clippy::cast_precision_loss, reason = "an error of one in 2^52 does not matter in a metric")]
pub(crate) fn set_checkpoint_lag(records: i64, seconds: f64) {
    metrics::gauge!("workspaced_checkpoint_lag_records").set(records as f64);
    metrics::gauge!("workspaced_checkpoint_lag_seconds").set(seconds);
}
