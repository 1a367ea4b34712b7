//! Numbers of records, as the database counts them.

use serde::Serialize;

use crate::RunId;

/// Numbers of records. Each record is counted in `records`, and in exactly one of the members from `reads` to `failed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatsCounts {
    /// All records.
    pub records: u64,
    /// Successful calls that change no file, exports included.
    pub reads: u64,
    /// Successful calls of tools that change files, dry runs included.
    pub changes: u64,
    /// Successful calls of `run_command`.
    pub commands: u64,
    /// Events, uploads, and operations on runs, tokens and operators.
    pub other: u64,
    /// Refused calls.
    pub refused: u64,
    /// Calls that asked for an approval. Those that were decided are counted again, by their outcome.
    pub pending: u64,
    /// Calls that failed by a fault of the service.
    pub failed: u64,
    /// Calls that policy or a person denied, and change sets of which policy denied an entry, which they left out.
    pub denied: u64,
    /// Those of `denied` that a person denied. Policy blocked the others.
    pub denied_by_person: u64,
}

/// Numbers of records of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStats {
    /// The run, or `_service` for changes of operators.
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// Its numbers.
    #[serde(flatten)]
    pub counts: StatsCounts,
}

/// Numbers of records of one hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HourStats {
    /// When the hour begins.
    #[schema(format = DateTime, example = "2026-01-01T13:00:00Z")]
    pub hour: String,
    /// Its numbers.
    #[serde(flatten)]
    pub counts: StatsCounts,
}

/// How often calls were not simply done for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasonStats {
    /// The outcome of the calls; `ok` for change sets that left out denied entries.
    #[schema(example = "refused")]
    pub outcome: String,
    /// The first rule that decided, or the code of the refusal if no rule did. `approval:RESULT` for what people decided.
    #[schema(example = "kind:SECRET_LIKE")]
    pub reason: String,
    /// The number of records.
    pub records: u64,
}

/// Counts of all records that a filter selects, as they were at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordStats {
    /// Of all of them.
    pub total: StatsCounts,
    /// By run, the one with the most records first. At most 1,000.
    pub runs: Vec<RunStats>,
    /// Number of runs that are left out of `runs`.
    pub more_runs: u64,
    /// Why calls were not simply done, the most frequent reason first. At most 100.
    pub reasons: Vec<ReasonStats>,
    /// Number of reasons that are left out of `reasons`.
    pub more_reasons: u64,
    /// By hour in UTC, in order. Hours without a record are left out, and all but the newest 744.
    pub hours: Vec<HourStats>,
}

impl StatsCounts {
    /// Adds the numbers of other records.
    pub fn add(&mut self, other: &Self) {
        let Self { records, reads, changes, commands, other: rest, refused, pending, failed, denied, denied_by_person } =
            self;
        *records += other.records;
        *reads += other.reads;
        *changes += other.changes;
        *commands += other.commands;
        *rest += other.other;
        *refused += other.refused;
        *pending += other.pending;
        *failed += other.failed;
        *denied += other.denied;
        *denied_by_person += other.denied_by_person;
    }
}
