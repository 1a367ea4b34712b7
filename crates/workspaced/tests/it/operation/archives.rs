//! Archives of closed runs: written by maintenance, verified without the service, and never a reason to lose a run.

use std::path::PathBuf;
use std::process::Output;

use model::Sha256;
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, S3, Server, Setup, exhaustive, free_port, workspaced};
use crate::operation::replay_and_repair::offline;

const MARKER: &str = "the-only-copy-of-a-text";

/// A server that archives runs a second after they were closed, to a folder, and that folder.
async fn archiving(setup: Setup) -> (Server, PathBuf) {
    let mut server = Server::prepare(setup).await;
    let folder = server.home.join("archives");
    std::fs::create_dir(&folder).unwrap();
    server.setup = server.setup.clone().arg("--archive-after", "1s").arg("--archive-to", folder.display());
    server.restart();
    (server, folder)
}

/// As [`archiving`], with a file that arms failpoints.
async fn armed(backend: Backend) -> (Server, PathBuf, PathBuf) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let (folder, armed) = (server.home.join("archives"), server.data_dir().join("failpoint"));
    std::fs::create_dir(&folder).unwrap();
    let setup = server.setup.clone().arg("--archive-after", "1s").arg("--archive-to", folder.display());
    server.setup = setup.env("WORKSPACED_FAILPOINT", &format!("@{}", armed.display()));
    server.restart();
    (server, folder, armed)
}

/// Creates a run with changes, and closes it.
async fn closed_run(server: &Server, id: &str) -> Run {
    let run = server.run_with_files(&[("src/a.txt", "one\n"), (".env", "TOKEN=x\n")], json!({"runId": id})).await;
    run.create("src/new.txt", &format!("{MARKER}\n")).await;
    let edit = json!({"path": "src/a.txt", "oldString": "one", "newString": "two", "reason": "because"});
    run.ok("edit_file", edit).await;
    run.ok("read_file", json!({"path": "src/a.txt"})).await;
    for folder in ["artifacts", "tool-cache"] {
        std::fs::write(server.workspace(id).join(folder).join("report.txt"), "report\n").unwrap();
    }
    server.operator().post(&format!("/v1/runs/{id}/close"), json!({})).await.is(200);
    run
}

async fn shown(server: &Server, id: &str) -> Value {
    server.operator().get(&format!("/v1/runs/{id}")).await.is(200)
}

/// Waits until the run is archived, and returns it.
async fn until_archived(server: &Server, id: &str) -> Value {
    let archived = async || {
        let run = shown(server, id).await;
        if run["archivedAt"].is_string() && !server.workspace(id).exists() { Ok(run) } else { Err(run) }
    };
    server.until("the run is archived", archived).await
}

/// Waits until an attempt to archive has failed.
async fn until_failed(server: &Server) {
    let has_failed =
        async || !server.nobody().get("/metrics").await.text().contains("\nworkspaced_archive_errors_total 0\n");
    server.until("an attempt fails", has_failed).await;
}

/// Runs `workspaced archive` without the service's data and database.
fn archive(args: &[&str], env: &[(String, String)]) -> Output {
    workspaced().arg("archive").args(args).envs(env.iter().cloned()).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn files(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[rstest]
#[tokio::test]
async fn a_closed_run_becomes_one_file_that_proves_itself(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (mut server, folder) = archiving(Setup::new(backend)).await;
    let open = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "open"})).await;
    let run = closed_run(&server, "r").await;
    let archived = until_archived(&server, "r").await;
    assert_eq!(archived["state"], "deleted");
    let uri = archived["archiveUri"].as_str().unwrap().to_owned();
    let [file] = &files(&folder)[..] else { panic!("one archive") };
    assert_eq!(uri, format!("file:{}", file.file_name().unwrap().to_str().unwrap()));

    // The run is listed, and every other answer names the archive.
    let list = server.operator().get("/v1/runs?state=deleted").await.is(200);
    assert_eq!(list["items"][0]["archiveUri"], uri);
    let call = run.agent.request(Method::POST, "/v1/runs/r/tools/read_file").json(&json!({"path": "src/a.txt"}));
    let refusal = run.agent.send(call).await.refused("RUN_CLOSED");
    assert!(refusal["hint"].as_str().unwrap().contains("workspaced archive read"), "{refusal}");
    let of_run = ["audit", "audit/inclusion?seq=1", "tool-calls/tc_1", "changes", "report"];
    let of_run = of_run.map(|path| format!("/v1/runs/r/{path}"));
    for path in of_run.iter().map(String::as_str).chain(["/v1/audit?run=r", "/v1/audit/stream?run=r"]) {
        let refusal = server.operator().get(path).await.refused("RUN_CLOSED");
        assert!(refusal["hint"].as_str().unwrap().contains(&uri), "{path}: {refusal}");
    }
    let verified = server.operator().get("/v1/runs/r/audit/verify").await.is(200);
    assert_eq!(verified["intact"], true, "{verified}");
    assert!(verified["archivedRecords"].as_u64().unwrap() >= 5, "{verified}");
    open.ok("read_file", json!({"path": "a.txt"})).await;

    let listed = server.operator().get("/v1/audit?tool=run.archive").await.is(200);
    let key = server.operator().get("/v1/checkpoint/key").await;
    let key = key.text().trim().to_owned();
    assert!(server.stop().success());
    let verify = server.verify(&[]);
    assert!(verify.status.success(), "{}", text(&verify));
    assert!(text(&verify).contains("are in the run's archive and were not checked"), "{}", text(&verify));
    assert!(!server.database.contains(MARKER).await, "the database still has the run's contents");

    // With nothing but the file and the key.
    let from = folder.to_str().unwrap();
    let verify = archive(&["verify", "r", "--from", from, "--checkpoint-verifier-key", &key], &[]);
    assert!(verify.status.success(), "{}", text(&verify));
    assert!(
        text(&verify).contains("r: valid") && text(&verify).contains("covered by the checkpoint"),
        "{}",
        text(&verify)
    );
    // The hash that the record has.
    let recorded = listed["items"][0]["input"]["sha256"].as_str().unwrap().to_owned();
    let verify = archive(&["verify", "r", "--from", from, "--sha256", &recorded], &[]);
    assert!(text(&verify).contains("r: valid"), "{}", text(&verify));
    let verify = archive(&["verify", "r", "--from", from, "--sha256", &"0".repeat(64)], &[]);
    assert_eq!(verify.status.code(), Some(2), "{}", text(&verify));
    let to = server.home.join("read");
    let read = archive(&["read", "r", "--from", from, "--to", to.to_str().unwrap()], &[]);
    assert_eq!(read.status.code(), Some(3), "no key was given: {}", text(&read));
    let content = |path: &str| std::fs::read_to_string(to.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(content("repo/src/a.txt"), "two\n");
    assert_eq!(content("repo/.env"), "TOKEN=x\n");
    assert_eq!(content("repo/src/new.txt"), format!("{MARKER}\n"));
    assert!(content("records.jsonl").contains("\"run.close\""));
    assert_eq!(content("artifacts/report.txt"), "report\n");
    assert!(!to.join("tool-cache").exists(), "a cache is archived");
    assert_eq!(content("base/src/a.txt"), "one\n");
    assert_eq!(files(&to.join("diffs")).len(), 2);
    let again = archive(&["read", "r", "--from", from, "--to", to.to_str().unwrap()], &[]);
    assert_eq!(again.status.code(), Some(2), "the folder is not empty: {}", text(&again));

    let unsigned = archive(&["verify", "--from", from], &[]);
    assert_eq!(unsigned.status.code(), Some(3), "{}", text(&unsigned));
    assert!(text(&unsigned).contains("NOT VERIFIED: give --checkpoint-verifier-key"), "{}", text(&unsigned));

    let bytes = std::fs::read(file).unwrap();
    for offset in [0, 600, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[offset] ^= 1;
        std::fs::write(file, &changed).unwrap();
        let verify = archive(&["verify", "--from", from], &[]);
        assert_eq!(verify.status.code(), Some(1), "the byte at {offset}: {}", text(&verify));
        assert!(text(&verify).contains("r: INVALID at "), "{}", text(&verify));
    }
}

/// The database has no copy of a large upload, whose last version is a file of the tree.
#[rstest]
#[tokio::test]
async fn an_archive_has_the_large_files_of_the_tree_and_lists_those_that_were_replaced(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, folder) = archiving(Setup::new(backend)).await;
    let budget = json!({"maxInsertions": 1_000_000, "maxDeletions": 1_000_000, "maxBytes": 1_000_000_000});
    let policy = json!({ "budget": budget });
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r", "policy": policy})).await;
    let (first, last) = ("first line\n".repeat(200_000), "last line\n".repeat(200_000));
    let url = "/v1/runs/r/files/data/large.txt";
    let put = |content: &str, before: Option<&str>| {
        let request = run.agent.request(Method::PUT, url).header("x-reason", "because").body(content.to_owned());
        run.agent.send(match before {
            None => request.header("if-none-match", "*"),
            Some(before) => request.header("if-match", format!("\"{}\"", Sha256::of(before.as_bytes()))),
        })
    };
    put(&first, None).await.is(201);
    let second = put(&last, Some(&first)).await;
    assert!(second.status < 300, "{second:?}");
    server.operator().post("/v1/runs/r/close", json!({})).await.is(200);
    until_archived(&server, "r").await;

    let key = server.operator().get("/v1/checkpoint/key").await.text().trim().to_owned();
    let (from, to) = (folder.to_str().unwrap(), server.home.join("read"));
    let args = ["read", "r", "--from", from, "--checkpoint-verifier-key", &key, "--to", to.to_str().unwrap()];
    let read = archive(&args, &[]);
    assert!(read.status.success(), "{}", text(&read));
    let said = text(&read);
    assert!(said.contains("(and 1 contents that are files of the tree)"), "{said}");
    assert!(said.contains("; 1 that records name are NOT IN THE ARCHIVE"), "{said}");
    assert_eq!(std::fs::read_to_string(to.join("repo/data/large.txt")).unwrap(), last);
    let records = std::fs::read_to_string(to.join("records.jsonl")).unwrap();
    let of_first = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let hash = Sha256::of(first.as_bytes()).to_string();
    let seq = of_first.into_iter().find(|record| record["files"][0]["newSha256"] == hash).unwrap()["seq"].clone();
    assert!(said.contains(&format!("r: absent: contents/{seq}/{hash}\n")), "{said}");
    assert_eq!(std::fs::read_to_string(to.join("absent.txt")).unwrap(), format!("contents/{seq}/{hash}\n"));
}

#[rstest]
#[tokio::test]
async fn an_archive_is_verified_with_any_key_that_leads_to_the_one_that_signed_it(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, folder) = archiving(Setup::new(backend)).await;
    let mut keys = Vec::new();
    for (number, id) in ["zero", "one", "two"].into_iter().enumerate() {
        if number > 0 {
            assert!(server.stop().success());
            // The archive of a run that is closed meanwhile has a checkpoint by both keys.
            for action in ["retire", "rotate"].into_iter().skip(usize::from(number == 1)) {
                let done = offline(&server, "key", &[action]);
                assert!(done.status.success(), "{}", text(&done));
            }
            server.restart();
        }
        closed_run(&server, id).await;
        until_archived(&server, id).await;
        keys.push(server.operator().get("/v1/checkpoint/key").await.text().trim().to_owned());
    }
    keys.dedup();
    assert_eq!(keys.len(), 3);
    let verify = |key: &str, id: &str| {
        archive(&["verify", id, "--from", folder.to_str().unwrap(), "--checkpoint-verifier-key", key], &[])
    };
    for (signed_by, id) in ["zero", "one", "two"].into_iter().enumerate() {
        for (given, key) in keys.iter().enumerate() {
            let done = verify(key, id);
            // A key vouches for its successors. With a stolen earlier key any past could be signed.
            let code = i32::from(given > signed_by);
            assert_eq!(done.status.code(), Some(code), "{id} with key {given}: {}", text(&done));
        }
    }
    let done = verify(&keys[2], "one");
    assert!(text(&done).contains("with the key that was in force when it was written"), "{}", text(&done));
}

#[rstest]
#[tokio::test]
async fn a_kill_between_any_two_steps_loses_nothing(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, folder, armed) = armed(backend).await;
    for failpoint in [
        "archive.built",
        "archive.stored",
        "archive.verified",
        "removal.recording",
        "removal.recorded",
        "removal.purging",
    ] {
        let step = failpoint.rsplit('.').next().unwrap();
        std::fs::write(&armed, failpoint).unwrap();
        closed_run(&server, step).await;
        server.wait();
        std::fs::remove_file(&armed).unwrap();
        server.restart();
        let uri = until_archived(&server, step).await["archiveUri"].as_str().unwrap().to_owned();
        let archives: Vec<_> = files(&folder)
            .into_iter()
            .filter(|file| file.display().to_string().contains(&format!("/{step}.")))
            .collect();
        assert_eq!(archives.len(), 1, "{step}: {archives:?}");
        assert!(archives[0].ends_with(uri.trim_start_matches("file:")), "{step}: {uri}");
    }
    assert!(server.stop().success());
    let verify = server.verify(&[]);
    assert!(verify.status.success(), "{}", text(&verify));
    assert!(!server.database.contains(MARKER).await, "a purge was not completed");
    let verify = archive(&["verify", "--from", folder.to_str().unwrap()], &[]);
    assert!(text(&verify).contains("6 archives, 0 invalid"), "{}", text(&verify));
}

#[rstest]
#[tokio::test]
async fn without_its_store_a_run_stays_whole(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, folder) = archiving(Setup::new(backend)).await;
    let away = folder.with_extension("away");
    std::fs::rename(&folder, &away).unwrap();
    // A file with its name, so that no folder is created.
    std::fs::write(&folder, "").unwrap();
    let run = closed_run(&server, "r").await;
    until_failed(&server).await;
    assert_eq!(shown(&server, "r").await["state"], "closed");
    run.ok("read_file", json!({"path": "src/a.txt"})).await;
    server.operator().get("/v1/runs/r/audit").await.is(200);
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    until_archived(&server, "r").await;
    assert_eq!(files(&folder).len(), 1);
}

#[rstest]
#[tokio::test]
async fn a_run_that_is_read_while_it_is_archived_answers(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, folder, armed) = armed(backend).await;
    std::fs::write(&armed, "removal.recording:1:pause").unwrap();
    let run = closed_run(&server, "r").await;
    server.until_paused(&armed).await;
    run.ok("read_file", json!({"path": "src/a.txt", "toolCallId": "meanwhile"})).await;
    std::fs::remove_file(&armed).unwrap();
    until_archived(&server, "r").await;
    let [file] = &files(&folder)[..] else { panic!("the archive without the last read is deleted") };
    let read = server.home.join("read");
    let args = ["read", "r", "--from", folder.to_str().unwrap(), "--to", read.to_str().unwrap()];
    // Everything was checked except for the signature, whose key is not given.
    assert_eq!(archive(&args, &[]).status.code(), Some(3), "{}", file.display());
    assert!(std::fs::read_to_string(read.join("records.jsonl")).unwrap().contains("\"meanwhile\""));
}

#[rstest]
#[tokio::test]
async fn a_damaged_run_does_not_keep_the_others_from_being_archived(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start_with(Setup::new(backend)).await;
    for id in ["damaged", "whole"] {
        closed_run(&server, id).await;
    }
    assert!(server.stop().success());
    server.database.drop_triggers().await;
    let damage = "update call_reply set body = '{', body_bytes = null, packed = null where position in (select position from audit_record \
        where run_no = (select run_no from run where run_id = 'damaged'))";
    assert!(server.database.tamper(damage).await.unwrap() > 0);
    let folder = server.home.join("archives");
    std::fs::create_dir(&folder).unwrap();
    server.setup = server.setup.clone().arg("--archive-after", "1s").arg("--archive-to", folder.display());
    server.restart();
    until_archived(&server, "whole").await;
    until_failed(&server).await;
    assert_eq!(shown(&server, "damaged").await["state"], "closed");
    assert!(server.log().contains("a stored reply or approval cannot be read"), "{}", server.log());
    assert_eq!(files(&folder).len(), 1);
}

/// A role that cannot delete records archives nothing, instead of deleting half of a run.
#[tokio::test]
async fn without_the_privilege_to_delete_the_service_does_not_start() {
    let mut server = Server::start(Backend::Postgres).await;
    closed_run(&server, "r").await;
    assert!(server.stop().success());
    server.database.tamper(include_str!("../../../../../deploy/roles.sql")).await.unwrap();
    let owner = server.database.clone();
    server.database.url.push_str("&options=-c%20role%3Dworkspaced_service");
    let folder = server.home.join("archives");
    std::fs::create_dir(&folder).unwrap();
    server.setup = server.setup.clone().arg("--archive-after", "1s").arg("--archive-to", folder.display());
    let mut serve = server.command("serve");
    let refused = serve.args(["--listen", "127.0.0.1:0"]).args(&server.setup.args).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    let grant = "GRANT DELETE ON audit_record, record_path, call_reply, artifact, upload TO";
    assert!(text(&refused).contains(grant), "{}", text(&refused));

    owner.tamper(&format!("{grant} workspaced_service")).await.unwrap();
    server.restart();
    until_archived(&server, "r").await;
    // It is revoked while the service runs.
    owner.tamper(include_str!("../../../../../deploy/roles.sql")).await.unwrap();
    closed_run(&server, "later").await;
    until_failed(&server).await;
    // The failure may have been that of the deletion of the first run, which was still in progress.
    server.until_logged(grant).await;
    assert_eq!(shown(&server, "later").await["state"], "closed");
    owner.tamper(&format!("{grant} workspaced_service")).await.unwrap();
    until_archived(&server, "later").await;
}

#[rstest]
#[tokio::test]
async fn deletion_and_archive_exclude_each_other(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, folder) = archiving(Setup::new(backend)).await;
    closed_run(&server, "kept").await;
    server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "deleted"})).await;
    server.operator().delete("/v1/runs/deleted").await.is(200);
    let before = until_archived(&server, "kept").await;
    let after = server.operator().delete("/v1/runs/kept").await.is(200);
    assert_eq!((&after["archiveUri"], &after["headSeq"]), (&before["archiveUri"], &before["headSeq"]));
    assert_eq!(files(&folder).len(), 1, "a deleted run is not archived, and an archive stays");
    assert!(shown(&server, "deleted").await.get("archivedAt").is_none());
    server.operator().get("/v1/runs/deleted/audit").await.is(200);
}

/// Returns bytes that cannot be compressed.
fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn archives_go_to_a_bucket_as_soon_as_it_answers(
    #[values(exhaustive::SQLITE, exhaustive::POSTGRES)] backend: Backend,
) {
    let port = free_port();
    let store = "s3://archives/of/runs";
    let mut setup = Setup::new(backend).arg("--archive-after", "1s").arg("--archive-to", store);
    setup.env = S3::env(port);
    let server = Server::start_with(setup).await;
    let small = closed_run(&server, "small").await;
    until_failed(&server).await;
    assert_eq!(shown(&server, "small").await["state"], "closed");
    small.ok("read_file", json!({"path": "src/a.txt"})).await;

    let s3 = S3::start(port).await;
    until_archived(&server, "small").await;
    // Sent in parts.
    let large = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "large"})).await;
    let bytes = random_bytes(20 << 20);
    std::fs::write(large.repo.join("large.bin"), &bytes).unwrap();
    server.operator().post("/v1/runs/large/close", json!({})).await.is(200);
    let uri = until_archived(&server, "large").await["archiveUri"].as_str().unwrap().to_owned();
    assert!(uri.starts_with("s3://archives/of/runs/large."), "{uri}");

    let key = server.operator().get("/v1/checkpoint/key").await.text().trim().to_owned();
    let env = S3::env(port);
    let list = archive(&["list", "--from", store], &env);
    assert!(text(&list).contains(&uri) && text(&list).contains("2 archives"), "{}", text(&list));
    let verify = archive(&["verify", "--from", store, "--checkpoint-verifier-key", &key], &env);
    assert!(verify.status.success() && text(&verify).contains("2 archives, 0 invalid"), "{}", text(&verify));
    let to = server.home.join("read");
    let (to_text, with_key) = (to.to_str().unwrap(), "--checkpoint-verifier-key");
    let read = archive(&["read", "large", "--from", store, "--to", to_text, with_key, &key], &env);
    assert!(read.status.success(), "{}", text(&read));
    assert_eq!(std::fs::read(to.join("repo/large.bin")).unwrap(), bytes);

    // A changed object is found.
    let object = format!("{}/archives/of/runs/{}", s3.url, uri.rsplit('/').next().unwrap());
    let mut stored = reqwest::get(&object).await.unwrap().bytes().await.unwrap().to_vec();
    stored[10 << 20] ^= 1;
    assert!(reqwest::Client::new().put(&object).body(stored).send().await.unwrap().status().is_success());
    let verify = archive(&["verify", "large", "--from", store], &env);
    assert_eq!(verify.status.code(), Some(1), "{}", text(&verify));
    assert!(text(&verify).contains("large: INVALID at files.tar.zst"), "{}", text(&verify));
}

/// The checkpoint that covers the run was signed by an earlier key, and stays the one of its proof.
#[rstest]
#[tokio::test]
async fn a_run_is_archived_with_the_proof_of_an_earlier_key(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend).arg("--checkpoint-seconds", 3600)).await;
    let folder = server.home.join("archives");
    std::fs::create_dir(&folder).unwrap();
    server.restart();
    let other = server.run(json!({})).await;
    closed_run(&server, "r").await;
    let old = server.operator().get("/v1/checkpoint/key").await.text().trim().to_owned();
    assert!(server.stop().success());
    let rotated = server.command("key").arg("rotate").output().unwrap();
    assert!(rotated.status.success(), "{}", text(&rotated));

    let (plain, mut killed) = (server.setup.clone(), server.setup.clone());
    killed = killed.arg("--archive-after", "1s").arg("--archive-to", folder.display());
    server.setup = killed.clone().env("WORKSPACED_FAILPOINT", "archive.stored");
    server.restart();
    server.wait();
    // A newer checkpoint changes nothing about the archive.
    server.setup = plain;
    server.restart();
    server.reconnect(&other).create("a.txt", "x\n").await;
    assert!(server.stop().success());
    server.setup = killed;
    server.restart();
    until_archived(&server, "r").await;
    assert_eq!(files(&folder).len(), 1, "an archive of the attempt that was killed is left");
    let from = folder.to_str().unwrap();
    let verify = archive(&["verify", "r", "--from", from, "--checkpoint-verifier-key", &old], &[]);
    assert!(verify.status.success() && text(&verify).contains("covered by the checkpoint"), "{}", text(&verify));
}
