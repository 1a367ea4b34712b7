use proptest::prelude::*;

use crate::{
    Access, ChangeFacts, Code, Decision, Effect, FileKind, LogicalPath, PathFacts, PolicyOverrides, Profiles, Rules,
    Usage, Verdict, bytes_written, explain_path, judge_change,
};

fn rules(json: &str) -> Rules {
    Profiles::built_in().resolve(&serde_json::from_str::<PolicyOverrides>(json).unwrap()).unwrap()
}

/// A change in a test. Owns its texts, so that tables can contain it.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the facts are independent")]
struct Edit {
    path: LogicalPath,
    effect: Effect,
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
    insertions: u64,
    deletions: u64,
    mode_change: bool,
    new_link: bool,
    ignored: bool,
    touched_before: bool,
}

impl Edit {
    fn new(path: &str, effect: Effect, old: Option<&str>, new: Option<&str>) -> Self {
        let lines = |text: Option<&str>| text.map_or(0, |text| text.lines().count() as u64);
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        Self {
            path: LogicalPath::parse(path).unwrap(),
            effect,
            old: bytes(old),
            new: bytes(new),
            insertions: lines(new),
            deletions: lines(old),
            mode_change: false,
            new_link: false,
            ignored: false,
            touched_before: false,
        }
    }

    fn create(path: &str, text: &str) -> Self {
        Self::new(path, Effect::Create, None, Some(text))
    }

    fn replace(path: &str, old: &str, new: &str) -> Self {
        Self::new(path, Effect::Replace, Some(old), Some(new))
    }

    fn delete(path: &str, old: &str) -> Self {
        Self::new(path, Effect::Delete, Some(old), None)
    }

    /// Both ends of a move that changes nothing else.
    fn moved(from: &str, to: &str, text: &str) -> [Self; 2] {
        let (from, to) = (LogicalPath::parse(from).unwrap(), LogicalPath::parse(to).unwrap());
        let source = Self::new(from.as_str(), Effect::MoveFrom { to: to.clone() }, Some(text), None);
        let target = Self::new(to.as_str(), Effect::MoveTo { from }, Some(text), Some(text));
        [source, target].map(|end| Self { insertions: 0, deletions: 0, ..end })
    }

    fn facts(&self) -> ChangeFacts<'_> {
        ChangeFacts {
            path: &self.path,
            kind: FileKind::of_file(&self.path, self.new.as_deref().or(self.old.as_deref()).unwrap_or_default()),
            effect: &self.effect,
            insertions: self.insertions,
            deletions: self.deletions,
            bytes: bytes_written(
                self.old.as_deref(),
                self.new.as_deref(),
                self.new.as_ref().map_or(0, |text| text.len() as u64),
            ),
            mode_change: self.mode_change,
            new_link: self.new_link,
            ignored: self.ignored,
            touched_before: self.touched_before,
            old_text: self.old.as_deref(),
            new_text: self.new.as_deref(),
            not_compared: false,
            evidence: crate::EvidenceFact::Missing,
        }
    }
}

fn judge(rules: &Rules, changes: &[Edit], usage: &Usage) -> Decision {
    let facts: Vec<_> = changes.iter().map(Edit::facts).collect();
    judge_change(rules, &facts, usage)
}

fn outcome(json: &str, changes: &[Edit]) -> (Verdict, Option<Code>, Vec<String>) {
    let decision = judge(&rules(json), changes, &Usage::default());
    let code = decision.refusal.as_ref().map(|refusal| refusal.code);
    if let Some(refusal) = &decision.refusal {
        assert_eq!(refusal.details.reasons, decision.reasons);
        assert!(!refusal.hint.is_empty());
    }
    (decision.verdict, code, decision.reasons)
}

fn key() -> String {
    format!("key = \"AKIA{}\"\n", "IOSFODNN7EXAMPLF")
}

#[test]
fn a_plain_change_is_allowed_by_the_write_globs_that_match() {
    let changes = [Edit::create("src/a.rs", "a\n"), Edit::replace("docs/b.md", "a\n", "b\n")];
    assert_eq!(outcome("{}", &changes), (Verdict::Allow, None, vec!["write:**".to_owned()]));
    let got = outcome(r#"{"write":["src/**","docs/*.md","**/*.rs"]}"#, &changes);
    assert_eq!(got, (Verdict::Allow, None, vec!["write:docs/*.md".to_owned(), "write:src/**".to_owned()]));
}

#[test]
fn each_trigger_requires_approval() {
    let table = [
        ("touchesLockfile", Edit::replace("web/yarn.lock", "a\n", "b\n"), true),
        ("touchesLockfile", Edit::create("src/lock.rs", "a\n"), false),
        ("touchesBuildFile", Edit::create("a/pom.xml", "<a/>\n"), true),
        ("touchesBuildFile", Edit::create("Cargo.toml", "\n"), true),
        ("touchesBuildFile", Edit::create("requirements-dev.txt", "a\n"), true),
        ("touchesBuildFile", Edit::create("vite.config.ts", "a\n"), true),
        ("touchesBuildFile", Edit::create("docker/Dockerfile.dev", "a\n"), true),
        ("touchesBuildFile", Edit::create("src/makefile.rs", "a\n"), false),
        ("touchesSecuritySensitivePath", Edit::create(".github/workflows/ci.yml", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create(".GitHub/x", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create("sub/.claude/settings.json", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create(".cursor/rules", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create(".vscode/tasks.json", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create(".mcp.json", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create("a/agents.MD", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create("AGЕNTS.md", "a\n"), true), // a Cyrillic E
        ("touchesSecuritySensitivePath", Edit::create("CLAUDE.md", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create(".gitlab-ci.yml", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create("Jenkinsfile.release", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create("docs/CODEOWNERS", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create(".gitattributes", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create(".gitignore", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::replace("sub/.GitIgnore", "a\n", "b\n"), true),
        ("touchesSecuritySensitivePath", Edit::delete("sub/.GITATTRIBUTES", "a\n"), true),
        ("touchesSecuritySensitivePath", Edit::create("gitignore.md", "a\n"), false),
        ("touchesSecuritySensitivePath", Edit::create("src/agents.rs", "a\n"), false),
        ("deletesFile", Edit::delete("a.md", "a\n"), true),
        ("deletesFile", Edit::replace("a.md", "a\n", ""), false),
        ("changesPublicApi", Edit::replace("a.rs", "pub fn a() {}\n", "pub fn b() {}\n"), true),
        ("changesPublicApi", Edit::replace("a.rs", "fn a() {}\n", "fn b() {}\n"), false),
    ];
    for (trigger, change, fires) in table {
        let json = format!(r#"{{"kinds":{{"LOCKFILE":"ALLOW"}},"requireApprovalIf":["{trigger}"]}}"#);
        let (verdict, code, reasons) = outcome(&json, std::slice::from_ref(&change));
        assert_eq!(code, None);
        if fires {
            assert_eq!((verdict, reasons), (Verdict::RequireApproval, vec![format!("requireApprovalIf:{trigger}")]));
        } else {
            assert_eq!(verdict, Verdict::Allow, "{trigger} {:?}", change.path);
        }
        let json = r#"{"kinds":{"LOCKFILE":"ALLOW"},"requireApprovalIf":[]}"#;
        assert_eq!(outcome(json, &[change]).0, Verdict::Allow, "{trigger}");
    }
}

#[test]
fn the_default_policy_requires_approval_for_lockfiles_and_security_sensitive_paths_only() {
    let lockfile = [Edit::replace("Cargo.lock", "a\n", "b\n")];
    let want = vec!["kind:LOCKFILE".to_owned(), "requireApprovalIf:touchesLockfile".to_owned()];
    assert_eq!(outcome("{}", &lockfile), (Verdict::RequireApproval, None, want));
    assert_eq!(outcome(r#"{"kinds":{"LOCKFILE":"ALLOW"}}"#, &lockfile).0, Verdict::Allow);
    assert_eq!(outcome(r#"{"requireApprovalIf":[]}"#, &lockfile).0, Verdict::Allow);
    assert_eq!(outcome("{}", &[Edit::create(".github/x", "a\n")]).0, Verdict::RequireApproval);
    assert_eq!(outcome("{}", &[Edit::create("pom.xml", "a\n"), Edit::delete("a.md", "")]).0, Verdict::Allow);
    assert_eq!(outcome(r#"{"profile":"AUTONOMOUS"}"#, &[Edit::delete("a.md", "")]).0, Verdict::RequireApproval);
    let (verdict, code, _) = outcome(r#"{"profile":"READ_ONLY"}"#, &[Edit::create("a.md", "a\n")]);
    assert_eq!((verdict, code), (Verdict::Deny, Some(Code::PolicyDenied)));
}

#[test]
fn kinds_and_ignored_files_can_require_approval() {
    let json = r#"{"kinds":{"TEXT_DOC":"REQUIRE_APPROVAL"},"ignoredFiles":"REQUIRE_APPROVAL"}"#;
    let mut change = Edit::create("a.md", "a\n");
    assert_eq!(outcome(json, &[change.clone()]), (Verdict::RequireApproval, None, vec!["kind:TEXT_DOC".to_owned()]));
    change.ignored = true;
    let want = vec!["ignored".to_owned(), "kind:TEXT_DOC".to_owned()];
    assert_eq!(outcome(json, &[change.clone()]), (Verdict::RequireApproval, None, want));
    assert_eq!(outcome("{}", &[change]), (Verdict::Deny, Some(Code::PolicyDenied), vec!["ignored".to_owned()]));
}

#[test]
fn new_credentials_are_denied_and_old_ones_may_stay() {
    let denied = (Verdict::Deny, Some(Code::PolicyDeniedSecret), vec!["credential:aws-access-key-id".to_owned()]);
    assert_eq!(outcome("{}", &[Edit::create("a.rs", &key())]), denied);
    assert_eq!(outcome("{}", &[Edit::replace("a.rs", "a\n", &key())]), denied);
    assert_eq!(outcome("{}", &[Edit::replace("a.rs", &key(), &(key() + "b\n"))]).0, Verdict::Allow);
    assert_eq!(outcome("{}", &[Edit::delete("a.rs", &key())]).0, Verdict::Allow);
    assert_eq!(outcome("{}", &Edit::moved("a.rs", "b.rs", &key())).0, Verdict::Allow);
    let decision = judge(&rules("{}"), &[Edit::create("a.rs", &key())], &Usage::default());
    let shown = format!("{decision:?}");
    assert!(!shown.contains("IOSFODNN7"), "{shown}");
    assert_eq!(decision.refusal.unwrap().details.path.as_deref(), Some("a.rs"));
}

#[test]
fn a_mode_change_is_denied_unless_the_policy_allows_it() {
    let mut change = Edit::replace("a.sh", "a\n", "b\n");
    change.mode_change = true;
    let got = outcome("{}", &[change.clone()]);
    assert_eq!(got, (Verdict::Deny, Some(Code::PolicyDenied), vec!["modeChange".to_owned()]));
    assert_eq!(outcome(r#"{"allowModeChange":true}"#, &[change]).0, Verdict::Allow);
}

#[test]
fn a_new_link_is_decided_by_the_policy() {
    let mut change = Edit::create("docs/newest", "v2");
    change.new_link = true;
    let link = vec!["symbolicLink".to_owned()];
    assert_eq!(outcome("{}", &[change.clone()]).0, Verdict::Allow);
    let got = outcome(r#"{"symbolicLinks":"REQUIRE_APPROVAL"}"#, &[change.clone()]);
    assert_eq!(got, (Verdict::RequireApproval, None, link.clone()));
    let got = outcome(r#"{"symbolicLinks":"DENY"}"#, &[change]);
    assert_eq!(got, (Verdict::Deny, Some(Code::PolicyDenied), link));
    // The removal of one is that of any file.
    assert_eq!(outcome(r#"{"symbolicLinks":"DENY"}"#, &[Edit::delete("docs/newest", "v2")]).0, Verdict::Allow);
}

#[test]
fn refusals_have_their_order() {
    let mut mode = Edit::replace(".github/x", "a\n", "b\n");
    mode.mode_change = true;
    let secret = Edit::create("b.rs", &key());
    let large = Edit::create("c.rs", &"x\n".repeat(801));
    let code = |changes: &[Edit]| outcome("{}", changes).1;
    assert_eq!(code(&[mode.clone(), large.clone(), secret]), Some(Code::PolicyDeniedSecret));
    assert_eq!(code(&[large.clone(), mode.clone()]), Some(Code::PolicyDenied));
    mode.mode_change = false;
    assert_eq!(code(&[mode.clone(), large]), Some(Code::PatchBudgetExceeded));
    assert_eq!(outcome("{}", &[mode]).0, Verdict::RequireApproval);
}

#[test]
fn one_new_file_over_the_insertion_budget_is_decided_by_the_file_budget() {
    let lines = "x\n".repeat(801);
    let one = [Edit::create("a", &lines)];
    for (policy, verdict, reasons) in [
        ("{}", Verdict::RequireApproval, &["fileBudget:maxInsertions"][..]),
        (r#"{"fileBudget":"ALLOW"}"#, Verdict::Allow, &[]),
        (r#"{"fileBudget":"DENY"}"#, Verdict::Deny, &["budget:maxInsertions"]),
        (r#"{"runBudget":{"maxInsertions":800}}"#, Verdict::Deny, &["budget:maxInsertions", "runBudget:maxInsertions"]),
        (r#"{"budget":{"maxBytes":800}}"#, Verdict::Deny, &["budget:maxInsertions", "budget:maxBytes"]),
    ] {
        let decision = judge(&rules(policy), &one, &Usage::default());
        let found: Vec<_> =
            decision.reasons.iter().map(String::as_str).filter(|one| !one.starts_with("write:")).collect();
        assert_eq!((decision.verdict, found.as_slice()), (verdict, reasons), "{policy}");
    }
    for more in [vec![one[0].clone(), Edit::create("b", "x\n")], vec![Edit::replace("a", "", &lines)]] {
        assert_eq!(outcome("{}", &more).1, Some(Code::PatchBudgetExceeded));
    }
}

#[test]
fn each_budget_refuses_more_than_its_limit() {
    let many = |count: usize| -> Vec<Edit> { (0..count).map(|at| Edit::create(&format!("{at}.md"), "")).collect() };
    let deletions = |count: usize| -> Vec<Edit> { (0..count).map(|at| Edit::delete(&format!("{at}"), "")).collect() };
    let table = [
        ("maxFilesTouched", 20, many(20), many(21)),
        ("maxFilesDeleted", 5, deletions(5), deletions(6)),
        (
            "maxInsertions",
            800,
            vec![Edit::create("a", &"x\n".repeat(800))],
            vec![Edit::replace("a", "", &"x\n".repeat(801))],
        ),
        (
            "maxDeletions",
            800,
            vec![Edit::replace("a", &"x\n".repeat(800), "")],
            vec![Edit::replace("a", &"x\n".repeat(801), "")],
        ),
        (
            "maxBytes",
            200_000,
            vec![Edit::create("a", &"x".repeat(200_000))],
            vec![Edit::create("a", &"x".repeat(200_001))],
        ),
    ];
    for (member, limit, within, beyond) in table {
        assert_eq!(outcome("{}", &within).0, Verdict::Allow, "{member}");
        let decision = judge(&rules("{}"), &beyond, &Usage::default());
        let refusal = decision.refusal.unwrap();
        assert_eq!(refusal.code, Code::PatchBudgetExceeded, "{member}");
        assert_eq!(refusal.details.reasons, [format!("budget:{member}")]);
        assert_eq!((refusal.details.limit, refusal.details.actual), (Some(limit), Some(limit + 1)), "{member}");
        // The limits of the run apply to its usage together with the call's.
        let json = format!(r#"{{"runBudget":{{"{member}":{limit}}}}}"#);
        let used = Usage { files_touched: 1, insertions: 1, deletions: 1, files_deleted: 1, bytes: 1 };
        let decision = judge(&rules(&json), &within, &used);
        assert_eq!(decision.reasons, [format!("runBudget:{member}")]);
        let details = decision.refusal.unwrap().details;
        assert_eq!((details.limit, details.actual), (Some(limit), Some(limit + 1)), "{member}");
        assert_eq!(judge(&rules(&json), &within, &Usage::default()).verdict, Verdict::Allow, "{member}");
    }
}

#[test]
fn an_exhausted_budget_refuses_only_calls_that_add_to_it() {
    let rules = rules(r#"{"runBudget":{"maxFilesDeleted":1,"maxFilesTouched":3}}"#);
    let used = Usage { files_touched: 3, files_deleted: 1, ..Usage::default() };
    let mut again = Edit::replace("a.md", "a\n", "b\n");
    assert_eq!(judge(&rules, &[again.clone()], &used).reasons, ["runBudget:maxFilesTouched"]);
    again.touched_before = true;
    assert_eq!(judge(&rules, &[again], &used).verdict, Verdict::Allow);
}

#[test]
fn lockfiles_and_moves_are_counted_separately() {
    let usage = |changes: &[Edit]| Usage::of(&changes.iter().map(Edit::facts).collect::<Vec<_>>());
    let lines = "x\n".repeat(5000);
    let lockfile = Edit::create("Cargo.lock", &lines);
    // Its lines do not count, but its size does.
    assert_eq!(
        usage(std::slice::from_ref(&lockfile)),
        Usage { files_touched: 1, bytes: lines.len() as u64, ..Usage::default() }
    );
    assert_eq!(outcome(r#"{"kinds":{"LOCKFILE":"ALLOW"}}"#, std::slice::from_ref(&lockfile)).0, Verdict::Allow);
    for budget in [r#"{"maxBytes":9999}"#, r#"{"maxFilesTouched":0}"#] {
        let policy = format!(r#"{{"kinds":{{"LOCKFILE":"ALLOW"}},"budget":{budget}}}"#);
        assert_eq!(outcome(&policy, std::slice::from_ref(&lockfile)).1, Some(Code::PatchBudgetExceeded), "{budget}");
    }
    let deleted = usage(&[Edit::delete("Cargo.lock", &lines)]);
    assert_eq!((deleted.files_deleted, deleted.files_touched, deleted.deletions), (1, 1, 0));
    let moved = Edit::moved("a.rs", "b.rs", &lines);
    assert_eq!(usage(&moved), Usage { files_touched: 1, ..Usage::default() });
    assert_eq!(
        outcome(r#"{"requireApprovalIf":["deletesFile"],"budget":{"maxFilesDeleted":0}}"#, &moved).0,
        Verdict::Allow
    );
}

#[test]
fn only_new_lines_of_a_large_file_count_as_bytes() {
    let old = (0..30_000).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
    let new = old.replace("line 7\n", "line seven\n").replace("line 29999\n", "the end\n");
    let facts = Edit::replace("a.txt", &old, &new);
    assert_eq!(Usage::of(&[facts.facts()]).bytes, ("line seven\n".len() + "the end\n".len()) as u64);
    let twice = Edit::replace("a.txt", "a\n", "a\na\n");
    assert_eq!(Usage::of(&[twice.facts()]).bytes, 2);
}

proptest! {
    #[test]
    fn new_lines_are_counted_at_any_position(old in "[ab\n]{0,12}", new in "[ab\n]{0,12}") {
        let mut remaining: Vec<&str> = old.split_inclusive('\n').collect();
        let mut bytes = 0;
        for line in new.split_inclusive('\n') {
            match remaining.iter().position(|known| *known == line) {
                Some(at) => drop(remaining.swap_remove(at)),
                None => bytes += line.len() as u64,
            }
        }
        let edit = Edit::replace("a.txt", &old, &new);
        prop_assert_eq!(Usage::of(&[edit.facts()]).bytes, bytes);
    }
}

#[test]
fn a_path_is_explained_without_a_change() {
    let rules = rules(r#"{"read":["**"],"write":["src/**",".github/**"],"deny":["plans/"]}"#);
    let explain = |access, raw: &str| {
        let path = LogicalPath::parse(raw).unwrap();
        let kind = FileKind::of_path(&path);
        let facts = PathFacts { path: &path, real_path: None, kind, ignored: false, hard_linked: false };
        let decision = explain_path(&rules, access, &facts);
        (decision.verdict, decision.reasons.join(" "))
    };
    let table = [
        (Access::Read, "a.rs", Verdict::Allow, "read:**"),
        (Access::Mutate, "src/a.rs", Verdict::Allow, "write:src/**"),
        (Access::Mutate, "a.rs", Verdict::Deny, "write:no-match"),
        (Access::Search, "plans/a.md", Verdict::Deny, "deny:plans/"),
        (Access::Mutate, "src/.env", Verdict::Deny, "kind:SECRET_LIKE"),
        (Access::Mutate, ".github/a.yml", Verdict::RequireApproval, "requireApprovalIf:touchesSecuritySensitivePath"),
        (Access::Mutate, "src/go.sum", Verdict::RequireApproval, "kind:LOCKFILE requireApprovalIf:touchesLockfile"),
    ];
    for (access, raw, verdict, reasons) in table {
        assert_eq!(explain(access, raw), (verdict, reasons.to_owned()), "{raw}");
    }
}
