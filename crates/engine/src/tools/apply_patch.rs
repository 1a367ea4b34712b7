//! `apply_patch`: applies a diff of several files atomically.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use async_trait::async_trait;
use model::{
    Code, Conflict, Effect, Encoding, FilePatch, FileState, HunkLine, HunkOffset, LogicalPath, OUT_OF_ORDER, Patch,
    PatchBudget, PatchFault, PatchLeniency, PatchOperation, PatchResult, Permission, Refusal, Rules, Sha256,
    judge_call_bytes,
};
use serde::{Deserialize, Serialize};
use workspace::{FollowedPath, Target, Workspace, WorkspaceError};

use super::write_file::already_exists;
use crate::CallError;
use crate::call_error::refusals::canonically_equal;
use crate::tool::change_plan::{ChangePlan, DesiredFile, NEW_FILE_MODE};
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::input::{self, check_guess, check_new, decode_as, file_path, not_encodable, parse};
use crate::tool::output::members;
use crate::tool::text::notes::counted;
use crate::tool::{
    Mutation, NewBytes, NewText, PlanContext, RunLookup, Scope, Tool, ToolRun, ToolSchema, exists_instead,
};

/// The maximum number of conflicts in a refusal, over all files.
const MAX_CONFLICTS: usize = 100;
/// The formats whose originals apply a patch with differences in blanks and punctuation.
const LENIENT_FORMATS: [&str; 2] = ["codex", "openai-apply-patch"];

/// The largest patch that stays parsed while its call is queued, in bytes.
const MAX_PARSED_BYTES: usize = 64 * 1024;

/// What the refusal of a patch of several files says in addition.
const NOTHING_APPLIED: &str = "nothing of the patch was applied";

pub(crate) const TOOL: Tool = Tool {
    name: "apply_patch",
    description: "Applies a unified diff or a `*** Begin Patch` to one or more files, atomically. Hunks must match the present \
                  content, at their lines or at exactly one other place.",
    is_expensive: false,
    permissions: &[Permission::FilePatchApply],
    content: &[],
    input: ToolSchema::of::<ApplyPatchInput>,
    output: ToolSchema::of::<ApplyPatchOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(ApplyPatch::try_from(parse::<ApplyPatchInput>(members)?)?))),
};

/// The input of `apply_patch`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"patch": "--- a/hello.txt\n+++ b/hello.txt\n@@ -1 +1 @@\n-hello\n+hello, world\n", "reason": "greet everyone"}))]
pub(crate) struct ApplyPatchInput {
    /// The patch.
    patch: String,
    /// The commit that the run must have started from.
    #[serde(default)]
    expected_base_commit: Option<String>,
    /// The versions that files of the patch must have, by path.
    #[serde(default)]
    expected_sha256: BTreeMap<String, ExpectedVersion>,
    /// The encoding, if the guess is wrong.
    #[serde(default)]
    encoding: Option<String>,
}

/// The output of `apply_patch`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApplyPatchOutput {
    /// Whether the tree was changed; false for a dry run.
    applied: bool,
    /// Whether this was a dry run.
    dry_run: bool,
    /// Every changed path.
    files_touched: Vec<LogicalPath>,
    /// The files of the patch, in its order.
    files: Vec<PatchedFile>,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
    /// SHA-256 of the lines `path NUL mode NUL sha256 LF`, in path order, of all paths that differ from the base after the change.
    /// `mode` is git's, in six octal digits; a deleted path has `000000` and `-`.
    new_workspace_diff_sha256: Option<Sha256>,
}

/// One file of a patch.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PatchedFile {
    /// The path after the change, or before it if the file was deleted.
    path: LogicalPath,
    /// The source path, if the file was renamed or copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<LogicalPath>,
    /// `created`, `modified`, `deleted`, `renamed` or `copied`.
    operation: &'static str,
    /// Hash before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_sha256: Option<Sha256>,
    /// Hash after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_sha256: Option<Sha256>,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
    /// Hunks that were applied at another position than the patch gives.
    offsets: Vec<HunkOffset>,
}

struct ApplyPatch {
    text: String,
    /// The parsed patch. It takes a multiple of the text's memory, so a large patch is parsed again once the call is planned.
    parsed: OnceLock<Result<Patch, Refusal>>,
    /// Paths of the patch, each with the canonically equal one that exists; `None` before those were looked for.
    followed: Option<BTreeMap<LogicalPath, LogicalPath>>,
    base_commit: Option<String>,
    expected: BTreeMap<LogicalPath, ExpectedVersion>,
    encoding: Option<Encoding>,
    leniency: PatchLeniency,
    /// Every path in the patch.
    paths: Vec<LogicalPath>,
    /// The paths that the patch changes: without the sources of copies.
    changed: Vec<LogicalPath>,
    /// The paths of files that are deleted or renamed.
    removed: Vec<LogicalPath>,
}

impl TryFrom<ApplyPatchInput> for ApplyPatch {
    type Error = Refusal;

    fn try_from(input: ApplyPatchInput) -> Result<Self, Refusal> {
        let patch = Patch::parse(&input.patch).map_err(|refusal| {
            if names_several_files(&input.patch) { refusal.with_note(NOTHING_APPLIED) } else { refusal }
        })?;
        patch.files.iter().filter(|section| makes_file(section)).try_for_each(|section| check_new(&section.path))?;
        let encoding = input::encoding(input.encoding.as_deref())?;
        let touched: BTreeSet<_> =
            patch.files.iter().flat_map(|section| [section.from.clone(), section.path.clone()]).collect();
        let mut expected = BTreeMap::new();
        for (raw, version) in input.expected_sha256 {
            let path = file_path(&raw)?;
            if !touched.contains(&path) {
                let message = format!("`expectedSha256` has `{path}`, which is not in the patch");
                return Err(Refusal::invalid(message, "Give only files of the patch in `expectedSha256`.").at(&path));
            }
            expected.insert(path, version);
        }
        let removed: Vec<_> =
            patch.files.iter().filter(|section| removes_source(section)).map(|section| section.from.clone()).collect();
        // The source of a copy does not change, and a move counts once.
        let changed = patch.files.iter().map(|section| section.path.clone()).collect();
        let paths = touched.into_iter().collect();
        let parsed = if input.patch.len() > MAX_PARSED_BYTES { OnceLock::new() } else { Ok(patch).into() };
        Ok(Self {
            text: input.patch,
            parsed,
            followed: None,
            base_commit: input.expected_base_commit,
            expected,
            encoding,
            leniency: PatchLeniency::Strict,
            paths,
            changed,
            removed,
        })
    }
}

impl ApplyPatch {
    /// Takes the existing path of each that is canonically equal to one.
    fn follow(&mut self, all: Vec<(LogicalPath, FollowedPath)>) -> Result<(), Refusal> {
        let made: BTreeSet<_> =
            self.patch()?.files.iter().filter(|file| makes_file(file)).map(|file| file.path.clone()).collect();
        let mut followed = BTreeMap::new();
        for (path, other) in all {
            if other.exists && made.contains(&path) {
                return Err(canonically_equal(&path, &other));
            }
            followed.insert(path, other.path);
        }
        let follow = |path: &mut LogicalPath| {
            if let Some(other) = followed.get(path) {
                path.clone_from(other);
            }
        };
        self.paths.iter_mut().chain(&mut self.changed).chain(&mut self.removed).for_each(follow);
        self.expected = std::mem::take(&mut self.expected)
            .into_iter()
            .map(|(path, version)| (followed.get(&path).cloned().unwrap_or(path), version))
            .collect();
        self.followed = Some(followed);
        if let Some(parsed) = self.parsed.take() {
            let followed = parsed.map(|patch| self.with_followed(patch));
            self.parsed = followed.into();
        }
        Ok(())
    }
}

#[async_trait]
impl Mutation for ApplyPatch {
    async fn prepare(&mut self, lookup: &dyn RunLookup) -> Result<(), CallError> {
        let unusual: Vec<_> = self.paths.iter().filter(|path| !path.as_str().is_ascii()).cloned().collect();
        if !unusual.is_empty() {
            self.follow(lookup.canonically_equal(unusual).await?)?;
        }
        lookup.seen(self.expected_versions()).await
    }

    fn in_format(&mut self, format: &str) {
        // As the original of the format compares patches with files. Our own tool does so exactly.
        if LENIENT_FORMATS.contains(&format) {
            self.leniency = PatchLeniency::Lenient;
        }
    }

    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        self.expected.iter_mut().collect()
    }

    fn scope(&self) -> Scope {
        Scope {
            changed: Some(self.changed.clone()),
            removed: self.removed.clone(),
            // The output has the hash of the whole workspace's diff, so no other call may change the workspace.
            is_exclusive: true,
            refusal_note: (self.paths.len() > 1).then_some(NOTHING_APPLIED),
            ..Scope::of(self.paths.clone())
        }
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let exists = |path: &LogicalPath| {
            let makes = |section: &&FilePatch| section.path == *path && makes_file(section);
            self.patch().ok()?.files.iter().find(makes).map(exists)
        };
        workspace.targets(rules, &scope.paths, removed).map_err(|error| exists_instead(error, exists))
    }

    fn new_texts(&self) -> Vec<NewText<'_>> {
        // If the patch cannot be parsed, planning refuses it.
        self.patch().map(|patch| patch.files.iter().map(new_text).collect()).unwrap_or_default()
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        if let Some(expected) = self.base_commit.as_deref().filter(|expected| *expected != context.base_commit) {
            let message = format!("the base commit of the run is {}, not {expected}", context.base_commit);
            return Err(Refusal::new(
                Code::BaseCommitMismatch,
                message,
                "Create the patch against the run's baseCommit.",
            ));
        }
        let before: BTreeMap<_, _> = targets.iter().map(|target| (&target.path, target.before.as_ref())).collect();
        let before = |path: &LogicalPath| before.get(path).copied().flatten();
        let patch = self.patch()?;
        check_existence(patch, before)?;
        for path in &self.paths {
            if let Some(expected) = self.expected.get(path) {
                expect_version(path, before(path).map(|(state, _)| state.sha256), Some(*expected))?;
            }
        }
        let mut desired = Vec::new();
        let mut applied = Vec::new();
        let mut conflicts = Conflicts::default();
        let mut held_bytes: u64 =
            targets.iter().filter_map(|target| target.before.as_ref()).map(|(_, b)| b.len() as u64).sum();
        let mut too_large = None;
        // All files together, because a patch may have many of them.
        let mut budget = PatchBudget::default();
        for section in &patch.files {
            let read = if section.operation == PatchOperation::Create { None } else { before(&section.from) };
            let (old, mode) = read.map_or((&[][..], NEW_FILE_MODE), |(state, bytes)| (bytes, state.mode));
            match self.apply(section, old, &mut budget)? {
                Ok(patched) => {
                    let mode =
                        section.mode.map_or(mode, |bits| if bits & 0o111 == 0 { mode & !0o111 } else { mode | 0o111 });
                    held_bytes += patched.bytes.len() as u64;
                    too_large = too_large.or_else(|| judge_call_bytes(context.rules, held_bytes));
                    // The other sections are still checked, since their refusals take precedence, but their results are dropped.
                    if too_large.is_none() {
                        applied.push((patched.offsets, patched.is_lenient));
                        add_desired(section, patched.bytes, mode, &mut desired);
                    }
                }
                Err(PatchFault::Conflicts(failed)) => match Patch::padded_header(&self.text, section) {
                    Some(refusal) => return Err(refusal),
                    None => conflicts.add(failed),
                },
                // This takes precedence over conflicts in any file.
                Err(PatchFault::NotEncodable) => {
                    let detected = || model::detect_encoding(old).unwrap_or(Encoding::Utf8);
                    let encoding = self.encoding.unwrap_or_else(detected);
                    return Err(not_encodable("the patch", &section.from, encoding));
                }
            }
        }
        if let Some(refusal) = conflicts.refusal().or(too_large) {
            return Err(refusal);
        }
        // A path from which one section moves a file and to which another writes one changes once: to the new file.
        let rewritten: BTreeSet<_> =
            desired.iter().filter(|file| file.after.is_some()).map(|file| file.path.clone()).collect();
        desired.retain(|file| file.after.is_some() || !rewritten.contains(&file.path));
        let mut plan = ChangePlan::build(context.rules, targets, desired)?;
        describe(patch, &mut plan, applied);
        Ok(plan)
    }
}

impl ApplyPatch {
    fn patch(&self) -> Result<&Patch, Refusal> {
        let parse = || Patch::parse(&self.text).map(|patch| self.with_followed(patch));
        self.parsed.get_or_init(parse).as_ref().map_err(Clone::clone)
    }

    /// Applies a section to the bytes `old`, in the encoding that the call names or that the bytes seem to have.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the file does not have the named encoding, or if it is a guess that is too uncertain to write.
    fn apply(
        &self,
        section: &FilePatch,
        old: &[u8],
        budget: &mut PatchBudget,
    ) -> Result<Result<PatchResult, PatchFault>, Refusal> {
        // A file that is deleted, moved or copied as it is need not be text.
        let Some(encoding) = self.encoding.filter(|_| !section.hunks.is_empty()) else {
            let patched = section.apply_within(old, self.leniency, budget);
            if let Ok(patched) = &patched {
                check_guess(&section.from, old, &patched.bytes)?;
            }
            return Ok(patched);
        };
        // Hunks are compared with the characters.
        let text = decode_as(&section.from, old, encoding)?;
        Ok(section.apply_within(text.as_bytes(), self.leniency, budget).and_then(|patched| {
            let text = String::from_utf8(patched.bytes).map_err(|_| PatchFault::NotEncodable)?;
            let bytes = model::encode(&text, encoding).ok_or(PatchFault::NotEncodable)?;
            Ok(PatchResult { bytes, ..patched })
        }))
    }

    /// The patch with the paths that exist.
    fn with_followed(&self, mut patch: Patch) -> Patch {
        let Some(followed) = &self.followed else { return patch };
        for path in patch.files.iter_mut().flat_map(|file| [&mut file.from, &mut file.path]) {
            if let Some(other) = followed.get(path) {
                path.clone_from(other);
            }
        }
        patch
    }
}

fn check_existence<'a>(
    patch: &Patch,
    before: impl Fn(&LogicalPath) -> Option<&'a (FileState, Vec<u8>)>,
) -> Result<(), Refusal> {
    let removed: BTreeSet<_> =
        patch.files.iter().filter(|section| removes_source(section)).map(|section| &section.from).collect();
    for section in &patch.files {
        if section.operation != PatchOperation::Create && before(&section.from).is_none() {
            return Err(missing(section));
        }
        if makes_file(section) && before(&section.path).is_some() && !removed.contains(&section.path) {
            return Err(exists(section));
        }
    }
    Ok(())
}

/// Describes the change, given the offsets of each section's hunks, and whether they matched only leniently.
fn describe(patch: &Patch, plan: &mut ChangePlan, applied: Vec<(Vec<HunkOffset>, bool)>) {
    let lenient = patch.files.iter().zip(&applied).filter(|(_, (_, is_lenient))| *is_lenient);
    let lenient = lenient.map(|(section, _)| {
        format!(
            "hunks of {} differ from the file in blanks or punctuation, and were applied at the only place",
            section.path
        )
    });
    plan.warnings.extend(lenient);
    let files = patch.files.iter().zip(applied);
    let files: Vec<_> = files.map(|(section, (offsets, _))| patched_file(plan, section, offsets)).collect();
    let counts = plan.counts();
    let shifted = files.iter().filter(|file| !file.offsets.is_empty());
    plan.warnings.extend(patch.warnings.iter().cloned());
    plan.warnings.extend(shifted.map(|file| format!("hunks of {} applied at an offset", file.path)));
    let patched = counted(files.len() as u64, "file", "files");
    plan.summary = format!("patched {patched} (+{} -{})", counts.insertions, counts.deletions);
    plan.has_workspace_diff_hash = true;
    plan.output = members(&ApplyPatchOutput {
        applied: true,
        dry_run: false,
        files_touched: plan.paths(),
        files,
        insertions: counts.insertions,
        deletions: counts.deletions,
        // The transaction fills it in.
        new_workspace_diff_sha256: None,
    });
}

/// The refusal of a section whose new file exists.
fn exists(section: &FilePatch) -> Refusal {
    let refusal = already_exists(&section.path);
    if section.operation != PatchOperation::Create {
        return Refusal { hint: "Choose another path for the new file.".to_owned(), ..refusal };
    }
    let hint = "To change the file, patch its present content (`*** Update File`, or a hunk with its lines); to replace it \
                whole, read it and use write_file with mode REPLACE_EXISTING.";
    Refusal { hint: hint.to_owned(), ..refusal }
}

/// Whether the text of a patch that cannot be parsed names more than one file.
fn names_several_files(text: &str) -> bool {
    let names = |marks: &[&str]| {
        let is_name = |line: &&str| marks.iter().any(|mark| line.trim_start().starts_with(mark));
        text.lines().filter(is_name).nth(1).is_some()
    };
    names(&["*** Update File:", "*** Add File:", "*** Delete File:"]) || names(&["diff --git "]) || names(&["+++ "])
}

/// Returns the refusal of a section whose source file does not exist.
fn missing(section: &FilePatch) -> Refusal {
    let mut refusal = Refusal::not_found(&section.from);
    if section.hunks.first().is_some_and(|hunk| hunk.old_start == Some(0)) {
        "To create a file, write `--- /dev/null` in place of its old name.".clone_into(&mut refusal.hint);
    }
    refusal
}

/// Returns the lines that the section adds.
fn new_text(section: &FilePatch) -> NewText<'_> {
    let mut text = Vec::new();
    for line in section.hunks.iter().flat_map(|hunk| &hunk.lines) {
        if let HunkLine::Insert(line) = line {
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
    }
    NewText { path: &section.path, into: &section.from, bytes: NewBytes::InMemory(Cow::Owned(text)) }
}

/// Whether the section makes a file at its path.
fn makes_file(section: &FilePatch) -> bool {
    matches!(section.operation, PatchOperation::Create | PatchOperation::Rename | PatchOperation::Copy)
}

/// Whether the section removes its source file.
fn removes_source(section: &FilePatch) -> bool {
    matches!(section.operation, PatchOperation::Delete | PatchOperation::Rename)
}

/// Adds the files of `section` to `desired`.
fn add_desired(section: &FilePatch, bytes: Vec<u8>, mode: u32, desired: &mut Vec<DesiredFile>) {
    let (from, to) = (section.from.clone(), section.path.clone());
    let after = Some((bytes, mode));
    match section.operation {
        PatchOperation::Create | PatchOperation::Copy => {
            desired.push(DesiredFile { path: to, effect: Effect::Create, after });
        }
        PatchOperation::Modify => desired.push(DesiredFile { path: to, effect: Effect::Replace, after }),
        PatchOperation::Delete => desired.push(DesiredFile { path: to, effect: Effect::Delete, after: None }),
        PatchOperation::Rename => {
            desired.push(DesiredFile { path: from.clone(), effect: Effect::MoveFrom { to: to.clone() }, after: None });
            desired.push(DesiredFile { path: to, effect: Effect::MoveTo { from }, after });
        }
    }
}

fn patched_file(plan: &ChangePlan, section: &FilePatch, offsets: Vec<HunkOffset>) -> PatchedFile {
    let change = plan.at(&section.path);
    let source = plan.at(&section.from).and_then(|change| change.before.as_ref());
    let counts = change.map(|change| change.counts).unwrap_or_default();
    let (operation, from) = match section.operation {
        PatchOperation::Create => ("created", None),
        PatchOperation::Modify => ("modified", None),
        PatchOperation::Delete => ("deleted", None),
        PatchOperation::Rename => ("renamed", Some(section.from.clone())),
        PatchOperation::Copy => ("copied", Some(section.from.clone())),
    };
    PatchedFile {
        path: section.path.clone(),
        from,
        operation,
        old_sha256: source.map(|state| state.sha256),
        new_sha256: change.and_then(|change| change.after.as_ref()).map(|content| content.sha256),
        insertions: counts.insertions,
        deletions: counts.deletions,
        offsets,
    }
}

/// The hunks of all files that do not match.
#[derive(Default)]
struct Conflicts {
    /// The number of all conflicts.
    count: usize,
    /// The first [`MAX_CONFLICTS`].
    first: Vec<Conflict>,
}

impl Conflicts {
    fn add(&mut self, conflicts: Vec<Conflict>) {
        self.count += conflicts.len();
        self.first.extend(conflicts.into_iter().take(MAX_CONFLICTS.saturating_sub(self.first.len())));
    }

    fn refusal(self) -> Option<Refusal> {
        let first = self.first.first()?;
        let message = if self.count == 1 {
            format!("hunk {} does not match `{}`", first.hunk, first.path)
        } else {
            format!("{} hunks do not match, the first in `{}`", self.count, first.path)
        };
        let is_applied = |conflict: &Conflict| conflict.reason.starts_with("already applied");
        let is_out_of_order = |conflict: &Conflict| conflict.reason.ends_with(OUT_OF_ORDER);
        let hint = if self.count == self.first.len() && self.first.iter().all(is_applied) {
            "These hunks are already applied: leave them out."
        } else if self.count == self.first.len() && self.first.iter().all(is_out_of_order) {
            "Put the hunks of each file in the order of the file."
        } else {
            "Read the files again and create the patch against their present content."
        };
        let (path, hunk) = (first.path.clone(), first.hunk);
        Some(Refusal::new(Code::PatchConflict, message, hint).with_details(|details| {
            details.path = Some(path);
            details.hunk = Some(hunk);
            details.conflicts = self.first;
        }))
    }
}
