//! Comments of people on a run: records of its chain, which its agents are told with their next answers.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use model::{Draft, LogicalPath, Refusal, RunId, Sha256, canonical_json, redact_members};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::approvals::check_person;
use crate::call::record::RecordedError;
use crate::caller::Caller;
use crate::calls::Calls;
use crate::calls::events::{AppendedEvent, new_entry};
use crate::clock::{new_tool_call_id, now};
use crate::run::decisions::{COMMENT_TOOL, Comment};
use crate::tool::input::file_path;

/// Maximum characters of a comment.
const MAX_TEXT: usize = 2000;
/// The largest number of a line.
const MAX_LINE: u64 = 10_000_000;

/// A comment of a person on a run.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"text": "Keep the old name as an alias.", "path": "src/main.rs", "line": 12}))]
pub struct CommentRequest {
    /// What the agent is told, 1 to 2,000 characters. A credential in it is replaced by `[redacted: kind]`.
    #[schema(min_length = 1, max_length = 2000)]
    text: String,
    /// The file that it is about.
    #[serde(default)]
    path: Option<String>,
    /// The line of the file.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 10_000_000)]
    line: Option<u64>,
    /// The person who comments, if the operator acts for one: 1 to 200 characters, as in a decision about an approval.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200, example = "alice")]
    on_behalf_of: Option<String>,
}

/// A comment whose members are checked and have no credentials.
struct Checked {
    input: Map<String, Value>,
    on_behalf_of: Option<String>,
    path: Option<LogicalPath>,
    line: Option<u64>,
}

impl CommentRequest {
    fn check(self, operator: &OperatorIdentity) -> Result<Checked, Refusal> {
        let count = self.text.chars().count();
        if self.text.trim().is_empty() || count > MAX_TEXT || self.text.contains('\0') {
            let message = format!("`text` takes 1 to {MAX_TEXT} characters without NUL; this one has {count}");
            return Err(Refusal::invalid(message, "Give a shorter comment."));
        }
        if self.line.is_some_and(|line| !(1..=MAX_LINE).contains(&line) || self.path.is_none()) {
            let message = format!("`line` is not 1 to {MAX_LINE}, or comes without `path`");
            return Err(Refusal::invalid(message, "Name the file in `path`, and a line from 1 on."));
        }
        let path = self.path.as_deref().map(file_path).transpose()?;
        let on_behalf_of = check_person(operator, self.on_behalf_of.as_deref())?;
        let members = [
            ("summary", Some(Value::from(self.text))),
            ("path", path.as_ref().map(|path| Value::from(path.as_str()))),
            ("line", self.line.map(Value::from)),
            ("onBehalfOf", on_behalf_of.clone().map(Value::from)),
        ];
        let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Ok(Checked { input: redact_members(present.collect()), on_behalf_of, path, line: self.line })
    }
}

impl Calls {
    /// Records a comment, which every agent of the run is told once.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `RUN_NOT_FOUND`, `RUN_CLOSED`, `QUOTA_EXCEEDED`. Refused comments are recorded too.
    #[boxed]
    pub async fn comment(
        &self,
        run: &RunId,
        operator: &Arc<OperatorIdentity>,
        caller: &Caller,
        request: CommentRequest,
    ) -> Result<AppendedEvent, RecordedError> {
        let commented = async {
            let Checked { input, on_behalf_of, path, line } = request.check(operator)?;
            // Also closes a run whose time is over.
            self.engine.run(run).await?;
            let text = canonical_json(&input);
            let said = input.get("summary").and_then(Value::as_str).unwrap_or_default().to_owned();
            let mut draft = Draft::new(run.clone(), caller.actor.clone(), COMMENT_TOOL, new_tool_call_id(), now());
            draft.input = Some(input);
            draft.reasons.extend(on_behalf_of.as_ref().map(|name| format!("onBehalfOf:{name}")));
            let entry = new_entry(caller, draft, Sha256::of(text.as_bytes()), text.len() as u64);
            let record = self.engine.record(vec![entry]).await?.into_iter().next();
            let record = record.ok_or_else(|| CallError::Internal("a comment has no record".into()))?;
            // A run that is not open reads its comments when it is opened.
            if let Some(open) = self.engine.runs.get(run) {
                let by = on_behalf_of.unwrap_or_else(|| operator.name.to_string());
                open.decisions.commented(&Comment { seq: record.seq, by, path, line, text: said });
            }
            Ok(AppendedEvent::of(record))
        };
        self.or_record_refusal(run, caller, COMMENT_TOOL, commented.await).await
    }
}
