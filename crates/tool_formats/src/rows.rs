//! What a row in the file of a format says: the roles of the arguments, and the form of the answer.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use model::Refusal;
use serde::Deserialize;
use serde_json::Value;

use crate::templates::repeated;

/// What an argument becomes. A member whose name begins with `$` is not one of our input, but one of `Aside`.
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
    /// First and last line; -1 is the end.
    Range,
    /// As `Range`; what is before the first line is the first, and 0 the end.
    LenientRange,
    /// The line after which `content` is inserted.
    InsertLine,
    /// `content` to insert.
    InsertedText,
    /// What else a list leaves out.
    Filtering,
    /// A patch in the form of `apply_patch`.
    Patch,
    /// The change of one file, whose patch has no headers.
    Operation,
    /// A member with a value for each text or Boolean. A Boolean without one leaves it out.
    Choice(ChoiceRole),
    /// A member with a number. The largest of several arguments holds.
    Number(NumberRole),
    /// The member with this name.
    #[serde(untagged)]
    Member(String),
}

impl ArgumentRole {
    pub(crate) fn is_member(&self, name: &str) -> bool {
        matches!(self, Self::Member(member) if member == name)
    }
}

/// The values of a member by those of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChoiceRole {
    pub(crate) to: String,
    of: BTreeMap<String, Value>,
}

impl ChoiceRole {
    /// Returns the value of the member for that of the argument with `name`; `None` leaves it out.
    pub(crate) fn of(&self, name: &str, argument: &Value) -> Result<Option<Value>, Refusal> {
        let argument_text = argument.as_str().map_or_else(|| argument.to_string(), str::to_owned);
        let chosen = self.of.get(&argument_text).cloned();
        if chosen.is_some() || argument.is_boolean() {
            return Ok(chosen);
        }
        let hint = format!("Give {}.", self.of.keys().cloned().collect::<Vec<_>>().join(" or "));
        Err(Refusal::invalid(format!("`{name}` is {}", repeated(&argument_text)), hint))
    }
}

/// How a number is calculated.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NumberRole {
    pub(crate) to: String,
    #[serde(default)]
    add: u64,
    times: Option<u64>,
    /// The unit of the argument, in which our member counts up.
    per: Option<NonZeroU64>,
    #[serde(default)]
    min: u64,
    max: Option<u64>,
}

impl NumberRole {
    /// Returns the value of the member for an argument.
    pub(crate) fn of(&self, argument: u64) -> u64 {
        let number = argument.saturating_add(self.add).saturating_mul(self.times.unwrap_or(1));
        number.div_ceil(self.per.map_or(1, NonZeroU64::get)).clamp(self.min, self.max.unwrap_or(u64::MAX))
    }
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
