//! Remote git sources: which hosts are contacted, and which files the git process can reach.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, Setup, found_on_path, put};

/// Runs `action` and returns whether a connection was made meanwhile.
async fn is_reached<T>(listener: &TcpListener, action: impl Future<Output = T>) -> (T, bool) {
    listener.set_nonblocking(true).unwrap();
    let outcome = action.await;
    // The kernel has queued any connection by now.
    (outcome, listener.accept().is_ok())
}

#[rstest]
#[tokio::test]
async fn a_host_without_a_public_address_is_not_contacted(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in
        ["localhost", "LocalHost", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "[::ffff:127.0.0.1]"]
    {
        let body = json!({"source": {"type": "git", "url": format!("https://{host}:{port}/a.git")}});
        let (answer, reached) = is_reached(&listener, server.operator().post("/v1/runs", body)).await;
        let problem = answer.refused("INVALID_REQUEST");
        assert!(
            problem["detail"].as_str().or(problem["message"].as_str()).unwrap().contains("no public address"),
            "{problem:#}"
        );
        assert!(!reached, "{host} was contacted");
    }
    for host in
        ["[::1]", "[fe80::1]", "10.0.0.1", "169.254.169.254", "192.168.0.1", "100.64.0.1", "no-such-host.invalid"]
    {
        let body = json!({"source": {"type": "git", "url": format!("https://{host}/a.git")}});
        let problem = server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
        assert!(problem["hint"].as_str().unwrap().contains("--git-allow-host"), "{problem:#}");
    }
    let body = json!({"source": {"type": "git", "url": "https://user:secret@127.0.0.1/a.git"}});
    let answer = server.operator().post("/v1/runs", body).await;
    answer.refused("INVALID_REQUEST");
    assert!(!answer.contains("secret@"), "{}", answer.text());
}

#[rstest]
#[tokio::test]
async fn an_allowed_host_is_contacted_directly_without_a_proxy(#[values("flag", "environment")] given: &str) {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let mut setup = Setup::new(Backend::Sqlite);
    for name in ["https_proxy", "HTTPS_PROXY", "http_proxy"] {
        setup.env.push((name.to_owned(), address.clone()));
    }
    if given == "flag" {
        setup = setup.arg("--git-allow-host", "other.example").arg("--git-allow-host", "localhost");
    } else {
        setup.env.push(("WORKSPACED_GIT_ALLOW_HOSTS".to_owned(), "other.example, localhost".to_owned()));
    }
    let server = Server::start_with(setup).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let closing = listener.try_clone().unwrap();
    // Closes the connection, so that git fails.
    let accepted = std::thread::spawn(move || closing.accept().map(drop).is_ok());
    let body = json!({"source": {"type": "git", "url": format!("https://localhost:{port}/a.git")}});
    let operator = server.operator();
    let request = tokio::time::timeout(Duration::from_mins(1), operator.post("/v1/runs", body));
    let (answer, by_proxy) = is_reached(&proxy, request).await;
    answer.expect("git fails in time").refused("INVALID_REQUEST");
    assert!(accepted.join().unwrap() && !by_proxy);
    let other = json!({"source": {"type": "git", "url": format!("https://127.0.0.1:{port}/a.git")}});
    server.operator().post("/v1/runs", other).await.refused("INVALID_REQUEST");
}

/// Installs a program named `git` that records which files it can read and then runs git.
fn install_recording_git(server: &Server, database: &str, of_other: &str) -> std::path::PathBuf {
    // Two folders deep, because the sandbox allows the parent of a program's folder.
    let folder = server.home.join("recording/bin");
    let script = format!(
        "#!/bin/sh\n\
         case \"$1\" in --git-dir) dir=$2 ;; esac\n\
         for file in '{database}' '{data}/checkpoint.key' '{of_other}'; do\n\
         if cat \"$file\" > /dev/null 2> /dev/null; then echo \"$file\" >> \"$dir/reached\"; fi\n\
         done\n\
         exec {git} \"$@\"\n",
        git = found_on_path("git").unwrap().display(),
        data = server.data_dir().display(),
    );
    put(&folder, "git", script);
    std::fs::set_permissions(folder.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[rstest]
#[tokio::test]
async fn git_cannot_read_the_database_the_key_or_another_run(#[values("auto", "off")] sandbox: &str) {
    let mut server = Server::start_with(Setup::new(Backend::Sqlite).arg("--sandbox", sandbox)).await;
    let template = server.template(&[("a.txt", "secret of another run\n")]);
    let other = server.run(json!({"runId": "other", "source": {"type": "directory", "path": template}})).await;
    let of_other = other.file("a.txt").canonicalize().unwrap();
    let database = server.data_dir().join("workspaced.db");
    assert!(database.exists() && server.data_dir().join("checkpoint.key").exists());
    let folder = install_recording_git(&server, database.to_str().unwrap(), of_other.to_str().unwrap());
    server.kill();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    server.setup.env.push(("PATH".to_owned(), path));
    server.restart();
    let (repository, commit) = server.repository(&[("b.txt", "b\n")]);
    let run = server.run(json!({"source": {"type": "git", "url": repository}})).await;
    assert_eq!(run.get().await["baseCommit"], commit);
    let reached = run.base().join("git/reached");
    let reached = std::fs::read_to_string(reached).unwrap_or_default();
    let confined = server.log().contains("landlock") || server.log().contains("sandboxed");
    if confined {
        assert_eq!(reached, "", "git could read files outside its sandbox");
    } else {
        assert!(reached.contains("workspaced.db") && reached.contains("a.txt"), "{reached}");
    }
    // Git still works for the run.
    run.create("c.txt", "c\n").await;
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 1);
    let bundle = run.operator.get(&format!("/v1/runs/{}/bundle", run.id)).await;
    assert_eq!(bundle.status, 200, "{}", bundle.text());
}

#[tokio::test]
async fn a_setting_that_would_allow_the_root_folder_is_refused() {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    for args in [
        ["--database-url", "sqlite:///workspaced-test-of-the-root.db"],
        ["--checkpoint-file", "/workspaced-test-of-the-root.log"],
        ["--import-root", "/"],
    ] {
        let done = server.command("serve").args(args).output().unwrap();
        let stderr = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(2) && stderr.contains("root folder"), "{args:?}: {stderr}");
        assert!(!std::path::Path::new(args[1]).is_file());
    }
    for host in ["https://host", "host/path", "host:443", "user@host"] {
        let done = server.command("serve").args(["--git-allow-host", host]).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{host}");
    }
}
