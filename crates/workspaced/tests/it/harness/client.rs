//! An HTTP client with a token.

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::waiting::PATIENCE;
use super::{Answer, cleanup};

/// Names of source files, internal folders and panics. No answer may contain one.
const INTERNAL_NAMES: [&str; 7] =
    ["/proc/self", "bases/", "tool-cache/", "workspaced.db", "crates/workspace", "stack backtrace", "panicked at"];

/// A client of an operator, an auditor or an agent, or one without a token.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) base: String,
    pub(crate) token: Option<String>,
    /// Whether files of the run contain paths of this machine, so that answers may contain them too.
    pub(crate) files_contain_local_paths: bool,
    http: reqwest::Client,
}

impl Client {
    pub(crate) fn new(base: &str, token: Option<&str>) -> Self {
        let http = Self::http().build().unwrap();
        Self { base: base.to_owned(), token: token.map(str::to_owned), files_contain_local_paths: false, http }
    }

    fn http() -> reqwest::ClientBuilder {
        // Fails if another test has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder()
            .no_proxy()
            // Reading the certificates of the machine takes longer than most tests.
            .tls_certs_only([])
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
    }

    /// Returns a client with the same token that speaks HTTP/2 without asking, over one connection.
    pub(crate) fn over_http2(&self) -> Self {
        Self { http: Self::http().http2_prior_knowledge().build().unwrap(), ..self.clone() }
    }

    /// Returns a client with another token and the same connections.
    pub(crate) fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    /// Builds a request for [`Client::send`].
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

    /// Sends `request` and checks what applies to every answer.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        self.try_send(request).await.unwrap_or_else(|error| panic!("no answer: {error:?}"))
    }

    /// Sends `request` to a server that may stop before it answers.
    pub(crate) async fn try_send(&self, request: RequestBuilder) -> Result<Answer, reqwest::Error> {
        let request = request.build()?;
        let what = describe(&request);
        let response = self.http.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Answer { what, status, headers, body: response.bytes().await?.to_vec() };
        if !self.files_contain_local_paths {
            Self::assert_no_local_path(&answer);
        }
        Ok(answer)
    }

    /// Opens a stream of server-sent events.
    pub(crate) async fn stream(&self, path: &str, last_event_id: Option<&str>) -> reqwest::Response {
        let mut request = self.request(Method::GET, path).header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response
    }

    fn assert_no_local_path(answer: &Answer) {
        let base = cleanup::base_folder().to_str().unwrap();
        let document = ["/openapi.json", "/docs"].iter().any(|path| answer.what.contains(path));
        for needle in INTERNAL_NAMES.into_iter().filter(|_| !document) {
            assert!(!answer.contains(needle), "{} contains {needle}: {}", answer.what, answer.text());
        }
        if answer.contains(base) {
            // An operator gives the path of a source under an import root, and the run repeats it.
            let mut body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
            remove_sources(&mut body);
            assert!(body != Value::Null && !body.to_string().contains(base), "{}: {}", answer.what, answer.text());
        }
    }
}

fn remove_sources(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("source");
            members.values_mut().for_each(remove_sources);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_sources),
        _ => {}
    }
}

/// Describes the request for the message of a failed check.
fn describe(request: &reqwest::Request) -> String {
    let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
    let body: String = String::from_utf8_lossy(body).chars().take(400).collect();
    format!("{} {} {body}", request.method(), request.url().path())
}
