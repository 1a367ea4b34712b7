import type { RunnableToolFunctionWithoutParse } from "openai/lib/RunnableFunction";
import type { ChatCompletionFunctionTool, ChatCompletionMessageToolCall, ChatCompletionToolMessageParam } from "openai/resources/chat/completions/completions";
import type { FunctionTool, ResponseFunctionToolCall, ResponseInputItem } from "openai/resources/responses/responses";
import type { Run } from "./run.js";
/** Returns the tools of the run for the SDK's runner, `client.chat.completions.runTools({ tools })`. */
export declare function toolsFor(run: Run): Promise<RunnableToolFunctionWithoutParse[]>;
/** Returns the tools of the run for `client.chat.completions.create({ tools })`. */
export declare function chatTools(run: Run): Promise<ChatCompletionFunctionTool[]>;
/** Executes one of the `tool_calls` of a message and returns the message that answers it. */
export declare function answerChat(run: Run, toolCall: ChatCompletionMessageToolCall): Promise<ChatCompletionToolMessageParam>;
/** Returns the tools of the run for `client.responses.create({ tools })`. */
export declare function responseTools(run: Run): Promise<FunctionTool[]>;
/** Executes a `function_call` of a response's output and returns the input that answers it. */
export declare function answerResponse(run: Run, item: ResponseFunctionToolCall): Promise<ResponseInputItem.FunctionCallOutput>;
