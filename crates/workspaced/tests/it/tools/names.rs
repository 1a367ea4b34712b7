//! Names as callers write them: Unicode forms, other systems' paths, names that are globs, links.

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, sha256};

const COMPOSED: &str = "R\u{e9}sum\u{e9}.txt";
const DECOMPOSED: &str = "Re\u{301}sume\u{301}.txt";

#[rstest]
#[tokio::test]
async fn a_canonically_equal_name_is_followed(#[values(Backend::Sqlite)] backend: Backend) {
    let folder = "do\u{301}cs";
    let inside = format!("{folder}/{DECOMPOSED}");
    let (_server, run) = Run::shared(backend, &[(DECOMPOSED, "hello\n"), (&inside, "inside\n")]).await;
    let page = run.ok("read_file", json!({"path": COMPOSED})).await;
    assert_eq!(page["path"], DECOMPOSED, "the answer has the name of the file");
    let by_uri = run.ok("read_file", json!({"path": "workspace:///R%C3%A9sum%C3%A9.txt"})).await;
    assert_eq!(by_uri["path"], DECOMPOSED);
    assert_eq!(
        run.ok("read_file", json!({"path": format!("d\u{f3}cs/{COMPOSED}")})).await["content"],
        "     1 | inside\n"
    );
    let read = run.ok("read_files", json!({"paths": [COMPOSED]})).await;
    assert_eq!(read["files"][DECOMPOSED]["status"], "OK", "{read:#}");
    assert_eq!(run.ok("stat_path", json!({"path": COMPOSED})).await["exists"], true);
    for glob in ["R\u{e9}s*", "Re\u{301}s*", COMPOSED] {
        assert_eq!(
            run.ok("find_files", json!({"glob": [glob]})).await["entries"].as_array().unwrap().len(),
            2,
            "{glob}"
        );
    }
    let found = run.ok("search_text", json!({"query": "hello", "path": COMPOSED})).await;
    assert_eq!(found["matches"].as_array().unwrap().len(), 1);
    // Writes, also what was seen under the other form.
    run.edit(COMPOSED, "hello", "hi", json!({"expectedSha256": "seen"})).await.ok();
    let patch = format!("--- a/{COMPOSED}\n+++ b/{COMPOSED}\n@@ -1 +1 @@\n-hi\n+ho\n");
    run.patch(&patch).await.ok();
    assert_eq!(run.on_disk(DECOMPOSED), "ho\n");
    assert_eq!(run.last_record().await["pathsWritten"], json!([DECOMPOSED]));
    run.create("d\u{f3}cs/new.txt", "x\n").await;
    assert_eq!(run.on_disk(&format!("{folder}/new.txt")), "x\n");
    run.call("delete_file", json!({"path": COMPOSED, "expectedSha256": "seen", "reason": "t"})).await.ok();
    assert!(!run.has(DECOMPOSED).await);
}

#[rstest]
#[tokio::test]
async fn a_new_name_is_no_twin_of_another(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[(DECOMPOSED, "hello\n"), ("a.txt", "a\n")]).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let create = format!("--- /dev/null\n+++ b/{COMPOSED}\n@@ -0,0 +1 @@\n+x\n");
    let content = |mode: &str| json!({"path": COMPOSED, "content": "new\n", "mode": mode, "reason": "t"});
    let by_uri =
        json!({"path": "workspace:///R%C3%A9sum%C3%A9.txt", "content": "new\n", "mode": "CREATE_NEW", "reason": "t"});
    for (tool, input) in [
        ("write_file", content("CREATE_NEW")),
        ("write_file", by_uri),
        ("move_file", json!({"from": "a.txt", "to": COMPOSED, "expectedSha256": "seen", "reason": "t"})),
        ("apply_patch", json!({"patch": create, "reason": "t"})),
    ] {
        let refused = run.call(tool, input).await.refused("PATH_REJECTED");
        assert!(refused["hint"].as_str().unwrap().contains("Use the existing name"), "{tool}: {refused:#}");
    }
    // Without a mode it is the existing file, which needs its version.
    run.call("write_file", content("CREATE_OR_REPLACE")).await.refused("WRITE_CONFLICT");
    let upload = run
        .agent
        .request(reqwest::Method::PUT, &format!("/v1/runs/{}/files/R%C3%A9sum%C3%A9.txt", run.id))
        .header("if-none-match", "*")
        .header("x-reason", "t")
        .body("x");
    run.agent.send(upload).await.refused("PATH_REJECTED");
    assert_eq!(run.snapshot().len(), 2);
}

#[rstest]
#[tokio::test]
async fn an_alias_passes_no_rule(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"deny": [DECOMPOSED]}});
    let (_server, run) = Run::shared_with(backend, &[(DECOMPOSED, "hidden\n"), ("Other.md", "x\n")], policy).await;
    for path in [COMPOSED, DECOMPOSED, "re\u{301}sume\u{301}.TXT"] {
        let answer = run.call("read_file", json!({"path": path})).await;
        assert_ne!(answer.status, 200, "{path}");
        assert!(!answer.text().contains("did you mean") && !answer.text().contains("hidden"), "{}", answer.text());
    }
    assert_ne!(run.edit(COMPOSED, "hidden", "x", json!({})).await.status, 200);
    assert_eq!(run.on_disk(DECOMPOSED), "hidden\n");
}

#[rstest]
#[tokio::test]
async fn a_missing_path_names_the_only_one_that_may_be_meant(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("src/Main.rs", "x\n"),
        ("lib/deep/util.rs", "x\n"),
        ("a/twice.rs", "x\n"),
        ("b/twice.rs", "x\n"),
        (".env", "S=1\n"),
        ("src/gone.rs", "x\n"),
    ];
    let (_server, run) = Run::shared(backend, &files).await;
    run.create("lib/Made.rs", "x\n").await;
    run.ok("delete_file", json!({"path": "src/gone.rs", "expectedSha256": sha256("x\n"), "reason": "r"})).await;
    for (path, meant) in [
        ("src/main.rs", Some("src/Main.rs")),
        ("SRC/main.rs", Some("src/Main.rs")),
        ("util.rs", Some("lib/deep/util.rs")),
        ("lib/UTIL.rs", Some("lib/deep/util.rs")),
        ("twice.rs", None),
        (".ENV", None),
        ("nothing.rs", None),
        // What the run has created counts, and what it has deleted does not.
        ("src/made.rs", Some("lib/Made.rs")),
        ("lib/gone.rs", None),
    ] {
        let read = run.call("read_file", json!({"path": path})).await;
        let edited = run.edit(path, "x", "y", json!({})).await;
        for answer in [read, edited] {
            let text = answer.text();
            match meant {
                Some(meant) => assert!(text.contains(&format!("did you mean `{meant}`?")), "{path}: {text}"),
                None => assert!(!text.contains("did you mean"), "{path}: {text}"),
            }
        }
    }
}

#[rstest]
#[tokio::test]
async fn paths_of_other_places_are_rejected(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for path in
        ["~/a.txt", "file:///a.txt", "file:a.txt", "C:/a.txt", "c:\\a.txt", "$HOME/a.txt", "${HOME}/a.txt", "%TEMP%/a"]
    {
        for (tool, input) in [
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "x", "reason": "t"})),
            ("edit_file", json!({"path": path, "oldString": "a", "newString": "b", "reason": "t"})),
        ] {
            let refused = run.call(tool, input).await.refused("PATH_REJECTED");
            assert!(
                refused["hint"].as_str().unwrap().contains("relative to the workspace"),
                "{tool} {path}: {refused:#}"
            );
        }
    }
    for path in ["a~/b", "$x/a.txt", "a:b", "docs/C:/x.txt"] {
        run.create(path, "x\n").await;
    }
}

#[rstest]
#[tokio::test]
async fn a_glob_that_is_a_name_matches_it(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("app/[slug]/page.tsx", "export default 1\n"), ("app/{a}/b.txt", "x\n"), ("src/util/x.ts", "y\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    for (glob, path) in [("app/[slug]/page.tsx", "."), ("app/{a}/b.txt", "."), ("util/*.ts", "src")] {
        let found = run.ok("find_files", json!({"glob": [glob], "path": path})).await;
        assert_eq!(found["entries"].as_array().unwrap().len(), 1, "{glob}: {found:#}");
    }
    for (input, count) in [
        (json!({"query": "export", "includeGlob": ["app/[slug]/**"]}), 1),
        (json!({"query": "export", "excludeGlob": ["app/[slug]/**"]}), 0),
        (json!({"query": "y", "path": "src", "includeGlob": ["util/*.ts"]}), 1),
    ] {
        let found = run.ok("search_text", input.clone()).await;
        assert_eq!(found["matches"].as_array().unwrap().len(), count, "{input}: {found:#}");
    }
}

#[rstest]
#[tokio::test]
async fn the_target_of_a_link_is_named_where_it_may_be_seen(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("docs/AGENTS.md", "rules\n"), (".env", "S=1\n")]).await;
    run.link("CLAUDE.md", "docs/AGENTS.md");
    run.link("shown.txt", ".env");
    let refused = run.edit("CLAUDE.md", "rules", "more", json!({})).await.refused("PATH_REJECTED");
    assert!(refused["hint"].as_str().unwrap().contains("`docs/AGENTS.md`"), "{refused:#}");
    let stat = run.ok("stat_path", json!({"path": "CLAUDE.md"})).await;
    assert_eq!(stat["target"], "docs/AGENTS.md");
    let shown = run.text("stat_path", json!({"path": "CLAUDE.md"})).await.text();
    assert!(shown.contains("leads to docs/AGENTS.md"), "{shown}");
    let hidden = run.edit("shown.txt", "S", "T", json!({})).await;
    assert!(!hidden.text().contains("leads to"), "{}", hidden.text());
    assert_eq!(run.ok("stat_path", json!({"path": "shown.txt"})).await.get("target"), None);
}

#[rstest]
#[tokio::test]
async fn nothing_is_named_that_a_link_leads_to_and_policy_denies(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("shut/x.txt", "x\n"), ("open/y.txt", "y\n"), (".env", "K=v\n")];
    let policy = json!({"policy": {"deny": ["shut/**"]}});
    let (_server, run) = Run::shared_with(backend, &files, policy).await;
    for (name, target) in [("alias", "shut"), ("notes.txt", "shut/x.txt"), ("settings", ".env"), ("fine", "open")] {
        run.link(name, target);
    }
    for path in ["ALIAS/x.txt", "Alias", "Notes.txt", "SETTINGS"] {
        let refused = run.call("read_file", json!({"path": path})).await.refused("NOT_FOUND");
        assert!(!refused.to_string().contains("did you mean"), "{path}: {refused:#}");
    }
    let refused = run.call("read_file", json!({"path": "FINE/y.txt"})).await.refused("NOT_FOUND");
    assert!(refused["message"].as_str().unwrap().contains("did you mean `open/y.txt`?"), "{refused:#}");
}
