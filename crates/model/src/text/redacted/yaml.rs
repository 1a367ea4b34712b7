//! YAML, by its lines and their indentation.

use super::{REDACTED, ends_with_line, is_plain_key};

/// What a line is.
enum YamlLine<'a> {
    /// A key whose value follows on other lines.
    Key(&'a str),
    /// A key with at least the beginning of its value.
    Setting(&'a str, &'a str),
    /// An item of a list without a key.
    Item(&'a str),
    /// Anything else.
    Unknown,
}

/// Returns the keys with their indentation.
pub(super) fn redact(text: &str) -> Option<String> {
    let (mut out, mut has_key) = (String::new(), false);
    // Lines that are indented more than this belong to a value; the flag says that it is a block, which ends by indentation.
    let mut value_column: Option<(usize, bool)> = None;
    for line in text.lines() {
        let code = line.trim_start_matches(' ').trim_end();
        let indent = line.len() - line.trim_start_matches(' ').len();
        let prefix = &line[..indent];
        match value_column {
            // The number of empty lines is a part of the value.
            Some(_) if code.is_empty() => continue,
            None if code.is_empty() => {
                out.push('\n');
                continue;
            }
            Some((column, is_block)) if indent > column => {
                if is_block || ends_with_line(code) {
                    continue;
                }
                out.extend([REDACTED, "\n"]);
                break;
            }
            Some(_) | None => value_column = None,
        }
        if code.starts_with('#') {
            out.extend([prefix, REDACTED, "\n"]);
            continue;
        }
        if code == "---" && indent == 0 {
            out.push_str("---\n");
            continue;
        }
        let dashes = dashes(code);
        let (list, rest) = code.split_at(dashes);
        let column = indent + dashes;
        let value = match parse(rest, dashes > 0) {
            YamlLine::Key(key) => {
                has_key = true;
                out.extend([prefix, list, key, ":\n"]);
                continue;
            }
            YamlLine::Setting(key, value) => {
                has_key = true;
                out.extend([prefix, list, key, ": ", REDACTED, "\n"]);
                value_column = Some((column, is_block(value)));
                value
            }
            YamlLine::Item(value) => {
                out.extend([prefix, list.trim_end(), " ", REDACTED, "\n"]);
                value_column = Some((indent, is_block(value)));
                value
            }
            YamlLine::Unknown => "\"",
        };
        if !ends_with_line(value) {
            out.extend([prefix, REDACTED, "\n"]);
            break;
        }
    }
    has_key.then_some(out)
}

/// Whether a value is a block scalar, which begins on the next line.
fn is_block(value: &str) -> bool {
    value.starts_with(['|', '>'])
}

/// The length of the dashes that begin items of lists, with the blanks after them.
fn dashes(code: &str) -> usize {
    let mut length = 0;
    while let Some(rest) = code[length..].strip_prefix("- ") {
        length += 2 + rest.len() - rest.trim_start_matches(' ').len();
    }
    length
}

fn parse(rest: &str, is_item: bool) -> YamlLine<'_> {
    if rest == "-" {
        return YamlLine::Unknown;
    }
    let colon = rest.find(": ").or_else(|| rest.ends_with(':').then(|| rest.len() - 1));
    let Some(colon) = colon else { return if is_item { YamlLine::Item(rest) } else { YamlLine::Unknown } };
    let (key, value) = (&rest[..colon], rest[colon + 1..].trim());
    if !is_plain_key(key) {
        YamlLine::Unknown
    } else if value.is_empty() {
        YamlLine::Key(key)
    } else {
        YamlLine::Setting(key, value)
    }
}
