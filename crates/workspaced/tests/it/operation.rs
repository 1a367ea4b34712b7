//! Operating the service: start, shutdown, crashes, failing disks and databases, repair, deployment.

mod broken_runs;
mod concurrent_writers;
mod crash;
mod damaged_ledger;
mod deploy;
mod faults;
pub(crate) mod instances;
mod metrics;
mod power_loss;
mod process;
mod readme;
pub(crate) mod replay_and_repair;
mod restored_database;
mod sandbox;
mod shutdown;
mod uncertain_commits;
