//! The outputs of the tools as a model reads them.

pub(crate) mod command;
pub(crate) mod diff;
pub(crate) mod files;
pub(crate) mod lists;
pub(crate) mod metadata;
pub(crate) mod search;
