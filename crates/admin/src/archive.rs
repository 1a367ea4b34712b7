//! `workspaced archive`: lists, verifies and unpacks the archives of runs.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the folder that an operator names is outside of the data folder, and temporary files have no names"
)]

use async_recursion::async_recursion as boxed;
use std::fs::File;
use std::io::{self, BufReader, Seek as _};
use std::path::Path;

use archive::{ArchiveError, ArchiveName, ArchiveReport};
use model::RunId;
use rustix::fs::Mode;
use transparency::VerifierKey;

use crate::output::print;
use cluster::objects::StoreError;
use config::StartError;
use config::{ArchiveAction, ArchiveCommandConfig, ConfigError};
use retention::ArchiveStore;

/// Maximum paths of absent contents and uploads that are printed for an archive. `absent.txt.zst` has all.
const MAX_ABSENT: usize = 100;

/// What `archive` has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArchivesFound {
    /// Everything that was asked for is valid.
    Valid,
    /// Everything is valid, but the checkpoints were not verified, since no key was given.
    WithoutCheckpoint,
    /// An archive is invalid.
    Invalid,
}

/// Lists, verifies or unpacks archives. Prints the result on standard output.
///
/// # Errors
///
/// If the store or the folder cannot be used, or has no archive of the run.
#[boxed]
pub async fn archive(config: ArchiveCommandConfig) -> Result<ArchivesFound, StartError> {
    // New files are for this user alone: they are what agents have read and written.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let store = ArchiveStore::open(&config.from).map_err(failed)?;
    let mut archives = store.list().await.map_err(failed)?;
    if let Some(sha256) = config.sha256 {
        archives.retain(|(name, _)| name.sha256 == sha256);
        if archives.is_empty() {
            return Err(ConfigError(format!("--sha256: the store has no archive with the hash {sha256}")).into());
        }
    }
    let key = config.key.as_ref();
    match config.action {
        ArchiveAction::List => {
            for (name, bytes) in &archives {
                print(&format!("{}: {bytes} bytes, {}", name.run_id, store.uri(name)));
            }
            print(&format!("{} archives", archives.len()));
            Ok(ArchivesFound::Valid)
        }
        ArchiveAction::Verify(run) => {
            let mut invalid = 0;
            let chosen = chosen(archives, run.as_ref())?;
            for name in &chosen {
                invalid += u32::from(verify_one(&store, name, key).await?.is_none());
            }
            print(&format!("{} archives, {invalid} invalid", chosen.len()));
            Ok(if invalid == 0 { valid(key) } else { ArchivesFound::Invalid })
        }
        ArchiveAction::Read(run, to) => {
            let names = chosen(archives, Some(&run))?;
            let [name] = &names[..] else {
                let names: Vec<_> = names.iter().map(ToString::to_string).collect();
                let message = format!(
                    "the store has several archives of the run: {}; the run's `archiveUri` names the right one: move the \
                     others away",
                    names.join(", ")
                );
                return Err(ConfigError(message).into());
            };
            read(&store, name, key, to.as_deref()).await
        }
    }
}

/// Returns the result for valid archives that were verified with `key`.
fn valid(key: Option<&VerifierKey>) -> ArchivesFound {
    if key.is_some() { ArchivesFound::Valid } else { ArchivesFound::WithoutCheckpoint }
}

/// Returns the archives of a run, or all.
fn chosen(archives: Vec<(ArchiveName, u64)>, run: Option<&RunId>) -> Result<Vec<ArchiveName>, StartError> {
    let names = archives.into_iter().map(|(name, _)| name);
    let chosen: Vec<_> = names.filter(|name| run.is_none_or(|run| *run == name.run_id)).collect();
    match run {
        Some(run) if chosen.is_empty() => {
            Err(ConfigError(format!("--from: it has no archive of the run {run}")).into())
        }
        _ => Ok(chosen),
    }
}

/// Verifies an archive and prints the result. Returns its file; `None` if the archive is invalid.
async fn verify_one(
    store: &ArchiveStore,
    name: &ArchiveName,
    key: Option<&VerifierKey>,
) -> Result<Option<BufReader<File>>, StartError> {
    let mut file = store.fetch(name).await.map_err(failed)?;
    file.rewind().map_err(|error| failed(error.into()))?;
    let mut reader = BufReader::new(file);
    let verified = tokio::task::block_in_place(|| archive::verify(&mut reader, key, Some(name.sha256)));
    let verified = verified.and_then(|report| {
        // A file may have been renamed.
        let is_named = report.run_id == name.run_id;
        if is_named { Ok(report) } else { Err(invalid("manifest.json", "it is of another run than the name")) }
    });
    match verified {
        Ok(report) => {
            print_report(&report);
            reader.rewind().map_err(|error| failed(error.into()))?;
            Ok(Some(reader))
        }
        Err(error) => {
            print(&format!("{}: INVALID at {error}", name.run_id));
            Ok(None)
        }
    }
}

fn print_report(report: &ArchiveReport) {
    let ArchiveReport { run_id, records, head_hash, data_files, files, tree_size, bytes, .. } = report;
    let in_tree = match report.contents_in_tree {
        0 => String::new(),
        count => format!(" (and {count} contents that are files of the tree)"),
    };
    let absent = match report.absent.len() {
        0 => String::new(),
        count => format!("; {count} that records name are NOT IN THE ARCHIVE"),
    };
    let checkpoint = match tree_size {
        Some(size) => format!("covered by the checkpoint over {size} leaves"),
        None => "checkpoint NOT VERIFIED: give --checkpoint-verifier-key".to_owned(),
    };
    print(&format!(
        "{run_id}: valid, {records} records, {data_files} contents, diffs, uploads and replies{in_tree}, {files} files, {bytes} bytes, head \
         {head_hash}; {checkpoint}{absent}"
    ));
    for path in report.absent.iter().take(MAX_ABSENT) {
        print(&format!("{run_id}: absent: {path}"));
    }
    if let Some(more) = report.absent.len().checked_sub(MAX_ABSENT).filter(|more| *more > 0) {
        print(&format!("{run_id}: absent: {more} more, listed in absent.txt.zst"));
    }
}

async fn read(
    store: &ArchiveStore,
    name: &ArchiveName,
    key: Option<&VerifierKey>,
    to: Option<&Path>,
) -> Result<ArchivesFound, StartError> {
    if let Some(to) = to {
        prepare(to)?;
    }
    let Some(reader) = verify_one(store, name, key).await? else { return Ok(ArchivesFound::Invalid) };
    let Some(to) = to else { return Ok(valid(key)) };
    match tokio::task::block_in_place(|| archive::unpack(reader, to)) {
        Ok(unpacked) => {
            let links = match unpacked.links {
                0 => String::new(),
                links => format!("; {links} symbolic links are listed in links.jsonl"),
            };
            print(&format!("{}: {} files unpacked to {}{links}", name.run_id, unpacked.files, to.display()));
            Ok(valid(key))
        }
        Err(error) => {
            print(&format!("{}: INVALID at {error}", name.run_id));
            Ok(ArchivesFound::Invalid)
        }
    }
}

/// Creates the folder to unpack to. It must be empty.
fn prepare(to: &Path) -> Result<(), StartError> {
    let bad = |why: &dyn std::fmt::Display| ConfigError(format!("--to {}: {why}", to.display()));
    std::fs::create_dir_all(to).map_err(|error| bad(&error))?;
    match std::fs::read_dir(to).map_err(|error| bad(&error))?.next() {
        None => Ok(()),
        Some(_) => Err(bad(&"the folder is not empty: give an empty or a new one").into()),
    }
}

fn invalid(member: &str, problem: &str) -> ArchiveError {
    ArchiveError { member: member.to_owned(), problem: problem.to_owned() }
}

fn failed(error: StoreError) -> StartError {
    match error {
        StoreError::Io(error) => StartError::failed("the temporary file", &error),
        error => StartError::failed("the store of the archives", &io::Error::other(error)),
    }
}
