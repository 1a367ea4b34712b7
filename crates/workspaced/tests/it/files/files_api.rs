//! The file routes: whole files as bytes, with the same path guard, policy and audit as the tools.

use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use rstest::rstest;
use serde_json::json;

use crate::harness::{Answer, Backend, Run, Server, exhaustive, sha256};

async fn send(run: &Run, method: Method, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
    let mut request = run.agent.request(method, &format!("/v1/runs/{}/files/{path}", run.id));
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request = request.header(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let request = if let Some(body) = body { request.body(body.to_vec()) } else { request };
    run.agent.send(request).await
}

fn tag(bytes: &[u8]) -> String {
    format!("\"{}\"", sha256(bytes))
}

#[rstest]
#[tokio::test]
async fn a_file_is_served_as_it_was_at_a_record(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, run) =
        Run::shared(backend, &[("pic.bin", "\u{1}\0old"), (".env", "A=1\n"), ("gone.txt", "was\n")]).await;
    let old = b"\x01\0old".as_slice();
    let get = async |path: &str, headers: &[(&str, &str)]| send(&run, Method::GET, path, headers, None).await;
    let (new, gone) = (b"\x01\0new!".as_slice(), b"was\n".as_slice());
    let (old_tag, gone_tag) = (tag(old), tag(gone));
    let put = [("if-match", old_tag.as_str()), ("x-reason", "a new logo")];
    send(&run, Method::PUT, "pic.bin", &put, Some(new)).await.ok();
    let delete = [("if-match", gone_tag.as_str()), ("x-reason", "unused")];
    send(&run, Method::DELETE, "gone.txt", &delete, None).await.ok();
    let changed = run.last_record().await["seq"].as_u64().unwrap() - 1;

    let later = format!("pic.bin?atSeq={changed}");
    for (address, bytes) in
        [("pic.bin?atSeq=0", old), (later.as_str(), new), ("pic.bin", new), ("gone.txt?atSeq=0", gone)]
    {
        let found = get(address, &[]).await;
        assert_eq!((found.status, &*found.body, found.header("etag")), (200, bytes, &*tag(bytes)), "{address}");
    }
    let record = run.last_record().await;
    assert_eq!((&record["tool"], &record["pathsRead"]), (&json!("files_get"), &json!(["gone.txt"])));
    assert!(record["reasons"].as_array().unwrap().contains(&json!("atSeq:0")), "{record:#}");
    assert_eq!(get("pic.bin?atSeq=0", &[("if-none-match", old_tag.as_str())]).await.status, 304);
    // A condition on the version is one of a read too, and a reason is of changes alone.
    let stale = get("pic.bin", &[("if-match", old_tag.as_str())]).await;
    assert_eq!((stale.status, stale.header("content-type")), (412, "application/problem+json"));
    let stale = stale.is(412);
    assert_eq!(stale["code"], "WRITE_CONFLICT");
    assert_eq!((&stale["path"], &stale["currentSha256"]), (&json!("pic.bin"), &json!(sha256(new))));
    assert_eq!(send(&run, Method::HEAD, "pic.bin", &[("if-match", old_tag.as_str())], None).await.status, 412);
    for wanted in [tag(new), format!("{old_tag}, {}", tag(new)), "*".to_owned()] {
        assert_eq!(get("pic.bin", &[("if-match", &wanted), ("x-reason", "utf-8''%zz")]).await.status, 200, "{wanted}");
    }
    let part = get("pic.bin?atSeq=0", &[("range", "bytes=2-3")]).await;
    assert_eq!((part.status, &*part.body), (206, b"ol".as_slice()));
    let head = send(&run, Method::HEAD, "pic.bin?atSeq=0", &[], None).await;
    assert_eq!((head.status, head.body.len(), head.header("content-length")), (200, 0, "5"));
    // A person's look counts for the person.
    let auditor = server.auditor().get(&format!("/v1/runs/{}/files/pic.bin?atSeq=0", run.id)).await;
    assert_eq!((auditor.status, &*auditor.body), (200, old));
    assert_eq!(run.last_record().await["by"], "operator");

    get(".env?atSeq=0", &[]).await.refused("POLICY_DENIED_SECRET");
    get("none.txt?atSeq=0", &[]).await.refused("NOT_FOUND");
    get("pic.bin?atSeq=9999", &[]).await.refused("INVALID_REQUEST");
    get("pic.bin?atSeq=-1", &[]).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn a_file_is_served_with_its_hash_as_etag(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("dir/a.txt", "0123456789")]).await;
    let bytes = b"0123456789";
    let whole = send(&run, Method::GET, "dir/a.txt", &[], None).await;
    assert_eq!((whole.status, whole.body.as_slice(), whole.header("etag")), (200, &bytes[..], tag(bytes).as_str()));
    let head = send(&run, Method::HEAD, "dir/a.txt", &[], None).await;
    assert_eq!((head.status, head.body.len(), head.header("content-length")), (200, 0, "10"));
    let same = send(&run, Method::GET, "dir/a.txt", &[("if-none-match", &tag(bytes))], None).await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    for (range, part) in [("bytes=2-4", "234"), ("bytes=7-", "789"), ("bytes=-2", "89"), ("bytes=0-0", "0")] {
        let answer = send(&run, Method::GET, "dir/a.txt", &[("range", range)], None).await;
        assert_eq!((answer.status, answer.text().as_str()), (206, part), "{range}");
        assert!(answer.header("content-range").ends_with("/10"), "{range}");
    }
    run.put("empty.txt", "");
    for (path, range, size) in
        [("dir/a.txt", "bytes=10-", 10), ("dir/a.txt", "bytes=-0", 10), ("empty.txt", "bytes=0-", 0)]
    {
        let none = send(&run, Method::GET, path, &[("range", range)], None).await;
        assert_eq!((none.status, none.header("content-range")), (416, &*format!("bytes */{size}")), "{path} {range}");
        assert!(none.header("content-type").starts_with("application/problem+json"), "{path} {range}");
        let problem = none.json();
        assert_eq!(
            (&problem["ok"], &problem["code"], &problem["status"], &problem["actual"]),
            (&json!(false), &json!("INVALID_REQUEST"), &json!(416), &json!(size)),
            "{path} {range}: {problem:#}"
        );
        let head = send(&run, Method::HEAD, path, &[("range", range)], None).await;
        assert_eq!((head.status, head.body.len()), (416, 0), "HEAD {path} {range}");
    }
    run.put("pic.bin", [0, 1, 2, 255]);
    assert_eq!(send(&run, Method::GET, "pic.bin", &[], None).await.body, [0, 1, 2, 255], "binary files are served");
    assert_eq!(run.audit().await.iter().filter(|record| record["pathsRead"] == json!(["dir/a.txt"])).count(), 11);
}

#[rstest]
#[tokio::test]
async fn storing_needs_a_precondition_and_a_reason(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one")]).await;
    let (why, old) = (("x-reason", "because"), tag(b"one"));
    let put =
        async |path: &str, headers: &[(&str, &str)]| send(&run, Method::PUT, path, headers, Some(b"\x00two\xff")).await;
    assert_eq!(put("a.txt", &[why]).await.status, 428);
    assert_eq!(put("a.txt", &[("if-match", &old)]).await.status, 400, "without a reason");
    let stale = put("a.txt", &[why, ("if-match", &tag(b"stale"))]).await;
    assert_eq!(
        (stale.status, &stale.json()["code"], &stale.json()["currentSha256"]),
        (412, &json!("WRITE_CONFLICT"), &json!(sha256("one")))
    );
    let exists = put("a.txt", &[why, ("if-none-match", "*")]).await;
    assert_eq!((exists.status, &exists.json()["code"]), (412, &json!("ALREADY_EXISTS")));
    assert_eq!(run.on_disk("a.txt"), "one");
    let replaced = put("a.txt", &[why, ("if-match", &old)]).await;
    assert!([200, 204].contains(&replaced.status), "{}", replaced.text());
    assert_eq!(std::fs::read(run.file("a.txt")).unwrap(), b"\x00two\xff");
    let created = put("new/b.bin", &[why, ("if-none-match", "*")]).await;
    assert!([200, 201].contains(&created.status), "{}", created.text());
    let gone = send(&run, Method::DELETE, "new/b.bin", &[why, ("if-match", &tag(b"\x00two\xff"))], None).await;
    assert!([200, 204].contains(&gone.status), "{}", gone.text());
    assert!(!run.repo.join("new/b.bin").exists());
    let mutations =
        run.audit().await.into_iter().filter(|record| record["mutates"] == true && record["outcome"] == "ok");
    assert_eq!(mutations.count(), 3);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn an_etag_that_no_version_has_fails_the_precondition(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one")]).await;
    let why = ("x-reason", "because");
    let weak = format!("W/{}", tag(b"one"));
    for known in ["\"other\"", "\"\"", &weak] {
        for method in [Method::PUT, Method::DELETE] {
            let refused = send(&run, method, "a.txt", &[why, ("if-match", known)], Some(b"two")).await.is(412);
            assert_eq!(
                (&refused["code"], &refused["currentSha256"]),
                (&json!("WRITE_CONFLICT"), &json!(sha256("one")))
            );
        }
        send(&run, Method::PUT, "new.txt", &[why, ("if-match", known)], Some(b"two")).await.is(412);
    }
    for malformed in ["\"a\", \"b\"", "\"a"] {
        send(&run, Method::PUT, "a.txt", &[why, ("if-match", malformed)], Some(b"two")).await.is(400);
    }
    assert_eq!(run.on_disk("a.txt"), "one");
}

#[rstest]
#[tokio::test]
async fn a_missing_or_invalid_precondition_is_recorded(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one")]).await;
    let why = ("x-reason", "because");
    let tag = tag(b"one");
    let put = [
        (vec![why], 428, "PRECONDITION_REQUIRED"),
        (vec![why, ("if-match", "one")], 400, "INVALID_REQUEST"),
        (vec![why, ("if-none-match", &tag)], 400, "INVALID_REQUEST"),
        (vec![why, ("if-none-match", "*"), ("if-match", &tag)], 400, "INVALID_REQUEST"),
        (vec![("x-reason", "\u{e9}"), ("x-tool-call-id", "mine")], 428, "PRECONDITION_REQUIRED"),
        (vec![], 400, "INVALID_REQUEST"),
    ];
    let delete = [(vec![why], 428, "PRECONDITION_REQUIRED"), (vec![why, ("if-match", "*")], 400, "INVALID_REQUEST")];
    let calls = put.iter().map(|call| (Method::PUT, call)).chain(delete.iter().map(|call| (Method::DELETE, call)));
    for (seq, (method, (headers, status, code))) in (2..).zip(calls) {
        let answer = send(&run, method.clone(), "a.txt", headers, Some(b"two")).await.is(*status);
        let record = run.last_record().await;
        assert_eq!((&record["seq"], &record["outcome"]), (&json!(seq), &json!("refused")), "{headers:?}: {record:#}");
        assert_eq!((&record["code"], &answer["code"]), (&json!(code), &json!(code)), "{headers:?}");
        assert_eq!((&answer["seq"], &answer["headHash"]), (&record["seq"], &record["hash"]), "{headers:?}");
        assert_eq!(record["tool"], if method == Method::PUT { "files_put" } else { "files_delete" });
        assert_eq!(answer["toolCallId"], record["toolCallId"]);
    }
    let header = HeaderValue::from_bytes(b"\xff").unwrap();
    for method in [Method::PUT, Method::DELETE] {
        let path = format!("/v1/runs/{}/files/a.txt", run.id);
        let answer = run.agent.send(run.agent.request(method, &path).header("x-reason", &header)).await;
        assert!(answer.refused("INVALID_REQUEST")["message"].as_str().unwrap().contains("UTF-8"), "{}", answer.text());
        assert_eq!(run.last_record().await["seq"], answer.json()["seq"]);
    }
    assert_eq!(run.on_disk("a.txt"), "one");
    // An unauthenticated caller gets no details.
    let path = format!("/v1/runs/{}/files/a.txt", run.id);
    let stranger = run.agent.with_token(Some("nobody"));
    stranger.put(&path, "two").await.refused("UNAUTHENTICATED");
    assert_eq!(run.calls().await.len(), 10);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_part_of_a_file_does_not_replace_the_whole(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one")]).await;
    let (why, part, tag) = (("x-reason", "because"), ("content-range", "bytes 0-1/3"), tag(b"one"));
    for (path, precondition) in [("a.txt", ("if-match", tag.as_str())), ("b.txt", ("if-none-match", "*"))] {
        let answer = send(&run, Method::PUT, path, &[why, part, precondition], Some(b"tw")).await;
        assert!(answer.refused("INVALID_REQUEST")["detail"].as_str().unwrap().contains("Content-Range"));
        assert_eq!(run.last_record().await["code"], "INVALID_REQUEST");
    }
    assert_eq!(run.snapshot().len(), 1);
    assert_eq!(run.on_disk("a.txt"), "one");
}

#[rstest]
#[tokio::test]
async fn the_path_guard_and_the_policy_apply(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[(".env", "A=1\n"), ("target/x", "x\n"), ("Cargo.lock", "l\n")]).await;
    run.link("out", "/etc/passwd");
    let tree = run.snapshot();
    for (path, read, write) in [
        (".env", 403, 403),
        ("..%2fx", 400, 400),
        ("a%2f..%2f..%2fx", 400, 400),
        (".git/config", 400, 400),
        ("out", 400, 400),
        ("target/x", 200, 403),
        ("Cargo.lock", 200, 202),
        ("none", 404, 412),
    ] {
        assert_eq!(send(&run, Method::GET, path, &[], None).await.status, read, "GET {path}");
        let version = match path {
            "target/x" => "x\n",
            "Cargo.lock" => "l\n",
            _ => "A=1\n",
        };
        let headers = [("x-reason", "r"), ("if-match", &*tag(version.as_bytes()))];
        let answer = send(&run, Method::PUT, path, &headers, Some(b"new")).await;
        assert_eq!(answer.status, write, "PUT {path}: {}", answer.text());
    }
    assert_eq!(run.snapshot(), tree);
}

#[rstest]
#[tokio::test]
async fn a_reason_may_be_percent_encoded(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let put = async |path: &str, reason: &str| {
        let request = run.agent.request(reqwest::Method::PUT, &format!("/v1/runs/{}/files/{path}", run.id));
        let request = request.header("if-none-match", "*").header("x-reason", reason).body("x");
        run.agent.send(request).await
    };
    for (path, sent, recorded) in [
        ("a.txt", "utf-8''100%25%20of%20the%20%e2%82%ac", "100% of the \u{20ac}"),
        ("b.txt", "UTF-8'en'plain", "plain"),
        ("c.txt", "it's 100%", "it's 100%"),
    ] {
        put(path, sent).await.is(201);
        assert_eq!(run.last_record().await["reason"], recorded);
    }
    for invalid in ["utf-8''%", "utf-8''%e2%82", "utf-8''"] {
        let problem = put("d.txt", invalid).await.refused("INVALID_REQUEST");
        assert!(problem["message"].as_str().unwrap().contains("reason"), "{problem:#}");
    }
    assert_eq!(run.files().len(), 3);
}

#[rstest]
#[tokio::test]
async fn a_repeated_upload_without_a_valid_version_is_refused_alike(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({})).await;
    let path = format!("/v1/runs/{}/files/a.txt", run.id);
    // No version has an ETag that is no hash; what is no ETag at all is malformed.
    for (id, version, status, code) in [
        ("malformed", Some("no hash"), 400, "INVALID_REQUEST"),
        ("foreign", Some("\"no hash\""), 412, "WRITE_CONFLICT"),
        ("missing", None, 428, "PRECONDITION_REQUIRED"),
    ] {
        for _ in 0..2 {
            let mut request = run.agent.request(reqwest::Method::PUT, &path).body("a\n");
            request = request.header("x-reason", "to try").header("x-tool-call-id", id);
            if let Some(version) = version {
                request = request.header("if-match", version);
            }
            assert_eq!(run.agent.send(request).await.is(status)["code"], code);
        }
    }
}
