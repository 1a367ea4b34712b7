//! Decides from a run's chain, from what callers were answered and from the files at the end whether everything agrees.

mod files;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde_json::Value;

use self::files::Files;
use crate::harness::check_chain;

/// What a call asks for. A hash that is `None` means no file.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Replaces the version `expected` by `new`.
    Write {
        path: String,
        expected: Option<String>,
        new: Option<String>,
    },
    Read {
        path: String,
    },
    List {
        folder: String,
    },
}

/// What a caller was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The change was made by the record `seq`.
    Done { seq: u64 },
    /// The call was refused with `code` by the record `seq`.
    Refused { code: String, seq: Option<u64> },
    /// The version that was read.
    Content(Option<String>),
    /// The names in a folder.
    Names(BTreeSet<String>),
    /// Nothing, until the caller gave up.
    Nothing,
}

/// A call with all its repetitions. Two of them with one ID were sent to two nodes at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) operation: Operation,
    /// When the first request was sent.
    pub(crate) started: Duration,
    /// When the answer was received.
    pub(crate) ended: Duration,
    pub(crate) reply: Reply,
}

/// All that is known of a run at the end.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) run: String,
    /// The files at the start, with their hashes.
    pub(crate) base: BTreeMap<String, String>,
    pub(crate) records: Vec<Value>,
    pub(crate) calls: Vec<Call>,
    /// The files at the end.
    pub(crate) tree: BTreeMap<String, String>,
}

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broken {
    /// The chain has a gap, a double, or a wrong hash.
    Chain,
    /// A record changes another version than the one before it made.
    Versions,
    /// An answered call is not in the chain.
    Lost,
    /// An answered call is in the chain as something else.
    Changed,
    /// One call has two records of a change.
    Twice,
    /// A call that began after the end of another one comes before it.
    Order,
    /// A read or a list shows what was never there between its beginning and its end.
    Stale,
    /// A refusal has a reason that was never there between its beginning and its end.
    Refusal,
    /// A call was never answered.
    Unanswered,
    /// The files at the end are not those of the chain.
    Tree,
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) broken: Broken,
    pub(crate) what: String,
}

/// Returns every promise that is broken.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut report = |broken, what: String| violations.push(Violation { broken, what });
    if let Err(why) = check_chain(&history.run, &history.records) {
        report(Broken::Chain, why);
    }
    let (files, contradictions) = Files::replay(&history.base, &history.records);
    for what in contradictions {
        report(Broken::Versions, what);
    }
    if files.last() != history.tree {
        report(Broken::Tree, format!("the chain has {:?}\nthe tree has {:?}", files.last(), history.tree));
    }
    let mut by_call: HashMap<&str, Vec<&Value>> = HashMap::new();
    for record in &history.records {
        by_call.entry(record["toolCallId"].as_str().unwrap_or_default()).or_default().push(record);
    }
    for (id, records) in &by_call {
        if !id.is_empty() && records.len() > 1 && records.iter().any(|record| record["mutates"] == true) {
            report(Broken::Twice, format!("{id} is in the chain {} times: {}", records.len(), as_text(records)));
        }
    }
    let mut calls: Vec<_> = history.calls.iter().collect();
    calls.sort_by_key(|call| call.started);
    let mut ended = Ended::default();
    for call in calls {
        let of_call = by_call.get(call.id.as_str()).map_or(&[][..], Vec::as_slice);
        let checked = check_call(call, of_call, ended.before(call.started), &files);
        match checked {
            Ok(position) => ended.add(call.ended, position),
            Err((broken, why)) => report(broken, format!("{why}\n  {call:?}\n  {}", as_text(of_call))),
        }
    }
    violations
}

/// The positions in the chain of the calls that have ended, each of which is at least this.
#[derive(Default)]
struct Ended {
    /// By the end: the largest position of all calls that have ended by then.
    largest: BTreeMap<Duration, u64>,
}

impl Ended {
    /// Returns the position after which a call comes that begins at `started`.
    fn before(&self, started: Duration) -> u64 {
        self.largest.range(..started).next_back().map_or(0, |(_, position)| *position)
    }

    fn add(&mut self, ended: Duration, position: u64) {
        let position = position.max(self.largest.range(..=ended).next_back().map_or(0, |(_, position)| *position));
        self.largest.insert(ended, position);
        for (_, later) in self.largest.range_mut(ended..) {
            *later = position.max(*later);
        }
    }
}

fn as_text(records: &[&Value]) -> String {
    records.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

fn seq_of(record: &Value) -> u64 {
    record["seq"].as_u64().unwrap_or_default()
}

/// Checks a call that comes after the record `after`. Returns the smallest position in the chain that it can have.
fn check_call(call: &Call, of_call: &[&Value], after: u64, files: &Files) -> Result<u64, (Broken, String)> {
    let recorded = |seq: Option<u64>| {
        let found = of_call.iter().find(|record| Some(seq_of(record)) == seq);
        match found {
            _ if of_call.is_empty() => Err((Broken::Lost, "the call is not in the chain".to_owned())),
            None => Err((Broken::Changed, "the call is at another position of the chain".to_owned())),
            Some(_) if seq <= Some(after) => Err((Broken::Order, format!("record {after} was answered before"))),
            Some(record) => Ok(*record),
        }
    };
    match &call.reply {
        Reply::Nothing => Err((Broken::Unanswered, "nobody answers".to_owned())),
        Reply::Done { seq } => {
            let record = recorded(Some(*seq))?;
            let Operation::Write { path, expected, new } = &call.operation else {
                return Err((Broken::Changed, "a read was answered as a change".to_owned()));
            };
            let file = &record["files"][0];
            let is_same = record["outcome"] == "ok"
                && file["path"] == path.as_str()
                && file["oldSha256"].as_str() == expected.as_deref()
                && file["newSha256"].as_str() == new.as_deref();
            if is_same { Ok(*seq) } else { Err((Broken::Changed, "the record is of another change".to_owned())) }
        }
        Reply::Refused { code, seq } => {
            let record = recorded(*seq)?;
            if record["outcome"] != "refused" || record["code"] != code.as_str() {
                return Err((Broken::Changed, "the record is not of this refusal".to_owned()));
            }
            let until = seq_of(record) - 1;
            let is_founded = match (&call.operation, code.as_str()) {
                (Operation::Write { path, expected, .. }, "WRITE_CONFLICT" | "ALREADY_EXISTS" | "NOT_FOUND") => {
                    files.versions(path, after, until).any(|(_, version)| version != expected.as_deref())
                }
                _ => false,
            };
            if is_founded { Ok(until + 1) } else { Err((Broken::Refusal, "nothing is a reason for it".to_owned())) }
        }
        Reply::Content(_) | Reply::Names(_) => check_read(call, of_call, after, files),
    }
}

fn check_read(call: &Call, of_call: &[&Value], after: u64, files: &Files) -> Result<u64, (Broken, String)> {
    let seqs = of_call.iter().map(|record| seq_of(record));
    let (Some(first), Some(last)) = (seqs.clone().min(), seqs.max()) else {
        return Err((Broken::Lost, "the read is not in the chain".to_owned()));
    };
    if last <= after {
        return Err((Broken::Order, format!("record {after} was answered before")));
    }
    let position = match (&call.operation, &call.reply) {
        (Operation::Read { path }, Reply::Content(seen)) => {
            files.versions(path, after, last).find(|(_, version)| *version == seen.as_deref()).map(|(seq, _)| seq)
        }
        (Operation::List { folder }, Reply::Names(seen)) => files.position_of_names(folder, seen, after, last),
        _ => None,
    };
    // The record was committed after what it shows and before the answer.
    position
        .map(|position| position.max(first))
        .ok_or_else(|| (Broken::Stale, format!("what it shows was not there at any of the records {after} to {last}")))
}
