//! Webhooks: sends messages about events to the configured receivers, in the format of Standard Webhooks.
//!
//! The ledger has the messages: those of records are stored with them, and those of refused calls are made from the audit. So
//! the calls that cause them wait for no receiver, and a kill loses no message. Each webhook has a task of its own. A message is
//! sent at least once.

mod attempt;
mod bounds;
mod retry;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{CallError, clock};
use futures_util::FutureExt as _;
use ledger::Ledger;
use model::WebhookDelivery;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use cluster::nodes::membership::Membership;
use config::StartError;
use config::WebhookConfig;
use config::http_client;

/// The configured webhooks.
pub(crate) struct Webhooks {
    all: Vec<Arc<WebhookSender>>,
    ledger: Arc<dyn Ledger>,
}

/// A configured webhook.
pub(crate) struct WebhookSender {
    config: WebhookConfig,
    ledger: Arc<dyn Ledger>,
    /// This process as a node, one of which sends the messages of all.
    node: Option<Arc<Membership>>,
    http: reqwest::Client,
    /// Whether the receiver has answered 410.
    is_gone: AtomicBool,
    /// Notified when a delivery is due before its time.
    wake: Notify,
}

impl Webhooks {
    /// Registers the webhooks in the ledger, which stores messages for them from then on.
    ///
    /// # Errors
    ///
    /// If the ledger or the TLS library fails.
    pub(crate) async fn open(
        configs: &[WebhookConfig],
        ledger: Arc<dyn Ledger>,
        node: Option<Arc<Membership>>,
    ) -> Result<Self, StartError> {
        let known: Vec<_> = configs.iter().map(|config| (config.name.clone(), config.events.clone())).collect();
        ledger.set_webhooks(&known).await?;
        let webhook = |config: &WebhookConfig| {
            let http = http_client::client_of(&config.url, attempt::TIMEOUT)
                .map_err(|error| StartError::failed("webhooks", &error.without_url()))?;
            let (is_gone, wake) = (AtomicBool::new(false), Notify::new());
            let (config, ledger, node) = (config.clone(), Arc::clone(&ledger), node.clone());
            Ok(Arc::new(WebhookSender { config, ledger, node, http, is_gone, wake }))
        };
        let all = configs.iter().map(webhook).collect::<Result<_, StartError>>()?;
        Ok(Self { all, ledger })
    }

    /// Starts sending. The tasks end when the service shuts down.
    pub(crate) fn start(&self, tasks: &TaskTracker, shutdown: &CancellationToken) {
        for webhook in &self.all {
            tasks.spawn(Arc::clone(webhook).run(shutdown.clone()).boxed());
        }
    }

    /// Returns the webhooks, in the order of the configuration.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WebhookSender> {
        self.all.iter().map(Arc::as_ref)
    }

    /// Returns how many messages each webhook has not accepted yet, by its name.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn pending(&self) -> Result<Vec<(String, u64)>, CallError> {
        Ok(self.ledger.pending_deliveries().await?)
    }

    /// Returns at most `limit` deliveries of a webhook, each with its position, after the position `after`.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn deliveries(
        &self,
        webhook: &str,
        newest_first: bool,
        after: Option<i64>,
        limit: u32,
    ) -> Result<ledger::LedgerPage<(i64, WebhookDelivery)>, CallError> {
        Ok(self.ledger.deliveries(webhook, newest_first, after, limit.into()).await?)
    }

    /// Returns a webhook by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&WebhookSender> {
        self.iter().find(|webhook| webhook.config.name == name)
    }
}

impl WebhookSender {
    /// Its settings.
    pub(crate) fn config(&self) -> &WebhookConfig {
        &self.config
    }

    /// Whether the receiver has answered 410, after which nothing is sent until the next start or redelivery.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Makes the message `id` due again, also if the receiver has answered 410. Returns its delivery; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn redeliver(&self, id: &str) -> Result<Option<WebhookDelivery>, CallError> {
        let found = self.ledger.redeliver(&self.config.name, id, &clock::now()).await?;
        if found.is_some() {
            self.is_gone.store(false, Ordering::Release);
            self.wake.notify_one();
        }
        Ok(found)
    }
}
