//! TLS handshakes under way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::http::serve::tls::{Certificate, TlsStream};
use crate::telemetry;

/// Encrypts connections, at most a number of them at the same time.
///
/// Where there are more, the oldest handshake ends. Clients that never complete theirs then keep nobody out: one that does needs
/// far less time than it takes to replace all others.
pub(crate) struct Handshakes {
    certificate: Arc<Certificate>,
    max: usize,
    timeout: Duration,
    shutdown: CancellationToken,
    under_way: Mutex<UnderWay>,
}

/// What ends each handshake, by numbers that grow.
#[derive(Default)]
struct UnderWay {
    last: u64,
    ends: BTreeMap<u64, CancellationToken>,
}

impl Handshakes {
    /// Handshakes that may take `timeout`, and end at `shutdown`.
    pub(crate) fn new(
        certificate: Arc<Certificate>,
        max: usize,
        timeout: Duration,
        shutdown: CancellationToken,
    ) -> Self {
        Self { certificate, max, timeout, shutdown, under_way: Mutex::default() }
    }

    /// Returns the encrypted stream; `None` if the client does not complete its handshake in time, or speaks no TLS.
    pub(crate) async fn complete(&self, stream: TcpStream) -> Option<Box<TlsStream>> {
        let (number, end) = self.begin();
        let handshake = tokio::time::timeout(self.timeout, Box::pin(self.certificate.accept(stream)));
        let accepted = tokio::select! {
            accepted = handshake => Some(accepted),
            () = end.cancelled() => None,
        };
        self.under_way.lock().ends.remove(&number);
        match accepted {
            Some(Ok(Ok(stream))) => return Some(Box::new(stream)),
            Some(Ok(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
            Some(Err(_)) => tracing::debug!("TLS handshake timed out"),
            None => tracing::debug!("TLS handshake ended for another one"),
        }
        None
    }

    /// Begins a handshake, and ends the oldest one if there are too many. Returns its number and what ends it.
    fn begin(&self) -> (u64, CancellationToken) {
        let end = self.shutdown.child_token();
        let mut under_way = self.under_way.lock();
        under_way.last += 1;
        let number = under_way.last;
        under_way.ends.insert(number, end.clone());
        if under_way.ends.len() > self.max
            && let Some((_, oldest)) = under_way.ends.pop_first()
        {
            telemetry::connection_refused();
            oldest.cancel();
        }
        (number, end)
    }
}
