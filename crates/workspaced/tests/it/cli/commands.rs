//! Each command, as people and as programs see it, and the exit codes.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rstest::rstest;
use serde_json::{Value, json};

use super::{command, run};
use crate::harness::{Backend, Receiver, Run, Server, Setup, free_port, put};

#[rstest]
#[tokio::test]
async fn stop_ends_the_agent_and_keeps_the_evidence(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, used) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    used.create("b.txt", "b\n").await;
    used.ok("search_text", json!({"query": "refund"})).await;
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    operator(&["stop", &used.id]).failed(2, "--reason");
    let searches = operator(&["audit", "--run", &used.id, "--tool", "search_text"]).ok();
    assert!(searches.contains("search_text     . query=\"refund\" ("), "{searches}");
    assert!(operator(&["audit", "--run", &used.id, "--path-suffix", "/b.txt"]).ok().contains(" b.txt "));
    let folder = server.home.join(format!("evidence-{}", used.id));
    let stop = ["stop", &used.id, "--reason", "odd reads", "--close", "--export", folder.to_str().unwrap()];
    let said = operator(&stop).ok();
    assert!(said.starts_with(&format!("{}: its tokens are revoked; the run is closed\n", used.id)), "{said}");
    used.agent.post(&format!("/v1/runs/{}/tools/list_dir", used.id), json!({})).await.refused("UNAUTHENTICATED");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("report.md").starts_with("# Run `") && read("changes.patch").contains("+++ b/b.txt"));
    let records: Vec<Value> = read("audit.ndjson").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tools: Vec<_> = records.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["run.create", "write_file", "search_text", "run.stop", "run.close", "patch"]);
    assert_eq!(records[3]["reason"], "odd reads");
    operator(&stop).failed(1, "not empty");
}

#[rstest]
#[tokio::test]
async fn a_run_is_forked_compared_and_merged(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, used) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    let forked = operator(&["fork", &used.id, "--label", "attempt=b", "--json"]).json();
    let (id, token) = (forked["run"]["runId"].as_str().unwrap(), forked["token"]["token"].as_str().unwrap());
    assert_eq!(forked["run"]["labels"], json!({"attempt": "b"}));
    let agent = |args: &[&str]| run(command(&server.base, token, args));
    agent(&["call", "write_file", "--run", id, "path=b.txt", "content=b\n", "reason=a test"]).ok();
    let compared = operator(&["compare", &used.id, id]).ok();
    assert!(compared.contains("b.txt  only in the second  -"), "{compared}");
    let merge = ["merge", &used.id, "--from", id, "--reason", "it works"];
    let tried = operator(&[&merge[..], &["--dry-run"]].concat()).ok();
    assert!(tried.starts_with("would be: 1 applied"), "{tried}");
    let merged = operator(&merge).ok();
    assert!(merged.starts_with("1 applied as record "), "{merged}");
    assert_eq!(used.on_disk("b.txt"), "b\n");
    let shown = operator(&["run", "show", &used.id]).ok();
    assert!(shown.contains(&format!("{id} (open at record 1, merged up to its record 2)")), "{shown}");
    let shown = operator(&["run", "show", id]).ok();
    assert!(shown.contains(&format!("run {} at record 1", used.id)), "{shown}");
    let policy = r#"{"deny": ["b.txt"]}"#;
    let stricter = operator(&["fork", id, "--id", "stricter", "--policy", policy, "--json"]).json();
    assert_eq!(stricter["run"]["policy"]["deny"], json!(["b.txt"]), "{stricter:#}");
    operator(&["fork", &used.id, "--at", "99"]).failed(1, "the newest record");
    operator(&["merge", &used.id, "--from", &used.id, "--reason", "r"]).failed(1, "is not a fork of");
}

#[rstest]
#[tokio::test]
async fn a_run_is_created_used_exported_and_deleted(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    let created = operator(&["run", "create", "--id", "r1", "--label", "ticket=7", "--ttl-seconds", "600", "--json"]);
    let created = created.json();
    assert_eq!((&created["run"]["runId"], &created["run"]["labels"]["ticket"]), (&json!("r1"), &json!("7")));
    let token = created["token"]["token"].as_str().unwrap();
    let agent = |args: &[&str]| run(command(&server.base, token, args));

    let written = agent(&["call", "write_file", "--run", "r1", "path=a.txt", "content=one\ntwo\n", "reason=a test"]);
    assert_eq!(written.ok(), "created a.txt (+2 -0)\n");
    let read = ["call", "read_file", "--run", "r1", "--input", r#"{"path": "none", "maxLines": 9}"#, "path=a.txt"];
    assert_eq!(agent(&read).ok(), "1  one\n2  two\n");
    let part = agent(&["call", "read_file", "--run", "r1", "path=a.txt", "maxLines:=1", "--json"]).json();
    assert_eq!((&part["endLine"], &part["totalLines"]), (&json!(1), &json!(2)));

    let list = operator(&["run", "list"]).ok();
    assert!(
        list.starts_with("RUN  STATE  CREATED") && list.contains("r1   open") && list.contains("ticket=7"),
        "{list}"
    );
    assert_eq!(operator(&["run", "list", "--state", "closed", "--json"]).ok(), "");
    assert!(operator(&["run", "show", "r1"]).ok().contains("\nstate    open\n"));
    assert_eq!(agent(&["run", "show", "r1", "--json"]).json()["usage"]["runBudget"]["filesTouched"], 1);

    let diff = operator(&["diff", "r1"]).ok();
    assert!(diff.ends_with("+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"), "{diff}");
    let (patch, archive) = (server.home.join("p.diff"), server.home.join("r1.tar.gz"));
    operator(&["diff", "r1", "-o", patch.to_str().unwrap()]).ok();
    assert_eq!(std::fs::read_to_string(patch).unwrap(), diff);
    let saved = operator(&["export", "r1", "-o", archive.to_str().unwrap(), "--json"]).json();
    let bytes = std::fs::read(&archive).unwrap();
    assert!(bytes.starts_with(&[0x1f, 0x8b]) && saved["bytes"] == json!(bytes.len()), "{saved}");
    assert!(operator(&["report", "r1"]).ok().starts_with("# Run `r1`\n"));
    assert_eq!(operator(&["report", "r1", "--json"]).json()["runId"], "r1");

    // The archive is a source of another run.
    let archive = archive.to_str().unwrap();
    let copy =
        operator(&["run", "create", "--id", "r2", "--archive", archive, "--profile", "READ_ONLY", "--json"]).json();
    assert_eq!((&copy["run"]["state"], &copy["run"]["import"]["files"]), (&json!("open"), &json!(1)));
    assert_eq!(operator(&["call", "read_file", "--run", "r2", "path=a.txt"]).ok(), "1  one\n2  two\n");
    operator(&["call", "write_file", "--run", "r2", "path=x.txt", "content=x", "reason=why"])
        .failed(1, "workspaced: POLICY_DENIED: ");
    let refused = operator(&["audit", "--run", "r2", "--code", "POLICY_DENIED"]).ok();
    assert!(
        refused.contains("write_file      POLICY_DENIED x.txt [write:no-match, kind:TEXT_DOC] \"why\" (operator:"),
        "{refused}"
    );
    assert_eq!(operator(&["audit", "--run", "r2", "--code", "WRITE_CONFLICT"]).out, "");

    assert!(operator(&["run", "close", "r1"]).ok().contains("state    closed"));
    let refused = agent(&["call", "write_file", "--run", "r1", "path=b.txt", "content=", "reason=late", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&refused.out).unwrap()["code"], "RUN_CLOSED");
    refused.failed(1, "workspaced: RUN_CLOSED: ");
    assert_eq!(operator(&["run", "delete", "r1", "--json"]).json()["state"], "deleted");

    let audit = agent(&["audit", "--run", "r1", "--tool", "write_file", "--oldest-first"]).ok();
    let lines: Vec<_> = audit.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("r1      2  ok       write_file      a.txt \"a test\""), "{audit}");
    assert!(
        lines[1].contains("refused  write_file      RUN_CLOSED ") && lines[1].contains(" \"late\" (run-token:"),
        "{audit}"
    );
    assert!(
        lines[0].trim_start().split(' ').next().unwrap().parse::<u64>().is_ok() || lines[0].contains("now"),
        "{audit}"
    );
    let newest = agent(&["audit", "--run", "r1", "--tool", "write_file", "--limit", "1"]);
    assert!(newest.err.contains("1 shown; `--limit` shows more") && newest.out.contains("RUN_CLOSED"), "{newest:?}");
    let utc = agent(&["audit", "--run", "r1", "--tool", "write_file", "--utc"]).ok();
    assert!(utc.starts_with("20") && utc.lines().next().unwrap().contains("RUN_CLOSED"), "{utc}");
    let records = operator(&["audit", "--json"]).ok();
    assert!(records.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["hash"].is_string()), "{records}");
}

#[rstest]
#[tokio::test]
async fn webhooks_and_deliveries_are_listed_and_sent_again(#[values(Backend::Sqlite)] backend: Backend) {
    let receiver = Receiver::start().await;
    let mut server = Server::prepare(Setup::new(backend)).await;
    put(&server.home, "secret", "whsec_bmV3LXNlY3JldC1vZi0zMi1ieXRlcy0wMTIzNDU2Nzg=");
    let (url, secret) = (&receiver.url, server.home.join("secret"));
    let hook = format!("[[webhook]]\nname = \"hook\"\nurl = \"{url}\"\nsecret_file = \"{}\"\n", secret.display());
    put(&server.home, "config.toml", hook);
    server.setup = server.setup.clone().arg("--config", server.home.join("config.toml").display());
    server.restart();
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    let listed = operator(&["webhook", "list"]).ok();
    assert!(listed.starts_with("WEBHOOK  STATE   PENDING  URL"), "{listed}");
    assert!(listed.contains("\nhook     active  0        ") && listed.contains("run.closed"), "{listed}");
    assert_eq!(operator(&["webhook", "list", "--json"]).json()["name"], "hook");
    assert_eq!(operator(&["webhook", "deliveries", "hook", "--json"]).ok(), "");

    for id in ["first", "second"] {
        operator(&["run", "create", "--id", id]).ok();
        operator(&["run", "close", id]).ok();
    }
    receiver.until(2).await;
    let newest = operator(&["webhook", "deliveries", "hook", "--limit", "1", "--json"]).json();
    assert_eq!((&newest["type"], &newest["runId"]), (&json!("run.closed"), &json!("second")));
    let message = newest["id"].as_str().unwrap();
    let rows = operator(&["webhook", "deliveries", "hook"]).ok();
    let of_second = rows.lines().nth(1).unwrap();
    assert!(rows.lines().count() == 3 && of_second.starts_with(message) && of_second.contains("second"), "{rows}");
    assert_eq!(operator(&["webhook", "deliveries", "hook", "--state", "failed", "--json"]).ok(), "");

    let again = operator(&["webhook", "redeliver", "hook", message, "--json"]).json();
    assert_eq!((&again["id"], &again["state"], &again["attempts"]), (&json!(message), &json!("pending"), &json!(0)));
    let sent = receiver.until(3).await;
    assert_eq!(sent[2].body, sent[1].body);
    operator(&["webhook", "redeliver", "hook", "msg_none"]).failed(1, "workspaced: NOT_FOUND: ");
    operator(&["webhook", "deliveries", "none"]).failed(1, "workspaced: NOT_FOUND: ");
    operator(&["webhook", "deliveries", "hook", "--state", "lost"]).failed(2, "no such state");
}

#[rstest]
#[tokio::test]
async fn approvals_are_listed_shown_and_decided(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, asked) = Run::shared(backend, &[("Cargo.lock", "one\n"), ("go.sum", "one\n")]).await;
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    for (file, new) in [("Cargo.lock", "newString=two"), ("go.sum", "newString=https://new.example.net/")] {
        let path = format!("path={file}");
        let args = ["call", "edit_file", "--run", &asked.id, &path, "oldString=one", new, "reason=update"];
        let agent = |args: &[&str]| run(command(&server.base, asked.agent.token.as_ref().unwrap(), args));
        agent(&["call", "read_file", "--run", &asked.id, &path]).ok();
        agent(&args).failed(1, "APPROVAL_REQUIRED: ");
    }
    let list = operator(&["approvals", "list", "--run", &asked.id, "--oldest-first", "--json"]).ok();
    let ids: Vec<_> =
        list.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["approvalId"].clone()).collect();
    let [first, second] = ids.iter().map(|id| id.as_str().unwrap()).collect::<Vec<_>>()[..] else { panic!("{list}") };
    let table = operator(&["approvals", "list", "--run", &asked.id]).ok();
    assert!(table.starts_with("APPROVAL ") && table.lines().count() == 3, "{table}");
    for (line, id) in table.lines().skip(1).zip([second, first]) {
        assert!(id.starts_with(line.split(' ').next().unwrap()), "{table}");
    }
    let shown = operator(&["approvals", "show", first]).ok();
    assert!(shown.contains("files         replace Cargo.lock\n") && shown.ends_with("-one\n+two\n"), "{shown}");

    assert!(table.lines().nth(1).unwrap().contains(" NEW_HOST ") && table.matches("NEW_HOST").count() == 1, "{table}");
    let warned = operator(&["approvals", "show", second]).ok();
    assert!(
        warned.contains("\nwarning       doubt NEW_HOST go.sum:1: An added line names the host new.example.net"),
        "{warned}"
    );

    operator(&["approvals", "approve", first]).failed(1, "INVALID_REQUEST: ");
    let approved =
        operator(&["approvals", "approve", first, "--on-behalf-of", "ada", "--note", "fits", "--json"]).json();
    assert_eq!((&approved["state"], &approved["note"]), (&json!("approved"), &json!("fits")));
    let denied = operator(&["approvals", "deny", second, "--on-behalf-of", "ada"]).ok();
    assert!(denied.contains("state         denied\n"), "{denied}");
    operator(&["approvals", "deny", second, "--on-behalf-of", "ada"]).failed(1, "ALREADY_EXISTS: ");
    assert_eq!((asked.on_disk("Cargo.lock"), asked.on_disk("go.sum")), ("two\n".into(), "one\n".into()));
}

#[tokio::test]
async fn exit_codes_distinguish_refusals_usage_and_an_unreachable_service() {
    let (server, used) = Run::shared(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    operator(&["run", "show", "none"]).failed(1, "RUN_NOT_FOUND: ");
    run(command(&server.base, "unknown", &["run", "list"])).failed(1, "UNAUTHENTICATED: ");
    for (args, message) in [
        (&["run"][..], "subcommand"),
        (&["run", "show", "../x"], "../x"),
        (&["call", "read_file", "path=a.txt"], "--run"),
        (&["call", "read_file", "--run", &used.id, "path"], "KEY=TEXT"),
        (&["call", "read_file", "--run", &used.id, "--input", "[]"], "--input"),
        (&["call", "..", "--run", &used.id], "\"..\""),
        (&["run", "list", "--url", "ftp://host"], "ftp://host"),
        (&["run", "list", "--token", "x"], "--token"),
        (&["man", "none"], "none"),
    ] {
        operator(args).failed(2, message);
    }
    let url = format!("http://127.0.0.1:{}", free_port());
    run(command(&url, "t", &["run", "list"])).failed(3, &format!("no answer from the service at {url}: "));
}

#[rstest]
#[tokio::test]
async fn files_are_sent_both_ways_and_changes_undone(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    let created = operator(&["run", "create", "--json"]).json();
    let id = created["run"]["runId"].as_str().unwrap();
    let agent = |args: &[&str]| run(command(&server.base, created["token"]["token"].as_str().unwrap(), args));
    put(&server.home, "local.bin", [0, 1, 2, 255]);
    let (local, back) = (server.home.join("local.bin"), server.home.join("back.bin"));
    let sent = agent(&["upload", id, local.to_str().unwrap(), "d/a.bin", "--reason", "a test"]).ok();
    assert!(sent.starts_with("created  d/a.bin\nsha256   "), "{sent}");
    // Without the version that it replaces, an upload replaces nothing.
    let again = agent(&["upload", id, local.to_str().unwrap(), "d/a.bin", "--reason", "a test"]);
    again.failed(1, "ALREADY_EXISTS: ");
    agent(&["download", id, "d/a.bin", "-o", back.to_str().unwrap()]).ok();
    assert_eq!(std::fs::read(&back).unwrap(), [0, 1, 2, 255]);

    for (path, content) in [("a.txt", "one\n"), ("b.txt", "two\n")] {
        let (path, content) = (format!("path={path}"), format!("content={content}"));
        agent(&["call", "write_file", "--run", id, &path, &content, "reason=r"]).ok();
    }
    agent(&["call", "move_file", "--run", id, "from=a.txt", "to=c.txt", "reason=r"]).ok();
    let audit = operator(&["audit", "--run", id, "--tool", "move_file"]).ok();
    assert!(audit.contains("move_file       a.txt -> c.txt \"r\" (run-token:"), "{audit}");
    agent(&["revert", id, "--last", "1", "--reason", "a mistake"]).ok();
    assert!(agent(&["call", "read_file", "--run", id, "path=a.txt"]).ok().contains("one"));
    // The last three are the move, its undoing, and the file before.
    agent(&["revert", id, "--last", "3", "--reason", "another one"]).ok();
    agent(&["call", "read_file", "--run", id, "path=b.txt"]).failed(1, "NOT_FOUND: ");
    assert!(agent(&["call", "read_file", "--run", id, "path=a.txt"]).ok().contains("one"));
    agent(&["revert", id, "--reason", "r"]).failed(2, "--last COUNT");

    let bundle = server.home.join("r.bundle");
    operator(&["bundle", id, "-o", bundle.to_str().unwrap()]).failed(1, "INVALID_REQUEST: ");
    let (of_git, _) = server.run_from_git(&[("a.txt", "a\n")], json!({})).await;
    operator(&["bundle", &of_git.id, "-o", bundle.to_str().unwrap(), "--branch", "fix"]).ok();
    assert!(std::fs::read(&bundle).unwrap().starts_with(b"# v2 git bundle\n"));

    let token = operator(&["token", "create", id, "--permission", "event:append", "--json"]).json();
    let program = server.operator().with_token(token["token"].as_str());
    let event = json!({"kind": "message", "summary": "built"});
    program.post(&format!("/v1/runs/{id}/events"), event).await.is(201);
    let events = operator(&["events", id]).ok();
    assert!(events.lines().count() == 1 && events.contains("event.message") && events.contains("built"), "{events}");
}

#[rstest]
#[tokio::test]
async fn the_beginning_of_an_id_names_a_run_if_only_one_begins_so(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    for id in ["issue-1-a", "issue-1-b", "issue-2"] {
        operator(&["run", "create", "--id", id]).ok();
    }
    let made = operator(&["run", "create", "--json"]).json()["run"]["runId"].as_str().unwrap().to_owned();
    let list = operator(&["run", "list"]).ok();
    let shown = list.lines().nth(1).unwrap().split(' ').next().unwrap();
    assert!(made.starts_with(shown) && shown.len() < made.len(), "{list}");
    assert!(operator(&["run", "show", shown]).ok().contains(&made));
    assert!(operator(&["run", "close", "issue-2"]).ok().contains("issue-2"));
    assert!(operator(&["report", "issue-1-b"]).ok().contains("issue-1-b"));
    assert!(operator(&["run", "show", "issue-2"]).ok().contains("issue-2"));
    operator(&["run", "show", "issue-1"]).failed(2, "2 IDs begin with `issue-1`: ");
    operator(&["run", "show", "other"]).failed(1, "RUN_NOT_FOUND: ");
    // What cannot be undone needs the whole ID.
    operator(&["run", "delete", shown]).failed(1, "RUN_NOT_FOUND: ");
    let oldest = operator(&["run", "list", "--oldest-first", "--limit", "1"]);
    assert!(oldest.out.contains("issue-1-a") && !oldest.out.contains("issue-1-b"), "{oldest:?}");
}

#[rstest]
#[tokio::test]
async fn operators_and_tokens_are_managed_on_a_running_service(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let operator = |args: &[&str]| run(command(&server.base, &server.operator_token, args));
    let ada = operator(&["operator", "add", "ada", "--scope", "orchestrate", "--json"]).json();
    let as_ada = |args: &[&str]| run(command(&server.base, ada["token"].as_str().unwrap(), args));
    let list = operator(&["operator", "list"]).ok();
    assert!(list.starts_with("OPERATOR ") && list.contains("\nada       orchestrate  valid  none "), "{list}");
    as_ada(&["run", "create", "--id", "r"]).ok();
    let list = operator(&["operator", "list"]).ok();
    let row = list.lines().find(|line| line.starts_with("ada ")).unwrap();
    assert!(!row.contains("none") && row.contains(" operator"), "{list}");
    let rotated = operator(&["operator", "rotate", "ada", "--overlap-seconds", "0", "--json"]).json();
    as_ada(&["run", "list"]).failed(1, "UNAUTHENTICATED: ");
    run(command(&server.base, rotated["token"].as_str().unwrap(), &["run", "list"])).ok();
    assert_eq!(operator(&["operator", "revoke", "ada"]).ok(), "ada: revoked\n");
    operator(&["operator", "revoke", "nobody"]).failed(1, "NOT_FOUND: ");
    operator(&["operator", "add", "operator", "--scope", "audit"]).failed(1, "INVALID_REQUEST: ");
    operator(&["operator", "add", "a b", "--scope", "audit"]).failed(2, "operator name");
    operator(&["operator", "add", "eve", "--scope", "root"]).failed(2, "expected one of orchestrate");

    let created = operator(&["token", "create", "r", "--permission", "file:list", "--json"]).json();
    let id = created["tokenId"].as_str().unwrap();
    let agent = |args: &[&str]| run(command(&server.base, created["token"].as_str().unwrap(), args));
    agent(&["call", "list_dir", "--run", "r"]).ok();
    let list = operator(&["token", "list", "r"]).ok();
    let row = list.lines().find(|line| line.starts_with(id)).unwrap();
    assert!(row.ends_with("file:list") && row.contains("valid"), "{list}");
    assert!(!row.contains("none"), "{list}");
    let (file, first) = (server.home.join("agent.token"), server.home.join("first.token"));
    let shown = operator(&["token", "create", "r", "--token-file", file.to_str().unwrap()]).ok();
    let in_file = std::fs::read_to_string(&file).unwrap();
    assert!(!shown.contains("wsr_") && in_file.starts_with("wsr_") && in_file.ends_with('\n'), "{shown}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    run(command(&server.base, in_file.trim_end(), &["call", "list_dir", "--run", "r"])).ok();
    operator(&["token", "create", "r", "--token-file", file.to_str().unwrap()]).failed(1, "File exists");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), in_file);
    let with_file = ["run", "create", "--id", "r", "--token-file", first.to_str().unwrap()];
    operator(&with_file).failed(1, "ALREADY_EXISTS: ");
    assert!(!first.exists(), "a file without a token");
    let rotated = operator(&["token", "rotate", "r", id, "--json"]).json();
    assert_eq!(rotated["permissions"], json!(["file:list"]));
    agent(&["call", "list_dir", "--run", "r"]).failed(1, "UNAUTHENTICATED: ");
    assert!(operator(&["token", "list", "r"]).ok().contains("revoked now"));
    operator(&["token", "revoke", "r", rotated["tokenId"].as_str().unwrap()]).ok();
    operator(&["token", "rotate", "r", id]).failed(1, "no valid token");
}

#[tokio::test]
async fn a_closed_pipe_ends_a_command_quietly() {
    let (server, used) = Run::shared(Backend::Sqlite, &[("a.txt", "one\n")]).await;
    for args in [&["audit", "--run", &used.id][..], &["run", "list", "--json"], &["man"], &["report", &used.id]] {
        let mut command = command(&server.base, &server.operator_token, args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{args:?}: {ended:?}");
    }
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    for args in [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]] {
        let printed = run(command("http://127.0.0.1:1", "t", args)).ok();
        for name in ["serve", "approvals", "export", "mcp"] {
            assert!(printed.contains(name), "{args:?} does not contain {name}");
        }
    }
    assert!(run(command("http://127.0.0.1:1", "t", &["man", "run", "create"])).ok().contains("archive"));
}
