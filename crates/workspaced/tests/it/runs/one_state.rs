//! What looks at several files shows them as they were at one record, whatever is written meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Server, assert_tmp_is_empty, git, in_time, incompressible, sha256};

/// The files of the change, in different folders.
const FILES: [&str; 6] = ["a.txt", "b/b.txt", "b/c/c.txt", "d/d.txt", "d/e.txt", "f.txt"];
const CHANGES: usize = 40;

fn text(version: usize) -> String {
    format!("first\nversion {version}.\nlast\n")
}

fn patch(from: usize, to: usize) -> String {
    let file = |path: &str| {
        format!("--- a/{path}\n+++ b/{path}\n@@ -1,3 +1,3 @@\n first\n-version {from}.\n+version {to}.\n last\n")
    };
    FILES.iter().map(|path| file(path)).collect()
}

/// Returns the versions that `text` mentions.
fn versions(text: &str) -> BTreeSet<usize> {
    let number = |part: &str| part.split('.').next().and_then(|number| number.parse().ok());
    text.split("version ").skip(1).filter_map(number).collect()
}

/// Changes all files together, again and again: by patches, batches and reverts.
async fn change(run: Run) {
    for version in 1..=CHANGES {
        if version % 3 == 0 {
            let edit = |path: &&str| {
                let (old, new) = (format!("version {}.", version - 1), format!("version {version}."));
                json!({"tool": "edit_file", "input": {"path": path, "oldString": old, "newString": new, "reason": "r"}})
            };
            run.batch(FILES.iter().map(edit).collect()).await.ok();
        } else {
            run.patch(&patch(version - 1, version)).await.ok();
        }
        if version % 5 == 0 {
            let made = run.last_record().await;
            let id = made["toolCallId"].as_str().unwrap();
            if made["tool"] == "apply_patch" {
                run.ok("revert_calls", json!({"toolCallIds": [id], "reason": "r"})).await;
                run.patch(&patch(version - 1, version)).await.ok();
            }
        }
    }
}

/// Returns the files of a tar.gz archive.
fn unpacked(archive: &[u8]) -> BTreeMap<String, String> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let entries = tar.entries().unwrap().map(Result::unwrap);
    let mut files = BTreeMap::new();
    for mut entry in entries.filter(|entry| entry.header().entry_type().is_file()) {
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(path, String::from_utf8_lossy(&bytes).into_owned());
    }
    files
}

/// Asserts that the view `name` of the run has one version in every place.
fn assert_whole(name: &str, found: &BTreeSet<usize>, places: usize) {
    assert!(found.len() == 1 || places == 0, "{name} shows the versions {found:?}");
}

async fn look(run: &Run, name: &str) {
    let path = |rest: &str| format!("/v1/runs/{}/{rest}", run.id);
    match name {
        "read_files" => {
            let answer = run.ok(name, json!({"paths": FILES})).await;
            let files = answer["files"].as_object().unwrap();
            let found = files.values().flat_map(|file| versions(file["content"].as_str().unwrap())).collect();
            assert_whole(name, &found, files.len());
        }
        "search_text" => {
            let answer = run.ok(name, json!({"query": "version "})).await;
            let found = answer.to_string();
            assert_eq!(found.matches("\"snippet\":\"version ").count(), FILES.len(), "{found}");
            assert_whole(name, &versions(&found), FILES.len());
        }
        "diff_workspace" => {
            let diff = run.ok(name, json!({})).await;
            let added = diff["diff"].as_str().unwrap().lines().filter(|line| line.starts_with('+'));
            let added: Vec<_> = added.filter(|line| line.contains("version")).collect();
            assert_whole(name, &versions(&added.join("\n")), added.len());
            assert!(added.is_empty() || added.len() == FILES.len(), "{diff:#}");
        }
        "patch" => {
            let patch = run.operator.get(&path(name)).await;
            assert_eq!(patch.status, 200);
            let patch = patch.text();
            let added: Vec<_> = patch.lines().filter(|line| line.starts_with("+version")).collect();
            assert!(added.is_empty() || added.len() == FILES.len(), "{patch}");
            assert_whole(name, &versions(&added.join("\n")), added.len());
        }
        "archive" => {
            let archive = run.operator.get(&path(name)).await;
            assert_eq!(archive.status, 200);
            let files = unpacked(&archive.body);
            let found = FILES.iter().flat_map(|path| versions(&files[*path])).collect();
            assert_whole(name, &found, FILES.len());
        }
        "bundle" => {
            let bundle = run.operator.get(&path(name)).await;
            assert_eq!(bundle.status, 200);
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("run.bundle"), &bundle.body).unwrap();
            let source = run.get().await["source"]["url"].as_str().unwrap().to_owned();
            git(folder.path(), &["clone", "-q", &source, "clone"]);
            git(&folder.path().join("clone"), &["pull", "-q", "--ff-only", "../run.bundle"]);
            let read = |path: &&str| std::fs::read_to_string(folder.path().join("clone").join(path)).unwrap();
            let found = FILES.iter().flat_map(|path| versions(&read(path))).collect();
            assert_whole(name, &found, FILES.len());
        }
        other => panic!("{other}"),
    }
}

#[rstest]
#[tokio::test]
async fn every_view_of_several_files_shows_whole_changes_only(#[values(Backend::Sqlite)] backend: Backend) {
    let files: Vec<_> = FILES.iter().map(|path| (*path, text(0))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let (run, _) = Server::shared(backend).await.run_from_git(&files, json!({})).await;
    let has_ended = Arc::new(AtomicBool::new(false));
    let mut views = Vec::new();
    for name in ["read_files", "read_files", "search_text", "diff_workspace", "patch", "archive", "bundle"] {
        let (run, has_ended) = (run.clone(), Arc::clone(&has_ended));
        views.push(tokio::spawn(async move {
            let mut looks = 0;
            while !has_ended.load(Ordering::Relaxed) {
                look(&run, name).await;
                looks += 1;
            }
            (name, looks)
        }));
    }
    change(run.clone()).await;
    has_ended.store(true, Ordering::Relaxed);
    for view in views {
        let (name, looks) = view.await.unwrap();
        assert!(looks > 0, "{name} was never answered");
    }
    assert_eq!(run.verify().await["intact"], true);
    assert_eq!(run.operator.get(&format!("/v1/runs/{}/drift", run.id)).await.ok()["items"], json!([]));
}

#[rstest]
#[tokio::test]
async fn files_that_are_written_at_once_are_read_in_the_order_of_their_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let names: Vec<_> = (0..8).map(|number| format!("{number}.txt")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "0\n")).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    let has_ended = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for _ in 0..2 {
        let (run, names, has_ended) = (run.clone(), names.clone(), Arc::clone(&has_ended));
        readers.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            while !has_ended.load(Ordering::Relaxed) {
                let answer = run.ok("read_files", json!({"paths": names})).await;
                let sha256 = |name: &String| answer["files"][name]["sha256"].as_str().unwrap().to_owned();
                seen.push(names.iter().map(sha256).collect::<Vec<_>>());
            }
            seen
        }));
    }
    let writers = names.iter().map(|name| {
        let (run, name) = (run.clone(), name.clone());
        tokio::spawn(async move {
            for version in 0..20 {
                run.edit(&name, &format!("{version}\n"), &format!("{}\n", version + 1), json!({})).await.ok();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    has_ended.store(true, Ordering::Relaxed);
    let mut states = BTreeSet::new();
    let mut state = vec![crate::harness::sha256("0\n"); names.len()];
    states.insert(state.clone());
    for record in run.audit().await.iter().filter(|record| record["tool"] == "edit_file") {
        for file in record["files"].as_array().unwrap() {
            let index = names.iter().position(|name| file["path"] == name.as_str()).unwrap();
            state[index] = file["newSha256"].as_str().unwrap().to_owned();
        }
        states.insert(state.clone());
    }
    for reader in readers {
        let seen = reader.await.unwrap();
        assert!(!seen.is_empty());
        for found in seen {
            assert!(states.contains(&found), "no record has left these files: {found:?}");
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_client_that_reads_an_archive_slowly_keeps_no_writer_waiting(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let folder = server.template(&[("z/after.txt", "old\n"), ("z/gone.txt", "gone\n")]);
    // More than what lies between the service and its client.
    std::fs::write(folder.join("large.bin"), incompressible(12 << 20)).unwrap();
    let run = server.run(json!({"source": {"type": "directory", "path": folder}})).await;
    let request = run.operator.request(Method::GET, &format!("/v1/runs/{}/archive", run.id));
    let mut archive = request.send().await.unwrap();
    assert_eq!(archive.status(), 200);
    let mut bytes = archive.chunk().await.unwrap().unwrap().to_vec();
    let written = async {
        run.edit("z/after.txt", "old", "new", json!({})).await.ok();
        run.create("z/new.txt", "new\n").await;
        run.ok("delete_file", json!({"path": "z/gone.txt", "expectedSha256": sha256("gone\n"), "reason": "r"})).await;
    };
    in_time("the end of a writer, beside the client of an export", written).await;
    while let Some(chunk) = archive.chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    let files = unpacked(&bytes);
    assert_eq!(files["z/after.txt"], "old\n");
    assert_eq!(files["z/gone.txt"], "gone\n");
    assert!(!files.contains_key("z/new.txt"));
    let again = unpacked(&run.operator.get(&format!("/v1/runs/{}/archive", run.id)).await.body);
    assert_eq!((again["z/after.txt"].as_str(), again.contains_key("z/gone.txt")), ("new\n", false));
    assert_tmp_is_empty(&server, &run).await;
}

#[rstest]
#[tokio::test]
async fn neither_readers_nor_writers_of_a_busy_run_wait_for_ever(#[values(Backend::Sqlite)] backend: Backend) {
    let many: Vec<_> = (0..300).map(|number| (format!("many/{number}.txt"), "needle\n".repeat(50))).collect();
    let files: Vec<_> = many.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    let writing = (0..4).map(|writer| {
        let run = run.clone();
        tokio::spawn(async move {
            for time in 0..25 {
                run.create(&format!("w{writer}-{time}.txt"), "x\n").await;
            }
        })
    });
    let reading = (0..4).map(|_| {
        let run = run.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                run.ok("search_text", json!({"query": "needle"})).await;
            }
        })
    });
    let all: Vec<_> = writing.chain(reading).collect();
    let ended = async {
        for one in all {
            one.await.unwrap();
        }
    };
    in_time("the end of the calls of a busy run", ended).await;
}
