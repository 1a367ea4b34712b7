//! The stage: a server with a temporary data folder, a plain server beside it, source trees, runs.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::api::{Api, RunHandle};
use crate::args::Options;
use crate::client::{Connection, prepare};
use crate::load::{Http, Script};
use crate::process::Server;
use crate::text::hex;
use crate::tree;

/// Everything that measures share. What is temporary goes with it.
pub(crate) struct Stage {
    /// How to measure.
    pub(crate) options: Options,
    /// One thread for all connections: the client must not take the server's cores.
    pub(crate) runtime: Runtime,
    /// The operator's plane.
    pub(crate) api: Api,
    /// The run of the big tree, once it was imported.
    pub(crate) tree_run: OnceCell<RunHandle>,
    tree: OnceCell<PathBuf>,
    // Servers end before their folders go: fields are dropped in this order.
    server: Option<Server>,
    plain: Option<Server>,
    dufs: Option<Server>,
    place: Place,
}

/// Where temporary things are.
pub(crate) struct Place {
    folder: TempDir,
    token: String,
}

impl Place {
    /// A new folder where `options` want it.
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let mut folder = tempfile::Builder::new();
        folder.prefix("bench-");
        let folder = match &options.scratch {
            Some(scratch) => folder.tempdir_in(scratch)?,
            None => folder.tempdir()?,
        };
        for name in ["data", "sources", "limits"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let mut secret = [0; 32];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut secret)?;
        Ok(Self { folder, token: options.token.clone().unwrap_or_else(|| hex(&secret)) })
    }

    /// The server's data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What runs are made from.
    pub(crate) fn sources(&self) -> PathBuf {
        self.folder.path().join("sources")
    }

    /// A folder for `limit`, made here.
    pub(crate) fn limit(&self, limit: &str) -> anyhow::Result<PathBuf> {
        let folder = self.folder.path().join("limits").join(limit);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Speaks to a server that was started here.
    pub(crate) fn api(&self, server: &Server) -> Api {
        Api::new(server.address, self.token.clone())
    }

    /// Starts the service on a free port with its data in `data`.
    pub(crate) fn start(&self, options: &Options, data: &Path) -> anyhow::Result<Server> {
        let binary = match &options.server {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()?.with_file_name("workspaced"),
        };
        anyhow::ensure!(
            binary.exists(),
            "{} is missing: build it with `cargo build --release -p workspaced`, or name one by --server",
            binary.display()
        );
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WORKSPACED_")) {
            command.env_remove(name);
        }
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .env("WORKSPACED_OPERATOR_TOKEN", &self.token);
        command.arg("--import-root").arg(self.sources());
        for root in options.corpus.iter().chain(outside(&options.tree).as_ref()) {
            command.arg("--import-root").arg(std::path::absolute(root)?);
        }
        if options.backend != "sqlite" {
            command.args(["--database-url", &options.backend]);
        }
        command.args(&options.server_arg);
        Server::start(&mut command, &self.folder.path().join("server.log"))
    }

    /// Starts the plain server on a free port, over `root`.
    pub(crate) fn start_plain(&self, root: &Path) -> anyhow::Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        Server::start(command.arg("plain").arg(root), &self.folder.path().join("plain.log"))
    }

    /// Starts the file server `binary` on a free port, over a folder of its own.
    fn start_dufs(&self, binary: &Path) -> anyhow::Result<Server> {
        // It does not tell which port it was given, so one is found first.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut command = Command::new(binary);
        command.args(["--allow-all", "--log-format=", "--bind=127.0.0.1", "--port", &port]).arg(self.limit("dufs")?);
        Server::start(&mut command, &self.folder.path().join("dufs.log"))
    }
}

/// A tree that is named by its folder.
fn outside(tree: &str) -> Option<PathBuf> {
    (!["medium", "big"].contains(&tree)).then(|| PathBuf::from(tree))
}

impl Stage {
    /// Starts the servers.
    pub(crate) fn set(options: &Options) -> anyhow::Result<Self> {
        let place = Place::new(options)?;
        let runtime = client_runtime()?;
        let (server, api) = if let Some(url) = &options.url {
            let address = url.trim_start_matches("http://").trim_end_matches('/');
            let address = address.parse().with_context(|| format!("--url {url}: http://ADDRESS:PORT"))?;
            (None, Api::new(address, place.token.clone()))
        } else {
            let server = place.start(options, &place.data())?;
            let api = place.api(&server);
            (Some(server), api)
        };
        let plain = place.start_plain(&place.sources())?;
        let dufs = options.dufs.as_deref().map(|binary| place.start_dufs(binary)).transpose()?;
        Ok(Self {
            options: options.clone(),
            runtime,
            api,
            tree_run: OnceCell::new(),
            tree: OnceCell::new(),
            server,
            plain: Some(plain),
            dufs,
            place,
        })
    }

    /// Where temporary things are.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The server's process, where it was started here.
    pub(crate) fn server_id(&self) -> Option<u32> {
        self.server.as_ref().map(Server::id)
    }

    /// Calls of the service, one script for each connection.
    pub(crate) fn service(&self, name: impl Into<String>, scripts: Vec<Script>) -> Http<'_> {
        Http::new(name.into(), &self.runtime, self.api.address, self.server_id(), scripts)
    }

    /// The same request to the plain server over every connection.
    pub(crate) fn plain(&self, name: &str, path: &str, input: &Value) -> anyhow::Result<Http<'_>> {
        let plain = self.plain.as_ref().context("no plain server")?;
        let script = || Ok(Script::new(vec![prepare(Method::POST, path, "", input.to_string())?]));
        let scripts = (0..self.most_connections()).map(|_| script()).collect::<anyhow::Result<_>>()?;
        Ok(Http::new(name.to_owned(), &self.runtime, plain.address, Some(plain.id()), scripts))
    }

    /// Files of `content` sent to dufs, one for each connection; `None` where it is not to be measured.
    pub(crate) fn dufs(&self, name: &str, content: &str) -> anyhow::Result<Option<Http<'_>>> {
        let Some(dufs) = &self.dufs else { return Ok(None) };
        let script = |worker| {
            Ok(Script::new(vec![prepare(Method::PUT, &format!("/harbor_{worker:02}.rs"), "", content.to_owned())?]))
        };
        let scripts = (0..self.most_connections()).map(script).collect::<anyhow::Result<_>>()?;
        Ok(Some(Http::new(name.to_owned(), &self.runtime, dufs.address, Some(dufs.id()), scripts)))
    }

    /// One request to the plain server.
    pub(crate) fn ask_plain(&self, path: &str, input: &Value) -> anyhow::Result<Value> {
        let address = self.plain.as_ref().context("no plain server")?.address;
        let request = prepare(Method::POST, path, "", input.to_string())?;
        let (_, body) = self.runtime.block_on(async { Connection::open(address).await?.send(&request).await })?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// The most connections of any figure.
    pub(crate) fn most_connections(&self) -> usize {
        self.options.connections.iter().copied().max().unwrap_or(1)
    }

    /// Makes a run from a folder of `files` by their paths.
    pub(crate) fn run_of(&self, name: &str, files: &[(String, String)]) -> anyhow::Result<RunHandle> {
        let folder = self.place.sources().join(name);
        for (path, content) in files {
            let file = folder.join(path);
            std::fs::create_dir_all(file.parent().unwrap_or(&folder))?;
            std::fs::write(file, content)?;
        }
        self.runtime.block_on(self.api.make_run(&json!({ "type": "directory", "path": folder })))
    }

    /// One tool call.
    pub(crate) fn tool(&self, run: &RunHandle, tool: &str, input: &Value) -> anyhow::Result<Value> {
        self.runtime.block_on(self.api.tool(run, tool, input))
    }

    /// The folder of the big tree; made up the first time where no corpus was given.
    pub(crate) fn tree(&self) -> anyhow::Result<&Path> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let tree = match (outside(&self.options.tree), &self.options.corpus) {
            (Some(tree), _) => std::path::absolute(tree)?,
            (None, Some(corpus)) => std::path::absolute(corpus)?.join(&self.options.tree),
            (None, None) => {
                let folder = self.place.sources().join(&self.options.tree);
                let (files, bytes) = if self.options.tree == "medium" { (1_200, 12) } else { (20_000, 400) };
                tree::make(&folder, files, bytes * 1_000_000)?;
                folder
            }
        };
        Ok(self.tree.get_or_init(|| tree))
    }

    /// The tree of `run` as it lies on the disk, where the server was started here.
    pub(crate) fn tree_of(&self, run: &RunHandle) -> Option<PathBuf> {
        self.server.as_ref().map(|_| self.place.data().join("workspaces").join(&run.id).join("repo"))
    }
}

/// One thread, so that the client takes as little as it can.
pub(crate) fn client_runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
