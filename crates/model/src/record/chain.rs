//! Verifies the hash chain of a run's records.

use serde::{Deserialize, Serialize};

use super::{Record, Versions};
use crate::{RunId, Sha256, canonical_json};

/// The first invalid record of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainBreak {
    /// The position in the chain.
    pub seq: u64,
    /// What is invalid.
    pub problem: String,
}

/// The result of verifying a run's chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainReport {
    /// The run.
    #[serde(deserialize_with = "RunId::deserialize_recorded")]
    pub run_id: RunId,
    /// Whether every record is valid and the chain ends at the stored head.
    pub intact: bool,
    /// The number of valid records before the first invalid one.
    pub records: u64,
    /// `seq` of the last valid record; 0 for an empty chain.
    pub head_seq: u64,
    /// The hash of that record.
    pub head_hash: Sha256,
    /// Diffs that are no longer stored, of those whose hashes are in records. The chain is valid without them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing_diffs: u64,
    /// Records before the first verified one that are in the run's archive, and were not verified here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub archived_records: u64,
    /// The first invalid record; if all are valid, `discontinuity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_break: Option<ChainBreak>,
    /// The first record that begins with another version of a file than the records before it, or the base, have left: a change from
    /// outside is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discontinuity: Option<ChainBreak>,
}

impl ChainReport {
    /// Adds a record that begins with another version of a file than the records before it, or the base, have left. An earlier one
    /// stays the first.
    pub fn add_discontinuity(&mut self, found: ChainBreak) {
        self.intact = false;
        let is_first = |known: &Option<ChainBreak>| known.as_ref().is_none_or(|known| found.seq < known.seq);
        if is_first(&self.discontinuity) {
            // The hashes are the more basic problem, whichever comes first.
            if self.is_chain_valid() {
                self.first_break = Some(found.clone());
            }
            self.discontinuity = Some(found);
        }
    }

    /// Whether every hash is valid, although a change from outside may be missing in the records.
    pub fn is_chain_valid(&self) -> bool {
        self.first_break == self.discontinuity
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Verifies a chain record by record, without having it in memory as a whole.
#[derive(Clone, Debug)]
pub struct ChainCheck {
    report: ChainReport,
    versions: Versions,
    /// The first record that does not continue what the records before it have left. It may be in a valid chain.
    discontinuity: Option<ChainBreak>,
}

impl ChainCheck {
    /// Starts before the first record of `run_id`.
    pub fn new(run_id: &RunId) -> Self {
        let report = ChainReport {
            run_id: run_id.clone(),
            intact: true,
            records: 0,
            head_seq: 0,
            head_hash: Sha256::ZERO,
            missing_diffs: 0,
            archived_records: 0,
            first_break: None,
            discontinuity: None,
        };
        Self { report, versions: Versions::default(), discontinuity: None }
    }

    /// Starts after the record `seq` of `run_id`, whose hash is `head`.
    pub fn after(run_id: &RunId, seq: u64, head: Sha256) -> Self {
        let mut check = Self::new(run_id);
        (check.report.head_seq, check.report.head_hash) = (seq, head);
        check
    }

    /// Starts after the archived records of `run_id`, of which the last is `seq` with the hash `head`.
    pub fn after_archive(run_id: &RunId, seq: u64, head: Sha256) -> Self {
        let mut check = Self::after(run_id, seq, head);
        check.report.archived_records = seq;
        check
    }

    /// The `seq` that the next record has to have.
    pub fn next_seq(&self) -> u64 {
        self.report.head_seq + 1
    }

    /// Checks the next stored record: its JSON text, including `hash`. Returns false if this or an earlier record is invalid.
    ///
    /// The text is parsed without a schema, so that the hash also covers members that this version does not know.
    pub fn push(&mut self, text: &str) -> bool {
        self.push_result(|run_id, seq, head| check_link(run_id, text, seq, head))
    }

    /// Checks the next stored record as [`push`](Self::push) does, with what its text was parsed to, and that it continues what
    /// the records before it have left. A text that is what this version writes needs no second parse.
    pub fn push_parsed(&mut self, text: &str, record: &Record) -> bool {
        let is_valid =
            self.push_result(|run_id, seq, head| match check_written_link(run_id, text, record, seq, head) {
                Some(hash) => Ok(hash),
                None => check_link(run_id, text, seq, head),
            });
        if is_valid && let Err(problem) = self.versions.push(record) {
            self.discontinuity.get_or_insert(ChainBreak { seq: record.seq, problem });
        }
        is_valid
    }

    fn push_result(&mut self, check: impl FnOnce(&RunId, u64, Sha256) -> Result<Sha256, String>) -> bool {
        if self.report.first_break.is_some() {
            return false;
        }
        match check(&self.report.run_id, self.next_seq(), self.report.head_hash) {
            Ok(hash) => {
                self.report.records += 1;
                self.report.head_seq += 1;
                self.report.head_hash = hash;
                true
            }
            Err(problem) => {
                self.fail(problem);
                false
            }
        }
    }

    /// Counts the diff of the last checked record as missing.
    pub fn add_missing_diff(&mut self) {
        self.report.missing_diffs += 1;
    }

    /// Marks the next record as invalid, unless an earlier one is.
    pub fn fail(&mut self, problem: impl Into<String>) {
        let seq = self.next_seq();
        self.report.first_break.get_or_insert_with(|| ChainBreak { seq, problem: problem.into() });
    }

    /// Compares the end of the chain with the stored head and returns the result.
    pub fn finish(mut self, known_head: (u64, Sha256)) -> ChainReport {
        if (self.report.head_seq, self.report.head_hash) != known_head {
            let problem = format!("the chain ends at {} but the run's head is {}", self.report.head_seq, known_head.0);
            self.fail(problem);
        }
        self.end()
    }

    /// Returns the result if no head is stored.
    pub fn end(mut self) -> ChainReport {
        self.report.intact = self.report.first_break.is_none();
        if let Some(found) = self.discontinuity {
            self.report.add_discontinuity(found);
        }
        self.report
    }
}

/// Verifies the stored records of `run_id`, given in order as JSON texts including `hash`, against the stored head.
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

/// Returns the hash of a valid record whose text is exactly what is written for it, which is canonical JSON. `None` if the record is
/// invalid, or has another text.
fn check_written_link(run_id: &RunId, text: &str, record: &Record, seq: u64, head: Sha256) -> Option<Sha256> {
    let stated = record.hash?;
    let is_next = record.run_id == *run_id && record.seq == seq && record.prev_hash == head;
    if !is_next || serde_json::to_string(record).ok()? != text {
        return None;
    }
    // No value before the member is an object with a member of this name.
    let (before, after) = text.split_once(&format!(",\"hash\":\"{stated}\""))?;
    (Sha256::of([before, after].concat().as_bytes()) == stated).then_some(stated)
}

fn check_link(run_id: &RunId, text: &str, seq: u64, head: Sha256) -> Result<Sha256, String> {
    let mut value: serde_json::Value = serde_json::from_str(text).map_err(|_| "the record is not JSON".to_owned())?;
    let members = value.as_object_mut().ok_or("the record is not an object")?;
    let stated = members
        .remove("hash")
        .and_then(|hash| hash.as_str().and_then(|hash| Sha256::parse(hash).ok()))
        .ok_or("the record has no hash")?;
    if members.get("runId").and_then(serde_json::Value::as_str) != Some(run_id.as_str()) {
        return Err("the record belongs to another run".to_owned());
    }
    if members.get("seq").and_then(serde_json::Value::as_u64) != Some(seq) {
        return Err(format!("expected seq {seq}: a record is missing, duplicated or out of order"));
    }
    let prev_hash = members.get("prevHash").and_then(serde_json::Value::as_str);
    if prev_hash != Some(head.to_string().as_str()) {
        return Err("prevHash is not the hash of the previous record".to_owned());
    }
    if Sha256::of(canonical_json(members).as_bytes()) != stated {
        return Err("the hash does not match the record's content".to_owned());
    }
    Ok(stated)
}
