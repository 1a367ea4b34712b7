//! `workspaced repair`: a run whose tree was changed from outside while a change was pending, settled by an operator.
//!
//! Whichever side is taken, the audit tells it: that somebody has lifted the block, why, and what stood where.

mod list;

use std::io::{self, BufRead as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ledger::{Appended, Artifact, Entry, JournalEntry, Ledger, LedgerError, Preconditions, StoredRun};
use model::{
    DiskChange, Draft, FileKind, LogicalPath, Outcome, RecordFile, Rules, Sha256, Step, StepBytes, StepContent, Usage,
    Verdict,
};
use workspace::{Base, ContentLocation, Drift, DriftEntry, EntryState, RestoreTarget, Snapshot, Workspace};

use crate::admin::offline::Offline;
use crate::admin::output::{print, print_differences, print_paths};
use crate::bootstrap::error::StartError;
use crate::config::{Accept, RepairConfig};
use crate::past::VerifiedContents;
use engine::clock::{new_artifact_id, new_tool_call_id, now};

/// Files up to so many bytes are kept in the ledger, as those of calls are.
const MAX_KEPT_BYTES: u64 = 1 << 20;
/// What the record of a repair names in place of a tool.
pub(crate) const TOOL: &str = "repair";
/// Who repairs: whoever has the data in hand, whom no token names.
const ACTOR: &str = "operator:repair";
/// Why a repair was made, where the operator does not say.
const REASON: &str = "the tree was changed from outside while a change was pending; it stays as it is";
/// The same where the ledger is taken.
const REASON_LEDGER: &str =
    "the tree was changed from outside while a change was pending; it is as the ledger says again";

/// Shows where the tree of a run that needs repair differs from its ledger, or settles it; without a run, lists what needs an
/// operator. False where something is not settled.
///
/// # Errors
///
/// Where the run's data cannot be used.
pub async fn repair(config: RepairConfig) -> Result<bool, StartError> {
    let Some(run) = &config.run else { return list::all(&config).await };
    let offline = Offline::open(&config.data_dir, &config.database_url, run).await?;
    let done = repair_run(&offline, &config).await;
    offline.ledger.close().await;
    done
}

async fn repair_run(offline: &Offline, config: &RepairConfig) -> Result<bool, StartError> {
    let run = offline.run();
    let (base, workspace) = (&offline.base, &offline.workspace);
    let Some(open) = usable(offline.ledger.as_ref(), &offline.stored, base, workspace).await? else {
        return Ok(false);
    };
    if !offline.stored.needs_repair {
        print(&format!("{run}: needs no repair"));
        return Ok(true);
    }
    if config.accept.is_some() {
        offline.take_over().await?;
    }
    let expected = offline.expected().await?;
    let past = expected.clone();
    let differences = offline.blocking("the workspace", move |workspace| workspace.find_drift(&past)).await?;
    print(&format!("{run}: needs repair; the workspace differs from the ledger at {} paths", differences.len()));
    print_differences(&differences);
    match config.accept {
        None => {
            print("add --accept ledger to bring the files to what the ledger says,");
            print("or --accept tree to keep them as they are and record that");
            Ok(false)
        }
        Some(Accept::Ledger) => accept_ledger(offline, config, &expected, differences, &open).await,
        Some(Accept::Tree) => accept_tree(offline, config, expected, differences, &open).await,
    }
}

/// The pending changes of a run that a service can open; `None` where it cannot, which it prints, with what helps.
async fn usable(
    ledger: &dyn Ledger,
    stored: &StoredRun,
    base: &io::Result<Arc<Base>>,
    workspace: &io::Result<Arc<Workspace>>,
) -> Result<Option<Vec<JournalEntry>>, StartError> {
    if !is_there(stored, base, workspace) {
        return Ok(None);
    }
    let run = &stored.run.run_id;
    match ledger.pending_journal(Some(run)).await {
        Err(error @ LedgerError::Internal(_)) => {
            let error = StartError::failed("a pending change in the database cannot be used", &error);
            print(&format!("{run}: needs repair; {error}"));
            print("put the database back from a backup that belongs to the run's folder");
            Ok(None)
        }
        open => open.map(Some).map_err(|error| StartError::failed("the database", &error)),
    }
}

/// Whether everything is there that a service needs to open the run; prints what is missing and what helps.
fn is_there(stored: &StoredRun, base: &io::Result<Arc<Base>>, workspace: &io::Result<Arc<Workspace>>) -> bool {
    let run = &stored.run.run_id;
    if let Err(error) = base {
        print(&format!(
            "{run}: needs repair; the base is MISSING or damaged, and nothing can be rebuilt without it: {error}"
        ));
        print("put the run's folder back from a backup, and start the service: it finishes pending changes by itself");
        return false;
    }
    if let Err(error) = workspace {
        print(&format!("{run}: needs repair; the workspace is MISSING or damaged: {error}"));
        print("put the run's folder back from a backup; or make its files again with `workspaced replay`,");
        print("move them into the run's folder as `repo`, beside an empty folder `tmp`, and repair again");
        return false;
    }
    if let Err(refusal) = Rules::compile(stored.run.policy.clone()) {
        print(&format!("{run}: needs repair; this version cannot use the run's policy: {refusal}"));
        print("start a version of the service that can; the run's files can be had with `workspaced replay`");
        return false;
    }
    true
}

/// What keeps a path from being brought back.
const IN_THE_WAY: &str = "a folder or special file blocks the path of a file: remove it, and run repair again";

/// Brings every path that the ledger knows to what it says. Files that it has never known stay.
async fn accept_ledger(
    offline: &Offline,
    config: &RepairConfig,
    expected: &Snapshot,
    differences: Vec<Drift>,
    open: &[JournalEntry],
) -> Result<bool, StartError> {
    if let Some((above, beneath)) = LogicalPath::find_nested(expected.files().keys()) {
        // Of a version that did not refuse such a change yet.
        print_paths("is a file by the ledger", std::slice::from_ref(above));
        print_paths("and so is, beneath it", std::slice::from_ref(beneath));
        print("nothing was changed; no folder can hold both, so take --accept tree");
        return Ok(false);
    }
    let known = |path: &LogicalPath| expected.files().contains_key(path) || expected.has_written(path);
    let (known, others): (Vec<_>, Vec<_>) = differences.into_iter().partition(|one| known(&one.path));
    let others: Vec<_> = others.into_iter().map(|one| one.path).collect();
    print_paths("stays, since the ledger has never known it", &others);
    let (mut wanted, mut lost) = (Vec::with_capacity(known.len()), Vec::new());
    for one in &known {
        match restore_of(offline, expected, &one.path, open).await? {
            Some(restore) => wanted.push((one.path.clone(), restore)),
            None => lost.push(one.path.clone()),
        }
    }
    if !lost.is_empty() {
        print_paths("cannot be brought back, since its content is not in the ledger", &lost);
        print("nothing was changed; put those files back, or take --accept tree");
        return Ok(false);
    }
    if known.iter().any(|one| one.found == EntryState::Other) {
        print(IN_THE_WAY);
        return Ok(false);
    }
    if !is_sure(config, &format!("bring {} paths to what the ledger says", wanted.len())) {
        return Ok(false);
    }
    // Before a byte moves, as with any other mutation: what is overwritten is not to be had again.
    let seq = record(offline, restored_entry(offline, config, expected, &known)).await?;
    let brought = offline
        .blocking("the workspace", move |workspace| {
            let (applied, all) = workspace.restore(&wanted)?;
            applied.sync()?;
            Ok(all)
        })
        .await?;
    if !brought {
        print(IN_THE_WAY);
        return Ok(false);
    }
    settle(offline, open.iter().map(|steps| steps.seq).chain([seq])).await?;
    print(&format!("{}: the files are as the ledger says; it takes mutations again", offline.run()));
    Ok(true)
}

/// What brings `path` to what the ledger says; `None` where those bytes are not kept.
async fn restore_of(
    offline: &Offline,
    expected: &Snapshot,
    path: &LogicalPath,
    open: &[JournalEntry],
) -> Result<Option<RestoreTarget>, StartError> {
    let Some(file) = expected.files().get(path).cloned() else { return Ok(Some(RestoreTarget::Nothing)) };
    let (at, past, contents) = (path.clone(), file.clone(), offline.contents());
    let bytes = offline
        .blocking("the run's history", move |workspace| {
            workspace.snapshot_content(&at, &past, &contents, &AtomicBool::new(false))
        })
        .await?;
    Ok(match bytes {
        Some(target) if file.is_link => Some(RestoreTarget::Link(target)),
        Some(bytes) => {
            let (sha256, mode) = (file.sha256, file.mode);
            Some(RestoreTarget::File(StepContent { sha256, mode, bytes: StepBytes::Inline(bytes) }))
        }
        None => {
            // What a pending call was sent lies beside the tree still.
            let mut contents = open.iter().flat_map(|steps| &steps.steps).filter_map(|step| step.after.clone());
            contents.find(|content| content.sha256 == file.sha256 && is_sound(content)).map(RestoreTarget::File)
        }
    })
}

/// Whether the bytes of a pending step are those that its record tells, as far as the ledger keeps them.
fn is_sound(content: &StepContent) -> bool {
    match &content.bytes {
        StepBytes::Inline(bytes) => Sha256::of(bytes) == content.sha256,
        StepBytes::Staged(_) => true,
    }
}

/// Records the tree as it is, as one more mutation.
async fn accept_tree(
    offline: &Offline,
    config: &RepairConfig,
    expected: Snapshot,
    differences: Vec<Drift>,
    open: &[JournalEntry],
) -> Result<bool, StartError> {
    let odd: Vec<_> =
        differences.iter().filter(|one| one.found == EntryState::Other).map(|one| one.path.clone()).collect();
    if !odd.is_empty() {
        print_paths("is no file, so that the audit cannot tell it", &odd);
        print("nothing was changed; remove it, and repair again");
        return Ok(false);
    }
    if !is_sure(config, &format!("record {} paths as they are", differences.len())) {
        return Ok(false);
    }
    let rules = Rules::compile(offline.stored.run.policy.clone());
    let rules = rules.map_err(|error| StartError::failed("the run's policy", &error))?;
    // They are only told in a diff: a ledger that was changed must not keep the operator from taking the files.
    let contents = VerifiedContents(offline.contents());
    let found = offline.blocking("the workspace", move |workspace| {
        let look = |one| workspace.inspect_drift(&rules, &expected, one, &contents, MAX_KEPT_BYTES);
        differences.into_iter().map(look).collect::<Result<Vec<_>, _>>()
    });
    let seq = record(offline, found_entry(offline, config, found.await?)).await?;
    settle(offline, open.iter().map(|steps| steps.seq).chain([seq])).await?;
    print(&format!("{}: the audit tells the files as they are; it takes mutations again", offline.run()));
    Ok(true)
}

/// Makes the repair durable in the run's chain; its record's number.
async fn record(offline: &Offline, entry: Entry) -> Result<u64, StartError> {
    let database = |error: ledger::LedgerError| StartError::failed("the database", &error);
    match offline.ledger.append(entry).await.map_err(database)? {
        Appended::Recorded(record) => {
            print(&format!("{}: recorded as {}, record {}", offline.run(), record.tool_call_id, record.seq));
            Ok(record.seq)
        }
        Appended::Reused | Appended::Repeated | Appended::NotPending | Appended::PreconditionFailed(_) => {
            let error = io::Error::other("the repair could not be recorded");
            Err(StartError::failed("the database", &error))
        }
    }
}

/// The entry of files that are brought to what the ledger says of them already. It has read them and written none: to
/// whoever follows the run's history nothing has changed, and this record has left no content.
fn restored_entry(offline: &Offline, config: &RepairConfig, expected: &Snapshot, known: &[Drift]) -> Entry {
    let kind = |path: &LogicalPath| match expected.files().get(path).map(|file| file.location) {
        Some(ContentLocation::Ledger { kind, .. }) => kind,
        Some(ContentLocation::Base { .. }) | None => FileKind::of_path(path),
    };
    let files = known.iter().map(|one| RecordFile {
        kind: kind(&one.path),
        new_sha256: one.expected.sha256(),
        old_sha256: one.found.sha256(),
        path: one.path.clone(),
    });
    let mut draft = draft_of(offline, config, "repair:acceptLedger", REASON_LEDGER);
    draft.files = files.collect();
    draft.paths_read = known.iter().map(|one| one.path.clone()).collect();
    entry_of(draft)
}

/// The entry of files that stay as they were found.
fn found_entry(offline: &Offline, config: &RepairConfig, found: Vec<DriftEntry>) -> Entry {
    let file = |one: &DriftEntry| RecordFile {
        kind: one
            .bytes
            .as_ref()
            .map_or_else(|| FileKind::of_path(&one.path), |bytes| FileKind::of_file(&one.path, bytes)),
        new_sha256: one.new.sha256(),
        old_sha256: one.old.sha256(),
        path: one.path.clone(),
    };
    let mut draft = draft_of(offline, config, "repair:acceptTree", REASON);
    draft.files = found.iter().map(file).collect();
    draft.paths_written = found.iter().map(|one| one.path.clone()).collect();
    let mut artifact = None;
    if !found.is_empty() {
        let artifact_id = new_artifact_id();
        draft.artifact_uris = vec![format!("artifact://{}/{artifact_id}", offline.run())];
        let diff: Vec<u8> = found.iter().flat_map(|one| one.diff.iter().copied()).collect();
        draft.diff_sha256 = Some(Sha256::of(&diff));
        artifact = Some(Artifact { artifact_id, diff });
    }
    Entry { steps: found.into_iter().filter_map(step_of).collect(), artifact, ..entry_of(draft) }
}

fn draft_of(offline: &Offline, config: &RepairConfig, rule: &str, reason: &str) -> Draft {
    Draft {
        actor: ACTOR.to_owned(),
        artifact_uris: Vec::new(),
        code: None,
        decision: Verdict::Allow,
        diff_sha256: None,
        duration_micros: 0,
        files: Vec::new(),
        mutates: true,
        outcome: Outcome::Ok,
        paths_read: Vec::new(),
        paths_written: Vec::new(),
        reason: Some(
            config.reason.as_deref().map_or_else(|| reason.to_owned(), |reason| model::redact(reason).into_owned()),
        ),
        reasons: vec![rule.to_owned()],
        run_id: offline.run().clone(),
        step_id: None,
        timestamp: now(),
        tool: TOOL.to_owned(),
        tool_call_id: new_tool_call_id(),
    }
}

fn entry_of(draft: Draft) -> Entry {
    Entry {
        draft,
        input_sha256: Sha256::ZERO,
        client_supplied_id: false,
        reply: None,
        steps: Vec::new(),
        artifact: None,
        approval: None,
        approval_decision: None,
        usage: Usage::default(),
        disk: DiskChange::default(),
        preconditions: Preconditions::default(),
    }
}

/// The step that would make what was found: so that its bytes are kept. None for what is too large for that.
fn step_of(found: DriftEntry) -> Option<Step> {
    let after = match (found.new.sha256(), found.bytes) {
        (Some(_), None) => return None,
        (Some(sha256), Some(bytes)) => {
            let mode = if matches!(found.new, EntryState::File { executable: true, .. }) { 0o755 } else { 0o644 };
            Some(StepContent { sha256, mode, bytes: StepBytes::Inline(bytes) })
        }
        (None, _) => None,
    };
    Some(Step { path: found.path, before: found.old.sha256(), after })
}

/// Nothing is pending any more.
async fn settle(offline: &Offline, seqs: impl Iterator<Item = u64>) -> Result<(), StartError> {
    let database = |error: ledger::LedgerError| StartError::failed("the database", &error);
    let done: Vec<_> = seqs.map(|seq| (offline.run().clone(), seq)).collect();
    offline.ledger.prune(&done).await.map_err(database)?;
    // Other files may be there now: the next start counts them.
    offline.ledger.set_disk_usage(offline.run(), None).await.map_err(database)?;
    offline.ledger.set_needs_repair(offline.run(), false).await.map_err(database)?;
    offline.blocking("the workspace", |workspace| Ok(workspace.clear_tmp(&[])?)).await
}

/// Whether the operator means it.
fn is_sure(config: &RepairConfig, what: &str) -> bool {
    if config.yes {
        return true;
    }
    print(&format!("this will {what}; type yes to go on"));
    let mut line = String::new();
    let sure = io::stdin().lock().read_line(&mut line).is_ok() && line.trim() == "yes";
    if !sure {
        print("nothing was changed; --yes goes on without asking");
    }
    sure
}
