//! The administration commands, which work on a data folder and its database without a running service.

mod content_integrity;
mod log_check;
mod offline_run;
mod operator;
mod output;
mod repair;
mod replay;
mod verify;

pub use operator::operator;
pub use repair::repair;
pub use replay::replay;
pub use verify::verify;
