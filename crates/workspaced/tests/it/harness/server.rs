//! The server process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, mpsc};

use reqwest::Method;
use rustix::process::{PTracer, Pid, Signal, kill_process, set_ptracer};
use serde_json::Value;
use tokio::sync::Mutex;

use super::waiting::{PATIENCE, until_blocking};
use super::{Backend, Client, Database, Run, cleanup};

/// Settings of a server that differ from the defaults.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) backend: Backend,
    /// Additional arguments of `serve`.
    pub(crate) args: Vec<String>,
    /// Additional environment variables.
    pub(crate) env: Vec<(String, String)>,
}

impl Setup {
    pub(crate) fn new(backend: Backend) -> Self {
        Self { backend, args: Vec::new(), env: Vec::new() }
    }

    pub(crate) fn arg(mut self, flag: &str, value: impl std::fmt::Display) -> Self {
        self.args.extend([flag.to_owned(), format!("{value}")]);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A server with its own data folder, import root and database. The drop removes all three.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) setup: Setup,
    /// The folder of `data/`, `import/` and the logs.
    pub(crate) home: PathBuf,
    pub(crate) database: Database,
    pub(crate) operator_token: String,
    pub(crate) audit_token: String,
    /// `http://ADDRESS`, as printed by the server.
    pub(crate) base: String,
    /// What the process has printed up to its address.
    pub(crate) printed: String,
    process: Option<Child>,
}

/// Returns a command for the program with an empty environment. `WORKSPACED_TEST_PROGRAM` names another build of it.
pub(crate) fn workspaced() -> Command {
    let built = env!("CARGO_BIN_EXE_workspaced");
    let mut command = Command::new(std::env::var_os("WORKSPACED_TEST_PROGRAM").unwrap_or_else(|| built.into()));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Returns the program that is copied into sandboxes, which the tests of its crate build.
pub(crate) fn shim() -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_workspaced")).with_file_name("workspaced-shim");
    assert!(program.is_file(), "build it first: cargo build --workspace");
    program.to_str().unwrap().to_owned()
}

impl Server {
    /// Returns the server shared by all tests that need only their own run.
    pub(crate) async fn shared(backend: Backend) -> Arc<Self> {
        static SHARED: [Mutex<Option<Arc<Server>>>; 2] = [Mutex::const_new(None), Mutex::const_new(None)];
        let mut shared = SHARED[backend as usize].lock().await;
        match shared.as_ref().filter(|server| server.answers()) {
            Some(server) => Arc::clone(server),
            // The test that ended the shared server has failed. The others continue with a new one.
            None => Arc::clone(shared.insert(Arc::new(Self::start(backend).await))),
        }
    }

    /// Starts a server for one test.
    pub(crate) async fn start(backend: Backend) -> Self {
        Self::start_with(Setup::new(backend)).await
    }

    /// Starts a server for one test with the settings of `setup`.
    pub(crate) async fn start_with(setup: Setup) -> Self {
        let mut server = Self::prepare(setup).await;
        server.restart();
        server
    }

    /// Starts a server with a failpoint file. Text written to the file arms a failpoint at run time.
    pub(crate) async fn start_armed(setup: Setup) -> (Self, PathBuf) {
        let mut server = Self::prepare(setup).await;
        // The sandbox lets the process read its data folder.
        let file = server.data_dir().join("failpoint");
        server.setup = server.setup.clone().env("WORKSPACED_FAILPOINT", &format!("@{}", file.display()));
        server.restart();
        (server, file)
    }

    /// Starts a server with a clock file: so many seconds as it says have passed.
    pub(crate) async fn start_with_clock(setup: Setup) -> (Self, PathBuf) {
        let mut server = Self::prepare(setup).await;
        let file = server.add_clock();
        server.restart();
        (server, file)
    }

    /// Gives the next process a clock file.
    pub(crate) fn add_clock(&mut self) -> PathBuf {
        let file = self.data_dir().join("clock");
        self.setup = self.setup.clone().env("WORKSPACED_CLOCK", file.to_str().unwrap());
        file
    }

    /// Prepares the folders and the database. [`Server::restart`] starts the process.
    pub(crate) async fn prepare(setup: Setup) -> Self {
        let home = cleanup::new_folder("s");
        for folder in ["data", "import"] {
            std::fs::create_dir(home.join(folder)).unwrap();
        }
        let database = Database::create_for_server(setup.backend, &home.join("data")).await;
        Self {
            operator_token: secret('0'),
            audit_token: secret('a'),
            base: String::new(),
            printed: String::new(),
            process: None,
            setup,
            home,
            database,
        }
    }

    /// As [`Self::prepare`], with a database that has no tables yet.
    pub(crate) async fn prepare_empty(setup: Setup) -> Self {
        let mut server = Self::prepare(setup).await;
        server.database = Database::create(server.setup.backend, &server.data_dir()).await;
        server
    }

    /// Starts the process on the same data. The port changes.
    pub(crate) fn restart(&mut self) {
        assert!(self.process.is_none(), "the server is already running");
        let mut command = self.command("serve");
        command.args(["--listen", "127.0.0.1:0"]).args(&self.setup.args);
        self.start_as(command);
    }

    /// Starts `command` as the process of this server.
    pub(crate) fn start_as(&mut self, command: Command) {
        self.try_start_as(command).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Starts `command` as the process of this server. Returns what it printed if it does not start.
    pub(crate) fn try_start_as(&mut self, mut command: Command) -> Result<(), String> {
        allow_strace(&mut command);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path()).unwrap();
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        cleanup::register_process(process.id());
        let stdout = process.stdout.take().unwrap();
        self.process = Some(process);
        match listening(stdout) {
            Ok((base, printed)) => (self.base, self.printed) = (base, printed),
            Err(printed) => {
                self.kill();
                return Err(format!("the server did not start: {printed}\n{}", self.log()));
            }
        }
        Ok(())
    }

    /// Returns the command `name` of the program with this server's data, database and secrets.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = workspaced();
        command
            .arg(name)
            .env("WORKSPACED_DATA_DIR", self.data_dir())
            .env("WORKSPACED_DATABASE_URL", &self.database.url)
            .env("WORKSPACED_IMPORT_ROOTS", self.import_root())
            .env("WORKSPACED_OPERATOR_TOKEN", &self.operator_token)
            .env("WORKSPACED_AUDIT_TOKEN", &self.audit_token)
            .envs(self.setup.env.iter().cloned());
        command
    }

    /// Runs `workspaced verify` on this server's data.
    pub(crate) fn verify(&self, args: &[&str]) -> Output {
        self.command("verify").args(args).output().unwrap()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.home.join("data")
    }

    pub(crate) fn import_root(&self) -> PathBuf {
        self.home.join("import")
    }

    /// Returns the path of a run's tree, for files that no tool can create.
    pub(crate) fn repo(&self, run: &str) -> PathBuf {
        self.workspace(run).join("repo")
    }

    /// Returns the path of a run's folder.
    pub(crate) fn workspace(&self, run: &str) -> PathBuf {
        self.data_dir().join("workspaces").join(run)
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.as_ref().expect("a running server").id()
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.home.join("log")
    }

    fn answers(&self) -> bool {
        std::net::TcpStream::connect(self.base.trim_start_matches("http://")).is_ok()
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            process.wait().unwrap();
            cleanup::unregister_process(process.id());
        }
    }

    /// Sends SIGTERM and waits for the process to end.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.process.as_ref().expect("a running server")), signal).unwrap();
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        assert!(self.process.is_some(), "a running server");
        until_blocking("the server ends", || self.has_ended().ok_or_else(|| self.log()))
    }

    /// Returns how the process has ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        let process = self.process.as_mut()?;
        let status = process.try_wait().unwrap()?;
        cleanup::unregister_process(process.id());
        self.process = None;
        Some(status)
    }

    /// Returns whether SIGKILL has ended the process.
    pub(crate) fn was_killed(&mut self) -> bool {
        let status = self.has_ended();
        if let Some(status) = status {
            assert_eq!(status.signal(), Some(9), "{status}\n{}", self.log());
        }
        status.is_some()
    }

    /// Restarts the server with a failpoint after the journal commit, and sends a call to `run`, which kills the server: its
    /// change is journalled and not applied.
    pub(crate) async fn kill_before_apply(&mut self, run: &Run, tool: &str, input: &Value) {
        self.kill();
        self.setup.env = vec![("WORKSPACED_FAILPOINT".into(), "transaction.committed".into())];
        self.restart();
        self.setup.env.clear();
        let agent = self.reconnect(run).agent;
        let call = agent.request(Method::POST, &format!("/v1/runs/{}/tools/{tool}", run.id)).json(input);
        assert!(agent.try_send(call).await.is_err(), "the server survived the failpoint");
        self.wait();
    }

    /// Waits until every change is synced and the journal is empty.
    pub(crate) async fn until_journal_is_empty(&self) {
        self.until("the journal is empty", async || self.database.pending_steps().await == 0).await;
    }

    pub(crate) fn operator(&self) -> Client {
        Client::new(&self.base, Some(&self.operator_token))
    }

    pub(crate) fn auditor(&self) -> Client {
        Client::new(&self.base, Some(&self.audit_token))
    }

    pub(crate) fn nobody(&self) -> Client {
        Client::new(&self.base, None)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// Lets strace attach to the process, which some systems allow to the ancestors of a process alone.
fn allow_strace(command: &mut Command) {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() == "1" {
        let allow = || Ok(set_ptracer(PTracer::Any)?);
        #[expect(unsafe_code, reason = "the closure makes one system call, which is allowed between fork and exec")]
        unsafe {
            command.pre_exec(allow);
        }
    }
}

/// Returns a random secret of 64 characters.
fn secret(mark: char) -> String {
    let random = std::collections::hash_map::RandomState::new();
    let number = std::hash::BuildHasher::hash_one(&random, mark);
    format!("{mark}{number:016x}").repeat(4)[..64].to_owned()
}

/// Returns the address that the server prints, and what it prints up to there. A thread reads the rest of the output, so that the pipe
/// never fills.
fn listening(stdout: impl std::io::Read + Send + 'static) -> Result<(String, String), String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout);
        let mut printed = String::new();
        while lines.read_line(&mut printed).is_ok_and(|read| read > 0) {
            if let Some(address) = printed.lines().last().and_then(|line| line.strip_prefix("listening on ")) {
                let _ = sender.send(Ok((address.trim().to_owned(), printed.clone())));
                let _ = std::io::copy(&mut lines.by_ref(), &mut std::io::sink());
                return;
            }
        }
        let _ = sender.send(Err(printed));
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(format!("no address within {PATIENCE:?}")))
}
