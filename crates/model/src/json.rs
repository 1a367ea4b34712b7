//! JSON from outside: bounded in depth, no member twice.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::Refusal;

/// The deepest nesting that is taken.
pub const MAX_DEPTH: usize = 32;

/// Parses one JSON value.
///
/// # Errors
///
/// `INVALID_REQUEST` for what is no JSON, is nested too deeply, or has a member twice.
pub fn parse(text: &[u8]) -> Result<Value, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = Strict { depth: MAX_DEPTH }.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|error| {
        Refusal::invalid(format!("the body is not the JSON that is taken: {error}"), "Send one JSON object in UTF-8.")
    })
}

/// Parses one JSON object; nothing at all is an empty one.
///
/// # Errors
///
/// `INVALID_REQUEST`, as [`parse`], and for any other value.
pub fn parse_object(text: &[u8]) -> Result<Map<String, Value>, Refusal> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match parse(text)? {
        Value::Object(members) => Ok(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Refusal::invalid("the body is JSON, but no object", "Send one JSON object in UTF-8."))
        }
    }
}

/// Parses the body of a call into its type, which refuses members that it does not know.
///
/// # Errors
///
/// `INVALID_REQUEST`, as [`parse_object`], and where the object does not fit.
pub fn parse_into<T: for<'a> Deserialize<'a>>(text: &[u8]) -> Result<T, Refusal> {
    serde_json::from_value(Value::Object(parse_object(text)?)).map_err(|error| {
        Refusal::invalid(
            format!("the body does not fit the call: {error}"),
            "Compare it with the call in /openapi.json.",
        )
    })
}

#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth }),
            None => Err(E::custom(format!("nested deeper than {MAX_DEPTH}"))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(inner)?;
            if members.contains_key(&name) {
                let shown: String = name.chars().take(80).collect();
                return Err(A::Error::custom(format!("the member `{shown}` is there twice")));
            }
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_what_serde_json_takes() {
        for text in [r#"{"a":[1,-2,3.5,"é\n",null,true,{"b":{}}]}"#, "[]", "\"x\"", " 7 ", "18446744073709551615"] {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn doubled_members_depth_and_garbage_are_refused() {
        let deep = format!("{}{}", "[".repeat(33), "]".repeat(33));
        let very_deep = "[".repeat(1_000_000);
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":{"a":1,"\u0061":2}}"#, "{} {}", "{", "", "1e999", &deep, &very_deep] {
            assert!(parse(text.as_bytes()).is_err(), "{text:.40}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        assert!(parse(format!("{}{}", "[".repeat(32), "]".repeat(32)).as_bytes()).is_ok());
    }

    #[test]
    fn only_objects_are_bodies_and_nothing_is_an_empty_one() {
        assert_eq!(parse_object(b" \n").unwrap(), Map::new());
        assert!(parse_object(b"[]").is_err());
        assert!(parse_object(b"null").is_err());
    }
}
