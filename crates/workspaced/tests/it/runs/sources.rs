//! Sources of runs: folders, repositories and archives. A failed import leaves no run.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, commit_all, git, gzip, put, sha256, tar_of};

fn left_out(run: &Value) -> Vec<&str> {
    run["import"]["leftOut"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect()
}

async fn assert_source_refused(server: &Server, source: Value) -> Value {
    // Tests share the server.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = format!("refused-{:04}", NEXT.fetch_add(1, Ordering::Relaxed));
    let body = json!({"runId": id, "source": source});
    let problem = server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    server.operator().get(&format!("/v1/runs/{id}")).await.refused("RUN_NOT_FOUND");
    let folders = std::fs::read_dir(server.data_dir().join("workspaces")).unwrap();
    let names = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.contains(&id)).count(), 0, "a refused import left files");
    problem
}

#[rstest]
#[tokio::test]
async fn a_folder_is_imported_without_git_folders(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (folder, _) =
        server.repository(&[("README.md", "hi\n"), ("src/main.rs", "fn main() {}\n"), ("run.sh", "#!/bin/sh\n")]);
    put(&folder, "nested/.git/config", "[core]\n");
    put(&folder, "nested/file.txt", "kept\n");
    put(&folder, "sub/.GIT", "gitdir: ../elsewhere\n");
    std::fs::set_permissions(folder.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("src/main.rs", folder.join("link.rs")).unwrap();

    let run = server.run(json!({"source": {"type": "directory", "path": folder}})).await;
    let shown = run.until_open().await;
    assert_eq!(left_out(&shown).iter().filter(|path| path.to_lowercase().ends_with(".git")).count(), 3, "{shown:#}");
    let tree = run.snapshot();
    assert!(tree.keys().all(|path| !path.to_lowercase().split('/').any(|name| name == ".git")), "{tree:#?}");
    assert_eq!(run.on_disk("nested/file.txt"), "kept\n");
    assert!(tree["run.sh"].starts_with("755 "), "{}", tree["run.sh"]);
    assert_eq!(tree["link.rs"], "-> src/main.rs");
    assert_eq!(shown["import"]["progress"], "done");
    assert!(shown["import"]["files"].as_u64().unwrap() >= 4, "{shown:#}");
    assert!(shown["import"]["bytes"].as_u64().unwrap() > 20);
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 0, "a new run differs from its base");
    put(&folder, "README.md", "changed after the import\n");
    assert_eq!(run.on_disk("README.md"), "hi\n", "the run does not have its own copy");
}

#[rstest]
#[tokio::test]
async fn an_import_widens_no_permissions_and_says_which_it_drops(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("directory", "archive")] source: &str,
) {
    let server = Server::shared(backend).await;
    let modes = [("open.txt", 0o664), ("private.txt", 0o600), ("tool.sh", 0o750), ("group.txt", 0o640)];
    let run = if source == "directory" {
        let folder = server.template(&modes.map(|(path, _)| (path, "x\n")));
        for (path, mode) in modes {
            std::fs::set_permissions(folder.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        server.run(json!({"source": {"type": "directory", "path": folder}})).await
    } else {
        let run = server.run(json!({"source": {"type": "archive"}})).await;
        let mut tar = tar::Builder::new(Vec::new());
        for (path, mode) in modes {
            let mut header = tar::Header::new_gnu();
            header.set_size(2);
            header.set_mode(mode);
            tar.append_data(&mut header, path, &b"x\n"[..]).unwrap();
        }
        let put = run.operator.put(&format!("/v1/runs/{}/archive", run.id), tar.into_inner().unwrap()).await;
        assert_eq!(put.status, 200, "{}", put.text());
        run
    };
    let shown = run.until_open().await;
    for ((path, _), mode) in modes.iter().zip(["0644", "0600", "0750", "0640"]) {
        assert_eq!(run.ok("stat_path", json!({"path": path})).await["mode"], mode, "{path}");
    }
    let said: Vec<_> = shown["import"]["leftOut"].as_array().unwrap().iter().collect();
    let [said] = said[..] else { panic!("{shown:#}") };
    let reason = said["reason"].as_str().unwrap();
    assert!(reason.starts_with("only its permissions ") && reason.contains("those of 2 more"), "{shown:#}");
    // A change keeps them.
    run.replace("private.txt", "y\n", &sha256("x\n")).await.ok();
    assert_eq!(std::fs::metadata(run.file("private.txt")).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 1);
}

#[rstest]
#[tokio::test]
async fn only_folders_under_an_import_root_are_imported(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let inside = server.template(&[("a", "a")]);
    let root = server.import_root();
    std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
    let secret = server.home.join("outside");
    put(&secret, "f", "x");
    let mut messages = Vec::new();
    for path in [
        secret.clone(),
        "/etc".into(),
        "/none/such".into(),
        root.join("none-such"),
        root.join("etc"),
        root.join("etc/ssl"),
        root.join("../outside"),
        inside.join("../../outside"),
        format!("{}-evil", root.display()).into(),
        "".into(),
    ] {
        let path = path.to_str().unwrap();
        let problem = assert_source_refused(&server, json!({"type": "directory", "path": path})).await;
        assert_source_refused(&server, json!({"type": "git", "url": path})).await;
        messages.push(problem["message"].as_str().unwrap().to_owned());
    }
    messages.pop();
    messages.dedup();
    assert_eq!(messages.len(), 1, "forbidden and missing folders get different messages: {messages:?}");
    std::fs::remove_file(root.join("etc")).unwrap();
}

#[rstest]
#[tokio::test]
async fn nothing_of_the_data_folder_is_imported(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::prepare(crate::harness::Setup::new(backend)).await;
    let (home, data) = (server.home.clone(), server.data_dir());
    server.setup = server.setup.clone().env("WORKSPACED_IMPORT_ROOTS", home.to_str().unwrap());
    server.restart();
    let first = server.run(json!({"runId": "first"})).await;
    std::os::unix::fs::symlink(&data, server.import_root().join("link")).unwrap();
    put(&data, "below/f.txt", "x\n");
    git(&data.join("below"), &["init", "-q"]);
    commit_all(&data.join("below"), "first");
    for path in [
        home.clone(),
        data.clone(),
        data.join("below"),
        data.join("workspaces"),
        data.join("bases"),
        first.base().join("git"),
        server.import_root().join("link"),
        server.import_root().join("link/below"),
        server.import_root().join("../data"),
    ] {
        let directory = assert_source_refused(&server, json!({"type": "directory", "path": path})).await;
        let git = assert_source_refused(&server, json!({"type": "git", "url": path})).await;
        let mounts = json!([{"name": "own", "description": "d", "path": path}]);
        let body = json!({"runId": "refused", "source": {"type": "empty"}, "mounts": mounts});
        let mount = server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
        for problem in [directory, git, mount] {
            let message = problem["message"].as_str().unwrap();
            assert!(message.contains("own data folder"), "{message}");
        }
    }
    // A repository elsewhere that uses objects of the data folder.
    let (folder, _) = server.repository(&[("a.txt", "a\n")]);
    let objects = data.join("below/.git/objects");
    std::fs::write(folder.join(".git/objects/info/alternates"), format!("{}\n", objects.display())).unwrap();
    assert_source_refused(&server, json!({"type": "git", "url": folder})).await;
    let template = server.template(&[("a.txt", "a\n")]);
    server.run(json!({"source": {"type": "directory", "path": template}})).await;
}

#[rstest]
#[tokio::test]
async fn without_an_import_root_no_local_folder_is_imported(#[values(Backend::Sqlite)] backend: Backend) {
    let setup = crate::harness::Setup::new(backend).env("WORKSPACED_IMPORT_ROOTS", "");
    let server = Server::start_with(setup).await;
    let folder = server.template(&[("a", "a")]);
    assert_source_refused(&server, json!({"type": "directory", "path": folder})).await;
    assert_source_refused(&server, json!({"type": "git", "url": folder})).await;
    server.run(json!({})).await;
}

#[rstest]
#[tokio::test]
async fn a_repository_is_imported_at_its_head(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (folder, first) = server.repository(&[("a.txt", "one\n"), ("dir/b.txt", "b\n")]);
    git(&folder, &["tag", "v1"]);
    put(&folder, "a.txt", "two\n");
    let second = commit_all(&folder, "second");
    put(&folder, "a.txt", "not committed\n");
    put(&folder, "untracked.txt", "not committed\n");

    let head = server.run(json!({"source": {"type": "git", "url": folder}})).await;
    assert_eq!(head.get().await["baseCommit"], second.as_str());
    assert_eq!(head.on_disk("a.txt"), "two\n");
    assert!(!head.repo.join("untracked.txt").exists());
    assert!(!head.repo.join(".git").exists());
    for reference in ["v1", first.as_str()] {
        let run = server.run(json!({"source": {"type": "git", "url": folder, "ref": reference}})).await;
        assert_eq!(run.get().await["baseCommit"], first.as_str(), "{reference}");
        assert_eq!(run.on_disk("a.txt"), "one\n", "{reference}");
    }
    for bad in ["none-such", "--upload-pack=id", "a b", ""] {
        assert_source_refused(&server, json!({"type": "git", "url": folder, "ref": bad})).await;
    }
    let no_repository = server.template(&[("a", "a")]);
    assert_source_refused(&server, json!({"type": "git", "url": no_repository})).await;
}

async fn prepared(server: &Server) -> Run {
    let run = server.run(json!({"source": {"type": "archive"}})).await;
    assert_eq!(run.get().await["state"], "preparing");
    run
}

#[rstest]
#[tokio::test]
async fn an_archive_is_uploaded_after_the_run_is_created(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] gzipped: bool,
) {
    let server = Server::shared(backend).await;
    let run = prepared(&server).await;
    assert_ne!(run.call("list_dir", json!({})).await.status, 200, "a tool works before the archive is uploaded");
    let tar = tar_of(&[("src/a.rs", b"fn a() {}\n"), ("docs/x.md", b"# x\n"), (".git/config", b"[core]\n")]);
    let body = if gzipped { gzip(&tar) } else { tar };
    let archive = format!("/v1/runs/{}/archive", run.id);
    run.agent.put(&archive, body.clone()).await.refused("FORBIDDEN");
    let answer = run.operator.put(&archive, body.clone()).await;
    assert!((200..300).contains(&answer.status), "{}", answer.text());

    let shown = run.until_open().await;
    assert_eq!(left_out(&shown), [".git"], "{shown:#}");
    assert_eq!(shown["import"]["files"], 2);
    let page = run.ok("read_file", json!({"path": "src/a.rs", "format": "raw"})).await;
    assert_eq!(
        (page["content"].as_str(), page["sha256"].as_str()),
        (Some("fn a() {}\n"), Some(sha256("fn a() {}\n").as_str()))
    );
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 0);
    let again = run.operator.put(&archive, body).await;
    assert!((400..500).contains(&again.status), "a second archive: {}", again.text());
}

#[rstest]
#[tokio::test]
async fn a_duplicate_file_in_an_archive_is_imported_once(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = prepared(&server).await;
    let body = tar_of(&[("a.txt", b"first\n"), ("b.txt", b"b\n"), ("./a.txt", b"second and longer\n")]);
    run.operator.put(&format!("/v1/runs/{}/archive", run.id), body).await.ok();
    let shown = run.until_open().await;
    assert_eq!((&shown["import"]["files"], &shown["import"]["bytes"]), (&json!(2), &json!(20)), "{shown:#}");
    assert_eq!(run.on_disk("a.txt"), "second and longer\n");
}

/// Returns a tar with one entry whose header `shape` modifies, bypassing the checks of the library.
fn tar_with(name: &[u8], shape: impl FnOnce(&mut tar::Header)) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    header.set_mode(0o644);
    shape(&mut header);
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend([0; 1024]);
    bytes
}

/// Returns a tar whose only file has an extension header of several megabytes.
fn long_name(kind: tar::EntryType) -> Vec<u8> {
    let name = vec![b'n'; 8 << 20];
    let mut header = tar::Header::new_gnu();
    header.set_size(name.len() as u64);
    header.set_entry_type(kind);
    header.set_cksum();
    [header.as_bytes(), &name[..], &tar_of(&[("a", b"a")])].concat()
}

#[rstest]
#[tokio::test]
async fn a_hostile_archive_writes_nothing_outside(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    // Not under the root folder of the tests, which no answer may contain.
    let outside = std::env::temp_dir().join(format!("escaped-{}-{backend:?}", std::process::id()));
    let entry = |kind: tar::EntryType, link: &'static str| {
        move |header: &mut tar::Header| {
            header.set_entry_type(kind);
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
    };
    let absolute = outside.to_str().unwrap().to_owned();
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        ("parent", tar_with(b"../../../escaped", |_| ())),
        ("parent within", tar_with(b"a/../../../../escaped", |_| ())),
        ("absolute", tar_with(absolute.as_bytes(), |_| ())),
        ("link out", tar_with(b"link", entry(tar::EntryType::Symlink, "/etc/passwd"))),
        ("link up", tar_with(b"link", entry(tar::EntryType::Symlink, "../../../escaped"))),
        ("hard link out", tar_with(b"link", entry(tar::EntryType::Link, "/etc/passwd"))),
        ("device", tar_with(b"dev", entry(tar::EntryType::Char, ""))),
        ("fifo", tar_with(b"fifo", entry(tar::EntryType::Fifo, ""))),
        ("a name of megabytes", gzip(&long_name(tar::EntryType::GNULongName))),
        ("a link of megabytes", gzip(&long_name(tar::EntryType::GNULongLink))),
        ("extensions of megabytes", gzip(&long_name(tar::EntryType::XHeader))),
        ("no archive", b"this is not an archive, and that is true for any size".repeat(40)),
        ("cut gzip", gzip(&tar_of(&[("a", &[7; 9000])]))[..40].to_vec()),
        ("cut tar", tar_of(&[("a", &[7; 9000])])[..2000].to_vec()),
    ];
    for (what, body) in hostile {
        let run = prepared(&server).await;
        let answer = run.operator.put(&format!("/v1/runs/{}/archive", run.id), body).await;
        assert!(!outside.exists(), "{what} escaped");
        let shown = run.get().await;
        if answer.status >= 400 {
            assert_ne!(answer.refusal(), "INTERNAL", "{what}");
            assert!(answer.body.len() < 2000, "{what}: {} bytes of answer", answer.body.len());
            assert_eq!(shown["state"], "preparing", "{what}");
            let good = run.operator.put(&format!("/v1/runs/{}/archive", run.id), tar_of(&[("ok", b"ok\n")])).await;
            assert!((200..300).contains(&good.status), "{what}: the run refuses a valid archive: {}", good.text());
            run.until_open().await;
            assert_eq!(run.snapshot().into_keys().collect::<Vec<_>>(), ["ok"], "{what}");
        } else {
            // A link to a path outside may be imported. Tools do not follow it.
            assert_eq!(left_out(&shown).len() + run.snapshot().len(), 1, "{what}: {shown:#}");
            for tool in ["read_file", "search_text"] {
                let answer = run.call(tool, json!({"path": "link", "query": "root"}).without(tool)).await;
                assert!(!answer.text().contains("root:"), "{what}: {}", answer.text());
            }
        }
    }
    assert!(!outside.exists());
}

trait Without {
    fn without(self, tool: &str) -> Value;
}

impl Without for Value {
    /// `read_file` takes no query.
    fn without(mut self, tool: &str) -> Value {
        if tool == "read_file" {
            self.as_object_mut().unwrap().remove("query");
        }
        self
    }
}

#[rstest]
#[tokio::test]
async fn ignored_files_are_imported_and_not_shown(#[values(Backend::Sqlite)] backend: Backend) {
    let files =
        [(".gitignore", "*.log\nlocal/\n"), ("a.log", "noise\n"), ("local/x.txt", "noise\n"), ("b.txt", "noise\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    assert_eq!(run.on_disk("a.log"), "noise\n");
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 0);
    let found = run.ok("search_text", json!({"query": "noise"})).await;
    assert_eq!(found["matches"].as_array().unwrap().len(), 1, "{found:#}");
}
