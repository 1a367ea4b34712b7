use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{
    Access, BudgetOverrides, ChangeFacts, Code, Effect, FileKind, KindDecision, LogicalPath, PathFacts,
    PolicyOverrides, Profiles, Rules, Trigger, Usage, Verdict, judge_change, judge_path,
};

fn some_path() -> impl Strategy<Value = LogicalPath> {
    let names = prop::sample::select(vec![
        "a",
        "b",
        "src",
        "A",
        ".env",
        "target",
        "vendor",
        "Cargo.lock",
        "pom.xml",
        ".github",
        "x.rs",
        "y.md",
        "z.png",
        ".env.example",
        "id_rsa",
    ]);
    prop::collection::vec(names, 1..4).prop_map(|names| LogicalPath::parse(&names.join("/")).unwrap())
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop::sample::select(vec![Verdict::Allow, Verdict::RequireApproval, Verdict::Deny])
}

fn globs() -> impl Strategy<Value = Vec<String>> {
    let glob = prop::sample::select(vec!["**", "src/**", "*", "**/*.rs", "a", "b/", "{a,b}/**", "**/x.rs"]);
    prop::collection::vec(glob.prop_map(str::to_owned), 0..4)
}

/// Decisions on kinds that a policy may set.
fn kinds() -> impl Strategy<Value = BTreeMap<FileKind, KindDecision>> {
    let possible: Vec<_> = FileKind::ALL
        .into_iter()
        .flat_map(|kind| KindDecision::ALL.map(|decision| (kind, decision)))
        .filter(|(kind, decision)| {
            let overrides = PolicyOverrides { kinds: Some([(*kind, *decision)].into()), ..PolicyOverrides::default() };
            Profiles::built_in().resolve(&overrides).is_ok()
        })
        .collect();
    prop::collection::vec(prop::sample::select(possible), 0..4).prop_map(|kinds| kinds.into_iter().collect())
}

fn overrides() -> impl Strategy<Value = PolicyOverrides> {
    let triggers = prop::collection::btree_set(prop::sample::select(Trigger::ALL.to_vec()), 0..5);
    let profile = prop::sample::select(vec!["READ_ONLY", "SUPERVISED_PR", "AUTONOMOUS"]);
    let budget = (0_u64..5, 0_u64..5).prop_map(|(files, lines)| BudgetOverrides {
        max_files_touched: Some(files),
        max_insertions: Some(lines),
        ..BudgetOverrides::default()
    });
    (
        profile,
        prop::option::of(globs()),
        prop::option::of(globs()),
        prop::option::of(globs()),
        prop::option::of(kinds()),
        prop::option::of(triggers),
        prop::option::of(budget),
        any::<bool>(),
        (verdict(), verdict()),
    )
        .prop_map(|(profile, read, write, deny, kinds, triggers, budget, mode, (ignored, links))| {
            PolicyOverrides {
                profile: Some(profile.to_owned()),
                read,
                write,
                deny,
                kinds,
                require_approval_if: triggers,
                budget: budget.clone(),
                run_budget: budget,
                allow_mode_change: Some(mode),
                ignored_files: Some(ignored),
                symbolic_links: Some(links),
                ..PolicyOverrides::default()
            }
        })
}

fn resolve(overrides: &PolicyOverrides) -> Rules {
    Profiles::built_in().resolve(overrides).unwrap()
}

/// A call on one path, which is judged by its path and then by its change, as in the service.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the facts are independent")]
struct Call {
    path: LogicalPath,
    real_path: Option<LogicalPath>,
    effect: Effect,
    lines: u64,
    mode_change: bool,
    new_link: bool,
    ignored: bool,
    hard_linked: bool,
}

fn call() -> impl Strategy<Value = Call> {
    let effect = prop::sample::select(vec![Effect::Create, Effect::Replace, Effect::Delete]);
    let change = (effect, 0_u64..6, any::<bool>(), any::<bool>());
    (some_path(), prop::option::of(some_path()), change, any::<bool>(), any::<bool>()).prop_map(
        |(path, real_path, (effect, lines, mode_change, new_link), ignored, hard_linked)| Call {
            path,
            real_path,
            effect,
            lines,
            mode_change,
            new_link,
            ignored,
            hard_linked,
        },
    )
}

fn judge(rules: &Rules, access: Access, call: &Call) -> (Verdict, Option<Code>) {
    let kind = FileKind::of_path(call.real_path.as_ref().unwrap_or(&call.path));
    let facts = PathFacts {
        path: &call.path,
        real_path: call.real_path.as_ref(),
        kind,
        ignored: call.ignored,
        hard_linked: call.hard_linked,
    };
    if let Err(refusal) = judge_path(rules, access, &facts) {
        assert!(matches!(refusal.code, Code::PolicyDenied | Code::PolicyDeniedSecret));
        assert!(!refusal.details.reasons.is_empty() && !refusal.hint.is_empty());
        return (Verdict::Deny, Some(refusal.code));
    }
    if access != Access::Mutate {
        return (Verdict::Allow, None);
    }
    let facts = ChangeFacts {
        path: &call.path,
        kind,
        effect: &call.effect,
        insertions: call.lines,
        deletions: 0,
        bytes: call.lines,
        mode_change: call.mode_change,
        new_link: call.new_link,
        ignored: call.ignored,
        touched_before: false,
        old_text: None,
        new_text: None,
        not_compared: false,
        evidence: crate::EvidenceFact::Missing,
    };
    let decision = judge_change(rules, &[facts], &Usage::default());
    assert_eq!(decision.refusal.is_some(), decision.verdict == Verdict::Deny);
    assert!(!decision.reasons.is_empty(), "every decision has its rules");
    (decision.verdict, decision.refusal.map(|refusal| refusal.code))
}

const ACCESSES: [Access; 3] = [Access::Read, Access::Search, Access::Mutate];

proptest! {
    #[test]
    fn every_call_under_every_policy_is_decided(overrides in overrides(), call in call()) {
        let rules = resolve(&overrides);
        for access in ACCESSES {
            judge(&rules, access, &call);
        }
    }

    #[test]
    fn no_policy_allows_access_to_a_secret(overrides in overrides(), call in call(), upper in any::<bool>()) {
        let rules = resolve(&overrides);
        let secret = |path: &LogicalPath| FileKind::of_path(path) == FileKind::SecretLike;
        if secret(&call.path) || call.real_path.as_ref().is_some_and(secret) {
            let mut call = call;
            if upper {
                call.path = LogicalPath::parse(&call.path.as_str().to_uppercase()).unwrap();
            }
            for access in ACCESSES {
                prop_assert_eq!(judge(&rules, access, &call), (Verdict::Deny, Some(Code::PolicyDeniedSecret)));
            }
        }
    }

    #[test]
    fn read_only_denies_every_change_after_any_single_override(call in call(), write in globs(), kinds in kinds()) {
        let read_only = PolicyOverrides { profile: Some("READ_ONLY".to_owned()), ..PolicyOverrides::default() };
        for overrides in [
            read_only.clone(),
            PolicyOverrides { write: Some(write), ..read_only.clone() },
            PolicyOverrides { kinds: Some(kinds), ..read_only },
        ] {
            prop_assert_eq!(judge(&resolve(&overrides), Access::Mutate, &call).0, Verdict::Deny);
        }
    }

    #[test]
    fn narrowing_never_widens(overrides in overrides(), call in call(), more in globs(), narrower in 0..9) {
        let wide = resolve(&overrides);
        let policy = wide.policy().clone();
        let mut narrow = policy.clone();
        match narrower {
            0 => narrow.deny.extend(more),
            1 => drop(narrow.write.pop()),
            2 => drop(narrow.read.pop()),
            3 => narrow.kinds.values_mut().for_each(|decision| *decision = (*decision).max(KindDecision::RequireApproval)),
            4 => narrow.require_approval_if = Trigger::ALL.into(),
            5 => narrow.budget.max_insertions /= 2,
            6 => narrow.allow_mode_change = false,
            7 => narrow.symbolic_links = Verdict::Deny,
            _ => narrow.ignored_files = Verdict::Deny,
        }
        let narrow = Rules::compile(narrow).unwrap();
        for access in ACCESSES {
            prop_assert!(judge(&narrow, access, &call).0 >= judge(&wide, access, &call).0);
        }
    }

    #[test]
    fn a_link_is_denied_if_either_name_is(overrides in overrides(), call in call()) {
        let rules = resolve(&overrides);
        let Some(real_path) = call.real_path.clone() else { return Ok(()) };
        let both = judge(&rules, Access::Read, &call).0;
        for alone in [call.path.clone(), real_path] {
            let alone = Call { path: alone, real_path: None, ..call.clone() };
            prop_assert!(both >= judge(&rules, Access::Read, &alone).0);
        }
    }
}
