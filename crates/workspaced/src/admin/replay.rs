//! `workspaced replay`: a run's tree, made anew from its base and its ledger, as proof that they tell it whole.
//!
//! A tree that equals a ledger proves nothing where the ledger was changed: so its chain is checked first. What is found
//! afterwards is told all the same, since whoever has to clear up wants to know it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use transparency::LeafCheck;
use workspace::{RebuildReport, Snapshot, WorkspaceError};

use crate::admin::content_integrity;
use crate::admin::offline::Offline;
use crate::admin::output::{print, print_chain, print_differences, print_paths};
use crate::bootstrap::error::StartError;
use crate::checkpoints::{leaves_of, push_leaf};
use crate::config::{ConfigError, ReplayConfig};
use crate::past::RawContents;

/// Checks the run's chain, makes its files anew in a folder, and compares the workspace with what the ledger says. False
/// where the chain is broken, something is missing or could not be made as the ledger says, or the workspace differs.
///
/// # Errors
///
/// Where the run's data or the folder cannot be used.
pub async fn replay(config: ReplayConfig) -> Result<bool, StartError> {
    check_target(&config)?;
    let offline = Offline::open(&config.data_dir, &config.database_url, &config.run).await?;
    let done = replay_run(&offline, &config.to).await;
    offline.ledger.close().await;
    done
}

async fn replay_run(offline: &Offline, to: &Path) -> Result<bool, StartError> {
    let intact = chain_is_intact(offline).await?;
    let run = offline.run();
    if !intact {
        print(&format!("{run}: what follows is as a broken ledger tells it, and proves nothing"));
    }
    if let Err(error) = &offline.base {
        print(&format!("{run}: the base is MISSING, and nothing can be rebuilt without it: {error}"));
        return Ok(false);
    }
    let base_is_known = base_is_the_one_that_is_told(offline);
    let expected = offline.expected().await?;
    let rebuilt = rebuild(offline, &expected, to).await?;
    let rebuilt = tell_rebuilt(offline, &expected, rebuilt).await?;
    let kept = content_integrity::earlier_are_sound(offline, &expected).await?;
    let pending = offline.ledger.pending_journal(Some(run)).await;
    let pending = pending.map_err(|error| StartError::failed("the database", &error))?.len();
    if pending > 0 {
        print(&format!("{run}: {pending} changes are pending; the service finishes them when it starts"));
    }
    let equal = workspace_is_equal(offline, expected).await?;
    Ok(intact && base_is_known && rebuilt && kept && equal)
}

/// Whether the run's chain and the leaves over it hold; tells of it as `verify` does.
async fn chain_is_intact(offline: &Offline) -> Result<bool, StartError> {
    let database = |error: ledger::LedgerError| StartError::failed("the database", &error);
    let (ledger, run) = (&offline.ledger, offline.run());
    let mut report = ledger.verify(run).await.map_err(database)?;
    let mut leaves = LeafCheck::default();
    for leaf in leaves_of(ledger.as_ref(), run, u64::MAX).await.map_err(database)? {
        push_leaf(&mut leaves, &leaf);
    }
    leaves.add_to(&mut report);
    print_chain(&report);
    Ok(report.intact)
}

/// Whether the base that is there is the one that the run is said to have started from.
fn base_is_the_one_that_is_told(offline: &Offline) -> bool {
    let told = offline.stored.run.base_commit.as_deref().unwrap_or("none");
    let Some(found) = offline.base.as_ref().ok().map(|base| base.commit()).filter(|found| *found != told) else {
        return true;
    };
    print(&format!(
        "{}: the base DIFFERS: the run is said to have started from {told}, but its base is {found}",
        offline.run()
    ));
    false
}

async fn rebuild(offline: &Offline, expected: &Snapshot, to: &Path) -> Result<RebuildReport, StartError> {
    let base = offline.base.as_ref().map_err(|error| StartError::failed("the run's base", error))?;
    let (base, past, contents) = (Arc::clone(base), expected.clone(), RawContents(offline.contents()));
    let place = to.to_owned();
    let rebuilt = tokio::task::spawn_blocking(move || base.rebuild(&past, &place, &contents)).await;
    match rebuilt.map_err(|error| StartError::failed("the rebuilt tree", &error))? {
        Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            let place = to.display();
            Err(ConfigError(format!("--to {place}: the folder is not empty; name one that is, or none")).into())
        }
        rebuilt => rebuilt.map_err(|fault| StartError::failed("the rebuilt tree", &fault)),
    }
}

/// Tells what was made, and what was not. True where all of it was.
async fn tell_rebuilt(offline: &Offline, expected: &Snapshot, rebuilt: RebuildReport) -> Result<bool, StartError> {
    let RebuildReport { files, links, wrong, not_kept, lost } = rebuilt;
    let (run, seq) = (offline.run(), offline.stored.run.head_seq);
    let sound = wrong.is_empty() && not_kept.is_empty() && lost.is_empty();
    let said = if sound { "every hash is as the ledger says" } else { "NOT ALL of what the ledger says" };
    print(&format!("{run}: rebuilt {files} files and {links} links as of record {seq}: {said}"));
    print_paths("other bytes than the ledger says", &wrong);
    print_paths("not rebuilt, since its content is missing from the base", &lost);
    for (why, paths) in content_integrity::why_not(offline, expected, not_kept).await? {
        print_paths(&format!("not rebuilt, since {}", why.told()), &paths);
    }
    Ok(sound)
}

async fn workspace_is_equal(offline: &Offline, expected: Snapshot) -> Result<bool, StartError> {
    let run = offline.run();
    if let Err(error) = &offline.workspace {
        print(&format!("{run}: the workspace is MISSING: {error}"));
        return Ok(false);
    }
    let differences = offline.blocking("the workspace", move |workspace| workspace.find_drift(&expected)).await?;
    if differences.is_empty() {
        print(&format!("{run}: the workspace is equal"));
    } else {
        print(&format!("{run}: the workspace DIFFERS at {} paths", differences.len()));
        print_differences(&differences);
    }
    Ok(differences.is_empty())
}

/// Refused where the folder lies in the data folder: what is kept there is nobody's place to try things.
#[expect(clippy::disallowed_methods, reason = "compares two places that an operator names; no run's tree is opened")]
fn check_target(config: &ReplayConfig) -> Result<(), ConfigError> {
    // The folder itself need not be there yet, but what it lies in does.
    let parent = config.to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = config.to.canonicalize().or_else(|_| parent.canonicalize());
    let inside = match (real, config.data_dir.canonicalize()) {
        (Ok(to), Ok(data_dir)) => to.starts_with(data_dir),
        // Whichever is not there is told by whoever opens it.
        _ => false,
    };
    if inside {
        let place = config.to.display();
        return Err(ConfigError(format!("--to {place}: the folder lies in the data folder; name one outside of it")));
    }
    Ok(())
}
