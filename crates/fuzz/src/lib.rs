//! What comes from outside, bent and broken.
//!
//! A target takes any bytes and panics where a promise of the code behind it does not hold. [`Driver`] makes inputs from a
//! target's corpus, the same for the same seed.

mod driver;
mod mutate;
mod target;

pub use driver::{Driver, Failure, attempt, corpus};
pub use target::{TARGETS, Target, target};
