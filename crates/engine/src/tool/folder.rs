//! The files of a folder that one call moves or deletes.

use std::collections::BTreeMap;

use model::{Code, LogicalPath, Refusal};
use workspace::{Target, Workspace, WorkspaceError};

use crate::run::seen_versions::SeenVersion;
use crate::tool::expected_version::{ExpectedVersion, expect_version};

/// The most files of one folder that a call lists. Policy allows fewer.
pub(crate) const MAX_FILES: usize = 10_000;

/// The files of a folder, as they were listed before the call has locked them.
#[derive(Debug)]
pub(crate) struct Folder {
    path: LogicalPath,
    /// Sorted.
    files: Vec<LogicalPath>,
    /// The versions that the caller has seen, if it expects them, in the order of `files`.
    seen: Vec<ExpectedVersion>,
}

impl Folder {
    /// Takes the `files` of the folder at `path`, of which the caller may expect the versions that it has seen.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if it expects the version of a single file; `NOT_A_FILE` if the folder has no files.
    pub(crate) fn new(
        path: &LogicalPath,
        files: Vec<LogicalPath>,
        expected: Option<ExpectedVersion>,
    ) -> Result<Self, Refusal> {
        if files.is_empty() {
            let hint = "A folder without files need not be moved or deleted: it is in no diff and no export.";
            return Err(Refusal::new(Code::NotAFile, format!("`{path}` is a folder without files"), hint).at(path));
        }
        let seen = match expected {
            None => Vec::new(),
            Some(expected) if expected.seen().is_some() => vec![expected; files.len()],
            Some(_) => {
                let message = format!("`expectedSha256` is the version of one file, and `{path}` is a folder");
                let hint =
                    "Omit `expectedSha256`, or give `seen`: then no file may have changed since you have seen it.";
                return Err(Refusal::invalid(message, hint).at(path));
            }
        };
        Ok(Self { path: path.clone(), files, seen })
    }

    /// The files, sorted.
    pub(crate) fn files(&self) -> &[LogicalPath] {
        &self.files
    }

    /// The versions that the caller expects as seen.
    pub(crate) fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        self.files.iter().zip(&mut self.seen).collect()
    }

    /// Checks that the folder has the listed files and no others.
    ///
    /// # Errors
    ///
    /// `WRITE_CONFLICT`, or if the disk fails.
    pub(crate) fn check(&self, workspace: &Workspace) -> Result<(), WorkspaceError> {
        let now = workspace.files_under(&self.path, MAX_FILES)?.unwrap_or_default();
        if now == self.files {
            return Ok(());
        }
        let message = format!("the files of `{}` have changed while the call was prepared", self.path);
        Err(Refusal::new(Code::WriteConflict, message, "Make the call again.").at(&self.path).into())
    }

    /// Checks that each file exists, and has not changed since the caller has seen it.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`, `WRITE_CONFLICT`.
    pub(crate) fn check_versions(&self, targets: &[Target]) -> Result<(), Refusal> {
        let by_path: BTreeMap<_, _> = targets.iter().map(|target| (&target.path, target)).collect();
        for (index, path) in self.files.iter().enumerate() {
            let before =
                by_path.get(path).and_then(|target| target.before.as_ref()).ok_or_else(|| Refusal::not_found(path))?;
            // A file that the caller has never seen is expected as it is.
            let expected = self.seen.get(index).filter(|expected| expected.seen() != Some(SeenVersion::Never));
            if let Some(expected) = expected {
                expect_version(path, Some(before.0.sha256), Some(*expected))?;
            }
        }
        Ok(())
    }
}
