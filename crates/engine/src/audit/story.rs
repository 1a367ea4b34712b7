//! Verification of a run's story: its hash chain, and that each record begins where the record before it, or the base, has ended.

use async_recursion::async_recursion as boxed;
use std::io;
use std::sync::Arc;

use ledger::EachRecord;
use model::{ChainBreak, ChainReport, FirstVersions, Policy, RunId, Verdict};
use workspace::Base;

use crate::CallError;
use crate::audit::Audit;

impl Audit {
    /// Verifies the chain of `run`, and that each record continues what the records before it, or the base, have left. `each`
    /// receives the valid records, in order. The base is compared if its files are here.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; the errors of the ledger and of the disk.
    #[boxed]
    pub async fn verify_story(&self, run: &RunId, each: &mut EachRecord<'_>) -> Result<ChainReport, CallError> {
        let mut first = FirstVersions::default();
        let mut push = |record: &model::Record| {
            first.push(record);
            each(record);
        };
        let mut report = self.engine.ledger.verify_each(run, &mut push).await?;
        if report.archived_records > 0 || first.is_empty() {
            return Ok(report);
        }
        let Some(stored) = self.engine.ledger.run(run).await? else { return Ok(report) };
        let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.clone());
        let found = self.engine.blocking(move || match workspaces.base(&id) {
            // The files of the run are on another node, or deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
            Ok(base) => Ok(find_break(&base, &stored.run.policy, &first)?),
        });
        if let Some(found) = found.await? {
            report.add_discontinuity(found);
        }
        Ok(report)
    }
}

/// Returns the first record that begins with another version of a file than the base has.
///
/// # Errors
///
/// If the disk fails.
pub fn find_break(base: &Base, policy: &Policy, first: &FirstVersions) -> io::Result<Option<ChainBreak>> {
    let found = first.find_break(|path| {
        let started = base.file(path)?.map(|file| file.sha256);
        // Files that git ignored were in the tree without being in the base. Calls change them only if the policy lets them.
        let is_unknown = started.is_none() && policy.ignored_files != Verdict::Deny;
        Ok::<_, io::Error>((!is_unknown).then_some(started))
    })?;
    Ok(found.map(|(seq, problem)| ChainBreak { seq, problem }))
}
