//! The testbed: a server with a temporary data folder, baseline servers, source trees and runs.

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

/// What measurements share. Servers and temporary files are removed on drop.
pub(crate) struct Testbed {
    /// The options.
    pub(crate) options: Options,
    /// A single-threaded runtime for all connections, so that the client leaves the cores to the server.
    pub(crate) runtime: Runtime,
    /// The API with the operator's token.
    pub(crate) api: Api,
    /// The run of the source tree, once it is imported.
    pub(crate) tree_run: OnceCell<RunHandle>,
    tree: OnceCell<PathBuf>,
    // Fields are dropped in this order: servers end before their folders are removed.
    server: Option<Server>,
    plain: Option<Server>,
    dufs: Option<Server>,
    scratch: Scratch,
}

/// The folder of temporary files, and the operator token of servers that are started here.
pub(crate) struct Scratch {
    folder: TempDir,
    token: String,
}

impl Scratch {
    /// Creates a new folder under `--scratch`, or under the system's temporary folder.
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let mut folder = tempfile::Builder::new();
        folder.prefix("bench-");
        let folder = match &options.scratch {
            Some(scratch) => folder.tempdir_in(scratch)?,
            None => folder.tempdir()?,
        };
        for name in ["data", "sources", "baselines"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let mut secret = [0; 32];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut secret)?;
        Ok(Self { folder, token: options.token.clone().unwrap_or_else(|| hex(&secret)) })
    }

    /// Returns the server's data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the folder of the runs' sources.
    pub(crate) fn sources(&self) -> PathBuf {
        self.folder.path().join("sources")
    }

    /// Creates the folder of a baseline.
    pub(crate) fn baseline_folder(&self, baseline: &str) -> anyhow::Result<PathBuf> {
        let folder = self.folder.path().join("baselines").join(baseline);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Returns the API of a server that was started here.
    pub(crate) fn api(&self, server: &Server) -> Api {
        Api::new(server.address, self.token.clone())
    }

    /// Returns the operator's token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the program under measurement.
    pub(crate) fn program(options: &Options) -> anyhow::Result<PathBuf> {
        let binary = match &options.server {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()?.with_file_name("workspaced"),
        };
        anyhow::ensure!(
            binary.exists(),
            "{} does not exist: build it with `cargo build --release -p workspaced --features object-store`, or name one with --server",
            binary.display()
        );
        Ok(binary)
    }

    /// Starts the service on a free port with its data in `data`.
    pub(crate) fn start(&self, options: &Options, data: &Path) -> anyhow::Result<Server> {
        self.start_at(options, data, "127.0.0.1:0")
    }

    /// As [`start`](Self::start), on the address `listen`.
    pub(crate) fn start_at(&self, options: &Options, data: &Path, listen: &str) -> anyhow::Result<Server> {
        let mut command = Command::new(Self::program(options)?);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WORKSPACED_")) {
            command.env_remove(name);
        }
        command
            .args(["serve", "--listen", listen, "--data-dir"])
            .arg(data)
            .env("WORKSPACED_OPERATOR_TOKEN", &self.token);
        command.arg("--import-root").arg(self.sources());
        for root in options.corpus.iter().chain(tree_folder(&options.tree).as_ref()) {
            command.arg("--import-root").arg(std::path::absolute(root)?);
        }
        if options.backend != "sqlite" {
            command.args(["--database-url", &options.backend]);
        }
        command.args(&options.server_arg);
        Server::start(&mut command, &self.folder.path().join("server.log"))
    }

    /// Starts the plain server on a free port, with `root` as its folder.
    pub(crate) fn start_plain(&self, root: &Path) -> anyhow::Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        Server::start(command.arg("plain").arg(root), &self.folder.path().join("plain.log"))
    }

    /// Starts dufs on a free port, with its own folder.
    fn start_dufs(&self, binary: &Path) -> anyhow::Result<Server> {
        // dufs does not print the port that it was assigned, so a free one is chosen first.
        let port = free_address()?.rsplit(':').next().unwrap_or_default().to_owned();
        let mut command = Command::new(binary);
        command
            .args(["--allow-all", "--log-format=", "--bind=127.0.0.1", "--port", &port])
            .arg(self.baseline_folder("dufs")?);
        Server::start(&mut command, &self.folder.path().join("dufs.log"))
    }
}

/// Returns the folder of a tree that is given as a folder.
fn tree_folder(tree: &str) -> Option<PathBuf> {
    (!["medium", "big"].contains(&tree)).then(|| PathBuf::from(tree))
}

impl Testbed {
    /// Starts the servers.
    pub(crate) fn start(options: &Options) -> anyhow::Result<Self> {
        let scratch = Scratch::new(options)?;
        let runtime = client_runtime()?;
        let (server, api) = if let Some(url) = &options.url {
            let address = url.trim_start_matches("http://").trim_end_matches('/');
            let address = address.parse().with_context(|| format!("--url {url}: http://ADDRESS:PORT"))?;
            (None, Api::new(address, scratch.token.clone()))
        } else {
            let server = scratch.start(options, &scratch.data())?;
            let api = scratch.api(&server);
            (Some(server), api)
        };
        let plain = scratch.start_plain(&scratch.sources())?;
        let dufs = options.dufs.as_deref().map(|binary| scratch.start_dufs(binary)).transpose()?;
        Ok(Self {
            options: options.clone(),
            runtime,
            api,
            tree_run: OnceCell::new(),
            tree: OnceCell::new(),
            server,
            plain: Some(plain),
            dufs,
            scratch,
        })
    }

    /// Stops the server that was started here, and waits for its end.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        self.server.as_mut().map_or(Ok(()), Server::stop)
    }

    /// Starts the server again over its data, on a new address.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.stop()?;
        let server = self.scratch.start(&self.options, &self.scratch.data())?;
        self.api = self.scratch.api(&server);
        self.server = Some(server);
        Ok(())
    }

    /// Returns the folder of temporary files.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Returns the server's process ID, if it was started here.
    pub(crate) fn server_id(&self) -> Option<u32> {
        self.server.as_ref().map(Server::id)
    }

    /// Returns calls of the service, with one script per connection.
    pub(crate) fn service(&self, name: impl Into<String>, scripts: Vec<Script>) -> Http<'_> {
        Http::new(name.into(), &self.runtime, vec![(self.api.address, self.server_id())], scripts)
    }

    /// Returns calls of the plain server: the same request over every connection.
    pub(crate) fn plain(&self, name: &str, path: &str, input: &Value) -> anyhow::Result<Http<'_>> {
        let plain = self.plain.as_ref().context("no plain server")?;
        let script = || Ok(Script::new(vec![prepare(Method::POST, path, "", input.to_string())?]));
        let scripts = (0..self.max_connections()).map(|_| script()).collect::<anyhow::Result<_>>()?;
        Ok(Http::new(name.to_owned(), &self.runtime, vec![(plain.address, Some(plain.id()))], scripts))
    }

    /// Returns uploads of `content` to dufs, one file per connection, if dufs was given.
    pub(crate) fn dufs(&self, name: &str, content: &str) -> anyhow::Result<Option<Http<'_>>> {
        let Some(dufs) = &self.dufs else { return Ok(None) };
        let script = |worker| {
            Ok(Script::new(vec![prepare(Method::PUT, &format!("/harbor_{worker:02}.rs"), "", content.to_owned())?]))
        };
        let scripts = (0..self.max_connections()).map(script).collect::<anyhow::Result<_>>()?;
        Ok(Some(Http::new(name.to_owned(), &self.runtime, vec![(dufs.address, Some(dufs.id()))], scripts)))
    }

    /// Sends one request to the plain server.
    pub(crate) fn call_plain(&self, path: &str, input: &Value) -> anyhow::Result<Value> {
        let address = self.plain.as_ref().context("no plain server")?.address;
        let request = prepare(Method::POST, path, "", input.to_string())?;
        let (_, body) = self.runtime.block_on(async { Connection::open(address).await?.send(&request).await })?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Returns the largest number of connections of any figure.
    pub(crate) fn max_connections(&self) -> usize {
        self.options.connections.iter().copied().max().unwrap_or(1)
    }

    /// Creates a run from a folder with `files`, given as paths and contents.
    pub(crate) fn create_run(&self, name: &str, files: &[(String, String)]) -> anyhow::Result<RunHandle> {
        let folder = self.scratch.sources().join(name);
        for (path, content) in files {
            let file = folder.join(path);
            std::fs::create_dir_all(file.parent().unwrap_or(&folder))?;
            std::fs::write(file, content)?;
        }
        self.runtime.block_on(self.api.create_run(&json!({ "type": "directory", "path": folder })))
    }

    /// Calls a tool.
    pub(crate) fn tool(&self, run: &RunHandle, tool: &str, input: &Value) -> anyhow::Result<Value> {
        self.runtime.block_on(self.api.tool(run, tool, input))
    }

    /// Returns the folder of the source tree, which is generated on first use if no corpus was given.
    pub(crate) fn tree(&self) -> anyhow::Result<&Path> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let tree = match (tree_folder(&self.options.tree), &self.options.corpus) {
            (Some(tree), _) => std::path::absolute(tree)?,
            (None, Some(corpus)) => std::path::absolute(corpus)?.join(&self.options.tree),
            (None, None) => {
                let folder = self.scratch.sources().join(&self.options.tree);
                let (files, bytes) = if self.options.tree == "medium" { (1_200, 12) } else { (20_000, 400) };
                tree::generate(&folder, files, bytes * 1_000_000)?;
                folder
            }
        };
        Ok(self.tree.get_or_init(|| tree))
    }
}

/// Returns an address on loopback with a port that is free now.
pub(crate) fn free_address() -> std::io::Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Returns a single-threaded runtime, so that the client uses little processor time.
pub(crate) fn client_runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
