//! `read_file`: every input with its default and maximum, every member of the output.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, sha256};

fn lines(count: usize) -> String {
    (1..=count).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat()
}

#[rstest]
#[tokio::test]
async fn two_hundred_numbered_lines_are_returned_by_default(#[values(Backend::Sqlite)] backend: Backend) {
    let text = lines(450);
    let (_server, run) = Run::shared(backend, &[("a.txt", &text)]).await;
    let page = run.ok("read_file", json!({"path": "./a.txt"})).await;
    for (member, want) in [
        ("path", json!("a.txt")),
        ("startLine", json!(1)),
        ("endLine", json!(200)),
        ("totalLines", json!(450)),
        ("sha256", json!(sha256(&text))),
        ("truncated", json!(true)),
        ("nextStartLine", json!(201)),
        ("encoding", json!("utf-8")),
        ("lineEnding", json!("lf")),
    ] {
        assert_eq!(page[member], want, "{member}");
    }
    let content = page["content"].as_str().unwrap();
    assert!(content.starts_with("     1 | line 1\n     2 | line 2\n"), "{content}");
    assert_eq!(content.lines().count(), 200);

    let last = run.ok("read_file", json!({"path": "a.txt", "startLine": 401})).await;
    assert_eq!((&last["endLine"], &last["truncated"]), (&json!(450), &json!(false)));
    assert!(last.get("nextStartLine").is_none_or(Value::is_null), "{last:#}");
    assert!(last["content"].as_str().unwrap().ends_with("   450 | line 450\n"));
    let beyond = run.ok("read_file", json!({"path": "a.txt", "startLine": 451})).await;
    assert_eq!((beyond["content"].as_str(), &beyond["totalLines"]), (Some(""), &json!(450)));
}

#[rstest]
#[tokio::test]
async fn a_large_number_is_capped_at_the_maximum(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", &lines(1200))]).await;
    let call = async |tool: &str, input: &str| {
        let path = format!("/v1/runs/{}/tools/{tool}", run.id);
        let request = run.agent.request(reqwest::Method::POST, &path).header("content-type", "application/json");
        run.agent.send(request.body(input.to_owned())).await
    };
    for most in ["1000", "1000.0", "1001", "9007199254740992", "9007199254740991.0"] {
        let page = call("read_file", &format!(r#"{{"path":"a.txt","maxLines":{most}}}"#)).await.ok();
        assert_eq!((&page["endLine"], &page["nextStartLine"]), (&json!(1000), &json!(1001)), "{most}");
        call("list_dir", &format!(r#"{{"maxDepth":{most},"maxEntries":{most}}}"#)).await.ok();
        call("search_text", &format!(r#"{{"query":"x","maxMatches":{most},"contextLines":{most}}}"#)).await.ok();
        call("find_files", &format!(r#"{{"glob":["*"],"maxResults":{most}}}"#)).await.ok();
        call("diff_workspace", &format!(r#"{{"maxBytes":{most}}}"#)).await.ok();
    }
    let beyond = call("read_file", r#"{"path":"a.txt","startLine":9007199254740992}"#).await.ok();
    assert_eq!(beyond["content"], "");
    let page = call("read_file", r#"{"path":"a.txt","startLine":1.0,"maxLines":2.0}"#).await.ok();
    assert_eq!(page["endLine"], 2);
    // Above, a number is not certain to be the one that was meant.
    for lossy in [
        "9007199254740993",
        "9007199254740993.0",
        "18446744073709551615",
        "99999999999999999999",
        "1e40",
        "\"9007199254740994\"",
    ] {
        let refusal = call("read_file", &format!(r#"{{"path":"a.txt","maxLines":{lossy}}}"#)).await;
        let refusal = refusal.refused("INVALID_REQUEST");
        assert!(refusal["message"].as_str().unwrap().contains("is beyond 2^53"), "{refusal}");
    }
    for bad in ["0", "0.0", "-1", "-1.0", "-99999999999999999999", "1.5", "\"one\"", "[1]"] {
        call("read_file", &format!(r#"{{"path":"a.txt","maxLines":{bad}}}"#)).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn reading_with_next_start_line_returns_the_whole_text(#[values(Backend::Sqlite)] backend: Backend) {
    let text = lines(2500) + "no end of line";
    let (_server, run) = Run::shared(backend, &[("a.txt", &text)]).await;
    let (mut whole, mut start) = (String::new(), json!(1));
    loop {
        let page =
            run.ok("read_file", json!({"path": "a.txt", "startLine": start, "maxLines": 9999, "format": "raw"})).await;
        let shown = page["endLine"].as_u64().unwrap() + 1 - page["startLine"].as_u64().unwrap();
        assert!(shown <= 1000, "{shown} lines");
        whole += page["content"].as_str().unwrap();
        match page.get("nextStartLine").filter(|next| !next.is_null()) {
            Some(next) => start = next.clone(),
            None => break,
        }
    }
    assert_eq!(whole, text);
}

#[rstest]
#[tokio::test]
async fn content_is_limited_to_64_kib(#[values(Backend::Sqlite)] backend: Backend) {
    let text = format!("{}\n", "x".repeat(999)).repeat(200);
    let (_server, run) = Run::shared(backend, &[("a.txt", &text)]).await;
    for format in ["raw", "numbered"] {
        let page = run.ok("read_file", json!({"path": "a.txt", "format": format})).await;
        assert!(page["content"].as_str().unwrap().len() <= 65_536, "{format}");
        assert_eq!(page["truncated"], true);
        let end = page["endLine"].as_u64().unwrap();
        assert!((60..=65).contains(&end), "{format}: {end}");
        assert_eq!(page["nextStartLine"], end + 1);
        assert_eq!(page["totalLines"], 200);
    }
}

#[rstest]
#[tokio::test]
async fn long_numbered_lines_are_truncated_and_counted(#[values(Backend::Sqlite)] backend: Backend) {
    let text = format!("short\n{}\n{}\n", "ü".repeat(2000), "ü".repeat(2001));
    let (_server, run) = Run::shared(backend, &[("a.txt", &text)]).await;
    let page = run.ok("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(page["linesCut"], 1, "{page:#}");
    let cut = page["content"].as_str().unwrap().lines().nth(2).unwrap().to_owned();
    assert_eq!(cut.matches('ü').count(), 2000);
    let raw = run.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await;
    assert_eq!(raw["content"], text.as_str());
    assert!(raw.get("linesCut").is_none_or(|cut| cut == 0));
}

#[rstest]
#[tokio::test]
async fn encodings_and_line_endings_are_reported(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let table = [
        ("lf.txt", &b"a\nb\n"[..], "utf-8", "lf", 2, "a\nb\n"),
        ("crlf.txt", b"a\r\nb\r\n", "utf-8", "crlf", 2, "a\r\nb\r\n"),
        ("mixed.txt", b"a\r\nb\n", "utf-8", "mixed", 2, "a\r\nb\n"),
        ("none.txt", b"a", "utf-8", "none", 1, "a"),
        ("empty.txt", b"", "utf-8", "none", 0, ""),
        ("bom.txt", b"\xef\xbb\xbfa\n", "utf-8-bom", "lf", 1, "a\n"),
        ("blank.txt", b"\n\n\n", "utf-8", "lf", 3, "\n\n\n"),
        ("emoji.txt", "🦀\n".as_bytes(), "utf-8", "lf", 1, "🦀\n"),
    ];
    for (path, bytes, encoding, ending, total, content) in table {
        run.put(path, bytes);
        let page = run.ok("read_file", json!({"path": path, "format": "raw"})).await;
        let text = page["content"].as_str().unwrap().trim_start_matches('\u{feff}');
        assert_eq!((&page["encoding"], &page["lineEnding"]), (&json!(encoding), &json!(ending)), "{path}");
        assert_eq!((page["totalLines"].as_u64(), text), (Some(total), content), "{path}");
        assert_eq!(page["sha256"], sha256(bytes), "{path}: the hash is not that of the bytes on disk");
    }
}

#[rstest]
#[tokio::test]
async fn a_file_over_the_size_limit_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let extra = json!({"policy": {"maxFileBytes": 1000}});
    let (_server, run) = Run::shared_with(backend, &[], extra).await;
    run.put("fits.txt", "0123456789abcde\n".repeat(1000));
    run.put("large.txt", "0123456789abcde\n".repeat(1001));
    assert_eq!(run.ok("read_file", json!({"path": "fits.txt"})).await["totalLines"], 1000);
    let problem = run.call("read_file", json!({"path": "large.txt"})).await.refused("FILE_TOO_LARGE");
    assert_eq!(
        (&problem["limit"], &problem["actual"], &problem["path"]),
        (&json!(16_000), &json!(16_016), &json!("large.txt"))
    );
}

#[rstest]
#[tokio::test]
async fn an_unreadable_path_or_invalid_input_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("dir/a.txt", "x\n")]).await;
    run.put("pic.png", [0x89, b'P', b'N', b'G', 0, 0, 0, 1]);
    crate::harness::mkfifo(&run.repo.join("pipe"));
    for (path, code) in [
        ("none-such.txt", "NOT_FOUND"),
        ("dir", "NOT_A_FILE"),
        (".", "NOT_A_FILE"),
        ("pipe", "NOT_A_FILE"),
        ("pic.png", "UNSUPPORTED_BINARY"),
        ("dir/a.txt/", "PATH_REJECTED"),
        ("", "PATH_REJECTED"),
    ] {
        let started = std::time::Instant::now();
        let answer = run.call("read_file", json!({"path": path})).await;
        if path == "." {
            assert!(["NOT_A_FILE", "PATH_REJECTED"].contains(&answer.refusal().as_str()));
        } else {
            answer.refused(code);
        }
        assert!(started.elapsed().as_secs() < 5, "{path} took too long");
    }
    for bad in [
        json!({}),
        json!({"path": "a", "startLine": 0}),
        json!({"path": "a", "maxLines": 0}),
        json!({"path": "a", "format": "hex"}),
        json!({"path": true}),
        json!({"path": "a", "line": 1}),
    ] {
        run.call("read_file", bad).await.refused("INVALID_REQUEST");
    }
}
