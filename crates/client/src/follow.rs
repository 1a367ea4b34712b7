//! Following the audit as it is written.

use std::time::Duration;

use futures_util::{Stream, stream};
use model::{Record, RunId};
use reqwest::{Method, Response, header};

use crate::audit::AuditFilter;
use crate::problem::Error;
use crate::retry::RetryPolicy;
use crate::server_sent_events::EventReader;
use crate::transport::Client;

/// How long a stream may be silent. The service sends a comment every 15 seconds.
const MAX_SILENCE: Duration = Duration::from_mins(1);

/// A record of a followed stream.
#[derive(Clone, Debug)]
pub struct FollowedRecord {
    /// Continues the stream after this record.
    pub id: String,
    /// The record.
    pub record: Record,
}

/// A stream that is opened again whenever it ends.
struct Follower {
    client: Client,
    query: Vec<(&'static str, Option<String>)>,
    last_id: Option<String>,
    events: Option<EventReader>,
    /// Failures since the last record.
    failures: u32,
    has_connected: bool,
}

impl Client {
    /// Follows the records of all runs, or of one run, as they are written. Requires an operator's token.
    ///
    /// The stream begins after the record with the ID `after`; without one at the filter's `since`, and without that with the
    /// next record. When the connection ends it is opened again, with growing delays, and continues where it was: no record
    /// is missing, and none is repeated. Only where nothing had arrived before, records of the second in which the stream was
    /// opened may precede the first. The stream ends with an error that a repetition cannot remove, such as a revoked token,
    /// or if the service cannot be reached at first.
    ///
    /// ```no_run
    /// # async fn example(client: workspaced_client::Client) -> Result<(), workspaced_client::Error> {
    /// use futures_util::TryStreamExt as _;
    /// use workspaced_client::AuditFilter;
    ///
    /// let mut records = std::pin::pin!(client.follow_audit(None, &AuditFilter::default(), None)?);
    /// while let Some(followed) = records.try_next().await? {
    ///     println!("{}: {} {}", followed.id, followed.record.run_id, followed.record.tool);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an invalid filter.
    pub fn follow_audit(
        &self,
        run: Option<&RunId>,
        filter: &AuditFilter,
        after: Option<String>,
    ) -> Result<impl Stream<Item = Result<FollowedRecord, Error>> + use<>, Error> {
        let mut query = filter.query()?;
        query.push(("run", run.map(ToString::to_string)));
        let follower =
            Follower { client: self.clone(), query, last_id: after, events: None, failures: 0, has_connected: false };
        Ok(stream::try_unfold(follower, |mut follower| async move {
            let record = follower.next().await?;
            Ok(Some((record, follower)))
        }))
    }
}

impl Follower {
    /// Returns the next record. Connects as often as that takes.
    async fn next(&mut self) -> Result<FollowedRecord, Error> {
        loop {
            let Some(events) = &mut self.events else {
                self.connect().await?;
                continue;
            };
            let event = match tokio::time::timeout(MAX_SILENCE, events.next()).await {
                Ok(Ok(Some(event))) if event.name == "audit" => event,
                Ok(Ok(Some(_))) => continue,
                Ok(Err(error @ (Error::Protocol(_) | Error::Invalid(_)))) => return Err(error),
                // It has ended, was cut off or is silent.
                Ok(Ok(None) | Err(_)) | Err(_) => {
                    self.events = None;
                    self.pause().await;
                    continue;
                }
            };
            let record = serde_json::from_str(&event.data).map_err(|error| Error::Protocol(error.to_string()))?;
            self.failures = 0;
            self.last_id = Some(event.id.clone());
            return Ok(FollowedRecord { id: event.id, record });
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let opened = self.open().await;
        match opened {
            Ok(response) => {
                if self.last_id.is_none() && self.query.iter().all(|(name, value)| *name != "since" || value.is_none())
                {
                    // A second connection continues from here, also if nothing has arrived until then.
                    self.query.push(("since", date_of(&response)));
                }
                self.has_connected = true;
                self.events = Some(EventReader::new(response, self.client.max_answer_bytes));
                Ok(())
            }
            Err(Error::Transport(_)) if self.has_connected => {
                self.pause().await;
                Ok(())
            }
            Err(Error::Problem(problem)) if self.has_connected && problem.is_temporary() => {
                self.pause().await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn open(&self) -> Result<Response, Error> {
        // Once connected, the pauses are those of this stream.
        let retry = if self.has_connected { RetryPolicy::NEVER } else { self.client.retry };
        let client = self.client.clone().with_retry(retry);
        let mut request = client.request(Method::GET, ["v1", "audit", "stream"])?.query(&self.query);
        request = request.header(header::ACCEPT, "text/event-stream")?;
        if let Some(id) = &self.last_id {
            request = request.header(header::HeaderName::from_static("last-event-id"), id)?;
        }
        request.send(&client).await
    }

    async fn pause(&mut self) {
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(self.client.retry.delay(self.failures, None).unwrap_or_default()).await;
    }
}

/// Returns the service's time when it answered, in the form of the API.
fn date_of(response: &Response) -> Option<String> {
    let date = response.headers().get(header::DATE)?.to_str().ok()?;
    let time = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    Some(time.to_string())
}
