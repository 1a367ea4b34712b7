//! Exact counts of records, which the database computes.

use async_recursion::async_recursion as boxed;

use ledger::StatsFilter;
use model::{By, RecordStats, Refusal};
use serde::{Deserialize, Serialize};

use super::{Audit, FilterByRun};
use crate::CallError;
use crate::page::conditions::time;

/// Which records are counted.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct StatsQuery {
    /// Only records at or after this time, RFC 3339.
    #[param(example = "2026-01-01T00:00:00Z")]
    since: Option<String>,
    /// Only records before this time, RFC 3339.
    until: Option<String>,
    /// Only records by the agent, by operators, or by the service. Default: all.
    by: Option<By>,
}

/// Counts of records.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Stats)]
pub struct AuditStats {
    /// The time from which records are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// The time before which they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// The counts.
    #[serde(flatten)]
    counts: RecordStats,
}

impl StatsQuery {
    /// Returns the filter for the ledger.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn to_ledger(&self, run: &FilterByRun) -> Result<StatsFilter, Refusal> {
        let (since, until) = (time("since", self.since.as_deref())?, time("until", self.until.as_deref())?);
        Ok(StatsFilter { run: run.run()?, since, until, by: self.by })
    }
}

impl Audit {
    /// Counts the records that match `filter`. Those of an archived run are in its archive, and are not counted.
    ///
    /// # Errors
    ///
    /// `RUN_CLOSED` if the run of the filter is archived.
    #[boxed]
    pub async fn stats(&self, filter: StatsFilter) -> Result<AuditStats, CallError> {
        self.check_not_archived(filter.run.as_ref()).await?;
        let counts = self.engine.ledger.record_stats(&filter).await?;
        Ok(AuditStats { since: filter.since, until: filter.until, counts })
    }
}
