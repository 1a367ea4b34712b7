//! `revert_calls`: earlier mutations are undone, newest first, as one new change.

use std::collections::{BTreeMap, BTreeSet};

use model::{Code, Effect, LogicalPath, Patch, Permission, Refusal, Section, Sha256, ToolCallId};
use serde::{Deserialize, Serialize};
use workspace::Target;

use super::write_file::members;
use super::{History, Mutation, PastCall, PlanContext, Tool, ToolRun, ToolSchema, parse};
use crate::change::{Desired, Planned};

/// The most calls that are named at once.
pub(super) const MAX_CALLS: usize = 100;
/// The permission bits of a file that comes back, where its diff names none.
const DEFAULT_MODE: u32 = 0o644;

pub(super) const TOOL: Tool = Tool {
    name: "revert_calls",
    description: "Undoes earlier mutations of this run, newest first, all or nothing: those named by toolCallIds, or \
                  every one after the record toSeq. Refused where a file has changed since.",
    takes_long: false,
    permissions: &[Permission::FilePatchApply],
    input: ToolSchema::of::<RevertCallsInput>,
    output: ToolSchema::of::<RevertCallsOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(RevertCalls::try_from(parse::<RevertCallsInput>(members)?)?))),
};

/// What `revert_calls` takes: one of the two.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"toolCallIds": ["tc_7"], "reason": "it broke the build"}))]
pub(crate) struct RevertCallsInput {
    /// The calls.
    #[serde(default)]
    #[schema(max_items = 100)]
    tool_call_ids: Vec<String>,
    /// Undo every mutation whose record comes after this one; 0 undoes them all.
    #[serde(default)]
    to_seq: Option<u64>,
}

/// What `revert_calls` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevertCallsOutput {
    /// The calls that were undone, newest first.
    reverted: Vec<ToolCallId>,
    /// Every path that changes.
    files_touched: Vec<LogicalPath>,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
}

struct RevertCalls {
    wanted: History,
    /// Newest first.
    calls: Vec<PastCall>,
}

impl TryFrom<RevertCallsInput> for RevertCalls {
    type Error = Refusal;

    fn try_from(input: RevertCallsInput) -> Result<Self, Refusal> {
        let wanted = match (input.tool_call_ids, input.to_seq) {
            (ids, None) if (1..=MAX_CALLS).contains(&ids.len()) => {
                let ids = ids.iter().map(|raw| ToolCallId::parse(raw));
                let ids = ids.collect::<Result<_, _>>().map_err(|error| {
                    Refusal::invalid(error.to_string(), "Name calls by the toolCallId of their answers.")
                })?;
                History::Calls(ids)
            }
            (ids, Some(seq)) if ids.is_empty() => History::After(seq),
            (ids, None) => {
                let message = format!("`toolCallIds` has {} entries; it takes 1 to {MAX_CALLS}", ids.len());
                return Err(Refusal::invalid(message, "Name the calls to undo, or give toSeq."));
            }
            (_, Some(_)) => {
                let hint = "Name the calls to undo, or give the record to go back to.";
                return Err(Refusal::invalid("`toolCallIds` and `toSeq` exclude each other", hint));
            }
        };
        Ok(Self { wanted, calls: Vec::new() })
    }
}

impl Mutation for RevertCalls {
    fn history(&self) -> Option<History> {
        Some(self.wanted.clone())
    }

    fn take_history(&mut self, mut calls: Vec<PastCall>) -> Result<(), Refusal> {
        calls.sort_by_key(|call| std::cmp::Reverse(call.record.seq));
        let named: &[ToolCallId] = match &self.wanted {
            History::Calls(ids) => ids,
            History::After(_) => &[],
        };
        if let Some(id) = named.iter().find(|id| !calls.iter().any(|call| call.record.tool_call_id == **id)) {
            return Err(nothing_to_undo(format!("no call `{id}` has changed a file")));
        }
        if calls.is_empty() {
            return Err(nothing_to_undo("there is nothing to undo: no such call has changed a file".to_owned()));
        }
        self.calls = calls;
        Ok(())
    }

    fn paths(&self) -> Vec<LogicalPath> {
        let paths: BTreeSet<_> = self.calls.iter().flat_map(|call| call.record.paths_written.iter().cloned()).collect();
        paths.into_iter().collect()
    }

    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<Planned, Refusal> {
        let mut tree = Undone::of(&targets);
        for call in &self.calls {
            tree.undo(call)?;
        }
        let desired = tree.desired(&targets);
        let mut planned = Planned::draw(context.rules, targets, desired)?;
        let counts = planned.changes.counts();
        let reverted: Vec<_> = self.calls.iter().map(|call| call.record.tool_call_id.clone()).collect();
        planned.summary = format!("undid {} calls (+{} -{})", reverted.len(), counts.insertions, counts.deletions);
        planned.output = members(&RevertCallsOutput {
            reverted,
            files_touched: planned.changes.changes.iter().map(|change| change.path.clone()).collect(),
            insertions: counts.insertions,
            deletions: counts.deletions,
        });
        Ok(planned)
    }
}

/// The files as they are while calls are undone one by one: bytes and permission bits, or nothing.
struct Undone(BTreeMap<LogicalPath, Option<(Vec<u8>, u32)>>);

impl Undone {
    fn of(targets: &[Target]) -> Self {
        let file = |target: &Target| target.before.as_ref().map(|(state, bytes)| (bytes.clone(), state.mode));
        Self(targets.iter().map(|target| (target.path.clone(), file(target))).collect())
    }

    fn hash(&self, path: &LogicalPath) -> Option<Sha256> {
        self.0.get(path)?.as_ref().map(|(bytes, _)| Sha256::of(bytes))
    }

    /// Takes one call back, if every file is as the call left it.
    fn undo(&mut self, call: &PastCall) -> Result<(), Refusal> {
        for file in &call.record.files {
            if self.hash(&file.path) != file.new_sha256 {
                return Err(conflict(call, &file.path));
            }
        }
        let mut after = Vec::new();
        for (section, mode) in taken_back(call)? {
            let (bytes, now) = self.0.get(&section.from).cloned().flatten().unwrap_or((Vec::new(), DEFAULT_MODE));
            let patched = section.apply(&bytes).map_err(|_| not_kept(call))?;
            after.push((section.path.clone(), patched.bytes, mode.map_or(now, |mode| with_bits(now, mode))));
        }
        for file in &call.record.files {
            self.0.insert(file.path.clone(), None);
        }
        for (path, bytes, mode) in after {
            self.0.insert(path, Some((bytes, mode)));
        }
        for file in &call.record.files {
            if file.old_sha256.is_none() {
                self.0.insert(file.path.clone(), None);
            }
            if self.hash(&file.path) != file.old_sha256 {
                return Err(not_kept(call));
            }
        }
        Ok(())
    }

    fn desired(mut self, targets: &[Target]) -> Vec<Desired> {
        let mut desired = Vec::new();
        let mut gone = BTreeMap::new();
        for target in targets {
            let there = target.before.as_ref().map(|(state, bytes)| (bytes, state.mode));
            let after = self.0.remove(&target.path).flatten();
            let effect = match (there, &after) {
                (None, None) => continue,
                (Some((bytes, mode)), Some((new, new_mode))) if bytes == new && mode == *new_mode => continue,
                (None, Some(_)) => Effect::Create,
                (Some(_), Some(_)) => Effect::Replace,
                (Some((bytes, _)), None) => {
                    gone.insert(target.path.clone(), bytes.as_slice());
                    Effect::Delete
                }
            };
            desired.push(Desired { path: target.path.clone(), effect, after });
        }
        as_moves(&mut desired, gone);
        desired
    }
}

/// A file that goes and comes again elsewhere, byte for byte, is moved: nothing of it is lost.
fn as_moves(desired: &mut [Desired], mut gone: BTreeMap<LogicalPath, &[u8]>) {
    let mut moves = Vec::new();
    for want in desired.iter_mut().filter(|want| want.effect == Effect::Create) {
        let Some((bytes, _)) = &want.after else { continue };
        let Some(from) = gone.iter().find(|(_, old)| **old == bytes.as_slice()).map(|(path, _)| path.clone()) else {
            continue;
        };
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

/// The sections that undo `call`, each with the git mode that its file had, where the diff tells one.
fn taken_back(call: &PastCall) -> Result<Vec<(Section, Option<u32>)>, Refusal> {
    // What the call has made goes, whatever it holds.
    if call.record.files.iter().all(|file| file.old_sha256.is_none()) {
        return Ok(Vec::new());
    }
    // A change of the bits alone is no section that turns around; the bits are taken from its head instead.
    let sections = Patch::parse_bytes(&call.diff).map_err(|_| not_kept(call))?.sections;
    let modes = old_modes(&call.diff);
    if modes.len() != sections.len() {
        return Err(not_kept(call));
    }
    let turn = |(section, mode): (Section, Option<u32>)| {
        let reversed = Section { mode: None, ..section }.reversed().ok_or_else(|| not_kept(call))?;
        Ok((reversed, mode))
    };
    sections.into_iter().zip(modes).map(turn).collect()
}

/// The mode that each section of a diff of the service's own says its file had; lines of files never begin so.
fn old_modes(diff: &[u8]) -> Vec<Option<u32>> {
    let mut modes = Vec::new();
    for line in diff.split(|byte| *byte == b'\n') {
        if line.starts_with(b"diff --git ") {
            modes.push(None);
        }
        let told = line.strip_prefix(b"old mode ").or_else(|| line.strip_prefix(b"deleted file mode "));
        if let (Some(told), Some(last)) = (told, modes.last_mut()) {
            *last = std::str::from_utf8(told).ok().and_then(|told| u32::from_str_radix(told, 8).ok());
        }
    }
    modes
}

/// `now` with the executable bits that git's `mode` stands for.
fn with_bits(now: u32, mode: u32) -> u32 {
    let now = now & 0o7777;
    // Whoever may read a file may run it, as git makes it.
    if mode & 0o111 == 0 { now & !0o111 } else { now | (now & 0o444) >> 2 }
}

fn nothing_to_undo(message: String) -> Refusal {
    Refusal::new(Code::NotFound, message, "Look at the run's audit for calls whose pathsWritten is not empty.")
}

fn conflict(call: &PastCall, path: &LogicalPath) -> Refusal {
    let message = format!("`{path}` has changed since call `{}`", call.record.tool_call_id);
    Refusal::new(Code::RevertConflict, message, "Undo the later calls too, or change the file by hand.").at(path)
}

fn not_kept(call: &PastCall) -> Refusal {
    let message = format!("what call `{}` replaced is not kept as text", call.record.tool_call_id);
    Refusal::new(Code::RevertConflict, message, "Bring the file back by the files plane.")
}
