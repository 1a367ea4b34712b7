//! The route of comments on a run.

use axum::extract::State;
use axum::http::StatusCode;
use engine::calls::{AppendedEvent, CommentRequest};
use model::RunId;

use crate::http::auth::Decider;
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Comment on a run
///
/// The comment is a record of the run's chain, whose `tool` is `event.comment`. Every agent of the run is told it once, at the beginning of its next
/// answer, as `notices` of JSON and as a line of text. `GET /v1/runs/{run}/audit?tool=event.comment` lists the comments. A comment
/// counts as an event in the run's quota.
#[utoipa::path(
    post, path = "/v1/runs/{run}/comments", tag = "events", operation_id = "commentOnRun", params(("run" = RunId, Path)),
    request_body = CommentRequest,
    responses(
        (status = 201, description = "The comment is recorded.", body = AppendedEvent),
        (status = 409, description = "`RUN_CLOSED`: nobody would be told.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 507, description = "`QUOTA_EXCEEDED`: the run has too many events.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn comment(
    State(service): State<Service>,
    reviewer: Decider,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    Json(request): Json<CommentRequest>,
) -> Result<(StatusCode, Json<AppendedEvent>), Problem> {
    let commented = service.calls.comment(&run, &reviewer.operator, &reviewer.caller(), request).await?;
    Ok((StatusCode::CREATED, Json(commented)))
}
