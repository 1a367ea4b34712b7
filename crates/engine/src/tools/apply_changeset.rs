//! `apply_changeset`: applies what a command has changed outside of the service, all of it or nothing. Not in the catalogue: a runner
//! sends change sets, and no model.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read};

use async_trait::async_trait;
use bytes::Bytes;
use model::{
    Access, Code, Content, Effect, FileKind, FileState, LINK_MODE, LogicalPath, OutsideChanges, PathFacts,
    PathRejected, Permission, Refusal, Rules, ScannedContent, Sha256, StepBytes, composed, is_binary, is_link_mode,
    judge_call_bytes, judge_path, judge_scanned_content,
};
use serde::{Deserialize, Serialize};
use workspace::{
    LayerBase, LayerChange, LayerEntry, LayerReader, StagedContents, StagedFile, Target, Workspace, WorkspaceError,
};

use super::write_file::merge::{OnConflict, merge_change};
use crate::CallError;
use crate::call_error::refusals::canonically_equal;
use crate::run::fsync_worker::abort_on_failed_fsync;
use crate::run::quota::Reservation;
use crate::tool::change_plan::{ChangePlan, DesiredFile, NEW_FILE_MODE, UploadedFile, too_large};
use crate::tool::changed_since::{ChangedSince, FileSince, MergedFork};
use crate::tool::folder::MAX_FILES;
use crate::tool::input::parse;
use crate::tool::layer::{Layer, MAX_HELD_BYTES, MAX_HELD_FILE_BYTES, layer_limits};
use crate::tool::output::members;
use crate::tool::scanned_reader::ScannedReader;
use crate::tool::text::notes::counted;
use crate::tool::{Mutation, PlanContext, RunLookup, Scope, Tool, ToolRun, ToolSchema};

/// The member of a stored input that has the layer.
pub(crate) const LAYER: &str = "layerBase64";
const EXECUTABLE: u32 = 0o111;
/// The rule that denies a change of the executable bit.
const MODE_CHANGE: &str = "modeChange";
/// The first bytes of a file that say whether it is text.
const HEAD_BYTES: u64 = 8 * 1024;
/// The folders by which the answer counts what is not taken. More are counted together.
const MAX_NOT_TAKEN: usize = 100;
/// The most files of a set that are staged: each is created and synced by itself.
const MAX_STAGED_FILES: usize = 1000;
/// The key of all other folders.
const OTHER: &str = "…";

/// Applies a change set.
pub static APPLY_CHANGESET: Tool = Tool {
    name: "apply_changeset",
    description: "Applies what a command has changed outside of the service.",
    is_expensive: true,
    permissions: &[Permission::ChangesetApply],
    content: &[],
    input: ToolSchema::of::<StoredChangeset>,
    output: ToolSchema::of::<AppliedChangeset>,
    run: ToolRun::Mutation(|members| {
        let StoredChangeset { change, layer_base64 } = parse::<StoredChangeset>(members)?;
        let layer = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, layer_base64.unwrap_or_default());
        let unreadable = |_| Refusal::invalid("the stored layer cannot be read", "Send the change set again.");
        Ok(Box::new(ApplyChangeset::new(change, Bytes::from(layer.map_err(unreadable)?).into())))
    }),
};

/// What a change set is based on, and what happens to the parts of it that do not fit.
#[derive(Clone, Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangesetInput {
    /// The record at whose state the command found the tree: the `Workspaced-Seq` of the archive or layer that it had.
    based_on_seq: u64,
    /// What happens to a file that has changed in the run since then.
    #[serde(default)]
    on_conflict: OnConflict,
    /// What happens to the other files if one is denied.
    #[serde(default)]
    on_denied: OnDenied,
    /// SHA-256 of the layer, which makes the same request the same change set.
    #[serde(default)]
    #[schema(ignore)]
    layer_sha256: Option<Sha256>,
    /// The fork that the change set merges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    from: Option<MergedFork>,
}

/// A change set, as it is stored for an approval.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredChangeset {
    #[serde(flatten)]
    change: ChangesetInput,
    #[serde(default)]
    layer_base64: Option<String>,
}

/// What happens to a change set of which a file is denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDenied {
    /// All of it is refused.
    #[default]
    Refuse,
    /// The file stays as it is, and the answer lists it.
    Leave,
}

/// The output of a change set.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedChangeset {
    /// The record of the command; omitted if the change set names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_seq: Option<u64>,
    /// The paths that are as the change set has them.
    applied: Vec<LogicalPath>,
    /// The paths of files into which the change was merged, because they have changed since.
    merged: Vec<LogicalPath>,
    /// What was denied and is as before.
    left: Vec<LeftFile>,
    /// How many files were not taken, by the folder at the top: generated and vendored ones, and those that git ignores.
    not_taken: BTreeMap<String, u64>,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
    /// The record of the fork up to which its changes are merged, if the change set merges one.
    #[serde(skip_serializing_if = "Option::is_none")]
    merged_seq: Option<u64>,
}

/// A file that a change set leaves as it is.
#[derive(Clone, Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeftFile {
    /// The path.
    #[schema(value_type = String)]
    pub(crate) path: String,
    /// The rule that denied it.
    #[schema(example = "kind:SECRET_LIKE")]
    pub(crate) rule: String,
}

/// A parsed change set.
pub(crate) struct ApplyChangeset {
    input: ChangesetInput,
    /// The layer, until it is read.
    layer: Option<Layer>,
    /// The large contents that are staged, until they are planned, and the disk space that they take.
    staged: Option<(StagedContents, Reservation)>,
    /// The bytes of files that are held in memory.
    held_bytes: u64,
    /// What becomes of each path. Taken out once they are planned.
    files: BTreeMap<LogicalPath, NewState>,
    /// The paths that may be canonically equal to existing ones.
    unfollowed: Vec<LogicalPath>,
    /// The files that the layer deletes with their folder, each with the entry that takes the folder's place, if there is one.
    unnamed: BTreeMap<LogicalPath, Option<LogicalPath>>,
    /// The paths that were denied.
    denied: BTreeSet<LogicalPath>,
    /// The files whose mode stays as others have changed it.
    kept_modes: Vec<LogicalPath>,
    left: Vec<LeftFile>,
    not_taken: BTreeMap<String, u64>,
    since: ChangedSince,
}

/// What a change set wants at a path.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most are files")]
enum NewState {
    /// A file, or a link whose bytes are its target.
    File {
        content: LayerContent,
        file_type: FileType,
    },
    Deleted,
}

/// The content of a file in a layer.
#[derive(Debug)]
enum LayerContent {
    Held(Vec<u8>),
    /// With its kind. Its first bytes are not kept: there may be many files.
    Staged(StagedFile, ScannedContent, FileKind),
}

/// What a change set knows of the mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileType {
    Plain,
    Executable,
    Link,
}

impl FileType {
    fn of_file(is_executable: bool) -> Self {
        if is_executable { Self::Executable } else { Self::Plain }
    }
}

/// What a layer says of a path, where there may be a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// All that is there is deleted, but for what the layer has in it.
    Deleted,
    /// A file takes the place.
    Taken,
    /// It was denied, so that what is there stays.
    Kept,
}

impl ApplyChangeset {
    /// Creates a change set of a layer that is not read yet.
    pub(crate) fn new(input: ChangesetInput, layer: Layer) -> Self {
        let since = ChangedSince { seq: input.based_on_seq, fork: input.from.clone(), ..ChangedSince::default() };
        Self {
            input,
            layer: Some(layer),
            staged: None,
            held_bytes: 0,
            files: BTreeMap::new(),
            unfollowed: Vec::new(),
            unnamed: BTreeMap::new(),
            denied: BTreeSet::new(),
            kept_modes: Vec::new(),
            left: Vec::new(),
            not_taken: BTreeMap::new(),
            since,
        }
    }

    /// Leaves a denied entry as it is.
    ///
    /// # Errors
    ///
    /// `refusal`, unless denied entries are left.
    fn deny(&mut self, path: &str, refusal: Refusal) -> Result<(), Refusal> {
        if self.input.on_denied == OnDenied::Refuse {
            return Err(refusal);
        }
        let rule = refusal.details.reasons.first().cloned().unwrap_or_else(|| refusal.code.as_str().to_owned());
        self.left.push(LeftFile { path: path.to_owned(), rule });
        self.denied.extend(LogicalPath::parse(path));
        Ok(())
    }

    /// Whether it merges a fork, whose files are those that calls have written.
    fn is_merge(&self) -> bool {
        self.input.from.is_some()
    }

    fn count_not_taken(&mut self, path: &LogicalPath) {
        let top = path.as_str().split_once('/').map_or_else(|| path.to_string(), |(top, _)| format!("{top}/"));
        let is_full = self.not_taken.len() >= MAX_NOT_TAKEN && !self.not_taken.contains_key(&top);
        *self.not_taken.entry(if is_full { OTHER.to_owned() } else { top }).or_default() += 1;
    }

    /// Sorts the entries of the layer into what is wanted, denied, and not taken. Large contents are staged.
    fn sort_entries(&mut self, rules: &Rules, workspace: &Workspace) -> Result<(), WorkspaceError> {
        let (mut files, mut named) = (BTreeMap::new(), BTreeMap::new());
        let limits = layer_limits(rules.policy());
        let Some(layer) = self.layer.take() else { return Ok(()) };
        let mut layer = layer.reader();
        let mut layer = LayerReader::new(&mut layer, limits)?;
        while let Some(LayerEntry { path: raw, change, base }) = layer.next_entry()? {
            let path = match LogicalPath::parse(&raw) {
                Ok(path) => path,
                Err(rule) => {
                    self.deny(&raw, Refusal::path(&raw, rule))?;
                    continue;
                }
            };
            self.since.bases.extend(base.map(|LayerBase(base)| (path.clone(), base)));
            let is_taken = self.is_merge() || is_taken(rules, workspace, &path)?;
            let state = match change {
                LayerChange::OnlyThese => {
                    named.insert(path, Place::Deleted);
                    continue;
                }
                LayerChange::Deleted => Ok(NewState::Deleted),
                _ if !is_taken => {
                    self.count_not_taken(&path);
                    if let LayerChange::File { .. } | LayerChange::Link(_) = change {
                        take_place(&mut named, &path, Place::Taken);
                    }
                    continue;
                }
                LayerChange::Unsupported(what) => Err(unsupported(&path, what)),
                LayerChange::LargeFile(size) => Err(larger_than_taken(&path, limits.max_file_bytes, size)),
                LayerChange::File { size_bytes, is_executable } => {
                    let received = self.receive(rules, &path, &mut layer, size_bytes)?;
                    received.map(|content| NewState::File { content, file_type: FileType::of_file(is_executable) })
                }
                LayerChange::Link(target) => {
                    Ok(NewState::File { content: LayerContent::Held(target), file_type: FileType::Link })
                }
            };
            let state = match state {
                Ok(state) => state,
                Err(refusal) => {
                    self.deny(path.as_str(), refusal)?;
                    named.insert(path, Place::Kept);
                    continue;
                }
            };
            let place = if matches!(state, NewState::Deleted) { Place::Deleted } else { Place::Taken };
            take_place(&mut named, &path, place);
            if is_taken {
                files.insert(path, state);
            } else {
                self.count_not_taken(&path);
            }
        }
        files.retain(|path, _| named.get(path) != Some(&Place::Kept));
        self.check_links(rules, workspace, &mut named, &mut files)?;
        self.delete_folders(rules, workspace, &named, &mut files)?;
        self.files = files;
        Ok(())
    }

    /// Reads the content of a file of the layer: into memory if there is room for it, otherwise into the stage. The inner error is why the
    /// file is denied.
    fn receive(
        &mut self,
        rules: &Rules,
        path: &LogicalPath,
        content: &mut dyn Read,
        size_bytes: u64,
    ) -> Result<Result<LayerContent, Refusal>, WorkspaceError> {
        let fits = |most: u64| size_bytes <= MAX_HELD_FILE_BYTES && self.held_bytes + size_bytes <= most;
        // Half is for texts, which are compared, merged and shown to who decides, so that binary files do not crowd them out.
        let (is_held, is_held_text) = (fits(MAX_HELD_BYTES / 2), fits(MAX_HELD_BYTES));
        let mut head = Vec::new();
        content.take(HEAD_BYTES).read_to_end(&mut head)?;
        let is_text = !is_binary(&head);
        if is_held || (is_text && is_held_text) {
            self.held_bytes += size_bytes;
            content.read_to_end(&mut head)?;
            return Ok(Ok(LayerContent::Held(head)));
        }
        if is_text && size_bytes > rules.policy().max_file_bytes {
            return Ok(Err(too_large(rules, path, size_bytes)));
        }
        if is_text && size_bytes <= MAX_HELD_FILE_BYTES {
            let message = format!(
                "the texts of the change set have more than {MAX_HELD_BYTES} bytes together with its other files"
            );
            let refusal = Refusal::new(Code::FileTooLarge, message, "Send the texts in several change sets.");
            return Ok(Err(refusal.at(path)));
        }
        let Some((staged, space)) = &mut self.staged else {
            return Err(io::Error::other("a change set has no stage").into());
        };
        if staged.count() >= MAX_STAGED_FILES {
            let message = format!("the change set has more than {MAX_STAGED_FILES} files that do not fit into memory");
            return Err(
                Refusal::new(Code::PatchBudgetExceeded, message, "Send the change in several change sets.").into()
            );
        }
        space.grow(size_bytes)?;
        let mut whole = io::Cursor::new(head).chain(content);
        let mut reader = ScannedReader::new(&mut whole);
        let mut file = staged.stage(&mut reader, size_bytes).inspect_err(abort_on_failed_fsync)?;
        let kind = rules.kind_of_file(path, &std::mem::take(&mut file.head));
        Ok(Ok(LayerContent::Staged(file, reader.scan.finish(), kind)))
    }

    /// Denies links that lead out of the tree, through another link, or to what policy hides.
    fn check_links(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        named: &mut BTreeMap<LogicalPath, Place>,
        files: &mut BTreeMap<LogicalPath, NewState>,
    ) -> Result<(), WorkspaceError> {
        let is_link = |path: &LogicalPath| match files.get(path) {
            Some(state) => Ok(state.is_link()),
            None => workspace.is_link(path),
        };
        let mut denied = Vec::new();
        for (path, state) in &*files {
            let NewState::File { content: LayerContent::Held(target), file_type: FileType::Link } = state else {
                continue;
            };
            if let Err(refusal) = check_link(rules, path, target, &is_link)? {
                denied.push((path.clone(), refusal));
            }
        }
        for (path, refusal) in denied {
            self.deny(path.as_str(), refusal)?;
            files.remove(&path);
            named.insert(path, Place::Kept);
        }
        Ok(())
    }

    /// Adds the files of the folders that are deleted, or whose place a file takes. Each folder is looked into once.
    fn delete_folders(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        named: &BTreeMap<LogicalPath, Place>,
        files: &mut BTreeMap<LogicalPath, NewState>,
    ) -> Result<(), WorkspaceError> {
        let mut folders: Vec<_> =
            named.iter().filter(|(_, place)| **place != Place::Kept).map(|(path, _)| path).collect();
        // Name by name, so that what is in a folder follows it.
        folders.sort_unstable_by(|a, b| a.components().cmp(b.components()));
        let mut walked: Option<&LogicalPath> = None;
        for folder in folders {
            if walked.is_some_and(|above| folder.is_under(above)) {
                continue;
            }
            let Some(found) = folder_files(workspace, folder)? else { continue };
            walked = Some(folder);
            for path in found {
                let above = above_in(named, &path);
                if named.get(&path) == Some(&Place::Kept) || above.iter().any(|(_, place)| *place == Place::Kept) {
                    continue;
                }
                // What the layer deletes there is a folder, and no file.
                for (folder, _) in &above {
                    if let Some(NewState::Deleted) = files.get(folder) {
                        files.remove(folder);
                    }
                }
                if !files.contains_key(&path) && is_taken(rules, workspace, &path)? && is_readable(rules, &path) {
                    let cause = above.into_iter().find(|(_, place)| *place == Place::Taken);
                    self.unnamed.insert(path.clone(), cause.map(|(cause, _)| cause));
                    files.insert(path, NewState::Deleted);
                }
            }
        }
        Ok(())
    }

    /// Denies all but the first of several new names that differ in their Unicode form alone.
    fn deny_alike(&mut self) -> Result<(), Refusal> {
        if self.unfollowed.is_empty() {
            return Ok(());
        }
        // Each name once, below the number of its folder: a path may have a thousand of them.
        let mut names: HashMap<(usize, Cow<'_, str>), (usize, &str)> = HashMap::new();
        let mut alike = Vec::new();
        for (path, state) in &self.files {
            if matches!(state, NewState::Deleted) {
                continue;
            }
            let mut folder = 0;
            for name in path.components() {
                let number = names.len() + 1;
                let (found, first) = *names.entry((folder, composed(name))).or_insert((number, name));
                if first != name {
                    alike.push(path.clone());
                    break;
                }
                folder = found;
            }
        }
        for path in alike {
            self.deny(path.as_str(), Refusal::path(path.as_str(), PathRejected::CanonicallyEqual))?;
            self.files.remove(&path);
        }
        Ok(())
    }

    /// As [`desired`](Self::desired), of a file that the set deletes.
    fn desired_deletion(
        &self,
        path: &LogicalPath,
        current: Option<Sha256>,
        is_outside: bool,
    ) -> Result<Option<Desired>, Refusal> {
        let cause = self.unnamed.get(path);
        if cause.is_some_and(|cause| cause.as_ref().is_some_and(|cause| self.denied.contains(cause))) {
            return Ok(None);
        }
        let changed = self.conflict(path, current);
        // The command has not seen the file in the folder that it has deleted.
        let is_new = is_outside || changed.is_some_and(|changed| changed.before.is_none());
        if is_new && cause.is_some() {
            return Ok(None);
        }
        if is_outside || changed.is_some() {
            return Err(self.conflict_refusal(path, current, changed));
        }
        let file = DesiredFile { path: path.clone(), effect: Effect::Delete, after: None };
        Ok(Some(Desired::File { file, is_merged: false }))
    }

    /// Returns the file that the change set wants at a target; `None` if it is there already.
    fn desired(
        &mut self,
        context: &PlanContext<'_>,
        target: &Target,
        wanted: NewState,
    ) -> Result<Option<Desired>, Refusal> {
        let (rules, path) = (context.rules, &target.path);
        let before = target.before.as_ref();
        let current = before.map(|(state, _)| state.sha256);
        // A change from outside is not in the records. Where it is no reason to refuse, it is one that the command has not seen.
        let is_outside = rules.policy().outside_changes == OutsideChanges::Record
            && context.outside.iter().any(|change| change.path == *path);
        let (content, file_type) = match wanted {
            NewState::Deleted if before.is_none() => return Ok(None),
            NewState::Deleted => return self.desired_deletion(path, current, is_outside),
            NewState::File { content, file_type } => (content, file_type),
        };
        if before.is_none() {
            path.check_new().map_err(|rule| Refusal::path(path.as_str(), rule))?;
        }
        check_content(rules, target, &content)?;
        let mode = self.wanted_mode(rules, path, before.map(|(state, _)| state), file_type)?;
        let sha256 = content.sha256();
        let is_same =
            before.is_some_and(|(state, _)| state.sha256 == sha256 && is_link_mode(state.mode) == is_link_mode(mode));
        if is_same && before.is_some_and(|(state, _)| state.mode == mode) {
            return Ok(None);
        }
        if is_outside && !is_same {
            return Err(self.conflict_refusal(path, current, None));
        }
        let mut merged = None;
        if let changed @ Some(FileSince { base, .. }) = self.conflict(path, current).filter(|_| !is_same) {
            let refusal = self.conflict_refusal(path, current, changed);
            let (Some((_, present)), OnConflict::Merge, LayerContent::Held(bytes), false) =
                (before, self.input.on_conflict, &content, is_link_mode(mode))
            else {
                return Err(refusal);
            };
            let Ok(text) = std::str::from_utf8(bytes) else { return Err(refusal) };
            merged = Some(merge_change(path, base.as_ref(), present, text, &refusal)?);
        }
        let effect = if before.is_some() { Effect::Replace } else { Effect::Create };
        let path = path.clone();
        Ok(Some(match (merged, content) {
            (Some(merged), _) => {
                Desired::File { file: DesiredFile { path, effect, after: Some((merged, mode)) }, is_merged: true }
            }
            (None, LayerContent::Held(bytes)) => {
                Desired::File { file: DesiredFile { path, effect, after: Some((bytes, mode)) }, is_merged: false }
            }
            (None, LayerContent::Staged(file, scanned, kind)) => {
                let bytes = StepBytes::Staged(file.name);
                let content = Content { bytes, size_bytes: file.size_bytes, sha256: file.sha256, mode };
                let lines = (!scanned.is_binary).then_some(scanned.lines);
                Desired::Large(UploadedFile { path, content, kind, lines })
            }
        }))
    }

    /// Returns the mode of the file or link that takes the place of `before`. An executable bit that policy does not let change stays, and is
    /// named: it is no reason to refuse what else a command has changed.
    fn wanted_mode(
        &mut self,
        rules: &Rules,
        path: &LogicalPath,
        before: Option<&FileState>,
        file_type: FileType,
    ) -> Result<u32, Refusal> {
        let old_mode = before.map_or(NEW_FILE_MODE, |state| state.mode);
        // A link has no permission bits that a file could keep.
        let bits = if is_link_mode(old_mode) { NEW_FILE_MODE } else { old_mode };
        let mode = match file_type {
            FileType::Plain => bits & !EXECUTABLE,
            FileType::Executable => bits | EXECUTABLE,
            FileType::Link => LINK_MODE,
        };
        let is_mode_change = is_link_mode(mode) == is_link_mode(old_mode) && (mode ^ old_mode) & EXECUTABLE != 0;
        if before.is_some() && is_mode_change && !rules.policy().allow_mode_change {
            self.left.push(LeftFile { path: path.to_string(), rule: MODE_CHANGE.to_owned() });
            return Ok(old_mode);
        }
        let changed = self.since.files.get(path).filter(|_| before.is_some() && mode != old_mode);
        let Some(changed) = changed else { return Ok(mode) };
        // No record has the mode that the command has found, so that it cannot be told who has changed it.
        if is_link_mode(mode) != is_link_mode(old_mode) || self.input.on_conflict == OnConflict::Refuse {
            return Err(self.conflict_refusal(path, before.map(|state| state.sha256), Some(changed)));
        }
        self.kept_modes.push(path.clone());
        Ok(old_mode)
    }

    /// Leaves the executable bit of a file that was moved as it was before, and names it, as that of any other file.
    fn keep_moved_modes(
        &mut self,
        moves: &[(LogicalPath, LogicalPath)],
        desired: &mut [DesiredFile],
        targets: &[Target],
    ) {
        let old: HashMap<&LogicalPath, u32> =
            targets.iter().filter_map(|target| Some((&target.path, target.before.as_ref()?.0.mode))).collect();
        let modes: HashMap<&LogicalPath, u32> =
            moves.iter().filter_map(|(from, to)| Some((to, *old.get(from)?))).collect();
        for DesiredFile { path, after, .. } in desired {
            if let (Some(old), Some((_, mode))) = (modes.get(path), after)
                && (*mode ^ old) & EXECUTABLE != 0
            {
                *mode = (*mode & !EXECUTABLE) | (old & EXECUTABLE);
                self.left.push(LeftFile { path: path.to_string(), rule: MODE_CHANGE.to_owned() });
            }
        }
    }

    /// Keeps a file that the command has moved to a path of the `denied` ones: otherwise it would be lost.
    fn keep_moved(
        &mut self,
        denied: &BTreeMap<LogicalPath, NewState>,
        desired: &mut Vec<DesiredFile>,
        targets: &[Target],
    ) {
        for (path, state) in denied {
            let NewState::File { content: LayerContent::Held(bytes), .. } = state else { continue };
            let sha256 = Sha256::of(bytes);
            let is_same = |target: &&Target| {
                target.before.as_ref().is_some_and(|(state, _)| state.size_bytes > 0 && state.sha256 == sha256)
            };
            let found = targets.iter().filter(is_same).find_map(|target| {
                desired.iter().position(|file| file.effect == Effect::Delete && file.path == target.path)
            });
            let rule = self.left.iter().find(|left| left.path == path.as_str()).map(|left| left.rule.clone());
            if let (Some(at), Some(rule)) = (found, rule) {
                let source = desired.remove(at).path;
                self.left.push(LeftFile { path: source.to_string(), rule });
            }
        }
    }

    /// Returns what has changed at `path` since the state that the change set is based on, if the file is not as it was then.
    fn conflict(&self, path: &LogicalPath, current: Option<Sha256>) -> Option<&FileSince> {
        self.since.files.get(path).filter(|changed| changed.before != current)
    }

    /// `changed` is what the records say; nothing of a change from outside.
    fn conflict_refusal(&self, path: &LogicalPath, current: Option<Sha256>, changed: Option<&FileSince>) -> Refusal {
        let newest = match changed {
            Some(changed) => format!("the newest change is record {}", changed.last_seq),
            None => "the change was made by something else than a call of this run".to_owned(),
        };
        let based_on = self.input.based_on_seq;
        let message = match &self.input.from {
            Some(fork) => format!("`{path}` has changed both here and in `{}`; {newest}", fork.run_id),
            None => format!("`{path}` has changed since record {based_on}, on which the change set is based; {newest}"),
        };
        let hint = match self.input.on_conflict {
            OnConflict::Refuse if self.is_merge() => {
                "Nothing was merged. Merge with onConflict `merge`, which merges changes of different lines, or make the file the same in \
                 both runs and merge again."
            }
            OnConflict::Merge if self.is_merge() => {
                "Nothing was merged. Make the file the same in both runs, and merge again."
            }
            OnConflict::Refuse => {
                "Nothing was applied. Get the changes since that record, run the command again, and send a new change set; or \
                 send it with onConflict `merge`."
            }
            OnConflict::Merge => {
                "Nothing was applied. Get the changes since that record, run the command again, and send a new change set."
            }
        };
        Refusal::new(Code::WriteConflict, message, hint)
            .at(path)
            .with_details(|details| details.current_sha256 = current)
    }
}

/// A file that a change set wants.
enum Desired {
    File {
        file: DesiredFile,
        is_merged: bool,
    },
    /// One whose content is not in memory.
    Large(UploadedFile),
}

#[async_trait]
impl Mutation for ApplyChangeset {
    fn meets_tree(&self) -> bool {
        true
    }

    fn meet_tree(&mut self, rules: &Rules, workspace: &Workspace, space: Reservation) -> Result<(), WorkspaceError> {
        self.staged = Some((workspace.staged_contents(), space));
        self.sort_entries(rules, workspace)?;
        self.unfollowed = self.files.keys().filter(|path| !path.as_str().is_ascii()).cloned().collect();
        Ok(self.deny_alike()?)
    }

    async fn prepare(&mut self, lookup: &dyn RunLookup) -> Result<(), CallError> {
        if self.unfollowed.is_empty() {
            return Ok(());
        }
        let found = lookup.canonically_equal(std::mem::take(&mut self.unfollowed)).await?;
        for (path, followed) in found.into_iter().filter(|(_, followed)| followed.exists) {
            // A name that differs from an existing one only in its form would be a second file.
            self.deny(path.as_str(), canonically_equal(&path, &followed))?;
            self.files.remove(&path);
        }
        Ok(())
    }

    fn changed_since(&mut self) -> Option<&mut ChangedSince> {
        self.since.with_contents = self.input.on_conflict == OnConflict::Merge;
        Some(&mut self.since)
    }

    fn scope(&self) -> Scope {
        let is_deleted = |(_, state): &(&LogicalPath, &NewState)| matches!(state, NewState::Deleted);
        Scope {
            removed: self.files.iter().filter(is_deleted).map(|(path, _)| path.clone()).collect(),
            // It is compared with the state at a record, and may have thousands of paths.
            is_exclusive: true,
            is_of_command: true,
            ..Scope::of(self.files.keys().cloned().collect())
        }
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let max_bytes = rules.policy().max_file_bytes;
        let found = workspace.targets_of_any_kind(rules, &scope.paths, removed, max_bytes, |_| true);
        if self.input.on_denied == OnDenied::Refuse || !matches!(found, Err(WorkspaceError::Refused(_))) {
            return found;
        }
        let (mut targets, mut held_bytes) = (Vec::<Target>::with_capacity(scope.paths.len()), 0);
        for path in &scope.paths {
            match workspace.targets_of_any_kind(rules, std::slice::from_ref(path), removed, max_bytes, |_| true) {
                Ok(found) => {
                    held_bytes += found.iter().filter_map(|target| target.before.as_ref()).map(held).sum::<u64>();
                    // Of all together, which no single path exceeds.
                    judge_call_bytes(rules, held_bytes).map_or(Ok(()), Err)?;
                    targets.extend(found);
                }
                Err(WorkspaceError::Refused(refusal)) => self.deny(path.as_str(), refusal)?,
                Err(error) => return Err(error),
            }
        }
        Ok(targets)
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let mut files = std::mem::take(&mut self.files);
        let (mut desired, mut large, mut merged) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut first: Option<Refusal> = None;
        for target in &targets {
            let Some(wanted) = files.remove(&target.path) else { continue };
            match self.desired(context, target, wanted) {
                Ok(None) => {}
                Ok(Some(Desired::Large(file))) => large.push(file),
                Ok(Some(Desired::File { file, is_merged })) => {
                    if is_merged {
                        merged.insert(file.path.clone());
                    }
                    desired.push(file);
                }
                Err(refusal) if refusal.code != Code::WriteConflict => self.deny(target.path.as_str(), refusal)?,
                Err(conflict) => {
                    first.get_or_insert(conflict);
                }
            }
        }
        if let Some(conflict) = first {
            return Err(conflict);
        }
        self.keep_moved(&files, &mut desired, &targets);
        let moves = pair_moves(&mut desired, &targets);
        if !context.rules.policy().allow_mode_change {
            self.keep_moved_modes(&moves, &mut desired, &targets);
        }
        let mut plan = ChangePlan::build_any_kind(context.rules, targets, desired, large);
        if self.input.on_denied == OnDenied::Leave {
            let left = self.leave((context.denied)(&plan), &moves)?;
            if !left.is_empty() {
                plan = plan.without(&left);
            }
        }
        let mut left = std::mem::take(&mut self.left);
        left.sort_by(|a, b| a.path.cmp(&b.path));
        let (merged, applied) = plan.paths().into_iter().partition(|path| merged.contains(path));
        let counts = plan.counts();
        let output = AppliedChangeset {
            event_seq: None,
            applied,
            merged,
            left,
            not_taken: self.not_taken.clone(),
            insertions: counts.insertions,
            deletions: counts.deletions,
            merged_seq: self.input.from.as_ref().map(|fork| fork.seq),
        };
        plan.merged.clone_from(&self.input.from);
        let kept = self.kept_modes.drain(..);
        plan.warnings.extend(kept.map(|path| format!("`{path}` keeps its mode, since the file has changed meanwhile")));
        plan.summary = output.summary();
        plan.output = members(&output);
        plan.left = output.left.iter().map(|left| (left.path.clone(), left.rule.clone())).collect();
        plan.is_changeset = true;
        (plan.staged, plan.reservation) = self.staged.take().unzip();
        Ok(plan)
    }
}

impl ApplyChangeset {
    /// Leaves out what is denied, and what cannot be applied without it. Returns the paths.
    fn leave(
        &mut self,
        denied: Vec<(LogicalPath, Refusal)>,
        moves: &[(LogicalPath, LogicalPath)],
    ) -> Result<BTreeSet<LogicalPath>, Refusal> {
        let mut left = BTreeSet::new();
        for (path, refusal) in denied {
            self.deny(path.as_str(), refusal)?;
            left.insert(path);
        }
        let with_it = self.unnamed.iter().filter(|(_, cause)| cause.as_ref().is_some_and(|cause| left.contains(cause)));
        let with_it: Vec<_> = with_it.map(|(path, _)| path.clone()).collect();
        left.extend(with_it);
        // Half of a move would lose the file, or have it twice.
        for (from, to) in moves {
            let (kept, other) = if left.contains(to) { (to, from) } else { (from, to) };
            if left.contains(kept) && !left.contains(other) {
                let rule = self.left.iter().find(|file| file.path == kept.as_str()).map(|file| file.rule.clone());
                self.left.push(LeftFile { path: other.to_string(), rule: rule.unwrap_or_default() });
                left.insert(other.clone());
            }
        }
        Ok(left)
    }
}

impl LayerContent {
    fn sha256(&self) -> Sha256 {
        match self {
            Self::Held(bytes) => Sha256::of(bytes),
            Self::Staged(file, ..) => file.sha256,
        }
    }
}

impl NewState {
    fn is_link(&self) -> bool {
        matches!(self, Self::File { file_type: FileType::Link, .. })
    }
}

impl AppliedChangeset {
    fn summary(&self) -> String {
        let mut parts = vec![format!(
            "applied {} (+{} -{})",
            counted(self.applied.len() as u64, "file", "files"),
            self.insertions,
            self.deletions
        )];
        let mut add = |count: u64, what: &str| parts.extend((count > 0).then(|| format!("{count} {what}")));
        add(self.merged.len() as u64, "merged");
        add(self.left.len() as u64, "denied and left");
        add(self.not_taken.values().sum(), "generated or ignored and not taken");
        parts.join(", ")
    }
}

/// Makes moves of files that are deleted at one path and created at another, as `mv` does it. Returns them.
fn pair_moves(desired: &mut [DesiredFile], targets: &[Target]) -> Vec<(LogicalPath, LogicalPath)> {
    let states: HashMap<&LogicalPath, &FileState> =
        targets.iter().filter_map(|target| Some((&target.path, &target.before.as_ref()?.0))).collect();
    let mut deleted: HashMap<Sha256, Vec<usize>> = HashMap::new();
    for (at, file) in desired.iter().enumerate().filter(|(_, file)| file.effect == Effect::Delete) {
        // Empty files are all the same.
        if let Some(state) = states.get(&file.path).filter(|state| state.size_bytes > 0 && !is_link_mode(state.mode)) {
            deleted.entry(state.sha256).or_default().push(at);
        }
    }
    let mut moves = Vec::new();
    if deleted.is_empty() {
        return moves;
    }
    for to in 0..desired.len() {
        let DesiredFile { path, effect: Effect::Create, after: Some((bytes, mode)) } = &desired[to] else { continue };
        let Some(sources) = deleted.get_mut(&Sha256::of(bytes)).filter(|_| !is_link_mode(*mode)) else { continue };
        let is_same_name = |from: &usize| desired[*from].path.components().last() == path.components().last();
        let from = match sources.iter().position(is_same_name) {
            Some(at) => sources.remove(at),
            None => match sources.pop() {
                Some(from) => from,
                None => continue,
            },
        };
        let (from_path, to_path) = (desired[from].path.clone(), path.clone());
        desired[from].effect = Effect::MoveFrom { to: to_path.clone() };
        desired[to].effect = Effect::MoveTo { from: from_path.clone() };
        moves.push((from_path, to_path));
    }
    moves
}

fn held((_, bytes): &(FileState, Vec<u8>)) -> u64 {
    bytes.len() as u64
}

/// Returns the entries above `path`, the nearest first.
fn above_in(named: &BTreeMap<LogicalPath, Place>, path: &LogicalPath) -> Vec<(LogicalPath, Place)> {
    let above = std::iter::successors(path.parent(), LogicalPath::parent);
    above.filter_map(|path| named.get(&path).map(|place| (path, *place))).collect()
}

/// Whether a change set may change the file: it is neither generated nor vendored, and git does not ignore it.
pub(crate) fn is_taken(rules: &Rules, workspace: &Workspace, path: &LogicalPath) -> Result<bool, WorkspaceError> {
    Ok(!matches!(rules.kind_of_path(path), FileKind::Generated | FileKind::Vendored) && !workspace.is_ignored(path)?)
}

/// Whether policy lets the file at `path` be read, as far as its path says.
pub(crate) fn is_readable(rules: &Rules, path: &LogicalPath) -> bool {
    let kind = rules.kind_of_path(path);
    judge_path(rules, Access::Read, &PathFacts { path, real_path: None, kind, ignored: false, hard_linked: false })
        .is_ok()
}

/// Returns the files in the folder at `path`, if there is one.
fn folder_files(workspace: &Workspace, path: &LogicalPath) -> Result<Option<Vec<LogicalPath>>, WorkspaceError> {
    let files = workspace.files_under(path, MAX_FILES)?;
    if files.as_ref().is_none_or(|files| files.len() < MAX_FILES) {
        return Ok(files);
    }
    let message = format!("the change set deletes `{path}`, which has at least {MAX_FILES} files");
    let hint = "Delete the folders in it by several change sets.";
    Err(Refusal::new(Code::PatchBudgetExceeded, message, hint).at(path).into())
}

/// Adds what the layer says of a path. What was denied stays, whatever else it says.
fn take_place(named: &mut BTreeMap<LogicalPath, Place>, path: &LogicalPath, place: Place) {
    if named.get(path) != Some(&Place::Kept) {
        named.insert(path.clone(), place);
    }
}

/// Checks the size of a text, and that a content that nothing else looks into has no new credential.
fn check_content(rules: &Rules, target: &Target, content: &LayerContent) -> Result<(), Refusal> {
    let (size, is_text) = match content {
        LayerContent::Held(bytes) => (bytes.len() as u64, !is_binary(bytes)),
        LayerContent::Staged(file, scanned, _) => (file.size_bytes, !scanned.is_binary),
    };
    if size > rules.policy().max_file_bytes && is_text {
        return Err(too_large(rules, &target.path, size));
    }
    let LayerContent::Staged(_, scanned, _) = content else { return Ok(()) };
    let old = match (&target.scanned, &target.before) {
        (Some(old), _) => old.clone(),
        (None, Some((_, bytes))) => ScannedContent::of(bytes),
        (None, None) => ScannedContent::default(),
    };
    judge_scanned_content(&target.path, &old, scanned).map_or(Ok(()), Err)
}

/// Checks the target of a new link at `path`. The outer error is one of the disk.
fn check_link(
    rules: &Rules,
    path: &LogicalPath,
    target: &[u8],
    is_link: &dyn Fn(&LogicalPath) -> io::Result<bool>,
) -> io::Result<Result<(), Refusal>> {
    let to = match path.link_destination(target) {
        Ok(to) => to,
        Err(rule) => return Ok(Err(Refusal::path(path.as_str(), rule))),
    };
    // Further links could lead to what the names do not show.
    for above in std::iter::successors(to.parent(), LogicalPath::parent).filter(|above| !above.is_root()) {
        if is_link(&above)? {
            return Ok(Err(unsupported(path, "a symbolic link through another one")));
        }
    }
    let kind = rules.kind_of_path(&to);
    let facts = PathFacts { path: &to, real_path: None, kind, ignored: false, hard_linked: false };
    Ok(judge_path(rules, Access::Read, &facts).map_err(|refusal| {
        let message = format!("`{path}` is a link to what policy hides: {}", refusal.message);
        Refusal { message, ..refusal }.at(path)
    }))
}

fn unsupported(path: &LogicalPath, what: &str) -> Refusal {
    let message = format!("the change set has `{path}`, {what}, which a run cannot take from a command");
    let hint = "Leave it out, or send the set with onDenied `leave`.";
    Refusal::new(Code::PathRejected, message, hint)
        .at(path)
        .with_details(|details| details.reasons = vec![format!("layer:{}", what.replace(' ', "-"))])
}

fn larger_than_taken(path: &LogicalPath, limit: u64, actual: u64) -> Refusal {
    let message = format!("`{path}` has {actual} bytes; the limit of a file is {limit}");
    let hint = "Leave it out, or ask the operator for a larger maxTransferBytes.";
    Refusal::new(Code::FileTooLarge, message, hint)
        .at(path)
        .with_details(|details| (details.limit, details.actual) = (Some(limit), Some(actual)))
}
