//! Parses untrusted JSON: bounded depth, a bounded number of values and no duplicate members.

use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::{Refusal, excerpt};

/// The maximum nesting depth.
pub const MAX_DEPTH: usize = 32;
/// The maximum number of values, at any depth: objects, lists, strings, numbers, Booleans and nulls. A value that takes two
/// bytes on the wire may take up to two hundred in memory.
pub const MAX_VALUES: u64 = 10_000;
/// The largest whole number up to which every whole number is also a floating-point number.
const MAX_EXACT: u64 = 1 << 53;
/// The same as a floating-point number, which may also stand for the next whole number.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;
/// How the refusal of a larger one begins.
const LARGE_NUMBER: &str = "the number ";
/// The most characters shown of a parser's error, which may quote the input.
const MAX_ERROR_CHARS: usize = 400;

/// Parses one JSON value.
///
/// # Errors
///
/// `INVALID_REQUEST` for text that is not JSON, is nested too deeply, has duplicate members or has more than [`MAX_VALUES`]
/// values.
pub fn parse(text: &[u8]) -> Result<Value, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let count = Cell::new(0);
    let strict = Strict { depth: MAX_DEPTH, is_id: false, count: &count };
    let value = strict.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    let value = value.map_err(|error| {
        let text = error.to_string();
        if text.starts_with(LARGE_NUMBER) {
            return Refusal::invalid(shortened(&text), "Send a smaller number, or send it as text.");
        }
        let message = format!("the body is not valid JSON: {}", shortened(&error));
        Refusal::invalid(message, "Send one JSON object in UTF-8.")
    })?;
    if count.get() > MAX_VALUES {
        let message = format!("the body has {} JSON values; the limit is {MAX_VALUES}", count.get());
        return Err(Refusal::invalid(message, "Send less at a time.")
            .with_details(|details| (details.limit, details.actual) = (Some(MAX_VALUES), Some(count.get()))));
    }
    Ok(value)
}

/// Returns the ID of a message of JSON-RPC that is not valid in another place, such as in a text with half of a surrogate pair.
pub fn id_of_invalid(text: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct Identified {
        id: Option<Value>,
    }
    let message: Identified = serde_json::from_slice(text).ok()?;
    message.id.filter(|id| id.is_string() || id.is_i64() || id.is_u64())
}

/// The start of the text of `error`, without credentials.
pub fn shortened(error: &impl fmt::Display) -> String {
    excerpt(&error.to_string(), MAX_ERROR_CHARS)
}

/// Parses one JSON object; an empty text is an empty object.
///
/// # Errors
///
/// `INVALID_REQUEST`, as [`parse`], and for a value that is not an object.
pub fn parse_object(text: &[u8]) -> Result<Map<String, Value>, Refusal> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match parse(text)? {
        Value::Object(members) => Ok(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Refusal::invalid("the body is JSON but not an object", "Send one JSON object in UTF-8."))
        }
    }
}

/// Parses the body of a call into its type, which refuses unknown members.
///
/// # Errors
///
/// `INVALID_REQUEST`, as [`parse_object`], and for an object that does not have the type's form.
pub fn parse_into<T: for<'a> Deserialize<'a>>(text: &[u8]) -> Result<T, Refusal> {
    members_into(parse_object(text)?).map_err(|error| {
        Refusal::invalid(
            format!("the body does not fit the call: {error}"),
            "Compare it with the call in /openapi.json.",
        )
    })
}

/// Parses the members of an object into its type.
///
/// # Errors
///
/// What is wrong, in the words of JSON, with the name of the member.
pub fn members_into<T: for<'a> Deserialize<'a>>(members: Map<String, Value>) -> Result<T, String> {
    let mut members = members.into_iter();
    // Nothing is named once all members are read: what is wrong then is wrong with the object.
    let mut current = None;
    let read = std::iter::from_fn(|| {
        let member = members.next();
        current = member.as_ref().map(|(name, _)| name.clone());
        member
    });
    let parsed: serde_json::Result<T> = T::deserialize(MapDeserializer::new(read));
    parsed.map_err(|error| {
        let message = in_words_of_json(&error.to_string());
        // An unknown member is named already.
        let name = current.filter(|_| !message.starts_with("unknown field"));
        shortened(&name.map_or(message.clone(), |name| format!("`{name}`: {message}")))
    })
}

/// Replaces the parser's names of types, and the names of ours.
fn in_words_of_json(message: &str) -> String {
    const NAMES: [(&str, &str); 11] = [
        ("invalid type: map", "invalid type: object"),
        ("invalid type: sequence", "invalid type: list"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("expected u64", "expected a whole number"),
        ("expected u32", "expected a whole number"),
        ("expected usize", "expected a whole number"),
        ("expected i64", "expected a whole number"),
        ("expected string or map", "expected a string"),
        ("invalid value: map", "invalid type: object"),
        ("expected map with a single key", "expected a string"),
    ];
    let message = NAMES.iter().fold(message.to_owned(), |message, (name, plain)| message.replace(name, plain));
    for object in ["expected struct ", "expected internally tagged enum "] {
        if let Some((before, of)) = message.split_once(object) {
            let rest = of.trim_start_matches(|character: char| character.is_ascii_alphanumeric());
            return format!("{before}expected an object{rest}");
        }
    }
    message
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    /// Whether the value is the ID of a message, which is repeated as it is.
    is_id: bool,
    /// The number of values read so far.
    count: &'a Cell<u64>,
}

impl Strict<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth, is_id: false, ..self }),
            None => Err(E::custom(format!("nested deeper than {MAX_DEPTH}"))),
        }
    }

    /// Refuses a number unless it `is_exact`: the same for readers that hold numbers as floating-point numbers, such as browsers and
    /// canonical JSON.
    fn check_exact<E: serde::de::Error>(self, value: impl fmt::Display, is_exact: bool) -> Result<(), E> {
        if is_exact || self.is_id {
            return Ok(());
        }
        Err(E::custom(format!("{LARGE_NUMBER}{value} is beyond 2^53, above which numbers lose digits")))
    }

    /// Whether values are stored. Beyond the limit, they are only counted.
    fn is_storing(self) -> bool {
        self.count.get() <= MAX_VALUES
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count.set(self.count.get() + 1);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
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

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.check_exact(value, value.unsigned_abs() <= MAX_EXACT)?;
        Ok(Value::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.check_exact(value, value <= MAX_EXACT)?;
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number is not finite"))?;
        self.check_exact(&number, value.fract() != 0.0 || value.abs() < MAX_EXACT_FLOAT)?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(if self.is_storing() { Value::from(value) } else { Value::Null })
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            if self.is_storing() {
                items.push(item);
            }
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let is_id = self.depth == MAX_DEPTH && name == "id";
            let value = map.next_value_seed(Strict { is_id, ..inner })?;
            if !self.is_storing() {
                continue;
            }
            if members.contains_key(&name) {
                return Err(A::Error::custom(format!("the member `{}` occurs twice", excerpt(&name, 80))));
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
    fn valid_json_is_parsed_as_by_serde_json() {
        for text in
            [r#"{"a":[1,-2,3.5,"é\n",null,true,{"b":{}}]}"#, "[]", "\"x\"", " 7 ", "-9007199254740992", "1e-300"]
        {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn duplicate_members_deep_nesting_and_invalid_json_are_refused() {
        let deep = format!("{}{}", "[".repeat(33), "]".repeat(33));
        let very_deep = "[".repeat(1_000_000);
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":{"a":1,"\u0061":2}}"#, "{} {}", "{", "", "1e999", &deep, &very_deep] {
            assert!(parse(text.as_bytes()).is_err(), "{text:.40}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        assert!(parse(format!("{}{}", "[".repeat(32), "]".repeat(32)).as_bytes()).is_ok());
    }

    #[test]
    fn whole_numbers_that_lose_digits_are_refused_except_as_the_id_of_a_message() {
        for text in [
            "9007199254740993",
            "{\"a\":[-9007199254740993]}",
            "{\"a\":{\"id\":18446744073709551615}}",
            "9007199254740993.0",
            "18446744073709551616",
            "-12345678901234567890123",
            "1e300",
        ] {
            let refusal = parse(text.as_bytes()).unwrap_err();
            assert!(refusal.message.contains("is beyond 2^53"), "{refusal}");
        }
        assert_eq!(parse(br#"{"id":18446744073709551615}"#).unwrap()["id"], u64::MAX);
        for text in ["9007199254740991.0", "-2e15", "4503599627370495.5"] {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn the_id_of_an_invalid_message_is_found() {
        for (text, id) in [
            (r#"{"id":7,"params":{"a":"\ud800"}}"#, Value::from(7)),
            (r#"{"params":{"a":"\udc00 x"},"id":"seven"}"#, Value::from("seven")),
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
            assert_eq!(id_of_invalid(text.as_bytes()), Some(id), "{text}");
        }
        for text in ["{\"id\":", "{\"id\":null}", "[]", "{\"id\":1.5}"] {
            assert_eq!(id_of_invalid(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn values_are_counted_at_every_depth_and_limited() {
        let of = |count: usize| format!("{{\"a\":[{}]}}", vec!["[0]"; count].join(","));
        // The object, the list, and two for each item.
        assert!(parse(of(4_999).as_bytes()).is_ok());
        let refusal = parse(of(5_000).as_bytes()).unwrap_err();
        assert_eq!((refusal.details.limit, refusal.details.actual), (Some(10_000), Some(10_002)));
        let members: Vec<_> = (0..20_000).map(|number| format!("\"{number}\":null")).collect();
        let refusal = parse(format!("{{{}}}", members.join(",")).as_bytes()).unwrap_err();
        assert_eq!(refusal.details.actual, Some(20_001));
        assert!(parse(format!("[{}", "0,".repeat(20_000)).as_bytes()).is_err());
    }

    #[test]
    fn an_error_quotes_only_the_start_of_a_value() {
        #[derive(Debug, Deserialize)]
        struct Number {
            #[expect(dead_code, reason = "only whether it fits is of interest")]
            a: u64,
        }
        let refusal = parse_into::<Number>(format!("{{\"a\":\"{}\"}}", "é".repeat(1 << 20)).as_bytes()).unwrap_err();
        assert!(refusal.message.chars().count() < 500, "{}", refusal.message.len());
    }

    #[test]
    fn only_objects_are_bodies_and_an_empty_body_is_an_empty_object() {
        assert_eq!(parse_object(b" \n").unwrap(), Map::new());
        assert!(parse_object(b"[]").is_err());
        assert!(parse_object(b"null").is_err());
    }
}
