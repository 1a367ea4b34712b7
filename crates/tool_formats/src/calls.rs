//! Calls in a format. Each becomes a call of one of our tools, which the engine executes, judges and records as such.

use engine::calls::{Calls, Failed, TextAnswer};
use engine::tools::MAX_READ_PATHS;
use engine::tools::text::{Rendered, counted};
use engine::{CallError, Caller};
use model::{Code, Refusal, RunId};
use serde_json::Value;

use crate::mapping::MappedCall;
use crate::{FormatTool, ToolFormat};

/// The reason in the record of a change for which neither the caller nor the input gives one.
const NO_REASON: &str = "not given";

/// A call of a tool in a format.
pub struct FormatCall {
    /// The format.
    pub format: &'static ToolFormat,
    /// The tool.
    pub tool: &'static FormatTool,
    /// The input in that format, or why it is none.
    pub input: Result<Value, Refusal>,
    /// The reason that the caller gives beside it.
    pub reason: Option<String>,
    /// The ID that the caller gives the call.
    pub tool_call_id: Option<String>,
}

/// A refused call in a format.
#[derive(Debug)]
pub struct FormatRefusal {
    /// The call and its error.
    pub failed: Failed,
    /// What the model is told. Empty for an error that is not a refusal.
    pub text: String,
}

/// Checks that a caller may use a tool of a format at all, before its input is received.
///
/// # Errors
///
/// `FORBIDDEN`, recorded.
pub async fn check_permitted(
    calls: &Calls,
    run: &RunId,
    caller: &Caller,
    format: &ToolFormat,
    tool: &FormatTool,
) -> Result<(), Failed> {
    if tool.becomes().any(|tool| tool.is_permitted(&caller.permissions)) {
        return Ok(());
    }
    calls.check_permitted(run, caller, tool.first(), Some(&format.name)).await
}

/// Executes and records a call in a format, and answers in that format.
///
/// # Errors
///
/// The refusal, recorded, with its text.
pub async fn call(calls: &Calls, run: &RunId, caller: Caller, call: FormatCall) -> Result<TextAnswer, FormatRefusal> {
    let FormatCall { format, tool, input, reason, tool_call_id } = call;
    let mapped = match input.and_then(|input| tool.map(format, input)) {
        Ok(mapped) => for_its_path(calls, run, &caller, mapped).await,
        Err(refusal) => Err(refusal),
    };
    let (mapped, own_tool, members) = match mapped {
        Ok((mut mapped, note)) => {
            let mut input = std::mem::take(&mut mapped.input);
            if !mapped.call.only_reads() {
                let reason = reason.or(mapped.aside.reason.take()).filter(|reason| !reason.trim().is_empty());
                let reason = reason.unwrap_or_else(|| format!("{NO_REASON}: the form {} has none", format.name));
                input.insert("reason".to_owned(), reason.into());
            }
            input.extend(tool_call_id.map(|id| ("toolCallId".to_owned(), id.into())));
            let own_tool = mapped.call;
            (Some((mapped, note)), own_tool, Ok(input))
        }
        Err(refusal) => (None, tool.first(), Err(refusal)),
    };
    let refused = |failed: Failed| {
        let text = match failed.error.as_error() {
            CallError::Refused(refusal) => format.refusal_text(mapped.as_ref().map(|(mapped, _)| mapped), refusal),
            CallError::Moved(_) | CallError::Internal(_) => String::new(),
        };
        FormatRefusal { failed, text }
    };
    let may_read = caller.may_read();
    let done = calls.call_in_format(run, caller, own_tool, &format.name, members).await.map_err(refused)?;
    let tool_call_id = done.tool_call_id.clone();
    let internal =
        |error| FormatRefusal { failed: Failed::of_answer(tool_call_id.clone(), error), text: String::new() };
    let json = done.to_json();
    let snippet = match mapped.as_ref().and_then(|(mapped, _)| mapped.row.snippet.as_ref()).filter(|_| may_read) {
        Some(snippet) => calls.change_of(run, &json).await.map_err(internal)?.map(|diff| snippet.render(&diff)),
        None => None,
    };
    let mut rendered = Rendered::default();
    if let Some((mapped, note)) = &mapped {
        rendered = mapped.render(&json).map_err(|error| internal(CallError::Internal(Box::new(error))))?;
        rendered.body.extend(snippet);
        rendered.end.push_str(note);
    }
    let notices = format.notices(done.notices.clone());
    Ok(TextAnswer::new(done, rendered, &notices))
}

/// Returns the call for the files that are there, and a note that ends its answer. Some tools are for files and folders, of which we have
/// two, and some take globs.
async fn for_its_path(
    calls: &Calls,
    run: &RunId,
    caller: &Caller,
    mut mapped: MappedCall,
) -> Result<(MappedCall, String), Refusal> {
    if !mapped.globs.is_empty() {
        let note = add_found(calls, run, caller, &mut mapped).await?;
        return Ok((mapped, note));
    }
    // The tool that is chosen judges the path by policy before anything else.
    if let Some(if_folder) = mapped.if_folder.take() {
        let path = mapped.input.get("path").and_then(Value::as_str).unwrap_or_default();
        if calls.is_folder(run, caller, path).await {
            mapped = (*if_folder)?;
        }
    }
    Ok((mapped, String::new()))
}

/// Adds the readable files that the globs of a call match to its paths, as many as one call reads. Returns a note about the others.
async fn add_found(calls: &Calls, run: &RunId, caller: &Caller, mapped: &mut MappedCall) -> Result<String, Refusal> {
    let globs = std::mem::take(&mut mapped.globs);
    // The call itself says why files cannot be found.
    let Some((found, truncated)) = calls.readable_files(run, caller, globs, 10 * MAX_READ_PATHS).await? else {
        return Ok(String::new());
    };
    let Some(Value::Array(paths)) = mapped.input.get_mut("paths") else { return Ok(String::new()) };
    for path in found {
        if !paths.iter().any(|known| *known == path) {
            paths.push(path.into());
        }
    }
    if paths.is_empty() {
        let message = "no files match `include`, or all of them are left out";
        return Err(Refusal::new(Code::NotFound, message, "Find their paths with glob."));
    }
    let more = paths.len().saturating_sub(MAX_READ_PATHS);
    paths.truncate(MAX_READ_PATHS);
    let least = if truncated { "at least " } else { "" };
    let note = format!("[{least}{} more match; narrow include]\n", counted(more as u64, "file", "files"));
    Ok(if more > 0 { note } else { String::new() })
}
