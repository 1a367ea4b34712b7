// Tools for the package `@anthropic-ai/sdk`.

import type { ToolResultBlockParam, ToolUnion, ToolUseBlock } from "@anthropic-ai/sdk/resources/messages/messages";
import type { BetaToolUseBlock } from "@anthropic-ai/sdk/resources/beta/messages/messages";
import type { BetaRunnableTool } from "@anthropic-ai/sdk/lib/tools/BetaRunnableTool";
import { ToolError } from "@anthropic-ai/sdk/lib/tools/ToolError";
import type { Run } from "./run.js";
import { dispatch } from "./tools.js";

/**
 * Returns the tools of the run for the SDK's tool runner, `client.beta.messages.toolRunner({ tools })`.
 *
 * A refusal is a result with `is_error`, in the service's words. The runner shows every exception to the model, also an invalid token or
 * a lost connection: bound the loop by `max_iterations`.
 */
export async function toolsFor(run: Run): Promise<BetaRunnableTool<unknown>[]> {
  const tools = (await run.tools("anthropic", "model")) as unknown as Pick<BetaRunnableTool & { input_schema: { type: "object" } }, "name" | "input_schema">[];
  return tools.map((tool) => ({
    ...tool,
    parse: (input) => input,
    run: async (input) => {
      const answer = await dispatch(run, tool.name, input);
      if (!answer.ok) throw new ToolError(answer.text);
      return answer.text;
    },
  }));
}

/** Returns the tools of the run for a loop of your own, `client.messages.create({ tools })`. */
export async function messageTools(run: Run): Promise<ToolUnion[]> {
  return (await run.tools("anthropic", "model")) as unknown as ToolUnion[];
}

/** Executes a block of type `tool_use` and returns the block that answers it. */
export async function answer(run: Run, block: ToolUseBlock | BetaToolUseBlock): Promise<ToolResultBlockParam> {
  const result = await dispatch(run, block.name, block.input);
  return { type: "tool_result", tool_use_id: block.id, content: result.text, is_error: !result.ok };
}
