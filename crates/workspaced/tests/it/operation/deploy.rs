//! Deployment files: every path in them exists, every setting is valid, and the tools that read them accept them.

mod nodes;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, Setup, workspaced};

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
    for needle in [
        "cargo build --profile dist --locked",
        "--features otlp,object-store",
        "USER ",
        "HEALTHCHECK",
        "git",
        "VOLUME",
        "EXPOSE",
    ] {
        assert!(recipe.contains(needle), "{needle}");
    }
    assert!(!recipe.lines().any(|line| line.trim() == "USER root" || line.trim() == "USER 0"));
}

#[test]
fn every_deployed_setting_exists() {
    let help = workspaced().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let others = ["WORKSPACED_OPERATOR_TOKEN_FILE", "WORKSPACED_AUDIT_TOKEN_FILE"];
    let mut count = 0;
    let of_proxy = read(nodes::CADDYFILE);
    for file in [
        "deploy/Dockerfile",
        "docker-compose.yml",
        nodes::COMPOSE,
        "deploy/kubernetes.yaml",
        nodes::MANIFESTS,
        "deploy/workspaced.service",
    ] {
        for word in read(file)
            .split(|c: char| !c.is_ascii_uppercase() && c != '_')
            // `WORKSPACED_…` is any setting.
            .filter(|word| word.starts_with("WORKSPACED_") && *word != "WORKSPACED_")
        {
            let is_setting = help.contains(&format!("[env: {word}="))
                || others.contains(&word)
                || file == nodes::COMPOSE && of_proxy.contains(&format!("{{${word}:"));
            assert!(is_setting, "{file}: {word} is not a setting");
            count += 1;
        }
    }
    assert!(count >= 12);
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
    for needle in [
        "healthcheck:",
        "condition: service_healthy",
        "condition: service_completed_successfully",
        "checkpoint-key:/var/lib/workspaced-key",
        "checkpoint-log:/var/lib/workspaced-checkpoints",
        "WORKSPACED_DATABASE_URL_FILE: /run/secrets/service-url",
        "read_only: true",
    ] {
        assert!(composition.contains(needle), "{needle}");
    }
}

#[test]
fn the_secrets_of_the_compose_file_are_those_that_the_script_generates() {
    let folder = tempfile::tempdir().unwrap();
    let generate = || {
        let done = Command::new(root().join("deploy/secrets")).arg(folder.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut found: Vec<(String, String)> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap()))
            .collect();
        found.sort();
        found
    };
    let generated = generate();
    assert_eq!(generate(), generated, "secrets that exist are kept");
    let compositions = [read("docker-compose.yml"), read(nodes::COMPOSE)];
    let secret_of = |line: &str| {
        let path = line.trim().strip_prefix("file: ").or_else(|| line.trim().strip_prefix("env_file: "))?;
        path.trim_start_matches("../..").trim_start_matches('.').strip_prefix("/secrets/").map(str::to_owned)
    };
    let named: std::collections::BTreeSet<String> =
        compositions.iter().flat_map(|composition| composition.lines().filter_map(secret_of)).collect();
    assert_eq!(named, generated.iter().map(|(name, _)| name.clone()).collect());
    let of = |name: &str| generated.iter().find(|(other, _)| other == name).unwrap().1.trim().to_owned();
    assert!(of("service-url").contains(&format!("://workspaced:{}@", of("service-password"))));
    assert!(of("owner-url").contains(&format!("://workspaced_owner:{}@", of("owner-password"))));
    let variables =
        |name: &str| of(name).lines().map(|line| line.split_once('=').unwrap().1.to_owned()).collect::<Vec<_>>();
    assert_eq!(variables("bucket.env"), variables("object-store.env")[..2], "the store has the key of the nodes");
}

#[rstest]
#[tokio::test]
async fn secrets_are_taken_from_files(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let url = server.database.url.clone();
    let (operator, audit) = (server.operator_token.clone(), server.audit_token.clone());
    for (name, secret) in [
        ("WORKSPACED_OPERATOR_TOKEN", format!("{operator}\n")),
        ("WORKSPACED_AUDIT_TOKEN", format!("{audit}\r\n")),
        ("WORKSPACED_DATABASE_URL", url),
    ] {
        let file = server.home.join(name);
        std::fs::write(&file, secret).unwrap();
        // An empty variable counts as unset.
        server.setup = server.setup.clone().env(name, "").env(&format!("{name}_FILE"), file.to_str().unwrap());
    }
    let key = server.home.join("keys");
    std::fs::create_dir(&key).unwrap();
    let key = key.join("signing.key");
    server.setup = server.setup.clone().env("WORKSPACED_CHECKPOINT_KEY_FILE", key.to_str().unwrap());
    server.restart();
    server.run(json!({"runId": "r"})).await;
    server.auditor().get("/v1/runs/r").await.is(200);
    let verifier_key = server.auditor().get("/v1/checkpoint/key").await.text();
    assert!(server.stop().success());
    assert!(!server.data_dir().join("checkpoint.key").exists(), "the key is in its own folder");
    let verified = server.verify(&[]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o400)).unwrap();
    server.restart();
    server.auditor().get("/v1/runs/r").await.is(200);
    assert_eq!(server.auditor().get("/v1/checkpoint/key").await.text(), verifier_key);
}

#[rstest]
#[case::missing("WORKSPACED_OPERATOR_TOKEN_FILE", None, "WORKSPACED_OPERATOR_TOKEN_FILE `")]
#[case::empty("WORKSPACED_AUDIT_TOKEN_FILE", Some("\n"), "the file is empty")]
#[case::large("WORKSPACED_DATABASE_URL_FILE", Some(&*"x".repeat(16_385)), "larger than 16384 bytes")]
#[case::weak("WORKSPACED_OPERATOR_TOKEN_FILE", Some("short"), "too easy to guess")]
#[case::scheme("WORKSPACED_DATABASE_URL_FILE", Some("mysql://secret"), "expected `sqlite://")]
#[test]
fn a_secret_file_that_cannot_be_used_ends_the_start(
    #[case] name: &str,
    #[case] content: Option<&str>,
    #[case] needle: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    if let Some(content) = content {
        std::fs::write(&file, content).unwrap();
    }
    let start = |more: &[(&str, &str)]| {
        let mut command = workspaced();
        command.arg("serve").env("WORKSPACED_DATA_DIR", folder.path().join("data")).env(name, &file);
        let done = command.envs(more.iter().copied()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, message) = start(&[]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains(needle) && !message.contains("mysql"), "{message}");
    let (code, message) = start(&[(name.trim_end_matches("_FILE"), "sqlite://x")]);
    assert!(code == Some(2) && message.contains("are both set"), "{message}");
}

#[test]
fn the_compose_file_is_valid() {
    let client = Command::new("docker").args(["compose", "version"]).output();
    if !client.is_ok_and(|client| client.status.success()) {
        println!("SKIPPED: docker compose is not installed");
        return;
    }
    let checked = Command::new("docker").args(["compose", "config", "--quiet"]).current_dir(root()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Both make systemd answer `openat2` with ENOSYS; the second implies the first. `deploy/try` starts the unit under systemd.
#[test]
fn the_unit_leaves_the_system_call_that_the_path_guard_needs() {
    let unit = read("deploy/workspaced.service");
    for setting in ["RestrictSUIDSGID=", "DynamicUser="] {
        assert!(!unit.lines().any(|line| line.starts_with(setting)), "{setting}");
    }
}

#[test]
fn systemd_finds_the_unit_hardly_exposed() {
    let analysed = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "deploy/workspaced.service"])
        .current_dir(root())
        .output();
    let Ok(analysed) = analysed else {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&analysed.stdout).into_owned();
    let Some((_, computed)) = text.split_once("exposure level for workspaced.service: ") else {
        println!("SKIPPED: systemd-analyze cannot analyse files: {}", String::from_utf8_lossy(&analysed.stderr));
        return;
    };
    // The unit says 1.2, and versions of systemd differ in what they count. Without its settings it is 9.6.
    let exposure: f64 = computed.split_whitespace().next().unwrap().parse().unwrap();
    assert!(exposure < 2.5, "{text}");
}
