//! Counters and histograms of calls and runs.

use std::time::Duration;

use model::{Draft, Outcome, Verdict};

/// A run could not be opened, since its data is missing or damaged.
pub fn run_broken() {
    metrics::counter!("workspaced_runs_broken_total").increment(1);
}

/// What a record says about its call, kept until the record is durable.
pub struct CallMetrics {
    tool: String,
    decision: &'static str,
    outcome: &'static str,
    took: Duration,
}

impl CallMetrics {
    /// Of the call that `draft` tells of.
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
            took: Duration::from_micros(draft.duration_micros),
        }
    }

    /// Counts the call; its record took `waited` to become durable.
    pub fn count(self, waited: Duration) {
        metrics::histogram!("workspaced_record_duration_seconds").record(waited);
        metrics::histogram!("workspaced_tool_call_duration_seconds", "tool" => self.tool.clone()).record(self.took);
        let labels =
            [("tool", self.tool), ("decision", self.decision.to_owned()), ("outcome", self.outcome.to_owned())];
        metrics::counter!("workspaced_tool_calls_total", &labels).increment(1);
    }
}

/// A request came without a good token.
pub fn authentication_failed() {
    metrics::counter!("workspaced_authentication_failures_total").increment(1);
}

/// A token, or an address without one, made too many requests.
pub fn rate_limited() {
    metrics::counter!("workspaced_rate_limited_total").increment(1);
}

/// A look was broken off: its caller went away, or its time was over.
pub fn read_cancelled(tool: &'static str) {
    metrics::counter!("workspaced_reads_cancelled_total", "tool" => tool).increment(1);
}

/// How much the process holds.
pub fn set_gauges(live_runs: usize, imports: usize) {
    // Far below the numbers that a float cannot tell apart.
    #[expect(clippy::cast_precision_loss, reason = "counts of what is in memory")]
    let (live_runs, imports) = (live_runs as f64, imports as f64);
    metrics::gauge!("workspaced_live_runs").set(live_runs);
    metrics::gauge!("workspaced_imports").set(imports);
}
