//! Load: how calls are made again and again, over connections or on threads, and timed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::client::{Connection, Prepared};
use crate::compare::Subject;
use crate::process::processor_of;
use crate::sample::Sample;

/// The requests of one worker, sent in turn and then from the start again.
pub(crate) struct Script {
    requests: Vec<Prepared>,
    next: usize,
}

impl Script {
    /// Sends `requests` in turn.
    pub(crate) fn new(requests: Vec<Prepared>) -> Self {
        Self { requests, next: 0 }
    }

    async fn step(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        connection.send_lightly(&self.requests[self.next]).await?;
        self.next = (self.next + 1) % self.requests.len();
        Ok(())
    }
}

/// How long calls are made before they count.
const WARM_UP: Duration = Duration::from_millis(200);

/// Calls over HTTP: one script for each connection, and a connection of its own.
pub(crate) struct Http<'a> {
    name: String,
    runtime: &'a Runtime,
    address: SocketAddr,
    process: Option<u32>,
    scripts: Vec<Script>,
    /// What other connections do at the same time; their calls are not counted.
    beside: Vec<Script>,
}

impl<'a> Http<'a> {
    /// Calls to the server at `address`, which is the process `process` where that is known.
    pub(crate) fn new(
        name: String,
        runtime: &'a Runtime,
        address: SocketAddr,
        process: Option<u32>,
        scripts: Vec<Script>,
    ) -> Self {
        Self { name, runtime, address, process, scripts, beside: Vec::new() }
    }

    /// With connections beside it that do `scripts` at the same time and are not counted.
    pub(crate) fn beside(self, scripts: Vec<Script>) -> Self {
        Self { beside: scripts, ..self }
    }

    async fn send(&mut self, connections: usize, time: Duration) -> anyhow::Result<Sample> {
        anyhow::ensure!(connections <= self.scripts.len(), "no scripts for {connections} connections");
        let rest = self.scripts.split_off(connections);
        let mut workers = Vec::new();
        for script in self.scripts.drain(..).chain(self.beside.drain(..)) {
            workers.push((script, Connection::open(self.address).await?));
        }
        let processor = || self.process.and_then(processor_of);
        let (workers, _) = for_a_while(workers, connections, WARM_UP.min(time)).await?;
        let (used, started) = (processor(), Instant::now());
        let (workers, latencies) = for_a_while(workers, connections, time).await?;
        let elapsed = started.elapsed();
        let processor = used.zip(processor()).map(|(before, after)| after.saturating_sub(before));
        let mut scripts = workers.into_iter().map(|(script, _)| script);
        self.scripts = scripts.by_ref().take(connections).chain(rest).collect();
        self.beside = scripts.collect();
        Ok(Sample { latencies, elapsed, processor, weight: 1 })
    }
}

impl Subject for Http<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, concurrency: usize, time: Duration) -> anyhow::Result<Sample> {
        self.runtime.block_on(self.send(concurrency, time))
    }
}

type Worker = (Script, Connection);

/// The latencies are those of the first `counted` workers.
async fn for_a_while(
    workers: Vec<Worker>,
    counted: usize,
    time: Duration,
) -> anyhow::Result<(Vec<Worker>, Vec<Duration>)> {
    let mut tasks = JoinSet::new();
    let until = Instant::now() + time;
    for (order, (mut script, mut connection)) in workers.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            let mut started = Instant::now();
            while started < until || latencies.is_empty() {
                script.step(&mut connection).await?;
                let ended = Instant::now();
                latencies.push(ended - started);
                started = ended;
            }
            anyhow::Ok((order, (script, connection), latencies))
        });
    }
    let (mut workers, mut latencies) = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (order, worker, mut took) = done??;
        workers.push((order, worker));
        if order < counted {
            latencies.append(&mut took);
        }
    }
    // A worker keeps its place: its script knows which version its file is at.
    workers.sort_unstable_by_key(|(order, _)| *order);
    Ok((workers.into_iter().map(|(_, worker)| worker).collect(), latencies))
}

/// Makes calls on `threads` threads for `time`; `worker` makes the caller of one thread.
///
/// # Errors
///
/// The first call that failed.
pub(crate) fn on_threads<C>(
    threads: usize,
    time: Duration,
    worker: impl Fn(usize) -> anyhow::Result<C> + Sync,
) -> anyhow::Result<Sample>
where
    C: FnMut() -> anyhow::Result<()> + Send,
{
    let callers = (0..threads).map(&worker).collect::<anyhow::Result<Vec<C>>>()?;
    let started = Instant::now();
    let latencies = std::thread::scope(|scope| {
        let threads: Vec<_> =
            callers.into_iter().map(|call| scope.spawn(move || again(call, started + time))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(Sample { latencies: latencies.concat(), elapsed: started.elapsed(), processor: None, weight: 1 })
}

fn again(mut call: impl FnMut() -> anyhow::Result<()>, until: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    let mut started = Instant::now();
    while started < until || latencies.is_empty() {
        call()?;
        let ended = Instant::now();
        latencies.push(ended - started);
        started = ended;
    }
    Ok(latencies)
}
