// A client of workspaced, which gives each coding-agent run its own guarded, audited file tree behind an HTTP API.
export { Checkout } from "./checkout.js";
export { Client } from "./client.js";
export { ApprovalRequired, FolderError, NoAnswer, WorkspacedError } from "./errors.js";
export { Run } from "./run.js";
export { dispatch, functions } from "./tools.js";
