//! Glob filters of callers.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use model::{LogicalPath, Refusal};

/// Compiled globs: which paths to include (`None`: all), and which of those to exclude.
pub(crate) struct Globs {
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl Globs {
    /// Compiles globs: `*` does not match `/`, and a glob without `/` matches names at any depth.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with the invalid glob.
    pub(crate) fn compile(include: &[String], exclude: &[String]) -> Result<Self, Refusal> {
        let include = if include.is_empty() { None } else { Some(compile(include)?) };
        Ok(Self { include, exclude: compile(exclude)? })
    }

    /// Whether the file, or the folder with everything in it, is filtered out.
    pub(crate) fn is_excluded(&self, path: &LogicalPath, is_folder: bool) -> bool {
        if !self.exclude.is_empty() && self.exclude.is_match(path.as_str()) {
            return true;
        }
        match &self.include {
            Some(include) => !is_folder && !include.is_match(path.as_str()),
            None => false,
        }
    }
}

/// The maximum length of a glob, as in a policy. The compiled size grows with it.
const MAX_GLOB_BYTES: usize = 500;

fn compile(globs: &[String]) -> Result<GlobSet, Refusal> {
    let bad = |glob: &str, error: &globset::Error| {
        Refusal::invalid(
            format!("invalid glob `{glob}`: {error}"),
            "Use globs such as `*.rs`, `src/**` or `**/test_*.py`.",
        )
    };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        if glob.len() > MAX_GLOB_BYTES {
            let message = format!("a glob has {} bytes; the limit is {MAX_GLOB_BYTES}", glob.len());
            return Err(Refusal::invalid(message, "Use shorter globs, such as `*.rs` or `src/**`."));
        }
        if glob.contains('\0') {
            return Err(Refusal::invalid("a glob contains a NUL byte, which no path has", "Remove the NUL byte."));
        }
        let trimmed = glob.strip_prefix("./").unwrap_or(glob);
        let trimmed = trimmed.strip_prefix('/').unwrap_or(trimmed);
        let (body, all) = match trimmed.strip_suffix('/') {
            Some(folder) => (folder, true),
            None => (trimmed, false),
        };
        let anywhere = if body.contains('/') || trimmed.len() < glob.len() { "" } else { "**/" };
        let tails: &[&str] = if all { &["", "/**"] } else { &[""] };
        for tail in tails {
            let whole = format!("{anywhere}{body}{tail}");
            let compiled = GlobBuilder::new(&whole).literal_separator(true).build();
            set.add(compiled.map_err(|error| bad(glob, &error))?);
        }
    }
    set.build().map_err(|error| bad(&globs.join(", "), &error))
}
