//! Every hint of the workspace, in the words of each of its readers.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "it reads the sources of the service, outside of any workspace"
)]

use std::path::{Path, PathBuf};

use model::{RefusalReader, hint_for};

/// What only a program can call or set.
const PROGRAM_WORDS: [&str; 12] = [
    "GET /",
    "PUT /",
    "POST /",
    "PATCH /",
    "DELETE /",
    "toolCallId",
    "stepId",
    "expectedSha256",
    "dryRun",
    "atSeq",
    "expectedBaseCommit",
    "in `difference`",
];
/// The words that say a route, which the command line does not call either.
const ROUTES: usize = 5;

/// Files whose texts are not hints: the API document, explanations of codes on pages for programs, and the table of words itself.
const OTHER_TEXTS: [&str; 6] =
    ["/http/openapi", "refusal/guide.rs", "refusal/reader.rs", "/cli/", "/config/", "engine/src/tools/catalogue.rs"];

/// Hints that only programs can meet, because they name a member that the caller has sent, and no model is offered.
const FOR_SENDERS: [&str; 12] = [
    "Give a shorter stepId, or omit it.",
    "Give a valid toolCallId, or omit it.",
    "Give every new call a new toolCallId, or omit it.",
    "Give only files of the patch in `expectedSha256`.",
    "Give every call an ID of its own, or omit toolCallId.",
    "Omit `expectedSha256`, or give `seen`: then no file may have changed since you have seen it.",
    "Omit `mount` or `atSeq`.",
    "Send the read with atSeq as a separate call.",
    "Set `dryRun` in all mutations of an atomic batch, or in none.",
    "The file was too large to be stored; the audit has only its hash. Omit atSeq to read the current content.",
    "Use list_dir with the same atSeq to see what existed, or omit atSeq.",
    "Set expectedBaseCommit to the run's base commit, or omit it.",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The string literals of a source with what is before each on its line. Comments and inline tests are left out.
fn literals(source: &str) -> Vec<(String, String)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let source = lines.collect::<Vec<_>>().join("\n");
    let (mut found, mut before, mut chars) = (Vec::new(), String::new(), source.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\n' => before.clear(),
            // A quotation mark as a character.
            '\'' if chars.peek() == Some(&'"') => {
                chars.next();
            }
            '"' => {
                let mut text = String::new();
                while let Some(c) = chars.next() {
                    match (c, chars.peek()) {
                        ('"', _) => break,
                        // The line goes on.
                        ('\\', Some('\n')) => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                        ('\\', _) => text.extend(chars.next()),
                        _ => text.push(c),
                    }
                }
                found.push((before.clone(), text));
            }
            _ => before.push(c),
        }
    }
    found
}

/// Hints begin with a capital letter and end in a full stop, which messages do not.
fn is_hint(before: &str, text: &str) -> bool {
    let is_documentation = ["description", "summary", "example", "title"].iter().any(|word| before.contains(word));
    !is_documentation && text.starts_with(|c: char| c.is_ascii_uppercase()) && text.ends_with('.')
}

#[test]
fn a_hint_names_what_its_reader_can_call() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in ["archive", "content", "engine", "ledger", "model", "workspace", "workspaced"] {
        sources(&crates.join(name).join("src"), &mut files);
    }
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files {
        let name = file.strip_prefix(crates).unwrap().to_str().unwrap().to_owned();
        if OTHER_TEXTS.iter().any(|other| name.contains(other)) {
            continue;
        }
        for (before, text) in literals(&std::fs::read_to_string(&file).unwrap()) {
            if !is_hint(&before, &text) || FOR_SENDERS.contains(&text.as_str()) {
                continue;
            }
            seen += 1;
            for (reader, words) in
                [(RefusalReader::Model, &PROGRAM_WORDS[..]), (RefusalReader::CommandLine, &PROGRAM_WORDS[..ROUTES])]
            {
                let said = hint_for(&text, reader);
                // A page in a browser lists the codes.
                let is_lost = said.is_empty() && text != "GET /problems lists every code.";
                if is_lost || words.iter().any(|word| said.contains(word)) {
                    wrong.push(format!("{name}: {reader:?} reads {said:?} for {text:?}"));
                }
            }
        }
    }
    assert!(seen > 150, "{seen} hints were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
