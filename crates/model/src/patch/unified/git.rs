//! Files that begin with `diff --git`.

use super::super::check::RawFilePatch;
use super::super::fault::{invalid, shown};
use super::super::file_patch::PatchOperation;
use super::super::lines::Lines;
use super::super::{hunk, name};
use super::{FileHead, as_new_file, bad_name, check_hunks, names_disagree, no_hunks, not_understood};
use crate::Refusal;

/// Headers between `diff --git` and the hunks, in the order of [`GitHeaders::set`].
const HEADERS: [&str; 11] = [
    "old mode ",
    "new mode ",
    "new file mode ",
    "deleted file mode ",
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
    "similarity index ",
    "dissimilarity index ",
    "index ",
];

/// The headers whose values are used.
#[derive(Default)]
struct GitHeaders {
    old_mode: Option<u32>,
    new_mode: Option<u32>,
    created: Option<u32>,
    deleted: Option<u32>,
    rename_from: Option<Vec<u8>>,
    rename_to: Option<Vec<u8>>,
    copy_from: Option<Vec<u8>>,
    copy_to: Option<Vec<u8>>,
}

/// Reads a file whose first line is line `number` and contains `names`.
pub(crate) fn parse(lines: &mut Lines<'_>, number: usize, names: &[u8]) -> Result<RawFilePatch, Refusal> {
    if names.ends_with(b"\r") {
        let hint = "End all lines of the patch's headers in LF; only the lines of files keep their CR.";
        return Err(invalid(number, "the header ends in CR LF, but not every line of the patch does", hint));
    }
    let headers = GitHeaders::parse(lines)?;
    let at = lines.number();
    if lines.peek().is_some_and(|line| line == b"GIT binary patch" || line.starts_with(b"Binary files ")) {
        return Err(binary(at));
    }
    let heads = if lines.is_file_head(0) {
        Some((FileHead::parse(lines, "--- ")?, FileHead::parse(lines, "+++ ")?))
    } else {
        None
    };
    if let Some((old, new)) = &heads
        && (old.tail || new.tail)
    {
        return Err(invalid(at, "text follows the file's name", "Put a name with a tab in double quotes, with `\\t`."));
    }
    let hunks = if heads.is_some() { hunk::parse_all(lines)? } else { Vec::new() };
    if heads.is_some() && hunks.is_empty() {
        return Err(no_hunks(lines, at));
    }
    let operation = headers.operation(number, heads.as_ref())?;
    let hunks = if operation == PatchOperation::Create { as_new_file(hunks) } else { hunks };
    let (from, path) = headers.names(number, names, operation, heads.as_ref())?;
    let mode = headers.mode(number, operation)?;
    if operation == PatchOperation::Modify && hunks.is_empty() && mode.is_none() {
        return Err(match lines.peek() {
            Some(line) if !line.is_empty() && !line.starts_with(b"diff ") => not_understood(lines.number(), line, true),
            _ => invalid(number, "the file's section changes nothing", "Add the file's hunks, or remove the file."),
        });
    }
    check_hunks(number, operation, &hunks)?;
    Ok(RawFilePatch { number, operation, from, path, mode, hunks, ignores_content: false })
}

/// The refusal of binary content.
pub(crate) fn binary(number: usize) -> Refusal {
    let hint = "Remove binary files from the patch; store them with PUT /v1/runs/{run}/files/{path}.";
    invalid(number, "binary files cannot be patched", hint)
}

impl GitHeaders {
    fn parse(lines: &mut Lines<'_>) -> Result<Self, Refusal> {
        let mut headers = Self::default();
        let mut seen = [false; HEADERS.len()];
        loop {
            let number = lines.number();
            let found = HEADERS.iter().enumerate().find_map(|(at, mark)| Some((at, lines.next_after(mark)?)));
            let Some((at, text)) = found else { return Ok(headers) };
            if std::mem::replace(&mut seen[at], true) {
                let message = format!("`{}` occurs twice for one file", HEADERS[at].trim_end());
                return Err(invalid(number, message, "Write each header once, and a `diff --git` line for each file."));
            }
            headers.set(number, at, text)?;
        }
    }

    fn set(&mut self, number: usize, header: usize, text: &[u8]) -> Result<(), Refusal> {
        let name = || name::alone(text).filter(|name| !name.is_empty()).ok_or_else(|| bad_name(number, text));
        match header {
            0 => self.old_mode = Some(parse_mode(number, text)?),
            1 => self.new_mode = Some(parse_mode(number, text)?),
            2 => self.created = Some(parse_mode(number, text)?),
            3 => self.deleted = Some(parse_mode(number, text)?),
            4 => self.rename_from = Some(name()?),
            5 => self.rename_to = Some(name()?),
            6 => self.copy_from = Some(name()?),
            7 => self.copy_to = Some(name()?),
            // Similarity is not needed. An index line may contain the mode, which identifies links.
            _ => {
                let mut words = text.split(|byte| *byte == b' ').skip(1);
                if let Some(mode) = words.next().filter(|_| HEADERS[header] == "index ") {
                    parse_mode(number, mode)?;
                }
            }
        }
        Ok(())
    }

    fn operation(&self, number: usize, heads: Option<&(FileHead, FileHead)>) -> Result<PatchOperation, Refusal> {
        let null = heads.map(|(old, new)| (old.is_null(), new.is_null()));
        let created = self.created.is_some() || null.is_some_and(|(old, _)| old);
        let deleted = self.deleted.is_some() || null.is_some_and(|(_, new)| new);
        let both = |one: &Option<Vec<u8>>, other: &Option<Vec<u8>>| match (one, other) {
            (None, None) => Ok(false),
            (Some(_), Some(_)) => Ok(true),
            _ => Err(invalid(number, "only one of the two names is given", "Write both `… from` and `… to`.")),
        };
        let renamed = both(&self.rename_from, &self.rename_to)?;
        let copied = both(&self.copy_from, &self.copy_to)?;
        let operation = match (created, deleted, renamed, copied) {
            (false, false, false, false) => PatchOperation::Modify,
            (true, false, false, false) => PatchOperation::Create,
            (false, true, false, false) => PatchOperation::Delete,
            (false, false, true, false) => PatchOperation::Rename,
            (false, false, false, true) => PatchOperation::Copy,
            _ => {
                let hint = "Mark a file as only one of new, deleted, renamed or copied.";
                return Err(invalid(number, "the file's headers contradict each other", hint));
            }
        };
        let fits = null.is_none_or(|(old, new)| (old, new) == (created, deleted));
        if fits {
            Ok(operation)
        } else {
            let hint = "Write `--- /dev/null` for a new file and `+++ /dev/null` for a deleted one.";
            Err(invalid(number, "`/dev/null` must be on the side that has no file, and only there", hint))
        }
    }

    /// The names of the file to read and the file to write.
    fn names(
        &self,
        number: usize,
        git_line: &[u8],
        operation: PatchOperation,
        heads: Option<&(FileHead, FileHead)>,
    ) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
        let named = heads.map(|(old, new)| (old.name.as_slice(), new.name.as_slice()));
        let moved = self
            .rename_from
            .as_ref()
            .or(self.copy_from.as_ref())
            .zip(self.rename_to.as_ref().or(self.copy_to.as_ref()));
        if let Some((from, to)) = moved {
            if !name::git_line_names(git_line, from, to) {
                return Err(names_disagree(number, git_line, &[from, b" -> ".as_slice(), to].concat()));
            }
            if let Some((old, new)) = named.filter(|(old, new)| !name::is_pair(old, new, from, to)) {
                return Err(names_disagree(number, old, new));
            }
            return Ok((from.clone(), to.clone()));
        }
        let (old, new) = match (operation, named) {
            (PatchOperation::Modify, Some((old, new))) => name::strip_pair(old, new),
            (_, named) => {
                let name = name::same_in_git_line(git_line).ok_or_else(|| {
                    invalid(number, format!("`{}` does not name one file twice", shown(git_line)), NAMES_HINT)
                })?;
                if let Some((old, new)) = named {
                    let one = if operation == PatchOperation::Create { new } else { old };
                    if !name::is_same(one, &name) {
                        return Err(names_disagree(number, &name, one));
                    }
                }
                (name.clone(), name)
            }
        };
        if old != new {
            return Err(names_disagree(number, &old, &new));
        }
        if !name::git_line_names(git_line, &old, &new) {
            return Err(names_disagree(number, git_line, &new));
        }
        Ok((old, new))
    }

    /// The mode that the file is to have.
    fn mode(&self, number: usize, operation: PatchOperation) -> Result<Option<u32>, Refusal> {
        match (self.old_mode, self.new_mode) {
            (None, None) => Ok(self.created),
            (Some(old), Some(new)) if !matches!(operation, PatchOperation::Create | PatchOperation::Delete) => {
                Ok((old != new).then_some(new))
            }
            _ => {
                let hint = "Write `old mode` and `new mode` together, and only for a file that exists.";
                Err(invalid(number, "the change of mode is incomplete", hint))
            }
        }
    }
}

const NAMES_HINT: &str = "Write `diff --git a/PATH b/PATH`, the same path on both sides; for a rename, add `rename from` and \
     `rename to`.";

/// Reads a file's mode. Git stores only whether it is executable.
fn parse_mode(number: usize, text: &[u8]) -> Result<u32, Refusal> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.len() == 6);
    let mode = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok());
    match mode.map(|mode| (mode & 0o177_000, mode & 0o111)) {
        Some((0o100_000, 0)) => Ok(0o644),
        Some((0o100_000, _)) => Ok(0o755),
        Some((0o120_000, _)) => {
            let hint = "Remove symbolic links from the patch; no tool creates or changes them.";
            Err(invalid(number, "symbolic links cannot be patched", hint))
        }
        Some((0o160_000, _)) => {
            Err(invalid(number, "submodules cannot be patched", "Remove submodules from the patch."))
        }
        _ => {
            let message = format!("`{}` is not a file mode", shown(text));
            Err(invalid(number, message, "Write 100644, or 100755 for an executable file."))
        }
    }
}
