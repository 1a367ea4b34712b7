//! `write_file` with `onConflict: "merge"`.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, sha256};

const BASE: &str = "one\ntwo\nthree\nfour\nfive\n";

async fn merge(run: &Run, path: &str, content: &str, base: &str, more: Value) -> Answer {
    let mut input =
        json!({"path": path, "content": content, "expectedSha256": sha256(base), "onConflict": "merge", "reason": "r"});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    run.call("write_file", input).await
}

#[rstest]
#[tokio::test]
async fn a_change_of_other_lines_is_merged(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", BASE)]).await;
    let theirs = BASE.replace("one", "ONE");
    run.replace("a.txt", &theirs, &sha256(BASE)).await.ok();
    let mine = BASE.replace("five", "FIVE");
    // Without the member, and with its default, the call is refused as before.
    run.replace("a.txt", &mine, &sha256(BASE)).await.refused("WRITE_CONFLICT");
    merge(&run, "a.txt", &mine, BASE, json!({"onConflict": "refuse"})).await.refused("WRITE_CONFLICT");
    merge(&run, "a.txt", &mine, BASE, json!({"onConflict": "force"})).await.refused("INVALID_REQUEST");
    let want = theirs.replace("five", "FIVE");
    let dry = merge(&run, "a.txt", &mine, BASE, json!({"dryRun": true})).await.ok();
    assert_eq!(run.on_disk("a.txt"), theirs);
    let done = merge(&run, "a.txt", &mine, BASE, json!({})).await.ok();
    assert_eq!(run.on_disk("a.txt"), want);
    for answer in [&dry, &done] {
        assert_eq!((&answer["merged"], &answer["mergedFrom"]), (&json!(true), &json!(sha256(&theirs))), "{answer:#}");
        assert_eq!((&answer["oldSha256"], &answer["newSha256"]), (&json!(sha256(&theirs)), &json!(sha256(&want))));
        assert_eq!((&answer["insertions"], &answer["deletions"]), (&json!(1), &json!(1)));
    }
    assert!(done["summary"].as_str().unwrap().starts_with("merged into a.txt"), "{done:#}");
    let diff = run.artifact(done["artifactUris"][0].as_str().unwrap()).await;
    assert!(diff.contains("-five\n+FIVE\n") && !diff.contains("-one"), "{diff}");
    // Nothing is merged where the file has the expected version.
    let plain = merge(&run, "a.txt", BASE, &want, json!({})).await.ok();
    assert_eq!((plain.get("merged"), plain.get("mergedFrom")), (None, None));
    // The base is also a version that a call of the run has left.
    run.replace("a.txt", &theirs, &sha256(BASE)).await.ok();
    merge(&run, "a.txt", &want.replace("three", "3"), &want, json!({})).await.ok();
    assert_eq!(run.on_disk("a.txt"), theirs.replace("three", "3"));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_version_that_was_seen_is_merged(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"outsideChanges": "RECORD"}});
    let (_server, run) = Run::shared_with(backend, &[("a.txt", BASE), ("Cargo.lock", BASE)], policy).await;
    for path in ["a.txt", "Cargo.lock"] {
        run.ok("read_file", json!({"path": path})).await;
    }
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    let other = Run { agent: Client::new(&run.agent.base, token["token"].as_str()), ..run.clone() };
    other.replace("a.txt", &BASE.replace("one", "ONE"), &sha256(BASE)).await.ok();
    run.put("Cargo.lock", BASE.replace("one", "ONE"));
    let seen = json!({"expectedSha256": "seen"});
    let mine = BASE.replace("five", "FIVE");
    let done = merge(&run, "a.txt", &mine, BASE, seen.clone()).await.ok();
    assert_eq!(done["merged"], true);
    assert_eq!(run.on_disk("a.txt"), "ONE\ntwo\nthree\nfour\nFIVE\n");
    // An approved merge is the one that was shown.
    let asked = merge(&run, "Cargo.lock", &mine, BASE, seen).await.refused("APPROVAL_REQUIRED");
    let approve = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    assert_eq!(run.operator.post(&approve, json!({"decidedBy": "p"})).await.ok()["state"], "approved");
    assert_eq!(run.on_disk("Cargo.lock"), "ONE\ntwo\nthree\nfour\nFIVE\n");
}

#[rstest]
#[tokio::test]
async fn a_conflict_shows_its_regions_and_changes_nothing(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", BASE)]).await;
    let theirs = format!("zero\n{}", BASE.replace("two", "2"));
    run.replace("a.txt", &theirs, &sha256(BASE)).await.ok();
    let mine = BASE.replace("two", "TWO").replace("five", "FIVE");
    let refused = merge(&run, "a.txt", &mine, BASE, json!({})).await.refused("WRITE_CONFLICT");
    let region = json!({"line": 3, "base": "two\n", "current": "2\n", "new": "TWO\n"});
    assert_eq!(refused["conflictRegions"], json!([region]), "{refused:#}");
    assert_eq!(refused["currentSha256"], sha256(&theirs));
    assert!(refused["message"].as_str().unwrap().contains("1 region was changed in two ways"), "{refused:#}");
    assert!(refused["diff"].as_str().unwrap().contains("+zero\n"), "{refused:#}");
    assert_eq!(run.on_disk("a.txt"), theirs);
    // A token that may not read is shown no text, and neither is one that policy keeps from reading the file.
    let input = json!({"permissions": ["file:write:replace"]});
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), input).await.is(201);
    let blind = Run { agent: Client::new(&run.agent.base, token["token"].as_str()), ..run.clone() };
    let refused = merge(&blind, "a.txt", &mine, BASE, json!({})).await.refused("WRITE_CONFLICT");
    assert_eq!((refused.get("conflictRegions"), &refused["contentWithheld"]), (None, &json!(true)), "{refused:#}");
}

#[rstest]
#[tokio::test]
async fn a_merge_keeps_the_form_of_the_file(#[values(Backend::Sqlite)] backend: Backend) {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    let open = BASE.trim_end();
    let bom = format!("\u{feff}{BASE}");
    let table = [
        (
            "crlf.txt",
            crlf(BASE),
            crlf(&BASE.replace("one", "ONE")),
            BASE.replace("five", "FIVE"),
            crlf("ONE\ntwo\nthree\nfour\nFIVE\n"),
        ),
        (
            "open.txt",
            open.to_owned(),
            open.replace("one", "ONE"),
            open.replace("three", "3"),
            open.replace("one", "ONE").replace("three", "3"),
        ),
        ("end.txt", open.to_owned(), open.replace("one", "ONE"), BASE.to_owned(), BASE.replace("one", "ONE")),
        (
            "bom.txt",
            bom.clone(),
            bom.replace("one", "ONE"),
            BASE.replace("five", "FIVE"),
            bom.replace("one", "ONE").replace("five", "FIVE"),
        ),
    ];
    let files: Vec<(&str, &str)> = table.iter().map(|(path, base, ..)| (*path, base.as_str())).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    for (path, base, theirs, mine, want) in &table {
        run.replace(path, theirs, &sha256(base)).await.ok();
        merge(&run, path, mine, base, json!({})).await.ok();
        assert_eq!(&run.on_disk(path), want, "{path}");
    }
}

#[rstest]
#[tokio::test]
async fn a_version_that_is_not_stored_is_not_merged(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", BASE)]).await;
    let refused = merge(&run, "a.txt", "mine\n", "of nobody", json!({})).await.refused("WRITE_CONFLICT");
    assert!(refused["message"].as_str().unwrap().contains("is not stored"), "{refused:#}");
    merge(&run, "none.txt", "mine\n", BASE, json!({})).await.refused("WRITE_CONFLICT");
    let unversioned = json!({"path": "a.txt", "content": "x\n", "onConflict": "merge", "reason": "r"});
    run.call("write_file", unversioned).await.refused("WRITE_CONFLICT");
    merge(&run, "a.txt", "mine\n", BASE, json!({"mode": "CREATE_NEW"})).await.refused("ALREADY_EXISTS");
    merge(&run, "a.txt", &BASE.replace("one", "1"), BASE, json!({})).await.ok();
    assert_eq!(run.on_disk("a.txt"), BASE.replace("one", "1"));
}

#[rstest]
#[tokio::test]
async fn a_merge_that_would_take_too_long_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let lines = |mark: &str| (0..20_000).map(|number| format!("{mark}{number}\n")).collect::<Vec<_>>().concat();
    let (base, mine) = (lines("a"), lines("c"));
    let policy =
        json!({"policy": {"budget": {"maxInsertions": 100_000, "maxDeletions": 100_000, "maxBytes": 10_000_000}}});
    let (_server, run) = Run::shared_with(backend, &[("a.txt", &base)], policy).await;
    run.put("a.txt", lines("b"));
    let refused = merge(&run, "a.txt", &mine, &base, json!({})).await.refused("WRITE_CONFLICT");
    assert!(refused["message"].as_str().unwrap().contains("too many lines"), "{refused:#}");
    let huge = "x\n".repeat(600_000);
    let policy = json!({"policy": {"maxFileBytes": 4 << 20}});
    let (_server, run) = Run::shared_with(backend, &[("a.txt", &huge)], policy).await;
    run.put("a.txt", "theirs\n");
    let refused = merge(&run, "a.txt", "mine\n", &huge, json!({})).await.refused("WRITE_CONFLICT");
    assert_eq!((&refused["limit"], &refused["actual"]), (&json!(1 << 20), &json!(huge.len())), "{refused:#}");
}
