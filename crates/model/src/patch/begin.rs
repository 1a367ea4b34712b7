//! The form that begins with `*** Begin Patch`.

use super::check::RawSection;
use super::fault::{WHOLE_PATCH_HINT, invalid};
use super::lines::Lines;
use crate::Refusal;

/// Reads a whole patch.
pub(super) fn parse(lines: &Lines<'_>) -> Result<Vec<RawSection>, Refusal> {
    Err(invalid(lines.number(), "this form of patch is not taken yet", WHOLE_PATCH_HINT))
}
