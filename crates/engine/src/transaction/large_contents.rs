//! Large contents that a change brings: they are in the object store before the commit that names them.

use std::sync::Arc;

use content::{Held, ObjectName, Objects};
use model::{Sha256, StepBytes};
use workspace::Workspaces;

use crate::CallError;
use crate::call::record::Failure;
use crate::engine::Engine;
use crate::runs::open_run::OpenRun;
use crate::transaction::judge::JudgedItem;
use crate::transaction::stage::Staged;
use crate::transaction::staged_files;

/// The objects that a commit is about to name.
#[derive(Default)]
pub struct StoredContents {
    /// Their names.
    pub objects: Vec<String>,
    /// Keeps them from being deleted until the commit is done.
    held: Vec<Held>,
}

impl Staged {
    /// Puts the large contents into the object store.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if the store is. No staged file remains.
    pub async fn store_large(
        self,
        engine: &Engine,
        objects: &Objects,
        run: &Arc<OpenRun>,
    ) -> Result<(Self, StoredContents), Failure> {
        let mut stored = StoredContents::default();
        for (name, sha256, size_bytes) in large_contents(&self.items) {
            if let Err(error) = put(engine, objects, run, (name, sha256, size_bytes), &mut stored).await {
                staged_files::discard(run, &self.large_files);
                return Err(if self.items.len() == 1 { Failure::Call(0, error) } else { Failure::All(error) });
            }
        }
        failpoint::hit("transaction.stored");
        Ok((self, stored))
    }
}

async fn put(
    engine: &Engine,
    objects: &Objects,
    run: &Arc<OpenRun>,
    (name, sha256, size_bytes): (&str, Sha256, u64),
    stored: &mut StoredContents,
) -> Result<(), CallError> {
    let object = ObjectName::Content(sha256).to_string();
    stored.held.push(objects.hold(&object).await);
    let (workspaces, id) = (Arc::clone(&engine.workspaces), run.run_id.clone());
    let path = Workspaces::path_of_staged(name);
    let content = engine.blocking(move || Ok(workspaces.open_file(&id, &path)?)).await?;
    objects.put_content(sha256, size_bytes, Box::new(content)).await?;
    stored.objects.push(object);
    Ok(())
}

/// Returns the name in `tmp/`, the hash and the size of each large content.
fn large_contents(items: &[JudgedItem]) -> impl Iterator<Item = (&str, Sha256, u64)> {
    let changes = items.iter().filter_map(|item| match item {
        JudgedItem::Change(change) => Some(&change.plan.changes.changes),
        JudgedItem::Read(_) => None,
    });
    changes.flatten().filter_map(|change| {
        let content = change.after.as_ref()?;
        match &content.bytes {
            StepBytes::Staged(name) => Some((name.as_str(), content.sha256, content.size_bytes)),
            StepBytes::Inline(_) => None,
        }
    })
}
