//! Replaying journalled steps that a crash may have interrupted.

use std::collections::BTreeMap;
use std::io::{self, Read as _};

use model::{LogicalPath, Sha256, Step, StepBytes, StepContent, is_link_mode};
use rustix::io::Errno;

use super::{Applied, Replaced, TargetFile, TargetState, target_state};
use crate::Workspace;
use crate::dir::open_file;
use crate::guard::{RemovedPaths, Root};
use crate::hashing::copy_hashed;

/// Files up to this size are checked for a torn write.
const MAX_TORN_BYTES: u64 = 64 << 20;

/// The outcome of a replay.
#[derive(Debug)]
pub enum Replay {
    /// Every target has the content that the steps want.
    Done(Applied),
    /// These targets have neither the content before nor the content after their steps. Nothing was changed.
    ChangedOutside(Vec<LogicalPath>),
}

/// All steps of one path. The file may be in any state between them; the last is wanted.
struct Chain<'a> {
    states: Vec<Option<Sha256>>,
    contents: Vec<&'a StepContent>,
    last: Option<&'a StepContent>,
}

/// Whether the last step of a path was applied.
#[derive(PartialEq, Eq)]
enum StepProgress {
    Applied,
    /// In place of this file.
    Pending(Option<TargetFile>),
    ChangedOutside,
}

impl Workspace {
    /// Applies steps that a crash may have interrupted, if every target is in the state before or after its steps. Several
    /// steps may name one path, in their order; the last counts. Files that existed above one another at different times do
    /// not conflict.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn replay(&self, steps: &[Step]) -> io::Result<Replay> {
        let root = &self.tree().root;
        let chains = chains(steps);
        let mut changed = Vec::new();
        let mut pending = Vec::new();
        let mut applied = Applied::new(self);
        for (path, chain, progress) in self.progress_of_all(root, &chains)? {
            match progress {
                // Applied, but perhaps not synced, and neither are the folders above.
                StepProgress::Applied if chain.last.is_some() => applied.wrote(path, true),
                StepProgress::Applied => applied.removed(path),
                StepProgress::Pending(found) => pending.push((path, chain.last, found)),
                StepProgress::ChangedOutside => changed.push(path.clone()),
            }
        }
        // Removals first, as when the steps were applied.
        pending.sort_by_key(|(_, last, _)| last.is_some());
        if changed.is_empty() {
            for (path, last, found) in pending {
                let replaced = found.filter(|file| file.is_own || last.is_none()).map(|_| Replaced::File(None));
                match applied.bring(path, last, replaced) {
                    // The crashed process may have created folders that nothing records.
                    Ok(()) if last.is_some() => applied.created_folder(path),
                    Ok(()) => {}
                    Err(error) => {
                        error.unless_disk()?;
                        changed.push(path.clone());
                    }
                }
                failpoint::hit("redo.step");
            }
        }
        if changed.is_empty() {
            applied.remove_emptied();
        }
        Ok(if changed.is_empty() { Replay::Done(applied) } else { Replay::ChangedOutside(changed) })
    }

    /// Whether some of `steps` are applied and others are not.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn is_partially_applied(&self, steps: &[Step]) -> io::Result<bool> {
        let (mut applied, mut pending) = (false, false);
        for (_, _, progress) in self.progress_of_all(&self.tree().root, &chains(steps))? {
            match progress {
                StepProgress::Applied => applied = true,
                StepProgress::Pending(_) => pending = true,
                StepProgress::ChangedOutside => {}
            }
        }
        Ok(applied && pending)
    }

    fn progress_of_all<'a, 'b>(
        &self,
        root: &Root,
        chains: &'b BTreeMap<&'a LogicalPath, Chain<'a>>,
    ) -> io::Result<Vec<(&'a LogicalPath, &'b Chain<'a>, StepProgress)>> {
        let removed = chains.iter().filter(|(_, chain)| chain.last.is_none()).map(|(path, _)| *path).collect();
        // Another file may have been created above or under a removed one since.
        let named = chains.keys().copied().collect();
        let progress = |(path, chain): (&&'a LogicalPath, &'b Chain<'a>)| {
            let removed = if chain.last.is_some() { &removed } else { &named };
            Ok((*path, chain, self.progress(root, path, chain, removed)?))
        };
        chains.iter().map(progress).collect()
    }

    fn progress(
        &self,
        root: &Root,
        path: &LogicalPath,
        chain: &Chain<'_>,
        removed: &RemovedPaths<'_>,
    ) -> io::Result<StepProgress> {
        let (file, sha256) = match target_state(root, path, removed)? {
            TargetState::Other => return Ok(StepProgress::ChangedOutside),
            TargetState::Nothing => (None, None),
            TargetState::File(file) => match root.hash(path)? {
                Some((sha256, _)) if chain.states.contains(&Some(sha256)) => (Some(file), Some(sha256)),
                Some(_) if file.stamp.size <= MAX_TORN_BYTES && is_torn(root, path, chain)? => {
                    return Ok(StepProgress::Pending(Some(file)));
                }
                _ => return Ok(StepProgress::ChangedOutside),
            },
        };
        let is_applied = match (chain.last, file) {
            (Some(content), Some(file)) => sha256 == Some(content.sha256) && self.has_mode(file, content)?,
            (None, None) => true,
            _ => false,
        };
        Ok(if is_applied {
            StepProgress::Applied
        } else if !chain.states.contains(&sha256) || !self.has_staged(chain.last)? {
            StepProgress::ChangedOutside
        } else {
            StepProgress::Pending(file)
        })
    }

    /// Whether `file`, which has the bytes of `content`, has its type and its permission bits too. A staged file that is gone is the one
    /// in the tree, and got its bits before it was moved there.
    fn has_mode(&self, file: TargetFile, content: &StepContent) -> io::Result<bool> {
        let is_link = is_link_mode(content.mode);
        let is_same = is_link_mode(file.mode) == is_link && (is_link || file.mode & 0o777 == content.mode & 0o777);
        let is_inline = matches!(content.bytes, StepBytes::Inline(_));
        Ok(is_same || !is_inline && !self.has_staged(Some(content))?)
    }

    /// Whether a step's staged file still exists with the expected hash.
    fn has_staged(&self, content: Option<&StepContent>) -> io::Result<bool> {
        let Some(StepContent { bytes: StepBytes::Staged(name), sha256, .. }) = content else { return Ok(true) };
        let mut file = match open_file(self.tmp(), &**name) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        Ok(file.metadata()?.is_file() && copy_hashed(&mut file, &mut io::sink(), u64::MAX)?.0 == *sha256)
    }
}

fn chains(steps: &[Step]) -> BTreeMap<&LogicalPath, Chain<'_>> {
    let mut chains = BTreeMap::new();
    for step in steps {
        let chain = chains.entry(&step.path).or_insert_with(|| Chain {
            states: vec![step.before],
            contents: Vec::new(),
            last: None,
        });
        chain.states.push(step.after.as_ref().map(|content| content.sha256));
        chain.contents.extend(&step.after);
        chain.last = step.after.as_ref();
    }
    chains
}

/// Whether the file is what a power failure leaves of a file that was renamed into place but not synced: any prefix of the
/// new bytes, with zeros in place of blocks that were not written.
fn is_torn(root: &Root, path: &LogicalPath, chain: &Chain<'_>) -> io::Result<bool> {
    let Ok(opened) = root.open_unlinked(path) else { return Ok(false) };
    let mut found = Vec::new();
    opened.file.into_reader()?.take(MAX_TORN_BYTES).read_to_end(&mut found)?;
    let left_of = |content: &&StepContent| match &content.bytes {
        StepBytes::Inline(bytes) => {
            found.len() <= bytes.len() && found.iter().zip(bytes).all(|(found, wanted)| found == wanted || *found == 0)
        }
        // A staged file is synced before the journal names it.
        StepBytes::Staged(_) => false,
    };
    Ok(chain.contents.iter().any(left_of))
}
