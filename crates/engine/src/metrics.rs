//! Counters, histograms and gauges of calls and runs.

use std::time::Duration;

use ledger::{ConnectionCounts, Summary};
use model::{Code, Draft, Outcome, Record, RunState, Verdict};
use shared_pool::SharedPool;
use tracing::Span;

/// The target of spans that are for traces only. Logs leave them out.
pub const SPANS: &str = "otel";

/// Counts a call that found a run's data missing or damaged.
pub(crate) fn run_damaged() {
    metrics::counter!("workspaced_runs_broken_total").increment(1);
}

/// Counts a folder that was moved to `lost+found/` while the service runs.
pub(crate) fn folder_lost() {
    metrics::gauge!("workspaced_lost_folders").increment(1.0);
}

/// Counts a part of a base that was fetched from the object store.
pub(crate) fn base_part_fetched() {
    metrics::counter!("workspaced_base_parts_total").increment(1);
}

/// The metrics of a call, held until its record is durable.
pub(crate) struct CallMetrics {
    tool: String,
    decision: &'static str,
    outcome: &'static str,
    /// Why it was refused, if it was.
    code: Option<Code>,
    /// The rules that denied it or asked for approval.
    rules: Vec<String>,
    duration: Duration,
}

impl CallMetrics {
    /// Returns the metrics of the call in `draft`.
    pub(crate) fn of(draft: &Draft) -> Self {
        Self {
            tool: draft.tool.clone(),
            decision: match draft.decision {
                Verdict::Allow => "ALLOW",
                Verdict::RequireApproval => "REQUIRE_APPROVAL",
                Verdict::Deny => "DENY",
            },
            outcome: match draft.outcome {
                Outcome::Ok => "ok",
                Outcome::Refused => "refused",
                Outcome::Pending => "pending",
                Outcome::Failed => "failed",
            },
            code: draft.code,
            rules: match draft.decision {
                Verdict::Allow => rules_of(&draft.left.iter().map(|left| left.rule.clone()).collect::<Vec<_>>()),
                Verdict::RequireApproval | Verdict::Deny => rules_of(&draft.reasons),
            },
            duration: Duration::from_micros(draft.duration_micros),
        }
    }

    /// Adds what was recorded of the only call of an append to the call's span, which is the current one.
    pub(crate) fn add_to_span(&self, record: &Record) {
        let span = Span::current();
        span.record("seq", record.seq).record("decision", self.decision).record("outcome", self.outcome);
    }

    /// Makes a span of a call that was recorded together with others.
    pub(crate) fn span_of_batch_item(&self, record: &Record) {
        tracing::trace_span!(
            target: SPANS,
            "tool_call",
            tool.name = self.tool,
            run.id = record.run_id.as_str(),
            seq = record.seq,
            decision = self.decision,
            outcome = self.outcome,
        );
    }

    /// Counts the call. Its record took `waited` to become durable.
    pub(crate) fn count(self, waited: Duration) {
        metrics::histogram!("workspaced_record_duration_seconds").record(waited);
        metrics::histogram!("workspaced_tool_call_duration_seconds", "tool" => self.tool.clone()).record(self.duration);
        if let Some(code) = self.code {
            metrics::counter!("workspaced_refusals_total", "code" => code.as_str()).increment(1);
        }
        for rule in self.rules {
            metrics::counter!("workspaced_rule_refusals_total", "rule" => rule).increment(1);
        }
        let labels =
            [("tool", self.tool), ("decision", self.decision.to_owned()), ("outcome", self.outcome.to_owned())];
        metrics::counter!("workspaced_tool_calls_total", &labels).increment(1);
    }
}

/// Counts a request without a valid token.
pub(crate) fn authentication_failed() {
    metrics::counter!("workspaced_authentication_failures_total").increment(1);
}

/// Counts a request that was refused by a rate limit.
pub(crate) fn rate_limited() {
    metrics::counter!("workspaced_rate_limited_total").increment(1);
}

/// Counts a read that was cancelled: the client disconnected or the time limit was exceeded.
pub(crate) fn read_cancelled(tool: &'static str) {
    metrics::counter!("workspaced_reads_cancelled_total", "tool" => tool).increment(1);
}

/// Sets the gauges of open runs and imports in progress.
pub(crate) fn set_gauges(live_runs: usize, imports: usize) {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let (live_runs, imports) = (live_runs as f64, imports as f64);
    metrics::gauge!("workspaced_live_runs").set(live_runs);
    metrics::gauge!("workspaced_imports").set(imports);
}

/// Sets the gauges of runs and approvals. The oldest pending approval waits for `oldest_seconds`.
pub(crate) fn set_summary(summary: &Summary, oldest_seconds: f64) {
    for state in RunState::ALL {
        let count = summary.runs.iter().find(|(counted, _)| *counted == state).map_or(0, |(_, count)| *count);
        metrics::gauge!("workspaced_runs", "state" => state.as_str()).set(to_float(count));
    }
    metrics::gauge!("workspaced_approvals_pending").set(to_float(summary.pending_approvals));
    metrics::gauge!("workspaced_approvals_oldest_seconds").set(oldest_seconds);
}

/// Sets the gauges of the disk space of all runs, and of their history.
pub(crate) fn set_runs_bytes(bytes: u64, history_bytes: u64) {
    metrics::gauge!("workspaced_runs_bytes").set(to_float(bytes));
    metrics::gauge!("workspaced_history_bytes").set(to_float(history_bytes));
}

/// Records that a refused call was answered without a record, because the reserve of its run is used up.
pub(crate) fn refusal_unrecorded() {
    metrics::counter!("workspaced_unrecorded_refusals_total").increment(1);
}

/// Sets the gauges of the connections to the database.
pub(crate) fn set_connections(counts: ConnectionCounts) {
    let set = |state, count: usize| {
        metrics::gauge!("workspaced_database_connections", "state" => state).set(to_float(count as u64));
    };
    set("used", counts.used);
    set("idle", counts.idle);
    metrics::gauge!("workspaced_database_connections_max").set(to_float(counts.max as u64));
}

/// Sets the gauges of the permits of `pool`.
pub fn set_permits(pool: &SharedPool) {
    metrics::gauge!("workspaced_permits", "pool" => pool.name()).set(to_float(pool.total()));
    metrics::gauge!("workspaced_permits_free", "pool" => pool.name()).set(to_float(pool.free()));
}

/// Records that a call took a permit of `pool` after `waited`.
pub(crate) fn permit_taken(pool: &'static str, waited: Duration) {
    metrics::histogram!("workspaced_permit_wait_seconds", "pool" => pool).record(waited);
}

/// Adds to the number of open streams.
pub(crate) fn add_streams(difference: f64) {
    metrics::gauge!("workspaced_streams").increment(difference);
}

/// Records that changed files were synced to the disk.
pub(crate) fn synced(duration: Duration) {
    metrics::histogram!("workspaced_fsync_duration_seconds").record(duration);
}

#[expect(clippy::cast_precision_loss, reason = "an error of one in 2^52 does not matter in a metric")]
fn to_float(count: u64) -> f64 {
    count as f64
}

/// Families of reasons `FAMILY:NAME` whose names are ours, and therefore few. Other names contain globs, paths and IDs.
const NAMED_FAMILIES: [&str; 6] = ["kind", "requireApprovalIf", "budget", "runBudget", "quota", "permission"];
/// Families that are counted without their names.
const FAMILIES: [&str; 5] = ["deny", "read", "write", "credential", "secret"];
/// Reasons without a family.
const SINGLE: [&str; 6] = ["ignored", "hardLink", "read:no-match", "write:no-match", "maxRuns", "maxDiskBytes"];
/// Maximum length of the name of a rule, in bytes.
const MAX_RULE_BYTES: usize = 64;

/// Returns the rules that `reasons` name, each once.
fn rules_of(reasons: &[String]) -> Vec<String> {
    let mut rules: Vec<_> = reasons.iter().filter_map(|reason| rule_of(reason)).map(str::to_owned).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// Returns the rule of a reason, as a label with few values; `None` for a reason that names no rule.
fn rule_of(reason: &str) -> Option<&str> {
    if SINGLE.contains(&reason) {
        return Some(reason);
    }
    let (family, name) = reason.split_once(':')?;
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte));
    if NAMED_FAMILIES.contains(&family) && reason.len() <= MAX_RULE_BYTES && is_plain(name) {
        return Some(reason);
    }
    FAMILIES.into_iter().find(|known| *known == family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_contain_no_globs_paths_or_ids() {
        let reasons = [
            "kind:SECRET_LIKE",
            "deny:secret-plans/**",
            "write:no-match",
            "budget:maxBytes",
            "path: ../a",
            "approval:apr_1:denied",
            "requireApprovalIf:touchesLockfile",
            "kind:a b",
            "deny:other/**",
            "a message: with a colon",
        ];
        let rules = rules_of(&reasons.map(str::to_owned));
        assert_eq!(
            rules,
            ["budget:maxBytes", "deny", "kind:SECRET_LIKE", "requireApprovalIf:touchesLockfile", "write:no-match"]
        );
    }
}
