//! `webhook`: list webhooks and their deliveries, and send a message again.

use futures_util::TryStreamExt as _;
use workspaced_client::{Client, DeliveryState, WebhookDelivery, WebhookState};

use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `webhook`.
#[derive(Debug, clap::Args)]
pub struct WebhookArgs {
    #[command(subcommand)]
    action: WebhookAction,
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, clap::Subcommand)]
enum WebhookAction {
    /// List the webhooks of the service's configuration.
    List,
    /// List the deliveries of a webhook, the newest first.
    Deliveries {
        /// Webhook.
        #[arg(value_name = "WEBHOOK")]
        webhook: String,
        /// Only deliveries in this state: `pending`, `delivered` or `failed`.
        #[arg(long, value_parser = parse_state)]
        state: Option<DeliveryState>,
        /// Maximum deliveries.
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Send a message to a webhook again, with the same ID.
    Redeliver {
        /// Webhook.
        #[arg(value_name = "WEBHOOK")]
        webhook: String,
        /// Message, as in the list of deliveries.
        #[arg(value_name = "MESSAGE")]
        message: String,
    },
}

/// Runs `webhook`.
pub(super) async fn run(args: WebhookArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    match args.action {
        WebhookAction::List => list(&client, output).await,
        WebhookAction::Deliveries { webhook, state, limit } => {
            deliveries(&client, output, &webhook, state, limit).await
        }
        WebhookAction::Redeliver { webhook, message } => {
            let delivery = client.redeliver(&webhook, &message).await?;
            if output.is_json {
                output.json(&delivery)?;
            } else {
                output.table(&DELIVERY_TITLES, &[row_of(delivery)])?;
            }
            Ok(())
        }
    }
}

async fn list(client: &Client, output: Output) -> Result<(), CliError> {
    let mut webhooks = std::pin::pin!(client.webhooks());
    let mut rows = Vec::new();
    while let Some(webhook) = webhooks.try_next().await? {
        if output.is_json {
            output.json(&webhook)?;
            continue;
        }
        let state = match webhook.state {
            WebhookState::Active => "active",
            WebhookState::Disabled => "disabled",
        };
        let events: Vec<_> = webhook.events.iter().map(|event| event.as_str()).collect();
        rows.push(vec![webhook.name, state.to_owned(), webhook.pending.to_string(), webhook.url, events.join(" ")]);
    }
    if !output.is_json {
        output.table(&["WEBHOOK", "STATE", "PENDING", "URL", "EVENTS"], &rows)?;
    }
    Ok(())
}

async fn deliveries(
    client: &Client,
    output: Output,
    webhook: &str,
    state: Option<DeliveryState>,
    limit: usize,
) -> Result<(), CliError> {
    let mut deliveries = std::pin::pin!(client.deliveries(webhook, true));
    let (mut rows, mut found) = (Vec::new(), 0);
    while found < limit
        && let Some(delivery) = deliveries.try_next().await?
    {
        if state.is_some_and(|state| state != delivery.state) {
            continue;
        }
        found += 1;
        if output.is_json {
            output.json(&delivery)?;
        } else {
            rows.push(row_of(delivery));
        }
    }
    if !output.is_json {
        output.table(&DELIVERY_TITLES, &rows)?;
    }
    Ok(())
}

const DELIVERY_TITLES: [&str; 8] = ["MESSAGE", "EVENT", "RUN", "STATE", "ATTEMPTS", "STATUS", "CREATED", "ERROR"];

fn row_of(delivery: WebhookDelivery) -> Vec<String> {
    vec![
        delivery.id,
        delivery.event.as_str().to_owned(),
        delivery.run_id.map(|run| run.to_string()).unwrap_or_default(),
        delivery.state.as_str().to_owned(),
        delivery.attempts.to_string(),
        delivery.last_status.map(|status| status.to_string()).unwrap_or_default(),
        delivery.created_at,
        delivery.last_error.unwrap_or_default(),
    ]
}

fn parse_state(raw: &str) -> Result<DeliveryState, String> {
    let found = DeliveryState::ALL.into_iter().find(|state| state.as_str() == raw);
    found.ok_or_else(|| "no such state".to_owned())
}
