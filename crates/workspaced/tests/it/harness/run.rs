//! Runs, and the agent in them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Answer, Backend, Client, Server, reaper, snapshot};

/// A run with its agent's client and its operator's.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// Calls with the run token.
    pub(crate) agent: Client,
    /// Calls with the operator's token.
    pub(crate) operator: Client,
    /// The tree on disk.
    pub(crate) repo: PathBuf,
    /// What `POST /v1/runs` answered.
    pub(crate) created: Value,
}

/// Every path below a folder with what stands there: bytes and mode of files, where links lead.
pub(crate) type Snapshot = BTreeMap<String, String>;

impl Server {
    /// Makes a run with what `extra` says beside the source; no source is an empty one.
    pub(crate) async fn run(&self, extra: Value) -> Run {
        let mut body = extra;
        body.as_object_mut().unwrap().entry("source").or_insert(json!({"type": "empty"}));
        let created = self.operator().post("/v1/runs", body).await.is(201);
        self.run_of(&created).await
    }

    /// A run that starts with `files`, by way of a folder under the import root, and with what `extra` says.
    pub(crate) async fn run_with_files(&self, files: &[(&str, &str)], extra: Value) -> Run {
        // What a build makes is there after the import: of what a run starts with, such folders are source.
        let (made, files): (Vec<_>, Vec<_>) = files.iter().copied().partition(|(path, _)| is_build_output(path));
        let template = self.template(&files);
        let mut body = extra;
        body["source"] = json!({"type": "directory", "path": template});
        let run = self.run(body).await;
        for (path, content) in made {
            run.put(path, content);
        }
        run
    }

    /// The run of an answer to `POST /v1/runs`, once it is open or waits for its archive.
    pub(crate) async fn run_of(&self, created: &Value) -> Run {
        let id = created["run"]["runId"].as_str().unwrap().to_owned();
        let token = created["token"]["token"].as_str().unwrap();
        let run = Run {
            agent: Client::new(&self.base, Some(token)),
            operator: self.operator(),
            repo: self.repo(&id),
            created: created.clone(),
            id,
        };
        if created["run"]["source"]["type"] != "archive" {
            run.until_open().await;
        }
        run
    }

    /// The same run on this server's present address; what is held of it from before a restart calls into the void.
    pub(crate) fn reconnect(&self, run: &Run) -> Run {
        Run { agent: Client::new(&self.base, run.agent.token.as_deref()), operator: self.operator(), ..run.clone() }
    }

    /// A new folder under the import root with `files` in it.
    pub(crate) fn template(&self, files: &[(&str, &str)]) -> PathBuf {
        let folder = reaper::new_folder("t");
        let place = self.import_root().join(folder.file_name().unwrap());
        std::fs::rename(&folder, &place).unwrap();
        for (path, content) in files {
            put(&place, path, content);
        }
        place
    }

    /// A new repository under the import root with `files` committed; the folder and the commit.
    pub(crate) fn repository(&self, files: &[(&str, &str)]) -> (PathBuf, String) {
        let place = self.template(files);
        git(&place, &["init", "-q", "-b", "main"]);
        let commit = commit_all(&place, "first");
        (place, commit)
    }
}

/// Runs git in `folder` as the tests' author and gives what it prints.
#[track_caller]
pub(crate) fn git(folder: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"])
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).strip_suffix('\n').unwrap_or_default().to_owned()
}

/// Commits all of `folder`, ignored files too, and gives the commit.
pub(crate) fn commit_all(folder: &Path, message: &str) -> String {
    git(folder, &["add", "-A", "-f", "."]);
    git(folder, &["commit", "-q", "--allow-empty", "-m", message]);
    git(folder, &["rev-parse", "HEAD"])
}

/// Writes `content` at `path` below `folder`, with the folders that it needs.
pub(crate) fn put(folder: &Path, path: &str, content: impl AsRef<[u8]>) {
    let place = folder.join(path);
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(place.parent().unwrap()).unwrap();
    std::fs::write(place, content).unwrap();
}

fn is_build_output(path: &str) -> bool {
    let top = path.split('/').next().unwrap_or_default();
    path.contains('/') && ["target", "build", "dist"].iter().any(|name| top.eq_ignore_ascii_case(name))
}

/// A tar of regular files.
pub(crate) fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, *content).unwrap();
    }
    tar.into_inner().unwrap()
}

/// `bytes` as gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

impl Run {
    /// A run with `files` on the server that tests share.
    pub(crate) async fn shared(backend: Backend, files: &[(&str, &str)]) -> (Arc<Server>, Self) {
        Self::shared_with(backend, files, json!({})).await
    }

    /// The same with what `extra` says, such as a policy.
    pub(crate) async fn shared_with(backend: Backend, files: &[(&str, &str)], extra: Value) -> (Arc<Server>, Self) {
        let server = Server::shared(backend).await;
        let run = server.run_with_files(files, extra).await;
        (server, run)
    }

    /// One tool call by the agent.
    pub(crate) async fn call(&self, tool: &str, input: Value) -> Answer {
        self.agent.post(&format!("/v1/runs/{}/tools/{tool}", self.id), input).await
    }

    /// One tool call that must succeed.
    pub(crate) async fn ok(&self, tool: &str, input: Value) -> Value {
        let answer = self.call(tool, input).await;
        let body = answer.ok();
        assert_eq!(body["ok"], true, "{}", answer.what);
        body
    }

    /// Creates a file.
    pub(crate) async fn create(&self, path: &str, content: &str) -> Value {
        self.ok("write_file", json!({"path": path, "content": content, "mode": "CREATE_NEW", "reason": "test"})).await
    }

    /// Replaces a file that has `sha256`.
    pub(crate) async fn replace(&self, path: &str, content: &str, sha256: &str) -> Answer {
        let input = json!({"path": path, "content": content, "expectedSha256": sha256, "reason": "test"});
        self.call("write_file", input).await
    }

    /// Applies a patch.
    pub(crate) async fn patch(&self, patch: &str) -> Answer {
        self.call("apply_patch", json!({"patch": patch, "reason": "test"})).await
    }

    /// The hash of the whole workspace diff.
    pub(crate) async fn diff_sha256(&self) -> String {
        self.ok("diff_workspace", json!({})).await["diffSha256"].as_str().unwrap().to_owned()
    }

    /// The run's whole audit, all pages.
    pub(crate) async fn audit(&self) -> Vec<Value> {
        let path = format!("/v1/runs/{}/audit?limit=1000", self.id);
        items(&self.operator, &path).await
    }

    /// The newest record.
    pub(crate) async fn last_record(&self) -> Value {
        self.audit().await.pop().expect("a record")
    }

    /// What the chain's check over HTTP says.
    pub(crate) async fn verify(&self) -> Value {
        self.operator.get(&format!("/v1/runs/{}/audit/verify", self.id)).await.ok()
    }

    /// The run as the operator sees it.
    pub(crate) async fn get(&self) -> Value {
        self.operator.get(&format!("/v1/runs/{}", self.id)).await.ok()
    }

    /// The diff of an artifact by its `artifact://` address.
    pub(crate) async fn artifact(&self, uri: &str) -> String {
        let id = uri.strip_prefix(&format!("artifact://{}/", self.id)).unwrap_or_else(|| panic!("{uri}"));
        let answer = self.operator.get(&format!("/v1/runs/{}/artifacts/{id}", self.id)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.header("content-type").starts_with("text/x-diff"), "{}", answer.header("content-type"));
        answer.text()
    }

    /// Waits until the import is done.
    pub(crate) async fn until_open(&self) -> Value {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let run = self.get().await;
            if run["state"] != "preparing" {
                assert_eq!(run["state"], "open", "{run:#}");
                return run;
            }
            assert!(Instant::now() < deadline, "still preparing: {run:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Writes into the tree from outside.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        put(&self.repo, path, content);
    }

    /// Makes a symbolic link in the tree from outside.
    pub(crate) fn link(&self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.repo.join(path)).unwrap();
    }

    /// The bytes on disk.
    #[track_caller]
    pub(crate) fn on_disk(&self, path: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.repo.join(path)).unwrap()).into_owned()
    }

    /// Everything in the tree.
    pub(crate) fn snapshot(&self) -> Snapshot {
        snapshot(&self.repo)
    }
}

/// All pages of a list.
pub(crate) async fn items(client: &Client, path: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let join = if path.contains('?') { '&' } else { '?' };
        let page = match &cursor {
            Some(cursor) => client.get(&format!("{path}{join}cursor={cursor}")).await.ok(),
            None => client.get(path).await.ok(),
        };
        all.extend(page["items"].as_array().unwrap_or_else(|| panic!("{path}: {page:#}")).iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return all,
        }
    }
}
