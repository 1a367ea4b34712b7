//! The table that `git diff --stat` prints, 80 columns wide.

use std::fmt::Write as _;

use model::quoted_name;

use crate::base::DiffFile;

/// The maximum width of the table.
const WIDTH: u64 = 80;

/// One row of the table.
pub(super) struct StatRow {
    pub(super) file: DiffFile,
    /// Sizes before and after, which git shows for binary files.
    pub(super) bytes: (u64, u64),
}

/// Formats the table of `rows`, the first of `files` rows. Empty if nothing differs.
pub(super) fn format(rows: &[StatRow], files: usize, insertions: u64, deletions: u64) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let names: Vec<_> = rows.iter().map(|row| quoted_name("", &row.file.path)).collect();
    let changes = |row: &StatRow| if row.file.binary { 0 } else { row.file.insertions + row.file.deletions };
    let most = rows.iter().map(changes).max().unwrap_or(0);
    let columns = Columns::fit(rows, &names, most);
    let mut out = String::new();
    for (row, name) in rows.iter().zip(&names) {
        write_row(&mut out, row, name, &columns, most);
    }
    // Writing to a string does not fail.
    if let Some(more) = files.checked_sub(rows.len()).filter(|more| *more > 0) {
        let _ = writeln!(out, " ... and {more} more file{}", if more == 1 { "" } else { "s" });
    }
    let _ = write!(out, " {files} file{} changed", if files == 1 { "" } else { "s" });
    if insertions > 0 || deletions == 0 {
        let _ = write!(out, ", {insertions} insertion{}(+)", if insertions == 1 { "" } else { "s" });
    }
    if deletions > 0 || insertions == 0 {
        let _ = write!(out, ", {deletions} deletion{}(-)", if deletions == 1 { "" } else { "s" });
    }
    out.push('\n');
    out
}

/// The widths of the columns.
struct Columns {
    name: u64,
    number: u64,
    graph: u64,
}

impl Columns {
    fn fit(rows: &[StatRow], names: &[String], most: u64) -> Self {
        let longest = names.iter().map(|name| width(name)).max().unwrap_or(0);
        let binary = |row: &StatRow| 14 + digits(row.bytes.0) + digits(row.bytes.1);
        let widest_binary = rows.iter().filter(|row| row.file.binary).map(binary).max();
        let number = digits(most).max(if widest_binary.is_some() { 3 } else { 0 });
        let whole = WIDTH.max(16 + 6 + number);
        let wanted = widest_binary.map_or(most, |binary| if most + 4 > binary { most } else { binary - 4 });
        let (mut name, mut graph) = (longest, wanted);
        if name + number + 6 + graph > whole {
            if graph > whole * 3 / 8 - number - 6 {
                graph = (whole * 3 / 8 - number - 6).max(6);
            }
            if name > whole - number - 6 - graph {
                name = whole - number - 6 - graph;
            } else {
                graph = whole - number - 6 - name;
            }
        }
        Self { name, number, graph }
    }
}

fn write_row(out: &mut String, row: &StatRow, name: &str, columns: &Columns, most: u64) {
    let (prefix, name, available) = shorten(name, columns.name);
    let padding = usize::try_from(available.saturating_sub(width(name))).unwrap_or(0);
    let number = usize::try_from(columns.number).unwrap_or(0);
    let _ = write!(out, " {prefix}{name}{:padding$} | ", "");
    if row.file.binary {
        let _ = write!(out, "{:>number$}", "Bin");
        if row.bytes != (0, 0) {
            let _ = write!(out, " {} -> {} bytes", row.bytes.0, row.bytes.1);
        }
        out.push('\n');
        return;
    }
    let total = row.file.insertions + row.file.deletions;
    let _ = write!(out, "{total:>number$}{}", if total > 0 { " " } else { "" });
    let (plus, minus) = scaled(row.file.insertions, row.file.deletions, columns.graph, most);
    out.extend(std::iter::repeat_n('+', usize::try_from(plus).unwrap_or(0)));
    out.extend(std::iter::repeat_n('-', usize::try_from(minus).unwrap_or(0)));
    out.push('\n');
}

/// Returns the end of a name that is too long, from a `/` on if there is one, with a prefix and the width available for it.
fn shorten(name: &str, available: u64) -> (&'static str, &str, u64) {
    if width(name) <= available {
        return ("", name, available);
    }
    let available = available.saturating_sub(3);
    let mut rest = name;
    while width(rest) > available {
        let mut characters = rest.chars();
        characters.next();
        rest = characters.as_str();
    }
    ("...", rest.find('/').map_or(rest, |slash| &rest[slash..]), available)
}

fn scaled(plus: u64, minus: u64, graph: u64, most: u64) -> (u64, u64) {
    if graph > most {
        return (plus, minus);
    }
    let linear = |count: u64| if count == 0 { 0 } else { 1 + count * (graph - 1) / most };
    let mut total = linear(plus + minus);
    if total < 2 && plus > 0 && minus > 0 {
        total = 2;
    }
    if plus < minus {
        let plus = linear(plus);
        (plus, total - plus)
    } else {
        let minus = linear(minus);
        (total - minus, minus)
    }
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

/// The number of columns that a name takes; quoted names are ASCII.
fn width(name: &str) -> u64 {
    name.len() as u64
}
