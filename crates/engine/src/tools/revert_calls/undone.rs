//! Files while calls are taken back one by one: by their hashes, and in the end by their bytes.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::{Code, Effect, FilePatch, LogicalPath, Patch, Refusal, Rules, Sha256, judge_call_bytes};
use workspace::Target;

use crate::tool::change_plan::DesiredFile;
use crate::tool::earlier_calls::StoredContent;
use crate::tool::earlier_calls::{EarlierCall, EarlierFile};

/// The permission bits of a file that comes back, where its diff names none.
const DEFAULT_MODE: u32 = 0o644;

/// The files as they are after some calls were taken back: nothing where none is.
pub(crate) struct Undone<'a> {
    files: BTreeMap<LogicalPath, Option<File>>,
    earlier: &'a [EarlierFile],
}

#[derive(Clone)]
struct File {
    sha256: Sha256,
    /// `None` where they are not known, or are not needed. Files of the same bytes share them.
    bytes: Option<Rc<Vec<u8>>>,
    mode: u32,
}

impl<'a> Undone<'a> {
    /// The files as they are now.
    pub(crate) fn of(targets: &[Target], earlier: &'a [EarlierFile]) -> Self {
        let file = |target: &Target| {
            target.before.as_ref().map(|(state, bytes)| File {
                sha256: state.sha256,
                // Where there are too many, others stand for them.
                bytes: (bytes.len() as u64 == state.size_bytes).then(|| Rc::new(bytes.clone())),
                mode: state.mode,
            })
        };
        Self { files: targets.iter().map(|target| (target.path.clone(), file(target))).collect(), earlier }
    }

    /// Takes one call back, if every file is as the call left it.
    pub(crate) fn undo(&mut self, call: &EarlierCall) -> Result<(), Refusal> {
        for file in &call.files {
            if self.at(&file.path).map(|there| there.sha256) != file.new_sha256 {
                return Err(conflict(call, &file.path));
            }
        }
        let mut before = Vec::with_capacity(call.files.len());
        for file in &call.files {
            let there = file.old_sha256.map(|sha256| self.before(call, &file.path, sha256));
            before.push((file.path.clone(), there));
        }
        self.files.extend(before);
        Ok(())
    }

    /// What comes of it all.
    pub(crate) fn desired(mut self, rules: &Rules, targets: &[Target]) -> Result<Vec<DesiredFile>, Refusal> {
        let mut desired = Vec::new();
        let before = targets.iter().filter_map(|target| target.before.as_ref());
        let mut held_bytes: u64 = before.map(|(_, bytes)| bytes.len() as u64).sum();
        let mut gone = BTreeMap::new();
        for target in targets {
            let there = target.before.as_ref().map(|(state, _)| (state.sha256, state.mode));
            let after = self.files.remove(&target.path).flatten();
            let effect = match (there, &after) {
                (None, None) => continue,
                (Some((sha256, mode)), Some(file)) if sha256 == file.sha256 && mode == file.mode => continue,
                (None, Some(_)) => Effect::Create,
                (Some(_), Some(_)) => Effect::Replace,
                (Some((sha256, _)), None) => {
                    gone.insert(target.path.clone(), sha256);
                    Effect::Delete
                }
            };
            held_bytes += after.as_ref().and_then(|file| file.bytes.as_ref()).map_or(0, |bytes| bytes.len() as u64);
            if let Some(refusal) = judge_call_bytes(rules, held_bytes) {
                return Err(refusal);
            }
            let after = after.map(|file| self.whole(&target.path, file)).transpose()?;
            desired.push(DesiredFile { path: target.path.clone(), effect, after });
        }
        as_moves(&mut desired, gone);
        Ok(desired)
    }

    fn at(&self, path: &LogicalPath) -> Option<&File> {
        self.files.get(path)?.as_ref()
    }

    /// The file that stood at `path` before `call`.
    fn before(&self, call: &EarlierCall, path: &LogicalPath, sha256: Sha256) -> File {
        let of_path =
            |moved: bool| call.modes.iter().find(|modes| modes.from == *path && (modes.path != *path) == moved);
        let modes = of_path(true).or_else(|| of_path(false));
        let now = self.at(modes.map_or(path, |modes| &modes.path)).map_or(DEFAULT_MODE, |file| file.mode);
        let mode = modes.and_then(|modes| modes.old).map_or(now, |mode| with_bits(now, mode));
        File { sha256, bytes: self.known(sha256).or_else(|| self.turned_back(call, path, sha256)), mode }
    }

    /// The bytes of that hash, where they are at hand.
    fn known(&self, sha256: Sha256) -> Option<Rc<Vec<u8>>> {
        let there = self.files.values().flatten().find(|file| file.sha256 == sha256 && file.bytes.is_some());
        if let Some(file) = there {
            return file.bytes.clone();
        }
        self.earlier.iter().find_map(|file| match &file.content {
            StoredContent::Bytes(bytes) if file.sha256 == sha256 => Some(Rc::new(bytes.clone())),
            StoredContent::Bytes(_) | StoredContent::TooLarge | StoredContent::Unknown => None,
        })
    }

    /// The bytes by the call's own diff: for what came from outside before the call.
    fn turned_back(&self, call: &EarlierCall, path: &LogicalPath, sha256: Sha256) -> Option<Rc<Vec<u8>>> {
        let sections = Patch::parse_bytes(&call.diff).ok()?.files.into_iter();
        let mut sections = sections.filter_map(|section| FilePatch { mode: None, ..section }.reversed());
        let section = sections.find(|section| section.path == *path)?;
        let now = self.at(&section.from).map_or(Some(&[][..]), |file| file.bytes.as_deref().map(Vec::as_slice))?;
        let bytes = section.apply(now).ok()?.bytes;
        (Sha256::of(&bytes) == sha256).then(|| Rc::new(bytes))
    }

    fn whole(&self, path: &LogicalPath, file: File) -> Result<(Vec<u8>, u32), Refusal> {
        let earlier = self.earlier.iter().find(|earlier| earlier.path == *path && earlier.sha256 == file.sha256);
        let too_large = earlier.is_some_and(|earlier| matches!(earlier.content, StoredContent::TooLarge));
        let bytes = file.bytes.map(Rc::unwrap_or_clone);
        bytes.map(|bytes| (bytes, file.mode)).ok_or_else(|| not_kept(path, too_large))
    }
}

/// A file that goes and comes again elsewhere, byte for byte, is moved: nothing of it is lost.
fn as_moves(desired: &mut [DesiredFile], mut gone: BTreeMap<LogicalPath, Sha256>) {
    let mut moves = Vec::new();
    for want in desired.iter_mut().filter(|want| want.effect == Effect::Create) {
        let Some(sha256) = want.after.as_ref().map(|(bytes, _)| Sha256::of(bytes)) else { continue };
        let Some(from) = gone.iter().find(|(_, old)| **old == sha256).map(|(path, _)| path.clone()) else { continue };
        gone.remove(&from);
        moves.push((from.clone(), want.path.clone()));
        want.effect = Effect::MoveTo { from };
    }
    for (from, to) in moves {
        if let Some(want) = desired.iter_mut().find(|want| want.path == from) {
            want.effect = Effect::MoveFrom { to };
        }
    }
}

/// `now` with the executable bits that git's `mode` stands for.
fn with_bits(now: u32, mode: u32) -> u32 {
    let now = now & 0o7777;
    // Whoever may read a file may run it, as git makes it.
    if mode & 0o111 == 0 { now & !0o111 } else { now | (now & 0o444) >> 2 }
}

fn conflict(call: &EarlierCall, path: &LogicalPath) -> Refusal {
    let message = format!("`{path}` has changed since call `{}`", call.tool_call_id);
    Refusal::new(Code::RevertConflict, message, "Undo the later calls too, or change the file by hand.").at(path)
}

fn not_kept(path: &LogicalPath, too_large: bool) -> Refusal {
    let (message, hint) = if too_large {
        let message = format!("what stood in `{path}` before was too large to be kept");
        (message, "Bring that file back by the files plane; the other calls can be undone without this one.")
    } else {
        let message = format!("what stood in `{path}` before came from outside and is not kept");
        (message, "Bring the file back by the files plane, or leave this call as it is.")
    };
    Refusal::new(Code::RevertConflict, message, hint).at(path)
}
