//! JSON and TOML, which are parsed. Only the keys are written again.

use serde_json::Value;

use super::{REDACTED, is_plain_key};

/// Keys and what is under them.
enum SettingsNode {
    /// A value that is not shown.
    Value,
    /// A table; a key that is not shown has none under it.
    Table(Vec<(Option<String>, SettingsNode)>),
}

pub(super) fn redact_json(text: &str) -> Option<String> {
    let Value::Object(members) = serde_json::from_str(text).ok()? else { return None };
    let root = of_json(Value::Object(members));
    let mut out = String::new();
    write_json(&root, 0, &mut out);
    out.push('\n');
    has_key(&root).then_some(out)
}

pub(super) fn redact_toml(text: &str) -> Option<String> {
    let root = of_toml(toml::Value::Table(text.parse::<toml::Table>().ok()?));
    let mut out = String::new();
    write_toml(&root, "", &mut out);
    has_key(&root).then_some(out)
}

fn of_json(value: Value) -> SettingsNode {
    match value {
        Value::Object(members) => table(members.into_iter().map(|(key, value)| (key, of_json(value)))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => SettingsNode::Value,
    }
}

fn of_toml(value: toml::Value) -> SettingsNode {
    match value {
        toml::Value::Table(members) => table(members.into_iter().map(|(key, value)| (key, of_toml(value)))),
        _ => SettingsNode::Value,
    }
}

fn table(members: impl Iterator<Item = (String, SettingsNode)>) -> SettingsNode {
    let shown = |(key, node): (String, SettingsNode)| {
        if is_plain_key(&key) { (Some(key), node) } else { (None, SettingsNode::Value) }
    };
    SettingsNode::Table(members.map(shown).collect())
}

fn has_key(root: &SettingsNode) -> bool {
    matches!(root, SettingsNode::Table(members) if members.iter().any(|(key, _)| key.is_some()))
}

fn write_json(node: &SettingsNode, depth: usize, out: &mut String) {
    let SettingsNode::Table(members) = node else {
        out.extend(["\"", REDACTED, "\""]);
        return;
    };
    if members.is_empty() {
        out.push_str("{}");
        return;
    }
    out.push('{');
    for (index, (key, node)) in members.iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        out.extend(std::iter::repeat_n("  ", depth + 1));
        out.extend(["\"", key.as_deref().unwrap_or(REDACTED), "\": "]);
        write_json(node, depth + 1, out);
    }
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
    out.push('}');
}

fn write_toml(node: &SettingsNode, path: &str, out: &mut String) {
    let SettingsNode::Table(members) = node else { return };
    for (key, _) in members.iter().filter(|(_, node)| matches!(node, SettingsNode::Value)) {
        match key {
            Some(key) => out.extend([&quoted_dots(key), " = \"", REDACTED, "\"\n"]),
            None => out.extend([REDACTED, "\n"]),
        }
    }
    for (key, node) in members.iter().filter(|(_, node)| matches!(node, SettingsNode::Table(_))) {
        let Some(key) = key else { continue };
        let key = quoted_dots(key);
        let path = if path.is_empty() { key } else { format!("{path}.{key}") };
        out.extend(["[", &path, "]\n"]);
        write_toml(node, &path, out);
    }
}

/// A key of TOML; one with a dot is quoted.
fn quoted_dots(key: &str) -> String {
    if key.contains('.') { format!("\"{key}\"") } else { key.to_owned() }
}
