//! What the administration commands print.

use std::io::{self, Write as _};

use model::{ChainReport, LogicalPath};
use workspace::{Drift, EntryState};

/// Paths that one list prints at most.
const MAX_PATHS: usize = 100;

/// Prints a line on standard output.
pub(crate) fn print(line: &str) {
    // A reader that has gone away has its exit code all the same.
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Prints what a check of a run's chain has found.
pub(crate) fn print_chain(report: &ChainReport) {
    match &report.first_break {
        None => {
            let missing = match report.missing_diffs {
                0 => String::new(),
                count => format!("; {count} diffs are not kept any more"),
            };
            print(&format!(
                "{}: intact, {} records, head {}{missing}",
                report.run_id, report.records, report.head_hash
            ));
        }
        Some(found) => print(&format!("{}: BROKEN at seq {}: {}", report.run_id, found.seq, found.problem)),
    }
}

/// Prints where the tree differs.
pub(crate) fn print_differences(differences: &[Drift]) {
    for Drift { path, expected, found } in differences.iter().take(MAX_PATHS) {
        print(&format!("  {}: expected {}, found {}", shown(path), standing(*expected), standing(*found)));
    }
    print_rest(differences.len());
}

/// Prints paths, each behind `what`.
pub(crate) fn print_paths(what: &str, paths: &[LogicalPath]) {
    for path in paths.iter().take(MAX_PATHS) {
        print(&format!("  {what}: {}", shown(path)));
    }
    print_rest(paths.len());
}

fn print_rest(count: usize) {
    if count > MAX_PATHS {
        print(&format!("  and {} more", count - MAX_PATHS));
    }
}

/// A path for a terminal, on which control characters might do something.
fn shown(path: &LogicalPath) -> String {
    let odd = path.as_str().chars().any(char::is_control);
    if odd { path.as_str().escape_debug().to_string() } else { path.to_string() }
}

fn standing(standing: EntryState) -> String {
    match standing {
        EntryState::Nothing => "nothing".to_owned(),
        EntryState::File { sha256, executable: false } => sha256.to_string(),
        EntryState::File { sha256, executable: true } => format!("{sha256} (executable)"),
        EntryState::Link { sha256 } => format!("a link, {sha256}"),
        EntryState::Folder => "a folder".to_owned(),
        EntryState::Other => "something that is no file".to_owned(),
    }
}
