//! Builds the archive of a run from the ledger and the run's files.

use std::collections::BTreeSet;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use archive::{ArchiveWriter, DataFile, FinishedArchive, Part};
use engine::CallError;
use engine::audit::content_history;
use engine::runs::ClosedRun;
use ledger::{ApprovalFilter, PageSize, RecordData};
use model::{RunId, Sha256};
use serde_json::value::RawValue;
use tokio::task::block_in_place;
use transparency::InclusionProof;
use workspace::CancelOnDrop;

use crate::{ArchiveFailure, ArchiveSource};

/// What is read from the ledger at a time.
const PAGE: PageSize = PageSize { rows: 100, bytes: 1 << 20 };

/// Builds and verifies the archive of a run. `None` if no checkpoint covers the run's last record yet.
pub(super) async fn build(
    source: &ArchiveSource,
    closed: &ClosedRun,
    temp_dir: &Path,
) -> Result<Option<FinishedArchive>, ArchiveFailure> {
    let run = &closed.run;
    let checkpoints = &source.checkpoints;
    let Some(proof) = checkpoints.prove_head(&run.run_id, run.head_seq).await? else { return Ok(None) };
    let verification = checkpoints.verify_run(&run.run_id).await?;
    if let Some(problem) = verification.problem() {
        return Err(ArchiveFailure::Broken(problem));
    }
    if !verification.is_confirmed(run.head_seq) {
        return Ok(None);
    }
    let keys = checkpoints.key_history().map_err(io::Error::other)?;
    // Later changes say nothing about the checkpoint, and would make another archive of the same run.
    let leading = keys.changes().iter().take_while(|change| change.checkpoint.size <= proof.tree_size).count();
    let mut key_changes = checkpoints.key_changes();
    key_changes.truncate(leading);
    let mut writer = ArchiveWriter::new(temp_dir);
    add_run(&mut writer, closed, &key_changes, &proof)?;
    add_records(source, &run.run_id, run.head_seq, &mut writer).await?;
    if closed.has_files() {
        let cancel = CancelOnDrop::default();
        let files = source.runs.write_run_files(closed, writer.begin(archive::FILES)?, cancel.flag()).await?;
        writer.add(files)?;
    }
    let (run_id, seq, hash) = (run.run_id.clone(), run.head_seq, run.head_hash);
    let key = keys.key_at(proof.tree_size).clone();
    block_in_place(|| {
        let mut built = writer.finish(run_id.clone(), seq, hash)?;
        let absent = archive::verify(&mut built.file, Some(&key), Some(built.sha256))?.absent;
        if !absent.is_empty() {
            // The disk keeps one of both.
            drop(built);
            let mut part = writer.begin(archive::ABSENT)?;
            absent.iter().try_for_each(|path| writeln!(part, "{path}"))?;
            writer.add(part)?;
            built = writer.finish(run_id, seq, hash)?;
            archive::verify(&mut built.file, Some(&key), Some(built.sha256))?;
        }
        built.file.rewind()?;
        Ok(Some(built))
    })
}

fn add_run(
    writer: &mut ArchiveWriter<'_>,
    closed: &ClosedRun,
    key_changes: &[String],
    proof: &InclusionProof,
) -> io::Result<()> {
    let mut part = writer.begin(archive::RUN)?;
    serde_json::to_writer_pretty(&mut part, &closed.run)?;
    writer.add(part)?;
    if !key_changes.is_empty() {
        let mut part = writer.begin(archive::KEY_CHANGES)?;
        key_changes.iter().try_for_each(|statement| writeln!(part, "{statement}"))?;
        writer.add(part)?;
    }
    let mut part = writer.begin(archive::PROOF)?;
    serde_json::to_writer_pretty(&mut part, proof)?;
    writer.add(part)
}

/// Adds the records up to `head_seq`, the approvals, and the data of the records.
async fn add_records(
    source: &ArchiveSource,
    run: &RunId,
    head_seq: u64,
    writer: &mut ArchiveWriter<'_>,
) -> Result<(), ArchiveFailure> {
    let (mut records, mut data) = (writer.begin(archive::RECORDS)?, writer.begin(archive::DATA)?);
    let mut seq = 0;
    while seq < head_seq {
        let page = source.ledger.record_range(run, seq + 1, head_seq, PAGE).await.map_err(CallError::from)?;
        if page.is_empty() {
            return Err(ArchiveFailure::Broken(format!("record {}: it is missing", seq + 1)));
        }
        for record in page {
            seq += 1;
            let found = source.ledger.record_data(run, seq).await.map_err(CallError::from)?;
            block_in_place(|| {
                writeln!(records, "{}", record.text)?;
                found.iter().try_for_each(|found| add_data(&mut data, seq, found))
            })?;
            add_large_contents(source, &record.text, &found, &mut data).await?;
        }
    }
    data.end_files()?;
    writer.add(records)?;
    let approvals = add_approvals(source, run, writer.begin(archive::APPROVALS)?).await?;
    writer.add(approvals)?;
    Ok(writer.add(data)?)
}

/// Adds the contents that a record has put into the object store.
async fn add_large_contents(
    source: &ArchiveSource,
    record: &str,
    found: &[RecordData],
    data: &mut Part,
) -> Result<(), ArchiveFailure> {
    let Some(objects) = &source.objects else { return Ok(()) };
    let record = content_history::parse(record)?;
    if record.paths_written.is_empty() {
        return Ok(());
    }
    let is_found =
        |hash: &Sha256| found.iter().any(|found| matches!(found, RecordData::Content { sha256, .. } if sha256 == hash));
    let written: BTreeSet<_> = record.files.iter().filter_map(|file| file.new_sha256).collect();
    for sha256 in written.into_iter().filter(|hash| !is_found(hash)) {
        let Some(mut content) = objects.content(sha256, u64::MAX).await.map_err(CallError::from)? else { continue };
        block_in_place(|| {
            let bytes = content.seek(SeekFrom::End(0))?;
            content.rewind()?;
            data.add_content(DataFile::Content(record.seq, sha256), bytes, &mut content)
        })?;
    }
    Ok(())
}

fn add_data(data: &mut Part, seq: u64, found: &RecordData) -> io::Result<()> {
    match found {
        RecordData::Content { sha256, bytes } => data.add_file(DataFile::Content(seq, *sha256), bytes),
        RecordData::Diff { artifact_id, bytes } => data.add_file(DataFile::Diff(artifact_id), bytes),
        RecordData::Upload { sha256, bytes } => data.add_file(DataFile::Upload(*sha256), bytes),
        RecordData::Reply(reply) => {
            let body: &RawValue = serde_json::from_str(&reply.body)?;
            let reply = serde_json::json!({ "status": reply.status, "body": body });
            data.add_file(DataFile::Reply(seq), reply.to_string().as_bytes())
        }
    }
}

async fn add_approvals(source: &ArchiveSource, run: &RunId, mut part: Part) -> Result<Part, ArchiveFailure> {
    let filter = ApprovalFilter { run: Some(run.clone()), ..ApprovalFilter::default() };
    let mut after = None;
    loop {
        let page = source.ledger.approvals(&filter, after, PAGE).await.map_err(CallError::from)?;
        let Some((last, _)) = page.last() else { return Ok(part) };
        after = Some(*last);
        for (_, approval) in page {
            let input = source.ledger.approval_input(&approval.approval_id).await.map_err(CallError::from)?;
            let input: Option<Box<RawValue>> = input.map(RawValue::from_string).transpose().map_err(io::Error::from)?;
            let line = serde_json::json!({ "approval": approval, "input": input });
            writeln!(part, "{line}")?;
        }
    }
}
