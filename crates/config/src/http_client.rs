//! Clients of the HTTP servers that the service sends to by its configuration: receivers of webhooks, and the collector of traces.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Url};

/// Returns a client for requests to `url`, which take at most `timeout` to the end of the answer.
///
/// The server that the operator configured, and no other, gets them: redirects are not followed, and what is for this machine does
/// not take a proxy, to which plain HTTP would show it.
///
/// # Errors
///
/// If the TLS library fails.
pub fn client_of(url: &Url, timeout: Duration) -> reqwest::Result<Client> {
    install_tls();
    let mut client = Client::builder()
        .user_agent(concat!("workspaced/", env!("CARGO_PKG_VERSION")))
        .timeout(timeout)
        .redirect(Policy::none())
        .pool_max_idle_per_host(1);
    if is_loopback(url) {
        client = client.no_proxy();
    }
    if url.scheme() == "http" {
        // A machine without trusted certificates can use a server without TLS.
        client = client.tls_certs_only([]);
    }
    client.build()
}

/// Sets the TLS library of this process, unless it is set.
pub fn install_tls() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread has installed one meanwhile, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Whether the host of `url` is this machine.
pub fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_its_name_and_addresses() {
        let is = |url: &str| is_loopback(&Url::parse(url).unwrap());
        for url in
            ["http://localhost:1/a", "http://LOCALHOST", "https://127.0.0.1", "http://127.9.9.9:80", "http://[::1]:1"]
        {
            assert!(is(url), "{url}");
        }
        for url in ["http://localhost.example.org", "http://10.0.0.1", "http://[::2]", "http://127.0.0.1.example.org"] {
            assert!(!is(url), "{url}");
        }
    }
}
