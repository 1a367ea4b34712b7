//! README's commands, program and examples, run and compared with a real server.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Server, Setup};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).unwrap()
}

/// The blocks of README in this language, in order.
fn blocks(language: &str) -> Vec<String> {
    let (readme, start) = (readme(), format!("\n```{language}\n"));
    readme.split(&start).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// Runs a program that must succeed without a complaint. Returns its output.
async fn run(mut command: Command, server: &Server, environment: &[(&str, &OsStr)]) -> String {
    command.current_dir(&server.home).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("WORKSPACED_URL", &server.base).envs(environment.iter().copied());
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (output, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && errors.is_empty(), "{}\n{output}\n{errors}", done.status);
    output.into_owned()
}

#[rstest]
#[tokio::test]
async fn the_commands_run_as_pasted_and_end_with_an_intact_chain(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let (repository, _) = server.repository(&[("README.md", "# Greetings\n")]);
    let mut shell = Command::new("sh");
    // Refusals are on standard error. The program is the one under test, not one that was built as README says.
    let program = Path::new(env!("CARGO_BIN_EXE_workspaced")).parent().unwrap().display().to_string();
    shell.arg("-c").arg(format!("exec 2>&1\n{}", blocks("sh").join("\n").replace("$PWD/target/release", &program)));
    let environment = [("OPERATOR", server.operator_token.as_ref()), ("REPO", repository.as_os_str())];
    let output = run(shell, &server, &environment).await;
    for needle in [
        "PATH_REJECTED: ",
        "POLICY_DENIED_SECRET: ",
        "WRITE_CONFLICT: ",
        "ok       apply_patch     src/greet.sh \"greet everyone\" (run-token:",
        "  2: echo hello $name\n",
        "\n+name=${1:-world}\n",
        "\n- Verified: chain intact up to record ",
        "\nchanged:\n  greeting.txt\ndenied, and not changed in the run:\n  .env (kind:SECRET_LIKE)\n",
    ] {
        assert!(output.contains(needle), "no {needle}: {output}");
    }
}

#[tokio::test]
async fn the_service_starts_as_written_and_imports_the_folder_that_it_was_started_in() {
    let commands = blocks("text");
    let arguments =
        commands[0].lines().next().and_then(|line| line.split('#').next()?.strip_prefix("deploy/quickstart"));
    let mut server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let (repository, _) = server.repository(&[("README.md", "# Greetings\n")]);
    let mut start = Command::new("sh");
    start.arg("-c").arg(format!("exec \"$0\" serve --listen 127.0.0.1:0 {}", arguments.unwrap()));
    start.arg(env!("CARGO_BIN_EXE_workspaced")).current_dir(&repository).env_clear();
    start.env("PATH", std::env::var_os("PATH").unwrap()).env("WORKSPACED_OPERATOR_TOKEN", &server.operator_token);
    server.start_as(start);
    let imported = server.run(json!({"source": {"type": "git", "url": repository}})).await;
    assert_eq!(imported.ok("list_dir", json!({})).await["entries"][0]["path"], "README.md");
}

#[test]
fn the_commands_need_only_a_shell_and_the_program() {
    let commands = blocks("sh");
    assert!(commands.len() >= 4, "README has {} blocks of commands", commands.len());
    for line in commands.iter().flat_map(|block| block.lines()) {
        for tool in ["jq", "python", "perl", "openssl", "bash", "curl", "sed"] {
            assert!(!line.split(|c: char| !c.is_alphanumeric()).any(|word| word == tool), "{tool}: {line}");
        }
    }
}

#[rstest]
#[tokio::test]
async fn the_python_loop_offers_every_tool_to_a_model_and_survives_a_refusal(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let agent_run = server.run(json!({})).await;
    let catalogue = agent_run.agent.get("/v1/tools").await.ok();
    let count = catalogue["items"].as_array().unwrap().len();
    assert!(readme().contains(&format!("through {count} tools")), "README does not say that there are {count} tools");

    let [program] = &blocks("python")[..] else { panic!("README has not exactly one Python program") };
    let shown = "print(len(tools), tools[0]['function']['parameters']['type'])";
    let mut python = Command::new("python3");
    python.arg("-c").arg(format!("{program}\n{shown}\n"));
    let token = agent_run.created["token"]["token"].as_str().unwrap();
    let output = run(python, &server, &[("RUN", agent_run.id.as_ref()), ("TOKEN", token.as_ref())]).await;
    let expected = format!(
        "list_dir ok\nwrite_file POLICY_DENIED_SECRET\nwrite_file ok\n\
         CHANGES.md is written; .env may not be changed.\n{count} object\n"
    );
    assert_eq!(output, expected);

    assert_eq!(agent_run.on_disk("CHANGES.md"), "# Changes\n");
    let records = agent_run.calls().await;
    let calls: Vec<_> = records.iter().map(|record| record["toolCallId"].as_str().unwrap()).collect();
    assert_eq!(calls, ["call-list_dir-.", "call-write_file-.env", "call-write_file-CHANGES.md"]);
}

/// Members that differ in each run: only their type is compared.
const VARIABLE: [&str; 5] = ["durationMicros", "hash", "headHash", "prevHash", "timestamp"];

/// Compares an example with a real value. A string that ends in `…` is compared up to there.
fn assert_same(path: &str, example: &Value, real: &Value) {
    match (example, real) {
        (Value::Object(example), Value::Object(real)) => {
            assert_eq!(example.keys().collect::<Vec<_>>(), real.keys().collect::<Vec<_>>(), "the members of {path}");
            for (name, value) in example.iter().filter(|(name, _)| !VARIABLE.contains(&name.as_str())) {
                assert_same(&format!("{path}.{name}"), value, &real[name]);
            }
            for (name, value) in example.iter().filter(|(name, _)| VARIABLE.contains(&name.as_str())) {
                assert_eq!(
                    (value.is_string(), value.is_u64()),
                    (real[name].is_string(), real[name].is_u64()),
                    "{name}"
                );
            }
        }
        (Value::Array(example), Value::Array(real)) => {
            assert_eq!(example.len(), real.len(), "the length of {path}");
            for (index, (example, real)) in example.iter().zip(real).enumerate() {
                assert_same(&format!("{path}[{index}]"), example, real);
            }
        }
        (Value::String(example), Value::String(real)) => match example.strip_suffix('…') {
            Some(start) => assert!(real.starts_with(start) && real.len() > start.len(), "{path}: {real}"),
            None => assert_eq!(example, real, "{path}"),
        },
        _ => assert_eq!(example, real, "{path}"),
    }
}

#[rstest]
#[tokio::test]
async fn the_record_the_refusal_and_the_event_are_those_of_a_server(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, agent_run) = crate::harness::Run::shared(backend, &[]).await;
    let [record, refusal, event] = &blocks("json")[..] else { panic!("README has not exactly three JSON examples") };
    let input = json!({"path": "src/greet.sh", "content": "name=$1\necho hello $name\n", "reason": "start the tour"});
    agent_run.ok("write_file", input).await;
    assert_same("record", &serde_json::from_str(record).unwrap(), &agent_run.last_record().await);
    let input = json!({"path": ".env", "content": "PASSWORD=x\n", "reason": "store the password"});
    let refused = agent_run.call("write_file", input).await.is(403);
    assert_same("refusal", &serde_json::from_str(refusal).unwrap(), &refused);
    let event = serde_json::from_str(event).unwrap();
    agent_run.operator.post(&format!("/v1/runs/{}/events", agent_run.id), event).await.is(201);
}

#[test]
fn the_readme_has_what_a_newcomer_needs_on_one_page() {
    let readme = readme();
    for needle in ["deploy/quickstart", ".ci/test", "It runs no commands", "--import-root", "deploy/configuration.md"] {
        assert!(readme.contains(needle), "{needle}");
    }
    let parts = ["](deploy/dashboard.png)", "docker run ", "```mermaid", "## Quick start", "## Figures"];
    let places = parts.map(|part| readme.find(part).unwrap());
    assert!(places.is_sorted(), "the parts are in another order");
    let figures = places[4];
    let figures: Vec<_> = readme[figures..].lines().skip(1).take_while(|line| !line.starts_with("## ")).collect();
    assert_eq!(figures.iter().filter(|line| line.starts_with("- ")).count(), 5, "{figures:?}");
    assert!(figures.iter().any(|line| line.contains("](crates/bench/README.md)")));
    assert!(readme.lines().count() < 220, "README has {} lines", readme.lines().count());
}

/// The anchor of a heading, as forges derive it.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_of_a_document_leads_to_a_file_and_a_heading() {
    let mut links = 0;
    for folder in ["", "deploy", "deploy/operations", "openapi", "crates", "crates/bench", "crates/fuzz"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let document = entry.unwrap().path();
            if document.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&document).unwrap();
            for rest in text.split("](").skip(1) {
                let link = rest.split(')').next().unwrap();
                let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
                if target.contains("://") {
                    continue;
                }
                let file = if target.is_empty() { document.clone() } else { document.parent().unwrap().join(target) };
                assert!(file.exists(), "{} links to {target}, which does not exist", document.display());
                if !anchor.is_empty() {
                    let page = std::fs::read_to_string(&file).unwrap();
                    let mut headings = page.lines().filter(|line| line.starts_with('#')).map(anchor_of);
                    assert!(headings.any(|heading| heading == anchor), "{}: no heading is {link}", document.display());
                }
                links += 1;
            }
        }
    }
    assert!(links > 10, "only {links} links were found");
}
