//! Broken histories, each of which the checker finds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Broken, Call, History, Operation, Reply, check};
use crate::harness::{canonical, sha256};

/// Returns a record without its position in the chain.
fn record(id: &str, path: &str, old: Option<&str>, new: Option<&str>) -> Value {
    let mut file = json!({"path": path});
    for (member, version) in [("oldSha256", old), ("newSha256", new)] {
        if let Some(version) = version {
            file[member] = version.into();
        }
    }
    json!({"toolCallId": id, "mutates": old != new, "outcome": "ok", "files": [file]})
}

/// Gives records their positions and hashes.
fn chain(records: Vec<Value>) -> Vec<Value> {
    let mut prev_hash = "0".repeat(64);
    let link = |(at, mut record): (usize, Value)| {
        record["runId"] = "run".into();
        record["seq"] = (at + 1).into();
        record["prevHash"] = prev_hash.as_str().into();
        prev_hash = sha256(canonical(&record));
        record["hash"] = prev_hash.as_str().into();
        record
    };
    records.into_iter().enumerate().map(link).collect()
}

fn call(id: &str, operation: Operation, from_to: [u64; 2], reply: Reply) -> Call {
    let [started, ended] = from_to.map(Duration::from_secs);
    Call { id: id.to_owned(), operation, started, ended, reply }
}

fn write(old: Option<&str>, new: Option<&str>) -> Operation {
    Operation::Write { path: "d/a".to_owned(), expected: old.map(str::to_owned), new: new.map(str::to_owned) }
}

fn read() -> Operation {
    Operation::Read { path: "d/a".to_owned() }
}

fn list() -> Operation {
    Operation::List { folder: "d".to_owned() }
}

fn content(version: &str) -> Reply {
    Reply::Content(Some(version.to_owned()))
}

fn names(names: &[&str]) -> Reply {
    Reply::Names(names.iter().map(|name| (*name).to_owned()).collect())
}

fn conflict(seq: u64) -> Reply {
    Reply::Refused { code: "WRITE_CONFLICT".to_owned(), seq: Some(seq) }
}

/// A history without a fault: two writes, a read between them, a read while the second one runs, a refusal, and two lists.
fn sound() -> History {
    let refused =
        json!({"toolCallId": "late", "mutates": true, "outcome": "refused", "code": "WRITE_CONFLICT", "files": []});
    let records = chain(vec![
        record("one", "d/a", Some("0"), Some("1")),
        record("read", "d/a", None, None),
        record("two", "d/a", Some("1"), Some("2")),
        record("during", "d/a", None, None),
        refused,
        record("list", "d", None, None),
        record("new", "d/b", None, Some("9")),
        record("again", "d", None, None),
    ]);
    let new = Operation::Write { path: "d/b".to_owned(), expected: None, new: Some("9".to_owned()) };
    let calls = vec![
        call("one", write(Some("0"), Some("1")), [1, 2], Reply::Done { seq: 1 }),
        call("read", read(), [3, 4], content("1")),
        call("two", write(Some("1"), Some("2")), [5, 8], Reply::Done { seq: 3 }),
        // The same call, sent to another node.
        call("two", write(Some("1"), Some("2")), [5, 9], Reply::Done { seq: 3 }),
        call("during", read(), [6, 7], content("1")),
        call("late", write(Some("1"), Some("3")), [10, 11], conflict(5)),
        call("list", list(), [12, 13], names(&["a"])),
        call("new", new, [14, 15], Reply::Done { seq: 7 }),
        call("again", list(), [16, 17], names(&["a", "b"])),
    ];
    let files = |files: &[(&str, &str)]| -> BTreeMap<_, _> {
        files.iter().map(|(path, hash)| ((*path).to_owned(), (*hash).to_owned())).collect()
    };
    let (base, tree) = (files(&[("d/a", "0")]), files(&[("d/a", "2"), ("d/b", "9")]));
    History { run: "run".to_owned(), base, records, calls, tree }
}

/// Asserts that what `damage` does to the sound history is found.
#[track_caller]
fn finds(broken: Broken, damage: impl FnOnce(&mut History)) {
    let mut history = sound();
    damage(&mut history);
    let found: Vec<_> = check(&history).into_iter().map(|violation| violation.broken).collect();
    assert!(found.contains(&broken), "{broken:?} was not found: {found:?}");
}

/// Changes the records and links them again, as if they had been so from the beginning.
fn rewrite(history: &mut History, change: impl FnOnce(&mut Vec<Value>)) {
    let mut records = std::mem::take(&mut history.records);
    change(&mut records);
    for record in &mut records {
        record.as_object_mut().unwrap().remove("hash");
    }
    history.records = chain(records);
}

#[test]
fn a_sound_history_has_no_violation() {
    let found = check(&sound());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_damaged_chain_is_found() {
    finds(Broken::Chain, |history| drop(history.records.remove(1)));
    finds(Broken::Chain, |history| history.records.insert(1, history.records[1].clone()));
    finds(Broken::Chain, |history| history.records.swap(1, 2));
    finds(Broken::Chain, |history| history.records[2]["outcome"] = "refused".into());
}

#[test]
fn an_acknowledged_call_that_is_lost_is_found() {
    finds(Broken::Lost, |history| {
        rewrite(history, |records| drop(records.remove(6)));
    });
    finds(Broken::Lost, |history| {
        rewrite(history, |records| records[1]["toolCallId"] = "other".into());
    });
    finds(Broken::Changed, |history| history.calls[0].reply = Reply::Done { seq: 2 });
    finds(Broken::Changed, |history| {
        rewrite(history, |records| records[6]["outcome"] = "failed".into());
    });
}

#[test]
fn a_call_with_two_effects_is_found() {
    finds(Broken::Twice, |history| {
        rewrite(history, |records| records.push(record("two", "d/a", Some("2"), Some("4"))));
        history.tree.insert("d/a".to_owned(), "4".to_owned());
    });
    // Two nodes have answered differently.
    finds(Broken::Changed, |history| history.calls[3].reply = Reply::Done { seq: 4 });
}

#[test]
fn a_change_of_a_version_that_was_not_there_is_found() {
    finds(Broken::Versions, |history| {
        rewrite(history, |records| records[2]["files"][0]["oldSha256"] = "0".into());
    });
}

#[test]
fn a_stale_read_is_found() {
    // Version 1 was acknowledged before the read began.
    finds(Broken::Stale, |history| history.calls[1].reply = content("0"));
    finds(Broken::Stale, |history| history.calls[1].reply = content("never"));
    finds(Broken::Stale, |history| history.calls[1].reply = Reply::Content(None));
    // A later read may not go back.
    finds(Broken::Stale, |history| {
        rewrite(history, |records| records.push(record("later", "d/a", None, None)));
        history.calls.truncate(5);
        history.calls[2].ended = Duration::from_secs(20);
        history.calls[3].ended = Duration::from_secs(20);
        history.calls[4].reply = content("2");
        history.calls.push(call("later", read(), [8, 9], content("1")));
    });
    finds(Broken::Stale, |history| history.calls[8].reply = names(&["a"]));
    finds(Broken::Stale, |history| history.calls[6].reply = names(&["a", "b"]));
}

#[test]
fn an_order_that_is_not_that_of_the_answers_is_found() {
    finds(Broken::Order, |history| {
        history.calls[0].started = Duration::from_secs(20);
        history.calls[0].ended = Duration::from_secs(21);
    });
    finds(Broken::Order, |history| {
        history.calls[1].started = Duration::from_secs(9);
        history.calls[1].ended = Duration::from_secs(9);
        history.calls[3].ended = Duration::from_secs(8);
    });
}

#[test]
fn a_refusal_without_a_reason_is_found() {
    finds(Broken::Refusal, |history| history.calls[5].operation = write(Some("2"), Some("3")));
    finds(Broken::Refusal, |history| {
        rewrite(history, |records| records[4]["code"] = "INTERNAL".into());
        history.calls[5].reply = Reply::Refused { code: "INTERNAL".to_owned(), seq: Some(5) };
    });
}

#[test]
fn a_call_without_an_answer_is_found() {
    finds(Broken::Unanswered, |history| history.calls[8].reply = Reply::Nothing);
}

#[test]
fn files_that_are_not_those_of_the_chain_are_found() {
    finds(Broken::Tree, |history| drop(history.tree.remove("d/b")));
    finds(Broken::Tree, |history| drop(history.tree.insert("d/a".to_owned(), "1".to_owned())));
    finds(Broken::Tree, |history| drop(history.tree.insert("d/c".to_owned(), "1".to_owned())));
}
