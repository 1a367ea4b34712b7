//! Private repositories: the credential is sent to its URLs only, and found nowhere; a base is reused only by callers whose
//! credential the repository accepts now.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Setup, client_script, commit_all, found_on_path, git, put};

/// An https server of git repositories on loopback.
pub(crate) struct GitServer {
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    process: Child,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl GitServer {
    /// Starts the server in `home`, with the private repository `/org/a.git` and the public one `/other/public.git`.
    pub(crate) fn start(home: &Path) -> Self {
        let folder = home.join("forge");
        for name in ["org/a.git", "org2/a.git", "other/public.git"] {
            let repository = folder.join("repositories").join(name);
            put(&repository, "src/a.txt", format!("of {name}\n"));
            put(&repository, "b.txt", "b\n");
            git(&repository, &["init", "-q", "-b", "main"]);
            commit_all(&repository, "first");
        }
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(&folder)
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        put(&folder, "token", "first-token");
        put(&folder, "log", "");
        let mut process = Command::new("python3")
            .arg(client_script("git_server.py"))
            .arg(&folder)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { port: line.trim().parse().unwrap(), folder, process }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// Returns and empties the log.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap();
        put(&self.folder, "log", "");
        log
    }
}

/// Starts both servers. The credential `forge` is for `/org`; its token is in the file `secret/token`.
pub(crate) async fn start(backend: Backend) -> (Server, GitServer) {
    start_with(Setup::new(backend)).await
}

/// As [`start`], with the settings of `setup`.
pub(crate) async fn start_with(setup: Setup) -> (Server, GitServer) {
    let mut server = Server::prepare(setup).await;
    let forge = GitServer::start(&server.home);
    put(&server.home, "secret/token", "first-token\n");
    let config = format!(
        "git-allow-hosts = [\"localhost\"]\n\n[[git_credential]]\nname = \"forge\"\nurl_prefix = \"{}\"\n\
         token_file = \"{}\"\n",
        forge.url("/org"),
        server.home.join("secret/token").display()
    );
    put(&server.home, "config.toml", config);
    let config = server.home.join("config.toml");
    server.setup = server.setup.clone().arg("--config", config.display());
    let certificate = forge.folder.join("cert.pem");
    server.setup = server.setup.clone().env("GIT_SSL_CAINFO", certificate.to_str().unwrap());
    server.restart();
    (server, forge)
}

fn source(url: impl Into<String>, credential: Option<&str>) -> Value {
    let url: String = url.into();
    let mut source = json!({"type": "git", "url": url});
    if let Some(credential) = credential {
        source["credential"] = json!(credential);
    }
    json!({ "source": source })
}

/// The files under `folder` that contain `needle`.
fn containing(folder: &Path, needle: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(containing(&entry.path(), needle));
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            if bytes.windows(needle.len()).any(|window| window == needle.as_bytes()) {
                found.push(entry.path());
            }
        }
    }
    found
}

fn packs(run: &Run) -> Vec<u64> {
    let folder = run.base().join("git/objects/pack");
    let mut inodes: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().ino()).collect();
    inodes.sort_unstable();
    inodes
}

#[rstest::rstest]
#[tokio::test]
async fn a_private_repository_is_imported_with_its_credential(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, forge) = start(backend).await;
    let operator = server.operator();
    let private = forge.url("/org/a.git");
    operator.post("/v1/runs", source(private.clone(), None)).await.refused("INVALID_REQUEST");
    assert!(forge.log().lines().all(|line| line.ends_with(" none")));

    let run = server.run(source(private.clone(), Some("forge"))).await;
    assert_eq!(run.on_disk("src/a.txt"), "of org/a.git\n");
    assert_eq!(run.get().await["source"]["credential"], "forge");
    assert_eq!(run.audit().await[0]["input"]["source"]["credential"], "forge");
    let log = forge.log();
    assert!(log.contains(" fetch known") && log.lines().all(|line| line.ends_with(" known")), "{log}");

    // "x-access-token:first-token"
    let header = "eC1hY2Nlc3MtdG9rZW46Zmlyc3QtdG9rZW4";
    for secret in ["first-token", header] {
        assert_eq!(containing(&server.data_dir(), secret), Vec::<PathBuf>::new());
        assert!(!server.log().contains(secret));
    }
}

#[tokio::test]
async fn a_credential_is_not_sent_elsewhere() {
    let (server, forge) = start(Backend::Sqlite).await;
    let operator = server.operator();
    let mut messages = Vec::new();
    for (url, credential) in [
        (forge.url("/org2/a.git"), "forge"),
        (forge.url("/other/public.git"), "forge"),
        (forge.url("/org/../other/public.git"), "forge"),
        (forge.url("/org/%2e%2e/other/public.git"), "forge"),
        (forge.url("/org/a.git"), "unknown"),
        (forge.url("/org/a.git").replace("localhost", "localhost.evil.example"), "forge"),
        (forge.url("/org/a.git").replace(&forge.port.to_string(), "443"), "forge"),
    ] {
        let problem = operator.post("/v1/runs", source(url, Some(credential))).await.refused("INVALID_REQUEST");
        messages.push(problem["detail"].as_str().unwrap().to_owned());
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(forge.log(), "", "a host was contacted");

    // A redirect is not followed.
    operator.post("/v1/runs", source(forge.url("/org/moved.git"), Some("forge"))).await.refused("INVALID_REQUEST");
    let log = forge.log();
    assert!(log.contains("/org/moved.git") && !log.contains("/other/"), "{log}");

    let local = json!({"source": {"type": "git", "url": server.repository(&[("a", "a")]).0, "credential": "forge"}});
    operator.post("/v1/runs", local).await.refused("INVALID_REQUEST");
    let public = server.run(source(forge.url("/other/public.git"), None)).await;
    assert_eq!(public.on_disk("src/a.txt"), "of other/public.git\n");
    assert!(forge.log().lines().all(|line| line.ends_with(" none")));
}

#[rstest::rstest]
#[tokio::test]
async fn a_second_run_fetches_nothing_but_asks_for_the_ref(#[values(Backend::Sqlite)] backend: Backend) {
    let (mut server, forge) = start(backend).await;
    let body = source(forge.url("/org/a.git"), Some("forge"));
    let first = server.run(body.clone()).await;
    forge.log();
    server.stop();
    server.restart();
    let second = server.run(body.clone()).await;
    let log = forge.log();
    assert!(log.contains(" ask known") && !log.contains(" fetch "), "{log}");
    assert_eq!(packs(&first), packs(&second));
    let (first, second_shown) = (server.reconnect(&first), second.get().await);
    let shown = first.get().await;
    for member in ["/baseCommit", "/import", "/disk/bytes", "/disk/files"] {
        assert_eq!(shown.pointer(member), second_shown.pointer(member), "{member}");
    }
    second.create("c.txt", "c\n").await;
    assert_eq!(second.ok("diff_workspace", json!({})).await["filesChanged"], 1);
    assert_eq!(first.ok("diff_workspace", json!({})).await["filesChanged"], 0);

    // A revoked credential ends the right to the base too, also without any credential.
    put(&forge.folder, "token", "second-token");
    for body in [body.clone(), source(forge.url("/org/a.git"), None)] {
        server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    }
    put(&server.home, "secret/token", "second-token\n");
    server.run(body.clone()).await;
    std::fs::remove_file(server.home.join("secret/token")).unwrap();
    let problem = server.operator().post("/v1/runs", body.clone()).await.refused("UNAVAILABLE");
    assert!(problem["detail"].as_str().unwrap().contains("`forge`"));
    put(&server.home, "secret/token", "second-token\n");

    // A ref that has moved.
    let repository = forge.folder.join("repositories/org/a.git");
    put(&repository, "src/a.txt", "next\n");
    let next = commit_all(&repository, "next");
    let third = server.run(body).await;
    assert_eq!(third.get().await["baseCommit"], next.as_str());
    assert_eq!(third.on_disk("src/a.txt"), "next\n");
    // Its base stays when other runs go.
    for run in [&first, &second] {
        server.operator().delete(&format!("/v1/runs/{}", run.id)).await.ok();
    }
    assert_eq!(third.ok("diff_workspace", json!({})).await["filesChanged"], 0);
}

#[tokio::test]
async fn a_credential_is_in_the_environment_of_connecting_processes_only() {
    let (mut server, forge) = start(Backend::Sqlite).await;
    let folder = server.home.join("recording/bin");
    let script = format!(
        "#!/bin/sh\n\
         case \"$1\" in --git-dir) dir=$2 ;; esac\n\
         if env | grep -q Authorization; then has=yes; else has=no; fi\n\
         echo \"$has $*\" >> \"$dir/calls\"\n\
         exec {} \"$@\"\n",
        found_on_path("git").unwrap().display()
    );
    put(&folder, "git", script);
    std::fs::set_permissions(folder.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    server.stop();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    server.setup.env.push(("PATH".to_owned(), path));
    server.restart();
    for _ in 0..2 {
        let run = server.run(source(forge.url("/org/a.git"), Some("forge"))).await;
        let base = run.base().join("git");
        let calls = std::fs::read_to_string(base.join("calls")).unwrap();
        assert!(!calls.contains("first-token") && !calls.contains("Basic"), "{calls}");
        for call in calls.lines() {
            let connects = call.contains(" fetch --quiet") || call.contains(" ls-remote ");
            assert_eq!(call.starts_with("yes"), connects, "{call}");
        }
        assert!(calls.contains("yes "), "{calls}");
        let config = std::fs::read_to_string(base.join("config")).unwrap();
        assert!(!config.contains("extraHeader") && !config.contains("forge"), "{config}");
    }
}

#[tokio::test]
async fn a_configured_credential_is_checked_at_the_start() {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let full = "name = \"a\"\nurl_prefix = \"https://git.example.com/org\"\n";
    for (text, problem) in [
        (full.to_owned(), "token_file or token_env"),
        (format!("{full}token_file = \"/a\"\ntoken_env = \"B\"\n"), "token_file or token_env"),
        (format!("{full}token_file = \"a\"\n"), "absolute"),
        (format!("{full}token_env = \"NOT_SET_ANYWHERE\"\n"), "NOT_SET_ANYWHERE"),
        (format!("{full}token_env = \"PATH\"\nusername = \"a:b\"\n"), "username"),
        (format!("{full}token = \"t\"\n"), "token"),
        ("name = \"a b\"\nurl_prefix = \"https://a/b\"\ntoken_file = \"/a\"\n".to_owned(), "name"),
        ("name = \"a\"\nurl_prefix = \"http://a/b\"\ntoken_file = \"/a\"\n".to_owned(), "url_prefix"),
    ] {
        put(&server.home, "bad.toml", format!("[[git_credential]]\n{text}"));
        let done = server.command("serve").arg("--config").arg(server.home.join("bad.toml")).output().unwrap();
        let stderr = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(2) && stderr.contains(problem), "{text}: {stderr}");
    }
}

#[rstest::rstest]
#[tokio::test]
async fn a_server_that_repeats_the_credential_does_not_get_it_into_the_log(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (server, forge) = start(backend).await;
    let refused = server.operator().post("/v1/runs", source(forge.url("/org/echo.git"), Some("forge"))).await;
    refused.refused("INVALID_REQUEST");
    assert!(forge.log().contains("/org/echo.git"));
    let log = server.log();
    assert!(log.contains("a git source could not be fetched") && log.contains("is not logged"), "{log}");
    // "x-access-token:first-token"
    for secret in ["first-token", "eC1hY2Nlc3MtdG9rZW46Zmlyc3QtdG9rZW4="] {
        assert!(!log.contains(secret) && !refused.contains(secret), "{secret}: {log}");
    }
    // Without a credential the answer is logged.
    server.operator().post("/v1/runs", source(forge.url("/org/echo.git"), None)).await.refused("INVALID_REQUEST");
    assert!(server.log().contains("denied:"), "{}", server.log());
}
