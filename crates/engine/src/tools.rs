//! The catalogue: every tool, declared once. Routes, OpenAPI and `GET /v1/tools` are read off it.

mod apply_patch;
mod bounds;
mod catalogue;
mod delete_file;
mod diff_workspace;
mod edit_file;
pub mod files;
mod find_files;
mod list_dir;
mod move_file;
mod read_file;
mod read_files;
mod revert_calls;
mod schema;
mod search_text;
mod stat_path;
pub mod tree;
mod tree_stats;
mod write_file;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use model::{Code, FileKind, FileModes, LogicalPath, Permission, RecordFile, Refusal, Rules, Sha256, ToolCallId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use workspace::{Target, Transfer, Tree, Workspace, WorkspaceError};

use crate::change_plan::{ChangePlan, PathConflict};
use crate::history::content_history::Version;
use crate::history::snapshot::PastView;
use crate::runs::open_runs::Changed;
use crate::runs::quota::Reservation;

pub use bounds::ToolLimits;
pub use catalogue::{CATALOGUE, ToolInfo, input_schema, output_schema};
pub use schema::ToolSchema;

/// One tool.
pub struct Tool {
    /// Its name: of the route, the span and the OpenAPI operation too.
    pub name: &'static str,
    /// What it does and when to use it, for a model to read.
    pub description: &'static str,
    /// Whether it may look at the whole tree: such calls have places of their own, so that quick ones never wait for them.
    pub takes_long: bool,
    /// What a token needs: one of these at least; a mutation may ask for more once its effect is known.
    pub permissions: &'static [Permission],
    /// Members of the output that show content of files: emptied for callers without `file:read`.
    pub content: &'static [&'static str],
    /// The input's schema, without the members that every tool has.
    pub input: fn() -> ToolSchema,
    /// The output's schema, without the members that every answer has.
    pub output: fn() -> ToolSchema,
    /// How it is carried out.
    pub run: ToolRun,
}

/// How a tool is carried out.
#[derive(Clone, Copy)]
pub enum ToolRun {
    /// It looks, and tells.
    Read(Parse<dyn Read>),
    /// It plans a change set.
    Mutation(Parse<dyn Mutation>),
}

/// Parses a tool's own members.
pub type Parse<T> = fn(Map<String, Value>) -> Result<Box<T>, Refusal>;

/// The parsed input of a reading tool.
pub trait Read: Send {
    /// Looks without ever waiting for a disk, so that it needs no thread of its own; `None` where it would have to.
    fn try_read(&self, _context: &ReadContext<'_>) -> Option<Result<ReadOutput, WorkspaceError>> {
        None
    }

    /// Makes it tell no more than a caller without `file:read` may be told.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN` where its answer would show content whatever is left out of it.
    fn narrow(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// The record whose files are wanted, in place of those that are there now.
    fn looks_back(&self) -> Option<AtRecord> {
        None
    }

    /// Looks, where blocking is allowed.
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError>;

    /// The paths that the caller named: what a refusal is about.
    fn paths(&self) -> Vec<LogicalPath>;
}

/// What a reading tool works with.
pub struct ReadContext<'a> {
    /// The policy in force.
    pub rules: &'a Rules,
    /// The tree to look at: the run's own or a mount.
    pub tree: &'a Tree,
    /// The run's own, where no mount was named.
    pub workspace: Option<&'a Workspace>,
    /// Which of the workspace's files are known to differ from the base; of the run's own tree.
    pub changed: Option<&'a Changed>,
    /// The files at another time, for a tool that [looks back](Read::looks_back).
    pub past: Option<&'a PastView>,
    /// Set when the caller has gone away.
    pub cancel: &'a AtomicBool,
}

/// Which files are looked at in place of those that are there now.
#[derive(Clone, Debug)]
pub struct AtRecord {
    /// Those at this record.
    pub seq: u64,
    /// Whether the tool tells modes.
    pub with_modes: bool,
    /// The one path that the tool looks at; all of them where it is missing.
    pub only: Option<LogicalPath>,
}

impl<'a> ReadContext<'a> {
    /// The past that the call asked for, with the run that it is of.
    fn back(&self) -> Option<(&'a PastView, &'a Workspace)> {
        self.past.zip(self.workspace)
    }
}

/// What a reading tool tells.
pub struct ReadOutput {
    /// The output as JSON text: one object.
    pub output: String,
    /// Paths whose content or listing it tells, at most 1,000.
    pub paths_read: Vec<LogicalPath>,
    /// Files whose content it tells, with the version that was read.
    pub files: Vec<RecordFile>,
    /// What its record says besides.
    pub reasons: Vec<String>,
    /// The file to be sent, for the files plane.
    pub transfer: Option<Transfer>,
}

/// Leaves a member out that [`ReadOutput::with_text`] puts in.
pub fn told_apart(_: &&str) -> bool {
    true
}

impl ReadOutput {
    /// Serialises `output`.
    pub fn new(output: &impl Serialize, paths_read: Vec<LogicalPath>) -> Result<Self, WorkspaceError> {
        let output = serde_json::to_string(output).map_err(std::io::Error::other)?;
        Ok(Self { output, paths_read, files: Vec::new(), reasons: Vec::new(), transfer: None })
    }

    /// The same, with `text` as its member `name`: for what is mostly text, of which every character would be looked at one
    /// by one. `output` leaves the member out, by [`told_apart`].
    pub fn with_text(
        output: &impl Serialize,
        name: &str,
        text: &str,
        paths_read: Vec<LogicalPath>,
    ) -> Result<Self, WorkspaceError> {
        // As much as is asked for where every character takes six: what is not written to costs nothing.
        let mut json = Vec::with_capacity(text.len() * 6 + 1024);
        serde_json::to_writer(&mut json, output).map_err(std::io::Error::other)?;
        json.pop();
        if json.len() > 1 {
            json.push(b',');
        }
        json_escape_simd::escape_into(name, &mut json);
        json.push(b':');
        json_escape_simd::escape_into(text, &mut json);
        json.push(b'}');
        let output = String::from_utf8(json).map_err(std::io::Error::other)?;
        Ok(Self { output, paths_read, files: Vec::new(), reasons: Vec::new(), transfer: None })
    }

    /// The same, telling the content of a file at `version`.
    pub fn with_file(mut self, path: &LogicalPath, kind: FileKind, version: Sha256) -> Self {
        // The file is the same after the call as before it.
        let file = RecordFile { path: path.clone(), kind, old_sha256: Some(version), new_sha256: Some(version) };
        self.files.push(file);
        self
    }

    /// The same, with a file that was asked for and is not told, for the reason that `refusal` gives.
    pub fn with_refused(mut self, rules: &Rules, path: &LogicalPath, refusal: &Refusal) -> Self {
        let kind = rules.kind_of_path(path);
        self.files.push(RecordFile { path: path.clone(), kind, old_sha256: None, new_sha256: None });
        self.reasons.push(format!("{}: {path}", refusal.code));
        self
    }
}

/// The parsed input of a mutating tool. It describes; whether it may is decided in the pipeline.
pub trait Mutation: Send {
    /// Earlier calls that the plan needs; asked before anything else.
    fn history(&self) -> Option<History> {
        None
    }

    /// Takes the earlier calls that [`history`](Self::history) asked for.
    fn take_history(&mut self, _earlier: Earlier) -> Result<(), Refusal> {
        Ok(())
    }

    /// Every place that may change, each once.
    fn paths(&self) -> Vec<LogicalPath>;

    /// Those of [`paths`](Self::paths) that change if it is carried out, as far as that is known before any is looked at.
    fn changes(&self) -> Vec<LogicalPath> {
        self.paths()
    }

    /// Whether no other mutation of the run may be under way at the same time.
    fn exclusive(&self) -> bool {
        false
    }

    /// The version that the caller has seen at `path`, where it names one.
    fn seen(&self, _path: &LogicalPath) -> Option<Sha256> {
        None
    }

    /// Those of [`paths`](Self::paths) from which it may take a file away, so that another may come above or beneath.
    fn leaves(&self) -> Vec<LogicalPath> {
        Vec::new()
    }

    /// Looks at what is there; the answers stand in the order of [`paths`](Self::paths). Files that `go` in the same change
    /// are in no other's way.
    fn targets(
        &self,
        rules: &Rules,
        workspace: &Workspace,
        go: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        workspace.targets(rules, &self.paths(), go)
    }

    /// What the token needs, now that the effect is known; `None` where the tool's own permission is enough.
    fn permission(&self, _targets: &[Target]) -> Option<Permission> {
        None
    }

    /// The texts that the call brings along itself, each with its path: judged before anything of the tree is told.
    fn brings(&self) -> Vec<Brought> {
        Vec::new()
    }

    /// The refusal of a credential in what the call brings along outside of memory.
    fn brings_staged(&self, _targets: &[Target]) -> Option<Refusal> {
        None
    }

    /// What was reserved on the disk for what the call brings along outside of memory.
    fn take_reservation(&mut self) -> Option<Reservation> {
        None
    }

    /// Plans the change from what is there; `targets` stand in the order of [`paths`](Self::paths).
    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal>;

    /// The refusal of a plan that would leave a file and another beneath it.
    fn crossed(&self, crossing: PathConflict) -> Refusal {
        let PathConflict { above, beneath } = crossing;
        let message = format!("`{above}` would be a file, and `{beneath}` a file beneath it");
        Refusal::new(Code::NotADirectory, message, "Choose another path for one of the two.").at(&beneath)
    }
}

/// A text that a call brings along.
#[derive(Debug)]
pub struct Brought {
    /// Where it goes.
    pub path: LogicalPath,
    /// Where the text is that it is put into.
    pub into: LogicalPath,
    /// The text.
    pub text: Vec<u8>,
}

impl Brought {
    /// A text for the file at `path`.
    pub fn to(path: &LogicalPath, text: Vec<u8>) -> Self {
        Self { path: path.clone(), into: path.clone(), text }
    }
}

/// Which earlier calls a plan needs.
#[derive(Clone, Debug)]
pub enum History {
    /// The mutations under these IDs.
    Calls(Vec<ToolCallId>),
    /// Every mutation whose record comes after this one.
    After(u64),
}

/// An earlier call that has changed files: what undoing it needs of its record and its diff.
#[derive(Debug)]
pub struct PastCall {
    /// The number of its record.
    pub seq: u64,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The files that it has changed.
    pub files: Vec<RecordFile>,
    /// Whether its diff may name modes.
    pub may_change_modes: bool,
    /// The modes that its diff names.
    pub modes: Vec<FileModes>,
    /// The diff that it left. Empty where no file is to be brought back by it.
    pub diff: Vec<u8>,
}

/// Earlier calls, and what stood in their files before them.
#[derive(Debug)]
pub struct Earlier {
    /// The calls, oldest first.
    pub calls: Vec<PastCall>,
    /// Each file that was there before the first of the calls that changed it.
    pub files: Vec<EarlierFile>,
}

/// A file before some calls.
#[derive(Debug)]
pub struct EarlierFile {
    /// Where it was.
    pub path: LogicalPath,
    /// Hash of its bytes.
    pub sha256: Sha256,
    /// Its bytes, as far as they are kept.
    pub version: Version,
}

/// The paths whose contents differ before the first of `calls`, which are in order, and after the last: what changes when
/// they are all undone.
pub fn changed_paths<'a>(calls: impl IntoIterator<Item = &'a PastCall>) -> Vec<LogicalPath> {
    let mut versions = BTreeMap::new();
    for file in calls.into_iter().flat_map(|call| &call.files) {
        versions.entry(&file.path).or_insert((file.old_sha256, None)).1 = file.new_sha256;
    }
    versions.into_iter().filter(|(_, (before, after))| before != after).map(|(path, _)| path.clone()).collect()
}

/// What a plan is made with.
pub struct PlanContext<'a> {
    /// The policy in force.
    pub rules: &'a Rules,
    /// The commit that the run started from.
    pub base_commit: &'a str,
}

/// The most paths that a record names as read.
const MAX_PATHS_TOLD: usize = 1000;

/// Every tool, in the order of the catalogue.
pub static TOOLS: &[Tool] = &[
    list_dir::TOOL,
    read_file::TOOL,
    read_files::TOOL,
    stat_path::TOOL,
    find_files::TOOL,
    search_text::TOOL,
    tree_stats::TOOL,
    write_file::TOOL,
    edit_file::TOOL,
    apply_patch::TOOL,
    delete_file::TOOL,
    move_file::TOOL,
    diff_workspace::TOOL,
    revert_calls::TOOL,
];

/// The tool called `name`.
pub fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The tool or the call of the files plane that a record names.
pub fn find_recorded(name: &str) -> Option<&'static Tool> {
    find(name).or_else(|| [&files::GET, &files::PUT, &files::DELETE].into_iter().find(|tool| tool.name == name))
}

impl Tool {
    /// Whether it may change files.
    pub fn mutates(&self) -> bool {
        matches!(self.run, ToolRun::Mutation(_))
    }
}

/// Parses a tool's own members; unknown ones are refused.
fn parse<T: DeserializeOwned>(mut members: Map<String, Value>) -> Result<T, Refusal> {
    members.values_mut().for_each(make_whole);
    serde_json::from_value(Value::Object(members)).map_err(|error| {
        Refusal::invalid(
            format!("the input does not fit the tool: {}", model::json::shortened(&error)),
            "Compare the input with the tool's schema in GET /v1/tools.",
        )
    })
}

/// Takes a whole number as one however it is written, `1.0` too, and one that is too large for any count as the largest:
/// numbers above their bounds are taken as these.
fn make_whole(member: &mut Value) {
    let Value::Number(number) = member else { return };
    if let Some(real) = number.as_f64().filter(|real| number.is_f64() && *real >= 0.0 && real.fract() == 0.0) {
        *member = Value::from(format!("{real:.0}").parse::<u64>().unwrap_or(u64::MAX));
    }
}

/// Parses the path of a folder or of whatever stands there.
fn any_path(raw: &str) -> Result<LogicalPath, Refusal> {
    LogicalPath::parse(raw).map_err(|rule| Refusal::path(raw, rule))
}

/// Parses the path of a file.
fn file_path(raw: &str) -> Result<LogicalPath, Refusal> {
    LogicalPath::parse_file(raw).map_err(|rule| Refusal::path(raw, rule))
}

/// The default of every `path` that is optional.
fn root() -> String {
    ".".to_owned()
}

/// Takes a number above `most` as `most`.
///
/// # Errors
///
/// `INVALID_REQUEST` where it is below `least`.
fn bounded(name: &str, value: u64, least: u64, most: u64) -> Result<u64, Refusal> {
    if value < least {
        let message = format!("`{name}` is {value}, but at least {least} is needed");
        return Err(Refusal::invalid(message, format!("Give `{name}` as {least} or more, or leave it out."))
            .with_details(|details| (details.limit, details.actual) = (Some(least), Some(value))));
    }
    Ok(value.min(most))
}

/// The record's member `files` of a finished mutation.
pub fn record_files(planned: &ChangePlan) -> Vec<RecordFile> {
    let file = |change: &model::Change| RecordFile {
        kind: planned.kinds.get(&change.path).copied().unwrap_or(FileKind::Unknown),
        new_sha256: change.after.as_ref().map(|content| content.sha256),
        old_sha256: change.before.as_ref().map(|state| state.sha256),
        path: change.path.clone(),
    };
    planned.changes.changes.iter().map(file).collect()
}

/// The file at `path` is no text.
fn unsupported_binary(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::UnsupportedBinary,
        format!("`{path}` is a binary file"),
        "Tools work on text; leave binary files to the orchestrator.",
    )
    .at(path)
}

/// `what` puts characters into the file at `path` that it cannot hold.
fn not_encodable(what: &str, path: &LogicalPath) -> Refusal {
    let message = format!("{what} holds characters that the encoding of `{path}` does not have");
    Refusal::new(Code::UnsupportedBinary, message, "Keep to the file's own characters.").at(path)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ReadOutput, make_whole};

    #[test]
    fn whole_numbers_are_counts_however_they_are_written() {
        let table = [
            ("7", json!(7)),
            ("7.0", json!(7)),
            ("7e2", json!(700)),
            ("0.0", json!(0)),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!(u64::MAX)),
            ("99999999999999999999", json!(u64::MAX)),
            ("1e300", json!(u64::MAX)),
        ];
        for (text, want) in table {
            let mut value = serde_json::from_str(text).unwrap();
            make_whole(&mut value);
            assert_eq!(value, want, "{text}");
        }
        for text in ["-1", "-1.0", "-1e30", "1.5", "\"7.0\"", "[7.0]", "true", "null"] {
            let mut value = serde_json::from_str(text).unwrap();
            make_whole(&mut value);
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }

    fn told(output: &Value, text: &str) -> Value {
        serde_json::from_str(&ReadOutput::with_text(output, "content", text, Vec::new()).unwrap().output).unwrap()
    }

    #[test]
    fn a_text_is_told_as_it_is() {
        assert_eq!(told(&json!({}), "one"), json!({"content": "one"}));
        let every: String = ('\0'..='\u{3000}').chain(['\u{feff}', '\u{ffff}', '\u{10ffff}']).collect();
        assert_eq!(told(&json!({"path": "a"}), &every), json!({"path": "a", "content": every}));
        // What has to be written in another way, at every place of a vector and behind it.
        for hard in ['\0', '\n', '\u{1f}', '"', '\\', '\u{7f}', 'é', '😀'] {
            for before in 0..70 {
                let text = format!("{}{hard}{}", "a".repeat(before), "b".repeat(70 - before));
                assert_eq!(told(&json!({"path": "a"}), &text), json!({"path": "a", "content": text}));
            }
        }
    }
}
