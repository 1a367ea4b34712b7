//! `workspaced restore`: writes a backup into an empty data folder and an empty database, or checks a backup.
//!
//! Every file of the backup is checked before anything is written. A mark in the data folder keeps the service from using it
//! until everything is on the disk.

#![expect(
    clippy::disallowed_types,
    reason = "a backup is outside of the data folder, and the data folder is no service's yet"
)]

mod removed;
mod run_files;
mod target;
mod tokens;

use async_recursion::async_recursion as boxed;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::clock::now;
use ledger::Ledger;
use model::{LogicalPath, RunId};
use rustix::fs::Mode;
use serde::Serialize;
use workspace::{ChainPoint, Workspaces};

use self::run_files::FilesRestorer;
use self::target::RestoredFolder;
use self::tokens::RestoredTokens;
use crate::backup::{
    BackupManifest, CHECKPOINT_KEY, MANIFEST, RunEnd, SavedArchive, SavedContent, SavedRun, backups, hash, object,
};
use crate::offline_run::{database, open_workspaces};
use crate::output::{print, print_paths, progress};
use config::StartError;
use config::{ConfigError, RestoreConfig};

/// What is done about a damaged archive.
const REPLACED: &str = ": the next backup writes it again, if its run has not changed since";
/// What to do about another damaged object. A backup compares only the sizes of those that exist.
const HEAL: &str = ": remove this file if it exists; the next backup writes it again, if its run still has the file";

/// A backup that is read.
struct Backup {
    /// The backup's own folder.
    path: PathBuf,
    /// The folder of backups.
    root: PathBuf,
    manifest: BackupManifest,
}

/// The result of the command, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RestoreReport {
    backup: String,
    created_at: String,
    checked_files: usize,
    checked_bytes: u64,
    /// Files of the backup that are missing or were changed.
    damaged: Vec<String>,
    /// Runs whose files were restored.
    runs: usize,
    /// Runs that were deleted while the backup was made.
    deleted: Vec<RunId>,
    /// Runs that were archived while the backup was made.
    archived: Vec<ArchivedReport>,
    /// Runs that need repair: not all of their files could be restored, or their trees were not what the ledger says.
    needs_repair: Vec<Unrestored>,
    tokens: RestoredTokens,
    has_key: bool,
}

/// A run that was archived while the backup was made.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArchivedReport {
    run_id: RunId,
    archive_uri: String,
}

/// A run that needs repair after the restore.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Unrestored {
    run_id: RunId,
    reason: String,
    missing: Vec<LogicalPath>,
    /// Whether something is lost, rather than as it was.
    #[serde(skip)]
    is_lost: bool,
}

/// Restores or checks a backup and prints a report. Returns whether the backup is intact and everything of it was restored.
///
/// # Errors
///
/// If the backup cannot be read, or the data folder or the database is in use or not empty, or cannot be written.
#[boxed]
pub async fn restore(config: RestoreConfig) -> Result<bool, StartError> {
    let backup = Backup::open(&config.from)?;
    let mut report = RestoreReport {
        backup: backup.path.display().to_string(),
        created_at: backup.manifest.created_at.clone(),
        checked_files: 0,
        checked_bytes: 0,
        damaged: Vec::new(),
        runs: 0,
        deleted: Vec::new(),
        archived: Vec::new(),
        needs_repair: Vec::new(),
        tokens: RestoredTokens::default(),
        has_key: backup.manifest.files.iter().any(|file| file.name == CHECKPOINT_KEY),
    };
    // New files are for this user alone, as those of the service are.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    backup.check(&mut report);
    if config.check || !report.damaged.is_empty() {
        return Ok(print_report(&config, &report));
    }
    let target = RestoredFolder::prepare(&config, &backup).await?;
    write(&config, &backup, &mut report).await?;
    target.complete(&config).map_err(|error| failed(&error))?;
    Ok(print_report(&config, &report))
}

impl Backup {
    /// Opens the backup in `from`, or the newest one of the folder of backups `from`.
    fn open(from: &Path) -> Result<Self, StartError> {
        let refused = |path: &Path, why: &dyn std::fmt::Display| ConfigError(format!("{}: {why}", path.display()));
        let read = |path: PathBuf| match BackupManifest::read(&path) {
            Ok(found) => Ok(found.map(|manifest| Self { root: parent(&path), path, manifest })),
            Err(error) => Err(StartError::failed(format!("{}/{MANIFEST}", path.display()), &error)),
        };
        if let Some(backup) = read(from.to_owned())? {
            return Ok(backup);
        }
        let mut newest = None;
        for name in backups(from).map_err(|error| refused(from, &error))? {
            let path = from.join(name);
            let manifest = BackupManifest::read(&path).map_err(|error| {
                let hint = "it may be the newest backup, so name the folder of the one to restore";
                StartError::failed(format!("{}: {hint}", path.display()), &error)
            })?;
            let Some(manifest) = manifest else { continue };
            let backup = Self { path, root: from.to_owned(), manifest };
            if newest.as_ref().is_none_or(|newest: &Self| newest.manifest.number < backup.manifest.number) {
                newest = Some(backup);
            }
        }
        let none = "it has no complete backup; name a folder that `workspaced backup` has written to";
        Ok(newest.ok_or_else(|| refused(from, &none))?)
    }

    /// Compares every file with the manifest.
    fn check(&self, report: &mut RestoreReport) {
        progress("checking the backup");
        let mut known = HashSet::new();
        for file in &self.manifest.files {
            check_file(&self.path.join(&file.name), file.content, "", report);
        }
        for SavedArchive { run_id, archive, .. } in &self.manifest.runs {
            let path = self.object(archive);
            if !check_file(&path, *archive, REPLACED, report) {
                continue;
            }
            match SavedRun::open(&self.root, archive) {
                Ok(run) if run.run_id != *run_id => {
                    report.damaged.push(format!(
                        "{}: it is the archive of {}, not of {run_id}",
                        path.display(),
                        run.run_id
                    ));
                }
                Ok(run) => {
                    for content in run.contents().filter(|content| known.insert(*content)) {
                        check_file(&self.object(&content), content, HEAL, report);
                    }
                }
                Err(error) => report.damaged.push(format!("{}: {error}{REPLACED}", path.display())),
            }
        }
    }

    /// Returns the runs whose files are in the backup.
    fn runs(&self) -> impl ExactSizeIterator<Item = &SavedArchive> {
        self.manifest.runs.iter().filter(|run| run.ended.is_none()).collect::<Vec<_>>().into_iter()
    }

    /// Reads what the archive of a run has besides its rows.
    fn saved(&self, run: &SavedArchive) -> Result<SavedRun, StartError> {
        SavedRun::open(&self.root, &run.archive).map_err(|error| failed(&error))
    }

    /// Returns the path of an object.
    fn object(&self, content: &SavedContent) -> PathBuf {
        object(&self.root, &content.sha256)
    }
}

/// Compares a file with what it must be. Returns whether it is.
fn check_file(path: &Path, content: SavedContent, remedy: &str, report: &mut RestoreReport) -> bool {
    report.checked_files += 1;
    report.checked_bytes += content.size;
    let why = match hash(path) {
        Ok(found) if found == content => return true,
        Ok(_) => "it was changed".to_owned(),
        Err(error) => error.to_string(),
    };
    report.damaged.push(format!("{}: {why}{remedy}", path.display()));
    false
}

/// Writes the database and the runs.
async fn write(config: &RestoreConfig, backup: &Backup, report: &mut RestoreReport) -> Result<(), StartError> {
    let workspaces = open_workspaces(&config.data_dir).await?;
    let (runs, mut bases) = (backup.runs().len(), HashMap::new());
    for (number, run) in backup.runs().enumerate() {
        progress(&format!("run {} of {runs}: {}: base", number + 1, run.run_id));
        let restorer = FilesRestorer { backup, workspaces: &workspaces, run: &backup.saved(run)? };
        restorer.write_base(&mut bases).map_err(|error| failed(&error))?;
        failpoint::hit("restore.base");
    }
    let ledger = ledger::open(&config.database_url.url).await.map_err(database)?;
    let restored = async {
        restore_runs(backup, &workspaces, &ledger, report).await?;
        report.tokens = tokens::settle(ledger.as_ref(), config.revoke_tokens).await?;
        Ok::<_, StartError>(())
    };
    let restored = restored.await;
    ledger.close().await;
    restored?;
    progress("syncing");
    workspaces.sync().map_err(|error| failed(&error))
}

async fn restore_runs(
    backup: &Backup,
    workspaces: &Arc<Workspaces>,
    ledger: &Arc<dyn Ledger>,
    report: &mut RestoreReport,
) -> Result<(), StartError> {
    for run in &backup.manifest.runs {
        match &run.ended {
            None => {}
            Some(RunEnd::Deleted) => {
                removed::delete(ledger.as_ref(), &run.run_id).await?;
                report.deleted.push(run.run_id.clone());
            }
            Some(RunEnd::Archived(archived)) => {
                removed::archive(ledger.as_ref(), archived).await?;
                let (run_id, archive_uri) = (run.run_id.clone(), archived.archive_uri.clone());
                report.archived.push(ArchivedReport { run_id, archive_uri });
            }
        }
    }
    let runs = backup.runs().len();
    for (number, run) in backup.runs().enumerate() {
        progress(&format!("run {} of {runs}: {}: tree", number + 1, run.run_id));
        let restorer = FilesRestorer { backup, workspaces, run: &backup.saved(run)? };
        let unrestored = restorer.write_tree(ledger).await?;
        if let Some(unrestored) = unrestored {
            ledger.set_needs_repair(&run.run_id, true, &now()).await.map_err(database)?;
            report.needs_repair.push(unrestored);
        }
        note_tree(ledger.as_ref(), workspaces, &run.run_id).await?;
        report.runs += 1;
        failpoint::hit("restore.run");
    }
    Ok(())
}

/// Notes in the folder of a run, if it has one, that its tree has every change of the restored database.
async fn note_tree(ledger: &dyn Ledger, workspaces: &Arc<Workspaces>, run: &RunId) -> Result<(), StartError> {
    let Some(stored) = ledger.run(run).await.map_err(database)? else { return Ok(()) };
    let head = ChainPoint { seq: stored.run.head_seq, hash: stored.run.head_hash };
    match workspaces.set_tree_note(run, head) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        noted => noted.map_err(|error| failed(&error)),
    }
}

/// Prints the report. Returns whether the backup is intact and nothing is lost.
fn print_report(config: &RestoreConfig, report: &RestoreReport) -> bool {
    let is_whole = report.damaged.is_empty() && !report.needs_repair.iter().any(|run| run.is_lost);
    if config.json {
        print(&serde_json::to_string(report).unwrap_or_default());
        return is_whole;
    }
    for damaged in &report.damaged {
        print(&format!("DAMAGED: {damaged}"));
    }
    let RestoreReport { backup, checked_files, checked_bytes, .. } = report;
    if !report.damaged.is_empty() {
        print(&format!("{backup}: {} of {checked_files} files are damaged; nothing was written", report.damaged.len()));
        print("restore another backup");
        return false;
    }
    print(&format!("{backup}: intact, {checked_files} files with {checked_bytes} bytes, of {}", report.created_at));
    if config.check {
        return is_whole;
    }
    for run in &report.needs_repair {
        print(&format!("{}: needs repair: {}", run.run_id, run.reason));
        print_paths("not restored", &run.missing);
    }
    for run in &report.archived {
        print(&format!("{}: was archived while the backup was made: {}", run.run_id, run.archive_uri));
    }
    print(&format!(
        "{} runs were restored, {} need repair, {} were deleted while the backup was made",
        report.runs,
        report.needs_repair.len(),
        report.deleted.len()
    ));
    if let Some(remark) = report.tokens.remark() {
        print(&remark);
    }
    if !report.has_key {
        print("the backup has no keys: put checkpoint.key into the data folder before the service starts");
    }
    is_whole
}

/// Returns the folder that the backup `path` is in.
fn parent(path: &Path) -> PathBuf {
    match path.parent().filter(|_| path.file_name().is_some()) {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.join(".."),
    }
}

fn failed(error: &io::Error) -> StartError {
    StartError::failed("the restore has not finished; repeat it when the cause is removed", error)
}
