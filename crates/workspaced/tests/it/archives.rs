//! Archives as a source: what they may cost, and what they may call by a second name.

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, assert_growth, gzip};

/// An archive of empty files with these names, as GNU tar writes long ones.
fn archive_of_names(names: impl Iterator<Item = String>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for name in names {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &[][..]).unwrap();
    }
    tar.into_inner().unwrap()
}

#[rstest]
#[tokio::test]
async fn a_secret_is_readable_under_no_other_name(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({"source": {"type": "archive"}})).await;
    let mut tar = tar::Builder::new(Vec::new());
    for (kind, name, link, content) in [
        (tar::EntryType::Regular, ".env", "", "KEY=hunter2\n"),
        (tar::EntryType::Link, "notes.txt", ".env", ""),
        (tar::EntryType::Regular, "first.txt", "", "KEY=hunter2\n"),
        (tar::EntryType::Link, "id_rsa", "first.txt", ""),
        (tar::EntryType::Regular, "plain.txt", "", "plain\n"),
        (tar::EntryType::Link, "twin.txt", "plain.txt", ""),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if !link.is_empty() {
            header.set_link_name(link).unwrap();
        }
        tar.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let told = run.operator.put(&format!("/v1/runs/{}/archive", run.id), gzip(&tar.into_inner().unwrap())).await.ok();
    let left_out: Vec<_> = told["import"]["leftOut"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert_eq!(left_out, ["notes.txt", "first.txt"], "{told:#}");
    for name in ["notes.txt", "first.txt"] {
        run.call("read_file", json!({"path": name})).await.refused("NOT_FOUND");
    }
    assert_eq!(run.ok("read_file", json!({"path": "twin.txt", "format": "raw"})).await["content"], "plain\n");
    let found = run.ok("search_text", json!({"query": "hunter2"})).await;
    assert_eq!(found["matches"], json!([]));
}

#[tokio::test]
async fn long_names_in_a_small_archive_cost_little_memory() {
    let server = Server::start(Backend::Sqlite).await;
    let folders = format!("{}/", "n".repeat(250)).repeat(15);
    // 4 kB each, most of which gzip takes away.
    let many = gzip(&archive_of_names((0..20_000).map(|n| format!("{folders}{n:0>250}"))));
    assert!(many.len() < 8 << 20, "{}", many.len());
    let own = gzip(&archive_of_names((0..20_000).map(|n| format!("{n}/{folders}.git"))));
    for (what, archive) in [("files", many), ("what is left out", own)] {
        let run = server.run(json!({"source": {"type": "archive"}})).await;
        let path = format!("/v1/runs/{}/archive", run.id);
        let (answer, growth) = server.peak_growth(run.operator.put(&path, archive)).await;
        assert_eq!(answer.refused("INVALID_REQUEST")["limit"], 64 << 20, "{what}");
        assert_growth(what, growth, 256);
    }
}
