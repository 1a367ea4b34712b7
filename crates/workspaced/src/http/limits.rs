//! Every bound in one document.

use axum::extract::State;
use model::Budget;
use serde::Serialize;

use crate::artifacts::{MAX_AUTHOR, MAX_MESSAGE_BYTES};
use crate::http::auth::ToolUser;
use crate::http::batch::MAX_CALLS;
use crate::http::extract::{Json, Query};
use crate::page::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::service::Service;
use crate::tools::ToolLimits;

/// Every bound. Those of a run's policy are in the run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Limits {
    /// Bounds of requests.
    requests: RequestLimits,
    /// Bounds of paths, and of what tools take and tell.
    tools: ToolLimits,
    /// Bounds of the service as a whole.
    service: ServiceLimits,
    /// Bounds of a git bundle's commit.
    bundle: BundleLimits,
    /// What one call may use up where the policy says nothing else.
    default_budget: Budget,
}

/// Bounds of requests.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestLimits {
    /// The largest body of a call.
    max_body_bytes: u64,
    /// Bytes of calls' bodies in memory at a time, over all callers.
    max_body_memory_bytes: u64,
    /// Bytes of large answers in memory at a time, over all callers.
    max_answer_memory_bytes: u64,
    /// The most JSON values in a body: objects, lists, strings, numbers and words, however deep.
    max_json_values: u64,
    /// The largest archive that a run is made from.
    max_archive_bytes: u64,
    /// How long a reading call may take.
    request_timeout_seconds: u64,
    /// How long a body may take to come in.
    body_timeout_seconds: u64,
    /// The least rate of an upload or a download while the caller is waited for.
    min_bytes_per_second: u64,
    /// Requests of one token that may be under way at a time.
    token_concurrency: usize,
    /// Requests a second of one token; missing where they are not bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_second: Option<u32>,
    /// Requests of one token at once before the rate counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_burst: Option<u32>,
    /// Items of a page where no `limit` is named.
    page_default: u32,
    /// The most items of a page.
    page_max: u32,
    /// The longest that a tool call's outcome is waited for.
    max_wait_seconds: u64,
    /// The most calls of a batch.
    max_batch_calls: usize,
}

/// Bounds of the service as a whole.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceLimits {
    /// Connections at a time.
    max_connections: usize,
    /// How long a request's head may take to come in.
    header_timeout_seconds: u64,
    /// How long a connection may be silent between two requests.
    idle_timeout_seconds: u64,
    /// Quick looks at a time.
    read_threads: usize,
    /// Searches and diffs at a time.
    search_threads: usize,
    /// Exports at a time; of one run a quarter of them, but at least one.
    export_threads: usize,
    /// Mutations that are planned at a time, and beside them files of more than 1 MiB that come in, of one run a quarter
    /// of those, but at least one.
    write_threads: usize,
    /// Imports at a time, and beside them archives that come in; others wait, but no longer than for an answer.
    import_threads: usize,
    /// Runs that are held open; others are opened when they are called.
    max_live_runs: usize,
    /// Runs that are not deleted; `null` where they are not bounded.
    max_runs: Option<u64>,
    /// Bytes of all runs' files together; `null` where they are not bounded.
    max_disk_bytes: Option<u64>,
}

/// Bounds of a git bundle's commit.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BundleLimits {
    /// The longest name and address of an author.
    max_author_characters: usize,
    /// The longest message.
    max_message_bytes: usize,
}

/// Lists every bound.
///
/// Those of a run's policy, such as `maxFileBytes` and the budgets, are told by the run.
#[utoipa::path(
    get, path = "/v1/limits", tag = "tools", operation_id = "getLimits",
    responses((status = 200, description = "Every bound.", body = Limits)),
)]
pub(super) async fn get_limits(State(service): State<Service>, _user: ToolUser, Query(()): Query<()>) -> Json<Limits> {
    let limits = &service.limits;
    Json(Limits {
        requests: RequestLimits {
            max_body_bytes: limits.max_body_bytes,
            max_body_memory_bytes: limits.max_body_memory_bytes,
            max_answer_memory_bytes: limits.max_answer_memory_bytes,
            max_json_values: model::json::MAX_VALUES,
            max_archive_bytes: limits.max_archive_bytes,
            request_timeout_seconds: limits.request_timeout.as_secs(),
            body_timeout_seconds: limits.body_timeout.as_secs(),
            min_bytes_per_second: limits.min_bytes_per_second,
            token_concurrency: limits.token_concurrency,
            rate_per_second: limits.rate.map(|(rate, _)| rate),
            rate_burst: limits.rate.map(|(_, burst)| burst),
            page_default: DEFAULT_LIMIT,
            page_max: MAX_LIMIT,
            max_wait_seconds: crate::audit::MAX_WAIT_SECONDS,
            max_batch_calls: MAX_CALLS,
        },
        tools: ToolLimits::TOLD,
        service: ServiceLimits {
            max_connections: limits.max_connections,
            header_timeout_seconds: limits.header_timeout.as_secs(),
            idle_timeout_seconds: limits.idle_timeout.as_secs(),
            read_threads: limits.read_threads,
            search_threads: limits.search_threads,
            export_threads: limits.export_threads,
            write_threads: limits.write_threads,
            import_threads: limits.import_threads,
            max_live_runs: limits.max_live_runs,
            max_runs: limits.max_runs,
            max_disk_bytes: limits.max_disk_bytes,
        },
        bundle: BundleLimits { max_author_characters: MAX_AUTHOR, max_message_bytes: MAX_MESSAGE_BYTES },
        default_budget: Budget::default(),
    })
}
