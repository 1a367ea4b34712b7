//! The tools of the catalogue: every input with its default and bound, every member of the output, every refusal.

mod apply_patch;
mod batches;
mod diff_workspace;
mod edit_file;
mod examples;
mod file_dir_collisions;
mod file_forms;
mod find_files;
mod folders;
mod formats;
mod idempotency;
mod list_dir;
mod merged_writes;
mod names;
mod not_shown;
mod read_file;
mod regressions;
mod replace_range;
mod revert_calls;
mod search_text;
mod seen_versions;
mod text_pages;
mod text_sizes;
mod text_view;
mod write_file;
