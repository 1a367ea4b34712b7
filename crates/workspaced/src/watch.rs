//! What keeps the runtime listening while one of its threads waits for a disk.
//!
//! One of the runtime's idle threads waits for its sockets and clocks, for all of them. It goes to work itself when something
//! comes, and whoever has nothing to do by then sleeps on. Most work takes its turn and ends; but a mutation and a commit stay
//! on their threads ([`in_place`](crate::service::Service::in_place)), and a disk that hangs would leave nobody listening.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::runtime::Handle;

/// How often a thread is woken while requests come.
const OFTEN: Duration = Duration::from_millis(10);
/// How often when none came lately.
const SELDOM: Duration = Duration::from_millis(250);
/// After so many rounds without an answer none came lately.
const LATELY: u32 = 100;

/// Keeps this thread's runtime listening until it is dropped.
pub(crate) struct Watch {
    _ends: Sender<Infallible>,
}

impl Watch {
    /// Wakes one of the runtime's sleeping threads time and again: it finds nothing to do, and listens where nobody does.
    /// `answered` grows with every request.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread.
    pub(crate) fn start(answered: Arc<AtomicU64>) -> std::io::Result<Self> {
        let (ends, end) = channel();
        let runtime = Handle::current();
        std::thread::Builder::new().name("watch".to_owned()).spawn(move || watch(&answered, &end, &runtime))?;
        Ok(Self { _ends: ends })
    }
}

fn watch(answered: &AtomicU64, end: &Receiver<Infallible>, runtime: &Handle) {
    let (mut seen, mut quiet) = (0, 0u32);
    while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(if quiet < LATELY { OFTEN } else { SELDOM }) {
        let now = answered.load(Ordering::Relaxed);
        quiet = if now == seen { quiet.saturating_add(1) } else { 0 };
        seen = now;
        drop(runtime.spawn(std::future::ready(())));
    }
}
