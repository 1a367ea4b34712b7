//! Errors: refusals of the service, and failures on the way to it.

use std::time::Duration;

use model::{ApprovalId, Code};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Why a request has no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service refused the request, or keeps the call until it is approved.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No answer arrived, or only a part of it.
    #[error("no answer from the service: {}", causes(.0))]
    Transport(#[source] reqwest::Error),
    /// The answer is not one of this API, or exceeds a limit.
    #[error("unexpected answer: {0}")]
    Protocol(String),
    /// The request cannot be sent: an argument is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A reader or writer of the caller failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// A refusal, as of RFC 9457.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// What programs match on. A newer service may send codes that [`Problem::known_code`] does not know.
    pub code: String,
    /// What is wrong, in one sentence.
    pub detail: String,
    /// What to do next, in one sentence.
    #[serde(default)]
    pub hint: String,
    /// The request, as `urn:workspaced:request:{requestId}`.
    #[serde(default)]
    instance: Option<String>,
    /// Seconds after which the service expects the repetition.
    #[serde(skip)]
    pub(crate) retry_after: Option<Duration>,
    /// The other members, such as `path`, `currentSha256`, `reasons` and `toolCallId`. Empty for a refusal in the text view.
    #[serde(flatten)]
    pub members: Map<String, Value>,
    /// What helps, in the text view of a tool call.
    #[serde(skip)]
    pub text: String,
}

impl Problem {
    /// Returns the code, if this version of the client knows it.
    pub fn known_code(&self) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.as_str() == self.code)
    }

    /// Returns the ID of the request, for the operator of the service.
    pub fn request_id(&self) -> Option<&str> {
        self.instance.as_deref()?.strip_prefix("urn:workspaced:request:")
    }

    /// Returns the approval that the call waits for, if it does.
    pub fn approval_id(&self) -> Option<ApprovalId> {
        ApprovalId::parse(self.members.get("approvalId")?.as_str()?).ok()
    }

    /// Returns the problem document.
    pub fn to_json(&self) -> Value {
        let mut members = self.members.clone();
        let instance = self.instance.clone().map(Value::from);
        members.extend(instance.map(|instance| ("instance".to_owned(), instance)));
        let own = [("code", &self.code), ("detail", &self.detail), ("hint", &self.hint)];
        members.extend(own.map(|(name, text)| (name.to_owned(), Value::from(text.as_str()))));
        members.insert("status".to_owned(), Value::from(self.status));
        Value::Object(members)
    }

    /// Parses a refusal in the text view: `CODE: detail`, then a line with the hint, then what helps.
    pub(crate) fn from_text(status: StatusCode, text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let (code, detail) = first.split_once(": ")?;
        let (hint, text) = rest.split_once('\n').unwrap_or((rest, ""));
        let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        is_code.then(|| Self {
            status: status.as_u16(),
            code: code.to_owned(),
            detail: detail.to_owned(),
            hint: hint.to_owned(),
            instance: None,
            retry_after: None,
            members: Map::new(),
            text: text.to_owned(),
        })
    }

    /// Whether the same request may succeed later without any change.
    pub(crate) fn is_temporary(&self) -> bool {
        // An operator has to repair the run first.
        matches!(self.status, 429 | 503) && self.code != Code::RunNeedsRepair.as_str()
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl Error {
    /// Returns the refusal, if the service refused the request.
    pub fn problem(&self) -> Option<&Problem> {
        if let Self::Problem(problem) = self { Some(problem) } else { None }
    }

    /// Whether the same request may succeed later: no answer arrived, or the service cannot take it now.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Transport(_) => true,
            Self::Problem(problem) => problem.is_temporary(),
            Self::Protocol(_) | Self::Invalid(_) | Self::Io(_) => false,
        }
    }

    /// Whether the service cannot be reached.
    pub fn is_transport(&self) -> bool {
        matches!(self, Self::Transport(_))
    }
}

/// Returns an error with its causes, without the URL, which may be long.
pub(crate) fn causes(error: &reqwest::Error) -> String {
    let mut text = "the request failed".to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}
