//! Calls of our tools that inputs in a format become.

use engine::tools::text::OutputPlace;
use engine::tools::{self, Tool};
use model::{Refusal, excerpt};
use serde_json::{Map, Value, json};

use crate::arguments::{Arguments, into_text};
use crate::rows::{AnswerForm, ArgumentRole, MatchesMode};
use crate::templates::repeated;
use crate::{FormatTool, Row, ToolFormat, outputs, patches, paths};

/// The most lines that one read shows.
const MAX_LINES: u64 = 1000;
/// The most globs of names that a list leaves out.
const MAX_PATTERNS: usize = 100;
/// The maximum length of such a glob, in bytes.
const MAX_PATTERN_BYTES: usize = 500;
/// The most lines around a match.
const MAX_CONTEXT: u64 = 3;

/// A call of one of our tools.
pub(crate) struct MappedCall {
    pub(crate) format: &'static ToolFormat,
    pub(crate) tool: &'static FormatTool,
    pub(crate) row: &'static Row,
    pub(crate) call: &'static Tool,
    /// The tool's own members of the input.
    pub(crate) input: Map<String, Value>,
    /// The reason in the input.
    pub(crate) reason: Option<String>,
    /// What refusals and answers repeat of the input.
    pub(crate) asked: InputEcho,
    /// How the answer is shown.
    pub(crate) shown: Shown,
    /// Globs of files whose paths are added to `paths`. One that begins with `!` excludes.
    pub(crate) globs: Vec<String>,
    /// The call instead, if the path is a folder.
    pub(crate) if_folder: Option<Box<Result<MappedCall, Refusal>>>,
}

/// What refusals and answers repeat of an input.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputEcho {
    /// The path, or the session of a command.
    pub(crate) path: String,
    /// The text to replace.
    pub(crate) old: String,
    /// The pattern of a search.
    pub(crate) pattern: String,
    /// The number of lines that were put before a diff.
    pub(crate) lines_before: u64,
}

/// What an input says about the answer.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) mode: Option<MatchesMode>,
    /// Whether matches are shown without their line numbers.
    pub(crate) unnumbered: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) skip: usize,
    /// Whether the search itself skips.
    pub(crate) is_searched: bool,
    pub(crate) per_file: Option<usize>,
    pub(crate) ignore: Vec<String>,
    /// The most lines of the output of a command.
    pub(crate) output_lines: Option<u64>,
}

impl FormatTool {
    /// Returns the call that an input becomes.
    ///
    /// # Errors
    ///
    /// In the words of the format, if the input is not one of the tool's.
    pub(crate) fn map(&'static self, format: &'static ToolFormat, input: Value) -> Result<MappedCall, Refusal> {
        let mut arguments = Arguments::of(self, input)?;
        let row = match &self.rows[..] {
            [row] => row,
            rows => {
                let command = arguments.text("command")?;
                arguments = arguments.for_command(&command);
                rows.iter().find(|row| row.command.as_ref() == Some(&command)).ok_or_else(|| {
                    let names: Vec<_> = rows.iter().filter_map(|row| row.command.as_deref()).collect();
                    let hint = format!("The commands of {} are {}.", self.name, names.join(", "));
                    Refusal::invalid(format!("unrecognized command {}", repeated(&command)), hint)
                })?
            }
        };
        let old = row.arguments.iter().find(|(_, target)| **target == ArgumentRole::OldString);
        let row = match (&row.if_empty, old) {
            (Some(other), Some((name, _))) if arguments.is_empty_text(name) => other,
            _ => row,
        };
        let if_folder = row.if_folder.as_ref().map(|row| Box::new(self.map_row(format, row, arguments.clone())));
        Ok(MappedCall { if_folder, ..self.map_row(format, row, arguments)? })
    }

    fn map_row(
        &'static self,
        format: &'static ToolFormat,
        row: &'static Row,
        mut arguments: Arguments<'_>,
    ) -> Result<MappedCall, Refusal> {
        arguments.check_not_with(row)?;
        let mut values = Vec::new();
        for (names, target) in &row.arguments {
            let name = names.split('|').next().unwrap_or_default();
            match (arguments.take(names)?, &row.missing) {
                (Some(value), _) => values.push((name, target, value)),
                (None, _) if !self.requires(row, name, target) => {}
                (None, Some([message, hint])) => return Err(Refusal::invalid(message, hint)),
                (None, None) => return Err(arguments.missing(name)),
            }
        }
        arguments.finish(row.command.is_none())?;
        let mut call = MappedCall {
            format,
            tool: self,
            row,
            call: row.call,
            input: Map::new(),
            reason: None,
            asked: InputEcho::default(),
            shown: Shown::default(),
            globs: Vec::new(),
            if_folder: None,
        };
        let mut parts = Partial::default();
        for (name, target, value) in values {
            call.put(name, target, value, &mut parts)?;
        }
        call.finish(parts)?;
        if row.command.is_some() && row.call.mutates() && call.input.get("path").is_some_and(|path| path == ".") {
            let message = format!("{} is the root of all files, which no command changes", paths::ROOT);
            return Err(Refusal::invalid(message, "Name a file below it."));
        }
        // The output of a command has no defaults of a file.
        if call.call.name == row.call.name {
            for (name, value) in &row.with {
                call.input.entry(name).or_insert_with(|| value.clone());
            }
        }
        Ok(call)
    }

    fn requires(&self, row: &Row, name: &str, target: &ArgumentRole) -> bool {
        let declared = self.input["required"].as_array().is_some_and(|names| names.iter().any(|other| other == name));
        // A call without a reason says in its record that the format has none.
        row.required.iter().any(|other| other == name) || declared && *target != ArgumentRole::Reason
    }
}

/// Arguments that become members of the input together with others.
#[derive(Default)]
struct Partial {
    end_line: Option<u64>,
    context: u64,
    chars: String,
    include: Vec<String>,
    exclude: Vec<String>,
}

impl MappedCall {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.input.insert(name.to_owned(), value.into());
    }

    /// Takes an argument. Its value has the type of the schema.
    #[expect(clippy::too_many_lines, reason = "a table of all targets")]
    fn put(&mut self, name: &str, target: &ArgumentRole, value: Value, parts: &mut Partial) -> Result<(), Refusal> {
        let text = || value.as_str().unwrap_or_default().to_owned();
        let wrong = || Refusal::invalid(format!("`{name}` is {value}"), "Give 0 or more, or leave it out.");
        let count = || value.as_u64().ok_or_else(wrong);
        let size = || count().map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let is_set = value == true;
        match target {
            ArgumentRole::Path => {
                self.set("path", paths::strip(&text())?);
                self.asked.path = text();
            }
            ArgumentRole::PathOrOutput | ArgumentRole::Session => self.asked.path = text(),
            ArgumentRole::Folder => {
                self.set("path", paths::strip_folder(&text())?);
                self.asked.path = text();
            }
            ArgumentRole::Cwd => self.set("cwd", paths::strip_folder(&text())?),
            ArgumentRole::Glob => {
                self.set("glob", vec![paths::strip_glob(&text())?]);
                self.asked.pattern = text();
            }
            ArgumentRole::IncludeGlob => self.set("includeGlob", vec![paths::strip_glob(&text())?]),
            ArgumentRole::Globs => self.set("includeGlob", paths::globs(&text())?),
            ArgumentRole::OldString => {
                self.asked.old = text();
                self.set("oldString", value);
            }
            ArgumentRole::Query => {
                self.asked.pattern = text();
                self.set("query", value);
            }
            ArgumentRole::StartLine => self.set("startLine", count()?.max(1)),
            ArgumentRole::SkippedLines => {
                let line = count()?.saturating_add(1);
                self.input.entry("startLine").or_insert_with(|| line.into());
            }
            ArgumentRole::EndLine => parts.end_line = Some(count()?),
            ArgumentRole::MaxLines => self.set("maxLines", count()?.clamp(1, MAX_LINES)),
            ArgumentRole::Range | ArgumentRole::LenientRange => {
                let (start, lines) = lines_of_range(&value, *target == ArgumentRole::LenientRange)?;
                self.set("startLine", start);
                self.set("maxLines", lines);
            }
            ArgumentRole::InsertLine => {
                let line = value.as_u64().ok_or_else(|| {
                    let message = format!("invalid `{name}` parameter: {value}");
                    Refusal::invalid(message, "Give a line from 0, the start, on.")
                })?;
                self.set("startLine", line.saturating_add(1));
                self.set("endLine", line);
            }
            // No text is an empty line.
            ArgumentRole::InsertedText => self.set("content", if value == "" { "\n".into() } else { value }),
            ArgumentRole::Context => parts.context = parts.context.max(count()?),
            ArgumentRole::MaxMatches => self.set("maxMatches", count()?.max(1)),
            ArgumentRole::IgnoreCase => self.set("caseSensitive", !is_set),
            ArgumentRole::Literal => self.set("mode", if is_set { "literal" } else { "regex" }),
            ArgumentRole::NamesOnly => self.shown.mode = is_set.then_some(MatchesMode::Files),
            ArgumentRole::OutputMode => self.shown.mode = Some(MatchesMode::named(&text())?),
            ArgumentRole::Numbered => self.shown.unnumbered = !is_set,
            // 0 is no limit but our own.
            ArgumentRole::Limit => self.shown.limit = Some(size()?).filter(|limit| *limit > 0),
            ArgumentRole::Skip => self.shown.skip = size()?,
            ArgumentRole::PerFile => self.shown.per_file = Some(size()?.max(1)),
            ArgumentRole::Ignore => self.shown.ignore = patterns(name, value)?,
            ArgumentRole::Filtering => self.set("includeIgnored", value["respect_git_ignore"] == false),
            ArgumentRole::ExpectedReplacements => match count()? {
                0 => {
                    let hint = "Give the number of occurrences to replace.";
                    return Err(Refusal::invalid("`expected_replacements` is 0", hint));
                }
                1 => {}
                expected => self.set("expectedReplacements", expected),
            },
            ArgumentRole::TimeoutMs => {
                let seconds = Some(count()?.div_ceil(1000)).filter(|seconds| *seconds > 0);
                self.input.extend(seconds.map(|seconds| ("timeoutSeconds".to_owned(), seconds.into())));
            }
            // A token is about four characters.
            ArgumentRole::MaxTokens => self.set("maxChars", count()?.saturating_mul(4).max(1)),
            ArgumentRole::Reason => self.reason = Some(text()),
            ArgumentRole::Background if is_set => {
                let message = "a command cannot run in the background here: it is ended with its call";
                let hint = "Run it without is_background, or leave it to the run's operator.";
                return Err(Refusal::invalid(message, hint));
            }
            ArgumentRole::Background => {}
            ArgumentRole::Chars => parts.chars = text(),
            ArgumentRole::Patch => self.set("patch", patches::freeform(&text())?),
            ArgumentRole::Operation => {
                let (patch, path, lines_before) = patches::operation(value)?;
                (self.asked.path, self.asked.lines_before) = (path, lines_before);
                self.set("patch", patch);
            }
            ArgumentRole::Include => parts.include = texts(value),
            ArgumentRole::Exclude => parts.exclude = texts(value),
            ArgumentRole::Member(member) => self.set(member, value),
        }
        Ok(())
    }

    /// Sets the members of the input that several arguments decide.
    fn finish(&mut self, parts: Partial) -> Result<(), Refusal> {
        if let Some(end) = parts.end_line {
            let start = self.number("startLine").unwrap_or(1);
            if end < start {
                let message = format!("`end_line` is {end}, before `start_line`, which is {start}");
                return Err(Refusal::invalid(message, "Give an end_line from start_line on."));
            }
            self.set("maxLines", (end - start + 1).min(MAX_LINES));
        }
        if self.input.contains_key("expectedReplacements") {
            self.set("replaceAll", true);
        }
        match &self.row.answer {
            AnswerForm::Matches { mode, next, .. } => self.set_matches(*mode, next.is_some(), parts.context),
            AnswerForm::Many => self.set_files(parts.include, &parts.exclude)?,
            _ => {}
        }
        let path = self.asked.path.clone();
        if self.takes(&ArgumentRole::Session) {
            if path.is_empty() {
                return Err(Refusal::invalid("`session_id` is empty", "Give a session."));
            }
            if !parts.chars.is_empty() {
                let session = excerpt(&path, 200);
                let message = format!("write_stdin failed: the process of session {session} has exited");
                return Err(Refusal::invalid(message, "Leave `chars` out to read its output, or start it anew."));
            }
            let (id, place) = outputs::parse(&path).unwrap_or((&path, None));
            self.read_output(id, place);
        } else if self.takes(&ArgumentRole::PathOrOutput) {
            match path.strip_prefix(outputs::FOLDER).and_then(outputs::parse) {
                Some((id, place)) => self.read_output(id, place),
                None => self.set("path", paths::strip(&path)?),
            }
        }
        Ok(())
    }

    fn takes(&self, target: &ArgumentRole) -> bool {
        self.row.arguments.values().any(|other| other == target)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.input.get(name).and_then(Value::as_u64)
    }

    /// Sets how matches are shown, and what the search has to find for it.
    fn set_matches(&mut self, mode: MatchesMode, is_paged: bool, context: u64) {
        let mode = *self.shown.mode.get_or_insert(mode);
        let has_lines = matches!(mode, MatchesMode::Content | MatchesMode::Grouped);
        let context = if has_lines { context.min(MAX_CONTEXT) } else { 0 };
        // Elsewhere a match is not a line of the answer.
        let is_lines = has_lines && context == 0 && self.input.get("multiline") != Some(&Value::Bool(true));
        self.shown.is_searched = is_paged && (is_lines || mode == MatchesMode::Files);
        if context > 0 {
            self.set("contextLines", context);
        }
        if mode == MatchesMode::Files {
            self.set("onePerFile", true);
        }
        if self.shown.is_searched && self.shown.skip > 0 {
            self.set("skip", self.shown.skip);
        }
    }

    /// Sets the files of a read of several. A path that may be excluded is matched like a glob.
    fn set_files(&mut self, include: Vec<String>, exclude: &[String]) -> Result<(), Refusal> {
        if include.is_empty() {
            let message = format!("parameter `include` is required for tool `{}`", self.tool.name);
            return Err(Refusal::invalid(message, "Give it and call again."));
        }
        let is_glob = |path: &String| !exclude.is_empty() || path.contains(['*', '?', '[', '{']) || path.ends_with('/');
        let (globs, paths): (Vec<_>, Vec<_>) = include.into_iter().partition(is_glob);
        let paths = paths.iter().map(|path| paths::strip(path)).collect::<Result<Vec<_>, _>>()?;
        self.set("paths", paths);
        // A glob without a folder is of names in the root.
        let anchored = |glob: String| if glob.contains('/') { glob } else { format!("/{glob}") };
        self.globs = globs.iter().map(|glob| paths::strip_glob(glob).map(anchored)).collect::<Result<_, _>>()?;
        if !self.globs.is_empty() {
            let excluded = exclude.iter().map(|glob| paths::strip_glob(&format!("!{glob}")));
            self.globs.extend(excluded.collect::<Result<Vec<_>, _>>()?);
        }
        Ok(())
    }

    /// Makes the call one that reads the output of a command, from `place` or the line that the input names.
    fn read_output(&mut self, id: &str, place: Option<OutputPlace>) {
        let line = place.map_or_else(|| self.number("startLine").unwrap_or(1), |place| place.line);
        self.shown.output_lines = self.number("maxLines");
        let max_chars = self.input.remove("maxChars");
        let column = place.and_then(|place| place.column).map(Value::from);
        self.input = Map::from_iter([("outputOf".to_owned(), json!(id)), ("startLine".to_owned(), json!(line.max(1)))]);
        let others = [("column", column), ("maxChars", max_chars)];
        self.input.extend(others.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        self.call = tools::find("run_command").unwrap_or(self.call);
    }
}

fn texts(list: Value) -> Vec<String> {
    if let Value::Array(list) = list { list.into_iter().filter_map(into_text).collect() } else { Vec::new() }
}

/// Returns the globs of a list, which are few and short enough to be compiled.
fn patterns(name: &str, list: Value) -> Result<Vec<String>, Refusal> {
    let patterns = texts(list);
    if patterns.len() > MAX_PATTERNS || patterns.iter().any(|pattern| pattern.len() > MAX_PATTERN_BYTES) {
        let message = format!("`{name}` takes at most {MAX_PATTERNS} patterns of at most {MAX_PATTERN_BYTES} bytes");
        return Err(Refusal::invalid(message, "Give fewer or shorter ones, or leave it out."));
    }
    Ok(patterns)
}

/// Returns the first line and the number of lines of a range.
fn lines_of_range(range: &Value, is_lenient: bool) -> Result<(u64, u64), Refusal> {
    let wrong = |shown: &str| {
        let message = format!("invalid `view_range`: {shown}");
        Refusal::invalid(message, "Give the first line, from 1, and the last one, or -1 for the end of the file.")
    };
    let range: Vec<_> = range.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let [mut first, mut last] = range[..] else { return Err(wrong("it is not a list of two integers")) };
    if is_lenient {
        first = first.max(1);
        last = if last <= 0 { -1 } else { last };
    }
    let shown = format!("[{first}, {last}]");
    let start = u64::try_from(first).ok().filter(|first| *first > 0).ok_or_else(|| wrong(&shown))?;
    match u64::try_from(last) {
        Ok(end) if end >= start => Ok((start, (end - start + 1).min(MAX_LINES))),
        Err(_) if last == -1 => Ok((start, MAX_LINES)),
        Ok(_) | Err(_) => Err(wrong(&shown)),
    }
}
