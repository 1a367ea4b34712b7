//! Every kind of transaction, over a ledger that fails at each of its calls in turn.
//!
//! If a call of the ledger fails, before or after it took effect, a change is recorded and in the tree, or neither; the
//! chain is intact; the run takes further calls; and a repetition under the same ID makes the change exactly once.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests prepare folders")]

mod answers;
mod ledger;
mod ownership;
mod rig;

mod failing_ledger {
    use std::time::Duration;

    use crate::CallError;
    use crate::Caller;
    use crate::operators::IssueTokenRequest;
    use crate::operators::KeyedRequest;
    use crate::runs::{CreateRunRequest, CreatedRun, CreationAnswer};
    use ::ledger::Ledger as _;
    use model::{RunId, RunState};
    use rstest::rstest;
    use serde_json::json;

    use crate::tests::ledger::FailureMode;
    use crate::tests::rig::{Action, Rig, Service, operator};

    /// No transaction makes so many calls of the ledger.
    const MAX_LEDGER_CALLS: u64 = 60;

    /// The records of the mutations with `action`'s IDs that took effect.
    async fn times_done(rig: &Rig, run: &RunId, ids: &[&str]) -> usize {
        let page = rig.ledger.changes(run, 0, 1000.into()).await.unwrap();
        let records = page.iter().map(|stored| serde_json::from_str::<model::Record>(&stored.text).unwrap());
        records.filter(|record| ids.contains(&record.tool_call_id.as_str())).count()
    }

    #[rstest]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_transaction_is_complete_or_absent_for_every_failing_ledger_call(
        #[values(
            Action::Write,
            Action::Batch,
            Action::DryRun,
            Action::Denied,
            Action::Ask,
            Action::Approve,
            Action::Revert
        )]
        action: Action,
        #[values(
            (Service::Alone, FailureMode::Unavailable),
            (Service::Alone, FailureMode::InDoubt),
            (Service::Node, FailureMode::Unavailable),
            (Service::Node, FailureMode::InDoubt),
            (Service::Node, FailureMode::Moved)
        )]
        how: (Service, FailureMode),
    ) {
        let (service, mode) = how;
        let mut rig = Rig::start(service).await;
        let mut failures = 0;
        for number in 0..MAX_LEDGER_CALLS {
            let run = rig.run().await;
            let approval = match action {
                Action::Approve => match rig.act(&run, Action::Ask, None).await.unwrap_err() {
                    CallError::Refused(refusal) => refusal.details.approval_id.map(|id| id.to_string()),
                    error @ (CallError::Moved(_) | CallError::Internal(_)) => panic!("{error:?}"),
                },
                _ => None,
            };
            rig.ledger.arm_for(&run, number, mode);
            let answer = rig.act(&run, action, approval.as_deref()).await;
            // The fsync worker prunes after the answer.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let has_failed = rig.ledger.disarm();
            failures += u32::from(has_failed);

            // The next call reconciles the run, and works.
            rig.write_after(&run).await.unwrap();
            assert_eq!(rig.recorded(&run).await, rig.on_disk(&run), "{action:?} {mode:?} {number}: {answer:?}");
            assert!(rig.ledger.verify(&run).await.unwrap().intact, "{action:?} {mode:?} {number}");

            // A repetition has the effect once, or the same refusal.
            let again = rig.act(&run, action, approval.as_deref()).await;
            let (ids, expected): (&[&str], usize) = match action {
                Action::Write => (&["write"], 1),
                Action::Batch => (&["write", "edit"], 2),
                Action::DryRun => (&["dry"], 1),
                Action::Denied | Action::Ask => (&["no", "delete"], 0),
                Action::Approve => (&["delete"], 1),
                Action::Revert => (&["revert"], 1),
            };
            assert_eq!(
                times_done(&rig, &run, ids).await,
                expected,
                "{action:?} {mode:?} {number}: {answer:?} {again:?}"
            );
            assert_eq!(rig.recorded(&run).await, rig.on_disk(&run), "{action:?} {mode:?} {number}");
            assert!(!matches!(again, Err(CallError::Internal(_))), "{action:?} {mode:?} {number}: {again:?}");
            if !has_failed {
                assert!(failures > 0, "{action:?} makes no call of the ledger");
                return;
            }
        }
        panic!("{action:?} makes more than {MAX_LEDGER_CALLS} calls of the ledger");
    }

    #[rstest]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_keyed_creation_happens_once_for_every_failing_ledger_call(
        #[values(FailureMode::Unavailable, FailureMode::InDoubt)] mode: FailureMode,
        #[values(true, false)] is_named: bool,
    ) {
        let rig = Rig::start(Service::Alone).await;
        let mut failures = 0;
        for number in 0..MAX_LEDGER_CALLS {
            let mut body = json!({"source": {"type": "empty"}, "labels": {"number": number.to_string()}});
            if is_named {
                body["runId"] = json!(format!("keyed-{number}"));
            }
            let keyed = KeyedRequest::new("operator:test", &format!("key-{number}"), "run.create", &body.to_string());
            let create = async || {
                let request: CreateRunRequest = serde_json::from_value(body.clone()).unwrap();
                rig.services
                    .runs
                    .create_run(
                        request,
                        operator(),
                        &Caller::of_operator(&operator()),
                        Some(keyed.clone()),
                        CreationAnswer::AfterImport,
                    )
                    .await
            };
            rig.ledger.arm(number, mode);
            let first = create().await;
            let has_failed = rig.ledger.disarm();
            failures += u32::from(has_failed);
            let again = create().await;
            let again = again.unwrap_or_else(|error| panic!("{mode:?} {number}: {first:?}, then {error:?}"));
            let run_of = |created: &CreatedRun| serde_json::to_string(&created.run).unwrap();
            let third = create().await.unwrap();
            assert_eq!(run_of(&third), run_of(&again));
            assert_ne!(third.token.token_id, again.token.token_id, "a repetition returns another token");
            if let Ok(first) = &first {
                assert_eq!(run_of(first), run_of(&again));
            }
            let run = again.run.run_id.clone();
            rig.write(&run, "a.txt", "a\n", None).await.unwrap();
            let issue = serde_json::from_value::<IssueTokenRequest>(json!({})).unwrap();
            let token = KeyedRequest::new("operator:test", &format!("token-{number}"), "token.issue", "{}");
            let caller = Caller::of_operator(&operator());
            let issued =
                rig.services.operators.issue_token(&run, &caller, issue.clone(), Some(token.clone())).await.unwrap();
            let repeated = rig.services.operators.issue_token(&run, &caller, issue, Some(token)).await.unwrap();
            assert_ne!(issued.token_id, repeated.token_id);
            let runs = rig.ledger.runs(&ledger::RunFilter::default(), None, 1000.into()).await.unwrap();
            assert_eq!(runs.iter().count() as u64, number + 1, "{mode:?} {number}: one run for each key");
            if !has_failed {
                assert!(failures > 1, "the creation makes no call of the ledger");
                return;
            }
        }
        panic!("the creation makes more than {MAX_LEDGER_CALLS} calls of the ledger");
    }

    async fn is_accepted(rig: &Rig, token: &str) -> bool {
        let hash = model::Sha256::of(token.as_bytes());
        rig.services.operators.identify(token, &hash, std::net::Ipv4Addr::LOCALHOST.into()).await.unwrap().is_some()
    }

    /// Waits until the token is accepted, or is not.
    async fn until_accepted(rig: &Rig, token: &str, expected: bool, what: &str) {
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while is_accepted(rig, token).await != expected {
            assert!(std::time::Instant::now() < deadline, "{what}: accepted is {}", !expected);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[rstest]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_tokens_of_operators_follow_the_ledger_for_every_failing_call(
        #[values(FailureMode::Unavailable, FailureMode::InDoubt)] mode: FailureMode,
        #[values(true, false)] revokes: bool,
    ) {
        let rig = Rig::start(Service::Alone).await;
        let mut failures = 0;
        for number in 0..MAX_LEDGER_CALLS {
            let name = format!("ada-{number}");
            let what = format!("{mode:?} {number}, revokes: {revokes}");
            let request = serde_json::from_value(json!({"name": name, "scopes": ["audit"]})).unwrap();
            let first = rig.services.operators.create_operator(request, operator(), None).await.unwrap().token;
            let change = async || {
                if revokes {
                    return rig.services.operators.revoke_operator(&name, operator()).await.map(|()| None);
                }
                let request = serde_json::from_value(json!({"overlapSeconds": 0})).unwrap();
                let keyed = KeyedRequest::new("operator:test", &name, "operator.rotate", "{}");
                let rotated =
                    rig.services.operators.rotate_operator_token(&name, request, operator(), Some(keyed)).await;
                rotated.map(|created| Some(created.token))
            };
            rig.ledger.arm(number, mode);
            let answer = change().await;
            let has_failed = rig.ledger.disarm();
            failures += u32::from(has_failed);
            let stored = rig.ledger.operators(0, 1000).await.unwrap();
            let hash = model::Sha256::of(first.as_bytes());
            let (_, stored) = stored.into_iter().find(|(_, token)| token.secret_sha256 == hash).unwrap();
            until_accepted(&rig, &first, stored.operator.revoked_at.is_none(), &what).await;
            assert!(answer.is_err() || stored.operator.revoked_at.is_some(), "{what}");

            let again = change().await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            until_accepted(&rig, &first, false, &what).await;
            if let Some(second) = again {
                until_accepted(&rig, &second, true, &what).await;
                let third = change().await.unwrap().unwrap();
                until_accepted(&rig, &third, true, &what).await;
                until_accepted(&rig, &second, false, &what).await;
            }
            if !has_failed {
                assert!(failures > 0);
                return;
            }
        }
        panic!("it makes more than {MAX_LEDGER_CALLS} calls of the ledger");
    }

    /// The open run has the ledger's state, also if the commit is in doubt, and a repetition completes the deletion.
    #[rstest]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_ends_as_recorded_for_every_failing_ledger_call(
        #[values(RunState::Closed, RunState::Deleted)] to: RunState,
        #[values(
            (Service::Alone, FailureMode::Unavailable),
            (Service::Alone, FailureMode::InDoubt),
            (Service::Node, FailureMode::Unavailable),
            (Service::Node, FailureMode::InDoubt),
            (Service::Node, FailureMode::Moved)
        )]
        how: (Service, FailureMode),
    ) {
        let (service, mode) = how;
        let mut rig = Rig::start(service).await;
        let caller = Caller::of_operator(&operator());
        let mut failures = 0;
        for number in 0..MAX_LEDGER_CALLS {
            let run = rig.run().await;
            rig.ledger.arm_for(&run, number, mode);
            let answer = match to {
                RunState::Closed => rig.services.runs.close_run(&run, &caller).await,
                _ => rig.services.runs.delete_run(&run, &caller).await,
            };
            let has_failed = rig.ledger.disarm();
            failures += u32::from(has_failed);
            let recorded = rig.ledger.run(&run).await.unwrap().unwrap().run.state;
            let write = rig.write_after(&run).await;
            assert_eq!(write.is_ok(), recorded != to, "{to:?} {mode:?} {number}: {answer:?}, then {write:?}");

            rig.services.runs.delete_run(&run, &caller).await.unwrap();
            assert!(!rig.folder.path().join("workspaces").join(run.as_str()).exists(), "{to:?} {mode:?} {number}");
            assert_eq!(rig.engine.node.bytes(), 0, "{to:?} {mode:?} {number}: the space is released once");
            assert_eq!(rig.ledger.unpurged_runs().await.unwrap(), [], "{to:?} {mode:?} {number}");
            if !has_failed {
                assert!(failures > 2, "{to:?} makes no calls of the ledger");
                return;
            }
        }
        panic!("{to:?} makes more than {MAX_LEDGER_CALLS} calls of the ledger");
    }

    /// They are removed on a thread that may block, and not by whoever drops the call at its end.
    #[rstest]
    #[case::of_a_dry_run("a.bin", true, 0)]
    #[case::of_a_denied_set(".env", false, 0)]
    #[case::of_a_set_that_waits("deleted.txt", false, 0)]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn staged_contents_that_nothing_needs_are_gone_before_the_record(
        #[case] path: &str,
        #[case] is_dry_run: bool,
        #[case] expected: usize,
    ) {
        let mut rig = Rig::start(Service::Alone).await;
        let run = rig.run().await;
        let mut tar = tar::Builder::new(Vec::new());
        let mut add = |path: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes).unwrap();
        };
        add("large.bin", &vec![0; 9 << 20]);
        add(if path == "deleted.txt" { ".wh.deleted.txt" } else { path }, b"");
        let layer = crate::calls::Layer::from(bytes::Bytes::from(tar.into_inner().unwrap()));
        let tmp = rig.folder.path().join("workspaces").join(run.as_str()).join("tmp");
        let (sender, staged) = std::sync::mpsc::channel();
        rig.ledger.observe(move || {
            let names = std::fs::read_dir(&tmp).unwrap().map(|entry| entry.unwrap().file_name());
            let staged = names.filter(|name| name.to_str().is_some_and(|name| name.starts_with("large-")));
            sender.send(staged.count()).unwrap();
        });
        let set = json!({"basedOnSeq": 1, "reason": "a test", "dryRun": is_dry_run}).to_string();
        let operator = Caller::of_operator(&operator());
        let done = rig.services.calls.apply_changeset(&run, operator, set.as_bytes(), Ok(layer)).await;
        assert_eq!(
            done.is_ok(),
            is_dry_run,
            "{:?}",
            done.map(|answer| answer.to_json()).map_err(|failed| failed.error)
        );
        assert_eq!(staged.try_iter().collect::<Vec<_>>(), [expected]);
    }
}
