//! Clients that generators make of the API document, and a fuzzer that reads it, against the real server.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, client_script, clients, path_after, third_party, workspaced};

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/workspaced.json")
}

/// Runs a command, which must succeed, and returns what it printed.
async fn run(mut command: Command) -> String {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let Output { status, stdout, stderr } = output;
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{text}");
    text
}

/// Returns a command of the Python environment, which finds the others of it.
fn python(name: &str) -> Command {
    let bin = clients().join("python/bin");
    let mut command = third_party(bin.join(name));
    command.env("PATH", path_after(&bin));
    command
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_generated_typescript_client_works(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let folder = tempfile::tempdir().unwrap();
    let modules = clients().join("node/node_modules");
    std::os::unix::fs::symlink(&modules, folder.path().join("node_modules")).unwrap();
    std::fs::write(folder.path().join("package.json"), r#"{"type":"module","private":true}"#).unwrap();
    std::fs::copy(client_script("api_typescript.ts"), folder.path().join("api_typescript.ts")).unwrap();

    let mut generate = third_party(modules.join(".bin/openapi-typescript"));
    // A member with a default need not be sent.
    generate.arg(document()).args(["--default-non-nullable=false", "-o", "api.d.ts"]).current_dir(&folder);
    let said = run(generate).await.to_lowercase();
    assert!(!said.contains("warn") && !said.contains("error"), "{said}");
    let types = std::fs::read_to_string(folder.path().join("api.d.ts")).unwrap();
    assert!(!types.contains(": Record<string, never>"), "a schema has no type");

    let mut compile = third_party(modules.join(".bin/tsc"));
    compile.args(["--strict", "--exactOptionalPropertyTypes", "--target", "es2022", "--module", "nodenext"]);
    compile.args(["--types", "node", "--outDir", "out", "api_typescript.ts"]).current_dir(&folder);
    run(compile).await;
    let mut node = third_party("node");
    node.arg("out/api_typescript.js").args([&server.operator().base, &server.operator_token]).current_dir(&folder);
    assert!(run(node).await.ends_with("done\n"));
}

#[rstest]
#[case::exhaustive(Backend::Sqlite)]
#[tokio::test(flavor = "multi_thread")]
async fn the_generated_python_package_works(#[case] backend: Backend) {
    let server = Server::shared(backend).await;
    let folder = tempfile::tempdir().unwrap();
    let mut generate = python("openapi-python-client");
    generate.args(["generate", "--meta", "setup", "--fail-on-warning", "--output-path", "package", "--path"]);
    generate.arg(document()).arg("--config").arg(client_script("openapi_python_client.yaml")).current_dir(&folder);
    let said = run(generate).await.to_lowercase();
    assert!(!said.contains("warning") && !said.contains("skipping"), "{said}");

    let mut install = python("pip");
    install.args(["install", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--target"]);
    run_in(install, &folder, &["installed", "./package"]).await;
    let mut program = python("python");
    program.arg("-B").arg(client_script("api_python.py")).args([&server.operator().base, &server.operator_token]);
    program.env("PYTHONPATH", folder.path().join("installed"));
    assert!(run(program).await.ends_with("done\n"));
}

/// Generators whose clients only have to compile: those of other languages are tried by `openapi/generators/check`.
#[rstest]
#[case::exhaustive_orval("orval", &["--output", "generated/client.ts", "--client", "fetch", "--input"], "generated/client.ts")]
#[case::exhaustive_hey_api("openapi-ts", &["-o", "generated", "-c", "@hey-api/client-fetch", "--no-log-file", "-i"], "generated/index.ts")]
#[tokio::test(flavor = "multi_thread")]
async fn a_typescript_client_of_another_generator_compiles(
    #[case] generator: &str,
    #[case] arguments: &[&str],
    #[case] file: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let modules = clients().join("node/node_modules");
    std::os::unix::fs::symlink(&modules, folder.path().join("node_modules")).unwrap();
    std::fs::write(folder.path().join("package.json"), r#"{"type":"module","private":true}"#).unwrap();
    let mut generate = third_party(modules.join(".bin").join(generator));
    generate.args(arguments).arg(document()).current_dir(&folder);
    run(generate).await;
    let mut compile = third_party(modules.join(".bin/tsc"));
    compile.args(["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable"]);
    compile.args(["--module", "esnext", "--moduleResolution", "bundler", "--types", "node", file]);
    compile.current_dir(&folder);
    run(compile).await;
}

async fn run_in(mut command: Command, folder: &tempfile::TempDir, arguments: &[&str]) {
    command.args(arguments).current_dir(folder);
    run(command).await;
}

#[tokio::test]
async fn the_document_of_each_version_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    for (version, printed) in [("3.1", "3.1.0"), ("3.0", "3.0.3")] {
        let text = workspaced().args(["openapi", "--version", version]).output().unwrap().stdout;
        let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(document["openapi"], printed);
        let path = folder.path().join(version);
        std::fs::write(&path, text).unwrap();
        let mut validate = python("openapi-spec-validator");
        validate.arg(&path);
        run(validate).await;
    }
    let unknown = workspaced().args(["openapi", "--version", "2.0"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}

#[rstest]
#[case::exhaustive(Backend::Sqlite)]
#[tokio::test(flavor = "multi_thread")]
async fn a_fuzzer_finds_no_answer_that_is_not_documented(#[case] backend: Backend) {
    let server = Server::start(backend).await;
    let run_of = async |id: &str| server.run(json!({"runId": id, "policy": {"profile": "AUTONOMOUS"}})).await;
    let (fuzzed, _) = (run_of("fuzz").await, run_of("fuzz-2").await);
    let folder = tempfile::tempdir().unwrap();
    let mut fuzz = python("schemathesis");
    fuzz.arg("--config-file").arg(client_script("schemathesis.toml")).args(["run", "--no-color"]).current_dir(&folder);
    fuzz.arg(format!("{}/openapi.json", server.base)).env("SCHEMATHESIS_URL", &server.base);
    fuzz.env("SCHEMATHESIS_HOOKS", client_script("schemathesis_hooks.py"));
    fuzz.env("SCHEMATHESIS_TOKEN", &server.operator_token);
    fuzz.env("SCHEMATHESIS_RUN_TOKEN", fuzzed.agent.token.as_ref().unwrap());
    let report = run(fuzz).await;
    assert!(report.contains("Stateful") && report.contains("Fuzzing") && report.contains("Coverage"), "{report}");
}
