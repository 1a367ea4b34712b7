//! The diff of a large text that a person is asked about. Its call has none, because contents outside of memory are not compared.

use std::io::{self, Read};
use std::sync::Arc;

use model::{Change, LogicalPath, RunId, Sha256, Side, diff_file};
use workspace::Workspaces;

use crate::CallError;
use crate::admission::pools::permit;
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::transaction::large_contents::StagedLargeContent;

/// The largest text that is compared, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;
/// The largest diff that is shown, in bytes.
const MAX_DIFF_BYTES: usize = 4 << 20;

impl Engine {
    /// Returns the diff of the change to the staged `content`; `None` for a binary file and where the texts or their diff are too large,
    /// of which a person sees the hashes alone.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn diff_for_review(
        &self,
        run: &Arc<OpenRun>,
        content: &StagedLargeContent<'_>,
    ) -> Result<Option<String>, CallError> {
        let change = content.change;
        let old_bytes = change.before.as_ref().map_or(0, |before| before.size_bytes);
        if content.size_bytes.max(old_bytes) > MAX_TEXT_BYTES {
            return Ok(None);
        }
        let (workspaces, id, change) = (Arc::clone(&self.workspaces), run.run_id.clone(), change.clone());
        let staged = Workspaces::path_of_staged(content.name);
        let permit = permit(&self.pools.receive).await;
        self.blocking(move || {
            let _permit = permit;
            Ok(diff(&workspaces, &id, &change, &staged)?)
        })
        .await
    }
}

fn diff(workspaces: &Workspaces, run: &RunId, change: &Change, staged: &[u8]) -> io::Result<Option<String>> {
    let Some(after) = &change.after else { return Ok(None) };
    let new = read(workspaces.open_file(run, staged)?)?;
    let old = match &change.before {
        None => None,
        Some(before) => match read_version(workspaces, run, &change.path, before.sha256)? {
            Some(bytes) => Some((bytes, before.mode)),
            None => return Ok(None),
        },
    };
    let path = &change.path;
    let old = old.as_ref().map(|(bytes, mode)| Side { path, bytes, mode: *mode });
    let compared = diff_file(old, Some(Side { path, bytes: &new, mode: after.mode }));
    let is_shown = !compared.binary && compared.text.len() <= MAX_DIFF_BYTES;
    Ok(is_shown.then(|| String::from_utf8_lossy(&compared.text).into_owned()))
}

/// Returns the file at `path` if it still is the version that the change was planned with.
fn read_version(
    workspaces: &Workspaces,
    run: &RunId,
    path: &LogicalPath,
    sha256: Sha256,
) -> io::Result<Option<Vec<u8>>> {
    match workspaces.open_file(run, &Workspaces::path_in_tree(path.as_str())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => Ok(Some(read(file?)?).filter(|bytes| Sha256::of(bytes) == sha256)),
    }
}

fn read(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_TEXT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
