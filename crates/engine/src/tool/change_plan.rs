//! The plan of a call: its change set, the diff and the output.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Change, ChangeFacts, ChangeSet, Code, Content, DiskChange, Effect, EvidenceFact, FileDiff, FileKind, FileState,
    LineCounts, LogicalPath, RecordFile, Refusal, Rules, ScannedContent, Sha256, Side, StepBytes, bytes_written,
    diff_file,
};
use serde_json::{Map, Value};
use workspace::{FileStamp, PlannedFile, PlannedVersion, Target, Workspace};

use crate::run::seen_versions::SeenVersion;
use crate::tool::outside_change::{Accept, OutsideChange, RecordedOutside};

/// The largest upload that is processed in memory, in bytes. Larger ones are staged in the run's `tmp/`.
pub const INLINE_BYTES: usize = 1024 * 1024;

/// The first bytes of a file from which its kind is detected.
const KIND_PREFIX_BYTES: usize = 8 * 1024;

/// The state of one path that a tool plans.
#[derive(Debug)]
pub struct DesiredFile {
    /// The path.
    pub path: LogicalPath,
    /// The effect on the path.
    pub effect: Effect,
    /// The new bytes and permission bits; `None` if no file remains.
    pub after: Option<(Vec<u8>, u32)>,
}

/// A file of any kind and size that the files plane stores.
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

/// A change set that policy can judge, with the output that the call returns once the changes are applied.
#[derive(Debug)]
pub struct ChangePlan {
    /// The changes, sorted by path, with their line counts.
    pub changes: ChangeSet,
    /// The diff of all changes, which becomes the call's artifact.
    pub diff: Vec<u8>,
    /// The kind of each path's new file, or of the file that is removed.
    pub kinds: BTreeMap<LogicalPath, FileKind>,
    /// The present bytes.
    pub before: BTreeMap<LogicalPath, Vec<u8>>,
    /// The line counts of present texts that are too large to be in memory.
    unread_lines: BTreeMap<LogicalPath, u64>,
    /// The line counts of new texts that are not in memory.
    staged_lines: BTreeMap<LogicalPath, u64>,
    /// The new bytes of each replacement that was compared line by line; see [`bytes_written`].
    written: BTreeMap<LogicalPath, u64>,
    /// The stamps of the files that were read.
    stamps: BTreeMap<LogicalPath, FileStamp>,
    /// The paths that git ignores and does not track, if the policy has rules about them.
    ignored: BTreeSet<LogicalPath>,
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
}

impl ChangePlan {
    /// Plans the changes from `targets` to `desired`. Each desired path must be among the targets.
    ///
    /// # Errors
    ///
    /// `FILE_TOO_LARGE` and `UNSUPPORTED_BINARY` for new content.
    pub fn build(rules: &Rules, targets: Vec<Target>, desired: Vec<DesiredFile>) -> Result<Self, Refusal> {
        Self::build_with(rules, targets, desired, |path, bytes| check_content(rules, path, bytes))
    }

    fn build_with<E>(
        rules: &Rules,
        targets: Vec<Target>,
        desired: Vec<DesiredFile>,
        kind_of: impl Fn(&LogicalPath, &[u8]) -> Result<FileKind, E>,
    ) -> Result<Self, E> {
        let present = PresentFiles::new(targets);
        let mut kinds = BTreeMap::new();
        let mut changes = Vec::with_capacity(desired.len());
        for file in desired {
            let kind = match (&file.after, present.states.get(&file.path)) {
                (Some((bytes, _)), _) => kind_of(&file.path, bytes)?,
                (None, Some(state)) => state.kind,
                (None, None) => rules.kind_of_path(&file.path),
            };
            kinds.insert(file.path.clone(), kind);
            changes.push(Change {
                before: present.states.get(&file.path).cloned(),
                after: file.after.map(|(bytes, mode)| Content::new(bytes, mode)),
                path: file.path,
                effect: file.effect,
                counts: LineCounts::default(),
            });
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self::new(changes, kinds, present))
    }

    /// Plans the changes from `targets` to files of any kind and size, for restoring earlier versions.
    pub fn build_any_kind(rules: &Rules, targets: Vec<Target>, desired: Vec<DesiredFile>) -> Self {
        let kind_of = |path: &LogicalPath, bytes: &[u8]| {
            Ok::<_, std::convert::Infallible>(rules.kind_of_file(path, &bytes[..bytes.len().min(KIND_PREFIX_BYTES)]))
        };
        match Self::build_with(rules, targets, desired, kind_of) {
            Ok(plan) => plan,
            Err(never) => match never {},
        }
    }

    /// Plans an upload, whose bytes need not be in memory.
    pub fn from_upload(targets: Vec<Target>, upload: UploadedFile) -> Self {
        let UploadedFile { path, content, kind, lines } = upload;
        let mut present = PresentFiles::new(targets);
        present.staged_lines.extend(lines.map(|lines| (path.clone(), lines)));
        let state = present.states.remove(&path);
        let effect = if state.is_some() { Effect::Replace } else { Effect::Create };
        let kinds = BTreeMap::from([(path.clone(), kind)]);
        let change = Change { path, effect, before: state, after: Some(content), counts: LineCounts::default() };
        Self::new(vec![change], kinds, present)
    }

    /// Plans the moves of files of any kind and size, each from an old to a new path. Those that are too large to be in memory are
    /// staged in the run's `tmp/`.
    pub fn moves(rules: &Rules, targets: Vec<Target>, moves: &[(LogicalPath, LogicalPath)]) -> Self {
        let present = PresentFiles::new(targets);
        let (mut kinds, mut changes) = (BTreeMap::new(), Vec::with_capacity(moves.len() * 2));
        let mut push = |path: &LogicalPath, effect, before, after| {
            changes.push(Change { path: path.clone(), effect, before, after, counts: LineCounts::default() });
        };
        for (from, to) in moves {
            let before = present.states.get(from).cloned();
            let kind = before.as_ref().map_or(FileKind::Unknown, |state| state.kind);
            let is_held = before.as_ref().is_some_and(|state| state.size_bytes <= rules.policy().max_file_bytes);
            let bytes = present.bytes.get(from).filter(|_| is_held);
            let head = bytes.map(|bytes| &bytes[..bytes.len().min(KIND_PREFIX_BYTES)]);
            let new_kind = match head {
                Some(head) => rules.kind_of_file(to, head),
                // The content, of which a part was read before, is the same.
                None if kind == FileKind::Binary && rules.kind_of_path(to) != FileKind::SecretLike => kind,
                None => rules.kind_of_path(to),
            };
            let after = before.as_ref().map(|state| match bytes {
                Some(bytes) => Content::new(bytes.clone(), state.mode),
                None => Content {
                    bytes: StepBytes::Staged(Workspace::new_staged_name()),
                    size_bytes: state.size_bytes,
                    sha256: state.sha256,
                    mode: state.mode,
                },
            });
            kinds.extend([(from.clone(), kind), (to.clone(), new_kind)]);
            push(from, Effect::MoveFrom { to: to.clone() }, before, None);
            push(to, Effect::MoveTo { from: from.clone() }, None, after);
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Self::new(changes, kinds, present)
    }

    fn new(changes: Vec<Change>, kinds: BTreeMap<LogicalPath, FileKind>, present: PresentFiles) -> Self {
        let mut plan = Self {
            changes: ChangeSet { changes },
            diff: Vec::new(),
            kinds,
            before: present.bytes,
            unread_lines: present.unread_lines,
            staged_lines: present.staged_lines,
            written: BTreeMap::new(),
            stamps: present.stamps,
            ignored: present.ignored,
            seen: Vec::new(),
            output: Map::new(),
            summary: String::new(),
            warnings: Vec::new(),
            is_restoration: false,
            has_workspace_diff_hash: false,
            outside: Vec::new(),
            settlement: None,
            accepted: None,
        };
        plan.compute_diffs();
        plan.warn_of_pointers();
        plan
    }

    /// Warns of changes to a pointer of Git LFS: the content is elsewhere and does not change.
    fn warn_of_pointers(&mut self) {
        let is_edited = |change: &&Change| change.effect == Effect::Replace;
        for change in self.changes.changes.iter().filter(is_edited) {
            if self.before.get(&change.path).is_some_and(|bytes| model::git_lfs_pointer(bytes).is_some()) {
                self.warnings
                    .push(format!("{} was a pointer: its content is in Git LFS and not in the workspace", change.path));
            }
        }
    }

    fn compute_diffs(&mut self) {
        for index in 0..self.changes.changes.len() {
            if let Some(diff) = self.diff_of(&self.changes.changes[index]) {
                let uncompared = self.uncompared_counts(&self.changes.changes[index], diff.binary);
                let change = &mut self.changes.changes[index];
                change.counts = uncompared.unwrap_or(diff.counts);
                // Replacements only: the diff of a file created at the path of a moved one has all its lines, even those that the
                // moved file had.
                if let Some(bytes) = diff.bytes_written.filter(|_| change.effect == Effect::Replace) {
                    self.written.insert(change.path.clone(), bytes);
                }
                self.diff.extend_from_slice(&diff.text);
            }
        }
    }

    /// Returns the counts of a change with a text that is not compared line by line, because it is too large or the other side is binary:
    /// all old lines are deletions, all new lines insertions. A binary side has none. `None` for every other change.
    fn uncompared_counts(&self, change: &Change, is_binary: bool) -> Option<LineCounts> {
        let path = &change.path;
        let is_move = matches!(change.effect, Effect::MoveFrom { .. } | Effect::MoveTo { .. });
        let is_large = self.unread_lines.contains_key(path) || self.staged_lines.contains_key(path);
        if is_move || !(is_large || is_binary) {
            return None;
        }
        let lines_of = |bytes: &[u8]| {
            Some(ScannedContent::of(bytes)).filter(|content| !content.is_binary).map(|content| content.lines)
        };
        let old = match self.unread_lines.get(path) {
            Some(lines) => Some(*lines),
            None => self.before.get(path).map_or(Some(0), |bytes| lines_of(bytes)),
        };
        let new = match (self.staged_lines.get(path), change.after.as_ref().map(|content| &content.bytes)) {
            (Some(lines), _) => Some(*lines),
            (None, None) => Some(0),
            (None, Some(StepBytes::Inline(bytes))) => lines_of(bytes),
            (None, Some(StepBytes::Staged(_))) => None,
        };
        Some(LineCounts { insertions: new.unwrap_or(0), deletions: old.unwrap_or(0) })
    }

    /// Returns the diff of one change. A move has one diff, at its new path.
    fn diff_of(&self, change: &Change) -> Option<FileDiff> {
        let old_path = match &change.effect {
            Effect::MoveFrom { .. } => return None,
            Effect::MoveTo { from } => from,
            Effect::Create | Effect::Replace | Effect::Delete => &change.path,
        };
        let old_mode = self.at(old_path).and_then(|other| other.before.as_ref()).map_or(0o644, |state| state.mode);
        // A file created at the path of one that is moved away is compared with nothing.
        let before = if change.effect == Effect::Create { None } else { self.before.get(old_path) };
        let old = before.map(|bytes| Side { path: old_path, bytes, mode: old_mode });
        let new = change.after.as_ref().map(|content| Side {
            path: &change.path,
            bytes: diff_bytes(content),
            mode: content.mode,
        });
        Some(diff_file(old, new))
    }

    /// Returns the bytes that the plan has in memory: present files, new files and the diff.
    pub fn held_bytes(&self) -> u64 {
        let after = self.changes.changes.iter().filter_map(|change| change.after.as_ref());
        let after: usize = after.map(|content| content.inline().len()).sum();
        let before: usize = self.before.values().map(Vec::len).sum();
        (before + after + self.diff.len()) as u64
    }

    /// Returns the paths of the changes, sorted.
    pub fn paths(&self) -> Vec<LogicalPath> {
        self.changes.changes.iter().map(|change| change.path.clone()).collect()
    }

    /// Returns the stamps of the files that the change was planned from.
    pub fn stamps(&self) -> &BTreeMap<LogicalPath, FileStamp> {
        &self.stamps
    }

    /// Returns the files before and after the changes, for the workspace's diff.
    pub fn planned_files(&self) -> Vec<PlannedFile> {
        let file = |change: &Change| PlannedFile {
            path: change.path.clone(),
            before: self.before.get(&change.path).cloned(),
            after: change.after.as_ref().map(planned_version),
        };
        self.changes.changes.iter().map(file).collect()
    }

    /// Returns by how much the changes increase the size and the number of the tree's files.
    pub fn disk_change(&self) -> DiskChange {
        let signed = |bytes: Option<u64>| i64::try_from(bytes.unwrap_or(0)).unwrap_or(i64::MAX);
        let mut sum = DiskChange::default();
        for Change { before, after, .. } in &self.changes.changes {
            let before_bytes = signed(before.as_ref().map(|state| state.size_bytes));
            let after_bytes = signed(after.as_ref().map(|content| content.size_bytes));
            let files = i64::from(after.is_some()) - i64::from(before.is_some());
            sum += DiskChange { bytes: after_bytes.saturating_sub(before_bytes), files };
        }
        sum
    }

    /// Returns the bytes of uploads that are staged outside the tree until the change is applied.
    pub fn uploaded_bytes(&self) -> u64 {
        let uploads = self.changes.changes.iter().filter(|change| !matches!(change.effect, Effect::MoveTo { .. }));
        let staged = uploads.filter_map(|change| change.after.as_ref()).filter_map(|content| match content.bytes {
            StepBytes::Staged(_) => Some(content.size_bytes),
            StepBytes::Inline(_) => None,
        });
        staged.sum()
    }

    /// Whether the call records changes from outside as its own, and writes nothing.
    pub fn accepts_tree(&self) -> bool {
        self.settlement == Some(Accept::Tree)
    }

    /// Returns the change at `path`.
    pub fn at(&self, path: &LogicalPath) -> Option<&Change> {
        let changes = &self.changes.changes;
        changes.binary_search_by(|change| change.path.cmp(path)).ok().map(|at| &changes[at])
    }

    /// Returns the facts of each change that the policy judges. `evidence` is that of the call, and `touched` returns whether an earlier call changed the path.
    pub fn facts(&self, evidence: EvidenceFact, touched: impl Fn(&LogicalPath) -> bool) -> Vec<ChangeFacts<'_>> {
        self.changes.changes.iter().map(|change| self.facts_of(change, evidence, touched(&change.path))).collect()
    }

    fn facts_of<'a>(&'a self, change: &'a Change, evidence: EvidenceFact, touched_before: bool) -> ChangeFacts<'a> {
        let source = match &change.effect {
            Effect::MoveTo { from } => from,
            Effect::Create | Effect::Replace | Effect::Delete | Effect::MoveFrom { .. } => &change.path,
        };
        let old_mode = self.at(source).and_then(|source| source.before.as_ref()).map(|state| state.mode);
        let is_unread = self.unread_lines.contains_key(source);
        let old_text = self.before.get(source).filter(|_| !is_unread).map(Vec::as_slice);
        let in_memory = change.after.as_ref().filter(|content| matches!(content.bytes, StepBytes::Inline(_)));
        let new_text = in_memory.map(Content::inline);
        let kind = self.kinds.get(&change.path).copied().unwrap_or(FileKind::Unknown);
        ChangeFacts {
            path: &change.path,
            kind,
            effect: &change.effect,
            insertions: change.counts.insertions,
            deletions: change.counts.deletions,
            bytes: match self.written.get(&change.path) {
                Some(bytes) => *bytes,
                None => bytes_written(old_text, new_text, self.text_bytes(kind, change)),
            },
            mode_change: match (old_mode, &change.after) {
                (Some(old), Some(content)) => !self.is_restoration && (old ^ content.mode) & 0o111 != 0,
                _ => false,
            },
            ignored: self.ignored.contains(&change.path),
            touched_before,
            old_text,
            new_text,
            not_compared: is_unread || self.staged_lines.contains_key(&change.path),
            evidence,
        }
    }

    /// Returns the bytes of new text, which count against the text budget. Binary files are bounded by the transfer limit
    /// instead, and moved bytes are not new.
    fn text_bytes(&self, kind: FileKind, change: &Change) -> u64 {
        let Some(content) = &change.after else { return 0 };
        let is_text = match content.bytes {
            StepBytes::Inline(_) => kind != FileKind::Binary,
            StepBytes::Staged(_) => self.staged_lines.contains_key(&change.path),
        };
        if is_text { content.size_bytes } else { 0 }
    }
}

/// The present state of the targets.
#[derive(Default)]
struct PresentFiles {
    states: BTreeMap<LogicalPath, FileState>,
    bytes: BTreeMap<LogicalPath, Vec<u8>>,
    unread_lines: BTreeMap<LogicalPath, u64>,
    staged_lines: BTreeMap<LogicalPath, u64>,
    stamps: BTreeMap<LogicalPath, FileStamp>,
    ignored: BTreeSet<LogicalPath>,
}

impl PresentFiles {
    fn new(targets: Vec<Target>) -> Self {
        let mut all = Self::default();
        for target in targets {
            if target.ignored {
                all.ignored.insert(target.path.clone());
            }
            if let Some(stamp) = target.stamp {
                all.stamps.insert(target.path.clone(), stamp);
            }
            if let Some(scanned) = target.scanned {
                all.unread_lines.insert(target.path.clone(), scanned.lines);
            }
            if let Some((state, bytes)) = target.before {
                all.states.insert(target.path.clone(), state);
                all.bytes.insert(target.path, bytes);
            }
        }
        all
    }
}

/// Returns new content for the workspace's diff, which shows staged content as an empty file.
fn planned_version(content: &Content) -> PlannedVersion {
    let bytes = content.inline().to_vec();
    let sha256 = match content.bytes {
        StepBytes::Inline(_) => content.sha256,
        StepBytes::Staged(_) => Sha256::of(&bytes),
    };
    PlannedVersion { bytes, sha256, mode: content.mode }
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
pub fn too_large(rules: &Rules, path: &LogicalPath, actual: u64) -> Refusal {
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

/// Returns the record's member `files` of a completed mutation.
pub fn record_files(plan: &ChangePlan) -> Vec<RecordFile> {
    let file = |change: &Change| RecordFile {
        kind: plan.kinds.get(&change.path).copied().unwrap_or(FileKind::Unknown),
        new_sha256: change.after.as_ref().map(|content| content.sha256),
        old_sha256: change.before.as_ref().map(|state| state.sha256),
        path: change.path.clone(),
    };
    plan.changes.changes.iter().map(file).collect()
}
