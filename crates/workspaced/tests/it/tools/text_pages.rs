//! `maxChars` and `cursor`: where an answer stops, and how it is continued.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run};

/// Returns the paths of all pages of a list, and the number of pages.
async fn pages(run: &Run, tool: &str, input: &Value, items: &str) -> (Vec<String>, usize) {
    let mut input = input.clone();
    let (mut paths, mut count) = (Vec::new(), 0);
    loop {
        let page = run.ok(tool, input.clone()).await;
        count += 1;
        let item = |item: &Value| match item["line"].as_u64() {
            Some(line) => format!("{}:{line}", item["path"].as_str().unwrap()),
            None => item["path"].as_str().unwrap().to_owned(),
        };
        paths.extend(page[items].as_array().unwrap().iter().map(item));
        assert_eq!(page["truncated"], page["nextCursor"].is_string(), "{page:#}");
        assert_eq!(page["truncated"], page["truncatedReason"].is_string(), "{page:#}");
        match page["nextCursor"].as_str() {
            Some(cursor) => input["cursor"] = json!(cursor),
            None => return (paths, count),
        }
        assert!(count < 1000, "{tool} does not end");
    }
}

fn names() -> Vec<String> {
    // Folders whose contents sort apart from them: `a` < `a-b` < `a.txt` < `a/x`.
    let mut names: Vec<_> = ["a-b/one", "a-b.txt", "a.txt", "a/x", "a/y/z", "a/y/zz/q", "a0", "ä/ö", "b"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    names.extend((0..20).map(|number| format!("many/f{number:02}.txt")));
    names
}

/// Each number limits the entries of a page, then their characters.
#[rstest]
#[case::long_pages(&[7], &[50])]
#[case::exhaustive(&[1, 2, 7], &[1, 50])]
#[tokio::test]
async fn pages_have_every_entry_once(
    #[values(Backend::Sqlite)] backend: Backend,
    #[case] entries: &[usize],
    #[case] chars: &[usize],
) {
    let names = names();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "needle\nx\nneedle\nneedle\n")).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    for (tool, items, most, all) in [
        ("list_dir", "entries", "maxEntries", json!({"maxDepth": 20})),
        ("list_dir", "entries", "maxEntries", json!({"maxDepth": 20, "atSeq": 0})),
        ("list_dir", "entries", "maxEntries", json!({"maxDepth": 1})),
        ("list_dir", "entries", "maxEntries", json!({"path": "a", "maxDepth": 2})),
        ("find_files", "entries", "maxResults", json!({"glob": "**"})),
        ("find_files", "entries", "maxResults", json!({"glob": "**", "sort": "size"})),
        ("find_files", "entries", "maxResults", json!({"glob": "**", "sort": "modified"})),
        ("search_text", "matches", "maxMatches", json!({"query": "needle"})),
        ("search_text", "matches", "maxMatches", json!({"query": "needle", "path": "many"})),
        ("search_text", "matches", "maxMatches", json!({"query": "needle", "path": "b"})),
    ] {
        let (want, one) = pages(&run, tool, &all, items).await;
        assert_eq!(one, 1, "{tool} {all}");
        let of_entries = entries.iter().map(|value| (most, *value));
        for (name, value) in of_entries.chain(chars.iter().map(|value| ("maxChars", *value))) {
            let mut input = all.clone();
            input[name] = json!(value);
            let (found, count) = pages(&run, tool, &input, items).await;
            assert_eq!(found, want, "{tool} {input}");
            assert!(count > 1 || want.len() <= value, "{tool} {input}");
        }
    }
    let listing = run.ok("list_dir", json!({"maxEntries": 2})).await;
    for (tool, input) in [
        ("list_dir", json!({"path": "a", "cursor": listing["nextCursor"]})),
        ("list_dir", json!({"cursor": "x"})),
        ("find_files", json!({"glob": "**", "cursor": listing["nextCursor"]})),
        ("search_text", json!({"query": "x", "cursor": ""})),
    ] {
        run.call(tool, input).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn a_cut_list_says_how_much_there_is(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for number in 0..1240 {
        run.put(&format!("d/f{number:04}.txt"), "needle\n");
    }
    let mut input = json!({"path": "d"});
    let first = run.text("list_dir", input.clone()).await.text();
    assert_eq!(first.lines().count(), 302);
    assert!(first.ends_with("[300 of 1,240 entries; narrow path or raise maxEntries]\n"), "{first}");
    let cursor = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("[continue with cursor=")?.strip_suffix(']'));
        serde_json::from_str::<Value>(line.unwrap_or_else(|| panic!("no cursor: {text}"))).unwrap()
    };
    input["cursor"] = cursor(&first);
    let second = run.text("list_dir", input).await.text();
    assert!(second.starts_with("f0300.txt\nf0301.txt\n"), "{second}");
    assert!(second.ends_with("[300 of 1,240 entries; narrow path or raise maxEntries]\n"), "{second}");
    let found = run.text("find_files", json!({"glob": "*.txt", "maxResults": 1000})).await.text();
    assert!(found.ends_with("[1,000 of 1,240 entries; narrow path or raise maxResults]\n"), "{found}");
    let short = run.text("list_dir", json!({"path": "d", "maxChars": 25})).await.text();
    assert!(short.starts_with("f0000.txt\nf0001.txt\n["), "{short}");
    assert!(short.ends_with("[2 of 1,240 entries; narrow path or raise maxChars]\n"), "{short}");
    let nested = run.text("list_dir", json!({"maxEntries": 2})).await.text();
    assert!(nested.starts_with("d/\n  f0000.txt\n[continue") && nested.contains("[2 of 1,241 entries;"), "{nested}");
    let rest = run.text("list_dir", json!({"maxEntries": 2, "cursor": cursor(&nested)})).await.text();
    assert!(rest.starts_with("d/\n  f0001.txt\n  f0002.txt\n"), "{rest}");
    let matches = run.text("search_text", json!({"query": "needle"})).await.text();
    assert!(matches.ends_with("[100 matches, more follow; narrow path or raise maxMatches]\n"), "{matches}");
    let more = run.text("search_text", json!({"query": "needle", "cursor": cursor(&matches)})).await.text();
    assert!(more.starts_with("d/f0100.txt\n  1: needle\n\n"), "{more}");
}

#[rstest]
#[tokio::test]
async fn contents_stop_after_a_line(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "äää\nbbb\nccc\n"), ("b.txt", "one\ntwo\n"), ("c.txt", "x\n"), ("w.txt", "wwwwwwwwww\nv\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    // A label takes 9 characters, a line of three and its end 4.
    for (max_chars, lines) in [(1, 1), (26, 2), (38, 2), (39, 3)] {
        let page = run.ok("read_file", json!({"path": "a.txt", "maxChars": max_chars})).await;
        assert_eq!(page["endLine"], lines, "{max_chars}");
        assert_eq!((page["truncated"] == true, page["nextStartLine"] == lines + 1), (lines < 3, lines < 3));
    }
    let raw = run.ok("read_file", json!({"path": "a.txt", "format": "raw", "maxChars": 8})).await;
    assert_eq!(
        (&raw["content"], &raw["nextStartLine"], &raw["format"]),
        (&json!("äää\nbbb\n"), &json!(3), &json!("raw"))
    );
    let cut = run.ok("read_file", json!({"path": "w.txt", "format": "raw", "maxChars": 4})).await;
    assert_eq!((&cut["content"], &cut["nextStartLine"]), (&json!("wwww"), &json!(2)));
    let shown = run.text("read_file", json!({"path": "a.txt", "maxChars": 26})).await.text();
    assert_eq!(shown, "1  äää\n2  bbb\n[lines 1-2 of 3; continue with startLine=3]\n");

    let paths = json!(["a.txt", "b.txt", "c.txt"]);
    let some = run.ok("read_files", json!({"paths": paths, "maxChars": 18})).await;
    assert_eq!((&some["truncated"], some.get("remaining")), (&json!(true), None));
    // The small files leave their room to the large one.
    assert_eq!(
        (&some["files"]["a.txt"]["content"], &some["files"]["a.txt"]["nextStartLine"]),
        (&json!("äää\nbbb\n"), &json!(3))
    );
    for path in ["b.txt", "c.txt"] {
        assert_eq!(some["files"][path]["content"].as_str(), Some(&*run.on_disk(path)));
        assert_eq!(some["files"][path].get("truncated"), None);
    }
    let shown = run.text("read_files", json!({"paths": paths, "maxChars": 18})).await.text();
    let want = "a.txt\n1  äää\n2  bbb\n[lines 1-2 of 3; continue with read_file and startLine=3]\n\n\
        b.txt\n1  one\n2  two\n\nc.txt\n1  x\n";
    assert_eq!(shown, want);
    let all = run.ok("read_files", json!({"paths": paths})).await;
    assert!(all.get("truncated").is_none() && all.get("remaining").is_none(), "{all:#}");
    let records = run.audit().await;
    assert_eq!(records[records.len() - 2]["pathsRead"], paths);
    // Not even a character for each.
    let few = run.ok("read_files", json!({"paths": paths, "maxChars": 2})).await;
    assert_eq!((&few["truncated"], &few["remaining"]), (&json!(true), &json!(["c.txt"])));

    run.create("new1.txt", "1\n").await;
    run.create("new2.txt", "2\n3\n").await;
    let whole = run.ok("diff_workspace", json!({})).await;
    let length = whole["diff"].as_str().unwrap().chars().count();
    let cut = run.ok("diff_workspace", json!({"maxChars": length - 1})).await;
    assert_eq!((&cut["truncatedReason"], &cut["nextPath"]), (&json!("maxChars"), &json!("new2.txt")));
    assert!(whole["diff"].as_str().unwrap().starts_with(cut["diff"].as_str().unwrap()));
    let shown = run.text("diff_workspace", json!({"maxBytes": 20})).await.text();
    assert!(shown.ends_with("narrow path or raise maxBytes]\n"), "{shown}");
    let stats = run.text("tree_stats", json!({"maxChars": 1})).await.text();
    assert!(stats.ends_with("extensions:\n[extensions are missing; narrow path or raise maxChars]\n"), "{stats}");
    run.ok("stat_path", json!({"path": "a.txt", "maxChars": 10})).await;
    for tool in ["list_dir", "tree_stats", "diff_workspace"] {
        run.call(tool, json!({"maxChars": 0})).await.refused("INVALID_REQUEST");
    }
}
