//! The transport: routes, who may call them, and how answers look on the wire.

mod approvals;
mod archive;
mod artifacts;
mod audit;
pub(crate) mod auth;
mod batch;
mod changes;
mod checkpoints;
pub(crate) mod extract;
mod files;
mod limits;
mod open;
pub(crate) mod openapi;
mod pace;
mod policy;
pub(crate) mod problem;
pub(crate) mod request;
mod runs;
pub(crate) mod serve;
mod streams;
mod tools;
mod tree;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::problem::Problem;
use crate::service::Service;

/// Every documented route. Those of the tools are documented from their catalogue, in [`openapi`].
fn routes() -> OpenApiRouter<Service> {
    OpenApiRouter::default()
        .routes(routes!(runs::create_run, runs::list_runs))
        .routes(routes!(runs::get_run, runs::delete_run))
        .routes(routes!(runs::close_run))
        .routes(routes!(archive::put_archive, archive::get_archive))
        .routes(routes!(runs::issue_token))
        .routes(routes!(runs::revoke_token))
        .routes(routes!(approvals::list_approvals))
        .routes(routes!(approvals::get_approval))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::deny))
        .routes(routes!(audit::list_audit))
        .routes(routes!(audit::stream_audit))
        .routes(routes!(checkpoints::get_checkpoint))
        .routes(routes!(checkpoints::get_checkpoint_key))
        .routes(routes!(checkpoints::prove_consistency))
        .routes(routes!(tools::list_tools))
        .routes(routes!(limits::get_limits))
        .route(TOOL_PATH, post(tools::call_tool))
        .routes(routes!(batch::batch))
        .routes(routes!(policy::explain_policy))
        .routes(routes!(audit::get_tool_call))
        .routes(routes!(audit::list_run_audit))
        .routes(routes!(audit::verify_run))
        .routes(routes!(checkpoints::prove_inclusion))
        .routes(routes!(changes::list_changes))
        .routes(routes!(artifacts::get_artifact))
        .routes(routes!(archive::get_patch))
        .routes(routes!(archive::get_bundle))
        .routes(routes!(tree::get_drift))
        .routes(routes!(files::get_file, files::put_file, files::delete_file))
        .routes(routes!(open::healthz))
        .routes(routes!(open::readyz))
        .routes(routes!(open::metrics))
        .routes(routes!(open::openapi_json))
}

/// The one route of all tools.
pub(crate) const TOOL_PATH: &str = "/v1/runs/{run}/tools/{tool}";

/// The whole service behind HTTP.
pub(crate) fn router(service: Service) -> Router {
    let (router, _document) = routes().split_for_parts();
    router
        .merge(open::docs())
        .fallback(async || Problem::no_route())
        .method_not_allowed_fallback(async || Problem::no_method())
        .layer(from_fn_with_state(service.clone(), request::answer))
        .with_state(service)
}
