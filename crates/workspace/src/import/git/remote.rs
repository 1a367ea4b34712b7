//! Remote repositories: which hosts a source may name, and to which of their addresses git connects.
//!
//! A name is resolved once, every address is checked, and git is bound to those addresses, so a second lookup cannot
//! return another one. No redirect is followed and no proxy is used, since both lead to hosts that were not checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _};

use model::Refusal;

/// The default port of `https`.
const HTTPS_PORT: u16 = 443;
/// How many addresses of a host are passed to git.
const MAX_ADDRESSES: usize = 8;

/// Checks `url`, and resolves its host. Returns its port and the value of `http.curloptResolve`; `None` if the URL contains an address.
///
/// # Errors
///
/// `INVALID_REQUEST` if it does not begin with `https://`, contains credentials, or names a host that is not public and not
/// in `allowed`.
pub(super) fn judge(url: &str, allowed: &[String]) -> Result<(u16, Option<String>), Refusal> {
    let (host, port) = parse(url)?;
    let is_allowed = allowed.iter().any(|one| bare(one).eq_ignore_ascii_case(host));
    if let Ok(address) = host.parse::<IpAddr>() {
        return if is_allowed || is_public(address) { Ok((port, None)) } else { Err(not_public(host)) };
    }
    let found = (host, port).to_socket_addrs().map_err(|error| {
        tracing::info!(%error, "the host of a git source could not be resolved");
        not_public(host)
    })?;
    let mut addresses: Vec<_> = found.map(|address| address.ip()).collect();
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    if addresses.is_empty() || !(is_allowed || addresses.iter().all(|address| is_public(*address))) {
        return Err(not_public(host));
    }
    let written = addresses.iter().map(|address| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    });
    Ok((port, Some(format!("{host}:{port}:{}", written.collect::<Vec<_>>().join(",")))))
}

/// Returns the host, without brackets, and the port.
pub(super) fn parse(url: &str) -> Result<(&str, u16), Refusal> {
    let is_https = url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
    if !is_https || url.len() > 2048 || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad_address());
    }
    let authority = url[8..].split(['/', '?', '#', '\\']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Refusal::invalid(
            "the address of the git source contains credentials",
            "Remove them from the address: everyone who may read the run would see them.",
        ));
    }
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) if rest.is_empty() || rest.starts_with(':') => (host, rest.trim_start_matches(':')),
        Some(_) => return Err(bad_address()),
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let in_brackets = authority.starts_with('[');
    let fits =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') || (in_brackets && byte == b':');
    // Git would treat a trailing dot as another name than the resolver does.
    let is_name = !host.is_empty() && host.bytes().all(fits) && !host.starts_with(['-', '.']) && !host.ends_with('.');
    let is_address = !in_brackets || host.parse::<Ipv6Addr>().is_ok();
    let port = if port.is_empty() { Some(HTTPS_PORT) } else { port.parse().ok().filter(|port| *port > 0) };
    port.filter(|_| is_name && is_address).map(|port| (host, port)).ok_or_else(bad_address)
}

/// Returns a configured host without the brackets of an address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).trim_end_matches('.')
}

/// Whether `address` is public, and not local, shared, reserved or translated.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = matches!(
        (a, b, c),
        // This network, private, loopback, multicast, reserved, broadcast; carrier-grade NAT; link-local; then protocol
        // assignments, documentation, 6to4 relays, benchmarks.
        (0 | 10 | 127 | 224..=255, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Global unicast. Loopback, link-local, unique local, multicast and translated addresses are outside of it.
    let is_global = a & 0xe000 == 0x2000;
    // Protocol assignments with Teredo, documentation, 6to4.
    let is_special = (a == 0x2001 && (b < 0x0200 || b == 0x0db8)) || a == 0x2002 || (a == 0x3fff && b < 0x1000);
    is_global && !is_special
}

fn bad_address() -> Refusal {
    Refusal::invalid(
        "a git source must be an address that begins with https://, or a folder under an import root",
        "Use the repository's https address.",
    )
}

/// The same error for an unknown name and for an address that is not public, so that it reveals nothing of the network.
fn not_public(host: &str) -> Refusal {
    Refusal::invalid(
        format!("the host `{host}` of the git source has no public address"),
        "Check the name. The operator has to allow a host of a private network with --git-allow-host.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_network_are_public() {
        for address in ["1.1.1.1", "93.184.216.34", "100.63.0.1", "172.32.0.1", "::ffff:8.8.8.8", "2606:4700::1111"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_host_that_is_not_public_is_refused_unless_it_is_allowed() {
        for url in [
            "https://localhost/a",
            "https://LOCALHOST:8443/a",
            "https://127.0.0.1/a",
            "https://127.1/a",
            "https://2130706433/a",
            "https://0x7f.0.0.1/a",
            "https://0x7f000001/a",
            "https://017700000001/a",
            "https://0177.0.0.01/a",
            "https://0x7f.1/a",
            "https://[::1]/a",
            "https://[::127.0.0.1]/a",
            "https://[::ffff:7f00:1]/a",
            "https://[0:0:0:0:0:ffff:0a00:0001]/a",
            "https://[fd00::1]/a",
            "https://[ff02::1]/a",
            "https://[64:ff9b::a9fe:a9fe]/a",
            "https://100.64.0.1/a",
            "https://[::ffff:127.0.0.1]:443/a",
            "https://0.0.0.0/a",
            "https://169.254.169.254/latest",
            "https://[fe80::1]/a",
            "https://no-such-host.invalid/a",
        ] {
            let refusal = judge(url, &[]).unwrap_err();
            assert!(refusal.message.contains("no public address"), "{url}: {refusal:?}");
        }
        let allowed = ["LocalHost".to_owned(), "[::1]".to_owned(), "10.1.2.3".to_owned()];
        let (port, resolve) = judge("https://localhost:8443/a", &allowed).unwrap();
        assert!(port == 8443 && resolve.unwrap().starts_with("localhost:8443:"));
        for url in ["https://[::1]/a", "https://10.1.2.3/a", "https://1.1.1.1/a"] {
            assert_eq!(judge(url, &allowed).unwrap(), (443, None));
        }
        assert!(judge("https://10.1.2.4/a", &allowed).is_err());
    }

    #[test]
    fn an_address_that_git_could_read_otherwise_is_refused() {
        for url in [
            "http://1.1.1.1/a",
            "https://",
            "https:///a",
            "https://user@1.1.1.1/a",
            "https://u:p@1.1.1.1/a",
            "https://1.1.1.1:x/a",
            "https://1.1.1.1:0/a",
            "https://1.1.1.1:65536/a",
            "https://1.1.1.1./a",
            "https://a%2eb/a",
            "https://[1.1.1.1]/a",
            "https://[::1/a",
            "https://[::1]x/a",
            "https://-a/a",
            "https://a\\@127.0.0.1/a",
            "https://1.1.1.1 /a",
            "https://[fe80::1%25eth0]/a",
        ] {
            assert!(judge(url, &["user@1.1.1.1".to_owned()]).is_err(), "{url}");
        }
    }
}
