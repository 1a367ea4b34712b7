//! `KEY=value` and properties: one setting a line.

use super::{REDACTED, ends_with_line, is_plain_key};

/// Returns the keys, each followed by one of the `separators`.
pub(super) fn redact(text: &str, separators: &[char]) -> Option<String> {
    let (mut out, mut has_key, mut is_continued) = (String::new(), false, false);
    for line in text.lines() {
        if is_continued {
            // Not every dialect joins lines: then this is a setting of its own.
            if !ends_with_line(line) {
                out.extend([REDACTED, "\n"]);
                break;
            }
            is_continued = continues(line);
            continue;
        }
        let code = line.trim();
        if code.is_empty() {
            out.push('\n');
            continue;
        }
        if code.starts_with(['#', '!', ';']) {
            // A comment is one line in every dialect, unless it ends in a backslash: then nobody can be sure.
            out.extend([REDACTED, "\n"]);
            if continues(line) {
                break;
            }
            continue;
        }
        let (export, setting) = code.strip_prefix("export ").map_or(("", code), |rest| ("export ", rest.trim_start()));
        let split =
            setting.find(separators).map(|at| (setting[..at].trim_end(), &setting[at..=at], &setting[at + 1..]));
        let Some((key, separator, value)) = split.filter(|(key, _, value)| is_plain_key(key) && !is_base64(key, value))
        else {
            out.extend([REDACTED, "\n"]);
            break;
        };
        has_key = true;
        out.extend([export, key, separator, REDACTED, "\n"]);
        if !ends_with_line(value) {
            out.extend([REDACTED, "\n"]);
            break;
        }
        is_continued = continues(line);
    }
    has_key.then_some(out)
}

/// Whether a key and its value can be one text in base64, which may end in `=`.
fn is_base64(key: &str, value: &str) -> bool {
    let has = |is: fn(&u8) -> bool| key.as_bytes().iter().any(is);
    value.trim().bytes().all(|byte| byte == b'=') && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// Whether a line ends in a backslash that joins the next line to it.
fn continues(line: &str) -> bool {
    line.trim_end().bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}
