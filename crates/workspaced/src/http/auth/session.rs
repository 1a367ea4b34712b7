//! The cookie of a person's session.
//!
//! It has a token of the operator that the person is, as `Authorization` would have it, and counts only with a header that no page of
//! another origin can send, so that no other page makes requests in the name of the person.

use axum::http::{HeaderMap, HeaderName, header};

/// The header without which the cookie does not count.
static SESSION: HeaderName = HeaderName::from_static("workspaced-session");
/// The cookie of a session. Browsers take one of this name from this host alone, and send it to its whole path.
pub(crate) const SESSION_COOKIE: &str = "__Host-workspaced-session";

/// Returns the token of a session, if the request is one of the dashboard.
pub(crate) fn session_token(headers: &HeaderMap) -> Option<&str> {
    headers.get(&SESSION)?;
    // Browsers say where a request comes from. A script of another port of this machine is of the same site.
    if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return None;
    }
    cookie(headers, SESSION_COOKIE)
}

/// Returns the value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut found = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    found.find(|(known, _)| *known == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_session_counts_only_with_a_header_of_this_origin() {
        let with = |headers: &[(&'static str, &'static str)]| {
            let pairs =
                headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            session_token(&pairs.collect()).map(str::to_owned)
        };
        let cookie = ("cookie", "a=1; __Host-workspaced-session=wso_1; b=2");
        assert_eq!(with(&[cookie, ("workspaced-session", "1")]).as_deref(), Some("wso_1"));
        assert_eq!(
            with(&[cookie, ("workspaced-session", "1"), ("sec-fetch-site", "same-origin")]).as_deref(),
            Some("wso_1")
        );
        assert_eq!(with(&[cookie]), None);
        assert_eq!(with(&[cookie, ("workspaced-session", "1"), ("sec-fetch-site", "same-site")]), None);
        assert_eq!(with(&[("cookie", "workspaced-session=wso_1"), ("workspaced-session", "1")]), None);
    }
}
