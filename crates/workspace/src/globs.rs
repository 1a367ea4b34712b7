//! Which files a caller wants, by globs.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use model::{LogicalPath, Refusal};

/// Compiled globs: what to include, if not all, and what to leave out of that.
pub(crate) struct Globs {
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl Globs {
    /// Compiles globs: `*` stays within a name, and a glob without `/` is for names at any depth.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with the glob that is bad.
    pub(crate) fn compile(include: &[String], exclude: &[String]) -> Result<Self, Refusal> {
        let include = if include.is_empty() { None } else { Some(compile(include)?) };
        Ok(Self { include, exclude: compile(exclude)? })
    }

    /// Whether the file, or the folder with all that lies in it, is not wanted.
    pub(crate) fn leave_out(&self, path: &LogicalPath, is_folder: bool) -> bool {
        if !self.exclude.is_empty() && self.exclude.is_match(path.as_str()) {
            return true;
        }
        match &self.include {
            Some(include) => !is_folder && !include.is_match(path.as_str()),
            None => false,
        }
    }
}

/// How long one glob may be, as in a policy: what it compiles to grows with it.
const MAX_GLOB_BYTES: usize = 500;

fn compile(globs: &[String]) -> Result<GlobSet, Refusal> {
    let bad = |glob: &str, error: &globset::Error| {
        Refusal::invalid(
            format!("`{glob}` is no glob: {error}"),
            "Use globs such as `*.rs`, `src/**` or `**/test_*.py`.",
        )
    };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        if glob.len() > MAX_GLOB_BYTES {
            let message = format!("a glob has {} bytes; it takes at most {MAX_GLOB_BYTES}", glob.len());
            return Err(Refusal::invalid(message, "Use shorter globs, such as `*.rs` or `src/**`."));
        }
        if glob.contains('\0') {
            return Err(Refusal::invalid("a glob holds a NUL, which no path does", "Leave the NUL out."));
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
