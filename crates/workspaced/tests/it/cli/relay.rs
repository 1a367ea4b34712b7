//! A relay between a client and a service, whose address stays the same while the service restarts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to a service.
pub(super) struct Relay {
    pub(super) url: String,
    target: watch::Sender<String>,
    lost_answers: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub(super) async fn start(base: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (target, watched) = watch::channel(base.trim_start_matches("http://").to_owned());
        let lost_answers = Arc::new(AtomicU32::new(0));
        let lost = Arc::clone(&lost_answers);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = watched.borrow().clone();
                let take_one = |count: u32| count.checked_sub(1);
                let loses_answer = lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one).is_ok();
                tokio::spawn(forward(client, target, loses_answer));
            }
        });
        Self { url, target, lost_answers, task }
    }

    /// Forwards new connections to another address.
    pub(super) fn set_target(&self, base: &str) {
        self.target.send(base.trim_start_matches("http://").to_owned()).unwrap();
    }

    /// Closes the next connections as soon as the service answers, without the answer.
    pub(super) fn lose_answers(&self, count: u32) {
        self.lost_answers.store(count, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut client: TcpStream, target: String, loses_answer: bool) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    if !loses_answer {
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        return;
    }
    let (mut request, mut answer) = (vec![0; 64 * 1024], [0]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read {
                Ok(count) if count > 0 => server.write_all(&request[..count]).await.unwrap(),
                _ => return,
            },
            _ = server.read(&mut answer) => return,
        }
    }
}
