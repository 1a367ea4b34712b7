mod apply;
mod begin_patch_format;
mod differential;
mod parse;
mod properties;

use super::*;
use crate::{Conflict, LineCounts, LogicalPath};

/// The only file of a patch of one file.
fn section(patch: &str) -> FilePatch {
    let patch = Patch::parse(patch).unwrap_or_else(|refusal| panic!("{refusal}:\n{patch}"));
    let [section] = <[FilePatch; 1]>::try_from(patch.files).unwrap();
    section
}

/// Applies a patch of one file to `before`.
fn apply(patch: &str, before: &str) -> Result<PatchResult, Vec<Conflict>> {
    section(patch).apply(before.as_bytes()).map_err(conflicts)
}

/// The conflicts of a fault that has to be one of hunks.
fn conflicts(fault: PatchFault) -> Vec<Conflict> {
    let PatchFault::Conflicts(conflicts) = fault else { panic!("{fault:?}") };
    conflicts
}

/// A patch of `f` with these hunks.
fn of_f(hunks: &str) -> String {
    format!("--- a/f\n+++ b/f\n{hunks}")
}
