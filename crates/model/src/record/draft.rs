//! Records before their position in the chain is known.

use crate::{Code, LogicalPath, Outcome, Record, RecordFile, RunId, Sha256, ToolCallId, Verdict};

/// A record before its position in the chain is known. Members are in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Who called: `run-token:{tokenId}` or `operator:{name}`.
    pub actor: String,
    /// The answer's code, where it is not `ok`.
    pub code: Option<Code>,
    /// What policy said.
    pub decision: Verdict,
    /// SHA-256 of the diff that `artifact_uris` names.
    pub diff_sha256: Option<Sha256>,
    /// How long the call took until it was handed to the ledger, in microseconds.
    pub duration_micros: u64,
    /// Files with their hashes.
    pub files: Vec<RecordFile>,
    /// Whether the tool may change files.
    pub mutates: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Paths whose content or listing was returned.
    pub paths_read: Vec<LogicalPath>,
    /// Paths that changed; for a refused or pending call, that it asked to change.
    pub paths_written: Vec<LogicalPath>,
    /// Why the caller did it.
    pub reason: Option<String>,
    /// The rules that decided.
    pub reasons: Vec<String>,
    /// The run.
    pub run_id: RunId,
    /// The caller's step, if it named one.
    pub step_id: Option<String>,
    /// When, RFC 3339 UTC with microseconds.
    pub timestamp: String,
    /// The tool.
    pub tool: String,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// Diffs of what it changed, as `artifact://{run}/{artifactId}`.
    pub artifact_uris: Vec<String>,
}

/// The most bytes of one list of paths or files in a record that changed nothing, as the record's JSON writes them.
pub(super) const MAX_LISTED_BYTES: usize = 64 * 1024;
/// The most bytes of a record's reasons, as the record's JSON writes them.
const MAX_REASONS_BYTES: usize = 16 * 1024;
/// The longest reason, in characters.
const MAX_REASON_CHARS: usize = 1000;
/// What the JSON of a file has beside its path: names, kind and two hashes.
const FILE_BYTES: usize = 200;

/// The member that follows `hash`, as it begins.
const MEMBER_AFTER_HASH: &str = ",\"mutates\":";

impl Draft {
    /// The same draft, in which no list repeats more of the call's input than 64 KiB. The last of `reasons` says
    /// how many entries of which list were left out. What a change has written is always complete: the run's history is read
    /// from it.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let mut left_out = cut("pathsRead", &mut self.paths_read, MAX_LISTED_BYTES, |path| json_bytes(path.as_str()));
        let is_change = self.mutates && self.outcome == Outcome::Ok && !self.paths_written.is_empty();
        if !is_change {
            let written =
                cut("pathsWritten", &mut self.paths_written, MAX_LISTED_BYTES, |path| json_bytes(path.as_str()));
            let size = |file: &RecordFile| FILE_BYTES + json_bytes(file.path.as_str());
            left_out.extend(written.into_iter().chain(cut("files", &mut self.files, MAX_LISTED_BYTES, size)));
        }
        for reason in &mut self.reasons {
            if let Some((end, _)) = reason.char_indices().nth(MAX_REASON_CHARS) {
                reason.truncate(end);
                reason.push('…');
            }
        }
        left_out.extend(cut("reasons", &mut self.reasons, MAX_REASONS_BYTES, |reason| json_bytes(reason)));
        self.reasons.extend(left_out);
        self
    }

    /// Appends the draft to the record number `seq` with hash `head` (0 and [`Sha256::ZERO`] for the first record). Returns
    /// the record and its JSON text, `hash` included.
    pub fn link(self, seq: u64, head: Sha256) -> (Record, String) {
        let mut record = self.unhashed(seq, head);
        // A record holds strings, numbers and lists only, which always serialise; an empty text would fail verification.
        let mut text = serde_json::to_string(&record).unwrap_or_default();
        let hash = Sha256::of(text.as_bytes());
        record.hash = Some(hash);
        // Inside a string every quote has a backslash, so the first match is the member itself.
        if let Some(position) = text.find(MEMBER_AFTER_HASH) {
            text.insert_str(position, &format!(",\"hash\":\"{hash}\""));
        }
        (record, text)
    }

    fn unhashed(self, seq: u64, head: Sha256) -> Record {
        Record {
            actor: self.actor,
            artifact_uris: self.artifact_uris,
            code: self.code,
            decision: self.decision,
            diff_sha256: self.diff_sha256,
            duration_micros: self.duration_micros,
            files: self.files,
            hash: None,
            mutates: self.mutates,
            outcome: self.outcome,
            paths_read: self.paths_read,
            paths_written: self.paths_written,
            prev_hash: head,
            reason: self.reason,
            reasons: self.reasons,
            run_id: self.run_id,
            seq: seq + 1,
            step_id: self.step_id,
            timestamp: self.timestamp,
            tool: self.tool,
            tool_call_id: self.tool_call_id,
        }
    }
}

/// Truncates a list after the entry with which it reaches `most` bytes. Returns a note on what was omitted.
fn cut<T>(name: &str, list: &mut Vec<T>, most: usize, size: impl Fn(&T) -> usize) -> Vec<String> {
    let mut bytes = 0;
    let kept = list.iter().take_while(|entry| {
        let fits = bytes < most;
        bytes += size(entry);
        fits
    });
    let kept = kept.count();
    let rest = list.len() - kept;
    list.truncate(kept);
    if rest == 0 { Vec::new() } else { vec![format!("and {rest} more in {name}")] }
}

/// The bytes of a text in JSON, with its quotes and a comma.
fn json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum::<usize>() + 3
}
