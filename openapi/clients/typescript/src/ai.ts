// Tools for the package `ai`, the AI SDK.

import { dynamicTool, jsonSchema } from "ai";
import type { ToolSet } from "ai";
import type { Run } from "./run.js";
import { dispatch, functions } from "./tools.js";

/** Returns the tools of the run for `generateText({ tools })`, `streamText` and agents. A refusal is an error of the tool, in the service's words. */
export async function toolsFor(run: Run): Promise<ToolSet> {
  const tools = (await functions(run)).map(({ name, description, schema }) => {
    const execute = async (input: unknown) => {
      const answer = await dispatch(run, name, input);
      if (!answer.ok) throw new Error(answer.text);
      return answer.text;
    };
    return [name, dynamicTool({ description, inputSchema: jsonSchema(schema), execute })] as const;
  });
  return Object.fromEntries(tools);
}
