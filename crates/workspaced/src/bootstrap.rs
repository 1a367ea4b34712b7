//! Startup and shutdown of the service: opens everything in order, and finishes everything in order.

mod reload;

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use engine::Resources;
use engine::operators::{TokenSettings, Tokens, store_first_token};
use engine::runs::{Keep, LedgerClaims};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ledger::{Ledger, LedgerError, NodeIdentity};
use proofs::signer;
use rustix::process::{Resource, Rlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use workspace::{ConfineGit, Workspaces};

use crate::http::MetricsRoute;
use crate::http::serve::tls::Certificate;
use crate::issuer::Issuer;
use crate::sandbox::Confinement;
use crate::service::{OpenAccess, Service};
use crate::webhooks::Webhooks;
use crate::{http, maintenance, telemetry};
use cluster::nodes::membership::{LEASE, Membership, until_address_is_free};
use cluster::objects::open_objects;
use config::StartError;
use config::http_limits::HttpLimits;
use config::{Config, ConfigError, TlsFiles};
use data_dir::{Continuity, DataDirLock, DiskProbe, leftovers};
use retention::{ArchiveSource, ArchiveStore, Archiver, NO_GRANT};

/// Minimum time that background work gets to finish at shutdown, even if draining requests used up the drain timeout.
const MIN_WORK_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between two attempts to give back runs at shutdown.
const GIVE_BACK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum concurrent connections to the listener for metrics. Scrapers and probes are few.
const MAX_METRICS_CONNECTIONS: usize = 32;
/// Maximum time for the final file sync and for closing the ledger.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves requests until `shutdown` completes, then drains and returns. `confinement` is the result of
/// [`confine`](crate::confine).
///
/// # Errors
///
/// Fails if a setting cannot be used or a required resource is not available.
#[boxed]
pub async fn serve(
    mut config: Config,
    confinement: Confinement,
    shutdown: BoxFuture<'static, ()>,
) -> Result<(), StartError> {
    let started = Instant::now();
    let traces = telemetry::start_log(&config)?;
    let database = if config.database_url.sqlite_file().is_some() { "sqlite" } else { "postgres" };
    telemetry::start_metrics(database);
    confinement.log();
    fit_to_open_files(&mut config, raise_open_files_limit());
    let lock = DataDirLock::take(&config.data_dir)?;
    let (service, first_token) = open_service(&config, &lock, confinement.git()).await?;
    let shutting_down = service.state.shutdown.clone();
    let certificate = config.tls.clone().map(|files| start_tls(files, &shutting_down)).transpose()?;
    tokio::spawn(reload::run(config.sources.clone(), service.clone(), hangups()?, shutting_down.clone()).boxed());
    let (listener, address) = listen("listen", config.listen)?;
    let metrics = config.metrics_listen.map(|address| listen("metrics-listen", address)).transpose()?;
    let metrics_route = if metrics.is_some() { MetricsRoute::Separate } else { MetricsRoute::Included };
    let router = http::router(service.clone(), metrics_route);
    start_background(&config, &service)?;
    tracing::info!(start_millis = started.elapsed().as_millis(), "ready");
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let serving_metrics = serve_metrics(metrics, &service, &config.http_limits);
    announce(service.state.ledger.as_ref(), scheme, address, first_token.as_deref()).await?;
    let serving_api = http::serve::serve(listener, router, &config.http_limits, certificate, shutting_down.clone());
    let serving = async { tokio::join!(serving_api, serving_metrics) };
    tokio::pin!(serving);
    let mut drain_until = Instant::now();
    tokio::select! {
        ((), ()) = &mut serving => {}
        () = shutdown => {
            tracing::info!("shutting down: waiting for requests in progress");
            shutting_down.cancel();
            drain_until = Instant::now() + config.http_limits.drain;
            tokio::select! {
                ((), ()) = &mut serving => {}
                never = give_back_runs(&service) => match never {},
            }
        }
        cause = membership_lost(&service) => {
            // It can commit nothing any more, so that nobody gets an answer from it.
            shutting_down.cancel();
            return Err(StartError::failed("this process is no node any more", &cause));
        }
    }
    close(&service, drain_until.saturating_duration_since(Instant::now())).await;
    if let Some(traces) = traces {
        traces.close().await;
    }
    tracing::info!("shut down");
    Ok(())
}

/// Starts the work that no request asks for.
fn start_background(config: &Config, service: &Service) -> Result<(), StartError> {
    service.state.tasks.spawn(maintenance::run(service.clone()).boxed());
    service.state.tasks.spawn(maintenance::keep_tokens_current(service.clone()).boxed());
    service.state.tasks.spawn(maintenance::collect::run(service.clone()).boxed());
    service.state.webhooks.start(&service.state.tasks, &service.state.shutdown);
    if let Some(issuer) = &service.state.access.issuer {
        service.state.tasks.spawn(
            Arc::clone(issuer).keep_current(Arc::clone(&service.operators), service.state.shutdown.clone()).boxed(),
        );
    }
    if let Some(archives) = &config.archives {
        let store = ArchiveStore::open(&archives.to).map_err(|error| ConfigError(format!("--archive-to: {error}")))?;
        let source = ArchiveSource {
            runs: Arc::clone(&service.runs),
            ledger: Arc::clone(&service.state.ledger),
            objects: service.state.objects.clone(),
            checkpoints: Arc::clone(&service.state.checkpoints),
            node: service.state.node.clone(),
        };
        let archiver = Archiver::new(source, store, archives.after, &config.data_dir);
        service.state.tasks.spawn(archiver.run(service.state.shutdown.clone()).boxed());
    }
    Ok(())
}

/// Waits until this process must end because it is no node any more, and returns why; forever in a service that is the only one.
async fn membership_lost(service: &Service) -> LedgerError {
    match &service.state.node {
        Some(membership) => membership.lost().await,
        None => std::future::pending().await,
    }
}

/// Gives back the roles and the runs that this node does not use, and the others as they become idle, while requests in progress are
/// drained: other nodes reach this one no more.
async fn give_back_runs(service: &Service) -> Infallible {
    let Some(membership) = &service.state.node else {
        return std::future::pending().await;
    };
    membership.give_back_roles();
    keep_artifacts(service).await;
    let mut given_back = service.runs.give_back_unused().await;
    loop {
        if let Err(error) = given_back {
            tracing::warn!(error = &error as &dyn Error, "runs could not be given back yet");
        }
        tokio::time::sleep(GIVE_BACK_INTERVAL).await;
        given_back = service.runs.give_back().await.map(drop);
    }
}

/// Puts the artifacts of this node's runs into the object store, from which other nodes make their folders.
async fn keep_artifacts(service: &Service) {
    if let Err(error) = service.runs.keep_artifacts(Keep::All).await {
        tracing::warn!(error = &error as &dyn Error, "failed to keep the artifacts of runs");
    }
}

/// Listens on `address`, the value of `--name`. Returns the address with its port, also if the system has chosen it.
fn listen(name: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listener = http::serve::listen(address).map_err(|error| ConfigError(format!("--{name} {address}: {error}")))?;
    let address = listener.local_addr().map_err(|error| StartError::failed(format!("--{name}"), &error))?;
    Ok((listener, address))
}

/// Reads the certificate, and reads it again when it is replaced.
fn start_tls(files: TlsFiles, shutdown: &CancellationToken) -> Result<Arc<Certificate>, StartError> {
    let certificate = Arc::new(Certificate::load(files)?);
    tokio::spawn(Arc::clone(&certificate).keep_current(hangups()?, shutdown.clone()).boxed());
    Ok(certificate)
}

/// Returns a listener to SIGHUP, which does not end the process from then on.
fn hangups() -> Result<Signal, StartError> {
    signal(SignalKind::hangup()).map_err(|error| StartError::failed("signals", &error))
}

/// Serves the metrics on a listener of their own, if there is one, until the service shuts down. Its connections are not
/// encrypted and not among `--max-connections`, so that metrics can be read while these are used up.
async fn serve_metrics(listener: Option<(TcpListener, SocketAddr)>, service: &Service, limits: &HttpLimits) {
    let Some((listener, address)) = listener else { return };
    tracing::info!(%address, "metrics are served on a listener of their own");
    let limits = HttpLimits { max_connections: MAX_METRICS_CONNECTIONS, ..limits.clone() };
    http::serve::serve(listener, http::metrics_router(service.clone()), &limits, None, service.state.shutdown.clone())
        .await;
}

/// Opens everything that calls need, and completes what an earlier process left unfinished.
async fn open_service(
    config: &Config,
    lock: &DataDirLock,
    git: Option<Arc<dyn ConfineGit>>,
) -> Result<(Service, Option<String>), StartError> {
    let ledger = config.database_url.open().await?;
    if config.archives.is_some() && !ledger.can_delete_archived().await? {
        return Err(ConfigError(format!("--archive-after: {NO_GRANT}")).into());
    }
    let (continuity, membership) = take_over_or_join(config, lock, &ledger).await?;
    // Before anything that a webhook is notified of.
    let webhooks = Webhooks::open(&config.webhooks, Arc::clone(&ledger), membership.clone()).await?;
    let failures_per_minute = config.http_limits.auth_failures_per_minute;
    let settings = TokenSettings { configured: config.tokens.clone(), failures_per_minute };
    let (tokens, first_token) = Tokens::load(settings, ledger.as_ref()).await?;
    let checkpoints = signer::start(&config.checkpoints, Arc::clone(&ledger), lock.note(), membership.clone()).await?;
    let owner = owner_of_folders(membership.as_deref(), ledger.as_ref()).await?;
    let workspaces = open_workspaces(config, git, owner).await?;
    let is_older = continuity == Continuity::OlderDatabase || checkpoints.is_halted();
    telemetry::set_lost_folders(leftovers::clean_up(ledger.as_ref(), &workspaces, is_older).await?);
    let disk = DiskProbe::open(&config.data_dir).map_err(|error| StartError::data_dir(&error))?;
    let open = |store| {
        let claims = Arc::new(LedgerClaims(Arc::clone(&ledger)));
        open_objects(store, &config.data_dir, claims)
    };
    let objects = config.object_store.as_ref().map(open).transpose();
    let objects = objects.map_err(|error| ConfigError(format!("--object-store-url: {error}")))?;
    let totals = ledger.storage_totals().await?;
    let resources = Resources {
        limits: config.limits.clone(),
        profiles: config.profiles.clone(),
        ledger,
        workspaces,
        objects,
        tokens,
        held: totals,
        tasks: TaskTracker::new(),
        shutdown: CancellationToken::new(),
    };
    let service =
        Service::start(resources, checkpoints, config.http_limits.clone(), access(config)?, disk, webhooks, membership);
    // Before recovery: the pending changes of a deleted run have no tree to go to.
    let finished = service.runs.finish_deletions().await;
    finished.map_err(|error| StartError::failed("interrupted deletions of runs", &error))?;
    let resumed = service.runs.resume_interrupted_imports().await;
    resumed.map_err(|error| StartError::failed("interrupted imports", &error))?;
    let recovered = service.runs.reconcile_all().await;
    let recovered = recovered.map_err(|error| StartError::failed("pending changes", &error))?;
    if recovered > 0 {
        tracing::info!(changes = recovered, "completed pending changes of an earlier process");
    }
    Ok((service, first_token))
}

/// Returns what is open to whom.
fn access(config: &Config) -> Result<OpenAccess, StartError> {
    Ok(OpenAccess {
        protect_metrics: config.protect_metrics,
        cors_origins: config.cors_origins.clone(),
        is_loopback: config.listen.ip().is_loopback(),
        is_tls: config.tls.is_some(),
        issuer: config.issuer.clone().map(Issuer::new).transpose()?.map(Arc::new),
    })
}

/// Opens the folders of all runs. `owner` is what a node notes in those that it owns.
async fn open_workspaces(
    config: &Config,
    git: Option<Arc<dyn ConfineGit>>,
    owner: Option<String>,
) -> Result<Arc<Workspaces>, StartError> {
    let (data_dir, import_roots) = (config.data_dir.clone(), config.import_roots.clone());
    let (allowed_hosts, credentials) = (config.git_allow_hosts.clone(), config.git_credentials.clone());
    let opened = tokio::task::spawn_blocking(move || {
        let workspaces = Workspaces::open(&data_dir, &import_roots)?.with_git(allowed_hosts, git);
        let workspaces = workspaces.with_credentials(credentials);
        Ok(match owner {
            Some(owner) => workspaces.with_owner(owner),
            None => workspaces,
        })
    });
    let workspaces = opened.await.map_err(io::Error::other).flatten();
    Ok(Arc::new(workspaces.map_err(|error| StartError::data_dir(&error))?))
}

/// Takes over the database; with `--node-url`, joins the nodes that use it, and starts the heartbeat.
async fn take_over_or_join(
    config: &Config,
    lock: &DataDirLock,
    ledger: &Arc<dyn Ledger>,
) -> Result<(Continuity, Option<Arc<Membership>>), StartError> {
    let Some(node) = &config.node else {
        lock.bind(ledger.as_ref()).await?;
        return Ok((lock.take_over(ledger.as_ref()).await?, None));
    };
    lock.bind_node(ledger.as_ref()).await?;
    let node_id = match &node.node_id {
        Some(node_id) => node_id.clone(),
        None => lock.node_id()?,
    };
    let identity = NodeIdentity { node_id, url: node.address().to_owned() };
    until_address_is_free(ledger.as_ref(), &identity).await?;
    let (joined, continuity) = lock.join(ledger.as_ref(), &identity, LEASE).await?;
    tracing::info!(node.id = joined.node_id, node.incarnation = joined.incarnation, "joined as a node");
    Ok((continuity, Some(Membership::start(node, joined, Arc::clone(ledger))?)))
}

/// Returns what a node notes in the folders of runs that it owns: its name, and that of the nodes which share the database. The latter
/// changes when a single service has used the database in between, under which no epoch grows.
async fn owner_of_folders(membership: Option<&Membership>, ledger: &dyn Ledger) -> Result<Option<String>, StartError> {
    let Some(membership) = membership else { return Ok(None) };
    let instance = ledger.setting(ledger::INSTANCE).await?.unwrap_or_default();
    Ok(Some(format!("{} {instance}", membership.node.node_id)))
}

/// Waits for background work to finish and become durable. Work that takes longer is left to recovery at the next start:
/// either no caller got an answer for it, or the journal has it.
async fn close(service: &Service, timeout: Duration) {
    service.state.tasks.close();
    let mut is_done = tokio::time::timeout(timeout.max(MIN_WORK_TIMEOUT), service.state.tasks.wait()).await.is_ok();
    if !is_done {
        // No caller waits for them any more.
        service.runs.cancel_imports();
        is_done = tokio::time::timeout(MIN_WORK_TIMEOUT, service.state.tasks.wait()).await.is_ok();
    }
    if !is_done {
        tracing::warn!("work in progress is left to recovery at the next start");
    }
    // Those that were not given back while requests were drained.
    if tokio::time::timeout(MIN_WORK_TIMEOUT, keep_artifacts(service)).await.is_err() {
        tracing::warn!("artifacts that were not kept yet stay in the folders of their runs");
    }
    let closed = async {
        service.runs.finish_syncs().await;
        service.state.checkpoints.close().await;
        // After the last commit, so that other nodes can take the runs at once.
        if let Some(membership) = &service.state.node {
            // Those that a call or a sync used until now.
            if let Err(error) = service.runs.give_back_unused().await {
                tracing::warn!(error = &error as &dyn Error, "not every run was given back");
            }
            membership.end().await;
            if let Err(error) = service.state.ledger.leave().await {
                tracing::warn!(
                    error = &error as &dyn Error,
                    "other nodes take the runs once the heartbeat has expired"
                );
            }
        }
        service.state.ledger.close().await;
    };
    if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
        tracing::warn!("unsynced files are left to recovery at the next start");
    }
}

/// Raises the limit of open files to its maximum and returns it, or `None` if there is no limit.
fn raise_open_files_limit() -> Option<u64> {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    if current < maximum || (current.is_some() && maximum.is_none()) {
        let raised = Rlimit { current: maximum, maximum };
        if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "failed to raise the limit of open files");
            return current;
        }
    }
    maximum
}

/// File descriptors that neither connections nor open runs use: the database, calls in progress, git.
const RESERVED_FILES: u64 = 192;
/// File descriptors of an open run: its tree, its folder for temporary files, its base, its note, and a mount.
const FILES_PER_RUN: usize = 5;

/// Lowers the limits on connections and open runs to what the limit of open files allows.
fn fit_to_open_files(config: &mut Config, max_open_files: Option<u64>) {
    let Some(max_open_files) = max_open_files else { return };
    let half = usize::try_from(max_open_files.saturating_sub(RESERVED_FILES) / 2).unwrap_or(usize::MAX);
    let max_connections = config.http_limits.max_connections.min(half).max(1);
    let max_live_runs = config.limits.max_live_runs.min(half / FILES_PER_RUN).max(1);
    if (max_connections, max_live_runs) != (config.http_limits.max_connections, config.limits.max_live_runs) {
        tracing::warn!(
            max_open_files,
            max_connections,
            max_live_runs,
            "lowered the limits on connections and open runs to fit the limit of open files"
        );
    }
    (config.http_limits.max_connections, config.limits.max_live_runs) = (max_connections, max_live_runs);
    config.limits.max_requests = max_connections;
}

/// Prints the address of the service; at the first start also the operator token, with commands to try.
fn print_address(scheme: &str, address: SocketAddr, first_token: Option<&str>) -> io::Result<()> {
    let mut text = String::new();
    if let Some(token) = first_token {
        let url = format!("{scheme}://{}", reachable(address));
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
    writeln!(out, "{text}listening on {scheme}://{address}").and_then(|()| out.flush())
}

/// Prints the address, and the first operator token, which is valid from then on.
///
/// # Errors
///
/// If there is such a token and it cannot be printed or stored: the next start generates another one.
async fn announce(
    ledger: &dyn Ledger,
    scheme: &str,
    address: SocketAddr,
    first_token: Option<&str>,
) -> Result<(), StartError> {
    match (print_address(scheme, address, first_token), first_token) {
        (Ok(()), None) => Ok(()),
        (Ok(()), Some(token)) => store_first_token(ledger, token)
            .await
            .map_err(|error| StartError::failed("the operator token is not valid", &error)),
        (Err(_), None) => {
            tracing::warn!("failed to print the address: standard output is closed");
            Ok(())
        }
        (Err(error), Some(_)) => {
            Err(StartError::failed("the operator token cannot be printed to standard output", &error))
        }
    }
}

/// Returns the address at which a client on this machine reaches `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
