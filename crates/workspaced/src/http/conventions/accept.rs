//! Which of two media types the header `Accept` prefers.

use axum::http::{HeaderMap, header};

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// How much a caller wants a media type: its quality in thousandths, then how exactly the type is named.
type Preference = (u16, u8);

/// Whether `Accept` prefers `media_type` to `default`, which is chosen where it does not say.
pub(crate) fn prefers(headers: &HeaderMap, media_type: &str, default: &str) -> bool {
    let preferred = preference(headers, media_type);
    preferred.0 > 0 && preferred > preference(headers, default)
}

/// Whether `Accept` permits JSON, also by not being sent.
pub(crate) fn accepts_json(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::ACCEPT) || preference(headers, JSON).0 > 0
}

/// How much a caller wants `media_type`. The most exact range decides, not the one of the highest quality.
fn preference(headers: &HeaderMap, media_type: &str) -> Preference {
    let mut found = (0, 0);
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let exactness = exactness(parts.next().unwrap_or_default(), media_type);
        if exactness > found.1 {
            found = (quality_of(parts), exactness);
        }
    }
    found
}

/// Returns how exactly the media range `name` names `media_type`; 0 if it does not match.
fn exactness(name: &str, media_type: &str) -> u8 {
    if name.eq_ignore_ascii_case(media_type) {
        return 3;
    }
    let (kind, _) = media_type.split_once('/').unwrap_or_default();
    match name.split_once('/') {
        Some(("*", "*")) => 1,
        Some((range, "*")) if range.eq_ignore_ascii_case(kind) => 2,
        _ => 0,
    }
}

/// Returns the quality among the parameters of a media range, in thousandths. A malformed one counts as 0.
fn quality_of<'a>(mut parameters: impl Iterator<Item = &'a str>) -> u16 {
    let quality = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(quality) = quality else { return 1000 };
    let (whole, fraction) = quality.split_once('.').unwrap_or((quality, ""));
    let is_short = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "0" if is_short => format!("{fraction:0<3}").parse().unwrap_or(0),
        "1" if is_short && fraction.bytes().all(|byte| byte == b'0') => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn json_is_the_default_and_text_needs_a_preference() {
        let table: [(&[&str], bool); 22] = [
            (&[], false),
            (&[""], false),
            (&["*/*"], false),
            (&["application/json"], false),
            (&["text/plain"], true),
            (&["TEXT/Plain; charset=utf-8"], true),
            (&["text/*"], true),
            (&["text/html"], false),
            (&["application/json, text/plain, */*"], false),
            (&["text/plain, */*"], true),
            (&["text/plain, */*;q=0.1"], true),
            (&["text/plain, application/json"], false),
            (&["text/plain;q=0.5, application/json;q=0.4"], true),
            (&["text/plain;q=0.4, application/json;q=0.5"], false),
            (&["text/plain;q=0.9", "application/json;q=0.8"], true),
            (&["text/plain;q=0"], false),
            (&["text/*, text/plain;q=0"], false),
            (&["application/json;q=0, */*"], true),
            (&["text/plain;q=0.001"], true),
            (&["text/plain;q=2"], false),
            (&["text/plain;q=0.0001"], false),
            (&["application/*, text/plain;q=1.000"], true),
        ];
        for (values, want) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(prefers(&headers, "text/plain", JSON), want, "{values:?}");
        }
    }
}
