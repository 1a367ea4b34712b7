//! `workspaced replay`: a run's tree, made anew from its base and its ledger, as proof that they tell it whole.

use std::io;

use workspace::{Fault, Rebuilt};

use crate::config::{BadSetting, ReplayConfig};
use crate::offline::{Offline, print, print_differences, print_paths};
use crate::start::StartError;

/// Makes the run's files anew in a folder, and compares the workspace with what the ledger says. False where a file could
/// not be made as the ledger says, or the workspace differs.
///
/// # Errors
///
/// Where the run's data or the folder cannot be used.
pub async fn replay(config: ReplayConfig) -> Result<bool, StartError> {
    let offline = Offline::open(&config.data_dir, &config.database_url, &config.run).await?;
    let done = replay_run(&offline, config).await;
    offline.ledger.close().await;
    done
}

async fn replay_run(offline: &Offline, config: ReplayConfig) -> Result<bool, StartError> {
    let expected = offline.expected().await?;
    let (run, seq) = (offline.run(), offline.stored.run.head_seq);
    let (past, contents, to) = (expected.clone(), offline.contents(), config.to.clone());
    let rebuilt = offline
        .blocking("the rebuilt tree", move |workspace| match workspace.rebuild(&past, &to, &contents) {
            Err(Fault::Io(error)) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(None),
            rebuilt => rebuilt.map(Some),
        })
        .await?;
    let Some(rebuilt) = rebuilt else {
        let place = config.to.display();
        return Err(BadSetting(format!("--to {place}: the folder is not empty; name one that is, or none")).into());
    };
    let Rebuilt { files, links, wrong, not_kept } = rebuilt;
    let sound = wrong.is_empty() && not_kept.is_empty();
    let said = if sound { "every hash is as the ledger says" } else { "NOT ALL of what the ledger says" };
    print(&format!("{run}: rebuilt {files} files and {links} links as of record {seq}: {said}"));
    print_paths("other bytes than the ledger says", &wrong);
    print_paths("not rebuilt, since it was too large to be kept", &not_kept);
    let pending = offline.ledger.open_steps(Some(run)).await;
    let pending = pending.map_err(|error| StartError::failed("the database", &error))?.len();
    if pending > 0 {
        print(&format!("{run}: {pending} changes are pending; the service finishes them when it starts"));
    }
    let differences = offline.blocking("the workspace", move |workspace| workspace.compare(&expected)).await?;
    if differences.is_empty() {
        print(&format!("{run}: the workspace is equal"));
    } else {
        print(&format!("{run}: the workspace DIFFERS at {} paths", differences.len()));
        print_differences(&differences);
    }
    Ok(sound && differences.is_empty())
}
