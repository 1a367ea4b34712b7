//! A record as a line of each form.

use engine::CallError;
use model::{By, LogicalPath, Outcome, Record};
use serde_json::{Value, json};

use super::AuditFormat;

/// The columns of CSV.
const COLUMNS: [&str; 20] = [
    "timestamp",
    "runId",
    "seq",
    "tool",
    "actor",
    "by",
    "mutates",
    "decision",
    "outcome",
    "code",
    "reason",
    "reasons",
    "pathsRead",
    "pathsWritten",
    "left",
    "input",
    "durationMicros",
    "toolCallId",
    "requestId",
    "hash",
];

/// Returns what precedes the first line.
pub(super) fn head(format: AuditFormat) -> Option<String> {
    (format == AuditFormat::Csv).then(|| format!("{}\r\n", COLUMNS.join(",")))
}

/// Returns the line of the record that is stored as `text`.
///
/// # Errors
///
/// If direct access to the database has damaged the record.
pub(super) fn line(format: AuditFormat, text: &str) -> Result<String, CallError> {
    let record = || serde_json::from_str::<Record>(text).map_err(|error| CallError::Internal(Box::new(error)));
    Ok(match format {
        AuditFormat::Ndjson => format!("{text}\n"),
        AuditFormat::Csv => csv(&record()?),
        AuditFormat::Ocsf => format!("{}\n", ocsf(&record()?, text)?),
    })
}

/// The text of a value of an enum, or of nothing.
fn word(value: impl serde::Serialize) -> String {
    // Names always serialise, as texts.
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        Ok(Value::Null) | Err(_) => String::new(),
        Ok(other) => other.to_string(),
    }
}

fn csv(record: &Record) -> String {
    let paths = |paths: &[LogicalPath]| paths.iter().map(LogicalPath::as_str).collect::<Vec<_>>().join("\n");
    let cells: [String; COLUMNS.len()] = [
        record.timestamp.clone(),
        record.run_id.to_string(),
        record.seq.to_string(),
        record.tool.clone(),
        record.actor.clone(),
        word(record.made_by()),
        record.mutates.to_string(),
        word(record.decision),
        word(record.outcome),
        word(record.code),
        record.reason.clone().unwrap_or_default(),
        record.reasons.join("\n"),
        paths(&record.paths_read),
        paths(&record.paths_written),
        record.left.iter().map(|left| format!("{} ({})", left.path, left.rule)).collect::<Vec<_>>().join("\n"),
        record.input.clone().map(|input| Value::Object(input).to_string()).unwrap_or_default(),
        record.duration_micros.to_string(),
        record.tool_call_id.to_string(),
        record.request_id.clone().unwrap_or_default(),
        word(record.hash),
    ];
    cells.map(|text| cell(&text)).join(",") + "\r\n"
}

/// Returns a cell. One that a spreadsheet would take as a formula begins with a quote, which makes it a text.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Returns the record as an event of the class API Activity.
fn ocsf(record: &Record, text: &str) -> Result<Value, CallError> {
    let micros = engine::clock::micros_of(&record.timestamp);
    let time = micros.ok_or_else(|| CallError::Internal("a record has no readable time".into()))? / 1000;
    // Of a change, what it does depends on the files: one that had no version was created, one that has none was deleted.
    let is_new = record.files.iter().all(|file| file.old_sha256.is_none());
    let is_gone = record.files.iter().all(|file| file.new_sha256.is_none());
    let activity = match (record.mutates, record.files.is_empty()) {
        (false, true) if record.paths_read.is_empty() => 99,
        (false, _) => 2,
        (true, false) if is_new => 1,
        (true, false) if is_gone => 4,
        (true, _) => 3,
    };
    let (status_id, status) = match record.outcome {
        Outcome::Ok => (1, "Success"),
        Outcome::Refused | Outcome::Failed => (2, "Failure"),
        Outcome::Pending => (99, "Pending"),
    };
    let severity = if record.outcome == Outcome::Refused { 2 } else { 1 };
    let user_type = if record.made_by() == By::Operator { 1 } else { 3 };
    let resources = record.paths_written.iter().chain(&record.paths_read);
    let resources: Vec<_> = resources.map(|path| json!({"name": path, "type": "file"})).collect();
    Ok(json!({
        "category_uid": 6, "class_uid": 6003, "type_uid": 600_300 + activity, "activity_id": activity,
        "activity_name": record.tool, "time": time, "duration": record.duration_micros / 1000,
        "severity_id": severity, "status_id": status_id, "status": status, "status_code": record.code,
        "message": record.reason, "status_detail": record.reasons.join("; "),
        "metadata": {
            "version": "1.3.0", "product": {"name": "workspaced", "vendor_name": "workspaced"},
            "uid": record.hash, "sequence": record.seq, "correlation_uid": record.request_id, "log_name": record.run_id,
        },
        "actor": {"user": {"name": record.actor, "type_id": user_type}},
        "api": {
            "operation": record.tool, "service": {"name": "workspaced"}, "request": {"uid": record.tool_call_id},
            "response": {"error": record.code},
        },
        "src_endpoint": {"svc_name": "workspaced"},
        "resources": resources,
        "raw_data": text,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_text_for_a_spreadsheet() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("@cmd", "'@cmd"),
            ("-1", "'-1"),
            ("+1,2", "\"'+1,2\""),
        ] {
            assert_eq!(cell(text), expected);
        }
    }
}
