use crate::test_support::path;
use crate::{Access, Code, FileKind, PathFacts, PolicyOverrides, Profiles, Refusal, Rules, Verdict, judge_path};

fn rules(overrides: &PolicyOverrides) -> Rules {
    Profiles::built_in().resolve(overrides).unwrap()
}

fn globs(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn judge(rules: &Rules, access: Access, raw: &str) -> Result<(), Refusal> {
    let path = path(raw);
    let kind = FileKind::of_path(&path);
    judge_path(rules, access, &PathFacts { path: &path, real_path: None, kind, ignored: false, hard_linked: false })
}

fn reasons(result: Result<(), Refusal>) -> Vec<String> {
    result.map_or_else(|refusal| refusal.details.reasons.clone(), |()| Vec::new())
}

#[test]
fn the_default_policy_decides_each_kind_as_in_the_contract() {
    let rules = rules(&PolicyOverrides::default());
    let secret = Some(Code::PolicyDeniedSecret);
    let denied = Some(Code::PolicyDenied);
    let table = [
        ("src/main.rs", None, None),
        ("README.md", None, None),
        ("odd.xyz", None, None),
        ("logo.png", None, None),
        ("Cargo.lock", None, None),
        ("target/x.rs", None, denied),
        ("vendor/x.go", None, denied),
        (".env", secret, secret),
        (".env/x.rs", secret, secret),
        (".env.example", None, None),
    ];
    for (raw, read, mutate) in table {
        let code = |access| judge(&rules, access, raw).err().map(|refusal| refusal.code);
        assert_eq!(code(Access::Read), read, "{raw}");
        assert_eq!(code(Access::Search), read, "{raw}");
        assert_eq!(code(Access::Mutate), mutate, "{raw}");
    }
}

#[test]
fn a_refusal_has_every_rule_and_the_path_that_the_caller_named() {
    let overrides = PolicyOverrides {
        write: Some(globs(&["src/**"])),
        deny: Some(globs(&["secret-plans/**", "*.plan"])),
        ..PolicyOverrides::default()
    };
    let rules = rules(&overrides);
    let refusal = judge(&rules, Access::Mutate, "secret-plans/vendor/x.plan").unwrap_err();
    assert_eq!(refusal.code, Code::PolicyDenied);
    assert_eq!(
        refusal.details.reasons,
        ["deny:secret-plans/**", "deny:*.plan", "write:no-match", "kind:VENDORED"],
        "{refusal:?}"
    );
    assert_eq!(refusal.details.path.as_deref(), Some("secret-plans/vendor/x.plan"));
    assert!(!refusal.hint.is_empty());
}

#[test]
fn a_link_is_judged_by_both_names_and_the_stricter_decision_applies() {
    let rules = rules(&PolicyOverrides { deny: Some(globs(&["hidden"])), ..PolicyOverrides::default() });
    let table = [
        ("notes.txt", ".env", FileKind::SecretLike, Some(Code::PolicyDeniedSecret)),
        // The facts have the kind of the link instead of its target.
        ("notes.txt", ".env", FileKind::TextDoc, Some(Code::PolicyDeniedSecret)),
        (".env", "notes.txt", FileKind::TextDoc, Some(Code::PolicyDeniedSecret)),
        ("notes.txt", "hidden/a.txt", FileKind::TextDoc, Some(Code::PolicyDenied)),
        ("hidden/a.txt", "notes.txt", FileKind::TextDoc, Some(Code::PolicyDenied)),
        ("a.txt", "b.txt", FileKind::TextDoc, None),
    ];
    for (named, real, kind, want) in table {
        let (path, real_path) = (path(named), path(real));
        let facts = PathFacts { path: &path, real_path: Some(&real_path), kind, ignored: false, hard_linked: false };
        let got = judge_path(&rules, Access::Read, &facts).err();
        assert_eq!(got.as_ref().map(|refusal| refusal.code), want, "{named} → {real}");
        if let Some(refusal) = got {
            assert_eq!(refusal.details.path.as_deref(), Some(named));
        }
    }
}

#[test]
fn ignored_and_hard_linked_files_are_denied() {
    let table = [
        (Verdict::Deny, Access::Read, true),
        (Verdict::Deny, Access::Mutate, true),
        (Verdict::RequireApproval, Access::Read, true),
        (Verdict::RequireApproval, Access::Search, true),
        (Verdict::RequireApproval, Access::Mutate, false),
        (Verdict::Allow, Access::Read, false),
        (Verdict::Allow, Access::Mutate, false),
    ];
    let path = path("a.log");
    for (ignored_files, access, denied) in table {
        let rules = rules(&PolicyOverrides { ignored_files: Some(ignored_files), ..PolicyOverrides::default() });
        let mut facts =
            PathFacts { path: &path, real_path: None, kind: FileKind::TextDoc, ignored: true, hard_linked: false };
        let want: &[&str] = if denied { &["ignored"] } else { &[] };
        assert_eq!(reasons(judge_path(&rules, access, &facts)), want, "{ignored_files:?} {access:?}");
        facts.ignored = false;
        facts.hard_linked = true;
        assert_eq!(reasons(judge_path(&rules, access, &facts)), ["hardLink"]);
    }
}

#[test]
fn read_globs_apply_to_files_and_not_to_folders() {
    let rules = rules(&PolicyOverrides { read: Some(globs(&["src/**"])), ..PolicyOverrides::default() });
    assert_eq!(judge(&rules, Access::Read, "src/a.rs"), Ok(()));
    assert_eq!(reasons(judge(&rules, Access::Read, "docs/a.md")), ["read:no-match"]);
    assert_eq!(reasons(judge(&rules, Access::Mutate, "docs/a.md")), ["read:no-match"]);
    let folder = path("docs");
    let facts =
        PathFacts { path: &folder, real_path: None, kind: FileKind::Directory, ignored: false, hard_linked: false };
    assert_eq!(judge_path(&rules, Access::Read, &facts), Ok(()));
}

#[test]
fn a_folder_named_like_a_secret_is_denied() {
    let rules = rules(&PolicyOverrides::default());
    let folder = path("a/.ssh");
    let facts =
        PathFacts { path: &folder, real_path: None, kind: FileKind::Directory, ignored: false, hard_linked: false };
    assert_eq!(judge_path(&rules, Access::Read, &facts).unwrap_err().code, Code::PolicyDeniedSecret);
}
