//! What a runner reports of a command, and what the records say of it.

use model::{Refusal, RunId, Sha256};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::queue::QueuedCommand;
use crate::clock::parse_time;
use crate::tools::apply_changeset::OnDenied;
use crate::tools::run_command::{CommandChanges, LeftOutEntry, line_count};
use crate::tools::write_file::merge::OnConflict;

/// The longest duration that is recorded: a year.
const MAX_DURATION_MICROS: u64 = 31_536_000_000_000;
/// The largest description of an environment that is recorded, in bytes.
const MAX_ENVIRONMENT_BYTES: usize = 4096;
/// The most lines that an output is said to have: numbers above this are no integers to many readers.
pub(crate) const MAX_LINES: u64 = 1 << 53;
/// The bytes of the paths that are kept of those that cannot be part of a run, with why.
const MAX_LEFT_OUT_BYTES: usize = 8 * 1024;
/// The most paths that were put aside which a record names.
const MAX_PUT_ASIDE: usize = 100;
/// The largest end of an output in a result, in bytes.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// How a command ended, as its runner reports it.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "runner": "web-1", "exitCode": 0, "durationMicros": 412_345, "output": "ok\n", "outputLines": 1, "basedOnSeq": 41
}))]
pub struct CommandResultRequest {
    /// The runner's name.
    pub(crate) runner: String,
    /// The exit code; omitted if a signal has ended the command.
    #[serde(default)]
    pub(crate) exit_code: Option<i64>,
    /// The signal.
    #[serde(default)]
    pub(crate) signal: Option<i64>,
    /// Whether the runner ended it because its time was over.
    #[serde(default)]
    pub(crate) timed_out: bool,
    /// When it began, RFC 3339.
    #[serde(default)]
    pub(crate) started_at: Option<String>,
    /// How long it took, in microseconds.
    #[serde(default)]
    pub(crate) duration_micros: u64,
    /// The end of its output, at most 64 KiB. Credentials in it are redacted.
    #[serde(default)]
    pub(crate) output: String,
    /// Whether `output` begins within a line.
    #[serde(default)]
    pub(crate) output_start_cut: bool,
    /// How many lines the whole output has.
    #[serde(default)]
    pub(crate) output_lines: u64,
    /// SHA-256 of the whole output, if it was uploaded as an artifact.
    #[serde(default)]
    pub(crate) output_sha256: Option<Sha256>,
    /// What it ran in, such as `{"kind": "docker", "image": "sha256:…"}`.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(crate) environment: Option<Map<String, Value>>,
    /// The record at whose state the command found the tree. Required with a layer.
    #[serde(default)]
    pub(crate) based_on_seq: Option<u64>,
    /// What happens to a file that has changed in the run since `basedOnSeq`.
    #[serde(default = "merge")]
    pub(crate) on_conflict: OnConflict,
    /// What happens if a file is denied.
    #[serde(default = "leave")]
    pub(crate) on_denied: OnDenied,
    /// What it left that cannot be part of a run, such as a FIFO, a file that is too large, or a new folder of build output: the first of
    /// them. As many are kept as fit into 8 KiB.
    #[serde(default)]
    pub(crate) left_out: Vec<LeftOutEntry>,
    /// How many there are of those.
    #[serde(default)]
    pub(crate) left_out_count: u64,
    /// The paths whose content was not that of the run when it began, without which it is no evidence: at most 24 KiB of them. A folder, with a
    /// slash at its end, stands for new files in it. What a run never takes, such as build output, is left out of the record.
    #[serde(default)]
    pub(crate) differs: Vec<String>,
    /// How many there are, if not all are named.
    #[serde(default)]
    pub(crate) differs_count: u64,
    /// The paths whose content the run had not taken, and which gave way to the run's before it began: at most 100.
    #[serde(default)]
    pub(crate) put_aside: Vec<String>,
    /// How many there are, if not all are named.
    #[serde(default)]
    pub(crate) put_aside_count: u64,
    /// What its caller has to know of the files that it has seen.
    #[serde(default)]
    pub(crate) warning: Option<String>,
    /// Why the changes are not sent, if there are any.
    #[serde(default)]
    pub(crate) not_sent: Option<String>,
    /// Why the command could not be started. Nothing else is reported then.
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// Whether it could not be started because its folder is missing.
    #[serde(default)]
    pub(crate) no_folder: bool,
}

fn merge() -> OnConflict {
    OnConflict::Merge
}

fn leave() -> OnDenied {
    OnDenied::Leave
}

/// A command that has ended, for the answer to its caller.
pub(crate) struct EndedCommand {
    pub(crate) result: CommandResultRequest,
    pub(crate) event_seq: Option<u64>,
    pub(crate) changes: Option<CommandChanges>,
    /// The record's data of the command.
    pub(crate) data: Value,
}

impl CommandResultRequest {
    /// Returns why nothing of the command is applied. `is_cut_off` is that of a command with a layer that did not end by itself.
    pub(crate) fn not_applied(&self, is_cut_off: bool) -> Option<String> {
        if is_cut_off {
            let why =
                "the command did not end by itself, or its caller waits no more, so that its changes are not applied";
            return Some(why.to_owned());
        }
        self.not_sent.as_deref().map(|message| model::excerpt(message, 500))
    }

    pub(crate) fn check(&self, has_layer: bool) -> Result<(), Refusal> {
        if self.output.len() > MAX_OUTPUT_BYTES {
            let message = format!("`output` has {} bytes; the limit is {MAX_OUTPUT_BYTES}", self.output.len());
            return Err(Refusal::invalid(message, "Send the end of it, and upload the whole as an artifact.")
                .with_details(|details| {
                    (details.limit, details.actual) = (Some(MAX_OUTPUT_BYTES as u64), Some(self.output.len() as u64));
                }));
        }
        if has_layer && (self.based_on_seq.is_none() || self.error.is_some()) {
            let message = "`basedOnSeq` is missing, or there is an `error` beside a layer";
            return Err(Refusal::invalid(message, "Give the record at whose state the command found the tree."));
        }
        Ok(())
    }

    /// Returns as many of the paths that cannot be part of a run as are kept, and how many there are.
    pub(crate) fn left_out(&self) -> (Vec<LeftOutEntry>, u64) {
        let mut bytes = 0;
        let fits = |left: &&LeftOutEntry| {
            bytes += left.path.len() + left.why.len();
            bytes <= MAX_LEFT_OUT_BYTES
        };
        let kept: Vec<_> = self.left_out.iter().take_while(fits).cloned().collect();
        (kept, self.left_out_count.min(MAX_LINES).max(self.left_out.len() as u64))
    }

    /// Returns the paths that were put aside, and how many there are.
    fn put_aside(&self) -> (&[String], u64) {
        let named = &self.put_aside[..self.put_aside.len().min(MAX_PUT_ASIDE)];
        (named, self.put_aside_count.min(MAX_LINES).max(self.put_aside.len() as u64))
    }

    /// The event that records the command.
    pub(crate) fn event(&self, order: &QueuedCommand, run: &RunId, not_applied: Option<&str>) -> Map<String, Value> {
        let mut data = asked_members(&order.command, &order.cwd, None);
        data.insert("toolCallId".to_owned(), json!(order.id));
        data.insert("callSha256".to_owned(), json!(order.call_sha256));
        let mut add = |name: &str, value: Option<Value>| data.extend(value.map(|value| (name.to_owned(), value)));
        add("exitCode", self.exit_code.map(Value::from));
        add("signal", self.signal.map(Value::from));
        add("timedOut", self.timed_out.then_some(Value::Bool(true)));
        add("basedOnSeq", self.based_on_seq.map(Value::from));
        // What the runner says must not keep the command out of the record.
        let environment = self.environment.clone().map(Value::Object);
        add("environment", environment.filter(|environment| environment.to_string().len() <= MAX_ENVIRONMENT_BYTES));
        add("outputSha256", self.output_sha256.map(|sha256| json!(sha256)));
        add("output", self.output_sha256.map(|sha256| json!(format!("artifact://{run}/sha256/{sha256}"))));
        add(
            "outputLines",
            self.output_sha256.map(|_| json!(self.output_lines.min(MAX_LINES).max(line_count(&self.output)))),
        );
        let (left_out, count) = self.left_out();
        add("leftOut", (!left_out.is_empty()).then(|| json!(left_out)));
        add("leftOutCount", (count > 0).then(|| json!(count)));
        add("notApplied", not_applied.map(Value::from));
        add("differs", (!self.differs.is_empty() || self.differs_count > 0).then(|| json!(self.differs)));
        add("differsCount", (self.differs_count > 0).then(|| json!(self.differs_count.min(MAX_LINES))));
        let (put_aside, count) = self.put_aside();
        add("putAside", (count > 0).then(|| json!(put_aside)));
        add("putAsideCount", (count > 0).then(|| json!(count)));
        let mut event = summarised(&order.command, &self.ended(), data);
        let mut add = |name: &str, value: Option<Value>| event.extend(value.map(|value| (name.to_owned(), value)));
        add("kind", Some(json!("command")));
        add("durationMicros", Some(json!(self.duration_micros.min(MAX_DURATION_MICROS))));
        let started_at = self.started_at.clone().filter(|time| parse_time(time).is_ok());
        add("startedAt", started_at.map(Value::from));
        add("stepId", order.step_id.clone().map(Value::from));
        event
    }

    /// How the command ended, after its line.
    pub(crate) fn ended(&self) -> String {
        match (self.exit_code, self.signal) {
            _ if self.timed_out => ": its time was over".to_owned(),
            (Some(code), _) => format!(": exit {code}"),
            (None, Some(signal)) => format!(": signal {signal}"),
            (None, None) => ": no exit code".to_owned(),
        }
    }
}

/// What the record of a call says of the command.
pub(crate) fn asked_members(command: &str, cwd: &str, timeout_seconds: Option<u64>) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("command".to_owned(), json!(model::redact(command)));
    members.insert("cwd".to_owned(), json!(cwd));
    members.extend(timeout_seconds.map(|seconds| ("timeoutSeconds".to_owned(), json!(seconds))));
    members
}

/// Returns the input in a record: one line about a command, and the details, which are shown as those of an event.
pub(crate) fn summarised(command: &str, ended: &str, data: Map<String, Value>) -> Map<String, Value> {
    let line: String = command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let most = model::MAX_SUMMARY_CHARS.saturating_sub(ended.len() + 1);
    let summary = format!("{}{ended}", model::excerpt(&line, most));
    Map::from_iter([("summary".to_owned(), Value::from(summary)), ("data".to_owned(), Value::Object(data))])
}
