//! Forks whose runs are owned by different nodes.

use serde_json::{Value, json};

use super::two;
use crate::harness::{Run, assert_chain, sha256};

async fn assert_whole(run: &Run) {
    assert_chain(&run.id, &run.audit().await);
    assert_eq!(run.verify().await["intact"], true);
    let drift = run.operator.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
    assert_eq!(drift["items"], json!([]), "{drift:#}");
}

#[tokio::test]
async fn a_run_is_forked_and_merged_by_another_node_than_its_own() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n")], json!({})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    // The fork belongs to the node that makes it, from the object store and the database.
    let source = json!({"source": {"type": "run", "runId": run.id}});
    let created = second.operator().post("/v1/runs", source).await.is(201);
    let forked = second.run_from(&created).await;
    assert_eq!((forked.on_disk("a.txt"), forked.on_disk("b.txt")), ("one\n".to_owned(), "b\n".to_owned()));
    assert!(!first.repo(&forked.id).exists());
    forked.replace("b.txt", "two\n", &sha256("b\n")).await.ok();
    // Any node takes the merge, and the owner of the run makes it.
    let body = json!({"from": forked.id, "reason": "r"});
    let merged = second.operator().post(&format!("/v1/runs/{}/merge", run.id), body).await.ok();
    assert_eq!(merged["applied"], json!(["b.txt"]));
    assert_eq!(run.on_disk("b.txt"), "two\n");
    let noted: Vec<Value> = forked.audit().await;
    assert_eq!(noted.last().unwrap()["tool"], "run.merge");
    assert_eq!(run.get().await["forks"][0]["mergedSeq"], merged["mergedSeq"]);
    // Runs of two nodes are compared by the base that both have.
    forked.create("c.txt", "c\n").await;
    for (one, other, status) in [(&run, &forked, "onlySecond"), (&forked, &run, "onlyFirst")] {
        let path = format!("/v1/runs/{}/compare/{}", one.id, other.id);
        let compared = first.operator().get(&path).await.ok();
        let found = compared["files"].as_array().unwrap().iter().find(|file| file["path"] == "c.txt");
        assert_eq!(found.unwrap()["status"], status, "{compared:#}");
    }
    for one in [&run, &forked] {
        assert_whole(one).await;
    }
    forked.replace("b.txt", "three\n", &sha256("two\n")).await.ok();
}

#[tokio::test]
async fn runs_of_two_nodes_with_different_bases_are_compared() {
    let [first, second] = two().await;
    let one = first.run_with_files(&[("a.txt", "a\n"), ("same.txt", "s\n")], json!({})).await;
    let other = second.run_with_files(&[("b.txt", "b\n"), ("same.txt", "s\n")], json!({})).await;
    other.replace("b.txt", "two\n", &sha256("b\n")).await.ok();
    for node in [&first, &second] {
        let compared = node.operator().get(&format!("/v1/runs/{}/compare/{}", one.id, other.id)).await.ok();
        let files = compared["files"].as_array().unwrap().iter().map(|file| (&file["path"], &file["status"]));
        let expected = [(json!("a.txt"), json!("onlyFirst")), (json!("b.txt"), json!("onlySecond"))];
        assert!(files.eq(expected.iter().map(|(path, status)| (path, status))), "{compared:#}");
        assert_eq!(compared["files"][1]["second"]["sha256"], sha256("two\n"));
    }
}
