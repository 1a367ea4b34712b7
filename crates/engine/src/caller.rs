//! Who makes a request, and by which IDs it is known.

use std::collections::BTreeSet;
use std::sync::Arc;

use ledger::RequiredToken;
use model::{Draft, Permission};

/// The caller of one request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The name in the audit: `run-token:{tokenId}` or `operator:{name}`.
    pub actor: String,
    /// What the caller may do in the run.
    pub permissions: BTreeSet<Permission>,
    /// The token of the call, which must still be valid when the call is recorded; `None` if it cannot end.
    pub token: Option<RequiredToken>,
    /// The HTTP request of the call; `None` for work of the service itself.
    pub request: Option<Arc<RequestIds>>,
}

/// The IDs by which the caller's logs and traces name an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestIds {
    /// The ID that the caller chose or the service made: 1 to 128 visible ASCII characters.
    pub request_id: String,
    /// The trace ID of a valid `traceparent`: 32 hexadecimal digits.
    pub trace_id: Option<String>,
}

impl Caller {
    /// Returns the same caller, in this HTTP request.
    #[must_use]
    pub fn in_request(self, request: Option<Arc<RequestIds>>) -> Self {
        Self { request, ..self }
    }
}

impl RequestIds {
    /// Writes the IDs of `request` into a record.
    pub fn write(request: Option<&Self>, draft: &mut Draft) {
        draft.request_id = request.map(|request| request.request_id.clone());
        draft.trace_id = request.and_then(|request| request.trace_id.clone());
    }
}
