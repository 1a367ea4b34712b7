//! How often one address may come without a good token.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};

/// Counts requests without a good token, by the address that they come from. Good tokens are never counted and never kept
/// waiting, whatever else comes from their address: behind a proxy all callers have one.
pub(crate) struct PeerFailures {
    rate: Option<DefaultKeyedRateLimiter<IpAddr>>,
}

impl PeerFailures {
    /// At most so many a minute; 0 is no limit.
    pub(crate) fn new(per_minute: u32) -> Self {
        let quota = NonZeroU32::new(per_minute).map(Quota::per_minute);
        Self { rate: quota.map(DefaultKeyedRateLimiter::keyed) }
    }

    /// Counts a failure of `peer`.
    ///
    /// # Errors
    ///
    /// How long to wait, where there were too many.
    pub(crate) fn count(&self, peer: IpAddr) -> Result<(), Duration> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.check_key(&network_of(peer)).map_err(|refused| refused.wait_time_from(DefaultClock::default().now()))
    }

    /// Forgets addresses that have been quiet. Called now and then.
    pub(crate) fn tidy(&self) {
        if let Some(rate) = &self.rate {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
    }
}

/// The address, or the network of IPv6 that one caller has for itself.
fn network_of(peer: IpAddr) -> IpAddr {
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
