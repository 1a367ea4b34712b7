//! The header `traceparent`, by which a caller names its span.

use axum::http::{HeaderMap, HeaderName};

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The caller's span, of which the request is a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent<'a> {
    /// 32 hexadecimal digits.
    pub(crate) trace_id: &'a str,
    /// 16 hexadecimal digits.
    pub(crate) parent_id: &'a str,
    /// Whether the caller records its trace.
    pub(crate) is_sampled: bool,
}

/// Returns the span of a valid `traceparent`, as W3C Trace Context defines it. An invalid header is ignored.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent<'_>> {
    let mut all = headers.get_all(&TRACEPARENT).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    parse_traceparent(only.to_str().ok()?)
}

/// Parses `VERSION-TRACE_ID-PARENT_ID-FLAGS`.
fn parse_traceparent(value: &str) -> Option<TraceParent<'_>> {
    let mut parts = value.split('-');
    let (version, trace_id, parent_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let is_id = |text: &str, length| is_hex(text, length) && text.bytes().any(|byte| byte != b'0');
    // A later version may have more parts.
    let has_end = parts.next().is_none() || version != "00";
    let is_valid = is_hex(version, 2) && version != "ff" && is_id(trace_id, 32) && is_id(parent_id, 16) && has_end;
    let flags = u8::from_str_radix(flags, 16).ok().filter(|_| is_hex(flags, 2))?;
    is_valid.then_some(TraceParent { trace_id, parent_id, is_sampled: flags & 1 == 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_valid_traceparent_has_its_trace_id() {
        for valid in ["00-T-00f067aa0ba902b7-01", "00-T-00f067aa0ba902b7-00", "01-T-00f067aa0ba902b7-01-more"] {
            let header = valid.replace('T', TRACE);
            let parent = parse_traceparent(&header).unwrap();
            assert_eq!((parent.trace_id, parent.parent_id), (TRACE, "00f067aa0ba902b7"), "{valid}");
            assert_eq!(parent.is_sampled, !valid.ends_with("-00"), "{valid}");
        }
        for invalid in [
            "",
            "T",
            "00-T-00f067aa0ba902b7",
            "00-T-00f067aa0ba902b7-01-more",
            "ff-T-00f067aa0ba902b7-01",
            "0-T-00f067aa0ba902b7-01",
            "00-T-0000000000000000-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-T-00f067aa0ba902b7-1",
            "00-T0-00f067aa0ba902b7-01",
            " 00-T-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse_traceparent(&invalid.replace('T', TRACE)), None, "{invalid}");
        }
    }
}
