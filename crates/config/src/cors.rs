//! The origins of web pages whose scripts may call the service.

use axum::http::HeaderValue;

use crate::error::ConfigError;

/// Checks origins: `SCHEME://HOST` or `SCHEME://HOST:PORT`, as browsers send them.
///
/// # Errors
///
/// Fails with the first that is not an origin. `*` is none: every page that a user of the service opens could call it.
pub(crate) fn origins(given: Vec<String>) -> Result<Vec<HeaderValue>, ConfigError> {
    let given = given.into_iter().filter(|origin| !origin.is_empty());
    given.map(|origin| parse(&origin).ok_or_else(|| invalid(&origin))).collect()
}

fn parse(origin: &str) -> Option<HeaderValue> {
    let (scheme, rest) = origin.split_once("://")?;
    // The port follows the last colon outside of an IPv6 address.
    let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let of_scheme = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    let of_host = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(of_host),
    };
    let fits = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(of_scheme)
        && is_host
        && port.is_none_or(|port| port.parse::<u16>().is_ok());
    HeaderValue::from_str(origin).ok().filter(|_| fits)
}

fn invalid(origin: &str) -> ConfigError {
    let problem = "expected SCHEME://HOST or SCHEME://HOST:PORT in lower case, without a path";
    ConfigError(format!("--cors-origin `{origin}`: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for valid in [
            "https://console.example",
            "http://localhost:3000",
            "http://127.0.0.1:80",
            "http://[::1]",
            "http://[::1]:8080",
            "chrome-extension://abcdef",
        ] {
            assert_eq!(parse(valid).unwrap(), valid);
        }
        for invalid in [
            "*",
            "null",
            "console.example",
            "https://",
            "https://a/",
            "https://a/b",
            "https://A.example",
            "https://a:b",
            "https://a:99999",
            "https://a b",
            "https://*.example",
            "https://[::1",
            "https://user@a",
        ] {
            assert!(parse(invalid).is_none(), "{invalid}");
        }
    }
}
