//! The route of a run's report.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use engine::audit::RunReport;
use model::RunId;
use serde::Deserialize;

use crate::http::auth::RunAuditor;
use crate::http::conventions::accept;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// The media type of Markdown.
const MARKDOWN: &str = "text/markdown; charset=utf-8";

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportFormat {
    /// JSON.
    Json,
    /// Markdown.
    Markdown,
}

/// Which form to return.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReportQuery {
    /// The form. Default: by the header `Accept`, or else JSON.
    #[param(inline)]
    format: Option<ReportFormat>,
    /// Whether to verify the run's chain. Without it the report has no `verification`, and that of a long run takes a third of the
    /// time.
    #[param(default = true)]
    verify: Option<bool>,
}

/// Get a run's report
///
/// For a person who reviews the run: what was read, written, refused and approved, by file, with commands and tests, the budget
/// used, the counts of the final diff, and how far the chain is verified. The run's audit has the order. As JSON of at most about 240 KiB,
/// or as Markdown of at most 60,000 bytes, which fits the body of a pull request. In Markdown, texts of callers are inline
/// code, so that nothing in them is interpreted. A report of a long run says what it leaves out.
#[utoipa::path(
    get, path = "/v1/runs/{run}/report", tag = "audit", operation_id = "getReport",
    params(("run" = RunId, Path), ReportQuery),
    responses((status = 200, description = "The report.", content(
        (RunReport = "application/json"),
        (String = "text/markdown", example = json!("# Run `issue-4711`\n\n- State: open\n")),
    ))),
)]
pub(crate) async fn get_report(
    State(service): State<Service>,
    RunAuditor { run, may_read, .. }: RunAuditor,
    Query((query,)): Query<(ReportQuery,)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (mut report, chain) = service.audit.report(&run, query.verify.unwrap_or(true)).await?;
    if let Some(chain) = chain {
        report.verification = Some(service.checkpoints().verify_leaves(chain).await?.summary());
    }
    if !may_read {
        report.withhold_outputs();
    }
    let format = query.format.unwrap_or(if accept::prefers(&headers, "text/markdown", accept::JSON) {
        ReportFormat::Markdown
    } else {
        ReportFormat::Json
    });
    let vary = [(header::VARY, "accept")];
    Ok(match format {
        ReportFormat::Json => (vary, Json(report)).into_response(),
        ReportFormat::Markdown => (vary, [(header::CONTENT_TYPE, MARKDOWN)], report.to_markdown()).into_response(),
    })
}
