// A client of workspaced, which gives each coding-agent run its own guarded, audited file tree behind an HTTP API.

export { Client } from "./client.js";
export type { CreateRunOptions } from "./client.js";
export { ApprovalRequired, WorkspacedError } from "./errors.js";
export { Run } from "./run.js";
export type { CommandRecord, EventRecord, TextAnswer } from "./run.js";
export type { FollowOptions, ResumePoint, StreamEvent } from "./streams.js";
export { answerAnthropic, answerOpenAI, anthropicTools, dispatch, functions, openaiTools } from "./tools.js";
export type { ToolFunction } from "./tools.js";
export type { Options } from "./transport.js";
export type * as types from "./types.js";
