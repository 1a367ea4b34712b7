//! Properties over HTTP, for arbitrary paths and for patches that git generates.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Server, git, put, sha256, snapshot};

/// Generates a component of a path, valid or problematic.
fn name() -> impl Strategy<Value = String> {
    let nasty = [
        "..",
        ".",
        "",
        ".git",
        ".GIT",
        ".env",
        "target",
        "link",
        "out",
        "up",
        "a\\b",
        "x.",
        "x ",
        "\u{202e}",
        "\u{1}",
        "~",
        "*",
        "-",
        "%2e%2e",
        "..%2f",
        "\u{ff0e}\u{ff0e}",
        "\u{2024}\u{2024}",
        "...",
        " ",
        "CON",
        "a:b",
        "\u{0}",
        "é",
        "e\u{301}",
    ];
    prop_oneof![3 => "[a-c]{1,2}", 2 => prop::sample::select(nasty.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

fn path() -> impl Strategy<Value = String> {
    (prop::collection::vec(name(), 1..6), prop::bool::weighted(0.1), prop::bool::weighted(0.1)).prop_map(
        |(names, absolute, open)| {
            let lead = if absolute { "/" } else { "" };
            let tail = if open { "/" } else { "" };
            format!("{lead}{}{tail}", names.join("/"))
        },
    )
}

/// Normalizes `raw` by the rule of the contract. A second implementation, to check the service.
fn cleaned(raw: &str) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in raw.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    (!raw.starts_with('/') && !names.is_empty()).then(|| names.join("/"))
}

fn run_property<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner.run(strategy, test).unwrap_or_else(|error| panic!("{error}"));
}

#[rstest]
#[case::a_few(40)]
#[case::exhaustive(300)]
fn every_path_is_refused_or_inside_the_root(#[case] cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(Backend::Sqlite));
    // Each file that was written is removed from outside.
    let recording = json!({"policy": {"outsideChanges": "RECORD"}});
    let run = runtime.block_on(server.run_with_files(&[("a/b", "x\n"), (".env", "A=1\n")], recording));
    put(&server.home, "outside/f.txt", "outside\n");
    run.link("link", "a");
    run.link("out", server.home.join("outside").to_str().unwrap());
    run.link("up", "../../..");
    let outside = || {
        let mut all = snapshot(&server.home);
        all.retain(|path, _| !path.starts_with("data/") && path != "log");
        all
    };
    let before = outside();
    run_property(cases, &path(), |raw| {
        runtime.block_on(async {
            let diff = run.diff_sha256().await;
            let marker = format!("written to {raw:?}\n");
            let answer = run.call("write_file", json!({"path": raw, "content": marker, "reason": "r"})).await;
            if answer.status == 200 {
                let clean = cleaned(&raw).ok_or_else(|| TestCaseError::fail(format!("{raw:?} was accepted")))?;
                let written = answer.json()["path"].as_str().unwrap().to_owned();
                // A folder of an earlier path may have the other form of the same name, which is followed.
                let composed = |path: &str| path.replace("e\u{301}", "é");
                prop_assert_eq!(composed(&written), composed(&clean));
                prop_assert_eq!(&run.on_disk(&written), &marker);
                std::fs::remove_file(run.repo.join(&written)).unwrap();
            } else {
                answer.refusal();
                // A refused mutation does not change the diff.
                prop_assert_eq!(run.diff_sha256().await, diff);
            }
            let read = run.call("read_file", json!({"path": raw, "format": "raw"})).await;
            prop_assert!(!read.contains("outside"), "{} {}", raw, read.text());
            if read.status == 200 {
                prop_assert!(
                    ["x\n", &marker].contains(&read.json()["content"].as_str().unwrap()),
                    "{} {}",
                    raw,
                    read.text()
                );
            } else {
                read.refusal();
            }
            Ok(())
        })
    });
    assert_eq!(outside(), before, "a file outside the run changed");
    assert_eq!(runtime.block_on(run.verify())["intact"], true);
}

/// An edit of a text: the line, the kind, and a number that makes the new text unique.
type Edit = (usize, u8, u8);

/// Generates edits that change, remove, duplicate and add lines.
fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec((0..400_usize, 0..4_u8, any::<u8>()), 1..12)
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    for (at, what, salt) in edits {
        let at = at % lines.len().max(1);
        match what {
            0 if !lines.is_empty() => drop(lines.remove(at)),
            1 => lines.insert(at.min(lines.len()), format!("new {salt}\n")),
            2 if !lines.is_empty() => lines[at] = format!("changed {salt}\n"),
            _ if !lines.is_empty() => lines.insert(at, lines[at].clone()),
            _ => {}
        }
    }
    lines.concat()
}

async fn agrees_with_git(run: &Run, server: &Server, changes: &[(usize, Vec<Edit>)]) -> Result<(), TestCaseError> {
    let files = SOURCES;
    let folder = server.template(&files);
    git(&folder, &["init", "-q"]);
    crate::harness::commit_all(&folder, "base");
    for (which, edits) in changes {
        let (path, text) = files[which % files.len()];
        put(&folder, path, edited(text, edits));
    }
    git(&folder, &["add", "-A"]);
    let patch = git(&folder, &["diff", "--cached", "-M"]);
    let mut wanted = snapshot(&folder);
    wanted.retain(|path, _| !path.starts_with(".git"));
    let back = git(&folder, &["diff", "--cached", "-M", "-R"]);
    std::fs::remove_dir_all(&folder).unwrap();
    if patch.is_empty() {
        return Ok(());
    }
    let start = run.snapshot();
    let dry = run.call("apply_patch", json!({"patch": format!("{patch}\n"), "reason": "r", "dryRun": true})).await;
    prop_assert_eq!(dry.status, 200, "{}", dry.text());
    prop_assert_eq!(&run.snapshot(), &start);
    let done = run.call("apply_patch", json!({"patch": format!("{patch}\n"), "reason": "r"})).await;
    prop_assert_eq!(done.status, 200, "{}\n{}", done.text(), patch);
    prop_assert_eq!(run.snapshot(), wanted);
    run.patch(&format!("{back}\n")).await.ok();
    prop_assert_eq!(run.snapshot(), start);
    Ok(())
}

/// Real files of this repository.
const SOURCES: [(&str, &str); 3] = [
    ("src/record.rs", include_str!("../../../../model/src/record.rs")),
    ("src/run.rs", include_str!("../../../../model/src/run.rs")),
    ("Cargo.toml", include_str!("../../../Cargo.toml")),
];

#[rstest]
#[case::a_few(4)]
#[case::exhaustive(40)]
fn patches_of_git_give_the_same_tree_as_git_and_can_be_reverted(#[case] cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(Backend::Sqlite));
    let run = runtime.block_on(server.run_with_files(&SOURCES, json!({})));
    let changes = prop::collection::vec((0..SOURCES.len(), edits()), 1..3);
    run_property(cases, &changes, |changes| runtime.block_on(agrees_with_git(&run, &server, &changes)));
    assert_eq!(runtime.block_on(run.diff_sha256()), sha256(""));
}
