//! What needs no token: health, numbers, the document of this API.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::http::extract::Json;
use crate::http::openapi;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;
use crate::telemetry;

/// What the pages of `/docs` may load: what this service serves, nothing else. Swagger UI styles its elements in place.
const PAGES_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                            connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// That all is well.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// Always true.
    #[schema(example = true)]
    ok: bool,
}

/// Tells that the process lives.
#[utoipa::path(
    get, path = "/healthz", tag = "open", operation_id = "getHealth", security(()),
    responses((status = 200, description = "It does.", body = Health)),
)]
pub(super) async fn healthz() -> Json<Health> {
    Json(Health { ok: true })
}

/// Tells whether the service can take calls.
///
/// It can when its database answers and it is not about to end.
#[utoipa::path(
    get, path = "/readyz", tag = "open", operation_id = "getReadiness", security(()),
    responses(
        (status = 200, description = "It can.", body = Health),
        (status = 503, description = "`UNAVAILABLE`: it cannot now.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn readyz(State(service): State<Service>) -> Result<Json<Health>, Problem> {
    service.ready().await?;
    Ok(Json(Health { ok: true }))
}

/// Tells the service's numbers.
///
/// In Prometheus' text form.
#[utoipa::path(
    get, path = "/metrics", tag = "open", operation_id = "getMetrics", security(()),
    responses((status = 200, description = "The numbers.", body = String, content_type = "text/plain")),
)]
pub(super) async fn metrics(State(service): State<Service>) -> Response {
    service.tell_holdings();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], telemetry::numbers()).into_response()
}

/// Tells this document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "open", operation_id = "getOpenapi", security(()),
    responses((status = 200, description = "The OpenAPI document.", body = serde_json::Value)),
)]
pub(super) async fn openapi_json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi::text()).into_response()
}

/// The document for people, whole without the internet.
pub(super) fn docs() -> Router<Service> {
    let pages = SwaggerUi::new("/docs").config(Config::from("/openapi.json").validator_url("none"));
    Router::from(pages).layer(map_response(async |mut response: Response| {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGES_POLICY));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        response
    }))
}
