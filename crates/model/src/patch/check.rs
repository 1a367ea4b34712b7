//! Turns names in a patch into paths, and checks what its files do together.

use std::collections::HashMap;

use super::fault::{invalid, shown};
use super::file_patch::{FilePatch, Hunk, PatchOperation};
use crate::{Code, LogicalPath, Refusal};

/// A file patch whose names are not checked yet.
pub(crate) struct RawFilePatch {
    /// Line of the patch at which it begins.
    pub(crate) number: usize,
    pub(crate) operation: PatchOperation,
    pub(crate) from: Vec<u8>,
    pub(crate) path: Vec<u8>,
    pub(crate) mode: Option<u32>,
    pub(crate) hunks: Vec<Hunk>,
    pub(crate) ignores_content: bool,
}

/// Checks the names of all files, each by itself and all together.
pub(crate) fn files(raw: Vec<RawFilePatch>) -> Result<Vec<FilePatch>, Refusal> {
    let mut uses = PathUses::default();
    let mut files = Vec::with_capacity(raw.len());
    let mut rejected: Option<Refusal> = None;
    for file in raw {
        match paths(&file) {
            Ok((from, path)) => {
                uses.add(file.number, file.operation, &from, &path)?;
                files.push(FilePatch {
                    operation: file.operation,
                    from,
                    path,
                    mode: file.mode,
                    hunks: file.hunks,
                    ignores_content: file.ignores_content,
                });
            }
            // Faults of the patch itself take precedence over rejected paths, wherever they are.
            Err(refusal) => rejected = rejected.or(Some(refusal)),
        }
    }
    uses.check_nesting()?;
    rejected.map_or(Ok(files), Err)
}

fn paths(file: &RawFilePatch) -> Result<(LogicalPath, LogicalPath), Refusal> {
    Ok((path(&file.from)?, path(&file.path)?))
}

fn path(name: &[u8]) -> Result<LogicalPath, Refusal> {
    let Ok(text) = std::str::from_utf8(name) else {
        let message = format!("`{}` is not UTF-8", shown(name));
        let hint = "Name files in UTF-8; a patch cannot change files with other names.";
        return Err(
            Refusal::new(Code::PathRejected, message, hint).with_details(|details| details.path = Some(shown(name)))
        );
    };
    LogicalPath::parse_file(text).map_err(|rule| Refusal::path(text, rule))
}

/// What the patch does with each path so far.
#[derive(Default)]
struct PathUses {
    by_path: HashMap<LogicalPath, PathUse>,
    /// The line of the patch that leaves a file at the path.
    files: HashMap<LogicalPath, usize>,
}

#[derive(Clone, Copy, Default)]
struct PathUse {
    /// The line of the patch that writes or deletes the path.
    written: Option<usize>,
    /// The line of the patch that renames it to another path.
    renamed: Option<usize>,
    /// Whether the path is written as a new file, which may replace one that is renamed.
    is_new: bool,
}

impl PathUses {
    /// Adds a file; refuses it if the patch already uses its paths in a conflicting way.
    fn add(
        &mut self,
        number: usize,
        operation: PatchOperation,
        from: &LogicalPath,
        path: &LogicalPath,
    ) -> Result<(), Refusal> {
        if operation == PatchOperation::Rename {
            if from == path {
                return Err(invalid(number, format!("`{path}` is renamed to itself"), "Remove the rename.").at(path));
            }
            let used = self.by_path.entry(from.clone()).or_default();
            if let Some(other) = used.renamed.or(used.written.filter(|_| !used.is_new)) {
                return Err(changed_twice(number, other, from));
            }
            used.renamed = Some(number);
        }
        let used = self.by_path.entry(path.clone()).or_default();
        let is_new = matches!(operation, PatchOperation::Create | PatchOperation::Rename | PatchOperation::Copy);
        if let Some(other) = used.written.or(used.renamed.filter(|_| !is_new)) {
            return Err(changed_twice(number, other, path));
        }
        *used = PathUse { written: Some(number), is_new, ..*used };
        if operation != PatchOperation::Delete {
            self.files.insert(path.clone(), number);
        }
        Ok(())
    }

    /// Refuses a patch that leaves a file at a path and another one under it, which no tree can have.
    fn check_nesting(&self) -> Result<(), Refusal> {
        let Some((above, below)) = LogicalPath::find_nested(self.files.keys()) else { return Ok(()) };
        let (other, number) = (self.files[above], self.files[below]);
        let message = format!("`{below}` is under `{above}`, which line {other} makes a file");
        Err(invalid(number, message, "Rename one of the two, or delete the file that is in the way.").at(below))
    }
}

fn changed_twice(number: usize, other: usize, path: &LogicalPath) -> Refusal {
    let message = format!("`{path}` is already changed at line {other}");
    invalid(number, message, "Put all hunks of a file together; send changes that build on them as a second patch.")
        .at(path)
}
