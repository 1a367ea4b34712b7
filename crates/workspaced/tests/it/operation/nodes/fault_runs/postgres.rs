//! A primary of PostgreSQL with a synchronous standby, which can be promoted.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};
use tokio::sync::OnceCell;

use crate::harness::{cleanup, free_port};

/// Settings of every server. The tests kill processes, not the machine.
const SETTINGS: [&str; 9] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    "max_connections=200",
    "shared_buffers=32MB",
    "wal_level=replica",
    "max_wal_senders=10",
    "dynamic_shared_memory_type=mmap",
];

/// Returns the command of one of PostgreSQL's programs, which runs as a user that is not root.
fn program(name: &str) -> Command {
    let variable = |name: &str| {
        std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set. Run `.ci/test`, which finds PostgreSQL."))
    };
    let mut command = Command::new(Path::new(&variable("WORKSPACED_TEST_POSTGRES_BIN")).join(name));
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// Returns the user and the group that PostgreSQL runs as, where the tests run as root.
fn owner() -> Option<(u32, u32)> {
    let owner = std::env::var("WORKSPACED_TEST_POSTGRES_OWNER").unwrap_or_default();
    let (user, group) = owner.split_once(':')?;
    Some((user.parse().unwrap(), group.parse().unwrap()))
}

/// Creates a folder for a cluster.
fn new_folder() -> PathBuf {
    let folder = cleanup::new_folder("pg");
    if let Some((user, group)) = owner() {
        // The user must be able to pass through the folder of all tests.
        std::fs::set_permissions(cleanup::base_folder(), std::fs::Permissions::from_mode(0o711)).unwrap();
        std::os::unix::fs::chown(&folder, Some(user), Some(group)).unwrap();
    }
    folder
}

fn run(command: &mut Command) {
    let done = tokio::task::block_in_place(|| command.output()).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Returns the files of an empty cluster, which are made once.
async fn template() -> &'static Path {
    static TEMPLATE: OnceCell<PathBuf> = OnceCell::const_new();
    let make = || async {
        let data = new_folder().join("data");
        run(program("initdb")
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data));
        data
    };
    TEMPLATE.get_or_init(make).await
}

/// A server process.
#[derive(Debug)]
struct Server {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Starts the server of the cluster in `folder`, and waits until it answers.
    async fn start(folder: PathBuf) -> Self {
        let port = free_port();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut command = program("postgres");
        command.arg("-D").arg(folder.join("data")).args(["-p", &port.to_string()]);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        cleanup::register_process(process.id());
        let server = Self { process, port, folder };
        let deadline = Instant::now() + Duration::from_mins(1);
        while PgConnection::connect(&server.url()).await.is_err() {
            let log = || std::fs::read_to_string(server.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "PostgreSQL does not start\n{}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        server
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    async fn execute(&self, statements: &[&str]) {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        for statement in statements {
            connection.execute(AssertSqlSafe((*statement).to_owned())).await.unwrap();
        }
    }

    /// Waits until a query returns a row.
    async fn until(&self, query: &'static str) {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        let deadline = Instant::now() + Duration::from_mins(1);
        while connection.fetch_all(query).await.unwrap().is_empty() {
            assert!(Instant::now() < deadline, "{query}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts a server that follows this one, and which each commit waits for from then on.
    async fn follow(&self) -> Self {
        let folder = new_folder();
        let (source, data) = (format!("host=127.0.0.1 port={} user=postgres", self.port), folder.join("data"));
        run(program("pg_basebackup")
            .args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", &source, "-D"])
            .arg(data));
        let standby = Self::start(folder).await;
        self.until("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'").await;
        self.execute(&["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"]).await;
        self.until("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").await;
        standby
    }

    fn end(&mut self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.process), signal);
        let _ = self.process.wait();
        cleanup::unregister_process(self.process.id());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An immediate shutdown, which leaves nothing in the memory of the machine.
        self.end(Signal::QUIT);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A primary and its synchronous standby.
#[derive(Debug)]
pub(crate) struct Postgres {
    primary: Server,
    standby: Option<Server>,
}

impl Postgres {
    pub(crate) async fn start() -> Self {
        let folder = new_folder();
        run(Command::new("cp").arg("-a").arg(template().await).arg(folder.join("data")));
        let primary = Server::start(folder).await;
        let standby = Some(primary.follow().await);
        Self { primary, standby }
    }

    /// Returns the address of the primary.
    pub(crate) fn address(&self) -> String {
        self.primary.address()
    }

    /// Returns the URL of a database that is reached at `address`.
    pub(crate) fn url_at(address: &str) -> String {
        format!("postgres://postgres@{address}/postgres")
    }

    /// Kills the primary and promotes the standby. Nothing follows it then.
    pub(crate) async fn promote(&mut self) {
        self.primary.end(Signal::KILL);
        let standby = self.standby.take().expect("a standby");
        let mut connection = PgConnection::connect(&standby.url()).await.unwrap();
        let promoted: bool = connection.fetch_one("SELECT pg_promote(true, 60)").await.unwrap().get(0);
        assert!(promoted, "the standby was not promoted");
        standby.execute(&["ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"]).await;
        self.primary = standby;
    }

    /// Starts a new standby.
    pub(crate) async fn replace_standby(&mut self) {
        self.standby = Some(self.primary.follow().await);
    }
}
