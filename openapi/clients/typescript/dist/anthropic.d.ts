import type { ToolResultBlockParam, ToolUnion, ToolUseBlock } from "@anthropic-ai/sdk/resources/messages/messages";
import type { BetaToolUseBlock } from "@anthropic-ai/sdk/resources/beta/messages/messages";
import type { BetaRunnableTool } from "@anthropic-ai/sdk/lib/tools/BetaRunnableTool";
import type { Run } from "./run.js";
/**
 * Returns the tools of the run for the SDK's tool runner, `client.beta.messages.toolRunner({ tools })`.
 *
 * A refusal is a result with `is_error`, in the service's words. The runner shows every exception to the model, also an invalid token or
 * a lost connection: bound the loop by `max_iterations`.
 */
export declare function toolsFor(run: Run): Promise<BetaRunnableTool<unknown>[]>;
/** Returns the tools of the run for a loop of your own, `client.messages.create({ tools })`. */
export declare function messageTools(run: Run): Promise<ToolUnion[]>;
/** Executes a block of type `tool_use` and returns the block that answers it. */
export declare function answer(run: Run, block: ToolUseBlock | BetaToolUseBlock): Promise<ToolResultBlockParam>;
