//! A connection with timeouts, whether the client is slow to send or slow to receive.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use hyper::body::{Body, Frame, SizeHint};
use shared_pool::Party;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::http::serve::frames::{Frames, Received};
use crate::http::transfer::{MinRate, RateMeter};
use config::http_limits::HttpLimits;

/// Nothing was received yet.
const NEW: u8 = 0;
/// The head of a request is being received.
const HEAD: u8 = 1;
/// A request is being answered. Its body has timeouts of its own.
const BUSY: u8 = 2;
/// The last request is answered; the next has not begun.
const IDLE: u8 = 3;
/// The last request is answered but was not read to its end; there is no next one.
const UNREAD: u8 = 4;
/// How long a connection that closes with unread input waits for more of it.
const LINGER: Duration = Duration::from_secs(2);

/// What a connection waits for. Shared between the stream and the service.
#[derive(Clone, Debug)]
pub(crate) struct Phase(Arc<SharedPhase>);

#[derive(Debug)]
struct SharedPhase {
    phase: AtomicU8,
    /// Milliseconds of the process's time at which the connection was opened, or its last request began or was answered.
    since: AtomicU64,
    /// The party of the last valid token; 0 before any.
    user: AtomicU64,
    /// Requests in progress over HTTP/2. Over HTTP/1 there is at most one, of which `phase` tells.
    streams: AtomicU32,
}

impl Phase {
    fn of(phase: u8) -> Self {
        Self(Arc::new(SharedPhase {
            phase: AtomicU8::new(phase),
            since: AtomicU64::new(process_millis()),
            user: AtomicU64::new(0),
            streams: AtomicU32::new(0),
        }))
    }

    /// Makes the phase of a new connection.
    pub(crate) fn new() -> Self {
        Self::of(NEW)
    }

    /// Makes the phase of a connection whose input is not read.
    pub(crate) fn unread() -> Self {
        Self::of(UNREAD)
    }

    /// Notes that the head of a request is complete.
    pub(crate) fn begin_response(&self) {
        self.set(BUSY);
    }

    pub(crate) fn end_response(&self, unread: bool) {
        self.set(if unread { UNREAD } else { IDLE });
    }

    /// Notes that the head of a request over HTTP/2 is complete.
    pub(crate) fn begin_stream(&self) {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        self.set(BUSY);
    }

    /// Notes that a request over HTTP/2 is answered.
    pub(crate) fn end_stream(&self) {
        // The last request that ends began before, so that its end is the last to be noted.
        if self.0.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.set(IDLE);
        }
    }

    /// Whether a connection of HTTP/2 answers a request.
    pub(crate) fn is_answering(&self) -> bool {
        self.0.streams.load(Ordering::Relaxed) > 0
    }

    /// Returns how long a connection of HTTP/2 may still wait for a request; `None` while it answers one.
    pub(crate) fn time_left(&self, timeouts: &Timeouts) -> Option<Duration> {
        if self.is_answering() {
            return None;
        }
        let timeout = if matches!(self.get(), NEW | HEAD) { timeouts.head } else { timeouts.idle };
        Some(timeout.saturating_sub(self.waited()))
    }

    /// Returns how long the connection waits, or answers its request.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_millis(process_millis().saturating_sub(self.since()))
    }

    /// Notes that a request has shown a valid token.
    pub(crate) fn identify(&self, party: Party) {
        self.0.user.store(party.id().max(1), Ordering::Relaxed);
    }

    /// Returns the party of the last valid token; `None` before any.
    pub(crate) fn user(&self) -> Option<u64> {
        Some(self.0.user.load(Ordering::Relaxed)).filter(|user| *user > 0)
    }

    /// Returns since when the connection waits, or answers its request: milliseconds of the process's time.
    pub(crate) fn since(&self) -> u64 {
        self.0.since.load(Ordering::Relaxed)
    }

    /// Whether the connection waits for its next request.
    pub(crate) fn is_idle(&self) -> bool {
        self.get() == IDLE && !self.is_answering()
    }

    fn set(&self, phase: u8) {
        self.0.since.store(process_millis(), Ordering::Relaxed);
        self.0.phase.store(phase, Ordering::Relaxed);
    }

    /// Returns whether closing the connection now may leave input unread: half a head, or the rest of a body.
    fn has_unread_input(&self) -> bool {
        matches!(self.get(), HEAD | UNREAD)
    }

    fn get(&self) -> u8 {
        self.0.phase.load(Ordering::Relaxed)
    }
}

/// Returns the milliseconds since the process has used this first.
fn process_millis() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// How long each phase may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    head: Duration,
    pub(crate) idle: Duration,
    pub(crate) write: MinRate,
}

impl Timeouts {
    /// Returns the timeouts of the settings.
    pub(crate) fn of(limits: &HttpLimits) -> Self {
        Self { head: limits.header_timeout, idle: limits.idle_timeout, write: MinRate::of(limits) }
    }

    /// Returns a timeout that is longer than that of any read.
    pub(crate) fn longest_read(&self) -> Duration {
        self.head.max(self.idle) + Duration::from_secs(5)
    }
}

/// A timer that is allocated when it is first started.
#[derive(Debug, Default)]
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// When it was started, while it runs.
    started: Option<Instant>,
}

impl Timer {
    /// Starts the timer unless it runs, and returns whether it has expired. Wakes the task when it does.
    fn poll_expired(&mut self, timeout: Duration, cx: &mut Context<'_>) -> bool {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        if self.started.is_none() {
            let now = Instant::now();
            self.started = Some(now);
            sleep.as_mut().reset(now + timeout);
        }
        sleep.as_mut().poll(cx).is_ready()
    }

    /// Stops the timer and returns how long it ran.
    fn stop(&mut self) -> Duration {
        self.started.take().map_or(Duration::ZERO, |started| started.elapsed())
    }
}

/// A stream that fails when its phase lasts too long, or when the client receives too slowly.
#[derive(Debug)]
pub(crate) struct TimeoutStream<S> {
    stream: S,
    phase: Phase,
    timeouts: Timeouts,
    read: Timer,
    /// The phase that `read` runs for.
    read_for: u8,
    /// Input that was received to recognise the protocol.
    unread: Vec<u8>,
    /// The frames of a connection of HTTP/2. Whether it has requests is then not told by its bytes.
    frames: Option<Box<Frames>>,
    write: Timer,
    write_rate: RateMeter,
    /// Whether the sending side is closed.
    is_shut_down: bool,
    /// Limits the whole of reading after that.
    linger: Timer,
}

impl<S> TimeoutStream<S> {
    /// Applies `timeouts` to `stream`.
    pub(crate) fn new(stream: S, phase: Phase, timeouts: Timeouts) -> Self {
        let (read, write, linger) = (Timer::default(), Timer::default(), Timer::default());
        let write_rate = RateMeter::new(timeouts.write);
        Self {
            stream,
            phase,
            timeouts,
            read,
            read_for: NEW,
            unread: Vec::new(),
            frames: None,
            write,
            write_rate,
            is_shut_down: false,
            linger,
        }
    }

    /// Lets `input`, which was received, be read again.
    pub(crate) fn put_back(&mut self, input: Vec<u8>) {
        self.unread = input;
    }

    /// Reads frames of HTTP/2 from now on, beginning with its preface. The phase no longer follows from what is received.
    pub(crate) fn expect_frames(&mut self) {
        self.frames = Some(Box::new(Frames::new()));
        self.read.stop();
    }

    fn check_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(frames) = &self.frames {
            if !frames.is_incomplete() {
                self.read.stop();
                return Poll::Pending;
            }
            let is_late = self.read.poll_expired(self.timeouts.head, cx);
            return if is_late { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending };
        }
        let phase = self.phase.get();
        if phase != self.read_for {
            self.read_for = phase;
            self.read.stop();
        }
        let timeout = match phase {
            NEW | HEAD => self.timeouts.head,
            IDLE => self.timeouts.idle,
            _ => return Poll::Pending,
        };
        if self.read.poll_expired(timeout, cx) {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        } else {
            Poll::Pending
        }
    }

    /// Returns the result of a write unless it was too slow. `sent` returns the number of bytes that were written.
    fn check_write<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        sent: impl FnOnce(&T) -> usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let too_slow = match &written {
            Poll::Ready(Ok(done)) => !self.write_rate.record(self.write.stop(), sent(done) as u64),
            Poll::Ready(Err(_)) => false,
            Poll::Pending => self.write.poll_expired(self.timeouts.write.stall_timeout, cx),
        };
        if too_slow { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { written }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if !this.unread.is_empty() {
            let length = this.unread.len().min(buf.remaining());
            buf.put_slice(&this.unread[..length]);
            this.unread.drain(..length);
            if this.unread.is_empty() {
                this.unread = Vec::new();
            }
        } else if Pin::new(&mut this.stream).poll_read(cx, buf)?.is_pending() {
            return this.check_read(cx);
        }
        if let Some(frames) = &mut this.frames {
            match frames.receive(&buf.filled()[before..]) {
                Received::Part => {}
                Received::Complete => drop(this.read.stop()),
                Received::Flood => {
                    tracing::debug!("connection closed: too many control frames");
                    return Poll::Ready(Err(io::Error::other("too many control frames")));
                }
            }
            return Poll::Ready(Ok(()));
        }
        // The head's timeout starts with its first byte; later bytes do not restart it.
        if buf.filled().len() > before && matches!(this.phase.get(), NEW | IDLE) {
            // The time stays that of the phase before: who sends heads slowly waits for no longer.
            this.phase.0.phase.store(HEAD, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> TimeoutStream<S> {
    /// Discards input until the client closes its side or a timeout expires. The kernel resets a connection that is closed
    /// with unread input, and the client of a reset connection may never read its response.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut discarded = [0; 8 * 1024];
        loop {
            if self.linger.poll_expired(self.timeouts.write.stall_timeout, cx) {
                return Poll::Ready(());
            }
            let mut buf = ReadBuf::new(&mut discarded);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.read.stop();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.read.poll_expired(LINGER.min(self.timeouts.write.stall_timeout), cx) => {
                    return Poll::Ready(());
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
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
        if !this.is_shut_down {
            let closed = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.check_write(closed, |()| 0, cx))?;
            this.is_shut_down = true;
            this.read.stop();
        }
        if this.phase.has_unread_input() { this.poll_linger(cx).map(Ok) } else { Poll::Ready(Ok(())) }
    }
}

/// A response body that ends the response in the connection's phase when it is dropped.
#[derive(Debug)]
pub(crate) struct NotifyOnDropBody<B> {
    body: B,
    phase: Phase,
    unread: bool,
}

impl<B> NotifyOnDropBody<B> {
    /// Wraps `body`. `unread` says whether a part of the request stays unread.
    pub(crate) fn new(body: B, phase: Phase, unread: bool) -> Self {
        Self { body, phase, unread }
    }
}

impl<B> Drop for NotifyOnDropBody<B> {
    fn drop(&mut self) {
        self.phase.end_response(self.unread);
    }
}

impl<B: Body<Data: Buf> + Unpin> Body for NotifyOnDropBody<B> {
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
    const TIMEOUTS: Timeouts = Timeouts {
        head: Duration::from_millis(HEAD_MILLIS),
        idle: Duration::from_millis(IDLE_MILLIS),
        write: MinRate { stall_timeout: Duration::from_millis(STALL_MILLIS), bytes_per_second: 0 },
    };

    fn assert_timed_out<T: std::fmt::Debug>(result: io::Result<T>, started: Instant, at_least_millis: u64) {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_millis(at_least_millis), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn a_connection_that_sends_nothing_times_out() {
        let (_client, server) = tokio::io::duplex(64);
        let started = Instant::now();
        let read = TimeoutStream::new(server, Phase::new(), TIMEOUTS).read_u8().await;
        assert_timed_out(read, started, HEAD_MILLIS);
    }

    #[tokio::test]
    async fn a_head_that_arrives_slowly_times_out() {
        let (mut client, server) = tokio::io::duplex(64);
        let started = Instant::now();
        tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(HEAD_MILLIS / 6)).await;
            }
        });
        let mut stream = TimeoutStream::new(server, Phase::new(), TIMEOUTS);
        assert_timed_out(stream.read_to_end(&mut Vec::new()).await, started, HEAD_MILLIS);
    }

    #[tokio::test]
    async fn an_idle_connection_has_a_longer_timeout_and_a_busy_one_none() {
        let (mut client, server) = tokio::io::duplex(64);
        let phase = Phase::new();
        let mut stream = TimeoutStream::new(server, phase.clone(), TIMEOUTS);
        client.write_all(b"x").await.unwrap();
        stream.read_u8().await.unwrap();
        phase.begin_response();
        let longer = Duration::from_millis(IDLE_MILLIS * 2);
        assert!(tokio::time::timeout(longer, stream.read_u8()).await.is_err(), "busy: no timeout");
        drop(NotifyOnDropBody::new((), phase, false));
        let started = Instant::now();
        assert_timed_out(stream.read_u8().await, started, IDLE_MILLIS);
    }

    #[tokio::test]
    async fn a_response_that_is_received_too_slowly_times_out() {
        let (mut client, server) = tokio::io::duplex(64);
        // The rate is checked after four stall timeouts of waiting, in whole seconds.
        let write = MinRate { stall_timeout: Duration::from_millis(300), bytes_per_second: 1_000_000 };
        let mut stream = TimeoutStream::new(server, Phase::new(), Timeouts { write, ..TIMEOUTS });
        tokio::spawn(async move {
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let started = Instant::now();
        assert_timed_out(stream.write_all(&vec![0; 1 << 20]).await, started, 1200);
    }

    #[tokio::test]
    async fn a_response_that_is_not_received_times_out() {
        let (client, server) = tokio::io::duplex(64);
        let mut stream = TimeoutStream::new(server, Phase::new(), TIMEOUTS);
        let started = Instant::now();
        assert_timed_out(stream.write_all(&[0; 65]).await, started, STALL_MILLIS);
        drop(client);
    }

    #[tokio::test]
    async fn a_closing_connection_reads_until_the_client_closes() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut stream = TimeoutStream::new(server, Phase::unread(), TIMEOUTS);
        let ended = tokio::spawn(async move { stream.shutdown().await });
        client.write_all(&[0; 1000]).await.unwrap();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "the sending side closes first");
        drop(client);
        ended.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_never_closes_cannot_keep_a_closing_connection() {
        for pause in [Duration::from_millis(STALL_MILLIS / 6), Duration::from_millis(STALL_MILLIS * 2)] {
            let (mut client, server) = tokio::io::duplex(64);
            tokio::spawn(async move {
                while client.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
            });
            TimeoutStream::new(server, Phase::unread(), TIMEOUTS).shutdown().await.unwrap();
        }
    }
}
