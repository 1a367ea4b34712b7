//! Parses the members of a tool's input.

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::{Code, Decoded, Encoding, LogicalPath, Refusal, Rules};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The maximum length of a mutation's reason, in characters.
pub(crate) const MAX_REASON: usize = 2000;
/// Every whole number up to this one has an exact floating-point form.
pub(crate) const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// The maximum length of a step ID, in characters.
pub(crate) const MAX_STEP_ID: usize = 128;

/// Parses a tool's own members.
pub(crate) fn parse<T: DeserializeOwned>(mut members: Map<String, Value>) -> Result<T, Refusal> {
    for (name, member) in &mut members {
        check_exact(name, member)?;
        normalize_integer(member);
    }
    model::json::members_into(members).map_err(|error| {
        Refusal::invalid(
            format!("the input does not fit the tool: {error}"),
            "Compare the input with the tool's schema in GET /v1/tools.",
        )
    })
}

/// Refuses a whole number beyond 2^53 in any notation: it is not certain that it is the number that was meant.
fn check_exact(name: &str, member: &Value) -> Result<(), Refusal> {
    let Value::Number(number) = member else { return Ok(()) };
    if number.as_f64().is_none_or(|real| real.abs() <= MAX_EXACT || real.fract() != 0.0) {
        return Ok(());
    }
    let message = format!("`{name}`: the number {number} is beyond 2^53, above which numbers lose digits");
    Err(Refusal::invalid(message, "Give a smaller number, or leave it out."))
}

/// Turns a whole number in any notation, such as `1.0`, into an integer.
pub(crate) fn normalize_integer(member: &mut Value) {
    let Value::Number(number) = member else { return };
    if let Some(real) = number.as_f64().filter(|real| number.is_f64() && *real >= 0.0 && real.fract() == 0.0) {
        *member = Value::from(format!("{real:.0}").parse::<u64>().unwrap_or(u64::MAX));
    }
}

/// How the URI of a file of the run begins, as in MCP's resources.
pub const URI_SCHEME: &str = "workspace:///";

/// Returns the path of a file's URI. Anything else is a path already.
pub(crate) fn path_of_uri(raw: &str) -> Cow<'_, str> {
    match raw.strip_prefix(URI_SCHEME).map(|path| percent_decode_str(path).decode_utf8()) {
        Some(Ok(path)) => path,
        Some(Err(_)) | None => Cow::Borrowed(raw),
    }
}

/// Parses a path of any type. An empty one and `/` are the root, as models write it.
pub(crate) fn any_path(raw: &str) -> Result<LogicalPath, Refusal> {
    match &*path_of_uri(raw) {
        "" | "/" => Ok(LogicalPath::root()),
        path => LogicalPath::parse(path).map_err(|rule| Refusal::path(raw, rule)),
    }
}

/// Parses the path of a file.
pub(crate) fn file_path(raw: &str) -> Result<LogicalPath, Refusal> {
    LogicalPath::parse_file(&path_of_uri(raw)).map_err(|rule| Refusal::path(raw, rule))
}

/// Parses the path of a file or of a folder, which may end in `/`.
pub(crate) fn folder_path(raw: &str) -> Result<LogicalPath, Refusal> {
    file_path(raw.strip_suffix('/').filter(|folder| !folder.is_empty()).unwrap_or(raw))
}

/// Parses the path of a file that the call creates.
pub(crate) fn new_file_path(raw: &str) -> Result<LogicalPath, Refusal> {
    let path = file_path(raw)?;
    check_new(&path)?;
    Ok(path)
}

/// Refuses a path that no new file may have. Known from the input, the refusal precedes policy and existence.
pub(crate) fn check_new(path: &LogicalPath) -> Result<(), Refusal> {
    path.check_new().map_err(|rule| Refusal::path(path.as_str(), rule))
}

/// Returns the default of an optional `path`.
pub(crate) fn root() -> String {
    ".".to_owned()
}

/// Returns `value`, or `most` if it is larger.
pub(crate) fn bounded(name: &str, value: u64, least: u64, most: u64) -> Result<u64, Refusal> {
    if value < least {
        let message = format!("`{name}` is {value}; the minimum is {least}");
        return Err(Refusal::invalid(message, format!("Give `{name}` as {least} or more."))
            .with_details(|details| (details.limit, details.actual) = (Some(least), Some(value))));
    }
    Ok(value.min(most))
}

/// Parses `maxChars`, the maximum length of the entries or lines of an answer in characters.
pub(crate) fn max_chars(value: Option<u64>) -> Result<Option<usize>, Refusal> {
    let value = value.map(|value| bounded("maxChars", value, 1, u64::MAX)).transpose()?;
    Ok(value.map(|value| usize::try_from(value).unwrap_or(usize::MAX)))
}

/// Returns the refusal of a tool on the binary file at `path`.
pub(crate) fn unsupported_binary(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::UnsupportedBinary,
        format!("`{path}` is a binary file"),
        "Tools read and write text only; use the files plane for binary files.",
    )
    .at(path)
}

/// Parses `encoding`, the name of an encoding.
pub(crate) fn encoding(name: Option<&str>) -> Result<Option<Encoding>, Refusal> {
    let parse = |name: &str| {
        Encoding::parse(name).ok_or_else(|| {
            let message = format!("`{}` is not an encoding that the service knows", model::excerpt(name, 40));
            Refusal::invalid(message, "Give a name such as utf-8, utf-16le, gbk, shift_jis, euc-jp or windows-1251.")
        })
    };
    name.map(parse).transpose()
}

/// Decodes the text of the file at `path`, if encoding it again gives the same bytes. `named` is the encoding that the caller says
/// it has.
pub(crate) fn decode_for_edit(path: &LogicalPath, bytes: &[u8], named: Option<Encoding>) -> Result<Decoded, Refusal> {
    if let Some(encoding) = named {
        let text = decode_as(path, bytes, encoding)?;
        return Ok(Decoded { text, encoding });
    }
    let decoded = model::decode(bytes).ok_or_else(|| unsupported_binary(path))?;
    // Bytes that do not survive decoding and encoding would change outside the edit too.
    if model::encode(&decoded.text, decoded.encoding).as_deref() != Some(bytes) {
        return Err(unsupported_binary(path));
    }
    Ok(decoded)
}

/// Decodes the text of the file at `path` in the encoding that the caller has named.
pub(crate) fn decode_as(path: &LogicalPath, bytes: &[u8], encoding: Encoding) -> Result<String, Refusal> {
    model::decode_as(bytes, encoding).ok_or_else(|| {
        let message = format!("`{path}` is not text in {}", encoding.label());
        Refusal::invalid(message, "Give the encoding that the file has, or leave `encoding` out.").at(path)
    })
}

/// How the note about a glob that matches no path begins.
pub(crate) const GLOB_NOTE: &str = "the glob ";
/// The maximum number of globs with a note.
const MAX_GLOB_NOTES: usize = 3;

/// Returns notes about the globs that match no path of the run's tree, whatever its files are.
pub(crate) fn mistaken_globs(rules: &Rules, globs: &[String]) -> Vec<String> {
    let note = |glob: &String| {
        let why = match model::glob_mistake(glob) {
            Some(mistake) => format!("matches no path: {mistake}"),
            None if is_of_submodule(rules, glob) => "names a submodule, whose files this run does not have".to_owned(),
            None => return None,
        };
        Some(format!("{GLOB_NOTE}`{}` {why}", model::excerpt(glob, 100)))
    };
    globs.iter().filter_map(note).take(MAX_GLOB_NOTES).collect()
}

/// Whether everything that a glob can match is in a submodule.
fn is_of_submodule(rules: &Rules, glob: &str) -> bool {
    let names = glob.trim_start_matches('/').trim_end_matches('/').split('/');
    let names: Vec<_> = names.take_while(|name| !name.contains(['*', '?', '[', '{', '\\'])).collect();
    LogicalPath::parse(&names.join("/")).is_ok_and(|path| rules.is_in_submodule(&path))
}

/// Returns the refusal of `what`, which has characters that the encoding of the file at `path` lacks.
pub(crate) fn not_encodable(what: &str, path: &LogicalPath, encoding: Encoding) -> Refusal {
    let message = format!("{what} has characters that {}, the encoding of `{path}`, lacks", encoding.label());
    let hint = if encoding.is_older() {
        "Use only characters of that encoding. If the file has another one, name it in `encoding`."
    } else {
        "Use only characters of that encoding."
    };
    Refusal::new(Code::UnsupportedBinary, message, hint).at(path)
}

/// Refuses to write characters that the file at `path` does not have in an encoding that is only guessed, and may well be another
/// one. Bytes that are in the file already, and ASCII, are right in any encoding.
pub(crate) fn check_guess(path: &LogicalPath, before: &[u8], after: &[u8]) -> Result<(), Refusal> {
    if std::str::from_utf8(before).is_ok() {
        return Ok(());
    }
    let Some(Decoded { text, encoding }) = model::decode(before) else { return Ok(()) };
    let Some(new_text) = model::decode_as(after, encoding).filter(|_| model::is_guessed(before, encoding)) else {
        return Ok(());
    };
    let known: BTreeSet<char> = text.chars().filter(|c| !c.is_ascii()).collect();
    let is_new = |c: char| !c.is_ascii() && !known.contains(&c);
    if !new_text.chars().any(is_new) || model::is_likely(before, encoding) {
        return Ok(());
    }
    let message = format!("the encoding of `{path}` is uncertain: {} is a guess", encoding.label());
    let hint = "Name the file's encoding in `encoding`; read_file shows the text in the encoding that it is given.";
    Err(Refusal::invalid(message, hint).at(path))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{any_path, check_exact, file_path, normalize_integer};

    #[test]
    fn the_root_and_uris_are_paths() {
        for raw in ["", "/", ".", "workspace:///", "workspace:///."] {
            assert!(any_path(raw).unwrap().is_root(), "{raw}");
        }
        for raw in ["src/a b.rs", "workspace:///src/a b.rs", "workspace:///src/a%20b.rs"] {
            assert_eq!(any_path(raw).unwrap().as_str(), "src/a b.rs");
            assert_eq!(file_path(raw).unwrap().as_str(), "src/a b.rs");
        }
        for raw in
            ["/src", "workspace:////etc/passwd", "workspace:///..%2Fa", "workspace:///%00", "workspace:///.git/config"]
        {
            assert!(any_path(raw).is_err() && file_path(raw).is_err(), "{raw}");
        }
        for raw in ["", "/", "workspace:///"] {
            assert!(file_path(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn whole_numbers_are_integers_in_any_notation() {
        let table = [
            ("7", json!(7)),
            ("7.0", json!(7)),
            ("7e2", json!(700)),
            ("0.0", json!(0)),
            ("9007199254740992", json!(1_u64 << 53)),
            ("9007199254740992.0", json!(1_u64 << 53)),
        ];
        for (text, expected) in table {
            let mut value = serde_json::from_str(text).unwrap();
            check_exact("a", &value).unwrap();
            normalize_integer(&mut value);
            assert_eq!(value, expected, "{text}");
        }
        for text in ["-1", "-1.0", "-1e30", "1.5", "\"7.0\"", "[7.0]", "true", "null"] {
            let mut value = serde_json::from_str(text).unwrap();
            normalize_integer(&mut value);
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        for text in ["9007199254740994", "18446744073709551615", "99999999999999999999", "1e300", "-1e30"] {
            assert!(check_exact("a", &serde_json::from_str(text).unwrap()).is_err(), "{text}");
        }
    }
}
