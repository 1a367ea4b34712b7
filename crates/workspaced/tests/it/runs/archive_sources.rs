//! Archives as a source: memory limits and hard links.

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, assert_growth, gzip};

/// Returns an archive of empty files, with long names as GNU tar writes them.
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

/// Returns an archive of files and hard links.
fn archive_with_links(entries: &[(&str, &str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, link, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if !link.is_empty() {
            header.set_entry_type(tar::EntryType::Link);
            header.set_link_name(link).unwrap();
        }
        tar.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    gzip(&tar.into_inner().unwrap())
}

#[rstest]
#[tokio::test]
async fn a_hard_link_gives_no_access_to_a_denied_file(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let entries = [
        ("private/key.txt", "", "hunter2\n"),
        ("pub/notes.txt", "private/key.txt", ""),
        ("private/twin.txt", "pub/notes.txt", ""),
        ("pub/plain.txt", "", "plain\n"),
        ("pub/twin.txt", "pub/plain.txt", ""),
        ("ig.txt", "", "hunter2\n"),
        ("pub/c.txt", "ig.txt", ""),
        (".gitignore", "", "/ig.txt\n"),
    ];
    let template = server.import_root().join("linked");
    for (name, link, content) in &entries {
        std::fs::create_dir_all(template.join(name).parent().unwrap()).unwrap();
        match *link {
            "" => std::fs::write(template.join(name), content).unwrap(),
            link => std::fs::hard_link(template.join(link), template.join(name)).unwrap(),
        }
    }
    for policy in [json!({"deny": ["private/**"]}), json!({"read": ["pub/**"]})] {
        let archived = server.run(json!({"source": {"type": "archive"}, "policy": policy})).await;
        let path = format!("/v1/runs/{}/archive", archived.id);
        archived.operator.put(&path, archive_with_links(&entries)).await.ok();
        let copied = server.run(json!({"source": {"type": "directory", "path": template}, "policy": policy})).await;
        for run in [archived, copied] {
            let shown = run.get().await;
            let left_out =
                shown["import"]["leftOut"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap());
            assert_eq!(
                left_out.collect::<std::collections::BTreeSet<_>>(),
                ["pub/c.txt", "pub/notes.txt"].into(),
                "{shown:#}"
            );
            for name in ["pub/notes.txt", "pub/c.txt"] {
                run.call("read_file", json!({"path": name})).await.refused("NOT_FOUND");
            }
            for name in ["private/key.txt", "private/twin.txt", "ig.txt"] {
                run.call("read_file", json!({"path": name})).await.refused("POLICY_DENIED");
            }
            run.ok("read_file", json!({"path": "pub/twin.txt"})).await;
            assert_eq!(run.ok("search_text", json!({"query": "hunter2"})).await["matches"], json!([]));
        }
    }
    // A file that may be read under every name is imported under every name.
    let run = server
        .run(json!({"source": {"type": "directory", "path": template}, "policy": {"ignoredFiles": "ALLOW"}}))
        .await;
    for (name, ..) in entries {
        run.ok("read_file", json!({"path": name})).await;
    }
}

#[rstest]
#[tokio::test]
async fn a_hard_link_gives_no_access_to_a_secret(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({"source": {"type": "archive"}})).await;
    let archive = archive_with_links(&[
        (".env", "", "KEY=hunter2\n"),
        ("notes.txt", ".env", ""),
        ("first.txt", "", "KEY=hunter2\n"),
        ("id_rsa", "first.txt", ""),
        ("plain.txt", "", "plain\n"),
        ("twin.txt", "plain.txt", ""),
    ]);
    let shown = run.operator.put(&format!("/v1/runs/{}/archive", run.id), archive).await.ok();
    let left_out: Vec<_> = shown["import"]["leftOut"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert_eq!(left_out, ["notes.txt", "first.txt"], "{shown:#}");
    for name in ["notes.txt", "first.txt"] {
        run.call("read_file", json!({"path": name})).await.refused("NOT_FOUND");
    }
    assert_eq!(run.ok("read_file", json!({"path": "twin.txt", "format": "raw"})).await["content"], "plain\n");
    let found = run.ok("search_text", json!({"query": "hunter2"})).await;
    assert_eq!(found["matches"], json!([]));
}

/// `workspace` tests the limit itself.
mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn long_names_in_a_small_archive_need_little_memory() {
        let server = Server::start(Backend::Sqlite).await;
        let folders = format!("{}/", "n".repeat(250)).repeat(15);
        // 4 kB for each name, which compresses well.
        let many = gzip(&archive_of_names((0..20_000).map(|n| format!("{folders}{n:0>250}"))));
        assert!(many.len() < 8 << 20, "{}", many.len());
        let skipped = gzip(&archive_of_names((0..20_000).map(|n| format!("{n}/{folders}.git"))));
        for (what, archive) in [("files", many), ("skipped entries", skipped)] {
            let run = server.run(json!({"source": {"type": "archive"}})).await;
            let path = format!("/v1/runs/{}/archive", run.id);
            let (answer, growth) = server.peak_growth(run.operator.put(&path, archive)).await;
            assert_eq!(answer.refused("INVALID_REQUEST")["limit"], 64 << 20, "{what}");
            assert_growth(what, growth, 256);
        }
    }
}
