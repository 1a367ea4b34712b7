//! The pages that the `type` of a problem document names: cause, remedy and example of each code.

use std::fmt::Write as _;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use model::{Code, Guide, Refusal};

use crate::http::conventions::accept;
use crate::http::extract::{Path, Query};
use crate::http::problem::{Problem, status, title};

/// Content policy of the pages: their own style, and nothing else.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'";
/// The media type of the pages.
pub(crate) const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;\
                     color:#1f2328;background:#fff}code{font:0.9em ui-monospace,monospace}\
                     @media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}a{color:#4493f8}}";

/// A page, as both of its forms.
struct ProblemPage {
    html: String,
    text: String,
}

/// List the codes of refusals
///
/// As HTML for browsers, else as plain text.
#[utoipa::path(
    get, path = "/problems", tag = "open", operation_id = "listProblems", security(()),
    responses((status = 200, description = "Every code with its status.", body = String, content_type = "text/plain")),
)]
pub(crate) async fn list_problems(Query(()): Query<()>, headers: HeaderMap) -> Response {
    let mut page = ProblemPage::new("Problems");
    page.html.push_str("<ul>");
    for code in Code::ALL {
        let status = status(code).as_u16();
        // Writing to a string never fails.
        let _ = write!(page.html, "<li><a href=\"/problems/{code}\"><code>{code}</code></a> {status}</li>");
        let _ = writeln!(page.text, "{status} {code}");
    }
    page.html.push_str("</ul>");
    page.respond(&headers)
}

/// Explain a code
///
/// Cause, remedy and an example: what the `type` of a problem document names. As HTML for browsers, else as plain text.
#[utoipa::path(
    get, path = "/problems/{code}", tag = "open", operation_id = "getProblem", security(()),
    params(("code" = Code, Path)),
    responses(
        (status = 200, description = "The explanation.", body = String, content_type = "text/plain"),
        (status = 404, description = "`NOT_FOUND`: no such code.", body = crate::http::problem::ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn get_problem(
    Path(name): Path<String>,
    Query(()): Query<()>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let code = Code::parse(&name)
        .ok_or_else(|| Refusal::new(Code::NotFound, "no such code", "GET /problems lists every code."))?;
    let Guide { cause, remedy, example } = code.guide();
    let mut page = ProblemPage::new(&title(code));
    page.section("Code", &format!("{code}, status {}", status(code).as_u16()));
    page.section("Cause", cause);
    page.section("Remedy", remedy);
    page.section("Example", example);
    page.html.push_str("<p><a href=\"/problems\">All codes</a></p>");
    Ok(page.respond(&headers))
}

/// Whether the caller is a browser that shows a page.
pub(crate) fn prefers_page(headers: &HeaderMap) -> bool {
    accept::prefers(headers, "text/html", "application/json")
}

/// The answer to a browser for an address that does not exist.
pub(crate) fn unknown_page() -> Response {
    message(StatusCode::NOT_FOUND, "There is no such page", "The address may have been typed wrong.")
}

/// A page that tells a person something, with the way to the others. The texts contain no markup.
pub(crate) fn message(status: StatusCode, title: &str, text: &str) -> Response {
    let mut page = ProblemPage::new(title);
    // Writing to a string never fails.
    let _ = write!(
        page.html,
        "<p>{text}</p><p><a href=\"/\">Runs and approvals</a> · <a href=\"/docs/\">The API</a> · \
         <a href=\"/problems\">Codes of refusals</a></p>",
    );
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(HTML)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::VARY, HeaderValue::from_static("accept")),
    ];
    (status, headers, page.html + "</body></html>\n").into_response()
}

impl ProblemPage {
    fn new(title: &str) -> Self {
        Self {
            html: format!(
                "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
                 content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
            ),
            text: format!("{title}\n\n"),
        }
    }

    fn section(&mut self, name: &str, text: &str) {
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        // Writing to a string never fails.
        let _ = write!(self.html, "<h2>{name}</h2><p>{escaped}</p>");
        let _ = writeln!(self.text, "{name}: {text}");
    }

    fn respond(self, headers: &HeaderMap) -> Response {
        let (media_type, body) = if accept::prefers(headers, "text/html", "text/plain") {
            (HTML, self.html + "</body></html>\n")
        } else {
            ("text/plain; charset=utf-8", self.text)
        };
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY)),
            (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600")),
            (header::VARY, HeaderValue::from_static("accept")),
        ];
        (headers, body).into_response()
    }
}
