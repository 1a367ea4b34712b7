//! The rate limit of failed authentication, by address.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::admission::keyed_rate::KeyedRate;

/// Counts requests without a valid token, by address. Requests with a valid token are not counted and not limited, since all
/// callers of a proxy have one address.
pub(crate) struct PeerFailures {
    rate: Option<KeyedRate<IpAddr>>,
}

impl PeerFailures {
    /// Creates a limit of `per_minute` failures; 0 if there is no limit.
    pub(crate) fn new(per_minute: u32) -> Self {
        let interval = Duration::from_mins(1).checked_div(per_minute);
        Self { rate: interval.map(|interval| KeyedRate::new(interval, per_minute)) }
    }

    /// Counts a failure of `peer`.
    ///
    /// # Errors
    ///
    /// The time to wait, if there were too many.
    pub(crate) fn count(&self, peer: IpAddr) -> Result<(), Duration> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.count(network_of(peer), 1).map(drop)
    }

    /// Removes the state of idle addresses. To be called periodically.
    pub(crate) fn tidy(&self) {
        if let Some(rate) = &self.rate {
            rate.tidy();
        }
    }
}

/// Returns the IPv4 address, or the /64 network of an IPv6 address, which one caller owns as a whole.
pub fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(raw: &str) -> IpAddr {
        raw.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_own_count_and_a_network_of_ipv6_one_for_all() {
        let failures = PeerFailures::new(3);
        for peer in ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"] {
            assert!(failures.count(address(peer)).is_ok(), "{peer}");
        }
        assert!(failures.count(address("192.0.2.1")).unwrap_err() > Duration::ZERO);
        assert!(failures.count(address("192.0.2.2")).is_ok());
        for peer in ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:0:0:3"] {
            assert!(failures.count(address(peer)).is_ok(), "{peer}");
        }
        assert!(failures.count(address("2001:db8::4")).is_err());
        assert!(failures.count(address("2001:db8:0:1::4")).is_ok());
    }

    #[test]
    fn no_limit_is_none() {
        let failures = PeerFailures::new(0);
        assert!((0..10_000).all(|_| failures.count(address("192.0.2.1")).is_ok()));
    }
}
