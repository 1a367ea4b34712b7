//! What policy decides about a path, without changing or returning anything.

use model::{Access, Decision, FileKind, LogicalPath, Rules};
use rustix::fs::FileType;

use crate::guard::{Blocking, GuardError};
use crate::opened_file::{head_of, kind_of};
use crate::{Tree, WorkspaceError};

impl Tree {
    /// Returns the decision about an access to `path`, and the kind that it was based on.
    ///
    /// The bytes are read only if policy would admit a read.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`.
    pub fn explain(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
    ) -> Result<(FileKind, Decision), WorkspaceError> {
        let found = match access {
            Access::Read | Access::Search => self.root.open(path, Blocking::Allowed),
            Access::Mutate => self.root.open_unlinked(path),
        };
        let opened = match found {
            Ok(opened) => Some(opened),
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            Err(_) => None,
        };
        let real_path = opened.as_ref().and_then(|opened| opened.real.as_ref());
        let is_folder = opened.as_ref().is_some_and(|opened| opened.file_type() == FileType::Directory);
        let name = real_path.unwrap_or(path);
        let kind = if is_folder { FileKind::Directory } else { rules.kind_of_path(name) };
        let mut facts = self.facts(path, opened.as_ref(), kind, Blocking::Allowed)?;
        let kind = if is_folder { rules.kind_of_dir(name) } else { facts.kind };
        if let Some(opened) = opened.as_ref().filter(|opened| opened.file_type() == FileType::RegularFile)
            && model::judge_path(rules, Access::Read, &facts).is_ok()
        {
            facts.kind = kind_of(rules, name, &head_of(opened)?);
            return Ok((facts.kind, model::explain_path(rules, access, &facts)));
        }
        Ok((kind, model::explain_path(rules, access, &facts)))
    }
}
