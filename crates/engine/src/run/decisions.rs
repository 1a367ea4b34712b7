//! What people have decided about the calls of a run that waited: told to their callers once, and kept for the same change.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ledger::{ApprovalFilter, Ledger, PageSize, RecordFilter};
use model::{Approval, ApprovalFile, ApprovalId, ApprovalState, LogicalPath, RUN_TOKEN_ACTOR, RunId, Severity, Sha256};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::CallError;
use crate::clock::now;
use crate::run::last_records::{LastRecord, last_of_all, last_records};

/// The pages of the newest approvals of a run that are read when it is opened. They have diffs, so that a page may have few.
const MAX_PAGES: usize = 16;
/// The denied changes that are kept of a run.
const MAX_DENIED: usize = 1000;
/// The newest records that are searched for the last call of a token.
const MAX_SEARCHED: usize = 1000;
const PAGE: u32 = 100;
/// The decisions that one answer tells.
const MAX_NOTICES: usize = 20;
/// The newest comments of a run that its agents are told.
const MAX_COMMENTS: u32 = 50;

/// The tool in the record of a comment.
pub(crate) const COMMENT_TOOL: &str = "event.comment";

/// A comment of a person on the run.
pub(crate) struct Comment {
    /// The number of its record.
    pub seq: u64,
    /// Who says it.
    pub by: String,
    /// The file that it is about.
    pub path: Option<LogicalPath>,
    /// The line of the file.
    pub line: Option<u64>,
    /// What it says.
    pub text: String,
}

impl Comment {
    fn notice(&self) -> String {
        let at = match (&self.path, self.line) {
            (Some(path), Some(line)) => format!(" on {path}:{line}"),
            (Some(path), None) => format!(" on {path}"),
            (None, _) => String::new(),
        };
        on_one_line(&format!("comment{at} by {}: {}", self.by, quoted(&self.text)))
    }
}

/// The decisions about calls of an open run.
#[derive(Debug, Default)]
pub struct Decisions {
    /// Number of decisions that a caller has not been told. Almost always 0, so that a call takes no lock.
    untold: AtomicUsize,
    /// The record of the newest comment; 0 if there is none, so that a call takes no lock.
    newest_comment: AtomicU64,
    state: Mutex<DecisionNews>,
}

#[derive(Debug, Default)]
struct DecisionNews {
    /// Lines for each caller.
    notices: HashMap<String, Vec<String>>,
    /// The changes that wait, by their keys and callers: another token may have other evidence, and another issuer.
    waiting: HashMap<(Sha256, String), ApprovalId>,
    /// The changes that were denied, whoever asked.
    denied: HashMap<Sha256, DeniedChange>,
    /// The keys of `denied`, oldest first.
    denied_order: VecDeque<Sha256>,
    /// The numbers and lines of the newest comments, oldest first. Every agent of the run is told them.
    comments: VecDeque<(u64, String)>,
    /// Up to which record each caller was told the comments.
    comments_told: HashMap<String, u64>,
}

/// A change that a person has denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedChange {
    /// The approval.
    pub approval: ApprovalId,
    /// The person's note.
    pub note: Option<String>,
}

/// Returns what the same change has in common, whichever call makes it: the files with their versions, and their modes, which only
/// the diff has.
fn change_key(files: &[ApprovalFile], diff: Option<&str>) -> Sha256 {
    let mut text = String::new();
    for ApprovalFile { path, operation, old_sha256, new_sha256, .. } in files {
        let hash = |hash: &Option<Sha256>| hash.map(|hash| hash.to_string()).unwrap_or_default();
        let _ = writeln!(text, "{operation} {} {} {:?}", hash(old_sha256), hash(new_sha256), path.as_str());
    }
    let lines = diff.unwrap_or_default().lines();
    // Of a command, which names no files, the text itself.
    let matters = |line: &&str| files.is_empty() || line.starts_with("new mode ") || line.starts_with("new file mode ");
    for line in lines.filter(matters) {
        let _ = writeln!(text, "{line}");
    }
    Sha256::of(text.as_bytes())
}

/// Returns the key of what an approval is for.
pub(crate) fn key_of(approval: &Approval) -> Sha256 {
    change_key(&approval.files, approval.diff.as_deref())
}

impl Decisions {
    /// Reads what was decided about calls of `run`. A decision after the last call of its token was not told yet.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub async fn load(ledger: &dyn Ledger, run: &RunId) -> Result<Self, CallError> {
        let filter = ApprovalFilter { run: Some(run.clone()), newest_first: true, ..ApprovalFilter::default() };
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = ledger.approvals(&filter, after, PAGE.into()).await?;
            let last = page.last().map(|(position, _)| *position);
            let (more, resume) = (page.more, page.resume.or(last));
            // The diffs may be large, and only their modes matter.
            found
                .extend(page.into_iter().map(|(_, approval)| (key_of(&approval), Approval { diff: None, ..approval })));
            match resume {
                Some(next) if more => after = Some(next),
                _ => break,
            }
        }
        let decisions = Self::default();
        let last_calls = last_calls(ledger, run, &found).await?;
        for (key, approval) in found.into_iter().rev() {
            let last_call = last_calls.get(&approval.actor).map_or(0, |record| record.seq);
            let is_told = approval.decided_seq.is_none_or(|seq| seq < last_call);
            decisions.add(key, &approval, is_told);
        }
        decisions.load_comments(ledger, run).await?;
        Ok(decisions)
    }

    /// Reads the newest comments of people. A comment after the last call of a token was not told to it yet.
    async fn load_comments(&self, ledger: &dyn Ledger, run: &RunId) -> Result<(), CallError> {
        let tool = Some(COMMENT_TOOL.to_owned());
        let outcome = Some("ok".to_owned());
        let filter =
            RecordFilter { run: Some(run.clone()), tool, outcome, newest_first: true, ..RecordFilter::default() };
        let mut found = Vec::new();
        for stored in ledger.records(&filter, None, PageSize::rows(MAX_COMMENTS)).await? {
            found.push(comment_of(&stored.text)?);
        }
        let Some(oldest) = found.last().map(|comment| comment.seq) else { return Ok(()) };
        let last_calls = last_of_all(ledger, run, oldest, MAX_SEARCHED).await?;
        self.state.lock().comments_told = last_calls;
        found.iter().rev().for_each(|comment| self.commented(comment));
        Ok(())
    }

    /// Adds a comment, which every agent of the run is told with its next answer.
    pub(crate) fn commented(&self, comment: &Comment) {
        let mut state = self.state.lock();
        // A run that is opened meanwhile has read it from its records.
        if state.comments.iter().any(|(seq, _)| *seq == comment.seq) {
            return;
        }
        state.comments.push_back((comment.seq, comment.notice()));
        if state.comments.len() > MAX_COMMENTS as usize {
            state.comments.pop_front();
        }
        self.newest_comment.fetch_max(comment.seq, Ordering::AcqRel);
    }

    /// Adds a change of `actor` that waits for an approval.
    pub fn asked(&self, change: Sha256, actor: &str, approval: ApprovalId) {
        self.state.lock().waiting.insert((change, actor.to_owned()), approval);
    }

    /// Adds a decision, which the caller is told with its next answer.
    pub fn decided(&self, approval: &Approval) {
        self.add(key_of(approval), approval, false);
    }

    /// Adds a decision that its caller learns in another way.
    pub fn correct(&self, approval: &Approval) {
        self.add(key_of(approval), approval, true);
    }

    fn add(&self, key: Sha256, approval: &Approval, is_told: bool) {
        let mut state = self.state.lock();
        let waiting = (key, approval.actor.clone());
        if approval.state == ApprovalState::Pending {
            if approval.expires_at > now() {
                state.waiting.insert(waiting, approval.approval_id.clone());
            }
            return;
        }
        if state.waiting.get(&waiting) == Some(&approval.approval_id) {
            state.waiting.remove(&waiting);
        }
        if approval.state == ApprovalState::Denied {
            let denied = DeniedChange { approval: approval.approval_id.clone(), note: approval.note.clone() };
            if state.denied.insert(key, denied).is_none() {
                state.denied_order.push_back(key);
            }
            if state.denied_order.len() > MAX_DENIED
                && let Some(oldest) = state.denied_order.pop_front()
            {
                state.denied.remove(&oldest);
            }
        }
        // Operators see decisions in their lists.
        if !is_told && approval.actor.starts_with(RUN_TOKEN_ACTOR) {
            state.notices.entry(approval.actor.clone()).or_default().push(notice(approval));
            self.untold.fetch_add(1, Ordering::Release);
        }
    }

    /// Adds a line that `actor` is told with its next answer.
    pub fn tell_later(&self, actor: &str, line: String) {
        if actor.starts_with(RUN_TOKEN_ACTOR) {
            self.state.lock().notices.entry(actor.to_owned()).or_default().push(line);
            self.untold.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the approval that the change of `actor` waits for.
    pub fn waiting(&self, change: Sha256, actor: &str) -> Option<ApprovalId> {
        self.state.lock().waiting.get(&(change, actor.to_owned())).cloned()
    }

    /// Whether a person has denied a change of the run.
    pub fn has_denied(&self) -> bool {
        !self.state.lock().denied.is_empty()
    }

    /// Returns the denial of a change.
    pub fn denied(&self, change: Sha256) -> Option<DeniedChange> {
        self.state.lock().denied.get(&change).cloned()
    }

    /// Returns `actor` if it may have to be told of decisions.
    pub fn listener(&self, actor: &str) -> Option<String> {
        let has_news = self.untold.load(Ordering::Acquire) > 0 || self.newest_comment.load(Ordering::Acquire) > 0;
        has_news.then(|| actor.to_owned())
    }

    /// Adds the decisions that `listener` was not told yet to the answer to it, given by its notices.
    pub fn tell(&self, listener: Option<&str>, answer: Result<&mut Vec<String>, &mut CallError>) {
        match (listener, answer) {
            (Some(listener), Ok(notices)) => *notices = self.take(listener),
            (listener, Err(error)) => self.tell_refused(listener, error),
            (None, Ok(_)) => {}
        }
    }

    /// As [`tell`](Self::tell), with a refusal. Other errors are no answers: their calls are repeated.
    pub fn tell_refused(&self, listener: Option<&str>, error: &mut CallError) {
        if let (Some(listener), CallError::Refused(refusal)) = (listener, error) {
            refusal.details.notices = self.take(listener);
        }
    }

    fn take(&self, listener: &str) -> Vec<String> {
        let mut state = self.state.lock();
        let mut notices = state.notices.remove(listener).unwrap_or_default();
        self.untold.fetch_sub(notices.len(), Ordering::AcqRel);
        notices.extend(state.take_comments(listener));
        drop(state);
        let older = notices.len().saturating_sub(MAX_NOTICES);
        if older > 0 {
            notices.drain(..older);
            notices.insert(0, format!("{older} earlier decisions are not shown"));
        }
        notices
    }
}

impl DecisionNews {
    /// Returns the comments that `listener` was not told yet. Operators see them in the run's records.
    fn take_comments(&mut self, listener: &str) -> Vec<String> {
        let Some((newest, _)) = self.comments.back() else { return Vec::new() };
        if !listener.starts_with(RUN_TOKEN_ACTOR) {
            return Vec::new();
        }
        let told = self.comments_told.insert(listener.to_owned(), *newest).unwrap_or(0);
        let untold = self.comments.iter().filter(|(seq, _)| *seq > told);
        untold.map(|(_, line)| line.clone()).collect()
    }
}

/// Reads a comment from the text of its record.
fn comment_of(text: &str) -> Result<Comment, CallError> {
    let record: StoredComment = serde_json::from_str(text).map_err(|error| CallError::Internal(Box::new(error)))?;
    let by = record.actor.strip_prefix("operator:").unwrap_or(&record.actor).to_owned();
    let StoredComment { seq, input, .. } = record;
    let StoredCommentInput { summary, path, line, on_behalf_of } = input;
    Ok(Comment { seq, by: on_behalf_of.unwrap_or(by), path, line, text: summary })
}

/// The members of a comment's record that an agent is told.
#[derive(Deserialize)]
struct StoredComment {
    seq: u64,
    actor: String,
    input: StoredCommentInput,
}

/// The input of that record.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCommentInput {
    summary: String,
    path: Option<LogicalPath>,
    line: Option<u64>,
    on_behalf_of: Option<String>,
}

/// Returns the last record of each token that made a call of `approvals`, where it can matter: after a decision.
async fn last_calls(
    ledger: &dyn Ledger,
    run: &RunId,
    approvals: &[(Sha256, Approval)],
) -> Result<HashMap<String, LastRecord>, CallError> {
    let decided = approvals.iter().filter_map(|(_, approval)| Some((approval, approval.decided_seq?)));
    let mut oldest: HashMap<String, u64> = HashMap::new();
    for (approval, seq) in decided {
        oldest.entry(approval.actor.clone()).and_modify(|oldest| *oldest = seq.min(*oldest)).or_insert(seq);
    }
    last_records(ledger, run, oldest, MAX_SEARCHED).await
}

/// Returns the line about a decision.
fn notice(approval: &Approval) -> String {
    let (first, others) = match approval.files.as_slice() {
        // A command, which is the reason where its caller gave none.
        [] => (quoted(&approval.reason), 0),
        [first, others @ ..] => (first.path.to_string(), others.len()),
    };
    let more = if others > 0 { format!(" and {others} more") } else { String::new() };
    let mut warned: Vec<_> = approval.warnings.iter().filter(|warning| warning.severity > Severity::Info).collect();
    warned.dedup_by_key(|warning| warning.code);
    let warned: Vec<_> = warned.iter().map(|warning| warning.code.as_str()).collect();
    let warned = if warned.is_empty() { String::new() } else { format!(" [{}]", warned.join(", ")) };
    let what = format!("{first}{more} ({}){warned}", approval.tool);
    let note = approval.note.as_deref().map(|note| format!(" — {}", quoted(note))).unwrap_or_default();
    let line = match approval.state {
        ApprovalState::Pending => format!("waiting: {what}"),
        // A command that was run tells its outcome itself.
        ApprovalState::Approved if approval.files.is_empty() => format!("approved: {what}{note}"),
        ApprovalState::Approved if approval.edited_seq.is_some() => {
            format!("approved: {what}, applied with changes by a person: read it again{note}")
        }
        ApprovalState::Approved => format!("approved: {what}, applied{note}"),
        ApprovalState::Denied => format!("denied: {what}{note}"),
        ApprovalState::Expired => format!("expired: {what}, nobody has decided"),
        ApprovalState::Failed => {
            let code = approval.resolution.as_deref().and_then(|text| text.strip_prefix("failed: "));
            let code = code.map(|code| format!(": {code}")).unwrap_or_default();
            let end = if approval.decided_by.is_some() { "approved and not applied" } else { "nobody has decided" };
            format!("failed: {what}, {end}{code}")
        }
    };
    on_one_line(&line)
}

/// Returns one line, whatever a name or a note has.
fn on_one_line(line: &str) -> String {
    line.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Returns a person's note in quotes.
pub(crate) fn quoted(note: &str) -> String {
    format!("\"{}\"", note.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_with_other_modes_are_another_change() {
        let file = |operation: &str, new: &[u8]| ApprovalFile {
            path: "a".parse_path(),
            operation: operation.to_owned(),
            old_sha256: None,
            new_sha256: Some(Sha256::of(new)),
            insertions: 1,
            deletions: 0,
        };
        let key = |operation: &str, new: &[u8], diff: &str| change_key(&[file(operation, new)], Some(diff));
        let (plain, executable) = ("new file mode 100644\n+x\n", "new file mode 100755\n+x\n");
        assert_eq!(key("create", b"x", plain), key("create", b"x", "new file mode 100644\n+y\n"));
        assert_ne!(key("create", b"x", plain), key("create", b"x", executable));
        assert_ne!(key("create", b"x", plain), key("create", b"y", plain));
        assert_ne!(key("create", b"x", plain), key("replace", b"x", plain));
    }

    #[test]
    fn a_comment_that_is_read_and_then_reported_is_told_once() {
        let decisions = Decisions::default();
        let comment = |seq| Comment { seq, by: "ada".to_owned(), path: None, line: None, text: format!("text {seq}") };
        for seq in [3, 3, 5] {
            decisions.commented(&comment(seq));
        }
        let listener = format!("{RUN_TOKEN_ACTOR}tok");
        let told = || decisions.state.lock().take_comments(&listener);
        let first = told();
        assert_eq!(first.len(), 2, "{first:?}");
        assert!(first[0].contains("text 3") && first[1].contains("text 5"), "{first:?}");
        assert!(told().is_empty());
    }

    trait ParsePath {
        fn parse_path(&self) -> model::LogicalPath;
    }

    impl ParsePath for str {
        fn parse_path(&self) -> model::LogicalPath {
            model::LogicalPath::parse(self).unwrap()
        }
    }
}
