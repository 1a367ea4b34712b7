//! Paths as a form writes them: absolute ones under one folder, which stands for the root of the run.

use model::{Code, Refusal, excerpt};

use crate::tool::input::URI_SCHEME;

/// The folder that stands for the root of the run.
pub(super) const WORKSPACE: FormRoot = FormRoot { folder: "/workspace", needs_it: false };
/// The folder of memory, under which every path is.
pub(super) const MEMORIES: FormRoot = FormRoot { folder: "/memories", needs_it: true };

/// The folder that stands for the root of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormRoot {
    folder: &'static str,
    /// Whether relative paths are refused.
    needs_it: bool,
}

impl FormRoot {
    /// Returns the folder.
    pub(super) fn folder(self) -> &'static str {
        self.folder
    }

    /// Returns the path from the root of the run. What it may be is judged later.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED` for an absolute path that is not under the folder.
    pub(super) fn strip(self, raw: &str) -> Result<String, Refusal> {
        let Self { folder, needs_it } = self;
        let under = raw.strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        match under {
            Some(rest) => {
                let path = rest.trim_start_matches('/');
                Ok(if path.is_empty() { ".".to_owned() } else { path.to_owned() })
            }
            None if !needs_it && (!raw.starts_with('/') || raw.starts_with(URI_SCHEME)) => Ok(raw.to_owned()),
            None => {
                let shown = excerpt(raw, 200);
                let message = format!("Path must start with {folder}, got: {shown}");
                let hint = format!("Give a path under `{folder}`, which is the root of all files here.");
                Err(Refusal::new(Code::PathRejected, message, hint).with_details(|details| details.path = Some(shown)))
            }
        }
    }

    /// As [`strip`](Self::strip), for an optional folder to search.
    ///
    /// # Errors
    ///
    /// As [`strip`](Self::strip).
    pub(super) fn strip_folder(self, raw: Option<&str>) -> Result<String, Refusal> {
        raw.filter(|raw| !raw.is_empty()).map_or_else(|| Ok(".".to_owned()), |raw| self.strip(raw))
    }

    /// Returns a glob from the root of the run. One that is not absolute is relative to the folder that is searched, and `!` before it
    /// excludes.
    ///
    /// # Errors
    ///
    /// As [`strip`](Self::strip).
    pub(super) fn strip_glob(self, glob: &str) -> Result<String, Refusal> {
        if let Some(excluded) = glob.strip_prefix('!') {
            return Ok(format!("!{}", self.strip_glob(excluded)?));
        }
        if glob.starts_with('/') { Ok(format!("/{}", self.strip(glob)?)) } else { Ok(glob.to_owned()) }
    }

    /// Returns how the form writes a path from the root of the run.
    pub(super) fn show(self, path: &str) -> String {
        match path {
            "" | "." => self.folder.to_owned(),
            path => format!("{}/{path}", self.folder),
        }
    }
}
