//! `search_text`: every input with its default and maximum, every member of the output.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run};

fn found(report: &Value) -> Vec<(&str, u64, u64)> {
    let one = |found: &'_ Value| (found["line"].as_u64().unwrap(), found["column"].as_u64().unwrap());
    let matches = report["matches"].as_array().unwrap();
    matches.iter().map(|found| (found["path"].as_str().unwrap(), one(found).0, one(found).1)).collect()
}

const FILES: [(&str, &str); 5] = [
    ("src/b.rs", "fn beta() {}\nlet x = alpha + beta;\n"),
    ("src/a.rs", "fn alpha() {}\n// Alpha and alphabet\n"),
    ("docs/x.md", "# alpha\n\n1+1 = a.pha\n"),
    (".hidden/c.txt", "alpha\n"),
    ("ünï.txt", "vor alpha\n"),
];

#[rstest]
#[tokio::test]
async fn a_literal_is_found_in_path_order(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let report = run.ok("search_text", json!({"query": "alpha"})).await;
    let want = [
        (".hidden/c.txt", 1, 1),
        ("docs/x.md", 1, 3),
        ("src/a.rs", 1, 4),
        ("src/a.rs", 2, 14),
        ("src/b.rs", 2, 9),
        ("ünï.txt", 1, 5),
    ];
    let visible: Vec<_> =
        want.into_iter().filter(|(path, _, _)| !path.starts_with('.') || report["filesSearched"] == 5).collect();
    assert_eq!(found(&report), visible, "{report:#}");
    assert_eq!((&report["query"], &report["truncated"]), (&json!("alpha"), &json!(false)));
    assert!(report.get("truncatedReason").is_none_or(Value::is_null));
    let first = report["matches"].as_array().unwrap().iter().find(|found| found["path"] == "src/a.rs").unwrap();
    assert_eq!(first["snippet"], "fn alpha() {}");
    assert_eq!((&first["before"], &first["after"], &first["kind"]), (&json!([]), &json!([]), &json!("TEXT_SOURCE")));
}

#[rstest]
#[tokio::test]
async fn an_unsearchable_file_is_refused_if_it_is_named(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared_with(backend, &FILES, json!({"policy": {"maxFileBytes": 1000}})).await;
    run.put("src/alpha.bin", b"alpha\0alpha\n");
    run.put("src/late.dat", [b"alpha\n".to_vec(), vec![b'x'; 9000], b"\0".to_vec()].concat());
    run.put("src/large.txt", "alpha\n".repeat(3000));
    run.put("utf16.txt", b"\xff\xfea\0l\0p\0h\0a\0\n\0");
    for (path, code) in [("src/alpha.bin", "UNSUPPORTED_BINARY"), ("src/large.txt", "FILE_TOO_LARGE")] {
        for query in ["alpha", "none such"] {
            let problem = run.call("search_text", json!({"query": query, "path": path})).await.refused(code);
            assert_eq!(problem["path"], path);
        }
    }
    // A NUL after the first bytes is detected when the file has a match.
    run.call("search_text", json!({"query": "alpha", "path": "src/late.dat"})).await.refused("UNSUPPORTED_BINARY");
    let problem =
        run.call("search_text", json!({"query": "a", "path": "src/large.txt"})).await.refused("FILE_TOO_LARGE");
    assert_eq!((&problem["limit"], &problem["actual"]), (&json!(16000), &json!(18000)));
    assert_eq!(found(&run.ok("search_text", json!({"query": "alpha", "path": "utf16.txt"})).await).len(), 1);
    // In a folder they are skipped, and the oversized ones are listed.
    let report = run.ok("search_text", json!({"query": "beta", "path": "src"})).await;
    assert_eq!(found(&report), [("src/b.rs", 1, 4), ("src/b.rs", 2, 17)]);
    assert!(report["skipped"].to_string().contains("src/large.txt"), "{report:#}");
}

#[rstest]
#[tokio::test]
async fn each_option_has_its_effect(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let table = [
        (json!({"query": "a.pha"}), vec![("docs/x.md", 3, 7)]),
        (json!({"query": "1+1"}), vec![("docs/x.md", 3, 1)]),
        (json!({"query": r"^fn \w+\(\)", "mode": "regex"}), vec![("src/a.rs", 1, 1), ("src/b.rs", 1, 1)]),
        (json!({"query": "alpha", "path": "src"}), vec![("src/a.rs", 1, 4), ("src/a.rs", 2, 14), ("src/b.rs", 2, 9)]),
        (json!({"query": "alpha", "path": "src/b.rs"}), vec![("src/b.rs", 2, 9)]),
        (json!({"query": "alpha", "path": "src", "wholeWord": true}), vec![("src/a.rs", 1, 4), ("src/b.rs", 2, 9)]),
        (json!({"query": "ALPHA", "path": "src"}), vec![]),
        (
            json!({"query": "ALPHA", "path": "src/a.rs", "caseSensitive": false}),
            vec![("src/a.rs", 1, 4), ("src/a.rs", 2, 4)],
        ),
        (json!({"query": "alpha", "includeGlob": ["**/*.md"]}), vec![("docs/x.md", 1, 3)]),
        (
            json!({"query": "alpha", "includeGlob": ["src/**"], "excludeGlob": ["**/b.rs"]}),
            vec![("src/a.rs", 1, 4), ("src/a.rs", 2, 14)],
        ),
        (json!({"query": "alpha", "includeGlob": ["b.rs"]}), vec![("src/b.rs", 2, 9)]),
        (json!({"query": "alpha", "includeGlob": ["/b.rs"]}), vec![]),
        (json!({"query": "no such text"}), vec![]),
        (json!({"query": "{}\nlet", "multiline": true}), vec![("src/b.rs", 1, 11)]),
        (json!({"query": "alpha.*alpha", "mode": "regex", "multiline": true}), vec![("src/a.rs", 1, 4)]),
        (json!({"query": "alpha.*alpha", "mode": "regex"}), vec![]),
    ];
    for (input, want) in table {
        assert_eq!(found(&run.ok("search_text", input.clone()).await), want, "{input}");
    }
    let across = json!({"query": "{}\nlet", "multiline": true, "maxMatches": 1});
    let report = run.ok("search_text", across.clone()).await;
    assert_eq!(report["matches"][0]["endLine"], 2);
    assert_eq!(report["matches"][0]["snippet"], "fn beta() {}\nlet x = alpha + beta;");
    let text = run.text("search_text", across).await.text();
    assert_eq!(text, "src/b.rs\n  1: fn beta() {}\n  2: let x = alpha + beta;\n");
    // A cursor belongs to the lines in which it was searched.
    let first = run.ok("search_text", json!({"query": "alpha", "maxMatches": 1})).await;
    let next = json!({"query": "alpha", "multiline": true, "maxMatches": 1, "cursor": first["nextCursor"]});
    run.call("search_text", next).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn context_is_limited_to_three_lines(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "1\n2\n3\n4\nhere\n6\n7\n8\n9\n")]).await;
    for (asked, before, after) in
        [(0, vec![], vec![]), (2, vec!["3", "4"], vec!["6", "7"]), (50, vec!["2", "3", "4"], vec!["6", "7", "8"])]
    {
        let report = run.ok("search_text", json!({"query": "here", "contextLines": asked})).await;
        assert_eq!((&report["matches"][0]["before"], &report["matches"][0]["after"]), (&json!(before), &json!(after)));
    }
}

#[rstest]
#[tokio::test]
async fn the_number_of_matches_is_limited_to_the_first_ones(#[values(Backend::Sqlite)] backend: Backend) {
    let text = "hit\n".repeat(150);
    let files: Vec<(String, &str)> = (0..10).map(|number| (format!("f{number}.txt"), text.as_str())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    for (input, count) in [
        (json!({"query": "hit"}), 100),
        (json!({"query": "hit", "maxMatches": 7}), 7),
        (json!({"query": "hit", "maxMatches": 1_000_000}), 1000),
    ] {
        let report = run.ok("search_text", input).await;
        let got = found(&report);
        assert_eq!((got.len(), &report["truncated"]), (count, &json!(true)));
        assert_eq!(report["truncatedReason"], "maxMatches");
        let first: Vec<_> = (0..count as u64).map(|at| (format!("f{}.txt", at / 150), at % 150 + 1)).collect();
        let got: Vec<_> = got.into_iter().map(|(path, line, _)| (path.to_owned(), line)).collect();
        assert_eq!(got, first, "the result is not deterministic");
    }
    let all = run.ok("search_text", json!({"query": "hit", "path": "f0.txt", "maxMatches": 150})).await;
    assert_eq!(all["truncated"], false);
    assert_eq!(all["filesSearched"], 1);
}

#[rstest]
#[tokio::test]
async fn long_lines_and_other_encodings_are_searched(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    run.put("long.txt", format!("{}needle{}\n", "x".repeat(200_000), "y".repeat(200_000)));
    run.put("latin.txt", b"caf\xe9 needle\n");
    run.put("nul.bin", b"needle\0needle\n");
    run.put("crlf.txt", b"one\r\nneedle\r\n");
    let report = run.ok("search_text", json!({"query": "needle"})).await;
    let paths: Vec<_> = found(&report).into_iter().map(|(path, ..)| path).collect();
    assert!(paths.contains(&"long.txt") && paths.contains(&"crlf.txt"), "{paths:?}");
    assert!(!paths.contains(&"nul.bin"), "a binary file was searched");
    for found in report["matches"].as_array().unwrap() {
        let snippet = found["snippet"].as_str().unwrap();
        assert!(snippet.contains("needle") && snippet.chars().count() <= 500, "{} {}", found["path"], snippet.len());
        assert!(!snippet.ends_with('\r'));
    }
    let long = report["matches"].as_array().unwrap().iter().find(|found| found["path"] == "long.txt").unwrap();
    assert_eq!(long["column"], 200_001);
}

#[rstest]
#[tokio::test]
async fn invalid_queries_are_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    for bad in [
        json!({}),
        json!({"query": ""}),
        json!({"query": "(", "mode": "regex"}),
        json!({"query": "x{1000}{1000}{1000}", "mode": "regex"}),
        json!({"query": "x", "mode": "fuzzy"}),
        json!({"query": "x", "includeGlob": ["a["]}),
        json!({"query": "x", "includeGlob": true}),
        json!({"query": "x", "includeGlob": {}}),
        json!({"query": "x", "maxMatches": 0}),
        json!({"query": "x", "surprise": 1}),
    ] {
        run.call("search_text", bad).await.refused("INVALID_REQUEST");
    }
    run.call("search_text", json!({"query": "x", "path": "none-such"})).await.refused("NOT_FOUND");
    run.call("search_text", json!({"query": "x", "path": "../x"})).await.refused("PATH_REJECTED");
    // An expression that is exponential in backtracking engines is fast.
    run.put("a.txt", "a".repeat(50_000));
    let started = std::time::Instant::now();
    run.ok("search_text", json!({"query": "(a+)+$b", "mode": "regex"})).await;
    assert!(started.elapsed().as_secs() < 10);
}
