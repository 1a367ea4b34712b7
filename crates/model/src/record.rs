//! Audit records and the chain that they form.

use serde::{Deserialize, Serialize};

use crate::{Code, FileKind, LogicalPath, RunId, Sha256, ToolCallId, canonical_json};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was asked.
    Ok,
    /// It was refused; nothing changed.
    Refused,
    /// It waits for a person; nothing changed yet.
    Pending,
    /// It failed by a fault of ours; nothing changed.
    Failed,
}

/// What policy said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Go on.
    Allow,
    /// A person has to agree first.
    RequireApproval,
    /// No.
    Deny,
}

/// One file of a record. Members stand in the order of their names, so that serialising is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordFile {
    /// Its kind.
    pub kind: FileKind,
    /// Hash after the call; absent where the file is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
    /// Hash before the call; absent where there was no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// The path.
    pub path: LogicalPath,
}

/// A record before its place in the chain is known. Members stand in the order of their names.
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
    /// Paths whose content or listing was told.
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
const MAX_LISTED_BYTES: usize = 64 * 1024;
/// The most bytes of a record's reasons, as the record's JSON writes them.
const MAX_REASONS_BYTES: usize = 16 * 1024;
/// The longest reason, in characters.
const MAX_REASON_CHARS: usize = 1000;
/// What the JSON of a file has beside its path: names, kind and two hashes.
const FILE_BYTES: usize = 200;

/// The member that follows `hash`, as it begins.
const BEHIND_HASH: &str = ",\"mutates\":";

/// One link of a run's audit chain. Members stand in the order of their names, so that serialising is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Who called: `run-token:{tokenId}` or `operator:{name}`.
    pub actor: String,
    /// Diffs of what it changed, as `artifact://{run}/{artifactId}`.
    pub artifact_uris: Vec<String>,
    /// The answer's code, where it is not `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// What policy said.
    pub decision: Verdict,
    /// SHA-256 of the diff that `artifactUris` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_sha256: Option<Sha256>,
    /// How long the call took until it was handed to the ledger, in microseconds.
    pub duration_micros: u64,
    /// Files with their hashes. All of them where the call changed any; else 64 KiB of them.
    pub files: Vec<RecordFile>,
    /// SHA-256 over the canonical JSON of the record without this member. `None` only while it is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Sha256)]
    pub hash: Option<Sha256>,
    /// Whether the tool may change files.
    pub mutates: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Paths whose content or listing was told: 64 KiB of them.
    pub paths_read: Vec<LogicalPath>,
    /// Paths that changed, all of them; for a refused or pending call, that it asked to change: 64 KiB of them.
    pub paths_written: Vec<LogicalPath>,
    /// Hash of the record before it; 64 zeros for the first.
    pub prev_hash: Sha256,
    /// Why the caller did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rules that decided; where a path was rejected, also `path: …` with what was tried, escaped and cut to 200
    /// characters. The last ones are `and N more in LIST` where a list of the record has less than the call was about; each
    /// is cut to 1,000 characters, and all together to 16 KiB.
    pub reasons: Vec<String>,
    /// The run.
    pub run_id: RunId,
    /// Its place in the run's audit: 1, 2, 3 … without gaps.
    pub seq: u64,
    /// The caller's step, if it named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// When, RFC 3339 UTC with microseconds.
    pub timestamp: String,
    /// The tool.
    pub tool: String,
    /// The call.
    pub tool_call_id: ToolCallId,
}

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
        // Inside a string every quote has a backslash, so that the first place is the member's own.
        if let Some(place) = text.find(BEHIND_HASH) {
            text.insert_str(place, &format!(",\"hash\":\"{hash}\""));
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

/// Cuts a list behind the entry with which it has `most` bytes or more; says what was left out.
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

impl Record {
    /// The text that is hashed: this record without `hash`, keys sorted, no white space.
    pub fn to_canonical(&self) -> String {
        let unhashed = Self { hash: None, ..self.clone() };
        // A record holds strings, numbers and lists only, which always serialise; an empty text would fail verification.
        serde_json::to_string(&unhashed).unwrap_or_default()
    }
}

/// The first record that does not belong where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainBreak {
    /// The place in the chain at which it was found.
    pub seq: u64,
    /// What is wrong there.
    pub problem: String,
}

/// What a check of one run's chain found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainReport {
    /// The run.
    pub run_id: RunId,
    /// Whether every record stands where it belongs, up to the head that the run knows.
    pub intact: bool,
    /// How many records were checked.
    pub records: u64,
    /// The last record's `seq`; 0 for an empty chain.
    pub head_seq: u64,
    /// The last record's hash.
    pub head_hash: Sha256,
    /// Diffs that are not kept any more, of those that records tell the hash of: the chain holds without them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing_diffs: u64,
    /// The first bad record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_break: Option<ChainBreak>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Checks a chain link by link, so that it need not be in memory as a whole.
#[derive(Clone, Debug)]
pub struct ChainCheck(ChainReport);

impl ChainCheck {
    /// Starts before the first record of `run_id`.
    pub fn new(run_id: &RunId) -> Self {
        Self(ChainReport {
            run_id: run_id.clone(),
            intact: true,
            records: 0,
            head_seq: 0,
            head_hash: Sha256::ZERO,
            missing_diffs: 0,
            first_break: None,
        })
    }

    /// Starts behind the record `seq` of `run_id`, whose hash is `head`.
    pub fn after(run_id: &RunId, seq: u64, head: Sha256) -> Self {
        let mut check = Self::new(run_id);
        (check.0.head_seq, check.0.head_hash) = (seq, head);
        check
    }

    /// The `seq` that the next record has to have.
    pub fn next_seq(&self) -> u64 {
        self.0.head_seq + 1
    }

    /// Takes the next stored record, its JSON text with `hash`; false where the chain is broken, here or before.
    ///
    /// The text is parsed as plain JSON, so that a member that this version does not know is covered by the hash too.
    pub fn push(&mut self, text: &str) -> bool {
        if self.0.first_break.is_some() {
            return false;
        }
        match check_link(&self.0.run_id, text, self.next_seq(), self.0.head_hash) {
            Ok(hash) => {
                self.0.records += 1;
                self.0.head_seq += 1;
                self.0.head_hash = hash;
                true
            }
            Err(problem) => {
                self.fail(problem);
                false
            }
        }
    }

    /// Notes that the diff of the record that was taken last is not kept.
    pub fn miss_diff(&mut self) {
        self.0.missing_diffs += 1;
    }

    /// Notes that the next record is bad, unless one before it is.
    pub fn fail(&mut self, problem: impl Into<String>) {
        let seq = self.next_seq();
        self.0.first_break.get_or_insert_with(|| ChainBreak { seq, problem: problem.into() });
    }

    /// Ends the check against the head that the run knows.
    pub fn finish(mut self, known_head: (u64, Sha256)) -> ChainReport {
        if (self.0.head_seq, self.0.head_hash) != known_head {
            let problem = format!("the chain ends at {} but the run's head is {}", self.0.head_seq, known_head.0);
            self.fail(problem);
        }
        self.end()
    }

    /// Ends the check where the run knows no head.
    pub fn end(mut self) -> ChainReport {
        self.0.intact = self.0.first_break.is_none();
        self.0
    }
}

/// Checks stored records (each its JSON text, with `hash`) of `run_id` in order against the head that the run knows.
pub fn verify_chain<S: AsRef<str>>(
    run_id: &RunId,
    texts: impl IntoIterator<Item = S>,
    known_head: (u64, Sha256),
) -> ChainReport {
    let mut check = ChainCheck::new(run_id);
    for text in texts {
        if !check.push(text.as_ref()) {
            break;
        }
    }
    check.finish(known_head)
}

fn check_link(run_id: &RunId, text: &str, seq: u64, head: Sha256) -> Result<Sha256, String> {
    let mut value: serde_json::Value = serde_json::from_str(text).map_err(|_| "the record is no JSON".to_owned())?;
    let members = value.as_object_mut().ok_or("the record is no object")?;
    let told = members
        .remove("hash")
        .and_then(|hash| hash.as_str().and_then(|hash| Sha256::parse(hash).ok()))
        .ok_or("the record has no hash")?;
    if members.get("runId").and_then(serde_json::Value::as_str) != Some(run_id.as_str()) {
        return Err("the record belongs to another run".to_owned());
    }
    if members.get("seq").and_then(serde_json::Value::as_u64) != Some(seq) {
        return Err(format!("expected seq {seq}: a record is missing, doubled or out of order"));
    }
    let prev_hash = members.get("prevHash").and_then(serde_json::Value::as_str);
    if prev_hash != Some(head.to_string().as_str()) {
        return Err("prevHash is not the hash of the record before".to_owned());
    }
    if Sha256::of(canonical_json(members).as_bytes()) != told {
        return Err("the record's content does not have its hash".to_owned());
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(tool: &str) -> Draft {
        Draft {
            actor: "run-token:tok_1".into(),
            code: Some(Code::NotFound),
            decision: Verdict::Allow,
            diff_sha256: None,
            duration_micros: 12,
            files: vec![RecordFile {
                kind: FileKind::TextSource,
                new_sha256: None,
                old_sha256: Some(Sha256::ZERO),
                path: LogicalPath::parse("a/ü.rs").unwrap(),
            }],
            mutates: true,
            outcome: Outcome::Refused,
            paths_read: vec![],
            paths_written: vec![LogicalPath::root()],
            reason: Some("because \"of\"\n\u{1}\u{7f}".into()),
            reasons: vec![],
            run_id: RunId::parse("r1").unwrap(),
            step_id: Some("s".into()),
            timestamp: "2026-01-01T00:00:00.000000Z".into(),
            tool: tool.into(),
            tool_call_id: ToolCallId::parse("tc").unwrap(),
            artifact_uris: vec!["artifact://r1/a".into()],
        }
    }

    fn chain() -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        for tool in ["read_file", "write_file", "list_dir"] {
            let (seq, head) = records.last().map_or((0, Sha256::ZERO), |last| (last.seq, last.hash.unwrap()));
            records.push(draft(tool).link(seq, head).0);
        }
        records
    }

    fn check(records: &[Record], head: (u64, Sha256)) -> ChainReport {
        verify_chain(
            &RunId::parse("r1").unwrap(),
            records.iter().map(|record| serde_json::to_string(record).unwrap()),
            head,
        )
    }

    #[test]
    fn a_list_that_repeats_its_call_is_cut_and_says_so() {
        let path = |number: usize| LogicalPath::parse(&format!("{}/{number:04}", "d".repeat(200))).unwrap();
        let file = |path| RecordFile { kind: FileKind::TextSource, new_sha256: None, old_sha256: None, path };
        let long = Draft {
            paths_read: (0..1000).map(path).collect(),
            paths_written: (0..1000).map(path).collect(),
            files: (0..1000).map(path).map(file).collect(),
            reasons: (0..1000).map(|number| format!("{number}{}", "r".repeat(5000))).collect(),
            ..draft("apply_patch")
        };
        let refused = long.clone().bounded();
        let listed = (refused.paths_read.len(), refused.paths_written.len(), refused.files.len());
        assert_eq!(listed, (316, 316, 161));
        let told = [
            "and 684 more in pathsRead",
            "and 684 more in pathsWritten",
            "and 839 more in files",
            "and 983 more in reasons",
        ];
        assert_eq!(refused.reasons[refused.reasons.len() - 4..], told);
        assert!(refused.reasons[0].ends_with("rr…") && refused.reasons[0].chars().count() == 1001);
        let (_, text) = refused.link(0, Sha256::ZERO);
        assert!(text.len() < 4 * MAX_LISTED_BYTES, "{}", text.len());

        let change = Draft { outcome: Outcome::Ok, ..long.clone() }.bounded();
        assert_eq!((change.paths_written, change.files), (long.paths_written, long.files));
        assert_eq!(
            (change.paths_read.len(), change.reasons.last().unwrap().as_str()),
            (316, "and 983 more in reasons")
        );
        assert_eq!(draft("read_file").bounded(), draft("read_file"));
    }

    #[test]
    fn a_record_serialises_canonically() {
        let record = chain().remove(1);
        let mut value = serde_json::to_value(&record).unwrap();
        value.as_object_mut().unwrap().remove("hash");
        assert_eq!(record.to_canonical(), canonical_json(value.as_object().unwrap()));
    }

    #[test]
    fn the_text_that_is_stored_is_the_record_s_own() {
        let nasty = ",\"mutates\":true,\"hash\":\"x\",\\\",\"mutates\":";
        let mut drafts = vec![draft("read_file"), draft(nasty), draft("list_dir")];
        drafts[0].actor = nasty.into();
        drafts[0].artifact_uris = vec![nasty.into(), ",".into()];
        drafts[1].files[0].path = LogicalPath::parse(nasty).unwrap();
        drafts[1].diff_sha256 = Some(Sha256::of(b"diff"));
        drafts[2].code = None;
        drafts[2].files.clear();
        for draft in drafts {
            let (record, text) = draft.link(6, Sha256::of(b"head"));
            assert_eq!(text, serde_json::to_string(&record).unwrap());
            assert_eq!(record.hash, Some(Sha256::of(record.to_canonical().as_bytes())));
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        }
    }

    #[test]
    fn a_record_s_hash_is_what_it_has_always_been() {
        let hash = draft("read_file").link(0, Sha256::ZERO).0.hash.unwrap();
        assert_eq!(hash.to_string(), "26712310b3cc44ed75683fd439008920fdfdc96b356a652cadbb2e6d24a0fe0b");
    }

    #[test]
    fn verify_names_the_first_bad_record() {
        let good = chain();
        let head = (3, good[2].hash.unwrap());
        assert!(check(&good, head).intact);
        assert!(check(&[], (0, Sha256::ZERO)).intact);

        let mut changed = good.clone();
        changed[1].tool = "read_file".into();
        let removed = [good[0].clone(), good[2].clone()];
        let swapped = [good[1].clone(), good[0].clone(), good[2].clone()];
        let mut relinked = good.clone();
        relinked[0] = draft("apply_patch").link(0, Sha256::ZERO).0;
        for (records, seq) in [(changed.as_slice(), 2), (&removed, 2), (&swapped, 1), (&relinked, 2), (&good[..2], 3)] {
            let report = check(records, head);
            assert!(!report.intact);
            assert_eq!(report.first_break.unwrap().seq, seq);
        }
    }
}
