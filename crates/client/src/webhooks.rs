//! Webhooks and their deliveries.

use async_recursion::async_recursion as boxed;
use futures_util::Stream;
use model::{WebhookDelivery, WebhookEvent};
use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::problem::Error;
use crate::transport::Client;

/// Whether messages are sent to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookState {
    /// Messages are sent.
    Active,
    /// The receiver has answered 410. Nothing is sent until the next start of the service.
    Disabled,
}

/// A webhook of the service's configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// The name.
    pub name: String,
    /// The URL, without user, password and query.
    pub url: String,
    /// The events that it receives.
    pub events: Vec<WebhookEvent>,
    /// Whether messages are sent.
    pub state: WebhookState,
    /// The number of messages that were not accepted yet.
    pub pending: u64,
}

impl Client {
    /// Lists webhooks, in the order of the configuration.
    pub fn webhooks(&self) -> impl Stream<Item = Result<Webhook, Error>> + use<> {
        self.pages(vec!["v1".to_owned(), "webhooks".to_owned()], Vec::new())
    }

    /// Lists the deliveries of a webhook in the order in which their messages were created, or the newest first.
    pub fn deliveries(
        &self,
        webhook: &str,
        newest_first: bool,
    ) -> impl Stream<Item = Result<WebhookDelivery, Error>> + use<> {
        let order = newest_first.then(|| "desc".to_owned());
        self.pages(["v1", "webhooks", webhook, "deliveries"].map(str::to_owned).to_vec(), vec![("order", order)])
    }

    /// Sends a message again, with the same ID. Returns the delivery, which is pending.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn redeliver(&self, webhook: &str, message: &str) -> Result<WebhookDelivery, Error> {
        let path = ["v1", "webhooks", webhook, "deliveries", message, "redeliver"];
        self.request(Method::POST, path)?.accept_pending().answer(self).await
    }
}
