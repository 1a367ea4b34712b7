//! Change sets that reach a node which does not own the run.

use serde_json::json;

use super::{start, two};
use crate::harness::{Answer, Run, until};
use crate::runs::changesets::{Layer, head, runner, send, with};

#[tokio::test]
async fn a_change_set_goes_through_any_node_and_is_applied_once() {
    let [mut first, second] = two().await;
    let policy = json!({"policy": {"requireApprovalIf": ["deletesFile"]}});
    let run = first.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("c.txt", "c\n")], policy).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    // The run is the first node's.
    let here = runner(&run, &[]).await;
    let away = Run { agent: second.reconnect(&run).agent.with_token(here.agent.token.as_deref()), ..here.clone() };
    let based = head(&run).await;
    let command = json!({"argv": ["make"], "exitCode": 0});
    let set = json!({"changesetId": "cs_1", "basedOnSeq": based, "reason": "make", "command": command});
    let layer = Layer::new().file("a.txt", "a2\n").file("n/new.txt", "n\n").bytes();
    let answer = send(&away, &set, &layer).await.ok();
    assert_eq!((&answer["eventSeq"], &answer["seq"]), (&json!(based + 1), &json!(based + 2)));
    assert_eq!(run.on_disk("a.txt"), "a2\n");
    for runner in [&here, &away] {
        assert_eq!(send(runner, &set, &layer).await.ok(), answer);
        send(runner, &with(&set, &json!({"reason": "other"})), &layer).await.refused("TOOL_CALL_ID_REUSED");
    }
    // A large one is passed on as it is, and so is what is refused.
    let noise: Vec<u8> =
        (0..6 << 20_u32).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    let large = json!({"basedOnSeq": head(&run).await, "reason": "generate"});
    let large = send(&away, &large, &Layer::new().file("large.bin", noise).bytes()).await.ok();
    assert_eq!(large["applied"], json!(["large.bin"]));
    let based = head(&run).await;
    let secret = json!({"basedOnSeq": based, "reason": "r"});
    send(&away, &secret, &Layer::new().file(".env", "A=1\n").bytes()).await.refused("POLICY_DENIED_SECRET");
    // One that waits is decided at the other node.
    let waiting = json!({"changesetId": "cs_2", "basedOnSeq": based, "reason": "clean"});
    let waits = send(&away, &waiting, &Layer::new().file(".wh.b.txt", "").bytes()).await.is(202);
    let path = format!("/v1/approvals/{}/approve", waits["approvalId"].as_str().unwrap());
    let decided = second.operator().post(&path, json!({"decidedBy": "ada"})).await.ok();
    assert_eq!(decided["state"], "approved", "{decided:#}");
    assert!(!run.has("b.txt").await);

    // The owner is killed: whoever has the run then answers what was answered, and takes the next set.
    first.kill();
    let until_answered = async |set: &serde_json::Value, layer: &[u8]| -> Answer {
        let answered = async || {
            let answer = send(&away, set, layer).await;
            if answer.status == 503 { Err(answer.text()) } else { Ok(answer) }
        };
        until("a node answers", answered).await
    };
    let mut again = until_answered(&set, &layer).await.ok();
    // What was decided meanwhile is told beside it.
    again.as_object_mut().unwrap().remove("notices");
    assert_eq!(again, answer);
    let moved = second.reconnect(&run);
    let next = json!({"changesetId": "cs_3", "basedOnSeq": head(&moved).await, "reason": "make"});
    let next_layer = Layer::new().file("c.txt", "c2\n").bytes();
    let next_answer = until_answered(&next, &next_layer).await.ok();
    assert_eq!(next_answer["applied"], json!(["c.txt"]));
    start(&mut first);
    let back = Run { agent: first.reconnect(&run).agent.with_token(here.agent.token.as_deref()), ..here.clone() };
    assert_eq!(send(&back, &next, &next_layer).await.ok(), next_answer);
    let verified = moved.verify().await;
    assert_eq!(verified["intact"], true, "{verified:#}");
}
