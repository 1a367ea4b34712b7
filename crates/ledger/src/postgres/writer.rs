//! The task that writes: whatever waits when a commit has ended is the next group.

use std::sync::Arc;
use std::time::Duration;

use model::{ApprovalId, TokenId, ToolCallId};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::batch::{Batch, FirstCall, Known};
use super::convert::failed;
use super::fence::{Entrance, Fence, FencedTx};
use super::open;
use crate::backend::{Columns as _, damaged};
use crate::group::{self, LAST_POSITION, RunHead, select_head};
use crate::{AppendedAll, Entry, LedgerError, Result, rows};

/// Entries in one transaction at most.
const MAX_GROUP: usize = 512;
/// Bytes of files and diffs in one transaction at most: a statement of more than a gigabyte is refused.
const MAX_GROUP_BYTES: usize = 64 * 1024 * 1024;
/// What a group may take; the server gives up on a statement before.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How long the server is left alone after it could not be reached, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The heads of all runs in `$1`, each with which tokens of `$4` are revoked, and once for every call in `$2`, `$3` that the
/// run has had. The lock keeps others away.
const HEADS: &str = select_head!(
    ", call.id, call.tool, call.input_sha256, call.is_answered, \
    (SELECT string_agg(token_id, ' ') FROM token WHERE token.run_no = run.run_no AND revoked AND token_id = ANY($4))",
    "LEFT JOIN (\
      SELECT claimant.run_no, claim.id, first.tool, first.input_sha256, \
        EXISTS (SELECT FROM audit_record AS again JOIN call_reply ON call_reply.position = again.position \
          WHERE again.tool_call_id = claim.id AND again.run_no = claimant.run_no \
          AND again.tool = first.tool AND again.input_sha256 = first.input_sha256) AS is_answered \
      FROM unnest($2::text[], $3::text[]) AS claim (run_id, id) JOIN run AS claimant ON claimant.run_id = claim.run_id \
      CROSS JOIN LATERAL (\
        SELECT tool, input_sha256 FROM audit_record \
        WHERE tool_call_id = claim.id AND audit_record.run_no = claimant.run_no ORDER BY seq LIMIT 1) AS first\
    ) AS call ON call.run_no = run.run_no WHERE run_id = ANY($1)"
);
const PENDING: &str = "SELECT run_no, approval_id FROM approval WHERE approval_id = ANY($1) AND state = 'pending'";

/// Entries that stand or fall together, and who waits for them.
pub(super) struct Job {
    pub(super) entries: Vec<Entry>,
    pub(super) answer: oneshot::Sender<Result<AppendedAll>>,
}

pub(super) struct Writer {
    options: PgConnectOptions,
    /// `None` after a failure, which leaves unknown what the connection is in.
    connection: Option<PgConnection>,
    fence: Arc<Fence>,
    /// When the server may be tried again, and how long it is left alone next time.
    retry: (Instant, Duration),
    jobs: mpsc::Receiver<Job>,
    newest: watch::Sender<i64>,
}

/// See [`LAST_POSITION`].
pub(super) async fn last_position(connection: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query(LAST_POSITION).fetch_one(connection).await?.try_get(0)
}

impl Writer {
    pub(super) fn new(
        options: PgConnectOptions,
        connection: PgConnection,
        fence: Arc<Fence>,
        jobs: mpsc::Receiver<Job>,
        newest: watch::Sender<i64>,
    ) -> Self {
        Self { options, connection: Some(connection), fence, retry: (Instant::now(), BACKOFF.0), jobs, newest }
    }

    /// Writes until nobody can hand in any more.
    pub(super) async fn run(mut self) {
        let mut group = Vec::new();
        while self.jobs.recv_many(&mut group, MAX_GROUP).await > 0 {
            while !group.is_empty() {
                let rest = group.split_off(fitting(&group));
                self.write(std::mem::replace(&mut group, rest)).await;
            }
        }
        if let Some(connection) = self.connection {
            // The server would notice all the same.
            drop(connection.close().await);
        }
    }

    /// Commits a group and answers it. Where an entry fails, the group is undone, and its entries are committed one by one.
    async fn write(&mut self, group: Vec<Job>) {
        match self.commit(&group).await {
            Ok(done) => group.into_iter().zip(done).for_each(|(job, done)| drop(job.answer.send(done))),
            Err(LedgerError::AlreadyExists | LedgerError::Internal(_)) if group.len() > 1 => {
                for job in group {
                    Box::pin(self.write(vec![job])).await;
                }
            }
            Err(error) => {
                if !matches!(error, LedgerError::AlreadyExists) {
                    tracing::error!(error = &error as &dyn std::error::Error, entries = group.len(), "a commit failed");
                }
                for job in group {
                    drop(job.answer.send(Err(error.again())));
                }
            }
        }
    }

    async fn commit(&mut self, group: &[Job]) -> Result<Vec<Result<AppendedAll>>> {
        let mut connection = self.connect().await?;
        let last = *self.newest.borrow();
        match tokio::time::timeout(PATIENCE, carry_out(&mut connection, &self.fence, group, last)).await {
            Ok(Ok((done, position))) => {
                self.connection = Some(connection);
                self.newest.send_if_modified(|newest| std::mem::replace(newest, position.max(*newest)) < position);
                Ok(done)
            }
            Ok(Err(error)) => {
                // Only where the server answers is it known that nothing came of it.
                if !matches!(error, LedgerError::Unavailable(_) | LedgerError::InDoubt(_))
                    && sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.is_ok()
                {
                    self.connection = Some(connection);
                }
                Err(error)
            }
            // It may have been told to commit.
            Err(_) => Err(LedgerError::InDoubt("the database takes too long".into())),
        }
    }

    async fn connect(&mut self) -> Result<PgConnection> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let (at, pause) = self.retry;
        if Instant::now() < at {
            return Err(LedgerError::Unavailable("the database could not be reached just now".into()));
        }
        let connected = open::connect(&self.options).await;
        let pause = if connected.is_ok() { BACKOFF.0 } else { (pause * 2).min(BACKOFF.1) };
        self.retry = (Instant::now() + pause, pause);
        connected
    }
}

/// How many of the first jobs go into one transaction; at least one.
fn fitting(jobs: &[Job]) -> usize {
    let mut bytes = 0;
    let fits = |job: &&Job| {
        for entry in &job.entries {
            bytes += entry.artifact.as_ref().map_or(0, |artifact| artifact.diff.len());
            bytes += group::contents_of(&entry.steps).iter().map(|(_, content)| content.len()).sum::<usize>();
        }
        bytes <= MAX_GROUP_BYTES
    };
    jobs.iter().take_while(fits).count().max(1)
}

/// Commits the group behind position `last`, or the newest record's; the answers, and the position of the newest record.
async fn carry_out(
    connection: &mut PgConnection,
    fence: &Fence,
    group: &[Job],
    last: i64,
) -> Result<(Vec<Result<AppendedAll>>, i64)> {
    let mut fenced = fence.enter(connection, Entrance::Begin).await?;
    let mut known = read_known(&mut fenced, fence, group).await?;
    known.position = fenced.position().max(last);
    let mut batch = Batch::default();
    let mut done = Vec::with_capacity(group.len());
    for job in group {
        done.push(match known.append_all(&job.entries, &mut batch) {
            Err(LedgerError::NoSuchRun) => Err(LedgerError::NoSuchRun),
            appended => Ok(appended?),
        });
    }
    batch.write(&mut fenced, &known).await.map_err(failed)?;
    let mutates = group.iter().flat_map(|job| &job.entries).any(|entry| !entry.steps.is_empty());
    if mutates {
        failpoint::hit("ledger.written");
    }
    let committed = sqlx::raw_sql("COMMIT").execute(fenced.connection()).await;
    // Whatever it was: the group may have become durable, and must not be written again.
    committed.map_err(|error| LedgerError::InDoubt(Box::new(error)))?;
    fence.acknowledge(known.position, known.changed());
    if mutates {
        failpoint::hit("ledger.committed");
    }
    Ok((done, known.position))
}

/// Reads what the group's entries depend on; refused where this process must not write to the database.
async fn read_known(fenced: &mut FencedTx<'_>, fence: &Fence, group: &[Job]) -> Result<Known> {
    let mut known = Known::default();
    let entries = || group.iter().flat_map(|job| &job.entries);
    let mut runs: Vec<_> = entries().map(|entry| &entry.draft.run_id).collect();
    runs.sort_unstable();
    runs.dedup();
    let client_supplied_id: (Vec<&str>, Vec<&str>) = entries()
        .filter(|entry| entry.client_supplied_id)
        .map(|entry| (entry.draft.run_id.as_str(), entry.draft.tool_call_id.as_str()))
        .unzip();
    let needed = entries().filter_map(|entry| entry.preconditions.token.as_ref());
    let mut tokens: Vec<&str> = needed.map(|token| token.token_id.as_str()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let query = sqlx::query(HEADS)
        .bind(runs.iter().map(|run| run.as_str()).collect::<Vec<_>>())
        .bind(client_supplied_id.0)
        .bind(client_supplied_id.1)
        .bind(tokens);
    let found = query.fetch_all(fenced.connection()).await.map_err(failed)?;
    for row in found {
        known.heads.insert(rows::run_id(&row, 0)?, RunHead::read(&row)?);
        if let Some(id) = row.maybe_text(15)? {
            let id = ToolCallId::parse(&id).map_err(|_| damaged("tool call ID"))?;
            let first = FirstCall {
                tool: row.text(16)?,
                input_sha256: rows::sha256(&row.bytes(17)?)?,
                is_answered: row.flag(18)?,
            };
            known.calls.insert((row.int(1)?, id), first);
        }
        for id in row.maybe_text(19)?.unwrap_or_default().split_whitespace() {
            known.revoked.insert((row.int(1)?, TokenId::parse(id).map_err(|_| damaged("token ID"))?));
        }
    }
    fence.check_heads(&runs, &known.heads)?;
    let decided: Vec<&str> = entries()
        .filter_map(|entry| entry.approval_decision.as_ref())
        .map(|approval_decision| approval_decision.approval_id.as_str())
        .collect();
    if !decided.is_empty() {
        for row in sqlx::query(PENDING).bind(decided).fetch_all(fenced.connection()).await.map_err(failed)? {
            let id = ApprovalId::parse(&row.text(1)?).map_err(|_| damaged("approval ID"))?;
            known.pending.insert((row.int(0)?, id));
        }
    }
    Ok(known)
}
