//! Steps that a killed process may have begun, finished.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use model::{LogicalPath, Sha256, Step, StepBytes, StepContent};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::stage::{put, remove};
use super::{Applied, Leaving, MoveError, TargetState, among, digest, hash, look, move_in, take_out};
use crate::Workspace;
use crate::base::manifest::Stamp;
use crate::guard::{Goes, Root};

/// How large a file may be that is looked at for being torn.
const MAX_TORN_BYTES: u64 = 64 << 20;

/// What doing steps again after a kill came to.
#[derive(Debug)]
pub enum Replay {
    /// Every target is as the steps want it.
    Done(Applied),
    /// These targets are neither as before nor as after; nothing was touched.
    ChangedOutside(Vec<LogicalPath>),
}

/// What all steps of one path come to: any state on the way may be found, the last is wanted.
struct Chain<'a> {
    states: Vec<Option<Sha256>>,
    contents: Vec<&'a StepContent>,
    last: Option<&'a StepContent>,
}

/// How far a path is.
#[derive(PartialEq, Eq)]
enum Progress {
    Done,
    ToDo { replaces: bool },
    ChangedOutside,
}

impl Workspace {
    /// Carries out steps that a killed process may have begun: where every target is as before or as after, all become
    /// as after. A path may be in several steps, in their order; the last counts. Files above one another at different times
    /// are not in each other's way.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn replay(&self, steps: &[Step]) -> io::Result<Replay> {
        let root = &self.tree().root;
        let chains = chains(steps);
        let mut changed = Vec::new();
        let mut to_do = Vec::new();
        let mut applied = Applied::new(root.clone(), self.tmp().clone());
        for (path, chain, progress) in self.progress_of_all(root, &chains)? {
            match progress {
                // Done, but perhaps not synced, and neither are the folders above it.
                Progress::Done if chain.last.is_some() => applied.wrote(path, true),
                Progress::Done => applied.removed(path),
                Progress::ToDo { replaces } => to_do.push((path, chain.last, replaces)),
                Progress::ChangedOutside => changed.push(path.clone()),
            }
        }
        // Removals first, as the steps had it.
        to_do.sort_by_key(|(_, last, _)| last.is_some());
        if changed.is_empty() {
            for (path, last, replaces) in to_do {
                if !self.finish(root, path, last, replaces, &mut applied)? {
                    changed.push(path.clone());
                }
                failpoint::hit("redo.step");
            }
        }
        if changed.is_empty() {
            applied.remove_emptied();
        }
        Ok(if changed.is_empty() { Replay::Done(applied) } else { Replay::ChangedOutside(changed) })
    }

    /// Whether some of `steps` are done in the tree and others are not.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn is_partially_applied(&self, steps: &[Step]) -> io::Result<bool> {
        let (mut done, mut to_do) = (false, false);
        for (_, _, progress) in self.progress_of_all(&self.tree().root, &chains(steps))? {
            match progress {
                Progress::Done => done = true,
                Progress::ToDo { .. } => to_do = true,
                Progress::ChangedOutside => {}
            }
        }
        Ok(done && to_do)
    }

    fn progress_of_all<'a, 'b>(
        &self,
        root: &Root,
        chains: &'b BTreeMap<&'a LogicalPath, Chain<'a>>,
    ) -> io::Result<Vec<(&'a LogicalPath, &'b Chain<'a>, Progress)>> {
        let goes = among(|| chains.iter().filter(|(_, chain)| chain.last.is_none()).map(|(path, _)| *path));
        // Where a file has gone, another may have come above or beneath it since.
        let moves = among(|| chains.keys().copied());
        let progress = |(path, chain): (&&'a LogicalPath, &'b Chain<'a>)| {
            let goes: Goes<'_> = if chain.last.is_some() { &goes } else { &moves };
            Ok((*path, chain, self.progress(root, path, chain, goes)?))
        };
        chains.iter().map(progress).collect()
    }

    fn progress(&self, root: &Root, path: &LogicalPath, chain: &Chain<'_>, goes: Goes<'_>) -> io::Result<Progress> {
        let last = chain.states.last().copied().flatten();
        let found = match look(root, path, goes)? {
            TargetState::Other => return Ok(Progress::ChangedOutside),
            TargetState::Nothing => None,
            TargetState::File(stamp) => match hash(root, path)? {
                Some((sha256, _)) if chain.states.contains(&Some(sha256)) => Some(sha256),
                Some(_) if stamp.size <= MAX_TORN_BYTES && is_torn(root, path, chain)? => {
                    return Ok(Progress::ToDo { replaces: true });
                }
                _ => return Ok(Progress::ChangedOutside),
            },
        };
        Ok(if found == last {
            Progress::Done
        } else if !chain.states.contains(&found) || !self.has_bytes(chain.last)? {
            Progress::ChangedOutside
        } else {
            Progress::ToDo { replaces: found.is_some() }
        })
    }

    /// Whether a step's new bytes are still there, and are those that it names.
    fn has_bytes(&self, content: Option<&StepContent>) -> io::Result<bool> {
        let Some(StepContent { bytes: StepBytes::Staged(name), sha256, .. }) = content else { return Ok(true) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(self.tmp(), &**name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        let stat = rustix::fs::fstat(&file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(false);
        }
        Ok(digest(&mut File::from(file), Stamp::of(&stat).size)? == *sha256)
    }

    /// Brings one path to its last state; false where something came in between.
    fn finish(
        &self,
        root: &Root,
        path: &LogicalPath,
        last: Option<&StepContent>,
        replaces: bool,
        applied: &mut Applied,
    ) -> io::Result<bool> {
        let moved = match last {
            None => take_out(self.tmp(), root, path, Leaving::File(None), applied),
            Some(content) => {
                let (name, journalled) = put(self.tmp(), content)?;
                let leaving = replaces.then_some(Leaving::File(None));
                let moved = move_in(self.tmp(), &name, root, path, leaving, applied);
                if moved.is_err() && !journalled {
                    remove(self.tmp(), &name)?;
                }
                moved
            }
        };
        if moved.is_ok() && last.is_some() {
            // The killed process may have made folders of which nothing tells any more.
            applied.wrote(path, true);
        }
        match moved {
            Ok(()) => Ok(true),
            Err(MoveError::Outside | MoveError::Missing) => Ok(false),
            Err(MoveError::Io(error)) => Err(error),
        }
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

/// Whether the file is what a power cut leaves of a file that was renamed into place but not synced: any part of the new
/// bytes from their start, with zeros where blocks were never written.
fn is_torn(root: &Root, path: &LogicalPath, chain: &Chain<'_>) -> io::Result<bool> {
    use std::io::Read as _;

    let Ok(opened) = root.open_unlinked(path) else { return Ok(false) };
    let mut found = Vec::new();
    std::fs::File::from(opened.file).take(MAX_TORN_BYTES).read_to_end(&mut found)?;
    let left_of = |content: &&StepContent| match &content.bytes {
        StepBytes::Inline(bytes) => {
            found.len() <= bytes.len() && found.iter().zip(bytes).all(|(found, wanted)| found == wanted || *found == 0)
        }
        // Synced before the journal named it.
        StepBytes::Staged(_) => false,
    };
    Ok(chain.contents.iter().any(left_of))
}
