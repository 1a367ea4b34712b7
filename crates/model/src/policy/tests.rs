use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::KindDecision;
use super::globs::{Globs, MAX_GLOB_BYTES, MAX_GLOBS, Purpose};
use super::{ApprovalRule, Budget, BudgetOverrides, Policy, PolicyOverrides, Profiles, Quota, Trigger};
use crate::test_support::path;
use crate::{Code, FileKind, LogicalPath, Refusal, Rules, Verdict};

fn resolve(json: &str) -> Result<Rules, Refusal> {
    Profiles::built_in().resolve(&serde_json::from_str(json).unwrap())
}

fn compile(purpose: Purpose, globs: &[&str]) -> Globs {
    Globs::compile(purpose, &globs.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

#[test]
fn the_built_in_profiles_are_those_of_the_contract() {
    let profiles = Profiles::built_in();
    assert_eq!(profiles.names().collect::<Vec<_>>(), ["AUTONOMOUS", "READ_ONLY", "SUPERVISED_PR"]);
    let default = resolve("{}").unwrap();
    let policy = default.policy();
    assert_eq!(policy.profile, "SUPERVISED_PR");
    assert_eq!(
        policy.require_approval_if,
        BTreeSet::from([Trigger::TouchesLockfile, Trigger::TouchesSecuritySensitivePath])
    );
    let budget = Budget {
        max_files_touched: 20,
        max_insertions: 800,
        max_deletions: 800,
        max_files_deleted: 5,
        max_bytes: 200_000,
    };
    assert_eq!(policy.budget, budget);
    assert_eq!((policy.max_file_bytes, policy.max_transfer_bytes), (1 << 20, 1 << 30));
    assert_eq!((policy.allow_mode_change, policy.ignored_files), (false, Verdict::Deny));
    assert_eq!(policy.symbolic_links, Verdict::Allow);
    assert_eq!(policy.run_budget, None);
    assert_eq!(
        policy.quota,
        Quota {
            max_tree_bytes: 4 << 30,
            max_files: 200_000,
            pending_approvals: 100,
            max_history_bytes: 1 << 30,
            max_records: 1_000_000
        }
    );
    assert_eq!(policy.approval, ApprovalRule { approvers: 1, not_creator: false });
    assert_eq!(policy.kinds.len(), FileKind::ALL.len());
    assert_eq!(policy.kinds[&FileKind::Lockfile], KindDecision::RequireApproval);
    let autonomous = resolve(r#"{"profile":"AUTONOMOUS"}"#).unwrap();
    assert_eq!(autonomous.policy().require_approval_if, Trigger::ALL.into());
    let read_only = resolve(r#"{"profile":"READ_ONLY"}"#).unwrap();
    assert!(FileKind::ALL.into_iter().all(|kind| read_only.verdict_of(kind) == Verdict::Deny));
    assert_eq!(read_only.policy().write, [""; 0]);
}

#[test]
fn overrides_replace_only_the_members_that_they_name() {
    let rules = resolve(
        r#"{"profile":"AUTONOMOUS","write":["src/**"],"kinds":{"LOCKFILE":"ALLOW"},"budget":{"maxFilesTouched":5},
            "runBudget":{"maxInsertions":100},"requireApprovalIf":["deletesFile"],"ignoredFiles":"ALLOW",
            "quota":{"maxFiles":7},"approval":{"approvers":2}}"#,
    )
    .unwrap();
    let policy = rules.policy();
    assert_eq!(policy.quota, Quota { max_files: 7, ..Quota::default() });
    assert_eq!(policy.approval, ApprovalRule { approvers: 2, not_creator: false });
    assert_eq!((policy.profile.as_str(), policy.write.as_slice()), ("AUTONOMOUS", &["src/**".to_owned()][..]));
    assert_eq!(policy.read, ["**"]);
    assert_eq!(policy.kinds[&FileKind::Lockfile], KindDecision::Allow);
    assert_eq!(policy.kinds[&FileKind::Vendored], KindDecision::Deny);
    assert_eq!(policy.budget, Budget { max_files_touched: 5, ..Budget::default() });
    let run_budget = BudgetOverrides { max_insertions: Some(100), ..BudgetOverrides::default() };
    assert_eq!(policy.run_budget, Some(run_budget));
    assert_eq!(policy.require_approval_if, BTreeSet::from([Trigger::DeletesFile]));
    assert_eq!(policy.ignored_files, Verdict::Allow);
}

#[test]
fn an_override_of_lockfiles_applies_to_the_kind_and_the_trigger() {
    let table = [
        ("{}", Verdict::RequireApproval, true),
        (r#"{"kinds":{"LOCKFILE":"ALLOW"}}"#, Verdict::Allow, false),
        (r#"{"kinds":{"LOCKFILE":"DENY"}}"#, Verdict::Deny, true),
        (r#"{"requireApprovalIf":[]}"#, Verdict::Allow, false),
        (r#"{"requireApprovalIf":["touchesLockfile"]}"#, Verdict::RequireApproval, true),
        (r#"{"requireApprovalIf":[],"kinds":{"LOCKFILE":"REQUIRE_APPROVAL"}}"#, Verdict::RequireApproval, false),
        (r#"{"requireApprovalIf":["touchesLockfile"],"kinds":{"LOCKFILE":"ALLOW"}}"#, Verdict::Allow, true),
        (r#"{"profile":"READ_ONLY","requireApprovalIf":[]}"#, Verdict::Deny, false),
    ];
    for (json, kind, trigger) in table {
        let rules = resolve(json).unwrap();
        assert_eq!(rules.verdict_of(FileKind::Lockfile), kind, "{json}");
        assert_eq!(rules.policy().require_approval_if.contains(&Trigger::TouchesLockfile), trigger, "{json}");
    }
}

#[test]
fn an_invalid_policy_is_refused_with_the_invalid_value() {
    let too_many = format!(r#"{{"deny":[{}]}}"#, vec!["\"a\""; MAX_GLOBS + 1].join(","));
    let too_long = format!(r#"{{"read":["{}"]}}"#, "a".repeat(MAX_GLOB_BYTES + 1));
    let table = [
        (r#"{"profile":"NOBODY"}"#, "`NOBODY`"),
        (r#"{"write":["src/[a"]}"#, "`src/[a`"),
        (r#"{"read":["{a,b"]}"#, "`{a,b`"),
        (r#"{"deny":["!a"]}"#, "`!a`"),
        (r#"{"deny":[""]}"#, "is empty"),
        (r#"{"deny":["/"]}"#, "is empty"),
        (r#"{"write":["../a"]}"#, "`../a`"),
        (r#"{"write":["a/./b"]}"#, "`a/./b`"),
        (r#"{"write":["a\nb"]}"#, "control character"),
        (too_many.as_str(), "at most 200"),
        (too_long.as_str(), "longer than 500 bytes"),
        (r#"{"kinds":{"SECRET_LIKE":"ALLOW"}}"#, "SECRET_LIKE"),
        (r#"{"kinds":{"SECRET_LIKE":"REQUIRE_APPROVAL"}}"#, "SECRET_LIKE"),
        (r#"{"kinds":{"GIT_INTERNAL":"ALLOW"}}"#, "GIT_INTERNAL"),
        (r#"{"kinds":{"DIRECTORY":"ALLOW"}}"#, "DIRECTORY"),
        (r#"{"maxFileBytes":67108865}"#, "`maxFileBytes`"),
        (r#"{"runBudget":{"maxBytes":9007199254740992}}"#, "`runBudget.maxBytes`"),
        (r#"{"quota":{"maxTreeBytes":9007199254740992}}"#, "`quota.maxTreeBytes`"),
        (r#"{"approval":{"approvers":0}}"#, "`approval.approvers` is 0"),
        (r#"{"approval":{"approvers":17}}"#, "`approval.approvers` is 17"),
    ];
    for (json, named) in table {
        let refusal = resolve(json).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidRequest, "{json}");
        assert!(refusal.message.contains(named), "{json}: {}", refusal.message);
        assert!(!refusal.hint.is_empty());
    }
    assert!(resolve(r#"{"kinds":{"SECRET_LIKE":"DENY","DIRECTORY":"DENY"}}"#).is_ok());
}

#[test]
fn unknown_members_are_refused() {
    for json in [
        r#"{"wirte":[]}"#,
        r#"{"budget":{"maxFiles":1}}"#,
        r#"{"kinds":{"SECRET":"DENY"}}"#,
        r#"{"requireApprovalIf":["x"]}"#,
    ] {
        assert!(serde_json::from_str::<PolicyOverrides>(json).is_err(), "{json}");
    }
}

#[test]
fn a_policy_is_unchanged_after_a_round_trip_through_json() {
    for name in Profiles::built_in().names() {
        let json = format!(r#"{{"profile":"{name}","deny":["a/"],"runBudget":{{"maxBytes":1}}}}"#);
        let rules = resolve(&json).unwrap();
        let json = serde_json::to_string(rules.policy()).unwrap();
        assert_eq!(&serde_json::from_str::<super::Policy>(&json).unwrap(), rules.policy());
    }
}

#[test]
fn an_allow_glob_matches_exactly() {
    let table: &[(&str, &[&str], &[&str])] = &[
        ("**", &["a", "a/b", ".x/y"], &[]),
        ("**/*", &["a", "a/b"], &[]),
        ("src/**", &["src/a", "src/a/b.rs"], &["src", "srcs/a", "a/src/b", "SRC/a"]),
        ("src/", &["src/a", "src/a/b.rs"], &["src", "a/src/b"]),
        ("/src/", &["src/a"], &["a/src/b"]),
        ("./docs/*.md", &["docs/a.md"], &["docs/a/b.md", "docs/a.rs"]),
        ("*", &["a", ".b"], &["a/b"]),
        ("*.md", &["a.md"], &["a/b.md", "a.MD"]),
        ("**/*.md", &["a.md", "a/b/c.md"], &["a.rs"]),
        ("src", &["src"], &["src/a", "a/src"]),
        ("a/{b,c}/?.rs", &["a/b/x.rs", "a/c/y.rs"], &["a/d/x.rs", "a/b/xy.rs"]),
        ("a/[a-c]", &["a/b"], &["a/d"]),
    ];
    for (glob, matching, others) in table {
        let globs = compile(Purpose::Allow, &[glob]);
        for raw in *matching {
            assert!(globs.matches(&path(raw)), "{glob} {raw}");
            assert_eq!(globs.matching(&path(raw)), [*glob]);
        }
        for raw in *others {
            assert!(!globs.matches(&path(raw)), "{glob} {raw}");
        }
    }
}

#[test]
fn a_deny_glob_matches_broadly() {
    let table: &[(&str, &[&str], &[&str])] = &[
        (
            "secrets",
            &["secrets", "secrets/a", "a/secrets/b/c", "SECRETS/a", "ｓecrets/a", "sеcrets"],
            &["secret", "a/xsecrets"],
        ),
        ("secrets/", &["secrets/a", "a/secrets/b", "secrets"], &["secretsx"]),
        ("secrets/**", &["secrets", "secrets/a/b", "Secrets/A"], &["a/secrets/b"]),
        ("/secrets", &["secrets", "secrets/a"], &["a/secrets"]),
        ("./secrets", &["secrets", "secrets/a"], &["a/secrets"]),
        ("*.sql", &["a.sql", "a/b.SQL", "a/x.sql/y"], &["a.sqlx"]),
        ("db/*.sql", &["db/a.sql", "DB/a.sql/b"], &["a/db/a.sql", "db/x/a.sql"]),
        ("**/private/**", &["private/a", "a/private/b", "a/private"], &["privates/a"]),
        ("a/b", &["a/b", "a/b/c"], &["x/a/b", "a/bc"]),
        ("**", &["a", "a/b"], &[]),
        ("größe", &["größe/a", "GRÖẞE", "gro\u{308}ße"], &["größen"]),
    ];
    for (glob, matching, others) in table {
        let globs = compile(Purpose::Deny, &["zzz", glob]);
        for raw in *matching {
            assert_eq!(globs.matching(&path(raw)), [*glob], "{glob} {raw}");
        }
        for raw in *others {
            assert_eq!(globs.matching(&path(raw)), [""; 0], "{glob} {raw}");
        }
    }
}

#[test]
fn an_operators_profiles_extend_the_built_in_ones() {
    let profiles = Profiles::with_toml(
        r#"
        # for agents that write documentation
        [profiles.DOCS]
        extends = "AUTONOMOUS"
        write = ["docs/**", "*.md"]
        deny = ["docs/legal/"]
        budget = { maxFilesTouched = 3 }
        requireApprovalIf = ["deletesFile"]

        [profiles.small]
        maxFileBytes = 1000
        runBudget.maxBytes = 5000
        quota = { maxTreeBytes = 6000, pendingApprovals = 2 }
        kinds = { GENERATED = "ALLOW" }
        ignoredFiles = "REQUIRE_APPROVAL"
        "#,
    )
    .unwrap();
    assert_eq!(profiles.names().collect::<Vec<_>>(), ["AUTONOMOUS", "DOCS", "READ_ONLY", "SUPERVISED_PR", "small"]);
    let docs = profiles.get("DOCS").unwrap();
    assert_eq!((docs.profile.as_str(), docs.budget.max_files_touched, docs.budget.max_bytes), ("DOCS", 3, 200_000));
    assert_eq!(docs.require_approval_if, BTreeSet::from([Trigger::DeletesFile]));
    let small = profiles.get("small").unwrap();
    assert_eq!(small.require_approval_if.len(), 2);
    assert_eq!(small.kinds[&FileKind::Generated], KindDecision::Allow);
    // A run's overrides replace members of the operator's profile.
    let overrides = serde_json::from_str(r#"{"profile":"small","quota":{},"runBudget":{"maxInsertions":7}}"#).unwrap();
    let rules = profiles.resolve(&overrides).unwrap();
    let run_budget = rules.policy().run_budget.clone().unwrap();
    assert_eq!((run_budget.max_bytes, run_budget.max_insertions), (Some(5000), Some(7)));
    assert_eq!(rules.policy().quota, Quota { max_tree_bytes: 6000, pending_approvals: 2, ..Quota::default() });
    assert_eq!(Profiles::with_toml("").unwrap().names().count(), 3);
}

#[test]
fn a_stored_policy_without_a_quota_has_the_default() {
    let mut stored = serde_json::to_value(resolve("{}").unwrap().policy()).unwrap();
    stored.as_object_mut().unwrap().remove("quota").unwrap();
    assert_eq!(serde_json::from_value::<Policy>(stored).unwrap().quota, Quota::default());
}

#[test]
fn an_invalid_profile_file_is_refused_with_line_and_column() {
    let table = [
        ("[profiles.A]\nwirte = []\n", 2, 1, "wirte"),
        ("[profiles.A]\nwrite = [\"ok\", \"src/[\"]\n", 2, 16, "src/["),
        ("[profiles.A]\n\n  deny = [\n    \"a\",\n    \"!b\"]\n", 5, 5, "!b"),
        ("[profiles.A]\nextends = \"B\"\n", 2, 11, "extends"),
        ("[profiles.READ_ONLY]\n", 1, 11, "READ_ONLY"),
        ("[profiles.\"a b\"]\n", 1, 11, "1 to 64"),
        ("[profiles.A]\nkinds = { SECRET_LIKE = \"ALLOW\" }\n", 2, 9, "SECRET_LIKE"),
        ("[profiles.A]\nkinds = { FOO = \"ALLOW\" }\n", 2, 11, "FOO"),
        ("[profiles.A]\nkinds = { LOCKFILE = \"MAYBE\" }\n", 2, 22, "MAYBE"),
        ("[profiles.A]\nbudget = { maxFiles = 1 }\n", 2, 12, "maxFiles"),
        ("[profiles.A]\nmaxFileBytes = -1\n", 2, 16, ""),
        ("[profiles.A]\nallowModeChange = true\nmaxFileBytes = 999999999999\n", 3, 16, "maxFileBytes"),
        ("[profiles.A]\nbudget.maxBytes = 9007199254740992\n", 1, 1, "budget.maxBytes"),
        ("[profiles.A\n", 1, 12, ""),
        ("# ä\n[profiles.A]\nread = [\"ä\", \"{\"]\n", 3, 14, "{"),
    ];
    for (text, line, column, named) in table {
        let error = Profiles::with_toml(text).unwrap_err();
        assert_eq!((error.line, error.column), (line, column), "{text:?}: {error}");
        assert!(error.message.contains(named), "{text:?}: {error}");
        assert!(!error.message.contains('\n'), "{error}");
    }
}

fn glob() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c*?/]{1,8}", "[a-c]{1,2}(/[a-c*]{1,2}){0,2}(/\\*\\*)?", "(\\*\\*/)?[a-c]{1,2}/?"]
}

fn some_path() -> impl Strategy<Value = LogicalPath> {
    "[a-cA-C]{1,2}(/[a-cA-C]{1,2}){0,3}".prop_map(|raw| path(&raw))
}

proptest! {
    #[test]
    fn any_glob_compiles_or_is_refused_by_name(glob in "\\PC{0,20}") {
        for purpose in [Purpose::Allow, Purpose::Deny] {
            if let Err(invalid) = Globs::compile(purpose, std::slice::from_ref(&glob)) {
                prop_assert!(Refusal::from(invalid).message.contains(&*glob));
            }
        }
    }

    #[test]
    fn a_deny_glob_matches_what_an_allow_glob_does_and_everything_under_it(glob in glob(), path in some_path()) {
        let globs = [glob];
        let (Ok(allow), Ok(deny)) = (Globs::compile(Purpose::Allow, &globs), Globs::compile(Purpose::Deny, &globs))
        else { return Ok(()) };
        if allow.matches(&path) {
            prop_assert!(deny.matches(&path));
        }
        if deny.matches(&path) {
            prop_assert!(deny.matches(&path.child("x").unwrap()));
            prop_assert!(deny.matches(&LogicalPath::parse(&path.as_str().to_uppercase()).unwrap()));
        }
        prop_assert_eq!(deny.matches(&path), !deny.matching(&path).is_empty());
    }
}

#[test]
fn policies_with_the_same_globs_share_their_compiled_form() {
    let rules = |json: &str| Arc::new(resolve(json).unwrap());
    let others = [rules("{}"), rules(r#"{"deny":["a"]}"#)];
    let among = |json: &str| Rules::compile_among(resolve(json).unwrap().policy().clone(), &others).unwrap();
    let same = among(r#"{"deny":["a"],"quota":{"maxFiles":7}}"#);
    assert!(same.shares_globs_with(&others[1]) && !same.shares_globs_with(&others[0]));
    assert_eq!(same.policy().quota.max_files, 7, "only the globs are shared");
    for json in [r#"{"deny":["b"]}"#, r#"{"deny":["a"],"read":["b"]}"#, r#"{"deny":["a"],"write":["b"]}"#] {
        let other = among(json);
        assert!(!others.iter().any(|one| other.shares_globs_with(one)), "{json}");
    }
}
