//! Large contents that a change brings: they are in the object store before the commit that names them.

use std::sync::Arc;

use content::{Objects, ReservedObject};
use ledger::{EntryObject, ObjectHolder};
use model::{Change, Effect, LogicalPath, Sha256, StepBytes};
use workspace::{StagedFile, Workspaces};

use crate::CallError;
use crate::call::record::Failure;
use crate::engine::Engine;
use crate::history::snapshot::MAX_RESTORABLE_BYTES;
use crate::run::open_run::OpenRun;
use crate::run::staged_files;
use crate::tool::change_plan::WaitingLayer;
use crate::transaction::judge::{JudgedChange, JudgedItem};
use crate::transaction::stage::Staged;

/// What a commit changes of the objects that its run refers to.
#[derive(Default)]
pub(crate) struct ObjectChanges {
    /// The objects that it is about to name.
    pub objects: Vec<EntryObject>,
    /// The paths at which it replaces or removes a content that is too large to be restored.
    pub left_paths: Vec<LogicalPath>,
}

/// A large content, by its name in `tmp/`.
#[derive(Clone, Debug)]
pub(crate) struct WaitingContent {
    pub(crate) name: String,
    sha256: Sha256,
    pub(crate) size_bytes: u64,
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
        let bytes = large_contents(&self.items).map(|(_, content)| content.size_bytes).sum::<u64>();
        let mut done = if bytes == 0 { Ok(()) } else { engine.check_history(run, &self.calls, bytes).await };
        for (change, content) in large_contents(&self.items) {
            if done.is_err() {
                break;
            }
            let is_restorable = content.size_bytes <= MAX_RESTORABLE_BYTES;
            let holder = if is_restorable { ObjectHolder::Run } else { ObjectHolder::Path(change.path.clone()) };
            done = put(engine, objects, run, &content, holder).await.map(|object| stored.objects.push(object));
        }
        if let Err(error) = done {
            staged_files::discard(run, &self.large_files);
            return Err(if self.items.len() == 1 { Failure::Call(0, error) } else { Failure::All(error) });
        }
        failpoint::hit("transaction.stored");
        Ok((self, stored))
    }
}

/// Puts a large content into the object store.
///
/// # Errors
///
/// `UNAVAILABLE` if the store is; the errors of the disk.
pub(crate) async fn put(
    engine: &Engine,
    objects: &Objects,
    run: &Arc<OpenRun>,
    &WaitingContent { ref name, sha256, size_bytes }: &WaitingContent,
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

/// Returns the content with which a change waits: that of an upload, or the layer of a change set. No batch has one.
pub(crate) fn waiting(items: &[JudgedItem]) -> Option<(Option<&Change>, WaitingContent)> {
    let mut layers = items.iter().filter_map(|item| match item {
        JudgedItem::Change(JudgedChange { plan, .. }) if plan.is_changeset => Some(plan.waiting_layer.as_ref()),
        JudgedItem::Change(_) | JudgedItem::Read(_) => None,
    });
    let Some(layer) = layers.next_back() else {
        let is_upload = |(change, _): &(&Change, _)| !matches!(change.effect, Effect::MoveTo { .. });
        return large_contents(items).find(is_upload).map(|(change, content)| (Some(change), content));
    };
    match layer {
        Some(WaitingLayer::Staged(StagedFile { name, sha256, size_bytes, .. })) => {
            Some((None, WaitingContent { name: name.clone(), sha256: *sha256, size_bytes: *size_bytes }))
        }
        Some(WaitingLayer::InMemory(_)) | None => None,
    }
}

fn large_contents(items: &[JudgedItem]) -> impl Iterator<Item = (&Change, WaitingContent)> {
    changes(items).filter_map(|change| {
        let content = change.after.as_ref()?;
        match &content.bytes {
            StepBytes::Staged(name) => {
                let (sha256, size_bytes) = (content.sha256, content.size_bytes);
                Some((change, WaitingContent { name: name.clone(), sha256, size_bytes }))
            }
            StepBytes::Inline(_) => None,
        }
    })
}

fn left_paths(items: &[JudgedItem]) -> Vec<LogicalPath> {
    let is_left = |change: &&Change| {
        let before = change.before.as_ref().filter(|before| before.size_bytes > MAX_RESTORABLE_BYTES);
        before.is_some_and(|before| change.after.as_ref().is_none_or(|after| after.sha256 != before.sha256))
    };
    changes(items).filter(is_left).map(|change| change.path.clone()).collect()
}
