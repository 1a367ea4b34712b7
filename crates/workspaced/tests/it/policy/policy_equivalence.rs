//! The decision depends on the effect of a call, not on the tool or the notation of the path. The tables combine every kind
//! of mutation, every rule and every notation.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, sha256};

const DONE: &str = "done";
const REJECTED: &str = "PATH_REJECTED";
const DENIED: &str = "POLICY_DENIED";
const SECRET: &str = "POLICY_DENIED_SECRET";
const ASKS: &str = "APPROVAL_REQUIRED";
const BINARY: &str = "UNSUPPORTED_BINARY";

/// The content of every text file.
const OLD: &str = "old\n";
const BYTES: &[u8] = b"\0\x01binary\xff\n";

/// A rule: an existing path that it matches, a new path that it matches, and the decision.
struct Rule {
    name: &'static str,
    path: &'static str,
    fresh: Option<&'static str>,
    verdict: &'static str,
}

const fn rule(name: &'static str, path: &'static str, fresh: Option<&'static str>, verdict: &'static str) -> Rule {
    Rule { name, path, fresh, verdict }
}

const RULES: &[Rule] = &[
    rule("no rule", "w/plain.txt", Some("w/new.txt"), DONE),
    rule("secret", "w/.env", Some("w/.env.local"), SECRET),
    rule("secret in another case", "w/ID_RSA", Some("w/Server.PEM"), SECRET),
    rule("secret by a lookalike", "w/.\u{ff45}nv", Some("w/.e\u{200b}nv"), SECRET),
    rule("under a secret folder", "w/id_ed25519/x.txt", Some("w/id_ed25519/new.txt"), SECRET),
    rule("generated", "w/target/x.rs", Some("w/target/new.rs"), DENIED),
    rule("vendored", "w/node_modules/x.js", Some("w/node_modules/new.js"), DENIED),
    rule("lockfile", "w/Cargo.lock", Some("w/yarn.lock"), ASKS),
    rule("ignored", "w/x.log", Some("w/new.log"), DENIED),
    rule("binary", "w/pic.bin", None, BINARY),
    rule("git internal", "w/.git/config", Some("w/.git/new"), REJECTED),
    rule("git internal in another case", "w/.GIT/config", Some("w/.GIT/new"), REJECTED),
    rule("git internal by a lookalike", "w/.g\u{200c}it/config", Some("w/.g\u{200c}it/new"), REJECTED),
    rule("a link", "w/link.txt", None, REJECTED),
    rule("under a link", "w/folder-link/plain.txt", Some("w/folder-link/new.txt"), REJECTED),
    rule("a link to a secret", "w/innocent.txt", None, REJECTED),
    rule("several hard links", "w/hard.txt", None, DENIED),
    rule("a deny glob", "w/shut/x.txt", Some("w/shut/new.txt"), DENIED),
    rule("outside the write globs", "outside/x.txt", Some("outside/new.txt"), DENIED),
    rule("security-sensitive folder", "w/.github/workflows/ci.yml", Some("w/.github/new.yml"), ASKS),
    rule("security-sensitive file", "w/AGENTS.md", Some("w/.mcp.json"), ASKS),
    rule("build file", "w/pom.xml", Some("w/sub/Cargo.toml"), ASKS),
];

/// A name and a notation of paths.
type Notation = (&'static str, fn(&str) -> String);

const NOTATIONS: &[Notation] = &[
    ("as it is", |path| path.to_owned()),
    ("./", |path| format!("./{path}")),
    ("a/../", |path| format!("aside/../{path}")),
    ("//", |path| path.replacen('/', "//", 1)),
    ("/./", |path| path.replacen('/', "/./", 1)),
];

/// A kind of mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    Write,
    Create,
    Edit,
    Delete,
    MoveFrom,
    MoveTo,
    Patch,
    PatchCreate,
    PatchDelete,
    PatchRenameFrom,
    PatchRenameTo,
    Put,
    PutNew,
    Remove,
    Batch,
    BatchLast,
}

const MUTATIONS: &[Mutation] = &[
    Mutation::Write,
    Mutation::Create,
    Mutation::Edit,
    Mutation::Delete,
    Mutation::MoveFrom,
    Mutation::MoveTo,
    Mutation::Patch,
    Mutation::PatchCreate,
    Mutation::PatchDelete,
    Mutation::PatchRenameFrom,
    Mutation::PatchRenameTo,
    Mutation::Put,
    Mutation::PutNew,
    Mutation::Remove,
    Mutation::Batch,
    Mutation::BatchLast,
];

impl Mutation {
    /// Returns whether it creates a file.
    fn creates(self) -> bool {
        matches!(self, Self::Create | Self::MoveTo | Self::PatchCreate | Self::PatchRenameTo | Self::PutNew)
    }

    fn uses_file_routes(self) -> bool {
        matches!(self, Self::Put | Self::PutNew | Self::Remove)
    }

    async fn apply(self, run: &Run, path: &str) -> String {
        let old = sha256(if path.contains("pic.bin") { BYTES } else { OLD.as_bytes() });
        let call = async |tool: &str, input: Value| code(&run.call(tool, input).await);
        let patch = async |patch: String| code(&run.patch(&patch).await);
        let rename = |from: &str, to: &str| {
            format!("diff --git a/{from} b/{to}\nsimilarity index 100%\nrename from {from}\nrename to {to}\n")
        };
        let write = json!({"path": path, "content": "new\n", "expectedSha256": old, "reason": "r"});
        match self {
            Self::Write => call("write_file", write).await,
            Self::Create => call("write_file", json!({"path": path, "content": "new\n", "reason": "r"})).await,
            Self::Edit => {
                let edit = json!({"path": path, "oldString": "old", "newString": "new", "reason": "r"});
                call("edit_file", edit).await
            }
            Self::Delete => call("delete_file", json!({"path": path, "expectedSha256": old, "reason": "r"})).await,
            Self::MoveFrom | Self::MoveTo => {
                let (from, to) = if self == Self::MoveFrom { (path, "w/moved.txt") } else { ("w/free.txt", path) };
                call("move_file", json!({"from": from, "to": to, "expectedSha256": old, "reason": "r"})).await
            }
            Self::Patch => patch(format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-old\n+new\n")).await,
            Self::PatchCreate => patch(format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+new\n")).await,
            Self::PatchDelete => patch(format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n")).await,
            Self::PatchRenameFrom => patch(rename(path, "w/moved.txt")).await,
            Self::PatchRenameTo => patch(rename("w/free.txt", path)).await,
            Self::Put | Self::PutNew | Self::Remove => self.apply_by_file_route(run, path).await,
            Self::Batch | Self::BatchLast => {
                let free = json!({"path": "w/before.txt", "content": "b\n", "mode": "CREATE_NEW", "reason": "r"});
                let mut calls = vec![json!({"tool": "write_file", "input": write})];
                if self == Self::BatchLast {
                    calls.insert(0, json!({"tool": "write_file", "input": free}));
                }
                let body = json!({"atomic": true, "calls": calls});
                let answer = run.agent.post(&format!("/v1/runs/{}/batch", run.id), body).await.ok();
                let last = answer["results"].as_array().unwrap().last().unwrap().clone();
                if last["status"] == 200 { DONE.into() } else { last["answer"]["code"].as_str().unwrap().to_owned() }
            }
        }
    }

    async fn apply_by_file_route(self, run: &Run, path: &str) -> String {
        let mut url = reqwest::Url::parse(&run.agent.base).unwrap();
        url.path_segments_mut().unwrap().extend(["v1", "runs", &run.id, "files"]).extend(path.split('/'));
        let bytes = if path.contains("pic.bin") { BYTES } else { OLD.as_bytes() };
        let method = if self == Self::Remove { Method::DELETE } else { Method::PUT };
        let request = run.agent.request(method, url.path()).header("x-reason", "r");
        let request = match self {
            Self::PutNew => request.header("if-none-match", "*"),
            _ => request.header("if-match", format!("\"{}\"", sha256(bytes))),
        };
        code(&run.agent.send(request.body("new\n")).await)
    }
}

/// Returns `done` or the code of the refusal.
fn code(answer: &Answer) -> String {
    if answer.status < 300 && answer.status != 202 {
        return DONE.to_owned();
    }
    answer.json()["code"].as_str().unwrap_or_else(|| panic!("{}: {}", answer.what, answer.text())).to_owned()
}

/// Returns the expected decision. File routes accept binary files, and whole ones are deleted and moved.
fn verdict(rule: &Rule, mutation: Mutation) -> &'static str {
    let takes_whole_files = mutation.uses_file_routes() || matches!(mutation, Mutation::Delete | Mutation::MoveFrom);
    if rule.verdict == BINARY && takes_whole_files { DONE } else { rule.verdict }
}

/// Restores the files of the tables.
fn restore_files(run: &Run) {
    for rule in RULES {
        if !rule.path.contains("link") && rule.path != "w/innocent.txt" {
            run.put(rule.path, if rule.verdict == BINARY { BYTES } else { OLD.as_bytes() });
        }
        let fresh = rule.fresh.filter(|path| !path.contains("link"));
        for made in fresh.into_iter().chain(["w/moved.txt", "w/before.txt", "w/real/new.txt"]) {
            let _ = std::fs::remove_file(run.repo.join(made));
        }
    }
    run.put("w/real/plain.txt", OLD);
    run.put("w/free.txt", OLD);
}

/// Which rows of the tables are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combinations {
    /// Every rule with every mutation, and every rule with every notation.
    Pairs,
    /// Every rule with every mutation in every notation.
    All,
}

impl Combinations {
    /// Returns whether a mutation is tried in a notation.
    fn has(self, mutation: Mutation, notation: &str) -> bool {
        self == Self::All || notation == NOTATIONS[0].0 || matches!(mutation, Mutation::Write | Mutation::Create)
    }
}

#[rstest]
#[case::of_pairs(Combinations::Pairs, 400)]
#[case::exhaustive(Combinations::All, 1000)]
#[tokio::test]
async fn the_decision_depends_on_the_effect_and_not_on_the_tool(
    #[case] combinations: Combinations,
    #[case] least_rows: usize,
) {
    let backend = Backend::Sqlite;
    let policy = json!({"policy": {
        "write": ["w/**"], "deny": ["w/shut/**"],
        "requireApprovalIf": ["touchesLockfile", "touchesSecuritySensitivePath", "touchesBuildFile"],
        "quota": {"pendingApprovals": 10_000}, "outsideChanges": "RECORD",
    }});
    let (_server, run) = Run::shared_with(backend, &[("w/.gitignore", "*.log\n"), ("w/plain.txt", OLD)], policy).await;
    restore_files(&run);
    run.link("w/link.txt", "plain.txt");
    run.link("w/innocent.txt", ".env");
    run.link("w/folder-link", "real");
    std::fs::hard_link(run.repo.join("w/hard.txt"), run.repo.join("w/further-name.txt")).unwrap();
    let start = run.snapshot();
    let mut wrong = Vec::new();
    let mut rows = 0;
    for rule in RULES {
        for mutation in MUTATIONS {
            let path = if mutation.creates() { rule.fresh } else { Some(rule.path) };
            let Some(path) = path else { continue };
            for (name, notation) in NOTATIONS {
                // The client resolves dots in a URL.
                if (mutation.uses_file_routes() && name.contains('.')) || !combinations.has(*mutation, name) {
                    continue;
                }
                rows += 1;
                let (got, want) = (mutation.apply(&run, &notation(path)).await, verdict(rule, *mutation));
                if got != want {
                    wrong.push(format!("{}, {mutation:?}, {name}: {got}, not {want}", rule.name));
                }
                if got == DONE {
                    restore_files(&run);
                }
                if run.snapshot() != start {
                    wrong.push(format!("{}, {mutation:?}, {name}: the tree has changed", rule.name));
                    restore_files(&run);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows > least_rows, "{rows}");
}

#[rstest]
#[tokio::test]
async fn a_revert_is_judged_by_its_effect(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"requireApprovalIf": ["touchesLockfile", "deletesFile"]}});
    let (_server, run) = Run::shared_with(backend, &[("a.txt", OLD), ("yarn.lock", OLD)], policy).await;
    let undo = async |id: &str| {
        let answer = run.call("revert_calls", json!({"toolCallIds": [id], "reason": "r"})).await;
        code(&answer)
    };
    let write = async |id: &str, path: &str, old: Option<&str>| {
        let input = json!({"toolCallId": id, "path": path, "content": "new\n", "expectedSha256": old, "reason": "r"});
        run.call("write_file", input).await
    };
    for (id, path) in
        [("plain", "a.txt"), ("linked", "b.txt"), ("hard", "c.txt"), ("ignored", "d.log"), ("made", "e.txt")]
    {
        let old = (path == "a.txt").then(|| sha256(OLD));
        write(id, path, old.as_deref()).await.ok();
    }
    let asked = write("lock", "yarn.lock", Some(&sha256(OLD))).await.refused(ASKS);
    let approve = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    run.operator.post(&approve, json!({"decidedBy": "ada"})).await.ok();
    std::fs::rename(run.repo.join("b.txt"), run.repo.join("elsewhere.txt")).unwrap();
    run.link("b.txt", "elsewhere.txt");
    std::fs::hard_link(run.repo.join("c.txt"), run.repo.join("further-name.txt")).unwrap();
    run.put(".gitignore", "*.log\n");
    for (id, want) in
        [("linked", REJECTED), ("hard", DENIED), ("ignored", ASKS), ("lock", ASKS), ("made", ASKS), ("plain", DONE)]
    {
        assert_eq!(undo(id).await, want, "{id}");
    }
    assert_eq!((run.on_disk("a.txt"), run.on_disk("yarn.lock")), (OLD.into(), "new\n".into()));
}
