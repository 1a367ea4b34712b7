//! `workspaced replay`: rebuilds a run's files from its base and its ledger, and compares the workspace with them.
//!
//! A tree that equals a tampered ledger proves nothing, so the chain is verified first. The rest is reported in any case,
//! because it helps with the repair.

#![expect(clippy::disallowed_types, reason = "folders that an operator names are compared; no run's tree is opened")]

use async_recursion::async_recursion as boxed;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use content::NoClaims;
use engine::audit::find_break;
use engine::audit::snapshot::RawContents;
use engine::tools::INLINE_BYTES;
use model::{FirstVersions, LogicalPath, Sha256};
use transparency::LeafCheck;
use workspace::{LargeContent, RebuildReport, Snapshot, StoredContents, Workspace, WorkspaceError};

use crate::content_integrity;
use crate::offline_run::{OfflineRun, database};
use crate::output::{print, print_chain, print_drift, print_paths};
use cluster::objects::open_objects;
use config::StartError;
use config::{ConfigError, ReplayConfig};
use proofs::checkpoints::{leaves_of, push_leaf};

/// Verifies the run's chain, rebuilds its files in a folder, and compares the workspace with the ledger. Returns whether
/// all of it succeeded and is equal.
///
/// # Errors
///
/// If the run's data or the folder cannot be used.
#[boxed]
pub async fn replay(config: ReplayConfig) -> Result<bool, StartError> {
    check_target(&config)?;
    let objects =
        config.object_store.as_ref().map(|store| open_objects(store, &config.data_dir, Arc::new(NoClaims))).transpose();
    let objects = objects.map_err(|error| ConfigError(format!("--object-store-url: {error}")))?;
    let mut run = OfflineRun::open(&config.data_dir, &config.database_url, &config.run).await?;
    run.objects = objects;
    let done = replay_run(&run, &config.to).await;
    run.ledger.close().await;
    done
}

async fn replay_run(run: &OfflineRun, to: &Path) -> Result<bool, StartError> {
    let id = run.id();
    let is_intact = verify_chain(run).await?;
    if !is_intact {
        print(&format!("{id}: the following comes from a broken ledger and proves nothing"));
    }
    if run.is_elsewhere {
        print(&format!(
            "{id}: its newest files are not in this data folder, but on another node or in the object store:"
        ));
        print("run this with the data folder of the node that had it last");
        return Ok(false);
    }
    if let Err(error) = &run.base {
        print(&format!("{id}: the base is MISSING, and nothing can be rebuilt without it: {error}"));
        return Ok(false);
    }
    let has_recorded_base = check_base(run);
    let expected = run.expected().await?;
    let report = rebuild(run, &expected, to).await?;
    let is_rebuilt = print_rebuilt(run, &expected, report).await?;
    let has_contents = content_integrity::check_earlier(run, &expected).await?;
    let pending = run.ledger.pending_journal(Some(id)).await.map_err(database)?.len();
    if pending > 0 {
        print(&format!("{id}: {pending} changes are pending; the service finishes them when it starts"));
    }
    let is_equal = compare_workspace(run, expected).await?;
    Ok(is_intact && has_recorded_base && is_rebuilt && has_contents && is_equal)
}

/// Verifies the run's chain and the leaves over it, and prints the report as `verify` does. Returns whether it is intact.
async fn verify_chain(run: &OfflineRun) -> Result<bool, StartError> {
    let mut first = FirstVersions::default();
    let verified = run.ledger.verify_each(run.id(), &mut |record| first.push(record)).await;
    let mut report = verified.map_err(database)?;
    if let Ok(base) = &run.base
        && report.archived_records == 0
    {
        let found = find_break(base, &run.stored.run.policy, &first);
        if let Some(found) = found.map_err(|error| StartError::failed("the run's base", &error))? {
            report.add_discontinuity(found);
        }
    }
    let mut check = LeafCheck::default();
    for leaf in leaves_of(run.ledger.as_ref(), run.id(), u64::MAX).await.map_err(database)? {
        push_leaf(&mut check, &leaf);
    }
    check.add_to(&mut report);
    print_chain(&report);
    Ok(report.intact)
}

/// Returns whether the base is the one that the run was recorded to start from.
fn check_base(run: &OfflineRun) -> bool {
    let recorded = run.stored.run.base_commit.as_deref().unwrap_or("none");
    let Some(found) = run.base.as_ref().ok().map(|base| base.commit()).filter(|found| *found != recorded) else {
        return true;
    };
    print(&format!(
        "{}: the base DIFFERS: the run was recorded to start from {recorded}, the base is {found}",
        run.id()
    ));
    false
}

async fn rebuild(run: &OfflineRun, expected: &Snapshot, to: &Path) -> Result<RebuildReport, StartError> {
    let base = run.base.as_ref().map_err(|error| StartError::failed("the run's base", error))?;
    let (base, snapshot) = (Arc::clone(base), expected.clone());
    let contents = WithTree::new(RawContents(run.contents()), run.workspace.as_ref().ok().cloned(), expected);
    let target = to.to_owned();
    let rebuilt = tokio::task::spawn_blocking(move || {
        let rebuilt = base.rebuild(&snapshot, &target, &contents);
        (rebuilt, contents.taken.into_inner())
    });
    let (rebuilt, taken) = rebuilt.await.map_err(|error| StartError::failed("the rebuilt tree", &error))?;
    print_paths("over 1 MiB: taken from the workspace, where it has the ledger's hash", &taken);
    match rebuilt {
        Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            let to = to.display();
            Err(ConfigError(format!("--to {to}: the folder is not empty; name an empty or a new one")).into())
        }
        rebuilt => rebuilt.map_err(|error| StartError::failed("the rebuilt tree", &error)),
    }
}

/// The stored contents, and the files of the workspace that have the hash of a content which is too large for the ledger.
struct WithTree {
    contents: RawContents,
    workspace: Option<Arc<Workspace>>,
    paths: HashMap<Sha256, LogicalPath>,
    /// What was taken from the workspace.
    taken: RefCell<Vec<LogicalPath>>,
}

impl WithTree {
    fn new(contents: RawContents, workspace: Option<Arc<Workspace>>, expected: &Snapshot) -> Self {
        let paths = expected.files().iter().map(|(path, file)| (file.sha256, path.clone())).collect();
        Self { contents, workspace, paths, taken: RefCell::default() }
    }
}

impl StoredContents for WithTree {
    fn content(&self, seq: u64, sha256: &Sha256) -> io::Result<Option<Vec<u8>>> {
        self.contents.content(seq, sha256)
    }

    fn large(&self, sha256: &Sha256) -> io::Result<Option<LargeContent>> {
        let stored = self.contents.large(sha256)?;
        let (None, Some(workspace), Some(path)) = (&stored, &self.workspace, self.paths.get(sha256)) else {
            return Ok(stored);
        };
        // Smaller ones are in the ledger, and missing there if they are not.
        let found = workspace.content_at(path, sha256)?.filter(|(size, _)| *size > INLINE_BYTES as u64);
        if found.is_some() {
            self.taken.borrow_mut().push(path.clone());
        }
        Ok(found)
    }
}

/// Prints what was rebuilt, and what was not and why. Returns whether all of it was rebuilt.
async fn print_rebuilt(run: &OfflineRun, expected: &Snapshot, report: RebuildReport) -> Result<bool, StartError> {
    let RebuildReport { files, links, wrong, not_kept, lost, .. } = report;
    let is_complete = wrong.is_empty() && not_kept.is_empty() && lost.is_empty();
    let result = if is_complete { "every hash matches the ledger" } else { "NOT ALL that the ledger has" };
    let seq = run.stored.run.head_seq;
    print(&format!("{}: rebuilt {files} files and {links} links as of record {seq}: {result}", run.id()));
    print_paths("the content does not match the ledger's hash", &wrong);
    print_paths("not rebuilt, because the content is missing from the base", &lost);
    for (absence, paths) in content_integrity::explain_absent(run, expected, not_kept).await? {
        print_paths(&format!("not rebuilt, because {}", absence.reason()), &paths);
    }
    Ok(is_complete)
}

/// Compares the workspace with the ledger and prints the differences. Returns whether it is equal.
async fn compare_workspace(run: &OfflineRun, expected: Snapshot) -> Result<bool, StartError> {
    let id = run.id();
    if let Err(error) = &run.workspace {
        print(&format!("{id}: the workspace is MISSING: {error}"));
        return Ok(false);
    }
    let drift = run.blocking("the workspace", move |workspace| workspace.find_drift(&expected)).await?;
    if drift.is_empty() {
        print(&format!("{id}: the workspace is equal"));
    } else {
        print(&format!("{id}: the workspace DIFFERS at {} paths", drift.len()));
        print_drift(&drift);
    }
    Ok(drift.is_empty())
}

/// Refuses a target folder inside the data folder.
fn check_target(config: &ReplayConfig) -> Result<(), ConfigError> {
    if is_inside(&config.to, &config.data_dir) {
        let to = config.to.display();
        return Err(ConfigError(format!("--to {to}: the folder lies in the data folder; name one outside of it")));
    }
    Ok(())
}

/// Whether the folder `target`, which need not exist, is in the data folder.
#[expect(clippy::disallowed_methods, reason = "compares two folders that an operator names; no run's tree is opened")]
pub(super) fn is_inside(target: &Path, data_dir: &Path) -> bool {
    // Opening a missing data folder reports it.
    data_dir.canonicalize().is_ok_and(|data_dir| resolve(target).starts_with(data_dir))
}

/// Returns the absolute path of `target`, of which only the first folders need exist. The others have no links.
#[expect(clippy::disallowed_methods, reason = "as for `is_inside`")]
fn resolve(target: &Path) -> PathBuf {
    let existing = target.ancestors().find_map(|ancestor| {
        let folder = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        Some((folder.canonicalize().ok()?, target.strip_prefix(ancestor).ok()?))
    });
    let (mut resolved, missing) = existing.unwrap_or((PathBuf::new(), target));
    for component in missing.components() {
        match component {
            Component::ParentDir => drop(resolved.pop()),
            other => resolved.push(other),
        }
    }
    resolved
}
