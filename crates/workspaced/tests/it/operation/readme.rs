//! The README's tour, run as it stands there, against a real server.

use std::process::Command;

use rstest::rstest;

use crate::harness::{Backend, Server};

fn readme() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap()
}

/// The `sh` blocks below the tour's headline, in order, as one script.
fn tour() -> String {
    let readme = readme();
    let tour = readme.split("\n## A tour").nth(1).expect("the tour").split("\n## ").next().unwrap().to_owned();
    let blocks: Vec<&str> = tour.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    assert!(blocks.len() >= 4, "the tour has {} blocks", blocks.len());
    blocks.join("\n")
}

#[rstest]
#[tokio::test]
async fn the_tour_runs_as_pasted_and_ends_with_its_own_intact_audit(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(tour()).current_dir(&server.home).env_clear();
    shell
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("WORKSPACED_URL", &server.base)
        .env("OPERATOR", &server.operator_token);
    let done = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
    let (printed, complained) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{printed}\n{complained}");
    assert_eq!(complained, "", "the tour complains");
    let told = format!("{printed}\n{complained}");
    for needle in
        ["PATH_REJECTED", "POLICY_DENIED_SECRET", "WRITE_CONFLICT", "apply_patch", "search_text", "read_file", "+"]
    {
        assert!(told.contains(needle), "the tour does not show {needle}: {told}");
    }
    assert!(printed.trim_end().lines().last().unwrap().contains("\"intact\":true"), "{printed}");
}

#[test]
fn the_tour_needs_nothing_but_a_shell_and_curl() {
    for line in tour().lines() {
        for tool in ["jq", "python", "perl", "openssl", "bash"] {
            assert!(!line.split(|c: char| !c.is_alphanumeric()).any(|word| word == tool), "{tool}: {line}");
        }
    }
}

#[test]
fn the_readme_holds_what_a_newcomer_needs() {
    let readme = readme();
    for needle in
        ["deploy/quickstart", ".ci/test", "```mermaid", "--listen", "WORKSPACED_IMPORT_ROOTS", "WORKSPACED_AUDIT_TOKEN"]
    {
        assert!(readme.contains(needle), "{needle}");
    }
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for document in ["README.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap();
            if !target.is_empty() && !target.contains("://") {
                assert!(root.join(target).exists(), "{document} leads to {target}, which is not there");
            }
        }
    }
}

#[test]
fn every_setting_of_the_help_is_in_the_readme() {
    let help = crate::harness::workspaced().args(["serve", "--help"]).output().unwrap();
    let (help, readme) = (String::from_utf8(help.stdout).unwrap(), readme());
    let mut flags = 0;
    for word in help.split(|c: char| !c.is_ascii_lowercase() && c != '-').filter(|word| word.starts_with("--")) {
        assert!(word == "--help" || readme.contains(word), "{word} is not in the README");
        flags += 1;
    }
    assert!(flags > 5);
}
