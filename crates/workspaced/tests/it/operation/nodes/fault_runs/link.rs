//! A TCP way that a test can cut, silence, delay and turn to another address.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to the bytes on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Connections stay open, and nothing is forwarded until the link is open again.
    Silent,
    /// Open and new connections are closed.
    Cut,
    /// Each chunk is delayed.
    Slow(Duration),
}

#[derive(Clone, Debug)]
struct State {
    way: Way,
    to: String,
    /// How often open connections were closed.
    cuts: u64,
}

/// A way to an address.
#[derive(Debug)]
pub(crate) struct Link {
    /// Where the way begins.
    pub(crate) address: String,
    state: watch::Sender<State>,
    task: tokio::task::JoinHandle<()>,
}

impl Link {
    /// Forwards connections to `to`.
    pub(crate) async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (state, watched) = watch::channel(State { way: Way::Open, to, cuts: 0 });
        let task = tokio::spawn(async move {
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(forward(client, watched.clone()));
                }
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn set(&self, way: Way) {
        self.state.send_modify(|state| {
            state.cuts += u64::from(way == Way::Cut);
            state.way = way;
        });
    }

    /// Closes open connections, and forwards new ones to `to`.
    pub(crate) fn turn(&self, to: &str) {
        self.state.send_modify(|state| {
            state.cuts += 1;
            to.clone_into(&mut state.to);
        });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(client: TcpStream, mut state: watch::Receiver<State>) {
    let State { way, to, cuts } = state.borrow().clone();
    if way == Way::Cut {
        return;
    }
    let mut watched = state.clone();
    let forwarded = async move {
        if watched.wait_for(|state| state.way != Way::Silent).await.is_err() {
            return;
        }
        let Ok(server) = TcpStream::connect(to).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        tokio::join!(copy(from_client, to_server, watched.clone()), copy(from_server, to_client, watched));
    };
    tokio::select! {
        biased;
        _ = state.wait_for(|state| state.cuts != cuts) => {}
        () = forwarded => {}
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut state: watch::Receiver<State>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let way = state.borrow().way;
        if let Way::Slow(pause) = way {
            tokio::time::sleep(pause).await;
        }
        if state.wait_for(|state| state.way != Way::Silent).await.is_err()
            || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
    let _ = to.shutdown().await;
}
