//! Entries with the compressed forms of their large values, which are made before the entries are queued for a commit.

use std::collections::HashSet;
use std::ops::Deref;

use model::{RUN_TOKEN_ACTOR, Sha256, Step, StepBytes, StepContent};

use super::packed::Packed;
use crate::{Entry, LedgerError, Result};

/// Maximum bytes that are compressed without a thread for blocking work.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// Maximum total bytes of the diffs that are read to decompress the contents of one record, each with the whole diff.
const MAX_DICTIONARY_BYTES: usize = 4 << 20;

/// What the row of a record takes at least, with its columns.
const LEAST_RECORD_BYTES: u64 = 256;

/// An entry, and the compressed forms of those of its values that are stored compressed.
#[derive(Clone, Debug)]
pub(crate) struct PreparedEntry {
    entry: Entry,
    pub(crate) packed_reply: Option<Packed>,
    pub(crate) packed_diff: Option<Packed>,
    /// One for each of the [`inline_contents`].
    pub(crate) packed_contents: Vec<Option<Packed>>,
    pub(crate) packed_upload: Option<Packed>,
}

impl PreparedEntry {
    /// Whether the quota of the run's history applies: a call of a run token, which neither changes the run itself nor decides an
    /// approval.
    pub(crate) fn has_history_quota(&self) -> bool {
        self.draft.actor.starts_with(RUN_TOKEN_ACTOR) && self.run_change.is_none() && self.approval_decision.is_none()
    }

    /// Returns about how many bytes its rows take at least. The size of the record is known only once it is chained.
    pub(crate) fn least_bytes(&self) -> u64 {
        let packed = |packed: Option<&Packed>, size: usize| packed.map_or(size, |packed| packed.bytes.len());
        let contents = inline_contents(&self.steps).into_iter().zip(&self.packed_contents);
        let bytes = self.reply.as_ref().map_or(0, |reply| packed(self.packed_reply.as_ref(), reply.body.len()))
            + self.artifact.as_ref().map_or(0, |artifact| packed(self.packed_diff.as_ref(), artifact.diff.len()))
            + self.upload.as_ref().map_or(0, |upload| packed(self.packed_upload.as_ref(), upload.bytes.len()))
            + self
                .approval
                .as_ref()
                .map_or(0, |(approval, input)| approval.diff.as_ref().map_or(0, String::len) + input.len())
            + contents.map(|((_, bytes), content)| packed(content.as_ref(), bytes.len())).sum::<usize>();
        bytes as u64 + LEAST_RECORD_BYTES
    }
}

impl Deref for PreparedEntry {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl From<Entry> for PreparedEntry {
    fn from(entry: Entry) -> Self {
        Self {
            packed_reply: entry.reply.as_ref().and_then(|reply| Packed::reply(&reply.body)),
            packed_diff: entry.artifact.as_ref().and_then(|artifact| Packed::bytes(&artifact.diff)),
            packed_contents: pack_contents(&entry),
            packed_upload: entry.upload.as_ref().and_then(|upload| Packed::bytes(&upload.bytes)),
            entry,
        }
    }
}

/// Compresses the contents. The diff of a new or replaced file contains most of its content, so that almost nothing is stored
/// twice.
fn pack_contents(entry: &Entry) -> Vec<Option<Packed>> {
    let contents = inline_contents(&entry.steps);
    let diff = entry.artifact.as_ref().map_or(&[][..], |artifact| &artifact.diff);
    let reads_few = contents.len().saturating_mul(diff.len()) <= MAX_DICTIONARY_BYTES;
    let pack = |bytes: &[u8]| {
        if reads_few && diff.len() >= bytes.len() / 2 { Packed::content(bytes, diff) } else { Packed::bytes(bytes) }
    };
    contents.into_iter().map(|(_, bytes)| pack(bytes)).collect()
}

/// Returns the number of bytes of diffs, contents and uploads.
pub(crate) fn value_bytes(entry: &Entry) -> usize {
    let contents = inline_contents(&entry.steps);
    entry.artifact.as_ref().map_or(0, |artifact| artifact.diff.len())
        + entry.upload.as_ref().map_or(0, |upload| upload.bytes.len())
        + contents.iter().map(|(_, content)| content.len()).sum::<usize>()
}

/// Compresses the values of `entries`.
pub(crate) async fn prepare(entries: Vec<Entry>) -> Result<Vec<PreparedEntry>> {
    let prepare = |entries: Vec<Entry>| entries.into_iter().map(PreparedEntry::from).collect();
    if entries.iter().map(value_bytes).sum::<usize>() <= MAX_INLINE_BYTES {
        return Ok(prepare(entries));
    }
    let prepared = tokio::task::spawn_blocking(move || prepare(entries)).await;
    prepared.map_err(|error| LedgerError::Internal(Box::new(error)))
}

/// Returns the inline contents of the steps, without duplicates.
pub(crate) fn inline_contents<'a>(steps: &'a [Step]) -> Vec<(&'a Sha256, &'a [u8])> {
    let mut seen = HashSet::new();
    let inline = |after: &'a StepContent| match &after.bytes {
        StepBytes::Inline(bytes) => Some((&after.sha256, bytes.as_slice())),
        StepBytes::Staged(_) => None,
    };
    steps.iter().filter_map(|step| inline(step.after.as_ref()?)).filter(|(sha256, _)| seen.insert(*sha256)).collect()
}
