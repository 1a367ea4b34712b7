//! An HTTP answer, and the checks that apply to every answer.

use memchr::memmem;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// The answer to a request. Failed checks print the request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) what: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Returns the status of `code` in the contract. A second copy of the service's table, so that tests can check it.
fn status_of(code: &str) -> u16 {
    match code {
        "APPROVAL_REQUIRED" => 202,
        "INVALID_REQUEST" | "PATH_REJECTED" | "PATCH_INVALID" | "NOT_A_FILE" | "NOT_A_DIRECTORY" => 400,
        "UNAUTHENTICATED" => 401,
        "FORBIDDEN" | "POLICY_DENIED" | "POLICY_DENIED_SECRET" => 403,
        "NOT_FOUND" | "RUN_NOT_FOUND" | "TOOL_NOT_FOUND" => 404,
        "ALREADY_EXISTS"
        | "WRITE_CONFLICT"
        | "PATCH_CONFLICT"
        | "BASE_COMMIT_MISMATCH"
        | "EDIT_NOT_FOUND"
        | "EDIT_NOT_UNIQUE"
        | "TOOL_CALL_ID_REUSED"
        | "IDEMPOTENCY_KEY_REUSED"
        | "RUN_CLOSED"
        | "REVERT_CONFLICT"
        | "CHANGED_OUTSIDE" => 409,
        "FILE_TOO_LARGE" | "BODY_TOO_LARGE" => 413,
        "UNSUPPORTED_BINARY" => 415,
        "PATCH_BUDGET_EXCEEDED" => 422,
        "RATE_LIMITED" => 429,
        "INTERNAL" => 500,
        "QUOTA_EXCEEDED" => 507,
        "UNAVAILABLE" | "RUN_NEEDS_REPAIR" => 503,
        other => panic!("the contract has no code {other}"),
    }
}

/// Returns a body without the members `instance` of the refusals in it, in which the answers to two requests differ.
pub(crate) fn without_instances(body: &Value) -> Value {
    match body {
        Value::Object(members) => {
            let members = members.iter().filter(|(name, _)| *name != "instance");
            members.map(|(name, value)| (name.clone(), without_instances(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_instances).collect(),
        other => other.clone(),
    }
}

impl Answer {
    /// Returns the body as text, with invalid UTF-8 replaced.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns a header's value, or an empty string.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Parses the body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{}: {} is not JSON ({error}): {}", self.what, self.status, self.text()))
    }

    /// Asserts the status and returns the JSON body, or null for an empty one.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.what, self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Asserts status 200 and returns the JSON body.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        self.is(200)
    }

    /// Asserts a refusal with `code` and the status and members that the contract requires. Returns its body without
    /// `instance`, in which the same refusals of two requests differ.
    #[track_caller]
    pub(crate) fn refused(&self, code: &str) -> Value {
        let mut body = self.is(status_of(code));
        self.assert_refusal(&body, code);
        body.as_object_mut().unwrap().remove("instance");
        body
    }

    /// Asserts a refusal that follows the contract and returns its code.
    #[track_caller]
    pub(crate) fn refusal(&self) -> String {
        let code = self.json()["code"].as_str().unwrap_or_else(|| panic!("{}: {}", self.what, self.text())).to_owned();
        self.refused(&code);
        code
    }

    #[track_caller]
    fn assert_refusal(&self, body: &Value, code: &str) {
        let context = || format!("{}: {body:#}", self.what);
        assert_eq!(body["code"], code, "{}", context());
        assert_eq!(body["ok"], false, "{}", context());
        if code == "APPROVAL_REQUIRED" {
            // A dry run reports that an approval would be required. It creates none.
            let dry = self.what.contains("\"dryRun\":true");
            assert!(dry != body["approvalId"].as_str().is_some_and(|id| !id.is_empty()), "{}", context());
            return;
        }
        assert!(self.header("content-type").starts_with("application/problem+json"), "{}", context());
        assert_eq!(body["status"], self.status, "{}", context());
        for member in ["type", "title", "detail", "message", "hint"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member} is missing. {}", context());
        }
        let instance = self.header("x-request-id").replace('"', "%22");
        assert_eq!(body["instance"], format!("urn:workspaced:request:{instance}"), "{}", context());
        assert_eq!((&body["type"], &body["detail"]), (&format!("/problems/{code}").into(), &body["message"]));
        if [429, 503].contains(&self.status) {
            assert!(self.header("retry-after").parse::<u64>().is_ok(), "{}", context());
        }
    }

    /// Returns whether the body or a header contains `needle`.
    pub(crate) fn contains(&self, needle: &str) -> bool {
        let in_body = memmem::find(&self.body, needle.as_bytes()).is_some();
        in_body || self.headers.values().any(|value| String::from_utf8_lossy(value.as_bytes()).contains(needle))
    }
}
