//! The export of every record that matches a filter, as a file for other programs.

mod formats;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use engine::audit::{FilterByRun, Filters};
use engine::{CreatedQuery, LabelQuery, OrderQuery};
use futures_util::{Stream as _, StreamExt as _, stream};
use serde::Deserialize;
use shared_pool::Parties;

use crate::http::auth::Reviewer;
use crate::http::extract::Query;
use crate::http::problem::Problem;
use crate::service::Service;

/// The form of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AuditFormat {
    /// One record a line, as the JSON that was hashed.
    #[default]
    Ndjson,
    /// One record a line, with column heads, as of RFC 4180.
    Csv,
    /// One event of OCSF 1.3 a line: class 6003, API Activity. `raw_data` is the record.
    Ocsf,
}

impl AuditFormat {
    fn media_type(self) -> (&'static str, &'static str) {
        match self {
            Self::Ndjson => ("application/x-ndjson", "attachment; filename=\"audit.ndjson\""),
            Self::Csv => ("text/csv; charset=utf-8; header=present", "attachment; filename=\"audit.csv\""),
            Self::Ocsf => ("application/x-ndjson", "attachment; filename=\"audit-ocsf.ndjson\""),
        }
    }
}

/// How to export.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportQuery {
    /// The form. Default: `ndjson`.
    #[param(inline)]
    format: Option<AuditFormat>,
}

type ExportAuditQuery = (FilterByRun, Filters, CreatedQuery, LabelQuery, ExportQuery);

/// Export records
///
/// Every record that matches and was written before the request, in order, as a file. A client that does not receive the whole file sees its
/// connection fail. Cells of CSV that a spreadsheet would take as a formula begin with `'`. An export counts as a concurrent request of its
/// token, as streams do. An operator with the scope `approve` alone names a run.
#[utoipa::path(
    get, path = "/v1/audit/export", tag = "audit", operation_id = "exportAudit",
    params(FilterByRun, Filters, CreatedQuery, LabelQuery, ExportQuery),
    responses((status = 200, description = "The records.", content(
        (String = "application/x-ndjson", example = json!("{\"runId\":\"issue-4711\",\"seq\":1,…}\n")),
        (String = "text/csv", example = json!("timestamp,runId,seq,…\r\n")),
    ))),
)]
pub(crate) async fn export_audit(
    State(service): State<Service>,
    reviewer: Reviewer,
    Query((run, filters, created, labels, export)): Query<ExportAuditQuery>,
) -> Result<Response, Problem> {
    reviewer.check_may_list(run.run()?.as_ref())?;
    let filter = filters.to_ledger(run.run()?, &created, &labels, OrderQuery::default())?;
    service.audit.check_not_archived(filter.run.as_ref()).await?;
    let format = export.format.unwrap_or_default();
    let records = service.audit.records_so_far(filter);
    let state = (records, service.operators.open_stream(reviewer.permit)?);
    let head = formats::head(format).map(|head| Ok(Bytes::from(head)));
    let records = stream::unfold(state, async |(mut records, open)| {
        let record = records.next().await.transpose()?;
        Some((record, (records, open)))
    });
    // Its queries count for the caller, as those of the request do.
    let (parties, mut records) = (Parties::current(), Box::pin(records));
    let records = stream::poll_fn(move |context| parties.enter(|| records.as_mut().poll_next(context)));
    let lines = records.map(move |record| {
        let line = record.and_then(|record| formats::line(format, &record.text).map(Bytes::from));
        line.inspect_err(|error| {
            tracing::warn!(error = error as &dyn std::error::Error, "an export of records has failed");
        })
    });
    let body = Body::from_stream(stream::iter(head).chain(lines));
    let (media_type, disposition) = format.media_type();
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static(disposition)),
    ];
    Ok((headers, body).into_response())
}
