//! Messages of the Model Context Protocol, for a bridge from another transport.

use futures_util::Stream;
use futures_util::stream;
use reqwest::header::{self, HeaderName};
use reqwest::{Method, StatusCode};

use crate::problem::Error;
use crate::request::{into_text, read, refusal};
use crate::server_sent_events::EventReader;
use crate::transport::Client;

/// What follows in the answer to a message.
enum McpAnswer {
    Text(String),
    Events(Box<EventReader>),
    End,
}

impl Client {
    /// Sends one JSON-RPC message to the service's `/mcp` and returns the messages of its answer: none for a notification.
    /// `headers` are those that the protocol asks for besides `Accept` and `Content-Type`. Sent once: the service makes the
    /// IDs of calls in this protocol, so that a repetition would be another call.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    pub async fn send_mcp(
        &self,
        message: String,
        headers: &[(HeaderName, String)],
    ) -> Result<impl Stream<Item = Result<String, Error>> + use<>, Error> {
        let mut request = self.request(Method::POST, ["mcp"])?.json_text(message);
        request = request.header(header::ACCEPT, "application/json, text/event-stream")?;
        for (name, value) in headers {
            request = request.header(name.clone(), value)?;
        }
        let response = request.send_once().await?;
        let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_owned();
        let answer = if response.status() == StatusCode::ACCEPTED {
            McpAnswer::End
        } else if media_type.starts_with("text/event-stream") {
            McpAnswer::Events(Box::new(EventReader::new(response, self.max_answer_bytes)))
        } else if media_type.starts_with("application/json") {
            // A fault of the protocol has an error status, and a JSON-RPC error as its body.
            McpAnswer::Text(into_text(read(response, self.max_answer_bytes).await?)?)
        } else {
            return Err(refusal(response).await);
        };
        Ok(stream::try_unfold(answer, async |answer| match answer {
            McpAnswer::Text(text) => Ok(Some((text, McpAnswer::End))),
            McpAnswer::Events(mut events) => loop {
                match events.next().await? {
                    Some(event) if event.data.is_empty() => {}
                    Some(event) => return Ok(Some((event.data, McpAnswer::Events(events)))),
                    None => return Ok(None),
                }
            },
            McpAnswer::End => Ok(None),
        }))
    }
}
