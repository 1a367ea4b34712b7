//! Recomputes the audit chain from the contract. Shares no code with the service.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::Digest as _;

/// Returns the SHA-256 in lower-case hexadecimal.
pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    sha2::Sha256::digest(bytes.as_ref()).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// Returns canonical JSON: sorted keys, no white space, UTF-8.
pub(crate) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<&String> = members.keys().collect();
            keys.sort();
            let pairs: Vec<String> =
                keys.iter().map(|key| format!("{}:{}", Value::from(key.as_str()), canonical(&members[*key]))).collect();
            format!("{{{}}}", pairs.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    }
}

/// Asserts that `records` are the complete audit of a run.
#[track_caller]
pub(crate) fn assert_chain(run: &str, records: &[Value]) {
    check_chain(run, records).unwrap_or_else(|why| panic!("{why}"));
}

/// Checks that `records` are the complete audit of a run: `seq` is 1, 2, 3 …, and each hash covers its record and the
/// previous hash.
pub(crate) fn check_chain(run: &str, records: &[Value]) -> Result<(), String> {
    let mut prev_hash = "0".repeat(64);
    for (i, record) in records.iter().enumerate() {
        let mut unhashed = record.clone();
        unhashed.as_object_mut().unwrap().remove("hash");
        let hash = sha256(canonical(&unhashed));
        for (member, want) in [
            ("runId", Value::from(run)),
            ("seq", (i + 1).into()),
            ("prevHash", prev_hash.as_str().into()),
            ("hash", hash.as_str().into()),
        ] {
            if record[member] != want {
                return Err(format!("{member} of record {} of {run}: {record:#}", i + 1));
            }
        }
        prev_hash = hash;
    }
    Ok(())
}
