//! The triggers `deletesTest` and `weakensTest`, by every mutation, in two languages. `model` has the table of languages and of what configures a runner.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, sha256};

const WEAKENS: &str = "requireApprovalIf:weakensTest";
const DELETES: &str = "requireApprovalIf:deletesTest";

/// A test file with one assertion on its line `line`, and what makes another test of it.
#[derive(Clone, Copy)]
struct Language {
    path: &'static str,
    /// Another name of a test, and one that is not.
    renamed: &'static str,
    hidden: &'static str,
    text: &'static str,
    line: usize,
    /// The last lines with another test before them.
    end: (&'static str, &'static str),
}

const RUST: Language = Language {
    path: "tests/sum.rs",
    renamed: "tests/total.rs",
    hidden: "examples/sum.rs",
    text: "#[test]\nfn sum() {\n    assert_eq!(1 + 1, 2);\n}\n",
    line: 3,
    end: ("}\n", "}\n\n#[test]\nfn more() {\n    assert_eq!(2 + 1, 3);\n}\n"),
};
const PYTHON: Language = Language {
    path: "test_sum.py",
    renamed: "tests/test_total.py",
    hidden: "sum.py",
    text: "def test_sum():\n    x = 1 + 1\n    assert x == 2\n    print(x)\n",
    line: 3,
    end: ("    print(x)\n", "    print(x)\n\n\ndef test_more():\n    assert 2 + 1 == 3\n"),
};

impl Language {
    fn assertion(&self) -> &'static str {
        self.text.lines().nth(self.line - 1).unwrap()
    }

    fn weakened(&self) -> String {
        self.text.replace(self.assertion(), "")
    }

    fn with_more(&self) -> String {
        let (end, more) = self.end;
        format!("{}{more}", self.text.strip_suffix(end).unwrap())
    }

    /// A patch from the text to `new`, of all lines.
    fn patch(&self, new: &str) -> String {
        let lines = |sign: &str, text: &str| text.lines().flat_map(|line| [sign, line, "\n"]).collect::<String>();
        let (path, text) = (self.path, self.text);
        let (old, count) = (text.lines().count(), new.lines().count());
        let to = if new.is_empty() { "/dev/null".to_owned() } else { format!("b/{path}") };
        let start = u8::from(!new.is_empty());
        format!("--- a/{path}\n+++ {to}\n@@ -1,{old} +{start},{count} @@\n{}{}", lines("-", text), lines("+", new))
    }

    /// The calls that weaken the test, by tool.
    fn weakening(&self) -> Vec<(&'static str, Value)> {
        let (path, version) = (self.path, sha256(self.text));
        vec![
            ("write_file", json!({"path": path, "content": self.weakened(), "expectedSha256": version, "reason": "r"})),
            ("edit_file", json!({"path": path, "oldString": self.assertion(), "newString": "", "reason": "r"})),
            (
                "replace_range",
                json!({"path": path, "startLine": self.line, "endLine": self.line, "content": "\n",
                    "expectedSha256": version, "reason": "r"}),
            ),
            ("apply_patch", json!({"patch": self.patch(&self.weakened()), "reason": "r"})),
        ]
    }

    /// The calls that delete the test, by tool.
    fn deleting(&self) -> Vec<(&'static str, Value)> {
        let (path, version) = (self.path, sha256(self.text));
        vec![
            ("delete_file", json!({"path": path, "expectedSha256": version, "reason": "r"})),
            ("move_file", json!({"from": path, "to": self.hidden, "expectedSha256": version, "reason": "r"})),
            ("write_file", json!({"path": path, "content": "\n", "expectedSha256": version, "reason": "r"})),
            ("apply_patch", json!({"patch": self.patch(""), "reason": "r"})),
        ]
    }

    /// The calls that keep the test.
    fn keeping(&self) -> Vec<(&'static str, Value)> {
        let (path, version) = (self.path, sha256(self.text));
        let (end, more) = self.end;
        let last = self.text.lines().count();
        vec![
            (
                "write_file",
                json!({"path": path, "content": self.with_more(), "expectedSha256": version, "reason": "r"}),
            ),
            (
                "edit_file",
                json!({"path": path, "oldString": format!("{}\n", self.assertion()),
                "newString": format!("{0}\n{0}\n", self.assertion()), "reason": "r"}),
            ),
            (
                "replace_range",
                json!({"path": path, "startLine": last + 1 - end.lines().count(), "endLine": last, "content": more,
                    "expectedSha256": version, "reason": "r"}),
            ),
            ("apply_patch", json!({"patch": self.patch(&self.with_more()), "reason": "r"})),
            ("move_file", json!({"from": path, "to": self.renamed, "expectedSha256": version, "reason": "r"})),
        ]
    }
}

async fn run(backend: Backend, language: Language, policy: Value) -> Run {
    let mut policy = policy;
    // Files are restored on disk.
    policy["outsideChanges"] = json!("RECORD");
    Run::shared_with(backend, &[(language.path, language.text), ("a.txt", "a\n")], json!({"policy": policy})).await.1
}

/// Asserts that the answer of a call asks for an approval for `reason`.
#[track_caller]
fn asks(answer: &Value, reason: &str, what: &str) {
    assert_eq!(answer["code"], "APPROVAL_REQUIRED", "{what}: {answer:#}");
    let reasons = answer["reasons"].as_array().unwrap_or_else(|| panic!("{what}: {answer:#}"));
    assert!(reasons.iter().any(|found| found == reason), "{what} without {reason}: {answer:#}");
}

/// Restores the test file, which the service sees as a change from outside.
fn restore(run: &Run, language: Language) {
    for path in [language.renamed, language.hidden] {
        let _ = std::fs::remove_file(run.repo.join(path));
    }
    run.put(language.path, language.text);
}

#[rstest]
#[case::rust(RUST)]
#[case::python(PYTHON)]
#[tokio::test]
async fn a_change_that_weakens_or_deletes_a_test_asks(
    #[values(Backend::Sqlite)] backend: Backend,
    #[case] language: Language,
) {
    let weakens = language.weakening().into_iter().map(|call| (call, WEAKENS));
    let calls: Vec<_> = weakens.chain(language.deleting().into_iter().map(|call| (call, DELETES))).collect();
    let triggers = json!({"requireApprovalIf": ["weakensTest", "deletesTest"]});
    for policy in [json!({"profile": "AUTONOMOUS"}), triggers] {
        let run = run(backend, language, policy.clone()).await;
        for ((tool, input), reason) in &calls {
            asks(&run.call(tool, input.clone()).await.is(202), reason, tool);
            let other = json!({"path": "n.txt", "content": "n\n", "mode": "CREATE_NEW", "reason": "r"});
            let batch = json!([{"tool": "write_file", "input": other}, {"tool": tool, "input": input}]);
            let asked = run.batch(batch).await.ok()["results"][1].clone();
            assert_eq!(asked["status"], 202, "{tool}: {asked:#}");
            asks(&asked["answer"], reason, tool);
        }
        assert_eq!(run.on_disk(language.path), language.text, "{policy}");
        assert_eq!(run.files().len(), 2, "{policy}: a call that waits has changed the tree");
    }
    // By default, `SUPERVISED_PR` has neither trigger.
    let run = self::run(backend, language, json!({"profile": "SUPERVISED_PR"})).await;
    for ((tool, input), _) in &calls {
        run.ok(tool, input.clone()).await;
        restore(&run, language);
    }
}

#[rstest]
#[case::rust(RUST)]
#[case::python(PYTHON)]
#[tokio::test]
async fn an_addition_or_a_rename_that_keeps_the_tests_does_not_ask(
    #[values(Backend::Sqlite)] backend: Backend,
    #[case] language: Language,
) {
    let policy = json!({"profile": "AUTONOMOUS", "requireApprovalIf": ["weakensTest", "deletesTest"]});
    let run = run(backend, language, policy).await;
    for (number, (tool, input)) in language.keeping().into_iter().enumerate() {
        run.ok(tool, input.clone()).await;
        restore(&run, language);
        let other = json!({"path": format!("{number}.txt"), "content": "n\n", "mode": "CREATE_NEW", "reason": "r"});
        let batch = json!([{"tool": "write_file", "input": other}, {"tool": tool, "input": input}]);
        let done = run.batch(batch).await.ok();
        assert_eq!(done["ok"], true, "{tool}: {done:#}");
        restore(&run, language);
    }
    // Of a new test file and of code that is no test, nothing is asked.
    let new = language.renamed.replace("otal", "hird");
    run.create(&new, language.text).await;
    run.create(language.hidden, language.text).await;
}

#[rstest]
#[tokio::test]
async fn what_a_runner_is_told_cannot_be_changed_without_an_approval(#[values(Backend::Sqlite)] backend: Backend) {
    let triggers = json!({"policy": {"requireApprovalIf": ["weakensTest", "deletesTest"]}});
    let project = "[project]\nname = \"a\"\n\n[tool.pytest.ini_options]\naddopts = \"-q\"\n";
    let files = [("pyproject.toml", project), ("jest.config.js", "module.exports = {};\n"), ("test_a.py", PYTHON.text)];
    let (_server, run) = Run::shared_with(backend, &files, triggers).await;
    let tree = run.snapshot();
    let create = |path: &str| json!({"path": path, "content": "x\n", "mode": "CREATE_NEW", "reason": "r"});
    for path in ["pytest.ini", "a/conftest.py"] {
        asks(&run.call("write_file", create(path)).await.is(202), WEAKENS, path);
        let patch = format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
        asks(&run.call("apply_patch", json!({"patch": patch, "reason": "r"})).await.is(202), WEAKENS, path);
    }
    let edit =
        |old: &str, new: &str| json!({"path": "pyproject.toml", "oldString": old, "newString": new, "reason": "r"});
    asks(&run.call("edit_file", edit("\"-q\"", "\"-q -k none\"")).await.is(202), WEAKENS, "addopts");
    let config = sha256("module.exports = {};\n");
    let delete = json!({"path": "jest.config.js", "expectedSha256": config, "reason": "r"});
    asks(&run.call("delete_file", delete).await.is(202), WEAKENS, "delete_file");
    let from = json!({"from": "jest.config.js", "to": "old.js", "expectedSha256": config, "reason": "r"});
    asks(&run.call("move_file", from).await.is(202), WEAKENS, "move_file");
    for to in ["tests/a.py"] {
        let hidden = json!({"from": "test_a.py", "to": to, "expectedSha256": sha256(PYTHON.text), "reason": "r"});
        asks(&run.call("move_file", hidden).await.is(202), DELETES, to);
    }
    assert_eq!(run.snapshot(), tree);
    run.call("edit_file", edit("name = \"a\"", "name = \"b\"")).await.ok();
}
