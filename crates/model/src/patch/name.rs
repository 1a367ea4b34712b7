//! Names in a patch's headers: quoted or plain, with or without a prefix.

/// Prefixes of the two sides of a header; removed only as a pair.
const PREFIXES: [(&str, &str); 11] = [
    ("a/", "b/"),
    ("b/", "a/"),
    ("i/", "w/"),
    ("w/", "i/"),
    ("c/", "i/"),
    ("i/", "c/"),
    ("c/", "w/"),
    ("w/", "c/"),
    ("o/", "w/"),
    ("w/", "o/"),
    ("old/", "new/"),
];

/// The name in a line `--- NAME` or `+++ NAME`, and the text that follows after a tab.
pub(crate) fn with_tail(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    if text.starts_with(b"\"") {
        let (name, rest) = unquote(text)?;
        return match rest {
            [] => Some((name, rest)),
            [b'\t', tail @ ..] => Some((name, tail)),
            _ => None,
        };
    }
    let end = memchr::memchr(b'\t', text).unwrap_or(text.len());
    Some((text[..end].to_vec(), text.get(end + 1..).unwrap_or_default()))
}

/// The name, if it is all of `text`.
pub(crate) fn alone(text: &[u8]) -> Option<Vec<u8>> {
    match with_tail(text)? {
        (name, []) if !text.ends_with(b"\t") => Some(name),
        _ => None,
    }
}

/// Reads a quoted name with the escapes of C. Returns the name and the rest.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (byte, after) = escape(rest)?;
                name.push(byte);
                rest = after;
            }
            byte => name.push(*byte),
        }
    }
}

/// Reads an escape after its backslash.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (letter, rest) = text.split_first()?;
    let byte = match letter {
        b'a' => 0x07,
        b'b' => 0x08,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 0x0b,
        b'f' => 0x0c,
        b'r' => b'\r',
        b'"' | b'\\' => *letter,
        b'0'..=b'3' => {
            let digits = text.first_chunk::<3>().filter(|digits| digits.iter().all(|c| matches!(c, b'0'..=b'7')))?;
            let byte = digits.iter().fold(0u8, |value, digit| value << 3 | (digit - b'0'));
            return Some((byte, &text[3..]));
        }
        _ => return None,
    };
    Some((byte, rest))
}

/// Removes a pair of prefixes, if the names have one.
pub(crate) fn strip_pair(old: &[u8], new: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let stripped = PREFIXES.iter().find_map(|(first, second)| {
        Some((old.strip_prefix(first.as_bytes())?.to_vec(), new.strip_prefix(second.as_bytes())?.to_vec()))
    });
    stripped.unwrap_or_else(|| (old.to_vec(), new.to_vec()))
}

/// Removes the prefix of the only name of a created or deleted file.
pub(crate) fn strip_one(name: &[u8], prefix: &str) -> Vec<u8> {
    name.strip_prefix(prefix.as_bytes()).unwrap_or(name).to_vec()
}

/// The name in `diff --git NAME NAME` if both are the same except for their prefixes; `None` otherwise.
pub(crate) fn same_in_git_line(text: &[u8]) -> Option<Vec<u8>> {
    let same = |old: &[u8], new: &[u8]| {
        let (old, new) = strip_pair(old, new);
        (old == new && !old.is_empty()).then_some(old)
    };
    if text.starts_with(b"\"") {
        let (old, rest) = unquote(text)?;
        return same(&old, &alone(rest.strip_prefix(b" ")?)?);
    }
    // Equal names have the same length, prefixes included; Git quotes both or neither.
    let (old, new) = text.split_at_checked(text.len() / 2)?;
    same(old, new.strip_prefix(b" ")?)
}

/// Whether `diff --git TEXT` names `old` and `new`, with any pair of prefixes.
pub(crate) fn git_line_names(text: &[u8], old: &[u8], new: &[u8]) -> bool {
    let with = |prefix: &str, name: &[u8]| [prefix.as_bytes(), name].concat();
    PREFIXES.iter().chain(&[("", "")]).any(|(first, second)| {
        let rest = take(text, &with(first, old)).and_then(|rest| rest.strip_prefix(b" "));
        rest.and_then(|rest| take(rest, &with(second, new))).is_some_and(<[u8]>::is_empty)
    })
}

/// Reads `name`, quoted or plain. Returns the rest.
fn take<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match unquote(text) {
        Some((quoted, rest)) if quoted == name => Some(rest),
        _ => text.strip_prefix(name),
    }
}

/// Whether `old` and `new` are `from` and `to`, with any pair of prefixes.
pub(crate) fn is_pair(old: &[u8], new: &[u8], from: &[u8], to: &[u8]) -> bool {
    let is_prefixed = |name: &[u8], prefix: &str, want: &[u8]| name.strip_prefix(prefix.as_bytes()) == Some(want);
    PREFIXES
        .iter()
        .chain(&[("", "")])
        .any(|(first, second)| is_prefixed(old, first, from) && is_prefixed(new, second, to))
}

/// Whether `given` is `name`, with or without a prefix.
pub(crate) fn is_same(given: &[u8], name: &[u8]) -> bool {
    PREFIXES.iter().any(|(prefix, _)| given.strip_prefix(prefix.as_bytes()) == Some(name)) || given == name
}
