//! Standard output: tables and texts for people, JSON for programs.
//!
//! What agents and callers wrote is escaped for people, so that it cannot control the terminal.

use std::io::{self, IsTerminal as _, Write as _};

use jiff::Timestamp;
use serde::Serialize;

use crate::connection::{Connection, Env};
use crate::escape::{escape_line, escape_text};

/// A style of a text on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// Stressed.
    Bold,
    /// What succeeded or was added.
    Good,
    /// What failed or was removed.
    Bad,
    /// What asks for attention.
    Warning,
    /// Where in a file.
    Position,
}

/// Where and how a command prints.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether JSON is printed.
    pub is_json: bool,
    has_colors: bool,
    has_utc: bool,
    now: Timestamp,
}

impl Output {
    /// Prints as `connection` says, in colours only on a terminal that has some, and not if `NO_COLOR` is set.
    #[expect(clippy::disallowed_methods, reason = "how long ago something was depends on when it is printed")]
    pub fn new(connection: &Connection, env: &Env<'_>) -> Self {
        let is_set = |name| env(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env("TERM").is_none_or(|term| term == "dumb");
        let has_colors = io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb;
        Self { is_json: connection.json, has_colors, has_utc: connection.utc, now: Timestamp::now() }
    }

    /// Returns a time of the API for people: how long ago it was, or in how long it will be.
    pub fn time(self, rfc3339: &str) -> String {
        match rfc3339.parse::<Timestamp>() {
            Ok(time) if !self.has_utc => relative(time.as_second() - self.now.as_second()),
            _ => rfc3339.get(..19).map_or_else(|| rfc3339.to_owned(), |seconds| format!("{seconds}Z")),
        }
    }

    /// Returns a time in full, and how long ago it was.
    pub fn full_time(self, rfc3339: &str) -> String {
        match rfc3339.parse::<Timestamp>() {
            Ok(time) if !self.has_utc => {
                format!("{rfc3339} ({})", relative(time.as_second() - self.now.as_second()))
            }
            _ => rfc3339.to_owned(),
        }
    }

    /// Prints a note for people on standard error.
    pub fn note(self, text: &str) {
        // Nothing depends on it.
        let _ = writeln!(io::stderr().lock(), "{}", escape_line(text));
    }

    /// Prints a value as one line of JSON.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn json(self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(value).map_err(io::Error::other)?;
        text.push(b'\n');
        io::stdout().lock().write_all(&text)
    }

    /// Prints a line, which is escaped already.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn line(self, escaped: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{escaped}")
    }

    /// Prints a text of several lines, escaped, and ends its last line.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn text(self, text: &str) -> io::Result<()> {
        let mut escaped = escape_text(text);
        if !escaped.is_empty() && !escaped.ends_with('\n') {
            escaped.push('\n');
        }
        io::stdout().lock().write_all(escaped.as_bytes())
    }

    /// Prints a diff, escaped and in colours.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn diff(self, diff: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for line in diff.lines() {
            let style = match line.as_bytes() {
                [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'd', b'i', b'f', b'f', ..] => Style::Bold,
                [b'+', ..] => Style::Good,
                [b'-', ..] => Style::Bad,
                [b'@', ..] => Style::Position,
                _ => Style::Plain,
            };
            writeln!(out, "{}", self.styled(style, &escape_text(line)))?;
        }
        Ok(())
    }

    /// Prints rows under `titles`, in columns. The cells are escaped here.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn table(self, titles: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| escape_line(cell)).collect()).collect();
        let width = |column: usize| {
            let cells = std::iter::once(&titles).chain(&rows).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..titles.len()).map(width).collect();
        let line = |row: &[String]| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.line(&self.styled(Style::Bold, &line(&titles)))?;
        rows.iter().try_for_each(|row| self.line(&line(row)))
    }

    /// Prints names with their values, one a line. The values are escaped here.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn fields(self, fields: &[(&str, String)]) -> io::Result<()> {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        fields.iter().filter(|(_, value)| !value.is_empty()).try_for_each(|(name, value)| {
            let padding = width - name.len();
            self.line(&format!("{}{:padding$}  {}", self.styled(Style::Bold, name), "", escape_line(value)))
        })
    }

    /// Returns `text` in a style, where there are colours.
    pub fn styled(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Bold => "1",
            Style::Good => "32",
            Style::Bad => "31",
            Style::Warning => "33",
            Style::Position => "36",
            Style::Plain => return text.to_owned(),
        };
        if self.has_colors { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns a difference in seconds in its largest unit.
fn relative(seconds: i64) -> String {
    let (count, unit) = match seconds.unsigned_abs() {
        0..=4 => return "now".to_owned(),
        count @ 5..=119 => (count, "s"),
        count @ 120..=7_199 => (count / 60, "min"),
        count @ 7_200..=172_799 => (count / 3_600, "h"),
        count => (count / 86_400, "d"),
    };
    if seconds < 0 { format!("{count} {unit} ago") } else { format!("in {count} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_their_largest_unit() {
        let of = [0, -3, -59, -119, -120, -7_199, -7_200, -172_799, -172_800, 90, 600].map(relative);
        let expected =
            ["now", "now", "59 s ago", "119 s ago", "2 min ago", "119 min ago", "2 h ago", "47 h ago", "2 d ago"];
        assert_eq!(of[..9], expected);
        assert_eq!(of[9..], ["in 90 s", "in 10 min"]);
    }
}
