//! The start and the end of the process: everything opened in order, everything finished in order.

use std::error::Error;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::Ledger;
use rustix::process::{Resource, Rlimit};
use workspace::{ConfineGit, Workspaces};

use crate::config::{BadSetting, Config, Secret};
use crate::lock::{Continuity, DataLock};
use crate::sandbox::Confinement;
use crate::service::Service;
use crate::signer;
use crate::tokens::{TokenSettings, Tokens};
use crate::{http, leftovers, pipeline, telemetry, upkeep};
use engine::Engine;
use engine::limits::Limits;

/// What work under way gets at least when the service ends, however long requests were waited for.
const LAST_WORK: Duration = Duration::from_secs(1);
/// How long files are synced and the ledger is closed at the end.
const LAST_SYNC: Duration = Duration::from_secs(5);

/// Why the process ends without having done its work; the message is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// Something that is needed is not to be had.
    #[error("{what}: {cause}")]
    Failed {
        /// What it is.
        what: String,
        /// Why not.
        cause: String,
    },
}

impl StartError {
    /// The data folder cannot be used. One that lies where operations are missing is a setting to be changed.
    pub(crate) fn data_dir(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::Unsupported => BadSetting(format!("--data-dir: {error}")).into(),
            _ => Self::failed("--data-dir", error),
        }
    }

    /// `what` is not to be had, for the reasons of `error`.
    pub(crate) fn failed(what: impl Into<String>, error: &dyn Error) -> Self {
        Self::Failed { what: what.into(), cause: in_one_line(error) }
    }
}

/// An error with its causes on one line.
fn in_one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Serves until `shutdown` is done, then finishes what is under way; `confinement` is what [`confine`](crate::confine)
/// came to.
///
/// # Errors
///
/// Where a setting cannot be used, or something that the service needs is not to be had.
pub async fn serve(
    mut config: Config,
    confinement: Confinement,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let started = Instant::now();
    telemetry::start_log(&config)?;
    telemetry::start_numbers();
    confinement.tell();
    fit(&mut config.limits, raise_handles());
    let lock = DataLock::take(&config.data_dir)?;
    let (service, first_token) = open(&config, &lock, confinement.git()).await?;
    let listener = http::serve::listen(config.listen);
    let listener = listener.map_err(|error| BadSetting(format!("--listen {}: {error}", config.listen)))?;
    let address = listener.local_addr().map_err(|error| StartError::failed("--listen", &error))?;
    let router = http::router(service.clone());
    let upkeep = service.tasks.spawn(upkeep::run(service.clone()));
    tracing::info!(start_millis = started.elapsed().as_millis(), "ready");
    say(address, first_token.as_deref());
    let ending = service.shutdown.clone();
    let serving = http::serve::serve(listener, router, &config.limits, ending.clone());
    tokio::pin!(serving);
    let mut drain_until = Instant::now();
    tokio::select! {
        () = &mut serving => {}
        () = shutdown => {
            tracing::info!("ending: requests under way may finish");
            ending.cancel();
            drain_until = Instant::now() + config.limits.drain;
            serving.await;
        }
    }
    drop(upkeep);
    close(&service, drain_until.saturating_duration_since(Instant::now())).await;
    Ok(())
}

fn token_settings(config: &Config) -> TokenSettings {
    TokenSettings {
        operator: config.operator_token.as_ref().map(Secret::sha256),
        audit: config.audit_token.as_ref().map(Secret::sha256),
        failures_per_minute: config.limits.auth_failures_per_minute,
    }
}

/// Opens everything that calls need, and finishes what an earlier process had begun.
async fn open(
    config: &Config,
    lock: &DataLock,
    git: Option<Arc<dyn ConfineGit>>,
) -> Result<(Service, Option<String>), StartError> {
    let database = |error: ledger::LedgerError| StartError::failed("the database", &error);
    let ledger = ledger::open(&config.database_url.0).await.map_err(database)?;
    lock.belongs_to(ledger.as_ref()).await?;
    let continuity = lock.take_over(ledger.as_ref()).await?;
    let (tokens, first_token) = Tokens::load(token_settings(config), ledger.as_ref()).await.map_err(database)?;
    let checkpoints = signer::start(&config.checkpoints, Arc::clone(&ledger), lock.note()).await?;
    let (data_dir, import_roots) = (config.data_dir.clone(), config.import_roots.clone());
    let allowed_hosts = config.git_allow_hosts.clone();
    let opened = tokio::task::spawn_blocking(move || {
        Ok::<_, io::Error>(Workspaces::open(&data_dir, &import_roots)?.with_git(allowed_hosts, git))
    });
    let workspaces = opened.await.map_err(io::Error::other).flatten();
    let workspaces = Arc::new(workspaces.map_err(|error| StartError::data_dir(&error))?);
    let is_older = continuity == Continuity::OlderDatabase || checkpoints.is_halted();
    leftovers::settle(ledger.as_ref(), &workspaces, is_older).await?;
    for run in ledger.unpurged_runs().await.map_err(database)? {
        // Before pending changes are looked at: there is no tree any more that those of a deleted run could go to.
        match ledger.purge_content(&run).await {
            Ok(()) => tracing::info!(run.id = %run, "the deletion of a run was finished"),
            // Of that run alone: the next start tries again.
            Err(error @ ledger::LedgerError::Internal(_)) => {
                let error = &error as &dyn Error;
                tracing::error!(run.id = %run, error, "the deletion of a run cannot be finished");
            }
            Err(error) => return Err(database(error)),
        }
    }
    count_uncounted(ledger.as_ref(), &workspaces).await?;
    let held = ledger.storage_totals().await.map_err(database)?;
    let engine = Engine::new(config.limits.clone(), config.profiles.clone(), ledger, workspaces, tokens, held);
    let service = Service::new(engine, checkpoints);
    let recovered = pipeline::recover(&service).await;
    let recovered = recovered.map_err(|error| StartError::failed("pending changes", &error))?;
    if recovered > 0 {
        tracing::info!(changes = recovered, "pending changes of an earlier process were finished");
    }
    Ok((service, first_token))
}

/// Counts what runs hold of which the ledger does not know it: those of before there were quotas, and repaired ones.
async fn count_uncounted(ledger: &dyn Ledger, workspaces: &Arc<Workspaces>) -> Result<(), StartError> {
    let database = |error: ledger::LedgerError| StartError::failed("the database", &error);
    for run in ledger.runs_without_disk_usage().await.map_err(database)? {
        let (started, workspaces, id) = (Instant::now(), Arc::clone(workspaces), run.clone());
        let counted = tokio::task::spawn_blocking(move || workspaces.get(&id)?.disk_usage()).await;
        match counted.map_err(io::Error::other).flatten() {
            Ok(disk) => {
                ledger.set_disk_usage(&run, Some(disk)).await.map_err(database)?;
                let millis = started.elapsed().as_millis();
                tracing::info!(run.id = %run, disk.bytes, disk.files, millis, "the run's files were counted");
            }
            // One bad run is no reason not to serve the others: it counts as nothing until it is repaired.
            Err(error) => tracing::warn!(run.id = %run, %error, "the run's files cannot be counted"),
        }
    }
    Ok(())
}

/// Lets what is under way finish and become durable. What does not by then is left to the next start: nobody was told of it,
/// or the journal has it.
async fn close(service: &Service, patience: Duration) {
    service.tasks.close();
    if tokio::time::timeout(patience.max(LAST_WORK), service.tasks.wait()).await.is_err() {
        tracing::warn!("work still under way is left to the next start to finish");
    }
    let settled = async {
        service.syncer.close().await;
        service.state.checkpoints.close().await;
        service.ledger.close().await;
    };
    if tokio::time::timeout(LAST_SYNC, settled).await.is_err() {
        tracing::warn!("files are left to the next start to sync");
    }
    tracing::info!("ended");
}

/// Takes as many file handles as the system gives, and tells how many that are; `None` where there is no limit.
fn raise_handles() -> Option<u64> {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    if current < maximum || (current.is_some() && maximum.is_none()) {
        let raised = Rlimit { current: maximum, maximum };
        if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files stays as it is");
            return current;
        }
    }
    maximum
}

/// Handles that neither connections nor runs need: the database, calls under way, git.
const OWN_HANDLES: u64 = 192;
/// What an open run holds: its tree, its place for temporary files, its base, and a mount.
const HANDLES_A_RUN: usize = 4;

/// Takes fewer connections and holds fewer runs open where there are not handles enough for what the settings say.
fn fit(limits: &mut Limits, handles: Option<u64>) {
    let Some(handles) = handles else { return };
    let half = usize::try_from(handles.saturating_sub(OWN_HANDLES) / 2).unwrap_or(usize::MAX);
    let runs = half / HANDLES_A_RUN;
    let (max_connections, max_live_runs) =
        (limits.max_connections.min(half).max(1), limits.max_live_runs.min(runs).max(1));
    if (max_connections, max_live_runs) != (limits.max_connections, limits.max_live_runs) {
        tracing::warn!(handles, max_connections, max_live_runs, "fewer than set: the system gives too few open files");
    }
    (limits.max_connections, limits.max_live_runs) = (max_connections, max_live_runs);
}

/// Tells where the service listens; at the first start also its token, this once.
fn say(address: SocketAddr, first_token: Option<&str>) {
    let mut text = String::new();
    if let Some(token) = first_token {
        let url = format!("http://{}", reachable(address));
        text = format!(
            "operator token, shown this once: {token}\n\n\
             curl -sS {url}/v1/runs -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \
             -d '{{\"runId\":\"first\",\"source\":{{\"type\":\"empty\"}}}}'\n\
             curl -sS {url}/v1/runs/first/tools/write_file -H 'Authorization: Bearer {token}' \
             -H 'Content-Type: application/json' \
             -d '{{\"path\":\"hello.txt\",\"content\":\"hello\\n\",\"reason\":\"to try it\"}}'\n\
             curl -sS {url}/v1/runs/first/audit -H 'Authorization: Bearer {token}'\n\n"
        );
    }
    let mut out = io::stdout().lock();
    if writeln!(out, "{text}listening on http://{address}").and_then(|()| out.flush()).is_err() {
        tracing::warn!("standard output is closed: nobody was told the address");
    }
}

/// Where a client on this machine reaches `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
