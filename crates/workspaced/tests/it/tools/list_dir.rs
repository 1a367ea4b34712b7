//! `list_dir`: every input with its default and maximum, every member of the output.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run};

fn paths(listing: &Value) -> Vec<&str> {
    listing["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect()
}

fn entry<'a>(listing: &'a Value, path: &str) -> &'a Value {
    let mut entries = listing["entries"].as_array().unwrap().iter();
    entries.find(|entry| entry["path"] == path).unwrap_or_else(|| panic!("no {path} in {listing:#}"))
}

#[rstest]
#[tokio::test]
async fn two_levels_are_listed_by_default(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("top.txt", "x\n"), ("a/one.rs", "x\n"), ("a/b/two.rs", "x\n"), ("a/b/c/three.rs", "x\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    let listing = run.ok("list_dir", json!({})).await;
    assert_eq!(listing["path"], ".");
    assert_eq!(paths(&listing), ["a", "a/b", "a/one.rs", "top.txt"]);
    assert_eq!(listing["truncated"], false);
    assert!(listing["toolCallId"].as_str().unwrap().starts_with("tc_"));

    let deep = run.ok("list_dir", json!({"maxDepth": 1})).await;
    assert_eq!(paths(&deep), ["a", "top.txt"]);
    let deep = run.ok("list_dir", json!({"path": "a", "maxDepth": 1_000_000})).await;
    assert_eq!(deep["path"], "a");
    assert_eq!(
        paths(&deep),
        ["a/b", "a/b/c", "a/b/c/three.rs", "a/b/two.rs", "a/one.rs"],
        "paths are not relative to the root"
    );
    for same in ["./a", "a/", "a//", "x/../a"] {
        assert_eq!(run.ok("list_dir", json!({"path": same, "maxDepth": 1})).await["path"], "a", "{same}");
    }
}

#[rstest]
#[tokio::test]
async fn at_most_twenty_levels_are_listed(#[values(Backend::Sqlite)] backend: Backend) {
    let deep: Vec<String> = (1..=25).map(|depth| format!("d{depth}")).collect();
    let (_server, run) = Run::shared(backend, &[(format!("{}/f.txt", deep.join("/")).as_str(), "x\n")]).await;
    let listing = run.ok("list_dir", json!({"maxDepth": 1000})).await;
    assert_eq!(paths(&listing).len(), 20);
    assert_eq!(*paths(&listing).last().unwrap(), deep[..20].join("/"));
}

#[rstest]
#[tokio::test]
async fn an_entry_has_type_kind_and_size(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("src/main.rs", "fn main() {}\n"),
        ("README.md", "# hi\n"),
        ("Cargo.toml", "[package]\n"),
        ("Cargo.lock", "x\n"),
    ];
    let (_server, run) = Run::shared(backend, &files).await;
    run.put("pic.bin", [0, 159, 146, 150, 0, 1, 2]);
    run.link("link.rs", "src/main.rs");
    run.link("out", "/etc/passwd");
    crate::harness::mkfifo(&run.repo.join("pipe"));
    let listing = run.ok("list_dir", json!({})).await;
    for (path, entry_type, kind, size) in [
        ("src", "directory", json!("DIRECTORY"), Value::Null),
        ("src/main.rs", "file", json!("TEXT_SOURCE"), json!(13)),
        ("README.md", "file", json!("TEXT_DOC"), json!(5)),
        ("Cargo.toml", "file", json!("TEXT_CONFIG"), json!(10)),
        ("Cargo.lock", "file", json!("LOCKFILE"), json!(2)),
        ("pic.bin", "file", json!("BINARY"), json!(7)),
    ] {
        let entry = entry(&listing, path);
        assert_eq!(entry["type"], entry_type, "{path}");
        assert_eq!(entry["kind"], kind, "{path}");
        assert_eq!(entry.get("sizeBytes").unwrap_or(&Value::Null), &size, "{path}");
    }
    assert_eq!(entry(&listing, "src/main.rs")["readable"], true);
    assert_eq!(entry(&listing, "pic.bin")["readable"], false);
    assert_eq!(entry(&listing, "link.rs")["type"], "symlink");
    assert_eq!(entry(&listing, "out")["type"], "symlink");
    assert_eq!(entry(&listing, "out")["readable"], false);
    assert_eq!(entry(&listing, "pipe")["type"], "other");
    assert_eq!(entry(&listing, "pipe")["readable"], false);
}

#[rstest]
#[tokio::test]
async fn hidden_and_ignored_entries_are_listed_on_request(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        (".gitignore", "*.log\n"),
        (".github/ci.yml", "x\n"),
        ("a.log", "x\n"),
        ("target/out.o", "x\n"),
        ("node_modules/x/i.js", "x\n"),
        ("src/a.rs", "x\n"),
    ];
    let (_server, run) = Run::shared(backend, &files).await;
    assert_eq!(paths(&run.ok("list_dir", json!({})).await), ["src", "src/a.rs"]);
    let hidden = run.ok("list_dir", json!({"includeHidden": true})).await;
    assert_eq!(paths(&hidden), [".github", ".github/ci.yml", ".gitignore", "src", "src/a.rs"]);
    let ignored = run.ok("list_dir", json!({"includeIgnored": true, "maxDepth": 1})).await;
    assert_eq!(paths(&ignored), ["a.log", "node_modules", "src", "target"]);
    let log = entry(&ignored, "a.log");
    assert_eq!(log["readable"], false, "{log}");
    assert!(!log["reason"].as_str().unwrap().is_empty());
}

#[rstest]
#[tokio::test]
async fn the_number_of_entries_is_limited(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for number in 0..310 {
        run.put(&format!("f{number:03}.txt"), "x\n");
    }
    let listing = run.ok("list_dir", json!({})).await;
    assert_eq!((paths(&listing).len(), &listing["truncated"]), (300, &json!(true)));
    assert_eq!(
        (paths(&listing)[0], paths(&listing)[299]),
        ("f000.txt", "f299.txt"),
        "the listing does not have the first entries"
    );
    let exact = run.ok("list_dir", json!({"maxEntries": 310})).await;
    assert_eq!((paths(&exact).len(), &exact["truncated"]), (310, &json!(false)));
    assert_eq!(paths(&run.ok("list_dir", json!({"maxEntries": 99_999_999})).await).len(), 310);
}

#[rstest]
#[tokio::test]
async fn invalid_names_are_listed_escaped(#[values(Backend::Sqlite)] backend: Backend) {
    use std::os::unix::ffi::OsStrExt as _;
    let (_server, run) = Run::shared(backend, &[]).await;
    for name in [&b"caf\xe9.txt"[..], b"new\nline", b"back\\slash", b"tab\t", b"\xff\xfe"] {
        std::fs::write(run.repo.join(std::ffi::OsStr::from_bytes(name)), "x\n").unwrap();
    }
    let listing = run.ok("list_dir", json!({"includeHidden": true})).await;
    let listed = paths(&listing);
    assert_eq!(listed.len(), 5, "{listing:#}");
    assert!(listed.contains(&"caf\\xe9.txt") || listed.contains(&"caf\\xE9.txt"), "{listed:?}");
}

#[rstest]
#[tokio::test]
async fn invalid_input_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "x\n")]).await;
    for (path, code) in [
        ("a.txt", "NOT_A_DIRECTORY"),
        ("none-such", "NOT_FOUND"),
        ("a.txt/b", "NOT_FOUND"),
        ("//", "PATH_REJECTED"),
        ("/a.txt", "PATH_REJECTED"),
        ("..", "PATH_REJECTED"),
        (".git", "PATH_REJECTED"),
    ] {
        let found = run.call("list_dir", json!({"path": path})).await.refusal();
        assert!(found == code || (path == "a.txt/b" && found == "NOT_A_DIRECTORY"), "{path}: {found}");
    }
    for bad in [
        json!({"maxDepth": 0}),
        json!({"maxEntries": 0}),
        json!({"maxDepth": "two"}),
        json!({"maxDepth": "0"}),
        json!({"maxDepth": -1}),
        json!({"depth": 1}),
        json!([]),
    ] {
        run.call("list_dir", bad).await.refused("INVALID_REQUEST");
    }
    // Both are the root for a tool that takes a folder.
    for root in ["", "/", "."] {
        assert_eq!(paths(&run.ok("list_dir", json!({"path": root})).await), ["a.txt"], "{root:?}");
    }
}

#[rstest]
#[tokio::test]
async fn the_bytes_of_entries_are_limited(#[values(Backend::Sqlite)] backend: Backend) {
    let folder = vec!["d".repeat(200); 17].join("/");
    let files: Vec<_> = (0..700).map(|number| format!("{folder}/{number:04}\u{1}")).collect();
    let named: Vec<_> = files.iter().map(|file| (file.as_str(), "one\n")).collect();
    let (_server, run) = Run::shared(backend, &named).await;
    let list = |more: Value| {
        let mut input = json!({"path": folder, "maxDepth": 1, "maxEntries": 10_000});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("list_dir", input)
    };
    let find = |sort: &str| ("find_files", json!({"glob": ["**"], "maxResults": 10_000, "sort": sort}));
    for (tool, input) in [list(json!({})), list(json!({"atSeq": 0})), find("path"), find("size"), find("modified")] {
        let answer = run.call(tool, input).await;
        assert!(answer.body.len() < (2 << 20) + 65_536, "{tool}: {} bytes", answer.body.len());
        let listing = answer.ok();
        let listed = paths(&listing);
        assert!((500..700).contains(&listed.len()), "{tool}: {} entries", listed.len());
        assert_eq!(listing["truncated"], true, "{tool}");
        assert!(listed.iter().enumerate().all(|(at, path)| listing["path"].is_null() || *path == files[at]), "{tool}");
    }
    // Parent folders are listed first, then as many entries as fit.
    let whole = run.ok("list_dir", json!({"maxDepth": 20, "maxEntries": 10_000})).await;
    assert_eq!((paths(&whole)[16], paths(&whole)[17], &whole["truncated"]), (&*folder, &*files[0], &json!(true)));
}
