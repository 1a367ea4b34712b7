//! The pools that callers share, and who counts as one party in them.

use std::time::{Duration, Instant};

use model::{Code, Refusal, Token};
use shared_pool::{Denied, Parties, Party, Permit, SharedPool};

use crate::admission::operators::OperatorIdentity;
use crate::limits::Limits;
use crate::metrics;

/// The pools of what calls do. One kind of work that takes all of its pool leaves the other kinds theirs, and in each pool a
/// token, and all tokens of a run together, get at most a quarter.
pub(crate) struct Pools {
    /// Cheap reads: `read_file`, `list_dir`.
    pub read: SharedPool,
    /// Expensive reads: searches and diffs.
    pub search: SharedPool,
    /// Exports. The client decides how long one takes, within the minimum rate.
    pub export: SharedPool,
    /// Mutations.
    pub write: SharedPool,
    /// Uploads of large files. The client decides how long one takes, within the minimum rate.
    pub receive: SharedPool,
    /// Imports of local folders and git repositories, and fetches of files from the object store.
    pub import: SharedPool,
    /// Uploads of archives. The client decides how long one takes, within the minimum rate.
    pub upload: SharedPool,
    /// Requests with a token, in progress or streams.
    pub request: SharedPool,
    /// Open event streams.
    pub stream: SharedPool,
    /// Bytes of small request bodies.
    pub small_body: SharedPool,
    /// Bytes of other request bodies.
    pub large_body: SharedPool,
}

impl Pools {
    /// Creates the pools with the sizes of the settings.
    pub(crate) fn new(limits: &Limits) -> Self {
        let count = |name, count: usize| SharedPool::new(name, count as u64);
        let small_bytes = limits.max_body_memory_bytes / 4;
        Self {
            read: count("read", limits.read_concurrency),
            search: count("search", limits.search_concurrency),
            export: count("export", limits.export_concurrency),
            write: count("write", limits.write_concurrency),
            receive: count("receive", limits.write_concurrency),
            import: count("import", limits.import_concurrency),
            upload: count("upload", limits.import_concurrency),
            request: count("request", limits.max_requests),
            stream: count("stream", limits.max_streams),
            small_body: SharedPool::new("small_body", small_bytes),
            large_body: SharedPool::new("large_body", limits.max_body_memory_bytes - small_bytes),
        }
    }

    /// Returns every pool.
    pub(crate) fn all(&self) -> [&SharedPool; 11] {
        let Self { read, search, export, write, receive, import, upload, request, stream, small_body, large_body } =
            self;
        [read, search, export, write, receive, import, upload, request, stream, small_body, large_body]
    }
}

/// Returns the party of an operator, with all of its tokens.
pub fn operator_party(operator: &OperatorIdentity) -> Party {
    Party::of("operator", operator.name.as_str())
}

/// Returns the party of a run, with all of its tokens.
pub fn run_party(run: &str) -> Party {
    Party::of("run", run)
}

/// Returns the parties of a run token.
pub fn token_parties(token: &Token) -> Parties {
    Parties::two(Party::of("token", token.token_id.as_str()), run_party(token.run_id.as_str()))
}

/// Takes a permit of `pool` for the current request, as long as it takes.
pub(crate) async fn permit(pool: &SharedPool) -> Permit {
    let started = Instant::now();
    let permit = pool.acquire(Parties::current(), 1).await;
    metrics::permit_taken(pool.name(), started.elapsed());
    permit
}

/// Takes a permit of `pool` for `what` of the current request, and waits for it at most `timeout`.
///
/// # Errors
///
/// `RATE_LIMITED` if the caller or its run has its share; `UNAVAILABLE` if all permits are in use.
pub(crate) async fn permit_within(pool: &SharedPool, what: &'static str, timeout: Duration) -> Result<Permit, Refusal> {
    let started = Instant::now();
    let permit = pool.acquire_within(Parties::current(), 1, timeout).await;
    let permit = permit.map_err(|denied| match denied {
        Denied::OwnShare => own_share(pool, what),
        Denied::Exhausted => no_permit(what, timeout),
    })?;
    metrics::permit_taken(pool.name(), started.elapsed());
    Ok(permit)
}

/// The token or its run has its share of `pool`.
pub(crate) fn own_share(pool: &SharedPool, what: &str) -> Refusal {
    metrics::rate_limited();
    let share = pool.share();
    let message = format!("the token or its run has its share of the service's {what}: a quarter, which is {share}");
    Refusal::new(Code::RateLimited, message, "Wait until one has finished, or retry after the time in Retry-After.")
        .with_details(|details| details.limit = Some(share))
}

/// No permit for `what` was released within `timeout`.
pub(crate) fn no_permit(what: &str, timeout: Duration) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("the service was too busy for {what} for {} seconds; nothing was changed", timeout.as_secs()),
        "Retry after the time in Retry-After.",
    )
}
