//! A plain axum server that does only the work of a tool: no tokens, path guard, policy or audit.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use crate::text::sha256;

/// Serves `root` on a free port, with one thread per core.
///
/// # Errors
///
/// When it cannot listen.
pub(crate) fn serve(root: &Path) -> anyhow::Result<()> {
    let root = Arc::new(root.to_owned());
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/read", post(read))
        .route("/read-inline", post(read_inline))
        .route("/list", post(list))
        .route("/write", post(write))
        .with_state(root);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{}", listener.local_addr()?);
        axum::serve(listener, router).await
    })?;
    Ok(())
}

type Root = State<Arc<PathBuf>>;
type Answer<T> = Result<Json<T>, (StatusCode, String)>;

#[derive(Deserialize)]
struct PathInput {
    path: String,
}

/// The members of the answer of `read_file` that take work.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReadAnswer {
    ok: bool,
    path: String,
    start_line: usize,
    end_line: usize,
    total_lines: usize,
    sha256: String,
    content: String,
}

/// Reads the file on a blocking thread, as `tokio::fs::read` does.
async fn read(State(root): Root, Json(input): Json<PathInput>) -> Answer<ReadAnswer> {
    let file = root.join(&input.path);
    let bytes = tokio::task::spawn_blocking(move || fs::read(file)).await.map_err(failed)?.map_err(failed)?;
    Ok(Json(lines(input.path, &bytes)))
}

/// Reads the file on the runtime's thread: faster on a warm page cache, but a slow disk would block other connections.
async fn read_inline(State(root): Root, Json(input): Json<PathInput>) -> Answer<ReadAnswer> {
    let bytes = fs::read(root.join(&input.path)).map_err(failed)?;
    Ok(Json(lines(input.path, &bytes)))
}

fn lines(path: String, bytes: &[u8]) -> ReadAnswer {
    let text = String::from_utf8_lossy(bytes);
    let mut content = String::with_capacity(bytes.len());
    let (mut end_line, mut total_lines) = (0, 0);
    for line in text.lines() {
        total_lines += 1;
        if total_lines <= 200 {
            end_line = total_lines;
            let _ = writeln!(content, "{total_lines:>6} | {line}");
        }
    }
    ReadAnswer { ok: true, path, start_line: 1, end_line, total_lines, sha256: sha256(bytes), content }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listing {
    ok: bool,
    path: String,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    path: String,
    r#type: &'static str,
    size_bytes: u64,
}

async fn list(State(root): Root, Json(input): Json<PathInput>) -> Answer<Listing> {
    let folder = root.join(&input.path);
    let entries =
        tokio::task::spawn_blocking(move || entries(&root, &folder, 2)).await.map_err(failed)?.map_err(failed)?;
    Ok(Json(Listing { ok: true, path: input.path, entries }))
}

fn entries(root: &Path, folder: &Path, depth: u32) -> io::Result<Vec<Entry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        let path = entry.path();
        if facts.is_dir() && depth > 1 {
            found.extend(entries(root, &path, depth - 1)?);
        }
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        found.push(Entry {
            path: name,
            r#type: if facts.is_dir() { "directory" } else { "file" },
            size_bytes: facts.len(),
        });
    }
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

#[derive(Deserialize)]
struct WriteInput {
    path: String,
    content: String,
}

/// Overwrites the file without a sync.
async fn write(State(root): Root, Json(input): Json<WriteInput>) -> Answer<String> {
    let file = root.join(&input.path);
    let hash = tokio::task::spawn_blocking(move || {
        fs::write(file, &input.content)?;
        io::Result::Ok(sha256(input.content.as_bytes()))
    });
    hash.await.map_err(failed)?.map(Json).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}
