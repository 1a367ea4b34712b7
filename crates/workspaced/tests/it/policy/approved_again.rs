//! An approved call is planned and judged anew: what has become another change is not applied, and an edit or a patch follows its context.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, sha256};

const TEXT: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n";

/// Creates a run in which every change of `src/` asks.
async fn run_that_asks(backend: Backend) -> Run {
    let files = [("src/a.txt", TEXT), ("src/b.txt", TEXT)];
    Run::shared_with(backend, &files, json!({"policy": {"ask": ["src/"]}})).await.1
}

fn id_of(answer: &Answer) -> String {
    answer.refused("APPROVAL_REQUIRED")["approvalId"].as_str().unwrap().to_owned()
}

async fn edit(run: &Run, old: &str, new: &str, extra: Value) -> String {
    id_of(&run.edit("src/a.txt", old, new, extra).await)
}

async fn approve(run: &Run, id: &str) -> Value {
    run.operator.post(&format!("/v1/approvals/{id}/approve"), json!({"onBehalfOf": "ada"})).await.ok()
}

/// Returns whether a change can be applied, and the codes of its warnings, alone and in the list.
async fn seen(run: &Run, id: &str) -> (Value, Value, Value) {
    let codes = |approval: &Value| -> Value {
        approval["warnings"].as_array().unwrap().iter().map(|warning| warning["code"].clone()).collect()
    };
    let alone = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
    let list = run.operator.get(&format!("/v1/approvals?run={}", run.id)).await.ok();
    let listed = list["items"].as_array().unwrap().iter().find(|one| one["approvalId"] == id).unwrap().clone();
    (alone["canApply"].clone(), codes(&alone), codes(&listed))
}

#[rstest]
#[tokio::test]
async fn an_edit_and_a_patch_without_a_hash_follow_their_context(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let run = run_that_asks(backend).await;
    let first = edit(&run, "one\n", "zero\none\nmore\n", json!({})).await;
    let plain = edit(&run, "seven", "SEVEN", json!({})).await;
    let hashed = edit(&run, "eight", "EIGHT", json!({"expectedSha256": sha256(TEXT)})).await;
    let all = edit(&run, "two", "TWO", json!({"replaceAll": true})).await;
    let patch = "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -3,3 +3,3 @@\n three\n-four\n+FOUR\n five\n";
    let patched = id_of(&run.patch(patch).await);
    // In the model's view, which expects what was read unless the call names a version.
    run.text("read_file", json!({"path": "src/a.txt"})).await;
    let input = json!({"path": "src/a.txt", "oldString": "six", "newString": "SIX", "reason": "r"});
    assert_eq!(run.text("edit_file", input).await.status, 202);
    let list = run.operator.get(&format!("/v1/approvals?run={}&order=desc&limit=1", run.id)).await.ok();
    let model = list["items"][0]["approvalId"].as_str().unwrap().to_owned();
    for id in [&first, &plain, &hashed, &all, &patched, &model] {
        assert_eq!(seen(&run, id).await, (json!(true), json!([]), json!([])));
    }
    assert_eq!(approve(&run, &first).await["state"], "approved");
    let stale = json!(["STALE"]);
    for id in [&hashed, &all] {
        assert_eq!(seen(&run, id).await, (json!(false), stale.clone(), stale.clone()));
        assert_eq!(approve(&run, id).await["resolution"], "failed: WRITE_CONFLICT");
    }
    for id in [&plain, &patched, &model] {
        assert_eq!(seen(&run, id).await, (json!(true), stale.clone(), stale.clone()));
        assert_eq!(approve(&run, id).await["state"], "approved");
    }
    let expected = "zero\none\nmore\ntwo\nthree\nFOUR\nfive\nSIX\nSEVEN\neight\n";
    assert_eq!(run.on_disk("src/a.txt"), expected);
    assert_eq!(run.on_disk("src/b.txt"), TEXT);
}

#[rstest]
#[tokio::test]
async fn a_context_that_is_no_longer_unique_is_a_conflict(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run_that_asks(backend).await;
    let edited = edit(&run, "five", "5", json!({})).await;
    let patch = "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -5,2 +5,2 @@\n five\n-six\n+6\n";
    let patched = id_of(&run.patch(patch).await);
    // The lines are where the patch says, and somewhere else too.
    let first = edit(&run, "eight", "five\nsix\nnine", json!({})).await;
    approve(&run, &first).await;
    let before = run.on_disk("src/a.txt");
    for (id, code) in [(&edited, "EDIT_NOT_UNIQUE"), (&patched, "WRITE_CONFLICT")] {
        assert_eq!(seen(&run, id).await.0, json!(false));
        assert_eq!(approve(&run, id).await["resolution"], format!("failed: {code}"));
    }
    assert_eq!(run.on_disk("src/a.txt"), before);
}

#[rstest]
#[tokio::test]
async fn an_approval_does_not_cover_files_that_came_later(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let policy = json!({"policy": {"requireApprovalIf": ["deletesFile"]}});
    let (_server, run) = Run::shared_with(backend, &[("d/a.txt", "a\n"), ("d/b.txt", "b\n")], policy).await;
    let input = json!({"path": "d", "recursive": true, "reason": "r"});
    let id = id_of(&run.call("delete_file", input).await);
    run.create("d/later.txt", "later\n").await;
    assert_eq!(approve(&run, &id).await["resolution"], "failed: WRITE_CONFLICT");
    assert_eq!(run.files().into_keys().collect::<Vec<_>>(), ["d/a.txt", "d/b.txt", "d/later.txt"]);
}

#[rstest]
#[tokio::test]
async fn an_approval_does_not_cover_a_change_that_is_judged_otherwise(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let policy = json!({"policy": {"ask": ["tests/"], "requireApprovalIf": ["weakensTest"]}});
    let text = "def test_a():\n    # assert f() == 1\n    assert g()\n";
    let (_server, run) = Run::shared_with(backend, &[("tests/test_a.py", text)], policy).await;
    let ask = async |old: &str, new: &str| {
        let answer = run.edit("tests/test_a.py", old, new, json!({})).await;
        assert_eq!(answer.refused("APPROVAL_REQUIRED")["reasons"], json!(["ask:tests/"]));
        id_of(&answer)
    };
    // A comment changes, and then is one no more.
    let comment = ask("assert f() == 1", "f()").await;
    let code = ask("    # ", "    ").await;
    assert_eq!(approve(&run, &code).await["state"], "approved");
    assert_eq!(seen(&run, &comment).await.0, json!(false));
    assert_eq!(approve(&run, &comment).await["resolution"], "failed: WRITE_CONFLICT");
    let record = run.last_record().await;
    assert_eq!(record["reasons"], json!(["requireApprovalIf:weakensTest"]), "{record:#}");
    assert_eq!(run.on_disk("tests/test_a.py"), text.replace("# ", ""));
}
