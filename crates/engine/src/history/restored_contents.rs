//! The recorded contents of files that a call restores.

use std::sync::Arc;

use crate::CallError;
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::tool::Mutation;
use crate::tool::earlier_calls::StoredContent;

/// The most bytes of contents that one call restores.
const MAX_RESTORED_BYTES: usize = 16 << 20;
/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

impl Engine {
    /// Gives `tool` the recorded contents of the files that it restores, as many as may be held in memory.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn load_restored(&self, run: &Arc<OpenRun>, tool: &mut dyn Mutation) -> Result<(), CallError> {
        let mut remaining = MAX_RESTORED_BYTES;
        for path in tool.restores() {
            let (open_run, at) = (Arc::clone(run), path.clone());
            let known = self.blocking(move || Ok(open_run.known.file(open_run.workspace.base(), &at)?)).await?;
            let Some(known) = known else { continue };
            let content = match self.stored_content(run, &path, known.sha256, NEWEST).await? {
                StoredContent::Bytes(bytes) if bytes.len() > remaining => StoredContent::TooLarge,
                content => content,
            };
            if let StoredContent::Bytes(bytes) = &content {
                remaining -= bytes.len();
            }
            tool.take_restored(path, known.sha256, content);
        }
        Ok(())
    }
}
