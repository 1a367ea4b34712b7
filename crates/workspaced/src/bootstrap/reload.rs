//! SIGHUP: the tokens of operators and the profiles that are in files are read again.

use std::error::Error;

use engine::operators::LoadError;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use crate::service::Service;
use config::{ConfigError, Sources};

/// Why nothing was replaced.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Operators(#[from] LoadError),
}

/// Reads the sources again at each of `hangups`, until `shutdown` is cancelled.
pub(crate) async fn run(sources: Sources, service: Service, mut hangups: Signal, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            _ = hangups.recv() => {}
            () = shutdown.cancelled() => return,
        }
        match reload(&sources, &service).await {
            Ok(()) => tracing::info!("operators and profiles were read again"),
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::error!(error, "operators and profiles cannot be replaced: the previous ones stay in force");
            }
        }
    }
}

/// Replaces tokens and profiles together, or neither.
async fn reload(sources: &Sources, service: &Service) -> Result<(), ReloadError> {
    let sources = sources.clone();
    let loaded = tokio::task::spawn_blocking(move || sources.load_again()).await;
    let loaded = loaded.map_err(|error| ConfigError(error.to_string())).flatten()?;
    service.operators.reconfigure(loaded.tokens).await?;
    service.runs.set_profiles(loaded.profiles);
    Ok(())
}
