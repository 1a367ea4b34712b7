//! Calls that need a person's approval: one approval for all changes of a transaction, with their inputs and contents, and the diff of a
//! large text, which no other call has.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ledger::Entry;
use model::{
    Approval, ApprovalFile, ApprovalId, ApprovalRule, ApprovalState, Change, Code, LogicalPath, Outcome, RecordFile,
    Refusal, RunId, Sha256, Side, Verdict, changes_to_approve, diff_file, excerpt,
};
use serde_json::{Map, Value};
use workspace::Workspaces;

use crate::CallError;
use crate::approvals::waiting_calls::{BATCH, WaitingBatch, WaitingCall};
use crate::call::record::{Failure, RecordedError, refused_entry, requested_files, stored_reply};
use crate::call::{Call, OpenedCall};
use crate::clock::{new_approval_id, now_plus};
use crate::engine::Engine;
use crate::run::decisions::{DeniedChange, key_of, quoted};
use crate::run::open_run::OpenRun;
use crate::run::quota::PendingReservation;
use crate::tool::change_plan::{ChangePlan, INLINE_BYTES};
use crate::tool::expected_version::without_seen;
use crate::tool::text::quote;
use crate::tools::apply_changeset::LAYER;
use crate::tools::files::CONTENT;
use crate::transaction::commit::set_left;
use crate::transaction::judge::{Judged, JudgedChange, JudgedItem};

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
        self,
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
        let first = self.changes().next().map(|(index, _)| index);
        if let (Some((approval, input)), Some(first)) = (&mut approval, first) {
            if input.len() > INLINE_BYTES {
                engine.check_history(run, &self.calls, input.len() as u64).await.map_err(fail)?;
            }
            let more = engine.history_warnings(run, approval, &self.calls[first]).await.map_err(fail)?;
            approval.warnings.extend(more);
            model::sort_warnings(&mut approval.warnings);
        }
        let (refusals, entries) = self.rows(&refusal, approval);
        let records = engine.record_calls(&self.calls, entries).await?;
        if let (Some(reserved), Some((change, actor)), Some(asked)) = (reserved, change, asked) {
            reserved.keep();
            run.set_awaiting_approval();
            run.decisions.asked(change, &actor, asked);
        }
        let recorded = refusals.into_iter().zip(&*records);
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

    /// Returns the refusal and the entry of each call. The first change has the approval.
    fn rows(&self, refusal: &Refusal, mut approval: Option<(Approval, String)>) -> (Vec<Refusal>, Vec<Entry>) {
        let rows = self.calls.iter().zip(&self.items).map(|(call, item)| match item {
            JudgedItem::Change(change) => {
                let mut entry = pending_entry(call, &change.plan, refusal);
                entry.approval = approval.take();
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

    /// Checks the size of the contents that would be stored with the approval. Of a call in a batch all is in its input.
    ///
    /// # Errors
    ///
    /// `FILE_TOO_LARGE`.
    pub(crate) fn check_waiting_bytes(&self) -> Result<(), Failure> {
        for (index, change) in self.changes() {
            let actual = change.plan.waiting_bytes();
            if actual > MAX_WAITING_BYTES {
                let upload = change.plan.staged_uploads().next().filter(|_| !change.plan.is_changeset);
                let mut refusal = too_large_to_wait(actual, &self.decision.reasons);
                refusal.details.path = upload.map(|(change, ..)| change.path.to_string());
                return Err(Failure::Call(index, refusal.into()));
            }
        }
        Ok(())
    }

    /// Loads the contents that are to be stored with the approval, and compares the text of a staged upload for the person who decides.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) fn load_contents(&mut self, workspaces: &Workspaces, run: &OpenRun) -> Result<(), CallError> {
        for item in &mut self.items {
            let JudgedItem::Change(JudgedChange { plan, .. }) = item else { continue };
            if plan.is_changeset {
                plan.waiting_content = Some((LAYER, BASE64_STANDARD.encode(plan.pack_layer(&run.workspace)?)));
                continue;
            }
            let Some((change, _, name)) = plan.staged_uploads().next() else { continue };
            let content = read(run.workspace.open_staged(name)?)?;
            let diff = diff(workspaces, &run.run_id, change, &content)?;
            plan.waiting_content = Some((CONTENT, BASE64_STANDARD.encode(content)));
            if let Some(diff) = diff {
                plan.diff = diff;
            }
        }
        Ok(())
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
    let Some((member, content)) = &plan.waiting_content else { return input };
    // The last member, since the input is an object with at least one.
    let members = input.strip_suffix('}').unwrap_or(&input);
    format!("{members},\"{member}\":\"{content}\"}}")
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
    let records = engine.record_calls(std::slice::from_ref(call), vec![entry]).await.map_err(Failure::into_error)?;
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

/// The most bytes of content that are stored with an approval, and the largest text that is compared.
const MAX_WAITING_BYTES: u64 = 16 << 20;
/// The largest diff that is shown, in bytes.
const MAX_DIFF_BYTES: usize = 4 << 20;

fn too_large_to_wait(actual: u64, reasons: &[String]) -> Refusal {
    let message = format!(
        "the call needs a person's approval and has {actual} bytes of content; a call that waits may have {MAX_WAITING_BYTES}"
    );
    let hint =
        "Send a smaller file or several change sets, or ask the operator for a policy that needs no approval for it.";
    Refusal::new(Code::FileTooLarge, message, hint).with_details(|details| {
        details.reasons = reasons.to_vec();
        (details.limit, details.actual) = (Some(MAX_WAITING_BYTES), Some(actual));
    })
}

/// Returns the diff of the change to the content `new`; `None` for a binary file and where the text before or the diff is too large, of
/// which a person sees the hashes alone.
fn diff(workspaces: &Workspaces, run: &RunId, change: &Change, new: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let Some(after) = &change.after else { return Ok(None) };
    let old = match &change.before {
        None => None,
        Some(before) if before.size_bytes > MAX_WAITING_BYTES => return Ok(None),
        Some(before) => match read_version(workspaces, run, &change.path, before.sha256)? {
            Some(bytes) => Some((bytes, before.mode)),
            None => return Ok(None),
        },
    };
    let path = &change.path;
    let old = old.as_ref().map(|(bytes, mode)| Side { path, bytes, mode: *mode });
    let compared = diff_file(old, Some(Side { path, bytes: new, mode: after.mode }));
    let is_shown = !compared.binary && compared.text.len() <= MAX_DIFF_BYTES;
    Ok(is_shown.then_some(compared.text))
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
            let bytes = workspaces.base(run)?.read(path, MAX_WAITING_BYTES)?;
            Ok(bytes.filter(|bytes| Sha256::of(bytes) == sha256))
        }
        file => Ok(Some(read(file?)?).filter(|bytes| Sha256::of(bytes) == sha256)),
    }
}

fn read(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_WAITING_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
