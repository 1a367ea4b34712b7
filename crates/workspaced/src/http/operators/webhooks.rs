//! Routes of webhooks.

use axum::extract::State;
use axum::http::StatusCode;
use engine::page::conditions::OrderQuery;
use engine::page::{Cursor, List, Page, Paging};
use engine::{CallError, clock};
use model::{Code, Refusal, WebhookDelivery, WebhookEvent};
use serde::Serialize;

use crate::http::auth::Orchestrator;
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::Problem;
use crate::service::Service;
use crate::webhooks::WebhookSender;

/// Whether messages are sent.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WebhookState {
    /// Messages are sent.
    Active,
    /// The receiver has answered 410. Nothing is sent until the next start of the service, or until a message is redelivered.
    Disabled,
}

/// A configured webhook.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookView {
    /// The name.
    #[schema(example = "chat")]
    name: String,
    /// The scheme, host and port of the URL. The rest may have a secret.
    #[schema(example = "https://hooks.example.org")]
    url: String,
    /// The events that it receives.
    events: Vec<WebhookEvent>,
    /// Whether messages are sent.
    state: WebhookState,
    /// The number of messages that were not accepted yet.
    pending: u64,
}

/// List webhooks
///
/// Those of the configuration, in its order. The list has one page.
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "webhooks", operation_id = "listWebhooks",
    responses((status = 200, description = "The webhooks.", body = Page<WebhookView>)),
)]
pub(crate) async fn list_webhooks(
    State(service): State<Service>,
    _operator: Orchestrator,
    Query(()): Query<()>,
) -> Result<Json<Page<WebhookView>>, Problem> {
    let pending = service.ledger.pending_deliveries().await.map_err(CallError::from)?;
    let view = |webhook: &WebhookSender| {
        let config = webhook.config();
        let count = pending.iter().find(|(name, _)| *name == config.name).map_or(0, |(_, count)| *count);
        WebhookView {
            name: config.name.clone(),
            url: config.url.origin().ascii_serialization(),
            events: config.events.clone(),
            state: if webhook.is_gone() { WebhookState::Disabled } else { WebhookState::Active },
            pending: count,
        }
    };
    Ok(Json(Page { items: service.state.webhooks.iter().map(view).collect(), next_cursor: None }))
}

/// List the deliveries of a webhook
///
/// In the order in which the messages were created, or the newest first. Deliveries that have ended are kept for 7 days, and
/// at most the newest 10,000.
#[utoipa::path(
    get, path = "/v1/webhooks/{name}/deliveries", tag = "webhooks", operation_id = "listDeliveries",
    params(("name" = String, Path, description = "The webhook's name.", example = "chat"), OrderQuery, Paging),
    responses((status = 200, description = "One page of deliveries.", body = Page<WebhookDelivery>)),
)]
pub(crate) async fn list_deliveries(
    State(service): State<Service>,
    _operator: Orchestrator,
    Path(name): Path<String>,
    Query((order, paging)): Query<(OrderQuery, Paging)>,
) -> Result<Json<Page<WebhookDelivery>>, Problem> {
    known(&service, &name)?;
    let newest_first = order.is_newest_first();
    let list = List::Deliveries(&name).filtered(&newest_first);
    let (limit, after) = paging.check(&list)?;
    let after = after.map(Cursor::position);
    let found = service.ledger.deliveries(&name, newest_first, after, limit.into()).await;
    Ok(Json(Page::of(found.map_err(CallError::from)?, &list)))
}

/// Send a message again
///
/// The message keeps its ID, so that a receiver that knows it can ignore it. It is sent soon, and again after failures as a new
/// message is. A webhook that was disabled by an answer of 410 is active again, until another 410.
#[utoipa::path(
    post, path = "/v1/webhooks/{name}/deliveries/{id}/redeliver", tag = "webhooks", operation_id = "redeliver",
    params(
        ("name" = String, Path, description = "The webhook's name.", example = "chat"),
        ("id" = String, Path, description = "The ID of the message.", example = "msg_3f9a0c7e1d4826bf05a9c83d71e64f5b"),
    ),
    responses((status = 202, description = "The delivery, which is pending now.", body = WebhookDelivery)),
)]
pub(crate) async fn redeliver(
    State(service): State<Service>,
    _operator: Orchestrator,
    Path((name, id)): Path<(String, String)>,
    Query(()): Query<()>,
) -> Result<(StatusCode, Json<WebhookDelivery>), Problem> {
    let webhook = known(&service, &name)?;
    // A database refuses a text with NUL, and no ID is this long.
    let is_id = id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let found = if is_id { service.ledger.redeliver(&name, &id, &clock::now()).await } else { Ok(None) };
    let found = found.map_err(CallError::from)?.ok_or_else(|| {
        let hint = "List them with GET /v1/webhooks/{name}/deliveries.";
        Refusal::new(Code::NotFound, "the webhook has no delivery with this ID", hint)
    })?;
    webhook.redeliver();
    Ok((StatusCode::ACCEPTED, Json(found)))
}

fn known<'a>(service: &'a Service, name: &str) -> Result<&'a WebhookSender, Refusal> {
    service.state.webhooks.get(name).ok_or_else(|| {
        let hint = "List them with GET /v1/webhooks. They are set in the configuration of the service.";
        Refusal::new(Code::NotFound, "there is no webhook of this name", hint)
    })
}
