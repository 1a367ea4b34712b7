//! The list of the nodes that share the database.

use axum::extract::State;
use engine::{Page, clock};
use serde::Serialize;

use crate::http::auth::Auditor;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;
use cluster::nodes::KnownNode;

/// A node.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeView {
    /// The name of the node.
    #[schema(example = "node-4f1d09aa")]
    node_id: String,
    /// Which of the processes that have joined under this name it is, counted from 1.
    #[schema(example = 3)]
    incarnation: u64,
    /// Where other nodes reach it.
    #[schema(example = "http://10.0.0.7:8080")]
    url: String,
    /// When its process joined.
    started_at: String,
    /// Whether it has given a sign of life within the last ten seconds, and has not ended.
    is_alive: bool,
    /// Whether it has answered this request.
    is_this: bool,
    /// How many runs it owns, closed ones included.
    owned_runs: u64,
}

/// List the nodes
///
/// The services that share the database, by name, also those that have ended: until a day after if they own no run. A service that is the
/// only one has none. The list has one page.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "operators", operation_id = "listNodes",
    responses((status = 200, description = "The nodes.", body = Page<NodeView>)),
)]
pub(crate) async fn list_nodes(
    State(service): State<Service>,
    _auditor: Auditor,
    Query(()): Query<()>,
) -> Result<Json<Page<NodeView>>, Problem> {
    let view = |known: KnownNode| NodeView {
        node_id: known.node_id,
        incarnation: known.incarnation,
        url: known.url,
        started_at: clock::time_at(known.started_at_ms),
        is_alive: known.is_alive,
        is_this: known.is_this,
        owned_runs: known.owned_runs,
    };
    let nodes = service.nodes().await?;
    Ok(Json(Page { items: nodes.into_iter().map(view).collect(), next_cursor: None }))
}
