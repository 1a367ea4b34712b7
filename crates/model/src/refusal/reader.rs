//! Hints in the words of their reader. They are written for programs, which call routes and set every member of an input; a model
//! calls tools, and a person at the command line calls commands.

use std::borrow::Cow;

/// Who reads a hint instead of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReader {
    /// A model, which calls tools and does not set what only programs do.
    Model,
    /// A person at the command line.
    CommandLine,
}

/// What hints say to programs, to models and at the command line.
#[rustfmt::skip]
const WORDS: [[&str; 3]; 26] = [
    ["Give a run ID that GET /v1/runs lists.", "Give the ID of a run.", "Give a run ID that `workspaced run list` prints."],
    ["List the runs with GET /v1/runs.", "Ask the operator of the service for a run.", "List the runs with `workspaced run list`."],
    ["Get the decision with GET /v1/approvals/{id}. ", "", "Get the decision with `workspaced approvals show`. "],
    ["List approvals with GET /v1/approvals.", "Ask the operator of the service.", "List approvals with `workspaced approvals list`."],
    ["Upload the payload with PUT /v1/runs/{run}/artifacts/sha256/{digest}", "Upload the payload as an artifact", "Upload the payload as an artifact"],
    ["the tool's schema in GET /v1/tools.", "the tool's schema.", "the tool's schema, which the service's pages at `/docs` have."],
    [" A program can read the outcome from GET /v1/runs/{run}/tool-calls/{toolCallId}.", "", " `workspaced approvals list` shows what waits."],
    ["GET /v1/operators lists every operator.", "Ask the operator of the service.", "`workspaced operator list` prints every operator."],
    ["; store them with PUT /v1/runs/{run}/files/{path}.", ".", "."],
    ["GET /v1/tools lists every tool.", "Call one of the tools that are offered.", "`workspaced call --help` explains the names of tools."],
    ["List them with GET /v1/webhooks. ", "", "List them with `workspaced webhook list`. "],
    ["GET /openapi.json lists every path.", "Ask the operator for the service's address.", "Check the service's address and its version."],
    ["GET /problems lists every code.", "", ""],
    ["GET /v1/checkpoint returns the newest one.", "Ask for an earlier one.", "Ask for an earlier one."],
    ["List them with GET /v1/webhooks/{name}/deliveries.", "Ask the operator of the service.", "List them with `workspaced webhook deliveries`."],
    // What a model's input does not have.
    ["Try again after the seconds that Retry-After says; repeat a change only under its toolCallId.", "Try again later. Read the file before you repeat a change.", "Try again later. Look at the run's audit before you repeat a change."],
    ["Retry the same call in a moment under the same toolCallId. If it had none, check the audit first.", "Read the files to see whether the change was made before you make it again.", "Check the audit before you make the call again."],
    ["Do not make the change again under another ID: retry under the same toolCallId, or get the call's record.", "Do not make the change again. Read the file in a moment: it then has the change.", "Do not make the change again: `workspaced audit` shows it."],
    ["Send the same call again under the same toolCallId: the answer is that of the first attempt.", "Do not repeat the call: read the files, which have its change.", "Do not repeat the call: `workspaced audit` shows its record."],
    [", under the same toolCallId, in a moment.", " in a moment.", " in a moment."],
    ["Leave out `expectedSha256` to create the file, or find its path with find_files.", "Find its path with find_files.", "Leave out `expectedSha256` to create the file, or find its path with find_files."],
    [", base the change on its present content, and give its sha256 as `expectedSha256`.", ", and base the change on its present content.", ", base the change on its present content, and give its sha256 as `expectedSha256`."],
    ["Copy it exactly: in `difference`, lines with + are in the file.", "Copy it exactly: lines with + are in the file.", "Copy it exactly: lines with + are in the file."],
    ["Read the run's policy and make a change that it allows.", "Make a change that the run allows, or tell its operator that this one is needed.", "Read the run's policy and make a change that it allows."],
    ["Make the call without dryRun. It", "Make the call. It", "Make the call without dryRun. It"],
    ["Give the `toolCallId` of each call's response.", "Name the calls by the IDs of their answers.", "Give the `toolCallId` of each call's response."],
];

/// Returns a hint in the words of `reader`. A sentence that names a route after all is left out: its reader cannot call it.
pub fn hint_for(hint: &str, reader: RefusalReader) -> Cow<'_, str> {
    let mut said = Cow::Borrowed(hint);
    for [program, model, command_line] in WORDS {
        if said.contains(program) {
            let words = if reader == RefusalReader::Model { model } else { command_line };
            said = Cow::Owned(said.replace(program, words));
        }
    }
    if names_route(&said) {
        let sentences = said.split_inclusive(". ").filter(|sentence| !names_route(sentence));
        said = Cow::Owned(sentences.collect());
    }
    match said {
        Cow::Borrowed(hint) => Cow::Borrowed(hint.trim_end()),
        Cow::Owned(hint) => Cow::Owned(hint.trim_end().to_owned()),
    }
}

/// Whether a text has a method and a path of HTTP, such as `GET /v1/runs`.
fn names_route(text: &str) -> bool {
    ["GET /", "PUT /", "POST /", "PATCH /", "DELETE /"].iter().any(|route| text.contains(route))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_in_the_words_of_its_reader() {
        let hint = "Compare the input with the tool's schema in GET /v1/tools.";
        assert_eq!(hint_for(hint, RefusalReader::Model), "Compare the input with the tool's schema.");
        assert_eq!(
            hint_for("List the runs with GET /v1/runs.", RefusalReader::CommandLine),
            "List the runs with `workspaced run list`."
        );
        // Unknown words.
        let hint = "Wait a moment. List them with GET /v1/webhooks/ci/deliveries.";
        assert_eq!(hint_for(hint, RefusalReader::Model), "Wait a moment.");
        let hint = "Read it again with read_file.";
        assert!(matches!(hint_for(hint, RefusalReader::Model), Cow::Borrowed(said) if said == hint));
    }
}
