//! Changes between a run and a folder: layers in, sets of changes out.

use std::io::{self, Read, Seek as _};
use std::pin::Pin;

use bytes::{Buf as _, Bytes};
use flate2::read::GzDecoder;
use futures_util::{Stream, StreamExt as _};
use model::FileKind;
use shim::{
    AppliedLayer, ChangeKind, CheckedOut, LeftEntry, PathChange, ReadLimits, ScanReport, ShimError, check_layer,
};
use tempfile::SpooledTempFile;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use workspaced_client::{
    ChangesetCommand, ChangesetConflict, ChangesetDenied, ChangesetOutcome, Client, Error, NewChangeset, RunId,
    RunLayer,
};

use crate::cli::error::CliError;
use crate::cli::output::{Output, escape_line};
use crate::cli::sandbox_pipe::OpenFolder;

/// What is read from a folder at most: what the service takes in one set.
const LIMITS: ReadLimits = ReadLimits { max_file_bytes: 8 << 20, max_total_bytes: 64 << 20 };
/// A layer up to this size is kept in memory, and sent again if the answer is lost.
const MAX_LAYER_IN_MEMORY: usize = 64 << 20;
/// How often files that change while they are read are read again.
const MAX_READS: usize = 3;
/// How many changes are printed.
const MAX_PRINTED: usize = 50;

/// How a set of changes is pushed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PushOptions {
    /// If others have changed the same files, merge what is apart. Otherwise nothing is applied.
    #[arg(long)]
    merge: bool,
    /// Leave out what policy denies. Otherwise nothing is applied then.
    #[arg(long)]
    leave_denied: bool,
    /// Also look into folders such as `target` and `node_modules` of which the run has nothing.
    #[arg(long)]
    pub(crate) all: bool,
}

/// What a pull has done.
#[derive(Clone, Debug)]
pub(crate) struct Pulled {
    /// The record before, if the folder had one.
    pub(crate) from: Option<u64>,
    pub(crate) now: CheckedOut,
    pub(crate) applied: AppliedLayer,
    /// Entries of the run that are not in the folder.
    pub(crate) left_out: u64,
}

/// A set of changes that was pushed.
#[derive(Debug)]
pub(crate) struct Pushed {
    pub(crate) answer: ChangesetOutcome,
    /// What was not sent.
    pub(crate) left: Vec<LeftEntry>,
    /// Why the folder does not have the state of the run that the set made. The set is applied nevertheless.
    pub(crate) stale: Option<CliError>,
}

/// Brings a folder to the newest state of a run.
pub(crate) async fn pull(client: &Client, run: &RunId, open: &mut OpenFolder) -> Result<Pulled, CliError> {
    let have = block_in_place(|| open.folder.have())?;
    if let Some(have) = &have
        && have.run != run.as_str()
    {
        return Err(CliError::Failed(format!("{} is a checkout of the run {}", open.shown, have.run)));
    }
    let from = have.map(|have| have.seq);
    let layer = client.layer(run, from).await?;
    apply(run, open, layer, from)
}

/// Writes a layer into a folder.
pub(crate) fn apply(
    run: &RunId,
    open: &mut OpenFolder,
    layer: RunLayer,
    from: Option<u64>,
) -> Result<Pulled, CliError> {
    let now = CheckedOut { run: run.to_string(), seq: layer.seq, head_hash: layer.head_hash.to_string() };
    let content = ContentReader {
        chunks: Box::pin(layer.content.into_stream()),
        chunk: Bytes::new(),
        runtime: Handle::current(),
    };
    let applied = block_in_place(|| {
        // Made here, since a decoder reads the first bytes at once.
        let mut content: Box<dyn Read> =
            if layer.is_compressed { Box::new(GzDecoder::new(content)) } else { Box::new(content) };
        open.folder.apply(&now, &mut content)
    });
    let applied = applied.map_err(|error| match error {
        ShimError::Conflicts(_) => CliError::Failed(format!(
            "{error}\nPush your changes first (with --merge, if both changed a file), or put them aside."
        )),
        error => error.into(),
    })?;
    Ok(Pulled { from, now, applied, left_out: layer.left_out })
}

/// Finds what differs from the run.
pub(crate) fn scan(open: &mut OpenFolder, all: bool) -> Result<ScanReport, CliError> {
    let filled = if all { Vec::new() } else { FileKind::filled_folders().map(str::to_owned).collect() };
    Ok(block_in_place(|| open.folder.scan(&filled))?)
}

/// Sends `changes` as one set, based on the record `base`, and takes what the run made of them. `None` if nothing could be sent.
pub(crate) async fn push(
    client: &Client,
    base: &CheckedOut,
    open: &mut OpenFolder,
    changes: &[PathChange],
    changeset: impl Fn(u64) -> NewChangeset,
) -> Result<Option<Pushed>, CliError> {
    let run = RunId::parse(&base.run).map_err(|error| CliError::Failed(error.to_string()))?;
    let paths: Vec<String> = changes.iter().map(|change| change.path.clone()).collect();
    let (mut layer, left, entries) = block_in_place(|| read(open, &paths))?;
    if entries == 0 {
        return Ok(None);
    }
    let changeset = changeset(base.seq);
    // The service takes less as it is sent than when it is unpacked.
    let packed = block_in_place(|| zstd::stream::encode_all(&mut layer, zstd::DEFAULT_COMPRESSION_LEVEL));
    let packed = packed.map_err(|error| CliError::file("the layer", &error))?;
    let answer = client.apply_changeset(&run, &changeset, &packed).await?;
    let taken = answer.applied.iter().chain(&answer.merged).map(|taken| taken.path().to_owned()).collect::<Vec<_>>();
    let stale = if taken.is_empty() || changeset.dry_run {
        None
    } else {
        // A failure here undoes nothing in the run: the answer is told first.
        take_back(client, &run, base, open, &taken).await.err()
    };
    Ok(Some(Pushed { answer, left, stale }))
}

/// Brings a folder to the state after its set was applied: what was merged comes back, and so does what others have changed
/// meanwhile.
async fn take_back(
    client: &Client,
    run: &RunId,
    base: &CheckedOut,
    open: &mut OpenFolder,
    taken: &[String],
) -> Result<(), CliError> {
    block_in_place(|| open.folder.confirm(taken))?;
    let layer = client.layer(run, Some(base.seq)).await?;
    apply(run, open, layer, Some(base.seq))?;
    Ok(())
}

/// Reads a layer. Files that change again and again while they are read are left.
fn read(open: &mut OpenFolder, paths: &[String]) -> Result<(SpooledTempFile, Vec<LeftEntry>, u64), CliError> {
    let mut paths = paths.to_vec();
    let mut changing = Vec::new();
    for attempt in 1.. {
        let mut layer = SpooledTempFile::new(MAX_LAYER_IN_MEMORY);
        let mut report = open.folder.read(&paths, LIMITS, &mut layer)?;
        if report.torn.is_empty() {
            let rewound =
                |layer: &mut SpooledTempFile| layer.rewind().map_err(|error| CliError::file("the layer", &error));
            rewound(&mut layer)?;
            // A hostile sandbox could add what nobody was shown.
            check_layer(&mut layer, &paths)?;
            rewound(&mut layer)?;
            report.left.append(&mut changing);
            return Ok((layer, report.left, report.entries));
        }
        if attempt >= MAX_READS {
            paths.retain(|path| !report.torn.contains(path));
            let why = "it changes while it is read".to_owned();
            changing.extend(report.torn.into_iter().map(|path| LeftEntry { path, why: why.clone() }));
        }
        if attempt > MAX_READS * 10 {
            break;
        }
    }
    Err(CliError::Failed("too many files change while they are read: try again when nothing writes there".to_owned()))
}

impl PushOptions {
    /// Returns a set of changes.
    pub(crate) fn changeset(&self, base: u64, reason: &str, command: Option<ChangesetCommand>) -> NewChangeset {
        NewChangeset {
            changeset_id: None,
            based_on_seq: base,
            reason: reason.to_owned(),
            command,
            on_conflict: if self.merge { ChangesetConflict::Merge } else { ChangesetConflict::Refuse },
            on_denied: if self.leave_denied { ChangesetDenied::Leave } else { ChangesetDenied::Refuse },
            dry_run: false,
        }
    }
}

impl Pulled {
    /// Says what was pulled.
    pub(crate) fn summary(&self) -> String {
        let count = self.applied.written + self.applied.deleted;
        match (self.from, count) {
            (None, count) => format!("checked out {} (record {})", files(count), self.now.seq),
            (Some(_), 0) => format!("up to date (record {})", self.now.seq),
            (Some(from), count) => format!("pulled {} (record {from} to {})", files(count), self.now.seq),
        }
    }
}

/// Says what of a set of changes went into the run.
pub(crate) fn pushed_summary(answer: &ChangesetOutcome) -> String {
    let mut text = format!("{} applied", answer.applied.len() + answer.merged.len());
    if !answer.merged.is_empty() {
        text.extend([", ", &answer.merged.len().to_string(), " of them merged"]);
    }
    text += &not_taken(answer);
    match (answer.seq, answer.event_seq) {
        (Some(seq), Some(event)) => text + &format!(" as record {seq} (command: {event})"),
        (Some(seq), None) => text + &format!(" as record {seq}"),
        (None, Some(event)) => text + &format!(" (command: {event})"),
        (None, None) => text,
    }
}

fn not_taken(answer: &ChangesetOutcome) -> String {
    match answer.not_taken.values().sum::<u64>() {
        0 => String::new(),
        count => format!(", {count} generated not taken"),
    }
}

/// Prints what changed, a line a file, on standard error.
pub(crate) fn print_changes(output: Output, report: &ScanReport) {
    for change in report.changes.iter().take(MAX_PRINTED) {
        output.note(&format!("{} {}", letter(change.change), change.path));
    }
    if report.changes.len() > MAX_PRINTED {
        output.note(&format!("and {} more", report.changes.len() - MAX_PRINTED));
    }
    print_left(output, &report.left, report.left_count);
}

/// Prints what policy left out of a set of changes.
pub(crate) fn print_denied(output: Output, answer: &ChangesetOutcome) {
    for left in answer.left.iter().take(MAX_PRINTED) {
        output.note(&format!("left: {}: {}", left.path(), left.rule().unwrap_or("denied")));
    }
}

/// Prints what cannot be part of a run.
pub(crate) fn print_left(output: Output, left: &[LeftEntry], count: u64) {
    for entry in left.iter().take(MAX_PRINTED) {
        output.note(&format!("not sent: {}: {}", entry.path, entry.why));
    }
    let printed = left.len().min(MAX_PRINTED) as u64;
    if count > printed {
        output.note(&format!("not sent: {} more", count - printed));
    }
}

/// How a change is called, as by git.
pub(crate) fn letter(change: ChangeKind) -> char {
    match change {
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
    }
}

/// A number of files.
pub(crate) fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// A download as a reader, on a thread that may block.
struct ContentReader {
    chunks: Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>,
    chunk: Bytes,
    runtime: Handle,
}

impl Read for ContentReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.runtime.block_on(self.chunks.next()) {
                None => return Ok(0),
                Some(chunk) => self.chunk = chunk.map_err(io::Error::other)?,
            }
        }
        let count = self.chunk.len().min(buffer.len());
        self.chunk.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// What a folder is called in a message.
pub(crate) fn shown(open: &OpenFolder) -> String {
    escape_line(&open.shown)
}
