//! `stat_path`, `find_files` and `tree_stats`: metadata without content.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, mkfifo, sha256};

fn found(answer: &Value) -> Vec<&str> {
    answer["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect()
}

#[rstest]
#[tokio::test]
async fn stat_path_returns_the_hash_of_a_file(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("src/main.rs", "fn main() {}\n")]).await;
    let stat = run.ok("stat_path", json!({"path": "./src//main.rs"})).await;
    assert_eq!(stat["path"], "src/main.rs");
    assert_eq!(stat["exists"], true);
    assert_eq!(stat["type"], "file");
    assert_eq!(stat["kind"], "TEXT_SOURCE");
    assert_eq!((&stat["readable"], &stat["writable"]), (&json!(true), &json!(true)));
    assert_eq!(stat["sizeBytes"], 13);
    assert_eq!(stat["mode"], "0644");
    assert_eq!(stat["sha256"], sha256(b"fn main() {}\n"));
    assert!(stat["modifiedAt"].as_str().unwrap().ends_with('Z'), "{stat:#}");
    let record = run.last_record().await;
    assert_eq!(record["tool"], "stat_path");
    assert_eq!(record["pathsRead"], json!(["src/main.rs"]));
    assert_eq!(record["files"][0]["newSha256"], stat["sha256"]);
    run.call("stat_path", json!({"path": "src/main.rs/"})).await.refused("PATH_REJECTED");
}

#[rstest]
#[tokio::test]
async fn a_missing_path_is_not_an_error(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared_with(
        backend,
        &[("a.txt", "x\n"), (".gitignore", "tmp/\n")],
        json!({"policy": {"deny": ["closed/**"]}}),
    )
    .await;
    for path in ["none.txt", "none/deeper.txt", "a.txt/below"] {
        let stat = run.ok("stat_path", json!({"path": path})).await;
        assert_eq!(stat["exists"], false, "{path}");
        assert_eq!(stat["readable"], false, "{path}");
        for member in ["type", "kind", "sizeBytes", "sha256", "mode", "modifiedAt"] {
            assert!(stat.get(member).is_none(), "{path} {member}: {stat:#}");
        }
    }
    assert_eq!(run.ok("stat_path", json!({"path": "none.txt"})).await["writable"], true);
    // `writable` reports whether a tool could create the path.
    run.put("dir/b.txt", "x\n");
    run.link("way", "dir");
    for (path, code) in [
        ("dir/none/deeper.txt", None),
        ("a.txt/below", Some("NOT_A_DIRECTORY")),
        ("a.txt/far/below", Some("NOT_A_DIRECTORY")),
        ("way/none.txt", Some("PATH_REJECTED")),
        ("dir/odd.", Some("PATH_REJECTED")),
    ] {
        let stat = run.ok("stat_path", json!({"path": path})).await;
        assert_eq!((&stat["exists"], &stat["writable"]), (&json!(false), &json!(code.is_none())), "{path}: {stat:#}");
        let written =
            run.call("write_file", json!({"path": path, "content": "x", "reason": "r", "dryRun": true})).await;
        match code {
            None => drop(written.ok()),
            Some(code) => drop(written.refused(code)),
        }
    }
    // A missing path under a denied pattern is answered like an existing one.
    for path in ["none/.env", "id_rsa", "closed/none.txt", "tmp/none.txt"] {
        let stat = run.ok("stat_path", json!({"path": path})).await;
        assert_eq!(stat["exists"], false, "{path}");
        assert_eq!((&stat["readable"], &stat["writable"]), (&json!(false), &json!(false)), "{path}");
        assert!(stat.get("kind").is_none() && stat.get("reason").is_none(), "{path}: {stat:#}");
    }
    for path in ["../none", ".git/config", "/etc/passwd"] {
        run.call("stat_path", json!({"path": path})).await.refused("PATH_REJECTED");
    }
}

#[rstest]
#[tokio::test]
async fn a_denied_file_is_returned_without_a_hash(#[values(Backend::Sqlite)] backend: Backend) {
    let files =
        [(".env", "PASSWORD=hunter2\n"), (".gitignore", "tmp/\n"), ("shut/a.txt", "x\n"), ("vendor/v.go", "x\n")];
    let (_server, run) = Run::shared_with(backend, &files, json!({"policy": {"deny": ["shut/**"]}})).await;
    run.put("tmp/made.txt", "ignored\n");
    for (path, kind, reason) in [
        (".env", "SECRET_LIKE", "POLICY_DENIED_SECRET"),
        ("shut/a.txt", "TEXT_DOC", "POLICY_DENIED"),
        ("tmp/made.txt", "TEXT_DOC", "POLICY_DENIED"),
    ] {
        let stat = run.ok("stat_path", json!({"path": path})).await;
        assert_eq!(stat["exists"], true, "{path}");
        assert_eq!(stat["kind"], kind, "{path}");
        assert_eq!((&stat["readable"], &stat["writable"]), (&json!(false), &json!(false)), "{path}");
        assert_eq!(stat["reason"], reason, "{path}");
        assert!(stat.get("sha256").is_none(), "{path}: {stat:#}");
        assert!(run.last_record().await["files"].as_array().unwrap().is_empty(), "{path}");
    }
    let vendored = run.ok("stat_path", json!({"path": "vendor/v.go"})).await;
    assert_eq!((&vendored["readable"], &vendored["writable"]), (&json!(true), &json!(false)));
}

#[rstest]
#[tokio::test]
async fn folders_links_and_special_files_are_reported_by_type(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("src/a.rs", "x\n"), (".env", "A=1\n")]).await;
    run.put("pic.bin", [0, 159, 146, 150]);
    run.link("in.rs", "src/a.rs");
    run.link("folder", "src");
    run.link("out", "/etc/passwd");
    run.link("outside", "/etc");
    run.link("secret.txt", ".env");
    mkfifo(&run.repo.join("pipe"));
    for (path, entry_type, readable) in [
        (".", "directory", true),
        ("src", "directory", true),
        ("in.rs", "symlink", true),
        ("folder", "symlink", true),
        ("folder/a.rs", "file", true),
        ("out", "symlink", false),
        ("secret.txt", "symlink", false),
        ("pipe", "other", false),
        ("pic.bin", "file", false),
    ] {
        let stat = run.ok("stat_path", json!({"path": path})).await;
        assert_eq!(stat["type"], entry_type, "{path}");
        assert_eq!(stat["readable"], readable, "{path}: {stat:#}");
    }
    assert_eq!(
        run.ok("stat_path", json!({"path": "folder/a.rs"})).await["writable"],
        false,
        "a path through a link is writable"
    );
    assert_eq!(run.ok("stat_path", json!({"path": "pic.bin"})).await["reason"], "UNSUPPORTED_BINARY");
    run.call("stat_path", json!({"path": "outside/passwd"})).await.refused("PATH_REJECTED");
}

#[rstest]
#[tokio::test]
async fn globs_match_names_and_paths(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("src/main.rs", "x\n"),
        ("src/deep/er/lib.rs", "x\n"),
        ("src/deep.rs", "x\n"),
        ("tests/one.rs", "x\n"),
        (".github/ci.yml", "x\n"),
        ("README.md", "x\n"),
        (".gitignore", "tmp/\n"),
        ("target/made.rs", "x\n"),
        (".env", "A=1\n"),
    ];
    let (_server, run) = Run::shared(backend, &files).await;
    run.put("tmp/ignored.rs", "x\n");
    let all = ["src/deep.rs", "src/deep/er/lib.rs", "src/main.rs", "tests/one.rs"];
    for (input, expected) in [
        (json!({"glob": ["*.rs"]}), &all[..]),
        (json!({"glob": ["**/*.rs"]}), &all[..]),
        (json!({"glob": ["src/*.rs"]}), &["src/deep.rs", "src/main.rs"][..]),
        (json!({"glob": ["src/"]}), &all[..3]),
        (json!({"glob": ["*.rs"], "path": "src/deep"}), &["src/deep/er/lib.rs"][..]),
        (json!({"glob": ["*.yml", "*.md"]}), &[".github/ci.yml", "README.md"][..]),
        (json!({"glob": ["*.rs"], "path": "target"}), &["target/made.rs"][..]),
        (json!({"glob": ["*.rs"], "path": "tmp"}), &["tmp/ignored.rs"][..]),
        (json!({"glob": ["none*"]}), &[][..]),
    ] {
        let answer = run.ok("find_files", input.clone()).await;
        assert_eq!(found(&answer), expected, "{input}");
        assert_eq!(answer["truncated"], false, "{input}");
    }
    let secret = run.ok("find_files", json!({"glob": [".env"]})).await;
    assert_eq!(secret["entries"][0]["readable"], false);
    assert_eq!(secret["entries"][0]["reason"], "POLICY_DENIED_SECRET");
    let first = run.ok("find_files", json!({"glob": ["*.rs"], "maxResults": 2})).await;
    assert_eq!((found(&first), &first["truncated"]), (all[..2].to_vec(), &json!(true)));
}

#[rstest]
#[tokio::test]
async fn results_are_sorted_as_requested(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("b.txt", "22\n"), ("a.txt", "1\n"), ("c.txt", "333\n")]).await;
    run.own(&["a.txt", "b.txt", "c.txt"]);
    for (path, seconds) in [("a.txt", 300), ("b.txt", 100), ("c.txt", 200)] {
        let file = std::fs::File::options().write(true).open(run.repo.join(path)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    }
    for (sort, expected) in [
        ("path", ["a.txt", "b.txt", "c.txt"]),
        ("modified", ["a.txt", "c.txt", "b.txt"]),
        ("size", ["c.txt", "b.txt", "a.txt"]),
    ] {
        let answer = run.ok("find_files", json!({"glob": ["*.txt"], "sort": sort})).await;
        assert_eq!(found(&answer), expected, "{sort}");
    }
    let newest = run.ok("find_files", json!({"glob": ["*.txt"], "sort": "modified", "maxResults": 1})).await;
    assert_eq!(found(&newest), ["a.txt"]);
    assert_eq!(newest["entries"][0]["modifiedAt"], "1970-01-01T00:05:00Z");
}

#[rstest]
#[tokio::test]
async fn invalid_input_of_find_files_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "x\n")]).await;
    for (input, code) in [
        (json!({}), "INVALID_REQUEST"),
        (json!({"glob": []}), "INVALID_REQUEST"),
        (json!({"glob": ["[a"]}), "INVALID_REQUEST"),
        (json!({"glob": ["*"], "sort": "colour"}), "INVALID_REQUEST"),
        (json!({"glob": ["*"], "maxResults": 0}), "INVALID_REQUEST"),
        (json!({"glob": ["*"], "path": "../.."}), "PATH_REJECTED"),
        (json!({"glob": ["*"], "path": "none"}), "NOT_FOUND"),
        (json!({"glob": ["*"], "path": "a.txt"}), "NOT_A_DIRECTORY"),
    ] {
        run.call("find_files", input).await.refused(code);
    }
}

#[rstest]
#[tokio::test]
async fn tree_stats_count_by_kind_and_extension(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("src/main.rs", "one\ntwo\n"),
        ("src/a/lib.RS", "no end"),
        ("README.md", "# hi\n"),
        ("Makefile", ""),
        (".env", "A=1\nB=2\n"),
        (".gitignore", "tmp/\n"),
    ];
    let (_server, run) = Run::shared(backend, &files).await;
    run.put("pic.bin", [0, 1, 10, 10]);
    run.put("wide.txt", [0xff, 0xfe, b'a', 0, b'\n', 0, b'b', 0]);
    run.put("tmp/ignored.rs", "x\nx\nx\n");
    run.link("link.rs", "src/main.rs");
    let stats = run.ok("tree_stats", json!({})).await;
    assert_eq!(stats["path"], ".");
    assert_eq!(stats["files"], 8);
    assert_eq!(stats["directories"], 2);
    assert_eq!(stats["bytes"], 8 + 6 + 5 + 8 + 5 + 4 + 8);
    assert_eq!(stats["lines"], 2 + 1 + 1 + 1 + 2, "lines of secret or binary files were counted: {stats:#}");
    assert_eq!(stats["byExtension"]["rs"], json!({"files": 2, "bytes": 14, "lines": 3}));
    assert_eq!(stats["byExtension"][""]["files"], 3);
    assert_eq!(stats["byKind"]["SECRET_LIKE"], json!({"files": 1, "bytes": 8, "lines": 0}));
    assert_eq!(stats["byKind"]["BINARY"], json!({"files": 1, "bytes": 4, "lines": 0}));
    assert_eq!(stats["notCounted"], 2);
    let below = run.ok("tree_stats", json!({"path": "src/a"})).await;
    assert_eq!((&below["files"], &below["directories"], &below["lines"]), (&json!(1), &json!(0), &json!(1)));
    run.call("tree_stats", json!({"path": "README.md"})).await.refused("NOT_A_DIRECTORY");
}

#[rstest]
#[tokio::test]
async fn mounts_are_readable_and_not_writable(#[values(Backend::Sqlite)] backend: Backend) {
    let server = crate::harness::Server::shared(backend).await;
    let docs = server.template(&[("guide.md", "# hi\n")]);
    let mounts = json!([{"name": "docs", "description": "shared", "path": docs}]);
    let run = server.run(json!({"mounts": mounts})).await;
    let stat = run.ok("stat_path", json!({"path": "guide.md", "mount": "docs"})).await;
    assert_eq!((&stat["readable"], &stat["writable"]), (&json!(true), &json!(false)));
    assert_eq!(run.ok("stat_path", json!({"path": "none.md", "mount": "docs"})).await["writable"], false);
    assert_eq!(found(&run.ok("find_files", json!({"glob": ["*"], "mount": "docs"})).await), ["guide.md"]);
    assert_eq!(run.ok("tree_stats", json!({"mount": "docs"})).await["lines"], 1);
}
