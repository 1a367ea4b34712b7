//! The route of artifacts: the diffs of mutations.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use engine::forbidden;
use model::{ArtifactId, Permission, RunId};

use crate::http::auth::RunAuditor;
use crate::http::extract::{Path, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// Get the diff of a mutation
///
/// A run token requires `file:read` as well as `audit:read`, since a diff contains file content.
#[utoipa::path(
    get, path = "/v1/runs/{run}/artifacts/{artifactId}", tag = "audit", operation_id = "getArtifact",
    params(("run" = RunId, Path), ("artifactId" = ArtifactId, Path)),
    responses((status = 200, description = "The diff.", body = String, content_type = "text/x-diff",
        example = json!("--- a/src/main.rs\n+++ b/src/main.rs\n@@ -1 +1 @@\n-old\n+new\n"))),
)]
pub(crate) async fn get_artifact(
    State(service): State<Service>,
    RunAuditor { run, may_read, .. }: RunAuditor,
    Path((_run, id)): Path<(String, ArtifactId)>,
    Query(()): Query<()>,
) -> Result<Response, Problem> {
    if !may_read {
        return Err(forbidden(&[Permission::FileRead]).into());
    }
    let diff = service.runs.artifact(&run, &id).await?;
    Ok(([(header::CONTENT_TYPE, "text/x-diff")], diff).into_response())
}
