//! The outputs of the tools as a model reads them, and the parts of that view that other formats use.

pub(crate) mod command;
pub(crate) mod diff;
pub(crate) mod files;
pub(crate) mod lists;
pub(crate) mod metadata;
pub(crate) mod search;

pub use crate::tool::expected_version::{SeenFault, seen_fault};
pub use crate::tool::text::lines::PushLine;
pub use crate::tool::text::notes::{counted, glob_notes, not_shown, thousands};
pub use crate::tool::text::refusal::refusal_text_with;
pub use crate::tool::text::{Rendered, quote};
pub use command::{CommandForm, OutputPlace};
pub use files::{PageForm, page_of_lines};
pub use lists::{notes_of_entry, notes_of_found};
pub use search::lines_of;
