// The catalogue as tools of agent frameworks, and what executes the calls that a model asks for.

import type { Run, TextAnswer } from "./run.js";

type Members = { [member: string]: unknown };

/** A tool as a function with its name, description and JSON Schema. Answers the text for the model, also of refusals. */
export interface ToolFunction {
  name: string;
  description: string;
  schema: Members;
  call(input: object): Promise<string>;
}

/** A tool as OpenAI's chat completions take it. */
export interface OpenAITool {
  type: "function";
  function: { name: string; description: string; parameters: Members };
}

/** A tool as Anthropic's messages take it. */
export interface AnthropicTool {
  name: string;
  description: string;
  input_schema: { type: "object"; [member: string]: unknown };
}

/** A call that a model asks for in a chat completion: an object of the SDK. */
type OpenAICall =
  | { id: string; function: { name: string; arguments: string } }
  | { id: string; custom: { name: string; input: string } };

/** Returns the tools for OpenAI's function calling in chat completions. */
export async function openaiTools(run: Run): Promise<OpenAITool[]> {
  return (await run.tools("openai", "model")) as unknown as OpenAITool[];
}

/** Returns the tools for OpenAI's responses. */
export async function openaiResponseTools(run: Run) {
  return (await openaiTools(run)).map((tool) => ({ type: "function" as const, strict: false, ...tool.function }));
}

/** Returns the tools for Anthropic's messages. */
export async function anthropicTools(run: Run): Promise<AnthropicTool[]> {
  return (await run.tools("anthropic", "model")) as unknown as AnthropicTool[];
}

/**
 * Executes a model's call and returns the text that the model reads.
 *
 * The ID of the call is new each time: the IDs that models invent may repeat.
 */
export async function dispatch(run: Run, name: string, input: unknown): Promise<TextAnswer> {
  let parsed: unknown;
  try {
    parsed = typeof input === "string" ? JSON.parse(input || "{}") : input;
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) throw new Error("they are not an object");
  } catch (error) {
    const text = `INVALID_REQUEST: the arguments of \`${name}\` are not a JSON object: ${(error as Error).message}\nSend one JSON object.\n`;
    return { text, ok: false, status: 400, callId: null, seq: null, sha256: null };
  }
  const { toolCallId: _, ...rest } = parsed as Members;
  return run.text(name, rest);
}

/** Executes one of the `tool_calls` of a message and returns the message that answers it. */
export async function answerOpenAI(run: Run, toolCall: OpenAICall) {
  const [name, input] =
    "function" in toolCall ? [toolCall.function.name, toolCall.function.arguments] : [toolCall.custom.name, toolCall.custom.input];
  return { role: "tool" as const, tool_call_id: toolCall.id, content: (await dispatch(run, name, input)).text };
}

/** Executes a `function_call` of a response's output and returns the input that answers it. */
export async function answerOpenAIResponse(run: Run, item: { call_id: string; name: string; arguments: string }) {
  const answer = await dispatch(run, item.name, item.arguments);
  return { type: "function_call_output" as const, call_id: item.call_id, output: answer.text };
}

/** Executes a block of type `tool_use` and returns the block that answers it. */
export async function answerAnthropic(run: Run, block: { id: string; name: string; input: unknown }) {
  const answer = await dispatch(run, block.name, block.input);
  return { type: "tool_result" as const, tool_use_id: block.id, content: answer.text, is_error: !answer.ok };
}

/** Returns each tool as a function. */
export async function functions(run: Run): Promise<ToolFunction[]> {
  return (await run.tools("workspaced", "model")).map((tool) => ({
    name: tool["name"] as string,
    description: tool["description"] as string,
    schema: tool["inputSchema"] as Members,
    call: async (input) => (await dispatch(run, tool["name"] as string, input)).text,
  }));
}
