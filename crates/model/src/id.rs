//! Identifiers. Each is validated when it is parsed, so every value of its type is valid.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An identifier that does not match its grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {what} is {grammar}")]
pub struct IdInvalid {
    /// The kind of identifier, such as `run ID`.
    pub what: &'static str,
    /// The grammar in words.
    pub grammar: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $grammar:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String)]
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

            /// The identifier as callers write it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdInvalid;

            fn try_from(raw: String) -> Result<Self, IdInvalid> {
                Self::parse(&raw)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

/// The longest tool call ID, in characters.
pub const MAX_TOOL_CALL_ID: usize = 128;

/// ASCII letters, digits, `_` and `-`, the first a letter or digit, at most `max` of them.
fn is_name(raw: &str, max: usize) -> bool {
    let bytes = raw.as_bytes();
    bytes.len() <= max
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

id!(
    /// One execution of an agent; also the name of its folder, hence the narrow grammar.
    RunId, "run ID", "a letter or digit, then up to 63 letters, digits, `_` or `-`", |raw| is_name(raw, 64)
);
id!(
    /// Names one tool call of its run. Free text of the caller, without control characters.
    ToolCallId, "tool call ID", "1 to 128 characters, none of them a control character",
    |raw| (1..=MAX_TOOL_CALL_ID).contains(&raw.chars().count()) && !raw.chars().any(char::is_control)
);
id!(
    /// Names a run token without being its secret.
    TokenId, "token ID", "a letter or digit, then up to 63 letters, digits, `_` or `-`", |raw| is_name(raw, 64)
);
id!(
    /// Names the diff that one mutation left.
    ArtifactId, "artifact ID", "a letter or digit, then up to 63 letters, digits, `_` or `-`", |raw| is_name(raw, 64)
);
id!(
    /// Names a call that waits for a person.
    ApprovalId, "approval ID", "a letter or digit, then up to 63 letters, digits, `_` or `-`", |raw| is_name(raw, 64)
);

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
    fn a_tool_call_id_is_counted_in_characters() {
        assert!(ToolCallId::parse(&"é".repeat(128)).is_ok());
        assert!(ToolCallId::parse(&"é".repeat(129)).is_err());
        assert!(ToolCallId::parse("a\nb").is_err());
        assert!(ToolCallId::parse("").is_err());
    }
}
