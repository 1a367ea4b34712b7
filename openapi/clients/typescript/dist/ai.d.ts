import type { ToolSet } from "ai";
import type { Run } from "./run.js";
/** Returns the tools of the run for `generateText({ tools })`, `streamText` and agents. A refusal is an error of the tool, in the service's words. */
export declare function toolsFor(run: Run): Promise<ToolSet>;
