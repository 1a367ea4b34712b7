//! Counters, histograms and gauges of calls and runs.

use std::time::Duration;

use model::{Draft, Outcome, Verdict};

/// Counts a run that could not be opened because its data is missing or damaged.
pub fn run_damaged() {
    metrics::counter!("workspaced_runs_broken_total").increment(1);
}

/// The metrics of a call, held until its record is durable.
pub struct CallMetrics {
    tool: String,
    decision: &'static str,
    outcome: &'static str,
    duration: Duration,
}

impl CallMetrics {
    /// Returns the metrics of the call in `draft`.
    pub fn of(draft: &Draft) -> Self {
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
            duration: Duration::from_micros(draft.duration_micros),
        }
    }

    /// Counts the call. Its record took `waited` to become durable.
    pub fn count(self, waited: Duration) {
        metrics::histogram!("workspaced_record_duration_seconds").record(waited);
        metrics::histogram!("workspaced_tool_call_duration_seconds", "tool" => self.tool.clone()).record(self.duration);
        let labels =
            [("tool", self.tool), ("decision", self.decision.to_owned()), ("outcome", self.outcome.to_owned())];
        metrics::counter!("workspaced_tool_calls_total", &labels).increment(1);
    }
}

/// Counts a request without a valid token.
pub fn authentication_failed() {
    metrics::counter!("workspaced_authentication_failures_total").increment(1);
}

/// Counts a request that was refused by a rate limit.
pub fn rate_limited() {
    metrics::counter!("workspaced_rate_limited_total").increment(1);
}

/// Counts a read that was cancelled: the client disconnected or the time limit was exceeded.
pub fn read_cancelled(tool: &'static str) {
    metrics::counter!("workspaced_reads_cancelled_total", "tool" => tool).increment(1);
}

/// Sets the gauges of open runs and imports in progress.
pub fn set_gauges(live_runs: usize, imports: usize) {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let (live_runs, imports) = (live_runs as f64, imports as f64);
    metrics::gauge!("workspaced_live_runs").set(live_runs);
    metrics::gauge!("workspaced_imports").set(imports);
}
