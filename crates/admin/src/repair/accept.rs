//! The two ways to settle a run: restore its files from the ledger, or record the files as they are.

use std::io;

use content::ReservedObject;
use engine::audit::snapshot::{MAX_RESTORABLE_BYTES, VerifiedContents};
use engine::clock::now;
use ledger::{Entry, EntryObject, JournalEntry, ObjectHolder};
use model::{LogicalPath, Rules, Sha256, StepBytes, StepContent};
use workspace::{ChainPoint, Drift, DriftedPath, EntryState, RestoredState, Snapshot};

use super::is_confirmed;
use super::record::{append, drift_entry, restore_entry};
use crate::offline_run::{OfflineRun, database};
use crate::output::{print, print_paths};
use config::RepairConfig;
use config::StartError;

/// The largest file whose content the ledger stores, as for calls.
const MAX_STORED_BYTES: u64 = 1 << 20;

const BLOCKED: &str = "a folder or special file blocks the path of a file: remove it, and run repair again";

/// Restores every path that the ledger knows. Other files stay.
///
/// # Errors
///
/// If the ledger or the disk fails.
pub(super) async fn ledger(
    run: &OfflineRun,
    config: &RepairConfig,
    expected: &Snapshot,
    drift: Vec<Drift>,
    journal: &[JournalEntry],
) -> Result<bool, StartError> {
    let files = expected.files();
    if let Some((parent, child)) = LogicalPath::find_nested(files.keys()) {
        // Old versions did not refuse such a change.
        print_paths("is a file in the ledger", std::slice::from_ref(parent));
        print_paths("is a file under it in the ledger", std::slice::from_ref(child));
        print("nothing was changed; both cannot exist, so use --accept tree");
        return Ok(false);
    }
    let is_known = |path: &LogicalPath| expected.get(path).is_some() || expected.has_written(path);
    let (known, unknown): (Vec<_>, Vec<_>) = drift.into_iter().partition(|entry| is_known(&entry.path));
    let unknown: Vec<_> = unknown.into_iter().map(|entry| entry.path).collect();
    print_paths("stays, because the ledger does not know it", &unknown);
    let (mut targets, mut lost) = (Vec::with_capacity(known.len()), Vec::new());
    for entry in &known {
        match restore_target(run, expected, &entry.path, journal).await? {
            Some(target) => targets.push((entry.path.clone(), target)),
            None => lost.push(entry.path.clone()),
        }
    }
    if !lost.is_empty() {
        print_paths("cannot be restored, because its content is not in the ledger", &lost);
        print("nothing was changed; put those files back, or use --accept tree");
        return Ok(false);
    }
    if known.iter().any(|entry| entry.found == EntryState::Other) {
        print(BLOCKED);
        return Ok(false);
    }
    if !is_confirmed(config, &format!("restore {} paths from the ledger", targets.len())) {
        return Ok(false);
    }
    // As with any mutation, the record comes first: overwritten content cannot be restored.
    let point = append(run, restore_entry(run, config, expected, &known)).await?;
    let is_restored = run
        .blocking("the workspace", move |workspace| {
            let (applied, is_restored) = workspace.restore(&targets)?;
            applied.sync()?;
            Ok(is_restored)
        })
        .await?;
    if !is_restored {
        print(BLOCKED);
        return Ok(false);
    }
    finish(run, journal, point).await?;
    print(&format!("{}: the files match the ledger; the run accepts mutations again", run.id()));
    Ok(true)
}

/// Returns what restores `path`, or `None` if its content is not stored.
async fn restore_target(
    run: &OfflineRun,
    expected: &Snapshot,
    path: &LogicalPath,
    journal: &[JournalEntry],
) -> Result<Option<RestoredState>, StartError> {
    let Some(file) = expected.get(path) else { return Ok(Some(RestoredState::Nothing)) };
    let (at, wanted, contents) = (path.clone(), file, run.contents());
    let bytes =
        run.blocking("the run's history", move |workspace| workspace.snapshot_content(&at, &wanted, &contents)).await?;
    if let Some(bytes) = bytes {
        let (sha256, mode) = (file.sha256, file.git_mode());
        return Ok(Some(RestoredState::File(StepContent { sha256, mode, bytes: StepBytes::Inline(bytes) })));
    }
    // The upload of a pending call is staged beside the workspace.
    let mut contents = journal.iter().flat_map(|entry| &entry.steps).filter_map(|step| step.after.clone());
    let found = contents.find(|content| content.sha256 == file.sha256 && is_intact(content));
    Ok(found.map(RestoredState::File))
}

/// Returns whether the bytes of a pending step match its hash. Staged bytes are not checked here.
fn is_intact(content: &StepContent) -> bool {
    match &content.bytes {
        StepBytes::Inline(bytes) => Sha256::of(bytes) == content.sha256,
        StepBytes::Staged(_) => true,
    }
}

/// Records the files as they are, as one more mutation.
///
/// # Errors
///
/// If the ledger or the disk fails.
pub(super) async fn tree(
    run: &OfflineRun,
    config: &RepairConfig,
    expected: Snapshot,
    drift: Vec<Drift>,
    journal: &[JournalEntry],
) -> Result<bool, StartError> {
    let special = drift.iter().filter(|entry| entry.found == EntryState::Other);
    let special: Vec<_> = special.map(|entry| entry.path.clone()).collect();
    if !special.is_empty() {
        print_paths("is not a file and cannot be recorded", &special);
        print("nothing was changed; remove it, and run repair again");
        return Ok(false);
    }
    if !is_confirmed(config, &format!("record {} paths as they are", drift.len())) {
        return Ok(false);
    }
    let rules = Rules::compile(run.stored.run.policy.clone());
    let rules = rules.map_err(|error| StartError::failed("the run's policy", &error))?;
    // Only the diff shows the old contents: changed ones in the ledger must not prevent the repair.
    let contents = VerifiedContents(run.contents());
    let found = run.blocking("the workspace", move |workspace| {
        let inspect = |entry| workspace.inspect_drift(&rules, &expected, entry, &contents, MAX_STORED_BYTES);
        drift.into_iter().map(inspect).collect::<Result<Vec<_>, _>>()
    });
    let found = found.await?;
    let large: Vec<_> = found.iter().filter(|entry| entry.bytes.is_none()).filter_map(large_file).collect();
    let Some(stored) = store_large(run, &large).await? else { return Ok(false) };
    let left_paths = found.iter().map(|entry| entry.path.clone()).collect();
    let entry = Entry { objects: stored, left_paths, ..drift_entry(run, config, found) };
    let point = append(run, entry).await?;
    finish(run, journal, point).await?;
    print(&format!("{}: the files are recorded as they are; the run accepts mutations again", run.id()));
    Ok(true)
}

/// Returns the path and the hash of a file whose content is too large for the ledger.
fn large_file(entry: &DriftedPath) -> Option<(LogicalPath, Sha256)> {
    match entry.new {
        EntryState::File { sha256, .. } => Some((entry.path.clone(), sha256)),
        EntryState::Nothing | EntryState::Link { .. } | EntryState::Folder | EntryState::Other => None,
    }
}

/// Puts large contents into the object store, and returns what the record refers to. `None` if the service has an object store and
/// this command was not told which.
async fn store_large(
    run: &OfflineRun,
    large: &[(LogicalPath, Sha256)],
) -> Result<Option<Vec<EntryObject>>, StartError> {
    let Some(objects) = &run.objects else {
        let paths: Vec<_> = large.iter().map(|(path, _)| path.clone()).collect();
        let is_stored = engine::runs::is_base_referenced(run.ledger.as_ref(), &run.stored.run).await;
        let is_stored = is_stored.map_err(|error| StartError::failed("the database", &error))?;
        if is_stored && !large.is_empty() {
            print_paths("is over 1 MiB and belongs into the object store", &paths);
            print("nothing was changed; name the service's store by --object-store-url");
            return Ok(None);
        }
        print_paths("is over 1 MiB: its content is kept in the workspace alone", &paths);
        return Ok(Some(Vec::new()));
    };
    let mut stored = Vec::with_capacity(large.len());
    for (path, sha256) in large {
        let (at, wanted) = (path.clone(), *sha256);
        let content = run.blocking("the workspace", move |workspace| Ok(workspace.content_at(&at, &wanted)?)).await?;
        let Some((size, content)) = content else {
            return Err(StartError::failed("the workspace", &io::Error::other("a file changed while it was read")));
        };
        let put = objects.put_content(*sha256, size, content).await;
        let ReservedObject { reference, reservation } =
            put.map_err(|error| StartError::failed("the object store", &error))?;
        let holder = if size > MAX_RESTORABLE_BYTES { ObjectHolder::Path(path.clone()) } else { ObjectHolder::Run };
        stored.push(EntryObject { name: reference, reservation, size_bytes: size, holder });
    }
    Ok(Some(stored))
}

/// Removes the pending changes and lifts the block.
async fn finish(run: &OfflineRun, journal: &[JournalEntry], point: ChainPoint) -> Result<(), StartError> {
    let id = run.id();
    // Before the journal drops the steps, as a service does.
    run.note_tree(point).await?;
    let done: Vec<_> = journal.iter().map(|entry| entry.seq).chain([point.seq]).map(|seq| (id.clone(), seq)).collect();
    run.ledger.prune(&done).await.map_err(database)?;
    // The files may have other sizes now.
    let snapshot = run.expected().await?;
    let disk = run.blocking("the workspace", move |workspace| Ok(workspace.disk_usage(&snapshot)?)).await?;
    run.ledger.set_disk_usage(id, disk).await.map_err(database)?;
    run.ledger.set_needs_repair(id, false, &now()).await.map_err(database)?;
    run.blocking("the workspace", |workspace| Ok(workspace.clear_tmp(&[])?)).await
}
