//! Every tool, declared once. Routes, the OpenAPI document and `GET /v1/tools` are generated from it.

pub(crate) mod apply_changeset;
mod apply_patch;
pub(crate) mod argument_forms;
mod bounds;
mod catalogue;
mod delete_file;
pub(crate) mod diff_workspace;
pub(crate) mod drift;
mod edit_file;
mod edits;
pub(crate) mod files;
pub(crate) mod find_files;
mod folder_op;
pub(crate) mod list_dir;
mod move_file;
pub(crate) mod read_file;
pub(crate) mod read_files;
mod replace_range;
mod revert_calls;
pub(crate) mod run_command;
pub(crate) mod search_text;
pub(crate) mod settle_drift;
pub(crate) mod stat_path;
pub mod text;
mod text_edit;
pub(crate) mod tree_stats;
pub(crate) mod write_file;

pub use crate::tool::Tool;
pub use crate::tool::change_plan::INLINE_BYTES;
pub use crate::tool::input::URI_SCHEME;
pub use crate::tool::outside_change::Accept;
pub use crate::tool::schema::merge_annotations;
pub use crate::tool::text::refusal_text;

pub use apply_changeset::{APPLY_CHANGESET, AppliedChangeset};
pub use argument_forms::ArgumentForms;
pub use bounds::ToolLimits;
pub use catalogue::{Audience, CATALOGUE, CatalogueView, ToolInfo, referring_input_schema, referring_output_schema};
pub use drift::DriftReport;
pub use files::{PUT, StoredFile};
pub use find_files::FindFilesOutput;
pub use list_dir::ListDirOutput;
pub use read_files::MAX_PATHS as MAX_READ_PATHS;
pub use run_command::{CommandChanges, RanCommand};
pub use search_text::SearchTextOutput;
pub use settle_drift::{SETTLE, SettledDrift};

/// Every tool, in the order of the catalogue.
pub static TOOLS: &[Tool] = &[
    list_dir::TOOL,
    read_file::TOOL,
    read_files::TOOL,
    stat_path::TOOL,
    find_files::TOOL,
    search_text::TOOL,
    tree_stats::TOOL,
    write_file::TOOL,
    edit_file::TOOL,
    replace_range::TOOL,
    apply_patch::TOOL,
    delete_file::TOOL,
    move_file::TOOL,
    diff_workspace::TOOL,
    revert_calls::TOOL,
    run_command::TOOL,
];

/// Returns the tool with `name`.
pub fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Returns the tool, the call of the files plane, or that of a change set, with the name in a record.
pub fn find_recorded(name: &str) -> Option<&'static Tool> {
    let others = [&files::GET, &files::PUT, &files::DELETE, &APPLY_CHANGESET];
    find(name).or_else(|| others.into_iter().find(|tool| tool.name == name))
}
