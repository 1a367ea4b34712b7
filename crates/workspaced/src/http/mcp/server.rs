//! The protocol's handlers: each is a tool call of the run, so that permission, policy and audit are those of the routes.

use std::time::Duration;

use bytes::Bytes;
use engine::call::Failed;
use engine::tool::Tool;
use engine::tool::text::{TextAnswer, refusal_text};
use engine::tools::{self, Audience, CatalogueFormat, CatalogueView};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam, ContentBlock, CustomRequest,
    CustomResult, ErrorCode, Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value};

use super::{Caller, HasMoved, resources};
use crate::http::auth::RunTokenCaller;
use crate::http::problem::Problem;
use crate::service::Service;

/// The methods that the server has.
const METHODS: [&str; 7] =
    ["initialize", "ping", "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read"];

/// How often a call that was asked to report its progress does so.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

const INSTRUCTIONS: &str = "\
Tools to read and change the files of one workspace. Paths are relative to its root. Read a file before you change it: a \
change is refused if the file is not as you last saw it. A refusal says what to do next. Every call is recorded.";

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
        input: &Map<String, Value>,
    ) -> Result<TextAnswer, Failed> {
        // A map of JSON values always serialises.
        let body = Bytes::from(serde_json::to_vec(input).unwrap_or_default());
        let call = self.service.call_tool_as_text(&caller.run, caller.caller.clone(), tool, body);
        // The protocol's handlers run in tasks of their own.
        caller.parties.scope(call).await
    }

    async fn tools(&self, Caller(caller, moved): &Caller) -> Result<Vec<rmcp::model::Tool>, ErrorData> {
        let run = self.service.run(&caller.run).await.map_err(|error| protocol_error(&moved.problem_of(error)))?;
        let view = CatalogueView {
            format: CatalogueFormat::Mcp,
            audience: Audience::Model,
            permissions: &caller.caller.permissions,
            policy: Some(&run.policy),
            has_mounts: !run.mounts.is_empty(),
        };
        let tools = view.items().into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
        tools.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

/// The caller that the route has authenticated.
fn caller_of(parts: Option<&axum::http::request::Parts>) -> Result<Caller, ErrorData> {
    let caller = parts.and_then(|parts| parts.extensions.get::<Caller>()).cloned();
    caller.ok_or_else(|| ErrorData::internal_error("the request has no caller", None))
}

/// A problem as an error of the protocol, for what is not a tool call.
pub(super) fn protocol_error(problem: &Problem) -> ErrorData {
    let document = problem.document();
    let message = document.get("message").and_then(Value::as_str).unwrap_or("the request failed").to_owned();
    ErrorData::invalid_params(message, Some(document))
}

/// A refusal as the result of its call, so that the model reads it.
fn refused(failed: Failed, moved: &HasMoved) -> CallToolResult {
    let problem = moved.problem_of(failed.error).of_call(failed.tool_call_id);
    let mut result = CallToolResult::error(vec![ContentBlock::text(refusal_text(problem.refusal()))]);
    result.structured_content = Some(problem.document());
    result
}

fn answered(answer: TextAnswer) -> Result<CallToolResult, ErrorData> {
    let mut result = CallToolResult::success(vec![ContentBlock::text(answer.text)]);
    let json = serde_json::from_str(&answer.json);
    result.structured_content = Some(json.map_err(|error| ErrorData::internal_error(error.to_string(), None))?);
    Ok(result)
}

impl ServerHandler for RunServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("workspaced", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = caller_of(context.extensions.get())?;
        Ok(ListToolsResult::with_all_items(self.tools(&caller).await?))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Caller(caller, moved) = caller_of(context.extensions.get())?;
        let Some(tool) = tools::find(&request.name) else {
            let message = format!("there is no tool `{}`: tools/list names all", model::excerpt(&request.name, 100));
            return Err(ErrorData::invalid_params(message, None));
        };
        let mut input = request.arguments.unwrap_or_default();
        // The server makes the IDs of calls: a model may invent the same one twice.
        input.remove("toolCallId");
        let registration = self.service.state.cancellations.register(&caller.caller.actor, context.id.clone());
        let progress = context.meta.get_progress_token();
        let call = self.call(&caller, tool, &input);
        tokio::pin!(call);
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        ticks.tick().await;
        let mut seconds = 0.0;
        loop {
            tokio::select! {
                done = &mut call => {
                    return done.map_or_else(|failed| Ok(refused(failed, &moved)), answered).map(CallToolResponse::from);
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
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
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
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
    }

    async fn on_cancelled(&self, notification: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        if let (Ok(Caller(caller, _)), Some(id)) = (caller_of(context.extensions.get()), notification.request_id) {
            self.service.state.cancellations.cancel(&caller.caller.actor, id);
        }
    }
}

fn cancelled() -> ErrorData {
    ErrorData::invalid_request("the request was cancelled by its client", None)
}
