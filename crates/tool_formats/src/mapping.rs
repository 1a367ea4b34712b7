//! Calls of our tools that inputs in a format become.

use engine::tools::text::OutputPlace;
use engine::tools::{self, Tool};
use model::Refusal;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::arguments::Arguments;
use crate::rows::{AnswerForm, ArgumentRole, MatchesMode};
use crate::templates::repeated;
use crate::{FormatTool, Row, ToolFormat, outputs, patches, paths};

/// The most lines that one read shows.
const MAX_LINES: u64 = 1000;
/// The most globs of names that a list leaves out.
const MAX_PATTERNS: usize = 100;
/// The maximum length of such a glob, in bytes.
const MAX_PATTERN_BYTES: usize = 500;

/// A call of one of our tools.
pub(crate) struct MappedCall {
    pub(crate) format: &'static ToolFormat,
    pub(crate) tool: &'static FormatTool,
    pub(crate) row: &'static Row,
    pub(crate) call: &'static Tool,
    /// The tool's own members of the input.
    pub(crate) input: Map<String, Value>,
    /// What else the input says.
    pub(crate) aside: Aside,
    /// Globs of files whose paths are added to `paths`. One that begins with `!` excludes.
    pub(crate) globs: Vec<String>,
    /// The call instead, if the path is a folder.
    pub(crate) if_folder: Option<Box<Result<MappedCall, Refusal>>>,
}

/// What an input says about the answer, and what refusals and answers repeat of it: the members after `$` in the file of a format.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Aside {
    /// The path, or the session of a command.
    pub(crate) path: String,
    /// The text to replace.
    pub(crate) old: String,
    /// The pattern of a search.
    pub(crate) pattern: String,
    /// The number of lines that were put before a diff.
    pub(crate) lines_before: u64,
    /// The reason of a change, where the caller gives none beside the input.
    pub(crate) reason: Option<String>,
    pub(crate) mode: Option<MatchesMode>,
    /// Whether matches are shown without their line numbers.
    pub(crate) unnumbered: bool,
    /// The most lines of the answer. 0 is no limit but our own.
    pub(crate) limit: Option<usize>,
    /// Lines of the answer to skip.
    pub(crate) skip: usize,
    /// Whether the search itself skips.
    pub(crate) is_searched: bool,
    /// The most matches of one file.
    pub(crate) per_file: Option<usize>,
    /// Globs of names that a list leaves out.
    pub(crate) ignore: Vec<String>,
    /// The most lines of the output of a command.
    pub(crate) output_lines: Option<u64>,
    /// The last line, by which `maxLines` is set.
    end_line: Option<u64>,
    /// The output of a command.
    session: Option<String>,
    /// Paths and globs of files.
    include: Vec<String>,
    /// Globs of files that are left out.
    exclude: Vec<String>,
}

impl FormatTool {
    /// Returns the call that an input becomes.
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
        let old = row.arguments.iter().find(|(_, role)| role.is_member("oldString"));
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
        for (names, role) in &row.arguments {
            let name = names.split('|').next().unwrap_or_default();
            match (arguments.take(names)?, &row.missing) {
                (Some(value), _) => values.push((name, role, value)),
                (None, _) if !self.requires(row, name, role) => {}
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
            aside: Aside::default(),
            globs: Vec::new(),
            if_folder: None,
        };
        for (name, role, value) in values {
            call.put(name, role, value)?;
        }
        call.finish()?;
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

    fn requires(&self, row: &Row, name: &str, role: &ArgumentRole) -> bool {
        let declared = self.input["required"].as_array().is_some_and(|names| names.iter().any(|other| other == name));
        // A call without a reason says in its record that the format has none.
        row.required.iter().any(|other| other == name) || declared && !role.is_member("$reason")
    }
}

impl MappedCall {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.input.insert(name.to_owned(), value.into());
    }

    /// Takes an argument. Its value has the type of the schema.
    fn put(&mut self, name: &str, role: &ArgumentRole, value: Value) -> Result<(), Refusal> {
        let text = value.as_str().unwrap_or_default();
        let wrong = || Refusal::invalid(format!("`{name}` is {value}"), "Give 0 or more, or leave it out.");
        match role {
            ArgumentRole::PathOrOutput if outputs::of_path(text).is_some() => {
                self.set("$session", outputs::of_path(text));
                self.set("$path", value);
            }
            ArgumentRole::Path | ArgumentRole::PathOrOutput => {
                self.set("path", paths::strip(text)?);
                self.set("$path", value);
            }
            ArgumentRole::Folder => {
                self.set("path", paths::strip_folder(text)?);
                self.set("$path", value);
            }
            ArgumentRole::Cwd => self.set("cwd", paths::strip_folder(text)?),
            ArgumentRole::Glob => {
                self.set("glob", vec![paths::strip_glob(text)?]);
                self.set("$pattern", value);
            }
            ArgumentRole::IncludeGlob => self.set("includeGlob", vec![paths::strip_glob(text)?]),
            ArgumentRole::Globs => self.set("includeGlob", paths::globs(text)?),
            ArgumentRole::Range | ArgumentRole::LenientRange => {
                let (start, lines) = lines_of_range(&value, *role == ArgumentRole::LenientRange)?;
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
            ArgumentRole::InsertedText => self.set("content", if text.is_empty() { "\n".into() } else { value }),
            ArgumentRole::Filtering => self.set("includeIgnored", value["respect_git_ignore"] == false),
            ArgumentRole::Patch => self.set("patch", patches::freeform(text)?),
            ArgumentRole::Operation => {
                let (patch, path, lines_before) = patches::operation(value)?;
                self.set("patch", patch);
                self.set("$path", path);
                self.set("$linesBefore", lines_before);
            }
            ArgumentRole::Choice(choice) => {
                if let Some(chosen) = choice.of(name, &value)? {
                    self.set(&choice.to, chosen);
                }
            }
            ArgumentRole::Number(number) => {
                let result = number.of(value.as_u64().ok_or_else(wrong)?);
                self.set(&number.to, result.max(self.number(&number.to).unwrap_or(0)));
            }
            ArgumentRole::Member(member) => self.set(member, value),
        }
        Ok(())
    }

    /// Sets the members of the input that several arguments decide.
    fn finish(&mut self) -> Result<(), Refusal> {
        let members = std::mem::take(&mut self.input).into_iter();
        let (aside, input): (Map<_, _>, Map<_, _>) = members.partition(|(name, _)| name.starts_with('$'));
        self.input = input;
        let aside = aside.into_iter().map(|(name, value)| (name.trim_start_matches('$').to_owned(), value)).collect();
        self.aside = serde_json::from_value(Value::Object(aside))
            .map_err(|error| Refusal::invalid(error.to_string(), "Correct it and call again."))?;
        let text = |name: &str| self.input.get(name).and_then(Value::as_str).map(str::to_owned);
        self.aside.old = text("oldString").unwrap_or_default();
        self.aside.pattern = text("query").unwrap_or_else(|| std::mem::take(&mut self.aside.pattern));
        if let Some(end) = self.aside.end_line {
            let start = self.number("startLine").unwrap_or(1);
            if end < start {
                let message = format!("`end_line` is {end}, before `start_line`, which is {start}");
                return Err(Refusal::invalid(message, "Give an end_line from start_line on."));
            }
            self.set("maxLines", (end - start + 1).min(MAX_LINES));
        }
        match self.number("expectedReplacements") {
            Some(1) => drop(self.input.remove("expectedReplacements")),
            Some(_) => self.set("replaceAll", true),
            None => {}
        }
        if self.number("timeoutSeconds") == Some(0) {
            self.input.remove("timeoutSeconds");
        }
        let ignore = &self.aside.ignore;
        if ignore.len() > MAX_PATTERNS || ignore.iter().any(|pattern| pattern.len() > MAX_PATTERN_BYTES) {
            let message =
                format!("`ignore` takes at most {MAX_PATTERNS} patterns of at most {MAX_PATTERN_BYTES} bytes");
            return Err(Refusal::invalid(message, "Give fewer or shorter ones, or leave it out."));
        }
        match &self.row.answer {
            AnswerForm::Matches { mode, next, .. } => self.set_matches(*mode, next.is_some()),
            AnswerForm::Many => self.set_files()?,
            _ => {}
        }
        if let Some(session) = self.aside.session.take() {
            let (id, place) = outputs::parse(&session).unwrap_or((&session, None));
            self.read_output(id, place);
            if self.aside.path.is_empty() {
                self.aside.path = session;
            }
        }
        Ok(())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.input.get(name).and_then(Value::as_u64)
    }

    /// Sets how matches are shown, and what the search has to find for it.
    fn set_matches(&mut self, mode: MatchesMode, is_paged: bool) {
        let mode = *self.aside.mode.get_or_insert(mode);
        let has_lines = matches!(mode, MatchesMode::Content | MatchesMode::Grouped);
        if !has_lines {
            self.input.remove("contextLines");
        }
        // Elsewhere a match is not a line of the answer.
        let has_context = self.number("contextLines").is_some_and(|lines| lines > 0);
        let is_lines = has_lines && !has_context && self.input.get("multiline") != Some(&Value::Bool(true));
        self.aside.is_searched = is_paged && (is_lines || mode == MatchesMode::Files);
        if mode == MatchesMode::Files {
            self.set("onePerFile", true);
        }
        if self.aside.is_searched && self.aside.skip > 0 {
            self.set("skip", self.aside.skip);
        }
    }

    /// Sets the files of a read of several. A path that may be excluded is matched like a glob.
    fn set_files(&mut self) -> Result<(), Refusal> {
        let (include, exclude) = (std::mem::take(&mut self.aside.include), std::mem::take(&mut self.aside.exclude));
        if include.is_empty() {
            let message = format!("parameter `include` is required for tool `{}`", self.tool.name);
            return Err(Refusal::invalid(message, "Give it and call again."));
        }
        let is_glob = |path: &String| !exclude.is_empty() || path.contains(['*', '?', '[', '{']) || path.ends_with('/');
        let (globs, paths): (Vec<_>, Vec<_>) = include.into_iter().partition(is_glob);
        self.set("paths", paths.iter().map(|path| paths::strip(path)).collect::<Result<Vec<_>, _>>()?);
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
        self.aside.output_lines = self.number("maxLines");
        let max_chars = self.input.remove("maxChars");
        let column = place.and_then(|place| place.column).map(Value::from);
        self.input = Map::from_iter([("outputOf".to_owned(), json!(id)), ("startLine".to_owned(), json!(line.max(1)))]);
        let others = [("column", column), ("maxChars", max_chars)];
        self.input.extend(others.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        self.call = tools::find("run_command").unwrap_or(self.call);
    }
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
