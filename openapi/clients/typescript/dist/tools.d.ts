import type { Run, TextAnswer } from "./run.js";
type Members = {
    [member: string]: unknown;
};
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
    function: {
        name: string;
        description: string;
        parameters: Members;
    };
}
/** A tool as Anthropic's messages take it. */
export interface AnthropicTool {
    name: string;
    description: string;
    input_schema: {
        type: "object";
        [member: string]: unknown;
    };
}
/** A call that a model asks for in a chat completion: an object of the SDK. */
type OpenAICall = {
    id: string;
    function: {
        name: string;
        arguments: string;
    };
} | {
    id: string;
    custom: {
        name: string;
        input: string;
    };
};
/** Returns the tools for OpenAI's function calling in chat completions. */
export declare function openaiTools(run: Run): Promise<OpenAITool[]>;
/** Returns the tools for OpenAI's responses. */
export declare function openaiResponseTools(run: Run): Promise<{
    name: string;
    description: string;
    parameters: Members;
    type: "function";
    strict: boolean;
}[]>;
/** Returns the tools for Anthropic's messages. */
export declare function anthropicTools(run: Run): Promise<AnthropicTool[]>;
/**
 * Executes a model's call and returns the text that the model reads.
 *
 * The ID of the call is new each time: the IDs that models invent may repeat.
 */
export declare function dispatch(run: Run, name: string, input: unknown): Promise<TextAnswer>;
/** Executes one of the `tool_calls` of a message and returns the message that answers it. */
export declare function answerOpenAI(run: Run, toolCall: OpenAICall): Promise<{
    role: "tool";
    tool_call_id: string;
    content: string;
}>;
/** Executes a `function_call` of a response's output and returns the input that answers it. */
export declare function answerOpenAIResponse(run: Run, item: {
    call_id: string;
    name: string;
    arguments: string;
}): Promise<{
    type: "function_call_output";
    call_id: string;
    output: string;
}>;
/** Executes a block of type `tool_use` and returns the block that answers it. */
export declare function answerAnthropic(run: Run, block: {
    id: string;
    name: string;
    input: unknown;
}): Promise<{
    type: "tool_result";
    tool_use_id: string;
    content: string;
    is_error: boolean;
}>;
/** Returns each tool as a function. */
export declare function functions(run: Run): Promise<ToolFunction[]>;
export {};
