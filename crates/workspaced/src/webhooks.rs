//! Webhooks: sends messages about events to the configured receivers, in the format of Standard Webhooks.
//!
//! The ledger has the messages: those of records are stored with them, and those of refused calls are made from the audit. So
//! the calls that cause them wait for no receiver, and a kill loses no message. Each webhook has a task of its own. A message is
//! sent at least once.

mod attempt;
pub(crate) mod bounds;
mod retry;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger::Ledger;
use reqwest::redirect::Policy;
use tokio::sync::Notify;

use crate::bootstrap::error::StartError;
use crate::config::WebhookConfig;
use crate::service::Service;

/// The configured webhooks.
pub(crate) struct Webhooks(Vec<Arc<Webhook>>);

/// A configured webhook.
pub(crate) struct Webhook {
    config: WebhookConfig,
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
    pub(crate) async fn open(configs: &[WebhookConfig], ledger: &dyn Ledger) -> Result<Self, StartError> {
        let known: Vec<_> = configs.iter().map(|config| (config.name.clone(), config.events.clone())).collect();
        ledger.set_webhooks(&known).await?;
        if configs.is_empty() {
            return Ok(Self(Vec::new()));
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another thread has installed one meanwhile, which serves as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("workspaced/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(attempt::TIMEOUT)
            .timeout(attempt::TIMEOUT)
            // The receiver that the operator configured, and no other, gets the message.
            .redirect(Policy::none())
            .build()
            .map_err(|error| StartError::failed("webhooks", &error))?;
        let webhook = |config: &WebhookConfig| {
            let (config, http) = (config.clone(), http.clone());
            Arc::new(Webhook { config, http, is_gone: AtomicBool::new(false), wake: Notify::new() })
        };
        Ok(Self(configs.iter().map(webhook).collect()))
    }

    /// Starts sending. The tasks end when the service shuts down.
    pub(crate) fn start(service: &Service) {
        for webhook in &service.state.webhooks.0 {
            service.tasks.spawn(Arc::clone(webhook).run(service.clone()));
        }
    }

    /// Returns the webhooks, in the order of the configuration.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Webhook> {
        self.0.iter().map(Arc::as_ref)
    }

    /// Returns a webhook by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Webhook> {
        self.iter().find(|webhook| webhook.config.name == name)
    }
}

impl Webhook {
    /// Its settings.
    pub(crate) fn config(&self) -> &WebhookConfig {
        &self.config
    }

    /// Whether the receiver has answered 410, after which nothing is sent until the next start.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Makes the task look for due deliveries at once.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}
