//! Operating the service: start, shutdown, crashes, failing disks and databases, repair, deployment.

mod archives;
mod backup;
mod broken_runs;
mod concurrent_writers;
mod crash;
mod damaged_ledger;
mod deploy;
mod faults;
mod folder_history;
pub(crate) mod guides;
pub(crate) mod instances;
mod ledger_size;
mod metrics;
mod metrics_listener;
pub(crate) mod nodes;
mod power_loss;
mod process;
mod readme;
pub(crate) mod replay_and_repair;
mod restored_database;
mod sandbox;
pub(crate) mod secret_rotation;
mod shutdown;
mod traces;
pub(crate) mod uncertain_commits;
mod webhooks;
