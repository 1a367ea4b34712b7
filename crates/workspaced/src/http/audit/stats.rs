//! Route of counts of records.

use axum::extract::State;
use engine::audit::{AuditStats, FilterByRun, StatsQuery};

use crate::http::auth::Auditor;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// Count records
///
/// Exact counts by run, outcome, reason and hour, computed by the database over all records of the time, whatever their number. The
/// records of an archived run are in its archive, and are not counted.
#[utoipa::path(
    get, path = "/v1/stats", tag = "audit", operation_id = "getStats", params(FilterByRun, StatsQuery),
    responses((status = 200, description = "The counts.", body = AuditStats)),
)]
pub(crate) async fn get_stats(
    State(service): State<Service>,
    _auditor: Auditor,
    Query((run, query)): Query<(FilterByRun, StatsQuery)>,
) -> Result<Json<AuditStats>, Problem> {
    Ok(Json(service.audit.stats(query.to_ledger(&run)?).await?))
}
