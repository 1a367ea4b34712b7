//! Every kind of transaction, over a ledger that fails at each of its calls in turn.
//!
//! If a call of the ledger fails, before or after it took effect, a change is recorded and in the tree, or neither; the
//! chain is intact; the run takes further calls; and a repetition under the same ID makes the change exactly once.

#![cfg_attr(test, expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests prepare folders"))]

#[cfg(test)]
mod ledger;
#[cfg(test)]
mod ownership;
#[cfg(test)]
mod rig;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::ledger::Ledger as _;
    use engine::CallError;
    use engine::admission::idempotency::KeyedRequest;
    use engine::admission::tokens::IssueTokenRequest;
    use engine::caller::Caller;
    use engine::runs::{CreateRunRequest, CreationAnswer};
    use model::{RunId, RunState};
    use rstest::rstest;
    use serde_json::json;

    use crate::ledger::FailureMode;
    use crate::rig::{Action, Rig, Service, operator};

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
                rig.engine
                    .create_run_once(
                        request,
                        operator(),
                        &Caller::of_operator(&operator()),
                        keyed.clone(),
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
            assert_eq!(
                serde_json::to_string(&create().await.unwrap()).unwrap(),
                serde_json::to_string(&again).unwrap()
            );
            if let Ok(first) = &first {
                assert_eq!(serde_json::to_string(first).unwrap(), serde_json::to_string(&again).unwrap());
            }
            let run = again.run.run_id.clone();
            rig.write(&run, "a.txt", "a\n", None).await.unwrap();
            let issue = serde_json::from_value::<IssueTokenRequest>(json!({})).unwrap();
            let token = KeyedRequest::new("operator:test", &format!("token-{number}"), "token.issue", "{}");
            let caller = Caller::of_operator(&operator());
            let issued = rig.engine.issue_token_once(&run, &caller, issue.clone(), token.clone()).await.unwrap();
            let repeated = rig.engine.issue_token_once(&run, &caller, issue, token).await.unwrap();
            assert_eq!(serde_json::to_string(&issued).unwrap(), serde_json::to_string(&repeated).unwrap());
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
        rig.engine.identify(token, &hash, std::net::Ipv4Addr::LOCALHOST.into()).await.unwrap().is_some()
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
            let first = rig.engine.create_operator(request, operator()).await.unwrap().token;
            let change = async || {
                if revokes {
                    return rig.engine.revoke_operator(&name, operator()).await.map(|()| None);
                }
                let request = serde_json::from_value(json!({"overlapSeconds": 0})).unwrap();
                let keyed = KeyedRequest::new("operator:test", &name, "operator.rotate", "{}");
                let rotated = rig.engine.rotate_operator_token_once(&name, request, operator(), keyed).await;
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
                assert_eq!(change().await.unwrap(), Some(second), "{what}");
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
                RunState::Closed => rig.engine.close_run(&run, &caller).await,
                _ => rig.engine.delete_run(&run, &caller).await,
            };
            let has_failed = rig.ledger.disarm();
            failures += u32::from(has_failed);
            let recorded = rig.ledger.run(&run).await.unwrap().unwrap().run.state;
            let write = rig.write_after(&run).await;
            assert_eq!(write.is_ok(), recorded != to, "{to:?} {mode:?} {number}: {answer:?}, then {write:?}");

            rig.engine.delete_run(&run, &caller).await.unwrap();
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
}
