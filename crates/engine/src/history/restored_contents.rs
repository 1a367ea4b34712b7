//! The contents of earlier versions of files that a call needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{LogicalPath, Sha256};

use crate::CallError;
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::tool::earlier_calls::StoredContent;

/// The most bytes of contents that one call loads.
const MAX_CONTENTS_BYTES: usize = 16 << 20;
/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

impl Engine {
    /// Returns the contents that the audit has of the files at `paths`, as many as may be held in memory.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn recorded_contents(
        &self,
        run: &Arc<OpenRun>,
        paths: Vec<LogicalPath>,
    ) -> Result<BTreeMap<LogicalPath, (Sha256, StoredContent)>, CallError> {
        let mut versions = Vec::with_capacity(paths.len());
        for path in paths {
            let (open_run, at) = (Arc::clone(run), path.clone());
            let known = self.blocking(move || Ok(open_run.known.file(open_run.workspace.base(), &at)?)).await?;
            versions.extend(known.map(|known| (path, known.sha256)));
        }
        self.contents_of(run, versions).await
    }

    /// Returns the contents of these versions of files, as many as may be held in memory.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn contents_of(
        &self,
        run: &Arc<OpenRun>,
        versions: Vec<(LogicalPath, Sha256)>,
    ) -> Result<BTreeMap<LogicalPath, (Sha256, StoredContent)>, CallError> {
        let (mut contents, mut remaining) = (BTreeMap::new(), MAX_CONTENTS_BYTES);
        for (path, sha256) in versions {
            let content = match self.stored_content(run, &path, sha256, NEWEST).await? {
                StoredContent::Bytes(bytes) if bytes.len() > remaining => StoredContent::TooLarge,
                content => content,
            };
            if let StoredContent::Bytes(bytes) = &content {
                remaining -= bytes.len();
            }
            contents.insert(path, (sha256, content));
        }
        Ok(contents)
    }
}
