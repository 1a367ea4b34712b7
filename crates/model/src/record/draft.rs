//! Records that have no position in the chain yet.

use std::ops::{Deref, DerefMut};

use crate::{By, DeniedEntry, LogicalPath, Outcome, Record, RecordFile, RunId, Sha256, ToolCallId, Verdict, excerpt};

/// A record without its position in the chain: [`link`](Self::link) sets `seq`, `prevHash` and `hash`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft(Record);

impl Deref for Draft {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut Record {
        &mut self.0
    }
}

/// The maximum bytes of JSON of one list of paths or files in the record of a call that changed nothing.
pub(super) const MAX_LISTED_BYTES: usize = 64 * 1024;
/// The maximum bytes of JSON of a record's reasons.
const MAX_REASONS_BYTES: usize = 16 * 1024;
/// The maximum length of a reason, in characters.
const MAX_REASON_CHARS: usize = 1000;
/// The most entries that the record of a change set says it left out.
pub const MAX_LEFT: usize = 100;
/// The longest invalid path of an entry that was left out, in characters.
const MAX_INVALID_PATH_CHARS: usize = 200;
/// The bytes of JSON of a file without its path: names, kind and two hashes.
const FILE_BYTES: usize = 200;

/// The starts of the members that may follow `hash`.
const MEMBERS_AFTER_HASH: [&str; 3] = [",\"input\":", ",\"left\":", ",\"mutates\":"];

impl Draft {
    /// Creates the record of an allowed call of `tool` by `actor` at `timestamp`, without any other member.
    pub fn new(run_id: RunId, actor: String, tool: &str, tool_call_id: ToolCallId, timestamp: String) -> Self {
        Self(Record {
            actor,
            artifact_uris: Vec::new(),
            by: None,
            code: None,
            decision: Verdict::Allow,
            diff_sha256: None,
            duration_micros: 0,
            evidence: None,
            files: Vec::new(),
            format: None,
            hash: None,
            input: None,
            left: Vec::new(),
            left_count: None,
            mutates: false,
            outcome: Outcome::Ok,
            paths_read: Vec::new(),
            paths_written: Vec::new(),
            prev_hash: Sha256::ZERO,
            reason: None,
            reasons: Vec::new(),
            request_id: None,
            run_id,
            seq: 0,
            step_id: None,
            timestamp,
            tool: tool.to_owned(),
            tool_call_id,
            trace_id: None,
        })
    }

    /// Sets what a change set left out because it is denied: each path with the rule.
    pub fn set_left<'a>(&mut self, left: impl ExactSizeIterator<Item = (&'a str, &'a str)>) {
        let count = left.len() as u64;
        self.0.left_count = (count > 0).then_some(count);
        let entry =
            |(path, rule): (&str, &str)| DeniedEntry { path: left_path(path), rule: excerpt(rule, MAX_REASON_CHARS) };
        let mut list: Vec<_> = left.take(MAX_LEFT).map(entry).collect();
        // The count says how many there are.
        cut("left", &mut list, MAX_LISTED_BYTES, |entry| json_bytes(&entry.path) + json_bytes(&entry.rule));
        self.0.left = list;
    }

    /// Cuts the lists that repeat the call's input to 64 KiB each, and the reasons to 16 KiB. The last reasons state how many
    /// entries of which list were omitted. The paths and files of a change stay complete, because the run's history is read
    /// from them.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let mut omitted = cut("pathsRead", &mut self.paths_read, MAX_LISTED_BYTES, |path| json_bytes(path.as_str()));
        let is_change = self.mutates && self.outcome == Outcome::Ok && !self.paths_written.is_empty();
        if !is_change {
            let written =
                cut("pathsWritten", &mut self.paths_written, MAX_LISTED_BYTES, |path| json_bytes(path.as_str()));
            let size = |file: &RecordFile| FILE_BYTES + json_bytes(file.path.as_str());
            omitted.extend(written.into_iter().chain(cut("files", &mut self.files, MAX_LISTED_BYTES, size)));
        }
        for reason in &mut self.reasons {
            if let Some((end, _)) = reason.char_indices().nth(MAX_REASON_CHARS) {
                reason.truncate(end);
                reason.push('…');
            }
        }
        omitted.extend(cut("reasons", &mut self.reasons, MAX_REASONS_BYTES, |reason| json_bytes(reason)));
        self.reasons.extend(omitted);
        self
    }

    /// Links the draft to the previous record, whose number is `seq` and whose hash is `head` (0 and [`Sha256::ZERO`] for the
    /// first record). Returns the record and its JSON text, including `hash`.
    pub fn link(self, seq: u64, head: Sha256) -> (Record, String) {
        let by = Some(By::of_actor(&self.0.actor));
        let mut record = Record { seq: seq + 1, prev_hash: head, hash: None, by, ..self.0 };
        // The members always serialise. An empty text would fail verification.
        let mut text = serde_json::to_string(&record).unwrap_or_default();
        let hash = Sha256::of(text.as_bytes());
        record.hash = Some(hash);
        // Quotes in strings are escaped, and no value before `hash` is an object with such a member, so the first match is
        // the member itself.
        if let Some(position) = MEMBERS_AFTER_HASH.iter().filter_map(|member| text.find(member)).min() {
            text.insert_str(position, &format!(",\"hash\":\"{hash}\""));
        }
        (record, text)
    }
}

/// Returns a path as it is if a workspace may have it, else escaped and cut.
fn left_path(path: &str) -> String {
    match LogicalPath::parse(path) {
        Ok(path) => path.to_string(),
        Err(_) => excerpt(&path.escape_debug().to_string(), MAX_INVALID_PATH_CHARS),
    }
}

/// Truncates a list after the entry with which it reaches `max` bytes. Returns a note on what was omitted.
fn cut<T>(name: &str, list: &mut Vec<T>, max: usize, size: impl Fn(&T) -> usize) -> Vec<String> {
    let mut bytes = 0;
    let kept = list.iter().take_while(|entry| {
        let fits = bytes < max;
        bytes += size(entry);
        fits
    });
    let kept = kept.count();
    let rest = list.len() - kept;
    list.truncate(kept);
    if rest == 0 { Vec::new() } else { vec![format!("and {rest} more in {name}")] }
}

/// The bytes of a text in JSON, including its quotes and a comma.
fn json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum::<usize>() + 3
}
