//! A whole run as a diff, and what differs from what its ledger says.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use model::RunId;
use serde_json::Map;

use crate::calls::Head;
use crate::http::auth::RunCaller;
use crate::http::extract::Query;
use crate::http::problem::Problem;
use crate::service::Service;
use crate::tools::tree::{Drift, PATCH};

/// Sends everything that differs from the base.
///
/// As one unified diff on the base commit; secret-like and ignored files are left out. Needs the permission `file:diff`,
/// and is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/patch", tag = "files", operation_id = "getPatch", params(("run" = RunId, Path)),
    responses((status = 200, description = "The diff.", body = String, content_type = "text/x-diff",
        example = json!("diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n"))),
)]
pub(super) async fn get_patch(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    let (head, members) = Head::of(&run, caller, &PATCH, Map::new());
    let (told, _) = service.read_call(head, members).await?;
    Ok(([(header::CONTENT_TYPE, "text/x-diff")], told.output).into_response())
}

/// Tells what differs from what the ledger says.
///
/// What no call of the run has done: every file is compared with the last version that the run's audit tells of it, and
/// with the base where it tells of none. Needs the permission `file:diff`, and is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/drift", tag = "files", operation_id = "getDrift", params(("run" = RunId, Path)),
    responses((status = 200, description = "What differs; nothing where all is as it should be.", body = Drift)),
)]
pub(super) async fn get_drift(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    let drift = service.drift(&run, caller).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], drift).into_response())
}
