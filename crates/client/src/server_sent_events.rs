//! Server-Sent Events, as the HTML standard defines them.

use reqwest::Response;

use crate::problem::Error;
use crate::request::append;

/// An event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerSentEvent {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: String,
}

/// Reads the events of a response, each of at most `max_bytes`.
pub(crate) struct EventReader {
    response: Response,
    parser: EventParser,
}

/// Splits bytes into events.
struct EventParser {
    /// Bytes of an incomplete line.
    rest: Vec<u8>,
    event: ServerSentEvent,
    max_bytes: usize,
}

impl EventReader {
    pub(crate) fn new(response: Response, max_bytes: usize) -> Self {
        Self { response, parser: EventParser { rest: Vec::new(), event: ServerSentEvent::default(), max_bytes } }
    }

    /// Returns the next event; `None` at the end of the stream. May be cancelled.
    pub(crate) async fn next(&mut self) -> Result<Option<ServerSentEvent>, Error> {
        loop {
            if let Some(event) = self.parser.next()? {
                return Ok(Some(event));
            }
            match self.response.chunk().await.map_err(Error::Transport)? {
                Some(chunk) => append(&mut self.parser.rest, &chunk, self.parser.max_bytes)?,
                None => return Ok(None),
            }
        }
    }
}

impl EventParser {
    /// Returns the next complete event of what has arrived.
    fn next(&mut self) -> Result<Option<ServerSentEvent>, Error> {
        let mut start = 0;
        let mut complete = None;
        while let Some(length) = self.rest[start..].iter().position(|byte| *byte == b'\n') {
            let line = &self.rest[start..start + length];
            start += length + 1;
            let line = str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line))
                .map_err(|_| Error::Protocol("an event that is not UTF-8".to_owned()))?;
            if !line.is_empty() {
                self.event.add(line);
                if self.event.data.len() > self.max_bytes {
                    return Err(Error::Protocol(format!("an event has more than {} bytes", self.max_bytes)));
                }
            } else if self.event != ServerSentEvent::default() {
                complete = Some(std::mem::take(&mut self.event));
                break;
            }
        }
        self.rest.drain(..start);
        Ok(complete)
    }
}

impl ServerSentEvent {
    fn add(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "id" => value.clone_into(&mut self.id),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // A comment, which keeps the connection alive, or a field of no use here.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_split_at_any_byte() {
        let text = ": alive\n\nevent: audit\r\nid: c1\r\ndata: {\"a\":\ndata: 1}\n\ndata:x\n\n";
        for split in 0..text.len() {
            let mut parser = EventParser { rest: Vec::new(), event: ServerSentEvent::default(), max_bytes: 1000 };
            let mut found = Vec::new();
            for part in [&text[..split], &text[split..]] {
                parser.rest.extend_from_slice(part.as_bytes());
                while let Some(event) = parser.next().unwrap() {
                    found.push((event.name, event.id, event.data));
                }
            }
            let expected = [("audit", "c1", "{\"a\":\n1}"), ("", "", "x")];
            assert_eq!(found, expected.map(|(name, id, data)| (name.into(), id.into(), data.into())), "{split}");
        }
    }
}
