//! Reservations and claims of objects in the ledger, where every node sees them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use content::{ObjectClaims, ObjectError};
use ledger::{Ledger, LedgerError};

/// The claims in a ledger.
pub struct LedgerClaims(pub Arc<dyn Ledger>);

fn failed(error: LedgerError) -> ObjectError {
    ObjectError::Claims(Box::new(error))
}

#[async_trait]
impl ObjectClaims for LedgerClaims {
    async fn reserve(&self, reference: &str) -> Result<Option<i64>, ObjectError> {
        self.0.reserve_object(reference).await.map_err(failed)
    }

    async fn claim(&self, reference: &str, claim: &str, unused_for: Duration) -> Result<bool, ObjectError> {
        self.0.claim_object(reference, claim, unused_for).await.map_err(failed)
    }

    async fn renew(&self, reference: &str, claim: &str) -> Result<bool, ObjectError> {
        self.0.renew_claim(reference, claim).await.map_err(failed)
    }

    async fn end(&self, reference: &str, claim: &str) -> Result<(), ObjectError> {
        self.0.end_claim(reference, claim).await.map_err(failed)
    }
}
