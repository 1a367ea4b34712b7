//! Routes that need no token: health, metrics, and the pages of the API document.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tower::ServiceBuilder;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::http::auth::MetricsReader;
use crate::http::extract::Json;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;
use crate::telemetry;

/// Content policy of the pages under `/docs`: only resources of this service. Swagger UI uses inline styles.
const PAGES_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                            connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The service is healthy.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// Always true.
    #[schema(example = true)]
    ok: bool,
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
/// The service is ready if its database answers and it is not shutting down.
#[utoipa::path(
    get, path = "/readyz", tag = "open", operation_id = "getReadiness", security(()),
    responses(
        (status = 200, description = "The service is ready.", body = Health),
        (status = 503, description = "`UNAVAILABLE`: the service is not ready.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn readyz(State(service): State<Service>) -> Result<Json<Health>, Problem> {
    service.check_ready().await?;
    Ok(Json(Health { ok: true }))
}

/// Get the metrics of the service
///
/// In Prometheus text format. If the service is configured to protect them, an operator token is required.
#[utoipa::path(
    get, path = "/metrics", tag = "open", operation_id = "getMetrics", security((), ("bearer" = [])),
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain")),
)]
pub(crate) async fn metrics(State(service): State<Service>, _reader: MetricsReader) -> Response {
    service.record_gauges();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], telemetry::render_metrics()).into_response()
}

/// Returns the routes that show the API document as pages, which load nothing from elsewhere.
pub(crate) fn docs() -> Router<Service> {
    let pages = SwaggerUi::new("/docs").config(Config::from("/openapi.json").validator_url("none"));
    let set = |name: HeaderName, value| SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value));
    Router::from(pages).layer(
        ServiceBuilder::new()
            .layer(set(header::CONTENT_SECURITY_POLICY, PAGES_POLICY))
            .layer(set(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .layer(set(header::REFERRER_POLICY, "no-referrer")),
    )
}
