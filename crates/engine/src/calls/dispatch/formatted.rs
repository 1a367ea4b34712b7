//! Calls in the forms that models were trained on. Each becomes a call of one of our tools, and is executed, judged and recorded as such.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{Code, LogicalPath, Permission, Refusal, RunId};
use serde::Deserialize;
use serde_json::{Value, json};
use workspace::{EntryType, FindQuery, FindSort};

use super::expect_seen;
use crate::CallError;
use crate::call::TextAnswer;
use crate::call::record::RecordedError;
use crate::call::{Call, Failed, View};
use crate::call_error::refusals::forbidden;
use crate::caller::Caller;
use crate::calls::Calls;
use crate::formats::snippet::ChangedLines;
use crate::formats::{AsWritten, FormatTool, MappedCall, ModelFormat, RenderAnswer};
use crate::history::snapshot::diff_at;
use crate::tool::input::any_path;
use crate::tool::text::Rendered;
use crate::tool::text::notes::counted;
use crate::tools::MAX_READ_PATHS;
use crate::tools::apply_changeset::is_readable;

/// The reason in the record of a change for which a form has none, and its caller gave none.
const NO_REASON: &str = "not given";

/// What the answer of a change of one file says of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditedFile {
    path: LogicalPath,
    #[serde(default)]
    artifact_uris: Vec<String>,
}

/// A call of a tool in a form.
pub struct FormatCall {
    /// The form.
    pub format: &'static ModelFormat,
    /// The tool.
    pub tool: &'static FormatTool,
    /// The input in that form, or why it is none.
    pub input: Result<Value, Refusal>,
    /// The reason that the caller gives beside it.
    pub reason: Option<String>,
    /// The ID that the caller gives the call.
    pub tool_call_id: Option<String>,
}

/// A refused call in a form.
#[derive(Debug)]
pub struct FormatRefusal {
    /// The call and its error.
    pub failed: Failed,
    /// What the model is told. Empty for an error that is not a refusal.
    pub text: String,
}

impl Calls {
    /// Checks that a caller may use a tool of a form at all, before its input is received.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded.
    #[boxed]
    pub async fn check_permitted_format(
        &self,
        run: &RunId,
        caller: &Caller,
        format: &ModelFormat,
        tool: &FormatTool,
    ) -> Result<(), Failed> {
        if tool.becomes.iter().any(|tool| tool.is_permitted(&caller.permissions)) {
            return Ok(());
        }
        let call = Call::new(run, caller.clone(), tool.first()).in_format(format.name);
        let error = self.engine.record_error(&call, &[], forbidden(tool.first().permissions).into()).await;
        Err(Failed { tool_call_id: call.tool_call_id, error })
    }

    /// Executes and records a call in a form, and answers in that form.
    ///
    /// # Errors
    ///
    /// The refusal, recorded, with its text.
    #[boxed]
    pub async fn call_in_format(
        &self,
        run: &RunId,
        caller: Caller,
        call: FormatCall,
    ) -> Result<TextAnswer, FormatRefusal> {
        let FormatCall { format, tool, input, reason, tool_call_id } = call;
        let mapped = match input.and_then(|input| tool.map(input)) {
            Ok(mapped) => self.for_its_path(run, &caller, mapped).await,
            Err(refusal) => Err(refusal),
        };
        let may_read = caller.may_read();
        let (call, members, asked, render) = match mapped {
            Ok(mapped) => {
                let MappedCall { tool, mut input, reason: own_reason, asked, render, snippet, .. } = mapped;
                if !tool.only_reads() && !input.contains_key("reason") {
                    let reason = reason.or(own_reason).filter(|reason| !reason.trim().is_empty());
                    let reason = reason.unwrap_or_else(|| format!("{NO_REASON}: the form {} has none", format.name));
                    input.insert("reason".to_owned(), reason.into());
                }
                input.extend(tool_call_id.map(|id| ("toolCallId".to_owned(), id.into())));
                let (call, mut members) = Call::of(run, caller, tool, input);
                expect_seen(&call, &mut members);
                (call, members, asked, Some((render, snippet.filter(|_| may_read))))
            }
            Err(refusal) => (Call::new(run, caller, tool.first()), Err(refusal), AsWritten::default(), None),
        };
        let call = call.in_format(format.name);
        let tool_call_id = call.tool_call_id.clone();
        let text_of = |failed: Failed| {
            let text = match (failed.error.as_error(), render.is_some()) {
                (CallError::Refused(refusal), true) => format.refusal_text(&asked, refusal),
                // A refusal of the input is in the words of the form already.
                (CallError::Refused(refusal), false) => format.input_refusal_text(refusal),
                (CallError::Moved(_) | CallError::Internal(_), _) => String::new(),
            };
            FormatRefusal { failed, text }
        };
        let answer = match self.call_in_view(View::Text, (call, members)).await {
            Ok(answer) => answer,
            Err(failed) => return Err(text_of(failed)),
        };
        let failed = |error: CallError| {
            let error = RecordedError::left_out(error);
            FormatRefusal { failed: Failed { tool_call_id: tool_call_id.clone(), error }, text: String::new() }
        };
        let notices = format.notices(answer.notices.clone());
        let Some((render, snippet)) = render else {
            return Ok(TextAnswer::new(answer, Rendered::default(), &notices));
        };
        let json = answer.to_json();
        let mut rendered = match render.map(|render| render(&json)) {
            None => answer.output.to_text(),
            Some(rendered) => rendered.map_err(|error| failed(CallError::Internal(Box::new(error))))?,
        };
        if let Some(snippet) = snippet {
            let changed = self.changed_lines(run, &json).await.map_err(failed)?;
            rendered.body.extend(changed.map(|changed| snippet(&changed)));
        }
        Ok(TextAnswer::new(answer, rendered, &notices))
    }

    /// Returns the lines around the change of one file, from the diff of the call; `None` if policy does not let the file be read.
    async fn changed_lines(&self, run: &RunId, answer: &str) -> Result<Option<ChangedLines>, CallError> {
        let changed: EditedFile = serde_json::from_str(answer).map_err(|error| CallError::Internal(Box::new(error)))?;
        let open_run = self.engine.open(run).await?;
        if !is_readable(&open_run.rules, &changed.path) {
            return Ok(None);
        }
        let diff = diff_at(self.engine.ledger.as_ref(), run, &changed.artifact_uris).await?;
        Ok(Some(ChangedLines::of(&diff)))
    }

    /// Returns what a call becomes: some forms have one tool for files and folders, of which we have two. What the choice says of the
    /// path, the chosen tool says too: it judges the path by policy before anything else.
    async fn for_its_path(&self, run: &RunId, caller: &Caller, mut mapped: MappedCall) -> Result<MappedCall, Refusal> {
        if !mapped.globs.is_empty() {
            return self.with_found(run, caller, mapped).await;
        }
        let Some(if_folder) = mapped.if_folder.take() else { return Ok(mapped) };
        let path = mapped.input.get("path").and_then(Value::as_str).unwrap_or_default();
        if self.is_folder(run, caller, path).await { *if_folder } else { Ok(mapped) }
    }

    /// Adds the readable files that the globs of a call match to its paths, as many as one call reads.
    async fn with_found(&self, run: &RunId, caller: &Caller, mut mapped: MappedCall) -> Result<MappedCall, Refusal> {
        if !caller.permissions.contains(&Permission::FileList) {
            return Err(forbidden(&[Permission::FileList]));
        }
        // The call itself says why a run cannot be opened.
        let Ok(run) = self.engine.open(run).await else { return Ok(mapped) };
        let query = FindQuery {
            globs: std::mem::take(&mut mapped.globs),
            path: LogicalPath::root(),
            max_results: 10 * MAX_READ_PATHS,
            sort: FindSort::Path,
            after: None,
            counts_all: false,
        };
        let find = move || Ok(run.workspace.tree().find(&run.rules, &query, &AtomicBool::new(false))?);
        let found = match Box::pin(self.engine.blocking(find)).await {
            Ok(found) => found,
            Err(CallError::Refused(refusal)) => return Err(refusal),
            Err(CallError::Moved(_) | CallError::Internal(_)) => return Ok(mapped),
        };
        let mut paths: Vec<String> = match mapped.input.get("paths") {
            Some(Value::Array(paths)) => paths.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let files = found.entries.iter().filter(|entry| entry.readable && entry.entry_type == EntryType::File);
        for path in files.map(|entry| entry.path.as_str()) {
            if !paths.iter().any(|known| known == path) {
                paths.push(path.to_owned());
            }
        }
        if paths.is_empty() {
            let message = "no files match `include`, or all of them are left out";
            return Err(Refusal::new(Code::NotFound, message, "Find their paths with glob."));
        }
        let more = paths.len().saturating_sub(MAX_READ_PATHS);
        if more > 0 {
            paths.truncate(MAX_READ_PATHS);
            let least = if found.truncated { "at least " } else { "" };
            let note = format!("[{least}{} more match; narrow include]\n", counted(more as u64, "file", "files"));
            let with_note = |render: RenderAnswer| -> RenderAnswer {
                Box::new(move |answer| {
                    let mut rendered = render(answer)?;
                    rendered.end.push_str(&note);
                    Ok(rendered)
                })
            };
            mapped.render = mapped.render.map(with_note);
        }
        mapped.input.insert("paths".to_owned(), json!(paths));
        Ok(mapped)
    }

    /// Whether there is a folder at `path`. False for a caller who may not list one, except the root, and if it is not known: the call
    /// itself then says why.
    async fn is_folder(&self, run: &RunId, caller: &Caller, path: &str) -> bool {
        let Ok(path) = any_path(path) else { return false };
        if path.is_root() {
            return true;
        }
        if !caller.permissions.contains(&Permission::FileList) {
            return false;
        }
        let Ok(run) = self.engine.open(run).await else { return false };
        if let Some(is_folder) = run.workspace.tree().is_folder(&path, false) {
            return is_folder;
        }
        let run = Arc::clone(&run);
        let look = self.engine.blocking(move || Ok(run.workspace.tree().is_folder(&path, true)));
        matches!(Box::pin(look).await, Ok(Some(true)))
    }
}
