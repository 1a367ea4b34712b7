use super::draft::MAX_LISTED_BYTES;
use super::*;
use crate::canonical_json;

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
