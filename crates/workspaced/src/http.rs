//! HTTP: every route on one page, and the layers around all of them.

mod approvals;
mod audit;
mod auth;
mod changesets;
mod commands;
mod comments;
pub(crate) mod conventions;
mod dashboard;
mod events;
mod extract;
mod files;
mod formats;
mod health;
mod limits;
pub(crate) mod mcp;
mod middleware;
mod oauth;
mod openapi;
mod operators;
mod problem;
mod runs;
pub(crate) mod serve;
mod sign_in;
mod token_body;
mod tools;
mod transfer;

use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{any, post};
use bytes::Bytes;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::trace::TraceLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::command_line::OpenApiVersion;
use crate::http::conventions::{compression, cors, request_ids};
use crate::http::extract::json_text;
use crate::http::middleware::forward::take_hop;
use crate::http::problem::Problem;
use crate::service::Service;

/// Whether the listener of the API serves the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsRoute {
    /// It does.
    Included,
    /// They have a listener of their own.
    Separate,
}

/// Returns every documented route.
fn routes() -> OpenApiRouter<Service> {
    routes_without_metrics().routes(routes!(health::metrics))
}

/// Returns the routes that are not for metrics alone. [`openapi`] documents the route of the tools, from their catalogue.
#[expect(clippy::too_many_lines, reason = "a table of all routes")]
fn routes_without_metrics() -> OpenApiRouter<Service> {
    OpenApiRouter::default()
        .routes(routes!(runs::create_run, runs::list_runs))
        .routes(routes!(runs::get_run, runs::update_run, runs::delete_run))
        .routes(routes!(runs::close_run))
        .routes(routes!(runs::stop_run))
        .routes(routes!(runs::forks::merge_run))
        .routes(routes!(runs::forks::compare_runs))
        .routes(routes!(runs::archive::put_archive, runs::exports::get_archive))
        .routes(routes!(runs::exports::get_patch))
        .routes(routes!(runs::exports::get_bundle))
        .routes(routes!(runs::issue_token, runs::list_tokens))
        .routes(routes!(runs::get_usage))
        .routes(routes!(runs::revoke_token))
        .routes(routes!(operators::create_operator, operators::list_operators))
        .routes(routes!(operators::get_operator, operators::revoke_operator))
        .routes(routes!(operators::rotate_operator_token))
        .routes(routes!(health::nodes::list_nodes))
        .routes(routes!(operators::webhooks::list_webhooks))
        .routes(routes!(operators::webhooks::list_deliveries))
        .routes(routes!(operators::webhooks::redeliver))
        .routes(routes!(approvals::list_approvals))
        .routes(routes!(approvals::get_approval))
        .routes(routes!(approvals::read_approval_file))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::deny))
        .routes(routes!(audit::list_audit))
        .routes(routes!(audit::stream_audit))
        .routes(routes!(audit::export::export_audit))
        .routes(routes!(audit::stats::get_stats))
        .routes(routes!(audit::list_run_audit))
        .routes(routes!(audit::verify_run))
        .routes(routes!(audit::get_tool_call))
        .routes(routes!(audit::artifacts::get_artifact))
        .routes(routes!(audit::changes::list_changes))
        .routes(routes!(audit::report::get_report))
        .routes(routes!(audit::checkpoints::get_checkpoint))
        .routes(routes!(audit::checkpoints::get_checkpoint_key))
        .routes(routes!(audit::checkpoints::get_checkpoint_key_changes))
        .routes(routes!(audit::checkpoints::prove_consistency))
        .routes(routes!(audit::checkpoints::prove_inclusion))
        .routes(routes!(changesets::apply_changeset))
        .routes(routes!(commands::next_command))
        .routes(routes!(commands::report_command))
        .routes(routes!(comments::comment))
        .routes(routes!(events::append_event))
        .routes(routes!(events::append_events))
        .routes(routes!(events::uploads::put_upload, events::uploads::get_upload))
        .routes(routes!(tools::list_tools))
        .route(tools::PATH, post(tools::call_tool))
        .routes(routes!(formats::call_in_format))
        .route(mcp::PATH, any(mcp::handle))
        .routes(routes!(tools::batch::batch))
        .routes(routes!(tools::explain::explain_policy))
        .routes(routes!(limits::get_limits))
        .routes(routes!(files::get_file, files::put_file, files::delete_file))
        .routes(routes!(files::drift::get_drift, files::drift::settle_drift))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(oauth::get_resource_metadata))
        .routes(routes!(oauth::get_mcp_resource_metadata))
        .routes(routes!(problem::pages::list_problems))
        .routes(routes!(problem::pages::get_problem))
        .routes(routes!(get_openapi))
}

/// Returns the router of the whole service. Scripts on pages of the configured origins may call it.
pub(crate) fn router(service: Service, metrics: MetricsRoute) -> Router {
    let cors_origins = service.state.access.cors_origins.clone();
    let documented = match metrics {
        MetricsRoute::Included => routes(),
        MetricsRoute::Separate => routes_without_metrics(),
    };
    let (api, _document) = documented.split_for_parts();
    let pages = dashboard::routes().merge(sign_in::routes());
    let node = service.state.node.clone();
    let mut router = around(api, pages, service);
    if let Some(membership) = node {
        // Around the whole router, which has found the route before any of its layers runs.
        router = Router::new().fallback_service(router).layer(from_fn_with_state(membership, take_hop));
    }
    if cors_origins.is_empty() {
        return router;
    }
    // Preflight requests do not reach the routes.
    router.layer(cors::layer(cors_origins)).layer(from_fn(request_ids::ensure))
}

/// Returns the router of the listener for metrics: they and the state of the service, nothing else.
pub(crate) fn metrics_router(service: Service) -> Router {
    let routes = OpenApiRouter::default()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics));
    let (api, _document) = routes.split_for_parts();
    around(api, Router::new(), service)
}

/// Puts what happens around every request around `api` and `pages`.
fn around(api: Router<Service>, pages: Router<Service>, service: Service) -> Router {
    // Applied as one layer, since each layer of a router boxes the future of every request.
    let around_all = ServiceBuilder::new()
        .map_request(request_ids::identify)
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(middleware::request_span)
                .on_request(())
                .on_response(middleware::log_response)
                .on_body_chunk(())
                .on_eos(())
                .on_failure(()),
        )
        .map_response(compression::weaken_etag)
        .layer(compression::layer())
        .layer(from_fn_with_state(service.clone(), middleware::answer))
        .layer(CatchPanicLayer::custom(middleware::panic_response));
    let around_api = ServiceBuilder::new()
        .layer(SetResponseHeaderLayer::overriding(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")))
        .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .layer(around_all.clone());
    let mut api = api.fallback(async || Problem::no_route()).method_not_allowed_fallback(async || Problem::no_method());
    // A service that is the only one does not look up who owns a run.
    if service.state.node.is_some() {
        api = api.layer(from_fn_with_state(service.clone(), middleware::routing::route));
    }
    api.layer(around_api).merge(pages.layer(around_all)).with_state(service)
}

/// Returns the OpenAPI document of a version, indented.
pub(crate) fn openapi_text(version: OpenApiVersion) -> String {
    let document = openapi::document(routes().into_openapi());
    let document = match version {
        OpenApiVersion::V3_1 => document,
        OpenApiVersion::V3_0 => openapi::to_version_3_0(document),
    };
    // A JSON value always serialises.
    serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
}

/// Get this document
#[utoipa::path(
    get, path = "/openapi.json", tag = "open", operation_id = "getOpenApiDocument", security(()),
    responses((status = 200, description = "The OpenAPI document.", body = serde_json::Value)),
)]
async fn get_openapi() -> impl IntoResponse {
    // Built on first use and shared by all responses, since the route needs no token.
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| openapi::document(routes().into_openapi()).to_string().into());
    json_text(TEXT.clone())
}
