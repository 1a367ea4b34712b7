//! The dashboard: its files and headers, and its pages in a browser, while a scripted agent works.

mod long_run;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use reqwest::{Method, header};
use rstest::rstest;
use serde_json::json;

use crate::audit::checkpoints::signing_at_shutdown;
use crate::audit::key_changes::{public, replace_key, secret_of, sign_another};
use crate::harness::{Backend, Server, Setup, sha256};
use crate::http::sign_in;
use crate::operation::nodes;

const PAGES: [&str; 8] = ["/", "/runs", "/runs/r1", "/runs/r1/calls/3", "/approvals", "/audit", "/nodes", "/about"];

#[tokio::test]
async fn its_pages_need_no_token_and_load_only_files_of_the_service() {
    let server = Server::shared(Backend::Sqlite).await;
    let nobody = server.nobody();
    let index = nobody.get("/").await;
    let text = index.text();
    for page in PAGES {
        let answer = nobody.get(page).await;
        assert_eq!((answer.status, answer.text()), (200, text.clone()), "{page}");
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{page}: {policy}");
        assert!(!policy.contains("unsafe"), "{page}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
    let assets: Vec<_> = text.split('"').filter(|part| part.starts_with("/assets/")).collect();
    let docs = nobody.get("/docs/").await;
    assert_eq!((docs.status, docs.header("cache-control")), (200, "no-cache"));
    assert_eq!(docs.header("content-security-policy"), index.header("content-security-policy"));
    let documentation = docs.text();
    let both = assets.iter().copied().chain(documentation.split('"').filter(|part| part.starts_with("/assets/")));
    for kind in [".js", ".css"] {
        for page in [&text, &documentation] {
            assert!(page.contains(&format!("{kind}\"")), "{kind}: {page}");
        }
    }
    for asset in both {
        let answer = nobody.get(asset).await;
        assert_eq!(answer.header("cache-control"), "public, max-age=31536000, immutable", "{asset}");
        let etag = answer.header("etag").to_owned();
        let again = nobody.send(nobody.request(Method::GET, asset).header(header::IF_NONE_MATCH, etag)).await;
        assert_eq!(again.status, 304, "{asset}");
    }
}

#[tokio::test]
async fn other_paths_stay_as_they_are() {
    let server = Server::shared(Backend::Sqlite).await;
    let nobody = server.nobody();
    for path in ["/v1", "/v1/none", "/none", "/assets/none.js", "/assets/..%2findex.html", "/runs2", "/approvals/x"] {
        nobody.get(path).await.refused("NOT_FOUND");
    }
    let posted = nobody.send(nobody.request(Method::POST, "/runs")).await;
    assert_eq!(posted.status, 405);
    nobody.get("/v1/runs").await.refused("UNAUTHENTICATED");
}

#[rstest]
#[tokio::test]
async fn every_operator_may_ask_who_it_is(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    for scopes in [["approve"].as_slice(), &["audit"], &["metrics"], &["audit", "approve"]] {
        let (name, client) = server.named_operator("who", scopes).await;
        let own = client.get("/v1/operators/self").await.is(200);
        let mut sorted = scopes.to_vec();
        sorted.sort_unstable();
        assert_eq!(own, json!({ "name": name, "scopes": sorted }));
        client.get(&format!("/v1/operators/{name}")).await.refused("NOT_FOUND");
        server.revoke_operator(&name).await;
        client.get("/v1/operators/self").await.refused("UNAUTHENTICATED");
    }
    let run = server.run(json!({})).await;
    run.agent.get("/v1/operators/self").await.refused("FORBIDDEN");
}

/// Returns the folder of the dashboard, in which `.ci/test` installs the packages of its tests.
pub(super) fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard");
    assert!(folder.join("node_modules").exists(), "run `.ci/test`, which installs what the dashboard's tests need");
    folder
}

/// Runs a script of the dashboard with Node.js.
fn node(script: &str) -> Command {
    let folder = folder();
    let mut node = Command::new("node");
    node.arg(folder.join(script)).current_dir(folder);
    node
}

#[test]
fn its_parsers_and_proofs_are_right() {
    let output = node("node_modules/vitest/vitest.mjs").args(["run", "test/unit"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// What the tests in a browser are about.
#[derive(Clone, Debug)]
enum Subject {
    /// Everything but the others.
    Pages,
    /// The verifier keys of a log, in turn, separated by spaces.
    Keys(String),
    /// A run of 100,000 calls.
    LongRun,
    /// Two nodes.
    Nodes,
    /// An issuer at which people sign in.
    SignIn,
}

/// Runs the tests in a browser.
fn in_browser(server: &Server, approver: &str, subject: &Subject) -> Output {
    let (keys, huge, nodes, sign_in) = match subject {
        Subject::Pages => ("", "", "", ""),
        Subject::Keys(keys) => (&**keys, "", "", ""),
        Subject::LongRun => ("", "yes", "", ""),
        Subject::Nodes => ("", "", "yes", ""),
        Subject::SignIn => ("", "", "", "yes"),
    };
    // Kept after the test, in the build folder.
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
    std::fs::create_dir_all(&screenshots).unwrap();
    node("test/browser/main.mjs")
        .env("WORKSPACED_KEYS", keys)
        .env("WORKSPACED_HUGE", huge)
        .env("WORKSPACED_NODES", nodes)
        .env("WORKSPACED_SIGN_IN", sign_in)
        .env("WORKSPACED_URL", &server.base)
        .env("WORKSPACED_OPERATOR_TOKEN", &server.operator_token)
        .env("WORKSPACED_AUDIT_TOKEN", &server.audit_token)
        .env("WORKSPACED_APPROVER_TOKEN", approver)
        .env("WORKSPACED_SCREENSHOTS", &screenshots)
        .output()
        .unwrap()
}

/// Returns whether Chromium is installed.
fn has_browser() -> bool {
    let is_missing = std::env::var_os("CHROMIUM").is_some_and(|program| program.is_empty());
    if is_missing {
        println!("SKIPPED: Chromium is not installed, and could not be");
    }
    !is_missing
}

async fn assert_browser_is_done(server: Server, approver: String, subject: Subject) {
    let output = tokio::task::spawn_blocking(move || in_browser(&server, &approver, &subject)).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}");
    assert!(output.status.success() && out.ends_with("done\n"), "{out}\n{err}");
}

#[rstest]
#[case::exhaustive(Backend::Sqlite)]
#[tokio::test(flavor = "multi_thread")]
async fn a_person_watches_decides_and_verifies_in_a_browser(#[case] backend: Backend) {
    if !has_browser() {
        return;
    }
    let mut server = Server::start_with(Setup::new(backend)).await;
    leave_expired_approval(&mut server).await;
    let body = json!({ "name": "ada", "scopes": ["approve"] });
    let created = server.operator().post("/v1/operators", body).await.is(201);
    let approver = created["token"].as_str().unwrap().to_owned();
    assert_browser_is_done(server, approver, Subject::Pages).await;
}

/// Leaves the run `nobody-decided` with an approval that has expired: none of the seed gets that old.
async fn leave_expired_approval(server: &mut Server) {
    let files = [("Cargo.lock", "old\n")];
    let run =
        server.run_with_files(&files, json!({"runId": "nobody-decided", "labels": {"ticket": "SHOP-4501"}})).await;
    let input =
        json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "update"});
    run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    server.kill();
    server.database.tamper("update approval set expires_at = '2001-01-01T00:00:00.000000Z'").await.unwrap();
    server.restart();
}

#[rstest]
#[case::exhaustive(Backend::Sqlite)]
#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_at_the_issuer_in_a_browser(#[case] backend: Backend) {
    if !has_browser() {
        return;
    }
    let (server, _provider) = sign_in::service(backend).await;
    let approver = server.audit_token.clone();
    assert_browser_is_done(server, approver, Subject::SignIn).await;
}

/// The newest checkpoint is signed by the present key alone, or also by the one that it replaces.
#[rstest]
#[case::exhaustive_before_the_next_checkpoint(false)]
#[case::after_it(true)]
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_follows_replaced_keys_and_refuses_missing_and_forged_statements(
    #[values(Backend::Sqlite)] backend: Backend,
    #[case] is_signed_afterwards: bool,
) {
    if !has_browser() {
        return;
    }
    let mut server = signing_at_shutdown(backend).await;
    let run = server.run(json!({ "runId": "rotated" })).await;
    run.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    let mut keys = vec![public(&secret_of(&server))];
    for path in ["b.txt", "c.txt"] {
        replace_key(&mut server, &run, path).await;
        keys.push(public(&secret_of(&server)));
    }
    if is_signed_afterwards {
        sign_another(&mut server, &run, "d.txt").await;
    }
    server.restart();
    let approver = server.audit_token.clone();
    assert_browser_is_done(server, approver, Subject::Keys(keys.join(" "))).await;
}

mod exhaustive {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_nodes_are_shown_in_a_browser() {
        if !has_browser() {
            return;
        }
        let [first, mut second] = nodes::two().await;
        first.run(json!({})).await;
        second.run(json!({})).await;
        assert!(second.stop().success());
        let approver = first.audit_token.clone();
        assert_browser_is_done(first, approver, Subject::Nodes).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_of_100000_calls_is_shown_verified_and_reported() {
        let server = long_run::start().await;
        let started = std::time::Instant::now();
        let report = server.operator().get("/v1/runs/huge/report").await.is(200);
        println!("report of 100,000 records with verification: {:?}", started.elapsed());
        assert_eq!((&report["counts"]["records"], &report["verification"]["intact"]), (&json!(100_000), &json!(true)));
        if has_browser() {
            let approver = server.audit_token.clone();
            assert_browser_is_done(server, approver, Subject::LongRun).await;
        }
    }
}
