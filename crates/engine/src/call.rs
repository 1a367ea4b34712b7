//! Tool calls: parsed, carried out, recorded, answered.

pub mod disclosure;
pub mod policy_query;
mod recording;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use ledger::{Appended, Entry, Reply};
use model::{
    Code, DiskChange, Draft, Outcome, Permission, Refusal, RunId, RunState, Sha256, ToolCallId, Usage, Verdict,
    canonical_json,
};
use serde_json::{Map, Value};
use tokio::sync::SemaphorePermit;
use tracing::Instrument as _;

use crate::admission::body_memory::HeldMemory;
use crate::call::disclosure::Disclosure;
use crate::engine::{Caller, Engine, OpenRun, took_too_long};
use crate::tools::{Parse, Read, ReadContext, ReadOutput, Tool, ToolRun};
use crate::{CallError, json, metrics, transaction};

pub use recording::{
    asked, failed_entry, is_unmet, needs_of, read_entry, reasons_of, refusal_of, refused_entry, stored_reply, tried,
    verdict_of,
};

/// The longest reason of a mutation, in characters.
pub const MAX_REASON: usize = 2000;
/// The longest step that a caller names, in characters.
pub const MAX_STEP_ID: usize = 128;

/// An answer to a tool call that went well.
#[derive(Debug)]
pub struct Answer {
    /// JSON text of the whole body.
    pub body: String,
    /// The record that the answer tells; only mutations tell theirs.
    pub head: Option<ChainHead>,
}

/// A record's place in its run's chain, of which whoever is told it is a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The record's number.
    pub seq: u64,
    /// Its hash.
    pub hash: Option<Sha256>,
}

/// A tool call that did not go well, or that waits for a person.
#[derive(Debug)]
pub struct Failed {
    /// The call, so that the answer can name it.
    pub tool_call_id: ToolCallId,
    /// Why.
    pub error: CallError,
}

/// What is known of a call before its tool has looked at it.
#[derive(Clone)]
pub struct CallContext {
    /// The run.
    pub run_id: RunId,
    /// The tool.
    pub tool: &'static Tool,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// Whether the caller chose the ID.
    pub client_supplied_id: bool,
    /// The caller's step.
    pub step_id: Option<String>,
    /// The whole input but for the ID, as canonical JSON; only mutations keep it.
    pub input: String,
    /// Hash of the whole input but for the ID.
    pub input_sha256: Sha256,
    /// Who calls.
    pub caller: Caller,
    /// Why; only mutations have one.
    pub reason: Option<String>,
    /// Whether nothing shall change.
    pub dry_run: bool,
    /// The mount to read; only reads have one.
    pub mount: Option<String>,
    /// When the call came in, RFC 3339 UTC with microseconds.
    pub timestamp: String,
    /// When the call came in, for its duration.
    pub started: Instant,
}

impl Engine {
    /// Carries out one call of `tool` on `run` and records it, whatever comes of it. The body is dropped as soon as it is
    /// parsed.
    pub async fn call_tool(
        &self,
        run: &RunId,
        caller: Caller,
        tool: &'static Tool,
        body: Bytes,
    ) -> Result<Answer, Failed> {
        failpoint::hit("call.handler");
        let (head, members) = match json::parse_object(&body) {
            Ok(members) => CallContext::of(run, caller, tool, members),
            Err(refusal) => (CallContext::new(run, caller, tool), Err(refusal)),
        };
        drop(body);
        let tool_call_id = head.tool_call_id.clone();
        self.call(head, members).await.map_err(|error| Failed { tool_call_id, error })
    }

    /// Carries out a call whose input was taken apart.
    pub async fn call(
        &self,
        head: CallContext,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, CallError> {
        let disclosure = Disclosure::of(&head);
        disclosure.apply(self.call_undisclosed(head, members).await)
    }

    async fn call_undisclosed(
        &self,
        head: CallContext,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, CallError> {
        let ToolRun::Mutation(parse) = head.tool.run else {
            let (told, tool_call_id) = self.read_call(head, members).await?;
            return Ok(Answer { body: splice(&tool_call_id, &told.output), head: None });
        };
        let (live, members) = self.admit(&head, members).await?;
        let engine = self.clone();
        // The parsed tool is made inside: what it holds need not cross threads before that.
        let work = async move { transaction::mutate(&engine, head, &live, || parse(members)).await };
        self.detached(work).await
    }

    /// Carries out a call that looks, and records it.
    pub async fn read_call(
        &self,
        head: CallContext,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<(ReadOutput, ToolCallId), CallError> {
        let ToolRun::Read(parse) = head.tool.run else {
            return Err(CallError::Internal("a mutation is no read".into()));
        };
        let (live, members) = self.admit(&head, members).await?;
        if let Err(error) = transaction::whole(self, &live).await {
            return Err(self.record_undone(&head, &[], error).await);
        }
        match head.parse_read(parse, members) {
            Ok(tool) => self.read(head, &live, tool).await,
            Err(refusal) => Err(self.record_refused(&head, &[], refusal).await),
        }
    }

    /// Checks what every call needs: the permission, the run, an input that could be taken apart.
    pub async fn admit(
        &self,
        head: &CallContext,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<(Arc<OpenRun>, Map<String, Value>), CallError> {
        if !head.may() {
            let refusal = forbidden(head.tool.permissions);
            return Err(self.record_refused(head, &[], refusal).await);
        }
        let live = match self.live(&head.run_id).await {
            Ok(live) => live,
            Err(CallError::Refused(refusal)) if matches!(refusal.code, Code::RunClosed | Code::RunNeedsRepair) => {
                return Err(self.record_refused(head, &[], refusal).await);
            }
            Err(error) => return Err(error),
        };
        match members {
            Ok(members) => Ok((live, members)),
            Err(refusal) => Err(self.record_refused(head, &[], refusal).await),
        }
    }

    /// Carries out a call that looks, once the tree is whole, and records it.
    pub async fn read(
        &self,
        head: CallContext,
        live: &Arc<OpenRun>,
        tool: Box<dyn Read>,
    ) -> Result<(ReadOutput, ToolCallId), CallError> {
        let (paths, back) = (tool.paths(), tool.looks_back());
        let patience = self.limits.request_timeout;
        let looked = tokio::time::timeout(patience, self.look(&head, live, tool)).await;
        let mut told = match looked.unwrap_or_else(|_| Err(took_too_long(patience).into())) {
            Ok(told) => told,
            Err(error) => return Err(self.record_undone(&head, &paths, error).await),
        };
        let mut entry = read_entry(&head, &mut told);
        entry.draft.reasons.extend(back.map(|back| format!("atSeq:{}", back.seq)));
        match self.append(entry).await? {
            Appended::Recorded(_) => Ok((told, head.tool_call_id)),
            Appended::Repeated => Err(crate::transaction::repeated().into()),
            Appended::PreconditionFailed(unmet) => Err(self.record_refused(&head, &paths, refusal_of(unmet)).await),
            Appended::Reused | Appended::NotPending => Err(self.record_reused(&head).await),
        }
    }

    async fn look(
        &self,
        head: &CallContext,
        live: &Arc<OpenRun>,
        tool: Box<dyn Read>,
    ) -> Result<ReadOutput, CallError> {
        if matches!(live.state(), RunState::Preparing | RunState::Deleted) {
            return Err(run_not_open(live.state()).into());
        }
        let back = tool.looks_back();
        let mount = match &head.mount {
            None => None,
            Some(name) => Some(live.mount(name).ok_or_else(|| unknown_mount(name, live))?),
        };
        let tree = || mount.as_deref().unwrap_or_else(|| live.workspace.tree());
        let workspace = mount.is_none().then_some(&*live.workspace);
        let never = AtomicBool::new(false);
        let context = ReadContext {
            rules: &live.rules,
            tree: tree(),
            workspace,
            changed: Some(&live.changed),
            past: None,
            cancel: &never,
        };
        failpoint::hit("call.try");
        let tried = if back.is_none() { tool.try_read(&context) } else { None };
        if let Some(told) = tried {
            return told.map_err(CallError::from);
        }
        let (_place, past) = match back {
            None => (self.look_place(head.tool.takes_long).await?, None),
            Some(back) => {
                let (place, past) = self.look_back(head, live, back).await?;
                (place, Some(past))
            }
        };
        let live = Arc::clone(live);
        let cancel = Arc::new(AtomicBool::new(false));
        let name = head.tool.name;
        // Dropped with this future when the caller goes away; the thread sees the flag and stops.
        let _guard = CancelOnDrop(Arc::clone(&cancel));
        self.blocking(move || {
            failpoint::hit("call.look");
            let context = ReadContext {
                rules: &live.rules,
                tree: mount.as_deref().unwrap_or_else(|| live.workspace.tree()),
                workspace: mount.is_none().then_some(&live.workspace),
                changed: Some(&live.changed),
                past: past.as_ref(),
                cancel: &cancel,
            };
            let looked = tool.read(&context);
            if matches!(looked, Err(workspace::WorkspaceError::Cancelled)) {
                // Nobody is there to hear of it.
                tracing::debug!("a look was broken off: its caller went away, or its time was over");
                metrics::look_cancelled(name);
            }
            looked.map_err(CallError::from)
        })
        .await
    }

    /// A permit of those who look: quick looks never wait for long ones.
    pub async fn look_place(&self, takes_long: bool) -> Result<SemaphorePermit<'_>, CallError> {
        let pool = if takes_long { &self.pools.search } else { &self.pools.read };
        pool.acquire().await.map_err(|error| CallError::Internal(Box::new(error)))
    }

    /// A place among those who write: a disk that hangs holds so many threads and no more.
    pub async fn write_place(&self) -> Result<SemaphorePermit<'_>, CallError> {
        self.pools.write.acquire().await.map_err(|error| CallError::Internal(Box::new(error)))
    }

    /// Runs `work` as a task of its own, which goes on when the caller goes away: a change must not be left journalled but
    /// not applied, and the ledger must learn of files that are in place.
    pub async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        let memory = HeldMemory::of_task();
        let work = async move {
            let done = work.await;
            drop(memory);
            done
        };
        let task = self.tasks.spawn(work.instrument(tracing::Span::current()));
        task.await.map_err(|error| CallError::Internal(Box::new(error)))?
    }

    /// Runs `work` where blocking is allowed, on a thread of its own.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let span = tracing::Span::current();
        let task = tokio::task::spawn_blocking(move || span.in_scope(work));
        task.await.map_err(|error| CallError::Internal(Box::new(error)))?
    }
}

impl CallContext {
    /// Takes the members that every call has out of the input; the rest is the tool's own.
    pub fn of(
        run: &RunId,
        caller: Caller,
        tool: &'static Tool,
        members: Map<String, Value>,
    ) -> (Self, Result<Map<String, Value>, Refusal>) {
        let mut head = Self::new(run, caller, tool);
        let members = head.take_members(members);
        (head, members)
    }

    fn new(run: &RunId, caller: Caller, tool: &'static Tool) -> Self {
        Self {
            run_id: run.clone(),
            tool,
            tool_call_id: crate::engine::new_tool_call_id(),
            client_supplied_id: false,
            step_id: None,
            input: String::new(),
            input_sha256: Sha256::ZERO,
            caller,
            reason: None,
            dry_run: false,
            mount: None,
            timestamp: crate::engine::now(),
            started: Instant::now(),
        }
    }

    /// The same call under an ID that is made for it, so that the caller's own is not taken.
    pub fn under_new_id(self) -> Self {
        Self { tool_call_id: crate::engine::new_tool_call_id(), client_supplied_id: false, ..self }
    }

    /// Whether the caller has one of the permissions that the tool asks for.
    pub fn may(&self) -> bool {
        self.tool.permissions.iter().any(|permission| self.caller.permissions.contains(permission))
    }

    /// Parses the input of a tool that looks, so that it tells no more than the caller may be told.
    pub fn parse_read(&self, parse: Parse<dyn Read>, members: Map<String, Value>) -> Result<Box<dyn Read>, Refusal> {
        let mut tool = parse(members)?;
        if !self.caller.may_read() {
            tool.narrow()?;
        }
        Ok(tool)
    }

    fn take_members(&mut self, mut members: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
        let id = text_member(&mut members, "toolCallId")?;
        if self.tool.mutates() || id.is_some() {
            self.input = canonical_json(&members);
            self.input_sha256 = Sha256::of(self.input.as_bytes());
        }
        if let Some(raw) = id {
            self.tool_call_id = check_id(&raw)?;
            self.client_supplied_id = true;
        }
        let step_id = text_member(&mut members, "stepId")?;
        if step_id.as_ref().is_some_and(|step| step.is_empty() || step.chars().count() > MAX_STEP_ID) {
            return Err(Refusal::invalid(
                format!("`stepId` takes 1 to {MAX_STEP_ID} characters"),
                "Give a shorter stepId, or leave it out.",
            ));
        }
        if step_id.as_ref().is_some_and(|step| step.contains('\0')) {
            return Err(Refusal::invalid("`stepId` holds a NUL", "Leave the NUL out."));
        }
        self.step_id = step_id.map(|step_id| self.redact_input("stepId", step_id));
        if self.tool.mutates() {
            let reason = take_reason(&mut members)?;
            self.reason = Some(self.redact_input("reason", reason));
            self.dry_run = match members.remove("dryRun") {
                None => false,
                Some(Value::Bool(dry_run)) => dry_run,
                Some(_) => {
                    return Err(Refusal::invalid("`dryRun` is true or false", "Give a boolean, or leave it out."));
                }
            };
        } else {
            self.mount = text_member(&mut members, "mount")?;
        }
        Ok(members)
    }

    /// What is recorded of the member `name`: `text` without credentials. They go from the input that may be kept too; the
    /// input's hash stays that of what was sent, so that a repetition is the same call.
    fn redact_input(&mut self, name: &str, text: String) -> String {
        let Cow::Owned(redacted) = model::redact(&text) else { return text };
        if let Ok(Value::Object(mut input)) = serde_json::from_str(&self.input) {
            input.insert(name.to_owned(), Value::from(redacted.as_str()));
            self.input = canonical_json(&input);
        }
        redacted
    }

    /// An input that was kept, without the members that every mutation has.
    pub fn without_common(mut members: Map<String, Value>) -> Map<String, Value> {
        for name in ["stepId", "reason", "dryRun"] {
            members.remove(name);
        }
        members
    }

    /// The call's record, as far as it is known.
    pub fn draft(&self, decision: Verdict, outcome: Outcome) -> Draft {
        Draft {
            actor: self.caller.actor.clone(),
            artifact_uris: Vec::new(),
            code: None,
            decision,
            diff_sha256: None,
            duration_micros: u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            files: Vec::new(),
            mutates: self.tool.mutates(),
            outcome,
            paths_read: Vec::new(),
            paths_written: Vec::new(),
            reason: self.reason.clone(),
            reasons: Vec::new(),
            run_id: self.run_id.clone(),
            step_id: self.step_id.clone(),
            timestamp: self.timestamp.clone(),
            tool: self.tool.name.to_owned(),
            tool_call_id: self.tool_call_id.clone(),
        }
    }

    /// The ledger's entry of a call that changes nothing.
    pub fn entry(&self, draft: Draft, reply: Option<Reply>) -> Entry {
        Entry {
            preconditions: needs_of(&self.caller, &draft),
            draft,
            input_sha256: self.input_sha256,
            client_supplied_id: self.client_supplied_id,
            reply,
            steps: Vec::new(),
            artifact: None,
            approval: None,
            approval_decision: None,
            usage: Usage::default(),
            disk: DiskChange::default(),
        }
    }
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn check_id(raw: &str) -> Result<ToolCallId, Refusal> {
    if let Some(what) = model::credential_in(raw.as_bytes()) {
        // It names the call in records and addresses, so that nothing can be put in place of it.
        let message = format!("`toolCallId` holds a credential: {what}");
        return Err(Refusal::invalid(message, "Give an ID that is no secret, or leave it out."));
    }
    ToolCallId::parse(raw)
        .map_err(|error| Refusal::invalid(error.to_string(), "Give a shorter toolCallId, or leave it out."))
}

fn text_member(members: &mut Map<String, Value>, name: &str) -> Result<Option<String>, Refusal> {
    match members.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refusal::invalid(format!("`{name}` is a string"), "Give a string, or leave it out.")),
    }
}

fn take_reason(members: &mut Map<String, Value>) -> Result<String, Refusal> {
    let hint = "Say in `reason`, in 1 to 2,000 characters, why you make this change.";
    match text_member(members, "reason")? {
        None => Err(Refusal::invalid("`reason` is missing", hint)),
        Some(reason) if reason.trim().is_empty() || reason.chars().count() > MAX_REASON => {
            Err(Refusal::invalid("`reason` takes 1 to 2,000 characters", hint))
        }
        Some(reason) if reason.contains('\0') => Err(Refusal::invalid("`reason` holds a NUL", "Leave the NUL out.")),
        Some(reason) => Ok(reason),
    }
}

/// Puts the members that every answer has in front of a tool's own.
pub fn splice(tool_call_id: &ToolCallId, output: &str) -> String {
    let id = Value::from(tool_call_id.as_str());
    let rest = output.strip_prefix('{').unwrap_or("}");
    let comma = if rest.starts_with('}') { "" } else { "," };
    ["{\"ok\":true,\"toolCallId\":", &id.to_string(), comma, rest].concat()
}

/// The caller lacks every one of `permissions`.
pub fn forbidden(permissions: &[Permission]) -> Refusal {
    let names: Vec<_> = permissions.iter().map(|permission| permission.as_str()).collect();
    let message = format!("the token lacks the permission {}", names.join(" or "));
    Refusal::new(Code::Forbidden, message, "Go on without this tool, or ask the orchestrator for another token.")
        .with_details(|details| details.reasons = names.iter().map(|name| format!("permission:{name}")).collect())
}

/// The run takes no calls, or no mutations, where it stands.
pub fn run_not_open(state: RunState) -> Refusal {
    let (message, hint) = match state {
        RunState::Preparing => ("the run is still preparing", "Try again when the run's state is `open`."),
        RunState::Deleted => ("the run is deleted", "Its audit is still there."),
        RunState::Open | RunState::AwaitingApproval | RunState::Closed => {
            ("the run is closed: it takes no more mutations", "Reads still work; ask the orchestrator for a new run.")
        }
    };
    Refusal::new(Code::RunClosed, message, hint)
}

pub fn unknown_mount(name: &str, live: &OpenRun) -> Refusal {
    let known: Vec<_> = live.mounts.iter().map(|(mount, _)| mount.name.as_str()).collect();
    let hint = if known.is_empty() {
        "This run has no mounts.".to_owned()
    } else {
        format!("There is: {}.", known.join(", "))
    };
    Refusal::new(Code::NotFound, format!("there is no mount `{name}`"), hint)
}
