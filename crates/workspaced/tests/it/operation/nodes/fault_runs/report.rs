//! What is said of each run, and of all.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use super::PathBuf;
use super::checker::History;
use super::cluster::Cluster;
use super::faults::{Fault, OF_NODES, OF_WAYS};

/// How one run has ended.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) made: BTreeMap<Fault, u32>,
    pub(crate) requests: u64,
    /// Requests with an answer that is not "try again".
    pub(crate) acknowledged: u64,
    pub(crate) took: Duration,
    pub(crate) violations: Vec<String>,
}

impl Verdict {
    /// The verdict of a run that has not ended.
    pub(crate) fn of_panic(name: String, error: &tokio::task::JoinError) -> Self {
        let violations = vec![format!("the run has not ended: {error}")];
        Self { name, made: BTreeMap::new(), requests: 0, acknowledged: 0, took: Duration::ZERO, violations }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<_> = self.made.iter().map(|(fault, count)| format!("{fault:?} {count}")).collect();
        let word = if self.violations.is_empty() { "agrees" } else { "VIOLATED" };
        write!(
            f,
            "{}: {word}: {}; {} requests, {} acknowledged, {:.0} s",
            self.name,
            faults.join(", "),
            self.requests,
            self.acknowledged,
            self.took.as_secs_f64()
        )?;
        for violation in self.violations.iter().take(10) {
            write!(f, "\n    {}", violation.chars().take(3000).collect::<String>())?;
        }
        Ok(())
    }
}

/// Returns how often each kind of fault was made, and how many runs have failed.
pub(crate) fn summary(verdicts: &[Verdict]) -> String {
    let mut table = String::new();
    for fault in OF_NODES.iter().chain(&OF_WAYS) {
        let count: u32 = verdicts.iter().filter_map(|verdict| verdict.made.get(fault)).sum();
        writeln!(table, "{:16}{count:6}", format!("{fault:?}")).unwrap();
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.violations.is_empty()).count();
    let [requests, acknowledged] = [|verdict: &Verdict| verdict.requests, |verdict: &Verdict| verdict.acknowledged]
        .map(|of| verdicts.iter().map(of).sum::<u64>());
    write!(table, "{} runs, {failed} failed, {requests} requests, {acknowledged} acknowledged", verdicts.len())
        .unwrap();
    table
}

/// Keeps the logs and the history of a run that has failed, if a folder is set for it.
pub(crate) fn keep(verdict: &Verdict, cluster: &Cluster, histories: &[History]) {
    let Some(folder) = std::env::var_os("WORKSPACED_FAULT_KEEP").filter(|_| !verdict.violations.is_empty()) else {
        return;
    };
    let folder = PathBuf::from(folder).join(verdict.name.replace(' ', "-"));
    std::fs::create_dir_all(&folder).unwrap();
    for (number, node) in cluster.nodes.iter().enumerate() {
        std::fs::write(folder.join(format!("node-{number}.log")), node.server.log()).unwrap();
    }
    for history in histories {
        let calls: Vec<_> = history.calls.iter().map(|call| format!("{call:?}")).collect();
        let records: Vec<_> = history.records.iter().map(ToString::to_string).collect();
        std::fs::write(folder.join(format!("{}.calls", history.run)), calls.join("\n")).unwrap();
        std::fs::write(folder.join(format!("{}.records", history.run)), records.join("\n")).unwrap();
    }
    std::fs::write(folder.join("violations"), verdict.violations.join("\n\n")).unwrap();
}
