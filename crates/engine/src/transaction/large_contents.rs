//! Large contents that a change brings: they are in the object store before the commit that names them.

use std::sync::Arc;

use content::{Objects, ReservedObject};
use ledger::{EntryObject, ObjectHolder};
use model::{Change, Content, LogicalPath, StepBytes};
use workspace::Workspaces;

use crate::CallError;
use crate::call::record::Failure;
use crate::engine::Engine;
use crate::history::snapshot::MAX_RESTORABLE_BYTES;
use crate::run::open_run::OpenRun;
use crate::run::staged_files;
use crate::transaction::judge::JudgedItem;
use crate::transaction::stage::Staged;

/// What a commit changes of the objects that its run refers to.
#[derive(Default)]
pub(crate) struct ObjectChanges {
    /// The objects that it is about to name.
    pub objects: Vec<EntryObject>,
    /// The paths at which it replaces or removes a content that is too large to be restored.
    pub left_paths: Vec<LogicalPath>,
}

impl Staged {
    /// Puts the large contents into the object store.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`; `UNAVAILABLE` if the store is. No staged file remains.
    pub(crate) async fn store_large(
        self,
        engine: &Engine,
        objects: &Objects,
        run: &Arc<OpenRun>,
    ) -> Result<(Self, ObjectChanges), Failure> {
        let mut stored = ObjectChanges { objects: Vec::new(), left_paths: left_paths(&self.items) };
        let bytes = staged_contents(&self.items).map(|(_, content, _)| content.size_bytes).sum::<u64>();
        let mut done = if bytes == 0 { Ok(()) } else { engine.check_history(run, &self.calls, bytes).await };
        for (change, content, name) in staged_contents(&self.items) {
            if done.is_err() {
                break;
            }
            let is_restorable = content.size_bytes <= MAX_RESTORABLE_BYTES;
            let holder = if is_restorable { ObjectHolder::Run } else { ObjectHolder::Path(change.path.clone()) };
            done = put(engine, objects, run, content, name, holder).await.map(|object| stored.objects.push(object));
        }
        if let Err(error) = done {
            staged_files::discard(run, &self.large_files);
            return Err(if self.items.len() == 1 { Failure::Call(0, error) } else { Failure::All(error) });
        }
        failpoint::hit("transaction.stored");
        Ok((self, stored))
    }
}

/// Puts the large `content`, which is staged as `name`, into the object store.
async fn put(
    engine: &Engine,
    objects: &Objects,
    run: &Arc<OpenRun>,
    &Content { sha256, size_bytes, .. }: &Content,
    name: &str,
    holder: ObjectHolder,
) -> Result<EntryObject, CallError> {
    let (workspaces, id) = (Arc::clone(&engine.workspaces), run.run_id.clone());
    let staged = Workspaces::path_of_staged(name);
    let content = engine.blocking(move || Ok(workspaces.open_file(&id, &staged)?)).await?;
    let ReservedObject { reference, reservation } = objects.put_content(sha256, size_bytes, Box::new(content)).await?;
    Ok(EntryObject { name: reference, reservation, size_bytes, holder })
}

fn changes(items: &[JudgedItem]) -> impl Iterator<Item = &Change> {
    let changes = items.iter().filter_map(|item| match item {
        JudgedItem::Change(change) => Some(change.plan.changes()),
        JudgedItem::Read(_) => None,
    });
    changes.flatten()
}

fn staged_contents(items: &[JudgedItem]) -> impl Iterator<Item = (&Change, &Content, &str)> {
    changes(items).filter_map(|change| match change.after.as_ref()? {
        content @ Content { bytes: StepBytes::Staged(name), .. } => Some((change, content, name.as_str())),
        _ => None,
    })
}

fn left_paths(items: &[JudgedItem]) -> Vec<LogicalPath> {
    let is_left = |change: &&Change| {
        let before = change.before.as_ref().filter(|before| before.size_bytes > MAX_RESTORABLE_BYTES);
        before.is_some_and(|before| change.after.as_ref().is_none_or(|after| after.sha256 != before.sha256))
    };
    changes(items).filter(is_left).map(|change| change.path.clone()).collect()
}
