//! SHA-256 values, and the canonical JSON that is hashed.

use std::fmt;

use json_escape_simd::escape_into;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::Digest as _;

/// The SHA-256 of a file, a diff or a record. Its text form is 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, pattern = "^[0-9a-f]{64}$", example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
pub struct Sha256([u8; 32]);

/// A text that is not a SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 is 64 hexadecimal digits")]
pub struct HashInvalid;

impl Sha256 {
    /// The `prevHash` of the first record of a chain.
    pub const ZERO: Self = Self([0; 32]);

    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Wraps a digest that was computed incrementally.
    pub fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 hexadecimal digits of either case.
    ///
    /// # Errors
    ///
    /// Returns [`HashInvalid`] for anything else.
    pub fn parse(raw: &str) -> Result<Self, HashInvalid> {
        let mut digest = [0; 32];
        match base16ct::mixed::decode(raw, &mut digest) {
            Ok(bytes) if bytes.len() == 32 => Ok(Self(digest)),
            _ => Err(HashInvalid),
        }
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The buffer has the length of the text.
        f.write_str(base16ct::lower::encode_str(&self.0, &mut [0; 64]).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Every record has several: no text is allocated.
        let mut buffer = [0; 64];
        serializer.serialize_str(base16ct::lower::encode_str(&self.0, &mut buffer).map_err(S::Error::custom)?)
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Sha256 {
    type Error = HashInvalid;

    fn try_from(raw: String) -> Result<Self, HashInvalid> {
        Self::parse(&raw)
    }
}

impl From<Sha256> for String {
    fn from(hash: Sha256) -> String {
        hash.to_string()
    }
}

/// Writes an object with sorted keys and without white space, so that equal objects have equal hashes.
pub fn canonical_json(members: &Map<String, Value>) -> String {
    let mut out = Vec::new();
    write_object(members, &mut out);
    // The bytes are strings and ASCII, which are valid UTF-8.
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn write_object(members: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    out.push(b'{');
    for (i, (key, value)) in members.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        escape_into(key, out);
        out.push(b':');
        write_value(value, out);
    }
    out.push(b'}');
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_value(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => write_object(members, out),
        Value::String(text) => escape_into(text, out),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_)) => out.extend(scalar.to_string().bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_parses_what_it_prints_and_nothing_else() {
        let hash = Sha256::of(b"abc");
        assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Sha256::parse(&hash.to_string()), Ok(hash));
        assert_eq!(Sha256::parse(&hash.to_string().to_uppercase()), Ok(hash));
        for bad in ["", "00", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
            assert_eq!(Sha256::parse(bad), Err(HashInvalid), "{bad:?}");
        }
    }

    #[test]
    fn canonical_json_sorts_keys_at_every_depth() {
        let value = serde_json::json!({"b": [{"z": 1, "a": "é\n\u{1f}"}], "a": null});
        assert_eq!(canonical_json(value.as_object().unwrap()), "{\"a\":null,\"b\":[{\"a\":\"é\\n\\u001f\",\"z\":1}]}");
    }

    #[test]
    fn canonical_json_escapes_characters_as_in_stored_records() {
        // Control characters have their short escape, or `\u00` and two lower-case digits. All others are unchanged.
        let written = |c: char| match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            '\u{8}' => "\\b".to_owned(),
            '\t' => "\\t".to_owned(),
            '\n' => "\\n".to_owned(),
            '\u{c}' => "\\f".to_owned(),
            '\r' => "\\r".to_owned(),
            control if control < ' ' => format!("\\u{:04x}", u32::from(control)),
            other => other.to_string(),
        };
        for c in ('\0'..='\u{3000}').chain(['\u{feff}', '\u{ffff}', '\u{10ffff}']) {
            for before in [0, 7, 40] {
                let text = format!("{}{c}b", "a".repeat(before));
                let value = serde_json::json!({ text.clone(): text });
                let expected = format!("\"{}{}b\"", "a".repeat(before), written(c));
                assert_eq!(canonical_json(value.as_object().unwrap()), format!("{{{expected}:{expected}}}"));
            }
        }
    }
}
