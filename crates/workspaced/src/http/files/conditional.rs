//! Conditional and range requests: `ETag`, `If-Match`, `If-None-Match`, `If-Range` and `Range`.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use model::{Code, Refusal, Sha256};

use crate::http::problem::Problem;

/// Returns the `ETag` of a file: its quoted hash.
pub(crate) fn etag(hash: &Sha256) -> HeaderValue {
    // A quoted hash is always a valid header value.
    HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// Parses the `ETag` of `If-Match`. No version has one that is weak or not a hash, so that it is [`Sha256::ZERO`], which no file has.
///
/// # Errors
///
/// `INVALID_REQUEST` if it is not one `ETag`.
pub(crate) fn parse_etag(value: &HeaderValue) -> Result<Sha256, Refusal> {
    let tag = value.to_str().map(str::trim).ok();
    let quoted = tag.and_then(|tag| tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"')?.strip_suffix('"'));
    let strong = quoted.filter(|opaque| !opaque.contains('"')).ok_or_else(invalid_precondition)?;
    let is_weak = tag.is_some_and(|tag| tag.starts_with("W/"));
    Ok(Sha256::parse(strong).ok().filter(|_| !is_weak).unwrap_or(Sha256::ZERO))
}

/// Returns whether the list of `ETag`s in `If-None-Match` contains `etag`. The comparison is weak.
pub(crate) fn matches_etag(list: &HeaderValue, etag: &HeaderValue) -> bool {
    let (Ok(list), Ok(etag)) = (list.to_str(), etag.to_str()) else { return false };
    list.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag)
}

/// Returns whether the `ETag`s in `If-Match`, if the header is there, do not contain `etag`. The comparison is strong.
pub(crate) fn fails_if_match(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let mut wanted = headers.get_all(header::IF_MATCH).iter().peekable();
    let etag = etag.to_str().unwrap_or_default();
    let names = |list: &str| list.split(',').map(str::trim).any(|one| one == "*" || one == etag);
    wanted.peek().is_some() && !wanted.any(|list| list.to_str().is_ok_and(names))
}

/// Refuses a read of another version than `If-Match` names.
pub(crate) fn failed_if_match(path: &str, current: Sha256) -> Problem {
    let message = "the file does not have the version that `If-Match` names";
    let refusal = Refusal::new(Code::WriteConflict, message, "Read the file without `If-Match`.");
    let refusal = refusal.with_details(|details| {
        details.path = Some(path.to_owned());
        details.current_sha256 = Some(current);
    });
    Problem::from(refusal).with_status(StatusCode::PRECONDITION_FAILED)
}

/// Refuses a mutation without a precondition.
pub(crate) fn missing_precondition() -> Refusal {
    Refusal::new(
        Code::PreconditionRequired,
        "missing precondition",
        "Send `If-Match` with the file's ETag to replace or delete it, or `If-None-Match: *` to create it.",
    )
}

/// Refuses a mutation whose precondition is malformed.
pub(crate) fn invalid_precondition() -> Refusal {
    Refusal::invalid("invalid precondition", "Send either `If-Match: \"sha256\"` or `If-None-Match: *`.")
}

/// Refuses an upload that says that it is a part of a file. Stored as the whole, it would cut the file.
pub(crate) fn partial_upload() -> Refusal {
    Refusal::invalid("`Content-Range` is not supported: an upload is a whole file", "Send the whole file.")
}

/// The bytes that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    /// The whole file: there is no range, or none that is supported.
    Whole,
    /// From the first byte (inclusive) to the last (exclusive).
    Part(u64, u64),
    /// No byte of the file.
    Unsatisfiable,
}

impl Requested {
    /// Returns what `headers` ask for of a file of `size` bytes with this `etag`.
    pub(crate) fn of(headers: &HeaderMap, etag: &HeaderValue, size: u64) -> Self {
        let is_current = headers.get(header::IF_RANGE).is_none_or(|wanted| wanted == etag);
        match headers.get(header::RANGE).filter(|_| is_current) {
            Some(range) => Self::parse(range, size),
            None => Self::Whole,
        }
    }

    fn parse(value: &HeaderValue, size: u64) -> Self {
        let Some(range) = value.to_str().ok().and_then(|text| text.trim().strip_prefix("bytes=")) else {
            return Self::Whole;
        };
        // A request for several ranges gets the whole file, as RFC 9110 allows.
        let Some((first, last)) = range.split_once('-').filter(|_| !range.contains(',')) else { return Self::Whole };
        let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse::<u64>().ok().map(Some) };
        match (number(first.trim()), number(last.trim())) {
            (Some(Some(from)), Some(last)) if last.is_none_or(|last| from <= last) => {
                let to = last.map_or(size, |last| last.saturating_add(1).min(size));
                if from < size { Self::Part(from, to) } else { Self::Unsatisfiable }
            }
            (Some(None), Some(Some(suffix))) => {
                if suffix == 0 || size == 0 {
                    Self::Unsatisfiable
                } else {
                    Self::Part(size.saturating_sub(suffix), size)
                }
            }
            _ => Self::Whole,
        }
    }
}

/// Refuses a range that selects no byte of a file of `size` bytes.
pub(crate) fn unsatisfiable_range(size: u64) -> Problem {
    let message = format!("the range selects no byte of the file, which has {size} bytes");
    let refusal = Refusal::invalid(message, "Request bytes that the file has, or omit the range.")
        .with_details(|details| details.actual = Some(size));
    let range =
        HeaderValue::try_from(format!("bytes */{size}")).unwrap_or_else(|_| HeaderValue::from_static("bytes */*"));
    Problem::from(refusal).with_status(StatusCode::RANGE_NOT_SATISFIABLE).with_header(header::CONTENT_RANGE, range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_is_compared_strongly() {
        let etag = HeaderValue::from_static("\"a\"");
        let fails = |values: &[&'static str]| {
            let values = values.iter().map(|value| (header::IF_MATCH, HeaderValue::from_static(value)));
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(name, value);
            }
            fails_if_match(&headers, &etag)
        };
        for values in [&[][..], &["*"], &["\"a\""], &["\"b\", \"a\""], &["\"b\"", "\"a\""]] {
            assert!(!fails(values), "{values:?}");
        }
        for values in [&["\"b\""][..], &["W/\"a\""], &["a"], &[""]] {
            assert!(fails(values), "{values:?}");
        }
    }

    #[test]
    fn a_range_is_one_part_or_the_whole() {
        let table = [
            ("bytes=0-4", 10, Requested::Part(0, 5)),
            ("bytes=5-", 10, Requested::Part(5, 10)),
            ("bytes=-3", 10, Requested::Part(7, 10)),
            ("bytes=-30", 10, Requested::Part(0, 10)),
            ("bytes=8-99", 10, Requested::Part(8, 10)),
            ("bytes=10-", 10, Requested::Unsatisfiable),
            ("bytes=-0", 10, Requested::Unsatisfiable),
            ("bytes=0-", 0, Requested::Unsatisfiable),
            ("bytes=5-2", 10, Requested::Whole),
            ("bytes=0-1,3-4", 10, Requested::Whole),
            ("lines=0-1", 10, Requested::Whole),
        ];
        for (raw, size, want) in table {
            assert_eq!(Requested::parse(&HeaderValue::from_static(raw), size), want, "{raw}");
        }
    }
}
