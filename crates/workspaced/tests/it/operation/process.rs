//! The process: settings, output, exit, logs and exclusive use of its data.

use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Server, Setup, incompressible, workspaced};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn assert_one_clear_line(done: &Output, code: i32, needle: &str) {
    let stderr = text(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(needle), "{needle} is missing: {stderr}");
    assert!(done.stdout.is_empty(), "{}", text(&done.stdout));
    assert!(!stderr.contains("panicked") && stderr.lines().count() <= 3, "{stderr}");
}

#[tokio::test]
async fn an_invalid_setting_ends_the_process_with_one_line() {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let with_config = |content: &str| {
        let config = server.home.join(format!("{}.config.toml", content.len()));
        std::fs::write(&config, content).unwrap();
        vec!["--config".to_owned(), config.display().to_string()]
    };
    let own = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
    for (args, needle) in [
        (own(&["--listen", "nowhere"]), "listen"),
        (own(&["--listen", "127.0.0.1:99999"]), "listen"),
        (own(&["--database-url", "mysql://x/y"]), "database"),
        (own(&["--import-root", "/none/such"]), "/none/such"),
        (own(&["--log-format", "xml"]), "log-format"),
        (own(&["--config", "/none/such.toml"]), "/none/such.toml"),
        (own(&["--surprise"]), "--surprise"),
        (own(&["--operator-token", "x"]), "--operator-token"),
        (with_config("surprise = 1\n"), "surprise"),
        (with_config("listen = 7\n"), "line 1, column 10"),
        (with_config("listen = \n"), "config.toml"),
    ] {
        let done = server.command("serve").args(&args).env_remove("WORKSPACED_DATABASE_URL").output().unwrap();
        assert_one_clear_line(&done, 2, needle);
    }
    let text_file = server.home.join("text");
    std::fs::write(&text_file, "no database").unwrap();
    for (url, needle) in [
        ("postgres://u:secretpw@127.0.0.1:99999/x", "port"),
        ("postgres:///x?sslmode=none", "none"),
        ("sqlite://", "the path of the file is missing"),
        (&format!("sqlite://{}", server.home.display()), "directory"),
        (&format!("sqlite://{}", text_file.display()), "is not a database of SQLite"),
    ] {
        let done = server.command("serve").args(["--database-url", url]).output().unwrap();
        assert_one_clear_line(&done, 2, needle);
        assert!(!text(&done.stderr).contains("secretpw"), "{}", text(&done.stderr));
    }
    let done = server.command("serve").env("WORKSPACED_LISTEN", "nowhere").output().unwrap();
    assert_one_clear_line(&done, 2, "listen");
    let done = server.command("serve").env("WORKSPACED_OPERATOR_TOKEN", "two words").output().unwrap();
    assert_one_clear_line(&done, 2, "WORKSPACED_OPERATOR_TOKEN");
    assert!(!text(&done.stderr).contains("two words"), "the message contains the secret");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let done = server.command("serve").args(["--listen", &address]).output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains(&address));
    assert_ne!(workspaced().output().unwrap().status.code(), Some(0), "a missing command was accepted");
}

#[rstest]
#[tokio::test]
async fn the_operator_token_of_the_first_start_is_valid_once_it_was_shown(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let serve = |server: &Server, listen: &str| {
        let mut command = server.command("serve");
        command.args(["--listen", listen]).env_remove("WORKSPACED_OPERATOR_TOKEN");
        command
    };
    // Its address is in use, or standard output is full.
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = busy.local_addr().map(|address| (busy, address.to_string())).unwrap();
    let done = serve(&server, &busy.1).output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{}", text(&done.stderr));
    let done = serve(&server, "127.0.0.1:0").args(["--metrics-listen", &busy.1]).output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{}", text(&done.stderr));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let done = serve(&server, "127.0.0.1:0").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("the operator token cannot be printed"), "{}", text(&done.stderr));
    // The next start shows one, and only that one.
    let mut shown = Vec::new();
    for _ in 0..2 {
        let command = serve(&server, "127.0.0.1:0");
        server.start_as(command);
        let token = server.printed.lines().find_map(|line| line.strip_prefix("operator token, shown this once: "));
        shown.extend(token.map(str::to_owned));
        assert_eq!(shown.len(), 1, "{}", server.printed);
        server.operator().with_token(Some(&shown[0])).get("/v1/runs").await.ok();
        assert!(server.stop().success());
    }
}

#[tokio::test]
async fn help_and_version_are_printed() {
    let help = workspaced().args(["serve", "--help"]).output().unwrap();
    assert!(help.status.success());
    for needle in [
        "--listen",
        "WORKSPACED_LISTEN",
        "127.0.0.1:8080",
        "--data-dir",
        "WORKSPACED_DATA_DIR",
        "--database-url",
        "WORKSPACED_DATABASE_URL",
        "--import-root",
        "WORKSPACED_IMPORT_ROOTS",
        "--log-format",
        "--config",
    ] {
        assert!(text(&help.stdout).contains(needle), "{needle}: {}", text(&help.stdout));
    }
    assert!(!text(&help.stdout).contains("--operator-token") && !text(&help.stdout).contains("--audit-token"));
    assert!(text(&workspaced().arg("--version").output().unwrap().stdout).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_settings_are_in_groups_and_the_short_help_has_the_main_ones() {
    let help = |flag| text(&workspaced().args(["serve", flag]).output().unwrap().stdout);
    let (short, long) = (help("-h"), help("--help"));
    for group in ["Addresses:", "Data:", "Sources and policy:", "Limits:", "Log and shutdown:"] {
        assert!(short.contains(group) && long.contains(group), "{group}");
    }
    let settings = |help: &str| help.lines().filter(|line| line.trim_start().starts_with("--")).count();
    assert!((15..=25).contains(&settings(&short)), "{short}");
    assert!(long.contains("Advanced:") && !short.contains("Advanced:") && settings(&long) >= 30, "{long}");
    assert!(short.contains("--listen") && !short.contains("--client-timeout-seconds"), "{short}");
}

#[tokio::test]
async fn a_flag_overrides_the_environment_which_overrides_the_file() {
    let mut server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let home = server.home.clone();
    let config = home.join("config.toml");
    let path_of = |name: &str| home.join(name).display().to_string();
    std::fs::write(&config, format!("data_dir = {:?}\nlisten = \"127.0.0.1:0\"\n", path_of("by-file"))).unwrap();
    let mut run = |flag: bool, environment: bool| {
        let mut command = workspaced();
        command.args(["serve", "--config", config.to_str().unwrap()]);
        if flag {
            command.args(["--data-dir", &path_of("by-flag")]);
        }
        if environment {
            command.env("WORKSPACED_DATA_DIR", path_of("by-environment"));
        }
        server.start_as(command);
        server.kill();
    };
    for (flag, environment, want) in
        [(false, false, "by-file"), (false, true, "by-environment"), (true, true, "by-flag")]
    {
        run(flag, environment);
        assert!(home.join(want).join("workspaced.db").exists(), "{want}");
        std::fs::remove_dir_all(home.join(want)).unwrap();
        let made = std::fs::read_dir(&home)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("by-"));
        assert_eq!(made.count(), 0, "{want}");
    }
}

/// Starts and kills a server without configured tokens. Returns its output up to the listen address.
async fn start_without_tokens(server: &mut Server) -> String {
    let mut command = server.command("serve");
    command
        .env_remove("WORKSPACED_OPERATOR_TOKEN")
        .env_remove("WORKSPACED_AUDIT_TOKEN")
        .args(["--listen", "127.0.0.1:0"]);
    server.start_as(command);
    // The token that it prints is stored before it answers.
    server.nobody().get("/healthz").await.is(200);
    server.kill();
    server.printed.clone()
}

#[rstest]
#[tokio::test]
async fn the_first_start_prints_a_token_once_with_example_commands(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let first = start_without_tokens(&mut server).await;
    assert_eq!(first.lines().filter(|line| line.trim_start().starts_with("curl ")).count(), 3, "{first}");
    assert!(first.contains("/v1/runs"), "{first}");
    let token = first.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').find(|word| word.len() >= 43);
    let token = token.unwrap_or_else(|| panic!("no token of 256 bits: {first}")).to_owned();

    let second = start_without_tokens(&mut server).await;
    assert!(!second.contains(&token) && !second.contains("curl "), "{second}");
    // The token of the first start is valid after the third.
    server.operator_token = token.clone();
    let mut command = server.command("serve");
    command.env_remove("WORKSPACED_OPERATOR_TOKEN").args(["--listen", "127.0.0.1:0"]);
    server.start_as(command);
    server.operator().post("/v1/runs", json!({"source": {"type": "empty"}})).await.is(201);
    server.nobody().get("/v1/runs").await.refused("UNAUTHENTICATED");
}

#[rstest]
#[tokio::test]
async fn a_signal_completes_calls_in_flight_and_exits_with_zero(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(Signal::TERM, Signal::INT)] signal: Signal,
) {
    let mut server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    let mut stream = server.auditor().stream("/v1/audit/stream", None).await;
    let writes: Vec<_> = (0..20)
        .map(|number| {
            let run = run.clone();
            tokio::spawn(async move {
                let input = json!({"path": format!("{number}.txt"), "content": "x\n", "reason": "r"});
                let request =
                    run.agent.request(reqwest::Method::POST, &format!("/v1/runs/{}/tools/write_file", run.id));
                run.agent
                    .try_send(request.json(&input))
                    .await
                    .ok()
                    .filter(|answer| answer.status == 200)
                    .map(|_| number)
            })
        })
        .collect();
    // Some have been answered by now, and others not.
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.signal(signal);
    let mut done = Vec::new();
    for write in writes {
        done.extend(write.await.unwrap());
    }
    let status = server.wait();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    while let Ok(Some(_)) = stream.chunk().await {}
    server.restart();
    let run = server.reconnect(&run);
    let written: Vec<_> = run.calls().await.iter().map(|record| record["pathsWritten"][0].clone()).collect();
    for number in done {
        assert!(run.repo.join(format!("{number}.txt")).exists(), "{number} was acknowledged and is lost");
        assert!(written.contains(&json!(format!("{number}.txt"))));
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn logs_go_to_standard_error_in_the_configured_format(#[values("text", "json")] format: &str) {
    let mut server = Server::start_with(Setup::new(Backend::Sqlite).arg("--log-format", format)).await;
    let run = server.run_with_files(&[("a.txt", "content-of-a-file\n")], json!({})).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.call("read_file", json!({"path": "../nope-path"})).await.refused("PATH_REJECTED");
    assert!(server.stop().success());
    let log = server.log();
    assert!(!log.trim().is_empty());
    if format == "json" {
        for line in log.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(value["level"].is_string() && value["timestamp"].is_string(), "{line}");
        }
    }
    for secret in [server.operator_token.as_str(), run.agent.token.as_deref().unwrap(), "content-of-a-file"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[rstest]
#[tokio::test]
async fn what_is_usual_and_a_client_that_leaves_are_not_in_the_log_by_default(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let filter = "info,workspaced=debug,engine=debug";
    let setup = Setup::new(backend).arg("--log-format", "json").arg("--log", filter);
    let server = Server::start_with(setup).await;
    let lines = || -> Vec<Value> { server.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let says = |line: &Value, text: &str| line["message"].as_str().is_some_and(|message| message.contains(text));
    let is_shown = |line: &Value| !["DEBUG", "TRACE"].contains(&line["level"].as_str().unwrap());

    // The files of an empty run are there at once, those of another one may take long.
    let empty = server.run(json!({})).await;
    let folder = server.template(&[("a.txt", "a\n")]);
    std::fs::write(folder.join("large.bin"), incompressible(24 << 20)).unwrap();
    let source = json!({"type": "directory", "path": folder});
    let run = server.run(json!({"source": source})).await;
    let imports: Vec<_> = lines().into_iter().filter(|line| says(line, "import in progress")).collect();
    assert!(imports.iter().any(|line| line["run.id"] == empty.id.as_str()), "the debug level has it");
    let shown: Vec<_> = imports.iter().filter(|line| is_shown(line)).map(|line| line["run.id"].clone()).collect();
    assert!(!shown.is_empty() && shown.iter().all(|id| *id == run.id.as_str()), "{shown:?}");

    for (method, params) in
        [("tools/list", json!({})), ("tools/call", json!({"name": "read_file", "arguments": {"path": "a.txt"}}))]
    {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = run.agent.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
        let request = request.header("mcp-protocol-version", "2025-06-18");
        run.agent.send(request.json(&message)).await;
    }
    let of_mcp: Vec<_> = lines().into_iter().filter(|line| line["span"]["http.route"] == "/mcp").collect();
    assert!(!of_mcp.is_empty() && !of_mcp.iter().any(is_shown), "{of_mcp:#?}");

    // A client that leaves during a download, and one that leaves during an upload.
    let path = format!("/v1/runs/{}/archive", run.id);
    let mut download = run.operator.request(Method::GET, &path).send().await.unwrap();
    assert!(download.chunk().await.unwrap().is_some());
    drop(download);
    let mut upload = std::net::TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
    let token = run.agent.token.as_deref().unwrap();
    let head = format!(
        "PUT /v1/runs/{}/files/b.bin HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\nContent-Length: 100000\r\n\r\n",
        run.id
    );
    upload.write_all(head.as_bytes()).unwrap();
    upload.write_all(&[b'x'; 5000]).unwrap();
    drop(upload);
    server.until_logged("the client left during an export").await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let failures: Vec<_> =
        lines().into_iter().filter(|line| line["level"] == "ERROR" || says(line, "internal")).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

#[rstest]
#[tokio::test]
async fn public_routes_need_no_token_and_disclose_no_run(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({})).await;
    run.ok("list_dir", json!({})).await;
    let nobody: Client = server.nobody();
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs/"] {
        let answer = nobody.get(path).await;
        assert!([200, 303, 307, 308].contains(&answer.status), "{path}: {}", answer.status);
        assert!(!answer.contains(&run.id), "{path}");
    }
    let metrics = nobody.get("/metrics").await.text();
    assert!(metrics.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count() >= 3, "{metrics}");
}

#[rstest]
#[tokio::test]
async fn state_persists_over_a_restart(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n"), ("Cargo.lock", "l\n")], json!({"labels": {"k": "v"}})).await;
    run.create("b.txt", "b\n").await;
    run.call(
        "write_file",
        json!({"path": "Cargo.lock", "content": "m\n", "expectedSha256": crate::harness::sha256("l\n"), "reason": "r"}),
    )
    .await
    .is(202);
    let (before, audit, diff) =
        (run.get().await, run.audit().await, run.ok("diff_workspace", json!({})).await["diffSha256"].clone());
    assert!(server.stop().success());
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(run.audit().await[..audit.len()], audit);
    let mut now = run.get().await;
    for member in ["counts", "headSeq", "headHash", "lastActivityAt"] {
        now[member] = before[member].clone();
    }
    // The diff's record.
    now["disk"]["historyBytes"] = before["disk"]["historyBytes"].clone();
    assert_eq!(now, before);
    assert_eq!(run.ok("diff_workspace", json!({})).await["diffSha256"], diff);
    assert_eq!(server.operator().get("/v1/approvals?state=pending").await.ok()["items"].as_array().unwrap().len(), 1);
}

/// Simulates a file system that lacks an operation: strace replaces the result of the system call.
#[rstest]
#[case::exchange(
    "renameat2",
    "error=EINVAL:when=1",
    "lacks renameat2 with RENAME_EXCHANGE, which is needed to replace a file"
)]
#[case::no_replace(
    "renameat2",
    "error=EINVAL:when=3",
    "lacks renameat2 with RENAME_NOREPLACE, which is needed to create"
)]
#[case::links("symlinkat,symlink", "error=EPERM", "lacks symlinkat, which is needed to import a tree")]
#[case::path_resolution(
    "openat2",
    "error=ENOSYS",
    "lacks openat2 with RESOLVE_BENEATH, which is needed to open a file"
)]
#[case::disabled_by_systemd(
    "openat2",
    "error=ENOSYS",
    "a filter of system calls disables it: `RestrictSUIDSGID=yes` or"
)]
#[case::disabled_by_a_container("openat2", "error=EPERM", "or the seccomp profile of a container")]
#[tokio::test]
async fn a_file_system_without_a_required_operation_is_refused_at_the_start(
    #[case] syscall: &str,
    #[case] action: &str,
    #[case] needle: &str,
) {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let serve = server.command("serve");
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(server.home.join("strace"));
    strace.args(["-e", &format!("trace={syscall}"), "-e", &format!("inject={syscall}:{action}")]);
    strace.arg(serve.get_program()).args(serve.get_args()).args(["--listen", "127.0.0.1:0"]).env_clear();
    strace.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = strace.stdin(Stdio::null()).output().expect("strace, which `.ci/test` installs");
    assert_one_clear_line(&done, 2, needle);
    assert!(text(&done.stderr).contains("--data-dir"), "{}", text(&done.stderr));
    // The refused start leaves nothing, and the service starts on a complete file system.
    let mut server = server;
    server.restart();
    server.nobody().get("/healthz").await.is(200);
}
