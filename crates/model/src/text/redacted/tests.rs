use proptest::prelude::*;

use super::{is_settings_file, redact_settings};
use crate::LogicalPath;

fn redacted(path: &str, text: &str) -> Option<String> {
    redact_settings(&LogicalPath::parse(path).unwrap(), text.as_bytes())
}

#[track_caller]
fn shows(path: &str, text: &str, shown: &str) {
    assert_eq!(redacted(path, text).as_deref(), Some(shown), "{path}: {text}");
}

#[test]
fn the_keys_of_each_form_are_shown() {
    shows(
        ".env",
        "A=1\n\n# hint\nexport B_C = 'x'\r\nD=\n",
        "A=[redacted]\n\n[redacted]\nexport B_C=[redacted]\nD=[redacted]\n",
    );
    shows("a/application-prod.properties", "db.url = x\ndb.pass: y\n", "db.url=[redacted]\ndb.pass:[redacted]\n");
    let yaml = "---\ndb:\n  user: root # hint\n  list:\n    - one\n    - name: two\n      pass: three\n";
    let shown =
        "---\ndb:\n  user: [redacted]\n  list:\n    - [redacted]\n    - name: [redacted]\n      pass: [redacted]\n";
    shows("secrets.yml", yaml, shown);
    let json = r#"{"b": {"c": [1, {"d": 2}], "e": null}, "a": "x", "f": {}}"#;
    let shown = "{\n  \"a\": \"[redacted]\",\n  \"b\": {\n    \"c\": \"[redacted]\",\n    \"e\": \"[redacted]\"\n  },\n  \"f\": {}\n}\n";
    shows("credentials.json", json, shown);
    let toml = "a = 1\nb = '''\nx = 2\n'''\n[c.d]\ne = [\n  'x'\n]\n[[f]]\ng = 1\n";
    let shown = "a = \"[redacted]\"\nb = \"[redacted]\"\nf = \"[redacted]\"\n[c]\n[c.d]\ne = \"[redacted]\"\n";
    shows("secrets.toml", toml, shown);
}

#[test]
fn values_of_several_lines_are_not_shown() {
    shows(".env", "A=1\nB=\"one\nC=two\"\nD=3\n", "A=[redacted]\nB=[redacted]\n[redacted]\n");
    shows(".env", "A='one\\'\nC=two'\n", "A=[redacted]\n[redacted]\n");
    shows(".env", "A=one\\\nC=two\nD=3\n", "A=[redacted]\nD=[redacted]\n");
    shows(".env", "A=-----BEGIN PRIVATE KEY-----\nMIIB=\n", "A=[redacted]\n[redacted]\n");
    shows(".env", "A=1\nc2VjcmV0c2VjcmV0c2VjcmV0=\nD=1\n", "A=[redacted]\n[redacted]\n");
    shows(".env", "A=$(cat <<EOF\nB=x\nEOF\n)\n", "A=[redacted]\n[redacted]\n");
    shows("a.properties", "a=x\\\n  b=y\nc=z\n", "a=[redacted]\nc=[redacted]\n");
    shows("secrets.yaml", "a: |\n  b: x\n\n  c: y\nd: z\n", "a: [redacted]\nd: [redacted]\n");
    shows("secrets.yaml", "a: one\n  b: two\nc: >-\n  d: x\n", "a: [redacted]\nc: [redacted]\n");
    shows("secrets.yaml", "a: \"one\nb: two\"\nc: x\n", "a: [redacted]\n[redacted]\n");
    shows("secrets.yaml", "a:\n  \"one\n  b: two\"\n", "a:\n  [redacted]\n");
    shows("secrets.yaml", "a: {b: x,\nc: y}\n", "a: [redacted]\n[redacted]\n");
    shows("secrets.yaml", "a: &x\n  b: y\nc: *x\n", "a: [redacted]\nc: [redacted]\n");
    shows("secrets.yaml", "a:\n- |\n  b: x\n- y\n", "a:\n- [redacted]\n- [redacted]\n");
    shows(
        "secrets.yaml",
        "a:\n  key: |\n    -----BEGIN PRIVATE KEY-----\n    b: x\n  c: y\n",
        "a:\n  key: [redacted]\n  c: [redacted]\n",
    );
    shows("secrets.yaml", "a: 1\n? b\n: c\n", "a: [redacted]\n[redacted]\n");
}

#[test]
fn a_value_that_goes_on_where_it_seems_to_end_is_not_shown() {
    for value in ["!!str", "# old", "&x", "!!str |"] {
        let text = format!("a: {value}\n  \"correct\nb: horse\"\n");
        shows("secrets.yaml", &text, "a: [redacted]\n[redacted]\n");
    }
    for text in ["a: [it's, 'x]\nb: y']\n", "a: [x, # ]\n \"y\nb: z\"]\n", "a: [ x #]\nb: y]\n"] {
        shows("secrets.yaml", text, "a: [redacted]\n[redacted]\n");
    }
    shows(".env", "A=C:\\tmp\\\nB=\"first\nc=rest\"\n", "A=[redacted]\n[redacted]\n");
    shows(".env", "A=x\\\n\"y\nb=z\"\n", "A=[redacted]\n[redacted]\n");
    shows(".env", "A=( # )\nb=x )\n", "A=[redacted]\n[redacted]\n");
    shows(".env", "A=1\nc2VjcmV0cHc=\n", "A=[redacted]\n[redacted]\n");
    assert_eq!(redacted("prod.env", "c2VjcmV0cHc=\n"), None);
}

#[test]
fn keys_that_may_be_credentials_are_not_shown() {
    let token = format!("ghp_{}", "a1".repeat(18));
    shows(".env", &format!("A=1\n{token}=x\n"), "A=[redacted]\n[redacted]\n");
    let json = format!("{{\"a\": 1, \"{token}\": {{\"b\": 1}}, \"two words\": 2}}");
    shows(
        "credentials.json",
        &json,
        "{\n  \"a\": \"[redacted]\",\n  \"[redacted]\": \"[redacted]\",\n  \"[redacted]\": \"[redacted]\"\n}\n",
    );
    for key in ["AWS_SECRET_ACCESS_KEY", "spring.datasource.password", "OAUTH2_CLIENT_ID", "github-token"] {
        shows(".env", &format!("{key}=x\n"), &format!("{key}=[redacted]\n"));
    }
}

#[test]
fn other_files_are_not_shown() {
    for name in ["id_rsa", "a.pem", "a.key", ".netrc", ".pgpass", ".npmrc", "secrets.yml~", "a.p12"] {
        assert!(!is_settings_file(&LogicalPath::parse(name).unwrap()), "{name}");
        assert_eq!(redacted(name, "A=1\n"), None, "{name}");
    }
    for (name, text) in [
        ("a.json", "[1]"),
        ("a.json", "{"),
        ("a.json", "\"x\""),
        ("a.toml", "a = "),
        ("a.yml", "just text\nb: x\n"),
        (".env", ""),
        (".env", "A=1\u{2028}B=2\n"),
        (".env", "A=1\rB=2\n"),
        (".env", "A=\0\n"),
    ] {
        assert_eq!(redacted(name, text), None, "{name}: {text}");
    }
    assert_eq!(redact_settings(&LogicalPath::parse(".env").unwrap(), b"A=\xff\n"), None);
}

/// A value that contains `zq`, which no key does, with the characters that forms treat in a special way.
fn value() -> impl Strategy<Value = String> {
    proptest::collection::vec("[zq:=#'\"\\\\ \n\t|>{}\\[\\]&*,-]{0,6}zq[a-z0-9: =\n]{0,6}", 1..4)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_value_of_a_parsed_form_is_shown(values in proptest::collection::vec(value(), 1..6)) {
        let json: serde_json::Map<_, _> =
            values.iter().enumerate().map(|(index, value)| (format!("k{index}"), value.as_str().into())).collect();
        let tree = serde_json::json!({"a": json, "b": [json]});
        let shown = redacted("a.json", &tree.to_string()).unwrap();
        prop_assert!(!shown.contains("zq") && shown.contains("k0"), "{shown}");
        let line = |(key, value): (&String, &serde_json::Value)| format!("{key} = {value}\n");
        let toml: String = json.iter().map(line).collect();
        let shown = redacted("a.toml", &toml).unwrap();
        prop_assert!(!shown.contains("zq") && shown.contains("k0"), "{shown}");
    }

    #[test]
    fn no_quoted_value_is_shown(values in proptest::collection::vec(value(), 1..6)) {
        for (name, separator) in [(".env", "="), ("a.properties", ":"), ("a.yaml", ": ")] {
            let line = |(index, value): (usize, &String)| format!("k{index}{separator}{}\n", toml_string(value));
            let text: String = values.iter().enumerate().map(line).collect();
            let shown = redacted(name, &text).unwrap();
            prop_assert!(!shown.contains("zq") && shown.contains("k0"), "{text}\n{shown}");
            // Quotes with the line ends as they are.
            let line = |(index, value): (usize, &String)| format!("k{index}{separator}\"{}\"\n", value.replace(['"', '\\'], ""));
            let text: String = values.iter().enumerate().map(line).collect();
            let shown = redacted(name, &text).unwrap();
            prop_assert!(!shown.contains("zq"), "{text}\n{shown}");
        }
    }

    #[test]
    fn no_block_of_yaml_is_shown(values in proptest::collection::vec(value(), 1..6)) {
        let block = |value: &String| value.replace('\n', "\n  ");
        let entry = |(index, value)| format!("k{index}: |\n  {}\n", block(value));
        let text = values.iter().enumerate().map(entry).collect::<Vec<_>>().concat();
        let shown = redacted("a.yaml", &text).unwrap();
        prop_assert!(!shown.contains("zq") && shown.contains(&format!("k{}", values.len() - 1)), "{text}\n{shown}");
    }

    #[test]
    fn any_text_is_accepted(text in "[a-z0-9=:'\"# \n\r\t|\\\\{}\\[\\]-]{0,80}") {
        for name in [".env", "a.properties", "a.yaml", "a.json", "a.toml"] {
            let _ = redacted(name, &text);
        }
    }
}

fn toml_string(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}
