//! Sign-in of people to the dashboard at the issuer, which ends in the cookie of a [session](crate::http::auth::session).

use axum::Router;
use axum::extract::State;
use axum::http::uri::Uri;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::clock::new_secret;
use engine::operators::{CreatedOperator, SESSION_SECONDS};
use model::Sha256;
use serde::Deserialize;
use std::sync::Arc;

use crate::http::auth::AnyOperator;
use crate::http::auth::session::{SESSION_COOKIE, cookie};
use crate::http::extract::{Json, Query};
use crate::http::oauth::Asked;
use crate::http::problem::{Problem, pages};
use crate::issuer::Issuer;
use crate::issuer::sign_in::{SignInAttempt, SignInError};
use crate::service::Service;
use config::SignInConfig;

/// The cookie of a sign-in that is under way.
const ATTEMPT_COOKIE: &str = "__Host-workspaced-sign-in";
/// How long a person may take to sign in, in seconds.
const ATTEMPT_SECONDS: u64 = 600;
/// Where the issuer sends people.
const CALLBACK: &str = "/sign-in/callback";
/// Maximum length of the page to return to.
const MAX_PAGE_BYTES: usize = 1024;

/// Returns the routes of the sign-in.
pub(crate) fn routes() -> Router<Service> {
    Router::new()
        .route("/sign-in", get(begin))
        .route(CALLBACK, get(end))
        .route("/sign-in/issuer", get(issuer))
        .route("/sign-out", post(sign_out))
}

fn set_cookie(name: &str, value: &str, same_site: &str, seconds: u64) -> Option<HeaderValue> {
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite={same_site}");
    HeaderValue::try_from(text).ok()
}

/// The issuer at which people sign in.
#[derive(serde::Serialize)]
struct SignInIssuer {
    issuer: Option<String>,
}

/// Where a sign-in returns to.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default)]
struct Begin {
    to: Option<String>,
}

/// What the issuer says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct End {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
}

/// Returns the issuer with how people sign in, if they can.
fn configured(service: &Service) -> Result<(&Arc<Issuer>, &SignInConfig), Problem> {
    let issuer = service.state.access.issuer.as_ref().ok_or_else(Problem::no_route)?;
    Ok((issuer, issuer.config.sign_in.as_ref().ok_or_else(Problem::no_route)?))
}

/// Tells the dashboard where people sign in, if they can.
async fn issuer(State(service): State<Service>, Query(()): Query<()>) -> Json<SignInIssuer> {
    let configured = configured(&service).ok();
    Json(SignInIssuer { issuer: configured.map(|(issuer, _)| issuer.config.issuer.clone()) })
}

/// Sends a person to the issuer.
async fn begin(
    State(service): State<Service>,
    Query((begin,)): Query<(Begin,)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (issuer, sign_in) = configured(&service)?;
    let Some(redirect) = redirect_of(&service, &uri, &headers) else {
        return Ok(failed(
            "Open the service by https, or on the machine that it runs on: a session needs a connection that nobody reads.",
        ));
    };
    let secret = || new_secret("s");
    let attempt = SignInAttempt { state: secret(), nonce: secret(), verifier: secret() };
    let url = match issuer.authorization_url(&service.operators, sign_in, &attempt, &redirect).await {
        Ok(url) => url,
        Err(error) => return Ok(refused(&error)),
    };
    let page = URL_SAFE_NO_PAD.encode(begin.to.as_deref().filter(|page| is_page(page)).unwrap_or("/"));
    let kept = format!("{}.{}.{}.{page}", attempt.state, attempt.nonce, attempt.verifier);
    // Sent with the return from the issuer, which is a navigation from another site.
    Ok(see_other(url.as_str(), [set_cookie(ATTEMPT_COOKIE, &kept, "Lax", ATTEMPT_SECONDS)]))
}

/// Receives a person whom the issuer sends back.
async fn end(State(service): State<Service>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let (issuer, sign_in) = configured(&service)?;
    // Issuers add parameters of their own. One that is given twice is none.
    let end = axum::extract::Query::<End>::try_from_uri(&uri).map(|query| query.0).unwrap_or_default();
    let stale = "This sign-in was not begun in this browser, or more than ten minutes ago. Begin again.";
    let Some((attempt, page)) = cookie(&headers, ATTEMPT_COOKIE).and_then(attempt_of) else {
        return Ok(failed(stale));
    };
    // By hashes, whose comparison tells nothing about the texts.
    let is_same = |text: &str| Sha256::of(text.as_bytes()) == Sha256::of(attempt.state.as_bytes());
    let is_of_issuer = end.iss.as_ref().is_none_or(|named| *named == issuer.config.issuer);
    if !end.state.as_deref().is_some_and(is_same) || !is_of_issuer {
        return Ok(failed(stale));
    }
    let (Some(code), Some(redirect)) = (end.code, redirect_of(&service, &uri, &headers)) else {
        return Ok(failed("The issuer has refused the sign-in, or it was cancelled there."));
    };
    let person = match issuer.redeem(&service.operators, sign_in, &attempt, &code, &redirect).await {
        Ok(person) => person,
        Err(error) => return Ok(refused(&error)),
    };
    let CreatedOperator { token, operator } = match service.operators.sign_in(&person.address, person.scopes).await {
        Ok(created) => created,
        Err(engine::CallError::Refused(refusal)) => {
            tracing::warn!(code = %refusal.code, "a person could not sign in: {}", refusal.message);
            return Ok(failed(
                "There is an operator of your address that has a token of its own, or too many operators. Ask who runs the service.",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    tracing::info!(operator.name = %operator.name, "a person has signed in");
    let cookies =
        [set_cookie(SESSION_COOKIE, &token, "Strict", SESSION_SECONDS), set_cookie(ATTEMPT_COOKIE, "", "Lax", 0)];
    Ok(see_other(&page, cookies))
}

/// Ends the sessions of a person.
async fn sign_out(
    State(service): State<Service>,
    caller: AnyOperator,
    Query(()): Query<()>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // Programs with a token do not end it here.
    if !headers.contains_key(header::AUTHORIZATION) {
        service.operators.sign_out(&caller.operator).await?;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().extend(set_cookie(SESSION_COOKIE, "", "Strict", 0).map(|gone| (header::SET_COOKIE, gone)));
    Ok(response)
}

/// Parses the cookie of a sign-in, with the page to return to.
fn attempt_of(kept: &str) -> Option<(SignInAttempt, String)> {
    let mut parts = kept.split('.');
    let mut next = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
    let attempt = SignInAttempt { state: next()?, nonce: next()?, verifier: next()? };
    let page = String::from_utf8(URL_SAFE_NO_PAD.decode(next()?).ok()?).ok()?;
    is_page(&page).then_some((attempt, page))
}

/// Whether `page` is an address of this service, and not of another one.
fn is_page(page: &str) -> bool {
    let is_local = page.starts_with('/') && !page.starts_with("//") && !page.contains('\\');
    is_local && page.len() <= MAX_PAGE_BYTES && page.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns where the issuer sends people; `None` without a secure connection, on which no cookie would be kept.
fn redirect_of(service: &Service, uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let base = Asked::of(uri, headers).base_url(&service.state.access)?;
    let url = reqwest::Url::parse(&base).ok()?;
    (url.scheme() == "https" || config::http_client::is_loopback(&url)).then(|| format!("{base}{CALLBACK}"))
}

fn see_other(to: &str, cookies: impl IntoIterator<Item = Option<HeaderValue>>) -> Response {
    let Ok(to) = HeaderValue::try_from(to) else { return Problem::internal().into_response() };
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for cookie in cookies.into_iter().flatten() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// The page for a person who could not sign in, and the log for who runs the service.
fn refused(error: &SignInError) -> Response {
    tracing::warn!(error = error as &dyn std::error::Error, "a person could not sign in");
    failed(match error {
        SignInError::Address => "The issuer does not say that your address is verified.",
        SignInError::Groups => "None of your groups may use this service. Ask who runs it.",
        SignInError::NoEndpoints | SignInError::Fetch(_) | SignInError::Token(_) => {
            "The issuer did not answer as expected. Try again; if it fails again, tell who runs the service."
        }
    })
}

fn failed(text: &'static str) -> Response {
    pages::message(StatusCode::FORBIDDEN, "You are not signed in", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_returns_to_this_service_alone() {
        for good in ["/", "/runs/a?tab=changes", "/approvals#x"] {
            assert!(is_page(good), "{good}");
        }
        for bad in
            ["", "runs", "//evil.example", "/\\evil.example", "https://evil.example", "/a b", "/\n", &"/".repeat(2)]
        {
            assert!(!is_page(bad), "{bad}");
        }
    }
}
