//! The sandbox: what the process does not need it cannot reach, and whoever started it is told.

use std::process::Stdio;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, Setup, put};

/// Whether this kernel can confine a process: what a server says that may not start without.
async fn kernel_confines() -> bool {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // The address is taken, so that it ends in any case; what comes first is the sandbox.
    let done = server.command("serve").args(["--sandbox", "require", "--listen", &address]).output().unwrap();
    let told = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{told}");
    assert!(told.contains("--sandbox require: ") || told.contains(&address), "{told}");
    told.contains(&address)
}

fn has_no_new_privileges(server: &Server) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process_id())).unwrap();
    status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]))
}

#[rstest]
#[tokio::test]
async fn a_place_outside_is_out_of_reach_even_by_a_link_that_nobody_checks(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("auto", "off")] sandbox: &str,
) {
    let confined = sandbox == "auto" && kernel_confines().await;
    let mut server = Server::start_with(Setup::new(backend).arg("--sandbox", sandbox)).await;
    let mount = server.template(&[("guide.md", "inside\n")]);
    let body = json!({"mounts": [{"name": "docs", "description": "guides", "path": mount}]});
    let run = server.run_with_files(&[("a.txt", "a\n")], body).await;
    let look = json!({"path": "guide.md", "mount": "docs", "format": "raw"});
    assert_eq!(run.ok("read_file", look.clone()).await["content"], "inside\n");

    // Whoever may write to an import root moves the mount away and leaves a link: the place was checked long ago.
    server.kill();
    put(&server.home, "outside/guide.md", "outside\n");
    std::fs::rename(&mount, mount.with_extension("away")).unwrap();
    std::os::unix::fs::symlink(server.home.join("outside"), &mount).unwrap();
    server.restart();
    let run = server.reconnect(&run);
    let answer = run.call("read_file", look).await;
    assert!(confined || answer.ok()["content"] == "outside\n", "without a sandbox nothing else keeps it out");
    if confined {
        answer.refusal();
        assert!(!answer.contains("outside\n"), "{}", answer.text());
        assert!(server.log().contains("a mount cannot be opened"), "{}", server.log());
    }
    assert_eq!(has_no_new_privileges(&server), confined);
    // What the run is about goes on.
    run.create("b.txt", "b\n").await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn what_confines_the_process_is_told_at_the_start(#[values("auto", "off", "require")] sandbox: &str) {
    if sandbox == "require" && !kernel_confines().await {
        // That it is refused is all that there is to see on this kernel.
        return;
    }
    let server =
        Server::start_with(Setup::new(Backend::Sqlite).arg("--sandbox", sandbox).arg("--log-format", "json")).await;
    let told = match sandbox {
        "off" => "off",
        "require" => "landlock",
        _ if kernel_confines().await => "landlock",
        _ => "none",
    };
    let log = server.log();
    assert!(log.lines().any(|line| line.contains(&format!("\"sandbox\":\"{told}\""))), "{told}: {log}");
}

#[rstest]
#[tokio::test]
async fn git_does_its_work_inside(#[values("git", "directory")] source: &str) {
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
async fn a_folder_that_is_no_import_root_is_refused_as_ever() {
    let server = Server::shared(Backend::Sqlite).await;
    for path in ["/etc", "/root", "/proc/self", "/"] {
        let body = json!({"source": {"type": "directory", "path": path}});
        server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    }
    let bad = server.command("serve").args(["--sandbox", "perhaps"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("--sandbox"), "{bad:?}");
}
