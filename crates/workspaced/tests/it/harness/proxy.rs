//! The way to a database, which can be cut, and be slow.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};

use super::reaper;

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Every piece takes so long.
    Slow(Duration),
    /// Connections stay open, and nothing comes through.
    Silent,
    /// Connections are closed, and new ones are closed at once.
    Cut,
    /// A connection on which a commit is asked for is closed towards the client. The server is asked as soon as the way is open
    /// again; until then its transaction stays as it is.
    Doubt,
}

/// A Unix socket that leads to the PostgreSQL of `url`.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// The same database, by way of the proxy.
    pub(crate) url: String,
    way: watch::Sender<Way>,
    task: tokio::task::JoinHandle<()>,
}

/// Where PostgreSQL listens.
#[derive(Clone, Debug)]
enum Server {
    Socket(PathBuf),
    Address(String),
}

impl Proxy {
    pub(crate) fn start(url: &str) -> Self {
        let folder = reaper::new_folder("p");
        let (server, url) = reroute(url, folder.to_str().unwrap());
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let (way, watched) = watch::channel(Way::Open);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server.clone(), watched.clone()));
            }
        });
        Self { url, way, task }
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send(way).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where `url` leads to, and a URL of the same database that leads to `folder`.
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
    let (folder, mut kept) = (format!("host={folder}"), options.clone());
    kept.retain(|pair| !pair.starts_with("host=") && !pair.starts_with("port="));
    kept.insert(0, &folder);
    let at = if user.is_empty() { String::new() } else { format!("{user}@") };
    (server, format!("postgres://{at}/{name}?{}", kept.join("&")))
}

async fn forward(client: UnixStream, server: Server, mut way: watch::Receiver<Way>) {
    if *way.borrow() == Way::Cut {
        return;
    }
    let other = way.clone();
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
        _ = way.wait_for(|way| *way == Way::Cut) => {}
    }
}

/// Copies in both directions until both have ended.
async fn join(
    client: UnixStream,
    back: impl AsyncRead + Unpin,
    there: impl AsyncWrite + Unpin,
    way: watch::Receiver<Way>,
) {
    let (from, to) = client.into_split();
    let (caught, watched) = (Notify::new(), way.clone());
    let answers = async {
        tokio::select! {
            () = copy(back, to, watched) => {}
            // The client's half is dropped with this: nobody is told of the outcome.
            () = caught.notified() => {}
        }
    };
    tokio::join!(copy_of_client(from, there, way, &caught), answers);
}

/// How a commit is asked for.
const COMMIT: &[u8] = b"COMMIT\0";

/// Copies what the client says; at a commit under [`Way::Doubt`] the client is let go.
async fn copy_of_client(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut way: watch::Receiver<Way>,
    caught: &Notify,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        let now = *way.borrow();
        match now {
            Way::Slow(pause) => tokio::time::sleep(pause).await,
            Way::Doubt if buffer[..count].windows(COMMIT.len()).any(|bytes| bytes == COMMIT) => {
                caught.notify_one();
                if way.wait_for(|way| *way == Way::Open).await.is_err() {
                    return;
                }
            }
            _ => {}
        }
        if way.wait_for(|way| *way != Way::Silent).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut way: watch::Receiver<Way>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        let now = *way.borrow();
        if let Way::Slow(pause) = now {
            tokio::time::sleep(pause).await;
        }
        if way.wait_for(|way| *way != Way::Silent).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

#[test]
fn a_database_s_address_leads_through_the_proxy() {
    let table = [
        ("postgres:///it?host=/tmp/x&user=postgres", "/tmp/x/.s.PGSQL.5432", "postgres:///it?host=/p&user=postgres"),
        ("postgres://me:secret@db.example:5433/it", "db.example:5433", "postgres://me:secret@/it?host=/p"),
        ("postgres://db.example/it", "db.example:5432", "postgres:///it?host=/p"),
    ];
    for (url, leads_to, want) in table {
        let (server, url) = reroute(url, "/p");
        let place = match server {
            Server::Socket(path) => path.display().to_string(),
            Server::Address(address) => address,
        };
        assert_eq!((place.as_str(), url.as_str()), (leads_to, want));
    }
}
