//! Load generation: repeated, timed calls over connections or on threads.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::client::{Connection, Prepared};
use crate::compare::Subject;
use crate::process::cpu_time_of;
use crate::sample::Sample;

/// The requests of a worker, sent in a cycle.
pub(crate) struct Script {
    requests: Vec<Prepared>,
    next: usize,
}

impl Script {
    /// Creates a script that starts with the first request.
    pub(crate) fn new(requests: Vec<Prepared>) -> Self {
        Self { requests, next: 0 }
    }

    /// Returns the requests.
    pub(crate) fn into_requests(self) -> Vec<Prepared> {
        self.requests
    }

    async fn step(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        connection.send_and_discard(&self.requests[self.next]).await?;
        self.next = (self.next + 1) % self.requests.len();
        Ok(())
    }
}

/// The time before calls are counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// The address of a server and its process ID, if known.
pub(crate) type Target = (SocketAddr, Option<u32>);

/// Calls over HTTP. Each script has its own connection.
pub(crate) struct Http<'a> {
    name: String,
    runtime: &'a Runtime,
    targets: Vec<Target>,
    scripts: Vec<Script>,
    /// Scripts of background connections, whose calls are not counted.
    background: Vec<Script>,
}

impl<'a> Http<'a> {
    /// Creates calls to `targets`, over which the scripts are distributed in turn.
    pub(crate) fn new(name: String, runtime: &'a Runtime, targets: Vec<Target>, scripts: Vec<Script>) -> Self {
        Self { name, runtime, targets, scripts, background: Vec::new() }
    }

    /// Adds background connections that run `scripts` at the same time.
    pub(crate) fn with_background(self, scripts: Vec<Script>) -> Self {
        Self { background: scripts, ..self }
    }

    async fn send(&mut self, connections: usize, time: Duration) -> anyhow::Result<Sample> {
        anyhow::ensure!(connections <= self.scripts.len(), "no scripts for {connections} connections");
        let rest = self.scripts.split_off(connections);
        let mut workers = Vec::new();
        let scripts = self.scripts.drain(..).chain(self.background.drain(..));
        for (script, (address, _)) in scripts.zip(self.targets.iter().cycle()) {
            workers.push((script, Connection::open(*address).await?));
        }
        let cpu_time =
            || self.targets.iter().map(|(_, process)| process.and_then(cpu_time_of)).sum::<Option<Duration>>();
        let (workers, _) = run_for(workers, connections, WARM_UP.min(time)).await?;
        let (used, started) = (cpu_time(), Instant::now());
        let (workers, latencies) = run_for(workers, connections, time).await?;
        let elapsed = started.elapsed();
        let cpu_time = used.zip(cpu_time()).map(|(before, after)| after.saturating_sub(before));
        let mut scripts = workers.into_iter().map(|(script, _)| script);
        self.scripts = scripts.by_ref().take(connections).chain(rest).collect();
        self.background = scripts.collect();
        Ok(Sample { latencies, elapsed, cpu_time, weight: 1 })
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

/// Runs all workers for `time`. Returns the workers, and the latencies of the first `counted` of them.
async fn run_for(workers: Vec<Worker>, counted: usize, time: Duration) -> anyhow::Result<(Vec<Worker>, Vec<Duration>)> {
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
    // The order of the workers is kept: the state of each script depends on its file.
    workers.sort_unstable_by_key(|(order, _)| *order);
    Ok((workers.into_iter().map(|(_, worker)| worker).collect(), latencies))
}

/// Calls repeatedly on `threads` threads for `time`; `worker` creates the function that a thread calls.
///
/// # Errors
///
/// The first error of a call.
pub(crate) fn run_on_threads<C>(
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
            callers.into_iter().map(|call| scope.spawn(move || repeat_until(call, started + time))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(Sample { latencies: latencies.concat(), elapsed: started.elapsed(), cpu_time: None, weight: 1 })
}

fn repeat_until(mut call: impl FnMut() -> anyhow::Result<()>, until: Instant) -> anyhow::Result<Vec<Duration>> {
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
