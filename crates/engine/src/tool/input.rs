//! Parsing the members of a tool's input.

use model::{Code, LogicalPath, Refusal};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Parses a tool's own members; unknown ones are refused.
pub fn parse<T: DeserializeOwned>(mut members: Map<String, Value>) -> Result<T, Refusal> {
    members.values_mut().for_each(make_whole);
    serde_json::from_value(Value::Object(members)).map_err(|error| {
        Refusal::invalid(
            format!("the input does not fit the tool: {}", model::json::shortened(&error)),
            "Compare the input with the tool's schema in GET /v1/tools.",
        )
    })
}

/// Takes a whole number as one however it is written, `1.0` too, and one that is too large for any count as the largest:
/// numbers above their bounds are taken as these.
fn make_whole(member: &mut Value) {
    let Value::Number(number) = member else { return };
    if let Some(real) = number.as_f64().filter(|real| number.is_f64() && *real >= 0.0 && real.fract() == 0.0) {
        *member = Value::from(format!("{real:.0}").parse::<u64>().unwrap_or(u64::MAX));
    }
}

/// Parses the path of a folder or of whatever stands there.
pub fn any_path(raw: &str) -> Result<LogicalPath, Refusal> {
    LogicalPath::parse(raw).map_err(|rule| Refusal::path(raw, rule))
}

/// Parses the path of a file.
pub fn file_path(raw: &str) -> Result<LogicalPath, Refusal> {
    LogicalPath::parse_file(raw).map_err(|rule| Refusal::path(raw, rule))
}

/// The default of every `path` that is optional.
pub fn root() -> String {
    ".".to_owned()
}

/// Takes a number above `most` as `most`.
///
/// # Errors
///
/// `INVALID_REQUEST` where it is below `least`.
pub fn bounded(name: &str, value: u64, least: u64, most: u64) -> Result<u64, Refusal> {
    if value < least {
        let message = format!("`{name}` is {value}, but at least {least} is needed");
        return Err(Refusal::invalid(message, format!("Give `{name}` as {least} or more, or leave it out."))
            .with_details(|details| (details.limit, details.actual) = (Some(least), Some(value))));
    }
    Ok(value.min(most))
}

/// The file at `path` is no text.
pub fn unsupported_binary(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::UnsupportedBinary,
        format!("`{path}` is a binary file"),
        "Tools work on text; leave binary files to the orchestrator.",
    )
    .at(path)
}

/// `what` puts characters into the file at `path` that it cannot hold.
pub fn not_encodable(what: &str, path: &LogicalPath) -> Refusal {
    let message = format!("{what} holds characters that the encoding of `{path}` does not have");
    Refusal::new(Code::UnsupportedBinary, message, "Keep to the file's own characters.").at(path)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::make_whole;

    #[test]
    fn whole_numbers_are_counts_however_they_are_written() {
        let table = [
            ("7", json!(7)),
            ("7.0", json!(7)),
            ("7e2", json!(700)),
            ("0.0", json!(0)),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!(u64::MAX)),
            ("99999999999999999999", json!(u64::MAX)),
            ("1e300", json!(u64::MAX)),
        ];
        for (text, want) in table {
            let mut value = serde_json::from_str(text).unwrap();
            make_whole(&mut value);
            assert_eq!(value, want, "{text}");
        }
        for text in ["-1", "-1.0", "-1e30", "1.5", "\"7.0\"", "[7.0]", "true", "null"] {
            let mut value = serde_json::from_str(text).unwrap();
            make_whole(&mut value);
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }
}
