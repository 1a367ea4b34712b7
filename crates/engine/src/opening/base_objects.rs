//! Bases in the object store: put before the commit that creates the run, and read where the run is opened.
//!
//! A base is stored once for all runs that start from it: its parts, and then an index with their hashes. Without the index the base does not
//! exist. The segments with its contents and the packs of its repository are contents of the store, since other bases may have them too. A
//! run refers to its base, and to each of these.

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
const FORMAT: u32 = 3;
/// The largest index, which has a few parts for each pack and one for each segment.
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
        let objects = if let Some(reserved) = reserve_stored(objects, &base).await? {
            reserved
        } else {
            let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
            let parts = self.blocking(move || Ok(workspaces.base_parts(&id)?)).await?;
            let reserved = put_parts(objects, &base, parts).await?;
            tracing::info!(run.id = %run, base = %base, "base put into the object store");
            reserved
        };
        Ok(ImportedBase { recorded, objects: objects.into_iter().map(of_run).collect() })
    }
}

impl Engine {
    /// Makes a fork refer to its base, which another run has, if the object store has it.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if the store is.
    pub(crate) async fn refer_to_base(&self, recorded: RecordedBase) -> Result<ImportedBase, CallError> {
        let Some(objects) = &self.objects else { return Ok(ImportedBase { recorded, objects: Vec::new() }) };
        let reserved = reserve_stored(objects, &base_id(&recorded)?).await?.unwrap_or_default();
        Ok(ImportedBase { recorded, objects: reserved.into_iter().map(of_run).collect() })
    }
}

/// Returns what a run refers to of its base, whose files count as those of the tree.
fn of_run(ReservedObject { reference, reservation }: ReservedObject) -> EntryObject {
    EntryObject { name: reference, reservation, size_bytes: 0, holder: ObjectHolder::Run }
}

/// Reserves a base and the contents that belong to it, if the store has its index and every part that this names. A deletion that was
/// interrupted, or a store that was restored, may lack some: then the base does not exist, and is put again.
async fn reserve_stored(objects: &Objects, base: &BaseId) -> Result<Option<Vec<ReservedObject>>, ObjectError> {
    let mut reserved = vec![objects.reserve(&base.prefix()).await?];
    let index = match read_index(objects, base).await {
        Ok(index) => index,
        Err(ObjectError::Missing(_) | ObjectError::Differs(_) | ObjectError::TooLarge(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    for indexed in &index.parts {
        let Some(name) = indexed.object(base) else { return Ok(None) };
        if let ObjectName::Content(_) = name {
            // First, so that nobody deletes it once it was found.
            reserved.push(objects.reserve(&name.reference()).await?);
        }
        if objects.store().stat(&name).await?.is_none_or(|stat| stat.size_bytes != indexed.size_bytes) {
            return Ok(None);
        }
    }
    Ok(Some(reserved))
}

impl IndexedPart {
    /// Returns the object of the part; `None` if there can be none.
    fn object(&self, base: &BaseId) -> Option<ObjectName> {
        if BasePart::is_shared(&self.name) {
            return Some(ObjectName::Content(self.sha256));
        }
        base.part(&self.name).ok()
    }
}

/// Puts the base of a run that was imported without an object store. Returns the names of what the run refers to.
///
/// # Errors
///
/// `UNAVAILABLE` if the store is; the errors of the disk.
#[boxed]
pub async fn store_existing_base(
    objects: &Objects,
    recorded: &RecordedBase,
    parts: Vec<BasePart>,
) -> Result<Vec<String>, CallError> {
    let base = base_id(recorded)?;
    let reserved = match reserve_stored(objects, &base).await? {
        Some(reserved) => reserved,
        None => put_parts(objects, &base, parts).await?,
    };
    Ok(reserved.into_iter().map(|object| object.reference).collect())
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
                // The ledger refers to the others by their own names.
                if !BasePart::is_shared(&indexed.name) {
                    read_part(objects, &base, indexed).await?;
                }
            }
            Ok(())
        }
        None => Err(ObjectError::Missing(reference.to_owned())),
    }
}

/// Puts the parts of a base, and then its index. Returns what a run refers to.
async fn put_parts(objects: &Objects, base: &BaseId, parts: Vec<BasePart>) -> Result<Vec<ReservedObject>, CallError> {
    let mut reserved = vec![objects.reserve(&base.prefix()).await?];
    let mut index = BaseIndex { format: FORMAT, parts: Vec::with_capacity(parts.len()) };
    for part in parts {
        let hashed = tokio::task::spawn_blocking(move || Ok::<_, std::io::Error>((part.sha256()?, part))).await;
        let (sha256, BasePart { name, size_bytes, file }) =
            hashed.map_err(|error| CallError::Internal(Box::new(error)))??;
        if BasePart::is_shared(&name) {
            reserved.push(objects.put_content(sha256, size_bytes, Box::new(file)).await?);
        } else {
            objects.store().put(&part_name(base, &name)?, size_bytes, Box::new(file), Some(sha256)).await?;
        }
        failpoint::hit("base.part_put");
        index.parts.push(IndexedPart { name, sha256, size_bytes });
    }
    put_index(objects, base, &index).await?;
    Ok(reserved)
}

async fn put_index(objects: &Objects, base: &BaseId, index: &BaseIndex) -> Result<(), CallError> {
    let text = serde_json::to_vec(index).map_err(|error| CallError::Internal(Box::new(error)))?;
    let size_bytes = text.len() as u64;
    objects.store().put(&part_name(base, BaseId::INDEX)?, size_bytes, Box::new(Cursor::new(text)), None).await?;
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
    let name = indexed.object(base).ok_or_else(|| ObjectError::Differs(base.prefix()))?;
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

fn part_name(base: &BaseId, name: &str) -> Result<ObjectName, CallError> {
    base.part(name).map_err(|error| CallError::Internal(Box::new(error)))
}
