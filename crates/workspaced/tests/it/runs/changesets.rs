//! Change sets: what a command has changed outside of the service is judged, recorded and applied as a whole, or not at all.

mod judged;
mod large;
mod links;
mod together;

use std::os::unix::fs::PermissionsExt as _;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tar::EntryType;

use crate::harness::{Answer, Backend, CHANGESET_TYPE, Run, Server, Setup, changeset_body, sha256};

/// A layer.
pub(crate) struct Layer(tar::Builder<Vec<u8>>);

impl Layer {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    pub(crate) fn entry(mut self, path: &str, kind: EntryType, mode: u32, bytes: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        // The checks of the library would refuse what a hostile command sends.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        self.0.append(&header, bytes).unwrap();
        self
    }

    pub(crate) fn file(self, path: &str, text: impl AsRef<[u8]>) -> Self {
        self.entry(path, EntryType::Regular, 0o644, text.as_ref())
    }

    pub(crate) fn link(mut self, path: &str, kind: EntryType, target: &str) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        self.0.append_link(&mut header, path, target).unwrap();
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// The run with a token of a runner.
pub(crate) async fn runner(run: &Run, more: &[&str]) -> Run {
    let mut permissions = vec!["changeset:apply", "file:read", "file:write:replace"];
    permissions.extend(more);
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": permissions})).await;
    let agent = run.agent.with_token(token.is(201)["token"].as_str());
    Run { agent, ..run.clone() }
}

pub(crate) async fn head(run: &Run) -> u64 {
    run.last_record().await["seq"].as_u64().unwrap()
}

pub(crate) async fn send(run: &Run, changeset: &Value, layer: &[u8]) -> Answer {
    send_body(run, CHANGESET_TYPE, changeset_body(changeset, layer)).await
}

pub(crate) async fn send_body(run: &Run, content_type: &str, body: Vec<u8>) -> Answer {
    let request = run.agent.request(Method::POST, &format!("/v1/runs/{}/changesets", run.id));
    run.agent.send(request.header("content-type", content_type).body(body)).await
}

pub(crate) fn with(base: &Value, extra: &Value) -> Value {
    let mut all = base.clone();
    all.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    all
}

#[rstest]
#[tokio::test]
async fn a_set_is_one_call_after_its_command(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("a.txt", "a\n"), ("b/b.txt", "b\n"), ("gone.txt", "g\n"), ("old/1.txt", "1\n"), ("old/2.txt", "2\n")];
    let (_, run) = Run::shared(backend, &files).await;
    let runner = runner(&run, &["evidence:attest"]).await;
    let layer = Layer::new()
        .file("a.txt", "a2\n")
        .entry("n/run.sh", EntryType::Regular, 0o755, b"#!/bin/sh\n")
        .file("b/b.txt", "b\n")
        .file(".wh.gone.txt", "")
        .file(".wh.old", "")
        .bytes();
    let before = head(&run).await;
    let set = json!({
        "changesetId": "cs_1", "basedOnSeq": before, "reason": "cargo fmt",
        "command": {"argv": ["cargo", "fmt", "--", "a b"], "cwd": ".", "exitCode": 0, "durationMicros": 412,
            "startedAt": "2026-01-01T00:00:00Z", "outputSha256": sha256("out"), "environment": {"kind": "docker"}},
    });
    let answer = send(&runner, &set, &zstd::encode_all(&layer[..], 1).unwrap()).await.ok();
    assert_eq!(answer["applied"], json!(["a.txt", "gone.txt", "n/run.sh", "old/1.txt", "old/2.txt"]), "{answer:#}");
    assert_eq!((&answer["merged"], &answer["left"], &answer["notTaken"]), (&json!([]), &json!([]), &json!({})));
    assert_eq!((&answer["eventSeq"], &answer["seq"]), (&json!(before + 1), &json!(before + 2)));
    assert_eq!(answer["summary"], "applied 5 files (+2 -4)");
    assert_eq!(run.on_disk("a.txt"), "a2\n");
    let records = run.audit().await;
    let [event, applied] = &records[records.len() - 2..] else { panic!() };
    assert_eq!(event["tool"], "event.command");
    assert_eq!(event["input"]["summary"], "cargo fmt -- 'a b': exit 0");
    assert_eq!(event["input"]["data"]["environment"]["kind"], "docker");
    assert_eq!((&applied["tool"], &applied["toolCallId"]), (&json!("apply_changeset"), &json!("cs_1")));
    assert_eq!(applied["evidence"]["eventId"], event["toolCallId"], "it names its command");
    assert_eq!(applied["files"].as_array().unwrap().len(), 5);
    let diff = run.artifact(applied["artifactUris"][0].as_str().unwrap()).await;
    assert!(diff.contains("new file mode 100755") && diff.contains("+a2") && diff.contains("deleted file"), "{diff}");

    // The same set again answers what it answered; another one under its ID is refused.
    assert_eq!(send(&runner, &set, &zstd::encode_all(&layer[..], 1).unwrap()).await.ok(), answer);
    assert_eq!(head(&run).await, before + 2);
    send(&runner, &with(&set, &json!({"reason": "other"})), &layer).await.refused("TOOL_CALL_ID_REUSED");

    assert!(!run.present_files().await.keys().any(|path| path == "gone.txt" || path.starts_with("old")));
    run.ok("revert_calls", json!({"toolCallIds": ["cs_1"], "reason": "undo"})).await;
    let files: Vec<_> = run.present_files().await.into_keys().collect();
    assert_eq!(files, ["a.txt", "b/b.txt", "gone.txt", "old/1.txt", "old/2.txt"]);
    assert_eq!(run.on_disk("a.txt"), "a\n");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_set_without_changes_is_only_the_event_of_its_command(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let runner = runner(&run, &[]).await;
    let before = head(&run).await;
    let set = json!({"changesetId": "cs_1", "basedOnSeq": before, "reason": "ls", "command": {"argv": ["ls"], "exitCode": 0, "durationMicros": 1}});
    // The layer has a file, as it is in the run.
    let layer = Layer::new().file("a.txt", "a\n").bytes();
    for _ in 0..2 {
        let answer = send(&runner, &set, &layer).await.ok();
        assert_eq!(
            (&answer["applied"], &answer["eventSeq"], &answer["seq"]),
            (&json!([]), &json!(before + 1), &json!(before + 1))
        );
        assert_eq!(answer["artifactUris"], json!([]), "nothing has kept a diff");
    }
    let record = run.last_record().await;
    assert_eq!((&record["seq"], &record["tool"]), (&json!(before + 1), &json!("event.command")));
    // One that leaves something is more.
    let set = with(&set, &json!({"changesetId": "cs_2", "onDenied": "leave"}));
    let answer = send(&runner, &set, &Layer::new().file(".env", "A=1\n").bytes()).await.ok();
    assert_eq!((&answer["eventSeq"], &answer["seq"]), (&json!(before + 2), &json!(before + 3)), "{answer:#}");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_file_that_has_changed_since_is_refused_or_merged(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let text = "1\n2\n3\n4\n5\n6\n7\n";
    let (_, run) = Run::shared(backend, &[("a.txt", text), ("b.txt", "b\n"), ("c.txt", "c\n")]).await;
    let runner = runner(&run, &[]).await;
    let base = head(&run).await;
    run.replace("a.txt", &text.replace('1', "one"), &sha256(text)).await.ok();
    run.ok("delete_file", json!({"path": "c.txt", "expectedSha256": sha256("c\n"), "reason": "r"})).await;
    let set = json!({"basedOnSeq": base, "reason": "fmt"});
    let layer = Layer::new().file("a.txt", text.replace('7', "seven")).file("b.txt", "b2\n").bytes();
    let before = run.files();
    let refused = send(&runner, &set, &layer).await.refused("WRITE_CONFLICT");
    assert_eq!(refused["path"], "a.txt");
    assert_eq!(refused["currentSha256"], json!(sha256(text.replace('1', "one"))), "{refused:#}");
    assert!(run.files() == before, "a refused set changes nothing");
    // Content that is there already is no conflict, and is not written.
    let same = Layer::new().file("a.txt", text.replace('1', "one")).file(".wh.c.txt", "").bytes();
    assert_eq!(send(&runner, &set, &same).await.ok()["applied"], json!([]));

    let merge = with(&set, &json!({"onConflict": "merge"}));
    let overlapping = Layer::new().file("a.txt", text.replace('1', "uno")).bytes();
    let unmerged = send(&runner, &merge, &overlapping).await.refused("WRITE_CONFLICT");
    assert_eq!(unmerged["conflictRegions"].as_array().unwrap().len(), 1, "{unmerged:#}");
    let deleted = Layer::new().file("c.txt", "c2\n").bytes();
    let of_deleted = send(&runner, &merge, &deleted).await.refused("WRITE_CONFLICT");
    // Who has asked for a merge is not told to ask for one.
    for (refused, is_offered) in [(refused, true), (unmerged, false), (of_deleted, false)] {
        assert_eq!(refused["hint"].as_str().unwrap().contains("`merge`"), is_offered, "{refused:#}");
    }
    let answer = send(&runner, &merge, &layer).await.ok();
    assert_eq!((&answer["applied"], &answer["merged"]), (&json!(["b.txt"]), &json!(["a.txt"])));
    assert_eq!(run.on_disk("a.txt"), "one\n2\n3\n4\n5\n6\nseven\n");
    let ahead = with(&set, &json!({"basedOnSeq": base + 1000}));
    send(&runner, &ahead, &layer).await.refused("INVALID_REQUEST");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn what_is_denied_refuses_the_set_or_is_left(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"kinds": {"BINARY": "DENY"}}});
    let (_, run) = Run::shared_with(backend, &[("a.txt", "a\n"), ("keys/a.txt", "k\n")], policy).await;
    run.put(".env", "A=1\n");
    run.put("keys/.env", "A=1\n");
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r", "command": {"argv": ["evil"], "exitCode": 0}});
    let leave = with(&set, &json!({"onDenied": "leave"}));
    let token = format!("token = ghp_{}\n", "a1".repeat(18));
    let before = run.files();
    for (path, kind, content, code, rule) in [
        (".env", EntryType::Regular, "A=2\n", "POLICY_DENIED_SECRET", "kind:SECRET_LIKE"),
        ("id_rsa", EntryType::Regular, "key\n", "POLICY_DENIED_SECRET", "kind:SECRET_LIKE"),
        ("new.txt", EntryType::Regular, &*token, "POLICY_DENIED_SECRET", "credential:github-token"),
        (".git/hooks/post-commit", EntryType::Regular, "x", "PATH_REJECTED", "PATH_REJECTED"),
        ("pipe", EntryType::Fifo, "", "PATH_REJECTED", "layer:a-FIFO"),
        ("dev", EntryType::Char, "", "PATH_REJECTED", "layer:a-device"),
        ("sl", EntryType::Symlink, "../a.txt", "PATH_REJECTED", "PATH_REJECTED"),
        ("hl", EntryType::Link, "a.txt", "PATH_REJECTED", "layer:a-hard-link"),
        ("a\u{1}b", EntryType::Regular, "x", "PATH_REJECTED", "PATH_REJECTED"),
        (".wh.full", EntryType::Regular, "x", "PATH_REJECTED", "layer:a-deletion-that-is-no-empty-file"),
        ("image.bin", EntryType::Regular, "\0\u{1}", "POLICY_DENIED", "kind:BINARY"),
        ("a.txt/under", EntryType::Regular, "x", "NOT_A_DIRECTORY", "NOT_A_DIRECTORY"),
    ] {
        let entry = |layer: Layer| match kind {
            EntryType::Symlink | EntryType::Link => layer.link(path, kind, content),
            kind => layer.entry(path, kind, 0o644, content.as_bytes()),
        };
        let layer = entry(Layer::new().file("ok.txt", "ok\n")).bytes();
        let refused = send(&runner, &set, &layer).await;
        assert_eq!(refused.json()["code"], code, "{path}: {}", refused.text());
        assert!(run.files() == before, "{path}: a refused set changes nothing");
        let records = run.audit().await;
        let [refusal, event] = &records[records.len() - 2..] else { panic!() };
        assert_eq!((&refusal["outcome"], &refusal["code"]), (&json!("refused"), &json!(code)), "{path}");
        assert_eq!(event["tool"], "event.command", "the command was run all the same");

        let dry = with(&leave, &json!({"dryRun": true}));
        let answer = send(&runner, &dry, &layer).await.ok();
        assert_eq!(answer["left"][0]["rule"], rule, "{path}: {answer:#}");
        assert_eq!(answer["applied"], json!(["ok.txt"]), "{path}");
        assert!(run.files() == before, "{path}: a dry run changes nothing");
    }
    // What a command has never seen is not deleted with its folder.
    let answer = send(&runner, &leave, &Layer::new().file(".wh.keys", "").file(".env", "A=2\n").bytes()).await.ok();
    assert_eq!(answer["applied"], json!(["keys/a.txt"]));
    assert_eq!(answer["left"], json!([{"path": ".env", "rule": "kind:SECRET_LIKE"}]));
    assert_eq!((run.on_disk(".env"), run.on_disk("keys/.env")), ("A=1\n".to_owned(), "A=1\n".to_owned()));
}

#[rstest]
#[tokio::test]
async fn a_hostile_layer_is_refused_as_a_whole(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"maxTransferBytes": 16 << 20}});
    let (_, run) = Run::shared_with(backend, &[("a.txt", "a\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r", "onDenied": "leave"});
    let before = run.files();
    let many = (0..50_001).fold(Layer::new(), |layer, number| layer.file(&format!("f{number}"), ""));
    let zeros = vec![0; 7 << 20];
    let bomb = (0..10).fold(Layer::new(), |layer, number| layer.file(&format!("b{number}"), &zeros));
    let cut = Layer::new().file("a.txt", "cut\n").bytes();
    for (what, layer, code) in [
        ("..", Layer::new().file("../a.txt", "x").bytes(), "PATH_REJECTED"),
        ("absolute", Layer::new().file("/etc/passwd", "x").bytes(), "PATH_REJECTED"),
        ("many", zstd::encode_all(&many.bytes()[..], 1).unwrap(), "INVALID_REQUEST"),
        ("bomb", zstd::encode_all(&bomb.bytes()[..], 1).unwrap(), "INVALID_REQUEST"),
        ("cut", cut[..700].to_vec(), "INVALID_REQUEST"),
        ("no tar", b"no tar".to_vec(), "INVALID_REQUEST"),
        ("empty", Vec::new(), "INVALID_REQUEST"),
    ] {
        let refused = send(&runner, &set, &layer).await;
        assert_eq!(refused.json()["code"], code, "{what}: {}", refused.text());
        assert_eq!(run.last_record().await["code"], code, "{what}: recorded");
        assert!(run.files() == before, "{what}");
    }
    for (content_type, body) in [
        ("application/json", b"{}".to_vec()),
        ("multipart/form-data; boundary=b", b"garbage".to_vec()),
        (
            "multipart/form-data; boundary=b",
            b"--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n--b--\r\n".to_vec(),
        ),
        ("multipart/form-data; boundary=b", b"--b--\r\n".to_vec()),
    ] {
        send_body(&runner, content_type, body).await.refused("INVALID_REQUEST");
        assert_eq!(run.last_record().await["tool"], "apply_changeset");
    }
    let layer = Layer::new().file("a.txt", "x\n").bytes();
    for extra in
        [json!({"surprise": 1}), json!({"reason": ""}), json!({"command": {"argv": []}}), json!({"basedOnSeq": -1})]
    {
        send(&runner, &with(&set, &extra), &layer).await.refused("INVALID_REQUEST");
    }
    let large = vec![b'x'; 17 << 20];
    let too_large = send(&runner, &set, &large).await;
    assert_eq!(too_large.json()["code"], "BODY_TOO_LARGE");
    // Without the permission, before the body is read.
    send(&run, &set, &layer).await.refused("FORBIDDEN");
    assert!(!run.created["token"]["permissions"].to_string().contains("changeset"), "never implied");
}

#[rstest]
#[tokio::test]
async fn generated_and_ignored_files_are_counted_and_not_taken(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[(".gitignore", "*.log\n"), ("a.txt", "a\n"), ("dist/kept.js", "k\n")]).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "build"});
    let layer = Layer::new()
        .file("target/debug/app", "x")
        .file("target/debug/lib", "x")
        .file("node_modules/m/index.js", "x")
        .file("x.log", "x")
        .file("sub/y.log", "x")
        .file("a.txt", "a2\n")
        .bytes();
    let answer = send(&runner, &set, &layer).await.ok();
    assert_eq!(answer["notTaken"], json!({"target/": 2, "node_modules/": 1, "x.log": 1, "sub/": 1}));
    assert_eq!(answer["applied"], json!(["a.txt"]));
    assert!(answer["summary"].as_str().unwrap().ends_with("5 generated or ignored and not taken"), "{answer:#}");
    assert!(!run.files().contains_key("x.log") && !run.files().contains_key("target/debug/app"));
}

#[rstest]
#[tokio::test]
async fn a_set_waits_for_one_approval(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let policy = json!({"policy": {"kinds": {"LOCKFILE": "REQUIRE_EVIDENCE"}, "requireApprovalIf": ["deletesFile"],
        "allowModeChange": true}});
    let files = [("Cargo.lock", "v3\n"), ("a.txt", "a\n"), ("b.txt", "b\n")];
    let (_, run) = Run::shared_with(backend, &files, policy).await;
    let (runner, attesting) = (runner(&run, &[]).await, runner(&run, &["evidence:attest"]).await);
    let based = head(&run).await;
    let set = |id: &str, code: i64| {
        let command = json!({"argv": ["cargo", "update"], "exitCode": code});
        json!({"changesetId": id, "basedOnSeq": based, "reason": "update", "command": command})
    };
    // The command itself is the evidence, if its runner may attest it and it succeeded.
    let lock = Layer::new().file("Cargo.lock", "v4\n").bytes();
    let waits = send(&runner, &set("cs_a", 0), &lock).await.is(202);
    assert_eq!(waits["reasons"], json!(["evidence:unattested", "kind:LOCKFILE"]));
    let waits = send(&attesting, &set("cs_b", 1), &lock).await.is(202);
    assert!(waits["reasons"].to_string().contains("exitCode"), "{waits:#}");
    assert_eq!(run.last_record().await["tool"], "event.command");
    send(&attesting, &set("cs_c", 0), &lock).await.ok();
    assert_eq!(run.on_disk("Cargo.lock"), "v4\n");

    let layer = Layer::new()
        .entry("a.txt", EntryType::Regular, 0o755, b"a2\n")
        .file(".wh.b.txt", "")
        .file("c.txt", "c\n")
        .bytes();
    let layer = zstd::encode_all(&layer[..], 1).unwrap();
    let waits = send(&runner, &set("cs_d", 0), &layer).await.is(202);
    assert_eq!(waits["reasons"], json!(["requireApprovalIf:deletesFile"]));
    assert_eq!(run.on_disk("a.txt"), "a\n");
    let path = format!("/v1/approvals/{}", waits["approvalId"].as_str().unwrap());
    let approval = run.operator.get(&path).await.ok();
    assert_eq!(approval["files"].as_array().unwrap().len(), 3, "{approval:#}");
    let approved = run.operator.post(&format!("{path}/approve"), json!({"decidedBy": "ada"})).await.ok();
    assert_eq!(approved["state"], "approved", "{approved:#}");
    assert_eq!((run.on_disk("a.txt"), run.on_disk("c.txt")), ("a2\n".to_owned(), "c\n".to_owned()));
    let decided = run.last_record().await;
    assert!(!run.present_files().await.contains_key("b.txt"));
    assert_eq!(decided["evidence"]["eventId"], "cs_d.command", "it names its command");
    assert_eq!((&decided["tool"], &decided["seq"]), (&json!("apply_changeset"), &approved["seq"]));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn what_was_denied_is_not_stored_with_a_set_that_waits(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"requireApprovalIf": ["deletesFile"]}});
    let (server, run) = Run::shared_with(backend, &[("a.txt", "a\n"), ("b.txt", "b\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let secret = format!("ghp_{}", "a1".repeat(18));
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r", "onDenied": "leave",
        "command": {"argv": ["curl", "-H", format!("Authorization: Bearer {secret}")], "exitCode": 0}});
    let layer = Layer::new()
        .file("a.txt", "a2\n")
        .file(".wh.b.txt", "")
        .file(".env", "PASSWORD=hunter2hunter2\n")
        .file("target/app", "not taken")
        .bytes();
    let waits = send(&runner, &set, &layer).await.is(202);
    let id = waits["approvalId"].as_str().unwrap();
    let database = rusqlite::Connection::open(server.database.url.strip_prefix("sqlite://").unwrap()).unwrap();
    let input = "select input from approval where approval_id = ?1";
    let input: String = database.query_row(input, [id], |row| row.get(0)).unwrap();
    assert!(!input.contains(&secret), "a credential of the command is stored");
    let input: Value = serde_json::from_str(&input).unwrap();
    let stored = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, input["layerBase64"].as_str().unwrap());
    let stored = zstd::decode_all(&stored.unwrap()[..]).unwrap();
    let mut stored = tar::Archive::new(&stored[..]);
    let paths = stored.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().to_str().unwrap().to_owned());
    assert_eq!(paths.collect::<Vec<_>>(), ["a.txt", ".wh.b.txt"]);
    let approve = format!("/v1/approvals/{id}/approve");
    assert_eq!(run.operator.post(&approve, json!({"decidedBy": "ada"})).await.ok()["state"], "approved");
    assert_eq!(run.present_files().await.into_keys().collect::<Vec<_>>(), ["a.txt"]);
    assert_eq!(run.on_disk("a.txt"), "a2\n");
}

#[rstest]
#[tokio::test]
async fn a_repetition_of_what_waited_says_what_was_decided(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let policy = json!({"policy": {"requireApprovalIf": ["deletesFile"]}});
    let (_server, run) = Run::shared_with(backend, &[("a.txt", "a\n"), ("b.txt", "b\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"changesetId": "cs_1", "basedOnSeq": head(&run).await, "reason": "r"});
    let layer = Layer::new().file(".wh.a.txt", "").bytes();
    let decide = async |waits: &Value, verb: &str, note: &str| {
        let path = format!("/v1/approvals/{}/{verb}", waits["approvalId"].as_str().unwrap());
        run.operator.post(&path, json!({"decidedBy": "ada", "note": note})).await.ok();
    };
    let waits = send(&runner, &set, &layer).await.is(202);
    assert!(send(&runner, &set, &layer).await.is(202).get("resolution").is_none());
    decide(&waits, "approve", "fine").await;
    let again = send(&runner, &set, &layer).await.is(202);
    assert!(again["resolution"].as_str().unwrap().starts_with("approved (record "), "{again}");
    assert_eq!(again["approvalId"], waits["approvalId"]);
    // So does that of any other call.
    let sha256 = crate::harness::sha256(b"b\n");
    let delete = json!({"path": "b.txt", "expectedSha256": sha256, "reason": "r", "toolCallId": "tc_mine"});
    let waits = run.call("delete_file", delete.clone()).await.is(202);
    decide(&waits, "deny", "keep it").await;
    let again = run.call("delete_file", delete.clone()).await.is(202);
    assert_eq!(again["resolution"], "denied: keep it", "{again}");
    assert!(run.text("delete_file", delete).await.text().contains("The approval is decided: denied: keep it."));
}

#[rstest]
#[tokio::test]
async fn the_memory_of_an_unpacked_layer_is_reserved(#[values(Backend::Sqlite)] backend: Backend) {
    // Of 16 MiB, 6 are for large bodies.
    let setup = Setup::new(backend).arg("--max-body-bytes", 1 << 20).arg("--max-memory-bytes", 16 << 20);
    let (server, armed) = Server::start_armed(setup.arg("--client-timeout-seconds", 1)).await;
    let (run, other) = (server.run(json!({})).await, server.run(json!({})).await);
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r"});
    let layer = zstd::encode_all(&Layer::new().file("z.bin", vec![0; 7 << 20]).bytes()[..], 1).unwrap();
    assert!(layer.len() < 4096, "{} bytes", layer.len());
    std::fs::write(&armed, "transaction.staged:1:pause").unwrap();
    let sent = tokio::spawn(async move { send(&runner, &set, &layer).await });
    server.until_paused(&armed).await;
    // What it has unpacked is held until it has ended, however small it was as it was sent.
    let path = "n".repeat(100_000);
    other.call("read_file", json!({"path": path})).await.refused("UNAVAILABLE");
    std::fs::write(&armed, "").unwrap();
    sent.await.unwrap().ok();
    other.call("read_file", json!({"path": path})).await.refused("PATH_REJECTED");
}

#[rstest]
#[tokio::test]
async fn a_set_with_denied_files_holds_no_more_than_any_other(#[values(Backend::Sqlite)] backend: Backend) {
    let text = "0123456789abcde\n".repeat((1 << 20) / 16);
    let paths: Vec<_> = (0..140).map(|number| format!("f{number}.txt")).collect();
    let files: Vec<_> = paths.iter().map(|path| (path.as_str(), text.as_str())).collect();
    let (_, run) = Run::shared(backend, &files).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r", "onDenied": "leave"});
    let deletes = |count: usize| {
        let layer = Layer::new().file(".env", "A=1\n");
        paths[..count].iter().fold(layer, |layer, path| layer.file(&format!(".wh.{path}"), "")).bytes()
    };
    let refused = send(&runner, &set, &deletes(140)).await.refused("PATCH_BUDGET_EXCEEDED");
    assert_eq!(refused["reasons"], json!(["call:contentBytes"]));
    assert_eq!(send(&runner, &set, &deletes(2)).await.ok()["applied"].as_array().unwrap().len(), 2);
}

#[rstest]
#[tokio::test]
async fn a_set_has_a_budget_of_its_own(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"commandBudget": {"maxFilesTouched": 30}, "quota": {"pendingApprovals": 5}}});
    let (_, run) = Run::shared_with(backend, &[], policy).await;
    assert_eq!(run.get().await["policy"]["commandBudget"]["maxFilesTouched"], 30);
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "generate"});
    let files = |count: usize| {
        (0..count)
            .fold(Layer::new(), |layer, number| layer.file(&format!("d{}/f{number}.txt", number % 7), "line\n"))
            .bytes()
    };
    let refused = send(&runner, &set, &files(31)).await.refused("PATCH_BUDGET_EXCEEDED");
    assert_eq!(refused["reasons"], json!(["commandBudget:maxFilesTouched"]));
    // More than a call may change.
    let answer = send(&runner, &set, &files(30)).await.ok();
    assert_eq!(answer["applied"].as_array().unwrap().len(), 30);
}

#[rstest]
#[tokio::test]
async fn a_formatter_over_2000_files_is_one_set(#[values(Backend::Sqlite)] backend: Backend) {
    let text = |number: usize, end: &str| format!("fn f{number}() {{}}{end}").repeat(40);
    let files: Vec<_> = (0..2000).map(|n| (format!("src/m{}/f{n}.rs", n % 50), text(n, " \n"))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (_, run) = Run::shared(backend, &files).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "cargo fmt",
        "command": {"argv": ["cargo", "fmt"], "exitCode": 0}});
    let formatted: Vec<_> = (0..2000).map(|n| text(n, "\n")).collect();
    let layer = files.iter().zip(&formatted).fold(Layer::new(), |layer, ((path, _), text)| layer.file(path, text));
    let answer = send(&runner, &set, &zstd::encode_all(&layer.bytes()[..], 1).unwrap()).await.ok();
    assert_eq!(answer["applied"].as_array().unwrap().len(), 2000);
    assert_eq!(run.on_disk("src/m7/f7.rs"), formatted[7]);
    let mode = std::fs::metadata(run.file("src/m7/f7.rs")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}
