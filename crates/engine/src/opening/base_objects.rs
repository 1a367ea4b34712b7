//! Bases in the object store: put before the commit that creates the run, and read where the run is opened.
//!
//! A base is stored once for all runs that start from it: its parts, and then an index with their hashes. Without the index the base does not
//! exist.

use async_recursion::async_recursion as boxed;
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
const FORMAT: u32 = 2;
/// The largest index, which has a few parts for each pack.
const MAX_INDEX_BYTES: u64 = 1 << 20;

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
        let ReservedObject { reference, reservation } = objects.reserve(&base.prefix()).await?;
        if !is_complete(objects, &base).await? {
            let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
            let parts = self.blocking(move || Ok(workspaces.base_parts(&id)?)).await?;
            put_parts(objects, &base, parts).await?;
            tracing::info!(run.id = %run, base = %base, "base put into the object store");
        }
        // Its files count as those of the tree.
        let object = EntryObject { name: reference, reservation, size_bytes: 0, holder: ObjectHolder::Run };
        Ok(ImportedBase { recorded, objects: vec![object] })
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
        let ReservedObject { reference, reservation } = objects.reserve(&base.prefix()).await?;
        if !is_complete(objects, &base).await? {
            return Ok(none(recorded));
        }
        let object = EntryObject { name: reference, reservation, size_bytes: 0, holder: ObjectHolder::Run };
        Ok(ImportedBase { recorded, objects: vec![object] })
    }
}

/// Whether the store has the index of a base and every part that it names. A deletion that was interrupted, or a store that was restored,
/// may lack some: then the base does not exist, and is put again.
async fn is_complete(objects: &Objects, base: &BaseId) -> Result<bool, ObjectError> {
    let index = match read_index(objects, base).await {
        Ok(index) => index,
        Err(ObjectError::Missing(_) | ObjectError::Differs(_) | ObjectError::TooLarge(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    for IndexedPart { name, size_bytes, .. } in &index.parts {
        let Ok(name) = base.part(name) else { return Ok(false) };
        if objects.store().stat(&name).await?.is_none_or(|stat| stat.size_bytes != *size_bytes) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Puts the base of a run that was imported without an object store. Returns what the run refers to.
///
/// # Errors
///
/// `UNAVAILABLE` if the store is; the errors of the disk.
#[boxed]
pub async fn store_existing_base(
    objects: &Objects,
    recorded: &RecordedBase,
    parts: Vec<BasePart>,
) -> Result<String, CallError> {
    let base = base_id(recorded)?;
    objects.reserve(&base.prefix()).await?;
    if !is_complete(objects, &base).await? {
        put_parts(objects, &base, parts).await?;
    }
    Ok(base.prefix())
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

/// Reads the objects that the ledger refers to by `reference`: a content, or the parts of a base.
///
/// # Errors
///
/// If one is missing or altered, or the store fails.
#[boxed]
pub async fn check_object(objects: &Objects, reference: &str) -> Result<(), ObjectError> {
    let index = format!("{reference}/{}", BaseId::INDEX);
    match ObjectName::parse(reference).or_else(|| ObjectName::parse(&index)) {
        Some(name @ ObjectName::Content(sha256)) => objects.store().get(&name, u64::MAX, Some(sha256)).await.map(drop),
        Some(ObjectName::BasePart(base, _)) => {
            for indexed in &read_index(objects, &base).await?.parts {
                read_part(objects, &base, indexed).await?;
            }
            Ok(())
        }
        None => Err(ObjectError::Missing(reference.to_owned())),
    }
}

/// Puts the parts of a base, and then its index.
async fn put_parts(objects: &Objects, base: &BaseId, parts: Vec<BasePart>) -> Result<(), CallError> {
    let mut index = BaseIndex { format: FORMAT, parts: Vec::with_capacity(parts.len()) };
    for BasePart { name, size_bytes, content } in parts {
        let sha256 = objects.store().put(&part(base, &name)?, size_bytes, Box::new(content), None).await?;
        failpoint::hit("base.part_put");
        index.parts.push(IndexedPart { name, sha256, size_bytes });
    }
    put_index(objects, base, &index).await
}

async fn put_index(objects: &Objects, base: &BaseId, index: &BaseIndex) -> Result<(), CallError> {
    let text = serde_json::to_vec(index).map_err(|error| CallError::Internal(Box::new(error)))?;
    let size_bytes = text.len() as u64;
    objects.store().put(&part(base, BaseId::INDEX)?, size_bytes, Box::new(Cursor::new(text)), None).await?;
    Ok(())
}

/// Reads the index of a base.
///
/// # Errors
///
/// If it is missing or cannot be read, or the store fails.
pub(crate) async fn read_index(objects: &Objects, base: &BaseId) -> Result<BaseIndex, ObjectError> {
    let name = base.part(BaseId::INDEX).map_err(|_| ObjectError::Missing(base.prefix()))?;
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
pub(crate) async fn read_part(
    objects: &Objects,
    base: &BaseId,
    indexed: &IndexedPart,
) -> Result<Box<dyn StoredObject>, ObjectError> {
    let name = base.part(&indexed.name).map_err(|_| ObjectError::Differs(base.prefix()))?;
    objects.store().get(&name, indexed.size_bytes, Some(indexed.sha256)).await
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

fn part(base: &BaseId, name: &str) -> Result<ObjectName, CallError> {
    base.part(name).map_err(|error| CallError::Internal(Box::new(error)))
}
