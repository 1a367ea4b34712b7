//! Write conflicts: what has changed since the version that the caller expects.

use std::sync::Arc;

use model::{Code, LogicalPath, Refusal, Sha256, Side, diff_file};
use workspace::WorkspaceError;

use crate::CallError;
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::tool::earlier_calls::StoredContent;

/// The most bytes of diff in a refusal.
const MAX_DIFF_BYTES: usize = 16 * 1024;
/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

/// Adds to a write conflict what has changed between the version that the caller expects and the present one, if the
/// former is still known. `expected` are the versions that the call expects; the caller has locked its paths.
///
/// The diff is stored with the answer for every caller, and shown to those who may read.
pub(crate) async fn add_changes(
    engine: &Engine,
    run: &Arc<OpenRun>,
    expected: &[(LogicalPath, Sha256)],
    refusal: Refusal,
) -> Refusal {
    if refusal.code != Code::WriteConflict {
        return refusal;
    }
    let about = refusal.details.path.as_deref();
    let Some((path, sha256)) = expected.iter().find(|(path, _)| Some(path.as_str()) == about) else { return refusal };
    match since(engine, run, path, *sha256).await {
        Ok(Since { is_hidden: true, .. }) => without_regions(refusal),
        Ok(Since { diff, absent: None, .. }) => refusal.with_details(|details| details.diff = diff),
        Ok(Since { diff, absent: Some(existed), .. }) => {
            let message = if existed {
                format!("`{path}` no longer exists")
            } else {
                format!("`{path}` does not exist and has never existed in this run")
            };
            Refusal { message, ..refusal }.with_details(|details| details.diff = diff)
        }
        Err(error) => {
            // The diff is optional.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the changes since the expected version are unknown"
            );
            without_regions(refusal)
        }
    }
}

/// The refusal without the file's text, which policy may hide.
fn without_regions(refusal: Refusal) -> Refusal {
    refusal.with_details(|details| details.conflict_regions.clear())
}

/// The changes of a file since the expected version.
#[derive(Default)]
struct Since {
    /// The diff from that version to the present one, as far as both are known and may be shown.
    diff: Option<String>,
    /// If there is no file now: whether there ever was one in this run.
    absent: Option<bool>,
    /// Whether the file's text may not be shown.
    is_hidden: bool,
}

async fn since(engine: &Engine, run: &Arc<OpenRun>, path: &LogicalPath, seen: Sha256) -> Result<Since, CallError> {
    let (open_run, at) = (Arc::clone(run), path.clone());
    // Judged as a read, also if the file was deleted.
    let now = engine.blocking(move || Ok(readable(&open_run, &at)?)).await?;
    let now = match now {
        PresentContent::Text(text) => Some(text),
        PresentContent::Nothing => None,
        PresentContent::Hidden => return Ok(Since { is_hidden: true, ..Since::default() }),
    };
    let absent = if now.is_none() { Some(existed(engine, run, path).await?) } else { None };
    let StoredContent::Bytes(seen) = engine.stored_content(run, path, seen, NEWEST).await? else {
        return Ok(Since { diff: None, absent, is_hidden: false });
    };
    let path = path.clone();
    let diff = engine.blocking(move || Ok(write(&path, &seen, now.as_deref()))).await?;
    Ok(Since { diff, absent, is_hidden: false })
}

/// Whether there ever was a file at `path`: at the start, or by a call of the run.
async fn existed(engine: &Engine, run: &Arc<OpenRun>, path: &LogicalPath) -> Result<bool, CallError> {
    if engine.ledger.last_change(&run.run_id, path, NEWEST).await?.is_some() {
        return Ok(true);
    }
    let (run, path) = (Arc::clone(run), path.clone());
    // The content is not needed: a file that is too large exists too.
    let found = move || match run.workspace.base_file(&run.rules, &path, 0) {
        Ok(found) => Ok(found.is_some()),
        Err(WorkspaceError::Io(error)) if error.kind() == std::io::ErrorKind::FileTooLarge => Ok(true),
        Err(fault) => Err(fault.into()),
    };
    engine.blocking(found).await
}

/// The present file, as far as the caller may see it.
enum PresentContent {
    /// A text.
    Text(String),
    /// No file.
    Nothing,
    /// A file whose text may not be shown, or a binary one.
    Hidden,
}

fn readable(run: &OpenRun, path: &LogicalPath) -> Result<PresentContent, WorkspaceError> {
    match run.workspace.tree().read(&run.rules, path, run.rules.policy().max_file_bytes) {
        Ok(file) => {
            Ok(model::decode(&file.bytes).map_or(PresentContent::Hidden, |decoded| PresentContent::Text(decoded.text)))
        }
        Err(WorkspaceError::Refused(refusal)) if refusal.code == Code::NotFound => Ok(PresentContent::Nothing),
        Err(WorkspaceError::Refused(_)) => Ok(PresentContent::Hidden),
        Err(fault) => Err(fault),
    }
}

fn side<'a>(path: &'a LogicalPath, text: &'a str) -> Side<'a> {
    Side { path, bytes: text.as_bytes(), mode: 0o644 }
}

/// Returns the diff, cut at the end of a line; `None` if it would show no lines.
fn write(path: &LogicalPath, seen: &[u8], now: Option<&str>) -> Option<String> {
    let seen = model::decode(seen)?.text;
    let diff = diff_file(Some(side(path, &seen)), now.map(|now| side(path, now)));
    if diff.binary || diff.text.is_empty() {
        return None;
    }
    let whole = diff.text.len();
    if whole <= MAX_DIFF_BYTES {
        return Some(String::from_utf8_lossy(&diff.text).into_owned());
    }
    let end = diff.text[..MAX_DIFF_BYTES].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let shown = String::from_utf8_lossy(&diff.text[..end]);
    Some(format!("{shown}\\ truncated: the diff has {whole} bytes; read the file again\n"))
}
