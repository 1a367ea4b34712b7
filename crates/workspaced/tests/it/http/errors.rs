//! Errors: codes, statuses, members and precedence.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Setup, gzip, sha256, tar_of};

#[rstest]
#[tokio::test]
async fn the_precedence_of_refusals_discloses_nothing(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("pom.xml", "l\n"), (".env", "A=1\n"), ("target/x", "g\n"), ("a.txt", "a\n")];
    let extra = json!({"policy": {"budget": {"maxInsertions": 1, "maxBytes": 100}, "maxFileBytes": 1000, "requireApprovalIf": ["touchesBuildFile"]}});
    let (server, run) = Run::shared_with(backend, &files, extra).await;
    let stale = sha256("stale");
    let many = "x\n".repeat(20);
    // Each call violates several rules. The answer has the first code in the order of the contract.
    let table = [
        (json!({"path": "../x", "content": many}), "INVALID_REQUEST"),
        (json!({"path": "../.env", "content": many, "reason": "r"}), "PATH_REJECTED"),
        (json!({"path": ".env", "content": many, "expectedSha256": stale, "reason": "r"}), "POLICY_DENIED_SECRET"),
        (
            json!({"path": "none/.env", "content": many, "mode": "REPLACE_EXISTING", "reason": "r"}),
            "POLICY_DENIED_SECRET",
        ),
        (json!({"path": "target/.env", "content": many, "reason": "r"}), "POLICY_DENIED_SECRET"),
        (json!({"path": "target/none", "content": many, "mode": "REPLACE_EXISTING", "reason": "r"}), "POLICY_DENIED"),
        (json!({"path": "target/x", "content": many, "expectedSha256": stale, "reason": "r"}), "POLICY_DENIED"),
        (
            json!({"path": "pom.xml", "content": "y".repeat(2000), "mode": "CREATE_NEW", "reason": "r"}),
            "ALREADY_EXISTS",
        ),
        (
            json!({"path": "pom.xml", "content": "y".repeat(2000), "expectedSha256": stale, "reason": "r"}),
            "FILE_TOO_LARGE",
        ),
        (json!({"path": "pom.xml", "content": many, "expectedSha256": stale, "reason": "r"}), "WRITE_CONFLICT"),
        (
            json!({"path": "pom.xml", "content": many, "expectedSha256": sha256("l\n"), "reason": "r"}),
            "PATCH_BUDGET_EXCEEDED",
        ),
        (
            json!({"path": "pom.xml", "content": "m\n", "expectedSha256": sha256("l\n"), "reason": "r"}),
            "APPROVAL_REQUIRED",
        ),
    ];
    for (input, code) in table {
        let mut dry = input.clone();
        dry["dryRun"] = json!(true);
        for input in [dry, input] {
            assert_eq!(run.call("write_file", input.clone()).await.refusal(), code, "{input}");
        }
    }
    for (tool, path) in [
        ("read_file", "none/.env"),
        ("read_file", ".env"),
        ("list_dir", ".env/none"),
        ("search_text", ".aws/credentials"),
    ] {
        let mut input = json!({"path": path});
        if tool == "search_text" {
            input["query"] = json!("x");
        }
        run.call(tool, input).await.refused("POLICY_DENIED_SECRET");
    }
    // Authentication, run and permission are checked before the input.
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    server.nobody().post(&path, json!({"path": "../x"})).await.refused("UNAUTHENTICATED");
    let reader =
        run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["file:read"]})).await.is(201);
    run.agent.with_token(reader["token"].as_str()).post(&path, json!({"path": "../x"})).await.refused("FORBIDDEN");
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    for (input, code) in [
        (json!({"path": "a.txt"}), "INVALID_REQUEST"),
        (json!({"path": "../a", "content": "x", "reason": "r"}), "PATH_REJECTED"),
        (json!({"path": ".env", "content": "x", "reason": "r"}), "RUN_CLOSED"),
    ] {
        run.call("write_file", input).await.refused(code);
    }
    run.patch("junk").await.refused("PATCH_INVALID");
}

#[rstest]
#[tokio::test]
async fn an_existing_and_a_missing_secret_get_the_same_answer(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a/.env", "A=1\n"), ("target/a", "x\n")]).await;
    let problem_of = async |tool: &str, input: Value| {
        let mut problem = run.call(tool, input).await.json();
        for member in ["toolCallId", "seq", "headHash", "instance"] {
            problem.as_object_mut().unwrap().remove(member);
        }
        problem
    };
    for tool in ["read_file", "list_dir"] {
        assert_eq!(
            problem_of(tool, json!({"path": "a/.env"})).await.to_string().replace("a/", "b/"),
            problem_of(tool, json!({"path": "b/.env"})).await.to_string()
        );
    }
    let write = |path: &str| json!({"path": path, "content": "x", "reason": "r", "mode": "REPLACE_EXISTING", "expectedSha256": sha256("A=1\n")});
    assert_eq!(
        problem_of("write_file", write("a/.env")).await.to_string().replace("a/", "b/"),
        problem_of("write_file", write("b/.env")).await.to_string()
    );
    assert_eq!(
        problem_of("write_file", write("target/a")).await.to_string().replace("target/a", "target/b"),
        problem_of("write_file", write("target/b")).await.to_string()
    );
}

#[rstest]
#[tokio::test]
async fn an_invalid_body_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let path = format!("/v1/runs/{}/tools/read_file", run.id);
    let post = |body: Vec<u8>, content_type: &'static str| {
        let request = run.agent.request(reqwest::Method::POST, &path).header("content-type", content_type).body(body);
        run.agent.send(request)
    };
    let bad: [&[u8]; 9] = [
        b"{",
        b"null",
        b"[]",
        b"\"x\"",
        b"{\"path\":}",
        b"\xff\xfe",
        b"{\"path\":\"a\\ud800\"}",
        b"{\"path\":\"a.txt\"} x",
        b"{\"path\":\"a.txt\",\"path\":\"b\"}",
    ];
    for body in bad {
        post(body.to_vec(), "application/json").await.refused("INVALID_REQUEST");
    }
    post(b"path=a.txt".to_vec(), "application/x-www-form-urlencoded").await.refused("INVALID_REQUEST");
    run.operator.post("/v1/runs", json!("x")).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn an_unknown_route_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let operator = server.operator();
    for path in ["/v1", "/v1/none", "/v2/runs", "/v1/runs/x/none", "/%00", "/..%2f..%2fetc/passwd"] {
        let answer = operator.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
        answer.refusal();
    }
    let run = server.run(json!({})).await;
    let answer = operator.get(&format!("/v1/runs/{}/tools/list_dir", run.id)).await;
    assert_eq!(answer.status, 405, "{}", answer.text());
    assert_eq!(answer.json()["ok"], false);
    for bad in ["%00", "a%2fb", "..%2f..%2fx", "ü", "a%0ab"] {
        let code = operator.get(&format!("/v1/runs/{bad}")).await.refusal();
        assert!(["INVALID_REQUEST", "RUN_NOT_FOUND", "NOT_FOUND"].contains(&code.as_str()), "{bad}: {code}");
    }
}

#[rstest]
#[tokio::test]
async fn a_conflict_names_the_path_the_hunk_and_both_texts(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\ntwo\nthree\n")]).await;
    let problem = run
        .patch("--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-zwei\n+2\n three\n")
        .await
        .refused("PATCH_CONFLICT");
    assert_eq!((&problem["path"], &problem["hunk"]), (&json!("a.txt"), &json!(1)));
    let conflict = &problem["conflicts"][0];
    assert!(
        conflict["expected"].as_str().unwrap().contains("zwei") && conflict["found"].as_str().unwrap().contains("two"),
        "{problem:#}"
    );
    let problem = run.call("read_file", json!({"path": "none.txt", "toolCallId": "mine"})).await.refused("NOT_FOUND");
    assert_eq!(problem["toolCallId"], "mine");
    assert_eq!(problem["path"], "none.txt");
}

#[rstest]
#[tokio::test]
async fn a_locked_database_is_unavailable_and_changes_nothing(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    // While another connection has SQLite's write lock, the service cannot commit.
    let lock = server.database.lock_writes();
    let write = json!({"path": "b.txt", "content": "b\n", "reason": "r", "toolCallId": "w"});
    let answer = run.call("write_file", write.clone()).await;
    answer.refused("UNAVAILABLE");
    assert!(!run.repo.join("b.txt").exists());
    drop(lock);
    run.ok("write_file", write).await;
    assert_eq!(run.on_disk("b.txt"), "b\n");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_panic_is_answered_as_an_internal_error_and_the_run_continues(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(
        "call.handler",
        "call.try",
        "call.read",
        "transaction.staged",
        "transaction.committed",
        "transaction.applied"
    )]
    failpoint: &str,
) {
    let setup = Setup::new(backend).env("WORKSPACED_FAILPOINT", &format!("{failpoint}:2:panic"));
    let server = Server::start_with(setup).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let write = |number: u32| json!({"path": format!("{number}.txt"), "content": "x\n", "reason": "r", "toolCallId": format!("{number}")});
    let list = json!({});
    let mut faults = 0;
    for number in 0..4 {
        for (tool, input) in [("write_file", write(number)), ("list_dir", list.clone())] {
            let answer = run.call(tool, input).await;
            if answer.status == 500 {
                let problem = answer.refused("INTERNAL");
                assert!(!problem.to_string().contains("failpoint"), "{problem:#}");
                faults += 1;
            } else {
                answer.ok();
            }
        }
    }
    assert_eq!(faults, 1, "only the second call at {failpoint} fails");
    // The next call completes or discards the interrupted change. Nothing is applied twice.
    for number in 0..4 {
        run.ok("write_file", write(number)).await;
    }
    assert_eq!(run.snapshot().len(), 5);
    let records = run.audit().await;
    crate::harness::assert_chain(&run.id, &records);
    let done = records.iter().filter(|record| record["tool"] == "write_file" && record["outcome"] == "ok");
    assert_eq!(done.count(), 4, "{records:#?}");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_body_with_a_content_encoding_is_refused_and_not_stored(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let waiting = server.run(json!({"source": {"type": "archive"}})).await;
    let tar = gzip(&tar_of(&[("a", b"a\n")]));
    let read = format!("/v1/runs/{}/tools/read_file", run.id);
    let file = format!("/v1/runs/{}/files/b.txt", run.id);
    let archive = format!("/v1/runs/{}/archive", waiting.id);
    let call = serde_json::to_vec(&json!({"path": "a.txt"})).unwrap();
    let send = async |path: &str, body: &[u8], encoding: &str| {
        let method = if path == read { reqwest::Method::POST } else { reqwest::Method::PUT };
        let request = run.operator.request(method, path).header("content-encoding", encoding);
        let request = request.header("if-none-match", "*").header("x-reason", "r").body(body.to_vec());
        run.operator.send(request).await
    };
    for (path, body) in [(&read, gzip(&call)), (&file, gzip(b"text")), (&archive, tar.clone())] {
        for encoding in ["gzip", "identity, br", "GZIP", "x-unknown"] {
            let problem = send(path, &body, encoding).await.is(415);
            assert_eq!(problem["code"], "INVALID_REQUEST", "{path} {encoding}: {problem}");
            assert!(problem["message"].as_str().unwrap().contains("Content-Encoding"), "{problem}");
        }
    }
    assert_eq!((run.snapshot().len(), waiting.get().await["state"].as_str()), (1, Some("preparing")));
    // Identity is accepted. An archive may be a compressed file.
    send(&read, &call, "identity").await.ok();
    send(&file, b"text", "identity").await.is(201);
    send(&archive, &tar, "").await.ok();
}

#[rstest]
#[tokio::test]
async fn a_member_of_another_type_is_named(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    for (tool, input, named) in [
        (
            "read_file",
            json!({"path": "a", "startLine": "ten"}),
            "`startLine`: invalid type: string \"ten\", expected a whole number",
        ),
        ("read_file", json!({"path": true}), "`path`: invalid type: boolean `true`, expected a string"),
        ("write_file", json!({"path": "a", "content": {"a": 1}, "reason": "r"}), "`content`: invalid type: object"),
        (
            "write_file",
            json!({"path": "a", "content": "", "expectedSha256": "abc", "reason": "r"}),
            "`expectedSha256`: a SHA-256",
        ),
        ("read_file", json!({"startLine": 1}), "the tool: missing field `path`"),
        ("read_file", json!({"path": "a", "file": "b"}), "the tool: unknown field `file`"),
    ] {
        let refused = run.call(tool, input).await.refused("INVALID_REQUEST");
        assert!(refused["message"].as_str().unwrap().contains(named), "{named}: {refused:#}");
    }
    let body = json!({"source": {"type": "empty"}, "policy": {"write": "src"}});
    let refused = server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    assert!(refused["message"].as_str().unwrap().contains("`policy`: invalid type"), "{refused:#}");
}

#[rstest]
#[tokio::test]
async fn a_hint_says_what_can_be_done_instead(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let moved = json!({"from": "a.txt", "to": "b.txt", "expectedSha256": crate::harness::sha256("a\n"), "reason": "r"});
    for (tool, input, code, hint) in [
        ("read_file", json!({"path": "none/of/it"}), "NOT_FOUND", "find_files"),
        ("read_file", json!({"path": "src\\a.txt"}), "NOT_FOUND", "by `/`"),
        ("read_file", json!({"path": ".git/config"}), "PATH_REJECTED", "diff_workspace"),
        ("write_file", json!({"path": "new/", "content": "", "reason": "r"}), "PATH_REJECTED", "Leave out the `/`"),
        ("search_text", json!({"query": ""}), "INVALID_REQUEST", "Give a text"),
        ("move_file", moved, "ALREADY_EXISTS", "delete the file there first"),
    ] {
        let refused = run.call(tool, input).await.refused(code);
        assert!(refused["hint"].as_str().unwrap().contains(hint), "{tool}: {refused:#}");
    }
    let unseen = run.call("delete_file", json!({"path": "a.txt", "reason": "r"})).await.refused("WRITE_CONFLICT");
    assert!(!unseen["message"].as_str().unwrap().contains("replac"), "{unseen:#}");
}

#[tokio::test]
async fn an_unknown_address_is_a_page_for_browsers_and_a_problem_for_programs() {
    let server = Server::shared(Backend::Sqlite).await;
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for path in ["/unknown", "/v1/nope", "/docs/unknown.html"] {
        let get = |accept: &str| server.nobody().request(Method::GET, path).header("accept", accept);
        let page = server.nobody().send(get(browser)).await;
        assert_eq!((page.status, page.header("content-type")), (404, "text/html; charset=utf-8"), "{path}");
        assert!(page.text().contains("There is no such page") && page.text().contains("href=\"/docs/\""), "{path}");
        assert!(page.header("content-security-policy").contains("default-src 'none'"), "{path}");
        for accept in ["application/json", "*/*"] {
            server.nobody().send(get(accept)).await.refused("NOT_FOUND");
        }
    }
}

#[rstest]
#[tokio::test]
async fn every_event_stream_tells_proxies_not_to_buffer_it(#[values(Backend::Sqlite)] backend: Backend) {
    let (_, run) = Run::shared(backend, &[]).await;
    for path in ["/v1/audit/stream".to_owned(), format!("/v1/runs/{}/changes", run.id)] {
        let stream = run.operator.stream(&path, None).await;
        assert_eq!(stream.headers()["x-accel-buffering"], "no", "{path}");
    }
    let page = run.operator.get(&format!("/v1/runs/{}/changes", run.id)).await;
    assert!(page.headers.get("x-accel-buffering").is_none());
}

#[rstest]
#[tokio::test]
async fn a_refusal_has_no_words_of_the_parser(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let operator = server.operator();
    let mut refused = Vec::new();
    let empty = json!({"type": "empty"});
    for body in [
        json!({"source": "empty"}),
        json!({"source": null}),
        json!({"source": empty, "policy": "READ_ONLY"}),
        json!({"source": empty, "ttlSeconds": "60"}),
        json!({"source": empty, "policy": {"kinds": {"LOCKFILE": {}}}}),
    ] {
        refused.push(operator.post("/v1/runs", body).await);
    }
    for query in [
        "/v1/approvals?state=PENDING",
        "/v1/audit?limit=-1",
        "/v1/audit?tool=a&tool=b",
        &format!("/v1/runs/{}/audit?fromSeq=-1", run.id),
        &format!("/v1/runs/{}/archive?since=", run.id),
        &format!("/v1/runs/{}/archive?since=99999999999999999999", run.id),
        &format!("/v1/runs/{}/report?verify=x", run.id),
        "/v1/runs/-",
        "/v1/approvals/-",
    ] {
        refused.push(operator.get(query).await);
    }
    for mode in [json!({}), json!([]), json!(true)] {
        refused.push(run.call("write_file", json!({"path": "b", "content": "", "mode": mode, "reason": "r"})).await);
    }
    for expression in ["(", "(?=x)"] {
        refused.push(run.call("search_text", json!({"query": expression, "mode": "regex"})).await);
    }
    refused.push(run.call("find_files", json!({"glob": "["})).await);
    for answer in refused {
        let problem = answer.refused("INVALID_REQUEST");
        let detail = problem["detail"].as_str().unwrap();
        for words in [
            "eserialize",
            "struct ",
            "enum ",
            "i64",
            "URL",
            "digit found",
            "integer from",
            "map",
            "a approval",
            "parse",
            "\n",
        ] {
            assert!(!detail.contains(words), "{words:?} in {detail:?}");
        }
    }
    let problem = operator.get("/v1/audit?limit=-1").await.refused("INVALID_REQUEST");
    assert_eq!(problem["detail"], "`limit`: `-1` is not a whole number");
}
