//! The one way that a file changes.

/// What the mutation that is under way holds.
pub(crate) struct Lane {}
