//! Checks of the members of a request for a run.

use std::collections::BTreeMap;

use model::{Refusal, Source};

use crate::clock::now_plus;

const MAX_LABELS: usize = 64;
const MAX_LABEL_NAME: usize = 128;
const MAX_LABEL_VALUE: usize = 1024;
const MAX_MOUNT_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 2000;
/// Ten years.
const MAX_TTL_SECONDS: i64 = 315_360_000;

pub(crate) fn too_many(what: &str, limit: usize, actual: usize) -> Refusal {
    Refusal::invalid(format!("`{what}` has {actual} entries; the limit is {limit}"), "Give fewer.")
        .with_details(|details| (details.limit, details.actual) = (Some(limit as u64), Some(actual as u64)))
}

pub(crate) fn check_ttl(seconds: i64) -> Result<String, Refusal> {
    if (1..=MAX_TTL_SECONDS).contains(&seconds) {
        Ok(now_plus(seconds))
    } else {
        let message = format!("`ttlSeconds` is {seconds}; allowed are 1 to {MAX_TTL_SECONDS}");
        Err(Refusal::invalid(message, "Give another number, or omit it for a run that does not expire."))
    }
}

pub(crate) fn check_labels(labels: Option<&BTreeMap<String, String>>) -> Result<(), Refusal> {
    let Some(labels) = labels else { return Ok(()) };
    if labels.len() > MAX_LABELS {
        return Err(too_many("labels", MAX_LABELS, labels.len()));
    }
    for (name, value) in labels {
        let name_fits = (1..=MAX_LABEL_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        let value_fits = value.chars().count() <= MAX_LABEL_VALUE && !value.contains('\0');
        if !name_fits || !value_fits {
            let shown: String = model::excerpt(name, 40).chars().filter(|c| !c.is_control()).collect();
            return Err(Refusal::invalid(
                format!("the label `{shown}` is empty, too long or contains control characters"),
                format!("Give a name of 1 to {MAX_LABEL_NAME} characters and a value of at most {MAX_LABEL_VALUE}."),
            ));
        }
    }
    Ok(())
}

/// Returns the labels without credentials.
pub(crate) fn redacted_labels(labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let redacted = |text: String| model::redact(&text).into_owned();
    labels.into_iter().map(|(name, value)| (redacted(name), redacted(value))).collect()
}

pub(crate) fn check_mount(name: &str, description: &str) -> Result<(), Refusal> {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let name_fits = name.len() <= MAX_MOUNT_NAME
        && name.bytes().next().is_some_and(is_alphanumeric)
        && name.bytes().all(|byte| is_alphanumeric(byte) || matches!(byte, b'_' | b'-'));
    if !name_fits {
        let hint = "Use a lower-case letter or digit, then up to 63 lower-case letters, digits, `_` or `-`.";
        return Err(Refusal::invalid("invalid mount name", hint));
    }
    if description.trim().is_empty() || description.chars().count() > MAX_DESCRIPTION {
        let message =
            format!("the description of the mount `{name}` is empty or longer than {MAX_DESCRIPTION} characters");
        return Err(Refusal::invalid(message, "Describe its content in a sentence for the model."));
    }
    Ok(())
}

/// Refuses a source with a credential. The run shows its source, and a redacted source would be another one.
pub(crate) fn check_no_credentials(source: &Source) -> Result<(), Refusal> {
    let hint = "Every reader of the run would see it. Give a source without credentials.";
    match source {
        Source::Empty {} | Source::Archive {} | Source::Run { .. } => Ok(()),
        Source::Directory { path } => no_credential("source.path", path, hint),
        Source::Git { url, reference, credential } => {
            no_credential("source.url", url, hint)?;
            no_credential("source.credential", credential.as_deref().unwrap_or_default(), hint)?;
            no_credential("source.ref", reference.as_deref().unwrap_or_default(), hint)
        }
    }
}

/// Refuses a text that is stored and shown as it is, if it has a credential.
pub(crate) fn no_credential(name: &str, text: &str, hint: &str) -> Result<(), Refusal> {
    match model::credential_in(text.as_bytes()) {
        None => Ok(()),
        Some(what) => Err(Refusal::invalid(format!("`{name}` contains a credential: {what}"), hint)),
    }
}

/// Checks the rest of a URL after `https://`: it has a host, no user and password, and git cannot take it for an option.
pub(crate) fn check_remote(rest: &str) -> Result<(), Refusal> {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_invalid = |c: char| c.is_control() || c.is_whitespace();
    if host.is_empty() || host.starts_with('-') || rest.len() > 2000 || rest.contains(is_invalid) {
        return Err(Refusal::invalid("`source.url` is not a valid URL", "Give `https://HOST/PATH`."));
    }
    if host.contains('@') {
        let hint = "Every reader of the run would see them. Give a URL without credentials.";
        return Err(Refusal::invalid("`source.url` contains credentials", hint));
    }
    Ok(())
}

pub(crate) fn check_reference(reference: &str) -> Result<(), Refusal> {
    let is_invalid =
        |c: char| c.is_control() || c.is_whitespace() || matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    if reference.is_empty() || reference.len() > 255 || reference.starts_with('-') || reference.contains(is_invalid) {
        return Err(Refusal::invalid(
            "`source.ref` is not a branch, tag or commit",
            "Give a name or a full commit hash.",
        ));
    }
    Ok(())
}
