//! The version of a file that a call expects.

use model::{Code, LogicalPath, Refusal, Sha256, canonical_json};
use serde::Deserialize;
use serde_json::Value;

use crate::run::seen_versions::SeenVersion;

/// The word in an input for the version that the caller has seen.
pub(crate) const SEEN: &str = "seen";

/// The version that a file must have: its sha256, or `seen` for the version that this token was last given by `read_file`,
/// `read_files`, `GET` of the file, or its own change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, pattern = "^([0-9a-f]{64}|seen)$", example = "seen")]
pub struct ExpectedVersion(Expected);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Sha256(Sha256),
    Seen(SeenVersion),
}

impl TryFrom<String> for ExpectedVersion {
    type Error = String;

    fn try_from(raw: String) -> Result<Self, String> {
        if raw == SEEN {
            return Ok(Self(Expected::Seen(SeenVersion::Never)));
        }
        Sha256::parse(&raw).map(Self::from).map_err(|error| format!("{error}, or `{SEEN}`"))
    }
}

impl From<Sha256> for ExpectedVersion {
    fn from(version: Sha256) -> Self {
        Self(Expected::Sha256(version))
    }
}

impl ExpectedVersion {
    /// The hash, where one is expected.
    pub fn sha256(self) -> Option<Sha256> {
        match self.0 {
            Expected::Sha256(version) | Expected::Seen(SeenVersion::Version(version)) => Some(version),
            Expected::Seen(SeenVersion::Never | SeenVersion::Absent) => None,
        }
    }

    /// What the caller has seen, if that is expected.
    pub fn seen(self) -> Option<SeenVersion> {
        match self.0 {
            Expected::Seen(version) => Some(version),
            Expected::Sha256(_) => None,
        }
    }

    /// Sets what the caller has seen, if that is expected.
    pub fn set_seen(&mut self, version: SeenVersion) {
        if let Expected::Seen(seen) = &mut self.0 {
            *seen = version;
        }
    }
}

/// The hint where a version is expected of a file that does not exist.
const ABSENT_HINT: &str = "Leave out `expectedSha256` to create the file, or find its path with find_files.";
/// The hint where the version that the caller has seen is expected of a file that does not exist.
const REMOVED_HINT: &str =
    "To create it again, use write_file with mode CREATE_NEW. Or find its new path with find_files.";
/// The hint where another version is expected than the present one.
const STALE_HINT: &str =
    "Read the file again, base the change on its present content, and give its sha256 as `expectedSha256`.";
/// The hint where the call names no version.
const UNNAMED_HINT: &str = "Read the file first if you have not, base the change on its present content, and give its sha256 as `expectedSha256`.";
/// The hint where the file is not as the caller has last seen it.
const CHANGED_HINT: &str = "Read it again with read_file, then make a new call that is based on its present content.";
/// The hint where the caller has not seen the file.
const UNSEEN_HINT: &str = "Read it first with read_file, then make a new call that is based on its content.";

/// What is wrong with the version that the caller has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenFault {
    /// The caller has not seen the file.
    Unseen,
    /// The file has changed since.
    Changed,
}

/// Returns what is wrong with the version that the caller has seen, if that is why a call is refused.
pub fn seen_fault(refusal: &Refusal) -> Option<SeenFault> {
    match refusal.hint.as_str() {
        UNSEEN_HINT => Some(SeenFault::Unseen),
        CHANGED_HINT => Some(SeenFault::Changed),
        _ => None,
    }
}

/// Checks that `path` has the version that the caller expects. An existing file needs an expected version.
///
/// # Errors
///
/// `WRITE_CONFLICT`.
pub(crate) fn expect_version(
    path: &LogicalPath,
    current: Option<Sha256>,
    expected: Option<ExpectedVersion>,
) -> Result<(), Refusal> {
    let conflict = |message: String, hint: &str| {
        let refusal = Refusal::new(Code::WriteConflict, message, hint).at(path);
        Err(refusal.with_details(|details| details.current_sha256 = current))
    };
    let seen = expected.and_then(ExpectedVersion::seen);
    match (current, expected, expected.and_then(ExpectedVersion::sha256)) {
        // The transaction adds whether the file existed before.
        (None, _, Some(_)) => {
            let hint = if seen.is_some() { REMOVED_HINT } else { ABSENT_HINT };
            conflict(format!("`{path}` does not exist, so `expectedSha256` cannot match"), hint)
        }
        (None, _, None) => Ok(()),
        (Some(current), _, Some(version)) if current == version => Ok(()),
        (Some(_), _, Some(_)) if seen.is_some() => {
            conflict(format!("`{path}` has changed since this token has seen it"), CHANGED_HINT)
        }
        (Some(_), _, Some(_)) => {
            conflict(format!("`{path}` does not have the version in `expectedSha256`"), STALE_HINT)
        }
        (Some(_), Some(_), None) if seen == Some(SeenVersion::Absent) => {
            conflict(format!("`{path}` exists again since this token has removed it"), UNSEEN_HINT)
        }
        (Some(_), Some(_), None) => conflict(format!("this token has not seen `{path}`: read it first"), UNSEEN_HINT),
        (Some(_), None, None) => conflict(format!("`{path}` exists; changing it needs `expectedSha256`"), UNNAMED_HINT),
    }
}

/// The input of a call with each `seen` replaced by the version that it meant: the call may be executed for another
/// caller later. An edit or a patch that names no version says by its context what it expects: `is_by_context`.
pub(crate) fn without_seen(input: &str, seen: &[(LogicalPath, SeenVersion)], is_by_context: bool) -> String {
    let Ok(Value::Object(mut members)) = serde_json::from_str(input) else { return input.to_owned() };
    let version = |path: Option<&LogicalPath>| {
        let found = seen.iter().find(|(other, _)| path.is_none_or(|path| path == other));
        match found.map(|(_, version)| *version) {
            Some(SeenVersion::Version(version)) => Some(Value::from(version.to_string())),
            Some(SeenVersion::Never | SeenVersion::Absent) | None => None,
        }
    };
    let named = ["path", "from"].into_iter().find_map(|name| members.get(name)?.as_str());
    let named = named.and_then(|raw| LogicalPath::parse(raw).ok());
    let is_recursive = members.get("recursive") == Some(&Value::Bool(true));
    let is_folder = is_recursive && !seen.iter().any(|(path, _)| Some(path) == named.as_ref());
    match members.remove("expectedSha256") {
        // A folder has no version. What is approved is bound to the versions of its files.
        Some(_) | None if is_folder => {}
        Some(Value::Object(by_path)) => {
            let resolved = by_path.into_iter().filter_map(|(raw, expected)| {
                let path = LogicalPath::parse_file(&raw).ok();
                let expected = if expected == SEEN { version(path.as_ref())? } else { expected };
                Some((raw, expected))
            });
            members.insert("expectedSha256".to_owned(), Value::Object(resolved.collect()));
        }
        Some(Value::String(expected)) if expected != SEEN => {
            members.insert("expectedSha256".to_owned(), Value::from(expected));
        }
        None | Some(Value::Null) if is_by_context => {}
        // An input without the member expects what was seen where that is the default.
        Some(_) | None => members.extend(version(None).map(|version| ("expectedSha256".to_owned(), version))),
    }
    canonical_json(&members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_input_has_versions_in_place_of_what_was_seen() {
        let (a, b) = (Sha256::of(b"a"), Sha256::of(b"b"));
        let path = |raw: &str| LogicalPath::parse(raw).unwrap();
        let seen = [(path("a"), SeenVersion::Version(a)), (path("d/b"), SeenVersion::Version(b))];
        let one = without_seen(r#"{"path":"a","expectedSha256":"seen"}"#, &seen[..1], false);
        assert_eq!(one, format!(r#"{{"expectedSha256":"{a}","path":"a"}}"#));
        let many = without_seen(r#"{"expectedSha256":{"./a":"seen","d//b":"seen","c":"x"}}"#, &seen, false);
        assert_eq!(many, format!(r#"{{"expectedSha256":{{"./a":"{a}","c":"x","d//b":"{b}"}}}}"#));
        assert_eq!(without_seen(r#"{"path":"a"}"#, &seen[..1], false), one);
        assert_eq!(without_seen(r#"{"path":"a"}"#, &seen[..1], true), r#"{"path":"a"}"#);
        let new = without_seen(r#"{"path":"n","expectedSha256":"seen"}"#, &[(path("n"), SeenVersion::Never)], false);
        assert_eq!(new, r#"{"path":"n"}"#);
    }

    #[test]
    fn a_version_is_a_hash_or_the_one_that_was_seen() {
        let parse = |raw: &str| ExpectedVersion::try_from(raw.to_owned());
        let hash = Sha256::of(b"a");
        assert_eq!(parse(&hash.to_string()).unwrap().sha256(), Some(hash));
        assert_eq!(parse("seen").unwrap().seen(), Some(SeenVersion::Never));
        assert!(parse("SEEN").is_err() && parse("").is_err() && parse("abc").unwrap_err().contains("`seen`"));
    }
}
