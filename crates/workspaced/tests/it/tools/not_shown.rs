//! What lists and searches leave out, and lines that are too long for one answer: nothing is left out in silence.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run};

async fn text(run: &Run, tool: &str, input: Value) -> String {
    let answer = run.text(tool, input).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

#[rstest]
#[tokio::test]
async fn lists_and_searches_say_what_they_leave_out(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        (".gitignore", "tmp/\n*.log\n"),
        (".config", "x\n"),
        ("a.rs", "needle\n"),
        ("x.pb.go", "x\n"),
        ("deep/er/b.rs", "b\n"),
        ("node_modules/react/index.js", "x\n"),
    ];
    let (_server, run) = Run::shared(backend, &files).await;
    run.put("tmp/t.rs", "needle\n");
    run.put("one.log", "needle\n");
    run.put("pic.bin", [0, 159, 146, 150, 0, 1, 2]);
    run.put(".git/config", "x\n");

    let want = "a.rs\ndeep/\npic.bin [binary]\n[2 hidden, 2 ignored, 1 generated file, 1 folder of vendored files not shown; \
                includeHidden, includeIgnored]\n[1 folder not opened; maxDepth]\n";
    assert_eq!(text(&run, "list_dir", json!({"maxDepth": 1})).await, want);
    let listed = run.ok("list_dir", json!({"maxDepth": 1})).await;
    let counts = json!({"hidden": 2, "ignored": 2, "generatedFiles": 1, "vendoredFolders": 1, "unopenedFolders": 1});
    assert_eq!(listed["notShown"], counts);
    let earlier = run.ok("list_dir", json!({"maxDepth": 1, "atSeq": 0})).await;
    let counts = json!({"hidden": 2, "generatedFiles": 1, "vendoredFolders": 1, "unopenedFolders": 1});
    assert_eq!(earlier["notShown"], counts, "{earlier:#}");
    // Page after page, the text counts the whole listing.
    let page = text(&run, "list_dir", json!({"maxDepth": 1, "maxEntries": 1})).await;
    assert!(page.contains("[2 hidden, 2 ignored, 1 generated file, 1 folder of vendored files not shown;"), "{page}");
    let all = run.ok("list_dir", json!({"maxDepth": 9, "includeHidden": true, "includeIgnored": true})).await;
    assert!(all.get("notShown").is_none() && !all.to_string().contains(".git/"), "{all:#}");

    let found = text(&run, "find_files", json!({"glob": ["*.rs", "*.log", "*.go"]})).await;
    let want = "a.rs\ndeep/er/b.rs\n[2 ignored, 1 generated file, 1 folder of vendored files not searched; path=FOLDER looks inside]\n";
    assert_eq!(found, want);
    // A glob that names a folder that is left out otherwise looks into it.
    for glob in ["node_modules/react/index.js", "node_modules/**/*.js", "./node_modules/react/"] {
        let found = text(&run, "find_files", json!({"glob": glob})).await;
        assert!(found.starts_with("node_modules/react/index.js [vendored]\n"), "{glob}: {found}");
        assert!(!found.contains("vendored files not searched"), "{glob}: {found}");
    }
    assert!(text(&run, "find_files", json!({"glob": "tmp/t.rs"})).await.starts_with("tmp/t.rs [not readable]\n"));

    let found = text(&run, "search_text", json!({"query": "needle"})).await;
    assert_eq!(found, "a.rs\n  1: needle\n[2 ignored, 1 binary not searched]\n");
    let found = text(&run, "search_text", json!({"query": "needle", "path": "tmp"})).await;
    assert_eq!(found, "[no matches]\n[0 files searched]\n[1 ignored not searched]\n");
    let stats = text(&run, "tree_stats", json!({})).await;
    assert!(stats.contains("[2 ignored not counted; path=FOLDER looks inside]\n"), "{stats}");
}

#[rstest]
#[tokio::test]
async fn what_policy_hides_is_not_counted(#[values(Backend::Sqlite)] backend: Backend) {
    let files =
        [(".gitignore", "*.log\n"), ("a.txt", "needle\n"), ("shut/b.txt", "needle\n"), (".env", "KEY=needle\n")];
    let policy = json!({"deny": ["shut/**", "shut.log"]});
    let (_server, run) = Run::shared_with(backend, &files, json!({"policy": policy})).await;
    run.put("shut.log", "needle\n");
    run.put("shut.pem", "-----BEGIN PRIVATE KEY-----\nneedle\n");
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    assert_eq!((&found["filesSearched"], found.get("notShown")), (&json!(2), None), "{found:#}");
}

#[rstest]
#[tokio::test]
async fn an_empty_search_says_what_may_be_the_reason(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.ts", "foo\nbar\nif (a || b) {}\n")]).await;
    let literal = "[searched as literal text; mode=regex for expressions]\n";
    for query in ["foo|bar", "foo.*bar", "\\bfoo\\b", "^foo", "(a|b)", "foo\\(", "[a-z]+x", "foo$"] {
        let found = text(&run, "search_text", json!({"query": query})).await;
        assert_eq!(found, format!("[no matches]\n{literal}"), "{query}");
    }
    for query in ["none", "a || c", "f(x)", "a[0]", "x | y", "$"] {
        assert_eq!(text(&run, "search_text", json!({"query": query})).await, "[no matches]\n", "{query}");
    }
    // Only where nothing was found.
    assert!(!text(&run, "search_text", json!({"query": "if (a || b) {"})).await.contains("literal"));
    let escaped = text(&run, "search_text", json!({"query": "foo\\|bar", "mode": "regex"})).await;
    assert_eq!(escaped, "[no matches]\n[in mode=regex, \\| is a literal bar; write | for alternatives]\n");
    let none = run.ok("search_text", json!({"query": "foo", "includeGlob": ["src/*.py"]})).await;
    assert_eq!(none["notes"], json!(["0 files searched: no path matches src/*.py"]));
    // Who may not use expressions is not told to.
    let token =
        run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["file:search"]})).await;
    let agent = run.agent.with_token(token.is(201)["token"].as_str());
    let searcher = Run { agent, ..run.clone() };
    assert_eq!(text(&searcher, "search_text", json!({"query": "foo|bar"})).await, "[no matches]\n");
}

#[rstest]
#[tokio::test]
async fn a_glob_that_matches_no_path_is_explained(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("src/a.ts", "foo\n")]).await;
    for (glob, correct) in [
        ("/workspace/src/*.ts", "write `src/*.ts`"),
        ("src/*.ts ", "write `src/*.ts`"),
        ("*.ts,*.js", "write 2 globs: `*.ts`, `*.js`"),
        ("src\\*.ts", "write `src/*.ts`"),
        ("../src/*.ts", "write it relative to the root of the tree"),
    ] {
        let found = run.ok("find_files", json!({"glob": [glob]})).await;
        let searched = run.ok("search_text", json!({"query": "foo", "includeGlob": [glob]})).await;
        for (answer, entries) in [(&found, "entries"), (&searched, "matches")] {
            assert_eq!(answer[entries], json!([]), "{glob}");
            assert!(answer["notes"].to_string().contains(correct), "{glob}: {answer:#}");
        }
        let note = format!("[the glob `{glob}` matches no path: ");
        assert!(text(&run, "find_files", json!({"glob": [glob]})).await.contains(&note), "{glob}");
    }
    // Only where nothing was found.
    let found = run.ok("find_files", json!({"glob": ["/workspace/src/*.ts", "*.ts"]})).await;
    assert_eq!((found["entries"].as_array().map(Vec::len), found.get("notes")), (Some(1), None));
    assert_eq!(run.ok("find_files", json!({"glob": ["*.rs"]})).await.get("notes"), None);
}

#[rstest]
#[tokio::test]
async fn a_long_line_is_read_to_its_end(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("w.txt", "é2345\nx\n")]).await;
    let line: String = (0..300_000).map(|number: u32| char::from(b'a' + (number % 26) as u8)).collect();
    run.put("m.json", format!("first\n{line}é\r\nlast\n"));
    run.accept_tree().await;
    for format in ["numbered", "raw"] {
        let (mut read, mut column, mut calls) = (String::new(), Value::Null, 0);
        loop {
            let input = json!({"path": "m.json", "format": format, "startLine": 2, "maxLines": 1, "column": column});
            let page = run.ok("read_file", input).await;
            let content = page["content"].as_str().unwrap();
            read.push_str(if format == "raw" { content } else { content.trim_start().strip_prefix("2 | ").unwrap() });
            if page.get("nextColumn").is_none() {
                assert_eq!((&page["nextStartLine"], page.get("cutLine")), (&json!(3), None));
                break;
            }
            assert_eq!(page["cutLine"], 2);
            column = page["nextColumn"].clone();
            if format == "numbered" {
                // The ending of a line that is cut is not part of it.
                read.truncate(read.trim_end_matches('\n').len());
            }
            calls += 1;
        }
        let ending = if format == "raw" { "\r\n" } else { "\n" };
        assert!(read == format!("{line}é{ending}"), "{format}: {} bytes", read.len());
        assert!(calls < 8, "{calls}");
    }
    let shown = text(&run, "read_file", json!({"path": "m.json"})).await;
    let end = "\n3  last\n[1 long line is cut; continue with startLine=2 column=2001]\n[LF and CRLF]\n";
    assert!(shown.ends_with(end), "{shown}");
    let raw = text(&run, "read_file", json!({"path": "m.json", "format": "raw", "startLine": 2})).await;
    assert!(raw.contains("[the rest of line 2 is omitted; continue with startLine=2 column=65537]\n"), "{raw}");
    let end = text(&run, "read_file", json!({"path": "m.json", "startLine": 2, "column": 299_999})).await;
    assert_eq!(end, "2  klé\n3  last\n[LF and CRLF]\n");
    // Columns are characters.
    let part = run.ok("read_file", json!({"path": "w.txt", "column": 2, "maxChars": 12})).await;
    assert_eq!((&part["content"], &part["endLine"]), (&json!("     1 | 2345\n"), &json!(1)));
    let after = run.ok("read_file", json!({"path": "w.txt", "column": 99, "format": "raw"})).await;
    assert_eq!(after["content"], "\nx\n");
    run.call("read_file", json!({"path": "w.txt", "column": 0})).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn read_files_holds_no_more_than_read_file(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("small.txt", "s\n"), ("empty.txt", "")]).await;
    run.put("long.txt", format!("{}tail\n", "x".repeat(1_200_000)));
    run.put("lines.txt", "123456789\n".repeat(6000));
    run.put("more.txt", "123456789\n".repeat(4000));
    run.accept_tree().await;
    let files =
        run.ok("read_files", json!({"paths": ["none", "empty.txt", "lines.txt", "more.txt", "small.txt"]})).await;
    assert_eq!(files["files"]["none"]["status"], "NOT_FOUND");
    assert_eq!(files["files"]["small.txt"]["content"], "s\n");
    for path in ["lines.txt", "more.txt"] {
        let half = &files["files"][path];
        assert_eq!((&half["truncated"], &half["nextStartLine"]), (&json!(true), &json!(3277)), "{half:#}");
    }
    assert_eq!((&files["truncatedReason"], files.get("remaining")), (&json!("maxBytes"), None));
    let bytes: usize =
        ["lines.txt", "more.txt"].iter().map(|path| files["files"][path]["content"].as_str().unwrap().len()).sum();
    assert!((65_000..=65_536).contains(&bytes), "{bytes}");
    let files = run.ok("read_files", json!({"paths": ["small.txt", "long.txt", "empty.txt"]})).await;
    assert_eq!((files.get("remaining"), &files["files"]["long.txt"]["nextColumn"]), (None, &json!(65_535)));
    let shown = text(&run, "read_files", json!({"paths": ["long.txt", "small.txt"]})).await;
    let want =
        "\n[the rest of line 1 is omitted; continue with read_file and startLine=1 column=65535]\n\nsmall.txt\n1  s\n";
    assert!(shown.ends_with(want), "{}", &shown[shown.len() - 200..]);
    // A resource is whole.
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "workspace:///long.txt"}});
    let request = run.agent.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    let too_large = run.agent.send(request.json(&body).header("mcp-protocol-version", "2025-06-18")).await;
    assert!(too_large.text().contains("too large for a resource"), "{}", too_large.text());
    run.put("long.txt", format!("{}\ntail\n", "x".repeat(200_000)));
    let request = run.agent.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    let whole = run.agent.send(request.json(&body).header("mcp-protocol-version", "2025-06-18")).await.is(200);
    assert_eq!(whole["result"]["contents"][0]["text"].as_str(), Some(&*run.on_disk("long.txt")));
}

#[rstest]
#[tokio::test]
async fn a_diff_that_is_cut_in_its_first_file_names_another_way(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("c.txt", "c\n"), ("d.txt", "d\n")]).await;
    let lines = (0..20_000).map(|number| format!("m{number}\n")).collect::<Vec<_>>().concat();
    run.put("c.txt", &lines);
    let cut = |shown: String| shown.lines().last().unwrap().to_owned();
    let one = cut(text(&run, "diff_workspace", json!({"path": "c.txt"})).await);
    assert_eq!(one, "[the diff is cut; raise maxBytes]");
    run.put("c.txt", lines.repeat(10));
    let largest = cut(text(&run, "diff_workspace", json!({"maxBytes": 1 << 20})).await);
    assert_eq!(largest, "[the diff is cut; read_file shows the file, and with atSeq=0 as it was at the start]");
    run.put("c.txt", "changed\n");
    run.put("d.txt", &lines);
    let two = cut(text(&run, "diff_workspace", json!({})).await);
    assert_eq!(two, "[the diff is cut; continue with path=\"d.txt\", narrow path or raise maxBytes]");
}
