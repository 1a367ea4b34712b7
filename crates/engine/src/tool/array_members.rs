//! Members of inputs that are arrays, for which a single value may be given.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use serde_json::{Map, Value};

use super::Tool;

/// The names of array members, by the name of their tool.
type NamesByTool = HashMap<&'static str, Arc<[String]>>;

/// The names of each tool, once they are known.
static NAMES: LazyLock<RwLock<NamesByTool>> = LazyLock::new(RwLock::default);

/// Turns a scalar into an array of it wherever `tool` takes an array.
pub(crate) fn wrap_scalars(tool: &'static Tool, members: &mut Map<String, Value>) {
    for name in names_of(tool).iter() {
        if let Some(member @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) = members.get_mut(name) {
            *member = Value::Array(vec![member.take()]);
        }
    }
}

fn names_of(tool: &'static Tool) -> Arc<[String]> {
    if let Some(names) = NAMES.read().get(tool.name) {
        return Arc::clone(names);
    }
    let schema = (tool.input)().inlined(&[], &[]);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let names: Arc<[String]> =
        properties.filter(|(_, schema)| schema["type"] == "array").map(|(name, _)| name.clone()).collect();
    Arc::clone(NAMES.write().entry(tool.name).or_insert(names))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::wrap_scalars;
    use crate::tools;

    #[test]
    fn a_scalar_is_taken_as_an_array_where_the_tool_takes_one() {
        let table = [
            ("find_files", json!({"glob": "*.rs", "path": "src"}), json!({"glob": ["*.rs"], "path": "src"})),
            ("read_files", json!({"paths": "a"}), json!({"paths": ["a"]})),
            ("search_text", json!({"query": "x", "includeGlob": "a"}), json!({"query": "x", "includeGlob": ["a"]})),
            ("search_text", json!({"excludeGlob": "a"}), json!({"excludeGlob": ["a"]})),
            ("revert_calls", json!({"toolCallIds": "tc_1"}), json!({"toolCallIds": ["tc_1"]})),
            ("read_files", json!({"paths": ["a"]}), json!({"paths": ["a"]})),
            ("read_files", json!({"paths": null}), json!({"paths": null})),
            ("read_files", json!({"paths": {}}), json!({"paths": {}})),
        ];
        for (name, input, want) in table {
            let mut members = input.as_object().unwrap().clone();
            wrap_scalars(tools::find(name).unwrap(), &mut members);
            assert_eq!(json!(members), want);
        }
    }
}
