//! The output of a command, of which a form's own tools read what an answer does not show.
//!
//! It has a name that no file of a run can have: an absolute path outside of the root, or the session of a process.

use model::{Refusal, excerpt};
use serde_json::json;

use super::{AsWritten, MappedCall};
use crate::tool::text::quote;
use crate::tools::text::command::{CommandForm, OutputPlace};

/// The folder that has an output under the ID of its command.
const FOLDER: &str = "/output/";

/// Returns the ID of a command and where in its output the reading begins, as [`session`] writes them.
fn parse(name: &str) -> Option<(&str, Option<OutputPlace>)> {
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

/// How a path is read on from a line of an output.
fn path_of(id: &str, place: OutputPlace, from_line: fn(u64) -> String) -> String {
    // An ID may have the sign that the place begins with.
    if place.column.is_some() || id.contains('@') {
        quote::one_line(&format!("{FOLDER}{}", write(id, place))).into_owned()
    } else {
        format!("{} and {}", quote::one_line(&format!("{FOLDER}{id}")), from_line(place.line))
    }
}

/// How a model of Anthropic's toolset reads more of an output.
pub(super) fn by_view_range(id: &str, place: OutputPlace) -> String {
    format!("read with file_path={}", path_of(id, place, |line| format!("view_range=[{line}, -1]")))
}

/// How a model of Gemini reads more of an output.
pub(super) fn by_start_line(id: &str, place: OutputPlace) -> String {
    format!("read_file with file_path={}", path_of(id, place, |line| format!("start_line={line}")))
}

/// How a model of Qwen reads more of an output.
pub(super) fn by_offset(id: &str, place: OutputPlace) -> String {
    format!("read_file with file_path={}", path_of(id, place, |line| format!("offset={}", line.saturating_sub(1))))
}

/// How a model of Codex reads more of an output.
pub(super) fn by_session(id: &str, place: OutputPlace) -> String {
    format!("write_stdin with session_id={} and no chars", quote::quoted(&write(id, place)))
}

/// Returns the call that reads an output, if that is what the path names. It has at most `lines` lines from `start` on.
pub(super) fn read(
    asked: &AsWritten,
    start: u64,
    lines: u64,
    more: fn(&str, OutputPlace) -> String,
) -> Option<MappedCall> {
    let (id, place) = parse(asked.path.strip_prefix(FOLDER)?)?;
    let place = place.unwrap_or(OutputPlace { line: start, column: None });
    let form = CommandForm { lines: Some(lines), ..CommandForm::of(more) };
    Some(reading(asked.clone(), id, place, None, form))
}

/// Returns the call that reads on in the output of a process that has exited.
///
/// # Errors
///
/// If the session is not one that an answer has named, or if something is to be written to it.
pub(super) fn read_on(asked: AsWritten, chars: &str, max_chars: Option<u64>) -> Result<MappedCall, Refusal> {
    let session = asked.path.clone();
    let (id, place) = parse(&session).ok_or_else(|| Refusal::invalid("`session_id` is empty", "Give a session."))?;
    if !chars.is_empty() {
        let message = format!("write_stdin failed: the process of session {} has exited", excerpt(&session, 200));
        return Err(Refusal::invalid(message, "Leave `chars` out to read its output, or start it anew."));
    }
    let place = place.unwrap_or(OutputPlace { line: 1, column: None });
    Ok(reading(asked, id, place, max_chars, CommandForm { is_process: true, ..CommandForm::of(by_session) }))
}

fn reading(asked: AsWritten, id: &str, place: OutputPlace, max_chars: Option<u64>, form: CommandForm) -> MappedCall {
    let input =
        json!({ "outputOf": id, "startLine": place.line.max(1), "column": place.column, "maxChars": max_chars });
    MappedCall::new("run_command", asked, input, Box::new(move |answer| form.render(answer)))
}

#[cfg(test)]
mod tests {
    use super::{OutputPlace, parse, path_of, write};

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
        let from_line = |line| format!("offset={line}");
        let place = OutputPlace { line: 3, column: None };
        assert_eq!(path_of("tc_1", place, from_line), "/output/tc_1 and offset=3");
        assert_eq!(path_of("a@1", place, from_line), "/output/a@1@3");
    }
}
