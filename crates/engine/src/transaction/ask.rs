//! Calls that need a person's approval: one approval for all changes of a transaction, with the diff of a large text, which its call does
//! not have, because contents outside of memory are not compared.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ledger::{Entry, EntryObject};
use model::{
    Approval, ApprovalFile, ApprovalId, ApprovalRule, ApprovalState, ApprovalWarning, Change, Code, Disk, LogicalPath,
    Outcome, RecordFile, Refusal, RunId, Sha256, Side, Verdict, change_warnings, changes_to_approve, diff_file,
    excerpt,
};
use serde_json::{Map, Value};
use workspace::Workspaces;

use crate::CallError;
use crate::admission::pools::permit;
use crate::approvals::waiting_calls::{BATCH, WaitingBatch, WaitingCall};
use crate::call::record::{Failure, RecordedError, refused_entry, requested_files, stored_reply};
use crate::call::{Call, OpenedCall};
use crate::clock::{new_approval_id, now_plus};
use crate::engine::Engine;
use crate::run::decisions::{DeniedChange, key_of, quoted};
use crate::run::open_run::OpenRun;
use crate::run::quota::PendingReservation;
use crate::tool::change_plan::{ChangePlan, WaitingLayer};
use crate::tool::expected_version::without_seen;
use crate::tool::text::quote;
use crate::tools::apply_changeset::LAYER;
use crate::tools::files::BY_HASH;
use crate::transaction::commit::set_left;
use crate::transaction::judge::{Judged, JudgedItem};
use crate::transaction::large_contents;
use crate::transaction::large_contents::WaitingContent;
use crate::transaction::waiting_contents::NewWaiting;

/// The time after which an approval expires, in seconds.
const APPROVAL_SECONDS: i64 = 24 * 60 * 60;
/// The maximum length of a reason that is joined from several, in characters.
const MAX_JOINED_REASON: usize = 2000;
/// The files that wait which a message names.
const MAX_NAMED: usize = 3;

impl Engine {
    /// Returns the approval that the change of `actor` waits for already.
    ///
    /// # Errors
    ///
    /// `POLICY_DENIED` if a person has denied the change; the errors of the ledger.
    async fn asked_before(&self, run: &OpenRun, change: Sha256, actor: &str) -> Result<Option<ApprovalId>, CallError> {
        if let Some(id) = run.decisions.waiting(change, actor) {
            let approval = self.current_approval(&id).await?;
            if approval.state == ApprovalState::Pending {
                return Ok(Some(id));
            }
            // It has expired just now, or the outcome of its decision was not known here.
            run.decisions.correct(&approval);
        }
        match run.decisions.denied(change) {
            Some(DeniedChange { approval, note }) => Err(denied_before(&approval, note.as_deref()).into()),
            None => Ok(None),
        }
    }
}

impl Judged {
    /// Records that the changes wait for approval, and returns each call's refusal. Reads of a batch are not executed.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED` if too many calls of the run wait; the errors of the ledger.
    pub(crate) async fn ask(
        mut self,
        engine: &Engine,
        run: &Arc<OpenRun>,
        is_dry_run: bool,
    ) -> Result<Vec<RecordedError>, Failure> {
        let count = self.items.len();
        let fail = |error: CallError| match count {
            1 => Failure::Call(0, error),
            _ => Failure::All(error),
        };
        let mut approval = self.approval(run)?;
        let change = approval.as_ref().map(|(approval, _)| (key_of(approval), approval.actor.clone()));
        let waiting = match &change {
            Some((change, actor)) => engine.asked_before(run, *change, actor).await.map_err(fail)?,
            None => None,
        };
        // The paths are locked, so that no other call asks for the same change meanwhile.
        let reserved = match waiting {
            None => Some(reserve(engine, run).await.map_err(fail)?),
            Some(_) => None,
        };
        if is_dry_run || waiting.is_some() {
            approval = None;
        }
        let mut refusal = match &waiting {
            Some(_) if !is_dry_run => already_waiting(&self.decision.reasons),
            _ => approval_required(&self.what_waits(run), &self.decision.reasons, is_dry_run),
        };
        let asked = approval.as_ref().map(|(approval, _)| approval.approval_id.clone());
        refusal.details.approval_id = asked.clone().or_else(|| waiting.filter(|_| !is_dry_run));
        let kept =
            self.keep_content(engine, run, approval.as_mut().map(|(approval, _)| approval)).await.map_err(fail)?;
        let (waiting, object) = kept.unzip();
        let first = self.changes().next().map(|(index, _)| index);
        if let (Some((approval, _)), Some(first)) = (&mut approval, first) {
            let calls = Arc::clone(&self.calls);
            let more = engine.history_warnings(run, approval, &calls[first]).await.map_err(fail)?;
            approval.warnings.extend(more);
            model::sort_warnings(&mut approval.warnings);
        }
        let (refusals, entries) = self.rows(&refusal, approval, object.flatten());
        let appended = engine.append_for(&self.calls, entries).await;
        if let Some(waiting) = waiting {
            waiting.end(engine, run, appended.as_ref().err().map(Failure::as_error)).await;
        }
        let records = appended?;
        if let (Some(reserved), Some((change, actor)), Some(asked)) = (reserved, change, asked) {
            reserved.keep();
            run.set_awaiting_approval();
            run.decisions.asked(change, &actor, asked);
        }
        let recorded = refusals.into_iter().zip(&records);
        Ok(recorded.map(|(refusal, record)| RecordedError::of(refusal, record)).collect())
    }

    /// Names the files that need approval, with the rules by which they do; of a rule about all of them, the rule alone.
    fn what_waits(&self, run: &OpenRun) -> String {
        let facts: Vec<_> = self
            .changes()
            .flat_map(|(index, change)| {
                change.plan.facts(self.calls[index].evidence_fact, |path| run.known.has_changed(path))
            })
            .collect();
        let files = changes_to_approve(&run.rules, &facts);
        let named: Vec<_> = files
            .iter()
            .take(MAX_NAMED)
            .map(|(path, reasons)| format!("`{}` ({})", quote::one_line(path.as_str()), reasons.join(", ")))
            .collect();
        match files.len() {
            0 => format!("the call ({})", self.decision.reasons.join(", ")),
            count if count > MAX_NAMED => format!("the change of {} and {} more", named.join(", "), count - MAX_NAMED),
            _ => format!("the change of {}", named.join(", ")),
        }
    }

    /// Returns the refusal and the entry of each call. The first change has the approval, and the object that it needs.
    fn rows(
        &self,
        refusal: &Refusal,
        mut approval: Option<(Approval, String)>,
        mut object: Option<EntryObject>,
    ) -> (Vec<Refusal>, Vec<Entry>) {
        let rows = self.calls.iter().zip(&self.items).map(|(call, item)| match item {
            JudgedItem::Change(change) => {
                let mut entry = pending_entry(call, &change.plan, refusal);
                entry.approval = approval.take();
                entry.objects.extend(object.take());
                (refusal.clone(), entry)
            }
            JudgedItem::Read(_) => {
                let left_out = read_left_out();
                let entry = refused_entry(call, &[], &left_out);
                (left_out, entry)
            }
        });
        rows.unzip()
    }

    /// Keeps the large content with which the call will wait for `approval`, which gets the diff that a person sees. The bytes come first:
    /// no record refers to a content that is not on the disk.
    async fn keep_content(
        &mut self,
        engine: &Engine,
        run: &Arc<OpenRun>,
        approval: Option<&mut Approval>,
    ) -> Result<Option<(NewWaiting, Option<EntryObject>)>, CallError> {
        let Some((approval, (change, content))) = approval.zip(large_contents::waiting(&self.items)) else {
            return Ok(None);
        };
        if let Some(change) = change
            && let Some((diff, warnings)) = engine.diff_for_review(run, change, &content).await?
        {
            approval.warnings.extend(warnings);
            approval.diff = Some(diff);
        }
        let mut space = std::mem::replace(&mut self.disk, run.disk.reservation());
        // What the change would add to the tree is not reserved while it waits.
        space.resize(Disk { bytes: content.size_bytes, files: 0 })?;
        let object = engine.keep_waiting(run, &self.calls, &approval.approval_id, &content).await?;
        Ok(Some((NewWaiting { approval: approval.approval_id.clone(), space }, object)))
    }

    /// Returns the approval of all changes, with their stored input.
    fn approval(&self, run: &OpenRun) -> Result<Option<(Approval, String)>, Failure> {
        let changes: Vec<_> = self.changes().map(|(index, change)| (&self.calls[index], change)).collect();
        let Some((first, change)) = changes.first() else { return Ok(None) };
        let diff: Vec<u8> = changes.iter().flat_map(|(_, change)| change.plan.diff.iter().copied()).collect();
        let rule = run.rules.policy().approval;
        let approval = new_approval(first, self.files(), &diff, self.decision.reasons.clone(), rule);
        let approval = Approval { warnings: self.warnings.clone(), ..approval };
        if self.items.len() == 1 {
            return Ok(Some((approval, stored_input(first, &change.plan))));
        }
        let reasons: Vec<_> = changes.iter().filter_map(|(call, _)| call.reason.as_deref()).collect();
        let calls = changes.iter().map(|(call, change)| WaitingCall {
            tool: call.tool.name.to_owned(),
            tool_call_id: call.tool_call_id.clone(),
            reason: call.reason.clone().unwrap_or_default(),
            input: stored_input(call, &change.plan),
        });
        let input = serde_json::to_string(&WaitingBatch { calls: calls.collect() });
        let input = input.map_err(|error| Failure::left_out(CallError::Internal(Box::new(error))))?;
        Ok(Some((Approval { tool: BATCH.to_owned(), reason: joined(&reasons), ..approval }, input)))
    }
}

/// The input of a call to be executed once it is approved: for the caller who decides, with the versions that the first caller
/// had seen.
fn stored_input(call: &Call, plan: &ChangePlan) -> String {
    let is_by_context = matches!(call.tool.name, "edit_file" | "apply_patch");
    let input =
        if plan.seen.is_empty() { call.input.clone() } else { without_seen(&call.input, &plan.seen, is_by_context) };
    let layer = match &plan.waiting_layer {
        None => return input,
        Some(WaitingLayer::InMemory(layer)) => BASE64_STANDARD.encode(layer),
        Some(WaitingLayer::Staged(layer)) => format!("{BY_HASH}{}", layer.sha256),
    };
    // The last member, since the input is an object with at least one.
    let members = input.strip_suffix('}').unwrap_or(&input);
    format!("{members},\"{LAYER}\":\"{layer}\"}}")
}

/// A command that waits for a person.
pub(crate) struct AskedCommand<'a> {
    /// The line.
    pub(crate) command: &'a str,
    /// The folder in which it is to run.
    pub(crate) cwd: &'a str,
    /// The patterns that ask.
    pub(crate) reasons: &'a [String],
    /// What the record of the call says of it.
    pub(crate) record: Map<String, Value>,
}

/// Records that a command waits for approval, and returns the refusal of its call.
///
/// # Errors
///
/// `POLICY_DENIED` if a person has denied it; `QUOTA_EXCEEDED` if too many calls of the run wait; the errors of the ledger.
pub(crate) async fn ask_for_command(
    engine: &Engine,
    run: &Arc<OpenRun>,
    call: &OpenedCall,
    asked: AskedCommand<'_>,
) -> Result<RecordedError, CallError> {
    let AskedCommand { command, cwd, reasons, record } = asked;
    // Further lines are indented, so that none looks like a command of its own.
    let lines = command.replace('\n', "\n  ");
    let shown = if cwd == "." { format!("$ {lines}\n") } else { format!("$ cd {cwd}\n$ {lines}\n") };
    let rule = run.rules.policy().approval;
    let mut approval = new_approval(call, Vec::new(), shown.as_bytes(), reasons.to_vec(), rule);
    if approval.reason.is_empty() {
        approval.reason = excerpt(command, MAX_JOINED_REASON - 1);
    }
    let (change, actor) = (key_of(&approval), approval.actor.clone());
    if let Some(waiting) = engine.asked_before(run, change, &actor).await? {
        let mut refusal = already_waiting(reasons);
        refusal.details.approval_id = Some(waiting);
        let entry = waiting_entry(call, Vec::new(), &refusal);
        return recorded(engine, call, refusal, entry).await;
    }
    let reserved = reserve(engine, run).await?;
    let what = format!("the command ({})", reasons.join(", "));
    let mut refusal = approval_required(&what, reasons, false);
    refusal.details.approval_id = Some(approval.approval_id.clone());
    let asked = approval.approval_id.clone();
    let mut entry = waiting_entry(call, Vec::new(), &refusal);
    entry.draft.input = Some(record);
    entry.approval = Some((approval, call.input.clone()));
    let error = recorded(engine, call, refusal, entry).await?;
    reserved.keep();
    run.set_awaiting_approval();
    run.decisions.asked(change, &actor, asked);
    Ok(error)
}

async fn recorded(
    engine: &Engine,
    call: &OpenedCall,
    refusal: Refusal,
    entry: Entry,
) -> Result<RecordedError, CallError> {
    let records = engine.append_for(std::slice::from_ref(call), vec![entry]).await.map_err(Failure::into_error)?;
    let record = records.first().ok_or_else(|| CallError::Internal("a call has no record".into()))?;
    Ok(RecordedError::of(refusal, record))
}

/// Reserves one of the run's pending approvals.
async fn reserve<'a>(engine: &Engine, run: &'a OpenRun) -> Result<PendingReservation<'a>, CallError> {
    if let Ok(reserved) = run.pending_approvals.reserve() {
        return Ok(reserved);
    }
    // The count in memory may be too high, so it is read from the ledger again.
    engine.refresh_state(run).await?;
    Ok(run.pending_approvals.reserve()?)
}

/// `what` is what waits, with the rules by which it does.
fn approval_required(what: &str, reasons: &[String], is_dry_run: bool) -> Refusal {
    let (message, hint) = if is_dry_run {
        let message =
            format!("{what} would need a person's approval; this was a dry run, so no approval was requested");
        (message, "Make the call without dryRun. It then waits until a person has decided.")
    } else {
        let message = format!("{what} needs a person's approval; nothing has changed yet");
        let hint = "Continue with other work that does not depend on it. A program can read the outcome from \
                    GET /v1/runs/{run}/tool-calls/{toolCallId}.";
        (message, hint)
    };
    Refusal::new(Code::ApprovalRequired, message, hint).with_details(|details| details.reasons = reasons.to_vec())
}

fn already_waiting(reasons: &[String]) -> Refusal {
    let message = "the same change is already waiting for a person's approval; nothing has changed yet";
    let hint =
        "Continue with other work that does not depend on it. The answer to a later call will say what was decided.";
    Refusal::new(Code::ApprovalRequired, message, hint).with_details(|details| details.reasons = reasons.to_vec())
}

/// Returns the refusal of a change that a person has denied before.
fn denied_before(approval: &ApprovalId, note: Option<&str>) -> Refusal {
    let said = note.map(|note| format!(": {}", quoted(note))).unwrap_or_default();
    let message = format!("a person has denied the same change in this run{said}");
    let hint = "Do not repeat it: do what the note says, make another change, or go on without it.";
    Refusal::new(Code::PolicyDenied, message, hint)
        .with_details(|details| details.reasons = vec![format!("approval:{approval}:denied")])
}

/// Returns the refusal of a read in a batch whose changes wait.
fn read_left_out() -> Refusal {
    let message = "the read was not executed: the changes of its batch need a person's approval";
    Refusal::new(Code::BatchNotDone, message, "Make the read as a separate call, now or when the batch is decided.")
}

/// Returns the entry of a call that waits for approval, with the reply to its repetitions.
fn pending_entry(call: &Call, plan: &ChangePlan, refusal: &Refusal) -> Entry {
    let mut entry = waiting_entry(call, requested_files(&plan.paths()), refusal);
    set_left(&mut entry.draft, plan);
    entry
}

fn waiting_entry(call: &Call, files: Vec<RecordFile>, refusal: &Refusal) -> Entry {
    let mut draft = call.draft(Verdict::RequireApproval, Outcome::Pending);
    draft.code = Some(Code::ApprovalRequired);
    draft.reasons.clone_from(&refusal.details.reasons);
    draft.files = files;
    call.entry(draft, Some(stored_reply(refusal)))
}

/// Joins the distinct reasons, one per line.
fn joined(reasons: &[&str]) -> String {
    let mut seen = BTreeSet::new();
    let distinct: Vec<_> = reasons.iter().copied().filter(|reason| seen.insert(*reason)).collect();
    distinct.join("\n").chars().take(MAX_JOINED_REASON).collect()
}

fn new_approval(
    call: &Call,
    files: Vec<ApprovalFile>,
    diff: &[u8],
    reasons: Vec<String>,
    rule: ApprovalRule,
) -> Approval {
    Approval {
        approval_id: new_approval_id(),
        run_id: call.run_id.clone(),
        tool_call_id: call.tool_call_id.clone(),
        tool: call.tool.name.to_owned(),
        reason: call.reason.clone().unwrap_or_default(),
        actor: call.asked_by().to_owned(),
        state: ApprovalState::Pending,
        reasons,
        files,
        diff: Some(String::from_utf8_lossy(diff).into_owned()),
        created_at: call.timestamp.clone(),
        expires_at: now_plus(APPROVAL_SECONDS),
        approvers: rule.approvers,
        not_creator: rule.not_creator,
        approved_by: Vec::new(),
        decided_by: None,
        on_behalf_of: None,
        note: None,
        votes: Vec::new(),
        decided_seq: None,
        edited_seq: None,
        resolution: None,
        warnings: Vec::new(),
    }
}

/// The largest text that is compared, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;
/// The largest diff that is shown, in bytes.
const MAX_DIFF_BYTES: usize = 4 << 20;

impl Engine {
    /// Returns the diff of the change to the staged `content`, and what its lines say against it; `None` for a binary file and where the
    /// texts or their diff are too large, of which a person sees the hashes alone.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn diff_for_review(
        &self,
        run: &Arc<OpenRun>,
        change: &Change,
        content: &WaitingContent,
    ) -> Result<Option<(String, Vec<ApprovalWarning>)>, CallError> {
        let old_bytes = change.before.as_ref().map_or(0, |before| before.size_bytes);
        if content.size_bytes.max(old_bytes) > MAX_TEXT_BYTES {
            return Ok(None);
        }
        let (workspaces, run, change) = (Arc::clone(&self.workspaces), Arc::clone(run), change.clone());
        let staged = Workspaces::path_of_staged(&content.name);
        let permit = permit(&self.pools.receive).await;
        self.blocking(move || {
            let _permit = permit;
            let diff = diff(&workspaces, &run.run_id, &change, &staged)?;
            Ok(diff.map(|diff| {
                let warnings = change_warnings(&run.rules, &[], &diff);
                (diff, warnings)
            }))
        })
        .await
    }
}

fn diff(workspaces: &Workspaces, run: &RunId, change: &Change, staged: &[u8]) -> io::Result<Option<String>> {
    let Some(after) = &change.after else { return Ok(None) };
    let new = read(workspaces.open_file(run, staged)?)?;
    let old = match &change.before {
        None => None,
        Some(before) => match read_version(workspaces, run, &change.path, before.sha256)? {
            Some(bytes) => Some((bytes, before.mode)),
            None => return Ok(None),
        },
    };
    let path = &change.path;
    let old = old.as_ref().map(|(bytes, mode)| Side { path, bytes, mode: *mode });
    let compared = diff_file(old, Some(Side { path, bytes: &new, mode: after.mode }));
    let is_shown = !compared.binary && compared.text.len() <= MAX_DIFF_BYTES;
    Ok(is_shown.then(|| String::from_utf8_lossy(&compared.text).into_owned()))
}

/// Returns the file at `path` if it still is the version that the change was planned with.
fn read_version(
    workspaces: &Workspaces,
    run: &RunId,
    path: &LogicalPath,
    sha256: Sha256,
) -> io::Result<Option<Vec<u8>>> {
    match workspaces.open_file(run, &Workspaces::path_in_tree(path.as_str())) {
        // The run has not written it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let bytes = workspaces.base(run)?.read(path, MAX_TEXT_BYTES)?;
            Ok(bytes.filter(|bytes| Sha256::of(bytes) == sha256))
        }
        file => Ok(Some(read(file?)?).filter(|bytes| Sha256::of(bytes) == sha256)),
    }
}

fn read(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_TEXT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
