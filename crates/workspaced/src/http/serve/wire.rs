//! A connection with clocks: one that stands still is cut, whichever side of it is slow.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::http::pace::{MinRate, Pace};
use engine::limits::Limits;

/// Nothing has come yet.
const FRESH: u8 = 0;
/// A request's head is coming in.
const HEAD: u8 = 1;
/// A request is being answered. Its body has clocks of its own.
const BUSY: u8 = 2;
/// The last request is answered; the next has not begun.
const IDLE: u8 = 3;
/// The last request is answered without having been read to its end; there is no next one.
const UNREAD: u8 = 4;
/// How long a connection that ends with unread input waits for more of it.
const LINGER: Duration = Duration::from_secs(2);

/// What a connection waits for, known to both ends of it: the stream and the service.
#[derive(Clone, Debug)]
pub(super) struct Phase(Arc<AtomicU8>);

impl Phase {
    /// Of a connection that was just made.
    pub(super) fn fresh() -> Self {
        Self(Arc::new(AtomicU8::new(FRESH)))
    }

    /// A request's head is whole.
    pub(super) fn begin(&self) {
        self.0.store(BUSY, Ordering::Relaxed);
    }

    /// Of a connection whose input nobody reads.
    pub(super) fn unread() -> Self {
        Self(Arc::new(AtomicU8::new(UNREAD)))
    }

    fn end(&self, unread: bool) {
        self.0.store(if unread { UNREAD } else { IDLE }, Ordering::Relaxed);
    }

    /// Whether the connection, were it closed now, may leave input unread: half a head, or the rest of a body.
    fn leaves_input(&self) -> bool {
        matches!(self.get(), HEAD | UNREAD)
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long each phase may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    head: Duration,
    idle: Duration,
    write: MinRate,
}

impl Patience {
    /// The bounds of the settings.
    pub(super) fn of(limits: &Limits) -> Self {
        Self { head: limits.header_timeout, idle: limits.idle_timeout, write: MinRate::of(limits) }
    }

    /// The longest of all reads, for a clock that only has to be there.
    pub(super) fn longest_read(&self) -> Duration {
        self.head.max(self.idle) + Duration::from_secs(5)
    }
}

/// One clock, made when it is first needed.
#[derive(Debug, Default)]
struct Clock {
    sleep: Option<Pin<Box<Sleep>>>,
    /// When it was started, while it runs.
    started: Option<Instant>,
}

impl Clock {
    /// Starts the clock unless it runs, and tells whether its time is over.
    fn is_over(&mut self, patience: Duration, cx: &mut Context<'_>) -> bool {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        if self.started.is_none() {
            let now = Instant::now();
            self.started = Some(now);
            sleep.as_mut().reset(now + patience);
        }
        sleep.as_mut().poll(cx).is_ready()
    }

    /// Stops the clock, and says how long it ran.
    fn stop(&mut self) -> Duration {
        self.started.take().map_or(Duration::ZERO, |started| started.elapsed())
    }
}

/// A stream that fails when its phase lasts too long, or when the other side takes nothing or too little.
#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    phase: Phase,
    patience: Patience,
    read: Clock,
    /// The phase that `read` runs for.
    read_for: u8,
    write: Clock,
    /// Whether the sending side is closed.
    shut: bool,
    /// For all of what is read after that.
    linger: Clock,
    pace: Pace,
}

impl<S> Wire<S> {
    /// Puts clocks on `stream`.
    pub(super) fn new(stream: S, phase: Phase, patience: Patience) -> Self {
        let (read, write, linger) = (Clock::default(), Clock::default(), Clock::default());
        let pace = Pace::new(patience.write);
        Self { stream, phase, patience, read, read_for: FRESH, write, shut: false, linger, pace }
    }

    fn check_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let phase = self.phase.get();
        if phase != self.read_for {
            self.read_for = phase;
            self.read.stop();
        }
        let patience = match phase {
            FRESH | HEAD => self.patience.head,
            IDLE => self.patience.idle,
            _ => return Poll::Pending,
        };
        if self.read.is_over(patience, cx) { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
    }

    /// Passes on what a write came to; `sent` says how many bytes it took.
    fn check_write<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        sent: impl FnOnce(&T) -> usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let too_slow = match &written {
            Poll::Ready(Ok(done)) => !self.pace.keeps_up(self.write.stop(), sent(done) as u64),
            Poll::Ready(Err(_)) => false,
            Poll::Pending => self.write.is_over(self.patience.write.stall, cx),
        };
        if too_slow { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { written }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if Pin::new(&mut this.stream).poll_read(cx, buf)?.is_pending() {
            return this.check_read(cx);
        }
        // The head's clock starts with its first byte and is not wound up by the others.
        if buf.filled().len() > before && matches!(this.phase.get(), FRESH | IDLE) {
            this.phase.0.store(HEAD, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> Wire<S> {
    /// Discards input until the client closes its side, or for as long as patience has it. The system resets a connection
    /// that is closed with unread input, and the client of a connection that was reset may never read its answer.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut discarded = [0; 8 * 1024];
        loop {
            if self.linger.is_over(self.patience.write.stall, cx) {
                return Poll::Ready(());
            }
            let mut buf = ReadBuf::new(&mut discarded);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.read.stop();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.read.is_over(LINGER.min(self.patience.write.stall), cx) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.check_write(written, |sent| *sent, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.check_write(written, |sent| *sent, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.check_write(flushed, |()| 0, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.shut {
            let closed = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.check_write(closed, |()| 0, cx))?;
            this.shut = true;
            this.read.stop();
        }
        if this.phase.leaves_input() { this.poll_linger(cx).map(Ok) } else { Poll::Ready(Ok(())) }
    }
}

/// A response body that tells the connection when it has been handed over.
#[derive(Debug)]
pub(super) struct Told<B> {
    body: B,
    phase: Phase,
    unread: bool,
}

impl<B> Told<B> {
    /// Watches `body`, which answers a request that stays `unread` in part, or does not.
    pub(super) fn new(body: B, phase: Phase, unread: bool) -> Self {
        Self { body, phase, unread }
    }
}

impl<B> Drop for Told<B> {
    fn drop(&mut self) {
        self.phase.end(self.unread);
    }
}

impl<B: Body<Data: Buf> + Unpin> Body for Told<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.get_mut().body).poll_frame(cx));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const HEAD_MILLIS: u64 = 60;
    const IDLE_MILLIS: u64 = 240;
    const STALL_MILLIS: u64 = 60;
    const PATIENCE: Patience = Patience {
        head: Duration::from_millis(HEAD_MILLIS),
        idle: Duration::from_millis(IDLE_MILLIS),
        write: MinRate { stall: Duration::from_millis(STALL_MILLIS), bytes_a_second: 0 },
    };

    fn assert_timed_out<T: std::fmt::Debug>(result: io::Result<T>, started: Instant, at_least_millis: u64) {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_millis(at_least_millis), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_cut() {
        let (_client, server) = tokio::io::duplex(64);
        let started = Instant::now();
        let read = Wire::new(server, Phase::fresh(), PATIENCE).read_u8().await;
        assert_timed_out(read, started, HEAD_MILLIS);
    }

    #[tokio::test]
    async fn a_head_that_drips_is_cut_all_the_same() {
        let (mut client, server) = tokio::io::duplex(64);
        let started = Instant::now();
        tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(HEAD_MILLIS / 6)).await;
            }
        });
        let mut wire = Wire::new(server, Phase::fresh(), PATIENCE);
        assert_timed_out(wire.read_to_end(&mut Vec::new()).await, started, HEAD_MILLIS);
    }

    #[tokio::test]
    async fn an_idle_connection_has_longer_and_a_busy_one_no_bound() {
        let (mut client, server) = tokio::io::duplex(64);
        let phase = Phase::fresh();
        let mut wire = Wire::new(server, phase.clone(), PATIENCE);
        client.write_all(b"x").await.unwrap();
        wire.read_u8().await.unwrap();
        phase.begin();
        let longer = Duration::from_millis(IDLE_MILLIS * 2);
        assert!(tokio::time::timeout(longer, wire.read_u8()).await.is_err(), "busy: no bound");
        drop(Told::new((), phase, false));
        let started = Instant::now();
        assert_timed_out(wire.read_u8().await, started, IDLE_MILLIS);
    }

    #[tokio::test]
    async fn an_answer_that_is_taken_too_slowly_is_cut() {
        let (mut client, server) = tokio::io::duplex(64);
        // A window of waiting is four times the standstill; in each more than a second is counted.
        let write = MinRate { stall: Duration::from_millis(300), bytes_a_second: 1_000_000 };
        let mut wire = Wire::new(server, Phase::fresh(), Patience { write, ..PATIENCE });
        tokio::spawn(async move {
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let started = Instant::now();
        assert_timed_out(wire.write_all(&vec![0; 1 << 20]).await, started, 1200);
    }

    #[tokio::test]
    async fn an_answer_that_nobody_takes_is_cut() {
        let (client, server) = tokio::io::duplex(64);
        let mut wire = Wire::new(server, Phase::fresh(), PATIENCE);
        let started = Instant::now();
        assert_timed_out(wire.write_all(&[0; 65]).await, started, STALL_MILLIS);
        drop(client);
    }

    #[tokio::test]
    async fn what_is_sent_to_a_connection_that_ends_is_taken_until_the_client_is_done() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut wire = Wire::new(server, Phase::unread(), PATIENCE);
        let ended = tokio::spawn(async move { wire.shutdown().await });
        client.write_all(&[0; 1000]).await.unwrap();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "the end is announced first");
        drop(client);
        ended.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_never_ends_does_not_hold_a_connection_that_ends() {
        for pause in [Duration::from_millis(STALL_MILLIS / 6), Duration::from_millis(STALL_MILLIS * 2)] {
            let (mut client, server) = tokio::io::duplex(64);
            tokio::spawn(async move {
                while client.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
            });
            Wire::new(server, Phase::unread(), PATIENCE).shutdown().await.unwrap();
        }
    }
}
