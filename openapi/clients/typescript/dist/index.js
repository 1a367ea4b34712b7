// A client of workspaced, which gives each coding-agent run its own guarded, audited file tree behind an HTTP API.
export { Client } from "./client.js";
export { ApprovalRequired, WorkspacedError } from "./errors.js";
export { Run } from "./run.js";
export { answerAnthropic, answerOpenAI, anthropicTools, dispatch, functions, openaiTools } from "./tools.js";
