//! Values that look like credentials. The policy denies the well-known forms; here a person decides, so that more may be suspected.

use super::assignments::assignments;
use crate::redact;

/// Words in the names of credentials, without separators.
const NAMES: &[&str] = &[
    "accesskey",
    "apikey",
    "authkey",
    "clientkey",
    "credential",
    "encryptionkey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "signingkey",
    "token",
];
/// Ends of names that say something about a credential and are none.
const NOT_VALUES: &[&str] = &[
    "column", "count", "env", "expiry", "field", "file", "header", "hint", "id", "label", "length", "limit", "name",
    "param", "path", "pattern", "prefix", "regex", "size", "ttl", "type", "uri", "url", "var", "version",
];
/// Parts of values that stand for a credential.
const PLACEHOLDERS: &[&str] = &[
    "***",
    "...",
    "changeme",
    "change-me",
    "change_me",
    "dummy",
    "example",
    "placeholder",
    "redacted",
    "xxxx",
    "your-",
    "your_",
];
/// The shortest value that is suspected, in bytes. Without quotes it may be a name, so that it has to be longer.
const MIN_QUOTED: usize = 8;
const MIN_PLAIN: usize = 12;

/// Something that looks like a credential.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suspected {
    /// What it is called.
    pub(super) name: String,
    /// The value. Never to be shown.
    pub(super) value: String,
}

/// Returns what in a line looks like a credential. `is_config`: values need no quotes.
pub(super) fn suspected(line: &str, is_config: bool) -> Option<Suspected> {
    if redact(line) != line {
        return Some(Suspected { name: "a known form of credential".to_owned(), value: line.trim().to_owned() });
    }
    assignments(line).into_iter().find_map(|assignment| {
        let folded: String = assignment.name.to_ascii_lowercase().replace(['_', '-', '.'], "");
        let is_name =
            NAMES.iter().any(|word| folded.contains(word)) && !NOT_VALUES.iter().any(|end| folded.ends_with(end));
        let min = if assignment.is_quoted { MIN_QUOTED } else { MIN_PLAIN };
        let is_value =
            (assignment.is_quoted || is_config) && assignment.value.len() >= min && is_random(assignment.value);
        (is_name && is_value)
            .then(|| Suspected { name: format!("`{}`", assignment.name), value: assignment.value.to_owned() })
    })
}

/// Whether a value has letters, and digits or signs, and is neither a reference nor a placeholder.
fn is_random(value: &str) -> bool {
    let has = |is: fn(char) -> bool| value.chars().any(is);
    let is_reference = has(|c| c.is_whitespace() || matches!(c, '<' | '>' | '{' | '}' | '$' | '(' | ')' | '[' | ']'))
        || value.contains("://")
        || value.starts_with(['/', '.', '&', '*']);
    let lower = value.to_ascii_lowercase();
    !is_reference
        && has(|c| c.is_ascii_alphabetic())
        && has(|c| c.is_ascii_digit() || matches!(c, '!' | '@' | '#' | '%' | '^' | '+' | '=' | '~'))
        && !PLACEHOLDERS.iter().any(|placeholder| lower.contains(placeholder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_names_are_suspected() {
        for (line, is_config, name) in [
            ("SMTP_PASSWORD = \"vT9q-Lw2x\"", false, "`SMTP_PASSWORD`"),
            ("    \"clientSecret\": \"8f14e45fceea\",", false, "`clientSecret`"),
            ("let api_key: &str = \"k3y-material!\";", false, "`api_key`"),
            ("DB_PASSWORD=c0rrecthorse99", true, "`DB_PASSWORD`"),
            ("url = \"postgres://app:hunter2hunter@db.example/x\"", false, "a known form of credential"),
        ] {
            assert_eq!(suspected(line, is_config).map(|found| found.name).as_deref(), Some(name), "{line}");
        }
        for line in [
            "password = \"password\"",
            "password = os.environ[\"DB_PASSWORD_2\"]",
            "token_url = \"https://id.example/v2/token\"",
            "secretName: \"app-secret-v2\"",
            "API_KEY = \"<your-api-key-1>\"",
            "token = \"${TOKEN_2}\"",
            "DB_PASSWORD=c0rrecthorse99",
            "max_tokens = 4096",
            "let tokens2 = tokenize1(input2)",
            "password = \"changeme1\"",
        ] {
            assert_eq!(suspected(line, false), None, "{line}");
        }
    }
}
