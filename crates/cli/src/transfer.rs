//! Local files: inputs, archives and exports, with the progress of those that take long.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the client reads and writes its user's files"
)]

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use workspaced_client::{Body, Download};

use crate::error::CliError;

/// The most bytes of an input of a tool call or a policy.
const MAX_INPUT_BYTES: u64 = 64 << 20;
/// Bytes of an archive that are read at once.
const CHUNK_BYTES: u64 = 256 << 10;
/// The time between two changes of the progress that is shown.
const SHOW_INTERVAL: Duration = Duration::from_millis(100);

/// Returns an argument's JSON: the text itself, the content of `@FILE`, or standard input for `-`.
pub(crate) fn read_input(given: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let (name, read) = match given.strip_prefix('@') {
        None if given != "-" => return Ok(given.to_owned()),
        None => ("standard input", io::stdin().lock().take(MAX_INPUT_BYTES + 1).read_to_string(&mut text)),
        Some(name) => {
            let file = File::open(name).map_err(|error| CliError::file(name, &error))?;
            (name, file.take(MAX_INPUT_BYTES + 1).read_to_string(&mut text))
        }
    };
    let bytes = read.map_err(|error| CliError::file(name, &error))?;
    if bytes as u64 > MAX_INPUT_BYTES {
        return Err(CliError::Failed(format!("{name}: has more than {MAX_INPUT_BYTES} bytes")));
    }
    Ok(text)
}

/// How far a transfer is: a line on standard error, if that is a terminal, until this is dropped.
pub(crate) struct TransferProgress {
    /// When the line was written last; `None` if it is not shown.
    written: Option<Mutex<Instant>>,
    total: Option<u64>,
}

impl TransferProgress {
    /// Begins a transfer of `total` bytes, if that is known.
    pub(crate) fn new(total: Option<u64>) -> Self {
        Self { written: io::stderr().is_terminal().then(|| Mutex::new(Instant::now())), total }
    }

    /// Whether nothing is shown.
    pub(crate) fn is_hidden(&self) -> bool {
        self.written.is_none()
    }

    /// Shows that `bytes` bytes are done, and `note`.
    pub(crate) fn show(&self, bytes: u64, note: &str) {
        let Some(mut written) = self.written.as_ref().map(Mutex::lock) else { return };
        if written.elapsed() >= SHOW_INTERVAL {
            *written = Instant::now();
            let megabytes = |bytes: u64| format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10);
            let total = self.total.map(|total| format!(" of {}", megabytes(total))).unwrap_or_default();
            // Without standard error, the transfer goes on.
            let _ = write!(io::stderr(), "\r\x1b[K{}{total} {note}", megabytes(bytes));
        }
    }

    /// Erases the line.
    pub(crate) fn finish(&self) {
        if !self.is_hidden() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for TransferProgress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Returns a file as the body of an upload, and its progress.
pub(crate) fn upload(name: &str) -> Result<(Body, Arc<TransferProgress>), CliError> {
    let file = File::open(name).map_err(|error| CliError::file(name, &error))?;
    let progress = Arc::new(TransferProgress::new(file.metadata().ok().map(|found| found.len())));
    let shown = Arc::clone(&progress);
    let chunks = stream::unfold((Some(file), 0), move |(file, sent)| {
        let progress = Arc::clone(&shown);
        async move {
            let mut file = file?;
            let mut chunk = Vec::new();
            // Blocks a thread of the command, which has nothing else to do.
            match (&mut file).take(CHUNK_BYTES).read_to_end(&mut chunk) {
                Ok(0) => None,
                Ok(count) => {
                    let sent = sent + count as u64;
                    progress.show(sent, "");
                    Some((Ok::<_, io::Error>(chunk), (Some(file), sent)))
                }
                Err(error) => Some((Err(error), (None, sent))),
            }
        }
    });
    Ok((Body::wrap_stream(chunks), progress))
}

/// Writes a download to `name`, or to standard output for `-`. A file appears only when it is complete.
pub(crate) async fn save(download: Download, name: &str) -> Result<u64, CliError> {
    if name == "-" {
        return copy(download, &mut io::stdout().lock(), CliError::from).await;
    }
    let partial = format!("{name}.partial");
    let saved = async {
        let mut file = File::create(&partial).map_err(|error| CliError::file(&partial, &error))?;
        let bytes = copy(download, &mut file, |error| CliError::file(&partial, &error)).await?;
        std::fs::rename(&partial, name).map_err(|error| CliError::file(name, &error))?;
        Ok(bytes)
    };
    let saved = saved.await;
    if saved.is_err() {
        // The file is of no use; the error says what failed.
        let _ = std::fs::remove_file(&partial);
    }
    saved
}

async fn copy(
    download: Download,
    target: &mut impl io::Write,
    failed: impl Fn(io::Error) -> CliError,
) -> Result<u64, CliError> {
    let progress = TransferProgress::new(download.len());
    let mut chunks = std::pin::pin!(download.into_stream());
    let mut bytes = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        target.write_all(&chunk).map_err(&failed)?;
        bytes += chunk.len() as u64;
        progress.show(bytes, "");
    }
    target.flush().map_err(&failed)?;
    Ok(bytes)
}
