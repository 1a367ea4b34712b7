//! Fuzz targets for everything that comes from callers: paths, patches, edits, JSON and archives.
//!
//! A target accepts any bytes and panics if an invariant is violated. `tests/targets.rs` runs the targets.

mod archive;
mod edit;
mod json;
mod patch;
mod path;

/// A fuzz target.
#[derive(Debug)]
pub struct Target {
    /// The name of the target and its corpus.
    pub name: &'static str,
    /// Panics if an invariant is violated.
    pub run: fn(&[u8]),
    /// Fragments of the input format, which mutations insert.
    pub dictionary: &'static [&'static [u8]],
    /// The maximum size of generated inputs.
    pub max_bytes: usize,
    /// The number of mutated inputs in the ordinary tests, which take about a second.
    pub iterations: usize,
}

/// Paths of callers.
pub const PATH: Target = path::TARGET;
/// Patches and their application.
pub const PATCH: Target = patch::TARGET;
/// Edits.
pub const EDIT: Target = edit::TARGET;
/// JSON bodies of calls.
pub const JSON: Target = json::TARGET;
/// Imported archives.
pub const ARCHIVE: Target = archive::TARGET;

/// Returns whether a path is relative and contains no step to a parent.
fn is_inside_root(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with('/')
        && !path.contains('\0')
        && path.split('/').all(|name| !matches!(name, "" | ".."))
}
