//! The modes of files that only the diffs in the ledger have.

use std::sync::Arc;

use model::{LogicalPath, diff_modes};

use crate::CallError;
use crate::engine::Engine;
use crate::history::content_history;
use crate::history::snapshot::{diff_of, may_set_modes};
use crate::run::known_versions::Mode;
use crate::run::open_run::OpenRun;

/// The most records of a path that are searched for its mode, newest first.
const MAX_RECORDS: usize = 200;
/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

impl Engine {
    /// Loads the modes of those of `paths` of which only a diff has it. The caller has locked them.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn load_modes(&self, run: &OpenRun, paths: &[LogicalPath]) -> Result<(), CallError> {
        for path in paths {
            if run.known.lacks_mode(path) {
                let mode = self.recorded_mode(run, path.clone()).await?;
                run.known.set_mode(path, mode);
            }
        }
        Ok(())
    }

    /// Finds the newest mode of a path in the diffs of the records that wrote it, or the file that was moved there.
    async fn recorded_mode(&self, run: &OpenRun, path: LogicalPath) -> Result<Mode, CallError> {
        let (ledger, mut at, mut path) = (self.ledger.as_ref(), NEWEST, path);
        let mut is_moved = false;
        for _ in 0..MAX_RECORDS {
            let Some(stored) = ledger.last_change(&run.run_id, &path, at).await? else {
                if !is_moved {
                    return Ok(Mode::OfBase);
                }
                let base = Arc::clone(run.workspace.base());
                let file = self.blocking(move || Ok(base.file(&path)?)).await?;
                return Ok(match file {
                    None => Mode::Unknown,
                    Some(file) if file.is_link => Mode::Link,
                    Some(file) => Mode::of(file.mode),
                });
            };
            let record = content_history::parse(&stored.text)?;
            at = record.seq.saturating_sub(1);
            let is_new = record.files.iter().any(|file| file.path == path && file.old_sha256.is_none());
            if may_set_modes(&record) {
                let modes = diff_modes(&diff_of(ledger, &run.run_id, &record).await?);
                let of_path = || modes.iter().filter(|modes| modes.path == path);
                if let Some(mode) = of_path().find_map(|modes| modes.new) {
                    return Ok(Mode::of(mode));
                }
                if let Some(moved) = of_path().find(|modes| modes.from != path) {
                    (path, is_moved) = (moved.from.clone(), true);
                    continue;
                }
            }
            if is_new {
                return Ok(Mode::Executable(false));
            }
        }
        Ok(Mode::Unknown)
    }
}
