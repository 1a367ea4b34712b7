//! Every bound in one document.

use axum::extract::State;
use model::{Budget, MAX_PATH_BYTES};
use serde::Serialize;

use crate::http::auth::ToolUser;
use crate::http::batch::MAX_CALLS;
use crate::http::extract::{Json, Query};
use crate::page::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::service::Service;
use crate::tools::tree::MAX_PATCH_BYTES;

/// Every bound. Those of a run's policy are in the run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LimitsTold {
    /// Bounds of requests.
    requests: RequestLimits,
    /// Bounds of paths and of what tools tell.
    tools: ToolLimits,
    /// What one call may use up where the policy says nothing else.
    default_budget: Budget,
}

/// Bounds of requests.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestLimits {
    /// The largest body of a call.
    max_body_bytes: u64,
    /// The largest archive that a run is made from.
    max_archive_bytes: u64,
    /// How long a reading call may take.
    request_timeout_seconds: u64,
    /// How long a body may take to come in.
    body_timeout_seconds: u64,
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

/// Bounds of paths and of what tools tell.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolLimits {
    max_path_bytes: usize,
    max_reason_characters: u32,
    max_tool_call_id_characters: u32,
    list_dir_max_depth: u32,
    list_dir_max_entries: u32,
    read_file_max_lines: u32,
    read_file_max_content_bytes: u32,
    read_files_max_paths: u32,
    find_files_max_results: u32,
    search_text_max_matches: u32,
    search_text_max_context_lines: u32,
    /// A ranged `read_file` and `search_text` take files up to so many times `maxFileBytes`.
    ranged_read_factor: u32,
    diff_workspace_max_bytes: u32,
    max_patch_bytes: usize,
}

/// Lists every bound.
///
/// Those of a run's policy, such as `maxFileBytes` and the budgets, are told by the run.
#[utoipa::path(
    get, path = "/v1/limits", tag = "tools", operation_id = "getLimits",
    responses((status = 200, description = "Every bound.", body = LimitsTold)),
)]
pub(super) async fn get_limits(
    State(service): State<Service>,
    _user: ToolUser,
    Query(()): Query<()>,
) -> Json<LimitsTold> {
    let limits = &service.0.limits;
    Json(LimitsTold {
        requests: RequestLimits {
            max_body_bytes: limits.max_body_bytes,
            max_archive_bytes: limits.max_archive_bytes,
            request_timeout_seconds: limits.request_timeout.as_secs(),
            body_timeout_seconds: limits.body_timeout.as_secs(),
            token_concurrency: limits.token_concurrency,
            rate_per_second: limits.rate.map(|(rate, _)| rate),
            rate_burst: limits.rate.map(|(_, burst)| burst),
            page_default: DEFAULT_LIMIT,
            page_max: MAX_LIMIT,
            max_wait_seconds: crate::audit::MAX_WAIT_SECONDS,
            max_batch_calls: MAX_CALLS,
        },
        tools: ToolLimits {
            max_path_bytes: MAX_PATH_BYTES,
            max_reason_characters: 2000,
            max_tool_call_id_characters: 128,
            list_dir_max_depth: 20,
            list_dir_max_entries: 10_000,
            read_file_max_lines: 1000,
            read_file_max_content_bytes: 64 * 1024,
            read_files_max_paths: 50,
            find_files_max_results: 10_000,
            search_text_max_matches: 1000,
            search_text_max_context_lines: 3,
            ranged_read_factor: 16,
            diff_workspace_max_bytes: 1024 * 1024,
            max_patch_bytes: MAX_PATCH_BYTES,
        },
        default_budget: Budget::default(),
    })
}
