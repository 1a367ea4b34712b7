//! A caller with its token.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::{Answer, reaper};

/// What the sources of the service, its folders and its panics are called; no caller has any business with them.
const NEVER_TOLD: [&str; 7] =
    ["/proc/self", "base.git", "tool-cache/", "workspaced.db", "crates/workspace", "stack backtrace", "panicked at"];

/// A caller: an operator, an auditor, an agent with its run token, or nobody.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) base: String,
    pub(crate) token: Option<String>,
    /// Whether files of the run name places of this machine, so that an answer may too.
    pub(crate) files_name_places: bool,
    http: reqwest::Client,
}

impl Client {
    pub(crate) fn new(base: &str, token: Option<&str>) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_mins(1))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        Self { base: base.to_owned(), token: token.map(str::to_owned), files_name_places: false, http }
    }

    /// The same connections with another token.
    pub(crate) fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    /// A request to be sent with [`Client::send`], for what the short forms do not cover.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.send(self.request(Method::PUT, path).body(body)).await
    }

    /// Sends `request`, and holds the answer to what is true of every answer.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        self.try_send(request).await.unwrap_or_else(|error| panic!("no answer: {error:?}"))
    }

    /// The same where the server may go away in between.
    pub(crate) async fn try_send(&self, request: RequestBuilder) -> Result<Answer, reqwest::Error> {
        let request = request.build()?;
        let what = describe(&request);
        let response = self.http.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Answer { what, status, headers, body: response.bytes().await?.to_vec() };
        if !self.files_name_places {
            Self::assert_tells_nothing_physical(&answer);
        }
        Ok(answer)
    }

    /// Opens a stream of Server-Sent Events; see [`next_event`].
    pub(crate) async fn stream(&self, path: &str, last_event_id: Option<&str>) -> reqwest::Response {
        let mut request = self.request(Method::GET, path).header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response
    }

    fn assert_tells_nothing_physical(answer: &Answer) {
        let base = reaper::base_folder().to_str().unwrap();
        let document = ["/openapi.json", "/docs"].iter().any(|path| answer.what.contains(path));
        for needle in NEVER_TOLD.into_iter().filter(|_| !document) {
            assert!(!answer.holds(needle), "{} tells {needle}: {}", answer.what, answer.text());
        }
        if answer.holds(base) {
            // An operator names a source by its place under an import root, and reads it back in the run.
            let mut told = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
            forget_sources(&mut told);
            assert!(told != Value::Null && !told.to_string().contains(base), "{}: {}", answer.what, answer.text());
        }
    }
}

fn forget_sources(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("source");
            members.values_mut().for_each(forget_sources);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_sources),
        _ => {}
    }
}

/// The request, short enough for the message of a failed check.
fn describe(request: &reqwest::Request) -> String {
    let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
    let body: String = String::from_utf8_lossy(body).chars().take(400).collect();
    format!("{} {} {body}", request.method(), request.url().path())
}
