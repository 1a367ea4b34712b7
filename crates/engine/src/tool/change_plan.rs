//! The plan of a call: its changes, their diff and the output.

use std::collections::BTreeSet;
use std::io;

use model::{
    Change, ChangeFacts, Code, Content, DiskChange, Effect, EvidenceFact, FileDiff, FileKind, FileState, LineCounts,
    LogicalPath, RecordFile, Refusal, Rules, ScannedContent, Sha256, Side, Step, StepBytes, bytes_written, diff_file,
    is_link_mode,
};
use serde_json::{Map, Value};
use workspace::{FileStamp, PackedFile, StagedContents, Target, Workspace, pack_layer};

use crate::run::quota::Reservation;
use crate::run::seen_versions::SeenVersion;
use crate::tool::changed_since::MergedFork;
use crate::tool::outside_change::{Accept, OutsideChange, RecordedOutside};

/// The largest upload that is processed in memory, in bytes. Larger ones are staged in the run's `tmp/`.
pub const INLINE_BYTES: usize = 1024 * 1024;

/// The permission bits of a new file.
pub(crate) const NEW_FILE_MODE: u32 = 0o644;
/// The first bytes of a file from which its kind is detected.
const KIND_PREFIX_BYTES: usize = 8 * 1024;

/// The state of one path that a tool plans.
#[derive(Debug)]
pub struct DesiredFile {
    /// The path.
    pub path: LogicalPath,
    /// The effect on the path.
    pub effect: Effect,
    /// The new bytes and the mode; `None` if no file remains.
    pub after: Option<(Vec<u8>, u32)>,
}

/// A file of any kind and size.
#[derive(Debug)]
pub struct UploadedFile {
    /// The path.
    pub path: LogicalPath,
    /// The new content.
    pub content: Content,
    /// Its kind.
    pub kind: FileKind,
    /// The number of its lines, if it is text and not in memory.
    pub lines: Option<u64>,
}

/// Changes that policy can judge, with the output that the call returns once they are applied.
#[derive(Debug)]
pub struct ChangePlan {
    /// What the plan knows of each path that the call names, sorted by path.
    files: Vec<PlannedFile>,
    /// The diff of all changes, which becomes the call's artifact.
    pub diff: Vec<u8>,
    /// What the caller has seen of the files of which the input expects that version.
    pub seen: Vec<(LogicalPath, SeenVersion)>,
    /// The tool's own members of the response.
    pub output: Map<String, Value>,
    /// One line that describes the change.
    pub summary: String,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// Whether it restores earlier files, with their modes.
    pub is_restoration: bool,
    /// Whether the response has the hash of the workspace's diff after the change.
    pub has_workspace_diff_hash: bool,
    /// The changes from outside that the plan builds on.
    pub outside: Vec<OutsideChange>,
    /// The side that the call accepts, if it settles changes from outside.
    pub settlement: Option<Accept>,
    /// What a call that accepts the tree records.
    pub accepted: Option<Box<RecordedOutside>>,
    /// What a change set leaves out because it is denied: each path with the rule.
    pub left: Vec<(String, String)>,
    /// Whether it is that of a change set, whose content is not in its input.
    pub is_changeset: bool,
    /// The fork that it merges.
    pub merged: Option<MergedFork>,
    /// What is added to the stored input of a call that waits for approval: the name of a member, and the content in Base64.
    pub waiting_content: Option<(&'static str, String)>,
    /// The owner of the contents outside of memory, who removes those that are not journalled.
    pub staged: Option<StagedContents>,
    /// The disk space that is reserved already, for content outside of memory.
    pub reservation: Option<Reservation>,
}

/// What a plan knows of one path.
#[derive(Debug)]
struct PlannedFile {
    /// What the call has found there.
    target: Target,
    /// Its change; `None` if the call only reads it, such as the source of a copy.
    change: Option<PlannedChange>,
}

/// The change of one path.
#[derive(Debug)]
pub struct PlannedChange {
    /// The change, with its line counts.
    pub change: Change,
    /// The kind of the new file, or of the file that is removed.
    pub kind: FileKind,
    /// The line count of a new text that is not in memory.
    staged_lines: Option<u64>,
    /// The new bytes of a replacement that was compared line by line; see [`bytes_written`].
    written: Option<u64>,
}

impl PlannedFile {
    /// The state of the present file.
    fn state(&self) -> Option<&FileState> {
        self.target.before.as_ref().map(|(state, _)| state)
    }

    /// The bytes of the present file. One that is too large to be in memory has a substitute.
    fn bytes(&self) -> Option<&[u8]> {
        self.target.before.as_ref().map(|(_, bytes)| bytes.as_slice())
    }

    /// The line count of a present text that is too large to be in memory.
    fn unread_lines(&self) -> Option<u64> {
        self.target.scanned.as_ref().map(|scanned| scanned.lines)
    }
}

impl ChangePlan {
    /// Plans the changes from `targets` to `desired`. Each desired path must be among the targets.
    ///
    /// # Errors
    ///
    /// `FILE_TOO_LARGE` and `UNSUPPORTED_BINARY` for new content.
    pub fn build(rules: &Rules, targets: Vec<Target>, desired: Vec<DesiredFile>) -> Result<Self, Refusal> {
        Self::build_with(rules, targets, desired, Vec::new(), |path, bytes| check_content(rules, path, bytes))
    }

    fn build_with<E>(
        rules: &Rules,
        targets: Vec<Target>,
        desired: Vec<DesiredFile>,
        uploads: Vec<UploadedFile>,
        kind_of: impl Fn(&LogicalPath, &[u8]) -> Result<FileKind, E>,
    ) -> Result<Self, E> {
        let mut plan = Self::of(targets);
        for DesiredFile { path, effect, after } in desired {
            let kind = match &after {
                Some((bytes, _)) => kind_of(&path, bytes)?,
                None => match plan.file(&path).and_then(PlannedFile::state) {
                    Some(state) => state.kind,
                    None => rules.kind_of_path(&path),
                },
            };
            plan.change(path, effect, kind, after.map(|(bytes, mode)| Content::new(bytes, mode)));
        }
        for UploadedFile { path, content, kind, lines } in uploads {
            let is_present = plan.file(&path).and_then(PlannedFile::state).is_some();
            let effect = if is_present { Effect::Replace } else { Effect::Create };
            plan.change(path, effect, kind, Some(content)).staged_lines = lines;
        }
        Ok(plan.compared())
    }

    /// Plans the changes from `targets` to files of any kind and size. The bytes of `uploads` need not be in memory.
    pub fn build_any_kind(
        rules: &Rules,
        targets: Vec<Target>,
        desired: Vec<DesiredFile>,
        uploads: Vec<UploadedFile>,
    ) -> Self {
        let kind_of = |path: &LogicalPath, bytes: &[u8]| {
            Ok::<_, std::convert::Infallible>(rules.kind_of_file(path, &bytes[..bytes.len().min(KIND_PREFIX_BYTES)]))
        };
        match Self::build_with(rules, targets, desired, uploads, kind_of) {
            Ok(plan) => plan,
            Err(never) => match never {},
        }
    }

    /// Plans the moves of files of any kind and size, each from an old to a new path. Those that are too large to be in memory are
    /// staged in the run's `tmp/`.
    pub fn moves(rules: &Rules, targets: Vec<Target>, moves: &[(LogicalPath, LogicalPath)]) -> Self {
        let mut plan = Self::of(targets);
        for (from, to) in moves {
            let source = plan.file(from).and_then(|file| file.target.before.as_ref());
            let kind = source.map_or(FileKind::Unknown, |(state, _)| state.kind);
            let held = source.filter(|(state, _)| state.size_bytes <= rules.policy().max_file_bytes);
            let new_kind = match held {
                Some((_, bytes)) => rules.kind_of_file(to, &bytes[..bytes.len().min(KIND_PREFIX_BYTES)]),
                // The content, of which a part was read before, is the same.
                None if kind == FileKind::Binary && rules.kind_of_path(to) != FileKind::SecretLike => kind,
                None => rules.kind_of_path(to),
            };
            let after = source.map(|(state, _)| match held {
                Some((_, bytes)) => Content::new(bytes.clone(), state.mode),
                None => Content {
                    bytes: StepBytes::Staged(Workspace::new_staged_name()),
                    size_bytes: state.size_bytes,
                    sha256: state.sha256,
                    mode: state.mode,
                },
            });
            plan.change(from.clone(), Effect::MoveFrom { to: to.clone() }, kind, None);
            plan.change(to.clone(), Effect::MoveTo { from: from.clone() }, new_kind, after);
        }
        plan.compared()
    }

    /// Creates a plan that changes nothing yet.
    fn of(mut targets: Vec<Target>) -> Self {
        targets.sort_by(|a, b| a.path.cmp(&b.path));
        Self {
            files: targets.into_iter().map(|target| PlannedFile { target, change: None }).collect(),
            diff: Vec::new(),
            seen: Vec::new(),
            output: Map::new(),
            summary: String::new(),
            warnings: Vec::new(),
            is_restoration: false,
            has_workspace_diff_hash: false,
            outside: Vec::new(),
            settlement: None,
            accepted: None,
            left: Vec::new(),
            is_changeset: false,
            merged: None,
            waiting_content: None,
            staged: None,
            reservation: None,
        }
    }

    /// Adds the change of the file at `path`.
    fn change(
        &mut self,
        path: LogicalPath,
        effect: Effect,
        kind: FileKind,
        after: Option<Content>,
    ) -> &mut PlannedChange {
        let at = self.index(&path).unwrap_or_else(|at| {
            let (before, scanned, stamp, not_a_file) = (None, None, None, None);
            let target = Target { path: path.clone(), before, scanned, stamp, ignored: false, not_a_file };
            self.files.insert(at, PlannedFile { target, change: None });
            at
        });
        let file = &mut self.files[at];
        let change = Change { path, effect, before: file.state().cloned(), after, counts: LineCounts::default() };
        file.change.insert(PlannedChange { change, kind, staged_lines: None, written: None })
    }

    /// Returns the plan with the diff of its changes, and their counts.
    fn compared(mut self) -> Self {
        self.compute_diffs();
        self.warn_of_pointers();
        self
    }

    /// Warns of changes to a pointer of Git LFS: the content is elsewhere and does not change.
    fn warn_of_pointers(&mut self) {
        let Self { files, warnings, .. } = self;
        let is_edited = |file: &PlannedFile| {
            file.change.as_ref().is_some_and(|planned| planned.change.effect == Effect::Replace)
                && file.bytes().is_some_and(|bytes| model::git_lfs_pointer(bytes).is_some())
        };
        warnings.extend(files.iter().filter(|file| is_edited(file)).map(|file| {
            format!("{} was a pointer: its content is in Git LFS and not in the workspace", file.target.path)
        }));
    }

    fn compute_diffs(&mut self) {
        for index in 0..self.files.len() {
            let Some(planned) = &self.files[index].change else { continue };
            let Some(diff) = self.diff_of(&planned.change) else { continue };
            let uncompared = self.files[index].uncompared_counts(diff.binary);
            self.diff.extend_from_slice(&diff.text);
            if let Some(planned) = &mut self.files[index].change {
                planned.change.counts = uncompared.unwrap_or(diff.counts);
                // Replacements only: the diff of a file created at the path of a moved one has all its lines, even those that the
                // moved file had.
                planned.written = diff.bytes_written.filter(|_| planned.change.effect == Effect::Replace);
            }
        }
    }

    /// Returns the diff of one change. A move has one diff, at its new path.
    fn diff_of(&self, change: &Change) -> Option<FileDiff> {
        let old_path = match &change.effect {
            Effect::MoveFrom { .. } => return None,
            Effect::MoveTo { from } => from,
            Effect::Create | Effect::Replace | Effect::Delete => &change.path,
        };
        // A file created at the path of one that is moved away is compared with nothing.
        let before = if change.effect == Effect::Create { None } else { self.file(old_path) };
        let old = before.and_then(|file| file.target.before.as_ref());
        let old = old.map(|(state, bytes)| Side { path: old_path, bytes, mode: state.mode });
        let new = change.after.as_ref().map(|content| Side {
            path: &change.path,
            bytes: diff_bytes(content),
            mode: content.mode,
        });
        Some(diff_file(old, new))
    }

    /// Packs what a change set changes as a layer, without the files that were denied or not taken.
    ///
    /// # Errors
    ///
    /// If the contents cannot be read.
    pub fn pack_layer(&self, workspace: &Workspace) -> io::Result<Vec<u8>> {
        let files = self.changes().map(|change| {
            let after = change.after.as_ref().map(|content| packed_file(workspace, content));
            (&change.path, after.transpose())
        });
        let mut layer = Vec::new();
        pack_layer(files, &mut layer)?;
        Ok(layer)
    }

    /// Returns the plan without the changes at `paths`.
    #[must_use]
    pub fn without(mut self, paths: &BTreeSet<LogicalPath>) -> Self {
        for file in self.files.iter_mut().filter(|file| paths.contains(&file.target.path)) {
            file.change = None;
        }
        self.diff.clear();
        self.compute_diffs();
        self
    }

    fn index(&self, path: &LogicalPath) -> Result<usize, usize> {
        self.files.binary_search_by(|file| file.target.path.cmp(path))
    }

    fn file(&self, path: &LogicalPath) -> Option<&PlannedFile> {
        self.index(path).ok().map(|at| &self.files[at])
    }

    /// Returns the changes, sorted by path.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.planned_changes().map(|planned| &planned.change)
    }

    /// Returns the changes with what is planned with each, sorted by path.
    pub fn planned_changes(&self) -> impl Iterator<Item = &PlannedChange> {
        self.files.iter().filter_map(|file| file.change.as_ref())
    }

    /// Returns the change at `path`.
    pub fn at(&self, path: &LogicalPath) -> Option<&Change> {
        Some(&self.file(path)?.change.as_ref()?.change)
    }

    /// Returns the paths of the changes, sorted.
    pub fn paths(&self) -> Vec<LogicalPath> {
        self.changes().map(|change| change.path.clone()).collect()
    }

    /// Returns the paths at which the call has found a file, also those that it does not change.
    pub fn found_paths(&self) -> impl Iterator<Item = &LogicalPath> {
        self.files.iter().filter(|file| file.target.before.is_some()).map(|file| &file.target.path)
    }

    /// Returns the bytes of the present file at `path`. One that is too large to be in memory has a substitute.
    pub fn found_bytes(&self, path: &LogicalPath) -> Option<&[u8]> {
        self.file(path)?.bytes()
    }

    /// Returns the stamps of the files that the change was planned from.
    pub fn stamps(&self) -> impl Iterator<Item = (&LogicalPath, FileStamp)> {
        self.files.iter().filter_map(|file| Some((&file.target.path, file.target.stamp?)))
    }

    /// Returns the sum of the line counts of all changes.
    pub fn counts(&self) -> LineCounts {
        self.changes().fold(LineCounts::default(), |sum, change| sum + change.counts)
    }

    /// Returns the steps that apply the changes: removals before creations, so that moves never collide.
    pub fn steps(&self) -> Vec<Step> {
        let removals = self.changes().filter(|change| change.after.is_none());
        removals.chain(self.changes().filter(|change| change.after.is_some())).map(Change::to_step).collect()
    }

    /// Returns the bytes that the plan has in memory: present files, new files and the diff.
    pub fn held_bytes(&self) -> u64 {
        let after = self.changes().filter_map(|change| change.after.as_ref());
        let after: usize = after.map(|content| content.inline().len()).sum();
        let before: usize = self.files.iter().filter_map(PlannedFile::bytes).map(<[u8]>::len).sum();
        (before + after + self.diff.len()) as u64
    }

    /// Returns by how much the changes increase the size and the number of the files, of which those that `counts` selects were counted
    /// before.
    pub fn disk_change(&self, counts: impl Fn(&LogicalPath) -> bool) -> DiskChange {
        // As in a count of the tree, links are files without bytes.
        let signed = |file: Option<(u32, u64)>| {
            let bytes = file.filter(|(mode, _)| !is_link_mode(*mode)).map_or(0, |(_, bytes)| bytes);
            i64::try_from(bytes).unwrap_or(i64::MAX)
        };
        let mut sum = DiskChange::default();
        for Change { path, before, after, .. } in self.changes() {
            let before = before.as_ref().filter(|_| counts(path));
            let before_bytes = signed(before.map(|state| (state.mode, state.size_bytes)));
            let after_bytes = signed(after.as_ref().map(|content| (content.mode, content.size_bytes)));
            let files = i64::from(after.is_some()) - i64::from(before.is_some());
            sum += DiskChange { bytes: after_bytes.saturating_sub(before_bytes), files };
        }
        sum
    }

    /// Returns the uploads that are staged outside of the tree until the change is applied, each with its name in `tmp/`.
    pub fn staged_uploads(&self) -> impl Iterator<Item = (&Change, &Content, &str)> {
        let uploads = self.changes().filter(|change| !matches!(change.effect, Effect::MoveTo { .. }));
        uploads.filter_map(|change| match change.after.as_ref()? {
            content @ Content { bytes: StepBytes::Staged(name), .. } => Some((change, content, name.as_str())),
            _ => None,
        })
    }

    /// Returns the bytes of the staged uploads.
    pub fn uploaded_bytes(&self) -> u64 {
        self.staged_uploads().map(|(_, content, _)| content.size_bytes).sum()
    }

    /// Returns the bytes of the contents that the input of the call does not have: all contents of a change set, and staged uploads.
    pub fn waiting_bytes(&self) -> u64 {
        if !self.is_changeset {
            return self.uploaded_bytes();
        }
        self.changes().filter_map(|change| change.after.as_ref()).map(|content| content.size_bytes).sum()
    }

    /// Returns the source of each large file that moves that is staged in `tmp/`, its name there, and its hash.
    pub fn large_moves(&self) -> impl Iterator<Item = (&LogicalPath, &str, Sha256)> {
        self.changes().filter_map(|change| match (&change.effect, &change.after) {
            (Effect::MoveTo { from }, Some(Content { bytes: StepBytes::Staged(name), sha256, .. })) => {
                Some((from, name.as_str(), *sha256))
            }
            _ => None,
        })
    }

    /// Whether the call records changes from outside as its own, and writes nothing.
    pub fn accepts_tree(&self) -> bool {
        self.settlement == Some(Accept::Tree)
    }

    /// Returns the record's member `files` of a completed mutation.
    pub fn record_files(&self) -> Vec<RecordFile> {
        let file = |PlannedChange { change, kind, .. }: &PlannedChange| {
            let before = change.before.as_ref().map(|state| (state.sha256, state.mode));
            let after = change.after.as_ref().map(|content| (content.sha256, content.mode));
            RecordFile::written(change.path.clone(), *kind, before, after)
        };
        self.planned_changes().map(file).collect()
    }

    /// Returns the facts of each change that the policy judges. `evidence` is that of the call, and `touched` returns whether an earlier call changed the path.
    pub fn facts(&self, evidence: EvidenceFact, touched: impl Fn(&LogicalPath) -> bool) -> Vec<ChangeFacts<'_>> {
        let facts = |file| self.facts_of(file, evidence, &touched);
        self.files.iter().filter_map(facts).collect()
    }

    fn facts_of<'a>(
        &'a self,
        file: &'a PlannedFile,
        evidence: EvidenceFact,
        touched: impl Fn(&LogicalPath) -> bool,
    ) -> Option<ChangeFacts<'a>> {
        let planned = file.change.as_ref()?;
        let PlannedChange { change, kind, .. } = planned;
        let source = match &change.effect {
            Effect::MoveTo { from } => self.file(from),
            Effect::Create | Effect::Replace | Effect::Delete | Effect::MoveFrom { .. } => Some(file),
        };
        let old_mode = source.and_then(PlannedFile::state).map(|state| state.mode);
        let is_unread = source.is_some_and(|source| source.target.scanned.is_some());
        let old_text = source.filter(|_| !is_unread).and_then(PlannedFile::bytes);
        let in_memory = change.after.as_ref().filter(|content| matches!(content.bytes, StepBytes::Inline(_)));
        let new_text = in_memory.map(Content::inline);
        Some(ChangeFacts {
            path: &change.path,
            kind: *kind,
            effect: &change.effect,
            insertions: change.counts.insertions,
            deletions: change.counts.deletions,
            bytes: match planned.written {
                Some(bytes) => bytes,
                None => bytes_written(old_text, new_text, planned.text_bytes()),
            },
            mode_change: match (old_mode, &change.after) {
                (Some(old), Some(content)) if is_link_mode(old) == is_link_mode(content.mode) => {
                    !self.is_restoration && (old ^ content.mode) & 0o111 != 0
                }
                _ => false,
            },
            new_link: !self.is_restoration && change.after.as_ref().is_some_and(|after| is_link_mode(after.mode)),
            ignored: file.target.ignored,
            touched_before: touched(&change.path),
            old_text,
            new_text,
            not_compared: is_unread || planned.staged_lines.is_some(),
            evidence,
        })
    }
}

impl PlannedFile {
    /// Returns the counts of a change with a text that is not compared line by line, because it is too large or the other side is binary:
    /// all old lines are deletions, all new lines insertions. A binary side has none. `None` for every other change.
    fn uncompared_counts(&self, is_binary: bool) -> Option<LineCounts> {
        let PlannedChange { change, staged_lines, .. } = self.change.as_ref()?;
        let is_move = matches!(change.effect, Effect::MoveFrom { .. } | Effect::MoveTo { .. });
        let is_large = self.target.scanned.is_some() || staged_lines.is_some();
        if is_move || !(is_large || is_binary) {
            return None;
        }
        let lines_of = |bytes: &[u8]| {
            Some(ScannedContent::of(bytes)).filter(|content| !content.is_binary).map(|content| content.lines)
        };
        let old = match self.unread_lines() {
            Some(lines) => Some(lines),
            None => self.bytes().map_or(Some(0), lines_of),
        };
        let new = match (staged_lines, change.after.as_ref().map(|content| &content.bytes)) {
            (Some(lines), _) => Some(*lines),
            (None, None) => Some(0),
            (None, Some(StepBytes::Inline(bytes))) => lines_of(bytes),
            (None, Some(StepBytes::Staged(_))) => None,
        };
        Some(LineCounts { insertions: new.unwrap_or(0), deletions: old.unwrap_or(0) })
    }
}

impl PlannedChange {
    /// Returns the bytes of new text, which count against the text budget. Binary files are bounded by the transfer limit
    /// instead, and moved bytes are not new.
    fn text_bytes(&self) -> u64 {
        let Some(content) = &self.change.after else { return 0 };
        let is_text = match content.bytes {
            StepBytes::Inline(_) => self.kind != FileKind::Binary,
            StepBytes::Staged(_) => self.staged_lines.is_some(),
        };
        if is_text { content.size_bytes } else { 0 }
    }
}

/// Returns new content to be packed.
fn packed_file<'a>(workspace: &Workspace, content: &'a Content) -> io::Result<PackedFile<'a>> {
    let bytes: Box<dyn io::Read + 'a> = match &content.bytes {
        StepBytes::Inline(bytes) => Box::new(bytes.as_slice()),
        StepBytes::Staged(name) => Box::new(workspace.open_staged(name)?),
    };
    Ok(PackedFile { bytes, size_bytes: content.size_bytes, mode: content.mode })
}

/// Returns the bytes of new content to compare. Staged content is represented by a NUL, so that the diff shows a binary
/// file.
fn diff_bytes(content: &Content) -> &[u8] {
    match &content.bytes {
        StepBytes::Inline(bytes) => bytes,
        StepBytes::Staged(_) => &[0],
    }
}

/// Returns the refusal of a text of `actual` bytes for `path`, which is larger than the policy allows.
pub(crate) fn too_large(rules: &Rules, path: &LogicalPath, actual: u64) -> Refusal {
    let limit = rules.policy().max_file_bytes;
    let message = format!("`{path}` would have {actual} bytes; the limit for text files is {limit}");
    Refusal::new(Code::FileTooLarge, message, "Split the content over several files.")
        .at(path)
        .with_details(|details| (details.limit, details.actual) = (Some(limit), Some(actual)))
}

fn check_content(rules: &Rules, path: &LogicalPath, bytes: &[u8]) -> Result<FileKind, Refusal> {
    let actual = bytes.len() as u64;
    if actual > rules.policy().max_file_bytes {
        return Err(too_large(rules, path, actual));
    }
    if model::is_binary(bytes) {
        let message = format!("the new content of `{path}` is binary");
        return Err(Refusal::new(Code::UnsupportedBinary, message, "Tools write text only.").at(path));
    }
    Ok(rules.kind_of_file(path, bytes))
}
