//! Looks up tokens that this process does not know yet.

use std::time::Duration;

use model::Sha256;

use crate::CallError;
use crate::admission::tokens::lookups::LookupKind;
use crate::engine::Engine;

/// The pause after a query for operators, which reads all of them.
const OPERATOR_PAUSE: Duration = Duration::from_millis(50);

impl Engine {
    /// Looks up a token that this process does not know, with the others that wait. Those that are valid are known afterwards.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn look_up_unknown(&self, kind: LookupKind, hash: &Sha256) -> Result<(), CallError> {
        let (done, is_first) = self.tokens.lookups(kind).add(*hash);
        if is_first {
            let engine = self.clone();
            self.tasks.spawn(async move { engine.run_lookups(kind).await });
        }
        match done.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(unavailable()),
        }
    }

    async fn run_lookups(&self, kind: LookupKind) {
        while let Some(tokens) = self.tokens.lookups(kind).next() {
            let hashes: Vec<_> = tokens.iter().map(|(hash, _)| *hash).collect();
            let result = match kind {
                LookupKind::Runs => self.tokens.look_up(self.ledger.as_ref(), &hashes).await.map(drop),
                LookupKind::Operators => self.tokens.operators.refresh(self.ledger.as_ref()).await,
            };
            if let Err(error) = &result {
                tracing::warn!(error = error as &dyn std::error::Error, "failed to look up tokens");
            }
            for (_, done) in tokens {
                // A request that has left waits for nothing.
                let _ = done.send(result.is_ok());
            }
            if kind == LookupKind::Operators {
                tokio::time::sleep(OPERATOR_PAUSE).await;
            }
        }
    }
}

fn unavailable() -> CallError {
    let unavailable = "tokens cannot be looked up".into();
    ledger::LedgerError::Unavailable(unavailable).into()
}
