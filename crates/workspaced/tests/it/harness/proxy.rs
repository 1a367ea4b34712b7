//! A proxy to PostgreSQL that can delay, block and cut connections.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};

use super::cleanup;

/// How the proxy treats connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyMode {
    Open,
    /// Each chunk is delayed.
    Slow(Duration),
    /// Connections stay open and forward nothing.
    Silent,
    /// Open and new connections are closed.
    Cut,
    /// A connection that requests a commit is closed towards the client. The proxy forwards the commit when the mode is
    /// `Open` again. The transaction stays open until then.
    HoldCommit,
}

/// A Unix socket that forwards to a PostgreSQL server.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// The URL of the database through the proxy.
    pub(crate) url: String,
    mode: watch::Sender<ProxyMode>,
    task: tokio::task::JoinHandle<()>,
}

/// The address of the PostgreSQL server.
#[derive(Clone, Debug)]
enum Server {
    Socket(PathBuf),
    Address(String),
}

impl Proxy {
    pub(crate) fn start(url: &str) -> Self {
        let folder = cleanup::new_folder("p");
        let (server, url) = reroute(url, folder.to_str().unwrap());
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let (mode, watched) = watch::channel(ProxyMode::Open);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server.clone(), watched.clone()));
            }
        });
        Self { url, mode, task }
    }

    pub(crate) fn set(&self, mode: ProxyMode) {
        self.mode.send(mode).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the server of `url`, and a URL of the same database that connects to `folder`.
fn reroute(url: &str, folder: &str) -> (Server, String) {
    let (before, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = before.split_once("://").unwrap().1;
    let (authority, name) = rest.split_once('/').unwrap();
    let options: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    let option = |name: &str| options.iter().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let (user, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    let port = option("port").unwrap_or("5432");
    let server = match option("host") {
        Some(host) if host.starts_with('/') => Server::Socket(PathBuf::from(format!("{host}/.s.PGSQL.{port}"))),
        Some(host) => Server::Address(format!("{host}:{port}")),
        None if address.contains(':') => Server::Address(address.to_owned()),
        None => Server::Address(format!("{address}:{port}")),
    };
    let (folder, mut remaining) = (format!("host={folder}"), options.clone());
    remaining.retain(|pair| !pair.starts_with("host=") && !pair.starts_with("port="));
    remaining.insert(0, &folder);
    let at = if user.is_empty() { String::new() } else { format!("{user}@") };
    (server, format!("postgres://{at}/{name}?{}", remaining.join("&")))
}

async fn forward(client: UnixStream, server: Server, mut mode: watch::Receiver<ProxyMode>) {
    if *mode.borrow() == ProxyMode::Cut {
        return;
    }
    let other = mode.clone();
    let forwarded = async {
        match server {
            Server::Socket(path) => {
                let (back, there) = UnixStream::connect(path).await.unwrap().into_split();
                join(client, back, there, other).await;
            }
            Server::Address(address) => {
                let (back, there) = TcpStream::connect(address).await.unwrap().into_split();
                join(client, back, there, other).await;
            }
        }
    };
    tokio::select! {
        () = forwarded => {}
        _ = mode.wait_for(|mode| *mode == ProxyMode::Cut) => {}
    }
}

/// Copies in both directions until both have ended.
async fn join(
    client: UnixStream,
    back: impl AsyncRead + Unpin,
    there: impl AsyncWrite + Unpin,
    mode: watch::Receiver<ProxyMode>,
) {
    let (from, to) = client.into_split();
    let (caught, watched) = (Notify::new(), mode.clone());
    let answers = async {
        tokio::select! {
            () = copy(back, to, watched) => {}
            // Dropping the client's half hides the outcome from the client.
            () = caught.notified() => {}
        }
    };
    tokio::join!(copy_of_client(from, there, mode, &caught), answers);
}

/// How the messages that request a commit end: alone, or with a query after it.
const COMMITS: [&[u8]; 2] = [b"COMMIT\0", b"COMMIT; EXECUTE settled_position\0"];

fn is_commit(bytes: &[u8]) -> bool {
    COMMITS.iter().any(|commit| memchr::memmem::find(bytes, commit).is_some())
}

/// Copies from the client. Drops the client at a commit under [`ProxyMode::HoldCommit`].
async fn copy_of_client(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut mode: watch::Receiver<ProxyMode>,
    caught: &Notify,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        let now = *mode.borrow();
        match now {
            ProxyMode::Slow(pause) => tokio::time::sleep(pause).await,
            ProxyMode::HoldCommit if is_commit(&buffer[..count]) => {
                caught.notify_one();
                if mode.wait_for(|mode| *mode == ProxyMode::Open).await.is_err() {
                    return;
                }
            }
            _ => {}
        }
        if mode.wait_for(|mode| *mode != ProxyMode::Silent).await.is_err()
            || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut mode: watch::Receiver<ProxyMode>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        let now = *mode.borrow();
        if let ProxyMode::Slow(pause) = now {
            tokio::time::sleep(pause).await;
        }
        if mode.wait_for(|mode| *mode != ProxyMode::Silent).await.is_err()
            || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
    let _ = to.shutdown().await;
}

#[test]
fn a_database_url_is_rewritten_to_the_proxy() {
    let table = [
        ("postgres:///it?host=/tmp/x&user=postgres", "/tmp/x/.s.PGSQL.5432", "postgres:///it?host=/p&user=postgres"),
        ("postgres://me:secret@db.example:5433/it", "db.example:5433", "postgres://me:secret@/it?host=/p"),
        ("postgres://db.example/it", "db.example:5432", "postgres:///it?host=/p"),
    ];
    for (url, server_address, want) in table {
        let (server, url) = reroute(url, "/p");
        let address = match server {
            Server::Socket(path) => path.display().to_string(),
            Server::Address(address) => address,
        };
        assert_eq!((address.as_str(), url.as_str()), (server_address, want));
    }
}
