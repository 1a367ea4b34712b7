//! Query parameters.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use model::Refusal;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;

use crate::http::problem::Problem;
use crate::service::Service;

/// Maximum length of a value in bytes: that of a path.
const MAX_VALUE_BYTES: usize = 4096;
/// Parameters with values of several lines. Each has a limit of its own, below that of the request head.
const MULTILINE: [&str; 1] = ["message"];

/// The query. Refuses unknown and duplicate parameters.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: QueryParts> FromRequestParts<Service> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _service: &Service) -> Result<Self, Problem> {
        let bad = |message: String| Problem::from(Refusal::invalid(message, "Compare the query with /openapi.json."));
        if let Some(query) = parts.uri.query().filter(|query| !query.is_empty()) {
            check(query, &T::names()).map_err(bad)?;
        }
        T::parse(&parts.uri).map(Self).map_err(bad)
    }
}

/// What a query is parsed into: zero or more sets of parameters.
pub(crate) trait QueryParts: Sized {
    /// Returns the names of all parameters.
    fn names() -> Vec<String>;

    /// Parses the query of `uri`. Each set ignores the parameters of the others.
    fn parse(uri: &Uri) -> Result<Self, String>;
}

/// One documented set of parameters.
pub(crate) trait QuerySet: DeserializeOwned + IntoParams {}

impl<T: DeserializeOwned + IntoParams> QuerySet for T {}

macro_rules! query_parts {
    ($($set:ident),*) => {
        impl<$($set: QuerySet),*> QueryParts for ($($set,)*) {
            fn names() -> Vec<String> {
                let sets: &[Vec<String>] = &[$(set_names::<$set>()),*];
                sets.concat()
            }

            fn parse(_uri: &Uri) -> Result<Self, String> {
                Ok(($(parse_set::<$set>(_uri)?,)*))
            }
        }
    };
}

query_parts!();
query_parts!(A);
query_parts!(A, B);
query_parts!(A, B, C);
query_parts!(A, B, C, D);
query_parts!(A, B, C, D, E);
query_parts!(A, B, C, D, E, F);

fn set_names<T: IntoParams>() -> Vec<String> {
    T::into_params(|| Some(ParameterIn::Query)).into_iter().map(|parameter| parameter.name).collect()
}

fn parse_set<T: DeserializeOwned>(uri: &Uri) -> Result<T, String> {
    let parsed = axum::extract::Query::<T>::try_from_uri(uri);
    parsed.map(|query| query.0).map_err(|rejection| in_words_of_queries(&rejection.body_text()))
}

/// Replaces the parser's words, and marks the name of the parameter with which the message begins.
fn in_words_of_queries(message: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("Failed to deserialize query string: ", ""),
        ("invalid digit found in string", "not a whole number"),
        ("cannot parse integer from empty string", "not a whole number"),
        ("number too large to fit in target type", "too large a number"),
        ("provided string was not `true` or `false`", "neither `true` nor `false`"),
    ];
    let message = WORDS.iter().fold(message.to_owned(), |message, (parser, plain)| message.replace(parser, plain));
    match message.split_once(": ") {
        Some((name, problem)) if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            format!("`{name}`: {problem}")
        }
        _ => message,
    }
}

/// Checks the names and values of `query` against the `known` parameters. Refuses invalid UTF-8, which the parser of the
/// values would replace, and control characters, of which databases refuse NUL.
///
/// # Errors
///
/// Fails with a message for the caller.
fn check(query: &str, known: &[String]) -> Result<(), String> {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).map_err(|_| "the query has a parameter name that is not UTF-8".to_owned())?;
        if !known.contains(&name) {
            let shown = model::excerpt(&name, 100);
            return Err(format!("unknown query parameter `{}`", shown.escape_debug()));
        }
        let value = decode(value).map_err(|_| format!("the query parameter `{name}` is not UTF-8"))?;
        let is_multiline = MULTILINE.contains(&name.as_str());
        if !is_multiline && value.len() > MAX_VALUE_BYTES {
            let length = value.len();
            return Err(format!("the query parameter `{name}` has {length} bytes; the limit is {MAX_VALUE_BYTES}"));
        }
        let is_bad =
            |character: &char| character.is_control() && !(is_multiline && matches!(character, '\t' | '\n' | '\r'));
        if let Some(bad) = value.chars().find(is_bad) {
            return Err(format!(
                "the query parameter `{name}` contains the control character `{}`",
                bad.escape_debug()
            ));
        }
    }
    Ok(())
}

/// Decodes a name or value: `+` is a space, `%` and two hexadecimal digits are a byte.
fn decode(raw: &str) -> Result<String, std::string::FromUtf8Error> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (raw, mut decoded, mut position) = (raw.as_bytes(), Vec::with_capacity(raw.len()), 0);
    while let Some(byte) = raw.get(position) {
        let escaped = digit(raw.get(position + 1)).zip(digit(raw.get(position + 2))).filter(|_| *byte == b'%');
        let escaped = escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        decoded.push(escaped.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
        position += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_utf8_without_control_characters() {
        let known = ["tool".to_owned(), "message".to_owned()];
        for good in
            ["tool=a", "tool=%C3%BC+x%2fy", "tool", "tool=", "&&tool=a&", "tool=100%", "tool=%zz", "message=a%0Ab%09"]
        {
            assert_eq!(check(good, &known), Ok(()), "{good}");
        }
        let long = format!("tool={}", "a".repeat(4097));
        for bad in ["tool=%00", "tool=a%1fb", "tool=%7F", "tool=%C2%80", "tool=%FF", "tool=%C3", "tool=a%0A", &long] {
            assert!(check(bad, &known).unwrap_err().contains("`tool`"), "{bad}");
        }
        for bad in ["message=%00", "message=%1b", "other=1", "%FF=1", "tool%00=1"] {
            assert!(check(bad, &known).is_err(), "{bad}");
        }
    }
}
