//! From what a tool wants to a planned change set with its diff.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Change, ChangeFacts, ChangeSet, Code, Content, Counts, DiskChange, Effect, FileDiff, FileKind, FileState,
    LogicalPath, RecordFile, Refusal, Rules, ScannedContent, Side, StepBytes, bytes_written, diff_file,
};
use serde_json::{Map, Value};
use workspace::{FileStamp, PlannedFile, Target};

/// So many first bytes tell a file's kind.
const KIND_BYTES: usize = 8 * 1024;

/// What a tool wants at one path.
#[derive(Debug)]
pub struct DesiredFile {
    /// The place.
    pub path: LogicalPath,
    /// What happens to it.
    pub effect: Effect,
    /// The new bytes and permission bits; `None` where nothing shall be there.
    pub after: Option<(Vec<u8>, u32)>,
}

/// What the files plane wants at one path: a file of any kind and size.
#[derive(Debug)]
pub struct Upload {
    /// The place.
    pub path: LogicalPath,
    /// The file.
    pub content: Content,
    /// Its kind.
    pub kind: FileKind,
    /// How many lines it has, where it is a text that is not in memory.
    pub lines: Option<u64>,
}

/// A change set that is ready to be judged, with the answer that the call gets if it is carried out.
#[derive(Debug)]
pub struct ChangePlan {
    /// The changes, sorted by path, with their line counts.
    pub changes: ChangeSet,
    /// The diff of all changes: the call's artifact.
    pub diff: Vec<u8>,
    /// Each path's kind: of what will be there, or of what was there.
    pub kinds: BTreeMap<LogicalPath, FileKind>,
    /// The bytes that are there now.
    pub before: BTreeMap<LogicalPath, Vec<u8>>,
    /// The lines of texts that are there now and too large to be held.
    unread: BTreeMap<LogicalPath, u64>,
    /// The lines of texts that come in and are not in memory.
    incoming: BTreeMap<LogicalPath, u64>,
    /// Bytes that each change writes anew, where the diff tells; see [`bytes_written`].
    written: BTreeMap<LogicalPath, u64>,
    /// The versions that those bytes were read from.
    seen: BTreeMap<LogicalPath, FileStamp>,
    /// The paths that git ignores and does not track, where policy asks about them.
    ignored: BTreeSet<LogicalPath>,
    /// The tool's own members of the answer.
    pub output: Map<String, Value>,
    /// One line that says what was done.
    pub summary: String,
    /// What the caller should know besides.
    pub warnings: Vec<String>,
    /// Whether the answer tells the hash of the workspace's diff after the change.
    pub has_workspace_diff_hash: bool,
}

impl ChangePlan {
    /// Draws the changes from `targets` to what is `desired`; only paths among the targets can be.
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
        let found = Before::of(targets);
        let mut kinds = BTreeMap::new();
        let mut changes = Vec::with_capacity(desired.len());
        for want in desired {
            let kind = match (&want.after, found.states.get(&want.path)) {
                (Some((bytes, _)), _) => kind_of(&want.path, bytes)?,
                (None, Some(state)) => state.kind,
                (None, None) => rules.kind_of_path(&want.path),
            };
            kinds.insert(want.path.clone(), kind);
            changes.push(Change {
                before: found.states.get(&want.path).cloned(),
                after: want.after.map(|(bytes, mode)| Content::new(bytes, mode)),
                path: want.path,
                effect: want.effect,
                counts: Counts::default(),
            });
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self::new(changes, kinds, found))
    }

    /// Draws the changes from `targets` to files of any kind, as they stood there before.
    pub fn build_any_kind(rules: &Rules, targets: Vec<Target>, desired: Vec<DesiredFile>) -> Self {
        let kind_of = |path: &LogicalPath, bytes: &[u8]| {
            Ok::<_, std::convert::Infallible>(rules.kind_of_file(path, &bytes[..bytes.len().min(KIND_BYTES)]))
        };
        match Self::build_with(rules, targets, desired, kind_of) {
            Ok(plan) => plan,
            Err(never) => match never {},
        }
    }

    /// Draws the change of an upload, whose bytes need not be in memory.
    pub fn from_upload(targets: Vec<Target>, upload: Upload) -> Self {
        let Upload { path, content, kind, lines } = upload;
        let mut found = Before::of(targets);
        found.incoming.extend(lines.map(|lines| (path.clone(), lines)));
        let state = found.states.remove(&path);
        let effect = if state.is_some() { Effect::Replace } else { Effect::Create };
        let kinds = BTreeMap::from([(path.clone(), kind)]);
        let change = Change { path, effect, before: state, after: Some(content), counts: Counts::default() };
        Self::new(vec![change], kinds, found)
    }

    /// Draws the move of a file that is too large to be in memory: its bytes will lie in the run's `tmp/` under `name`.
    pub fn from_large_move(
        rules: &Rules,
        targets: Vec<Target>,
        from: &LogicalPath,
        to: &LogicalPath,
        name: String,
    ) -> Self {
        let found = Before::of(targets);
        let before = found.states.get(from).cloned();
        let after = before.as_ref().map(|state| Content {
            bytes: StepBytes::Staged(name),
            size_bytes: state.size_bytes,
            sha256: state.sha256,
            mode: state.mode,
        });
        let kind = before.as_ref().map_or(FileKind::Unknown, |state| state.kind);
        let kinds = BTreeMap::from([(from.clone(), kind), (to.clone(), rules.kind_of_path(to))]);
        let change = |path: &LogicalPath, effect, before, after| {
            let counts = Counts::default();
            Change { path: path.clone(), effect, before, after, counts }
        };
        let mut changes = vec![
            change(from, Effect::MoveFrom { to: to.clone() }, before, None),
            change(to, Effect::MoveTo { from: from.clone() }, None, after),
        ];
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Self::new(changes, kinds, found)
    }

    fn new(changes: Vec<Change>, kinds: BTreeMap<LogicalPath, FileKind>, found: Before) -> Self {
        let mut plan = Self {
            changes: ChangeSet { changes },
            diff: Vec::new(),
            kinds,
            before: found.bytes,
            unread: found.unread,
            incoming: found.incoming,
            written: BTreeMap::new(),
            seen: found.seen,
            ignored: found.ignored,
            output: Map::new(),
            summary: String::new(),
            warnings: Vec::new(),
            has_workspace_diff_hash: false,
        };
        plan.compute_diffs();
        plan
    }

    fn compute_diffs(&mut self) {
        for at in 0..self.changes.changes.len() {
            if let Some(diff) = self.diff_of(&self.changes.changes[at]) {
                let whole = self.counts_of_whole(&self.changes.changes[at]);
                let change = &mut self.changes.changes[at];
                change.counts = whole.unwrap_or(diff.counts);
                // Of a file that takes another's place the diff shows all, though lines of it may have been there.
                if let Some(bytes) = diff.bytes_written.filter(|_| change.effect == Effect::Replace) {
                    self.written.insert(change.path.clone(), bytes);
                }
                self.diff.extend_from_slice(&diff.text);
            }
        }
    }

    /// The counts of a change that is not compared line by line, since a text of it is too large: all lines go, and all come.
    fn counts_of_whole(&self, change: &Change) -> Option<Counts> {
        let path = &change.path;
        let moves = matches!(change.effect, Effect::MoveFrom { .. } | Effect::MoveTo { .. });
        if moves || !(self.unread.contains_key(path) || self.incoming.contains_key(path)) {
            return None;
        }
        let held = |bytes: &[u8]| Some(ScannedContent::of(bytes)).filter(|one| !one.is_binary).map(|one| one.lines);
        let old = match self.unread.get(path) {
            Some(lines) => Some(*lines),
            None => self.before.get(path).map_or(Some(0), |bytes| held(bytes)),
        };
        let new = match (self.incoming.get(path), change.after.as_ref().map(|content| &content.bytes)) {
            (Some(lines), _) => Some(*lines),
            (None, None) => Some(0),
            (None, Some(StepBytes::Inline(bytes))) => held(bytes),
            (None, Some(StepBytes::Staged(_))) => None,
        };
        // A binary file has no lines, nor has what comes into its place or out of it.
        Some(Counts { insertions: new?, deletions: old? })
    }

    /// The diff of one change. A move is one diff, told where it goes to.
    fn diff_of(&self, change: &Change) -> Option<FileDiff> {
        let old_path = match &change.effect {
            Effect::MoveFrom { .. } => return None,
            Effect::MoveTo { from } => from,
            Effect::Create | Effect::Replace | Effect::Delete => &change.path,
        };
        let old_mode = self.changes.changes.iter().find(|other| other.path == *old_path);
        let old_mode = old_mode.and_then(|other| other.before.as_ref()).map_or(0o644, |state| state.mode);
        // What is made in the place of a file that moves away is new, whatever was there.
        let before = if change.effect == Effect::Create { None } else { self.before.get(old_path) };
        let old = before.map(|bytes| Side { path: old_path, bytes, mode: old_mode });
        let new =
            change.after.as_ref().map(|content| Side { path: &change.path, bytes: shown(content), mode: content.mode });
        Some(diff_file(old, new))
    }

    /// The bytes that it has in memory: what is there, what will be, and the diff.
    pub fn held_bytes(&self) -> u64 {
        let after = self.changes.changes.iter().filter_map(|change| change.after.as_ref());
        let after: usize = after.map(|content| content.inline().len()).sum();
        let before: usize = self.before.values().map(Vec::len).sum();
        (before + after + self.diff.len()) as u64
    }

    /// The paths of the changes, sorted.
    pub fn paths(&self) -> Vec<LogicalPath> {
        self.changes.changes.iter().map(|change| change.path.clone()).collect()
    }

    /// The stamps of the files that the change was planned from.
    pub fn stamps(&self) -> &BTreeMap<LogicalPath, FileStamp> {
        &self.seen
    }

    /// The files before and after the changes, for the workspace's diff.
    pub fn planned_files(&self) -> Vec<PlannedFile> {
        let file = |change: &Change| PlannedFile {
            path: change.path.clone(),
            before: self.before.get(&change.path).cloned(),
            after: change.after.as_ref().map(|content| (content.inline().to_vec(), content.mode)),
        };
        self.changes.changes.iter().map(file).collect()
    }

    /// By how much the changes let the tree grow or shrink.
    pub fn disk_change(&self) -> DiskChange {
        let size = |bytes: Option<u64>| i64::try_from(bytes.unwrap_or(0)).unwrap_or(i64::MAX);
        let mut sum = DiskChange::default();
        for Change { before, after, .. } in &self.changes.changes {
            let before_bytes = size(before.as_ref().map(|state| state.size_bytes));
            let after_bytes = size(after.as_ref().map(|content| content.size_bytes));
            let files = i64::from(after.is_some()) - i64::from(before.is_some());
            sum += DiskChange { bytes: after_bytes.saturating_sub(before_bytes), files };
        }
        sum
    }

    /// The bytes of uploaded contents that lie beside the tree until the change is applied.
    pub fn uploaded_bytes(&self) -> u64 {
        let uploads = self.changes.changes.iter().filter(|change| !matches!(change.effect, Effect::MoveTo { .. }));
        let staged = uploads.filter_map(|change| change.after.as_ref()).filter_map(|content| match content.bytes {
            StepBytes::Staged(_) => Some(content.size_bytes),
            StepBytes::Inline(_) => None,
        });
        staged.sum()
    }

    /// The change at `path`.
    pub fn at(&self, path: &LogicalPath) -> Option<&Change> {
        self.changes.changes.iter().find(|change| change.path == *path)
    }

    /// What the judge asks of each change.
    /// `touched` tells whether the run has touched a path before.
    pub fn facts(&self, touched: impl Fn(&LogicalPath) -> bool) -> Vec<ChangeFacts<'_>> {
        self.changes.changes.iter().map(|change| self.facts_of(change, touched(&change.path))).collect()
    }

    fn facts_of<'a>(&'a self, change: &'a Change, touched_before: bool) -> ChangeFacts<'a> {
        let source = match &change.effect {
            Effect::MoveTo { from } => from,
            Effect::Create | Effect::Replace | Effect::Delete | Effect::MoveFrom { .. } => &change.path,
        };
        let old_mode = self.at(source).and_then(|source| source.before.as_ref()).map(|state| state.mode);
        let is_unread = self.unread.contains_key(source);
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
                (Some(old), Some(content)) => (old ^ content.mode) & 0o111 != 0,
                _ => false,
            },
            ignored: self.ignored.contains(&change.path),
            touched_before,
            old_text,
            new_text,
            not_compared: is_unread || self.incoming.contains_key(&change.path),
        }
    }

    /// Bytes that count against a budget of text; a binary file has the bound of its transfer instead, and what is moved
    /// was there before.
    fn text_bytes(&self, kind: FileKind, change: &Change) -> u64 {
        let Some(content) = &change.after else { return 0 };
        let is_text = match content.bytes {
            StepBytes::Inline(_) => kind != FileKind::Binary,
            StepBytes::Staged(_) => self.incoming.contains_key(&change.path),
        };
        if is_text { content.size_bytes } else { 0 }
    }
}

/// What the targets are now.
#[derive(Default)]
struct Before {
    states: BTreeMap<LogicalPath, FileState>,
    bytes: BTreeMap<LogicalPath, Vec<u8>>,
    unread: BTreeMap<LogicalPath, u64>,
    incoming: BTreeMap<LogicalPath, u64>,
    seen: BTreeMap<LogicalPath, FileStamp>,
    ignored: BTreeSet<LogicalPath>,
}

impl Before {
    fn of(targets: Vec<Target>) -> Self {
        let mut all = Self::default();
        for target in targets {
            if target.ignored {
                all.ignored.insert(target.path.clone());
            }
            if let Some(seen) = target.stamp {
                all.seen.insert(target.path.clone(), seen);
            }
            if let Some(scanned) = target.scanned {
                all.unread.insert(target.path.clone(), scanned.lines);
            }
            if let Some((state, bytes)) = target.before {
                all.states.insert(target.path.clone(), state);
                all.bytes.insert(target.path, bytes);
            }
        }
        all
    }
}

/// What a diff shows of new content: of a large file no bytes, but that it is none to be shown as text.
fn shown(content: &Content) -> &[u8] {
    match &content.bytes {
        StepBytes::Inline(bytes) => bytes,
        StepBytes::Staged(_) => &[0],
    }
}

/// The refusal of a text of `actual` bytes for `path`, which is more than the policy allows.
pub fn too_large(rules: &Rules, path: &LogicalPath, actual: u64) -> Refusal {
    let limit = rules.policy().max_file_bytes;
    let message = format!("`{path}` would have {actual} bytes; a text file may have {limit}");
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

/// The record's member `files` of a finished mutation.
pub fn record_files(plan: &ChangePlan) -> Vec<RecordFile> {
    let file = |change: &model::Change| RecordFile {
        kind: plan.kinds.get(&change.path).copied().unwrap_or(FileKind::Unknown),
        new_sha256: change.after.as_ref().map(|content| content.sha256),
        old_sha256: change.before.as_ref().map(|state| state.sha256),
        path: change.path.clone(),
    };
    plan.changes.changes.iter().map(file).collect()
}
