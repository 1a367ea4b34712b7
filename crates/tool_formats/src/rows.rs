//! What a row in the file of a format says: the roles of the arguments, and the form of the answer.

use model::Refusal;
use serde::Deserialize;

use crate::templates::repeated;

/// What an argument becomes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ArgumentRole {
    /// `path`, from the root.
    Path,
    /// `path`, from the root, or an output of a command.
    PathOrOutput,
    /// `path` of a folder; an empty one is the root.
    Folder,
    /// `cwd` of a command.
    Cwd,
    /// The only entry of `glob`.
    Glob,
    /// The only entry of `includeGlob`.
    IncludeGlob,
    /// The entries of `includeGlob`.
    Globs,
    /// `oldString`, which refusals repeat.
    OldString,
    /// `query`, which the answer repeats.
    Query,
    /// `startLine`; 0 is the first.
    StartLine,
    /// Lines before `startLine`.
    SkippedLines,
    /// The last line, by which `maxLines` is set.
    EndLine,
    /// `maxLines`.
    MaxLines,
    /// First and last line; -1 is the end.
    Range,
    /// As `Range`; what is before the first line is the first, and 0 the end.
    LenientRange,
    /// The line after which `content` is inserted.
    InsertLine,
    /// `content` to insert.
    InsertedText,
    /// `contextLines`, the most of several.
    Context,
    /// `maxMatches`, at least 1.
    MaxMatches,
    /// The opposite of `caseSensitive`.
    IgnoreCase,
    /// Whether the query is no expression.
    Literal,
    /// Whether only the paths of files are shown.
    NamesOnly,
    /// What is shown of matches, in the words of ripgrep's caller.
    OutputMode,
    /// Whether matches have their line numbers.
    Numbered,
    /// The most lines of the answer.
    Limit,
    /// Lines of the answer to skip.
    Skip,
    /// The most matches of one file.
    PerFile,
    /// Globs of names that a list leaves out.
    Ignore,
    /// What else a list leaves out.
    Filtering,
    /// `expectedReplacements`, with `replaceAll` if it is not 1.
    ExpectedReplacements,
    /// `timeoutSeconds`, in milliseconds.
    TimeoutMs,
    /// `maxChars`, in tokens.
    MaxTokens,
    /// The reason of a change, where the caller gives none beside the input.
    Reason,
    /// Whether a command runs in the background, which none does.
    Background,
    /// The output of a command, by its session.
    Session,
    /// What is written to a session, which can be nothing.
    Chars,
    /// A patch in the form of `apply_patch`.
    Patch,
    /// The change of one file, whose patch has no headers.
    Operation,
    /// Paths and globs of files.
    Include,
    /// Globs of files that are left out.
    Exclude,
    /// The member with this name.
    #[serde(untagged)]
    Member(String),
}

/// How an answer is shown. Texts may name values of the input, such as `{path}`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum AnswerForm {
    /// Lines of a file, numbered as by `cat -n` unless they were asked for raw. `next` reads on from `{line}`.
    Page { title: Option<String>, next: String },
    /// Entries of a folder: whole paths, or `names` alone with `[DIR]` before those of folders.
    Listing {
        title: String,
        empty: String,
        #[serde(default)]
        names: bool,
    },
    /// Paths that were found, one a line.
    Found { title: Option<String>, none: String },
    /// Matches of a search, with the most lines. `next` shows those after `{line}` lines.
    Matches { mode: MatchesMode, limit: Option<usize>, next: Option<String>, none: String },
    /// Several files, each below its path.
    Many,
    /// A change, with another text for a file that was created.
    Change { created: Option<String>, done: String },
    /// The files of a patch, one a line after the letter of its operation.
    Patched,
    /// A command, which may be a process that has exited.
    Command { process: bool },
}

/// What is shown of matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum MatchesMode {
    /// `path:line:text`.
    Content,
    /// The path of each file.
    Files,
    /// `path:count`.
    Counts,
    /// Below the path of each file, `L12: text`.
    Grouped,
}

impl MatchesMode {
    /// Returns the mode with this name in the words of ripgrep's caller.
    pub(crate) fn named(name: &str) -> Result<Self, Refusal> {
        match name {
            "files_with_matches" => Ok(Self::Files),
            "content" => Ok(Self::Content),
            "count" => Ok(Self::Counts),
            other => {
                let message = format!("`output_mode` is {}", repeated(other));
                Err(Refusal::invalid(message, "Give content, files_with_matches or count."))
            }
        }
    }
}
