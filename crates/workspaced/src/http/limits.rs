//! The route of the limits.

use axum::extract::State;
use engine::runs::{MAX_AUTHOR, MAX_MESSAGE_BYTES};
use engine::tools::ToolLimits;
use engine::{DEFAULT_LIMIT, MAX_LIMIT};
use model::Budget;
use serde::Serialize;

use crate::http::auth::ToolUser;
use crate::http::extract::{Json, Query};
use crate::http::tools::batch::MAX_CALLS;
use crate::service::Service;

/// The limits of the service. Those of a run's policy are part of the run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Limits)]
pub(crate) struct ShownLimits {
    /// Limits of requests.
    requests: RequestLimits,
    /// Limits of paths, and of inputs and outputs of tools.
    tools: ToolLimits,
    /// Limits of the service as a whole.
    service: ServiceLimits,
    /// Limits of the commit of a git bundle.
    bundle: BundleLimits,
    /// The default budget of one call, for policies that set none.
    default_budget: Budget,
}

/// Limits of requests.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestLimits {
    /// Maximum size of a JSON body.
    max_body_bytes: u64,
    /// Maximum memory for JSON bodies, over all callers.
    max_body_memory_bytes: u64,
    /// Maximum memory for large responses, over all callers.
    max_answer_memory_bytes: u64,
    /// Maximum number of JSON values in a body, nested ones included: objects, arrays, strings, numbers, literals.
    max_json_values: u64,
    /// Maximum size of an uploaded archive, as sent.
    max_archive_bytes: u64,
    /// Maximum duration of a `GET` request; streams, archives and files are exempt.
    request_timeout_seconds: u64,
    /// Maximum time to receive a JSON body; also the stall timeout of uploads and downloads.
    body_timeout_seconds: u64,
    /// Minimum rate of an upload or a download while the service waits for the caller.
    min_bytes_per_second: u64,
    /// Maximum concurrent requests of one token, or of one run: its share of all.
    token_concurrency: usize,
    /// Maximum requests per second of one token; missing if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_second: Option<u32>,
    /// Maximum burst of requests of one token; missing if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_burst: Option<u32>,
    /// Default page size of lists.
    page_default: u32,
    /// Maximum page size of lists.
    page_max: u32,
    /// Maximum `waitSeconds` when getting a tool call.
    max_wait_seconds: u64,
    /// Maximum number of calls in a batch.
    max_batch_calls: usize,
}

/// Limits of the service as a whole.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceLimits {
    /// Maximum concurrent connections.
    max_connections: usize,
    /// Maximum time to receive the head of a request.
    header_timeout_seconds: u64,
    /// Maximum idle time of a connection between two requests.
    idle_timeout_seconds: u64,
    /// Maximum concurrent reads.
    read_threads: usize,
    /// Maximum concurrent searches and diffs.
    search_threads: usize,
    /// Maximum concurrent exports. One run may use a quarter of them, and at least one.
    export_threads: usize,
    /// Maximum concurrent mutations, and separately uploads of files over 1 MiB. One run may use a quarter of the uploads,
    /// and at least one.
    write_threads: usize,
    /// Maximum concurrent imports, and separately archive uploads. Others queue until the request timeout.
    import_threads: usize,
    /// Maximum open runs. Others are opened on demand.
    max_live_runs: usize,
    /// Maximum number of runs that are not deleted; `null` if there is no limit.
    max_runs: Option<u64>,
    /// Maximum size of the files of all runs; `null` if there is no limit.
    max_disk_bytes: Option<u64>,
}

/// Limits of the commit of a git bundle.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BundleLimits {
    /// Maximum length of an author, name and email together.
    max_author_characters: usize,
    /// Maximum length of a message.
    max_message_bytes: usize,
}

/// Get the limits of the service
///
/// Limits of a run's policy, such as `maxFileBytes` and the budgets, are part of the run.
#[utoipa::path(
    get, path = "/v1/limits", tag = "tools", operation_id = "getLimits",
    responses((status = 200, description = "The limits.", body = ShownLimits)),
)]
pub(crate) async fn get_limits(
    State(service): State<Service>,
    _user: ToolUser,
    Query(()): Query<()>,
) -> Json<ShownLimits> {
    let (limits, http) = (&service.state.limits, &service.state.http_limits);
    Json(ShownLimits {
        requests: RequestLimits {
            max_body_bytes: http.max_body_bytes,
            max_body_memory_bytes: limits.max_body_memory_bytes,
            max_answer_memory_bytes: http.max_answer_memory_bytes,
            max_json_values: model::json::MAX_VALUES,
            max_archive_bytes: http.max_archive_bytes,
            request_timeout_seconds: limits.request_timeout.as_secs(),
            body_timeout_seconds: http.body_timeout.as_secs(),
            min_bytes_per_second: http.min_bytes_per_second,
            // The share of a pool.
            token_concurrency: (limits.max_requests / 4).max(1),
            rate_per_second: limits.rate.map(|(rate, _)| rate),
            rate_burst: limits.rate.map(|(_, burst)| burst),
            page_default: DEFAULT_LIMIT,
            page_max: MAX_LIMIT,
            max_wait_seconds: engine::audit::MAX_WAIT_SECONDS,
            max_batch_calls: MAX_CALLS,
        },
        tools: ToolLimits::VALUES,
        service: ServiceLimits {
            max_connections: http.max_connections,
            header_timeout_seconds: http.header_timeout.as_secs(),
            idle_timeout_seconds: http.idle_timeout.as_secs(),
            read_threads: limits.read_concurrency,
            search_threads: limits.search_concurrency,
            export_threads: limits.export_concurrency,
            write_threads: limits.write_concurrency,
            import_threads: limits.import_concurrency,
            max_live_runs: limits.max_live_runs,
            max_runs: limits.max_runs,
            max_disk_bytes: limits.max_disk_bytes,
        },
        bundle: BundleLimits { max_author_characters: MAX_AUTHOR, max_message_bytes: MAX_MESSAGE_BYTES },
        default_budget: Budget::default(),
    })
}
