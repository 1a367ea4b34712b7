//! Files of settings with their keys and without their values.

mod lines;
mod tree;
mod yaml;

use crate::LogicalPath;
use crate::credential::credential_in;
use crate::path::confusables::with_folded;

/// What is shown in place of a value.
const REDACTED: &str = "[redacted]";
/// The longest key that is shown, in bytes.
const MAX_KEY_BYTES: usize = 64;

/// A form of settings, by the name of the file.
#[derive(Clone, Copy)]
enum SettingsForm {
    Env,
    Properties,
    Yaml,
    Json,
    Toml,
}

/// Whether a file of this name may have a form whose keys can be shown.
pub fn is_settings_file(path: &LogicalPath) -> bool {
    form_of(path).is_some()
}

/// Returns the keys of a file of settings, with `[redacted]` in place of each value. `None` if the file is not one of
/// `KEY=value`, properties, YAML, JSON or TOML, or has no key that can be shown.
///
/// No value is part of the result. Comments are redacted too, and keys that may be credentials. Where it is not certain
/// that a line of `KEY=value`, properties or YAML begins with a key, this line and all after it become one `[redacted]`.
pub fn redact_settings(path: &LogicalPath, bytes: &[u8]) -> Option<String> {
    let form = form_of(path)?;
    let text = std::str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)).ok()?;
    // Other characters that some parser takes for the end of a line.
    if text.contains(['\0', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']) || has_lone_cr(text) {
        return None;
    }
    match form {
        SettingsForm::Env => lines::redact(text, &['=']),
        SettingsForm::Properties => lines::redact(text, &['=', ':']),
        SettingsForm::Yaml => yaml::redact(text),
        SettingsForm::Json => tree::redact_json(text),
        SettingsForm::Toml => tree::redact_toml(text),
    }
}

fn form_of(path: &LogicalPath) -> Option<SettingsForm> {
    with_folded(path.file_name(), |name| match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "properties" => Some(SettingsForm::Properties),
        "yml" | "yaml" => Some(SettingsForm::Yaml),
        "json" => Some(SettingsForm::Json),
        "toml" => Some(SettingsForm::Toml),
        "env" => Some(SettingsForm::Env),
        _ if name.starts_with(".env.") => Some(SettingsForm::Env),
        _ => None,
    })
}

fn has_lone_cr(text: &str) -> bool {
    text.bytes().zip(text.bytes().skip(1).chain([0])).any(|(byte, next)| byte == b'\r' && next != b'\n')
}

/// Whether a key may be shown: it is a plain name and not a credential.
fn is_plain_key(key: &str) -> bool {
    let starts_well = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    starts_well && is_plain && key.len() <= MAX_KEY_BYTES && !is_random(key) && credential_in(key.as_bytes()).is_none()
}

/// Whether a part of a key looks like a generated value instead of words.
fn is_random(key: &str) -> bool {
    key.split(['_', '.', '-']).any(|part| {
        let has = |is: fn(&u8) -> bool| part.as_bytes().iter().filter(|byte| is(byte)).count();
        let (digits, upper, lower) =
            (has(u8::is_ascii_digit), has(u8::is_ascii_uppercase), has(u8::is_ascii_lowercase));
        let is_mixed = part.len() >= 12 && digits > 0 && upper > 0 && lower > 0;
        is_mixed || part.len() > 32 || (part.len() >= 16 && digits >= 4)
    })
}

/// Whether a value certainly ends with its line: quotes and brackets are closed, and nothing announces more lines. Within
/// brackets, where dialects differ in what begins a quote or a comment, false if one of them begins where that is doubtful.
fn ends_with_line(value: &str) -> bool {
    const OPENERS: [&str; 6] = ["-----BEGIN", "<<", "$(", "\\\"", "\\'", "\\`"];
    if OPENERS.iter().any(|opener| value.contains(opener)) {
        return false;
    }
    let (mut quote, mut brackets, mut previous) = (None, Vec::new(), ' ');
    for c in value.chars() {
        let is_doubtful = c == '#' || (matches!(c, '"' | '\'' | '`') && !"[{(,:=".contains(previous));
        if quote.is_none() && !brackets.is_empty() && is_doubtful {
            return false;
        }
        if !c.is_whitespace() {
            previous = c;
        }
        match (quote, c) {
            (Some(open), c) => {
                if open == c {
                    quote = None;
                }
            }
            (None, '"' | '\'' | '`') => quote = Some(c),
            (None, '(' | '[' | '{') => brackets.push(c),
            (None, ')' | ']' | '}') => {
                let open = match c {
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                if brackets.pop() != Some(open) {
                    return false;
                }
            }
            (None, _) => {}
        }
    }
    quote.is_none() && brackets.is_empty()
}

#[cfg(test)]
mod tests;
