//! Bases in the object store: put before the commit that creates the run, and read where the run is opened.
//!
//! A base is stored once for all runs that start from it. Its parts are contents of the store, named by their hashes, since other bases may
//! have the same; an index names them. Without the index the base does not exist, and as long as it does, nobody deletes what it names: a
//! run refers to its base alone. Two nodes that put one base at once put two sets of parts, of which the last index names one.

use async_recursion::async_recursion as boxed;
use std::collections::HashSet;
use std::io::{Cursor, Read as _};
use std::sync::Arc;

use content::{BaseId, ObjectError, ObjectName, Objects, ReservedObject, StoredObject};
use ledger::{EntryObject, Ledger, ObjectHolder};
use model::{Run, RunId, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{BasePart, ImportedRun, RecordedBase};

use crate::CallError;
use crate::engine::Engine;
use crate::opening::recorded_base;

/// The version of the format of the parts.
const FORMAT: u32 = 3;
/// The largest index, which has a few parts for each pack and one for each segment.
const MAX_INDEX_BYTES: u64 = 1 << 20;
/// The number of bases that are listed at a time.
const LISTED: usize = 1000;

/// The base of an imported run.
pub(crate) struct ImportedBase {
    /// What the record of the run says of it.
    pub(crate) recorded: RecordedBase,
    /// What the run refers to in the object store, if there is one.
    pub(crate) objects: Vec<EntryObject>,
}

/// The parts of a stored base.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BaseIndex {
    format: u32,
    pub(crate) parts: Vec<IndexedPart>,
}

/// One of them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IndexedPart {
    pub(crate) name: String,
    pub(crate) sha256: Sha256,
    pub(crate) size_bytes: u64,
}

impl Engine {
    /// Puts the base of an imported run into the object store, if there is one.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if the store is; the errors of the disk.
    pub(crate) async fn store_base(&self, run: &RunId, imported: &ImportedRun) -> Result<ImportedBase, CallError> {
        let ImportedRun { base_commit, manifest_sha256, untracked_sha256, .. } = imported;
        let recorded = RecordedBase {
            commit: base_commit.clone(),
            manifest_sha256: *manifest_sha256,
            untracked_sha256: *untracked_sha256,
        };
        let Some(objects) = &self.objects else { return Ok(ImportedBase { recorded, objects: Vec::new() }) };
        let base = base_id(&recorded)?;
        let reserved = objects.reserve(&base.prefix()).await?;
        if !is_complete(objects, &base).await? {
            let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
            let parts = self.blocking(move || Ok(workspaces.base_parts(&id)?)).await?;
            put_parts(objects, &base, parts).await?;
            tracing::info!(run.id = %run, base = %base, "base put into the object store");
        }
        Ok(ImportedBase { recorded, objects: vec![of_run(reserved)] })
    }
}

impl Engine {
    /// Makes a fork refer to its base, which another run has, if the object store has it.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if the store is.
    pub(crate) async fn refer_to_base(&self, recorded: RecordedBase) -> Result<ImportedBase, CallError> {
        let none = |recorded| ImportedBase { recorded, objects: Vec::new() };
        let Some(objects) = &self.objects else { return Ok(none(recorded)) };
        let base = base_id(&recorded)?;
        let reserved = objects.reserve(&base.prefix()).await?;
        if !is_complete(objects, &base).await? {
            return Ok(none(recorded));
        }
        Ok(ImportedBase { recorded, objects: vec![of_run(reserved)] })
    }
}

/// Returns what a run refers to of its base, whose files count as those of the tree.
fn of_run(ReservedObject { reference, reservation }: ReservedObject) -> EntryObject {
    EntryObject { name: reference, reservation, size_bytes: 0, holder: ObjectHolder::Run }
}

/// Whether the store has the index of a base and every part that it names. A deletion that was interrupted, or a store that was restored,
/// may lack some: then the base does not exist, and is put again.
async fn is_complete(objects: &Objects, base: &BaseId) -> Result<bool, ObjectError> {
    let index = match read_index(objects, base).await {
        Ok(index) => index,
        Err(ObjectError::Missing(_) | ObjectError::Differs(_) | ObjectError::TooLarge(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    for IndexedPart { sha256, size_bytes, .. } in &index.parts {
        let stat = objects.store().stat(&ObjectName::Content(*sha256)).await?;
        if stat.is_none_or(|stat| stat.size_bytes != *size_bytes) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the contents that the indexes of all stored bases name, which nobody may delete.
///
/// # Errors
///
/// If the store fails.
#[boxed]
pub async fn contents_of_bases(objects: &Objects) -> Result<HashSet<Sha256>, ObjectError> {
    let (mut named, mut after) = (HashSet::new(), None);
    loop {
        let page = objects.store().list(ObjectName::BASES, after.as_ref(), LISTED).await?;
        let Some((last, _)) = page.last() else { return Ok(named) };
        after = Some(last.clone());
        for (name, _) in page {
            let ObjectName::BaseIndex(base) = name else { continue };
            match read_index(objects, &base).await {
                Ok(index) => named.extend(index.parts.iter().map(|part| part.sha256)),
                // Without an index that can be read, a base does not exist.
                Err(ObjectError::Missing(_) | ObjectError::Differs(_) | ObjectError::TooLarge(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the ledger refers to the base that the records of `run` name.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn is_base_referenced(ledger: &dyn Ledger, run: &Run) -> Result<bool, CallError> {
    match recorded_base(ledger, run).await? {
        Some(recorded) => Ok(ledger.is_object_referenced(&base_id(&recorded)?.prefix()).await?),
        None => Ok(false),
    }
}

/// Puts the parts of a base, and then its index.
async fn put_parts(objects: &Objects, base: &BaseId, parts: Vec<BasePart>) -> Result<(), CallError> {
    let mut index = BaseIndex { format: FORMAT, parts: Vec::with_capacity(parts.len()) };
    for part in parts {
        let hashed = tokio::task::spawn_blocking(move || Ok::<_, std::io::Error>((part.sha256()?, part))).await;
        let (sha256, BasePart { name, size_bytes, file }) =
            hashed.map_err(|error| CallError::Internal(Box::new(error)))??;
        objects.put_content(sha256, size_bytes, Box::new(file)).await?;
        failpoint::hit("base.part_put");
        index.parts.push(IndexedPart { name, sha256, size_bytes });
    }
    put_index(objects, base, &index).await
}

async fn put_index(objects: &Objects, base: &BaseId, index: &BaseIndex) -> Result<(), CallError> {
    let text = serde_json::to_vec(index).map_err(|error| CallError::Internal(Box::new(error)))?;
    let size_bytes = text.len() as u64;
    objects.store().put(&base.index(), size_bytes, Box::new(Cursor::new(text)), None).await?;
    Ok(())
}

/// Reads the index of a base.
///
/// # Errors
///
/// If it is missing or cannot be read, or the store fails.
pub(crate) async fn read_index(objects: &Objects, base: &BaseId) -> Result<BaseIndex, ObjectError> {
    let name = base.index();
    let mut object = objects.store().get(&name, MAX_INDEX_BYTES, None).await?;
    let mut text = Vec::new();
    object.read_to_end(&mut text)?;
    let index: Option<BaseIndex> = serde_json::from_slice(&text).ok();
    index.filter(|index| index.format == FORMAT).ok_or_else(|| ObjectError::Differs(name.to_string()))
}

/// Copies a part of a base to this machine, and verifies it.
///
/// # Errors
///
/// If it is missing or altered, or the store fails.
pub(crate) async fn read_part(objects: &Objects, indexed: &IndexedPart) -> Result<Box<dyn StoredObject>, ObjectError> {
    objects.store().get(&ObjectName::Content(indexed.sha256), indexed.size_bytes, Some(indexed.sha256)).await
}

/// Returns the ID of a base.
///
/// # Errors
///
/// If its commit is not the hash of one.
pub(crate) fn base_id(recorded: &RecordedBase) -> Result<BaseId, CallError> {
    let id = BaseId::new(&recorded.commit, recorded.manifest_sha256, recorded.untracked_sha256);
    id.ok_or_else(|| CallError::Internal("the base commit is not a hash".into()))
}
