//! Lists of tools, as providers' APIs take them.

use engine::tools::{CatalogueView, Tool};
use model::excerpt;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use crate::{FORMATS, FormatTool, ToolFormat};

/// How an API takes a list of tools.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ListStyle {
    /// Functions of `OpenAI`'s Chat Completions, which many other APIs take too.
    Chat,
    /// Functions of `OpenAI`'s Responses; a tool with a grammar is a custom one.
    Responses,
    /// `name`, `description`, `input_schema`.
    Anthropic,
    /// One item with function declarations.
    Gemini,
    /// Items that name tools that the API knows.
    Fixed(Vec<Value>),
    /// One item with the names that are enabled.
    Toolset {
        /// The type of the item.
        #[serde(rename = "type")]
        kind: String,
        /// The names of the toolset.
        names: Vec<String>,
    },
}

/// A declared tool.
struct Declared<'a> {
    name: &'a str,
    description: &'a str,
    schema: Value,
    grammar: Option<&'a str>,
}

impl ListStyle {
    fn list(&self, tools: Vec<Declared<'_>>, is_strict: bool) -> Vec<Value> {
        if tools.is_empty() {
            return Vec::new();
        }
        match self {
            Self::Fixed(items) => items.clone(),
            Self::Toolset { kind, names } => {
                let is_enabled = |name: &String| tools.iter().any(|tool| tool.name == name);
                let configs = names.iter().map(|name| json!({ "name": name, "enabled": is_enabled(name) }));
                vec![json!({ "type": kind, "configs": configs.collect::<Vec<_>>() })]
            }
            Self::Gemini => {
                let functions = tools.into_iter().map(|Declared { name, description, schema, .. }| {
                    json!({ "name": name, "description": description, "parametersJsonSchema": schema })
                });
                vec![json!({ "functionDeclarations": functions.collect::<Vec<_>>() })]
            }
            Self::Chat | Self::Responses | Self::Anthropic => {
                tools.into_iter().map(|tool| self.function(tool, is_strict)).collect()
            }
        }
    }

    fn function(&self, tool: Declared<'_>, is_strict: bool) -> Value {
        let Declared { name, description, mut schema, grammar } = tool;
        if is_strict {
            make_strict(&mut schema);
        }
        if let (Self::Responses, Some(grammar)) = (self, grammar) {
            let format = json!({ "type": "grammar", "syntax": "lark", "definition": grammar });
            return json!({ "type": "custom", "name": name, "description": description, "format": format });
        }
        if *self == Self::Anthropic {
            return json!({ "name": name, "description": description, "input_schema": schema });
        }
        let mut function = json!({ "name": name, "description": description, "parameters": schema });
        if is_strict || *self == Self::Responses {
            function["strict"] = is_strict.into();
        }
        if *self == Self::Chat {
            return json!({ "type": "function", "function": function });
        }
        function["type"] = "function".into();
        function
    }
}

/// Requires every member of every object, and permits `null` for those that were optional.
fn make_strict(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    if let Some(default) = members.remove("default") {
        let description = members.get("description").and_then(Value::as_str).unwrap_or_default();
        let space = if description.is_empty() { "" } else { " " };
        let described = format!("{description}{space}Default: {default}.");
        members.insert("description".to_owned(), described.into());
    }
    if let Some(items) = members.get_mut("items") {
        make_strict(items);
    }
    let required = members.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(Value::Object(properties)) = members.get_mut("properties") else { return };
    for (name, property) in properties.iter_mut() {
        make_strict(property);
        if !required.iter().any(|required| required == name) {
            make_nullable(property);
        }
    }
    let names: Vec<_> = properties.keys().cloned().collect();
    members.insert("required".to_owned(), names.into());
    members.insert("additionalProperties".to_owned(), false.into());
}

fn make_nullable(property: &mut Value) {
    let Some(members) = property.as_object_mut() else { return };
    if let Some(kind) = members.get_mut("type").filter(|kind| kind.is_string()) {
        *kind = json!([kind.take(), "null"]);
    }
    if let Some(Value::Array(values)) = members.get_mut("enum") {
        values.push(Value::Null);
    }
}

impl ToolFormat {
    /// Returns the tools that the caller may use, as the list that the provider's API takes.
    pub fn declarations(&self, view: &CatalogueView<'_>) -> Vec<Value> {
        let declared = self.shown(view).map(|tool| Declared {
            name: &tool.name,
            description: &tool.description,
            schema: tool.input.clone(),
            grammar: tool.grammar.as_deref(),
        });
        self.declare.list(declared.collect(), false)
    }

    /// Returns the tools that the caller may use, as the Model Context Protocol declares them.
    pub fn mcp_tools(&self, view: &CatalogueView<'_>) -> Vec<Value> {
        let declared = self.shown(view).map(|tool| {
            let only_reads = tool.becomes().all(Tool::only_reads);
            json!({
                "name": tool.name, "description": tool.description, "inputSchema": tool.input,
                "annotations": {
                    "readOnlyHint": only_reads,
                    "destructiveHint": !only_reads,
                    "idempotentHint": only_reads,
                    "openWorldHint": tool.becomes().any(Tool::is_command),
                },
            })
        });
        declared.collect()
    }

    fn shown<'a>(&'a self, view: &'a CatalogueView<'a>) -> impl Iterator<Item = &'a FormatTool> {
        self.tools.iter().filter(|tool| tool.becomes().any(|tool| view.shows(tool)))
    }
}

/// How functions of `OpenAI` are declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionForm {
    /// Whether as Responses take them, without the member `function`.
    pub flat: bool,
    /// Whether the API enforces the schema.
    pub strict: bool,
}

/// The form of the catalogue.
#[derive(Clone, Copy, Debug, Default)]
pub enum CatalogueFormat {
    /// Our tools: `name`, `description`, `mutates`, `permissions`, `inputSchema`, `outputSchema`.
    #[default]
    Workspaced,
    /// Our tools as functions of `OpenAI`.
    Openai,
    /// Our tools: `name`, `description`, `input_schema`.
    Anthropic,
    /// Our tools as the Model Context Protocol declares them, without a schema of the output, which makes clients show a model JSON
    /// instead of the text.
    Mcp,
    /// The tools of a provider.
    Provider(&'static ToolFormat),
}

/// The names of the forms of our own tools.
const OWN: [(&str, CatalogueFormat); 4] = [
    ("workspaced", CatalogueFormat::Workspaced),
    ("openai", CatalogueFormat::Openai),
    ("anthropic", CatalogueFormat::Anthropic),
    ("mcp", CatalogueFormat::Mcp),
];

impl CatalogueFormat {
    /// Returns the names of all forms.
    pub fn names() -> impl Iterator<Item = &'static str> {
        OWN.iter().map(|(name, _)| *name).chain(FORMATS.iter().map(|format| format.name.as_str()))
    }

    /// Returns the tools that the caller may use. `form` is for functions of `OpenAI`.
    pub fn items(self, view: &CatalogueView<'_>, form: FunctionForm) -> Vec<Value> {
        let own = |style: ListStyle| {
            let declared = view.shown().map(|(_, info)| Declared {
                name: info.name,
                description: info.description,
                schema: view.input_schema(info),
                grammar: None,
            });
            style.list(declared.collect(), form.strict)
        };
        match self {
            Self::Workspaced => view.items(),
            Self::Mcp => view.mcp_items(),
            Self::Anthropic => own(ListStyle::Anthropic),
            Self::Openai => own(if form.flat { ListStyle::Responses } else { ListStyle::Chat }),
            Self::Provider(format) => format.declarations(view),
        }
    }
}

impl<'de> Deserialize<'de> for CatalogueFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let own = OWN.iter().find(|(own, _)| *own == name).map(|(_, format)| *format);
        own.or_else(|| ToolFormat::find(&name).map(Self::Provider)).ok_or_else(|| {
            let (name, names) = (excerpt(&name, 60), Self::names().collect::<Vec<_>>().join(", "));
            D::Error::custom(format_args!("there is no format `{name}`; there are {names}"))
        })
    }
}

impl utoipa::PartialSchema for CatalogueFormat {
    fn schema() -> RefOr<Schema> {
        let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Self::names()));
        schema.default(Some("workspaced".into())).into()
    }
}

impl utoipa::ToSchema for CatalogueFormat {}
