//! The protocol's handlers: each is a tool call of the run, so that permission, policy and audit are those of the routes.

use std::time::Duration;

use engine::CallError;
use engine::calls::{Failed, TextAnswer};
use engine::tools;
use engine::tools::{Audience, CatalogueView, Tool, refusal_text};
use model::{Refusal, Run};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult,
    DiscoverResult, ErrorCode, Implementation, InitializeRequestParams, InitializeResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value};
use tool_formats::{FormatCall, FormatRefusal, FormatTool, ToolFormat};

use super::{CallForm, CallHeaders, HasMoved, McpCaller, errors, instructions, resources};
use crate::http::auth::RunTokenCaller;
use crate::http::formats::FormatName;
use crate::http::problem::Problem;
use crate::service::Service;

/// The methods that the server has.
const METHODS: [&str; 7] =
    ["initialize", "ping", "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read"];

/// How often a call that was asked to report its progress does so.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How long a client may use a list of tools, in milliseconds.
const TOOLS_TTL_MILLIS: u64 = 300_000;

/// The member of a request's `_meta` by which a program asks for the JSON answer beside the text.
const JSON_META: &str = "workspaced/json";

/// The member of `_meta` of a list of tools that changes if the run's policy or the caller's permissions do.
const ETAG_META: &str = "workspaced/etag";

/// The server of one request.
#[derive(Clone)]
pub(super) struct RunServer {
    service: Service,
}

impl RunServer {
    pub(super) fn new(service: Service) -> Self {
        Self { service }
    }

    /// Calls a tool of the caller's run.
    pub(super) async fn call(
        &self,
        caller: &RunTokenCaller,
        tool: &'static Tool,
        input: Result<Map<String, Value>, Refusal>,
    ) -> Result<TextAnswer, Failed> {
        let call = self.service.calls.call_members_as_text(&caller.run, caller.caller.clone(), tool, input);
        // The protocol's handlers run in tasks of their own.
        caller.parties.scope(call).await
    }

    /// Calls a tool of the caller's run in a format.
    async fn call_in_format(
        &self,
        caller: &RunTokenCaller,
        format: &'static ToolFormat,
        tool: &'static FormatTool,
        form: CallForm,
        input: Map<String, Value>,
    ) -> Result<TextAnswer, FormatRefusal> {
        let call = match form.headers {
            Ok(CallHeaders { reason, tool_call_id }) => {
                FormatCall { format, tool, input: Ok(Value::Object(input)), reason, tool_call_id }
            }
            Err(refusal) => FormatCall { format, tool, input: Err(refusal), reason: None, tool_call_id: None },
        };
        // Boxed, since it has the whole transaction.
        let call = Box::pin(tool_formats::call(&self.service.calls, &caller.run, caller.caller.clone(), call));
        caller.parties.scope(call).await
    }

    /// Makes a call by its name in the request's form. A refusal comes with its text.
    async fn call_named(&self, caller: &RunTokenCaller, called: Called) -> Result<TextAnswer, FormatRefusal> {
        match called {
            Called::Own(tool, input) => self.call(caller, tool, input).await.map_err(|failed| {
                let text = match failed.error.as_error() {
                    CallError::Refused(refusal) => refusal_text(refusal),
                    CallError::Moved(_) | CallError::Internal(_) => String::new(),
                };
                FormatRefusal { failed, text }
            }),
            Called::InFormat(format, tool, form, input) =>
            // Boxed, so that the future of any other call is smaller.
            {
                self.call_in_format(caller, format, tool, form, input).await
            }
        }
    }

    /// The run of the caller.
    async fn run(&self, McpCaller(caller, moved, _): &McpCaller) -> Result<Run, ErrorData> {
        self.service.runs.run(&caller.run).await.map_err(|error| protocol_error(&moved.problem_of(error)))
    }

    /// The server as the caller sees it: with the instructions of its run.
    async fn info(&self, caller: &McpCaller) -> Result<ServerConfig, ErrorData> {
        let run = self.run(caller).await?;
        let permissions = &caller.0.caller.permissions;
        let text =
            instructions::of_run(&run, caller.2.format.is_none(), |permission| permissions.contains(&permission));
        Ok(self.get_info().with_instructions(text))
    }

    async fn tools(&self, caller: &McpCaller) -> Result<ListToolsResult, ErrorData> {
        let run = self.run(caller).await?;
        let McpCaller(caller, _, form) = caller;
        let view = CatalogueView {
            audience: Audience::Model,
            permissions: &caller.caller.permissions,
            policy: Some(&run.policy),
            has_mounts: !run.mounts.is_empty(),
            has_runner: self.service.calls.has_runner(&caller.run),
        };
        let items = match form.format {
            Some(FormatName(format)) => format.mcp_tools(&view),
            None => view.mcp_items(),
        };
        let etag = model::Sha256::of(Value::from(items.clone()).to_string().as_bytes());
        let tools = items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
        let tools = tools.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let mut list = ListToolsResult::with_all_items(tools);
        (list.ttl_ms, list.cache_scope) = (Some(TOOLS_TTL_MILLIS), Some(CacheScope::Private));
        list.meta.get_or_insert_default().insert(ETAG_META.to_owned(), etag.to_string().into());
        Ok(list)
    }
}

/// A call, by its name in the request's form.
enum Called {
    Own(&'static Tool, Result<Map<String, Value>, Refusal>),
    InFormat(&'static ToolFormat, &'static FormatTool, CallForm, Map<String, Value>),
}

impl Called {
    /// Returns the call of the tool with `name`; `None` if the form has none.
    fn of(name: &str, mut input: Map<String, Value>, form: CallForm) -> Option<Self> {
        if let Some(FormatName(format)) = form.format {
            return format.tool(name).map(|tool| Self::InFormat(format, tool, form, input));
        }
        // The server makes the IDs of calls, unless the request has one: a model may invent the same one twice.
        input.remove("toolCallId");
        let tool = tools::find(name)?;
        let input = form.headers.map(|CallHeaders { reason, tool_call_id }| {
            input.extend(tool_call_id.map(|id| ("toolCallId".to_owned(), id.into())));
            if !tool.only_reads() && !input.contains_key("reason") {
                input.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
            }
            input
        });
        Some(Self::Own(tool, input))
    }
}

/// The caller that the route has authenticated.
fn caller_of(parts: Option<&axum::http::request::Parts>) -> Result<McpCaller, ErrorData> {
    let caller = parts.and_then(|parts| parts.extensions.get::<McpCaller>()).cloned();
    caller.ok_or_else(|| ErrorData::internal_error("the request has no caller", None))
}

/// A problem as an error of the protocol, for what is not a tool call.
pub(super) fn protocol_error(problem: &Problem) -> ErrorData {
    let document = problem.document();
    let message = document.get("message").and_then(Value::as_str).unwrap_or("the request failed").to_owned();
    ErrorData::new(ErrorCode(errors::code_of(problem.status())), message, Some(document))
}

/// A refusal as the result of its call, so that the model reads it. Most clients show a model the JSON instead of the text, or both,
/// where there is any: only a program that asks for it receives it.
fn refused(FormatRefusal { failed, text }: FormatRefusal, moved: &HasMoved, wants_json: bool) -> CallToolResult {
    let problem = moved.problem_of(failed.error.into()).of_call(failed.tool_call_id);
    let text = if text.is_empty() { refusal_text(problem.refusal()) } else { text };
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = wants_json.then(|| problem.document());
    result
}

/// The answer of a call, as text; see [`refused`].
fn answered(answer: TextAnswer, wants_json: bool) -> Result<CallToolResult, ErrorData> {
    let mut result = CallToolResult::success(vec![ContentBlock::text(answer.text)]);
    if wants_json {
        let json = serde_json::from_str(&answer.answer.to_json());
        result.structured_content = Some(json.map_err(|error| ErrorData::internal_error(error.to_string(), None))?);
    }
    Ok(result)
}

impl ServerHandler for RunServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("workspaced", env!("CARGO_PKG_VERSION")))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let caller = caller_of(context.extensions.get())?;
        context.peer.set_peer_info(request.clone());
        let mut result = self.negotiate_initialize(&request)?;
        result.instructions = self.info(&caller).await?.instructions;
        Ok(result)
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let info = self.info(&caller_of(context.extensions.get())?).await?;
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), info))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        check_only_page(request)?;
        let caller = caller_of(context.extensions.get())?;
        self.tools(&caller).await
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let McpCaller(caller, moved, form) = caller_of(context.extensions.get())?;
        let called = Called::of(&request.name, request.arguments.unwrap_or_default(), form).ok_or_else(|| {
            let message = format!("there is no tool `{}`: tools/list names all", model::excerpt(&request.name, 100));
            ErrorData::invalid_params(message, None)
        })?;
        let registration = self.service.state.cancellations.register(&caller.caller.actor, context.id.clone());
        let progress = context.meta.get_progress_token();
        let wants_json = context.meta.get(JSON_META) == Some(&Value::Bool(true));
        let call = self.call_named(&caller, called);
        tokio::pin!(call);
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        ticks.tick().await;
        let mut seconds = 0.0;
        loop {
            tokio::select! {
                done = &mut call => {
                    let result = match done {
                        Ok(answer) => answered(answer, wants_json)?,
                        Err(refusal) => refused(refusal, &moved, wants_json),
                    };
                    return Ok(CallToolResponse::from(result));
                }
                // Dropping the call ends a read. A change goes on to its end, and is recorded.
                () = registration.cancelled() => return Err(cancelled()),
                () = context.ct.cancelled() => return Err(cancelled()),
                _ = ticks.tick(), if progress.is_some() => {
                    seconds += PROGRESS_INTERVAL.as_secs_f64();
                    if let Some(token) = progress.clone() {
                        let progress = ProgressNotificationParam::new(token, seconds);
                        // A client that is gone does not receive it.
                        let _ = context.peer.notify_progress(progress).await;
                    }
                }
            }
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let caller = caller_of(context.extensions.get())?;
        resources::list(self, &caller, request.and_then(|request| request.cursor)).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        check_only_page(request)?;
        Ok(ListResourceTemplatesResult::with_all_items(vec![resources::template()]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = caller_of(context.extensions.get())?;
        resources::read(self, &caller, &request.uri).await.map(ReadResourceResponse::from)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // A known method comes here if its parameters have another form.
        let CustomRequest { method, .. } = request;
        if METHODS.contains(&method.as_str()) {
            let message = format!("the parameters of `{method}` do not have the form that the protocol specifies");
            return Err(ErrorData::invalid_params(message, None));
        }
        let message = format!("there is no method `{}`", model::excerpt(&method, 100));
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }
}

/// Refuses a cursor of a list that has one page. Some clients send an empty one for the first.
fn check_only_page(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor).filter(|cursor| !cursor.is_empty()) {
        Some(_) => Err(ErrorData::invalid_params("the list has one page, to which no cursor belongs", None)),
        None => Ok(()),
    }
}

fn cancelled() -> ErrorData {
    ErrorData::invalid_request("the request was cancelled by its client", None)
}
