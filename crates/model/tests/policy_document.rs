//! Checks that `deploy/policy.md` lists exactly the existing profiles, keys, kinds and triggers, with their defaults.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "the test reads the repository's own document")]

use std::collections::BTreeSet;

use model::{Access, FileKind, KindDecision, LogicalPath, PathFacts, Policy, Profiles, Trigger, Verdict, explain_path};
use serde_json::Value;

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/policy.md")).unwrap()
}

/// The TOML block that defines the profile `name`.
fn example(name: &str) -> String {
    let document = document();
    let mut blocks = document.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let block = blocks.find(|block| block.starts_with(&format!("[profiles.{name}]\n")));
    block.unwrap().to_owned()
}

/// The cells of the rows of the table whose first column is headed `header`, without the backticks.
fn table(header: &str) -> Vec<Vec<String>> {
    let document = document();
    let start = document.find(&format!("\n| {header} |")).unwrap_or_else(|| panic!("no table of {header}")) + 1;
    let rows = document[start..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().replace('`', "")).collect()).collect()
}

fn column(header: &str, index: usize) -> BTreeSet<String> {
    let rows = table(header);
    let cells: BTreeSet<String> = rows.iter().map(|row| row[index].clone()).collect();
    assert_eq!(cells.len(), rows.len(), "a row occurs twice in the table of {header}");
    cells
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn built_in(name: &str) -> Policy {
    Profiles::built_in().get(name).unwrap().clone()
}

#[test]
fn the_complete_profile_has_every_key_with_its_default() {
    let text = example("COMPLETE");
    let file: toml::Table = text.parse().unwrap();
    let mut given = serde_json::to_value(&file["profiles"]["COMPLETE"]).unwrap();
    let resolved = Profiles::with_toml(&text).unwrap().get("COMPLETE").unwrap().clone();
    let mut complete = serde_json::to_value(&resolved).unwrap();
    assert_eq!(given.as_object_mut().unwrap().remove("extends"), Some(Value::from("SUPERVISED_PR")));
    complete.as_object_mut().unwrap().remove("profile");
    for policy in [&mut given, &mut complete] {
        policy["requireApprovalIf"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
    }
    assert_eq!(given, complete, "a key is missing in the document, or is not part of a policy");
    let default = Policy {
        profile: resolved.profile.clone(),
        run_budget: resolved.run_budget.clone(),
        ..built_in("SUPERVISED_PR")
    };
    assert_eq!(resolved, default, "the values are not the defaults");
    assert_eq!(built_in("SUPERVISED_PR").run_budget, None);
}

#[test]
fn the_tables_list_every_key() {
    let file: toml::Table = example("COMPLETE").parse().unwrap();
    let complete = serde_json::to_value(&file["profiles"]["COMPLETE"]).unwrap();
    assert_eq!(column("key", 0), keys(&complete));
    assert_eq!(column("key of `budget` and `runBudget`", 0), keys(&complete["budget"]));
    assert_eq!(keys(&complete["runBudget"]), keys(&complete["budget"]));
    assert_eq!(column("key of `quota`", 0), keys(&complete["quota"]));
    assert_eq!(column("key of `approval`", 0), keys(&complete["approval"]));
}

#[test]
fn the_table_of_profiles_lists_the_built_in_ones() {
    let profiles = Profiles::built_in();
    let names = column("profile", 0);
    assert_eq!(names.len(), profiles.names().count());
    for row in table("profile") {
        let (name, rest) = row[0].split_once(' ').unwrap_or((&row[0], ""));
        let policy = profiles.get(name).unwrap_or_else(|| panic!("the profile {name} does not exist"));
        assert_eq!(policy.write.is_empty(), row[1] == "denied for every path and every kind", "{name}");
        let triggers: BTreeSet<&str> = policy.require_approval_if.iter().map(|trigger| trigger.as_str()).collect();
        assert_eq!(row[2].split(", ").collect::<BTreeSet<_>>(), triggers, "{name}");
        let default = profiles.resolve(&model::PolicyOverrides::default()).unwrap().policy().profile == name;
        assert_eq!(rest == "(the default)", default, "{name}");
    }
}

#[test]
fn the_table_of_kinds_has_the_verdict_of_every_profile() {
    let kinds: BTreeSet<String> = FileKind::ALL.into_iter().map(|kind| kind.as_str().to_owned()).collect();
    assert_eq!(column("kind", 0), kinds);
    for row in table("kind") {
        let kind = FileKind::ALL.into_iter().find(|kind| kind.as_str() == row[0]).unwrap();
        for (profile, cell) in [("READ_ONLY", &row[2]), ("SUPERVISED_PR", &row[3]), ("AUTONOMOUS", &row[3])] {
            let decision: KindDecision = serde_json::from_value(Value::from(cell.clone())).unwrap();
            assert_eq!(built_in(profile).kinds[&kind], decision, "{profile} {}", row[0]);
        }
    }
}

#[test]
fn the_document_names_the_kinds_that_must_be_denied() {
    let document = document();
    let sentence = document.lines().find(|line| line.contains("cannot be loosened")).unwrap();
    for kind in FileKind::ALL {
        let text = format!("[profiles.X.kinds]\n{} = \"ALLOW\"\n", kind.as_str());
        let is_fixed = Profiles::with_toml(&text).is_err();
        assert_eq!(sentence.contains(&format!("`{}`", kind.as_str())), is_fixed, "{}", kind.as_str());
    }
}

#[test]
fn the_table_of_triggers_lists_every_trigger() {
    let triggers = Trigger::ALL.into_iter().map(|trigger| trigger.as_str().to_owned()).collect();
    assert_eq!(column("trigger", 0), triggers);
}

#[test]
fn the_limits_in_the_document_are_those_in_force() {
    let document = document();
    let accepts = |line: String| Profiles::with_toml(&format!("[profiles.X]\n{line}\n")).is_ok();
    assert!(document.contains("bytes, up to 67108864"));
    assert!(accepts("maxFileBytes = 67108864".to_owned()) && !accepts("maxFileBytes = 67108865".to_owned()));
    assert!(document.contains("up to 2^53 - 1"));
    let number = |number: u64| accepts(format!("quota = {{ maxFiles = {number} }}"));
    assert!(number((1 << 53) - 1) && !number(1 << 53));
    assert!(document.contains("1 to 16 different persons"));
    let approvers = |number: u64| accepts(format!("approval = {{ approvers = {number} }}"));
    assert!(approvers(1) && approvers(16) && !approvers(0) && !approvers(17));
    assert!(document.contains("at most 200 globs of at most 500 bytes"));
    let globs = |count: usize, bytes: usize| {
        accepts(format!("deny = [{}]", format!("\"{}\",", "a".repeat(bytes)).repeat(count)))
    };
    assert!(globs(200, 2) && !globs(201, 2) && globs(1, 500) && !globs(1, 501));
}

#[test]
fn the_example_is_a_valid_profile() {
    let profiles = Profiles::with_toml(&example("DOCS")).unwrap();
    let policy = profiles.get("DOCS").unwrap();
    assert_eq!(policy.require_approval_if, BTreeSet::from([Trigger::DeletesFile]));
    assert_eq!((policy.budget.max_files_touched, policy.budget.max_insertions), (5, 800));
    assert_eq!(policy.kinds[&FileKind::Lockfile], KindDecision::Allow);

    let overrides = model::PolicyOverrides { profile: Some("DOCS".to_owned()), ..model::PolicyOverrides::default() };
    let rules = profiles.resolve(&overrides).unwrap();
    for (path, verdict, reason) in [
        ("docs/guide.md", Verdict::Allow, ""),
        ("src/main.rs", Verdict::Deny, ""),
        ("docs/legal/terms.md", Verdict::Deny, "deny:docs/legal/"),
    ] {
        let path = LogicalPath::parse(path).unwrap();
        let kind = FileKind::of_path(&path);
        let facts = PathFacts { path: &path, real_path: None, kind, ignored: false, hard_linked: false };
        let decision = explain_path(&rules, Access::Mutate, &facts);
        assert_eq!(decision.verdict, verdict, "{path:?}");
        assert!(reason.is_empty() || decision.reasons == [reason], "{path:?}: {:?}", decision.reasons);
    }
}
