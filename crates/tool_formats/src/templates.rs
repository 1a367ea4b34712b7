//! Texts with values in braces.

use engine::tools::text::quote;
use model::excerpt;

/// The most characters of a text that a refusal repeats.
const MAX_REPEATED: usize = 200;

/// Returns `template` with the value of each `{name}`; `None` if one is unknown.
pub(crate) fn fill(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut out = String::with_capacity(template.len() + 64);
    let mut rest = template;
    while let Some((before, (name, after))) =
        rest.split_once('{').and_then(|(before, tail)| Some((before, tail.split_once('}')?)))
    {
        out.push_str(before);
        out.push_str(&value(name)?);
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

/// Returns `template`, which names a line, for that line.
pub(crate) fn at_line(template: &str, line: u64) -> String {
    let value = |name: &str| match name {
        "line" => Some(line.to_string()),
        "skipped" => Some(line.saturating_sub(1).to_string()),
        _ => None,
    };
    fill(template, value).unwrap_or_default()
}

/// Returns a text of the input as a refusal repeats it.
pub(crate) fn repeated(text: &str) -> String {
    quote::one_line(&excerpt(text, MAX_REPEATED)).into_owned()
}
