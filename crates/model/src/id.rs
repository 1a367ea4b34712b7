//! Identifiers. Each is validated when it is parsed, so every value of its type is valid.

use serde::{Deserialize, Deserializer, Serialize};

/// An identifier that does not match its grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {what} is {grammar}", article(what))]
pub struct IdInvalid {
    /// The kind of identifier, such as `run ID`.
    pub what: &'static str,
    /// A description of the grammar.
    pub grammar: &'static str,
}

/// Returns the indefinite article of `noun`.
fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// Implements the conversions of a string type that has a `parse` function.
macro_rules! validated_string {
    ($name:ident, $error:ty) => {
        impl $name {
            /// The value as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(raw: String) -> Result<Self, $error> {
                Self::parse(&raw)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }
    };
}
pub(crate) use validated_string;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        id!($(#[$doc])* $name, $what, "a letter or digit, then up to 63 letters, digits, `_` or `-`",
            "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", is_name);
    };
    ($(#[$doc:meta])* $name:ident, $what:literal, $grammar:literal, $pattern:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String, pattern = $pattern)]
        pub struct $name(String);

        impl $name {
            /// Parses `raw`.
            ///
            /// # Errors
            ///
            /// Returns the grammar if `raw` does not match it.
            pub fn parse(raw: &str) -> Result<Self, IdInvalid> {
                let valid: fn(&str) -> bool = $valid;
                if valid(raw) { Ok(Self(raw.to_owned())) } else { Err(IdInvalid { what: $what, grammar: $grammar }) }
            }
        }

        validated_string!($name, IdInvalid);
    };
}

/// The maximum length of a tool call ID, in characters.
pub const MAX_TOOL_CALL_ID: usize = 128;

/// The maximum length of every other ID, in characters.
const MAX_NAME: usize = 64;

/// Whether `raw` is a letter or digit, then letters, digits, `_` and `-`, all ASCII.
fn is_name(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    bytes.len() <= MAX_NAME
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

id!(
    /// Identifies a run: one execution of an agent. The ID is also the name of the run's folder.
    RunId, "run ID"
);
id!(
    /// Identifies a tool call within its run. The caller may choose any text without control characters, except `.` and `..`,
    /// which clients resolve in the path of a URL.
    ToolCallId, "tool call ID", "1 to 128 characters, none of them a control character, and neither `.` nor `..`",
    r"^([^\u0000-\u001f\u007f-\u009f]{3,128}|[^\u0000-\u001f\u007f-\u009f.][^\u0000-\u001f\u007f-\u009f]?|\.[^\u0000-\u001f\u007f-\u009f.])$",
    |raw| (1..=MAX_TOOL_CALL_ID).contains(&raw.chars().count()) && !raw.chars().any(char::is_control)
);
id!(
    /// Identifies a run token. It is not the token's secret.
    TokenId, "token ID"
);
id!(
    /// Identifies the stored diff of a mutation.
    ArtifactId, "artifact ID"
);
id!(
    /// Identifies the approval of a call.
    ApprovalId, "approval ID"
);
id!(
    /// Names an operator. Names that differ in letter case only are the same name: see [`OperatorName::is_same`].
    OperatorName, "operator name", "a letter or digit, then up to 63 letters, digits, `.`, `_`, `@`, `+` or `-`",
    "^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$",
    |raw| {
        let bytes = raw.as_bytes();
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._@+-".contains(byte);
        bytes.len() <= 64 && bytes.first().is_some_and(u8::is_ascii_alphanumeric) && bytes.iter().all(is_allowed)
    }
);

/// The ID under which the service's own chain is stored. No run can have it, and no request can name it as its run.
const SERVICE: &str = "_service";

impl RunId {
    /// Returns the ID of the service's own chain, which records changes of operators.
    pub fn service() -> Self {
        Self(SERVICE.to_owned())
    }

    /// Whether this is the [service's own chain](Self::service) and not a run.
    pub fn is_service(&self) -> bool {
        self.0 == SERVICE
    }

    /// Parses the ID of a chain: that of a run, or of the service.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_recorded(raw: &str) -> Result<Self, IdInvalid> {
        if raw == SERVICE { Ok(Self::service()) } else { Self::parse(raw) }
    }

    /// Deserializes the ID of a chain, for records and what is made of them.
    pub(crate) fn deserialize_recorded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = String::deserialize(deserializer)?;
        Self::parse_recorded(&raw).map_err(serde::de::Error::custom)
    }
}

impl ToolCallId {
    /// Parses the ID of a new call. It may not be `.` or `..`, which clients resolve in the path of a URL; records of earlier
    /// versions may have such IDs.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_new(raw: &str) -> Result<Self, IdInvalid> {
        // No ID is empty.
        Self::parse(if matches!(raw, "." | "..") { "" } else { raw })
    }
}

impl OperatorName {
    /// Whether both name the same operator.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

/// What the service adds to the ID of a call for the records that belong to it: the command that it had run, and what that changed; and to
/// the ID of an approval for the call of the command that it allows.
pub const RESERVED_SUFFIXES: [&str; 3] = [".command", ".changes", ".approved"];

/// Whether only the service gives such an ID.
pub fn is_reserved_id(id: &str) -> bool {
    RESERVED_SUFFIXES.iter().any(|suffix| id.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_is_checked_against_its_grammar() {
        for good in ["a", "run_1", "0-9", "A".repeat(64).as_str()] {
            assert!(RunId::parse(good).is_ok(), "{good:?}");
        }
        for bad in ["", "_a", "-a", "a/b", "..", "a.b", "é", "a b", "a\0", "A".repeat(65).as_str()] {
            assert!(RunId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_operator_name_fits_into_a_path_and_ignores_case() {
        for good in ["a", "ada", "Ada.L@example.org", "ci+deploy-1_x", "0".repeat(64).as_str()] {
            assert!(OperatorName::parse(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".a", "@a", "a b", "a:b", "a/b", "a\u{e9}", "a\n", "0".repeat(65).as_str()] {
            assert!(OperatorName::parse(bad).is_err(), "{bad:?}");
        }
        let [ada, upper, bob] = ["ada", "ADA", "bob"].map(|name| OperatorName::parse(name).unwrap());
        assert!(ada.is_same(&upper) && !ada.is_same(&bob));
    }

    #[test]
    fn a_tool_call_id_is_counted_in_characters() {
        assert!(ToolCallId::parse(&"é".repeat(128)).is_ok());
        assert!(ToolCallId::parse(&"é".repeat(129)).is_err());
        assert!(ToolCallId::parse("a\nb").is_err());
        assert!(ToolCallId::parse("").is_err());
    }

    #[test]
    fn no_id_is_a_step_in_a_path() {
        for step in [".", ".."] {
            assert!(RunId::parse(step).is_err() && TokenId::parse(step).is_err() && ArtifactId::parse(step).is_err());
            assert!(ApprovalId::parse(step).is_err() && OperatorName::parse(step).is_err());
            assert!(ToolCallId::parse_new(step).is_err(), "{step}");
        }
        for other in ["...", ".a", "a..", "../a", "a"] {
            assert!(ToolCallId::parse_new(other).is_ok(), "{other}");
        }
    }
}
