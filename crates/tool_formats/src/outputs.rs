//! The output of a command: the rest of it is read by a tool of the format, under a name that no file can have.

use engine::tools::text::{OutputPlace, quote};
use serde::Deserialize;

use crate::ToolFormat;
use crate::templates::at_line;

/// The folder that has an output under the ID of its command.
const FOLDER: &str = "/output/";

/// How a model reads more of an output.
#[derive(Deserialize)]
pub(crate) struct OutputReader {
    /// The tool and the argument, before the ID.
    pub(crate) with: String,
    /// The argument that says where to begin; `None` if the tool takes a session.
    from: Option<String>,
}

impl ToolFormat {
    /// Says how the model reads the output of the command with this ID from a place on.
    pub(crate) fn more_of_output(&self, id: &str, place: OutputPlace) -> String {
        let Some(OutputReader { with, from }) = &self.output else { return String::new() };
        match from {
            None => format!("{with}{} and no chars", quote::quoted(&write(id, place))),
            // An ID may have the sign that the place begins with.
            Some(from) if place.column.is_none() && !id.contains('@') => {
                format!("{with}{} and {}", quote::one_line(id), at_line(from, place.line))
            }
            Some(_) => format!("{with}{}", quote::one_line(&write(id, place))),
        }
    }
}

/// Returns the ID, and where the reading begins, in a path below the folder; `None` for another path.
pub(crate) fn of_path(path: &str) -> Option<&str> {
    path.strip_prefix(FOLDER).filter(|name| parse(name).is_some())
}

/// Returns the ID of a command and where in its output the reading begins, as [`write`] writes them.
pub(crate) fn parse(name: &str) -> Option<(&str, Option<OutputPlace>)> {
    let placed = name.rsplit_once('@').and_then(|(id, place)| {
        let (line, column) = place.split_once('.').map_or((place, None), |(line, column)| (line, Some(column)));
        let column = column.map(str::parse).transpose().ok()?;
        Some((id, OutputPlace { line: line.parse().ok()?, column }))
    });
    match placed {
        Some((id, place)) => (!id.is_empty()).then_some((id, Some(place))),
        None => (!name.is_empty()).then_some((name, None)),
    }
}

/// Writes the ID of a command and where in its output the reading begins.
fn write(id: &str, place: OutputPlace) -> String {
    match place.column {
        Some(column) => format!("{id}@{}.{column}", place.line),
        None => format!("{id}@{}", place.line),
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputPlace, parse, write};
    use crate::ToolFormat;

    #[test]
    fn a_place_in_an_output_is_read_as_it_is_written() {
        for id in ["tc_1", "a@b", "a@12", "é/@3.4"] {
            for column in [None, Some(16_001)] {
                let place = OutputPlace { line: 12, column };
                assert_eq!(parse(&write(id, place)), Some((id, Some(place))));
            }
        }
        assert_eq!(parse("tc_1"), Some(("tc_1", None)));
        assert_eq!(parse("tc_1@end"), Some(("tc_1@end", None)));
        assert_eq!((parse(""), parse("@1")), (None, None));
        let place = OutputPlace { line: 3, column: None };
        let more = |id: &str| ToolFormat::find("qwen").unwrap().more_of_output(id, place);
        assert_eq!(more("tc_1"), "read_file with file_path=/output/tc_1 and offset=2");
        assert_eq!(more("a@1"), "read_file with file_path=/output/a@1@3");
    }
}
