//! Answers, those that are stored for repetitions of calls under the caller's own ID, and the content that callers without `file:read` do
//! not see.
//!
//! Answers are stored and repeated whole. The outputs of tools and [`model::ProblemDetails`] know which of their members are content. These
//! are removed by the permissions of the present caller.

use std::borrow::Borrow;

use model::{Permission, Refusal, Sha256, ToolCallId};

use crate::CallError;
use crate::call::Call;
use crate::call::record::RecordedError;
use crate::call_error::refusals::forbidden;
use crate::caller::Caller;
use crate::engine::Engine;
use crate::run::chain_head::ChainHead;
use crate::tool::ToolRun;
use crate::tool::output::{ChangeOutput, JsonObject, ReadOutput, ToolOutput};
use crate::tool::text::lines::PushLine as _;
use crate::tool::text::{Rendered, notes, notice_lines, quote};
use crate::tools::RanCommand;

/// The answer to a successful call.
#[derive(Debug)]
pub struct Answer {
    /// The ID of the call.
    pub tool_call_id: ToolCallId,
    /// The record of the call.
    pub head: Option<ChainHead>,
    /// The tool's own members.
    pub output: Box<dyn ToolOutput>,
    /// Warnings about the files that were read.
    pub warnings: Vec<String>,
    /// What was decided since the last answer to the caller.
    pub notices: Vec<String>,
    /// The record of the command whose change set the call applies.
    pub event_seq: Option<u64>,
    /// Whether content was removed from the output.
    pub content_withheld: bool,
}

impl Answer {
    /// The answer with this output.
    pub(crate) fn new(tool_call_id: ToolCallId, output: Box<dyn ToolOutput>) -> Self {
        let (warnings, notices) = (Vec::new(), Vec::new());
        Self { tool_call_id, head: None, output, warnings, notices, event_seq: None, content_withheld: false }
    }

    /// The answer to a read, without its record.
    pub(crate) fn of_read(tool_call_id: ToolCallId, read: ReadOutput) -> Self {
        Self { warnings: read.warnings, ..Self::new(tool_call_id, read.output) }
    }

    /// Returns the whole answer as JSON text.
    pub fn to_json(&self) -> String {
        let long_text = self.output.long_text();
        // Enough for a text of which every byte is escaped as six: memory that is not written to costs nothing.
        let bytes = long_text.as_ref().map_or(0, |(_, text)| text.len() * 6) + 1024;
        let mut json = JsonObject::new("ok", &true, bytes);
        json.member("toolCallId", &self.tool_call_id);
        if let Some(head) = self.head.filter(|_| self.output.names_record()) {
            json.member("seq", &head.seq);
            json.some("headHash", head.hash.as_ref());
        }
        json.members_of(&*self.output);
        if let Some((name, text)) = &long_text {
            json.long_text(name, text);
        }
        json.some("warnings", Some(&self.warnings).filter(|warnings| !warnings.is_empty()));
        json.some("notices", Some(&self.notices).filter(|notices| !notices.is_empty()));
        json.some("eventSeq", self.event_seq.as_ref());
        json.some("contentWithheld", Some(&true).filter(|_| self.content_withheld));
        json.finish()
    }

    /// Renders the answer for a model.
    pub fn into_text(self) -> TextAnswer {
        let rendered = self.output.to_text();
        let notices = self.notices.clone();
        TextAnswer::new(self, rendered, &notices)
    }

    /// Returns the answer with its record.
    pub(crate) fn recorded(self, seq: u64, hash: Option<Sha256>) -> Self {
        Self { head: Some(ChainHead { seq, hash }), ..self }
    }
}

/// The `status` of a stored reply that holds the members of an answer. Any other holds a refusal.
pub(crate) const DONE: u16 = 200;

/// The result of a lookup of a call's ID.
pub(crate) enum StoredAnswer {
    /// No answer: the call is new.
    None,
    /// Another call.
    OtherCall,
    /// The answer to the same call. A refusal without `seq` is that of the present caller, and is not recorded.
    Found(Result<Answer, Refusal>),
}

impl Engine {
    /// Looks up the answer to an earlier call under the same ID.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn stored_answer(&self, call: &Call) -> Result<StoredAnswer, CallError> {
        if !call.client_supplied_id {
            return Ok(StoredAnswer::None);
        }
        let Some(stored) = self.ledger.call(&call.run_id, &call.tool_call_id).await? else {
            return Ok(StoredAnswer::None);
        };
        if stored.tool != call.tool.name || stored.input_sha256 != call.input_sha256 {
            return Ok(StoredAnswer::OtherCall);
        }
        // A call that failed with an internal error has no reply and is executed again.
        let Some(reply) = stored.reply else { return Ok(StoredAnswer::None) };
        let internal = |error: serde_json::Error| CallError::Internal(Box::new(error));
        if reply.status == DONE {
            let output: Box<dyn ToolOutput> = if let ToolRun::Command = call.tool.run {
                Box::new(serde_json::from_str::<RanCommand>(&reply.body).map_err(internal)?)
            } else {
                let output: ChangeOutput = serde_json::from_str(&reply.body).map_err(internal)?;
                if let Some(needed) = missing_permission(call, &output) {
                    return Ok(StoredAnswer::Found(Err(forbidden(&[needed]))));
                }
                Box::new(output)
            };
            let answer = Answer::new(call.tool_call_id.clone(), output).recorded(stored.seq, Some(stored.hash));
            return Ok(StoredAnswer::Found(Ok(answer)));
        }
        let mut refusal: Refusal = serde_json::from_str(&reply.body).map_err(internal)?;
        if let Some(id) = &refusal.details.approval_id {
            let approval = self.ledger.approval(id).await?;
            refusal.details.resolution = approval.and_then(|approval| approval.resolution);
        }
        if let Some(resolution) = &refusal.details.resolution {
            refusal.hint = format!("The approval is decided: {resolution}.");
        }
        Ok(StoredAnswer::Found(Err(refusal.recorded(stored.seq, Some(stored.hash)))))
    }

    /// Returns the stored refusals of `calls`, which are repetitions that were refused before the stored answers were looked up; `None`
    /// if a call has no stored refusal.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn stored_refusals(&self, calls: &[impl Borrow<Call>]) -> Result<Option<Vec<Refusal>>, CallError> {
        let mut refusals = Vec::with_capacity(calls.len());
        for call in calls {
            match self.stored_answer(call.borrow()).await? {
                StoredAnswer::Found(Err(refusal)) if refusal.details.seq.is_some() => refusals.push(refusal),
                StoredAnswer::None | StoredAnswer::OtherCall | StoredAnswer::Found(_) => return Ok(None),
            }
        }
        Ok(Some(refusals))
    }
}

/// Returns the permission that the effect of the first call required, if the present caller lacks it.
fn missing_permission(call: &Call, output: &ChangeOutput) -> Option<Permission> {
    let created = output.members.get("created")?.as_bool()?;
    let needed = if created { Permission::FileWriteCreate } else { Permission::FileWriteReplace };
    (call.tool.permissions.contains(&needed) && !call.caller.permissions.contains(&needed)).then_some(needed)
}

impl Caller {
    /// Whether the caller may see file content.
    pub fn may_read(&self) -> bool {
        self.permissions.contains(&Permission::FileRead)
    }
}

/// Returns the answer without content that its caller may not see: `may_read` is whether it has `file:read`.
///
/// # Errors
///
/// The error of the answer, also without such content.
pub(crate) fn disclosed(may_read: bool, answer: Result<Answer, RecordedError>) -> Result<Answer, RecordedError> {
    if may_read {
        return answer;
    }
    match answer {
        Ok(mut answer) => {
            answer.content_withheld = answer.output.withhold();
            Ok(answer)
        }
        Err(error) => Err(error.without_content()),
    }
}

/// An answer in the model's view.
#[derive(Debug)]
pub struct TextAnswer {
    /// What a model reads. Every line ends in LF.
    pub text: String,
    /// The answer itself.
    pub answer: Answer,
}

impl TextAnswer {
    /// Shows an answer by its rendered output, after `notices`.
    pub fn new(answer: Answer, Rendered { body, end }: Rendered, notices: &[String]) -> Self {
        let mut text = notice_lines(notices);
        if text.is_empty() {
            text = body;
        } else {
            text.push_str(&body);
        }
        text.extend(notes::hidden_characters(&text));
        for warning in answer.output.warnings().iter().chain(&answer.warnings) {
            text.push_line(format_args!("warning: {}", quote::one_line(warning)));
        }
        text.push_str(&end);
        Self { text, answer }
    }
}
