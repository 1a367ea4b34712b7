//! What the administration commands print on standard output.

use std::io::{self, Write as _};

use model::{ChainReport, LogicalPath};
use workspace::{Drift, EntryState};

/// The most paths that one list prints.
const MAX_PATHS: usize = 100;

/// Prints a line.
pub(super) fn print(line: &str) {
    // Without a reader, the exit code still has the result.
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Prints a line about what is being done on standard error.
pub(super) fn progress(line: &str) {
    // The result is on standard output.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints the report of a run's chain.
pub(super) fn print_chain(report: &ChainReport) {
    match &report.first_break {
        None => {
            let missing = match report.missing_diffs {
                0 => String::new(),
                count => format!("; {count} diffs were deleted"),
            };
            let archived = match report.archived_records {
                0 => String::new(),
                count => format!("; {count} records before them are in the run's archive and were not checked"),
            };
            print(&format!(
                "{}: intact, {} records, head {}{missing}{archived}",
                report.run_id, report.records, report.head_hash
            ));
        }
        Some(found) => print(&format!("{}: BROKEN at seq {}: {}", report.run_id, found.seq, found.problem)),
    }
}

/// Prints the paths at which the workspace differs from the ledger.
pub(super) fn print_drift(drift: &[Drift]) {
    for Drift { path, expected, found } in drift.iter().take(MAX_PATHS) {
        print(&format!("  {}: expected {}, found {}", printable(path), describe(*expected), describe(*found)));
    }
    print_omitted(drift.len());
}

/// Prints paths, each after `label`.
pub(super) fn print_paths(label: &str, paths: &[LogicalPath]) {
    for path in paths.iter().take(MAX_PATHS) {
        print(&format!("  {label}: {}", printable(path)));
    }
    print_omitted(paths.len());
}

fn print_omitted(count: usize) {
    if count > MAX_PATHS {
        print(&format!("  and {} more", count - MAX_PATHS));
    }
}

/// Escapes a path with control characters, which could change the terminal.
fn printable(path: &LogicalPath) -> String {
    let has_control = path.as_str().chars().any(char::is_control);
    if has_control { path.as_str().escape_debug().to_string() } else { path.to_string() }
}

fn describe(state: EntryState) -> String {
    match state {
        EntryState::Nothing => "nothing".to_owned(),
        EntryState::File { sha256, executable: false } => sha256.to_string(),
        EntryState::File { sha256, executable: true } => format!("{sha256} (executable)"),
        EntryState::Link { sha256 } => format!("a link, {sha256}"),
        EntryState::Folder => "a folder".to_owned(),
        EntryState::Other => "something that is not a file".to_owned(),
    }
}
