//! Hosts that a line names.

use super::assignments::assignments;

/// Ends of the names of settings whose value may be a host without a scheme.
const HOST_SETTINGS: &[&str] =
    &["host", "hostname", "server", "endpoint", "domain", "url", "uri", "address", "webhook"];
/// The longest host name, in bytes.
const MAX_HOST: usize = 253;

/// Returns the hosts in a line, in lower case: those of URLs and of `user@host:path`, and the values of settings called `host`, `server`
/// and the like. The machine itself is none, and neither is a name without a dot.
pub(super) fn hosts(line: &str) -> Vec<String> {
    let of_urls =
        line.match_indices("://").filter(|(at, _)| line[..*at].ends_with(|c: char| c.is_ascii_alphanumeric()));
    let of_urls = of_urls.filter_map(|(at, mark)| {
        let ends = |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>' | '\\' | '`');
        let authority = line[at + mark.len()..].split(ends).next().unwrap_or_default();
        host(authority.rsplit('@').next().unwrap_or_default())
    });
    let of_copies = line.match_indices('@').filter_map(|(at, _)| {
        let (name, rest) = line[at + 1..].split_once(':')?;
        let is_copy = line[..at].ends_with(|c: char| c.is_ascii_alphanumeric())
            && rest.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '~' | '.'))
            && name.chars().all(is_in_host);
        host(name).filter(|_| is_copy)
    });
    let of_settings = assignments(line).into_iter().filter_map(|assignment| {
        let name = assignment.name.to_ascii_lowercase();
        let is_setting = assignment.is_quoted && HOST_SETTINGS.iter().any(|end| name.ends_with(end));
        let name = assignment.value.split(':').next().unwrap_or_default();
        let has_domain =
            name.rsplit('.').next().is_some_and(|last| last.len() > 1 && !last.contains(|c: char| c.is_ascii_digit()));
        host(name).filter(|_| is_setting && has_domain && name.chars().all(is_in_host))
    });
    let mut found: Vec<_> = of_urls.chain(of_copies).chain(of_settings).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn is_in_host(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// Returns the host at the start of `text`, before its port.
fn host(text: &str) -> Option<String> {
    if let Some((address, _)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_address =
            address.contains(':') && address.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
        return (is_address && address != "::1").then(|| format!("[{}]", address.to_ascii_lowercase()));
    }
    let end = text.find(|c| !is_in_host(c)).unwrap_or(text.len());
    // A variable follows, or is part of the name.
    let name = text[..end].trim_matches('.').to_lowercase();
    let is_loopback =
        name == "0.0.0.0" || (name.starts_with("127.") && name.chars().all(|c| c.is_ascii_digit() || c == '.'));
    (name.contains('.') && name.len() <= MAX_HOST && !is_loopback).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_where_lines_name_them() {
        for (line, expected) in [
            ("curl https://Collect.Example.net/x?y=1", &["collect.example.net"][..]),
            (
                "url = \"https://user:${TOKEN}@evil.example:8443/a\" # see http://docs.example.org.",
                &["docs.example.org", "evil.example"],
            ),
            ("[docs](https://a.example/b) and (wss://c.example)", &["a.example", "c.example"]),
            ("curl http://203.0.113.7:80/ http://[2001:DB8::1]:80/", &["203.0.113.7", "[2001:db8::1]"]),
            ("git clone git@git.example.org:team/repo.git", &["git.example.org"]),
            ("SMTP_HOST = \"mail.example.net\"", &["mail.example.net"]),
            ("  endpoint: 'in.example.net:443'", &["in.example.net"]),
            ("https://пример.example/", &["пример.example"]),
            ("http://localhost:8080 http://127.0.0.1/ http://[::1]/ http://db:5432 https://${HOST}/x", &[]),
            ("use std::io; a.b.c(); x@y.example is a person: he", &[]),
            ("server: \"nginx-1.27\" host: \"1.2\"", &[]),
        ] {
            assert_eq!(hosts(line), expected, "{line}");
        }
    }
}
