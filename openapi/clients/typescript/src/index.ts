// A client of workspaced, which gives each coding-agent run its own guarded, audited file tree behind an HTTP API.

export { Checkout } from "./checkout.js";
export type { ExecOptions, Executed, OutputSink, Pulled, Pushed, PushOptions } from "./checkout.js";
export { Client } from "./client.js";
export type { CreateRunOptions } from "./client.js";
export { ApprovalRequired, FolderError, NoAnswer, WorkspacedError } from "./errors.js";
export { Run } from "./run.js";
export type { CommandRecord, EventRecord, TextAnswer, ToolMethods } from "./run.js";
export type { FolderChanges, FolderPlace, LeftEntry, PathChange } from "./shim.js";
export type { FollowOptions, ResumePoint, StreamEvent } from "./streams.js";
export { dispatch, functions } from "./tools.js";
export type { ToolFunction } from "./tools.js";
export type { Options } from "./transport.js";
export type * as types from "./types.js";
