//! The sandbox: the process cannot access what it does not need, and logs how it is confined.

use std::process::Stdio;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, Setup, put};

/// Returns whether this kernel supports the sandbox, by starting a server that requires it.
async fn kernel_confines() -> bool {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // The address is in use, so the server ends in any case. The sandbox is checked first.
    let done = server.command("serve").args(["--sandbox", "require", "--listen", &address]).output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--sandbox require: ") || stderr.contains(&address), "{stderr}");
    stderr.contains(&address)
}

fn has_no_new_privileges(server: &Server) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process_id())).unwrap();
    status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]))
}

#[rstest]
#[tokio::test]
async fn a_path_outside_is_inaccessible_even_through_an_unchecked_link(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("auto", "off")] sandbox: &str,
) {
    let confined = sandbox == "auto" && kernel_confines().await;
    let mut server = Server::start_with(Setup::new(backend).arg("--sandbox", sandbox)).await;
    let mount = server.template(&[("guide.md", "inside\n")]);
    let body = json!({"mounts": [{"name": "docs", "description": "guides", "path": mount}]});
    let run = server.run_with_files(&[("a.txt", "a\n")], body).await;
    let read = json!({"path": "guide.md", "mount": "docs", "format": "raw"});
    assert_eq!(run.ok("read_file", read.clone()).await["content"], "inside\n");

    // A user with write access to an import root replaces the mount with a link after the path was checked.
    server.kill();
    put(&server.home, "outside/guide.md", "outside\n");
    std::fs::rename(&mount, mount.with_extension("away")).unwrap();
    std::os::unix::fs::symlink(server.home.join("outside"), &mount).unwrap();
    server.restart();
    let run = server.reconnect(&run);
    let answer = run.call("read_file", read).await;
    assert!(confined || answer.ok()["content"] == "outside\n", "without the sandbox the link is followed");
    if confined {
        answer.refusal();
        assert!(!answer.contains("outside\n"), "{}", answer.text());
        assert!(server.log().contains("a mount cannot be opened"), "{}", server.log());
    }
    assert_eq!(has_no_new_privileges(&server), confined);
    // The run still works.
    run.create("b.txt", "b\n").await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn the_confinement_is_logged_at_the_start(#[values("auto", "off", "require")] sandbox: &str) {
    if sandbox == "require" && !kernel_confines().await {
        // On this kernel the start is refused, which `kernel_confines` has checked.
        return;
    }
    let server =
        Server::start_with(Setup::new(Backend::Sqlite).arg("--sandbox", sandbox).arg("--log-format", "json")).await;
    let expected = match sandbox {
        "off" => "off",
        "require" => "landlock",
        _ if kernel_confines().await => "landlock",
        _ => "none",
    };
    let log = server.log();
    assert!(log.lines().any(|line| line.contains(&format!("\"sandbox\":\"{expected}\""))), "{expected}: {log}");
}

#[rstest]
#[tokio::test]
async fn git_works_in_the_sandbox(#[values("git", "directory")] source: &str) {
    if !kernel_confines().await {
        return;
    }
    let server = Server::start_with(Setup::new(Backend::Sqlite).arg("--sandbox", "require")).await;
    let (repository, commit) = server.repository(&[("src/a.rs", "fn a() {}\n"), ("b.md", "b\n")]);
    let source = match source {
        "git" => json!({"type": "git", "url": repository}),
        _ => json!({"type": "directory", "path": repository}),
    };
    let is_git = source["type"] == "git";
    let run = server.run(json!({"source": source})).await;
    if is_git {
        assert_eq!(run.get().await["baseCommit"], commit);
    }
    run.create("c.txt", "c\n").await;
    let diff = run.ok("diff_workspace", json!({})).await;
    assert_eq!(diff["filesChanged"], 1);
    assert_eq!(run.operator.get(&format!("/v1/runs/{}/archive", run.id)).await.status, 200);
}

#[tokio::test]
async fn a_folder_outside_the_import_roots_is_refused() {
    let server = Server::shared(Backend::Sqlite).await;
    for path in ["/etc", "/root", "/proc/self", "/"] {
        let body = json!({"source": {"type": "directory", "path": path}});
        server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    }
    let bad = server.command("serve").args(["--sandbox", "perhaps"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("--sandbox"), "{bad:?}");
}
