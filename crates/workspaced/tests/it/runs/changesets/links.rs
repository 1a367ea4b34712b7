//! Symbolic links in change sets: which are taken, and that a run with one is as whole as any other.

use rstest::rstest;
use serde_json::{Value, json};
use tar::EntryType;

use super::{Layer, head, runner, send, with};
use crate::harness::{Backend, Run, Server, files_in, git, sha256};

const LINK: EntryType = EntryType::Symlink;

/// The path, type and target or text of each entry of a layer.
fn entries(tar: &[u8]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let text = match entry.link_name().unwrap() {
            Some(target) => format!("-> {}", target.to_str().unwrap()),
            None => std::io::read_to_string(&mut entry).unwrap(),
        };
        found.push((path, text));
    }
    found
}

async fn layer_since(run: &Run, since: u64) -> Vec<(String, String)> {
    let answer = run.agent.get(&format!("/v1/runs/{}/archive?since={since}", run.id)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    entries(&answer.body)
}

fn text(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// A run from a repository with a link to a file and one to a folder.
async fn linked_run(server: &Server, extra: Value) -> (Run, std::path::PathBuf) {
    let files = [("a.txt", "a\n"), ("b.txt", "b\n"), ("d/1.txt", "1\n"), ("d/2.txt", "2\n"), ("run.sh", "x\n")];
    let folder = server.template(&files);
    std::os::unix::fs::symlink("a.txt", folder.join("newest")).unwrap();
    std::os::unix::fs::symlink("d", folder.join("old")).unwrap();
    git(&folder, &["init", "-q", "-b", "main"]);
    crate::harness::commit_all(&folder, "first");
    let mut body = extra;
    body["source"] = json!({"type": "git", "url": folder});
    (server.run(body).await, folder)
}

#[rstest]
#[tokio::test]
async fn links_are_made_led_elsewhere_replaced_deleted_and_restored(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let (run, folder) = linked_run(&server, json!({})).await;
    let by_runner = runner(&run, &[]).await;
    let start = run.present_files().await;
    let first = head(&run).await;
    // A new one, one elsewhere, a file and a folder that become one, and ones that become a file and a folder.
    let layer = Layer::new()
        .link("up/deep/link", LINK, "../../b.txt")
        .link("newest", LINK, "b.txt")
        .link("run.sh", LINK, "a.txt")
        .file(".wh.d", "")
        .link("d", LINK, "up")
        .file(".wh.old", "")
        .file("old/3.txt", "3\n")
        .bytes();
    let set = json!({"changesetId": "cs_1", "basedOnSeq": first, "reason": "link"});
    let answer = send(&by_runner, &set, &layer).await.ok();
    let applied = ["d", "d/1.txt", "d/2.txt", "newest", "old", "old/3.txt", "run.sh", "up/deep/link"];
    assert_eq!(answer["applied"], json!(applied), "{answer:#}");
    let record = run.last_record().await;
    let linked = run.present_files().await;
    let of = |path: &str| linked.get(path).map(String::as_str);
    assert_eq!((of("up/deep/link"), of("newest")), (Some("-> ../../b.txt"), Some("-> b.txt")));
    assert_eq!((of("run.sh"), of("d"), of("old")), (Some("-> a.txt"), Some("-> up"), None));
    assert_eq!(run.on_disk("old/3.txt"), "3\n");

    // As git shows it, in the artifact and in the diff of the workspace.
    let artifact = run.artifact(record["artifactUris"][0].as_str().unwrap()).await;
    let workspace = run.ok("diff_workspace", json!({})).await;
    for diff in [&artifact, workspace["diff"].as_str().unwrap()] {
        assert!(diff.contains("diff --git a/newest b/newest\nindex "), "{diff}");
        assert!(diff.contains("deleted file mode 100644\n--- a/run.sh"), "{diff}");
        assert!(diff.contains("new file mode 120000\n--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1 @@\n+a.txt"), "{diff}");
        assert!(diff.contains("deleted file mode 120000\n--- a/old\n"), "{diff}");
    }
    let listed = run.ok("list_dir", json!({})).await;
    let entry = listed["entries"].as_array().unwrap().iter().find(|entry| entry["path"] == "newest").unwrap();
    assert_eq!((&entry["type"], &entry["readable"]), (&json!("symlink"), &json!(true)), "{entry}");
    let read = run.ok("read_file", json!({"path": "newest", "format": "raw"})).await;
    assert_eq!((&read["content"], read.get("warnings")), (&json!("b\n"), None), "followed, and no change from outside");
    let earlier = json!({"path": "newest", "atSeq": record["seq"]});
    run.call("read_file", earlier).await.refused("NOT_A_FILE");
    assert_eq!(drift(&run).await, json!([]));

    // What has a copy gets the links, and what git applies has them.
    let expected = text(&[
        ("d/.wh.1.txt", ""),
        ("d/.wh.2.txt", ""),
        (".wh.old", ""),
        ("d", "-> up"),
        ("newest", "-> b.txt"),
        ("old/3.txt", "3\n"),
        ("run.sh", "-> a.txt"),
        ("up/deep/link", "-> ../../b.txt"),
    ]);
    let mut found = layer_since(&run, first).await;
    found.sort();
    let mut sorted = expected;
    sorted.sort();
    assert_eq!(found, sorted);
    let patch = run.agent.get(&format!("/v1/runs/{}/patch", run.id)).await;
    let file = folder.with_extension("patch");
    std::fs::write(&file, &patch.body).unwrap();
    git(&folder, &["apply", "--index", file.to_str().unwrap()]);
    let mut exported = files_in(&folder);
    exported.retain(|path, _| !path.starts_with(".git/"));
    assert_eq!(exported, linked, "the patch leads to the same tree");

    // A second set changes them again; a restart forgets nothing that only the records have.
    server.kill();
    server.restart();
    let (run, by_runner) = (server.reconnect(&run), server.reconnect(&by_runner));
    let layer = Layer::new()
        .entry("newest", EntryType::Regular, 0o644, b"now a file\n")
        .link("up/deep/link", LINK, "../../a.txt")
        .file(".wh.run.sh", "")
        .bytes();
    let set = json!({"changesetId": "cs_2", "basedOnSeq": head(&run).await, "reason": "again"});
    let answer = send(&by_runner, &set, &layer).await.ok();
    assert_eq!(answer["applied"], json!(["newest", "run.sh", "up/deep/link"]), "{answer:#}");
    assert_eq!(run.on_disk("newest"), "now a file\n");
    assert_eq!(run.files()["up/deep/link"], "-> ../../a.txt");
    // What is there already is no change.
    let same = Layer::new().link("up/deep/link", LINK, "../../a.txt").bytes();
    let set = json!({"basedOnSeq": head(&run).await, "reason": "same"});
    assert_eq!(send(&by_runner, &set, &same).await.ok()["applied"], json!([]));

    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    run.ok("revert_calls", json!({"toolCallIds": ["cs_2"], "reason": "undo"})).await;
    assert_eq!(run.present_files().await, linked);
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    run.ok("revert_calls", json!({"toolCallIds": ["cs_1"], "reason": "undo"})).await;
    assert_eq!(run.present_files().await, start);
    assert_eq!((drift(&run).await, &run.verify().await["intact"]), (json!([]), &json!(true)));
    assert_eq!(run.ok("diff_workspace", json!({})).await["diff"], "");
}

async fn drift(run: &Run) -> Value {
    run.operator.get(&format!("/v1/runs/{}/drift", run.id)).await.ok()["items"].clone()
}

#[rstest]
#[tokio::test]
async fn a_link_that_leads_elsewhere_is_refused_alone(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let policy = json!({"policy": {"deny": ["private/"]}});
    let (run, _) = linked_run(&server, policy).await;
    let by_runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "link"});
    let leave = with(&set, &json!({"onDenied": "leave", "dryRun": true}));
    let before = run.files();
    let long = "x/".repeat(2048);
    for (path, target, code, rule) in [
        ("l", "/etc/passwd", "PATH_REJECTED", "PATH_REJECTED"),
        ("l", "../outside", "PATH_REJECTED", "PATH_REJECTED"),
        ("d/l", "../../outside", "PATH_REJECTED", "PATH_REJECTED"),
        ("d/l", "1/../../a.txt", "PATH_REJECTED", "PATH_REJECTED"),
        ("l", ".git/config", "PATH_REJECTED", "PATH_REJECTED"),
        ("l", &long, "PATH_REJECTED", "layer:a-symbolic-link-with-a-long-target"),
        ("l", ".env", "POLICY_DENIED_SECRET", "kind:SECRET_LIKE"),
        ("l", "keys/id_rsa", "POLICY_DENIED_SECRET", "kind:SECRET_LIKE"),
        ("l", "private/a.txt", "POLICY_DENIED", "deny:private/"),
        // The first is in the run, the second in the set.
        ("l", "old/1.txt", "PATH_REJECTED", "layer:a-symbolic-link-through-another-one"),
        ("l", "beside/1.txt", "PATH_REJECTED", "layer:a-symbolic-link-through-another-one"),
        (".env", "a.txt", "POLICY_DENIED_SECRET", "kind:SECRET_LIKE"),
        ("old/l", "a.txt", "PATH_REJECTED", "layer:a-symbolic-link-through-another-one"),
        ("a.txt/l", "b.txt", "NOT_A_DIRECTORY", "NOT_A_DIRECTORY"),
    ] {
        let layer = Layer::new().file("ok.txt", "ok\n").link("beside", LINK, "d").link(path, LINK, target).bytes();
        let refused = send(&by_runner, &set, &layer).await;
        assert_eq!(refused.json()["code"], code, "{path} -> {target}: {}", refused.text());
        assert!(run.files() == before, "{path} -> {target}");
        let answer = send(&by_runner, &leave, &layer).await.ok();
        assert_eq!(answer["left"], json!([{"path": path, "rule": rule}]), "{path} -> {target}");
        assert_eq!(answer["applied"], json!(["beside", "ok.txt"]), "{path} -> {target}");
    }
    // What leads nowhere yet, to a folder, to another link, and to what is made in the place of a link.
    let layer = Layer::new()
        .link("nowhere", LINK, "target/debug/app")
        .link("folder", LINK, "./d/")
        .link("chain", LINK, "newest")
        .link("itself", LINK, "itself")
        .file(".wh.old", "")
        .file("old/1.txt", "1\n")
        .link("in-old", LINK, "old/1.txt")
        .bytes();
    let answer = send(&by_runner, &set, &layer).await.ok();
    let applied = ["chain", "folder", "in-old", "itself", "nowhere", "old", "old/1.txt"];
    assert_eq!(answer["applied"], json!(applied), "{answer:#}");
    // Where a link leads is judged at each read.
    run.put(".env", "A=1\n");
    run.link("newest", ".env");
    run.call("read_file", json!({"path": "chain"})).await.refused("POLICY_DENIED_SECRET");
}

#[rstest]
#[tokio::test]
async fn a_link_that_others_have_changed_is_a_conflict(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (run, _) = linked_run(&server, json!({})).await;
    let by_runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "link"});
    send(&by_runner, &set, &Layer::new().link("newest", LINK, "b.txt").bytes()).await.ok();
    run.replace("b.txt", "a.txt", &sha256("b\n")).await.ok();
    let before = run.files();
    for layer in [
        Layer::new().link("newest", LINK, "run.sh"),
        Layer::new().file("newest", "a file\n"),
        // As many bytes as the file has now, which mean something else.
        Layer::new().link("b.txt", LINK, "a.txt"),
        Layer::new().file(".wh.newest", ""),
    ] {
        let layer = layer.bytes();
        for on_conflict in ["refuse", "merge"] {
            let refused = send(&by_runner, &with(&set, &json!({"onConflict": on_conflict})), &layer).await;
            refused.refused("WRITE_CONFLICT");
            assert!(run.files() == before);
        }
    }
    // A link that was led elsewhere by nobody who says so is a change from outside.
    std::fs::remove_file(run.repo.join("newest")).unwrap();
    run.link("newest", "a.txt");
    let set = json!({"basedOnSeq": head(&run).await, "reason": "link"});
    let layer = Layer::new().link("newest", LINK, "run.sh").bytes();
    send(&by_runner, &set, &layer).await.refused("CHANGED_OUTSIDE");
    let settle = json!({"accept": "ledger", "paths": ["newest"], "reason": "as recorded"});
    let settled = run.operator.post(&format!("/v1/runs/{}/drift", run.id), settle).await.ok();
    assert_eq!(run.files()["newest"], "-> b.txt");
    // Where it led is in the diff, and nowhere else.
    run.ok("revert_calls", json!({"toolCallIds": [settled["toolCallId"]], "reason": "it was meant"})).await;
    assert_eq!(run.files()["newest"], "-> a.txt");
    run.ok("revert_calls", json!({"last": 1, "reason": "it was not"})).await;
    assert_eq!(run.files()["newest"], "-> b.txt");
    let set = json!({"basedOnSeq": head(&run).await, "reason": "link"});
    assert_eq!(send(&by_runner, &set, &layer).await.ok()["applied"], json!(["newest"]));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_policy_decides_about_links(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let layer = Layer::new().file("ok.txt", "ok\n").link("l", LINK, "d/1.txt").file(".wh.newest", "").bytes();
    let (run, _) = linked_run(&server, json!({"policy": {"symbolicLinks": "DENY"}})).await;
    let by_runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "link"});
    let refused = send(&by_runner, &set, &layer).await.refused("POLICY_DENIED");
    assert_eq!((&refused["path"], &refused["reasons"]), (&json!("l"), &json!(["symbolicLink"])), "{refused:#}");
    let answer = send(&by_runner, &with(&set, &json!({"onDenied": "leave"})), &layer).await.ok();
    assert_eq!(answer["left"], json!([{"path": "l", "rule": "symbolicLink"}]));
    assert_eq!(answer["applied"], json!(["newest", "ok.txt"]), "a link may be deleted");

    let (run, _) = linked_run(&server, json!({"policy": {"symbolicLinks": "REQUIRE_APPROVAL"}})).await;
    let by_runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "link"});
    let waits = send(&by_runner, &set, &layer).await.is(202);
    assert_eq!(waits["reasons"], json!(["symbolicLink"]));
    let path = format!("/v1/approvals/{}", waits["approvalId"].as_str().unwrap());
    let approval = run.operator.get(&path).await.ok();
    assert!(approval["diff"].as_str().unwrap().contains("new file mode 120000"), "{approval:#}");
    let approved = run.operator.post(&format!("{path}/approve"), json!({"decidedBy": "ada"})).await.ok();
    assert_eq!(approved["state"], "approved", "{approved:#}");
    assert_eq!(run.files()["l"], "-> d/1.txt");
    assert!(!run.has("newest").await);
    assert_eq!(run.verify().await["intact"], true);
}
