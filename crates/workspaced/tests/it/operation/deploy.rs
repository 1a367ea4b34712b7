//! Deployment files: every path in the Dockerfile and the compose file exists, and every setting is valid.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::workspaced;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns whether `.dockerignore`, which lists the included paths, includes `path`.
fn is_in_context(path: &str) -> bool {
    let rules = read(".dockerignore");
    let first = path.trim_start_matches("./").split('/').next().unwrap().to_owned();
    rules.lines().any(|rule| rule == format!("!{first}"))
}

#[test]
fn every_path_that_the_image_copies_exists_in_the_build_context() {
    let mut copied = 0;
    for line in read("deploy/Dockerfile").lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from="))
    {
        let mut words: Vec<&str> = line.split_whitespace().skip(1).filter(|word| !word.starts_with("--")).collect();
        words.pop();
        for word in words {
            assert!(root().join(word).exists(), "{word} does not exist");
            assert!(is_in_context(word), "{word} is excluded by .dockerignore");
            copied += 1;
        }
    }
    assert!(copied >= 3);
}

#[test]
fn the_build_context_contains_everything_that_the_build_reads() {
    // `include_str!` and similar macros read files outside the crates.
    for folder in ["Cargo.toml", "Cargo.lock", "crates", "migrations"] {
        assert!(is_in_context(folder), "{folder}");
    }
    let recipe = read("deploy/Dockerfile");
    for needle in ["cargo build --release --locked", "USER ", "HEALTHCHECK", "git", "VOLUME", "EXPOSE"] {
        assert!(recipe.contains(needle), "{needle}");
    }
    assert!(!recipe.lines().any(|line| line.trim() == "USER root" || line.trim() == "USER 0"));
}

#[test]
fn every_deployed_setting_exists() {
    let help = workspaced().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let tokens = ["WORKSPACED_OPERATOR_TOKEN", "WORKSPACED_AUDIT_TOKEN"];
    let mut count = 0;
    for file in ["deploy/Dockerfile", "docker-compose.yml"] {
        for word in read(file)
            .split(|c: char| !c.is_ascii_uppercase() && c != '_')
            .filter(|word| word.starts_with("WORKSPACED_"))
        {
            assert!(help.contains(word) || tokens.contains(&word), "{file}: {word} is not a setting");
            count += 1;
        }
    }
    assert!(count >= 4);
}

#[test]
fn every_path_in_the_compose_file_exists() {
    let composition = read("docker-compose.yml");
    for line in composition.lines() {
        let line = line.trim().trim_start_matches("- ");
        for key in ["context:", "dockerfile:", "env_file:"] {
            if let Some(path) = line.strip_prefix(key) {
                assert!(root().join(path.trim()).exists(), "{path}");
            }
        }
        if line.starts_with("./") {
            let path = line.split(':').next().unwrap();
            assert!(root().join(path).exists(), "{path}");
        }
    }
    for needle in
        ["postgres", "healthcheck:", "condition: service_healthy", "volumes:", "${WORKSPACED_OPERATOR_TOKEN:?"]
    {
        assert!(composition.contains(needle), "{needle}");
    }
}

#[test]
fn the_compose_file_is_valid() {
    let client = Command::new("docker").args(["compose", "version"]).output();
    if !client.is_ok_and(|client| client.status.success()) {
        println!("SKIPPED: docker compose is not installed");
        return;
    }
    let checked = Command::new("docker")
        .args(["compose", "config", "--quiet"])
        .current_dir(root())
        .env("WORKSPACED_OPERATOR_TOKEN", "x".repeat(43))
        .env("WORKSPACED_AUDIT_TOKEN", "y".repeat(43))
        .env("POSTGRES_PASSWORD", "z")
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
