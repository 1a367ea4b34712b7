//! `Prefer: respond-async`: the run is answered before its import, and no import leaves it `preparing`.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use super::private_git;
use crate::harness::{Answer, Backend, Client, Server, Setup, exhaustive, items, put};

async fn post_async(client: &Client, key: Option<&str>, body: &Value) -> Answer {
    let mut request = client.request(Method::POST, "/v1/runs").header("prefer", "respond-async").json(body);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    client.send(request).await
}

/// Returns the run once `is_done`.
async fn until(client: &Client, run: &str, is_done: impl Fn(&Value) -> bool) -> Value {
    let found = async || {
        let answer = client.get(&format!("/v1/runs/{run}")).await;
        if answer.status == 200 && is_done(&answer.json()) { Ok(answer.json()) } else { Err(answer.text()) }
    };
    crate::harness::until(&format!("the run {run} is as expected"), found).await
}

fn is_in(state: &'static str) -> impl Fn(&Value) -> bool {
    move |run| run["state"] == state
}

#[rstest]
#[tokio::test]
async fn the_answer_comes_before_the_import(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::shared(backend).await;
    let operator = server.operator();
    let (folder, commit) = server.repository(&[("a.txt", "a\n")]);
    let template = server.template(&[("a.txt", "a\n")]);
    for source in [
        json!({"type": "git", "url": folder}),
        json!({"type": "directory", "path": template}),
        json!({"type": "empty"}),
    ] {
        let created = post_async(&operator, None, &json!({ "source": source })).await;
        assert_eq!(created.header("preference-applied"), "respond-async");
        let body = created.is(202);
        assert_eq!(body["run"]["state"], "preparing");
        assert_eq!(body["run"]["import"]["progress"], "waiting");
        let id = body["run"]["runId"].as_str().unwrap();
        assert_eq!(created.header("location"), format!("/v1/runs/{id}"));
        let open = until(&operator, id, is_in("open")).await;
        assert_eq!(open["import"]["progress"], "done");
        assert!(open["import"].get("error").is_none());
        let run = server.run_from(&body).await;
        assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 0);
        let tools: Vec<_> =
            run.audit().await.iter().map(|record| record["tool"].as_str().unwrap().to_owned()).collect();
        assert_eq!(tools[..2], ["run.create", "run.import"]);
        assert_eq!(run.verify().await["intact"], true);
        if source["type"] == "git" {
            assert_eq!(open["baseCommit"], commit.as_str());
        }
        if source["type"] != "empty" {
            assert_eq!(run.on_disk("a.txt"), "a\n");
        }
    }
    // An archive is uploaded next, so there is nothing to wait for.
    let archive = post_async(&operator, None, &json!({"source": {"type": "archive"}})).await;
    assert!(archive.status == 201 && archive.headers.get("preference-applied").is_none());
}

#[rstest]
#[tokio::test]
async fn a_repetition_under_a_key_gets_the_first_answer(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let operator = server.operator();
    let body = json!({"source": {"type": "directory", "path": server.template(&[("a", "a")])}});
    let key = format!("async-{backend:?}");
    let first = post_async(&operator, Some(&key), &body).await;
    until(&operator, first.is(202)["run"]["runId"].as_str().unwrap(), is_in("open")).await;
    let again = post_async(&operator, Some(&key), &body).await;
    assert_eq!(again.is(202)["run"], first.json()["run"]);
    let request = operator.request(Method::POST, "/v1/runs").header("idempotency-key", &key).json(&body);
    let without = operator.send(request).await;
    assert_eq!(without.is(202)["run"], first.json()["run"]);
}

#[rstest]
#[tokio::test]
async fn a_failed_import_closes_the_run_and_says_why(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let operator = server.operator();
    let (folder, _) = server.repository(&[("a.txt", "a\n")]);
    let invalid = json!({"source": {"type": "git", "url": "/etc"}});
    post_async(&operator, None, &invalid).await.refused("INVALID_REQUEST");
    let body = json!({"source": {"type": "git", "url": folder, "ref": "missing"}});
    let created = post_async(&operator, None, &body).await.is(202);
    let id = created["run"]["runId"].as_str().unwrap();
    let closed = until(&operator, id, is_in("closed")).await;
    assert_eq!(closed["import"]["progress"], "failed");
    let error = &closed["import"]["error"];
    assert_eq!(error["code"], "INVALID_REQUEST");
    assert!(!error["message"].as_str().unwrap().is_empty() && !error["hint"].as_str().unwrap().is_empty());
    let records = items(&operator, &format!("/v1/runs/{id}/audit")).await;
    assert_eq!(records.last().unwrap()["tool"], "run.close");
    assert_eq!(records.last().unwrap()["input"]["error"]["code"], "INVALID_REQUEST");
    let agent = operator.with_token(created["token"]["token"].as_str());
    agent.post(&format!("/v1/runs/{id}/tools/list_dir"), json!({})).await.refused("RUN_CLOSED");
    assert!(!server.data_dir().join("workspaces").join(id).exists());
    operator.delete(&format!("/v1/runs/{id}")).await.ok();
}

/// Starts a run whose import waits for its source, and returns the answer.
async fn hold_import(server: &Server, forge: &private_git::GitServer, key: Option<&str>) -> (Answer, Value) {
    put(&forge.folder, "hold", "");
    let body = json!({"source": {"type": "git", "url": forge.url("/other/public.git")}});
    let created = post_async(&server.operator(), key, &body).await;
    until_fetching(server, created.is(202)["run"]["runId"].as_str().unwrap()).await;
    (created, body)
}

async fn until_fetching(server: &Server, run: &str) -> Value {
    until(&server.operator(), run, |run| run["import"]["progress"] == "fetching").await
}

#[rstest]
#[tokio::test]
async fn an_import_that_was_cut_off_is_resumed_and_its_creation_can_be_repeated(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values("kill", "stop")] how: &str,
) {
    let (mut server, forge) = private_git::start(backend).await;
    let archive = server.run(json!({"source": {"type": "archive"}})).await;
    let (created, body) = hold_import(&server, &forge, Some("cut-off")).await;
    let id = created.json()["run"]["runId"].as_str().unwrap().to_owned();
    match how {
        "kill" => server.kill(),
        _ => assert!(server.stop().success()),
    }
    server.restart();
    let resumed = until_fetching(&server, &id).await;
    assert_eq!((&resumed["state"], &resumed["import"]["resumed"]), (&json!("preparing"), &json!(true)));
    let again = post_async(&server.operator(), Some("cut-off"), &body).await;
    assert_eq!((again.status, &again.body), (202, &created.body));
    std::fs::remove_file(forge.folder.join("hold")).unwrap();
    let open = until(&server.operator(), &id, is_in("open")).await;
    assert_eq!((&open["import"]["files"], &open["import"]["progress"]), (&json!(2), &json!("done")));
    let run = server.run_from(&again.json()).await;
    assert_eq!(run.ok("read_file", json!({"path": "b.txt"})).await["totalLines"], 1);
    let records = run.audit().await;
    let names: Vec<_> = records.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["run.create", "run.resume_import", "run.import"]);
    assert_eq!((&records[1]["actor"], &records[2]["actor"]), (&json!("service"), &records[0]["actor"]));
    assert_eq!(run.verify().await["intact"], true);
    assert_eq!(server.operator().get(&format!("/v1/runs/{}", archive.id)).await.ok()["state"], "preparing");
}

#[rstest]
#[tokio::test]
async fn an_import_that_is_cut_off_twice_closes_the_run_and_says_what_to_do(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, forge) = private_git::start(backend).await;
    let (created, _) = hold_import(&server, &forge, None).await;
    let id = created.json()["run"]["runId"].as_str().unwrap().to_owned();
    server.kill();
    server.restart();
    until_fetching(&server, &id).await;
    server.kill();
    server.restart();
    let closed = until(&server.operator(), &id, is_in("closed")).await;
    let import = &closed["import"];
    assert_eq!((&import["progress"], &import["error"]["code"]), (&json!("failed"), &json!("UNAVAILABLE")));
    assert!(import["error"]["message"].as_str().unwrap().contains("twice"), "{import}");
    assert!(import["error"]["hint"].as_str().unwrap().contains("another runId"), "{import}");
    is_gone(&server, &id).await;
}

#[rstest]
#[tokio::test]
async fn an_import_whose_creator_was_revoked_is_not_resumed(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, forge) = private_git::start(backend).await;
    let ada = server.operator().post("/v1/operators", json!({"name": "ada", "scopes": ["orchestrate"]})).await.is(201);
    put(&forge.folder, "hold", "");
    let body = json!({"source": {"type": "git", "url": forge.url("/other/public.git")}});
    let created = post_async(&server.operator().with_token(ada["token"].as_str()), None, &body).await.is(202);
    let id = created["run"]["runId"].as_str().unwrap();
    until_fetching(&server, id).await;
    server.operator().delete("/v1/operators/ada").await.is(204);
    server.kill();
    server.restart();
    let closed = until(&server.operator(), id, is_in("closed")).await;
    assert_eq!(closed["import"]["error"]["code"], "UNAUTHENTICATED", "{closed:#}");
    is_gone(&server, id).await;
}

/// Deletes a run, and checks that no folder of a run is left.
async fn is_gone(server: &Server, run: &str) {
    // The import ends soon after the answer that has closed the run.
    let delete = async || server.operator().delete(&format!("/v1/runs/{run}")).await.status == 200;
    server.until("the run is deleted", delete).await;
    until(&server.operator(), run, is_in("deleted")).await;
    let left = std::fs::read_dir(server.data_dir().join("workspaces")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left, [".git-home"]);
}

#[rstest]
#[tokio::test]
async fn a_close_ends_an_import(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, forge) = private_git::start(backend).await;
    let (created, _) = hold_import(&server, &forge, None).await;
    let id = created.json()["run"]["runId"].as_str().unwrap().to_owned();
    server.operator().delete(&format!("/v1/runs/{id}")).await.refused("RUN_CLOSED");
    let closed = server.operator().post(&format!("/v1/runs/{id}/close"), json!({})).await;
    assert_eq!(closed.ok()["state"], "closed");
    is_gone(&server, &id).await;
}

#[rstest]
#[tokio::test]
async fn files_of_an_import_that_was_closed_are_removed_by_the_next_start(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let finished = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let unfinished = server.run(json!({"source": {"type": "archive"}})).await;
    for run in [&finished, &unfinished] {
        let closed = server.operator().post(&format!("/v1/runs/{}/close", run.id), json!({})).await;
        assert_eq!(closed.ok()["state"], "closed");
    }
    server.kill();
    // What an import has written when the process is killed between the close of the run and the removal of its files.
    let folder = server.workspace(&unfinished.id);
    put(&folder, ".unfinished", "");
    put(&folder, "repo/a.txt", "a\n");
    server.restart();
    assert!(!folder.exists());
    assert_eq!(finished.on_disk("a.txt"), "a\n");
    assert_eq!(server.operator().get(&format!("/v1/runs/{}", unfinished.id)).await.ok()["state"], "closed");
}

#[rstest]
#[tokio::test]
async fn an_import_with_a_waiting_caller_precedes_those_in_the_background(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, forge) = private_git::start_with(Setup::new(backend).arg("--concurrency", 1)).await;
    put(&forge.folder, "hold", "");
    let operator = server.operator();
    let held = json!({"source": {"type": "git", "url": forge.url("/other/public.git")}});
    let mut ids = Vec::new();
    for _ in 0..5 {
        let created = post_async(&operator, None, &held).await.is(202);
        ids.push(created["run"]["runId"].as_str().unwrap().to_owned());
    }
    let body = json!({"runId": "waited-for", "source": {"type": "directory", "path": server.template(&[("a", "a")])}});
    let client = server.operator();
    let created = tokio::spawn(async move { client.post("/v1/runs", body).await });
    until(&operator, "waited-for", |run| run["import"]["progress"] == "waiting").await;
    // Each close frees the only permit, which the next fetch would hold.
    let mut closed = 0;
    for id in &ids {
        until(&operator, id, |run| run["import"]["progress"] == "fetching" || created.is_finished()).await;
        if created.is_finished() {
            break;
        }
        operator.post(&format!("/v1/runs/{id}/close"), json!({})).await.ok();
        closed += 1;
    }
    assert!(closed < ids.len(), "the import came after all in the background");
    assert_eq!(created.await.unwrap().is(201)["run"]["state"], "open");
    std::fs::remove_file(forge.folder.join("hold")).unwrap();
    for id in &ids[closed..] {
        until(&operator, id, is_in("open")).await;
    }
}

#[rstest]
#[tokio::test]
async fn an_import_goes_on_when_its_caller_disconnects(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(false, true)] is_async: bool,
) {
    let (server, forge) = private_git::start(backend).await;
    put(&forge.folder, "hold", "");
    let body = json!({"runId": "left", "source": {"type": "git", "url": forge.url("/other/public.git")}});
    let client = server.operator();
    let under_way = tokio::spawn(async move {
        if is_async { post_async(&client, None, &body).await } else { client.post("/v1/runs", body).await }
    });
    until(&server.operator(), "left", |run| run["import"]["progress"] == "fetching").await;
    under_way.abort();
    assert!(is_async || under_way.await.is_err(), "the request was answered");
    std::fs::remove_file(forge.folder.join("hold")).unwrap();
    let open = until(&server.operator(), "left", is_in("open")).await;
    assert_eq!(open["import"]["files"], 2);
}
