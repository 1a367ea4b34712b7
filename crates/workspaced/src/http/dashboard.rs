//! The dashboard and the pages of the API document: their built files, which are part of the program, and their addresses.
//!
//! The files need no token. What the dashboard shows comes from the API, with the token of the person who signs in.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use bytes::Bytes;
use model::Sha256;
use tower::ServiceBuilder;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::http::files::conditional::{etag, matches_etag};
use crate::http::problem::Problem;
use crate::service::Service;

/// The files that `npm run build` writes, by name, with their `ETag`s. They are committed, so that building the service needs no Node.js.
static FILES: LazyLock<HashMap<&str, (Bytes, HeaderValue)>> = LazyLock::new(|| {
    // `build.rs` writes this list.
    let files: &[(&'static str, &'static [u8])] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));
    files.iter().map(|(name, file)| (*name, (Bytes::from_static(file), etag(&Sha256::of(file))))).collect()
});

/// Content policy of the pages: scripts, styles and requests of this service only, and nothing inline.
const PAGES_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                            base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Addresses that the script of the page shows.
const PAGES: [&str; 8] = ["/", "/runs", "/runs/{*page}", "/approvals", "/audit", "/operators", "/nodes", "/about"];

/// The names of these files change with their content.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// Returns the routes of the pages and their files.
pub(crate) fn routes() -> Router<Service> {
    let pages = PAGES.iter().fold(Router::new(), |router, page| router.route(page, get(index)));
    let set = |name: HeaderName, value| SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value));
    let pages = pages.route("/docs", get(|| async { Redirect::to("/docs/") })).route("/docs/", get(docs));
    pages.route("/assets/{name}", get(asset)).layer(
        ServiceBuilder::new()
            .layer(set(header::CONTENT_SECURITY_POLICY, PAGES_POLICY))
            .layer(set(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .layer(set(header::REFERRER_POLICY, "no-referrer"))
            .layer(set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin"))
            .layer(set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin")),
    )
}

/// Returns the page, which names the files of this build.
async fn index(headers: HeaderMap) -> Response {
    serve("index.html", "no-cache", &headers)
}

/// Returns the page of the API, whose script shows the document of this service.
async fn docs(headers: HeaderMap) -> Response {
    serve("docs.html", "no-cache", &headers)
}

/// Returns a file of the pages.
async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    serve(&format!("assets/{name}"), IMMUTABLE, &headers)
}

/// Returns a file with its media type and its `ETag`.
fn serve(name: &str, caching: &'static str, headers: &HeaderMap) -> Response {
    let Some(((file, etag), media_type)) = FILES.get(name).zip(media_type(name)) else {
        return Problem::no_route().into_response();
    };
    let described = [(header::ETAG, etag.clone()), (header::CACHE_CONTROL, HeaderValue::from_static(caching))];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| matches_etag(known, etag)) {
        return (StatusCode::NOT_MODIFIED, described).into_response();
    }
    (described, [(header::CONTENT_TYPE, media_type)], file.clone()).into_response()
}

/// Returns the media type of a file that the build writes.
fn media_type(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_file_has_a_media_type() {
        for page in ["index.html", "docs.html"] {
            assert!(FILES.contains_key(page), "run `npm run build` in crates/workspaced/dashboard");
        }
        for name in FILES.keys() {
            assert!(media_type(name).is_some(), "{name}");
        }
    }
}
