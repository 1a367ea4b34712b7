//! The files of the run as resources: `workspace:///PATH`.

use engine::tools;
use engine::tools::URI_SCHEME as SCHEME;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, MetaObject, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Map, Value, json};

use super::McpCaller;
use super::server::{RunServer, protocol_error};

/// Resources of a page.
const PAGE: u64 = 1000;
/// The largest file that is a resource, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The most calls that read one file on.
const MAX_PAGES: usize = 100;
/// What is escaped in the URI of a path.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A page of the run's files, by `find_files`.
///
/// # Errors
///
/// The refusal of the call.
pub(super) async fn list(
    server: &RunServer,
    caller: &McpCaller,
    cursor: Option<String>,
) -> Result<ListResourcesResult, ErrorData> {
    let mut input = members(json!({ "glob": ["**"], "maxResults": PAGE }));
    input.extend(cursor.map(|cursor| ("cursor".to_owned(), Value::from(cursor))));
    let mut answer = call(server, caller, "find_files", &input).await?;
    let resource = |entry: &Value| {
        let path = entry.get("path").and_then(Value::as_str)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let mut resource = Resource::new(format!("{SCHEME}{}", utf8_percent_encode(path, &ESCAPED)), name);
        resource.size = entry.get("sizeBytes").and_then(Value::as_u64);
        Some(resource)
    };
    let entries = answer.get("entries").and_then(Value::as_array);
    let is_file = |entry: &&Value| {
        entry.get("type").is_none_or(|kind| kind == "file")
            && entry.get("readable").is_none_or(|readable| *readable == true)
    };
    let resources = entries.into_iter().flatten().filter(is_file).filter_map(resource).collect();
    let mut list = ListResourcesResult::with_all_items(resources);
    if let Some(not_shown) = answer.remove("notShown") {
        list.meta = Some(MetaObject(members(json!({ "workspaced/notShown": not_shown }))));
    }
    list.next_cursor = match answer.remove("nextCursor") {
        Some(Value::String(cursor)) => Some(cursor),
        _ => None,
    };
    Ok(list)
}

/// The template of the files' URIs.
pub(super) fn template() -> ResourceTemplate {
    ResourceTemplate::new(format!("{SCHEME}{{+path}}"), "file")
        .with_description("A text file of the workspace, by its path from the root.")
}

/// A whole text file, by `read_files`, and by `read_file` what one answer of it does not hold.
///
/// # Errors
///
/// The refusal of a call, or of the file.
pub(super) async fn read(server: &RunServer, caller: &McpCaller, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let path = uri.strip_prefix(SCHEME).and_then(|path| percent_decode_str(path).decode_utf8().ok());
    let Some(path) = path else {
        let message = format!("the URI of a file is {SCHEME}PATH, not `{}`", model::excerpt(uri, 200));
        return Err(ErrorData::invalid_params(message, None));
    };
    let mut answer = call(server, caller, "read_files", &members(json!({ "paths": [path] }))).await?;
    let file = match answer.get_mut("files") {
        Some(Value::Object(files)) => files.values_mut().next().map(Value::take),
        _ => None,
    };
    let file = file.unwrap_or_default();
    if let Some(content) = file.get("content").and_then(Value::as_str) {
        let content = read_on(server, caller, &path, content.to_owned(), &file).await?;
        return Ok(ReadResourceResult::new(vec![ResourceContents::text(content, uri)]));
    }
    let status = file.get("status").and_then(Value::as_str).unwrap_or("NOT_FOUND");
    let message = format!("`{}` cannot be read: {status}", model::excerpt(&path, 200));
    Err(ErrorData::resource_not_found(message, Some(file)))
}

/// Appends the rest of a file to its first lines, which are those of `first`.
async fn read_on(
    server: &RunServer,
    caller: &McpCaller,
    path: &str,
    mut content: String,
    first: &Value,
) -> Result<String, ErrorData> {
    let mut next = next_of(first);
    for _ in 0..MAX_PAGES {
        let Some(mut input) = next else { return Ok(content) };
        input.extend(members(json!({ "path": path, "format": "raw", "maxLines": 1000 })));
        let page = Value::from(call(server, caller, "read_file", &input).await?);
        content.push_str(page["content"].as_str().unwrap_or_default());
        if page["sha256"] != first["sha256"] || content.len() > MAX_BYTES {
            break;
        }
        next = next_of(&page);
    }
    let message = format!("`{}` has changed, or is too large for a resource: use read_file", model::excerpt(path, 200));
    Err(ErrorData::resource_not_found(message, None))
}

/// The members of `read_file` that continue an answer; `None` if it has the end of the file.
fn next_of(page: &Value) -> Option<Map<String, Value>> {
    if let (Some(line), Some(column)) = (page["cutLine"].as_u64(), page["nextColumn"].as_u64()) {
        return Some(members(json!({ "startLine": line, "column": column })));
    }
    page["nextStartLine"].as_u64().map(|line| members(json!({ "startLine": line })))
}

async fn call(
    server: &RunServer,
    caller: &McpCaller,
    name: &'static str,
    input: &Map<String, Value>,
) -> Result<Map<String, Value>, ErrorData> {
    let tool = tools::find(name).ok_or_else(|| ErrorData::internal_error("the tool is missing", None))?;
    let McpCaller(caller, moved, _) = caller;
    let answer = server.call(caller, tool, Ok(input.clone())).await;
    let answer =
        answer.map_err(|failed| protocol_error(&moved.problem_of(failed.error.into()).of_call(failed.tool_call_id)))?;
    serde_json::from_str(&answer.answer.to_json()).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn members(value: Value) -> Map<String, Value> {
    if let Value::Object(members) = value { members } else { Map::new() }
}
