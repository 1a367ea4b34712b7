//! The open connections, and which of them ends where there are too many.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use engine::admission::tokens::network_of;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::http::serve::timeout_stream::Phase;
use crate::telemetry;

/// A peer or a token may have one in this number of all connections where others need some.
const PARTS: usize = 4;
/// One in this number of all connections is ended at a time, so that a flood does not search for each connection.
const ENDED_PART: usize = 64;

/// The open connections, at most a number of them.
///
/// Where there are more, the one that has waited longest without a valid token ends, at first one of a peer that has more than a
/// quarter. Peers are no reason to refuse anybody, because all callers of a proxy have one address. If all have shown a token, the
/// one that is idle between two requests for the longest time ends, at first one of a token that has more than a quarter. A request
/// with a valid token is never ended.
pub(crate) struct Connections {
    max: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last: u64,
    /// By numbers that grow.
    connections: HashMap<u64, Arc<ServedConnection>>,
}

struct ServedConnection {
    peer: IpAddr,
    phase: Phase,
    end: Notify,
}

/// An open connection. It counts until this is dropped.
pub(crate) struct OpenConnection {
    all: Arc<Connections>,
    number: u64,
    connection: Arc<ServedConnection>,
}

impl Connections {
    /// Creates the registry of at most `max` connections.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, open: Mutex::default() })
    }

    /// Adds a connection of `peer`; `None` if there are too many, all with requests in progress.
    pub(crate) fn add(self: &Arc<Self>, peer: IpAddr, phase: Phase) -> Option<OpenConnection> {
        let mut open = self.open.lock();
        if open.connections.len() >= self.max && !self.end_some(&mut open) {
            return None;
        }
        open.last += 1;
        let (number, end) = (open.last, Notify::new());
        let connection = Arc::new(ServedConnection { peer: network_of(peer), phase, end });
        open.connections.insert(number, Arc::clone(&connection));
        drop(open);
        telemetry::add_connections(1.0);
        Some(OpenConnection { all: Arc::clone(self), number, connection })
    }

    /// Ends connections that others need more. Returns whether there were any.
    fn end_some(&self, open: &mut Open) -> bool {
        let unknown = open.connections.iter().filter(|(_, one)| one.phase.user().is_none());
        let mut ended: Vec<_> = unknown.map(|(number, one)| (one.phase.since(), *number, one.peer)).collect();
        if ended.is_empty() {
            let idle = open.connections.iter().filter(|(_, one)| one.phase.is_idle());
            let mut idle: Vec<_> = idle.map(|(number, one)| (one.phase.since(), *number, one.phase.user())).collect();
            keep_largest(&mut idle, self.max / PARTS);
            self.end_longest(open, &mut idle)
        } else {
            keep_largest(&mut ended, self.max / PARTS);
            self.end_longest(open, &mut ended)
        }
    }

    /// Ends the connections that have waited longest.
    fn end_longest<K: Ord>(&self, open: &mut Open, waiting: &mut [(u64, u64, K)]) -> bool {
        let count = (self.max / ENDED_PART).max(1).min(waiting.len());
        if count == 0 {
            return false;
        }
        waiting.select_nth_unstable(count - 1);
        for (_, number, _) in &waiting[..count] {
            if let Some(connection) = open.connections.remove(number) {
                connection.end.notify_one();
                telemetry::connection_evicted();
            }
        }
        true
    }
}

/// Keeps the connections of the group that has most, if it has more than `share`.
fn keep_largest<K: Copy + Eq + std::hash::Hash>(waiting: &mut Vec<(u64, u64, K)>, share: usize) {
    let mut counts = HashMap::<K, usize>::new();
    for (_, _, group) in waiting.iter() {
        *counts.entry(*group).or_default() += 1;
    }
    let largest = counts.into_iter().filter(|(_, count)| *count > share).max_by_key(|(_, count)| *count);
    if let Some((largest, _)) = largest {
        waiting.retain(|(_, _, group)| *group == largest);
    }
}

impl OpenConnection {
    /// Returns the result of `work`; `None` if the connection has to end for another one.
    pub(crate) async fn unless_ended<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.connection.end.notified() => None,
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.open.lock().connections.remove(&self.number);
        telemetry::add_connections(-1.0);
    }
}

#[cfg(test)]
mod tests {
    use shared_pool::Party;

    use super::*;

    /// Returns the numbers of the connections that are open.
    fn open(connections: &Connections) -> Vec<u64> {
        let mut open: Vec<_> = connections.open.lock().connections.keys().copied().collect();
        open.sort_unstable();
        open
    }

    #[expect(clippy::disallowed_methods, reason = "the test has no runtime")]
    fn phase_of(token: Option<&str>) -> Phase {
        let phase = Phase::new();
        if let Some(token) = token {
            phase.begin_response();
            phase.identify(Party::of("token", token));
            phase.end_response(false);
        }
        // Times are whole milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(2));
        phase
    }

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_one_that_waits_longest_without_a_token_ends() {
        let connections = Connections::new(4);
        let add = |token: Option<&str>| connections.add(peer(1), phase_of(token)).unwrap();
        let _held = [add(Some("a")), add(None), add(Some("a")), add(None)];
        let _more = [add(Some("a")), add(Some("b"))];
        assert_eq!(open(&connections), [1, 3, 5, 6]);
        // All have a token: `a` has more than a quarter.
        let _newest = add(None);
        assert_eq!(open(&connections), [3, 5, 6, 7]);
    }

    #[test]
    fn a_peer_with_more_than_a_quarter_ends_its_own() {
        let connections = Connections::new(8);
        let add = |last: u8| connections.add(peer(last), phase_of(None)).unwrap();
        let _held: Vec<_> = [1, 2, 2, 2, 3, 4, 5, 6].map(add).into();
        let _newest = add(7);
        assert_eq!(open(&connections), [1, 3, 4, 5, 6, 7, 8, 9]);
        let _next = add(7);
        assert_eq!(open(&connections), [3, 4, 5, 6, 7, 8, 9, 10], "nobody has more than a quarter");
    }

    #[test]
    fn a_request_with_a_token_is_not_ended() {
        let connections = Connections::new(2);
        let busy = || {
            let phase = phase_of(Some("a"));
            phase.begin_response();
            connections.add(peer(1), phase)
        };
        let (_first, second) = (busy().unwrap(), busy().unwrap());
        assert!(connections.add(peer(2), Phase::new()).is_none());
        drop(second);
        assert!(connections.add(peer(2), Phase::new()).is_some());
        assert_eq!(open(&connections), [1]);
    }

    #[tokio::test]
    async fn an_ended_connection_is_told() {
        let connections = Connections::new(1);
        let first = connections.add(peer(1), Phase::new()).unwrap();
        let _second = connections.add(peer(1), Phase::new()).unwrap();
        assert_eq!(first.unless_ended(std::future::pending::<()>()).await, None);
        drop(first);
        assert_eq!(open(&connections), [2]);
    }
}
