//! Creates runs and calls their tools.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::{Answer, Backend, Client, Server, cleanup, names_in, sha256, snapshot, until};

/// A run with the clients of its agent and its operator.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// Calls with the run token.
    pub(crate) agent: Client,
    /// Calls with the operator's token.
    pub(crate) operator: Client,
    /// The tree on disk.
    pub(crate) repo: PathBuf,
    /// The answer of `POST /v1/runs`.
    pub(crate) created: Value,
}

/// Every path under a folder: the mode and content hash of files, the target of links.
pub(crate) type Snapshot = BTreeMap<String, String>;

impl Server {
    /// Creates a run with the members of `extra`. The source is empty by default.
    pub(crate) async fn run(&self, extra: Value) -> Run {
        let mut body = extra;
        body.as_object_mut().unwrap().entry("source").or_insert(json!({"type": "empty"}));
        let created = self.operator().post("/v1/runs", body).await.is(201);
        self.run_from(&created).await
    }

    /// Creates a run from a folder with `files`, with the members of `extra`.
    pub(crate) async fn run_with_files(&self, files: &[(&str, &str)], extra: Value) -> Run {
        // Build output is written after the import, so that the base does not have it.
        let (build_output, files): (Vec<_>, Vec<_>) =
            files.iter().copied().partition(|(path, _)| is_build_output(path));
        let template = self.template(&files);
        let mut body = extra;
        body["source"] = json!({"type": "directory", "path": template});
        let run = self.run(body).await;
        for (path, content) in build_output {
            run.put(path, content);
        }
        run
    }

    /// Creates a run from a git repository with `files`. Returns the repository too.
    pub(crate) async fn run_from_git(&self, files: &[(&str, &str)], extra: Value) -> (Run, PathBuf) {
        let (folder, _) = self.repository(files);
        let mut body = extra;
        body["source"] = json!({"type": "git", "url": folder});
        (self.run(body).await, folder)
    }

    /// Returns the run of an answer of `POST /v1/runs`. Waits until it is open, unless it needs an archive.
    pub(crate) async fn run_from(&self, created: &Value) -> Run {
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

    /// Returns the same run with clients for the server's current address, which changes at a restart.
    pub(crate) fn reconnect(&self, run: &Run) -> Run {
        Run { agent: Client::new(&self.base, run.agent.token.as_deref()), operator: self.operator(), ..run.clone() }
    }

    /// Creates a folder with `files` under the import root.
    pub(crate) fn template(&self, files: &[(&str, &str)]) -> PathBuf {
        let new = cleanup::new_folder("t");
        let folder = self.import_root().join(new.file_name().unwrap());
        std::fs::rename(new, &folder).unwrap();
        for (path, content) in files {
            put(&folder, path, content);
        }
        folder
    }

    /// Creates a repository with `files` under the import root. Returns the folder and the commit.
    pub(crate) fn repository(&self, files: &[(&str, &str)]) -> (PathBuf, String) {
        let folder = self.template(files);
        git(&folder, &["init", "-q", "-b", "main"]);
        let commit = commit_all(&folder, "first");
        (folder, commit)
    }
}

/// Returns a command of git in `folder`, with a configuration of the tests alone.
pub(crate) fn git_command(folder: &Path) -> Command {
    static CONFIG: OnceLock<PathBuf> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let config = cleanup::new_folder("git").join("config");
        // The repository of this project may belong to another user, which git takes from no command line.
        let text = "[user]\nname = Test\nemail = test@example.org\n[safe]\ndirectory = *\n";
        std::fs::write(&config, text).unwrap();
        config
    });
    let mut git = Command::new("git");
    git.current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    git.env("GIT_CONFIG_GLOBAL", config).env("GIT_CONFIG_NOSYSTEM", "1");
    git
}

/// Runs git in `folder` and returns its output.
#[track_caller]
pub(crate) fn git(folder: &Path, args: &[&str]) -> String {
    let done = git_command(folder).args(args).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).strip_suffix('\n').unwrap_or_default().to_owned()
}

/// Commits all files of `folder`, including ignored ones, and returns the commit.
pub(crate) fn commit_all(folder: &Path, message: &str) -> String {
    git(folder, &["add", "-A", "-f", "."]);
    git(folder, &["commit", "-q", "--allow-empty", "-m", message]);
    git(folder, &["rev-parse", "HEAD"])
}

/// Writes `content` to `path` under `folder`. Creates missing folders.
pub(crate) fn put(folder: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(path);
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn is_build_output(path: &str) -> bool {
    let top = path.split('/').next().unwrap_or_default();
    path.contains('/') && ["target", "build", "dist"].iter().any(|name| top.eq_ignore_ascii_case(name))
}

/// Returns a tar archive of regular files.
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

/// Compresses `bytes` with gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

impl Run {
    /// Creates a run with `files` on the shared server.
    pub(crate) async fn shared(backend: Backend, files: &[(&str, &str)]) -> (Arc<Server>, Self) {
        Self::shared_with(backend, files, json!({})).await
    }

    /// Creates a run with `files` and the members of `extra` on the shared server.
    pub(crate) async fn shared_with(backend: Backend, files: &[(&str, &str)], extra: Value) -> (Arc<Server>, Self) {
        let server = Server::shared(backend).await;
        let run = server.run_with_files(files, extra).await;
        (server, run)
    }

    /// Calls a tool as the agent.
    pub(crate) async fn call(&self, tool: &str, input: Value) -> Answer {
        self.agent.post(&format!("/v1/runs/{}/tools/{tool}", self.id), input).await
    }

    /// Calls a tool as the agent, for the model's view.
    pub(crate) async fn text(&self, tool: &str, input: Value) -> Answer {
        let path = format!("/v1/runs/{}/tools/{tool}", self.id);
        let request = self.agent.request(reqwest::Method::POST, &path).header("accept", "text/plain");
        self.agent.send(request.json(&input)).await
    }

    /// Calls a tool as the agent and asserts success.
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

    /// Replaces a file whose content has `sha256`.
    pub(crate) async fn replace(&self, path: &str, content: &str, sha256: &str) -> Answer {
        let input = json!({"path": path, "content": content, "expectedSha256": sha256, "reason": "test"});
        self.call("write_file", input).await
    }

    /// Applies a patch.
    pub(crate) async fn patch(&self, patch: &str) -> Answer {
        self.call("apply_patch", json!({"patch": patch, "reason": "test"})).await
    }

    /// Replaces a text in a file, with the members of `extra` in the input.
    pub(crate) async fn edit(&self, path: &str, old: &str, new: &str, extra: Value) -> Answer {
        let mut input = json!({"path": path, "oldString": old, "newString": new, "reason": "r"});
        input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        self.call("edit_file", input).await
    }

    /// Sends an atomic batch.
    pub(crate) async fn batch(&self, calls: Value) -> Answer {
        self.agent.post(&format!("/v1/runs/{}/batch", self.id), json!({"atomic": true, "calls": calls})).await
    }

    /// Returns the hash of the paths that differ from the base, as the contract defines it, from the files of the diff.
    pub(crate) async fn diff_sha256(&self) -> String {
        let diff = self.ok("diff_workspace", json!({"statOnly": true})).await;
        let line = |file: &Value| {
            let path = file["path"].as_str().unwrap();
            let Some(sha256) = file["newSha256"].as_str() else { return format!("{path}\x00000000\x00-\n") };
            let metadata = std::fs::symlink_metadata(self.file(path)).unwrap();
            let mode = match metadata.permissions().mode() {
                _ if metadata.is_symlink() => "120000",
                mode if mode & 0o111 == 0 => "100644",
                _ => "100755",
            };
            format!("{path}\0{mode}\0{sha256}\n")
        };
        let lines: String = diff["files"].as_array().unwrap().iter().map(line).collect();
        sha256(&lines)
    }

    /// Returns all records of the run.
    pub(crate) async fn audit(&self) -> Vec<Value> {
        let path = format!("/v1/runs/{}/audit?limit=1000", self.id);
        items(&self.operator, &path).await
    }

    /// Returns the records of the run's calls: all but those of operations on the run and its tokens, such as `run.create`,
    /// which is the first record of every run.
    pub(crate) async fn calls(&self) -> Vec<Value> {
        let is_call = |record: &Value| {
            let tool = record["tool"].as_str().unwrap();
            !tool.starts_with("run.") && !tool.starts_with("token.")
        };
        self.audit().await.into_iter().filter(is_call).collect()
    }

    /// Returns the newest record.
    pub(crate) async fn last_record(&self) -> Value {
        self.audit().await.pop().expect("a record")
    }

    /// Returns the report of the chain verification over HTTP.
    pub(crate) async fn verify(&self) -> Value {
        self.operator.get(&format!("/v1/runs/{}/audit/verify", self.id)).await.ok()
    }

    /// Returns the run as the operator sees it.
    pub(crate) async fn get(&self) -> Value {
        self.operator.get(&format!("/v1/runs/{}", self.id)).await.ok()
    }

    /// Returns the diff at an `artifact://` URI.
    pub(crate) async fn artifact(&self, uri: &str) -> String {
        let id = uri.strip_prefix(&format!("artifact://{}/", self.id)).unwrap_or_else(|| panic!("{uri}"));
        let answer = self.operator.get(&format!("/v1/runs/{}/artifacts/{id}", self.id)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.header("content-type").starts_with("text/x-diff"), "{}", answer.header("content-type"));
        answer.text()
    }

    /// Waits until the import is complete.
    pub(crate) async fn until_open(&self) -> Value {
        let run = until("the import is complete", async || {
            let run = self.get().await;
            if run["state"] == "preparing" { Err(run) } else { Ok(run) }
        })
        .await;
        assert_eq!(run["import"]["progress"], "done", "{run:#}");
        // A slow machine sees a brief run after its end.
        let is_expired = run["state"] == "closed" && run["closedAt"].as_str() >= run["expiresAt"].as_str();
        assert!(run["state"] == "open" || is_expired, "{run:#}");
        run
    }

    /// Writes a file into the tree, bypassing the service.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        put(&self.repo, path, content);
    }

    /// Has the service record every file that was put into the tree, as an operator.
    pub(crate) async fn accept_tree(&self) {
        let path = format!("/v1/runs/{}/drift", self.id);
        self.operator.post(&path, json!({"accept": "tree", "reason": "put there by the test"})).await.ok();
    }

    /// Creates a symbolic link in the tree, bypassing the service.
    pub(crate) fn link(&self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.repo.join(path)).unwrap();
    }

    /// Returns where a file is: among the run's own files, or in its base.
    pub(crate) fn file(&self, path: impl AsRef<Path>) -> PathBuf {
        let (own, in_base) = (self.repo.join(&path), self.base_tree().join(&path));
        if own.symlink_metadata().is_err() && in_base.symlink_metadata().is_ok() { in_base } else { own }
    }

    /// Returns the folder of the run's base, which other runs share.
    pub(crate) fn base(&self) -> PathBuf {
        let workspace = self.repo.parent().unwrap();
        let id = std::fs::read_to_string(workspace.join("base")).unwrap();
        workspace.join("../../bases").join(id.trim_end())
    }

    /// Returns a folder beside the data folder with the files of the run's base, which is written when it is first asked for.
    pub(crate) fn base_tree(&self) -> PathBuf {
        let base = self.base().canonicalize().unwrap();
        let data = base.parent().unwrap().parent().unwrap();
        let tree = data.with_file_name("base-trees").join(base.file_name().unwrap());
        if tree.exists() {
            return tree;
        }
        let files = workspace::Workspaces::open_to_read(data).unwrap();
        let files = files.base(&model::RunId::parse(&self.id).unwrap()).unwrap();
        std::fs::create_dir_all(tree.parent().unwrap()).unwrap();
        let staged = tempfile::tempdir_in(tree.parent().unwrap()).unwrap();
        for file in files.files().unwrap() {
            let (to, bytes) =
                (staged.path().join(file.path.as_str()), files.read(&file.path, u64::MAX).unwrap().unwrap());
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            if file.is_link {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&bytes), to).unwrap();
            } else {
                std::fs::write(&to, bytes).unwrap();
                std::fs::set_permissions(to, std::fs::Permissions::from_mode(file.mode)).unwrap();
            }
        }
        // Another test of the same server may have made it meanwhile.
        let _ = std::fs::rename(staged.keep(), &tree);
        tree
    }

    /// Makes the files of the base the run's own, as a program does that writes into the tree and bypasses the service.
    pub(crate) fn own(&self, paths: &[&str]) {
        for path in paths {
            let (from, to) = (self.base_tree().join(path), self.repo.join(path));
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(from, to).unwrap();
        }
    }

    /// Whether the run has a file or a folder at `path`.
    pub(crate) async fn has(&self, path: &str) -> bool {
        self.ok("stat_path", json!({"path": path})).await["exists"] == true
    }

    /// Returns the files and links that the run has, of those that are not hidden, as [`files`](Self::files) does.
    pub(crate) async fn present_files(&self) -> Snapshot {
        let archive = self.operator.get(&format!("/v1/runs/{}/archive", self.id)).await;
        assert_eq!(archive.status, 200, "{}", archive.text());
        let names = names_in(&archive.body);
        self.files().into_iter().filter(|(path, _)| names.contains(path)).collect()
    }

    /// Returns the content on disk. A link of the run may lead to a file of the base.
    #[track_caller]
    pub(crate) fn on_disk(&self, path: &str) -> String {
        if let Ok(target) = std::fs::read_link(self.repo.join(path))
            && !self.repo.join(path).exists()
        {
            return self.on_disk(Path::new(path).with_file_name(target).to_str().unwrap());
        }
        String::from_utf8_lossy(&std::fs::read(self.file(path)).unwrap()).into_owned()
    }

    /// Returns the files and links on disk, without folders. Those of the base are among them, also those that the run has removed.
    pub(crate) fn files(&self) -> Snapshot {
        self.snapshot().into_iter().filter(|(_, entry)| entry != "directory").collect()
    }

    /// Returns every path on disk. Those of the base are among them, also those that the run has removed.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut found = snapshot(&self.base_tree());
        found.extend(snapshot(&self.repo));
        found
    }
}

/// Returns the items of all pages of a list.
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
