//! Filters and orders of the lists of runs and approvals.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Server, items, sha256};

fn ids(listed: &[Value], member: &str) -> Vec<String> {
    listed.iter().map(|one| one[member].as_str().unwrap().to_owned()).collect()
}

#[rstest]
#[tokio::test]
async fn runs_are_filtered_and_ordered(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let (ada, client) = server.named_operator("ada", &["orchestrate"]).await;
    let operator = server.operator();
    for (id, client, labels) in [
        ("one", &operator, json!({"team": "a", "ticket": "1"})),
        ("two", &client, json!({"team": "a", "ticket": "2"})),
        ("three", &operator, json!({"team": "b"})),
        ("four", &client, json!({"team": "a", "url": "x:y"})),
    ] {
        client.post("/v1/runs", json!({"runId": id, "source": {"type": "empty"}, "labels": labels})).await.is(201);
    }
    operator.post("/v1/runs/two/close", json!({})).await.ok();
    let created = operator.get("/v1/runs/two").await.ok()["createdAt"].as_str().unwrap().to_owned();
    let ada = format!("actor=operator:{ada}");
    for (query, expected) in [
        ("order=asc".to_owned(), vec!["one", "two", "three", "four"]),
        ("order=desc".to_owned(), vec!["four", "three", "two", "one"]),
        ("label=team:a".to_owned(), vec!["one", "two", "four"]),
        ("label=team:a&label=ticket:2".to_owned(), vec!["two"]),
        ("label=url:x:y".to_owned(), vec!["four"]),
        ("label=team:none".to_owned(), vec![]),
        ("label=team:a&order=desc&state=open".to_owned(), vec!["four", "one"]),
        (format!("{ada}&order=desc"), vec!["four", "two"]),
        ("actor=operator:orchestrate".to_owned(), vec!["one", "three"]),
        (format!("createdAfter={created}"), vec!["three", "four"]),
        (format!("createdBefore={created}"), vec!["one"]),
        (format!("createdBefore={created}&label=team:b"), vec![]),
    ] {
        for limit in [1, 100] {
            let listed = items(&operator, &format!("/v1/runs?{query}&limit={limit}")).await;
            assert_eq!(ids(&listed, "runId"), expected, "{query}");
        }
    }
    // New labels count at once.
    let changed = operator.request(reqwest::Method::PATCH, "/v1/runs/one").json(&json!({"labels": {"team": "c"}}));
    operator.send(changed).await.ok();
    assert_eq!(ids(&items(&operator, "/v1/runs?label=team:c").await, "runId"), ["one"]);

    // New runs are on no further page of the newest.
    let first = operator.get("/v1/runs?order=desc&limit=2").await.ok();
    server.run(json!({"runId": "five"})).await;
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = operator.get(&format!("/v1/runs?order=desc&limit=2&cursor={cursor}")).await.ok();
    assert_eq!(ids(second["items"].as_array().unwrap(), "runId"), ["two", "one"]);
    // A cursor belongs to its filter and order.
    for other in ["", "order=asc&", "order=desc&state=open&", "order=desc&label=team:a&"] {
        operator.get(&format!("/v1/runs?{other}cursor={cursor}")).await.refused("INVALID_REQUEST");
    }
    for (bad, name) in [
        ("order=up", "order"),
        ("order=asc&order=desc", "order"),
        ("label=team", "label"),
        ("label=:a", "label"),
        ("actor=ada", "actor"),
        ("createdAfter=yesterday", "createdAfter"),
        ("createdBefore=", "createdBefore"),
        ("state=lost", "state"),
    ] {
        let refused = operator.get(&format!("/v1/runs?{bad}")).await.refused("INVALID_REQUEST");
        assert!(refused["message"].as_str().unwrap().contains(name), "{bad}: {refused:#}");
    }
}

#[rstest]
#[tokio::test]
async fn approvals_are_filtered_and_ordered(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run_with_files(&[("Cargo.lock", "l\n"), ("a/Cargo.lock", "l\n")], json!({})).await;
    let mut asked = Vec::new();
    for path in ["Cargo.lock", "a/Cargo.lock"] {
        let input = json!({"path": path, "content": "m\n", "expectedSha256": sha256("l\n"), "reason": "r"});
        let refused = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
        asked.push(refused["approvalId"].as_str().unwrap().to_owned());
    }
    let list = async |query: &str| {
        ids(&items(&run.operator, &format!("/v1/approvals?run={}&limit=1&{query}", run.id)).await, "approvalId")
    };
    let newest_first: Vec<_> = asked.iter().rev().cloned().collect();
    assert_eq!((list("order=asc").await, list("order=desc").await), (asked.clone(), newest_first));
    assert_eq!(list("pathPrefix=a/").await, asked[1..]);
    let actor = format!("run-token:{}", run.created["token"]["tokenId"].as_str().unwrap());
    assert_eq!(list(&format!("actor={actor}")).await, asked);
    assert_eq!(list("actor=operator:nobody").await, [""; 0]);
    assert_eq!(list("createdAfter=2001-01-01T00:00:00Z&state=pending").await, asked);
    assert_eq!(list("createdBefore=2001-01-01T00:00:00Z").await, [""; 0]);
    let listed = items(&run.operator, &format!("/v1/approvals?run={}", run.id)).await;
    let file = &listed[0]["files"][0];
    assert_eq!((&file["path"], &file["insertions"], &file["deletions"]), (&json!("Cargo.lock"), &json!(1), &json!(1)));
    for bad in ["actor=x", "pathPrefix=/a", "createdAfter=x", "order=x"] {
        run.operator.get(&format!("/v1/approvals?{bad}")).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn runs_are_searched_and_ordered_by_what_happens_in_them(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let operator = server.operator();
    let folder = server.template(&[("Cargo.lock", "old\n"), ("a.txt", "a\n")]);
    let mut runs = Vec::new();
    for (id, labels) in [
        ("fix-login", json!({"ticket": "A-1", "model": "zeta"})),
        ("two", json!({"team": "Login", "agent": "alpha"})),
        ("three", json!({"repository": "shop"})),
    ] {
        let body = json!({"runId": id, "source": {"type": "directory", "path": folder}, "labels": labels});
        let created = operator.post("/v1/runs", body).await.is(201);
        runs.push(server.run_from(&created).await);
    }
    operator.post("/v1/runs", json!({"runId": "gone", "source": {"type": "empty"}})).await.is(201);
    operator.delete("/v1/runs/gone").await.ok();
    runs[1].ok("write_file", json!({"path": "b.txt", "content": "1\n2\n3\n", "reason": "r"})).await;
    runs[2].ok("write_file", json!({"path": "b.txt", "content": "1\n", "reason": "r"})).await;
    let lock = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
    runs[0].call("write_file", lock).await.refused("APPROVAL_REQUIRED");
    let events = "/v1/runs/three/events";
    operator.post(events, json!({"kind": "prompt", "summary": "Mend the Basket"})).await.is(201);
    let by_source = format!("q={}", folder.file_name().unwrap().to_string_lossy().to_uppercase());
    for (query, expected) in [
        ("q=login", vec!["fix-login", "two"]),
        ("q=LOGIN&order=desc", vec!["two", "fix-login"]),
        ("q=ticket:a-1", vec!["fix-login"]),
        ("q=none-of-them", vec![]),
        (by_source.as_str(), vec!["fix-login", "two", "three"]),
        ("deleted=false", vec!["fix-login", "two", "three"]),
        ("deleted=false&state=deleted", vec![]),
        ("deleted=true", vec!["fix-login", "two", "three", "gone"]),
        ("sort=created&order=desc&deleted=false", vec!["three", "two", "fix-login"]),
        ("q=the%20basket", vec!["three"]),
        ("sort=activity&order=desc&deleted=false", vec!["three", "fix-login", "two"]),
        ("sort=activity&deleted=false", vec!["two", "fix-login", "three"]),
        ("sort=agent&deleted=false", vec!["three", "two", "fix-login"]),
        ("sort=agent&order=desc&deleted=false", vec!["fix-login", "two", "three"]),
        ("sort=repository&order=desc&deleted=false", vec!["three", "two", "fix-login"]),
        ("sort=repository&state=open", vec!["two", "three"]),
        ("sort=changes&order=desc&deleted=false", vec!["two", "three", "fix-login"]),
        ("sort=changes&order=desc&q=t&deleted=false", vec!["two", "three", "fix-login"]),
        ("sort=waiting&order=desc&state=awaiting_approval", vec!["fix-login"]),
        ("sort=waiting&order=desc&deleted=false", vec!["fix-login", "three", "two"]),
    ] {
        for limit in [1, 2, 100] {
            let listed = items(&operator, &format!("/v1/runs?{query}&limit={limit}")).await;
            assert_eq!(ids(&listed, "runId"), expected, "{query}, {limit}");
        }
    }
    let listed = items(&operator, "/v1/runs?sort=repository&order=desc&deleted=false").await;
    let names = |run: &Value| ["repository", "agent", "prompt"].map(|name| run[name].as_str().map(str::to_owned));
    assert_eq!(names(&listed[0]), [Some("shop".to_owned()), None, Some("Mend the Basket".to_owned())]);
    assert_eq!(names(&listed[1])[1..], [Some("alpha".to_owned()), None]);
    let last = runs[2].last_record().await;
    assert_eq!((&listed[0]["lastActivityAt"], &listed[0]["headSeq"]), (&last["timestamp"], &last["seq"]));
    let counts = &listed[1]["counts"];
    assert_eq!(
        (&counts["insertions"], &counts["deletions"], &counts["pendingApprovals"]),
        (&json!(3), &json!(0), &json!(0))
    );
    for bad in ["q=", "sort=size", "deleted=maybe"] {
        operator.get(&format!("/v1/runs?{bad}")).await.refused("INVALID_REQUEST");
    }
}
