//! The administration commands, which work on a data folder and its database without a running service.

mod archive;
mod backup;
mod content_integrity;
mod key;
mod log_check;
mod offline_run;
mod output;
mod repair;
mod replay;
mod restore;
mod verify;

pub use archive::{ArchivesFound, archive};
pub use backup::backup;
pub use key::key;
pub use repair::repair;
pub use replay::replay;
pub use restore::restore;
pub use verify::verify;
