use super::draft::MAX_LISTED_BYTES;
use super::*;
use crate::canonical_json;

fn draft(tool: &str) -> Draft {
    let (run, call) = (RunId::parse("r1").unwrap(), ToolCallId::parse("tc").unwrap());
    let mut draft = Draft::new(run, "run-token:tok_1".into(), tool, call, "2026-01-01T00:00:00.000000Z".into());
    draft.code = Some(Code::NotFound);
    draft.duration_micros = 12;
    let path = LogicalPath::parse("a/ü.rs").unwrap();
    let file = RecordFile::unwritten(path, FileKind::TextSource);
    draft.files = vec![RecordFile { old_sha256: Some(Sha256::ZERO), ..file }];
    draft.mutates = true;
    draft.outcome = Outcome::Refused;
    draft.paths_written = vec![LogicalPath::root()];
    draft.reason = Some("because \"of\"\n\u{1}\u{7f}".into());
    draft.step_id = Some("s".into());
    draft.artifact_uris = vec!["artifact://r1/a".into()];
    draft
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
fn lists_that_repeat_the_input_are_cut_with_a_note() {
    let path = |number: usize| LogicalPath::parse(&format!("{}/{number:04}", "d".repeat(200))).unwrap();
    let file = |path| RecordFile::unwritten(path, FileKind::TextSource);
    let mut long = draft("apply_patch");
    long.paths_read = (0..1000).map(path).collect();
    long.paths_written = (0..1000).map(path).collect();
    long.files = (0..1000).map(path).map(file).collect();
    long.reasons = (0..1000).map(|number| format!("{number}{}", "r".repeat(5000))).collect();
    let refused = long.clone().bounded();
    let listed = (refused.paths_read.len(), refused.paths_written.len(), refused.files.len());
    assert_eq!(listed, (316, 316, 161));
    let notes = [
        "and 684 more in pathsRead",
        "and 684 more in pathsWritten",
        "and 839 more in files",
        "and 983 more in reasons",
    ];
    assert_eq!(refused.reasons[refused.reasons.len() - 4..], notes);
    assert!(refused.reasons[0].ends_with("rr…") && refused.reasons[0].chars().count() == 1001);
    let (_, text) = refused.link(0, Sha256::ZERO);
    assert!(text.len() < 4 * MAX_LISTED_BYTES, "{}", text.len());

    let mut change = long.clone();
    change.outcome = Outcome::Ok;
    let change = change.bounded();
    assert_eq!((&change.paths_written, &change.files), (&long.paths_written, &long.files));
    assert_eq!((change.paths_read.len(), change.reasons.last().unwrap().as_str()), (316, "and 983 more in reasons"));
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
fn the_stored_text_is_the_json_of_the_record() {
    let hostile = ",\"mutates\":true,\"hash\":\"x\",\\\",\"mutates\":";
    let mut drafts = vec![draft("read_file"), draft(hostile), draft("list_dir")];
    drafts[0].actor = hostile.into();
    drafts[0].artifact_uris = vec![hostile.into(), ",".into()];
    drafts[1].files[0].path = LogicalPath::parse(hostile).unwrap();
    drafts[1].diff_sha256 = Some(Sha256::of(b"diff"));
    drafts[2].code = None;
    drafts[2].files.clear();
    let input = serde_json::json!({ "z": [{ "y": 0.1, "hash": hostile, "b": {} }], "a": hostile, "n": -1e-7 });
    drafts[2].input = input.as_object().cloned();
    drafts[1].evidence = Some(Evidence { event_id: ToolCallId::parse("tests-1").unwrap() });
    (drafts[0].request_id, drafts[0].trace_id) = (Some(hostile.into()), Some("0".repeat(32)));
    for draft in drafts {
        let (record, text) = draft.link(6, Sha256::of(b"head"));
        assert_eq!(text, serde_json::to_string(&record).unwrap());
        assert_eq!(record.hash, Some(Sha256::of(record.to_canonical().as_bytes())));
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        let mut check = ChainCheck::after(&record.run_id, 6, Sha256::of(b"head"));
        assert!(check.push(&text), "{:?}", check.end());
    }
}

#[test]
fn the_hash_of_a_record_does_not_change_between_versions() {
    let (record, _) = draft("read_file").link(0, Sha256::ZERO);
    let hash = record.hash.unwrap().to_string();
    assert_eq!(hash, "e14c034f60bfdcbec40c4da4f2fff75d6545f2b323ef6c348fcb14431a2177c2");
    // Records of earlier versions do not say whose call they are, and keep their hash.
    let earlier = Sha256::of(Record { by: None, ..record }.to_canonical().as_bytes()).to_string();
    assert_eq!(earlier, "26712310b3cc44ed75683fd439008920fdfdc96b356a652cadbb2e6d24a0fe0b");
}

/// Returns whether the first record of a run is valid, by its text alone and with the record that it is parsed to.
fn is_valid_either_way(text: &str) -> [bool; 2] {
    let run = RunId::parse("r1").unwrap();
    let record: Record = serde_json::from_str(text).unwrap();
    [ChainCheck::new(&run).push(text), ChainCheck::new(&run).push_parsed(text, &record)]
}

#[test]
fn a_parsed_record_is_checked_as_its_text_is() {
    let mut with_input = draft("event.test");
    let nested = serde_json::json!({"a": {"hash": "0".repeat(64)}, "z": [1, "\u{1}é"]});
    with_input.input = nested.as_object().cloned();
    for draft in [draft("write_file"), with_input] {
        let (record, text) = draft.link(0, Sha256::ZERO);
        let hash = record.hash.unwrap().to_string();
        assert_eq!(is_valid_either_way(&text), [true; 2]);
        // Another form of the same record has the same hash.
        let spaced = text.replacen(':', ": ", 1);
        let unordered = text.replacen('{', "{\"tool\":\"x\",", 1).replacen("\"tool\":\"x\",", "", 1);
        let upper = text.replace(&hash, &hash.to_uppercase());
        for other in [spaced, unordered, upper] {
            assert_eq!(is_valid_either_way(&other), [true; 2], "{other}");
        }
        for (from, to) in [("because", "thus"), ("\"seq\":1", "\"seq\":2"), ("\"r1\"", "\"r2\""), (&hash[..4], "0000")]
        {
            let changed = text.replacen(from, to, 1);
            assert_eq!(is_valid_either_way(&changed), [false; 2], "{changed}");
        }
        // A member that this version does not know is part of the hash.
        let unknown = text.replacen('{', "{\"aaa\":1,", 1);
        assert_eq!(is_valid_either_way(&unknown), [false; 2]);
    }
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

#[test]
fn what_was_left_out_is_bounded_counted_and_hashed() {
    let mut set = draft("apply_changeset");
    (set.outcome, set.code) = (Outcome::Ok, None);
    let paths: Vec<_> = (0..120).map(|number| format!("secret/{number}")).chain(["../x\n".to_owned()]).collect();
    set.set_left(paths.iter().rev().map(|path| (path.as_str(), "deny:secret/**")));
    assert_eq!((set.left.len(), set.left_count), (MAX_LEFT, Some(121)));
    assert_eq!((set.left[0].path.as_str(), set.left[1].path.as_str()), ("../x\\n", "secret/119"));
    assert!(set.is_denied() && set.main_reason().as_deref() == Some("deny:secret/**"));
    let (record, text) = set.clone().link(0, Sha256::ZERO);
    let members: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(canonical_json(&members), text);
    let head = (1, record.hash.unwrap());
    assert!(check(std::slice::from_ref(&record), head).intact);
    let changed = Record { left_count: Some(120), ..record };
    assert!(!check(&[changed], head).intact);
    set.set_left([].into_iter());
    assert!(!set.is_denied() && set.main_reason().is_none() && set.left_count.is_none());
}

#[test]
fn the_main_reason_repeats_for_the_same_cause() {
    let reason = |decision: Verdict, reasons: &[&str]| {
        let mut draft = draft("write_file");
        (draft.decision, draft.reasons) = (decision, reasons.iter().map(|reason| (*reason).to_owned()).collect());
        draft.main_reason().unwrap()
    };
    assert_eq!(reason(Verdict::Deny, &["kind:SECRET_LIKE", "deny:a"]), "kind:SECRET_LIKE");
    assert_eq!(reason(Verdict::Deny, &["approval:apr_1:denied"]), "approval:denied");
    assert_eq!(reason(Verdict::Deny, &["deny:my docs/**"]), "deny:my docs/**");
    assert_eq!(reason(Verdict::Deny, &["the path is absolute", "path: /a"]), "NOT_FOUND", "a message is no rule");
    assert_eq!(reason(Verdict::Deny, &[]), "NOT_FOUND");
    assert_eq!(reason(Verdict::RequireApproval, &["kind:LOCKFILE"]), "kind:LOCKFILE");
    assert_eq!(reason(Verdict::Allow, &["`a.txt` does not exist"]), "NOT_FOUND");
}
