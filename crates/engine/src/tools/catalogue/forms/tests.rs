use model::{PolicyOverrides, Profiles};

use super::*;

fn policy(profile: &str) -> Policy {
    let overrides = PolicyOverrides { profile: Some(profile.to_owned()), ..PolicyOverrides::default() };
    Profiles::built_in().resolve(&overrides).unwrap().policy().clone()
}

fn all() -> BTreeSet<Permission> {
    Permission::ALL.into_iter().collect()
}

fn view(audience: Audience, permissions: &BTreeSet<Permission>) -> CatalogueView<'_> {
    CatalogueView { audience, permissions, policy: None, has_mounts: false, has_runner: true }
}

fn has_key(value: &Value, keys: &[&str]) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(key, value)| keys.contains(&key.as_str()) || has_key(value, keys))
        }
        Value::Array(items) => items.iter().any(|item| has_key(item, keys)),
        _ => false,
    }
}

#[test]
fn every_member_that_a_model_is_shown_is_described() {
    let permissions = all();
    let mut names = BTreeSet::new();
    let view = CatalogueView { has_mounts: true, ..view(Audience::Model, &permissions) };
    for item in view.mcp_items() {
        let properties = item["inputSchema"]["properties"].as_object().unwrap();
        for (name, schema) in properties {
            let described = schema["description"].as_str().is_some_and(|text| text.ends_with('.'));
            assert!(described, "{} {name}: {schema}", item["name"]);
            names.insert(format!("{}.{name}", item["name"].as_str().unwrap()));
        }
    }
    // A model has neither the IDs of calls nor the numbers of records.
    assert!(names.contains("revert_calls.last"), "{names:?}");
    assert!(!names.contains("revert_calls.toolCallIds") && !names.contains("revert_calls.toSeq"), "{names:?}");
}

#[test]
fn only_tools_that_the_caller_may_use_are_shown() {
    let names = |view: &CatalogueView<'_>| {
        let items = view.items();
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let one = BTreeSet::from([Permission::FileList]);
    assert_eq!(names(&view(Audience::Program, &one)).first().unwrap(), "list_dir");
    assert!(!names(&view(Audience::Program, &one)).contains(&"read_file".to_owned()));
    let permissions = all();
    let (read_only, supervised) = (policy("READ_ONLY"), policy("SUPERVISED_PR"));
    let shown = |policy| names(&CatalogueView { policy: Some(policy), ..view(Audience::Model, &permissions) });
    assert!(shown(&supervised).contains(&"write_file".to_owned()));
    assert!(shown(&read_only).iter().all(|name| !crate::tools::find(name).unwrap().mutates()));
    assert!(shown(&read_only).contains(&"read_file".to_owned()));
}

#[test]
fn an_array_may_be_one_entry_for_a_program_and_is_a_list_for_a_model() {
    let permissions = all();
    let globs = |audience| {
        let items = view(audience, &permissions).items();
        let find = items.into_iter().find(|item| item["name"] == "find_files").unwrap();
        find["inputSchema"]["properties"]["glob"]["type"].clone()
    };
    assert_eq!((globs(Audience::Program), globs(Audience::Model)), (json!(["array", "string"]), json!("array")));
}

#[test]
fn every_value_of_an_enumeration_is_accepted() {
    fn check(schema: &Value) {
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            assert_eq!(schema["type"], "string", "{schema}");
            assert!(schema.get("allOf").is_none() && !values.is_empty(), "{schema}");
        }
        match schema {
            Value::Object(members) => members.values().for_each(check),
            Value::Array(items) => items.iter().for_each(check),
            _ => {}
        }
    }
    for info in CATALOGUE.iter() {
        check(&info.input_schema);
        check(&info.output_schema);
        assert!(!has_key(&info.input_schema, &["allOf"]), "{}", info.name);
    }
    let write = CATALOGUE.iter().find(|info| info.name == "write_file").unwrap();
    assert!(write.input_schema["properties"]["mode"]["description"].is_string());
}
