//! Requests under way that their client may cancel by a notification, which is a request of its own.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::RequestId;
use tokio_util::sync::CancellationToken;

/// Requests under way, by their token's actor and the ID that the client gave them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancellations(Arc<Mutex<HashMap<CancellationKey, Vec<CancellationToken>>>>);

type CancellationKey = (String, RequestId);

/// Removes its request when it is dropped.
pub(crate) struct Registration {
    of: Cancellations,
    key: CancellationKey,
    token: CancellationToken,
}

impl Cancellations {
    /// Registers a request until the registration is dropped.
    pub(crate) fn register(&self, actor: &str, id: RequestId) -> Registration {
        let (key, token) = ((actor.to_owned(), id), CancellationToken::new());
        self.0.lock().entry(key.clone()).or_default().push(token.clone());
        Registration { of: self.clone(), key, token }
    }

    /// Cancels the request of `actor` with the ID. If two clients share a token and use the same ID at once, it is not known
    /// which of the two requests is meant, and none is cancelled.
    pub(crate) fn cancel(&self, actor: &str, id: &RequestId) {
        if let Some([only]) = self.0.lock().get(&(actor.to_owned(), id.clone())).map(Vec::as_slice) {
            only.cancel();
        }
    }
}

impl Registration {
    /// Waits until the request is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Clones of a token share their state: this one is cancelled, so that no other is removed.
        self.token.cancel();
        let mut requests = self.of.0.lock();
        if let Some(tokens) = requests.get_mut(&self.key) {
            tokens.retain(|token| !token.is_cancelled());
            if tokens.is_empty() {
                requests.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_request_that_is_meant_is_cancelled() {
        let requests = Cancellations::default();
        let id = RequestId::Number(1);
        let (first, other) = (requests.register("a", id.clone()), requests.register("b", id.clone()));
        let second = requests.register("a", id.clone());
        requests.cancel("a", &id);
        assert!(!first.token.is_cancelled() && !second.token.is_cancelled());
        drop(second);
        requests.cancel("a", &id);
        assert!(first.token.is_cancelled() && !other.token.is_cancelled());
        drop((first, other));
        assert!(requests.0.lock().is_empty());
    }
}
