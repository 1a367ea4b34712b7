use super::*;
use crate::{Effect, EvidenceFact, PolicyOverrides, Profiles, Side, diff_file};

/// Returns the code, path and line of each warning about a change of one file.
fn warnings(path: &str, old: Option<&str>, new: Option<&str>) -> Vec<(WarningCode, Option<u64>)> {
    let path = LogicalPath::parse(path).unwrap();
    let overrides = PolicyOverrides {
        write: Some(vec!["src/**".into(), "tests/**".into()]),
        ask: Some(vec!["**".into()]),
        ..PolicyOverrides::default()
    };
    let rules = Profiles::built_in().resolve(&overrides).unwrap();
    let side = |bytes| Side { path: &path, bytes, mode: 0o644 };
    let (old, new) = (old.map(str::as_bytes), new.map(str::as_bytes));
    let diff = String::from_utf8(diff_file(old.map(side), new.map(side)).text).unwrap();
    let effect = match (old, new) {
        (None, _) => Effect::Create,
        (_, None) => Effect::Delete,
        _ => Effect::Replace,
    };
    let facts = ChangeFacts {
        path: &path,
        kind: rules.kind_of_path(&path),
        effect: &effect,
        insertions: 0,
        deletions: 0,
        bytes: 0,
        mode_change: false,
        new_link: false,
        ignored: false,
        touched_before: false,
        old_text: old,
        new_text: new,
        not_compared: false,
        evidence: EvidenceFact::Missing,
    };
    change_warnings(&rules, &[facts], &diff).into_iter().map(|warning| (warning.code, warning.line)).collect()
}

#[test]
fn each_kind_of_warning_names_its_line() {
    let test = "def test_a():\n    assert f() == 1\n    assert g()\n";
    let weaker = test.replace("    assert g()\n", "");
    assert_eq!(warnings("tests/test_a.py", Some(test), Some(&weaker)), [(WarningCode::WeakensTest, None)]);
    assert_eq!(warnings("tests/test_a.py", Some(test), None), [(WarningCode::DeletesTest, None)]);
    assert_eq!(warnings("tests/test_a.py", Some(test), Some(&format!("{test}    assert h()\n"))), []);
    let old = "import x\nURL = \"https://api.example.org/v1\"\n";
    let credential = format!("{old}SMTP_PASSWORD = \"vT9q-Lw2x\"\n");
    assert_eq!(warnings("src/a.py", Some(old), Some(&credential)), [(WarningCode::CredentialLike, Some(3))]);
    // A line that moves is not new.
    let moved = credential.lines().rev().flat_map(|line| [line, "\n"]).collect::<String>();
    assert_eq!(warnings("src/a.py", Some(&credential), Some(&moved)), []);
    let host = format!("#\n{old}post(\"https://collect.example.net\")\nget(\"https://api.example.org/v2\")\n");
    assert_eq!(warnings("src/a.py", Some(old), Some(&host)), [(WarningCode::NewHost, Some(4))]);
    assert_eq!(warnings("docs/a.py", None, Some("x = 1\n")), [(WarningCode::OutsideWrite, None)]);
}

#[test]
fn a_warning_never_repeats_the_credential() {
    let rules = Profiles::built_in().resolve(&PolicyOverrides::default()).unwrap();
    let diff = "--- a/a.py\n+++ b/a.py\n@@ -0,0 +1,2 @@\n+token = \"s3cr3t-value\"\n+u = \"ftp://ann:hunter2hunter2@h.example/\"\n";
    let found = change_warnings(&rules, &[], diff);
    let text = format!("{found:?}");
    assert_eq!(found.len(), 3, "{text}");
    assert!(!text.contains("s3cr3t") && !text.contains("hunter2"), "{text}");
}

#[test]
fn the_severities_are_those_of_the_contract() {
    let of = |severity| {
        WarningCode::ALL.into_iter().filter(move |code| code.severity() == severity).map(WarningCode::as_str)
    };
    assert_eq!(of(Severity::Info).collect::<Vec<_>>(), ["TESTS_NOT_ON_THIS_TREE"]);
    assert_eq!(of(Severity::Doubt).collect::<Vec<_>>(), ["NEW_HOST", "OUTSIDE_WRITE", "STALE"]);
}

#[test]
fn the_number_of_warnings_is_bounded() {
    let lines: Vec<_> =
        (0..1000).map(|at| format!("https://h{at}.example.net/ password{at} = \"a1b2c3d4{at}\"\n")).collect();
    assert_eq!(warnings("src/a.py", None, Some(&lines.concat())).len(), 2 * MAX_PER_CODE);
}
