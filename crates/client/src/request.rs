//! One request: its parts, and the ways to read its answer.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use model::{Sha256, ToolCallId};
use reqwest::header::{self, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::problem::{Error, Problem};
use crate::transport::Client;

/// The most bytes of a refusal.
const MAX_PROBLEM_BYTES: usize = 4 << 20;

/// One page of a list.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Continues the list; missing at its end.
    pub next_cursor: Option<String>,
}

/// Which failures permit that a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// All: a repetition is the same call.
    Always,
    /// Only those after which the service has not executed the request.
    IfNotExecuted,
    /// All but a refusal that is in the run's record: the answer to a command that no runner runs.
    IfNotRecorded,
}

/// Makes a body, as often as it is sent.
type MakeBody = Box<dyn Fn() -> reqwest::Body + Send + Sync>;

/// A request that can be sent several times.
pub(crate) struct Request {
    builder: RequestBuilder,
    /// Makes the body anew for each attempt, if the builder has none.
    body: Option<MakeBody>,
    repeat: Repeat,
    /// Whether status 202 is an answer, not a call that waits for its approval.
    accepts_pending: bool,
}

impl Request {
    pub(crate) fn header(self, name: HeaderName, value: &str) -> Result<Self, Error> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Error::Invalid(format!("the header {name} cannot have the value {value:?}")))?;
        Ok(Self { builder: self.builder.header(name, value), ..self })
    }

    pub(crate) fn query(mut self, pairs: &[(&'static str, Option<String>)]) -> Self {
        let pairs: Vec<_> = pairs.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        if !pairs.is_empty() {
            self.builder = self.builder.query(&pairs);
        }
        self
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        Self { builder: self.builder.json(body), ..self }
    }

    /// Sets a body of bytes.
    pub(crate) fn body(self, body: impl Into<reqwest::Body>) -> Self {
        let builder = self.builder.header(header::CONTENT_TYPE, "application/octet-stream");
        Self { builder: builder.body(body), ..self }
    }

    /// Sets a body of `size_bytes` bytes of another media type, which is made anew for each attempt.
    pub(crate) fn made_body(
        self,
        media_type: &str,
        size_bytes: u64,
        make: impl Fn() -> reqwest::Body + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let request = self.header(header::CONTENT_TYPE, media_type)?;
        let request = request.header(header::CONTENT_LENGTH, &size_bytes.to_string())?;
        Ok(Self { body: Some(Box::new(make)), ..request })
    }

    /// Sets a body that is JSON already.
    pub(crate) fn json_text(self, body: String) -> Self {
        let builder = self.builder.header(header::CONTENT_TYPE, "application/json");
        Self { builder: builder.body(body), ..self }
    }

    /// Sends the request once and returns the response of any status.
    pub(crate) async fn send_once(self) -> Result<Response, Error> {
        self.builder.send().await.map_err(Error::Transport)
    }

    /// Takes status 202 for the answer.
    pub(crate) fn accept_pending(self) -> Self {
        Self { accepts_pending: true, ..self }
    }

    pub(crate) fn repeat(self, repeat: Repeat) -> Self {
        Self { repeat, ..self }
    }

    /// Sends the request, again where that may help, and returns the response if it is a success.
    pub(crate) async fn send(self, client: &Client) -> Result<Response, Error> {
        let mut attempts = 0;
        let mut builder = Some(self.builder);
        while let Some(current) = builder.take() {
            // A streamed body cannot be sent twice.
            builder = current.try_clone();
            let current = match &self.body {
                Some(make) => current.body(make()),
                None => current,
            };
            let error = match current.send().await {
                Ok(response) if is_success(&response, self.accepts_pending) => return Ok(response),
                Ok(response) => refusal(response).await,
                Err(error) => Error::Transport(error),
            };
            attempts += 1;
            let delay = client.retry.delay(attempts, error.retry_after());
            match delay.filter(|_| attempts < client.retry.max_attempts && self.repeat.permits(&error)) {
                Some(delay) if builder.is_some() => tokio::time::sleep(delay).await,
                _ => return Err(error),
            }
        }
        Err(Error::Invalid("the request has no body".to_owned()))
    }

    /// Sends the request and parses the JSON answer.
    pub(crate) async fn answer<T: DeserializeOwned>(self, client: &Client) -> Result<T, Error> {
        let response = self.send(client).await?;
        parse(&read(response, client.max_answer_bytes).await?)
    }

    /// Sends the request and ignores the body of its answer.
    pub(crate) async fn done(self, client: &Client) -> Result<(), Error> {
        self.send(client).await.map(drop)
    }

    /// Sends the request and returns the answer as text.
    pub(crate) async fn text(self, client: &Client) -> Result<String, Error> {
        let response = self.send(client).await?;
        into_text(read(response, client.max_answer_bytes).await?)
    }
}

impl Client {
    /// Begins a request to the path of these segments, each of which is escaped.
    pub(crate) fn request<'a>(
        &self,
        method: Method,
        segments: impl IntoIterator<Item = &'a str>,
    ) -> Result<Request, Error> {
        let mut builder = self.http.request(method, self.url(segments)?);
        if let Some(authorization) = &self.authorization {
            builder = builder.header(header::AUTHORIZATION, authorization.clone());
        }
        Ok(Request { builder, body: None, repeat: Repeat::Always, accepts_pending: false })
    }

    fn url<'a>(&self, segments: impl IntoIterator<Item = &'a str>) -> Result<Url, Error> {
        let mut url = self.base.clone();
        let cannot_be_base = || Error::Invalid("the address of the service is not an HTTP URL".to_owned());
        let mut path = url.path_segments_mut().map_err(|()| cannot_be_base())?;
        path.pop_if_empty();
        for segment in segments {
            // A URL has no such segments: they would change the ones before.
            if matches!(segment, "" | "." | "..") {
                return Err(Error::Invalid(format!("the path of a request cannot contain {segment:?}")));
            }
            path.push(segment);
        }
        drop(path);
        Ok(url)
    }

    /// Returns the items of all pages of a list.
    pub(crate) fn pages<T: DeserializeOwned>(
        &self,
        segments: Vec<String>,
        query: Vec<(&'static str, Option<String>)>,
    ) -> impl Stream<Item = Result<T, Error>> + use<T> {
        let client = self.clone();
        let start = (Vec::new().into_iter(), Some(None));
        stream::try_unfold(start, move |(mut items, mut next): (std::vec::IntoIter<T>, Option<Option<String>>)| {
            let (client, segments, mut query) = (client.clone(), segments.clone(), query.clone());
            async move {
                loop {
                    if let Some(item) = items.next() {
                        return Ok(Some((item, (items, next))));
                    }
                    let Some(cursor) = next else { return Ok(None) };
                    query.retain(|(name, _)| *name != "cursor");
                    query.push(("cursor", cursor));
                    let request = client.request(Method::GET, segments.iter().map(String::as_str))?.query(&query);
                    let page: Page<T> = request.answer(&client).await?;
                    (items, next) = (page.items.into_iter(), page.next_cursor.map(Some));
                }
            }
        })
    }
}

impl Repeat {
    fn permits(self, error: &Error) -> bool {
        match error {
            Error::Problem(problem) => {
                let is_answer =
                    self == Self::IfNotRecorded && problem.status == 503 && problem.members.contains_key("seq");
                problem.is_temporary() && !is_answer
            }
            Error::Transport(error) => self != Self::IfNotExecuted || error.is_connect(),
            _ => false,
        }
    }
}

impl Error {
    fn retry_after(&self) -> Option<Duration> {
        self.problem().and_then(|problem| problem.retry_after)
    }
}

/// Whether the response has what was asked for. Status 202 is a call that waits for its approval, unless `accepts_pending`.
fn is_success(response: &Response, accepts_pending: bool) -> bool {
    response.status().is_success() && (accepts_pending || response.status() != StatusCode::ACCEPTED)
}

/// Reads a response that is no success.
pub(crate) async fn refusal(response: Response) -> Error {
    let status = response.status();
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let tool_call_id = response.headers().get("workspaced-call").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let seq: Option<u64> = response.headers().get("workspaced-seq").and_then(|seq| seq.to_str().ok()?.parse().ok());
    let body = match read(response, MAX_PROBLEM_BYTES).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    let parsed = serde_json::from_slice::<Problem>(&body).ok();
    let problem = parsed.or_else(|| Problem::from_text(status, str::from_utf8(&body).ok()?));
    let Some(mut problem) = problem else {
        return Error::Protocol(format!("status {status} without a problem document"));
    };
    problem.retry_after = retry_after.map(Duration::from_secs);
    if let Some(id) = tool_call_id {
        problem.members.entry("toolCallId").or_insert(Value::from(id));
    }
    if let Some(seq) = seq {
        problem.members.entry("seq").or_insert(Value::from(seq));
    }
    Error::Problem(Box::new(problem))
}

/// Reads a body of at most `max_bytes`.
pub(crate) async fn read(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Error::Transport)? {
        append(&mut body, &chunk, max_bytes)?;
    }
    Ok(body)
}

/// Appends `chunk` to what was read before.
pub(crate) fn append(body: &mut Vec<u8>, chunk: &Bytes, max_bytes: usize) -> Result<(), Error> {
    if body.len() + chunk.len() > max_bytes {
        return Err(Error::Protocol(format!("the answer has more than {max_bytes} bytes")));
    }
    body.extend_from_slice(chunk);
    Ok(())
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::Protocol(error.to_string()))
}

pub(crate) fn into_text(body: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(body).map_err(|_| Error::Protocol("a text that is not UTF-8".to_owned()))
}

/// Returns the JSON object of an input, with an ID of the call under `name` if it has none.
pub(crate) fn with_id(input: &impl Serialize, name: &str, id: String) -> Result<Map<String, Value>, Error> {
    match serde_json::to_value(input) {
        Ok(Value::Object(mut members)) => {
            members.entry(name).or_insert(Value::from(id));
            Ok(members)
        }
        Ok(_) => Err(Error::Invalid("the input is not a JSON object".to_owned())),
        Err(error) => Err(Error::Invalid(format!("the input cannot be written as JSON: {error}"))),
    }
}

/// Returns a new ID with a prefix such as `tc_`.
pub(crate) fn new_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::now_v7().simple())
}

/// Returns the version that the header `name` has, quoted or not.
pub(crate) fn sha256_header(response: &Response, name: &str) -> Option<Sha256> {
    Sha256::parse(response.headers().get(name)?.to_str().ok()?.trim_matches('"')).ok()
}

/// Returns the call that the header `name` has.
pub(crate) fn call_header(response: &Response, name: &str) -> Option<ToolCallId> {
    ToolCallId::parse(response.headers().get(name)?.to_str().ok()?).ok()
}
