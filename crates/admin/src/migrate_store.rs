//! `workspaced migrate-store`: moves the data of one service, on SQLite and its own disk, to what many nodes share: PostgreSQL and an
//! object store.
//!
//! The source is only read. First everything that runs need from the object store is put there. Then the database is copied in one
//! transaction, with a mark that keeps services from using the copy. Then the runs whose records do not name all that they started from get
//! a record that does, everything is verified, and the mark is removed.

mod report;
mod run_files;

use async_recursion::async_recursion as boxed;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufWriter, PipeWriter, Write as _};
use std::sync::Arc;

use content::{NoClaims, ObjectError, Objects};
use engine::clock::{new_tool_call_id, now};
use engine::runs::{check_object, recorded_base};
use ledger::{DatabaseSnapshot, DumpPart, Entry, Ledger, LedgerError, ObjectReference, RestoreTarget};
use model::{ChainReport, Draft, MIGRATE_TOOL, RunId, Sha256};
use rustix::fs::Mode;
use serde_json::json;
use tokio::task::block_in_place;
use workspace::{RecordedBase, Workspaces};

use self::report::{MigrationReport, print_report};
use self::run_files::{RunFiles, RunProblem, put};
use crate::offline_run::{check_database, database, has_files};
use crate::output::progress;
use cluster::objects::open_objects;
use config::StartError;
use config::{ConfigError, MigrateStoreConfig};
use data_dir::{Continuity, DataDirLock};

/// The actor in the records of a migration: an operator with access to the data, without a token.
const ACTOR: &str = "operator:migrate-store";
/// Runs that one query returns at most.
const PAGE: u32 = 500;
/// How many bytes of rows are written to the pipe at a time: as many as it holds.
const PIPE_BYTES: usize = 64 << 10;

/// The data to migrate, and where to.
struct StoreMigration<'a> {
    config: &'a MigrateStoreConfig,
    source: &'a Arc<dyn Ledger>,
    workspaces: Arc<Workspaces>,
    objects: Objects,
}

/// The files of all runs, as they are in the object store.
#[derive(Default)]
struct PutRuns {
    references: Vec<ObjectReference>,
    bases: Vec<(RunId, RecordedBase)>,
}

/// Migrates a data folder and its database, and prints a report. Returns whether all runs can be opened with the target, and all
/// chains are intact.
///
/// # Errors
///
/// If a service uses the data, the source cannot be read, the target is not empty, or one of the stores cannot be written. No service starts
/// with the target then.
#[boxed]
pub async fn migrate_store(config: MigrateStoreConfig) -> Result<bool, StartError> {
    check_database(&config.source)?;
    // New files are for this user alone, as those of the service are.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let lock = DataDirLock::take(&config.data_dir)?;
    let source = ledger::open_to_read(&config.source.url).await.map_err(database)?;
    let done = migrate(&config, &lock, &source).await;
    source.close().await;
    Ok(print_report(&config, &done?))
}

async fn migrate(
    config: &MigrateStoreConfig,
    lock: &DataDirLock,
    source: &Arc<dyn Ledger>,
) -> Result<MigrationReport, StartError> {
    check_source(lock, source.as_ref()).await?;
    let mark = source.setting(ledger::INSTANCE).await.map_err(database)?.unwrap_or_default();
    let is_copied = has_copy(config, &mark).await?;
    let objects = open_objects(&config.object_store, &config.data_dir, Arc::new(NoClaims));
    let objects = objects.map_err(|error| ConfigError(format!("--object-store-url: {error}")))?;
    let workspaces = Workspaces::open_to_read(&config.data_dir).map_err(|error| StartError::data_dir(&error))?;
    let migration = StoreMigration { config, source, workspaces: Arc::new(workspaces), objects };
    let mut report = MigrationReport::default();
    let runs = migration.put_runs(&mut report).await?;
    failpoint::hit("migrate.objects");
    if !is_copied {
        progress("copying the database");
        report.tables = copy(config, &mark, &runs.references).await?;
    }
    failpoint::hit("migrate.database");
    let target = ledger::open(&config.target.url).await.map_err(database)?;
    let done = migration.finish(&target, &runs, &mut report).await;
    target.close().await;
    done?;
    failpoint::hit("migrate.verified");
    ledger::end_transfer(&config.target.url).await.map_err(database)?;
    Ok(report)
}

/// Copies all rows, which no process may use meanwhile, through a pipe. Returns their numbers by tables.
async fn copy(
    config: &MigrateStoreConfig,
    mark: &str,
    references: &[ObjectReference],
) -> Result<BTreeMap<String, u64>, StartError> {
    let from = ledger::open_snapshot(&config.source.url, true).await.map_err(database)?;
    let mut to = ledger::begin_load(&config.target.url, ledger::schema()).await.map_err(database)?;
    let (mut reader, writer) = io::pipe().map_err(|error| StartError::failed("the pipe of the rows", &error))?;
    let loading = tokio::spawn(async move { to.read(&mut reader).await.map(|()| to) });
    let written = write_parts(from, writer).await;
    let loaded = loading.await.map_err(|error| StartError::failed("the database", &error))?;
    let to = match (written, loaded) {
        (Ok(()), loaded) => loaded.map_err(database)?,
        // The end of one ends the other too, which says less.
        (Err(error), Err(cause)) if is_broken_pipe(&error) => return Err(database(cause)),
        (Err(error), _) => return Err(database(error)),
    };
    to.finish(Some((mark, references))).await.map_err(database)
}

fn is_broken_pipe(error: &LedgerError) -> bool {
    let LedgerError::Unavailable(cause) = error else { return false };
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Writes all parts of a database, one after the other, and closes `to`.
async fn write_parts(mut from: Box<dyn DatabaseSnapshot>, to: PipeWriter) -> ledger::Result<()> {
    let mut to = BufWriter::with_capacity(PIPE_BYTES, to);
    let runs = from.contents().runs.clone();
    for part in runs.iter().map(DumpPart::Run).chain([DumpPart::Service]) {
        from.write(part, &mut to).await?;
    }
    block_in_place(|| to.flush()).map_err(|error| LedgerError::Unavailable(Box::new(error)))?;
    from.finish().await.map(drop)
}

/// Refuses a source that a service has not ended cleanly.
async fn check_source(lock: &DataDirLock, source: &dyn Ledger) -> Result<(), StartError> {
    if lock.check(source).await? == Continuity::OlderDatabase {
        let message = "--from: it is older than the data folder and lacks newer data: put its newest state back";
        return Err(ConfigError(message.to_owned()).into());
    }
    let pending = source.runs_with_pending_journal().await.map_err(database)?;
    if let Some(run) = pending.first() {
        let message = format!(
            "--data-dir: changes of {} runs, such as {run}, are pending: start the service with this data once, and end it",
            pending.len()
        );
        return Err(ConfigError(message).into());
    }
    Ok(())
}

/// Returns whether the target has the database already, from a migration that was interrupted after it.
async fn has_copy(config: &MigrateStoreConfig, mark: &str) -> Result<bool, StartError> {
    let instance = match ledger::restore_target(&config.target.url).await.map_err(database)? {
        RestoreTarget::Empty => return Ok(false),
        RestoreTarget::Used { instance } => instance.unwrap_or_default(),
    };
    // Each start of a service changes the instance, so that the source has not changed since.
    if instance == mark && !mark.is_empty() {
        let target = ledger::open_to_read(&config.target.url).await.map_err(database)?;
        let unfinished = target.setting(ledger::TRANSFER).await;
        target.close().await;
        if unfinished.map_err(database)?.as_deref() == Some(mark) {
            return Ok(true);
        }
    }
    Err(ConfigError("--database-url: the database is not empty: create an empty one".to_owned()).into())
}

impl StoreMigration<'_> {
    /// Puts what the runs need into the object store.
    async fn put_runs(&self, report: &mut MigrationReport) -> Result<PutRuns, StartError> {
        let (mut put_runs, mut after) = (PutRuns::default(), 0);
        loop {
            let page = self.source.run_ids(after, PAGE).await.map_err(database)?;
            let Some((last, _)) = page.last() else { return Ok(put_runs) };
            after = *last;
            // The service's own chain has no files.
            for run in page.into_iter().map(|(_, run)| run).filter(|run| !run.is_service()) {
                report.runs += 1;
                match self.put_run(&run, report).await {
                    Ok(None) => {}
                    Ok(Some(RunFiles { base, objects })) => {
                        let reference = |object| ObjectReference { object, run: run.clone() };
                        put_runs.references.extend(objects.into_iter().map(reference));
                        put_runs.bases.extend(base.map(|base| (run, base)));
                    }
                    Err(RunProblem::OfRun(reason)) => report.add_problem(run, reason),
                    Err(RunProblem::OfAll(error)) => return Err(error),
                }
            }
        }
    }

    /// Puts the files of one run. `None` if it has none.
    async fn put_run(&self, run: &RunId, report: &mut MigrationReport) -> Result<Option<RunFiles>, RunProblem> {
        let stored = match self.source.run(run).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Err(RunProblem::OfRun("it has no head in the database".to_owned())),
            Err(error @ LedgerError::Internal(_)) => return Err(RunProblem::OfRun(error.to_string())),
            Err(error) => return Err(RunProblem::OfAll(database(error))),
        };
        if !has_files(&stored.run) {
            report.without_files += 1;
            return Ok(None);
        }
        progress(&format!("run {}: {run}", report.runs));
        let files = put(self.source, &self.workspaces, &self.objects, &stored).await?;
        failpoint::hit("migrate.run");
        Ok(Some(files))
    }

    /// Records what the records do not name yet, and verifies everything.
    async fn finish(
        &self,
        target: &Arc<dyn Ledger>,
        runs: &PutRuns,
        report: &mut MigrationReport,
    ) -> Result<(), StartError> {
        for (run, base) in &runs.bases {
            record(target.as_ref(), run, base, report).await?;
            failpoint::hit("migrate.record");
        }
        progress("verifying the object store");
        self.verify_objects(report).await?;
        progress("verifying the chains");
        self.verify_chains(target.as_ref(), report).await?;
        for problem in &report.problems {
            // Otherwise, it would be found out by the first call of an agent.
            match target.set_needs_repair(&problem.run_id, true, &now()).await {
                Ok(()) | Err(LedgerError::NoSuchRun) => {}
                Err(error) => return Err(database(error)),
            }
        }
        Ok(())
    }

    /// Reads everything that runs need from the object store.
    async fn verify_objects(&self, report: &mut MigrationReport) -> Result<(), StartError> {
        let mut runs_of = BTreeMap::<String, Vec<RunId>>::new();
        for ObjectReference { object, run } in
            ledger::object_references(&self.config.target.url).await.map_err(database)?
        {
            runs_of.entry(object).or_default().push(run);
        }
        let mut checked = HashSet::new();
        for (object, runs) in runs_of {
            match check_object(&self.objects, &object, &mut checked).await {
                Ok(()) => report.objects += 1,
                Err(error @ (ObjectError::Store(_) | ObjectError::Io(_))) => {
                    return Err(StartError::failed("--object-store-url", &error));
                }
                Err(error) => {
                    let reason = match error {
                        ObjectError::Missing(_) => format!("{object} is missing from the object store"),
                        error => format!("{object} in the object store: {error}"),
                    };
                    for run in runs {
                        report.add_problem(run, reason.clone());
                    }
                }
            }
        }
        Ok(())
    }

    /// Verifies all chains. One that is broken must be broken in the source too.
    async fn verify_chains(&self, target: &dyn Ledger, report: &mut MigrationReport) -> Result<(), StartError> {
        let mut broken: Vec<ChainReport> = Vec::new();
        let mut count = |chain: &ChainReport| {
            report.records += chain.records;
            if !chain.intact {
                broken.push(chain.clone());
            }
        };
        ledger::verify_all(target, None, &mut count).await.map_err(database)?;
        for chain in broken {
            let before = self.source.verify(&chain.run_id).await.map_err(database)?;
            if before.first_break != chain.first_break {
                let message = format!("the chain of {} is broken in the copy only", chain.run_id);
                return Err(StartError::Failed { what: "the database".to_owned(), cause: message });
            }
            report.broken.push(chain);
        }
        report.orphaned_runs = target.orphaned_runs().await.map_err(database)?;
        Ok(())
    }
}

/// Appends a record of what `run` started from, unless its records say so already.
async fn record(
    target: &dyn Ledger,
    run: &RunId,
    base: &RecordedBase,
    report: &mut MigrationReport,
) -> Result<(), StartError> {
    let Some(stored) = target.run(run).await.map_err(database)? else { return Ok(()) };
    let recorded = recorded_base(target, &stored.run).await;
    let recorded = recorded.map_err(|error| StartError::failed(format!("the records of {run}"), &error))?;
    if recorded.as_ref() != Some(base) {
        let mut draft = Draft::new(run.clone(), ACTOR.to_owned(), MIGRATE_TOOL, new_tool_call_id(), now());
        let mut input = json!({ "baseCommit": base.commit, "manifestSha256": base.manifest_sha256 });
        if let Some(sha256) = base.untracked_sha256 {
            input["untrackedSha256"] = json!(sha256);
        }
        draft.input = input.as_object().cloned();
        draft.reason = Some("the files of the run were moved to an object store".to_owned());
        target.append(vec![Entry::new(draft, Sha256::ZERO)]).await.map_err(database)?;
        report.recorded.push(run.clone());
    }
    Ok(())
}
