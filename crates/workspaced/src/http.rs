//! The transport: routes, who may call them, and how answers look on the wire.

pub(crate) mod auth;
pub(crate) mod extract;
mod files;
pub(crate) mod problem;
mod runs;
pub(crate) mod serve;
mod tools;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::problem::Problem;
use crate::service::Service;

/// Every route.
fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::new()
        .routes(routes!(runs::create_run))
        .routes(routes!(runs::get_run))
        .routes(routes!(tools::list_tools))
}

/// The whole service behind HTTP.
pub(crate) fn router(service: Service) -> Router {
    let (router, _openapi) = routes().split_for_parts();
    router
        .route("/v1/runs/{run}/tools/{tool}", axum::routing::post(tools::call_tool))
        .fallback(async || Problem::no_route())
        .method_not_allowed_fallback(async || Problem::no_method())
        .with_state(service)
}
