//! `workspaced backup`: a consistent copy of the database and of the runs' files, while the service runs.
//!
//! Each run is one [archive]: its rows as of one moment, and the names and hashes of its files, whose contents all archives share. What
//! belongs to no run is the archive of the service.
//!
//! The rows are copied first and the files after them. A run's files exist before the database has the run, and the database
//! only grows until a run is deleted, so that the files of every copied run exist, unless the run was deleted meanwhile: then the
//! restored run is deleted too. The tree of a run is not copied: base and ledger rebuild it as of any record. Only what neither of
//! them has is copied from the tree: contents that are too large for the ledger, and files that git ignores. A large content that
//! was replaced between the two copies is nowhere any more; then both copies are made again.

mod folder;
mod manifest;
mod run_files;
mod saved_content;
mod saved_run;
mod signing;

use async_recursion::async_recursion as boxed;
use std::path::Path;
use std::sync::Arc;

use engine::clock;
use ledger::{CopiedRun, DumpPart, INSTANCE, Ledger, SnapshotContents};
use model::{LogicalPath, RunId};
use rustix::fs::Mode;
use serde::Serialize;
use workspace::Workspaces;

pub(super) use self::folder::{SERVICE, backups, hash};
pub(super) use self::manifest::{
    ArchivedRun, BackupManifest, CHECKPOINT_KEY, CHECKPOINTS, MANIFEST, RunEnd, SavedArchive,
};
pub(super) use self::saved_content::{SavedContent, object, open_object};
pub(super) use self::saved_run::{SavedEntry, SavedRun};

use self::folder::{BackupCopyError, BackupFolder, failed};
use self::manifest::{FORMAT, NamedFile};
use self::run_files::{RunCopier, RunCopy};
use crate::offline_run::{check_database, database};
use crate::output::{print, progress};
use crate::replay::is_inside;
use config::StartError;
use config::{BackupConfig, ConfigError};
use data_dir::{IDENTITY, check_identity};

/// How often the copies are made until none of the missing contents was replaced meanwhile.
const MAX_ATTEMPTS: u32 = 3;

/// The result of the command, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BackupReport<'a> {
    backup: String,
    runs: usize,
    /// Runs that were deleted while they were copied.
    deleted: usize,
    /// Runs that were archived while they were copied.
    archived: usize,
    new_objects: usize,
    new_bytes: u64,
    /// Bytes of the archives of all runs, without the contents that they share.
    archive_bytes: u64,
    includes_key: bool,
    remarks: Vec<Remark<'a>>,
    is_complete: bool,
}

/// What the operator has to know of a run, or of the whole backup.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Remark<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    message: String,
    missing: &'a [LogicalPath],
}

/// A backup that was written.
struct WrittenBackup {
    path: String,
    manifest: BackupManifest,
    /// The runs whose files were copied.
    saved: Vec<SavedRun>,
    /// Why the key is not in the backup, if it should be.
    lacks_key: Option<String>,
}

/// Writes a backup and prints a report. Returns whether it has everything.
///
/// # Errors
///
/// If the folder of backups or the data cannot be used, or the disk is full. There is no new backup then, and earlier ones are as
/// they were.
#[boxed]
pub async fn backup(config: BackupConfig) -> Result<bool, StartError> {
    check_database(&config.database_url)?;
    if is_inside(&config.to, &config.data_dir) {
        let to = config.to.display();
        return Err(ConfigError(format!("{to}: the folder lies in the data folder; name one outside of it")).into());
    }
    // A backup has what the database has: it is for this user alone.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let ledger = ledger::open_to_read(&config.database_url.url).await.map_err(database)?;
    let done = run(&config, &ledger).await;
    ledger.close().await;
    done
}

async fn run(config: &BackupConfig, ledger: &Arc<dyn Ledger>) -> Result<bool, StartError> {
    check_identity(&config.data_dir, ledger.as_ref()).await?;
    let workspaces = Workspaces::open_to_read(&config.data_dir).map_err(|error| StartError::data_dir(&error))?;
    let workspaces = Arc::new(workspaces);
    let mut folder = BackupFolder::open(&config.to)?;
    // Blocking work is done here, on a thread that serves nobody else.
    let written = write(config, &mut folder, ledger, &workspaces).await;
    if written.is_err()
        && let Err(error) = folder.discard()
    {
        progress(&format!("the unfinished backup could not be removed; the next one does it: {error}"));
    }
    Ok(report(config, &folder, &written?))
}

async fn write(
    config: &BackupConfig,
    folder: &mut BackupFolder,
    ledger: &Arc<dyn Ledger>,
    workspaces: &Arc<Workspaces>,
) -> Result<WrittenBackup, StartError> {
    let (path, number) = folder.begin().map_err(|error| failed(&error))?;
    let mut attempt = 1;
    let (copied, CopiedRuns { archives, saved, .. }) = loop {
        progress("copying the database");
        let copied = copy_rows(config, folder).await?;
        failpoint::hit("backup.database");
        let runs = copy_runs(folder, ledger, workspaces, &copied.runs).await?;
        if attempt == MAX_ATTEMPTS || !runs.are_outdated {
            break (copied, runs);
        }
        progress("large files were replaced meanwhile; copying again");
        attempt += 1;
    };
    let mut files = vec![folder.write_service(&path).map_err(|error| failed(&error))?];
    files.extend(copy_files(config, folder, &path, &copied)?);
    let key = config.include_key.then(|| signing::copy_key(&config.checkpoint_key_file, &copied, folder, &path));
    let lacks_key = match key.transpose()? {
        Some(Ok(key)) => {
            files.push(key);
            None
        }
        Some(Err(why)) => Some(why),
        None => None,
    };
    let manifest = BackupManifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        number,
        created_at: clock::now(),
        schema: ledger::schema(),
        instance: copied.settings.get(INSTANCE).cloned(),
        files,
        runs: archives,
    };
    folder.finish(&manifest).map_err(|error| failed(&error))?;
    Ok(WrittenBackup { path: path.display().to_string(), manifest, saved, lacks_key })
}

/// Writes the rows of each run, and those of no run, as of one moment.
async fn copy_rows(config: &BackupConfig, folder: &mut BackupFolder) -> Result<SnapshotContents, StartError> {
    let mut snapshot = ledger::open_snapshot(&config.database_url.url).await.map_err(database)?;
    let runs = snapshot.contents().runs.clone();
    let parts = runs.iter().map(|run| (run.run.clone(), DumpPart::Run(run)));
    for (run, part) in parts.chain([(RunId::service(), DumpPart::Service)]) {
        let mut rows = folder.begin_rows(&run).map_err(|error| failed(&error))?;
        snapshot.write(part, &mut rows).await.map_err(database)?;
        folder.add_rows(run, rows).map_err(|error| failed(&error))?;
    }
    snapshot.finish().await.map_err(database)
}

/// The copies of all runs.
#[derive(Default)]
struct CopiedRuns {
    archives: Vec<SavedArchive>,
    /// Those that have not ended meanwhile, without their entries.
    saved: Vec<SavedRun>,
    /// Whether newer rows would have contents that are missing now.
    are_outdated: bool,
}

async fn copy_runs(
    folder: &mut BackupFolder,
    ledger: &Arc<dyn Ledger>,
    workspaces: &Arc<Workspaces>,
    copied: &[CopiedRun],
) -> Result<CopiedRuns, StartError> {
    let mut copies = CopiedRuns::default();
    for (number, run) in copied.iter().enumerate() {
        progress(&format!("run {} of {}: {}", number + 1, copied.len(), run.run));
        let RunCopy { mut saved, ended, is_outdated } = (RunCopier { folder, ledger, workspaces }).copy(run).await?;
        let archive = folder.add_archive(&saved, run.head_hash).map_err(|error| failed(&error))?;
        saved.entries = Vec::new();
        if ended.is_none() {
            copies.saved.push(saved);
        }
        copies.archives.push(SavedArchive { run_id: run.run.clone(), archive, ended });
        copies.are_outdated |= is_outdated;
        failpoint::hit("backup.run");
    }
    Ok(copies)
}

/// Copies the files that belong to no run, except for the key that signs checkpoints.
fn copy_files(
    config: &BackupConfig,
    folder: &BackupFolder,
    path: &Path,
    copied: &SnapshotContents,
) -> Result<Vec<NamedFile>, StartError> {
    let from = config.data_dir.join(IDENTITY);
    let identity = folder.add_named(IDENTITY, &from).map_err(|error| match error {
        BackupCopyError::Source(error) => StartError::failed(from.display().to_string(), &error),
        BackupCopyError::Target(error) => failed(&error),
    })?;
    let mut files: Vec<_> = identity.into_iter().collect();
    if signing::copy_log(&config.checkpoint_file, copied, &path.join(CHECKPOINTS))? {
        files.push(BackupFolder::named(path, CHECKPOINTS).map_err(|error| failed(&error))?);
    }
    Ok(files)
}

/// Prints the report. Returns whether the backup has everything.
fn report(config: &BackupConfig, folder: &BackupFolder, written: &WrittenBackup) -> bool {
    let WrittenBackup { path, manifest, saved, lacks_key } = written;
    let (new_objects, new_bytes) = folder.added();
    let mut is_complete = lacks_key.is_none();
    let mut remarks = Vec::new();
    remarks.extend(lacks_key.clone().map(|message| Remark { run_id: None, message, missing: &[] }));
    for run in saved {
        let Some((message, is_lost)) = run.remark() else { continue };
        is_complete &= !is_lost;
        remarks.push(Remark { run_id: Some(run.run_id.as_str()), message, missing: &run.missing });
    }
    let archived = manifest.runs.iter().filter(|run| matches!(run.ended, Some(RunEnd::Archived(_)))).count();
    let report = BackupReport {
        backup: path.clone(),
        runs: saved.len(),
        deleted: manifest.runs.len() - saved.len() - archived,
        archived,
        new_objects,
        new_bytes,
        archive_bytes: manifest.runs.iter().map(|run| run.archive.size).sum(),
        includes_key: manifest.files.iter().any(|file| file.name == CHECKPOINT_KEY),
        remarks,
        is_complete,
    };
    if config.json {
        print(&serde_json::to_string(&report).unwrap_or_default());
        return is_complete;
    }
    for Remark { run_id, message, missing } in &report.remarks {
        print(&run_id.map_or_else(|| message.clone(), |run_id| format!("{run_id}: {message}")));
        crate::output::print_paths("not in the backup", missing);
    }
    print(&format!(
        "{path}: {} runs, {} bytes of their archives, {new_objects} new files with {new_bytes} bytes",
        report.runs, report.archive_bytes
    ));
    is_complete
}
