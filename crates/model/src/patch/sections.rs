//! The sections of a whole patch, in any of the formats.

use super::begin_patch_format::FORMAT_HINT;
use super::check::RawFilePatch;
use super::fault::{WHOLE_PATCH_HINT, invalid, shown};
use super::lines::Lines;
use super::numberless::END;
use super::{begin_patch_format, unified};
use crate::Refusal;

/// Reads a whole patch. A patch that begins with `*** Begin Patch` must have its end mark; in any other one it may follow.
pub(crate) fn parse(lines: &mut Lines<'_>) -> Result<Vec<RawFilePatch>, Refusal> {
    let mut files = Vec::new();
    let needs_end = lines.is_begin_patch_format();
    lines.skip_blank();
    if needs_end {
        lines.next();
    } else {
        unified::skip_mail(lines)?;
    }
    loop {
        lines.skip_blank();
        let (number, Some(line)) = (lines.number(), lines.peek()) else {
            if needs_end {
                return Err(invalid(lines.number(), "the patch ends without `*** End Patch`", FORMAT_HINT));
            }
            break;
        };
        if lines.header(line) == END && (needs_end || !files.is_empty()) {
            lines.next();
            if !lines.only_blank_from(0) {
                return Err(invalid(lines.number(), "text follows `*** End Patch`", "Send one patch alone."));
            }
            break;
        }
        if lines.is_signature() && !needs_end {
            break;
        }
        if let Some(file) = begin_patch_format::parse_section(lines)? {
            files.push(file);
        } else if let Some(file) = unified::parse_section(lines)? {
            files.push(file);
        } else if unified::is_announcement(lines) {
            lines.next();
        } else if needs_end {
            let message = format!("`{}` is not valid in a patch of this format", shown(line));
            return Err(invalid(number, message, FORMAT_HINT));
        } else {
            return Err(unified::not_understood(number, line, files.is_empty()));
        }
    }
    if files.is_empty() {
        let hint = if needs_end { FORMAT_HINT } else { WHOLE_PATCH_HINT };
        return Err(invalid(1, "the patch changes no file", hint));
    }
    Ok(files)
}
