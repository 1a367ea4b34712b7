//! Undoes calls one by one in memory: by hashes first, then by bytes.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::{
    Code, Effect, GitMode, LINK_MODE, LogicalPath, PatchOperation, RecordFile, Refusal, Rules, Sha256, is_link_mode,
    judge_call_bytes, written_sections,
};
use workspace::Target;

use crate::tool::change_plan::{DesiredFile, NEW_FILE_MODE};
use crate::tool::earlier_calls::{EarlierCall, EarlierFile, StoredContent};

/// The files after some calls were undone. `None` for a path without a file.
pub(crate) struct RevertedFiles<'a> {
    files: BTreeMap<LogicalPath, Option<RevertedFile>>,
    earlier: &'a [EarlierFile],
}

#[derive(Clone)]
struct RevertedFile {
    sha256: Sha256,
    /// The content; `None` if it is unknown. Equal contents share one buffer.
    bytes: Option<Rc<Vec<u8>>>,
    mode: u32,
}

impl<'a> RevertedFiles<'a> {
    /// Starts with the present files.
    pub(crate) fn new(targets: &[Target], earlier: &'a [EarlierFile]) -> Self {
        let file = |target: &Target| {
            target.before.as_ref().map(|(state, bytes)| RevertedFile {
                sha256: state.sha256,
                // A file that is too large has a substitute for its bytes.
                bytes: (bytes.len() as u64 == state.size_bytes).then(|| Rc::new(bytes.clone())),
                mode: state.mode,
            })
        };
        Self { files: targets.iter().map(|target| (target.path.clone(), file(target))).collect(), earlier }
    }

    /// Undoes one call.
    ///
    /// # Errors
    ///
    /// `REVERT_CONFLICT` if a file is not in the state in which the call left it.
    pub(crate) fn undo(&mut self, call: &EarlierCall) -> Result<(), Refusal> {
        for file in &call.files {
            if self.at(&file.path).map(|current| current.sha256) != file.new_sha256 {
                return Err(conflict(call, &file.path));
            }
        }
        let mut before = Vec::with_capacity(call.files.len());
        for file in &call.files {
            let earlier = file.old_sha256.map(|sha256| self.before(call, file, sha256));
            before.push((file.path.clone(), earlier));
        }
        self.files.extend(before);
        Ok(())
    }

    /// Returns the files that differ from the present ones.
    ///
    /// # Errors
    ///
    /// `REVERT_CONFLICT` if an earlier content is not stored; a refusal if the contents exceed the memory limit of a call.
    pub(crate) fn desired(mut self, rules: &Rules, targets: &[Target]) -> Result<Vec<DesiredFile>, Refusal> {
        let mut desired = Vec::new();
        let before = targets.iter().filter_map(|target| target.before.as_ref());
        let mut held_bytes: u64 = before.map(|(_, bytes)| bytes.len() as u64).sum();
        let mut deleted = BTreeMap::new();
        for target in targets {
            let present = target.before.as_ref().map(|(state, _)| (state.sha256, state.mode));
            let after = self.files.remove(&target.path).flatten();
            let effect = match (present, &after) {
                (None, None) => continue,
                (Some((sha256, mode)), Some(file)) if sha256 == file.sha256 && mode == file.mode => continue,
                (None, Some(_)) => Effect::Create,
                (Some(_), Some(_)) => Effect::Replace,
                (Some((sha256, mode)), None) => {
                    deleted.insert(target.path.clone(), (sha256, is_link_mode(mode)));
                    Effect::Delete
                }
            };
            held_bytes += after.as_ref().and_then(|file| file.bytes.as_ref()).map_or(0, |bytes| bytes.len() as u64);
            if let Some(refusal) = judge_call_bytes(rules, held_bytes) {
                return Err(refusal);
            }
            let after = after.map(|file| self.content(&target.path, file)).transpose()?;
            desired.push(DesiredFile { path: target.path.clone(), effect, after });
        }
        detect_moves(&mut desired, deleted);
        Ok(desired)
    }

    fn at(&self, path: &LogicalPath) -> Option<&RevertedFile> {
        self.files.get(path)?.as_ref()
    }

    /// Returns what `file` was before `call`: a file with the hash `sha256`.
    fn before(&self, call: &EarlierCall, file: &RecordFile, sha256: Sha256) -> RevertedFile {
        let mode = match self.at(&file.path) {
            // The call has not changed it: what later ones have made of it stays.
            Some(present) if file.old_mode.is_none() => present.mode,
            present => {
                // A file that the call has moved away has the permissions that git does not know in its new place.
                let moved =
                    || call.files.iter().find(|to| to.new_sha256 == Some(sha256)).and_then(|to| self.at(&to.path));
                let mode = present.or_else(moved).map_or(NEW_FILE_MODE, |present| present.mode);
                with_type_and_executable_bits(mode, file.mode_before())
            }
        };
        let bytes = self.stored(sha256).or_else(|| self.reverse_diff(call, &file.path, sha256));
        RevertedFile { sha256, bytes, mode }
    }

    /// Returns the bytes with this hash, from another file or from the stored contents.
    fn stored(&self, sha256: Sha256) -> Option<Rc<Vec<u8>>> {
        let equal = self.files.values().flatten().find(|file| file.sha256 == sha256 && file.bytes.is_some());
        if let Some(file) = equal {
            return file.bytes.clone();
        }
        self.earlier.iter().find_map(|file| match &file.content {
            StoredContent::Bytes(bytes) if file.sha256 == sha256 => Some(Rc::new(bytes.clone())),
            StoredContent::Bytes(_) | StoredContent::TooLarge | StoredContent::Unknown => None,
        })
    }

    /// Returns the bytes before `call`, by applying its diff in reverse: for contents that were written from outside.
    fn reverse_diff(&self, call: &EarlierCall, path: &LogicalPath, sha256: Sha256) -> Option<Rc<Vec<u8>>> {
        let sections = written_sections(&call.diff).into_iter().filter_map(|section| section.reversed());
        // A file that became a link has two, of which one has its content.
        sections.filter(|section| section.path == *path).find_map(|section| {
            let current = match section.operation {
                PatchOperation::Create => &[][..],
                _ => self.at(&section.from).map_or(Some(&[][..]), |file| file.bytes.as_deref().map(Vec::as_slice))?,
            };
            let bytes = section.apply(current).ok()?.bytes;
            (Sha256::of(&bytes) == sha256).then(|| Rc::new(bytes))
        })
    }

    fn content(&self, path: &LogicalPath, file: RevertedFile) -> Result<(Vec<u8>, u32), Refusal> {
        let earlier = self.earlier.iter().find(|earlier| earlier.path == *path && earlier.sha256 == file.sha256);
        let too_large = earlier.is_some_and(|earlier| matches!(earlier.content, StoredContent::TooLarge));
        let bytes = file.bytes.map(Rc::unwrap_or_clone);
        bytes.map(|bytes| (bytes, file.mode)).ok_or_else(|| not_stored(path, too_large))
    }
}

/// Turns the deletion of a file and the creation of one with the same bytes into a move. `deleted` has the hash of each deleted file, and
/// whether it is a link.
fn detect_moves(desired: &mut [DesiredFile], mut deleted: BTreeMap<LogicalPath, (Sha256, bool)>) {
    let mut moves = Vec::new();
    for file in desired.iter_mut().filter(|file| file.effect == Effect::Create) {
        let Some(new) = file.after.as_ref().map(|(bytes, mode)| (Sha256::of(bytes), is_link_mode(*mode))) else {
            continue;
        };
        let Some(from) = deleted.iter().find(|(_, old)| **old == new).map(|(path, _)| path.clone()) else {
            continue;
        };
        deleted.remove(&from);
        moves.push((from.clone(), file.path.clone()));
        file.effect = Effect::MoveTo { from };
    }
    for (from, to) in moves {
        if let Some(file) = desired.iter_mut().find(|file| file.path == from) {
            file.effect = Effect::MoveFrom { to };
        }
    }
}

/// Returns `mode` with the type and the executable bits of `git_mode`.
fn with_type_and_executable_bits(mode: u32, git_mode: GitMode) -> u32 {
    let bits = if is_link_mode(mode) { NEW_FILE_MODE } else { mode & 0o7777 };
    match git_mode {
        GitMode::Link => LINK_MODE,
        GitMode::File => bits & !0o111,
        // As in git, everyone who may read an executable file may run it.
        GitMode::Executable => bits | (bits & 0o444) >> 2,
    }
}

fn conflict(call: &EarlierCall, path: &LogicalPath) -> Refusal {
    let message = format!("`{path}` has changed since call `{}`", call.tool_call_id);
    Refusal::new(Code::RevertConflict, message, "Undo the later calls too, or edit the file.").at(path)
}

fn not_stored(path: &LogicalPath, too_large: bool) -> Refusal {
    let (message, hint) = if too_large {
        let message = format!("the earlier content of `{path}` was too large to be stored");
        (message, "Restore the file through the files plane, and undo the other calls without this one.")
    } else {
        let message = format!("the earlier content of `{path}` was written from outside and is not stored");
        (message, "Restore the file through the files plane, or do not undo this call.")
    };
    Refusal::new(Code::RevertConflict, message, hint).at(path)
}
