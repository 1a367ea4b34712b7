//! From names in a patch to paths, and what sections may not do together.

use std::collections::HashMap;

use super::fault::{invalid, shown};
use super::file_patch::{FilePatch, Hunk, PatchOperation};
use crate::{Code, LogicalPath, Refusal};

/// A section whose names are not judged yet.
pub(super) struct RawFilePatch {
    /// Line of the patch at which it begins.
    pub(super) number: usize,
    pub(super) operation: PatchOperation,
    pub(super) from: Vec<u8>,
    pub(super) path: Vec<u8>,
    pub(super) mode: Option<u32>,
    pub(super) hunks: Vec<Hunk>,
    pub(super) ignores_content: bool,
}

/// Judges the sections' names, each by itself and all together.
pub(super) fn sections(raw: Vec<RawFilePatch>) -> Result<Vec<FilePatch>, Refusal> {
    let mut uses = Uses::default();
    let mut sections = Vec::with_capacity(raw.len());
    let mut rejected: Option<Refusal> = None;
    for section in raw {
        match paths(&section) {
            Ok((from, path)) => {
                uses.note(section.number, section.operation, &from, &path)?;
                sections.push(FilePatch {
                    operation: section.operation,
                    from,
                    path,
                    mode: section.mode,
                    hunks: section.hunks,
                    ignores_content: section.ignores_content,
                });
            }
            // What is wrong with the patch as such comes first, wherever it stands.
            Err(refusal) => rejected = rejected.or(Some(refusal)),
        }
    }
    uses.check_ways()?;
    rejected.map_or(Ok(sections), Err)
}

fn paths(section: &RawFilePatch) -> Result<(LogicalPath, LogicalPath), Refusal> {
    Ok((path(&section.from)?, path(&section.path)?))
}

fn path(name: &[u8]) -> Result<LogicalPath, Refusal> {
    let Ok(text) = std::str::from_utf8(name) else {
        let message = format!("`{}` is not UTF-8", shown(name));
        return Err(Refusal::new(
            Code::PathRejected,
            message,
            "Name files in UTF-8; others are out of reach of patches.",
        )
        .with_details(|details| details.path = Some(shown(name))));
    };
    LogicalPath::parse_file(text).map_err(|rule| Refusal::path(text, rule))
}

/// What the sections so far do with each path.
#[derive(Default)]
struct Uses {
    of: HashMap<LogicalPath, Use>,
    /// The line of the section that leaves a file at the path.
    files: HashMap<LogicalPath, usize>,
}

#[derive(Clone, Copy, Default)]
struct Use {
    /// The line of the section that writes the path, or takes it away without a successor.
    written: Option<usize>,
    /// The line of the section that renames it away.
    renamed: Option<usize>,
    /// Whether what is written is a file of its own, in the place of one that is renamed away.
    anew: bool,
}

impl Uses {
    /// Adds a section; refuses it where the patch does something else with its paths already.
    fn note(
        &mut self,
        number: usize,
        operation: PatchOperation,
        from: &LogicalPath,
        path: &LogicalPath,
    ) -> Result<(), Refusal> {
        if operation == PatchOperation::Rename {
            if from == path {
                return Err(invalid(number, format!("`{path}` is renamed to itself"), "Leave the rename out.").at(path));
            }
            let used = self.of.entry(from.clone()).or_default();
            if let Some(other) = used.renamed.or(used.written.filter(|_| !used.anew)) {
                return Err(twice(number, other, from));
            }
            used.renamed = Some(number);
        }
        let used = self.of.entry(path.clone()).or_default();
        let anew = matches!(operation, PatchOperation::Create | PatchOperation::Rename | PatchOperation::Copy);
        if let Some(other) = used.written.or(used.renamed.filter(|_| !anew)) {
            return Err(twice(number, other, path));
        }
        *used = Use { written: Some(number), anew, ..*used };
        if operation != PatchOperation::Delete {
            self.files.insert(path.clone(), number);
        }
        Ok(())
    }

    /// Refuses a patch that wants a file and something beneath it: whatever the tree holds, no order of its sections works.
    fn check_ways(&self) -> Result<(), Refusal> {
        let Some((above, beneath)) = LogicalPath::find_nested(self.files.keys()) else { return Ok(()) };
        let (other, number) = (self.files[above], self.files[beneath]);
        let message = format!("`{beneath}` lies beneath `{above}`, which line {other} wants to be a file");
        Err(invalid(number, message, "Give one of the two another name, or delete the file in the way.").at(beneath))
    }
}

fn twice(number: usize, other: usize, path: &LogicalPath) -> Refusal {
    let message = format!("`{path}` is changed here and at line {other} already");
    invalid(number, message, "Put all hunks of a file into one section; send what builds on it as a second patch.")
        .at(path)
}
