//! What a caller whose version is out of date is told: what has changed since.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{Code, LogicalPath, Refusal, Sha256, Side, diff_file};
use workspace::WorkspaceError;

use crate::CallError;
use crate::engine::{Engine, OpenRun};
use crate::history::content_history::Version;

/// The most diff that a refusal tells, in bytes.
const MAX_DIFF_BYTES: usize = 16 * 1024;
/// No record is behind this one.
const NEWEST: u64 = i64::MAX as u64;

/// The refusal with the diff from the version that the caller has seen to what is there now, where that version is still
/// known. Kept for every caller, and shown to those who may read: the same answer may be repeated to another. `seen` holds the version that the call expects at each of its paths, all of which
/// it holds in the lane.
pub(super) async fn tell(
    engine: &Engine,
    live: &Arc<OpenRun>,
    seen: &[(LogicalPath, Sha256)],
    refusal: Refusal,
) -> Refusal {
    if refusal.code != Code::WriteConflict {
        return refusal;
    }
    let about = refusal.details.path.as_deref();
    let Some((path, sha256)) = seen.iter().find(|(path, _)| Some(path.as_str()) == about) else { return refusal };
    match since(engine, live, path, *sha256).await {
        Ok(Since { diff, absent: None }) => refusal.with_details(|details| details.diff = diff),
        Ok(Since { diff, absent: Some(existed) }) => {
            let message = if existed {
                format!("`{path}` does not exist any more")
            } else {
                format!("`{path}` does not exist and never has in this run, so it has no version to expect")
            };
            Refusal { message, ..refusal }.with_details(|details| details.diff = diff)
        }
        Err(error) => {
            // The refusal stands without it.
            tracing::warn!(error = &error as &dyn std::error::Error, "what has changed since could not be told");
            refusal
        }
    }
}

/// What has become of a file since the version that a caller has seen.
#[derive(Default)]
struct Since {
    /// From that version to what is there, as far as both are known and may be shown.
    diff: Option<String>,
    /// Where no file is there: whether there ever was one, at the start or by a call of the run.
    absent: Option<bool>,
}

async fn since(engine: &Engine, live: &Arc<OpenRun>, path: &LogicalPath, seen: Sha256) -> Result<Since, CallError> {
    let (run, at) = (Arc::clone(live), path.clone());
    // Judged as a read, also where nothing is there any more.
    let now = engine.blocking(move || Ok(readable(&run, &at)?)).await?;
    let now = match now {
        Now::Text(text) => Some(text),
        Now::Nothing => None,
        Now::Hidden => return Ok(Since::default()),
    };
    let absent = if now.is_none() { Some(existed(engine, live, path).await?) } else { None };
    let Version::Kept(seen) = engine.version(live, path, seen, NEWEST).await? else {
        return Ok(Since { diff: None, absent });
    };
    let path = path.clone();
    let diff = engine.blocking(move || Ok(write(&path, &seen, now.as_deref()))).await?;
    Ok(Since { diff, absent })
}

/// Whether there ever was a file at `path`: at the start, or by a call of the run.
async fn existed(engine: &Engine, live: &Arc<OpenRun>, path: &LogicalPath) -> Result<bool, CallError> {
    if engine.ledger.last_change(&live.run_id, path, NEWEST).await?.is_some() {
        return Ok(true);
    }
    let (run, path) = (Arc::clone(live), path.clone());
    // No byte of it is wanted: one that is too large is there too.
    let found = move || match run.workspace.base_file(&run.rules, &path, 0, &AtomicBool::new(false)) {
        Ok(found) => Ok(found.is_some()),
        Err(WorkspaceError::Io(error)) if error.kind() == std::io::ErrorKind::FileTooLarge => Ok(true),
        Err(fault) => Err(fault.into()),
    };
    engine.blocking(found).await
}

/// What stands at a path, as far as the caller may know.
enum Now {
    /// A text.
    Text(String),
    /// No file.
    Nothing,
    /// A file whose text may not be told, or that has none.
    Hidden,
}

fn readable(live: &OpenRun, path: &LogicalPath) -> Result<Now, WorkspaceError> {
    match live.workspace.tree().read(&live.rules, path, live.rules.policy().max_file_bytes) {
        Ok(file) => Ok(model::decode(&file.bytes).map_or(Now::Hidden, |decoded| Now::Text(decoded.text))),
        Err(WorkspaceError::Refused(refusal)) if refusal.code == Code::NotFound => Ok(Now::Nothing),
        Err(WorkspaceError::Refused(_)) => Ok(Now::Hidden),
        Err(fault) => Err(fault),
    }
}

fn side<'a>(path: &'a LogicalPath, text: &'a str) -> Side<'a> {
    Side { path, bytes: text.as_bytes(), mode: 0o644 }
}

/// The diff, cut at a line's end; nothing where it would show no lines.
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
    Some(format!("{shown}\\ cut here: the diff has {whole} bytes; read the file again for all of it\n"))
}
