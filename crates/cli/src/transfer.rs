//! Local files: inputs, archives and exports, with the progress of those that take long.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the client reads and writes its user's files"
)]

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};

use futures_util::{StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use workspaced_client::{Body, Download};

use crate::error::CliError;

/// The most bytes of an input of a tool call or a policy.
const MAX_INPUT_BYTES: u64 = 64 << 20;
/// Bytes of an archive that are read at once.
const CHUNK_BYTES: u64 = 256 << 10;

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

/// A progress bar on standard error, if that is a terminal.
pub(crate) fn progress(bytes: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let form = match bytes {
        Some(_) => "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}",
        None => "{spinner} {bytes}, {bytes_per_sec} {msg}",
    };
    let bar = bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    match ProgressStyle::with_template(form) {
        Ok(style) => bar.with_style(style),
        // The form is a constant, so that this is never the case; the default form serves as well.
        Err(_) => bar,
    }
}

/// Returns a file as the body of an upload, which moves `bar`.
pub(crate) fn upload(name: &str) -> Result<(Body, ProgressBar), CliError> {
    let file = File::open(name).map_err(|error| CliError::file(name, &error))?;
    let bar = progress(file.metadata().ok().map(|found| found.len()));
    let moved = bar.clone();
    let chunks = stream::unfold(Some(file), move |file| {
        let bar = moved.clone();
        async move {
            let mut file = file?;
            let mut chunk = Vec::new();
            // Blocks a thread of the command, which has nothing else to do.
            match (&mut file).take(CHUNK_BYTES).read_to_end(&mut chunk) {
                Ok(0) => None,
                Ok(count) => {
                    bar.inc(count as u64);
                    Some((Ok::<_, io::Error>(chunk), Some(file)))
                }
                Err(error) => Some((Err(error), None)),
            }
        }
    });
    Ok((Body::wrap_stream(chunks), bar))
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
    let bar = progress(download.len());
    let mut chunks = std::pin::pin!(download.into_stream());
    let mut bytes = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        target.write_all(&chunk).map_err(&failed)?;
        bytes += chunk.len() as u64;
        bar.set_position(bytes);
    }
    target.flush().map_err(&failed)?;
    bar.finish_and_clear();
    Ok(bytes)
}
