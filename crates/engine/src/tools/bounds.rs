//! The limits of the tools.

use model::{MAX_LINE_CHARS, MAX_PATH_BYTES, MAX_TOOL_CALL_ID};
use serde::Serialize;
use workspace::{MAX_ENTRIES_BYTES, RANGED_READ_FACTOR};

use super::{find_files, list_dir, read_file, read_files, revert_calls, search_text};
use crate::tool::input::{MAX_REASON, MAX_STEP_ID};
use crate::tools::text::diff::MAX_DIFF_BYTES;

/// The limits of the tools' inputs and outputs. Numbers above their limit are taken as the limit, except for lengths.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolLimits {
    /// The maximum length of a path, in bytes.
    max_path_bytes: usize,
    /// The maximum length of `reason`.
    max_reason_characters: usize,
    /// The maximum length of `toolCallId`.
    max_tool_call_id_characters: usize,
    /// The maximum length of `stepId`.
    max_step_id_characters: usize,
    /// The approximate maximum size of the entries that `list_dir`, `find_files`, `diff_workspace` (in `files`) and a run's
    /// drift return, in bytes.
    max_entries_bytes: usize,
    /// The maximum `maxDepth` of `list_dir`.
    list_dir_max_depth: u64,
    /// The maximum `maxEntries` of `list_dir`.
    list_dir_max_entries: u64,
    /// The maximum `maxLines` of `read_file`.
    read_file_max_lines: u64,
    /// The maximum content of a `read_file` response, in bytes.
    read_file_max_content_bytes: usize,
    /// The length at which `read_file` with `format: numbered` cuts lines.
    read_file_max_line_characters: usize,
    /// The maximum number of `paths` of `read_files`.
    read_files_max_paths: usize,
    /// The maximum content of a `read_files` response, in bytes.
    read_files_max_content_bytes: usize,
    /// The maximum number of entries of `glob` of `find_files`.
    find_files_max_globs: usize,
    /// The maximum `maxResults` of `find_files`.
    find_files_max_results: u64,
    /// The maximum length of `query` of `search_text`.
    search_text_max_query_bytes: usize,
    /// The maximum number of entries of `includeGlob`, and of `excludeGlob`.
    search_text_max_globs: usize,
    /// The maximum `maxMatches` of `search_text`.
    search_text_max_matches: u64,
    /// The maximum `contextLines` of `search_text`.
    search_text_max_context_lines: u64,
    /// The time after which a search ends and returns the matches found so far, in seconds.
    search_text_max_seconds: u64,
    /// `read_file` and `search_text` read files of up to `maxFileBytes` times this factor.
    ranged_read_factor: u64,
    /// The maximum `maxBytes` of `diff_workspace`.
    diff_workspace_max_bytes: u64,
    /// The maximum number of `toolCallIds` of `revert_calls`.
    revert_calls_max_calls: usize,
}

impl ToolLimits {
    /// The limits in force.
    pub const VALUES: Self = Self {
        max_path_bytes: MAX_PATH_BYTES,
        max_reason_characters: MAX_REASON,
        max_tool_call_id_characters: MAX_TOOL_CALL_ID,
        max_step_id_characters: MAX_STEP_ID,
        max_entries_bytes: MAX_ENTRIES_BYTES,
        list_dir_max_depth: list_dir::MAX_DEPTH,
        list_dir_max_entries: list_dir::MAX_ENTRIES,
        read_file_max_lines: read_file::MAX_LINES,
        read_file_max_content_bytes: read_file::MAX_CONTENT_BYTES,
        read_file_max_line_characters: MAX_LINE_CHARS,
        read_files_max_paths: read_files::MAX_PATHS,
        read_files_max_content_bytes: read_files::MAX_CONTENT_BYTES,
        find_files_max_globs: find_files::MAX_GLOBS,
        find_files_max_results: find_files::MAX_RESULTS,
        search_text_max_query_bytes: search_text::MAX_QUERY_BYTES,
        search_text_max_globs: search_text::MAX_GLOBS,
        search_text_max_matches: search_text::MAX_MATCHES,
        search_text_max_context_lines: search_text::MAX_CONTEXT_LINES,
        search_text_max_seconds: search_text::MAX_TIME.as_secs(),
        ranged_read_factor: RANGED_READ_FACTOR,
        diff_workspace_max_bytes: MAX_DIFF_BYTES,
        revert_calls_max_calls: revert_calls::MAX_CALLS,
    };
}
