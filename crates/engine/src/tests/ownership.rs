//! Runs that this node loses to another one, and takes again.

use std::sync::Arc;
use std::time::Duration;

use crate::{CallError, Caller, tools};
use ::ledger::{Epoch, Ledger as _, Node, NodeLog as _, RunOwner};
use model::{EvidenceFact, RunId, RunState};
use serde_json::{Value, json};

use crate::tests::rig::{Rig, Service, operator};

fn other() -> RunOwner {
    let node = Node { node_id: "b".to_owned(), incarnation: 1 };
    RunOwner { node, epoch: Epoch::FIRST, url: Some("http://b:1".to_owned()), expires_in_ms: 5000 }
}

fn assert_moved<T: std::fmt::Debug>(result: &Result<T, CallError>, run: &RunId) {
    assert!(matches!(result, Err(CallError::Moved(moved)) if moved == run), "{result:?}");
}

impl Rig {
    async fn read(&self, run: &RunId, path: &str) -> Result<Value, CallError> {
        self.call(run, "read_file", json!({"path": path})).await
    }

    async fn head(&self, run: &RunId) -> u64 {
        self.ledger.run(run).await.unwrap().unwrap().run.head_seq
    }

    async fn epoch(&self, run: &RunId) -> Option<Epoch> {
        self.ledger.owner(run).await.unwrap().map(|owner| owner.epoch)
    }

    async fn append_event(&self, run: &RunId) -> Result<usize, CallError> {
        let event = json!({"kind": "message", "summary": "a note"}).as_object().unwrap().clone();
        let appended = self.services.calls.append_events(run, &Caller::of_operator(&operator()), vec![event]).await;
        Ok(appended?.len())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_recorded_in_a_run_that_another_node_owns() {
    let mut rig = Rig::start(Service::Node).await;
    let run = rig.run().await;
    let head = rig.head(&run).await;
    rig.ledger.set_other(Some(other()));
    rig.ledger.lose(&run).await;
    // The first call finds the run open, the others do not. What would be refused is not either: the tree may be an old one.
    for _ in 0..2 {
        assert_moved(&rig.write(&run, "new.txt", "new\n", None).await, &run);
        assert_moved(&rig.read(&run, "kept.txt").await, &run);
        assert_moved(&rig.read(&run, "missing.txt").await, &run);
        assert_moved(&rig.write(&run, "kept.txt", "x\n", None).await, &run);
        assert_moved(&rig.append_event(&run).await, &run);
        assert_moved(&rig.services.runs.close_run(&run, &Caller::of_operator(&operator())).await.map(drop), &run);
    }
    assert_eq!((rig.head(&run).await, rig.epoch(&run).await), (head, None));
    assert!(!rig.on_disk(&run).contains_key("new.txt"));
    assert_eq!(rig.ledger.run(&run).await.unwrap().unwrap().run.state, RunState::Open);

    rig.ledger.set_other(None);
    rig.write(&run, "new.txt", "new\n", None).await.unwrap();
    assert!(rig.epoch(&run).await.unwrap() > Epoch::FIRST);
    assert_eq!(rig.recorded(&run).await, rig.on_disk(&run));
    assert!(rig.ledger.verify(&run).await.unwrap().intact);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_from_before_the_run_was_lost_is_not_recorded_when_it_is_owned_again() {
    let mut rig = Rig::start(Service::Node).await;
    let run = rig.run().await;
    let stale = rig.engine.open(&run).await.unwrap();
    rig.ledger.lose(&run).await;
    rig.ledger.take_run(&run).await.unwrap();
    let head = rig.head(&run).await;
    let input = json!({"path": "stale.txt", "content": "stale\n", "reason": "a test"});
    let (call, members) = crate::calls::Call::of(
        &run,
        Caller::of_operator(&operator()),
        tools::find("write_file").unwrap(),
        input.as_object().unwrap().clone(),
    );
    let operation = crate::transaction::Operation::parse(&call, members.unwrap());
    assert_moved(
        &rig.services
            .calls
            .execute_one(call.opened(&stale, EvidenceFact::Missing), Arc::clone(&stale), operation)
            .await
            .map_err(CallError::from),
        &run,
    );
    assert_eq!(rig.head(&run).await, head);

    // The run is opened again once no such call is left, which could still write to its files.
    let waiting = tokio::time::timeout(Duration::from_millis(200), rig.read(&run, "kept.txt")).await;
    assert!(waiting.is_err(), "{waiting:?}");
    drop(stale);
    rig.write(&run, "new.txt", "new\n", None).await.unwrap();
    assert_eq!(rig.recorded(&run).await, rig.on_disk(&run));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_on_a_run_that_is_not_open_take_it() {
    let mut rig = Rig::start(Service::Node).await;
    let run = rig.run().await;
    assert_eq!(rig.engine.give_back_runs().await.unwrap(), 1);
    assert_eq!(rig.epoch(&run).await, None);
    assert_eq!(rig.append_event(&run).await.unwrap(), 1);
    let epoch = rig.epoch(&run).await.unwrap();
    assert!(epoch > Epoch::FIRST);
    rig.write(&run, "new.txt", "new\n", None).await.unwrap();
    rig.services.runs.close_run(&run, &Caller::of_operator(&operator())).await.unwrap();
    assert_eq!(rig.epoch(&run).await, Some(epoch));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_calls_use_are_not_given_back() {
    let mut rig = Rig::start(Service::Node).await;
    let (used, idle) = (rig.run().await, rig.run().await);
    let held = rig.engine.open(&used).await.unwrap();
    assert_eq!(rig.engine.give_back_runs().await.unwrap(), 1);
    assert_eq!((rig.epoch(&used).await, rig.epoch(&idle).await), (Some(Epoch::FIRST), None));
    rig.write(&used, "new.txt", "new\n", None).await.unwrap();
    drop(held);
    assert_eq!(rig.engine.give_back_runs().await.unwrap(), 1);
    assert_eq!(rig.epoch(&used).await, None);
    for run in [&used, &idle] {
        rig.read(run, "kept.txt").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_alone_owns_no_runs() {
    let mut rig = Rig::start(Service::Alone).await;
    let run = rig.run().await;
    assert_eq!(rig.engine.open(&run).await.unwrap().epoch, None);
    assert_eq!((rig.epoch(&run).await, rig.engine.give_back_runs().await.unwrap()), (None, 0));
}
