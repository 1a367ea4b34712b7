import type { BetaRunnableTool } from "@anthropic-ai/sdk/lib/tools/BetaRunnableTool";
import type { BetaMemoryTool20250818Command } from "@anthropic-ai/sdk/resources/beta";
import type { Run } from "./run.js";
/**
 * Returns the memory tool of the SDK, whose `/memories` is the folder `folder` of the run.
 *
 * The service answers in the words of the SDK's own memory of files, and adds what helps with a refusal. Policy, budgets and the record
 * are those of the run. A change made meanwhile by another is not overwritten.
 */
export declare function memoryTool(run: Run, folder?: string): BetaRunnableTool<BetaMemoryTool20250818Command>;
