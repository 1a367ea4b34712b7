//! Target for JSON bodies of calls.

use model::json::{MAX_DEPTH, parse};
use serde_json::Value;

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "json",
    run,
    dictionary: &[
        b"{\"a\":",
        b"[",
        b"]",
        b"}",
        b",",
        b"\"path\":",
        b"\\u0000",
        b"\\ud800",
        b"1e999",
        b"-0",
        b"18446744073709551616",
        b"0.1e-400",
        b"null",
        b"true",
        b"\"a\":1,\"a\":2",
        b"\xff",
        b"\xef\xbb\xbf",
    ],
    max_bytes: 8192,
    iterations: 60_000,
};

fn run(input: &[u8]) {
    let Ok(value) = parse(input) else { return };
    let loose: Result<Value, _> = serde_json::from_slice(input);
    assert!(loose.is_ok_and(|loose| loose == value), "the strict and the lenient parser disagree");
    assert!(depth(&value) <= MAX_DEPTH, "a depth of {} was accepted", depth(&value));
    let again = parse(value.to_string().as_bytes());
    assert!(again.is_ok_and(|again| is_same(&again, &value)), "the printed value differs: {value}");
}

/// Returns whether the values are equal, except for the last digit of fractions, which printing may lose.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| is_same(value, other)))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().unwrap_or(f64::NAN), other.as_f64().unwrap_or(f64::NAN));
            (one - other).abs() <= one.abs() * 4.0 * f64::EPSILON
        }
        (one, other) => one == other,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
