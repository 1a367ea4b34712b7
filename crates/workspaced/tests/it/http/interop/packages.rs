//! The packages in `openapi/clients`: their tests against the server, their types, and their installation.

use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;

use crate::harness::{Backend, Receiver, Server, Setup, client_python, clients, path_after, put, shim, third_party};

const CALC: [(&str, &str); 2] = [
    ("calc.py", "def add(a, b):\n    return a - b\n"),
    (
        "test_calc.py",
        "import unittest\n\nfrom calc import add\n\n\nclass Add(unittest.TestCase):\n    \
         def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n",
    ),
];

fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/clients").canonicalize().unwrap()
}

/// The interpreter, which finds the package.
fn python() -> Command {
    let mut python = client_python();
    python.env("PYTHONPATH", packages().join("python/src"));
    python
}

/// The folders of the packages that `.ci/test` has installed, the first before the others: `next` has later majors of some.
fn modules(is_next: bool) -> Vec<PathBuf> {
    let names: &[&str] = if is_next { &["next", "node"] } else { &["node"] };
    names.iter().map(|name| clients().join(name).join("node_modules")).collect()
}

/// Compiles with the settings in `config`, which find the packages of `modules`.
fn tsc(folder: &Path, mut config: serde_json::Value, is_next: bool) -> Command {
    let paths: Vec<_> = modules(is_next).iter().map(|folder| folder.join("*")).collect();
    config["compilerOptions"]["paths"]["*"] = serde_json::json!(paths);
    std::fs::write(folder.join("tsconfig.json"), config.to_string()).unwrap();
    let mut tsc = third_party("node");
    tsc.arg(clients().join("node/node_modules/typescript/bin/tsc")).arg("-p").arg(folder);
    tsc
}

/// Runs a command that must succeed.
async fn run(mut command: Command) {
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (output, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{}\n{output}\n{errors}", done.status);
}

/// Starts a server with a webhook, `hook`.
async fn start(backend: Backend) -> (Server, Receiver) {
    let receiver = Receiver::start().await;
    let mut server = Server::prepare(Setup::new(backend)).await;
    put(&server.home, "secret", "whsec_bmV3LXNlY3JldC1vZi0zMi1ieXRlcy0wMTIzNDU2Nzg=");
    let secret = server.home.join("secret");
    let (url, secret) = (&receiver.url, secret.display());
    put(
        &server.home,
        "config.toml",
        format!("[[webhook]]\nname = \"hook\"\nurl = \"{url}\"\nsecret_file = \"{secret}\"\n"),
    );
    let config = server.home.join("config.toml");
    server.setup = server.setup.clone().arg("--config", config.display());
    server.restart();
    (server, receiver)
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_python_package_passes_its_tests(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, _receiver) = start(backend).await;
    let (repository, _) = server.repository(&CALC);
    let mut tests = python();
    tests.env("WEBHOOK", "hook");
    tests.args(["-m", "unittest", "discover", "-s", "tests"]).current_dir(packages().join("python"));
    tests.env("WORKSPACED_URL", &server.base).env("OPERATOR", &server.operator_token).env("REPO", repository);
    tests.env("WORKSPACED_SHIM", shim()).env("WORKSPACED_BIN", env!("CARGO_BIN_EXE_workspaced"));
    run(tests).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_package_passes_its_tests(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, _receiver) = start(backend).await;
    let mut tests = third_party("node");
    tests.env("WEBHOOK", "hook").arg("--test");
    tests.args(["client", "checkout"].map(|name| packages().join(format!("typescript/tests/{name}.test.mjs"))));
    tests.env("WORKSPACED_URL", &server.base).env("OPERATOR", &server.operator_token);
    tests.env("WORKSPACED_CLIENT", packages().join("typescript/dist/index.js")).env("WORKSPACED_SHIM", shim());
    run(tests).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_types_are_those_of_the_api_document() {
    let mut check = python();
    check.arg(packages().join("generate_types.py")).arg("--check");
    run(check).await;
    let mut mypy = python();
    mypy.args(["-m", "mypy", "--strict", "src/workspaced", "tests", "examples", "--cache-dir"]);
    mypy.arg(clients().join("mypy")).current_dir(packages().join("python")).env("MYPYPATH", "src:tests");
    run(mypy).await;
}

/// The packages start the shim as the Rust client does, and look into the same folders.
#[tokio::test(flavor = "multi_thread")]
async fn the_packages_know_the_same_scripts_and_folders_as_the_client() {
    let scripts = packages().join("../../crates/client/src/folders");
    let [start, install] = ["start.sh", "install.sh"].map(|name| std::fs::read_to_string(scripts.join(name)).unwrap());
    let folders: Vec<_> = model::FileKind::filled_folders().collect();
    let expected = serde_json::json!([start.trim_end(), install.trim_end(), folders]);
    let mut of_python = python();
    of_python
        .args(["-c", "import json; from workspaced.shim import *; print(json.dumps([START, INSTALL, BUILD_OUTPUT]))"]);
    let shim = packages().join("typescript/dist/shim.js");
    let mut of_typescript = third_party("node");
    of_typescript.args(["--input-type=module", "-e"]).arg(format!(
        "import {{ START, INSTALL, BUILD_OUTPUT }} from {shim:?}; console.log(JSON.stringify([START, INSTALL, BUILD_OUTPUT]))"
    ));
    for mut command in [of_python, of_typescript] {
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let found: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(found, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_built_files_are_those_of_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let (built, package) = (folder.path().join("dist"), packages().join("typescript"));
    let config = serde_json::json!({
        "extends": package.join("tsconfig.json"), "include": [package.join("src")], "compilerOptions": {"outDir": built},
    });
    run(tsc(folder.path(), config, false)).await;
    let mut compare = Command::new("diff");
    compare.arg("-r").arg(built).arg(package.join("dist"));
    run(compare).await;
}

/// The adapters take two majors of some packages: each is the other's successor, and both are in use.
#[rstest]
#[case::that_are_tested(false)]
#[case::exhaustive_that_came_next(true)]
#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_adapters_take_the_packages_of_models(#[case] is_next: bool) {
    let server = Server::shared(Backend::Sqlite).await;
    let mut tests = third_party("node");
    tests.arg("--test").arg(packages().join("typescript/tests/adapters.test.mjs"));
    tests.env("MODULES", std::env::join_paths(modules(is_next)).unwrap());
    tests.env("WORKSPACED_URL", &server.operator().base).env("OPERATOR", &server.operator_token);
    run(tests).await;
    let folder = tempfile::tempdir().unwrap();
    let (modules, package) = (clients().join("node/node_modules"), packages().join("typescript"));
    let options = serde_json::json!({
        "strict": true, "exactOptionalPropertyTypes": true, "noUncheckedIndexedAccess": true, "skipLibCheck": true,
        "noEmit": true, "target": "es2022", "module": "esnext", "moduleResolution": "bundler",
        "lib": ["es2022", "dom", "dom.iterable"], "types": ["node"], "typeRoots": [modules.join("@types")],
        "paths": {"workspaced-client": [package.join("dist/index.d.ts")], "workspaced-client/*": [package.join("dist/*")]},
    });
    let config = serde_json::json!({"compilerOptions": options, "files": [package.join("examples/models.ts")]});
    run(tsc(folder.path(), config, is_next)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_packages_install_from_the_repository_without_a_registry() {
    let folder = tempfile::tempdir().unwrap();
    let mut pip = python();
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]);
    pip.args(["--no-build-isolation", "--target"]).arg(folder.path().join("python")).arg(packages().join("python"));
    run(pip).await;
    let mut import = python();
    import.env("PYTHONPATH", folder.path().join("python")).current_dir(folder.path());
    import.args([
        "-c",
        "import workspaced, pathlib; assert pathlib.Path(workspaced.__file__).with_name('py.typed').exists()",
    ]);
    run(import).await;

    std::fs::write(folder.path().join("package.json"), r#"{"private":true,"type":"module"}"#).unwrap();
    let mut npm = third_party("npm");
    npm.args(["pack", "--silent"]).arg(packages().join("typescript")).current_dir(folder.path());
    run(npm).await;
    let packed = format!("./workspaced-client-{}.tgz", env!("CARGO_PKG_VERSION"));
    let mut npm = third_party("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--offline", &packed]).current_dir(folder.path());
    run(npm).await;
    let mut import = third_party("node");
    import.args(["-e", "import('workspaced-client').then(({ Client }) => new Client('http://127.0.0.1', 'token'))"]);
    import.current_dir(folder.path());
    run(import).await;
}

/// The packages are built, installed into an empty folder for each example, and find there what README's command installs, and no more.
#[rstest]
#[case::python("python")]
#[case::typescript("typescript")]
#[tokio::test(flavor = "multi_thread")]
async fn each_example_of_readme_runs_with_what_its_command_installs(#[case] language: &str) {
    let server = Server::shared(Backend::Sqlite).await;
    let mut examples = client_python();
    examples.arg(packages().join("try_packages.py")).arg("--offline").arg(clients().join("node/node_modules"));
    examples.arg(language).env("WORKSPACED_URL", &server.operator().base).env("OPERATOR", &server.operator_token);
    // One of them starts a runner.
    let program = Path::new(env!("CARGO_BIN_EXE_workspaced")).parent().unwrap();
    examples.env("PATH", path_after(program)).env("WORKSPACED_SHIM", shim());
    run(examples).await;
}
