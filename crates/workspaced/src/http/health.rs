//! Routes that need no token: health and metrics.

pub(crate) mod nodes;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use engine::{CallError, set_permits};
use serde::Serialize;

use crate::http::auth::MetricsReader;
use crate::http::extract::Json;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;
use crate::telemetry;
use data_dir::DiskProbe;

/// The service is healthy.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// Always true.
    #[schema(example = true)]
    ok: bool,
}

/// The service accepts calls.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Readiness {
    /// Always true.
    #[schema(example = true)]
    ok: bool,
    /// What an operator should attend to while calls are served. Absent if there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    degraded: Vec<Degradation>,
}

/// A part of the service that needs an operator.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Degradation {
    /// `signing` or `disk`.
    #[schema(example = "disk")]
    what: &'static str,
    /// What is wrong.
    #[schema(example = "the free space of the data folder's disk is below the reserve")]
    detail: &'static str,
    /// What to do.
    #[schema(example = "Delete runs that are no longer needed, or enlarge the disk.")]
    hint: &'static str,
}

/// Check that the process is alive
#[utoipa::path(
    get, path = "/healthz", tag = "open", operation_id = "getHealth", security(()),
    responses((status = 200, description = "The process is alive.", body = Health)),
)]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { ok: true })
}

/// Check that the service can take calls
///
/// The service is ready if its database answers, changes can be written to its disks, and it is not shutting down. `degraded` names what needs an operator while
/// calls are served: no more checkpoints are signed, or the disk is nearly full.
#[utoipa::path(
    get, path = "/readyz", tag = "open", operation_id = "getReadiness", security(()),
    responses(
        (status = 200, description = "The service is ready.", body = Readiness),
        (status = 503, description = "`UNAVAILABLE`: the service is not ready.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn readyz(State(service): State<Service>) -> Result<Json<Readiness>, Problem> {
    service.runs.check_ready().await?;
    let measure = |disk: &DiskProbe| match disk.unwritable() {
        Some(refusal) => Err(CallError::Refused(refusal)),
        None => disk.measure().map_err(|error| CallError::Internal(error.into())),
    };
    let space = service.on_disk(measure).await?;
    let is_disk_low = space.free < space.reserve();
    let signing = service.checkpoints().is_halted().then_some(Degradation {
        what: "signing",
        detail: "no more checkpoints are signed: the database contradicts what was signed",
        hint: "Run `workspaced verify`, which reports what is wrong.",
    });
    let disk = is_disk_low.then_some(Degradation {
        what: "disk",
        detail: "the free space of the data folder's disk is below the reserve",
        hint: "Delete runs that are no longer needed, or enlarge the disk.",
    });
    Ok(Json(Readiness { ok: true, degraded: signing.into_iter().chain(disk).collect() }))
}

/// Get the metrics of the service
///
/// In Prometheus text format. If the service is configured to protect them, an operator token is required. If it is configured to
/// serve them on an address of their own, this path exists only on that one.
#[utoipa::path(
    get, path = "/metrics", tag = "open", operation_id = "getMetrics", security((), ("bearer" = [])),
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain")),
)]
pub(crate) async fn metrics(State(service): State<Service>, _reader: MetricsReader) -> Response {
    service.runs.record_gauges();
    telemetry::process::record();
    for pool in service.state.pools() {
        set_permits(pool);
    }
    telemetry::set_signing_stopped(service.checkpoints().is_halted());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], telemetry::render_metrics()).into_response()
}
