//! The path guard: no path escapes the tree, for any content of the tree and under concurrent changes.

use std::os::unix::ffi::OsStrExt as _;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, mkfifo, put, sha256};

/// Returns a path of `bytes` bytes.
fn long_path(bytes: usize) -> String {
    let mut path = String::new();
    while path.len() < bytes {
        for part in 0..3 {
            path.push_str(&sha256(format!("{part} {}", path.len())));
        }
        path.push('/');
    }
    path.truncate(bytes);
    path
}

#[rstest]
#[tokio::test]
async fn the_longest_path_works_in_every_tool(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let path = long_path(4096);
    run.create(&path, "one\n").await;
    assert_eq!(run.ok("read_file", json!({"path": path, "format": "raw"})).await["content"], "one\n");
    run.edit(&path, "one", "two", json!({})).await.ok();
    assert_eq!(run.ok("stat_path", json!({"path": path})).await["sha256"], sha256("two\n"));
    let found = run.ok("search_text", json!({"query": "two"})).await;
    assert_eq!(found["matches"][0]["path"], path.as_str());
    assert_eq!(run.ok("diff_workspace", json!({})).await["files"][0]["path"], path.as_str());
    let drift = run.operator.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
    assert_eq!(drift["items"], json!([]), "{drift:#}");
    run.ok("delete_file", json!({"path": path, "expectedSha256": sha256("two\n"), "reason": "r"})).await;
    run.call("read_file", json!({"path": path})).await.refused("NOT_FOUND");
}

fn write(path: &str) -> Value {
    json!({"path": path, "content": "written\n", "reason": "r"})
}

#[rstest]
#[tokio::test]
async fn paths_are_normalized_or_rejected(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("src/App.java", "class App {}\n"),
        ("pom.xml", "<x/>\n"),
        ("target/generated/X.java", "x\n"),
        (".env", "A=1\n"),
    ];
    let (_server, run) = Run::shared(backend, &files).await;
    for (raw, clean) in
        [("src/App.java", "src/App.java"), ("./src//App.java", "src/App.java"), ("none-such/../pom.xml", "pom.xml")]
    {
        let page = run.ok("read_file", json!({"path": raw})).await;
        assert_eq!(page["path"], clean, "{raw}");
        let content = run.on_disk(clean);
        let mut input = write(raw);
        input["content"] = json!(content);
        input["expectedSha256"] = page["sha256"].clone();
        assert_eq!(run.ok("write_file", input).await["path"], clean, "{raw}");
    }
    let long = "a/".repeat(2050) + "b";
    for raw in ["../../etc/passwd", "/etc/passwd", "", "a\u{0}b", "src/App.java/", "src/../.git/config", &long] {
        for (tool, input) in [("read_file", json!({"path": raw})), ("write_file", write(raw))] {
            let problem = run.call(tool, input).await.refused("PATH_REJECTED");
            assert!(problem["path"].as_str().unwrap_or_default().len() <= 1000, "{tool}");
        }
    }
    run.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    run.ok("read_file", json!({"path": "target/generated/X.java"})).await;
    run.call("write_file", write("target/generated/X.java")).await.refused("POLICY_DENIED");
}

#[rstest]
#[tokio::test]
async fn a_rejected_path_is_recorded(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let recorded_paths = async || {
        let record = run.last_record().await;
        let reasons = record["reasons"].as_array().unwrap().clone();
        let paths = reasons.into_iter().filter(|reason| reason.as_str().unwrap().starts_with("path: "));
        Value::from(paths.collect::<Vec<_>>())
    };
    let long = format!("{}{}", "../".repeat(100), "\u{202e}".repeat(100));
    for (raw, shown) in [
        ("../../etc/shadow", "path: ../../etc/shadow".to_owned()),
        ("", "path: ".to_owned()),
        ("/it's \"x\"", "path: /it's \"x\"".to_owned()),
        ("../a\u{0}b\n\u{202e}\\", "path: ../a\\0b\\n\\u{202e}\\\\".to_owned()),
        (&long, format!("path: {}…", &long[..200])),
        (&long[270..], format!("path: {}{}…", "../".repeat(10), "\\u{202e}".repeat(21))),
    ] {
        for (tool, input) in [("read_file", json!({"path": raw})), ("write_file", write(raw))] {
            run.call(tool, input).await.refused("PATH_REJECTED");
            assert_eq!(recorded_paths().await, json!([shown]), "{tool} {raw:?}");
        }
    }
    // Tools with several paths, sections of a patch, and the file routes.
    let moved = json!({"from": "a.txt", "to": "../b.txt", "expectedSha256": sha256("a\n"), "reason": "r"});
    run.call("move_file", moved).await.refused("PATH_REJECTED");
    assert_eq!(recorded_paths().await, json!(["path: ../b.txt"]));
    let patch = |name: &str| {
        format!("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b\n")
    };
    run.patch(&patch("x/../../y")).await.refused("PATH_REJECTED");
    assert_eq!(recorded_paths().await, json!(["path: x/../../y"]));
    let quoted = "--- /dev/null\n+++ \"b/odd\\377\"\n@@ -0,0 +1 @@\n+x\n";
    run.patch(quoted).await.refused("PATH_REJECTED");
    assert_eq!(recorded_paths().await, json!(["path: odd\u{fffd}"]));
    let path = format!("/v1/runs/{}/files/..%2Fsecret", run.id);
    run.agent.get(&path).await.refused("PATH_REJECTED");
    assert_eq!(recorded_paths().await, json!(["path: ../secret"]));
    let put = run.agent.request(reqwest::Method::PUT, &path).header("x-reason", "r").header("if-none-match", "*");
    run.agent.send(put.body("x")).await.refused("PATH_REJECTED");
    assert_eq!(recorded_paths().await, json!(["path: ../secret"]));
    // One rejected path does not fail the call, and is recorded.
    run.ok("read_files", json!({"paths": ["../x", "a.txt", ".git/config", "none"]})).await;
    assert_eq!(recorded_paths().await, json!(["path: ../x", "path: .git/config"]));
    assert_eq!(run.last_record().await["pathsRead"], json!(["a.txt"]));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_name_that_no_new_file_may_have_is_refused_before_policy_and_existence(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n"), (".env", "A=1\n")]).await;
    for bad in ["vendor/x.", "node_modules/a\u{202e}b", ".env.d/x.", "Cargo.lock/x "] {
        for mode in ["CREATE_NEW", "CREATE_OR_REPLACE"] {
            // Whether this mode creates a file depends on the tree.
            let code = if mode == "CREATE_NEW" || bad.contains("lock") { "PATH_REJECTED" } else { "POLICY_DENIED" };
            let input = json!({"path": bad, "content": "x\n", "mode": mode, "reason": "r"});
            let refusal = run.call("write_file", input).await.refusal();
            assert!(refusal.starts_with(code), "{bad:?} {mode}: {refusal}");
        }
        for from in ["a.txt", "none.txt", ".env", "vendor/none"] {
            let input = json!({"from": from, "to": bad, "expectedSha256": sha256("a\n"), "reason": "r"});
            run.call("move_file", input).await.refused("PATH_REJECTED");
        }
        let missing = "--- a/none.txt\n+++ b/none.txt\n@@ -1 +1 @@\n-a\n+b\n";
        let patch = format!("{missing}--- /dev/null\n+++ b/{bad}\n@@ -0,0 +1 @@\n+x\n");
        run.patch(&patch).await.refused("PATH_REJECTED");
        let path = format!("/v1/runs/{}/files/{}", run.id, bad.replace('\u{202e}', "%E2%80%AE").replace(' ', "%20"));
        let put = run.agent.request(reqwest::Method::PUT, &path).header("x-reason", "r");
        run.agent.send(put.header("if-none-match", "*").body("x")).await.refused("PATH_REJECTED");
    }
}

#[rstest]
#[tokio::test]
async fn new_names_contain_no_control_or_bidi_characters(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for bad in ["line\nbreak", "bidi\u{202e}txt", "dir./x"] {
        run.call("write_file", write(bad)).await.refused("PATH_REJECTED");
        if !bad.contains(['\n', '\t']) {
            let patch = format!("--- /dev/null\n+++ b/{bad}\n@@ -0,0 +1 @@\n+x\n");
            let code = run.patch(&patch).await.refusal();
            assert!(["PATH_REJECTED", "PATCH_INVALID"].contains(&code.as_str()), "{bad:?}: {code}");
        }
    }
    assert!(run.snapshot().is_empty());
    for good in ["ü/ñ/日本.txt", " leading", "-rf", "*", "a'b\"c"] {
        run.call("write_file", write(good)).await.ok();
        run.ok("read_file", json!({"path": good})).await;
    }
}

#[rstest]
#[tokio::test]
async fn links_are_followed_only_inside_the_tree(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("dir/a.txt", "inside\n"), (".env", "A=1\n")]).await;
    let outside = server.home.join(format!("outside-{}", run.id));
    put(&outside, "secret.txt", "outside\n");
    let absolute_inside = run.repo.join("dir/a.txt");
    for (link, target) in [
        ("good", "dir/a.txt"),
        ("folder", "dir"),
        ("chain", "good"),
        ("loop", "loop"),
        ("dangling", "dir/none"),
        ("out", outside.join("secret.txt").to_str().unwrap()),
        ("outdir", outside.to_str().unwrap()),
        ("up", "../../../../../../etc/passwd"),
        ("sibling", "../base"),
        ("etc", "/etc"),
        ("absolute", absolute_inside.to_str().unwrap()),
        ("newout", outside.join("new.txt").to_str().unwrap()),
        ("innocent.txt", ".env"),
        ("proc", "/proc/self/environ"),
        ("fd", "/proc/self/fd"),
    ] {
        run.link(link, target);
    }
    for inside in ["good", "chain", "folder/a.txt"] {
        let page = run.ok("read_file", json!({"path": inside, "format": "raw"})).await;
        assert_eq!(page["content"], "inside\n", "{inside}");
    }
    assert_eq!(run.ok("list_dir", json!({"path": "folder"})).await["entries"].as_array().unwrap().len(), 1);
    run.call("read_file", json!({"path": "innocent.txt"})).await.refused("POLICY_DENIED_SECRET");
    for out in ["out", "outdir/secret.txt", "up", "sibling", "etc/passwd", "absolute", "proc", "fd/0"] {
        run.call("read_file", json!({"path": out})).await.refused("PATH_REJECTED");
    }
    for out in ["outdir", "etc", "fd"] {
        run.call("list_dir", json!({"path": out})).await.refused("PATH_REJECTED");
        run.call("search_text", json!({"path": out, "query": "outside"})).await.refused("PATH_REJECTED");
    }
    for broken in ["loop", "dangling"] {
        let code = run.call("read_file", json!({"path": broken})).await.refusal();
        assert!(["PATH_REJECTED", "NOT_FOUND"].contains(&code.as_str()), "{broken}: {code}");
    }
    let tree = run.snapshot();
    for link in [
        "good",
        "chain",
        "folder/a.txt",
        "folder/new.txt",
        "loop",
        "dangling",
        "out",
        "newout",
        "outdir/new.txt",
        "etc/new",
        "innocent.txt",
        "absolute",
    ] {
        let mut input = write(link);
        run.call("write_file", input.clone()).await.refused("PATH_REJECTED");
        input["expectedSha256"] = json!(sha256("inside\n"));
        run.call("write_file", input).await.refused("PATH_REJECTED");
        run.patch(&format!("--- a/{link}\n+++ b/{link}\n@@ -1 +1 @@\n-inside\n+x\n")).await.refused("PATH_REJECTED");
        run.patch(&format!("--- /dev/null\n+++ b/{link}\n@@ -0,0 +1 @@\n+x\n")).await.refused("PATH_REJECTED");
        run.patch(&format!("--- a/{link}\n+++ /dev/null\n@@ -1 +0,0 @@\n-inside\n")).await.refused("PATH_REJECTED");
    }
    assert_eq!(run.snapshot(), tree);
    assert!(!outside.join("new.txt").exists());
    for (tool, input) in [
        ("search_text", json!({"query": "outside"})),
        ("list_dir", json!({"maxDepth": 20, "includeHidden": true, "includeIgnored": true})),
        ("diff_workspace", json!({})),
    ] {
        let answer = run.call(tool, input).await;
        answer.ok();
        assert!(!answer.contains("secret.txt") && !answer.contains("outside\\n"), "{}", answer.text());
    }
}

#[rstest]
#[tokio::test]
async fn a_file_with_several_hard_links_is_denied(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[(".env", "PASSWORD=hunter2\n")]).await;
    run.own(&[".env"]);
    std::fs::hard_link(run.repo.join(".env"), run.repo.join("notes.txt")).unwrap();
    run.call("read_file", json!({"path": "notes.txt"})).await.refused("POLICY_DENIED");
    run.call("write_file", write("notes.txt")).await.refused("POLICY_DENIED");
    let search = run.call("search_text", json!({"query": "hunter2"})).await;
    assert_eq!(search.ok()["matches"], json!([]));
    assert!(!run.call("diff_workspace", json!({})).await.contains("hunter2"));
    let archive = run.agent.get(&format!("/v1/runs/{}/archive", run.id)).await;
    assert!(!crate::harness::names_in(&archive.body).contains(&"notes.txt".to_owned()));
}

#[rstest]
#[tokio::test]
async fn pipes_and_sockets_are_refused_without_delay(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "needle\n")]).await;
    mkfifo(&run.repo.join("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(run.repo.join("socket")).unwrap();
    let started = std::time::Instant::now();
    for path in ["pipe", "socket"] {
        run.call("read_file", json!({"path": path})).await.refused("NOT_A_FILE");
        run.call("write_file", write(path)).await.refused("NOT_A_FILE");
    }
    assert_eq!(run.ok("search_text", json!({"query": "needle"})).await["matches"].as_array().unwrap().len(), 1);
    run.ok("diff_workspace", json!({})).await;
    assert_eq!(run.agent.get(&format!("/v1/runs/{}/archive", run.id)).await.status, 200);
    assert!(started.elapsed().as_secs() < 10, "a call waited for the other end of a pipe");
}

#[rstest]
#[tokio::test]
async fn paths_are_case_sensitive_and_rules_are_not(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("readme.md", "lower\n")]).await;
    run.create("README.md", "upper\n").await;
    assert_eq!((run.on_disk("readme.md").as_str(), run.on_disk("README.md").as_str()), ("lower\n", "upper\n"));
    for alias in [".Env", ".eNV", "Target/x", "NODE_MODULES/x"] {
        let code = run.call("write_file", write(alias)).await.refusal();
        assert!(code.starts_with("POLICY_DENIED"), "{alias}: {code}");
    }
}

#[rstest]
#[tokio::test]
async fn odd_names_on_disk_do_no_harm(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "needle\n")]).await;
    for name in [
        &b"caf\xe9"[..],
        b"line\nbreak.txt",
        b"back\\slash.txt",
        b"esc\x1b[31m.txt",
        b"dot.",
        b"bidi\xe2\x80\xae.txt",
        b"-n",
        b"\xf0\x9f\xa6\x80",
    ] {
        std::fs::write(run.repo.join(std::ffi::OsStr::from_bytes(name)), "needle\n").unwrap();
    }
    run.ok("list_dir", json!({"includeHidden": true})).await;
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    assert!(found["matches"].as_array().unwrap().len() >= 3, "{found:#}");
    run.ok("diff_workspace", json!({})).await;
    assert_eq!(run.agent.get(&format!("/v1/runs/{}/archive", run.id)).await.status, 200);
    // Existing files with such names can be read, although no tool creates them.
    for name in ["line\nbreak.txt", "back\\slash.txt", "dot."] {
        run.ok("read_file", json!({"path": name})).await;
    }
    run.audit().await;
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_folder_swapped_with_a_link_discloses_and_writes_nothing_outside(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let run = server.run_with_files(&[("d/f.txt", "inside\n")], json!({})).await;
    let outside = server.home.join("swapped");
    put(&outside, "f.txt", "outside\n");
    put(&outside, "untouched.txt", "untouched\n");
    run.own(&["d/f.txt"]);
    std::os::unix::fs::symlink(&outside, run.repo.join("link")).unwrap();
    let swapper = crate::harness::swap_until_stopped(&run.repo, "d", "link");
    let (mut read, mut refused) = (0, 0);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(4);
    let mut round = 0;
    while std::time::Instant::now() < deadline {
        round += 1;
        let new = write(&format!("d/new{round}.txt"));
        let calls = [
            run.call("read_file", json!({"path": "d/f.txt", "format": "raw"})),
            run.call("search_text", json!({"query": "side"})),
            run.call("list_dir", json!({"path": "d", "maxEntries": 5})),
            run.call("write_file", new),
            run.call("diff_workspace", json!({"maxBytes": 2000})),
        ];
        for answer in futures_util::future::join_all(calls).await {
            assert!(
                !answer.contains("outside\\n") && !answer.contains("untouched"),
                "{}: {}",
                answer.what,
                answer.text()
            );
            if answer.status == 200 { read += 1 } else { refused += 1 }
        }
    }
    let swaps = swapper.stop();
    assert!(
        swaps > 1000 && read > 0 && refused > 0,
        "no race took place: {swaps} swaps, {read} answers, {refused} refusals"
    );
    let names = crate::harness::snapshot(&outside).into_keys().collect::<Vec<_>>();
    assert_eq!(names, ["f.txt", "untouched.txt"], "something was written outside");
    assert_eq!(run.verify().await["intact"], true);
}
