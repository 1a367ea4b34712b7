//! Compression of responses, by `Accept-Encoding`.

use axum::http::{Extensions, HeaderMap, HeaderValue, Response, StatusCode, Version, header};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{Predicate, SizeAbove};

/// Smaller responses are sent as they are.
const MIN_BYTES: u16 = 1024;

/// Media types that are compressed. Whole archives and bundles are compressed already; event streams must not be delayed.
const MEDIA_TYPES: [&str; 10] = [
    "application/json",
    "application/problem+json",
    "application/javascript",
    LAYER,
    "text/css",
    "text/html",
    "text/javascript",
    "text/markdown",
    "text/plain",
    "text/x-diff",
];

/// The media type of a tar. It is compressed as its reader prefers; an archive of a tree is tar.gz unless its reader asks for a tar.
pub(crate) const LAYER: &str = "application/x-tar";

/// Marks a response that is sent as it is: the bytes of a file, whose `ETag` and ranges are those of the file itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verbatim;

/// Returns the layer that compresses responses, at the fastest level: requests of other callers wait meanwhile.
pub(crate) fn layer() -> CompressionLayer<impl Predicate> {
    let is_compressible: fn(StatusCode, Version, &HeaderMap, &Extensions) -> bool = is_compressible;
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(MIN_BYTES).and(is_compressible))
}

fn is_compressible(_: StatusCode, _: Version, headers: &HeaderMap, extensions: &Extensions) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|media_type| media_type.to_str().ok());
    let essence = media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    extensions.get::<Verbatim>().is_none() && MEDIA_TYPES.contains(&essence)
}

/// Makes the strong `ETag` of a compressed response weak: its bytes are those of one encoding.
pub(crate) fn weaken_etag<B>(mut response: Response<B>) -> Response<B> {
    let headers = response.headers_mut();
    if headers.contains_key(header::CONTENT_ENCODING)
        && let Some(strong) = headers.get(header::ETAG).filter(|etag| etag.as_bytes().starts_with(b"\""))
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", strong.as_bytes()].concat())
    {
        headers.insert(header::ETAG, weak);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_etag_of_a_compressed_response_becomes_weak() {
        let etag_of = |encoding: Option<&str>, etag: &str| {
            let mut response = Response::builder().header(header::ETAG, etag);
            if let Some(encoding) = encoding {
                response = response.header(header::CONTENT_ENCODING, encoding);
            }
            weaken_etag(response.body(()).unwrap()).headers()[header::ETAG].clone()
        };
        assert_eq!(etag_of(Some("gzip"), "\"a\""), "W/\"a\"");
        assert_eq!(etag_of(Some("gzip"), "W/\"a\""), "W/\"a\"");
        assert_eq!(etag_of(None, "\"a\""), "\"a\"");
    }
}
